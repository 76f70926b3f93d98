"""Small real wheels and a package index on this machine, for tests that bisect."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.server
import json
import threading
import urllib.parse
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: A stand-in for torch: what it does is set by the constants at its top.
TORCH = '''
import os, random
from torch.version import __version__, git_version
BAD, RATE, DIE, SLOW = {bad!r}, {rate!r}, {die!r}, {slow!r}
if DIE:
    import signal
    os.kill(os.getpid(), signal.SIGSEGV)

def work(x):
    """Fails where this version is bad, with the probability RATE."""
    from torch._dynamo import config
    if BAD and random.random() < RATE and not config.careful:
        raise RuntimeError("boom in pass 17 at 0x7f00: " + __version__)
    return x + 1
'''


@dataclass(frozen=True)
class Fake:
    """One version of the stand-in."""

    version: str
    bad: bool = False
    rate: float = 1.0
    die: bool = False
    slow: float = 0.0
    requires: tuple[str, ...] = ()
    yanked: str = ""
    requires_python: str = ""
    broken: bool = False
    """The wheel is not a zip file."""
    careful: bool = False
    """Default of a config value that prevents the failure."""

    sha: str = ""
    """Its commit; made up where there is none."""

    @property
    def commit(self) -> str:
        return self.sha or hashlib.sha1(self.version.encode()).hexdigest()

    def build(self, folder: Path) -> Path:
        if self.broken:
            path = folder / f"torch-{self.version}-py3-none-any.whl"
            path.write_bytes(b"this is not a zip file")
            return path
        files = {
            "torch/__init__.py": TORCH.format(bad=self.bad, rate=self.rate, die=self.die, slow=self.slow),
            "torch/version.py": f"__version__ = {self.version!r}\ngit_version = {self.commit!r}\n",
            "torch/_dynamo/__init__.py": "",
            "torch/_dynamo/config.py": f"careful = {self.careful!r}\nother = {self.version!r}\n",
        }
        return wheel(folder, "torch", self.version, files, self.requires, self.requires_python)


def wheel(
    folder: Path,
    name: str,
    version: str,
    files: dict[str, str],
    requires: tuple[str, ...] = (),
    python: str = "",
) -> Path:
    """Write a wheel; `files` maps paths in it to their text."""
    info = f"{name}-{version}.dist-info"
    metadata = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}"]
    metadata += [f"Requires-Dist: {text}" for text in requires]
    metadata += [f"Requires-Python: {python}"] if python else []
    files = {
        **files,
        f"{info}/METADATA": "\n".join(metadata) + "\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = ""
    for path, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        record += f"{path},sha256={digest},{len(text.encode())}\n"
    files[f"{info}/RECORD"] = record + f"{info}/RECORD,,\n"
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name_, text in files.items():
            archive.writestr(name_, text)
    return path


@dataclass
class Index:
    """A running index. `form`: html or json. `dies_after`: requests for wheels after which it answers no more."""

    folder: Path
    form: str = "json"
    yanked: dict[str, str] = field(default_factory=dict)
    dates: dict[str, str] = field(default_factory=dict)
    dies_after: int | None = None
    url: str = ""
    asked: list[str] = field(default_factory=list)

    def page(self, name: str) -> tuple[str, bytes] | None:
        wheels = sorted(self.folder.glob(f"{name.replace('-', '_')}-*.whl"))
        if not wheels:
            return None
        if self.form == "html":
            links = "".join(
                f'<a href="/files/{w.name}"' + (f' data-yanked="{self.yanked[w.name]}"' if w.name in self.yanked else "") + f">{w.name}</a><br/>"
                for w in wheels
            )  # fmt: skip
            return "text/html", f"<!DOCTYPE html><html><body>{links}</body></html>".encode()
        files: list[dict[str, Any]] = [
            {
                "filename": w.name, "url": f"/files/{w.name}", "hashes": {}, "size": w.stat().st_size,
                "upload-time": self.dates.get(w.name, "2026-01-01") + "T00:00:00Z", "yanked": self.yanked.get(w.name, False),
            }
            for w in wheels
        ]  # fmt: skip
        page = {"meta": {"api-version": "1.1"}, "name": name, "versions": [], "files": files}
        return "application/vnd.pypi.simple.v1+json", json.dumps(page).encode()


@contextlib.contextmanager
def serving(index: Index) -> Iterator[Index]:
    """Answer requests until the end, with ranges."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:
            pass

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
            index.asked.append(path)
            wheels = sum(p.endswith(".whl") for p in index.asked)
            if index.dies_after is not None and wheels > index.dies_after:
                self.close_connection = True
                self.connection.close()
                return
            parts = path.strip("/").split("/")
            if parts[0] == "simple" and len(parts) == 2:
                found = index.page(parts[1])
                return self.answer(404, "text/plain", b"") if found is None else self.answer(200, *found)
            file = index.folder / parts[-1]
            if parts[0] != "files" or not file.is_file():
                return self.answer(404, "text/plain", b"")
            data, wanted = file.read_bytes(), self.headers.get("Range", "")
            if wanted.startswith("bytes="):
                first, _, last = wanted[6:].partition("-")
                if not first:  # the last so many bytes
                    begin, end = max(0, len(data) - int(last)), len(data) - 1
                else:
                    begin, end = int(first), min(int(last or len(data) - 1), len(data) - 1)
                spread = {"Content-Range": f"bytes {begin}-{end}/{len(data)}"}
                return self.answer(206, "application/octet-stream", data[begin : end + 1], spread)
            self.answer(200, "application/octet-stream", data, {"Accept-Ranges": "bytes"})

        def answer(self, status: int, kind: str, body: bytes, more: dict[str, str] | None = None) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            for name, value in (more or {}).items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    index.url = f"http://127.0.0.1:{server.server_address[1]}/simple"
    try:
        yield index
    finally:
        server.shutdown()
        server.server_close()
