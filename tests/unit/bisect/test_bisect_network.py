"""Reading parts of files, and what is said where nothing answers."""

from __future__ import annotations

import http.server
import io
import socketserver
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from torchtriage.bisect import network
from torchtriage.bisect.commits import commit_of_wheel
from torchtriage.bisect.errors import BadInput, Unreachable
from torchtriage.bisect.versions import read_index

SHA = "ab" * 20


def big_wheel() -> bytes:
    """A wheel of 3 MB with torch/version.py in the middle."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("torch/lib/a.so", bytes(1 << 20))
        archive.writestr("torch/version.py", f"git_version = '{SHA}'\n")
        archive.writestr("torch/lib/b.so", bytes(2 << 20))
    return data.getvalue()


class Server(http.server.ThreadingHTTPServer):
    content = big_wheel()
    sent = 0
    ranges = True
    failures = 0

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that has seen enough hangs up."""


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        if self.server.failures:
            self.server.failures -= 1
            self.send_error(503)
            return
        if self.path == "/missing":
            self.send_error(404)
            return
        body, status = self.server.content, 200
        wanted = self.headers.get("Range")
        if wanted and self.server.ranges:
            first, last = (int(part) for part in wanted.removeprefix("bytes=").split("-"))
            body, status = body[first : last + 1], 206
        self.send_response(status)
        if status == 206:
            self.send_header(
                "Content-Range", f"bytes {first}-{first + len(body) - 1}/{len(self.server.content)}"
            )
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.server.sent += len(body)


@pytest.fixture
def server() -> Iterator[Server]:
    found = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=found.serve_forever, args=(0.01,), daemon=True).start()
    yield found
    found.shutdown()
    found.server_close()


def address(server: Server, path: str = "/torch.whl") -> str:
    return f"http://127.0.0.1:{server.server_address[1]}{path}"


def test_the_commit_costs_a_small_part_of_the_wheel(server: Server) -> None:
    assert commit_of_wheel(address(server)).sha == SHA
    assert server.sent < len(server.content) / 10


def test_a_server_without_parts_is_told(server: Server) -> None:
    server.ranges = False
    assert "does not give parts of files" in commit_of_wheel(address(server)).note


def test_any_part_is_read_as_it_is(server: Server) -> None:
    file = network.open_ranged(address(server))
    for offset, size in ((0, 10), (65_530, 20), (1 << 20, 70_000), (-5, 5)):
        file.seek(offset, 2 if offset < 0 else 0)
        assert file.read(size) == server.content[offset:][:size]


def test_a_short_failure_is_tried_again(server: Server) -> None:
    server.failures = 2
    assert network.fetch(address(server), pause=0.0)[0] == server.content


def test_a_longer_one_is_unreachable_and_a_missing_page_is_bad_input(server: Server) -> None:
    with pytest.raises(BadInput, match="answers 404"):
        network.fetch(address(server, "/missing"))
    server.failures = 9
    with pytest.raises(Unreachable, match="cannot be reached: 503"):
        network.fetch(address(server), pause=0.0)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n<a href=x", "stopped in the middle of an answer"),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n999\r\n<a",
            "stopped in the middle of an answer",
        ),
        (b"\x00 no HTTP at all\r\n\r\n", "cannot be reached"),
        (b"", "cannot be reached"),
    ],
)
def test_an_answer_that_is_cut_off_or_garbled_is_unreachable(answer: bytes, said: str) -> None:
    """Of these, some are no OSError in the standard library."""

    class Cut(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(65536)
            self.request.sendall(answer)

    with socketserver.TCPServer(("127.0.0.1", 0), Cut) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        with pytest.raises(Unreachable, match=said) as raised:
            network.fetch(f"http://127.0.0.1:{server.server_address[1]}/simple", pause=0.0)
        server.shutdown()
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "url",
    ["simple", "/simple", "ftp://x/simple", "http://[::1", "http://", "http://x:99999/", "https://a:b@", ""],
)
def test_what_is_no_address_is_bad_input(url: str) -> None:
    with pytest.raises(
        BadInput, match="is no address: it begins with http://, https:// or file:///"
    ) as raised:
        read_index(url, "torch")
    assert "a:b" not in str(raised.value)


def test_an_address_with_spaces_is_quoted(server: Server) -> None:
    assert network.fetch(address(server, "/my simple/%20ü"))[0] == server.content


def test_passwords_are_not_shown() -> None:
    assert network.shown("https://me:secret@example.org/simple") == "https://example.org/simple"


def test_an_index_in_a_folder_is_read_and_a_missing_one_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "index.html").write_text('<a href="torch-1.0-py3-none-any.whl">x</a>')
    assert [str(w.version) for w in read_index(tmp_path.as_uri(), "torch")] == ["1.0"]
    with pytest.raises(BadInput, match="cannot read"):
        read_index(tmp_path.as_uri(), "numpy")
