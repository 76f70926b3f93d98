"""The program runs as it would by itself: what it sees of itself, its workers and its threads; and what can be a target."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness import PROGRAMS

from torchtriage.lab.local import LocalLab
from torchtriage.lab.request import Request
from torchtriage.model.outcome import label
from torchtriage.model.variant import Variant

pytestmark = pytest.mark.e2e


def by_itself(*command: str) -> Any:
    """The last line that plain `python COMMAND` prints, as JSON."""
    done = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL
    )
    return json.loads(done.stdout.splitlines()[-1])


def last_line(text: str) -> Any:
    return json.loads(text.splitlines()[-1])


def test_a_script_sees_what_it_sees_by_itself(open_lab: Callable[..., LocalLab], work: Path) -> None:
    (work / "data.txt").write_text("relative")
    args = ["--steps", "3", "a b", "-m", "--json"]
    expected = by_itself(str(PROGRAMS / "surroundings.py"), *args)
    lab = open_lab("surroundings.py", *args)
    seen = last_line(lab.survey().log)
    expected.pop("orig_argv"), seen.pop("orig_argv")  # no __pycache__ is written in the user's folder
    assert seen == expected
    assert last_line(lab.run_one(Request()).log)["argv"] == expected["argv"]


def test_a_module_sees_what_it_sees_by_itself(
    open_lab: Callable[..., LocalLab], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(PROGRAMS)
    expected = by_itself("-m", "package.inner", "--steps", "3")
    lab = open_lab("package.inner", "--steps", "3", kind="module")
    assert last_line(lab.survey().log) == expected
    assert [r["name"] for r in lab.survey().regions] == ["compiled_triple"]
    assert label(lab.run_one(Request())) == "same"


@pytest.mark.parametrize("name", ["package.model:main", "package.model:Holder.run"])
def test_a_callable_can_be_the_target(
    open_lab: Callable[..., LocalLab], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(PROGRAMS)
    lab = open_lab(name, kind="callable")
    assert [r["name"] for r in lab.survey().regions] == ["compiled_triple"]
    assert label(lab.run_one(Request())) == "same"


LOADERS = """
import sys, torch
from torch.utils.data import DataLoader, Dataset

class Numbers(Dataset):
    def __len__(self):
        return 12
    def __getitem__(self, i):
        return torch.full((3,), float(i))

@torch.compile(backend="aot_eager")
def step(x):
    return x * 2

def main():
    torch.manual_seed(0)
    context = sys.argv[1] if len(sys.argv) > 1 else None
    loader = DataLoader(Numbers(), batch_size=3, num_workers=2, shuffle=True, multiprocessing_context=context,
                        persistent_workers=True)
    for epoch in range(2):
        for batch in loader:
            print([round(n) for n in step(batch).sum(1).tolist()])

if __name__ == "__main__":
    main()
"""

THREADS = """
import queue, sys, threading, time, torch
from concurrent.futures import ThreadPoolExecutor

@torch.compile(backend="aot_eager")
def step(x):
    return x * 2

def prefetch(out):
    for i in range(6):
        out.put(torch.full((3,), float(i)))
    out.put(None)

kind = sys.argv[1]
if kind == "prefetch":
    batches = queue.Queue(maxsize=1)
    threading.Thread(target=prefetch, args=(batches,), daemon=True).start()
    while (batch := batches.get()) is not None:
        print(step(batch).sum().item())
if kind == "pool-prefetch":
    with ThreadPoolExecutor(1) as pool:
        pending = pool.submit(torch.full, (3,), 0.0)
        for i in range(1, 5):
            batch = pending.result()
            pending = pool.submit(torch.full, (3,), float(i))
            print(step(batch).sum().item())
if kind == "worker":
    with ThreadPoolExecutor(1) as pool:
        print(pool.submit(lambda: step(torch.ones(3)).sum().item()).result())
