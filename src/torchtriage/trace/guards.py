"""What a failed guard means: torch's one-line reasons as typed causes. A table: the first row that matches wins."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from torchtriage.trace.model import GuardFailure, Place

#: cause -> (what changed, in plain words; what to do about it)
CAUSES: dict[str, tuple[str, str]] = {
    "size": ("a tensor size changed", "mark the dimension dynamic: torch._dynamo.mark_dynamic({source}, {dim}) before the call, or pad to a few fixed sizes"),
    "size condition": ("a condition on a tensor size changed", "the code (or torch for sizes 0 and 1) took another path for this size: pad, or keep sizes on one side of the condition; for 0 and 1 torch._dynamo.decorators.mark_unbacked"),
    "rank": ("the number of dimensions of a tensor changed", "give the function tensors of one rank, or one compiled function per rank"),
    "stride": ("a tensor's strides changed", "call .contiguous() on it before the compiled function, or always pass the same memory layout"),
    "dtype": ("a tensor's dtype changed", "convert to one dtype before the compiled function"),
    "device": ("a tensor's device changed", "move tensors to one device before the compiled function"),
    "requires_grad": ("requires_grad of a tensor changed", "detach inputs or use one grad mode for all calls"),
    "dispatch keys": ("a tensor's dispatch keys changed, as between inference tensors and normal ones", "create and use tensors under the same mode: all inside torch.inference_mode(), or none"),
    "grad mode": ("grad mode changed", "call the function always under torch.no_grad(), or never; or compile one copy for training and one for evaluation"),
    "global state": ("a global torch setting changed (autocast, determinism, default dtype, threads)", "set it once, before the first call"),
    "training mode": ("a module switched between train() and eval()", "expected once per mode; keep separate compiled copies if it happens often"),
    "scalar": ("a Python number changed", "pass it as a tensor, or let it become dynamic (torch.compile(dynamic=None) does so after one recompile for arguments)"),
    "flag": ("a bool, string or None changed", "one compile per value is expected; keep the set of values small"),
    "global value": ("a global variable changed", "pass it as an argument, or as a tensor; values of globals are always guarded"),
    "attribute": ("an attribute or item of an object changed", "keep changing numbers in a tensor or buffer, or pass them as arguments"),
    "length": ("the length of a list, tuple or dict changed", "use a tensor of fixed size, or a fixed number of items; container lengths are never dynamic"),
    "dict": ("keys or order of a dict changed", "keep the same keys in the same order"),
    "identity": ("another object (function, module, class) stood in the same place", "create it once, outside of the call"),
    "type": ("an argument or attribute changed its type", "pass one type"),
    "aliasing": ("tensors began or ceased to be the same object", "pass distinct tensors, or always the same aliasing"),
    "marking": ("dynamic marking of a tensor changed", "mark the same dimensions on every call"),
    "resume value": ("a value that a graph break hands over was guarded", "remove the graph break: the recompile is its consequence"),
    "mode stack": ("a torch function mode was entered or left", "enter the mode around all calls or none"),
    "backend": ("another backend or other options were given for the same function", "use one torch.compile configuration per function"),
    "other": ("a guard failed", "look at the guard and the line that installed it"),
}  # fmt: skip

#: Characters of a reason that are looked at. Guards on long strings can be of any length.
LONGEST = 6000
_TENSOR = r"tensor '(?P<source>.*)' "
_EXPECTED = r"(?:at index (?P<dim>\d+)\. )?expected (?P<expected>.*?), actual (?P<actual>.*)"
_NAME = r"(?P<source>[\w.\[\]'\"()]*[\w.\]'\"])"


@dataclass(frozen=True, slots=True)
class Rule:
    cause: str
    pattern: re.Pattern[str]


def _rule(cause: str, pattern: str) -> Rule:
    return Rule(cause, re.compile(pattern))


RULES: tuple[Rule, ...] = (
    _rule("size", _TENSOR + r"size mismatch " + _EXPECTED),
    _rule("stride", _TENSOR + r"stride mismatch " + _EXPECTED),
    _rule("dtype", _TENSOR + r"dtype mismatch\. " + _EXPECTED),
    _rule("rank", _TENSOR + r"rank mismatch\. " + _EXPECTED),
    _rule("device", _TENSOR + r"(?:Tensor )?device(?: index)? mismatch\. ?" + _EXPECTED),
    _rule("requires_grad", _TENSOR + r"requires_grad mismatch\. " + _EXPECTED),
    _rule("dispatch keys", _TENSOR + r"dispatch key set mismatch\. " + _EXPECTED),
    _rule("type", r"expected type of '(?P<source>.*)' to be (?P<expected>.*?),? (?:but found|'?found) (?P<actual>.*)"),
    _rule("grad mode", r"GLOBAL_STATE changed: .*grad_mode"),
    _rule("global state", r"GLOBAL_STATE changed"),
    _rule("global state", r"___check_(?:global_state|current_device)|CURRENT_DEVICE|is_grad_enabled"),
    _rule("mode stack", r"___check_torch_function_mode_stack|torch_function_mode"),
    _rule("marking", r"_dynamo_(?:weak_)?(?:strict_)?(?:dynamic|unbacked|static)_indices"),
    _rule("backend", r"BACKEND_MATCH|___check_current_backend|backend mismatch"),
    _rule("resume value", r"^(?P<source>(?:L\[')?___stack\d+\S*) (?:==|is|!=) (?P<expected>.*)"),
    _rule("training mode", rf"{_NAME}\.training (?:==|is) (?P<expected>True|False)"),
    _rule("length", r"len\((?P<source>.*)\) == (?P<expected>\d+)"),
    _rule("length", r"^not (?P<source>[LG]?\[?.*)$"),
    _rule("dict", r"___dict_(?:contains|version)|list\(dict\.keys\(|\.keys\(\)|___key_to_id"),
    _rule("aliasing", r"check_no_aliasing|Duplicate tensor|OBJECT_ALIASING|duplicate"),
    _rule("identity", r"___check_obj_id\((?P<source>.*?), (?P<expected>\d+)"),
    _rule("type", r"___check_type_id\((?P<source>.*?), (?P<expected>\d+)"),
    _rule("size condition", r"\.(?:size|stride|storage_offset)\(\)|\.shape\["),
    _rule("global value", r"^(?P<source>G\[.*?) (?:==|is|!=|is not) (?P<expected>.*)"),
    _rule("attribute", r"^(?!L\['\w+'\] )(?P<source>(?:L\['\w+'\]|\w+)[.\[].*?) (?:==|is|!=|is not) (?P<expected>.*)"),
    _rule("flag", rf"^{_NAME} (?:==|is|!=|is not) (?P<expected>True|False|None|'.*'|\".*\"|b'.*')$"),
    _rule("scalar", rf"{_NAME} (?:==|<=|>=|<|>) (?P<expected>-?[\d.]+(?:e[+-]?\d+)?)"),
    _rule("scalar", r" (?:==|<=|>=|<|>) "),
)  # fmt: skip

_USER_LINE = re.compile(
    r'File "(?P<file>.{0,1000}?)", line (?P<line>\d{1,9}), in (?P<function>.*)\n[ \t]*(?P<code>.*)'
)
_COMMENT = re.compile(
    r"\s+# (?P<code>.*?)\s+# (?P<file>[^#\s]+):(?P<line>\d+) in (?P<function>\S+)(?P<rest>.*)", re.S
)
_BARE_COMMENT = re.compile(r"\s+# (?P<file>\S+):(?P<line>\d+) in (?P<function>\S+)(?P<rest>.*)", re.S)
_HINT = re.compile(r"\(HINT: (.*?)\)\s*$")
_ENTRY = re.compile(r"(?:\[?[\w!]+/)?[\w!]*\d+/\d+(?:_\d+)?\]?")


@lru_cache(maxsize=4096)
def parse_reason(text: str) -> GuardFailure:
    """One recompile reason: `<entry>: <guard>  # <code>  # <file>:<line> in <function>` and what may follow."""
    text = text[:LONGEST]
    entry, rest = "", text
    head, colon, tail = text.partition(": ")
    if colon and _ENTRY.fullmatch(head.strip()):
        entry, rest = head.strip(), tail
    rest, _, stack = rest.partition("\nUser stack trace:")
    place = _innermost(stack)
    found = _COMMENT.search(rest) or _BARE_COMMENT.search(rest)
    guard, hint = rest.strip(), ""
    if found is not None:
        guard = rest[: found.start()].strip()
        code = found.groupdict().get("code") or ""
        place = place or Place(found["file"], int(found["line"]), found["function"], code.strip())
        hinted = _HINT.search(found["rest"])
        hint = hinted[1] if hinted else found["rest"].strip(" ()")
    return classify(entry, guard, place, hint)


def classify(entry: str, guard: str, place: Place | None, hint: str = "") -> GuardFailure:
    for rule in RULES:
        match = rule.pattern.search(guard)
        if match is None:
            continue
        groups = match.groupdict()
        dim = groups.get("dim")
        return GuardFailure(
            entry, guard, rule.cause, (groups.get("source") or "").strip(), int(dim) if dim else None,
            (groups.get("expected") or "").strip(), (groups.get("actual") or "").strip(" '"), place, hint,
        )  # fmt: skip
    return GuardFailure(entry, guard, "other", place=place, hint=hint)


def _innermost(stack: str) -> Place | None:
    frames = list(_USER_LINE.finditer(stack))
    if not frames:
        return None
    last = frames[-1]
    return Place(last["file"], int(last["line"]), last["function"].strip(), last["code"].strip())


def parse_reasons(payload: bytes, loads: object) -> tuple[GuardFailure, ...]:
    """The payload of `recompile_reasons`: a JSON list, or the bare text of the only reason."""
    assert callable(loads)
    plain = loads(payload)
    if isinstance(plain, list):
        texts = [str(item) for item in plain]
    else:
        texts = [plain if isinstance(plain, str) else payload.decode("utf-8", "replace")]
    return tuple(parse_reason(text) for text in texts)
