"""Reads by URL: whole documents, and files of which only some bytes are wanted. http(s) and file URLs."""

from __future__ import annotations

import http.client
import io
import os
import re
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import IO

from torchtriage import __version__
from torchtriage.bisect.errors import BadInput, Unreachable

TIMEOUT = 30.0
TRIES = 3
CHUNK = 1 << 16
#: Status codes after which another try may help.
PASSING = {408, 425, 429, 500, 502, 503, 504}


def fetch(url: str, accept: str = "*/*", pause: float = 0.5) -> tuple[bytes, str]:
    """(content, content type). Raises Unreachable if nothing answers, BadInput if what answers has no such page."""
    with _open(url, {"Accept": accept}, pause) as answer:
        return read(answer, url), answer.headers.get("Content-Type", "")


def read(answer: IO[bytes], url: str) -> bytes:
    """The rest of an answer. Raises Unreachable where it ends too early."""
    try:
        return answer.read()
    except (OSError, http.client.HTTPException) as error:
        raise Unreachable(f"{shown(url)} stopped in the middle of an answer ({one_line(error)})") from error


def one_line(error: object) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def checked(url: str) -> str:
    """The URL, as it may be sent. Raises BadInput for what is none."""
    try:
        parts = urllib.parse.urlsplit(url)
        good = parts.scheme == "file" or (parts.scheme in ("http", "https") and bool(parts.hostname))
        good = good and (parts.port is None or parts.port < 1 << 16)
    except ValueError:
        good = False
    if not good:
        raise BadInput(
            f"{re.sub('//[^/]*@', '//', url)} is no address: it begins with http://, https:// or file:///"
        )
    return urllib.parse.quote(url, safe="%/:=&?~#+!$,;'@()*[]")


def shown(url: str) -> str:
    """The URL without a password in it."""
    parts = urllib.parse.urlsplit(url)
    if "@" not in parts.netloc:
        return url
    return urllib.parse.urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _open(url: str, headers: dict[str, str], pause: float = 0.5):  # type: ignore[no-untyped-def]
    """The open answer, after a few tries."""
    url = checked(url)
    if urllib.parse.urlsplit(url).scheme == "file":
        return _open_file(url)
    url, login = _without_login(url)
    request = urllib.request.Request(
        url, headers={"User-Agent": f"torchtriage/{__version__}", **headers, **login}
    )
    for attempt in range(TRIES):
        try:
            return urllib.request.urlopen(request, timeout=TIMEOUT, context=trusted())
        except urllib.error.HTTPError as error:
            if error.code not in PASSING:
                raise BadInput(f"{shown(url)} answers {error.code} {one_line(error.reason)}") from error
            reason: object = f"{error.code} {error.reason}"
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
        if attempt + 1 < TRIES:
            time.sleep(pause * 2**attempt)
    raise Unreachable(f"{shown(url)} cannot be reached: {one_line(reason)}")


def trusted() -> ssl.SSLContext:
    """The certificates that pip trusts, where it is told of others than the system's."""
    named = (os.environ.get(name, "") for name in ("PIP_CERT", "REQUESTS_CA_BUNDLE"))
    return ssl.create_default_context(cafile=next(filter(os.path.isfile, named), None))


def _open_file(url: str):  # type: ignore[no-untyped-def]
    """A file, or the page of a folder that is an index."""
    path = urllib.request.url2pathname(urllib.parse.urlsplit(url).path)
    try:
        return urllib.request.urlopen(url + "index.html" if os.path.isdir(path) else url)
    except OSError as error:
        raise BadInput(f"cannot read {path}: {getattr(error, 'reason', error)}") from error


def _without_login(url: str) -> tuple[str, dict[str, str]]:
    """The URL and, where it carries a user and password, the header for them."""
    parts = urllib.parse.urlsplit(url)
    if "@" not in parts.netloc:
        return url, {}
    import base64

    user, _, host = parts.netloc.rpartition("@")
    mark = base64.b64encode(urllib.parse.unquote(user).encode()).decode()
    return urllib.parse.urlunsplit(parts._replace(netloc=host)), {"Authorization": f"Basic {mark}"}


class Ranged(io.RawIOBase):
    """A seekable file whose bytes are fetched when they are read, a chunk at a time."""

    def __init__(self, url: str):
        self.url = url
        self.at = 0
        self.chunks: dict[int, bytes] = {}
        _, self.length = self._range(0, 1)

    def _range(self, start: int, stop: int) -> tuple[bytes, int]:
        """(bytes start to stop, length of the whole)."""
        with _open(self.url, {"Range": f"bytes={start}-{stop - 1}", "Accept-Encoding": "identity"}) as answer:
            total = answer.headers.get("Content-Range", "").rpartition("/")[2]
            if getattr(answer, "status", None) != 206 or not total.isdigit():
                raise BadInput(f"{shown(self.url)} does not give parts of files")
            return read(answer, self.url), int(total)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self.at = {os.SEEK_SET: 0, os.SEEK_CUR: self.at, os.SEEK_END: self.length}[whence] + offset
        return self.at

    def readinto(self, buffer) -> int:  # type: ignore[no-untyped-def]
        start, stop = self.at, min(self.at + len(buffer), self.length)
        if start >= stop:
            return 0
        data = self._bytes(start, stop)
        buffer[: len(data)] = data
        self.at += len(data)
        return len(data)

    def _bytes(self, start: int, stop: int) -> bytes:
        first, last = start // CHUNK, (stop - 1) // CHUNK
        missing = [i for i in range(first, last + 1) if i not in self.chunks]
        if missing:  # one request for the whole stretch
            begin, end = missing[0] * CHUNK, min((missing[-1] + 1) * CHUNK, self.length)
            data, _ = self._range(begin, end)
            for number in range(missing[0], missing[-1] + 1):
                self.chunks[number] = data[(number - missing[0]) * CHUNK : (number - missing[0] + 1) * CHUNK]
        whole = b"".join(self.chunks[i] for i in range(first, last + 1))
        return whole[start - first * CHUNK : stop - first * CHUNK]


def open_ranged(url: str) -> IO[bytes]:
    """A binary file for a wheel by URL or path."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme in ("", "file"):
        try:
            return open(urllib.request.url2pathname(parts.path), "rb")
        except OSError as error:
            raise BadInput(f"cannot read {parts.path}: {error.strerror}") from error
    return io.BufferedReader(Ranged(url), CHUNK)
