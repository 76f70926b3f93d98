"""The smallest set of compiler switches that heals."""

from __future__ import annotations

import ast

import pytest

from torchtriage.investigate import switches
from torchtriage.investigate.switches import TABLE, rows_for
from torchtriage.lab.request import Request
from torchtriage.model.outcome import Outcome

from .fake import SAME, WRONG, FakeLab, raised, switched


def names(found: object) -> list[str]:
    return [row.switch[0].rpartition(".config.")[2] for row in found]  # type: ignore[attr-defined]


def search(answer: object, backend: str = "inductor", changed: dict[str, str] | None = None) -> object:
    return switches.search(FakeLab(answer), Request(), WRONG, backend, changed or {})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "name",
    ["emulate_precision_casts", "pattern_matcher", "cpp.simdlen", "split_reductions", "donated_buffer"],
)
def test_the_switch_that_heals_is_found_alone(name: str) -> None:
    found = search(lambda r: SAME if switched(r, f".{name}") is not None else WRONG)
    assert names(found) == [name]


def test_two_switches_that_heal_only_together_are_found_together() -> None:
    def answer(request: Request) -> Outcome:
        pair = switched(request, ".max_fusion_size"), switched(request, ".epilogue_fusion")
        return SAME if None not in pair else WRONG

    assert names(search(answer)) == ["epilogue_fusion", "max_fusion_size"]


def test_a_switch_is_found_beside_one_that_breaks_something_else() -> None:
    def answer(request: Request) -> Outcome:
        if switched(request, ".layout_optimization") is not None:
            return raised()
        return SAME if switched(request, ".pattern_matcher") is not None else WRONG

    assert names(search(answer)) == ["pattern_matcher"]


def test_nothing_is_found_where_no_switch_heals() -> None:
    assert search(lambda request: WRONG) is None


def test_leaving_code_uncompiled_is_the_last_resort() -> None:
    last = search(lambda r: SAME if switched(r, ".suppress_errors") else WRONG, "eager")
    assert names(last) == ["suppress_errors"]
    either = search(
        lambda r: SAME if switched(r, ".suppress_errors") or switched(r, ".allow_rnn") else WRONG, "eager"
    )
    assert names(either) == ["allow_rnn"]


def test_the_last_resort_is_tried_by_itself() -> None:
    lab = FakeLab(lambda request: WRONG)
    switches.search(lab, Request(), WRONG, "eager", {})
    assert [len(r.variant.switches) for r in lab.requests if switched(r, ".suppress_errors")] == [1]


def test_a_switch_that_the_program_set_is_put_back_to_its_default() -> None:
    changed = {"torch._inductor.config.freezing": "False"}
    found = search(lambda r: SAME if switched(r, ".freezing") is False else WRONG, changed=changed)
    assert [row.switch for row in found] == [("torch._inductor.config.freezing", False)]  # type: ignore[attr-defined]


def test_defaults_that_are_not_plain_values_are_left_out() -> None:
    assert list(switches.defaults({"a": "<function f at 0x7f>", "b": "'x'", "c": "None"})) == [
        ("b", "x"),
        ("c", None),
    ]


def test_two_values_of_one_switch_never_stand_in_one_trial() -> None:
    asked = FakeLab(lambda request: WRONG)
    switches.search(
        asked, Request(), WRONG, "eager", {"torch._dynamo.config.capture_scalar_outputs": "False"}
    )
    for request in asked.requests:
        given = [name for name, _ in request.variant.switches]
        assert len(given) == len(set(given))


@pytest.mark.parametrize(
    ("backend", "layers"),
    [
        ("eager", {"dynamo"}),
        ("aot_eager", {"aot", "dynamo"}),
        ("aot_eager_decomp_partition", {"aot", "inductor"}),
        ("inductor", {"inductor", "aot"}),
        ("mine", set()),
    ],
)
def test_only_switches_of_the_layers_at_work_are_tried(backend: str, layers: set[str]) -> None:
    rows = rows_for(backend)
    assert {row.layer for row in rows} == layers
    assert not any(row.default for row in rows)


def test_every_row_is_a_plain_value_with_an_explanation() -> None:
    for row in TABLE:
        name, value = row.switch
        assert ast.literal_eval(repr(value)) == value
        assert name.startswith(
            ("torch._dynamo.config.", "torch._functorch.config.", "torch._inductor.config.")
        )
        assert row.explanation


def test_no_row_is_there_twice() -> None:
    assert len({(row.switch, row.layer) for row in TABLE}) == len(TABLE)
