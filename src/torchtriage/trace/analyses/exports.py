"""What stood in the way of an export? Conditions on data, guards, and operators whose fake kernels are missing or wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torchtriage.trace.frames import innermost, stack_of
from torchtriage.trace.load import Trace
from torchtriage.trace.model import OUTSIDE, Artifact, CompileId, Log, Place

#: kind -> (title, what to do)
ISSUES: dict[str, tuple[str, str]] = {
    "missing_fake_kernel": (
        "operator {op} has no fake kernel",
        "register one with torch.library.register_fake: it computes shapes and dtypes without data",
    ),
    "mismatched_fake_kernel": (
        "operator {op} has a fake kernel that is wrong: {reason}",
        "correct its fake kernel, or its meta implementation: it does not describe what the real one returns",
    ),
    "propagate_real_tensors_provenance": (
        "the condition {expr} depends on data; tracing took it as {result}",
        "state what holds with torch._check, or express both branches with torch.cond or torch.where",
    ),
    "guard_added": (
        "the condition {expr} was evaluated during the export, and became a guard",
        "it may violate a constraint on dynamic sizes: let the size be constant, or do not compare it",
    ),
}
DEEPEST = 12


@dataclass(frozen=True, slots=True)
class ExportIssue:
    kind: str
    title: str
    advice: str
    log: str
    artifact: int
    place: Place | None = None
    code: str = ""
    values: tuple[tuple[str, str], ...] = ()
    """Local variables and symbols with what is known of them."""
    derivation: tuple[str, ...] = ()
    """How the expression came about, indented, the expression first."""
    stack: tuple[Place, ...] = ()
    """The user's calls that led to it, outermost first."""
    compile: CompileId = OUTSIDE


def export_issues(trace: Trace) -> tuple[ExportIssue, ...]:
    """Every issue once, in the order in which tracing met them."""
    found: dict[tuple[str, str], ExportIssue] = {}
    for log in trace.logs:
        if not any(kind in log.kinds for kind in ISSUES):
            continue
        created: dict[Any, dict[str, Any]] = {}
        for one in log.artifacts:
            if one.kind != "expression_created" and one.kind not in ISSUES:
                continue
            if one.kind == "guard_added" and one.compile != OUTSIDE:
                continue  # a guard of a compile, which may have guards
            meta = trace.header(log, one).get(one.kind)
            if not isinstance(meta, dict):
                continue
            if one.kind == "guard_added" and meta.get("prefix") != "eval":
                continue  # deferred to run time: it does not constrain the export
            if one.kind == "expression_created":
                created[str(meta.get("result_id"))] = meta
                continue
            issue = _issue(log, one, meta, created)
            found.setdefault((issue.kind, issue.title), issue)
    return tuple(found.values())


def _issue(log: Log, one: Artifact, meta: dict[str, Any], created: dict[Any, dict[str, Any]]) -> ExportIssue:
    title, advice = ISSUES[one.kind]
    words = {name: str(meta.get(name, "?")) for name in ("op", "reason", "expr", "result")}
    frame = meta.get("frame_locals")
    frame = frame if isinstance(frame, dict) else {}
    values = [
        (str(key), str(value))
        for table in (frame.get("locals"), frame.get("symbols"), meta.get("symbol_to_sources"))
        if isinstance(table, dict)
        for key, value in table.items()
    ]
    return ExportIssue(
        one.kind, title.format(**words), advice, log.name, one.number, innermost(meta.get("user_stack"), log.strings),
        str(frame.get("loc") or ""), tuple(dict.fromkeys(values)), tuple(_derive(str(meta.get("expr_node_id")), created, log)),
        stack_of(meta.get("user_stack"), log.strings), one.compile,
    )  # fmt: skip


def _derive(node: str, created: dict[Any, dict[str, Any]], log: Log, depth: int = 0) -> list[str]:
    meta = created.get(node)
    if meta is None or depth > DEEPEST:
        return []
    arguments, ids = meta.get("arguments"), meta.get("argument_ids")
    place = innermost(meta.get("user_stack"), log.strings)
    where = f"  at {place.short}{'  ' + place.code if place.code else ''}" if place else ""
    shown = ", ".join(map(str, arguments)) if isinstance(arguments, list) else ""
    lines = [f"{'  ' * depth}{meta.get('result')} = {meta.get('method')}({shown}){where}"]
    for one in ids if isinstance(ids, list) else ():
        lines.extend(_derive(str(one), created, log, depth + 1))
    return lines[:100]
