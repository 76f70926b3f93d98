"""One search driven with fakes: what is run, judged, kept, and not run again."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from torchtriage.bisect.errors import BadInput, CannotInstall, Stopped
from torchtriage.bisect.hunt import Hunt, Plan
from torchtriage.bisect.judge import Goal, Observed, Signature
from torchtriage.bisect.record import Replayed
from torchtriage.bisect.search import EndFails, Found, Rule
from torchtriage.bisect.trial import Question
from torchtriage.lab.journal import Journal

VERSIONS = tuple(f"2.{n}" for n in range(10))
BOOM = Observed("raised", Signature("raised", "RuntimeError", "boom"), 1, 1.0)
FINE = Observed("ok", seconds=1.0)


@dataclass
class Fake:
    """Runs nothing: answers from a function of the version, and notes what it was asked."""

    answer: Callable[[str, Question], Observed]
    broken: tuple[str, ...] = ()
    asked: list[str] = field(default_factory=list)
    installed: list[str] = field(default_factory=list)
    stop_after: int = 10_000

    def run(self, python: Path, version: str, question: Question) -> Observed:
        if len(self.asked) >= self.stop_after:
            raise Stopped("the network is gone")
        self.asked.append(version)
        return self.answer(version, question)

    def prepare(self, version: str) -> Path:
        if version in self.broken:
            raise CannotInstall("no such wheel")
        self.installed.append(version)
        return Path("python")


def from_7(version: str, question: Question) -> Observed:
    return BOOM if VERSIONS.index(version) >= 7 else FINE


def hunt(fake: Fake, folder: Path, **plan: object) -> Hunt:
    base = Plan("torch", VERSIONS, Goal(), Rule(first=1))
    replay = plan.pop("replay", None)
    return Hunt(
        replace(base, **plan), fake, fake.prepare, Journal(folder / "journal.sqlite"), replay=replay,  # type: ignore[arg-type]
    )  # fmt: skip


def test_the_failure_of_the_bad_end_is_what_is_looked_for(tmp_path: Path) -> None:
    found = hunt(Fake(from_7), tmp_path).run()
    assert isinstance(found.step, Found)
    assert (found.step.good, found.step.bad) == (6, 7)
    assert found.goal.signature == BOOM.signature
    assert [v.word for v in found.verdicts] == ["good", "good", "good", "bad", "bad"]


def test_another_failure_on_the_way_is_a_skip_with_its_reason(tmp_path: Path) -> None:
    other = Observed("raised", Signature("raised", "TypeError", "unrelated"), 1)
    found = hunt(Fake(lambda v, q: other if v == "2.4" else from_7(v, q)), tmp_path).run()
    skip = next(v for v in found.verdicts if v.word == "skip")
    assert (skip.version, skip.reason) == ("2.4", "fails in another way: TypeError: unrelated")
    assert isinstance(found.step, Found) and found.step.bad == 7


def test_a_stop_in_the_middle_loses_no_run(tmp_path: Path) -> None:
    first = Fake(from_7, stop_after=3)
    with pytest.raises(Stopped):
        hunt(first, tmp_path).run()
    second = Fake(from_7)
    found = hunt(second, tmp_path).run()
    assert isinstance(found.step, Found) and found.step.bad == 7
    assert not set(first.asked) & set(second.asked)
    assert len(first.asked) + len(second.asked) == 5


def test_what_could_not_be_installed_is_not_tried_again(tmp_path: Path) -> None:
    hunt(Fake(from_7, broken=("2.4",)), tmp_path).run()
    again = Fake(from_7)
    found = hunt(again, tmp_path).run()
    assert again.installed == []
    assert any(v.version == "2.4" and v.reason == "no such wheel" for v in found.verdicts)


def test_a_log_stands_for_the_runs_that_it_has(tmp_path: Path) -> None:
    fake = Fake(from_7)
    replay = {"2.9": Replayed((True,)), "2.0": Replayed((False,)), "2.4": Replayed(None, "was broken")}
    found = hunt(fake, tmp_path, replay=replay).run()
    assert not {"2.9", "2.0", "2.4"} & set(fake.asked)
    assert isinstance(found.step, Found) and found.step.bad == 7


def test_where_the_bad_end_ends_well_compiled_is_compared_with_eager(tmp_path: Path) -> None:
    def answer(version: str, question: Question) -> Observed:
        wrong = question.watch and from_7(version, question) is BOOM
        return Observed("ok", differences=("dtype at output[0]",)) if wrong else FINE

    found = hunt(Fake(answer), tmp_path).run()
    assert found.watch
    assert str(found.goal.signature) == "compiled differs from eager: dtype at output[0]"
    assert isinstance(found.step, Found) and found.step.bad == 7


def test_a_bad_end_that_shows_nothing_is_told(tmp_path: Path) -> None:
    found = hunt(Fake(lambda v, q: FINE), tmp_path, rule=Rule(first=1, patience=1)).run()
    assert found.step == EndFails("bad", "passes", 1)


def test_a_measure_is_held_against_the_good_end(tmp_path: Path) -> None:
    def answer(version: str, question: Question) -> Observed:
        return Observed("ok", recompiles=5 if VERSIONS.index(version) >= 3 else 2)

    found = hunt(Fake(answer), tmp_path, goal=Goal(mode="recompiles")).run()
    assert found.goal.baseline == 2
    assert isinstance(found.step, Found) and found.step.bad == 3


def test_times_are_searched_with_noise_on_both_sides(tmp_path: Path) -> None:
    turn = iter(range(10_000))

    def answer(version: str, question: Question) -> Observed:
        slow = VERSIONS.index(version) >= 4
        noise = 0.5 if next(turn) % 9 == 0 else 0.0
        return Observed("ok", steps=((1.5 if slow else 1.0) + noise,))

    found = hunt(Fake(answer), tmp_path, goal=Goal(mode="step-time"), rule=Rule(noise="both")).run()
    assert isinstance(found.step, Found) and found.step.bad == 4


def test_what_is_left_is_told_from_what_was_really_run(tmp_path: Path) -> None:
    """After a resume the journal answers at once, which says nothing of how long the rest takes."""
    said: list[str] = []
    first = hunt(Fake(from_7, stop_after=3), tmp_path)
    with pytest.raises(Stopped):
        first.run()
    second = hunt(Fake(from_7), tmp_path)
    second.note = said.append
    second.runs.answer = lambda version, question: (time.sleep(0.3), from_7(version, question))[1]  # type: ignore[attr-defined]
    second.run()
    told = [line for line in said if "more to look at" in line]
    assert told == ["at most 2 more to look at; at the pace so far that takes about 1 s"]


def test_several_versions_are_run_at_a_time(tmp_path: Path) -> None:
    fake = Fake(from_7)
    found = hunt(fake, tmp_path, rule=Rule(first=1, jobs=3)).run()
    assert isinstance(found.step, Found) and found.step.bad == 7
    assert len(set(fake.asked)) == len(fake.asked)


def test_the_next_candidates_are_installed_ahead(tmp_path: Path) -> None:
    fake = Fake(from_7)
    hunt(fake, tmp_path, ahead=True).run()
    assert set(fake.installed) > set(fake.asked)


def test_an_environment_with_another_version_in_it_is_refused(tmp_path: Path) -> None:
    fake = Fake(lambda v, q: replace(FINE, facts={"packages": {"torch": "1.0"}}))
    with pytest.raises(BadInput, match=r"the environment for torch 2\.9 runs 1\.0"):
        hunt(fake, tmp_path).run()


def test_a_changed_default_is_tried_as_often_as_the_failure_is_rare(tmp_path: Path) -> None:
    turns = {"2.7": iter([False, True] * 50), "2.9": iter([False, True] * 50)}

    def answer(version: str, question: Question) -> Observed:
        if question.patches:
            return FINE
        return BOOM if version in turns and next(turns[version]) else FINE

    fake = Fake(answer)
    search = hunt(fake, tmp_path, versions=("2.0", "2.7", "2.9"), rule=Rule())
    search.run()
    before = len(fake.asked)
    assert search.try_change("2.9", Question(patches={"m": {"x": 1}})) == "good"
    assert len(fake.asked) - before > 2
