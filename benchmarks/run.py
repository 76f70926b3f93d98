"""Measures torchtriage against what one does by hand, side by side in one run. Prints ratios with their spread.

python benchmarks/run.py [matrix] [diagnose] [overhead] [--rounds N]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from torchtriage.api import cores, user_threads
from torchtriage.investigate.ablation import matrix
from torchtriage.lab.journal import Journal
from torchtriage.lab.local import LocalLab, Options
from torchtriage.model.variant import DEBUG_BACKENDS, DYNAMIC_SETTINGS

HERE = Path(__file__).parent
TRAIN = HERE / "programs" / "train.py"
CASES = HERE.parent / "tests" / "acceptance" / "cases"


def plain(script: Path, *args: str, cache: Path, env: dict[str, str] | None = None) -> float:
    """Seconds of one `python script.py` with its own Inductor cache folder."""
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(cache), **(env or {})}
    begin = time.perf_counter()
    subprocess.run([sys.executable, str(script), *args], env=environment, capture_output=True, check=False)
    return time.perf_counter() - begin


def twelve_by_hand(cache: Path) -> float:
    return sum(
        plain(TRAIN, "--backend", backend, "--dynamic", str(dynamic), cache=cache)
        for backend in DEBUG_BACKENDS
        for dynamic in DYNAMIC_SETTINGS
    )


def twelve_by_lab(store: Path) -> float:
    """The eager run and the twelve cells, from nothing to the last outcome."""
    folder = Path(tempfile.mkdtemp(prefix="bench-"))
    begin = time.perf_counter()
    options = Options(jobs=min(4, cores()), store=store, python=sys.executable, user_threads=user_threads())
    target = {"kind": "script", "name": str(TRAIN), "args": []}
    with LocalLab(target, folder, Journal(folder / "journal.sqlite"), options) as lab:
        lab.survey()
        found = matrix(lab)
        assert all(o.kind == "same" for row in found.values() for o in row.values())
    spent = time.perf_counter() - begin
    shutil.rmtree(folder)
    return spent


def bench_matrix(rounds: int) -> None:
    """4 x 3 cells: at most 0.25 of the time by hand with a warm store of kernels, at most 0.5 with a cold one."""
    with tempfile.TemporaryDirectory() as base:
        cold, warm = [], []
        for number in range(rounds):
            hand, store = Path(base, f"hand{number}"), Path(base, f"store{number}")
            store.mkdir()
            cold.append((twelve_by_lab(store), twelve_by_hand(hand)))
            warm.append((twelve_by_lab(store), twelve_by_hand(hand)))
    show("matrix, cold store", cold, 0.5)
    show("matrix, warm store", warm, 0.25)


def bench_diagnose(rounds: int) -> None:
    """A whole diagnosis against one plain compiled run of the same script: at most 15 times."""
    pairs = []
    for name in ("ldexp_dtype", "bce_target_range", "mut_alias_norecompile", "ctl_rope")[: 1 + rounds]:
        script = CASES / name / "program.py"
        with tempfile.TemporaryDirectory() as base:
            one = plain(script, cache=Path(base, "cache"))
            command = [
                sys.executable,
                "-m",
                "torchtriage.cli.main",
                "diagnose",
                "-q",
                "--no-reduce",
                "--runs",
                base,
                str(script),
            ]
            begin = time.perf_counter()
            subprocess.run(
                command, capture_output=True, check=False, env={**os.environ, "TORCHTRIAGE_CACHE": base}
            )
            whole = time.perf_counter() - begin
            print(f"  {name}: {whole:.1f} s against {one:.1f} s")
            pairs.append((whole, one))
    show("diagnose, cold store", pairs, 15)


def bench_overhead(rounds: int) -> None:
    """From the start of the process to the first call of the region: stage against plain eager run."""
    pairs = []
    with tempfile.TemporaryDirectory() as base:
        for number in range(rounds + 1):
            pairs.append(
                (to_first_call(Path(base), number, by_stage), to_first_call(Path(base), number, by_hand))
            )
    pairs = pairs[1:]  # the first round reads files from the disk
    show("stage, up to the first call", pairs, 1.1)
    print(f"  difference: {statistics.median(a - b for a, b in pairs):+.2f} s (at most +1 s)")


def to_first_call(base: Path, number: int, run: Callable[[Path], None]) -> float:
    mark = base / f"mark-{run.__name__}-{number}"
    os.environ["BENCH_MARK"] = str(mark)
    begin = time.time()
    run(base)
    del os.environ["BENCH_MARK"]
    return float(mark.read_text()) - begin


def by_hand(base: Path) -> None:
    """The program with its compiled calls run eagerly: it imports what `torch.compile` imports, as it always does."""
    plain(TRAIN, "--steps", "1", cache=base, env={"BENCH_EAGER": "1"})


def by_stage(base: Path) -> None:
    folder = Path(tempfile.mkdtemp(prefix="bench-"))
    options = Options(store=base, python=sys.executable)
    target = {"kind": "script", "name": str(TRAIN), "args": ["--steps", "1"]}
    with LocalLab(target, folder, Journal(folder / "journal.sqlite"), options) as lab:
        lab.survey()
    shutil.rmtree(folder)


def show(name: str, pairs: list[tuple[float, float]], bound: float) -> None:
    ratios = sorted(a / b for a, b in pairs)
    middle = statistics.median(ratios)
    ours, theirs = statistics.median(a for a, _ in pairs), statistics.median(b for _, b in pairs)
    verdict = "within" if middle <= bound else "OVER"
    print(
        f"{name}: ratio {middle:.3f} (from {ratios[0]:.3f} to {ratios[-1]:.3f}, {len(pairs)} rounds), "
        f"{verdict} the bound of {bound}; {ours:.1f} s against {theirs:.1f} s",
        flush=True,
    )


BENCHES: dict[str, Callable[[int], None]] = {
    "matrix": bench_matrix,
    "diagnose": bench_diagnose,
    "overhead": bench_overhead,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"any of {', '.join(BENCHES)}; all by default")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    print(json.dumps({"date": time.strftime("%Y-%m-%d"), "machine": platform.platform(), "cores": cores()}))
    for name in args.names or BENCHES:
        BENCHES[name](args.rounds)


if __name__ == "__main__":
    main()
