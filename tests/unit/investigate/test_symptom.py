"""Which outcome is the symptom, under which variant."""

from __future__ import annotations

import pytest

from torchtriage.investigate import symptom
from torchtriage.lab.request import Request
from torchtriage.model.outcome import Measures, Outcome, Same, TimedOut
from torchtriage.model.variant import Variant

from .fake import (
    BREAK,
    OPTIMIZER_BREAK,
    SAME,
    WRONG,
    backend_of,
    counted,
    dynamic_of,
    facts,
    raised,
    seen,
    wrong,
)

REFUSED = raised("torch._dynamo.exc.ConstraintViolationError", bases=("UserError",))


def test_nothing_is_found_where_everything_is_the_same() -> None:
    assert symptom.find(facts(), seen(lambda request: SAME)) is None


def test_the_program_that_fails_as_it_is_is_the_symptom() -> None:
    failing = wrong("value", "grad")
    found = symptom.find(facts(), seen(lambda r: failing if backend_of(r) == "inductor" else SAME))
    assert found is not None
    assert (found.words, found.own_fails, found.column, found.backend) == (
        ("value", "grad"),
        True,
        "None",
        "inductor",
    )
    assert found.request == Request()


def test_what_is_shown_is_the_outcome_of_the_first_backend_that_fails() -> None:
    def answer(request: Request) -> Outcome:
        return {"eager": SAME, "inductor": wrong("dtype")}.get(backend_of(request), raised())

    found = symptom.find(facts(), seen(answer))
    assert found is not None
    assert (found.backend, found.words, found.own_fails) == ("aot_eager", ("exception",), True)


def test_the_column_is_the_program_s_own_dynamic_setting() -> None:
    def answer(request: Request) -> Outcome:
        return WRONG if dynamic_of(request, own=True) else SAME

    found = symptom.find(facts(dynamic=True), seen(answer))
    assert found is not None
    assert (found.column, found.backend, found.own_fails) == ("True", "eager", True)


def test_a_failure_only_with_own_threads_needs_threads() -> None:
    found = symptom.find(
        facts(threads=4), seen(lambda r: WRONG if r.variant.threads == 4 else SAME, threads=4)
    )
    assert found is not None
    assert (found.needs, found.request, found.backend) == (("threads",), Request(Variant(threads=4)), None)


def test_a_failure_only_with_caches_needs_caches() -> None:
    found = symptom.find(facts(), seen(lambda r: WRONG if r.variant.caches else SAME))
    assert found is not None
    assert (found.needs, found.request) == (("caches",), Request(Variant(caches=True)))


def test_a_debug_backend_that_fails_alone_is_a_symptom_although_inductor_passes() -> None:
    found = symptom.find(facts(), seen(lambda r: WRONG if backend_of(r) == "aot_eager" else SAME))
    assert found is not None
    assert (found.own_fails, found.backend) == (False, "aot_eager")
    assert found.request == Request(Variant(backend="aot_eager", dynamic=None))
    assert found.remarks == ("the program passes as it is; it fails with backend='aot_eager'",)


@pytest.mark.parametrize(("dynamic", "need"), [(True, "dynamic"), (False, "static-shapes")])
def test_a_failure_under_another_dynamic_setting_needs_that_setting(dynamic: bool, need: str) -> None:
    found = symptom.find(facts(), seen(lambda r: WRONG if r.variant.dynamic is dynamic else SAME))
    assert found is not None
    assert (found.own_fails, found.column, found.needs) == (False, str(dynamic), (need,))
    assert found.remarks == (f"the program passes as it is; it fails only with dynamic={dynamic}",)


def test_a_setting_that_the_compiler_refuses_is_no_symptom() -> None:
    assert symptom.find(facts(), seen(lambda r: REFUSED if r.variant.dynamic is True else SAME)) is None


def test_a_refusal_of_the_program_s_own_setting_is_one() -> None:
    found = symptom.find(facts(dynamic=True), seen(lambda r: REFUSED if dynamic_of(r, own=True) else SAME))
    assert found is not None
    assert found.words == ("exception",)


def test_two_recompilations_are_what_automatic_dynamic_shapes_need_and_three_are_a_symptom() -> None:
    assert symptom.find(facts(), seen(lambda r: counted(recompiles=2))) is None
    found = symptom.find(facts(), seen(lambda r: counted(recompiles=3)))
    assert found is not None
    assert (found.words, found.counts, found.backend) == (("recompiles",), True, "eager")


def test_recompilations_are_a_symptom_although_another_setting_is_refused() -> None:
    found = symptom.find(
        facts(), seen(lambda r: REFUSED if r.variant.dynamic is True else counted(recompiles=5))
    )
    assert found is not None
    assert found.words == ("recompiles",)


def test_counts_are_no_symptom_beside_a_wrong_value() -> None:
    many = Measures(recompiles=9, captured=3)
    found = symptom.find(facts(), seen(lambda r: wrong("value", measures=many)))
    assert found is not None
    assert (found.words, found.counts) == (("value",), False)


def test_a_break_in_the_program_is_a_symptom_and_one_in_an_optimizer_is_not() -> None:
    assert symptom.find(facts(), seen(lambda r: counted(breaks=[OPTIMIZER_BREAK]))) is None
    found = symptom.find(facts(), seen(lambda r: counted(breaks=[OPTIMIZER_BREAK, BREAK])))
    assert found is not None
    assert (found.words, found.counts) == (("graph-break",), True)


def test_a_break_where_nothing_at_all_was_captured_is_no_symptom() -> None:
    assert symptom.find(facts(), seen(lambda r: counted(captured=0, breaks=[BREAK]))) is None


def slow(seconds: float, nodes: int = 0) -> Same:
    return Same(Measures(compile_seconds=seconds, repeated_nodes=nodes))


@pytest.mark.parametrize(
    ("cold", "found"),
    [
        (slow(61), True),
        (slow(59), False),
        (slow(13, nodes=64), True),
        (slow(13, nodes=63), False),
        (slow(11, nodes=900), False),
    ],
)
def test_a_compilation_is_slow_by_itself_or_where_a_loop_was_unrolled(cold: Outcome, found: bool) -> None:
    suspect = symptom.find(facts(), seen(lambda r: cold if r.observe else SAME, cold=cold))
    assert (suspect is not None and suspect.slow and suspect.words == ("timeout",)) is found


def test_a_program_that_does_not_finish_compiling_is_slow() -> None:
    hung = TimedOut(seconds=60.0, phase="compile")
    found = symptom.find(facts(), seen(lambda r: hung if backend_of(r) == "inductor" else SAME))
    assert found is not None
    assert (found.slow, found.words, found.backend) == (True, ("timeout",), "inductor")


def test_a_program_that_hangs_is_not_slow_to_compile() -> None:
    found = symptom.find(facts(), seen(lambda r: TimedOut(phase="run")))
    assert found is not None
    assert not found.slow


def test_noise_is_found_last() -> None:
    def answer(request: Request) -> Outcome:
        return wrong("value", noise=True) if backend_of(request) == "inductor" else SAME

    found = symptom.find(facts(), seen(answer))
    assert found is not None
    assert (found.noise, found.words, found.backend) == (True, ("value",), "inductor")
