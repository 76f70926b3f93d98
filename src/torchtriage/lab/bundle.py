"""Collects what a maintainer asks for beside a reproducer: torch's trace, logs of the failing compilation, the environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from torchtriage.lab.scripts import ScriptLab

LOGS = ("guards", "dynamic", "perf_hints", "output_code")
LIMIT = 20 << 20
"""Bytes of one file in the bundle; the rest of a longer one is cut."""
NAME = "bundle.zip"


def make_bundle(lab: ScriptLab, folder: Path, script: str, issue: str, command: str) -> Path:
    """Run the script once with torch's trace and once for each log, and put all into one archive."""
    work = Path(tempfile.mkdtemp(prefix="repro-"))  # a neutral place: its path is in every log
    (work / "trace").mkdir(parents=True)
    (work / "repro.py").write_text(script)
    (work / "issue.md").write_text(issue)
    commands = [f"# made by: {command}", "python repro.py"]
    run(lab, work, {"TORCH_TRACE": str(work / "trace")}, "output.txt")
    commands.append("TORCH_TRACE=trace python repro.py")
    for name in LOGS:
        run(lab, work, {"TORCH_LOGS": name}, f"log-{name}.txt")
        commands.append(f"TORCH_LOGS={name} python repro.py 2> log-{name}.txt")
    environment(lab, work / "environment.txt")
    commands.append("python -m torch.utils.collect_env > environment.txt")
    (work / "commands.txt").write_text("\n".join(commands) + "\n")
    archive = folder / NAME
    part = archive.with_suffix(".part")
    with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as out:
        for path in sorted(work.rglob("*")):
            if path.is_file():
                out.write(path, path.relative_to(work))
    part.replace(archive)
    shutil.rmtree(work, ignore_errors=True)
    return archive


def run(lab: ScriptLab, work: Path, more: dict[str, str], output: str) -> None:
    """Run the script as a user does, and keep what it prints."""
    env = lab.plain_environment(f"bundle-cache-{output}") | more
    with open(work / output, "wb") as out:
        try:
            subprocess.run(
                [lab.python, "repro.py"], cwd=work, env=env, stdin=subprocess.DEVNULL, stdout=out,
                stderr=subprocess.STDOUT, timeout=300, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            out.write(b"\n... ended after 300 s ...\n")
    os.truncate(work / output, min(LIMIT, (work / output).stat().st_size))


def environment(lab: ScriptLab, path: Path) -> None:
    """What torch's own collect_env says."""
    with open(path, "wb") as out:
        try:
            subprocess.run(
                [lab.python or sys.executable, "-m", "torch.utils.collect_env"], stdin=subprocess.DEVNULL,
                stdout=out, stderr=subprocess.DEVNULL, timeout=120, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            out.write(b"collect_env did not end within 120 s\n")
