"""From a program to the whole answer, on a lab that makes the program up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from torchtriage.investigate.diagnose import diagnose
from torchtriage.lab.request import Request
from torchtriage.model.diagnosis import Diagnosis
from torchtriage.model.outcome import GraphBreak, Inconclusive, Measures, Outcome, Recompile, Same, Step
from torchtriage.model.variant import DEBUG_BACKENDS

from .fake import (
    BREAK,
    OPTIMIZER_BREAK,
    PROGRAM,
    SAME,
    FakeLab,
    backend_of,
    counted,
    dynamic_of,
    facts,
    raised,
    switched,
    wrong,
)
from .test_disable import NET


def run(
    answer: Callable[[Request], Outcome], tree: Any = (), only: bool = False, **program: Any
) -> Diagnosis:
    return diagnose(FakeLab(answer, tree), facts(**program), PROGRAM, verdict_only=only)


def words(found: Diagnosis) -> dict[str, dict[str, str]]:
    return {backend: {d: cell.word for d, cell in row.items()} for backend, row in found.matrix.items()}


def rows(*texts: str) -> dict[str, dict[str, str]]:
    """A row of the matrix for each backend, as `same same differs:value`."""
    return {
        b: dict(zip(("None", "True", "False"), t.split(), strict=True))
        for b, t in zip(DEBUG_BACKENDS, texts, strict=True)
    }


def changes(found: Diagnosis) -> list[str]:
    return [workaround.change for workaround in found.workarounds]


# --- faults ---------------------------------------------------------------------------------------

LOWERINGS = tuple(
    Step(n, "aten.ldexp.Tensor" if n == 3 else f"aten.op{n}.default", "net.py", n, "") for n in range(1, 6)
)


def bad_lowering(request: Request) -> Outcome:
    """Inductor's lowering of ldexp gives wrong values and gradients."""
    limit = request.variant.limit
    off = limit is not None and limit.subsystem == "lowerings" and limit.maximum < 3
    healed = (
        off
        or switched(request, ".emulate_precision_casts")
        or request.variant.eager_operators == ("aten.ldexp.Tensor",)
        or set(request.variant.disabled) & {"net:Net.forward", "net:Stem.forward"}
    )
    if backend_of(request) != "inductor" or healed:
        return Same(Measures(step_seconds=0.003))
    return wrong("value", "grad", measures=Measures(steps=LOWERINGS, step_seconds=0.002))


def test_a_wrong_lowering_is_found_named_and_worked_around() -> None:
    found = run(bad_lowering, NET)
    assert (found.kind, found.symptoms, found.first_failing_layer) == ("bug", ("value", "grad"), "inductor")
    assert words(found) == rows(*["same same same"] * 3, " ".join(["differs:value+grad"] * 3))
    assert (found.operator, found.line) == ("aten.ldexp.Tensor", 3)
    assert found.culprit is not None
    assert found.culprit.detail == "lowering 3 of 5 (aten.ldexp.Tensor)"
    assert found.culprit.how == "the first 2 alone give the same as eager, with this one it fails"
    assert changes(found) == [
        "torch._inductor.config.emulate_precision_casts = True",
        "torch._inductor.lowering.make_fallback(torch.ops.aten.ldexp.Tensor, warn=False, override_decomp=True)",
        "net.Stem.forward = torch.compiler.disable(net.Stem.forward)",
        "torch.compile(..., backend='aot_eager_decomp_partition')",
    ]
    assert [w.step_time_ratio for w in found.workarounds] == [1.5] * 4
    assert (found.monotone, found.needs, found.exit_status) == (True, (), 1)


def test_the_symptom_is_told_in_the_user_s_terms() -> None:
    symptom = run(bad_lowering).symptom
    assert symptom is not None
    assert (symptom.region, symptom.file, symptom.line, symptom.call) == ("f", "a.py", 1, 0)
    assert symptom.sentence == "output differs from eager by 1 (and 1 more)"
    assert symptom.signature == "differs | output:value | output:grad"


def test_only_the_verdict_is_asked_for() -> None:
    found = run(bad_lowering, NET, only=True)
    assert (found.kind, found.first_failing_layer, found.workarounds) == ("bug", "inductor", ())


