"""What inside the layer is at fault: the step, the captured node, the operation in which the capture parts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from torchtriage.investigate import below
from torchtriage.investigate.needs import Needs
from torchtriage.lab.request import Request
from torchtriage.model.outcome import Divergence, Measures, Outcome, Raised, Step, TimedOut
from torchtriage.model.variant import GRAPH_NODES, Limit

from .fake import SAME, WRONG, FakeLab, facts, raised, suspect, wrong

NODES = tuple(Step(n, f"aten.op{n}", "model.py", 10 + n, f"y = op{n}(x)") for n in range(1, 41))
SHORT = Needs((), (), Request(stop=0))


def compiler(fails: Callable[[int, int], bool], steps: Callable[[Limit], Outcome] | None = None) -> FakeLab:
    """A compiler that fails where the nodes from the first to the second number are compiled and `fails` says so."""

    def answer(request: Request) -> Outcome:
        limit = request.variant.limit
        assert limit is not None
        if limit.subsystem != GRAPH_NODES:
            return steps(limit) if steps else WRONG
        last = min(limit.maximum, len(NODES))
        return wrong(measures=Measures(steps=NODES)) if fails(limit.start + 1, last) else SAME

    return FakeLab(answer)


@pytest.mark.parametrize("guilty", [1, 2, 17, 40])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_the_node_that_fails_alone_is_named(guilty: int, backend: str) -> None:
    lab = compiler(lambda first, last: first <= guilty <= last)
    found = below.culprit(below.search(lab, facts(), suspect(backend=backend), SHORT))
    assert found is not None
    assert (found.operator, found.file, found.line) == (f"aten.op{guilty}", "model.py", 10 + guilty)
    assert found.detail == f"captured node {guilty} of 40 (aten.op{guilty})"
    assert len(lab.requests) < 20


def test_nodes_that_fail_only_together_are_all_named() -> None:
    lab = compiler(lambda first, last: first <= 9 and last >= 11)
    found = below.culprit(below.search(lab, facts(), suspect(backend="aot_eager"), SHORT))
    assert found is not None
    assert found.detail == (
        "captured nodes 9 to 11 of 40 (aten.op9, line 19, aten.op10, line 20, aten.op11, line 21)"
    )
    assert "together" not in found.how and "without the first or the last it does not" in found.how


def test_of_nodes_that_fail_together_the_one_that_changes_in_place_is_named() -> None:
    nodes = (Step(1, "aten.mul_", "m.py", 6), Step(2, "aten.add", "m.py", 7))

    def answer(request: Request) -> Outcome:
        limit = request.variant.limit
        assert limit is not None
        return wrong(measures=Measures(steps=nodes)) if limit.start == 0 and limit.maximum > 1 else SAME

    found = below.culprit(below.search(FakeLab(answer), facts(), suspect(backend="aot_eager"), SHORT))
    assert found is not None
    assert (found.operator, found.line) == ("aten.mul_", 6)


def test_a_step_without_a_line_gets_that_of_its_node() -> None:
    step = Step(1, "aten.addmm.default")

    def steps(limit: Limit) -> Outcome:
        return wrong(measures=Measures(steps=(step,))) if limit.maximum else SAME

    lab = compiler(lambda first, last: first <= 3 <= last, steps)
    found = below.culprit(below.search(lab, facts(), suspect(backend="aot_eager_decomp_partition"), SHORT))
    assert found is not None
    assert (found.subsystem, found.operator, found.line) == ("decomposition", "aten.addmm.default", 13)


def test_a_step_that_says_all_needs_no_search_among_the_nodes() -> None:
    step = Step(1, "aten.addmm.default", "model.py", 3)

    def steps(limit: Limit) -> Outcome:
        return wrong(measures=Measures(steps=(step,))) if limit.maximum else SAME

    lab = compiler(lambda first, last: pytest.fail("not asked"), steps)
    assert below.search(lab, facts(), suspect(backend="aot_eager_decomp_partition"), SHORT).node is None


@pytest.mark.parametrize(
    "change",
    [{"slow": True}, {"outcome": TimedOut(seconds=60.0)}, {"backend": None}],
    ids=["slow", "hang", "no backend"],
)
def test_what_takes_too_long_to_ask_is_not_asked(change: dict[str, object]) -> None:
    lab = FakeLab(lambda request: WRONG)
    assert below.search(lab, facts(), suspect(**change), SHORT) == below.Below()
    assert lab.asked == []


def test_a_flaky_failure_is_not_bisected() -> None:
    lab = compiler(lambda first, last: True)
    flaky = dataclasses.replace(SHORT, words=("flaky",))
    assert below.search(lab, facts(), suspect(backend="aot_eager"), flaky).node is None


PARTED = Divergence("aten.add.Tensor", "model.py", 23, "y + self.scale", "")


def capture(outcome: Outcome) -> FakeLab:
    return FakeLab(lambda request: outcome)


@pytest.mark.parametrize(
    ("only_in", "said"),
    [
        ("", "eager mode runs the same operation on this line and gets another result"),
        ("eager", "eager mode runs this operation, what Dynamo captured does not"),
        ("captured", "eager mode runs no such operation with this result here"),
    ],
)
def test_where_dynamo_is_at_fault_the_operation_that_parts_is_named(only_in: str, said: str) -> None:
    parted = dataclasses.replace(PARTED, only_in=only_in)  # type: ignore[arg-type]
    lab = capture(wrong(measures=Measures(divergence=parted)))
    found = below.culprit(below.search(lab, facts(), suspect(backend="eager"), SHORT))
    assert found is not None
    assert (found.operator, found.file, found.line, found.how) == ("aten.add.Tensor", "model.py", 23, said)
    assert [(r.operations, r.stop, r.variant.backend) for r in lab.requests] == [(True, 0, "eager")]


def test_a_watched_trial_that_does_not_fail_says_nothing() -> None:
    lab = FakeLab(lambda request: dataclasses.replace(SAME, measures=Measures(divergence=PARTED)))
    assert below.culprit(below.search(lab, facts(), suspect(backend="eager"), SHORT)) is None


@pytest.mark.parametrize("outcome", [raised(), Raised(call=0, phase="program")])
def test_an_exception_of_dynamo_s_names_its_line_itself(outcome: Outcome) -> None:
    lab = FakeLab(lambda request: outcome)
    assert below.search(lab, facts(), suspect(outcome, backend="eager"), SHORT) == below.Below()
    assert lab.asked == []


def test_without_forks_the_operations_are_not_asked_for() -> None:
    lab = FakeLab(lambda request: WRONG)
    assert below.search(lab, facts(rerun=True), suspect(backend="eager"), SHORT) == below.Below()
