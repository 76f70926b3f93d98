"""What the failure needs, each by a trial that was run."""

from __future__ import annotations

from torchtriage.investigate import needs
from torchtriage.investigate.needs import Needs
from torchtriage.lab.request import ALL_FLAVOURS, Request
from torchtriage.model.outcome import Killed, Outcome, TimedOut

from .fake import SAME, WRONG, FakeLab, facts, raised, suspect, switched, wrong

LATE = wrong(call=2)


def found(answer: object, outcome: Outcome = LATE, calls: int = 3, **more: object) -> Needs:
    """Ask a lab about a failure of the program as it is."""
    return needs.find(FakeLab(answer), facts(calls, **more), suspect(outcome))  # type: ignore[arg-type]


def test_a_call_that_fails_alone_is_the_shortest_request() -> None:
    answer = found(lambda request: LATE)
    assert answer.words == ()
    assert answer.short == Request(start=2, stop=2, flavours=ALL_FLAVOURS)


def test_a_call_that_is_well_alone_needs_an_earlier_call() -> None:
    answer = found(lambda request: SAME if request.start == 2 else LATE)
    assert answer.words == ("second-call",)
    assert answer.short == Request(stop=2, flavours=ALL_FLAVOURS)
    assert answer.remarks == ("the failure needs an earlier call: the call alone is the same as eager",)


def test_another_failure_of_the_call_alone_says_nothing() -> None:
    answer = found(lambda request: raised() if request.start == 2 else LATE)
    assert (answer.words, answer.short.start) == ((), None)


def test_the_first_call_is_alone_already() -> None:
    lab = FakeLab(lambda request: WRONG)
    answer = needs.find(lab, facts(), suspect(WRONG))
    assert all(request.start is None for request in lab.requests)
    assert answer.short == Request(stop=0, flavours=ALL_FLAVOURS)


def test_a_failure_that_goes_with_fullgraph_needs_it() -> None:
    answer = found(lambda r: SAME if r.variant.fullgraph is False else raised(), raised(), fullgraph=True)
    assert answer.words == ("fullgraph",)
    assert answer.remarks == ("with fullgraph=False it does not fail",)


def test_fullgraph_is_asked_about_only_where_the_program_has_it() -> None:
    lab = FakeLab(lambda request: WRONG)
    needs.find(lab, facts(), suspect(WRONG))
    assert {request.variant.fullgraph for request in lab.requests} == {"own"}


def test_a_failure_that_goes_with_a_config_value_at_its_default_needs_that_config() -> None:
    answer = found(
        lambda r: SAME if switched(r, "config.freezing") is False else WRONG,
        WRONG,
        defaults={"torch._inductor.config.freezing": "False", "torch._inductor.config.f": "<function f>"},
    )
    assert answer.words == ("config",)
    assert answer.remarks == ("with torch._inductor.config.freezing at its default it does not fail",)


def test_a_failure_that_comes_and_goes_is_flaky() -> None:
    answer = found(lambda r: SAME if r.repeat == 1 else WRONG, WRONG)
    assert (answer.words, answer.remarks) == (("flaky",), ("flaky: 2 of 3 runs fail",))


def test_a_failure_that_repeats_itself_is_not_flaky() -> None:
    lab = FakeLab(lambda request: Killed(signal="SIGFPE", call=0))
    assert needs.find(lab, facts(), suspect(Killed(signal="SIGFPE", call=0))).words == ()
    assert sorted(r.repeat for r in lab.requests if r.repeat) == [1, 2]


def test_what_the_compiler_raises_is_not_repeated() -> None:
    for outcome in (raised(), TimedOut(phase="compile", call=0)):
        lab = FakeLab(lambda request, outcome=outcome: outcome)
        needs.find(lab, facts(), suspect(outcome))
        assert lab.requests == []


def test_only_the_backward_fails() -> None:
    for outcome in (wrong("grad"), raised(phase="backward")):
        assert "backward" in found(lambda request, outcome=outcome: outcome, outcome).words
    assert "backward" not in found(lambda request: wrong("value", "grad"), wrong("value", "grad")).words


def test_an_exception_after_the_region_needs_the_whole_program() -> None:
    late = raised(phase="program")
    lab = FakeLab(lambda request: late)
    assert needs.find(lab, facts(3), suspect(late)).short.stop is None
    assert all(request.start is None and request.stop is None for request in lab.requests)


def test_what_the_symptom_needs_already_stays() -> None:
    lab = FakeLab(lambda request: WRONG)
    answer = needs.find(lab, facts(), suspect(WRONG, needs=("threads",), remarks=("so it is",)))
    assert (answer.words, answer.remarks) == (("threads",), ("so it is",))
