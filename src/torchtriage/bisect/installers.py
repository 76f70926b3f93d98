"""How an environment is made: the command lines of uv and of pip, and what their failures mean.

No process is started here.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from torchtriage.bisect.sources import Sources

Failure = Literal["network", "disk", "version"]


@dataclass(frozen=True)
class Installer:
    """A name and the two steps: an empty environment, then what goes into it."""

    name: str
    program: str = ""

    def create(self, python: str, folder: Path) -> list[str]:
        if self.name == "uv":
            return [self.program, "venv", "--quiet", "--no-project", "--python", python, str(folder)]
        return [python, "-m", "venv", "--without-pip", str(folder)]

    def install(
        self, python: str, folder: Path, wanted: Sequence[str], files: Sequence[str], where: Sources
    ) -> list[str]:
        inside = str(folder / "bin" / "python")
        if self.name == "uv":
            # The best match over all indexes, as pip does it; uv would else stop at the first that knows the name.
            strategy = ["--index-strategy", "unsafe-best-match"]
            return [
                self.program, "pip", "install", "--python", inside, *where.options(), *strategy,
                *wanted, *(x for file in files for x in ("-r", file)),
            ]  # fmt: skip
        return [
            self.program or python, "-m", "pip", "--python", inside, "install", "--disable-pip-version-check", "--no-input",
            "--progress-bar", "off", *where.options(), *wanted, *(x for file in files for x in ("-r", file)),
        ]  # fmt: skip


def installers(choice: str, with_pip: str = sys.executable) -> tuple[Installer, ...]:
    """Those to try, in order. `choice`: auto, uv, pip; `with_pip`: an interpreter that has pip. Empty where uv is not there."""
    uv = shutil.which("uv") or shutil.which("uv", path=os.path.dirname(sys.executable))
    pip = Installer("pip", with_pip)
    have_uv = [Installer("uv", uv)] if uv else []
    return tuple({"auto": [*have_uv, pip], "uv": have_uv, "pip": [pip]}[choice])


#: What an installer says -> what it means. In this order: a full disk also ends downloads.
SIGNS: tuple[tuple[Failure, str], ...] = (
    ("disk", r"no space left on device|disk quota exceeded|os error 28|errno 28|errno 122|os error 122"),
    (
        "network",
        r"connection (?:refused|reset|aborted|broken|closed)|connect error|error sending request|timed? ?out|"
        r"temporary failure in name resolution|name or service not known|network is unreachable|"
        r"failed to resolve|could not resolve host|dns error|remote end closed|incompleteread|incomplete read|"
        r"newconnectionerror|max retries exceeded|error trying to connect|"
        r"(?:50[0234]|429) (?:server error|bad gateway|service unavailable|gateway|internal|too many)|"
        r"end of file before message|error decoding response body|connection error",
    ),
)


def meaning(said: str) -> Failure:
    """Whether the network, the disk or the version itself is why an installation failed."""
    lower = said.lower()
    return next((failure for failure, sign in SIGNS if re.search(sign, lower)), "version")


#: Lines that say why, best first.
REASONS = (
    r"no matching distribution found.*", r"because .*", r"has no wheels.*", r".*resolutionimpossible.*",
    r".*is not a supported wheel.*", r".*conflict.*", r".*invalid.*", r"error: .*", r".*error.*",
)  # fmt: skip


def reason(said: str, failure: Failure = "version") -> str:
    """One line of what an installer said, the one that tells most of this failure."""
    lines = [re.sub(r"^[\s×│╰─▶├]+", "", line).strip() for line in said.splitlines()]
    causes = [line.partition(":")[2].strip() for line in lines if line.startswith("cause:")]
    lines = [re.sub(r"^cause:\s*", "", line) for line in lines if line]
    if failure == "network":
        sign = dict(SIGNS)[failure]
        return next((plain(line) for line in lines if re.search(sign, line.lower())), "it gives no reason")
    lines = [line for line in lines if not line.lower().startswith("warning")]
    for pattern in REASONS:
        for line in lines:
            if re.match(pattern, line, re.IGNORECASE) or re.match("error: " + pattern, line, re.IGNORECASE):
                last = causes[-1] if causes and line not in causes else ""
                return plain(line) + (f" ({plain(last)})" if last else "")
    return plain(lines[-1]) if lines else "the installer gives no reason"


def plain(line: str) -> str:
    return re.sub(r"^(?:ERROR|error|WARNING|warning):\s*", "", line)[:300]
