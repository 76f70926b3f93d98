"""Whose fault it is, and the trial or the table that says so."""

from __future__ import annotations

from typing import Any

import pytest

from torchtriage.investigate.classify import Verdict, changing_values, classify, guarded
from torchtriage.model.outcome import (
    ExceptionInfo,
    GraphBreak,
    Killed,
    Measures,
    MissingException,
    Outcome,
    Recompile,
    TimedOut,
)

from .fake import SAME, FakeLab, counted, facts, raised, suspect, switched, wrong

SITE = "https://meta-pytorch.github.io/compile-graph-break-site/gb"
UNSUPPORTED = "torch._dynamo.exc.Unsupported"


def judged(outcome: Outcome, answer: Any = None, words: Any = None, **changes: Any) -> Verdict:
    lab = FakeLab(answer or (lambda request: outcome))
    return classify(lab, facts(), suspect(outcome, **changes), words or {})


def test_noise_is_noise_and_says_why() -> None:
    verdict = judged(wrong("value", noise=True), noise=True)
    assert (verdict.kind, verdict.explanation) == ("noise", "it is")


@pytest.mark.parametrize(
    "outcome", [Killed(signal="SIGSEGV"), TimedOut(phase="run"), raised(), raised("RuntimeError", "boom")]
)
def test_a_crash_is_a_bug(outcome: Outcome) -> None:
    assert judged(outcome).kind == "bug"


def test_what_the_program_asks_for_and_cannot_have_is_the_user_s_error() -> None:
    assert judged(raised("torch._dynamo.exc.UserError", bases=("UserError",))).kind == "user-error"


@pytest.mark.parametrize(
    "message",
    [
        "torch.compile with aot_autograd does not currently support double backward",
        "This backward function was compiled with non-empty donated buffers which requires create_graph=False",
        "Error: accessing tensor output of CUDAGraphs that has been overwritten by a subsequent run.",
        "Detected that you are using FX to symbolically trace a dynamo-optimized function.",
    ],
)
def test_a_documented_refusal_is_by_design(message: str) -> None:
    verdict = judged(raised("RuntimeError", message))
    assert verdict.kind == "by-design"
    assert verdict.source.startswith("https://")


@pytest.mark.parametrize(
    ("message", "category", "kind"),
    [
        ("Unsupported op\n  Hint: This is likely to be a Dynamo bug.", "dynamo-bug", "bug"),
        ("Call of print\n  Hint: Avoid calling builtin `print`.", "", "user-error"),
        ("Data-dependent branching\n  Hint: Use `torch.cond` to express it.", "", "by-design"),
    ],
)
def test_what_dynamo_cannot_trace_is_judged_by_its_own_hints(message: str, category: str, kind: str) -> None:
    verdict = judged(raised(UNSUPPORTED, f"{message}\n see {SITE}/gb0170.html", category=category))
    assert verdict.kind == kind
    assert verdict.source == ("" if kind == "bug" else f"{SITE}/gb0170.html")


@pytest.mark.parametrize(
    ("message", "bases", "kind"),
    [
        ("index 7 is out of bounds", ("IndexError",), "bug"),
        ("\"add_stub\" not implemented for 'UInt16'", ("RuntimeError",), "by-design"),
        ("Could not run aten::x with arguments", ("NotImplementedError",), "by-design"),
    ],
)
def test_accepting_more_than_eager_has_a_kernel_for_is_by_design(
    message: str, bases: tuple[str, ...], kind: str
) -> None:
    assert judged(MissingException(exception=ExceptionInfo("E", message, bases=bases))).kind == kind


# --- wrong values ---------------------------------------------------------------------------------

RANDOM = Measures(rng_used=True)


