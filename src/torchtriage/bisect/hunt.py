"""Drives one search: asks the mathematics what to run, has it run, judges, and keeps every run in the journal.

A run that the journal or a replayed log has is not run again, so a search that was killed goes on where it stopped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from packaging.utils import canonicalize_name

from torchtriage.bisect import judge as rules
from torchtriage.bisect.errors import BadInput, CannotInstall
from torchtriage.bisect.judge import Goal, Judged, Observed
from torchtriage.bisect.record import Replayed
from torchtriage.bisect.search import (
    Ask,
    EndFails,
    Found,
    Observation,
    Rule,
    alternatives,
    decide,
    most_verdicts,
    runs_needed,
    tally,
)
from torchtriage.bisect.trial import Question
from torchtriage.bisect.versions import same_version
from torchtriage.lab.journal import Journal
from torchtriage.model.bisection import Verdict


class Runs(Protocol):
    """What runs a target: `trial.Runner`, or a fake."""

    def run(self, python: Path, version: str, question: Question) -> Observed: ...


@dataclass(frozen=True)
class Plan:
    """What is searched. `versions` from the good end to the bad end."""

    package: str
    versions: tuple[str, ...]
    goal: Goal
    rule: Rule
    question: Question = field(default_factory=Question)
    may_watch: bool = True
    """Whether compiled calls can be compared with eager ones: not where the target is a command."""
    ahead: bool = False
    """Make the environments of the next candidates while the present ones run."""
    checked: bool = True
    """Whether the environment must have the very version: not where it is a commit."""


@dataclass(frozen=True)
class Outcome:
    """How a search ended, and what it saw."""

    step: Found | EndFails
    goal: Goal
    watch: bool
    history: tuple[Observation, ...]
    verdicts: tuple[Verdict, ...]
    observed: Mapping[str, Observed]
    """The last run of each version that was run."""
    reasons: Mapping[str, str] = field(default_factory=dict)


class Hunt:
    """One search. `prepare(version)` gives the interpreter, or raises CannotInstall for a skip."""

    def __init__(
        self,
        plan: Plan,
        runs: Runs,
        prepare: Callable[[str], Path],
        journal: Journal,
        note: Callable[[str], None] = lambda text: None,
        replay: Mapping[str, Replayed] | None = None,
    ):
        self.plan, self.runs, self.prepare, self.journal, self.note = plan, runs, prepare, journal, note
        self.replay = dict(replay or {})
        self.goal, self.question = plan.goal, plan.question
        self.history: list[Observation] = []
        self.told = False
        self.took: dict[str, float] = {}
        """Seconds of installations and runs that were really made, by version."""
        self.seconds: dict[str, float] = {}
        self.reasons: dict[str, str] = {}
        self.seen: dict[str, Observed] = {}
        self.pool = ThreadPoolExecutor(max(2, plan.rule.jobs + 2))

    def run(self) -> Outcome:
        """Search to the end. Raises Stopped or BadInput; what was seen until then is in the journal."""
        try:
            self._baseline()
            while True:
                step = decide(len(self.plan.versions), self.history, self.plan.rule)
                if not isinstance(step, Ask):
                    return self._outcome(step)
                self._tell_time()
                self._ask(step.indices)
        finally:
            # Not waited for: where this ends early, the caller ends what its threads wait for.
            self.pool.shutdown(wait=False, cancel_futures=True)

    # --- asking -----------------------------------------------------------------------------------

    def _ask(self, indices: tuple[int, ...]) -> None:
        """Run each of these once more, and add what they say to the history."""
        counts: dict[int, int] = {}
        asked = []
        for index in indices:
            repeat = counts.get(index, sum(seen.index == index for seen in self.history))
            counts[index] = repeat + 1
            asked.append((index, repeat))
        if self.plan.ahead:
            self._install_ahead(indices)
        if len(asked) == 1 or not self.history:  # the very first run decides what is looked for
            answers = [self._one(index, repeat) for index, repeat in asked]
        else:
            answers = list(self.pool.map(lambda one: self._one(*one), asked))
        for (index, repeat), judged in zip(asked, answers, strict=True):
            self.history.append(Observation(index, judged.failed, judged.final))
            version = self.plan.versions[index]
            if judged.failed is not False or version not in self.reasons:
                self.reasons[version] = judged.reason
            word = {True: "bad", False: "good", None: "skip"}[judged.failed]
            times = f" (run {repeat + 1})" if repeat else ""
            self.note(f"{version}: {word}{times}: {judged.reason}")

    def _tell_time(self) -> None:
        """Once both ends have run: about how long the rest takes."""
        n = len(self.plan.versions)
        ran = {seen.index for seen in self.history}
        if self.told or not {0, n - 1} <= ran or not self.took:
            return
        self.told = True
        left = most_verdicts(n, self.plan.rule.jobs) - len(ran)
        if left > 0:
            each = sum(self.took.values()) / len(self.took)
            self.note(
                f"at most {left} more to look at; at the pace so far that takes about {duration(left * each)}"
            )

    def _one(self, index: int, repeat: int) -> Judged:
        version = self.plan.versions[index]
        known = self.replay.get(version)
        if known is not None and known.runs is None:
            return Judged(None, known.reason, True)
        if known is not None and known.runs is not None and repeat < len(known.runs):
            return Judged(known.runs[repeat], "from the log")
        try:
            observed = self.observe(version, repeat, self.question)
            observed = self._first_look(index, repeat, observed)
        except CannotInstall as error:
            return Judged(None, str(error), True)
        judged = rules.judge(observed, self.goal)
        if judged.failed and index == len(self.plan.versions) - 1 and self.goal.signature is None:
            self.goal = replace(self.goal, signature=rules.signature_of(observed))
        return judged

    def _first_look(self, index: int, repeat: int, observed: Observed) -> Observed:
        """Where the bad end does not fail by itself, look whether its compiled calls differ from eager ones."""
        bad_end = index == len(self.plan.versions) - 1
        looks = self.goal.mode == "signature" and self.plan.may_watch and not self.question.watch
        if not (bad_end and repeat == 0 and looks):
            return observed
        if observed.kind in ("import", "unusable"):
            self.goal = replace(self.goal, signature=observed.signature)
            return observed
        if observed.kind != "ok":
            return observed
        watching = replace(self.question, watch=True)
        watched = self.observe(self.plan.versions[index], 0, watching)
        if watched.kind == "ok" and not watched.differences:
            return observed
        self.question = watching
        self.note(
            "the target ends well at the bad end, but compiled calls differ from eager: that is looked for"
        )
        return watched

    def observe(self, version: str, repeat: int, question: Question) -> Observed:
        """One run, from the journal if it is there. Raises CannotInstall for a skip."""
        key = f"{version}|{repeat}|{question.key()}"
        refused = self.journal.get("skip", version)
        if refused is not None:
            self.reasons.setdefault(version, refused)
            raise CannotInstall(refused)
        known = self.journal.get("run", key)
        if known is not None:
            observed = rules.observed_from_json(known)
        else:
            observed = self._really(version, question)
            self.journal.put("run", key, version, rules.observed_to_json(observed))
        self.seen[version] = observed
        self.seconds[version] = self.seconds.get(version, 0.0) + observed.seconds
        return observed

    def _really(self, version: str, question: Question) -> Observed:
        begin = time.monotonic()
        try:
            python = self.prepare(version)
        except CannotInstall as error:
            self.journal.put("skip", version, version, str(error))
            raise
        observed = self.runs.run(python, version, question)
        self.took[version] = self.took.get(version, 0.0) + time.monotonic() - begin
        has = dict(observed.facts.get("packages") or {}).get(canonicalize_name(self.plan.package))
        if self.plan.checked and has is not None and not same_version(str(has), version):
            raise BadInput(
                f"the environment for {self.plan.package} {version} runs {has}: PYTHONPATH or the working folder hides it"
            )
        return observed

    def _install_ahead(self, indices: tuple[int, ...]) -> None:
        for index in alternatives(len(self.plan.versions), self.history, self.plan.rule, indices)[:2]:
            self.pool.submit(self._quietly, self.plan.versions[index])

    def _quietly(self, version: str) -> None:
        try:
            if version not in self.replay and self.journal.get("skip", version) is None:
                self.prepare(version)
        except Exception:  # it is told when the version is really needed
            pass

    def _baseline(self) -> None:
        """What a measure is at the good end: the reference of every other verdict."""
        mode = self.goal.mode
        if mode not in rules.MEASURES or self.goal.baseline is not None:
            return
        repeats = self.plan.rule.ends if self.plan.rule.noise == "both" else 1
        version = self.plan.versions[0]
        try:
            seen = [self.observe(version, repeat, self.question) for repeat in range(repeats)]
        except CannotInstall as error:
            raise BadInput(f"the good end {version} cannot be installed: {error}") from error
        found = rules.baseline(mode, seen)
        if found is None:
            raise BadInput(
                f"the good end {version} cannot be measured: {rules.judge(seen[0], self.goal).reason}"
            )
        self.goal = replace(self.goal, baseline=found)
        self.note(f"{version}: {mode} {found:.4g}{rules.MEASURES[mode][1]} is the baseline")

    # --- telling ----------------------------------------------------------------------------------

    def _outcome(self, step: Found | EndFails) -> Outcome:
        return Outcome(
            step,
            self.goal,
            self.question.watch,
            tuple(self.history),
            self.verdicts(step),
            self.seen,
            self.reasons,
        )

    def verdicts(self, step: Found | EndFails | None = None) -> tuple[Verdict, ...]:
        """A verdict for each version that was asked, from the good end to the bad end."""
        counts = tally(self.history)
        found = []
        for index, version in enumerate(self.plan.versions):
            failures, runs = counts.failures.get(index, 0), counts.runs(index)
            if not runs and index not in counts.skipped:
                continue
            bad = failures > 0
            if self.plan.rule.noise == "both":
                bad = index >= step.bad if isinstance(step, Found) else failures * 2 > runs
            found.append(
                Verdict(
                    version, "bad" if bad else "good" if runs else "skip", runs, failures,
                    self.reasons.get(version, ""), round(self.seconds.get(version, 0.0), 1),
                )
            )  # fmt: skip
        return tuple(found)

    def rate(self) -> float | None:
        """How often the failure shows at versions known to be bad; None where it always does."""
        counts = tally(self.history)
        failures = sum(counts.failures.values())
        passes = sum(counts.passes.get(i, 0) for i in counts.failures)
        return failures / (failures + passes) if passes else None

    def try_change(self, version: str, question: Question) -> str:
        """`good` or `bad`: the target on a bad version with something set back, as often as its rate asks for; `skip`."""
        counts = tally(self.history)
        failures = sum(counts.failures.values())
        passes = sum(counts.passes.get(i, 0) for i in counts.failures)
        repeats = min(40, runs_needed(failures, passes, self.plan.rule.error)) if passes else 1
        for repeat in range(repeats):
            try:
                judged = rules.judge(self.observe(version, repeat, question), self.goal)
            except CannotInstall:
                return "skip"
            if judged.failed is None:
                return "skip"
            if judged.failed:
                return "bad"
        return "good"


def duration(seconds: float) -> str:
    """As a person says it."""
    for unit, length in (("hours", 3600), ("minutes", 60)):
        if seconds >= 1.5 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(1, seconds):.0f} s"
