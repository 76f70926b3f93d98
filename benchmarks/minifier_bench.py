"""Measures `reduce` beside torch's own minifier on six failures of one graph, in one run.

python benchmarks/minifier_bench.py [nan_table] [quantizer] [phase] [router] [decoder] [recommender] [--seconds N]

Three programs meet bugs of torch 2.13, three meet faults that `reduce/buggy_backend.py` plants. The minifier starts new
processes in which such a fault would be lost, so it gets the import in every process (`sitecustomize`), which is more
than a user has. Its time is that of the program with TORCHDYNAMO_REPRO_AFTER=aot and of `minifier_launcher.py`; ours is
that of the whole search from the verdict to the script that was run five times. Prints seconds, ATen operations of the
graph before and after, and lines (neither blank nor imports) of the result.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from torchtriage import api
from torchtriage.lab.journal import Journal
from torchtriage.lab.scripts import ScriptLab
from torchtriage.reduce import drive
from torchtriage.reduce.tree import lines_of

HERE = Path(__file__).parent
PROGRAMS = HERE / "minifier"
FAULTS = HERE / "reduce"
NAMES = ("nan_table", "quantizer", "phase", "router", "decoder", "recommender")
WRONG_VALUE = ("quantizer", "phase", "decoder")
OPERATION = re.compile(r"^\s+\w+ = torch\.ops\.", re.MULTILINE)


@dataclass(frozen=True)
class Result:
    """What a reducer left."""

    seconds: float
    lines: int
    how: str
    """`finished`, or why it was not."""
    operations: tuple[int, int] = (0, 0)


def ours(name: str, seconds: float, folder: Path) -> Result:
    path = PROGRAMS / f"{name}.py"
    settings = api.Settings(verdict_only=True, fresh=True, runs=str(folder / "verdict"))
    diagnosis = api.run({"kind": "script", "name": str(path), "args": []}, settings)
    lab = ScriptLab(folder / "scripts", api.kernel_store(), sys.executable, path=(str(PROGRAMS), str(FAULTS)))
    begin = time.monotonic()
    try:
        program = drive.Program(path.read_text(), (str(PROGRAMS), str(FAULTS)))
        wishes = drive.Wishes(jobs=2, threads=2, deadline=begin + seconds)
        found = drive.reduce(lab, program, diagnosis, wishes, Journal(folder / "j.sqlite"), folder)
    finally:
        lab.close()
    how = found.stopped or ("finished" if found.proven else f"not proven: {found.output[-80:]}")
    print("".join(f"        {line}\n" for line in found.script.splitlines()))
    return Result(time.monotonic() - begin, found.lines, how)


def minifier(name: str, seconds: float, folder: Path) -> Result:
    """Torch's minifier, from the program itself to the end of its launcher or of its time."""
    site = folder / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text("import buggy_backend\n")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(site), str(FAULTS)]),
        "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",
        "TORCH_COMPILE_DEBUG_DIR": str(folder),
        "TORCHDYNAMO_REPRO_AFTER": "aot",
        "TORCHDYNAMO_REPRO_LEVEL": "4" if name in WRONG_VALUE else "2",
    }
    begin = time.monotonic()
    run([sys.executable, str(PROGRAMS / f"{name}.py")], environment, folder, seconds)
    launchers = list(folder.glob("torch_compile_debug/*/minifier/minifier_launcher.py"))
    if not launchers:
        return Result(time.monotonic() - begin, 0, "no launcher was written")
    left = seconds - (time.monotonic() - begin)
    whole, ended = (
        launchers[0].read_text(),
        run([sys.executable, str(launchers[0])], environment, folder, left),
    )
    kept = [p.read_text() for p in folder.glob("torch_compile_debug/*/minifier/checkpoints/*.py")]
    last = [p.read_text() for p in folder.rglob("repro.py")] if ended else []
    best = min(last or kept or [whole], key=operations)
    how = "finished" if ended and last else "ended without a result" if ended else "not finished"
    return Result(time.monotonic() - begin, lines_of(best), how, (operations(whole), operations(best)))


def operations(text: str) -> int:
    return len(OPERATION.findall(text))


def run(command: list[str], environment: dict[str, str], folder: Path, seconds: float) -> bool:
    """Whether the command ended by itself."""
    with (folder / "log.txt").open("a") as log:
        process = subprocess.Popen(
            command, env=environment, cwd=folder, stdout=log, stderr=log, start_new_session=True
        )
        try:
            process.wait(max(seconds, 1.0))
            return True
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--seconds", type=float, default=240.0)
    args = parser.parse_args()
    print(
        f"{time.strftime('%Y-%m-%d')}, {platform.machine()}, {api.cores()} cores, limit {args.seconds:.0f} s"
    )
    for name in args.names:
        print(f"{name} ({lines_of((PROGRAMS / f'{name}.py').read_text())} lines)", flush=True)
        for who, reducer in (("ours", ours), ("minifier", minifier)):
            folder = Path(tempfile.mkdtemp(prefix="bench-minifier-"))
            try:
                found = reducer(name, args.seconds, folder)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
            graph = (
                f", {found.operations[0]} -> {found.operations[1]} operations" if found.operations[0] else ""
            )
            print(f"    {who:8} {found.how}, {found.seconds:.0f} s, {found.lines} lines{graph}", flush=True)


if __name__ == "__main__":
    main()
