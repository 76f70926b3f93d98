"""Speed and memory of reading large traces, side by side with tlparse: CPU seconds, wall seconds, peak memory, output.

    python benchmarks/trace_speed.py LOG [LOG...] [--megabytes 230] [--rounds 3] [--tlparse]

Each LOG is repeated with new frame ids until it is as large as asked for. Every figure is one process of its own,
the median of the rounds; memory is its peak resident set. Ratios are of CPU seconds, tlparse in the same round. tlparse
is the one on the PATH; without --tlparse it is not run. With Chromium on the PATH, the report is opened as well.
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
from statistics import median

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


def shown(page: Path) -> float:
    """Seconds from the start of loading until a headless Chromium has run the page's script; 0 without Chromium."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        return 0.0
    told = page.with_name("told.html")
    script = "<script>document.body.dataset.ms = Math.round(performance.now());</script></body>"
    told.write_text(page.read_text().replace("</body>", script))
    flags = [
        "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
        "--disable-component-update", "--disable-sync", f"--user-data-dir={page.parent / 'profile'}", "--dump-dom",
    ]  # fmt: skip
    run = subprocess.run([browser, *flags, told.as_uri()], capture_output=True, text=True, check=False)
    found = re.search(r'data-ms="(\d+)"', run.stdout)
    return int(found[1]) / 1000 if found else 0.0


def commands(big: Path, out: Path, tlparse: str | None) -> list[tuple[str, list[str]]]:
    python = [sys.executable, "-c"]
    rows = [("summary", [*python, SUMMARY, str(big)]), ("report", [*python, REPORT, str(big), str(out)])]
    if tlparse:
        base = [tlparse, str(big), "-o", str(out), "--overwrite", "--no-browser"]
        rows += [("tlparse --plain-text", [*base, "--plain-text"]), ("tlparse", base)]
    return rows


def compare(log: Path, megabytes: int, rounds: int, tlparse: str | None, folder: Path) -> None:
    """All commands in turn, so that what else runs on the machine hits all of them; medians and ratios."""
    big, out = folder / "big.log", folder / "out"
    repeat(log, big, megabytes << 20)
    found: dict[str, list[tuple[float, float, float, int, int]]] = {}
    for _ in range(rounds):
        for name, command in commands(big, out, tlparse):
            found.setdefault(name, []).append(measure(command, out))
    for name, rows in found.items():
        cpu, wall, peak, files, written = (median(column) for column in zip(*rows, strict=True))
        ratio = ""
        if tlparse and not name.startswith("tlparse"):
            low, *_, high = sorted([t[0] / r[0] for r, t in zip(rows, found["tlparse"], strict=True)] * 2)
            ratio = f"1/{low:.1f} to 1/{high:.1f}"
        print(
            f"{log.stem:12} {big.stat().st_size / 1e6:6.0f}  {name:22} {cpu:7.2f} {wall:7.2f} {peak:8.0f} "
            f"{files:6.0f} {written / 1e6:7.1f}  {ratio}", flush=True,
        )  # fmt: skip
    out.mkdir()
    subprocess.run([sys.executable, "-c", REPORT, str(big), str(out)], stdout=subprocess.DEVNULL, check=True)
    print(f"{log.stem:12} shown by Chromium after {shown(out / 'report.html'):.2f} s", flush=True)
    shutil.rmtree(out)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("logs", nargs="+", type=Path)
    parser.add_argument("--megabytes", type=int, default=230)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tlparse", action="store_true", help="run tlparse as well")
    options = parser.parse_args()
    print(
        f"{'log':12} {'MB':>6}  {'what':22} {'CPU s':>7} {'wall s':>7} {'peak MB':>8} {'files':>6} {'out MB':>7}  CPU against tlparse"
    )
    with tempfile.TemporaryDirectory(prefix="trace-speed-") as folder:
        for log in options.logs:
            tlparse = shutil.which("tlparse") if options.tlparse else None
            compare(log, options.megabytes, options.rounds, tlparse, Path(folder))


if __name__ == "__main__":
    main()
