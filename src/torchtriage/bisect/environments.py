"""The store of environments: one folder for each set of packages, made once, used again, within a limit of space.

An environment counts as whole only once its mark is there, and the mark is written last under another name and then
renamed. It is made at its final place because the scripts in `bin` carry that path; what has no mark is begun anew.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from torchtriage.bisect.errors import BadInput, CannotInstall, Stopped, Unreachable
from torchtriage.bisect.installers import Installer, meaning, reason
from torchtriage.bisect.sources import Sources

MARK = "torchtriage.json"
#: Names of environments. The store may lie in a folder that has other things in it, and those are left alone.
KEY = re.compile(r"[0-9a-f]{16}")
#: Free bytes below which nothing is installed.
SPARE = 200 << 20


@dataclass(frozen=True)
class Wanted:
    """What an environment holds."""

    requirements: tuple[str, ...]
    """As `torch==2.13.0`, the version that is tried first."""
    files: tuple[str, ...] = ()
    """Requirement files."""
    python: str = "python3"
    """The interpreter that it is made with."""

    def key(self, where: Sources) -> str:
        texts = [Path(file).read_text() for file in self.files]
        wheels = [stamp(text) for text in self.requirements]
        plain = [
            self.requirements,
            wheels,
            texts,
            os.path.realpath(self.python),
            where.index,
            where.extra,
            where.folder,
            where.links,
        ]
        return hashlib.sha256(json.dumps(plain, default=list).encode()).hexdigest()[:16]


def stamp(requirement: str) -> list[int]:
    """Size and time of a wheel that is named as a file: another build of the same name is another wheel."""
    _, _, url = requirement.partition(" @ file://")
    try:
        found = os.stat(urllib.request.url2pathname(url)) if url else None
    except OSError:
        found = None
    return [found.st_size, found.st_mtime_ns] if found else []


@dataclass(frozen=True)
class Environment:
    """A whole environment."""

    folder: Path
    python: Path
    bytes: int = 0
    seconds: float = 0.0
    """What it took to make; 0 where it was there already."""
    installer: str = ""
    made: bool = False
    """Whether this run made it."""


class Store:
    """Environments below one folder. Safe for several threads and processes."""

    def __init__(
        self,
        folder: Path,
        where: Sources,
        choice: Sequence[Installer],
        limit: int = 0,
        note: Callable[[str], None] = lambda text: None,
        reach: Callable[[], None] = lambda: None,
    ):
        self.folder, self.where, self.limit, self.note = folder, where, limit, note
        self.choice = list(choice)
        self.reach = reach
        """Raises Unreachable where the index does not answer: pip takes such an index for an empty one, and says nothing."""
        self.lock = threading.Lock()
        self.used: dict[str, int] = {}
        """Environments that this run needs, with the shared lock (a file descriptor) that keeps others from removing them."""
        self.over = False
        """Whether it was told that they take more than the limit."""
        self.processes: set[subprocess.Popen[str]] = set()
        self.closed = False

    def get(self, wanted: Wanted, expected: int = 0) -> Environment:
        """The environment, made if it is not there. `expected`: bytes that it is likely to take.

        Raises CannotInstall for a skip, Unreachable or Stopped where network or disk are in the way.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInput(
                f"cannot make the store of environments {self.folder}: {error.strerror}"
            ) from error
        key = wanted.key(self.where)
        while True:
            with self._locked(key) as (lock, alone):
                known = self._whole(key)
                if known is not None:
                    os.utime(known.folder / MARK)
                elif alone:
                    self._make_room(expected)
                    known = self._make(key, wanted, lock)
                if known is not None and self._keep(key, lock):
                    return known
            # Whoever was making it has given up, or it was damaged or removed just now.
            self._let_go(key)
            time.sleep(0.1)

    def has(self, wanted: Wanted) -> bool:
        return self._whole(wanted.key(self.where)) is not None

    def close(self) -> None:
        """End the installers that still run; what they were making is begun anew next time."""
        self.closed = True
        for process in list(self.processes):
            with contextlib.suppress(OSError):
                process.kill()
        for key in list(self.used):
            self._let_go(key)

    # --- making ---------------------------------------------------------------------------------

    def _make(self, key: str, wanted: Wanted, held: int) -> Environment:
        folder = self.folder / key
        begin = time.monotonic()
        failure: Exception = CannotInstall("there is no installer")
        for installer in list(self.choice):
            shutil.rmtree(folder, ignore_errors=True)
            try:
                self._run(installer.create(wanted.python, folder), installer, held)
                self._run(
                    installer.install(wanted.python, folder, wanted.requirements, wanted.files, self.where),
                    installer,
                    held,
                )
            except Unreachable as error:
                failure = error
                if installer is not self.choice[-1]:
                    self.note(f"{error}: going on with pip")
                    self.choice.remove(installer)
                continue
            except (CannotInstall, Stopped) as error:
                failure = error
                break
            size = size_of(folder)
            made = Environment(
                folder, folder / "bin" / "python", size, time.monotonic() - begin, installer.name, True
            )
            self._mark(made, wanted)
            return made
        shutil.rmtree(folder, ignore_errors=True)
        raise failure

    def _mark(self, made: Environment, wanted: Wanted) -> None:
        text = json.dumps({**asdict(made), "wanted": asdict(wanted)}, default=str)
        part = made.folder / (MARK + ".part")
        try:
            part.write_text(text)
            os.replace(part, made.folder / MARK)
        except OSError as error:
            raise Stopped(f"cannot finish {made.folder}: {error.strerror}") from error

    def _run(self, command: list[str], installer: Installer, held: int) -> None:
        """Run one step. It inherits the lock: should this process be killed, the next one waits until it has ended."""
        if self.closed:
            raise Stopped("interrupted")
        clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")}
        try:
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                env=clean, start_new_session=True, pass_fds=(held,),
            )  # fmt: skip
        except OSError as error:
            raise BadInput(f"cannot start {command[0]}: {error.strerror}") from error
        self.processes.add(process)
        try:
            said, _ = process.communicate()
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
            self.processes.discard(process)
        if process.returncode == 0:
            return
        if self.closed:
            raise Stopped("interrupted")
        kind = meaning(said)
        if kind == "disk" or (kind == "version" and shutil.disk_usage(self.folder).free < SPARE // 4):
            raise Stopped(f"the disk is full: {self.folder} has no room for another environment")
        if kind == "network":
            raise Unreachable(f"{installer.name} cannot reach the index: {reason(said, kind)}")
        if process.returncode < 0:
            raise Stopped(f"{installer.name} was killed by signal {-process.returncode}")
        self.reach()
        raise CannotInstall(f"{installer.name}: {reason(said)}")

    # --- keeping --------------------------------------------------------------------------------

    def _whole(self, key: str) -> Environment | None:
        folder = self.folder / key
        try:
            known = json.loads((folder / MARK).read_text())
            found = Environment(
                folder, folder / "bin" / "python", int(known["bytes"]), 0.0, str(known["installer"])
            )
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return found if found.python.exists() else None

    def all(self) -> list[tuple[Environment, list[str], float]]:
        """(environment, what is in it, when it was last used as a Unix time), the longest unused first."""
        found = []
        for key in self._keys():
            environment = self._whole(key)
            if environment is None:
                continue
            mark = environment.folder / MARK
            with contextlib.suppress(OSError):  # removed by another process just now
                wanted = json.loads(mark.read_text()).get("wanted", {})
                found.append((environment, list(wanted.get("requirements", [])), mark.stat().st_mtime))
        return sorted(found, key=lambda item: item[2])

    def _keys(self) -> list[str]:
        """Environments and halves of them; what else lies in the folder is not ours."""
        try:
            return sorted(p.name for p in self.folder.iterdir() if KEY.fullmatch(p.name) and p.is_dir())
        except OSError:
            return []

    def clean(self, limit: int) -> tuple[int, int]:
        """(environments removed, bytes): halves first, then the longest unused until all fit in `limit` bytes.

        Those that are in use stay, by this process or another.
        """
        removed = freed = 0
        for key in self._keys():
            if not (self.folder / key / MARK).exists():
                removed += self._remove(key)
        known = self.all()
        total = sum(environment.bytes for environment, _, _ in known)
        for environment, _, _ in known:
            if total <= limit:
                break
            if self._remove(environment.folder.name):
                removed, freed, total = removed + 1, freed + environment.bytes, total - environment.bytes
        return removed, freed

    def _make_room(self, expected: int) -> None:
        """Keep to the limit, and leave the disk some room. Raises Stopped where there is none."""
        with self.lock:
            if self.limit:
                self.clean(max(0, self.limit - expected))
                self._tell_size(expected)
            free = shutil.disk_usage(self.folder).free
            if free < SPARE + expected:
                self.clean(0)
                free = shutil.disk_usage(self.folder).free
        if free < SPARE + expected:
            raise Stopped(
                f"the disk is too full: {free / 1e9:.1f} GB are free at {self.folder}, and the next environment takes "
                f"about {(expected + SPARE) / 1e9:.1f} GB. Make room, or name another place with --store"
            )

    def _tell_size(self, expected: int) -> None:
        """What is in use stays, so that the limit may be exceeded: said once."""
        total = sum(environment.bytes for environment, _, _ in self.all()) + expected
        if total > self.limit and not self.over:
            self.over = True
            self.note(
                f"the environments in use take more than --store-limit ({total / 1e9:.1f} GB with the next one); "
                "they are removed when their place is needed by a later run"
            )

    def _remove(self, key: str) -> bool:
        """Remove one that nobody uses; False if it is used, or cannot be removed."""
        with open(self.folder / f"{key}.lock", "w") as file:
            if not taken(file, fcntl.LOCK_EX):
                return False
            shutil.rmtree(self.folder / key, ignore_errors=True)
            return not (self.folder / key).exists()

    @contextlib.contextmanager
    def _locked(self, key: str) -> Iterator[tuple[int, bool]]:
        """A lock between processes and threads, as a file descriptor, and whether it is ours alone.

        It is not where the environment is in use elsewhere, or was made elsewhere while we waited.
        """
        with open(self.folder / f"{key}.lock", "w") as file:
            if taken(file, fcntl.LOCK_EX):
                yield file.fileno(), True
                return
            if not taken(file, fcntl.LOCK_SH):
                self.note("another process is making this environment: waiting for it")
                fcntl.flock(file, fcntl.LOCK_SH)
            yield file.fileno(), False

    def _keep(self, key: str, lock: int) -> bool:
        """Share the lock for as long as this store is open; False if the environment was removed before that."""
        fcntl.flock(lock, fcntl.LOCK_SH)  # lets go for a moment
        with self.lock:
            if key not in self.used:
                self.used[key] = os.dup(lock)
        return self._whole(key) is not None

    def _let_go(self, key: str) -> None:
        with self.lock:
            if key in self.used:
                os.close(self.used.pop(key))


def taken(file: IO[str], kind: int) -> bool:
    """Whether the lock was to be had at once."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def size_of(folder: Path) -> int:
    """Bytes on disk. A file that is hard-linked into a cache counts in full: it stays if the cache goes."""
    total = 0
    for base, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(base, name)).st_blocks * 512
    return total
