"""Changes that were run over the whole program, smallest first; what did not help is told apart."""

from __future__ import annotations

from typing import Any

import pytest

from torchtriage.investigate import workarounds
from torchtriage.investigate.facts import Facts
from torchtriage.investigate.steps import Guilty
from torchtriage.investigate.symptom import Suspect
from torchtriage.investigate.workarounds import Found
from torchtriage.lab.request import Request
from torchtriage.model.outcome import Measures, Outcome, Same, Step
from torchtriage.model.variant import DEBUG_BACKENDS, OWN, Variant

from .fake import SAME, WRONG, FakeLab, backend_of, counted, facts, suspect, switched, wrong
from .test_disable import NET

LDEXP = Guilty("inductor", "lowerings", 14, 23, Step(14, "aten.ldexp.Tensor", "net.py", 8))
SHORT = Request(start=3, stop=3)
WORDS = {
    backend: {
        "None": "differs:value" if backend == "inductor" else "same",
        "True": "same",
        "False": "differs:value",
    }
    for backend in DEBUG_BACKENDS
}


def find(
    answer: Any, about: Suspect | None = None, program: Facts | None = None, words: Any = None, **more: Any
) -> tuple[Found, FakeLab]:
    lab = FakeLab(answer, more.pop("tree", ()))
    given = {"short": SHORT, "guilty": None, "documented": (), **more}
    found = workarounds.find(
        lab, program or facts(), about or suspect(), WORDS if words is None else words, **given
    )
    return found, lab


def changed(request: Request) -> bool:
    """Whether anything at all is changed about the program."""
    return request.variant != Variant()


def changes(found: Found) -> list[str]:
    return [workaround.change for workaround in found.workarounds]


def test_the_smallest_change_is_named_first() -> None:
    def answer(request: Request) -> Outcome:
        healed = (
            switched(request, ".pattern_matcher") is False
            or request.variant.dynamic is True
            or request.variant.eager_operators
            or "net:Stem.forward" in request.variant.disabled
            or "net:Net.forward" in request.variant.disabled
            or backend_of(request) != "inductor"
        )
        return SAME if healed else WRONG

    found, _ = find(answer, guilty=LDEXP, tree=NET)
    assert changes(found) == [
        "torch._inductor.config.pattern_matcher = False",
        "torch.compile(..., dynamic=True)",
        "torch._inductor.lowering.make_fallback(torch.ops.aten.ldexp.Tensor, warn=False, override_decomp=True)",
        "net.Stem.forward = torch.compiler.disable(net.Stem.forward)",
        "torch.compile(..., backend='aot_eager_decomp_partition')",
    ]


def test_where_a_documented_switch_heals_nothing_else_is_searched() -> None:
    switch = ("torch._inductor.config.fallback_random", True)
    found, lab = find(lambda r: SAME if changed(r) else WRONG, documented=(switch,))
    assert changes(found) == ["torch._inductor.config.fallback_random = True"]
    assert {name for r in lab.requests for name, _ in r.variant.switches} == {switch[0]}


def test_leaving_code_uncompiled_comes_last() -> None:
    def answer(request: Request) -> Outcome:
        healed = switched(request, ".suppress_errors") or "net:Net.forward" in request.variant.disabled
        return SAME if healed else WRONG

    every = {backend: {"None": "differs:value"} for backend in DEBUG_BACKENDS}
    found, _ = find(answer, suspect(backend="eager"), words=every, tree=NET)
    assert changes(found) == [
        "net.Net.forward = torch.compiler.disable(net.Net.forward)",
        "torch._dynamo.config.suppress_errors = True",
    ]


def test_each_change_is_run_over_the_whole_program() -> None:
    found, lab = find(lambda r: SAME if switched(r, ".pattern_matcher") is False else WRONG)
    verified = [r for r in lab.requests if r.start is None and r.stop is None]
    assert Variant().with_switches(("torch._inductor.config.pattern_matcher", False)) in [
        r.variant for r in verified
    ]
    assert changes(found) == ["torch._inductor.config.pattern_matcher = False"]


