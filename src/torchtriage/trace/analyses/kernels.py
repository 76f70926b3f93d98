"""From generated kernel to the user's line and back: ATen operators, graph nodes, source lines, fallbacks."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

from torchtriage.trace.load import Trace, once
from torchtriage.trace.model import Artifact, Compile, CompileId, Log, Place, finite
from torchtriage.trace.records import lenient_json

#: In generated code: a comment on what follows, a kernel's definition, a call of a kernel or of eager's operator.
_CODE = re.compile(
    r"^[ \t]*(?:#|//) (?:Topologically Sorted )?Source Nodes: \[(?P<nodes>.*?)\], Original ATen: \[(?P<aten>.*?)\]"
    r"|^[ \t]*(?:#|//) \[Provenance debug handles\] (?P<handle>[\w.]+:\d+)"
    r"|^[ \t]*(?P<defined>\w+) = async_compile\.\w+\("
    r"|^ {4,}(?:\w+ = )?(?P<called>(?:extern_kernels|torch\.ops)\.[\w.]+|(?:triton|cpp)_\w+|aoti_torch_(?:cpu|cuda|xpu|mps)_\w+)(?:\.run)?\("
    r"|(?:AOTI_TORCH_ERROR_CODE_CHECK\()(?P<called_cpp>aoti_torch_(?:cpu|cuda|xpu|mps)_\w+)\(",
    re.M,
)
#: In a printed graph: the comment with the user's line, or a node.
_GRAPH = re.compile(
    r"^[ \t]+# (?:File: )?(?P<file>[^:\n]{1,500}):(?P<line>\d{1,9}) in (?P<function>.{1,200}?), code: (?P<code>.*)$"
    r"|^[ \t]+# (?P<none>No stacktrace found)"
    r"|^[ \t]+(?P<node>\w+)(?:: \".*?\")? = ",
    re.M,
)
_STACK = re.compile(
    r'File "(?P<file>.{0,1000}?)", line (?P<line>\d{1,9}), in (?P<function>.*)\n[ \t]*(?P<code>.*)'
)
_FALLBACK_RANDOM = re.compile(r'"fallback_random": ?true')
_RANDOM = re.compile(r"rand|dropout|bernoulli|normal|uniform|multinomial|exponential")
#: torch numbers the calls of kernels: `extern_kernels.mm:4` is one of several.
_HANDLE = re.compile(r":(\d+)$")
#: Graphs whose nodes have the user's lines, as Dynamo captured them and AOTAutograd made of them; and as lowered.
_CAPTURED = (
    "dynamo_output_graph", "inductor_pre_grad_graph", "before_pre_grad_graph", "exported_program", "aot_joint_graph",
    "aot_forward_graph", "aot_backward_graph", "aot_inference_graph",
)  # fmt: skip
#: What begins the lowering of another graph.
_OPENS = (
    "inductor_output_code",
    "inductor_post_grad_graph",
    "after_post_grad_graph",
    "before_post_grad_graph",
)
_POST = ("inductor_post_grad_graph", "after_post_grad_graph", "before_post_grad_graph")


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel of one compile with where it comes from."""

    name: str
    kind: str
    """`triton`, `cpp`, `extern` (a library call, as a matrix product) or `fallback` (eager's own operator)."""
    compile: CompileId
    aten: tuple[str, ...] = ()
    post: tuple[str, ...] = ()
    """Nodes of the graph that Inductor lowered."""
    pre: tuple[str, ...] = ()
    """Nodes of the graph that Dynamo captured."""
    lines: tuple[Place, ...] = ()
    code: int | None = None
    """Number of the artefact with the generated code, and the line in it."""
    code_line: int = 0
    code_lines: int = 0
    """Lines of its generated code, where the kernel is defined in it."""
    direction: str = ""
    """`forward` or `backward`, where a compile has both."""
    why: str = ""
    """Why it is no code of Inductor's own, where it is not."""
    seconds: float = 0.0
    """What compiling it took, where the log has it (Triton kernels)."""
    handle: str = ""
    """torch's number of this call, where the kernel is called more than once and the log tells the calls apart."""


@dataclass(slots=True)
class _Seen:
    aten: dict[str, None]
    nodes: dict[str, None]
    code: int
    line: int
    lines: int = 0


@dataclass(slots=True)
class _Section:
    """One graph that was lowered: forward or backward. Their kernels may have the same names."""

    seen: dict[str, _Seen] = field(default_factory=dict)
    calls: dict[str, _Seen] = field(default_factory=dict)
    """The same by call, where the code has torch's numbers of them."""
    mappings: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    stacks: dict[str, list[Place]] = field(default_factory=dict)
    nodes: dict[str, Place] = field(default_factory=dict)