if kind == "both":
    print(step(torch.ones(3)).sum().item())
    threads = [threading.Thread(target=lambda: print(step(torch.ones(4)).sum().item())) for _ in range(2)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    print(step(torch.ones(5)).sum().item())
if kind == "background":
    threading.Thread(target=lambda: [time.sleep(0.05) for _ in range(10**6)], daemon=True).start()
    lock = threading.Lock()
    for i in range(3):
        with lock:
            print(step(torch.ones(3)).sum().item())
"""


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_a_loader_with_two_workers_gives_trials_the_program_s_batches(
    open_lab: Callable[..., LocalLab], tmp_path: Path, context: str
) -> None:
    program = tmp_path / "loaders.py"
    program.write_text(LOADERS)
    lab = open_lab(str(program), context)
    assert len(lab.survey().calls) == 8
    outcomes = lab.run([Request(seconds=60), Request(Variant(backend="eager"), seconds=60)])
    assert [label(outcome) for outcome in outcomes] == ["same", "same"]
    for outcome in outcomes:
        assert outcome.measures.calls_seen == 8


@pytest.mark.parametrize(
    "kind",
    [
        "prefetch",
        "pool-prefetch",
        "both",
        "background",
    ],
)
def test_a_program_with_threads_is_the_same(
    open_lab: Callable[..., LocalLab], tmp_path: Path, kind: str
) -> None:
    program = tmp_path / "threads.py"
    program.write_text(THREADS)
    lab = open_lab(str(program), kind)
    outcomes = lab.run([Request(seconds=20), Request(Variant(backend="eager"), seconds=20)])
    assert [label(outcome) for outcome in outcomes] == ["same", "same"]
    assert {outcome.measures.calls_seen for outcome in outcomes} == {len(lab.survey().calls)}


WORKER_THREADS = """
import sys, threading, torch
from concurrent.futures import ThreadPoolExecutor

def one_more(graph, inputs):
    return lambda *args: [value + 1 for value in graph(*args)]

@torch.compile(backend=one_more if "wrong" in sys.argv else "aot_eager")
def step(x):
    return x * 2

with ThreadPoolExecutor(1) as pool:
    for size in range(3, 3 + int(sys.argv[1])):
        print(pool.submit(lambda: step(torch.ones(size)).sum().item()).result())
    if "more" in sys.argv:
        other = threading.Thread(target=lambda: print(step(torch.ones(2)).sum().item()))
        other.start()
        other.join()
"""


@pytest.mark.parametrize("wrong", [False, True])
def test_calls_in_a_worker_thread_are_compared(
    open_lab: Callable[..., LocalLab], tmp_path: Path, wrong: bool
) -> None:
    program = tmp_path / "workers.py"
    program.write_text(WORKER_THREADS)
    lab = open_lab(str(program), "3", *(["wrong"] if wrong else []))
    assert [call["call"] for call in lab.survey().calls] == [0, 1, 2]
    outcomes = lab.run([Request(), Request(stop=1), Request(Variant(backend="eager"))])
    expected = "differs:value" if wrong else "same"
    assert [label(outcome) for outcome in outcomes] == [expected, expected, "same"]
    assert outcomes[1].measures.calls_seen == 2


def test_a_worker_thread_with_many_calls_is_not_followed_for_ever(
    open_lab: Callable[..., LocalLab], tmp_path: Path
) -> None:
    program = tmp_path / "workers.py"
    program.write_text(WORKER_THREADS)
    lab = open_lab(str(program), "200")
    assert lab.survey().truncated
    assert len(lab.survey().calls) == lab.options.max_calls
    assert label(lab.run_one(Request(Variant(backend="eager"), stop=1))) == "same"


def test_calls_in_further_threads_are_counted_and_told(diagnose: Callable[..., Any], tmp_path: Path) -> None:
    program = tmp_path / "workers.py"
    program.write_text(WORKER_THREADS)
    done = diagnose(str(program), "1", "more", "--verdict-only")
    assert "1 calls were made in further threads" in done.out


LIVE = """
import json, os, sys, torch, torchtriage

def backend(graph, inputs):
    return lambda *args: [value + 1 for value in graph(*args)]

model = torch.nn.Linear(3, 2)
before = {k: v.clone() for k, v in model.state_dict().items()}
target = model if sys.argv[1] == "plain" else torch.compile(model, backend=backend if sys.argv[1] == "wrong" else "eager")
x = torch.ones(2, 3)
found = torchtriage.diagnose(target, x)
same = all(torch.equal(v, before[k]) for k, v in model.state_dict().items()) and torch.equal(x, torch.ones(2, 3))
print(json.dumps({"kind": found.kind, "region": found.symptom.region if found.symptom else "", "same": same,
                  "own": found.own.word, "backend": found.own_settings}))
"""


@pytest.mark.parametrize(
    ("given", "kind", "own"),
    [("wrong", "bug", "differs:value"), ("plain", "none", "same")],
)
def test_a_live_model_can_be_the_target(
    work: Path, environment: dict[str, str], tmp_path: Path, given: str, kind: str, own: str
) -> None:
    program = tmp_path / "live.py"
    program.write_text(LIVE)
    done = subprocess.run(
        [sys.executable, str(program), given], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = last_line(done.stdout)
    assert (found["kind"], found["own"]) == (kind, own)
    assert found["same"], "the model or its inputs were changed"
    assert [path.name for path in work.iterdir()] == ["runs"]


ELSEWHERE = """
import os, sys, torch

@torch.compile(backend="aot_eager")
def step(x):
    return x * 2

os.chdir(sys.argv[1])
print(step(torch.ones(3)).sum().item())
os.makedirs("deeper", exist_ok=True)
os.chdir("deeper")
print(step(torch.ones(4)).sum().item())
"""


@pytest.mark.parametrize("isolation", ["fork", "rerun"])
def test_a_program_that_changes_its_working_folder_is_followed(
    diagnose: Callable[..., Any], work: Path, tmp_path: Path, isolation: str
) -> None:
    program, other = tmp_path / "elsewhere.py", tmp_path / "other"
    program.write_text(ELSEWHERE)
    other.mkdir()
    done = diagnose("--json", "-", "--verdict-only", "--isolation", isolation, str(program), str(other))
    assert done.status == 0, done.err
    assert done.report["kind"] == "none"
    assert done.report["run_folder"].startswith("runs/")
    assert [path.name for path in work.iterdir()] == ["runs"]
    assert [path.name for path in other.iterdir()] == ["deeper"]
