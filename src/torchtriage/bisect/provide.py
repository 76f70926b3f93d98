"""Gives the interpreter of a version: lists the versions, makes environments in the store, or builds commits."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import packaging
from packaging.tags import Tag, parse_tag
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from torchtriage.bisect.checkout import Checkout
from torchtriage.bisect.companions import matching
from torchtriage.bisect.environments import Environment, Store, Wanted
from torchtriage.bisect.errors import BadInput
from torchtriage.bisect.installers import installers
from torchtriage.bisect.requirements import Beside, beside, name_of, read_lines, text_of
from torchtriage.bisect.sources import Sources, pip_configuration, sources
from torchtriage.bisect.versions import (
    Candidate,
    Interpreter,
    Listing,
    Wheel,
    between,
    choose,
    date_named,
    listed,
    read_folder,
    read_index,
)

if TYPE_CHECKING:
    from torchtriage.bisect.run import Settings

#: Asked of the interpreter that environments are made with, which need not be ours; the argument is where packaging is.
TAGS = """
import importlib.util, json, platform, sys
has_pip = importlib.util.find_spec("pip") is not None
try:
    from importlib.metadata import version
    torch = version("torch")
except Exception:
    torch = ""
sys.path.append(sys.argv[1])
from packaging.tags import sys_tags
print(json.dumps([platform.python_version(), [str(t) for t in sys_tags()], torch, has_pip]))
"""


class Provider:
    """The versions from the good end to the bad end, and an interpreter for each. Raises BadInput, Unreachable."""

    def __init__(self, settings: Settings, folder: Path, note: Callable[[str], None]):
        self.settings, self.note = settings, note
        self.python = os.path.abspath(shutil.which(settings.python or sys.executable) or sys.executable)
        self.sources = self._sources()
        self.checkout = self._checkout(folder)
        self.by_commit = self.checkout is not None and self._names_commits(self.checkout)
        self.listing = Listing((), {})
        self.candidates: tuple[Candidate, ...] = ()
        self.interpreter, self.own_torch = self._interpreter()
        self.beside = self._beside(folder)
        self.wheels: dict[str, list[Wheel]] = {}
        self.installs: dict[str, Environment] = {}
        self.asked: dict[str, Wanted] = {}
        self.store = Store(
            store_folder(settings.store),
            self.sources,
            self._installers(),
            settings.store_limit,
            note,
            self._reach,
        )
        self.versions = self._versions()

    def _checkout(self, folder: Path) -> Checkout | None:
        s = self.settings
        if not s.checkout:
            return None
        found = Checkout(Path(s.checkout).absolute(), s.build, Path(self.python), memory=folder / "checkout")
        found.check()
        return found

    def _names_commits(self, checkout: Checkout) -> bool:
        """Whether the ends are revisions. A tag may look like a version; of torch, versions come first."""
        ends = (self.settings.good, self.settings.bad)
        if not all(map(is_version, ends)):
            return True
        return canonicalize_name(self.settings.package) != "torch" and all(map(checkout.has, ends))

    # --- what there is ----------------------------------------------------------------------------

    def _sources(self) -> Sources:
        s = self.settings
        folder = str(Path(s.folder).absolute()) if s.folder else ""
        configuration = pip_configuration(self.python)
        return sources(configuration, s.index, s.extra, s.links, s.cuda, s.nightly, folder)

    def _installers(self):  # type: ignore[no-untyped-def]
        found = installers(self.settings.installer, self.python if self.has_pip else sys.executable)
        if not found:
            raise BadInput("--installer uv: there is no uv on the PATH")
        return found

    def _interpreter(self) -> tuple[Interpreter, str]:
        ours = str(Path(packaging.__file__).parent.parent)
        done = subprocess.run(
            [self.python, "-c", TAGS, ours], capture_output=True, text=True, check=False, timeout=120
        )
        try:
            version, tags, torch, self.has_pip = json.loads(done.stdout)
        except ValueError as error:
            raise BadInput(
                f"{self.python} cannot say which wheels fit it: {done.stderr.strip()[-200:]}"
            ) from error
        flat: list[Tag] = [tag for text in tags for tag in parse_tag(text)]
        return Interpreter(version, tuple(flat)), torch

    def _beside(self, folder: Path) -> Beside:
        s = self.settings
        hold = s.hold
        named = [*hold, *s.further, *(line for file in s.files for line in read_lines(Path(file)))]
        if canonicalize_name(s.package) != "torch" and self.own_torch and "torch" not in map(name_of, named):
            hold = (*hold, f"torch=={self.own_torch.partition('+')[0]}")
        return beside(s.package, s.further, s.files, hold, folder)

    def _versions(self) -> tuple[str, ...]:
        s = self.settings
        first, last = (s.good, s.bad) if s.find == "regression" else (s.bad, s.good)
        if self.by_commit:
            assert self.checkout is not None
            found = self.checkout.commits(first, last)
        else:
            self.listing = self._listing()
            try:
                self.candidates = between(self.listing, first, last)
            except BadInput as error:
                raise BadInput(self._with_hint(str(error), first, last)) from error
            found = tuple(c.version for c in self.candidates)
        return found if s.find == "regression" else found[::-1]

    def _listing(self) -> Listing:
        s = self.settings
        if s.versions:
            return listed(text_of(s.versions[1:]) if s.versions.startswith("@") else s.versions)
        pre = s.prereleases or self.sources.nightlies or any(is_prerelease(v) for v in (s.good, s.bad))
        return choose(self._wheels(s.package), self.interpreter, pre)

    def _wheels(self, package: str) -> list[Wheel]:
        """All wheels of a package, from the folder or the index, with those of the further indexes."""
        if package not in self.wheels:
            if self.sources.folder:
                found = read_folder(Path(self.sources.folder), package)
            else:
                found = read_index(self.sources.index, package)
                for link in self.sources.links if not self.sources.given else ():
                    if Path(link).is_dir():
                        found += read_folder(Path(link), package)
            self.wheels[package] = found
        return self.wheels[package]

    def _reach(self) -> None:
        """Raises Unreachable where the index does not answer."""
        if not self.sources.folder:
            with contextlib.suppress(BadInput):
                read_index(self.sources.index, self.settings.package)

    def _with_hint(self, said: str, first: str, last: str) -> str:
        s = self.settings
        if "is newer than" in said:
            hint = "--find fix" if s.find == "regression" else "no --find fix"
            return f"{said}: to look for {'a fix' if s.find == 'regression' else 'a regression'}, use {hint}"
        if self.sources.nightlies and "out of reach" in said:
            return (
                f"{said}. A nightly index keeps only the newest two months or so; releases reach further back"
            )
        return said

    # --- environments -----------------------------------------------------------------------------

    def wanted(self, version: str) -> Wanted:
        """What the environment of a version holds. Raises CannotInstall where no companion goes with it."""
        if version not in self.asked:
            torch = next((w for w in self.wheels.get("torch", ()) if str(w.version) == version), None)
            matched = [matching(name, self._companion(name), torch, version) for name in self.beside.matched]
            extras = f"[{','.join(self.beside.extras)}]" if self.beside.extras else ""
            name = self.settings.package + extras
            own = f"{name}=={version}"
            if self.sources.folder and self.url(
                version
            ):  # an index may have the same version, built otherwise
                own = f"{name} @ {self.url(version)}"
            self.asked[version] = Wanted(
                (own, *matched, *self.beside.fixed),
                self.beside.files,
                self.python,
            )
        return self.asked[version]

    def _companion(self, name: str) -> list[Wheel]:
        ranked = set(self.interpreter.tags)
        return [w for w in self._wheels(name) if not w.yanked and w.tags & ranked]

    def prepare(self, version: str) -> Path:
        """The interpreter of this version. Raises CannotInstall for a skip, Stopped or Unreachable."""
        if self.by_commit:
            assert self.checkout is not None
            return self.checkout.prepare(version)
        wanted = self.wanted(version)
        begin = time.monotonic()
        if not self.store.has(wanted):
            self.note(f"{version}: installing")
        mean = [c.size for c in self.candidates if c.version == version]
        environment = self.store.get(wanted, 3 * (mean[0] if mean else 0))
        if environment.made:
            self.installs[version] = environment
            self.note(
                f"{version}: installed with {environment.installer} in {time.monotonic() - begin:.0f} s, "
                f"{environment.bytes / 1e6:.0f} MB"
            )
        else:
            self.installs.setdefault(version, environment)
        return environment.python

    def is_made(self, version: str) -> bool:
        """Whether its environment is in the store; companions are not looked up for this."""
        if self.by_commit or self.beside.matched:
            return False
        return self.store.has(self.wanted(version))

    def url(self, version: str) -> str:
        """Where the wheel of a version is; empty if it is not known."""
        return next((c.url for c in self.candidates if c.version == version), "")

    def close(self) -> None:
        self.store.close()


def store_folder(named: str) -> Path:
    """Below TORCHTRIAGE_CACHE, unless another place was named."""
    home = os.environ.get("TORCHTRIAGE_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "torchtriage"
    )
    return Path(named or os.path.join(home, "environments")).absolute()


def is_version(word: str) -> bool:
    try:
        Version(word)
    except InvalidVersion:
        return False
    return True


def is_prerelease(word: str) -> bool:
    """Whether a version is one, or is named by the date of one."""
    return bool(date_named(word)) or (is_version(word) and Version(word).is_prerelease)
