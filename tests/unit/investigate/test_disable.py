"""The smallest function that heals when it is kept out of the compiler."""

from __future__ import annotations

from typing import Any

from torchtriage.investigate import disable
from torchtriage.investigate.disable import Function
from torchtriage.investigate.facts import Budget
from torchtriage.lab.request import Request
from torchtriage.model.outcome import Outcome

from .fake import SAME, WRONG, FakeLab


def tree(*edges: tuple[str, str]) -> list[dict[str, Any]]:
    """(parent, name) pairs, as `probe.tree` writes them."""
    return [
        {"name": name, "parent": parent, "count": 1, "file": "net.py", "line": 7} for parent, name in edges
    ]


# Net calls two blocks, and the second block's attention calls softmax.
NET = tree(
    ("", "net:Net.forward"),
    ("net:Net.forward", "net:Stem.forward"),
    ("net:Net.forward", "net:Block.forward"),
    ("net:Block.forward", "net:Attention.forward"),
    ("net:Block.forward", "net:Mlp.forward"),
    ("net:Attention.forward", "net:softmax"),
)


def healed_by(*names: str) -> object:
    def answer(request: Request) -> Outcome:
        return SAME if set(names) & set(request.variant.disabled) else WRONG

    return answer


def search(edges: list[dict[str, Any]], *names: str) -> Function | None:
    return disable.search(FakeLab(healed_by(*names), edges), Request(stop=0), 0)  # type: ignore[arg-type]


def test_the_search_goes_down_as_long_as_one_function_heals() -> None:
    found = search(NET, "net:Net.forward", "net:Block.forward", "net:Attention.forward", "net:softmax")
    assert found == Function("net:softmax", "net.py", 7)


def test_it_stops_at_a_function_whose_parts_do_not_heal_alone() -> None:
    found = search(NET, "net:Net.forward", "net:Block.forward")
    assert found is not None
    assert found.name == "net:Block.forward"


def test_of_several_that_heal_the_one_that_covers_least_is_taken() -> None:
    found = search(NET, "net:Net.forward", "net:Stem.forward", "net:Block.forward")
    assert found is not None
    assert found.name == "net:Stem.forward"


def test_nothing_is_found_where_not_even_the_region_heals() -> None:
    assert search(NET) is None
    assert search(NET, "net:softmax") is None  # what is below a function that does not heal is not asked


def test_a_region_that_calls_nothing_of_the_user_s_is_not_asked() -> None:
    lab = FakeLab(healed_by(), [])
    assert disable.search(lab, Request(), 0) is None
    assert lab.asked == []


def test_recursion_ends() -> None:
    loop = tree(("", "m:f"), ("m:f", "m:g"), ("m:g", "m:f"), ("m:f", "m:f"))
    found = search(loop, "m:f", "m:g")
    assert found is not None
    assert found.name == "m:g"


def test_what_the_request_disables_already_stays_disabled() -> None:
    assert disable.without(Request(), ("a:f",)).variant.disabled == ("a:f",)
    assert disable.without(disable.without(Request(), ("a:f",)), ("a:g",)).variant.disabled == ("a:f", "a:g")


def test_siblings_are_asked_together() -> None:
    lab = FakeLab(healed_by("net:Net.forward"), NET)
    disable.search(lab, Request(), 0)
    assert [[r.variant.disabled[0] for r in question] for question in lab.asked] == [
        ["net:Net.forward"],
        ["net:Stem.forward", "net:Block.forward"],
    ]


def test_below_dynamo_functions_that_run_no_operator_are_not_asked() -> None:
    rows = [{**row, "works": not row["name"].endswith("Stem.forward")} for row in NET]
    lab = FakeLab(healed_by("net:Net.forward"), rows)  # type: ignore[arg-type]
    assert disable.search(lab, Request(stop=0), 0, working=True) is not None
    assert not any("net:Stem.forward" in request.variant.disabled for request in lab.requests)


def test_a_function_that_is_a_region_is_not_compiled_rather_than_wrapped() -> None:
    edges = tree(("", "net:step"), ("net:step", "net:softmax"))
    lab = FakeLab(healed_by("net:step|region"), edges)  # type: ignore[arg-type]
    found = disable.search(lab, Request(stop=0), 0, regions={"step"})
    assert found == Function("net:step|region", "net.py", 7)


def test_when_the_time_is_up_what_was_found_so_far_counts() -> None:
    lab = FakeLab(healed_by("net:Net.forward", "net:Block.forward"), NET)  # type: ignore[arg-type]
    budget = Budget(lab, lambda: len(lab.asked) > 0)
    found = disable.search(budget, Request(stop=0), 0)
    assert found == Function("net:Net.forward", "net.py", 7)
    assert budget.exceeded
