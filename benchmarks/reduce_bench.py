"""Measures `reduce` beside C-Vise on the same programs, in one run, with the same test of a candidate.

python benchmarks/reduce_bench.py [recsys_bwd] [tfm_crash] [--seconds N]

C-Vise (Debian's `cvise`) gets the very test that our own search uses, served by a process that has torch imported: what is
compared is what is proposed, not how fast Python starts. Prints lines that are left (neither blank nor imports) against
seconds.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import platform
import shutil
import signal
import socketserver
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from torchtriage import api
from torchtriage.lab.journal import Journal
from torchtriage.lab.scripts import ScriptLab
from torchtriage.reduce import drive, prepare
from torchtriage.reduce.tester import Tester
from torchtriage.reduce.tree import lines_of

HERE = Path(__file__).parent / "reduce"
NAMES = ("recsys_bwd", "tfm_crash")
CLIENT = """#!{python} -S
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect({address!r})
s.sendall(open({name!r}, 'rb').read())
s.shutdown(socket.SHUT_WR)
sys.exit(0 if s.recv(1) == b'1' else 1)
"""


def ours(lab: ScriptLab, name: str, seconds: float, folder: Path) -> list[tuple[float, int]]:
    """(seconds, lines) of each best script, the verdict's own time left out as for the peer."""
    diagnosis = verdict(name)
    points: list[tuple[float, int]] = []
    begin = time.monotonic()
    text = (HERE / f"{name}.py").read_text()
    wishes = drive.Wishes(jobs=2, threads=2, deadline=begin + seconds)
    found = drive.reduce(
        lab, drive.Program(text, (str(HERE),)), diagnosis, wishes, Journal(folder / "j.sqlite"), folder,
        best=lambda point, text: points.append((time.monotonic() - begin, point.lines)),
    )  # fmt: skip
    print(f"    ours: {found.lines} lines, proven: {found.proven}, {found.tests} scripts tried")
    return points


def verdict(name: str):
    settings = api.Settings(verdict_only=True, fresh=True, runs=tempfile.mkdtemp(prefix="bench-"))
    return api.run({"kind": "script", "name": str(HERE / f"{name}.py"), "args": []}, settings)


def test_of(lab: ScriptLab, name: str) -> Tester:
    """The test that our search would use on the program's own text."""
    diagnosis = verdict(name)
    given = prepare.conditions_of(diagnosis, 2, 60.0)
    start = prepare.start(lab, (HERE / f"{name}.py").read_text(), diagnosis, given)
    return Tester(lab, start.tester.failure, dataclasses.replace(start.tester.conditions))


def cvise(tester: Tester, name: str, seconds: float, folder: Path) -> list[tuple[float, int]]:
    """(seconds, lines) of each script that C-Vise keeps."""
    work = folder / "cvise"
    work.mkdir()
    script, address = work / f"{name}.py", str(folder / "socket")
    shutil.copy(HERE / f"{name}.py", script)
    count = 0

    class Serve(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            nonlocal count
            text = self.rfile.read().decode(errors="replace")
            count += 1
            try:
                compile(text, name, "exec")
                answer = b"1" if tester(text) else b"0"
            except (SyntaxError, ValueError):
                answer = b"0"
            with contextlib.suppress(
                BrokenPipeError
            ):  # it has found another one meanwhile, and does not wait
                self.wfile.write(answer)

    server = socketserver.ThreadingUnixStreamServer(address, Serve)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    test = work / "test.py"
    test.write_text(CLIENT.format(python=sys.executable, address=address, name=script.name))
    test.chmod(0o755)
    command = ["cvise", "--n", "2", "--not-c", "--no-cache", str(test), script.name]
    points = [(0.0, lines_of(script.read_text()))]
    begin = time.monotonic()
    process = subprocess.Popen(
        command, cwd=work, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    while process.poll() is None and time.monotonic() - begin < seconds:
        time.sleep(0.5)
        lines = lines_of(script.read_text())
        if lines != points[-1][1]:
            points.append((time.monotonic() - begin, lines))
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()
    server.shutdown()
    print(f"    C-Vise: {points[-1][1]} lines after {time.monotonic() - begin:.0f} s, {count} scripts tried")
    return points


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--seconds", type=float, default=300.0)
    args = parser.parse_args()
    print(f"{time.strftime('%Y-%m-%d')}, {platform.machine()}, {api.cores()} cores")
    for name in args.names:
        print(name, f"({lines_of((HERE / f'{name}.py').read_text())} lines, limit {args.seconds:.0f} s)")
        folder = Path(tempfile.mkdtemp(prefix="bench-reduce-"))
        lab = ScriptLab(folder / "scripts", api.kernel_store(), sys.executable, path=(str(HERE),))
        try:
            rows = {"ours": ours(lab, name, args.seconds, folder)}
            if shutil.which("cvise"):
                rows["C-Vise"] = cvise(test_of(lab, name), name, args.seconds, folder)
            for who, points in rows.items():
                print(f"    {who:7}", " ".join(f"{lines}@{seconds:.0f}s" for seconds, lines in points))
        finally:
            lab.close()
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
