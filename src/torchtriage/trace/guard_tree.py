"""The text of a compiled frame's guard tree (`dynamo_cpp_guards_str`) as leaves, and what differs between two trees."""

from __future__ import annotations

import re
from dataclasses import dataclass

from torchtriage.trace.model import Place

_LEAF = re.compile(r"^(?P<level>(?:\| )*)\+- (?P<kind>[A-Z][A-Z_0-9]+): (?P<text>.*)$")
_MANAGER = re.compile(r"^(?:\| )*\+- .*?source=(?P<source>.*?), accessed_by")
_COMMENT = re.compile(r"\s+# (?:(?P<code>.*?)\s+# )?(?P<file>[^#\s]+):(?P<line>\d+) in (?P<function>\S+)")
_TENSOR = re.compile(
    r"check_tensor\((?P<source>.*?), \w+, (?P<keys>DispatchKeySet\(.*?\)), (?P<dtype>[\w.]+), device=(?P<device>\w+), "
    r"requires_grad=(?P<requires_grad>\w+), size=(?P<size>\[.*?\]), stride=(?P<stride>\[.*?\])\)"
)
_IDENTITY = re.compile(r"\b\d{12,}\b")
_LOCAL = re.compile(r"L\['(\w+)'\]")
_EQUALS = re.compile(r"^(?P<source>.*?) (?:==|is) (?P<value>.*)$")
_SETTING = re.compile(r'"(\w+)":([^",{}\[\]]+|"[^"]*")')
#: Characters of a line that are looked at.
LONGEST = 4000
NOT_GUARDED, DYNAMIC = "not guarded", "dynamic"
#: Guards on identities and types: they come and go with the code that is traced and say nothing about values.
_BORING = frozenset(
    {"NO_TENSOR_ALIASING", "DIMENSION_DYNAMIC_MARKING_GUARD", "ID_MATCH", "TYPE_MATCH", "DICT_CONTAINS", "DICT_VERSION",
     "CLASS_MATCH", "FUNCTION_MATCH", "CLOSURE_MATCH", "MODULE_MATCH", "BUILTIN_MATCH", "HASATTR", "NOT_PRESENT_IN_GENERIC_DICT"}
)  # fmt: skip
#: Guards of the form `source == value`.
_VALUES = frozenset(
    {"EQUALS_MATCH", "CONSTANT_MATCH", "TRUE_MATCH", "FALSE_MATCH", "NONE_MATCH", "BOOL_MATCH"}
)


@dataclass(frozen=True, slots=True)
class Leaf:
    """One guard: what it checks, on what, and the line that needed it."""

    kind: str
    source: str
    text: str
    place: Place | None = None


@dataclass(frozen=True, slots=True)
class GuardChange:
    """A guard that two cache entries of one frame do not share."""

    source: str
    aspect: str
    """`size[1]`, `dtype`, `value`, …"""
    before: str
    after: str
    place: Place | None = None


def parse_tree(text: str) -> tuple[Leaf, ...]:
    """All leaves, in order. Numbers that are identities of objects are blanked, since they differ by nature."""
    leaves: list[Leaf] = []
    source = ""
    for line in text.split("\n"):
        line = line[:LONGEST]
        manager = _MANAGER.match(line)
        if manager is not None:
            source = manager["source"]
            continue
        match = _LEAF.match(line)
        if match is None:
            continue
        body, place = match["text"], None
        comment = _COMMENT.search(body)
        if comment is not None:
            place = Place(
                comment["file"], int(comment["line"]), comment["function"], (comment["code"] or "").strip()
            )
            body = body[: comment.start()]
        owner = short_source(source) if len(match["level"]) > 2 else ""
        leaves.append(Leaf(match["kind"], owner, blank(body.strip()), place))
    return tuple(leaves)


