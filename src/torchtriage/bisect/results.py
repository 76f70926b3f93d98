"""Turns the end of a search into the result: the answer in words, both ends, commits, and what else differs between them."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.version import Version

from torchtriage.bisect import between
from torchtriage.bisect.commits import Commit, commit_of_wheel, on_main, span
from torchtriage.bisect.errors import BadInput, CannotInstall
from torchtriage.bisect.hunt import Hunt, Outcome
from torchtriage.bisect.judge import MEASURES
from torchtriage.bisect.network import shown as without_password
from torchtriage.bisect.provide import Provider, is_version
from torchtriage.bisect.search import EndFails, Found
from torchtriage.bisect.trial import Question, Target
from torchtriage.model.bisection import Bisection, Change, End, Verdict

if TYPE_CHECKING:
    from torchtriage.bisect.run import Settings


@dataclass(frozen=True)
class Gathered:
    """All that a result is made of."""

    target: Target
    settings: Settings
    provider: Provider
    hunt: Hunt
    outcome: Outcome
    folder: Path
    note: Callable[[str], None]


def bisection_of(g: Gathered) -> Bisection:
    """The result. Asks both ends' environments what differs, and tries each changed default on the bad version."""
    settings, outcome, step = g.settings, g.outcome, g.outcome.step
    base = Bisection(
        package=settings.package,
        target=shlex.join(g.target.words()),
        ending="end-fails",
        said=said(g),
        find="fix" if settings.find == "fix" else "regression",
        regress=settings.regress,
        signature=looked_for(outcome),
        rate=g.hunt.rate(),
        verdicts=dated(g, outcome.verdicts),
        versions=len(g.provider.versions),
        installs=len([e for e in g.provider.installs.values() if e.made]),
        remarks=remarks(g),
    )
    if isinstance(step, EndFails):
        return base
    versions = g.provider.versions
    good, bad = versions[step.good], versions[step.bad]
    differing, trouble = what_differs(g, good, bad)
    commits = [commit(g, version) for version in (good, bad)]
    older, newer = commits if settings.find == "regression" else commits[::-1]
    return dataclasses.replace(
        base,
        ending="found" if step.bad == step.good + 1 else "range",
        good=end(g, good, commits[0]),
        bad=end(g, bad, commits[1]),
        between=versions[step.good + 1 : step.bad],
        confidence=round(step.confidence, 4),
        changes=differing,
        commits=span(older, newer, settings.checkout)
        if settings.package == "torch" or g.provider.by_commit
        else "",
        remarks=(*base.remarks, *trouble),
    )


# --- in words -------------------------------------------------------------------------------------


def said(g: Gathered) -> str:
    """The answer in a sentence."""
    step, versions, package = g.outcome.step, g.provider.versions, g.settings.package
    name = "commit" if g.provider.by_commit else package
    if isinstance(step, EndFails):
        return end_fails(g, step)
    good, bad = versions[step.good], versions[step.bad]
    middle = versions[step.good + 1 : step.bad]
    fix = g.settings.find == "fix"
    if not middle:
        return (
            f"{name} {good} is the first good version after {bad}"
            if fix
            else f"{name}: good up to {good}, bad from {bad}"
        )
    count = (
        f"{len(middle)} in between could not be told apart"
        if len(middle) > 1
        else f"{middle[0]} in between could not be told"
    )
    return f"{name}: {'bad up to ' + bad + ', good from ' + good if fix else 'good up to ' + good + ', bad from ' + bad}; {count}"


def end_fails(g: Gathered, step: EndFails) -> str:
    version = g.provider.versions[0 if step.end == "good" else -1]
    reason = g.outcome.reasons.get(version, "")
    if "No module named" in reason:
        return (
            f"the {step.end} end {version} cannot run the target ({reason}): each environment is a clean one, "
            "-r FILE and --with NAME put the target's own requirements into it"
        )
    if step.why == "unsteady":
        return (
            f"the {step.end} end {version} ends in one way and then in another ({reason}, in {step.runs} runs): does a run leave "
            "something behind that the next one finds? --repeat 1 has each version run once"
        )
    if step.why == "skipped":
        return (
            f"the {step.end} end {version} cannot be tried ({reason}): name another version as --{step.end}"
        )
    if step.end == "bad":
        runs = "in its only run" if step.runs == 1 else f"in {step.runs} runs"
        return f"the bad end {version} does not show it {runs} ({reason}): name another version as --bad{hint(g, step)}"
    return f"the good end {version} shows it as well ({reason}): name {'a newer' if g.settings.find == 'fix' else 'an older'} version as --good"