def test_random_numbers_differ_by_design_where_eager_s_heal() -> None:
    verdict = judged(
        wrong(measures=RANDOM), lambda r: SAME if switched(r, "fallback_random") else wrong(measures=RANDOM)
    )
    assert (verdict.kind, verdict.needs) == ("by-design", ("rng",))
    assert verdict.switches == (("torch._inductor.config.fallback_random", True),)
    assert verdict.source.startswith("https://")


def test_a_switch_that_was_not_run_excuses_nothing() -> None:
    lab = FakeLab(lambda request: SAME)
    assert classify(lab, facts(), suspect(wrong()), {}).kind == "bug"
    assert lab.requests == []


def test_a_difference_that_eager_s_random_numbers_do_not_heal_is_a_bug() -> None:
    verdict = judged(wrong(measures=RANDOM), lambda request: wrong())
    assert (verdict.kind, verdict.remarks) == ("bug", ())


def test_a_difference_that_eager_s_random_numbers_heal_in_part_is_a_bug_and_is_told() -> None:
    both = wrong("value", "grad", measures=RANDOM)
    verdict = judged(both, lambda r: wrong("grad") if switched(r, "fallback_random") else both)
    assert verdict.kind == "bug"
    assert verdict.remarks == (
        "part of the difference is the random numbers, which differ by design; the rest stays with fallback_random = True",
    )


def test_a_hook_that_was_registered_late_is_by_design_where_guards_on_hooks_heal() -> None:
    late = wrong(call=1)
    verdict = judged(late, lambda r: SAME if switched(r, "skip_nnmodule_hook_guards") is False else late)
    assert (verdict.kind, verdict.needs) == ("by-design", ("hook",))


# --- counts ---------------------------------------------------------------------------------------

MANY = counted(recompiles=4)


def of_counts(outcome: Outcome, table: Any = None, **changes: Any) -> Verdict:
    return classify(
        FakeLab(lambda r: outcome), facts(), suspect(outcome, counts=True, **changes), table or {}
    )


def test_recompilations_from_dynamo_on_are_by_design() -> None:
    table = {"eager": {"None": "differs:recompiles", "False": "differs:recompiles"}}
    verdict = of_counts(MANY, table, words=("recompiles",), backend="eager")
    assert (verdict.kind, verdict.needs) == ("by-design", ("second-call",))
    assert verdict.source.startswith("https://")


def test_recompilations_that_only_a_backend_brings_are_a_bug() -> None:
    assert of_counts(MANY, words=("recompiles",), backend="aot_eager").kind == "bug"


def test_recompilations_that_dynamic_false_asks_for_are_the_user_s_error() -> None:
    table = {"eager": {"None": "same", "False": "differs:recompiles"}}
    verdict = of_counts(MANY, table, words=("recompiles",), backend="eager", column="False")
    assert (verdict.kind, verdict.needs) == ("user-error", ("second-call", "static-shapes"))


def test_recompilations_that_dynamic_none_does_not_avoid_are_not_the_fault_of_dynamic_false() -> None:
    table = {"eager": {"None": "differs:recompiles", "False": "differs:recompiles"}}
    assert of_counts(MANY, table, words=("recompiles",), backend="eager", column="False").kind == "by-design"


@pytest.mark.parametrize(
    ("hints", "kind"),
    [
        (("Avoid calling print",), "user-error"),
        (("Use `torch.cond` to express it.",), "by-design"),
        ((), "by-design"),
    ],
)
def test_breaks_are_judged_by_dynamo_s_hints(hints: tuple[str, ...], kind: str) -> None:
    broken = GraphBreak("it breaks", "/home/me/a.py", 3, hints=hints, identifier="gb0059")
    verdict = of_counts(counted(breaks=[broken]), words=("graph-break",), backend="eager")
    assert (verdict.kind, verdict.source) == (kind, f"{SITE}/gb0059.html")
    assert verdict.explanation == "Dynamo does not trace this: it breaks"


BROKEN = {
    "operator": "mine.incr.default", "what": "changes its argument x in place, which its schema does not say",
    "file": "net.py", "line": 7, "code": "y = incr(x)",
}  # fmt: skip


