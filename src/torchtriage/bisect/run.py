"""From what a person asks to the result: versions, ends, search, commits, what lies in between, the report's value."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import re
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from torchtriage import __version__
from torchtriage.bisect import judge as rules
from torchtriage.bisect import search
from torchtriage.bisect.errors import BadInput, Stopped
from torchtriage.bisect.hunt import Hunt, Outcome, Plan
from torchtriage.bisect.judge import Goal
from torchtriage.bisect.provide import Provider
from torchtriage.bisect.record import Replayed, read_log
from torchtriage.bisect.requirements import name_of, read_lines, text_of
from torchtriage.bisect.results import Gathered, bisection_of
from torchtriage.bisect.search import Found, Rule
from torchtriage.bisect.trial import Question, Runner, Target
from torchtriage.lab import runs
from torchtriage.lab.journal import Journal
from torchtriage.model.bisection import Bisection

Note = Callable[[str], None]
MODES = tuple(rules.MODES)


@dataclass(frozen=True)
class Settings:
    """What a person can choose. Times in seconds, sizes in bytes."""

    good: str
    bad: str
    package: str = "torch"
    find: str = "regression"
    regress: str = "signature"
    threshold: float = 0.2
    versions: str = ""
    """A list in place of an index: text, or @FILE."""
    index: str = ""
    extra: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    folder: str = ""
    cuda: str = ""
    nightly: bool = False
    prereleases: bool = False
    further: tuple[str, ...] = ()
    """Further requirements of each environment."""
    files: tuple[str, ...] = ()
    """Requirement files."""
    hold: tuple[str, ...] = ()
    installer: str = "auto"
    python: str = ""
    store: str = ""
    store_limit: int = 60 << 30
    timeout: float = 600.0
    jobs: int = 1
    ahead: bool = False
    repeat: int = 4
    """Runs at the bad end before it is believed to fail always; 1: nothing is repeated."""
    patience: int = 8
    """Runs at the bad end without the failure after which there is nothing to look for."""
    error: float = 0.05
    max_installs: int = 0
    flips: int = 24
    """Changed defaults that are tried one by one. 0: none."""
    replay: str = ""
    checkout: str = ""
    build: str = ""
    runs: str = "runs"
    fresh: bool = False


@dataclass(frozen=True)
class Forecast:
    """What a bisection is likely to take, before anything is installed."""

    versions: int
    verdicts: int
    bytes: int
    """Of downloads, the package's own wheels; 0 where the index gives no sizes."""
    text: str


def run(target: Target, settings: Settings, note: Note = lambda text: None, command: str = "") -> Bisection:
    """Bisect. Raises BadInput, or Stopped after which the same call goes on."""
    begin = time.monotonic()
    settings = checked(settings, target)
    folder = run_folder(target, settings)
    with claimed(folder), contextlib.closing(open_journal(folder)) as journal:
        found = searched(target, settings, folder, journal, note)
        found = dataclasses.replace(
            found, command=command, run_folder=runs.shown(folder), tool=__version__, started=runs.started(journal),
            seconds=round(time.monotonic() - begin, 1), runs=journal.count("run"),
        )  # fmt: skip
        if not (settings.max_installs and found.ending == "range"):  # with a higher limit it goes on
            runs.finish(folder)
        return found


def searched(target: Target, settings: Settings, folder: Path, journal: Journal, note: Note) -> Bisection:
    """The whole search, and all that is asked of both ends."""
    runner = Runner(target, folder, settings.timeout, settings.regress == "compile-time")
    provider: Provider | None = None
    try:
        provider = Provider(settings, folder, note)
        if provider.checkout is not None and provider.by_commit:
            with provider.checkout.kept():
                hunt, outcome = hunted(target, settings, provider, runner, journal, note)
        else:
            hunt, outcome = hunted(target, settings, provider, runner, journal, note)
        gathered = Gathered(target, settings, provider, hunt, outcome, folder, note)
        found = bisection_of(gathered)
        if provider.checkout is not None and not provider.by_commit and isinstance(outcome.step, Found):
            found = go_on_in_checkout(found, gathered, runner, journal)
        return found
    except sqlite3.OperationalError as error:
        raise Stopped(f"the journal cannot be written: {error}") from error
    finally:
        runner.close()
        if provider is not None:
            provider.close()
        shutil.rmtree(folder / "kernels", ignore_errors=True)


def plan(target: Target, settings: Settings, note: Note = lambda text: None) -> Forecast:
    """What `run` would take. Nothing is installed, and no run folder is made or touched. Raises as `run` does."""
    settings = checked(settings, target)
    with tempfile.TemporaryDirectory() as scratch:
        return forecast(settings, Provider(settings, Path(scratch), note))