def hint(g: Gathered, step: EndFails) -> str:
    """Why a bad end may seem good."""
    if g.hunt.plan.rule.noise == "both":
        return "; the noise hides it, if it is there" if g.outcome.verdicts[-1].failures else ""
    return "" if g.outcome.goal.mode in MEASURES else "; a rare failure needs more of them (--patience)"


def looked_for(outcome: Outcome) -> str:
    goal = outcome.goal
    if goal.mode in MEASURES:
        unit = MEASURES[goal.mode][1]
        more = f" by more than {goal.threshold:.0%}" if unit else ""
        return (
            f"{goal.mode} above the good end's {goal.baseline:.4g}{unit}{more}"
            if goal.baseline is not None
            else ""
        )
    return str(goal.signature) if goal.signature is not None and goal.mode != "any" else ""


def remarks(g: Gathered) -> tuple[str, ...]:
    """What a reader should know beside the answer."""
    found = []
    listing, step = g.provider.listing, g.outcome.step
    for reason, names in listing.left_out.items():
        inside = [name for name in names if within(name, g.provider.versions)]
        if inside:
            found.append(f"not tried, {reason}: {few(inside)}")
    strangers = [name for name in g.hunt.replay if name not in g.provider.versions]
    if strangers:
        found.append(f"not among the versions that are searched, so not taken from the log: {few(strangers)}")
    if g.hunt.replay and g.outcome.goal.mode == "signature" and g.outcome.goal.signature is None:
        found.append(
            "the verdict of the bad end is from the log, so any failure counted as the one looked for"
        )
    if isinstance(step, Found) and step.also_bad:
        names_ = ", ".join(g.provider.versions[i] for i in step.also_bad)
        found.append(
            f"the history is not monotone: {names_} {'is' if len(step.also_bad) == 1 else 'are'} bad as well, before "
            f"{g.provider.versions[step.good]}, which is good. The last change is reported"
        )
    if isinstance(step, Found) and step.bad > step.good + 1 and g.settings.max_installs:
        found.append(
            "the number of installations was limited (--max-installs): without it the same command goes on"
        )
    if g.provider.sources.nightlies and listing.candidates:
        found.append(
            f"this index reaches back to {listing.candidates[0].version} only: nightlies are removed after a while"
        )
    return tuple(found)


def few(names: list[str]) -> str:
    return ", ".join(names[:6]) + (" …" if len(names) > 6 else "")


def within(name: str, versions: tuple[str, ...]) -> bool:
    if not all(map(is_version, (name, versions[0], versions[-1]))):
        return False
    low, high = sorted((Version(versions[0]), Version(versions[-1])))
    return low < Version(name) < high


def dated(g: Gathered, verdicts: tuple[Verdict, ...]) -> tuple[Verdict, ...]:
    dates = {c.version: c.date for c in g.provider.candidates}
    return tuple(dataclasses.replace(v, date=dates.get(v.version, "")) for v in verdicts)


# --- ends -----------------------------------------------------------------------------------------


def commit(g: Gathered, version: str) -> Commit:
    """The commit of a version: from the environment that ran it, else out of its wheel."""
    if g.provider.by_commit:
        return Commit(version)
    if g.settings.package != "torch":
        return Commit()  # only torch names its commit
    facts = facts_of(g, version)
    sha = str(facts.get("commit") or "")
    url = g.provider.url(version)
    if not sha and not url:
        return Commit(note="torch/version.py names no commit" if facts else "it was not run here")
    found = Commit(sha, "torch.version.git_version") if sha else commit_of_wheel(url)
    nightly = is_version(version) and Version(version).dev is not None
    return on_main(found, nightly, g.settings.checkout)


def facts_of(g: Gathered, version: str) -> Mapping[str, Any]:
    observed = g.outcome.observed.get(version)
    return observed.facts if observed is not None else {}


