"""Speed and memory of reading large traces, side by side with tlparse: CPU seconds, wall seconds, peak memory, output.

    python benchmarks/trace_speed.py LOG [LOG...] [--megabytes 230] [--tlparse]

Each LOG is repeated with new frame ids until it is as large as asked for. Every figure is one process of its own;
memory is its peak resident set. tlparse is the one on the PATH; without --tlparse it is not run.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FRAME_ID = re.compile(rb'"frame_id": (\d+)')
SUMMARY = "import sys; from torchtriage.cli.trace import app; app(['trace', sys.argv[1]])"
REPORT = "import sys; from torchtriage.cli.trace import app; app(['trace', sys.argv[1], '--html', sys.argv[2] + '/report.html'])"


def repeat(source: Path, target: Path, size: int) -> int:
    """The log again and again with other frame ids; strings are interned once. Returns the number of copies."""
    lines = [line for line in source.read_bytes().split(b"\n") if line]
    copies = 0
    with target.open("wb") as out:
        while out.tell() < size:
            for line in lines:
                if copies and not line.startswith(b"\t"):
                    if b'{"str": [' in line[:400]:
                        continue
                    line = FRAME_ID.sub(lambda m: b'"frame_id": %d' % (int(m[1]) + 1000 * copies), line)  # noqa: B023
                out.write(line + b"\n")
            copies += 1
    return copies


def measure(command: list[str], out: Path) -> tuple[float, float, float, int, int]:
    """(CPU s, wall s, peak MB, files written, bytes written) of one process."""
    out.mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()
    with open(os.devnull, "wb") as null:
        process = subprocess.Popen(command, stdout=null, stderr=null)
        _, status, usage = os.wait4(process.pid, 0)
    wall = time.monotonic() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        print(f"    ended with status {process.returncode}: {' '.join(command[:3])}", file=sys.stderr)
    files = [p for p in out.rglob("*") if p.is_file()]
    written = sum(p.stat().st_size for p in files)
    shutil.rmtree(out)
    return usage.ru_utime + usage.ru_stime, wall, usage.ru_maxrss / 1024, len(files), written


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("logs", nargs="+", type=Path)
    parser.add_argument("--megabytes", type=int, default=230)
    parser.add_argument("--tlparse", action="store_true", help="run tlparse as well")
    options = parser.parse_args()
    print(
        f"{'log':12} {'MB':>6}  {'what':24} {'CPU s':>7} {'wall s':>7} {'peak MB':>8} {'files':>6} {'out MB':>7}"
    )
    with tempfile.TemporaryDirectory(prefix="trace-speed-") as folder:
        for log in options.logs:
            big, out = Path(folder, "big.log"), Path(folder, "out")
            repeat(log, big, options.megabytes << 20)
            python = [sys.executable, "-c"]
            rows = [
                ("summary", [*python, SUMMARY, str(big)]),
                ("report", [*python, REPORT, str(big), str(out)]),
            ]
            tlparse = shutil.which("tlparse") if options.tlparse else None
            if tlparse:
                base = [tlparse, str(big), "-o", str(out), "--overwrite", "--no-browser"]
                rows += [("tlparse --plain-text", [*base, "--plain-text"]), ("tlparse", base)]
            for name, command in rows:
                cpu, wall, peak, files, written = measure(command, out)
                print(
                    f"{log.stem:12} {big.stat().st_size / 1e6:6.0f}  {name:24} {cpu:7.2f} {wall:7.2f} {peak:8.0f} "
                    f"{files:6} {written / 1e6:7.1f}", flush=True,
                )  # fmt: skip


if __name__ == "__main__":
    main()