def hunted(
    target: Target, settings: Settings, provider: Provider, runner: Runner, journal: Journal, note: Note
) -> tuple[Hunt, Outcome]:
    """The search over versions, or over commits where that is what was asked."""
    versions = provider.versions
    note(forecast(settings, provider).text)
    if provider.by_commit and not settings.build and target.kind != "command":
        raise BadInput("commits need --build, or --command with a command that builds what it runs")
    plan = Plan(
        package=settings.package, versions=versions, goal=Goal(mode=settings.regress, threshold=settings.threshold),
        rule=rule_of(settings, provider.by_commit), question=question_of(target, settings),
        may_watch=target.kind != "command", ahead=settings.ahead and not provider.by_commit, checked=not provider.by_commit and target.kind != "command",
    )  # fmt: skip
    hunt = Hunt(plan, runner, provider.prepare, journal, note, replayed(settings.replay))
    return hunt, hunt.run()


def go_on_in_checkout(found: Bisection, gathered: Gathered, runner: Runner, journal: Journal) -> Bisection:
    """The same search among the commits between the two versions."""
    from torchtriage.bisect.checkout import replay_text

    checkout, hunt, outcome = gathered.provider.checkout, gathered.hunt, gathered.outcome
    assert checkout is not None
    if not checkout.build:
        return found
    if not found.good or not found.bad or not found.good.commit or not found.bad.commit:
        remark = "the checkout was not used: the commit of an end is not known"
        return dataclasses.replace(found, remarks=(*found.remarks, remark))
    first, last = (found.good, found.bad) if found.find == "regression" else (found.bad, found.good)
    try:
        with checkout.kept():
            commits = checkout.commits(first.commit, last.commit)
            if found.find == "fix":
                commits = commits[::-1]
            gathered.note(f"{len(commits)} commits lie between them: going on in {checkout.folder}")
            plan = dataclasses.replace(
                hunt.plan, versions=commits, goal=outcome.goal, checked=False, ahead=False,
                question=dataclasses.replace(hunt.plan.question, watch=outcome.watch),
                rule=dataclasses.replace(hunt.plan.rule, jobs=1),
            )  # fmt: skip
            inner = Hunt(plan, runner, checkout.prepare, journal, gathered.note)
            ended = inner.run()
    except BadInput as error:
        return dataclasses.replace(found, remarks=(*found.remarks, f"the checkout was not used: {error}"))
    (gathered.folder / "git-bisect.log").write_text(replay_text(ended.verdicts))
    if not isinstance(ended.step, Found):
        remark = "in the checkout, the ends do not behave as the wheels do, so no commit is named"
        return dataclasses.replace(found, remarks=(*found.remarks, remark))
    good, bad = commits[ended.step.good], commits[ended.step.bad]
    regression = found.find == "regression"
    word, older, newer = ("first bad", good, bad) if regression else ("last bad", bad, good)
    remark = (
        f"in the checkout: the {word} commit is {bad}, next to {good} ({len(ended.verdicts)} commits tried)"
    )
    return dataclasses.replace(
        found,
        remarks=(*found.remarks, remark),
        commits=f"{older}..{newer}",
        verdicts=(*found.verdicts, *ended.verdicts),
    )


# --- before the search ----------------------------------------------------------------------------


def checked(settings: Settings, target: Target) -> Settings:
    """The settings, with what a test needs to be run. Raises BadInput for what cannot be."""
    check(settings, target)
    if target.kind == "pytest" and "pytest" not in map(name_of, settings.further):
        return dataclasses.replace(settings, further=(*settings.further, "pytest"))
    return settings


def check(settings: Settings, target: Target) -> None:
    """Raises BadInput for what cannot be."""
    if settings.regress not in rules.MODES:
        raise BadInput(f"--regress is one of {', '.join(mode for mode in MODES if mode != 'command')}")
    if name_of(settings.package) is None or not re.fullmatch(r"[\w.-]+", settings.package):
        raise BadInput(
            f"--package takes the name of a package, not {settings.package!r}; an extra goes with --with"
        )
    if settings.find not in ("regression", "fix"):
        raise BadInput("--find is one of regression, fix")
    if settings.installer not in ("auto", "uv", "pip"):
        raise BadInput("--installer is one of auto, uv, pip")
    if not all(map(math.isfinite, (settings.timeout, settings.threshold, settings.error))):
        raise BadInput("--timeout, --threshold and --error are finite numbers")
    if min(settings.jobs, settings.repeat, settings.patience) < 1 or settings.timeout <= 0:
        raise BadInput("--jobs, --repeat, --patience and --timeout must be positive")
    if not 0 < settings.error < 0.5:
        raise BadInput("--error is a probability between 0 and 0.5")
    if settings.threshold < 0 or settings.flips < 0 or settings.store_limit < 0 or settings.max_installs < 0:
        raise BadInput("--threshold, --flips, --max-installs and --store-limit must not be negative")
    if (target.kind == "command") != (settings.regress == "command"):
        raise BadInput(
            f"--regress {settings.regress} does not go with this target: of a command, the exit status counts"
        )
    python = settings.python
    if python and not (shutil.which(python) or (os.path.isfile(python) and os.access(python, os.X_OK))):
        raise BadInput(f"no such interpreter: {python}")
    if settings.good == settings.bad:
        raise BadInput(f"both ends are {settings.good}")
    if settings.build and not settings.checkout:
        raise BadInput("--build needs --checkout")


