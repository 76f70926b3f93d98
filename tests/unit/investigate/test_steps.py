"""Below the layer: which application of which compiler step the failure needs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from torchtriage.investigate import steps
from torchtriage.lab.request import Request
from torchtriage.model.outcome import Measures, Outcome, Same, Step
from torchtriage.model.variant import Limit

from .fake import SAME, WRONG, FakeLab, raised, wrong

LOWERINGS = tuple(Step(n, f"aten.op{n}.default", "model.py", 10 + n, f"y = op{n}(x)") for n in range(1, 24))
PASSES = (Step(1, "normalize"), Step(2, "fuse"))


def limited(answer: Callable[[str, int], Outcome]) -> FakeLab:
    """A lab that is asked with limits only: `answer(subsystem, maximum)`."""

    def of(request: Request) -> Outcome:
        limit = request.variant.limit
        assert isinstance(limit, Limit)
        return answer(limit.subsystem, limit.maximum)

    return FakeLab(of)


def guilty_lowering(number: int) -> Callable[[str, int], Outcome]:
    def answer(subsystem: str, maximum: int) -> Outcome:
        if subsystem != "lowerings":
            return wrong(measures=Measures(steps=PASSES))
        return wrong(measures=Measures(steps=LOWERINGS)) if maximum >= number else SAME

    return answer


@pytest.mark.parametrize("width", [1, 2, 4])
@pytest.mark.parametrize("number", [1, 14, 23])
def test_the_lowering_that_brings_the_failure_is_found(number: int, width: int) -> None:
    found = steps.search(limited(guilty_lowering(number)), Request(), WRONG, "inductor", width)
    assert found is not None
    assert (found.subsystem, found.number, found.total) == ("lowerings", number, 23)
    assert found.step == LOWERINGS[number - 1]
    assert found.text == f"lowering {number} of 23 (aten.op{number}.default)"


def test_twenty_three_lowerings_take_few_trials() -> None:
    lab = limited(guilty_lowering(14))
    steps.search(lab, Request(), WRONG, "inductor")
    assert [len(question) for question in lab.asked[:2]] == [
        4,
        1,
    ]  # each subsystem off; all steps, to count them
    assert len(lab.requests) <= 4 + 1 + 5


def test_a_subsystem_that_heals_when_it_is_off_is_searched_in_the_order_of_the_compiler() -> None:
    def answer(subsystem: str, maximum: int) -> Outcome:
        if subsystem == "post_grad_passes":
            return wrong(measures=Measures(steps=PASSES)) if maximum >= 2 else SAME
        return SAME if maximum == 0 else WRONG

    found = steps.search(limited(answer), Request(), WRONG, "inductor")
    assert found is not None
    assert found.text == "post-grad pass 2 of 2 (fuse)"


def test_nothing_is_found_where_no_subsystem_heals() -> None:
    lab = limited(lambda subsystem, maximum: WRONG)
    assert steps.search(lab, Request(), WRONG, "inductor") is None
    assert len(lab.requests) == 4


def test_another_failure_on_the_way_is_no_verdict() -> None:
    def answer(subsystem: str, maximum: int) -> Outcome:
        found = guilty_lowering(14)(subsystem, maximum)
        return raised() if subsystem == "lowerings" and 5 < maximum < 14 else found

    assert steps.search(limited(answer), Request(), WRONG, "inductor") is None


def test_decompositions_are_searched_for_their_own_backend() -> None:
    table = (Step(1, "aten.addmm.default"), Step(2, "aten.ldexp.Tensor", "model.py", 3))

    def answer(subsystem: str, maximum: int) -> Outcome:
        return raised(message="no") if maximum >= 2 else SAME

    def with_steps(subsystem: str, maximum: int) -> Outcome:
        outcome = answer(subsystem, maximum)
        return (
            outcome if outcome == SAME else type(outcome)(Measures(steps=table), exception=outcome.exception)
        )  # type: ignore[attr-defined,call-arg]

    lab = limited(with_steps)
    found = steps.search(lab, Request(), raised(), "aot_eager_decomp_partition")
    assert found is not None
    assert found.text == "decomposition 2 of 2 (aten.ldexp.Tensor)"
    assert {request.variant.limit.backend for request in lab.requests} == {"aot_eager_decomp_partition"}  # type: ignore[union-attr]


def test_layers_without_steps_are_not_asked() -> None:
    lab = FakeLab(lambda request: WRONG)
    assert steps.search(lab, Request(), WRONG, "aot_eager") is None
    assert lab.asked == []


def test_without_the_names_of_the_steps_nothing_is_said() -> None:
    lab = limited(lambda subsystem, maximum: WRONG if maximum else SAME)
    assert steps.search(lab, Request(), WRONG, "inductor") is None


def test_a_step_past_the_end_of_the_list_is_not_named() -> None:
    listed = tuple(Step(n, f"pass {n}") for n in range(1, 5001))  # StepLog notes no more than 5000 of 6000

    def answer(subsystem: str, maximum: int) -> Outcome:
        return wrong(measures=Measures(steps=listed, step_count=6000)) if maximum >= 5500 else Same()

    found = steps.search(limited(answer), Request(), WRONG, "inductor")
    assert found is None or found.number == 5500
