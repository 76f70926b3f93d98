"""What an investigation asks of the lab: one trial, as plain data that can be a key of the journal."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

from torchtriage.model.variant import Variant

ALL_FLAVOURS = ("eager", "again", "float64", "ulp1", "ulp2")


@dataclass(frozen=True)
class Request:
    """One trial. Calls are numbered over all regions, from the program's first compiled call."""

    variant: Variant = field(default_factory=Variant)
    start: int | None = None
    """The first call that is compiled; None: the first of the program."""
    stop: int | None = None
    """The last call; None: the program goes on to its end."""
    compare: int = 8
    """Calls before this number are compared, and those with a signature that is new."""
    settled: tuple[int, ...] = ()
    """Calls that were compared already and are only noise."""
    flavours: tuple[str, ...] = ("eager",)
    observe: bool = False
    time_step: bool = False
    backward: bool = True
    only: str = ""
    seconds: float | None = None
    fresh_store: bool = False
    """Use an empty store of compiled kernels: for questions about compile time."""
    operations: bool = False
    """Find the first operation of the last call in which Dynamo's capture and eager part. Needs `stop`, and forks."""
    repeat: int = 0
    """Which repetition this is, for flakiness."""

    def to_json(self) -> dict[str, Any]:
        plain: dict[str, Any] = {
            name: getattr(self, name)
            for name, spec in self.__dataclass_fields__.items()
            if name != "variant" and getattr(self, name) != spec.default
        }
        plain["variant"] = self.variant.to_json()
        return plain

    def key(self) -> str:
        text = json.dumps(self.to_json(), sort_keys=True, default=list)
        return hashlib.sha256(text.encode()).hexdigest()[:20]
