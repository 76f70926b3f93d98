"""Writing the reports of a diagnosis into a folder, each whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from torchtriage.model.diagnosis import Diagnosis
from torchtriage.report import html, jsonout, markdown

#: key -> file name and renderer. A further report is a further row.
REPORTS = {
    "html": ("report.html", html.render),
    "md": ("report.md", markdown.render),
    "json": ("report.json", jsonout.render),
}


def write_all(diagnosis: Diagnosis, folder: Path) -> dict[str, Path]:
    """Write every report into the folder, which is made if need be. Gives key -> path."""
    texts = {key: (folder / name, render(diagnosis)) for key, (name, render) in REPORTS.items()}
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in texts.values():
        write(path, text)
    return {key: path for key, (path, _) in texts.items()}


def write(path: Path, text: str) -> None:
    """Replace the file in one step: a reader sees the old text or the new one, never a part."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("w", encoding="utf-8", errors="replace", newline="\n") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