def rule_of(settings: Settings, by_commit: bool = False) -> Rule:
    """A checkout is at one commit at a time."""
    noise = "both" if settings.regress in rules.NOISY else "one-sided"
    return Rule(
        noise="both" if noise == "both" else "one-sided", error=settings.error, first=settings.repeat,
        patience=settings.patience if settings.repeat > 1 else 1, jobs=1 if by_commit else settings.jobs,
        installs=settings.max_installs,
    )  # fmt: skip


def question_of(target: Target, settings: Settings) -> Question:
    """How the target is run each time."""
    if target.kind == "command":
        return Question()
    steps = 20 if settings.regress == "step-time" and target.kind == "callable" else 0
    return Question(watch=settings.regress == "eager", steps=steps, imports=(settings.package,))


def forecast(settings: Settings, provider: Provider) -> Forecast:
    """Steps, download and disk, as far as the index tells; time is told once the ends have run."""
    n = len(provider.versions)
    verdicts = search.most_verdicts(n, rule_of(settings, provider.by_commit).jobs)
    sizes = [c.size for c in provider.candidates if c.size]
    mean = sum(sizes) // len(sizes) if sizes else 0
    made = sum(provider.is_made(version) for version in provider.versions)
    missing = max(0, verdicts - made)
    what = "commits" if provider.by_commit else "versions"
    text = (
        f"{n} {what} from {provider.versions[0]} to {provider.versions[-1]}: at most {verdicts} are looked at"
    )
    if not provider.by_commit:
        text += f"; {made} of all have their environment already" if made else ""
        if mean:
            text += (
                f"; about {size(mean * missing)} to download and {size(3 * mean * missing)} of disk"
                f" for {settings.package} itself (its wheels are {size(mean)} on average, and take about 3 times that)"
            )
        else:
            text += "; the index gives no sizes"
    text += ". How long it takes is told once an end has run"
    return Forecast(n, verdicts, mean * missing, text)


def size(count: int) -> str:
    for unit, power in (("GB", 9), ("MB", 6), ("kB", 3)):
        if count >= 10**power:
            return f"{count / 10**power:.3g} {unit}"
    return f"{count} bytes"


def replayed(path: str) -> dict[str, Replayed]:
    return read_log(text_of(path)) if path else {}


# --- run folder -----------------------------------------------------------------------------------


def run_folder(target: Target, settings: Settings) -> Path:
    """The folder of this run: that of an unfinished run of the same question, else a new one. Raises BadInput."""
    ignored = {"jobs", "ahead", "store_limit", "fresh", "max_installs", "flips"}
    chosen = {k: v for k, v in dataclasses.asdict(settings).items() if k not in ignored}
    name = target.name.partition("::")[0]
    stem = "bisect-" + (Path(target.name.partition(":")[0]).stem or "run")
    question = [
        runs.identity(dataclasses.asdict(target), name.rpartition(":")[0] or name), chosen, contents(target, settings)
    ]  # fmt: skip
    try:
        return runs.run_folder(settings.runs, stem, question, settings.fresh)
    except runs.RunFolderError as error:
        raise BadInput(str(error)) from error


def contents(target: Target, settings: Settings) -> list[object]:
    """What files that are named say: a script of a command, requirements, a list of versions."""
    listed = text_of(settings.versions[1:]) if settings.versions.startswith("@") else ""
    required = [read_lines(Path(file)) for file in settings.files]
    return [[runs.stamps(word) for word in (target.name, *target.args)], listed, required]


@contextlib.contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """The run folder for this process alone, without what a killed run left in it. Raises BadInput if it is in use."""
    try:
        lock = runs.claimed(folder)
    except runs.RunFolderError as error:
        raise BadInput(str(error)) from error
    try:
        for left in folder.glob("run-*"):
            shutil.rmtree(left, ignore_errors=True)
        yield
    finally:
        os.close(lock)


def open_journal(folder: Path) -> Journal:
    """Raises Stopped where the disk is in the way, BadInput where the journal is damaged."""
    try:
        return runs.open_journal(folder)
    except runs.RunFolderError as error:
        raise (Stopped if error.passing else BadInput)(str(error)) from error