def end(g: Gathered, version: str, at: Commit) -> End:
    facts = facts_of(g, version)
    return End(
        version, at.sha, at.note, str(facts.get("python") or ""), str(facts.get("platform") or ""),
        {k: str(v) for k, v in sorted(dict(facts.get("packages") or {}).items())}, by_hand(g, version),
    )  # fmt: skip


def by_hand(g: Gathered, version: str) -> tuple[str, ...]:
    """Shell lines that make the environment anew and run the target in it."""
    provider = g.provider
    words = g.target.words()
    runs = words if g.target.kind == "command" else callable_words(g.target)
    if provider.by_commit:
        assert provider.checkout is not None
        python = [] if g.target.kind == "command" else [str(provider.checkout.python)]
        return (
            shlex.join(["git", "-C", str(provider.checkout.folder), "checkout", version]),
            f"(cd {shlex.quote(str(provider.checkout.folder))} && {provider.checkout.build or 'true'})",
            shlex.join([*python, *runs]),
        )
    try:
        wanted = provider.wanted(version)
    except (CannotInstall, BadInput):
        return ()
    folder = f"env-{version}"
    options = [without_password(word) for word in provider.sources.options()]
    files = [word for file in wanted.files for word in ("-r", file)]
    install = shlex.join(["pip", "install", *options, *wanted.requirements, *files])
    if g.target.kind == "command":
        run = f'PATH="$PWD/{folder}/bin:$PATH" {shlex.join(runs)}'
    else:
        run = shlex.join([f"{folder}/bin/python", *runs])
    made = shlex.join([g.settings.python or "python3", "-m", "venv", folder])
    return (made, f"{folder}/bin/{install}", run)


def callable_words(target: Target) -> list[str]:
    """`module:callable` as something that Python runs."""
    if target.kind != "callable":
        return target.words()
    name, _, attribute = target.name.rpartition(":")
    if name.endswith(".py"):
        return ["-c", f"import runpy; runpy.run_path({name!r})[{attribute.split('.')[0]!r}]()"]
    return ["-c", f"import {name}; {name}.{attribute}()"]


# --- in between -----------------------------------------------------------------------------------


def what_differs(g: Gathered, good: str, bad: str) -> tuple[tuple[Change, ...], tuple[str, ...]]:
    """(changes with their trials, remarks). Nothing is said of what could not be asked."""
    if g.provider.by_commit or not (g.outcome.observed.get(good) and g.outcome.observed.get(bad)):
        return (), ()
    g.note("what else differs between the two")
    asked = Question(kind="config", imports=g.hunt.plan.question.imports)
    try:
        dumps = [g.hunt.observe(version, 0, asked) for version in (good, bad)]
        if any(dump.kind != "ok" for dump in dumps):
            return (), ("what else differs is not known: an environment could not be asked",)
        operators: tuple[str, ...] = ()
        if g.target.kind != "command" and dumps[0].extra.get("tables"):
            listed = g.hunt.observe(good, 0, Question(kind="operators"))
            operators = tuple(listed.extra.get("operators") or ())
    except CannotInstall as error:
        return (), (f"what else differs is not known: {error}",)
    before, after = dumps[0].extra, dumps[1].extra
    found = between.changes(before, after, operators, g.settings.package)
    return tried(g, found, before, bad)


def tried(
    g: Gathered, found: tuple[Change, ...], before: Mapping[str, Any], bad: str
) -> tuple[tuple[Change, ...], tuple[str, ...]]:
    """Each changed default set back on the bad version, up to the limit."""
    flips = [change for change in found if change.kind == "default"]
    chosen = flips[: g.settings.flips] if g.target.kind != "command" else []
    words: dict[str, str] = {}
    for number, change in enumerate(chosen, 1):
        question = dataclasses.replace(
            g.hunt.plan.question, watch=g.outcome.watch, patches=between.patch(change, before)
        )
        words[change.name] = g.hunt.try_change(bad, question)
        g.note(f"default {number} of {len(chosen)}, {change.name} = {change.before}: {words[change.name]}")
    left = len(flips) - len(chosen)
    told: tuple[str, ...] = ()
    if left:
        why = "a command cannot be patched" if g.target.kind == "command" else "--flips sets how many are"
        told = (f"{left} of {len(flips)} changed defaults were not tried: {why}",)
    return tuple(dataclasses.replace(c, trial=words.get(c.name, "")) for c in found), told
