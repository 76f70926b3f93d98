"""Collects what a maintainer asks for beside a reproducer: torch's trace, logs of the failing compilation, the environment."""

from __future__ import annotations

import hashlib
import os
import re
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


def make_bundle(
    lab: ScriptLab, folder: Path, script: str, issue: str, command: str, private: bool = False
) -> Path:
    """Run the script once with torch's trace and once for each log, and put all into one archive.

    `private`: without the paths of this machine, and without the command, which names the program.
    """
    work = Path(tempfile.mkdtemp(prefix="repro-"))  # a neutral place: its path is in every log
    (work / "trace").mkdir(parents=True)
    (work / "repro.py").write_text(script)
    (work / "issue.md").write_text(issue)
    commands = [*([] if private else [f"# made by: {command}"]), "python repro.py"]
    run(lab, work, {"TORCH_TRACE": str(work / "trace")}, "output.txt")
    commands.append("TORCH_TRACE=trace python repro.py")
    for name in LOGS:
        run(lab, work, {"TORCH_LOGS": name}, f"log-{name}.txt")
        commands.append(f"TORCH_LOGS={name} python repro.py 2> log-{name}.txt")
    environment(lab, work / "environment.txt")
    commands.append("python -m torch.utils.collect_env > environment.txt")
    (work / "commands.txt").write_text("\n".join(commands) + "\n")
    if private:
        hide_paths(work, own_paths(lab.python))
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


# --- paths of this machine -----------------------------------------------------------------------------------


def own_paths(python: str) -> dict[str, str]:
    """What a path of this machine begins with, the longest first -> what stands in its place."""
    prefix = Path(python or sys.executable).parent.parent
    known = {str(prefix): "PYTHON", str(prefix.resolve()): "PYTHON", sys.base_prefix: "PYTHON"}
    known |= {str(Path.home()): "HOME", os.getcwd(): "FOLDER"}
    return {path: known[path] for path in sorted(known, key=len, reverse=True) if len(path) > 1}


def hide_paths(work: Path, known: dict[str, str]) -> None:
    """Replace paths in every file below a folder; in torch's traces the hashes of payloads are made anew."""
    for path in work.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            in_trace = path.parent.name == "trace"
            path.write_bytes(hidden_in_trace(data, known) if in_trace else hidden(data, known))


def hidden(data: bytes, known: dict[str, str]) -> bytes:
    for path, word in known.items():
        data = re.sub(re.escape(path.encode()) + rb"(?![\w.-])", word.encode(), data)
    return data


def hidden_in_trace(data: bytes, known: dict[str, str]) -> bytes:
    """A header line that announces the MD5 of its payload, the lines after it that begin with a tab, is mended."""
    out: list[bytes] = []
    for record in re.split(rb"(?m)^(?=V\d{4} )", hidden(data, known)):
        head, newline, body = record.partition(b"\n")
        payload = b"\n".join(line[1:] for line in body.split(b"\n") if line.startswith(b"\t"))
        digest = hashlib.md5(payload, usedforsecurity=False).hexdigest().encode()
        out.append(
            re.sub(rb'("has_payload": ")[0-9a-f]{32}"', rb"\g<1>" + digest + b'"', head) + newline + body
        )
    return b"".join(out)
