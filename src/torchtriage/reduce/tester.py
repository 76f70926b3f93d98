"""Asks the lab whether a script shows the failure: in eager mode it is fine, compiled it fails in the same way."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from dataclasses import dataclass
from typing import Any, Protocol

from torchtriage.lab.scripts import ScriptEnd, ScriptRequest
from torchtriage.reduce.signature import Failure, fine_in_eager, shows

EAGER_RANDOM = "torch._inductor.config.fallback_random"
INDUCTOR = "torch._inductor."
"""Where the exceptions are defined that no layer below Inductor can raise."""
AGAIN = 3
"""How often a script with random numbers that nothing seeds has to fail."""


def draws(text: str) -> bool:
    """Whether a script draws random numbers from a generator that it does not seed."""
    return (
        bool(re.search(r"rand|normal|dropout|Linear|Conv|Embedding|bernoulli", text)) and "seed(" not in text
    )


class Runs(Protocol):
    """What the reducers need of a lab."""

    def run(self, request: ScriptRequest) -> ScriptEnd: ...


@dataclass(frozen=True)
class Conditions:
    """How scripts are compiled in the search."""

    backend: str = ""
    """The first layer that fails, by its backend: cheaper than all that come after it. Empty: as the script says."""
    lower: str = ""
    """A backend with which the failure must not show: the layer below."""
    threads: int = 1
    switches: tuple[tuple[str, Any], ...] = ()
    eager_random: bool = False
    """Compiled code draws the random numbers of eager mode: that it draws others is no failure."""
    before: str = ""
    caches: bool = False
    fresh_store: bool = False
    aspects: tuple[str, ...] = ()
    seconds: float = 60.0

    def request(self, text: str, **more: Any) -> ScriptRequest:
        quiet = ((EAGER_RANDOM, True),) if self.eager_random else ()
        switches = tuple(dict((*self.switches, *quiet)).items())
        return ScriptRequest(
            text, backend=self.backend, threads=self.threads, switches=switches, before=self.before,
            caches=self.caches, fresh_store=self.fresh_store, aspects=self.aspects, seconds=self.seconds,
        ).with_(**more)  # fmt: skip


class Tester:
    """Whether a script shows a failure. Called from several threads."""

    def __init__(self, lab: Runs, failure: Failure, conditions: Conditions, repeats: int = 1):
        """`repeats`: how often a script that does not fail is tried, for failures that come and go."""
        self.lab, self.failure, self.conditions, self.repeats = lab, failure, conditions, repeats
        self.slips: Counter[str] = Counter()
        """Other failures that scripts showed: what a search without a signature would have slid to."""

    def within(self, seconds: float) -> Tester:
        """The same with another limit of time."""
        conditions = dataclasses.replace(self.conditions, seconds=seconds)
        return Tester(self.lab, self.failure, conditions, self.repeats)

    def on(self, lab: Runs) -> Tester:
        """The same in another lab."""
        return Tester(lab, self.failure, self.conditions, self.repeats)

    def __call__(self, text: str) -> bool:
        if self.repeats > 1:
            return any(self.once(text) for _ in range(self.repeats))
        return all(self.once(text) for _ in range(AGAIN if draws(text) else 1))

    def once(self, text: str) -> bool:
        if self.failure.kind == "differs":
            return shows(self.failure, self.compared(text)) and self.fails_there_only(text)
        if self.failure.kind == "no-exception" and not self.fine_in_eager(text):
            return False
        return shows(self.failure, self.compiled(text)) and self.fails_there_only(text)

    def fails_there_only(self, text: str) -> bool:
        """Whether a script that was seen to fail is fine in eager mode, and in the layer below."""
        if self.failure.kind not in ("no-exception", "differs") and not self.fine_in_eager(text):
            return False
        return self.passes_below(text)

    def compiled(self, text: str) -> ScriptEnd:
        return self.noted(self.lab.run(self.conditions.request(text)))

    def compared(self, text: str) -> ScriptEnd:
        return self.noted(self.lab.run(self.conditions.request(text, mode="compare")))

    def noted(self, end: ScriptEnd) -> ScriptEnd:
        """Count a failure inside of torch that is not the one looked for."""
        if end.signal:
            word = end.signal
        elif end.exception is not None and end.exception.get("torch_frames"):
            word = str(end.exception["type"]).rpartition(".")[2]
        else:
            return end
        if not shows(self.failure, end):
            self.slips[word] += 1
        return end

    def fine_in_eager(self, text: str) -> bool:
        return fine_in_eager(self.failure, self.lab.run(self.eager(text)))

    def eager(self, text: str) -> ScriptRequest:
        return self.conditions.request(text, mode="eager", before="", fresh_store=False)

    def passes_below(self, text: str) -> bool:
        """The failure belongs to its layer: one layer below it is not there."""
        if not self.conditions.lower or self.failure.type.startswith(INDUCTOR):
            return True
        mode = "compare" if self.failure.kind == "differs" else "compiled"
        request = self.conditions.request(text, mode=mode, backend=self.conditions.lower, before="")
        return not shows(self.failure, self.lab.run(request))
