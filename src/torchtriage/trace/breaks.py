"""Graph-break texts as values: `dynamo_graph_break_reason` artefacts, restart reasons, failure reasons.

The texts are torch's, semi-stable, so every part is optional; what is not recognised stays in `reason`.
"""

from __future__ import annotations

import re

from torchtriage.trace.model import GraphBreak, Place

_AT = re.compile(r"Graph break in user code at (?P<file>.+?):(?P<line>\d+)\s*$", re.M)
_REASON = re.compile(r"^Graph Break Reason: ?(?P<text>.*)$", re.M)
_IDENTIFIER = re.compile(r"/gb/(gb\d+)\.html", re.I)
_FRAME = re.compile(
    r'^ +File "(?P<file>.*?)", line (?P<line>\d+), in (?P<function>.*)\n(?P<code>(?: {4}.*)?)', re.M
)
_EXPLANATION = re.compile(
    r"^ +Explanation: (?P<text>.*?)(?=^ +Hint:|^ +Developer debug context:|^\s*$|\Z)", re.M | re.S
)
_HINT = re.compile(r"^ +Hint: (.*?)(?=^ +Hint:|^\s*$|\Z)", re.M | re.S)
_CONTEXT = re.compile(r"^ +Developer debug context: (?P<text>.*?)(?=^\s*$|\Z)", re.M | re.S)
_GENERIC = re.compile(
    r"(?:Encountered graph break when attempting to (?:trace|store) .*|Failed to handle graph break gracefully\. .*):$"
)
#: Characters of a text that are looked at.
LONGEST = 100_000
_SKIPPED = "Skipping the function and falling back to eager"
#: The identifier of "the recompile limit is exceeded", which is a limit and no break.
LIMIT_IDENTIFIER = "gb0039"
_LIMIT = re.compile(
    r"recompile limit exceeded|recompile_limit|cache_size_limit|accumulated_(?:cache_size|recompile)_limit",
    re.I,
)


def parse_break(text: str, artifact: int | None = None) -> GraphBreak:
    """The value of one text, whichever of torch's versions wrote it."""
    text = text[:LONGEST]
    body, _, trace = text.partition("\nUser code traceback:\n")
    user_trace = re.split(
        r"^Traceback \(most recent call last\)|^NoneType: None", trace, maxsplit=1, flags=re.M
    )[0]
    explanation, context = _EXPLANATION.search(body), _CONTEXT.search(body)
    identifier = _IDENTIFIER.search(body)
    return GraphBreak(
        reason=_headline(body),
        place=_place(body, user_trace),
        identifier=identifier[1].lower() if identifier else "",
        explanation=_flat(explanation["text"]) if explanation else "",
        hints=tuple(_flat(hint) for hint in _HINT.findall(body)),
        context=context["text"].strip() if context else "",
        skipped=_SKIPPED in body,
        through=_through(body, user_trace),
        artifact=artifact,
    )


def is_limit(text: str) -> bool:
    """True for the failure that says that a frame was compiled too often."""
    return LIMIT_IDENTIFIER in text or _LIMIT.search(text[:600]) is not None


def _headline(body: str) -> str:
    """The one line that names the break: torch's `gb_type` where there is one."""
    lines = [line.strip() for line in body.split("\n")]
    if _AT.search(body):
        found = _REASON.search(body)
        first = found["text"].strip() if found else ""
        after = body[found.end() :] if found else ""
        if first and not _GENERIC.match(first):
            return first
        rest = [line for line in after.split("\n") if line.strip() and not line.startswith(" ")]
        return rest[0].strip() if rest else first
    return next((line for line in lines if line and not line.startswith(("File ", "Traceback"))), "")


def _place(body: str, user_trace: str) -> Place | None:
    at = _AT.search(body)
    frames = list(_FRAME.finditer(user_trace or body))
    if at is None and not frames:
        return None
    if at is None:
        last = frames[-1]
        return Place(last["file"], int(last["line"]), last["function"].strip(), last["code"].strip())
    for frame in reversed(frames):
        if int(frame["line"]) == int(at["line"]) and frame["file"] == at["file"]:
            return Place(at["file"], int(at["line"]), frame["function"].strip(), frame["code"].strip())
    return Place(at["file"], int(at["line"]))


def _through(body: str, user_trace: str) -> tuple[Place, ...]:
    """The frames above the place of the break."""
    frames = list(_FRAME.finditer(user_trace))
    places = [Place(f["file"], int(f["line"]), f["function"].strip(), f["code"].strip()) for f in frames]
    return tuple(places[:-1][-20:])


def _flat(text: str) -> str:
    return " ".join(text.split())