def test_what_heals_the_call_and_not_the_program_is_not_named() -> None:
    def answer(request: Request) -> Outcome:
        heals = switched(request, ".pattern_matcher") is False and request.stop is not None
        return SAME if heals else WRONG

    found, _ = find(answer)
    assert found.workarounds == ()
    assert "torch._inductor.config.pattern_matcher = False" in found.tried


def test_what_was_run_and_did_not_help_is_told_apart() -> None:
    found, _ = find(lambda r: SAME if backend_of(r) != "inductor" else WRONG)
    assert changes(found) == ["torch.compile(..., backend='aot_eager_decomp_partition')"]
    assert found.tried == ("torch.compile(..., dynamic=True)",)


def test_a_change_with_only_noise_left_is_named_as_such() -> None:
    found, _ = find(lambda r: wrong(noise=True) if backend_of(r) != "inductor" else WRONG)
    assert [w.outcome for w in found.workarounds] == ["within noise"]


def test_no_more_than_five_are_named() -> None:
    program = facts(fullgraph=True, mode="max-autotune")
    found, _ = find(lambda r: SAME if changed(r) else WRONG, program=program, guilty=LDEXP, tree=NET)
    assert len(found.workarounds) == 5


@pytest.mark.parametrize(
    ("region", "change"),
    [
        ({"fullgraph": True}, "torch.compile(..., fullgraph=False)"),
        ({"mode": "max-autotune"}, "torch.compile(..., mode='default')"),
        ({"options": True}, "torch.compile(..., mode='default')"),
    ],
)
def test_settings_of_the_program_are_taken_back(region: dict[str, Any], change: str) -> None:
    taken_back = {"fullgraph": False, "mode": "default"}
    found, _ = find(
        lambda r: SAME if any(getattr(r.variant, k) == v for k, v in taken_back.items()) else WRONG,
        program=facts(**region),
    )
    assert changes(found) == [change]


def test_a_failure_under_a_debug_backend_is_healed_there_and_not_by_other_settings() -> None:
    cell = Request(Variant(backend="aot_eager", dynamic=None))
    about = suspect(own_fails=False, backend="aot_eager", request=cell)
    _, lab = find(lambda r: WRONG, about, short=cell)
    assert {r.variant.dynamic for r in lab.requests} == {None}
    assert {r.variant.backend for r in lab.requests} == {"aot_eager", "aot_eager_decomp_partition"}


# --- counts and compile time ----------------------------------------------------------------------


def test_recompilations_are_healed_only_where_they_become_few() -> None:
    def answer(request: Request) -> Outcome:
        few = switched(request, ".allow_unspec_int_on_nn_module")
        return counted(recompiles=2 if few else 4)

    found, lab = find(
        answer, suspect(counted(recompiles=4), words=("recompiles",), counts=True, backend="eager")
    )
    assert changes(found) == ["torch._dynamo.config.allow_unspec_int_on_nn_module = True"]
    assert "torch._dynamo.config.automatic_dynamic_shapes = False" in found.tried
    assert all(r.observe for r in lab.requests if r.stop is None and changed(r) and not r.variant.disabled)


def test_graph_breaks_are_healed_only_where_none_is_left_and_something_is_captured() -> None:
    def answer(request: Request) -> Outcome:
        if switched(request, ".allow_rnn"):
            return counted(captured=12)
        if switched(request, ".capture_scalar_outputs"):
            return counted(captured=0)
        return Same(Measures(captured=3, breaks=1))

    found, _ = find(answer, suspect(SAME, words=("graph-break",), counts=True, backend="eager"))
    assert changes(found) == ["torch._dynamo.config.allow_rnn = True"]


