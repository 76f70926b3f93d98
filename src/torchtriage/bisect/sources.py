"""Where packages come from: what was given on the command line, else what pip is configured with, else PyPI."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

PYPI = "https://pypi.org/simple"
NIGHTLY = "https://download.pytorch.org/whl/nightly"
RELEASES = "https://download.pytorch.org/whl"


@dataclass(frozen=True)
class Sources:
    """Indexes and folders, the first index being the one that is asked for versions."""

    index: str = PYPI
    extra: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    """Folders or pages of wheels (--find-links)."""
    given: bool = False
    """Whether the index was named by the user, and not taken from pip's configuration."""
    nightlies: bool = False
    folder: str = ""
    """A folder of wheels in place of an index for the package that is bisected."""

    def options(self) -> list[str]:
        """What pip and uv both take."""
        found = ["--index-url", self.index]
        for extra in self.extra:
            found += ["--extra-index-url", extra]
        for link in (*([self.folder] if self.folder else []), *self.links):
            found += ["--find-links", address(link)]
        return found


def address(link: str) -> str:
    """A folder as a URL, for uv takes a space in a path for the end of it."""
    return Path(link).absolute().as_uri() if Path(link).is_dir() else link


def sources(
    configuration: Mapping[str, str],
    index: str = "",
    extra: tuple[str, ...] = (),
    links: tuple[str, ...] = (),
    cuda: str = "",
    nightly: bool = False,
    folder: str = "",
) -> Sources:
    """`cuda` (cu128, cpu, rocm6.4) names PyTorch's index of that flavour, nightly or not; PyPI then gives the rest."""
    own = configuration.get("index-url", PYPI)
    found = Sources(
        index=own,
        extra=(*extra, *configuration.get("extra-index-url", "").split()),
        links=(*links, *configuration.get("find-links", "").split()),
        folder=folder,
    )
    if cuda or nightly:
        base = NIGHTLY if nightly else RELEASES
        return replace(
            found,
            index=index or f"{base}/{cuda or 'cpu'}",
            extra=(*extra, own),
            given=True,
            nightlies=nightly,
        )
    if index:
        return replace(found, index=index, extra=extra, links=links, given=True, nightlies="nightly" in index)
    return found


def pip_configuration(python: str, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """`index-url`, `extra-index-url`, `find-links` as pip has them; empty where there is no pip."""
    try:
        done = subprocess.run(
            [python, "-m", "pip", "config", "list"],
            capture_output=True, text=True, timeout=60, check=False, env=dict(environment),
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return {}
    return read_configuration(done.stdout)


def read_configuration(text: str) -> dict[str, str]:
    """From lines such as `global.index-url='https://...'`: the environment's win over install's, those over global's."""
    found: dict[str, tuple[int, str]] = {}
    ranks = {"global": 0, "install": 1, ":env:": 2}
    for line in text.splitlines():
        key, equal, value = line.partition("=")
        section, _, name = key.strip().partition(".")
        if not equal or section not in ranks:
            continue
        name = name.lower()
        try:
            plain = " ".join(shlex.split(value)).replace("\\n", " ")
        except ValueError:
            continue
        if name not in found or ranks[section] >= found[name][0]:
            found[name] = (ranks[section], plain)
    return {name: value for name, (_, value) in found.items()}


__all__ = ["Sources", "pip_configuration", "read_configuration", "sources"]
