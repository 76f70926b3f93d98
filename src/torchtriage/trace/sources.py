"""Where traces come from: a file, a folder of many ranks, `.gz`, `.zst`, `.xz`, `.zip`, a URL. Names and bytes, no records.

A compressed or remote log is unpacked once into a scratch folder, so that any record can be read again by its
offset. Only what the caller named is opened: never a path that a trace mentions.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import importlib
import io
import lzma
import os
import re
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import IO, Any, cast

from torchtriage.trace import torn_zip
from torchtriage.trace.records import HEADER, Problem

CHUNK = 1 << 20
SNIFF = 256 << 10
LONGEST_UNPACKED = 64 << 30
#: Seconds within which the ranks of one run begin to write.
TOGETHER = 600.0
RANK = re.compile(r"(?:^|[^a-zA-Z])rank[_-]?(\d{1,6})(?!\d)")
ZIP = b"PK\x03\x04"
#: How a packed file begins -> the name of its packing.
MAGIC = {b"\x1f\x8b": "gz", b"\x28\xb5\x2f\xfd": "zst", b"\xfd7zXZ\0": "xz", b"BZh": "bz2"}
#: What reading a damaged container can raise.
DAMAGE = (
    OSError,
    EOFError,
    zlib.error,
    lzma.LZMAError,
    zipfile.BadZipFile,
    ValueError,
    NotImplementedError,
    RuntimeError,
)


class NotATrace(Exception):
    """Nothing at the given place can be read as a trace. The message is one line for the user."""


@dataclass(frozen=True, slots=True)
class Source:
    """One log before it is read. `member` is its name inside a zip archive."""

    name: str
    path: str
    member: str = ""
    packing: str = ""
    """`gz`, `zst`, `xz`, `bz2`, `url` or empty: what has to be undone on the way."""
    offset: int = -1
    """Where the member begins in an archive that was cut off and has no directory."""

    @property
    def rank(self) -> int | None:
        """The rank that the name gives: in `…rank_3_x.log`, or in a folder `rank_3/` nearest to it."""
        for part in reversed(re.split(r"[/\\]", self.name)):
            found = RANK.search(part)
            if found:
                return int(found[1])
        return None


def discover(place: str) -> tuple[tuple[Source, ...], tuple[str, ...]]:
    """All logs at a place, sorted by rank and name, and the names that were passed over. Raises NotATrace."""
    if "://" in place:
        return _order(_remote(place)), ()
    path = Path(place)
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        raise NotATrace(f"{place}: {getattr(error, 'strerror', None) or error}") from error
    if stat.S_ISDIR(mode):
        return _folder(path)
    if not stat.S_ISREG(mode):
        raise NotATrace(f"{place}: neither a file nor a folder")
    if path.stat().st_size == 0:
        raise NotATrace(f"{place}: the file is empty")
    found = list(_expand(path, path.name, named=True))
    if not found:
        raise NotATrace(f"{place}: an archive without a TORCH_TRACE log")
    return _order(found), ()


def _folder(path: Path) -> tuple[tuple[Source, ...], tuple[str, ...]]:
    found: list[Source] = []
    passed: list[str] = []
    for root, folders, files in os.walk(path):
        folders.sort()
        for file in sorted(files):
            full = Path(root, file)
            name = full.relative_to(path).as_posix()
            try:
                regular = stat.S_ISREG(full.stat().st_mode)
                here = list(_expand(full, name)) if regular else []
            except OSError:
                here = []
            found.extend(here)
            if not here:
                passed.append(name)
    if not found:
        many = f"{len(passed)} files, none of them has" if passed else "an empty folder: no file with"
        raise NotATrace(f"{path}: {many} a TORCH_TRACE record. Was the program run with TORCH_TRACE={path}?")
    return _order(found), tuple(passed)


def newest(sources: Sequence[Source]) -> tuple[Source, ...]:
    """The log that was written last; where it is of a rank, the logs of all ranks of the same run.

    Ranks of one run begin at about the same time: that tells their logs from those of earlier runs.
    """
    by_time = sorted(sources, key=lambda s: 0.0 if s.packing == "url" else os.path.getmtime(s.path))
    last = by_time[-1]
    if last.rank is None:
        return (last,)
    begun = _begun(last)
    ranks = {s.rank: s for s in by_time if s.rank is not None and abs(_begun(s) - begun) <= TOGETHER}
    return _order(list(ranks.values()))


def _begun(source: Source) -> float:
    """Seconds from the beginning of the year to the first record; records name no year."""
    match = HEADER.search(peek(source))
    try:
        stamp = b" ".join(match.group(1, 2)).decode("ascii") if match else ""
        return (
            datetime.strptime(f"2000{stamp}", "%Y%m%d %H:%M:%S.%f") - datetime(2000, 1, 1)
        ).total_seconds()
    except ValueError:
        return 0.0


def _order(found: list[Source]) -> tuple[Source, ...]:
    return tuple(sorted(found, key=lambda s: (s.rank is None, s.rank or 0, s.name)))


def _expand(path: Path, name: str, named: bool = False) -> Iterator[Source]:
    """The logs in one local file: itself, unpacked, or the members of an archive.

    A file that the user named is read to its end before it is called something else.
    """
    with path.open("rb") as file:
        magic = file.read(6)
    if magic.startswith(ZIP):
        try:
            archive = zipfile.ZipFile(path)
        except DAMAGE:
            yield from _torn(path, name)
            return
        try:
            with archive:
                for info in archive.infolist():
                    if info.is_dir():
                        continue
                    with archive.open(info) as member:
                        head = member.read(SNIFF)
                    packing = _packing(head)
                    if packing or looks_like_trace(head):
                        yield Source(f"{name}/{info.filename}", str(path), info.filename, packing)
        except DAMAGE:
            return
        return
    packing = _packing(magic)
    source = Source(name, str(path), packing=packing)
    if named or looks_like_trace(peek(source)):
        yield source


def _torn(path: Path, name: str) -> Iterator[Source]:
    """The logs in an archive without a directory."""
    for member, offset in torn_zip.members(path):
        source = Source(f"{name}/{member}", str(path), member, "", offset)
        head = peek(source)
        packing = _packing(head)
        if packing or looks_like_trace(head):
            yield replace(source, packing=packing)


def _packing(head: bytes) -> str:
    return next((name for magic, name in MAGIC.items() if head.startswith(magic)), "")


def looks_like_trace(head: bytes) -> bool:
    return HEADER.search(head) is not None


def peek(source: Source) -> bytes:
    """The first bytes of a log, unpacked; fewer where the container is damaged."""
    head = b""
    try:
        with closing(_stream(source)) as stream:
            for piece in _pieces(stream):
                head += piece
                if len(head) >= SNIFF:
                    break
    except DAMAGE:
        pass
    return head


def _pieces(stream: IO[bytes]) -> Iterator[bytes]:
    """One read of the underlying stream at a time: what was unpacked before an error is not lost with it."""
    read = getattr(stream, "read1", stream.read)
    return iter(partial(read, CHUNK), b"")


def _stream(source: Source) -> IO[bytes]:
    """The unpacked bytes of a log, from its beginning."""
    raw: Any
    if source.packing == "url":
        raw = _fsspec().open(source.path, "rb", compression="infer").open()
    elif source.offset >= 0:
        raw = torn_zip.Member(source.path, source.offset)
    elif source.member:
        raw = zipfile.ZipFile(source.path).open(source.member)  # noqa: SIM115
    else:
        raw = open(source.path, "rb")  # noqa: SIM115
    unpack = UNPACKERS.get(source.packing)
    return cast("IO[bytes]", unpack(raw) if unpack else raw)


def _zstandard(raw: IO[bytes]) -> Any:
    try:
        zstd = importlib.import_module("compression.zstd")  # Python 3.14
        return zstd.open(raw, "rb")
    except ImportError:
        pass
    try:
        zstandard = importlib.import_module("zstandard")
    except ImportError as error:
        raise NotATrace("a .zst log needs the package zstandard: pip install zstandard") from error
    reader = zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True)
    return io.BufferedReader(reader)


#: packing -> what unpacks a stream of it.
UNPACKERS: dict[str, Callable[[Any], Any]] = {
    "gz": lambda raw: gzip.GzipFile(fileobj=raw),
    "zst": _zstandard,
    "xz": lzma.LZMAFile,
    "bz2": bz2.BZ2File,
}


def _fsspec() -> Any:
    try:
        return importlib.import_module("fsspec")
    except ImportError as error:
        raise NotATrace("a URL needs the package fsspec: pip install fsspec") from error


def _remote(url: str) -> list[Source]:
    fsspec = _fsspec()
    try:
        system, path = fsspec.core.url_to_fs(url)
        paths = system.find(path) if system.isdir(path) else [path]
        urls = [system.unstrip_protocol(p) for p in paths]
    except Exception as error:  # a file system of someone else may raise anything
        raise NotATrace(f"{url}: {type(error).__name__}: {error}") from error
    if not urls:
        raise NotATrace(f"{url}: nothing is there")
    root = path.rstrip("/")
    names = [p[len(root) :].lstrip("/") or p.rpartition("/")[2] for p in paths]
    return [Source(name, u, packing="url") for name, u in zip(names, urls, strict=True)]


def materialise(source: Source, scratch: str) -> tuple[str, list[Problem]]:
    """The path of a plain file with the unpacked log, and what could not be unpacked. Raises NotATrace."""
    if not source.packing and not source.member:
        return source.path, []
    label = hashlib.sha256(f"{source.path}|{source.member}|{source.offset}".encode()).hexdigest()[:24]
    target = os.path.join(scratch, f"{label}.log")
    written = 0
    problems: list[Problem] = []
    with open(target, "wb") as out:
        try:
            with closing(_stream(source)) as stream:
                for chunk in _pieces(stream):
                    out.write(chunk)
                    written += len(chunk)
                    if written > LONGEST_UNPACKED:
                        raise ValueError(f"it unpacks to more than {LONGEST_UNPACKED >> 30} GiB")
        except NotATrace:
            raise
        except Exception as error:  # damaged containers and remote file systems may raise anything
            detail = (
                f"the container is damaged after {written} unpacked bytes: {error or type(error).__name__}"
            )
            problems.append(Problem(written, 0, "container", detail))
    return target, problems


def scratch_folder() -> tempfile.TemporaryDirectory[str]:
    """Where unpacked logs live for as long as the trace that was read from them."""
    return tempfile.TemporaryDirectory(prefix="torchtriage-trace-", ignore_cleanup_errors=True)
