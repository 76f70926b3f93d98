"""The answer first: what cost how many seconds, where, and what to do. Rows of a table of questions, ranked by cost."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from torchtriage.trace.analyses.caches import key_changes, refusals, starts
from torchtriage.trace.analyses.collectives import disparities
from torchtriage.trace.analyses.compile_time import repetitions, time_use, twins
from torchtriage.trace.analyses.exports import export_issues
from torchtriage.trace.analyses.failures import failure_groups
from torchtriage.trace.analyses.graph_breaks import BreakSite, break_sites
from torchtriage.trace.analyses.ranks import rank_report
from torchtriage.trace.analyses.recompiles import RecompileCause, cut, recompile_causes
from torchtriage.trace.analyses.specialised import specialised_sizes
from torchtriage.trace.load import Trace
from torchtriage.trace.model import CompileId, Place

Level = Literal["problem", "note"]
#: A phase that takes this share of compile time is worth a word.
LARGE_SHARE = 0.4
#: Seconds below which a share of compile time, or a graph that was compiled again, is not worth a word.
SMALL = 1.0
#: What makes a graph large.
MANY_NODES, MANY_INPUTS = 3000, 1000

#: Beyond this many damaged logs they are told together.
FEW_LOGS = 8

ADVICE_RANKS = {
    "cache hits and misses": "ranks that miss compile while the others wait: give all of them one cache folder that is filled before",
    "recompiles": "a rank that compiles again keeps the others waiting at the next collective: look at what its data has that theirs have not",
    "shapes of intermediate tensors": "shapes that depend on a rank's data: pad them to the same size, or mark the dimension dynamic on all ranks",
}  # fmt: skip
ADVICE_PHASE = {
    "autotuning": "mode='max-autotune' searches for the fastest kernels; keep its cache (TORCHINDUCTOR_CACHE_DIR) between runs, or use the default mode",
    "C++/Triton compile": "the compiler of the kernels is waited for; keep TORCHINDUCTOR_CACHE_DIR between runs, and allow more TORCHINDUCTOR_COMPILE_THREADS",
    "code generation": "large graphs generate much code; compile repeated layers one by one (regional compilation)",
    "Dynamo": "tracing Python takes the time: unrolled loops and long functions are traced line by line",
    "guards": "many guards are built: pass fewer Python objects into the function",
    "scheduling": "many nodes are scheduled: compile repeated layers one by one (regional compilation)",
    "cache": "the caches themselves take the time: look at where they are stored",
}  # fmt: skip


#: torch's id for a call of a function that is not traced, and how its context names the function.
SKIPPED_FUNCTION = "gb0007"
_CALLED = re.compile(r"module: (?P<module>[\w.]+), qualname: (?P<name>[\w.]+)")
#: How hints of torch's begin that are for torch's own developers.
NO_ADVICE = (
    "Please report", "This graph break is fundamental", "It may be possible to write Dynamo tracing rules",
    "If it is a Python builtin, please file an issue",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Verdict:
    """One thing to know, with its cost and its evidence."""

    kind: str
    """Which question it answers: `recompiles`, `graph break`, `failure`, …"""
    level: Level
    seconds: float
    title: str
    advice: str = ""
    place: Place | None = None
    details: tuple[str, ...] = ()
    compiles: tuple[tuple[str, CompileId], ...] = ()
    """Evidence: (log, compile)."""


def verdicts(trace: Trace) -> tuple[Verdict, ...]:
    """All verdicts: problems before notes, the dearest first."""
    found = [verdict for question in QUESTIONS for verdict in question(trace)]
    return tuple(sorted(found, key=lambda v: (v.level != "problem", -v.seconds)))


def problems(trace: Trace) -> tuple[Verdict, ...]:
    return tuple(v for v in verdicts(trace) if v.level == "problem")


def at(place: Place | None) -> str:
    return f" at {place.short}" if place is not None else ""


def times(count: int, what: str = "time") -> str:
    return "once" if count == 1 and what == "time" else f"{count} {what}{'' if count == 1 else 's'}"


def _recompiles(trace: Trace) -> Iterator[Verdict]:
    for cause in recompile_causes(trace):
        again = f"was compiled again {times(cause.count)}" if cause.count else "was not compiled again"
        title = f"{cause.name} {again}"
        if cause.refused:
            title += f" ({times(cause.refused)} refused by the recompile limit)"
        title += f": {cause.what}{f' ({cause.seen})' if cause.seen else ''}{at(cause.line)}"
        if cause.others:
            more = f" and {len(cause.others) - 3} more" if len(cause.others) > 3 else ""
            title += f"; {', '.join(f'`{cut(o, 40)}`' for o in cause.others[:3])}{more} differ{'s' if len(cause.others) == 1 else ''} too"
        if cause.limit:
            title += "; it runs in eager since the recompile limit"
        level: Level = "note" if cause.expected else "problem"
        yield Verdict(
            "recompiles", level, cause.seconds, title, cause.advice, cause.line,
            tuple(_recompile_details(cause)), cause.compiles,
        )  # fmt: skip


def _recompile_details(cause: RecompileCause) -> Iterator[str]:
    yield f"guard that failed: {cut(cause.guard, 300)}"
    if len(cause.values) > 1 or "→" in "".join(cause.values):
        more = f" and {len(cause.values) - 8} more" if len(cause.values) > 8 else ""
        yield "values: " + ", ".join(cause.values[:8]) + more
    if cause.place is not None:
        yield f"the guard was installed by {cause.place}{': ' + cut(cause.place.code, 120) if cause.place.code else ''}"
    if cause.call is not None:
        yield f"the function was called at {cause.call}{': ' + cut(cause.call.code, 120) if cause.call.code else ''}"
    if cause.frame.line:
        yield f"the function is defined at {cause.frame.file}:{cause.frame.line}"
    if len(cause.chain) > 1:
        yield f"called through {_path(cause.chain)}"
    if cause.chain_before:
        yield f"the entry that did not fit was compiled for a call through {_path(cause.chain_before)}"
    if cause.specialised is not None:
        yield f"the size is made a constant by {cause.specialised}: {cut(cause.specialised.code, 160)}"
    if cause.settled and cause.specialised is None:
        yield "the new entry leaves it free, so this costs one recompile a run; marking it before the first call saves that one too"
    if cause.special:
        yield "sizes 0 and 1 are compiled by themselves: torch._dynamo.decorators.mark_unbacked, or padding, avoids it"
    if cause.hint:
        yield f"torch adds: {cut(cause.hint, 300)}"
    for change in cause.also[:12]:
        where = f" ({change.place.short})" if change.place else ""
        after = "no longer fixed" if change.after == "not guarded" else change.after
        yield f"guards also differ in {change.aspect} of {change.source or 'the frame'}{where}: {cut(change.before)} → {cut(after)}"


def _path(chain: tuple[Place, ...]) -> str:
    """A chain of calls in one line."""
    return " → ".join(f"{place.function} ({place.short})" for place in chain[-6:])


def _breaks(trace: Trace) -> Iterator[Verdict]:
    sites = break_sites(trace)
    largest = max((site.splits for site in sites), default=0)
    total = sum(site.count for site in sites)
    for site in sites:
        where = at(site.place)
        of = f" in {', '.join(site.functions[:3])}" if site.functions else ""
        title = f"graph break{of}{where}: {cut(site.reason, 120)}"
        if site.skipped:
            title += "; the function runs in eager as a whole"
        details = [f"{site.count} of {total} recorded breaks are this one"]
        details += [f"torch explains: {cut(site.explanation, 400)}"] if site.explanation else []
        details += [f"code: {cut(site.place.code, 200)}"] if site.place and site.place.code else []
        if site.through:
            details.append(f"reached through {_path(site.through)}")
        if site.context_manager is not None:
            entered = site.context_manager
            details.append(
                f"it is inside of `{cut(entered.code, 100)}` ({entered.short}): Dynamo cannot resume in a context "
                "manager, so the whole function is left to eager"
            )
        if site.splits:
            most = "; no other break cuts a larger graph" if len(sites) > 1 and site.splits == largest else ""
            details.append(
                f"operations captured before it: {site.ops_before}, after it: {site.ops_after}{most}"
            )
        details += [f"torch's id: {site.identifier}"] if site.identifier else []
        yield Verdict(
            "graph break",
            "problem",
            site.seconds,
            title,
            cut(_break_advice(site), 600),
            site.place,
            tuple(details),
            site.compiles,
        )


def _break_advice(site: BreakSite) -> str:
    """torch's hints, without those for torch's own developers; what was called, where torch only says that it is in C."""
    hints = " ".join(hint for hint in site.hints if not hint.startswith(NO_ADVICE))
    called = _CALLED.search(site.context) if site.identifier == SKIPPED_FUNCTION else None
    if called is not None:
        return f"call {called['module']}.{called['name']} outside of the compiled function. {hints}".strip()
    return hints or "move the line out of the compiled function, or compile the parts around it"


def _failures(trace: Trace) -> Iterator[Verdict]:
    told = {c.frame.function for c in recompile_causes(trace) if c.limit}
    for group in failure_groups(trace):
        names = ", ".join(str(frame.function) for frame in group.frames[:3]) or "a function"
        if group.limit:
            yield Verdict(
                # what the recompiles cost is told with their causes, which come first
                "recompile limit", "problem", 0.0 if told.issuperset(f.function for f in group.frames) else group.seconds,
                f"{names} fell back to eager after the recompile limit ({times(group.count, 'call')} refused)",
                "remove the causes of its recompiles; torch._dynamo.config.recompile_limit raises the limit, "
                "torch.compiler.set_stance('fail_on_recompile') finds the calls", group.place, (), group.compiles,
            )  # fmt: skip
            continue
        lines = [line.strip() for line in group.reason.split("\n") if line.strip()]
        first = " ".join(lines[:2] if lines and lines[0].endswith(":") else lines[:1])
        if group.type == "Unsupported":
            continue  # told as a graph break
        yield Verdict(
            "failure", "problem", group.seconds, f"{names} did not compile{at(group.place)}: {group.type}: {cut(first, 160)}",
            "torchtriage diagnose finds the layer at fault and reduces the program", group.place,
            (cut(group.reason, 1500),), group.compiles,
        )  # fmt: skip


def _time(trace: Trace) -> Iterator[Verdict]:
    use = time_use(trace)
    whole = sum(seconds for _, seconds in use.phases)
    for phase, seconds in use.phases[:3]:
        if whole and seconds / whole >= LARGE_SHARE and seconds >= SMALL:
            steps = [f"{n}: {times(c)}, {own:.2f} s" for n, c, _, own in use.steps[:6]]
            yield Verdict(
                "compile time", "note", seconds, f"{seconds / whole:.0%} of compile time is {phase}",
                ADVICE_PHASE.get(phase, ""), None, tuple(steps),
            )  # fmt: skip
    for name, compile_id, step in use.unfinished[:20]:
        inside = f" inside {step}" if step else ""
        yield Verdict(
            "unfinished", "problem", 0.0, f"compile {compile_id} never ended{inside}: the log has no result of it",
            "the program was killed, is hung, or is still running; py-spy dump shows where a live one is",
            None, (), ((name, compile_id),),
        )  # fmt: skip


def _repetitions(trace: Trace) -> Iterator[Verdict]:
    for one in repetitions(trace):
        what = (
            f"{one.count} copies of the same block{f' (`{one.module}`)' if one.module else ''} were inlined into one graph of {one.operations} nodes"
            if one.blocks
            else f"a loop was unrolled {one.count} times into one graph of {one.operations} nodes"
        )
        advice = (
            "compile the block instead of the whole model: torch.compile on each layer, or torch.compiler.nested_compile_region"
            if one.blocks
            else "express the loop with torch operations, or with torch's scan; or compile only its body"
        )
        details = (
            (f"the numbered modules of `{one.module}` have the same parameters",)
            if one.module
            else (
                f"{one.place.function}: {cut(one.place.code, 160)}",
                f"{one.lines} lines are repeated as often",
            )
        )
        yield Verdict(
            "repetition",
            "problem",
            one.seconds,
            what + at(one.place),
            advice,
            one.place,
            details,
            (one.compile,),
        )
    for pair in twins(trace)[:3]:
        if pair.seconds < SMALL:
            continue
        yield Verdict(
            "same graph", "note", pair.seconds, f"the same graph was compiled {pair.count} times ({', '.join(pair.functions[:4])})",
            "compile the shared block once: one function or module class compiled by itself, or caches switched on",
            None, (), pair.compiles[:50],
        )  # fmt: skip


def _caches(trace: Trace) -> Iterator[Verdict]:
    for one in refusals(trace)[:5]:
        yield Verdict(
            "cache", "note", one.seconds, f"{one.cache} was not used {times(one.count)}: {cut(one.reason, 160)}",
            "with the cache a second run would not compile this again", None, (), one.compiles,
        )  # fmt: skip


def _cache_keys(trace: Trace) -> Iterator[Verdict]:
    for change in key_changes(trace)[:3]:
        yield Verdict(
            "cache", "note", change.seconds,
            f"{change.cache} missed {times(len(change.compiles))} for {change.function} with the same graph: "
            f"its key differs in {', '.join(change.names[:4])}",
            "", None, tuple(cut(part, 300) for part in change.parts[:10]), change.compiles,
        )  # fmt: skip


def _cudagraphs(trace: Trace) -> Iterator[Verdict]:
    reasons: dict[str, list[tuple[str, CompileId]]] = {}
    for log, compile in trace.compiles():
        reason = compile.metrics.get("cudagraph_skip_reason")
        if isinstance(reason, str) and reason:
            reasons.setdefault(reason, []).append((log.name, compile.id))
    for reason, members in reasons.items():
        yield Verdict(
            "CUDA graphs", "problem", 0.0, f"CUDA graphs were skipped for {times(len(members), 'compile')}: {cut(reason, 160)}",
            "", None, (), tuple(members),
        )  # fmt: skip


def _ranks(trace: Trace) -> Iterator[Verdict]:
    report = rank_report(trace)
    if len({log.rank for log in trace.logs if log.rank is not None}) < 2:
        return
    merged: dict[str, list[str]] = {}
    sides: dict[str, str] = {}
    for one in report.divergences:
        sides.setdefault(one.what, " against ".join(_members(group) for group in one.groups[:3]))
        groups = " | ".join(
            ", ".join(group[:6]) + (" …" if len(group) > 6 else "") for group in one.groups[:4]
        )
        where = f"compile {one.compile}: " if one.compile else ""
        merged.setdefault(one.what, []).append(f"{where}{groups}. {one.first_difference}")
    for what, details in merged.items():
        yield Verdict(
            "ranks",
            "problem",
            0.0,
            f"ranks differ in {what}: {sides[what]}",
            ADVICE_RANKS.get(what, "ranks that compile different graphs can hang in a collective"),
            None,
            tuple(details[:20]),
        )
    for wait in report.waiting[:1]:
        if wait.seconds >= SMALL:
            yield Verdict(
                "ranks",
                "note",
                wait.seconds,
                f"{wait.slowest} compiled {wait.compile} {wait.seconds:.1f} s longer than {wait.fastest}, which waits for it at the next collective",
            )


def _members(group: tuple[str, ...]) -> str:
    names = ", ".join(group[:3])
    return names if len(group) <= 3 else f"{names}, … ({len(group)} ranks)"


def _specialised(trace: Trace) -> Iterator[Verdict]:
    told = {str(cause.specialised) for cause in recompile_causes(trace) if cause.specialised is not None}
    for one in specialised_sizes(trace)[:5]:
        if one.place is None or str(one.place) in told:
            continue
        values = ", ".join(one.values[:4]) + (", …" if len(one.values) > 4 else "")
        yield Verdict(
            "specialised", "note", 0.0, f"`{one.source}` was made a constant ({values}){at(one.place)}: {cut(one.place.code, 100)}",
            "the compiled code holds for this size only", one.place, (one.reason,) if one.reason else (), one.compiles[:50],
        )  # fmt: skip


def _starts(trace: Trace) -> Iterator[Verdict]:
    s = starts(trace)
    if s.warm and s.cold:
        title = (
            f"{times(s.cold, 'compile')} missed a cache and took {s.cold_seconds / s.cold:.1f} s each; "
            f"{times(s.warm, 'compile')} found everything there and took {s.warm_seconds / s.warm:.1f} s each"
        )
        yield Verdict("cold start", "note", s.kept, title)
    elif s.cold and s.kept >= SMALL and s.kept >= LARGE_SHARE * s.cold_seconds:
        title = f"a cold start: every compile that asked a cache missed; {s.kept:.1f} s of {s.cold_seconds:.1f} s is work that the caches keep"
        advice = "keep TORCHINDUCTOR_CACHE_DIR between runs: a second run of the same program does not do this work again"
        yield Verdict("cold start", "note", s.kept, title, advice)


def _collectives(trace: Trace) -> Iterator[Verdict]:
    for one in disparities(trace)[:10]:
        planned, called = dict(one.scheduled), dict(one.in_code)
        details = [
            f"{name}: {planned.get(name, 0)} scheduled, {called.get(name, 0)} in the code"
            for name in dict.fromkeys((*planned, *called))
            if planned.get(name) != called.get(name)
        ]
        yield Verdict(
            "ranks", "note", 0.0, f"the code of {one.compile} does not call the collectives that were scheduled ({', '.join(one.ranks[:6])})",
            "", None, tuple(details[:20]),
        )  # fmt: skip


def _exports(trace: Trace) -> Iterator[Verdict]:
    for issue in export_issues(trace):
        details = [f"code: {issue.code}"] if issue.code else []
        details += [f"reached through {_path(issue.stack)}"] if len(issue.stack) > 1 else []
        details += [f"{name} = {cut(value, 200)}" for name, value in issue.values[:60]]
        details += list(issue.derivation)
        yield Verdict(
            "export", "problem", 0.0, issue.title + at(issue.place), issue.advice, issue.place, tuple(details),
            ((issue.log, issue.compile),),
        )  # fmt: skip


def _sizes(trace: Trace) -> Iterator[Verdict]:
    """Graphs that are large in themselves."""
    for what, name, limit in (
        ("nodes", "graph_node_count", MANY_NODES),
        ("inputs", "graph_input_count", MANY_INPUTS),
    ):
        large = [(c.metrics.number(name), n, log, c) for n, (log, c) in enumerate(trace.compiles())]
        large = [row for row in large if row[0] >= limit]
        if large:
            number, _, _, most = max(large, key=lambda row: row[:2])
            yield Verdict(
                "graph size", "note", sum(c.seconds for *_, c in large),
                f"{times(len(large), 'graph')} of {limit} {what} and more; the largest, of {most.function}, has {number:.0f}",
                "compile repeated parts by themselves (regional compilation)", most.place, (),
                tuple((log.name, c.id) for *_, log, c in large[:50]),
            )  # fmt: skip


def _unreadable(trace: Trace) -> Iterator[Verdict]:
    damaged = [log for log in trace.logs if log.problem_count]
    if len(damaged) > FEW_LOGS:
        parts = times(sum(log.problem_count for log in damaged), "part")
        worst = sorted(damaged, key=lambda log: -log.problem_count)[:20]
        yield Verdict(
            "log", "note", 0.0, f"{parts} of {len(damaged)} logs could not be read as they should", "", None,
            tuple(f"{times(log.problem_count, 'part')} of {log.name}, the first at byte {log.problems[0].offset}: {log.problems[0].detail}"
                  for log in worst),
        )  # fmt: skip
        return
    for log in damaged:
        yield Verdict(
            "log", "note", 0.0, f"{times(log.problem_count, 'part')} of {log.name} could not be read as they should",
            "", None, tuple(f"byte {p.offset}, {p.length} bytes, {p.reason}: {p.detail}" for p in log.problems[:20]),
        )  # fmt: skip


#: Every question that is asked of a trace. Add a row to ask another.
QUESTIONS: tuple[Callable[[Trace], Iterator[Verdict]], ...] = (
    _recompiles, _breaks, _failures, _time, _repetitions, _caches, _cache_keys, _starts, _specialised, _cudagraphs, _ranks, _collectives, _exports, _sizes,
    _unreadable,
)  # fmt: skip