def test_slow_compilation_is_healed_only_where_it_is_fast_from_an_empty_store() -> None:
    def answer(request: Request) -> Outcome:
        fast = backend_of(request) != "inductor"
        return Same(Measures(compile_seconds=1.0 if fast else 90.0))

    slow = Same(Measures(compile_seconds=90.0))
    found, lab = find(answer, suspect(slow, words=("timeout",), slow=True, request=Request(fresh_store=True)))
    assert changes(found) == ["torch.compile(..., backend='aot_eager_decomp_partition')"]
    assert all(r.fresh_store for r in lab.requests if r.stop is None)
    assert found.workarounds[0].step_time_ratio is None


# --- step times -----------------------------------------------------------------------------------


def timed(own: float | None, mine: float | None, eager: float | None) -> Any:
    def answer(request: Request) -> Outcome:
        healed = backend_of(request) != "inductor"
        if not request.time_step:
            return SAME if healed else WRONG
        return Same(Measures(step_seconds=mine if healed else own, eager_step_seconds=eager))

    return answer


@pytest.mark.parametrize(
    ("own", "mine", "eager", "ratio", "against"),
    [
        (0.002, 0.003, 0.009, 1.5, "own"),
        (None, 0.003, 0.009, 0.333, "eager"),
        (0.002, None, 0.009, None, "own"),
        (None, None, None, None, "eager"),
    ],
)
def test_a_warm_step_is_measured_against_the_program_and_else_against_eager(
    own: float | None, mine: float | None, eager: float | None, ratio: float | None, against: str
) -> None:
    found, _ = find(timed(own, mine, eager))
    (workaround,) = found.workarounds
    assert (workaround.step_time_ratio, workaround.ratio_against) == (ratio, against)


def test_steps_are_timed_without_a_backward() -> None:
    _, lab = find(timed(1.0, 1.0, 1.0))
    assert all(not r.backward for r in lab.requests if r.time_step)


# --- lines ----------------------------------------------------------------------------------------


def test_the_lines_to_paste_bring_their_imports() -> None:
    variant = Variant(disabled=("net.parts:f",)).with_switches(("torch._inductor.config.cpp.simdlen", 1))
    assert workarounds.paste_lines(variant) == [
        "import torch._inductor.config",
        "import net.parts",
        "torch._inductor.config.cpp.simdlen = 1",
        "net.parts.f = torch.compiler.disable(net.parts.f)",
    ]
    assert workarounds.paste_lines(Variant(disabled=("__main__:f",))) == ["f = torch.compiler.disable(f)"]


def test_a_change_keeps_what_the_base_sets() -> None:
    base = Request(Variant(threads=4, dynamic=True).with_switches(("a", 1)), stop=7)
    found = workarounds.apply(base, Variant(backend="eager", dynamic=None).with_switches(("b", 2)))
    assert found == Request(Variant("eager", None, switches=(("a", 1), ("b", 2)), threads=4), stop=7)
    assert workarounds.apply(base, Variant()).variant.dynamic is True
    assert workarounds.apply(Request(), Variant(fullgraph=False)).variant == Variant(OWN, fullgraph=False)


def test_a_switch_whose_default_is_a_dict_can_be_put_back() -> None:
    name = "torch._inductor.config.post_grad_fusion_options"
    found, _ = find(
        lambda r: SAME if switched(r, ".post_grad_fusion_options") == {} else WRONG,
        program=facts(defaults={name: "{}"}),
    )
    assert changes(found) == [f"{name} = {{}}"]


def test_values_that_change_together_are_freed_together() -> None:
    """A counter on the module and a size: each change alone leaves the other."""

    def answer(request: Request) -> Outcome:
        counter, size = switched(request, ".allow_unspec_int_on_nn_module"), request.variant.dynamic is True
        return counted(recompiles=0 if counter and size else 5 if counter else 8)

    about = suspect(counted(recompiles=8), words=("recompiles",), counts=True, backend="eager")
    found, _ = find(answer, about)
    assert changes(found) == [
        "torch._dynamo.config.allow_unspec_int_on_nn_module = True; torch.compile(..., dynamic=True)"
    ]
    partly = "torch._dynamo.config.allow_unspec_int_on_nn_module = True  # compiled 6 times instead of 9"
    assert partly in found.tried