def test_a_layer_may_fail_where_the_next_one_passes() -> None:
    def answer(request: Request) -> Outcome:
        return (
            raised("torch._dynamo.exc.BackendCompilerFailed", user_file="net.py", user_line=8)
            if backend_of(request) == "aot_eager"
            else SAME
        )

    found = run(answer)
    assert (found.kind, found.symptoms, found.first_failing_layer) == ("bug", ("exception",), "aot_autograd")
    assert found.monotone is False
    assert "the matrix is not monotone: a later backend passes where an earlier one fails" in found.remarks
    assert "the program passes as it is; it fails with backend='aot_eager'" in found.remarks
    assert found.line == 8
    assert "torch.compile(..., backend='inductor')" in changes(found)


def test_random_numbers_that_differ_are_by_design() -> None:
    def answer(request: Request) -> Outcome:
        decomposed = backend_of(request) in ("aot_eager_decomp_partition", "inductor")
        return (
            wrong(measures=Measures(rng_used=True))
            if decomposed and not switched(request, ".fallback_random")
            else SAME
        )

    found = run(answer)
    assert (found.kind, found.first_failing_layer) == ("by-design", "decomposition_partition")
    assert found.needs == ("rng",)
    assert changes(found)[0] == "torch._inductor.config.fallback_random = True"


def test_the_layer_is_looked_for_with_eager_s_random_numbers() -> None:
    def answer(request: Request) -> Outcome:
        eager_random = switched(request, ".fallback_random")
        fails = backend_of(request) == "inductor" or (backend_of(request) != "eager" and not eager_random)
        return wrong(measures=Measures(rng_used=True)) if fails else SAME

    found = run(answer)
    assert (found.kind, found.first_failing_layer) == ("bug", "inductor")
    assert "with fallback_random = True the first backend that fails is inductor" in found.remarks


# --- recompilations, as tests/acceptance/cases has them -----------------------------------------------


GUARD = Recompile("f", "s == 0.1", "a.py", 6)


def case(
    graphs: Callable[[str, bool | None], int], own: bool | None = None, broken: tuple[GraphBreak, ...] = (),
    reason: Recompile = GUARD, healed_by: str = "nothing",
) -> Callable[[Request], Outcome]:  # fmt: skip
    """A program that gets `graphs` graphs of one frame, by backend and dynamic setting."""

    def answer(request: Request) -> Outcome:
        count = graphs(backend_of(request), dynamic_of(request, own))
        if switched(request, healed_by):
            count = 2
        return counted(count - 1, breaks=broken, recompile_reasons=(reason,) * (count - 1))

    return answer


AGAIN = "differs:recompiles"
ALL_AGAIN = " ".join([AGAIN] * 3)


def test_a_float_that_dynamic_false_makes_a_constant_is_the_user_s_error() -> None:
    """float_spec_recompile: 2 graphs with None, 1 with True, 4 with False, which is the program's own setting."""
    counts = {None: 2, True: 1, False: 4}
    found = run(case(lambda backend, dynamic: counts[dynamic], own=False), dynamic=False)
    assert (found.kind, found.symptoms, found.first_failing_layer) == (
        "user-error",
        ("recompiles",),
        "dynamo",
    )
    assert words(found) == rows(*[f"same same {AGAIN}"] * 4)
    assert found.needs == ("second-call", "static-shapes")
    assert (found.line, found.monotone, found.own_dynamic) == (6, True, "False")
    assert changes(found)[:2] == ["torch.compile(..., dynamic=None)", "torch.compile(..., dynamic=True)"]


def test_an_integer_attribute_of_a_module_is_a_constant_by_design() -> None:
    """str_arg_recompile: 5 graphs everywhere."""
    found = run(case(lambda backend, dynamic: 5, healed_by=".allow_unspec_int_on_nn_module"))
    assert (found.kind, found.symptoms, found.first_failing_layer) == ("by-design", ("recompiles",), "dynamo")
    assert words(found) == rows(*[ALL_AGAIN] * 4)
    assert found.needs == ("second-call",)
    assert changes(found) == ["torch._dynamo.config.allow_unspec_int_on_nn_module = True"]