def with_operators(outcome: Outcome, without: Outcome) -> FakeLab:
    def answer(request: Any) -> Outcome:
        return without if request.variant.eager_operators == ("mine.incr.default",) else outcome

    return FakeLab(answer, operators=[BROKEN])


@pytest.mark.parametrize("outcome", [wrong(), raised(), Killed(signal="SIGSEGV")])
def test_an_operator_that_does_not_do_what_it_says_is_the_program_s_fault(outcome: Outcome) -> None:
    verdict = classify(with_operators(outcome, SAME), facts(), suspect(outcome), {})
    assert verdict.kind == "user-error"
    assert "mine.incr.default is not torch's, and changes its argument x in place" in verdict.explanation
    assert verdict.culprit is not None
    assert (verdict.culprit.operator, verdict.culprit.line) == ("mine.incr.default", 7)


def test_an_operator_without_which_it_fails_all_the_same_is_a_remark() -> None:
    verdict = classify(with_operators(raised(), raised()), facts(), suspect(raised()), {})
    assert (verdict.kind, verdict.culprit) == ("bug", None)
    assert any("mine.incr.default changes its argument x" in remark for remark in verdict.remarks)


def test_operators_are_not_asked_about_where_something_else_explains_it() -> None:
    lab = FakeLab(lambda request: SAME, operators=[BROKEN])
    assert classify(lab, facts(), suspect(wrong("value", noise=True), noise=True), {}).kind == "noise"


def test_documented_differences_that_come_together_are_by_design() -> None:
    """Dropout's random numbers, and a backward under autocast: each switch alone leaves the other's difference."""

    def answer(request: Any) -> Outcome:
        both = switched(request, "fallback_random") and switched(request, "backward_pass_autocast") == "off"
        return SAME if both else wrong("value", "grad", measures=Measures(rng_used=True))

    found = wrong("value", "grad", measures=Measures(rng_used=True))
    verdict = judged(found, answer)
    assert verdict.kind == "by-design"
    assert set(verdict.needs) == {"rng", "autocast"}
    assert dict(verdict.switches) == {
        "torch._inductor.config.fallback_random": True, "torch._functorch.config.backward_pass_autocast": "off",
    }  # fmt: skip


def test_autocast_in_the_backward_is_asked_about_where_gradients_differ() -> None:
    lab = FakeLab(lambda request: SAME if switched(request, "backward_pass_autocast") else wrong("grad"))
    assert classify(lab, facts(), suspect(wrong("grad")), {}).kind == "by-design"
    lab = FakeLab(lambda request: wrong("value"))
    classify(lab, facts(), suspect(wrong("value")), {})
    assert not any(switched(request, "backward_pass_autocast") for request in lab.requests)


@pytest.mark.parametrize(
    ("reason", "about"),
    [
        ("tensor 'x' size mismatch at index 1. expected 23, actual 19", "the size of x at index 1"),
        (
            "tensor 'L['batch']' stride mismatch at index 0. expected 2, actual 4",
            "the stride of batch at index 0",
        ),
        ("self.calls == 4", "self.calls"),
        ("L['self'].step == 3", "self.step"),
        ("self.param_groups[0]['betas'][0] == 0.95", "self.param_groups[0]['betas'][0]"),
        ("GLOBAL_STATE changed: grad_mode", ""),
    ],
)
def test_what_a_guard_is_about(reason: str, about: str) -> None:
    assert guarded(reason) == about


def test_all_that_changes_is_named_the_most_frequent_first() -> None:
    reasons = [Recompile("f", f"self.calls == {n}") for n in range(3)]
    reasons.append(Recompile("f", "tensor 'x' size mismatch at index 1. expected 23, actual 19"))
    assert changing_values(reasons) == "self.calls, the size of x at index 1"
    assert changing_values([]) == "something that changes from call to call"