def kernels_of(trace: Trace, log: Log, compile: Compile) -> tuple[Kernel, ...]:
    """All kernels in the generated code of one compile, forward and backward."""
    sections = [_Section()]
    captured: dict[str, Place] = {}
    backward = False
    for number in compile.artifacts:
        one, section = log.artifacts[number], sections[-1]
        if section.seen and one.title in _OPENS:
            section = _Section()
            sections.append(section)
        if _is_code(one):
            _scan_code(trace.text(log, one), number, section)
        elif one.name == "inductor_provenance_tracking_node_mappings":
            _merge(section.mappings, trace.json(log, one))
        elif one.name == "inductor_triton_kernel_to_post_grad_nodes":
            _merge(section.mappings, {"cppCodeToPost": trace.json(log, one)})
        elif one.name == "inductor_provenance_tracking_kernel_stack_traces":
            _merge_stacks(section.stacks, trace.json(log, one))
        elif one.title in _POST:
            section.nodes.update(node_lines(trace.text(log, one)))
        elif one.title in _CAPTURED:
            captured.update(node_lines(trace.text(log, one)))
        backward = backward or one.title == "aot_backward_graph"
    times, random = _times(compile), _falls_back_to_eager_random(log, compile)
    found: list[Kernel] = []
    for index, section in enumerate(sections):
        direction = ("forward" if index == 0 else "backward") if backward and len(sections) > 1 else ""
        lines = {**captured, **section.nodes}
        for name, handles in _calls(section).items():
            if len(handles) < 2:
                found.append(_kernel(name, "", compile.id, section, lines, direction, times, random))
                continue
            for place, handle in enumerate(handles):
                one_call = _kernel(name, handle, compile.id, section, lines, direction, times, random)
                # its code and what compiling it took count once
                found.append(replace(one_call, code_lines=0, seconds=0.0) if place else one_call)
    return tuple(found)


def _calls(section: _Section) -> dict[str, list[str]]:
    """Kernel -> torch's numbers of its calls, where the log has any."""
    found: dict[str, list[str]] = {}
    for key in (*section.seen, *section.calls, *section.mappings.get("cppCodeToPost", {}), *section.stacks):
        handle = _HANDLE.search(key)
        numbers = found.setdefault(_HANDLE.sub("", key), [])
        if handle is not None and handle[1] not in numbers:
            numbers.append(handle[1])
    return found


def _kernel(
    name: str, handle: str, compile: CompileId, section: _Section, nodes: dict[str, Place], direction: str,
    times: dict[str, float], fallback_random: bool,
) -> Kernel:  # fmt: skip
    """One kernel, or one call of it."""
    key = f"{name}:{handle}" if handle else name
    code = section.calls.get(key) or section.seen.get(name)
    defined = section.seen.get(name)
    post = section.mappings.get("cppCodeToPost", {}).get(key, [])
    to_pre = section.mappings.get("postToPre", {})
    pre = dict.fromkeys([p for node in post for p in to_pre.get(node, [])] or (code.nodes if code else ()))
    lines = dict.fromkeys(section.stacks.get(key, []))
    for node in (*pre, *post):
        if node in nodes:
            lines[nodes[node]] = None
    return Kernel(
        name, kind_of(name), compile, tuple(code.aten) if code else (), tuple(post), tuple(pre), tuple(lines),
        code.code if code else None, code.line if code else 0, defined.lines if defined else 0, direction,
        why_not_generated(name, fallback_random), times.get(name, 0.0), handle,
    )  # fmt: skip


def _times(compile: Compile) -> dict[str, float]:
    """Kernel -> seconds that compiling it took, forward and backward."""
    out: dict[str, float] = {}
    for values in (compile.metrics.values, compile.metrics.backward):
        rows = values.get("triton_kernel_compile_times_us")
        rows = lenient_json(rows.encode("utf-8", "replace")) if isinstance(rows, str) else rows
        for row in rows if isinstance(rows, list) else ():
            if isinstance(row, list) and len(row) == 2 and isinstance(row[0], str):
                out[row[0]] = out.get(row[0], 0.0) + finite(row[1]) / 1e6
    return out


def _falls_back_to_eager_random(log: Log, compile: Compile) -> bool:
    return any(
        _FALLBACK_RANDOM.search(log.configs[key])
        for key in compile.metrics.configs
        if key.startswith("inductor:")
    )


def why_not_generated(name: str, fallback_random: bool = False) -> str:
    """Why a kernel is a call of something that exists; empty for generated kernels."""
    kind = kind_of(name)
    if kind == "collective":
        return "a collective: always a call of the library for communication"
    if kind == "extern":
        return "a call of a library's kernel, as for matrix products and convolutions; mode='max-autotune' tries Inductor's own templates as well"
    if kind != "fallback":
        return ""
    parts = name.split(".")
    if len(parts) > 2 and parts[2] not in ("aten", "prims", "inductor"):
        return f"an operator of the library {parts[2]}: the compiler cannot look into it"
    if fallback_random and _RANDOM.search(name):
        return "config.fallback_random is on: random numbers come from eager's operators"
    return "Inductor has no code for this operator, or not for these dtypes or arguments: it calls eager's, and fuses nothing with it"


