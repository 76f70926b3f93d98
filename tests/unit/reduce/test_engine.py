"""The search: what it keeps, what it never runs twice, and that it ends at something that cannot be made smaller."""

import ast
import threading
import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchtriage.reduce import engine, source
from torchtriage.reduce import tree as trees
from torchtriage.reduce.engine import Interrupted, Row, Search
from torchtriage.reduce.passes import statements

STATEMENTS = Row("statements", statements.delete)


def lines(numbers: range) -> str:
    return "".join(f"a{n} = {n}\n" for n in numbers)


def searching(text: str, test: Callable[[str], bool], **more: object) -> Search:
    return Search(test, trees.text_of(ast.parse(text)), **more)  # type: ignore[arg-type]


@given(st.sets(st.integers(0, 39), min_size=1, max_size=5))
@settings(max_examples=40, deadline=None)
def test_what_the_failure_needs_is_all_that_stays(needed: set[int]) -> None:
    search = searching(lines(range(40)), lambda text: all(f"a{n} = {n}\n" in text for n in needed))
    engine.run(search, [STATEMENTS])
    search.close()
    assert search.best == "".join(f"a{n} = {n}\n" for n in sorted(needed))


def test_large_pieces_go_first() -> None:
    search = searching(lines(range(256)), lambda text: "a7 = 7\n" in text)
    engine.run(search, [STATEMENTS])
    assert search.tests < 60  # one by one it would be 256


def test_no_script_is_tested_twice() -> None:
    seen: list[str] = []

    def test(text: str) -> bool:
        seen.append(text)
        return "a3 = 3" in text

    search = searching(lines(range(10)), test)
    engine.run(search, [STATEMENTS, STATEMENTS])
    assert len(seen) == len(set(seen)) == search.tests


def test_each_step_that_is_noted_is_smaller_and_fails() -> None:
    def fails(text: str) -> bool:
        return "a3 = 3" in text and "a9 = 9" in text

    steps: list[str] = []
    search = searching(lines(range(12)), fails, note=lambda point, text: steps.append(text))
    engine.run(search, [STATEMENTS])
    sizes = [trees.size_of(text) for text in steps]
    assert sizes == sorted(sizes, reverse=True) and len(set(sizes)) == len(sizes)
    assert all(fails(text) for text in steps)


def test_several_are_tried_at_a_time() -> None:
    together, most, lock = 0, 0, threading.Lock()

    def test(text: str) -> bool:
        nonlocal together, most
        with lock:
            together += 1
            most = max(most, together)
        time.sleep(0.01)
        with lock:
            together -= 1
        return False

    engine.run(searching(lines(range(16)), test, jobs=3), [STATEMENTS])
    assert most == 3


def test_the_best_so_far_survives_the_end_of_the_time() -> None:
    search = searching(lines(range(64)), lambda text: "a1 = 1\n" in text)
    search.run_pass(Row("first half", lambda tree: statements.delete(tree)[32:]))
    search.deadline = 0.0
    with pytest.raises(Interrupted):
        engine.run(search, [STATEMENTS])
    assert "a1 = 1\n" in search.best and len(search.best.splitlines()) <= 32


def test_frozen_statements_are_not_touched() -> None:
    text = "register(1)\nx = 2\nregister(3)\n"

    def frozen(tree: ast.Module) -> list[str]:
        return [ast.unparse(s) for s in tree.body if "register" in ast.unparse(s)]

    search = searching(text, lambda text: True, frozen=frozen)
    engine.run(search, [STATEMENTS, *source.DETAILS])
    assert search.best == "register(1)\nregister(3)\n"


def test_scripts_with_unknown_names_cost_no_test() -> None:
    tested: list[str] = []
    search = searching("x = 1\ny = x\n", lambda text: bool(tested.append(text)))
    search.run_pass(STATEMENTS)
    assert sorted(tested) == ["\n", "x = 1\n"]  # never the second line alone


def test_a_pass_that_fails_ends_alone() -> None:
    def faulty(tree: ast.Module) -> list[engine.Change]:
        raise IndexError("list index out of range")

    search = Search(lambda text: "keep" in text, "keep = 1\nother = 2\n")
    engine.run(search, [Row("faulty", faulty), Row("statements", statements.delete)])
    search.close()
    assert search.best == "keep = 1\n"
    assert search.defects == {"faulty": "IndexError: list index out of range"}