def changes(before: tuple[Leaf, ...], after: tuple[Leaf, ...]) -> tuple[GuardChange, ...]:
    """What differs between the guards of two entries, tensors taken apart by aspect."""
    old, new = _by_key(before), _by_key(after)
    found: list[GuardChange] = []
    for key in dict.fromkeys((*old, *new)):
        kind, source = key
        if kind in _BORING:
            continue
        was, now = old.get(key, ()), new.get(key, ())
        if tuple(leaf.text for leaf in was) == tuple(leaf.text for leaf in now):
            continue
        place = next((leaf.place for leaf in (*was, *now) if leaf.place is not None), None)
        if kind == "TENSOR_MATCH":
            if was and now:
                found.extend(_tensor_changes(source, was[0].text, now[0].text, place))
        elif kind == "GLOBAL_STATE":
            found.extend(_state_changes(was, now))
        else:
            found.extend(_other_changes(kind, source, was, now))
    return tuple(found)


def _by_key(leaves: tuple[Leaf, ...]) -> dict[tuple[str, str], tuple[Leaf, ...]]:
    out: dict[tuple[str, str], tuple[Leaf, ...]] = {}
    for leaf in leaves:
        equals = _EQUALS.match(leaf.text) if leaf.kind in _VALUES or leaf.kind == "LAMBDA_GUARD" else None
        kind = "VALUE" if leaf.kind in _VALUES else leaf.kind
        key = (kind, short_source(equals["source"]) if equals else leaf.source)
        out[key] = (*out.get(key, ()), leaf)
    return out


def _tensor_changes(source: str, before: str, after: str, place: Place | None) -> list[GuardChange]:
    was, now = _TENSOR.search(before), _TENSOR.search(after)
    if was is None or now is None:
        return [GuardChange(source, "tensor", before, after, place)]
    name = short_source(was["source"])
    found = [
        GuardChange(name, aspect.replace("keys", "dispatch keys"), was[aspect], now[aspect], place)
        for aspect in ("dtype", "device", "requires_grad", "keys")
        if was[aspect] != now[aspect]
    ]
    for aspect in ("size", "stride"):
        if aspect == "stride" and was["size"] != now["size"]:
            continue  # they follow from the sizes
        old, new = _list(was[aspect]), _list(now[aspect])
        if len(old) != len(new):
            found.append(GuardChange(name, aspect, was[aspect], now[aspect], place))
            continue
        for dim, (a, b) in enumerate(zip(old, new, strict=True)):
            if a != b:
                found.append(GuardChange(name, f"{aspect}[{dim}]", _dynamic(a), _dynamic(b), place))
    return found


def _state_changes(was: tuple[Leaf, ...], now: tuple[Leaf, ...]) -> list[GuardChange]:
    """The settings that differ between two `___check_global_state() against {…}`."""
    old, new = (dict(_SETTING.findall(leaves[0].text)) if leaves else {} for leaves in (was, now))
    return [
        GuardChange("global state", name, old[name], new.get(name, NOT_GUARDED)) for name in old if old[name] != new.get(name)
    ]  # fmt: skip


def _other_changes(kind: str, source: str, was: tuple[Leaf, ...], now: tuple[Leaf, ...]) -> list[GuardChange]:
    gone = [leaf for leaf in was if leaf.text not in {n.text for n in now}]
    come = [leaf for leaf in now if leaf.text not in {w.text for w in was}]
    aspect = kind.lower().replace("_", " ")
    found: list[GuardChange] = []
    for index in range(max(len(gone), len(come))):
        a = gone[index] if index < len(gone) else None
        b = come[index] if index < len(come) else None
        place = (a.place if a else None) or (b.place if b else None)
        name = source or (a or b or Leaf("", "", "")).source
        found.append(GuardChange(name, aspect, _value(a), _value(b), place))
    return found


def _value(leaf: Leaf | None) -> str:
    if leaf is None:
        return NOT_GUARDED
    equals = _EQUALS.match(leaf.text) if leaf.kind in _VALUES else None
    return equals["value"] if equals else leaf.text


def _dynamic(value: str) -> str:
    return DYNAMIC if value == "None" else value


def _list(text: str) -> list[str]:
    return [part.strip() for part in text.strip("[]").split(",") if part.strip()]


def blank(guard: str) -> str:
    """A guard without identities of objects, which differ from run to run."""
    return _IDENTITY.sub("<id>", guard)


def short_source(source: str) -> str:
    """`L['x'].shape` -> `x.shape`, as torch's own reasons write it."""
    return _LOCAL.sub(r"\1", source)