def kind_of(name: str) -> str:
    if name.startswith("triton_"):
        return "triton"
    if name.startswith("cpp_"):
        return "cpp"
    if name.startswith("torch.ops.") or (name.startswith("aoti_torch_") and "_fallback" in name):
        return "collective" if "c10d" in name else "fallback"
    return "extern"


def _scan_code(text: str, number: int, section: _Section) -> None:
    """Kernels by definition and by call; the comment before says what they were fused from."""
    seen, handle = section.seen, ""
    nodes: list[str] = []
    aten: list[str] = []
    end = min(
        (at for mark in ("\ndef get_args", "\ndef benchmark") if (at := text.find(mark)) >= 0),
        default=len(text),
    )
    line, counted = 1, 0
    for match in _CODE.finditer(text, 0, end):
        if match["nodes"] is not None:
            nodes, aten = _names(match["nodes"]), _names(match["aten"])
            continue
        if match["handle"] is not None:
            handle = match["handle"]
            continue
        name = match["defined"] or match["called"] or match["called_cpp"]
        if name.startswith("torch.ops.inductor._"):
            continue
        line, counted = (
            line + text.count("\n", counted, match.start(match.lastgroup or 0)),
            match.start(match.lastgroup or 0),
        )
        one = seen.setdefault(name, _Seen({}, {}, number, line))
        if handle.rpartition(":")[0] == name:
            section.calls[handle] = _Seen(dict.fromkeys(aten), dict.fromkeys(nodes), number, line)
            handle = ""
        if match["defined"]:
            opened = text.find("'''", match.end())
            closed = text.find("'''", opened + 3) if opened >= 0 else -1
            one.lines = text.count("\n", opened, closed) if closed >= 0 else 0
        one.nodes.update(dict.fromkeys(nodes))
        one.aten.update(dict.fromkeys(aten))
        nodes, aten = [], []


def _names(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _merge(mappings: dict[str, dict[str, list[str]]], plain: Any) -> None:
    if not isinstance(plain, dict):
        return
    for direction, table in plain.items():
        if isinstance(table, dict):
            into = mappings.setdefault(str(direction), {})
            for key, value in table.items():
                if isinstance(value, list):
                    for name in dict.fromkeys((str(key), _HANDLE.sub("", str(key)))):
                        known = into.setdefault(name, [])
                        known.extend(str(v) for v in value if str(v) not in known)


def _merge_stacks(stacks: dict[str, list[Place]], plain: Any) -> None:
    if not isinstance(plain, dict):
        return
    for key, value in plain.items():
        texts = value if isinstance(value, list) else [value]
        for name in dict.fromkeys((str(key), _HANDLE.sub("", str(key)))):
            places = stacks.setdefault(name, [])
            places.extend(p for text in texts if (p := _innermost(str(text))) and p not in places)


def _innermost(text: str) -> Place | None:
    """The last frame of a stack that was printed as a traceback."""
    frames = list(_STACK.finditer(text))
    if not frames:
        return None
    last = frames[-1]
    return Place(last["file"], int(last["line"]), last["function"].strip(), last["code"].strip())


def node_lines(graph: str) -> dict[str, Place]:
    """Node name -> the user's line, from the comments of a printed graph."""
    found: dict[str, Place] = {}
    place: Place | None = None
    for match in _GRAPH.finditer(graph):
        if match["node"] is not None:
            if place is not None:
                found[match["node"]] = place
        elif match["none"] is not None:
            place = None
        else:
            place = Place(match["file"], int(match["line"]), match["function"], match["code"].strip())
    return found


@once
def all_kernels(trace: Trace) -> dict[tuple[str, CompileId], tuple[Kernel, ...]]:
    """Kernels by (log, compile), of those with generated code. Compiles with the same texts share them."""
    known: dict[tuple[str, ...], tuple[Kernel, ...]] = {}
    out: dict[tuple[str, CompileId], tuple[Kernel, ...]] = {}
    for log in trace.logs:
        for compile in (*log.compiles, log.outside):
            if has_code(log, compile):
                texts = (log.artifacts[n].digest for n in compile.artifacts if log.artifacts[n].digest)
                key = (
                    *texts,
                    *compile.metrics.configs,
                    str(compile.metrics.get("triton_kernel_compile_times_us")),
                )
                if key not in known:
                    known[key] = kernels_of(trace, log, compile)
                out[(log.name, compile.id)] = known[key]
    return out


def has_code(log: Log, compile: Compile) -> bool:
    return any(
        _is_code(log.artifacts[number]) or log.artifacts[number].name.startswith("inductor_provenance")
        for number in compile.artifacts
    )


def _is_code(one: Artifact) -> bool:
    return one.kind == "inductor_output_code" or (one.kind == "graph_dump" and "code" in one.name)
