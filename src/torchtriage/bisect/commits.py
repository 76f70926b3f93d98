"""The commit that a wheel was built from, without downloading it, and the commit on main that a nightly stands for."""

from __future__ import annotations

import re
import subprocess
import zipfile
from dataclasses import dataclass

from torchtriage.bisect.errors import BadInput, Unreachable
from torchtriage.bisect.network import open_ranged

VERSION_FILE = "torch/version.py"
#: The subject of a commit on PyTorch's nightly branch: "2025-11-20 nightly release (<commit on main>)".
SUBJECT = re.compile(r"nightly release \(([0-9a-f]{40})\)")


@dataclass(frozen=True)
class Commit:
    """A commit, and in a few words where it comes from or why there is none."""

    sha: str = ""
    note: str = ""


def commit_of_wheel(url: str) -> Commit:
    """`git_version` from the wheel's torch/version.py, read in place: about 1 MB of hundreds."""
    try:
        with open_ranged(url) as file, zipfile.ZipFile(file) as archive:
            text = archive.read(VERSION_FILE).decode("utf-8", "replace")
    except KeyError:
        return Commit(note=f"the wheel has no {VERSION_FILE}")
    except (BadInput, Unreachable, OSError, zipfile.BadZipFile) as error:
        return Commit(note=f"the wheel could not be read: {error}")
    return Commit(*in_version_file(text))


def in_version_file(text: str) -> tuple[str, str]:
    """(sha, note) from the text of torch/version.py."""
    match = re.search(r"""git_version\s*=\s*['"]([0-9a-f]{40})['"]""", text)
    return (match.group(1), "") if match else ("", f"{VERSION_FILE} names no commit")


def on_main(commit: Commit, nightly: bool, checkout: str = "") -> Commit:
    """The commit on main behind a nightly's commit, which lies on the branch `nightly`; others as they are."""
    if not commit.sha or not nightly:
        return commit
    if not checkout:
        return Commit(
            commit.sha,
            "on the branch nightly; not mapped to main, which needs a checkout of PyTorch (--checkout)",
        )
    subject = git(checkout, "log", "-1", "--format=%s", commit.sha)
    if subject is None:
        return Commit(
            commit.sha, f"on the branch nightly; not in {checkout}: `git fetch origin nightly` there first"
        )
    match = SUBJECT.search(subject)
    if match is None:
        return Commit(commit.sha, f"its subject names no commit on main: {subject.strip()!r}")
    return Commit(match.group(1), f"on main, by the subject of {commit.sha[:12]} on nightly")


def git(checkout: str, *args: str) -> str | None:
    """What git prints; None where it fails."""
    try:
        done = subprocess.run(
            ["git", "-C", checkout, *args], capture_output=True, text=True, check=False, timeout=600
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def span(older: Commit, newer: Commit, checkout: str = "") -> str:
    """`older..newer`, with the number of commits where a checkout can tell."""
    if not older.sha or not newer.sha:
        return ""
    text = f"{older.sha}..{newer.sha}"
    counted = git(checkout, "rev-list", "--count", text) if checkout else None
    if not counted:
        return text
    return f"{text} ({counted.strip()} commit{'' if counted.strip() == '1' else 's'})"
