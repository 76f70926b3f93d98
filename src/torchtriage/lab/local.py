"""The local lab: answers requests with trials in processes on this machine, and remembers them in the journal."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torchtriage.lab import diverge
from torchtriage.lab.conclude import conclude
from torchtriage.lab.journal import Journal
from torchtriage.lab.request import ALL_FLAVOURS, Request
from torchtriage.lab.stage import Nursery, Stage, StageError, Survey, Waiting, environment
from torchtriage.model.outcome import Differs, Inconclusive, Outcome, Same, outcome_from_json, to_json
from torchtriage.probe import wire


@dataclass(frozen=True)
class Options:
    """How a lab works. Times in seconds, memory in bytes."""

    jobs: int = 2
    trial_seconds: float = 60.0
    trial_bytes: int = 8 << 30
    mode: str = "auto"
    """`fork`, `rerun`, or `auto`: fork where it works."""
    max_calls: int = 64
    stage_seconds: float = 600.0
    python: str = ""
    store: Path = field(default_factory=Path)
    user_threads: int = 1


EARLY = 3
EAGER = ("eager",)
GRADIENT_CALLS = 2
Live = Callable[[int, Path, dict[str, Any]], int]
Progress = Callable[[str, Request, Outcome | None], None]


def looks_closely(request: Request, call: int) -> bool:
    """Whether a request compares a call with all flavours of references."""
    return request.stop == call and len(request.flavours) > 1


def must_rerun(survey: Survey) -> bool:
    """Whether the program cannot go on in a fork of its own process."""
    return survey.cuda or bool(survey.unforkable) or not survey.holders


class LocalLab:
    """Runs trials for one target. Use as a context manager: on exit nothing of it is left running."""

    def __init__(
        self,
        target: dict[str, Any],
        folder: Path,
        journal: Journal,
        options: Options,
        progress: Progress | None = None,
        live: Live | None = None,
    ):
        self.target, self.journal, self.options = target, journal, options
        self.folder = folder
        self.live = live
        self.scratch = folder / "scratch"
        self.progress = progress or (lambda event, request, outcome: None)
        self._stage: Stage | None = None
        self._nursery: Nursery | None = None
        self._stage_lock = threading.Lock()
        self._truths: dict[tuple[int, str], Future[str]] = {}
        self._truth_lock = threading.Lock()
        self.pool = ThreadPoolExecutor(max_workers=options.jobs)
        self.env = environment(options.store)
        self.waiting = Waiting()
        self.serial = 0
        self.trials_run = 0
        self.rerun = options.mode == "rerun"

    def __enter__(self) -> LocalLab:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        self.pool.shutdown(wait=False, cancel_futures=True)
        self.waiting.give_up()
        with self._stage_lock:
            if self._stage is not None:
                self._stage.close()
                self._stage = None
            if self._nursery is not None:
                self._nursery.close()
                self._nursery = None
        shutil.rmtree(self.scratch, ignore_errors=True)

    # --- the stage -------------------------------------------------------------------------------------

    def survey(self) -> Survey:
        """The eager run of the program: its regions and calls. Runs once, and again when a run is resumed."""
        known = self.journal.get("survey", "survey")
        if known is not None:
            survey = Survey(**known)
            self.rerun = self.rerun or must_rerun(survey)
            return survey
        survey = self.stage().survey
        if survey.unfit or survey.bad_target:
            return (
                survey  # what could not start may start next time: the machine is mended, a package installed
            )
        self.journal.put("survey", "survey", self.target, survey.to_json())
        return survey

    def stage(self) -> Stage:
        """The running stage, started when it is first needed."""
        with self._stage_lock:
            if self.waiting.over:
                raise StageError("the run is over")
            if self._stage is None:
                self._stage = self.start_stage()
            return self._stage

    def start_stage(self) -> Stage:
        shutil.rmtree(self.scratch, ignore_errors=True)
        request = {
            "target": self.target,
            "max_calls": self.options.max_calls,
            "max_holders": 0 if self.rerun else 8,
            "end_file": str(self.scratch / "end.pt"),
            "env": {"TORCHINDUCTOR_CACHE_DIR": str(self.options.store)},
        }
        stage = Stage(request, self.scratch / "stage", self.env, self.options.python, self.live, self.waiting)
        try:
            survey = stage.wait(self.options.stage_seconds)
        except StageError:
            stage.close()
            raise
        self.rerun = self.rerun or must_rerun(survey)
        if survey.cuda:
            stage.release(self.env, self.options.python)
        return stage

    def call_tree(self, call: int) -> list[dict[str, Any]]:
        """Functions that one call runs in eager mode, each with the function that calls it."""
        return self.look("tree", call)

    def own_operators(self, call: int) -> list[dict[str, Any]]:
        """Operators of the program's own that break a promise of their schema or fake kernel in one eager call."""
        return self.look("operators", call)

    def look(self, kind: str, call: int) -> list[dict[str, Any]]:
        """Look at one call in eager mode, once."""
        known = self.journal.get(kind, str(call))
        if known is not None:
            return list(known)
        folder = self.new_folder()
        stage = self.stage()
        job = {
            "kind": kind, "folder": str(folder), "seconds": self.seconds_for(stage.survey),
            "bytes": self.options.trial_bytes,
        }  # fmt: skip
        if self.rerun or call not in stage.holders:
            self.fresh(job, call, folder)
        else:
            stage.trial(call, job)
        try:
            found = json.loads((folder / f"{kind}.json").read_text())
        except (OSError, ValueError):
            return []  # it did not come to the call: nothing is known
        self.journal.put(kind, str(call), call, found)
        return list(found)

    # --- trials -----------------------------------------------------------------------------------------

    def run(self, requests: Sequence[Request]) -> list[Outcome]:
        """Answer all requests, `jobs` at a time, from the journal where it knows them."""
        futures = [self.pool.submit(self.answer, request) for request in requests]
        return [future.result() for future in futures]

    def run_one(self, request: Request) -> Outcome:
        return self.run([request])[0]

    def answer(self, request: Request) -> Outcome:
        key = request.key()
        known = self.journal.get("trial", key)
        if known is not None:
            outcome = outcome_from_json(known)
            self.progress("known", request, outcome)
            return outcome
        self.progress("start", request, None)
        outcome = self.with_gradients(request, self.settle(request))
        if not isinstance(outcome, Inconclusive):
            self.journal.put("trial", key, request.to_json(), to_json(outcome))
        self.progress("end", request, outcome)
        return outcome

    def settle(self, request: Request) -> Outcome:
        """Run a trial; where a call in the middle differs by the bare tolerances, look at it with all references."""
        settled: set[int] = set(request.settled)
        outcome = self.execute(request, settled)
        for _ in range(4):
            if not isinstance(outcome, Differs) or outcome.differences[0].later:
                return outcome
            if outcome.differences[0].call in self.well_known(request):
                return outcome
            call = outcome.differences[0].call
            closer = dataclasses.replace(request, stop=call, flavours=ALL_FLAVOURS, time_step=False)
            verdict = self.execute(closer, settled)
            if isinstance(verdict, Inconclusive):
                return outcome
            if not isinstance(verdict, Same):
                measures = dataclasses.replace(outcome.measures, eager_repeats=verdict.measures.eager_repeats)
                return dataclasses.replace(verdict, measures=measures)
            settled.add(call)
            outcome = self.execute(request, settled)
        return outcome

    def with_gradients(self, request: Request, outcome: Outcome) -> Outcome:
        """Without forks, a backward of ours can only be run where the trial ends: such trials are added here."""
        asked = self.rerun and request.stop is None and request.backward and request.start is None
        if not asked or not isinstance(outcome, Same):
            return outcome
        new = [call["call"] for call in self.stage().survey.calls if call["new"] and call["grad"]]
        for call in new[:GRADIENT_CALLS]:
            found = self.settle(dataclasses.replace(request, stop=call, time_step=False))
            if isinstance(found, Same):
                outcome = dataclasses.replace(outcome, differences=outcome.differences + found.differences)
            elif not isinstance(found, Inconclusive):
                return dataclasses.replace(found, measures=outcome.measures)
        return outcome

    def well_known(self, request: Request) -> set[int]:
        """Calls that this request compares with all flavours anyway."""
        return {request.stop} if request.stop is not None and looks_closely(request, request.stop) else set()

    def execute(self, request: Request, settled: set[int]) -> Outcome:
        try:
            stage = self.stage()
        except StageError as error:
            return Inconclusive(reason=str(error))
        folder = self.new_folder()
        job = self.job(request, folder, stage)
        start = request.start if request.start is not None else 0
        self.trials_run += 1
        if self.rerun or start not in stage.holders:
            ended = self.fresh(job, start, folder)
        else:
            ended = stage.trial(start, job)
        try:
            outcome = self.concluded(ended, folder, stage, settled)
            if request.operations:
                parted = diverge.read(folder, folder / f"reference-{request.stop}")
                outcome = dataclasses.replace(
                    outcome, measures=dataclasses.replace(outcome.measures, divergence=parted)
                )
            return outcome
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def job(self, request: Request, folder: Path, stage: Stage) -> dict[str, Any]:
        """The request as a trial process gets it."""
        survey = stage.survey
        start = request.start if request.start is not None else 0
        stop = request.stop
        if stop is None and survey.truncated:
            stop = survey.calls[-1]["call"]  # the eager run was not followed any further
        calls = [c for c in self.signature_calls(stage) if start <= c and (stop is None or c <= stop)]
        if request.stop is not None and request.stop in survey.holders and request.stop not in calls:
            calls.append(request.stop)
        plain = request.to_json()
        plain.update(
            folder=str(folder),
            stop=stop,
            seconds=request.seconds or self.seconds_for(survey),
            bytes=self.options.trial_bytes,
            truths={str(call): self.truth(call, stage, looks_closely(request, call)) for call in calls},
            forks=not self.rerun,
            trace=self.trace_folder() if request == Request(observe=True) else "",
            compare=request.compare,
            flavours=list(request.flavours),
            store=str(folder / "store") if request.fresh_store else "",
        )
        return plain

    def trace_folder(self) -> str:
        """Where the observed trial writes torch's trace. It has one run: the trial may be run again."""
        shutil.rmtree(self.folder / "trace", ignore_errors=True)
        return str(self.folder / "trace")

    def seconds_for(self, survey: Survey) -> float:
        """Slow is not hung: a trial may take many times as long as the program did in eager mode."""
        return max(self.options.trial_seconds, 60.0 + 10.0 * survey.seconds)

    def signature_calls(self, stage: Stage) -> list[int]:
        early = EARLY if self.rerun else 0  # without forks, only calls that have references can be compared
        return [call["call"] for call in stage.survey.calls if call["new"] or call["call"] < early][:6]

    def fresh(self, job: dict[str, Any], start: int, folder: Path) -> dict[str, Any]:
        """Run the program from its first line to a call, and there become the trial."""
        file = folder / f"job-{self.new_number()}.json"
        request = {"target": self.target, "start": start, "job": job, "max_calls": 1 << 30}
        file.write_text(json.dumps(request, default=list))
        return self.nursery().trial(file, job, self.waiting)

    def nursery(self) -> Nursery:
        """The process that trials of rerun mode are forked from, started when it is first needed."""
        cuda = self.stage().survey.cuda
        with self._stage_lock:
            if self.waiting.over:
                raise StageError("the run is over")
            if self._nursery is not None and self._nursery.process.poll() is not None:
                self._nursery.close()  # it was killed from outside
                self._nursery = None
            if self._nursery is None:
                self._nursery = Nursery(self.env, self.options.python, patterns=not cuda)
            return self._nursery

    def truth(self, call: int, stage: Stage, whole: bool) -> str:
        """Folder of the eager references of a call, made once. `whole`: all flavours, where a process makes one each."""
        folder = self.once(
            (call, "eager"), lambda: self.make_truth(call, stage, EAGER if self.rerun else ALL_FLAVOURS)
        )
        if whole and self.rerun:
            self.once((call, "others"), lambda: self.make_truth(call, stage, ALL_FLAVOURS[1:4]))
        return folder

    def once(self, key: tuple[int, str], make: Callable[[], str]) -> str:
        """What `make` returns, made by the first who asks; the others wait."""
        with self._truth_lock:
            future = self._truths.get(key)
            mine = future is None
            if future is None:
                future = self._truths[key] = Future()
        if mine:
            try:
                future.set_result(make())
            except BaseException as error:
                future.set_exception(error)
        return future.result()

    def make_truth(self, call: int, stage: Stage, wanted: Sequence[str]) -> str:
        folder = self.scratch / "truth" / str(call)
        folder.mkdir(parents=True, exist_ok=True)
        job = {
            "kind": "truth", "folder": str(folder), "flavours": list(wanted), "forks": not self.rerun,
            "seconds": self.options.stage_seconds, "bytes": self.options.trial_bytes,
        }  # fmt: skip
        if not self.rerun:
            stage.trial(call, job)
        else:
            for flavour in wanted:
                self.fresh({**job, "flavours": [flavour]}, call, folder)
        return str(folder)

    def compare_ends(self, folder: Path, stage: Stage) -> list[dict[str, Any]]:
        """Gross differences in what the whole program left behind, beyond those that a nudged eager run shows."""
        end, eager = folder / "end.pt", self.scratch / "end.pt"
        if self.rerun or not end.exists() or not eager.exists():
            return []
        others = [os.path.join(self.trajectory(flavour, stage), "end.pt") for flavour in ("again", "ulp1")]
        reply = stage.ask_judge({"kind": "end", "eager": str(eager), "trial": str(end), "others": others})
        return list(reply.get("differences", ()))

    def trajectory(self, flavour: str, stage: Stage) -> str:
        """Folder of a further eager run of the whole program from its first call, made once."""
        return self.once((-1, flavour), lambda: self.make_trajectory(flavour, stage))

    def make_trajectory(self, flavour: str, stage: Stage) -> str:
        folder = self.scratch / "trajectory" / flavour
        folder.mkdir(parents=True, exist_ok=True)
        job = {"kind": "trajectory", "flavour": flavour, "folder": str(folder)}
        stage.trial(0, {**job, "seconds": self.options.stage_seconds, "bytes": self.options.trial_bytes})
        return str(folder)

    def new_folder(self) -> Path:
        folder = self.scratch / f"trial-{self.new_number()}"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def new_number(self) -> int:
        with self._truth_lock:
            self.serial += 1
            return self.serial

    def concluded(self, ended: dict[str, Any], folder: Path, stage: Stage, settled: set[int]) -> Outcome:
        """Ask the judge about each call that was recorded, then say what came out."""
        events = wire.read_log(str(folder / "events.jsonl"))
        judged: dict[int, dict[str, Any]] = {}
        for event in events:
            if event["event"] == "call" and event.get("reference"):
                record = os.path.join(folder, f"{event['call']}.pt")
                judged[event["call"]] = stage.ask_judge({"reference": event["reference"], "trial": record})
        errors = [reply["error"] for reply in judged.values() if "error" in reply]
        if errors:
            return Inconclusive(reason=f"the comparison failed: {errors[0][-1500:]}")
        survey = stage.survey
        ends = self.compare_ends(folder, stage)
        eager_end = {"exception": survey.exception, "exit": survey.exit} if not survey.truncated else None
        return conclude(ended, events, judged, eager_end, sorted(settled), ends)
