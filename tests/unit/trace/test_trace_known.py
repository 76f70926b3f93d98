"""Real logs of torch 2.13 with known content: counts, causes, lines and verdicts are what was put into the programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchtriage.trace import Trace, read_trace
from torchtriage.trace.analyses.compile_time import time_use
from torchtriage.trace.analyses.eager import eager_frames
from torchtriage.trace.analyses.failures import failure_groups
from torchtriage.trace.analyses.graph_breaks import break_sites
from torchtriage.trace.analyses.kernels import kernels_of
from torchtriage.trace.analyses.operators import operator_report
from torchtriage.trace.analyses.recompiles import guard_changes, recompile_causes
from torchtriage.trace.analyses.specialised import specialised_sizes
from torchtriage.trace.analyses.verdicts import problems

DATA = Path(__file__).parent / "data"


def known(name: str) -> Trace:
    return read_trace(DATA / f"{name}.log.xz")


def test_a_program_without_faults_has_no_problem() -> None:
    for name in ("mlp", "bwd"):
        trace = known(name)
        assert problems(trace) == ()
        assert (trace.totals.compiles, trace.totals.graphs, trace.totals.problems) == (1, 1, 0)
        assert trace.logs[0].torch_version == "2.13.0+cpu"


def test_four_breaks_are_four_sites_with_their_lines_and_ids() -> None:
    sites = {s.place.line: s for s in break_sites(known("breaks")) if s.place}
    assert {line: s.identifier for line, s in sites.items()} == {
        7: "gb0059",
        11: "gb0170",
        15: "gb0124",
        16: "gb0025",
    }
    assert sites[7].functions == ("forward", "helper")
    assert sites[11].functions == ("forward",)
    assert sites[15].place is not None
    assert sites[15].place.code == "n=x.max().item()"
    assert "capture_scalar_outputs" in sites[15].hints[0]


def test_the_recompile_limit_and_what_led_to_it() -> None:
    trace = known("recomp")
    causes = recompile_causes(trace)
    assert {(c.cause, c.source) for c in causes} == {("dtype", "x"), ("scalar", "k")}
    assert sum(c.count for c in causes) == 7
    assert all(c.limit for c in causes)
    assert {c.source for cause in causes for c in cause.also} >= {"flag", "G['obj'].n"}
    (limit,) = failure_groups(trace)
    assert limit.limit
    assert (trace.totals.recompiles, trace.totals.limit_hits) == (7, 1)


def test_sizes_and_conditions_on_sizes_are_told_apart() -> None:
    trace = known("dyn")
    causes = recompile_causes(trace)
    assert sorted(c.cause for c in causes) == ["size", "size condition", "size condition"]
    assert {c.line.line for c in causes if c.line} == {4, 6}
    symbols = [s for c in trace.logs[0].compiles for s in c.symbols]
    assert "L['x'].size()[0]" in {s.source for s in symbols}


def test_a_backend_that_raises_and_a_break_under_fullgraph() -> None:
    trace = known("fail")
    assert [g.type for g in failure_groups(trace)] == ["BackendCompilerFailed", "Unsupported"]
    (site,) = break_sites(trace)
    assert site.place is not None
    assert (site.place.short, site.skipped) == ("t_fail.py:9", True)
    assert {v.kind for v in problems(trace)} == {"failure", "graph break"}


def test_backward_is_timed_with_the_compile_that_it_belongs_to() -> None:
    trace = known("bwd")
    (compile,) = trace.logs[0].compiles
    assert compile.seconds == pytest.approx(26.4, abs=0.1)
    assert dict(time_use(trace).phases)["code generation"] > 10
    assert {k.kind for k in kernels_of(trace, trace.logs[0], compile)} == {"cpp", "extern"}


def test_sizes_that_a_line_makes_constant_are_told_and_cannot_be_marked() -> None:
    trace = known("sizes")
    found = {(s.source, s.place.line if s.place else 0): s.values for s in specialised_sizes(trace)}
    assert found == {("x.size()[0]", 6): ("4", "5"), ("x.size()[0]", 11): ("8",)}
    scale, halve = recompile_causes(trace)
    assert scale.specialised is not None
    assert scale.specialised.code == "parts = [x[i] * i for i in range(n)]"
    assert halve.specialised is not None
    assert halve.specialised.line == 11
    assert not any("mark_dynamic" in cause.advice for cause in (scale, halve))


def test_a_break_in_a_context_manager_says_why_the_function_is_left_to_eager() -> None:
    trace = known("recompiles/timer_try")
    (site,) = break_sites(trace)
    assert [p.line for p in site.through] == [79, 72, 39]
    assert site.context_manager is not None
    assert site.context_manager.code == 'with stage("precondition"):'
    (verdict,) = problems(trace)
    assert verdict.advice.startswith("call time.perf_counter outside of the compiled function.")
    (frame,) = eager_frames(trace)
    assert (frame.frame.function, frame.place and frame.place.line) == ("forward", 15)


def test_functions_in_eager_have_their_reason() -> None:
    (limit,) = eager_frames(known("recomp"))
    assert (limit.frame.function, limit.reason) == ("f", "the recompile limit was reached")
    assert [f.reason.partition(":")[0] for f in eager_frames(known("fail"))] == [
        "compiling it raised BackendCompilerFailed",
        "a graph break that cannot be resumed",
    ]
    assert eager_frames(known("mlp")) == ()


def test_two_callers_of_one_function_are_told_apart() -> None:
    trained = next(c for c in recompile_causes(known("recompiles/mode_flips")) if c.cause == "training mode")
    assert [p.line for p in trained.chain] == [71, 45, 32]
    assert [p.line for p in trained.chain_before] == [67]


def test_operators_are_told_by_their_kernels() -> None:
    report = operator_report(known("bwd"))
    assert not report.timed
    assert {"aten.addmm", "aten.mm"} <= {o.name for o in report.operators}
    assert all(k.lines > 5 for k in report.kernels)


def test_what_differs_for_the_same_cause_is_not_told_as_something_else() -> None:
    modes = recompile_causes(known("recompiles/mode_flips"))
    assert {c.cause: c.others for c in modes} == {"training mode": (), "grad mode": (), "dispatch keys": ()}
    (grows,) = recompile_causes(known("recompiles/growing_mask"))
    assert (grows.source, grows.others) == ("mask", ("tokens", "temperature"))


def test_every_recompile_has_all_guards_that_differ_from_the_entry_before() -> None:
    trace = known("recompiles/kv_list")
    found = guard_changes(trace)
    assert [str(compile) for _, compile in found] == [f"0/{n}" for n in range(1, 8)]
    for (_, compile), changes in found.items():
        lengths = {(c.before, c.after) for c in changes if c.source == "cache" and "length" in c.aspect}
        if compile.compile > 1:
            assert lengths == {
                (f"len(L['cache']) == {compile.compile - 1}", f"len(L['cache']) == {compile.compile}")
            }
