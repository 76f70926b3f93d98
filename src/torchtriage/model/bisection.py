"""The result of `bisect`: the one value from which its reports are rendered, and its JSON form. All strings are plain text."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Literal

SCHEMA_VERSION = 1
#: found: one version. range: what lies between could not be run. end-fails: an end is not what it was said to be.
#: stopped: something outside (network, disk) ended it; the same command goes on.
Ending = Literal["found", "range", "end-fails", "stopped"]
Word = Literal["good", "bad", "skip"]


@dataclass(frozen=True)
class Verdict:
    """What was seen of one version, over all its runs."""

    version: str
    word: Word
    runs: int = 0
    failures: int = 0
    reason: str = ""
    """Why it was skipped, or what was seen at it."""
    seconds: float = 0.0
    """All runs together."""
    date: str = ""


@dataclass(frozen=True)
class End:
    """A version at one side of the boundary, as its environment was."""

    version: str
    commit: str = ""
    commit_note: str = ""
    """Where the commit comes from, or why it is not known."""
    python: str = ""
    platform: str = ""
    packages: dict[str, str] = field(default_factory=dict)
    by_hand: tuple[str, ...] = ()
    """Shell lines that make the environment anew and run the target in it."""


@dataclass(frozen=True)
class Change:
    """One thing other than the version that differs between the last good and the first bad environment."""

    kind: str
    """`default`, `dependency`, or the table: `decomposition`, `lowering`..."""
    name: str
    before: str
    """In the good environment."""
    after: str
    """In the bad one."""
    trial: str = ""
    """What setting it back did on the bad version: `good`, `bad`; empty where it was not tried."""
    lines: tuple[str, ...] = ()
    """Python that sets it back."""


@dataclass(frozen=True)
class Bisection:
    """What `bisect` found."""

    package: str
    target: str
    ending: Ending
    said: str
    """The answer in a sentence."""
    find: Literal["regression", "fix"] = "regression"
    regress: str = "signature"
    good: End | None = None
    bad: End | None = None
    between: tuple[str, ...] = ()
    """Versions that lie between the two and could not be run."""
    signature: str = ""
    """The failure that was looked for."""
    rate: float | None = None
    """How often the failure shows at bad versions, where it was measured."""
    confidence: float | None = None
    verdicts: tuple[Verdict, ...] = ()
    changes: tuple[Change, ...] = ()
    remarks: tuple[str, ...] = ()
    versions: int = 0
    runs: int = 0
    installs: int = 0
    seconds: float = 0.0
    commits: str = ""
    """The range of commits, as `older..newer`; empty where one of them is not known."""
    command: str = ""
    run_folder: str = ""
    started: str = ""
    tool: str = ""

    @property
    def exit_status(self) -> int:
        """0 one version found, 2 an end is not as said, 3 no single answer."""
        return {"found": 0, "range": 3, "end-fails": 2, "stopped": 3}[self.ending]

    def to_json(self) -> dict[str, Any]:
        return {"schema_version": SCHEMA_VERSION, **dataclasses.asdict(self)}


def bisection_from_json(plain: dict[str, Any]) -> Bisection:
    """The inverse of `to_json`."""
    fields = {k: v for k, v in plain.items() if k != "schema_version"}
    for name in ("good", "bad"):
        if fields[name] is not None:
            fields[name] = End(**{**fields[name], "by_hand": tuple(fields[name]["by_hand"])})
    fields["verdicts"] = tuple(Verdict(**v) for v in fields["verdicts"])
    fields["changes"] = tuple(Change(**{**c, "lines": tuple(c["lines"])}) for c in fields["changes"])
    for name in ("between", "remarks"):
        fields[name] = tuple(fields[name])
    return Bisection(**fields)
