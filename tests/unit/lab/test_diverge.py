"""The first operation in which a capture parts from eager mode, from rows as trials write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from torchtriage.lab.diverge import FILE, first_divergence, read
from torchtriage.model.outcome import Divergence


def row(operator: str, line: int, mark: str, **more: Any) -> dict[str, Any]:
    place = {"file": "net.py", "line": line, "code": f"line {line}"} if line else {}
    return {"operator": operator, "marks": [mark], **place, **more}


EAGER = [row("aten.mul.Tensor", 3, "a"), row("aten.add.Tensor", 4, "b"), row("aten.relu.default", 5, "c")]
numbers = st.integers(min_value=0, max_value=30)


def in_one_run(rows: list[dict[str, Any]], run: int = 1) -> list[dict[str, Any]]:
    return [{**one, "run": run} for one in rows]


def test_the_same_operations_do_not_part() -> None:
    assert first_divergence(EAGER, in_one_run(EAGER)) is None


def test_another_result_on_the_same_line() -> None:
    captured = in_one_run([EAGER[0], row("aten.add.Tensor", 4, "x"), row("aten.relu.default", 5, "y")])
    assert first_divergence(EAGER, captured) == Divergence("aten.add.Tensor", "net.py", 4, "line 4", "")


def test_an_operation_that_was_not_captured_is_named_by_eager() -> None:
    captured = in_one_run([EAGER[0], row("aten.relu.default", 0, "y")])
    assert first_divergence(EAGER, captured) == Divergence("aten.add.Tensor", "net.py", 4, "line 4", "eager")


def test_an_operation_that_eager_does_not_run() -> None:
    captured = in_one_run([EAGER[0], row("aten.cos.default", 4, "x"), EAGER[2]])
    assert first_divergence(EAGER, captured) == Divergence(
        "aten.cos.default", "net.py", 4, "line 4", "captured"
    )


def test_what_lies_between_two_graphs_is_not_missed() -> None:
    captured = [*in_one_run(EAGER[:1], 1), *in_one_run(EAGER[2:], 2)]
    assert first_divergence(EAGER, captured) is None
    wrong = [*in_one_run(EAGER[:1], 1), *in_one_run([row("aten.relu.default", 5, "x")], 2)]
    assert first_divergence(EAGER, wrong) == Divergence("aten.relu.default", "net.py", 5, "line 5", "")


def test_eager_goes_on_after_the_capture_has_ended() -> None:
    assert first_divergence(EAGER, in_one_run(EAGER[:2])) == Divergence(
        "aten.relu.default", "net.py", 5, "line 5", "eager"
    )


def test_a_line_whose_work_cannot_be_seen_in_eager_mode_is_named_last() -> None:
    numpy = row("aten.cumsum.default", 9, "n")
    assert first_divergence(EAGER, in_one_run([*EAGER[:1], numpy, *EAGER[1:]])) == Divergence(
        "aten.cumsum.default", "net.py", 9, "line 9", "captured"
    )
    wrong = in_one_run([numpy, row("aten.mul.Tensor", 3, "x")])
    assert first_divergence(EAGER, wrong) == Divergence("aten.mul.Tensor", "net.py", 3, "line 3", "")


@given(st.lists(numbers, min_size=1, max_size=12, unique=True), st.data())
def test_the_first_changed_result_is_the_one_that_is_found(lines: list[int], data: st.DataObject) -> None:
    eager = [row(f"aten.op{n}.default", n + 1, f"m{n}") for n in lines]
    first = data.draw(st.integers(0, len(lines) - 1))
    captured = in_one_run([*eager[:first], *({**one, "marks": [f"x{one['line']}"]} for one in eager[first:])])
    found = first_divergence(eager, captured)
    assert found is not None
    assert (found.operator, found.line, found.only_in) == (eager[first]["operator"], eager[first]["line"], "")


@given(st.lists(numbers, max_size=12, unique=True), st.data())
def test_what_is_missing_at_the_ends_of_graphs_never_parts(lines: list[int], data: st.DataObject) -> None:
    eager = [row(f"aten.op{n}.default", n + 1, f"m{n}") for n in lines]
    kept = [one for one in eager if data.draw(st.booleans())]
    found = first_divergence(eager, [{**one, "run": n} for n, one in enumerate(kept)])
    assert found is None or found.only_in == "eager"


def test_files_that_are_not_there_say_nothing(tmp_path: Path) -> None:
    assert read(tmp_path, tmp_path / "reference-0") is None
    (tmp_path / FILE).write_text("[")
    (tmp_path / "reference-0").mkdir()
    (tmp_path / "reference-0" / FILE).write_text("[]")
    assert read(tmp_path, tmp_path / "reference-0") is None
    (tmp_path / FILE).write_text(json.dumps(EAGER))
    assert read(tmp_path, tmp_path / "reference-0") == Divergence(
        "aten.mul.Tensor", "net.py", 3, "line 3", "captured"
    )