def test_a_learning_rate_that_only_aot_autograd_makes_a_constant_is_a_bug() -> None:
    """lr_float_recompile: 2 graphs with backend=eager unless dynamic=False, 4 from aot_eager on."""
    own = {None: 2, True: 1, False: 4}
    found = run(
        case(
            lambda backend, dynamic: own[dynamic] if backend == "eager" else 4, broken=(OPTIMIZER_BREAK,) * 2
        )
    )
    assert (found.kind, found.symptoms, found.first_failing_layer) == ("bug", ("recompiles",), "aot_autograd")
    assert words(found) == rows(f"same same {AGAIN}", *[ALL_AGAIN] * 3)
    assert found.graph_breaks == ()
    assert "torch.compile(..., backend='eager')" in changes(found)


def test_the_guard_in_the_program_is_shown_and_not_one_in_torch() -> None:
    inside = Recompile("f", "lr", "/venv/site-packages/torch/optim/adamw.py", 90)
    assert run(case(lambda b, d: 5, reason=inside)).line == 90
    mixed = counted(4, recompile_reasons=(inside, Recompile("f", "n == 1", "a.py", 6)))
    assert run(lambda request: mixed).line == 6


def test_a_break_in_the_program_is_named_with_its_line() -> None:
    found = run(lambda request: counted(breaks=[BREAK]))
    assert (found.kind, found.symptoms, found.first_failing_layer) == (
        "user-error",
        ("graph-break",),
        "dynamo",
    )
    assert (found.line, found.graph_breaks) == (3, (BREAK,))


# --- nothing, noise, no verdict -------------------------------------------------------------------


def test_a_program_that_is_the_same_everywhere_is_left_alone() -> None:
    lab = FakeLab(lambda request: counted())
    found = diagnose(lab, facts(), PROGRAM)
    assert (found.kind, found.symptoms, found.exit_status) == ("none", ("none",), 0)
    assert words(found) == rows(*["same same same"] * 4)
    assert found.remarks == ()
    assert (
        len(lab.requests) == len(set(lab.requests)) <= 12 + 3
    )  # the matrix; as it is, observed, with caches


def test_a_program_of_which_nothing_was_captured_is_told_so() -> None:
    found = run(lambda request: counted(captured=0, breaks=[BREAK]))
    assert found.kind == "none"
    assert found.remarks[0].startswith("nothing was captured: Dynamo gave every frame up")


def test_an_error_that_eager_raises_too_is_told() -> None:
    both = Same(eager_exception=raised("builtins.IndexError", "out of range").exception)
    assert (
        run(lambda request: both).remarks[0]
        == "eager and compiled both raise IndexError: the program's own error"
    )


def test_noise_is_told_and_nothing_is_changed_for_it() -> None:
    found = run(lambda r: wrong(noise=True) if backend_of(r) == "inductor" else SAME)
    assert (found.kind, found.symptoms, found.first_failing_layer) == ("noise", ("value",), "inductor")
    assert words(found)["inductor"]["None"] == "within noise"
    assert found.workarounds == ()


@pytest.mark.parametrize("where", ["own", "cell"])
def test_a_trial_that_could_not_be_run_leaves_the_verdict_open(where: str) -> None:
    def answer(request: Request) -> Outcome:
        lost = request == Request() if where == "own" else request.variant.backend == "aot_eager"
        return Inconclusive(reason="its keeper died") if lost else counted()

    found = run(answer)
    assert (found.kind, found.exit_status) == ("inconclusive", 3)
    assert found.inconclusive_reason.endswith("its keeper died")


def test_a_symptom_is_told_although_a_cell_could_not_be_run() -> None:
    def answer(request: Request) -> Outcome:
        if request.variant.backend == "aot_eager":
            return Inconclusive(reason="its keeper died")
        return wrong() if backend_of(request) == "inductor" else SAME

    found = run(answer)
    assert (found.kind, found.first_failing_layer) == ("bug", "inductor")
    assert words(found)["aot_eager"]["None"] == "inconclusive"


def test_when_the_time_is_up_the_verdict_is_finished_and_the_searches_are_not() -> None:
    lab = FakeLab(bad_lowering, NET)
    found = diagnose(lab, facts(), PROGRAM, enough=lambda: True)
    assert (found.kind, found.first_failing_layer) == ("bug", "inductor")
    assert "the searches for causes and workarounds were stopped for time" in found.remarks
    assert found.culprit is None
    assert [w.change for w in found.workarounds] == [
        "torch.compile(..., backend='aot_eager_decomp_partition')"
    ]


def test_without_a_limit_nothing_is_said_about_time() -> None:
    assert not any("for time" in remark for remark in run(bad_lowering, NET).remarks)
