"""Where traces come from: files, folders of ranks, archives; and one clear line where there is none."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from trace_writing import artifact, compiled, write

from torchtriage.trace import NotATrace, parallel, read_trace


def test_a_folder_of_ranks_is_read_in_their_order(tmp_path: Path) -> None:
    for rank in (10, 2, 0):
        write(tmp_path, compiled(), name=f"dedicated_log_torch_trace_rank_{rank}_x.log")
    write(tmp_path, b"hello\n", name="notes.txt")
    trace = read_trace(tmp_path)
    assert [log.rank for log in trace.logs] == [0, 2, 10]
    assert trace.passed_over == ("notes.txt",)


def test_ranks_are_found_in_folder_names_too(tmp_path: Path) -> None:
    write(tmp_path, compiled(), name="rank_3/trace.log")
    assert read_trace(tmp_path).logs[0].rank == 3


def test_gzip_is_read_and_its_payloads_can_be_read_again(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, artifact("note", "hello"), name="t.log.gz"))
    log = trace.logs[0]
    assert trace.text(log, log.artifacts[0]) == "hello"


def test_a_damaged_gzip_gives_what_could_be_unpacked(tmp_path: Path) -> None:
    data = b"".join(artifact(f"note{i}", os.urandom(200).hex()) for i in range(4000))
    path = tmp_path / "t.log.gz"
    path.write_bytes(gzip.compress(data)[:-600_000])
    log = read_trace(path).logs[0]
    assert log.records > 100
    assert "container" in {p.reason for p in log.problems}


def packed(kind: str, data: bytes) -> bytes:
    if kind == "zst":
        return bytes(pytest.importorskip("zstandard").ZstdCompressor().compress(data))
    if kind in ("zip", "zip, stored"):
        out = io.BytesIO()
        with zipfile.ZipFile(
            out, "w", zipfile.ZIP_DEFLATED if kind == "zip" else zipfile.ZIP_STORED
        ) as archive:
            archive.writestr("rank_0.log", compiled())
            archive.writestr("rank_1.log", data)
            archive.writestr("rank_2.log", compiled())
        return out.getvalue()
    if kind == "xz":
        return lzma.compress(data, preset=0)
    return gzip.compress(data) if kind == "gz" else bz2.compress(data)


@pytest.mark.parametrize("kind", ["gz", "bz2", "xz", "zst", "zip", "zip, stored"])
@pytest.mark.parametrize("share", [0.5, 0.9])
def test_a_container_that_was_cut_off_gives_what_came_before(kind: str, share: float, tmp_path: Path) -> None:
    data = b"".join(artifact(f"note{i}", os.urandom(200).hex()) for i in range(4000))
    whole, path = packed(kind, data), tmp_path / f"t.{kind[:3]}"
    path.write_bytes(whole[: int(len(whole) * share)])
    log = read_trace(path).logs[-1]
    assert 1000 < log.records < 4000
    assert log.problems[0].reason == ("truncated" if kind == "zst" else "container")
    assert log.rank == (1 if kind.startswith("zip") else None)


@pytest.mark.parametrize("kind", ["gz", "bz2", "xz", "zst", "zip", "zip, stored"])
def test_a_container_cut_anywhere_is_read_or_refused(kind: str, tmp_path: Path) -> None:
    whole, path = packed(kind, compiled() * 20), tmp_path / f"t.{kind[:3]}"
    for end in range(0, len(whole), max(7, len(whole) // 100)):
        path.write_bytes(whole[:end])
        try:
            assert sum(log.records for log in read_trace(path).logs) > 0
        except NotATrace as refused:
            assert "\n" not in str(refused)


def test_a_zip_holds_several_logs_packed_or_not(tmp_path: Path) -> None:
    path = tmp_path / "all.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("rank_0.log", compiled())
        archive.writestr("../../rank_1.log.gz", gzip.compress(compiled()))
        archive.writestr("readme.txt", b"nothing")
    trace = read_trace(path)
    assert [log.rank for log in trace.logs] == [0, 1]
    assert not (tmp_path.parent.parent / "rank_1.log.gz").exists()


def test_zstandard_is_read_where_the_package_is(tmp_path: Path) -> None:
    zstandard = pytest.importorskip("zstandard")
    path = tmp_path / "t.log.zst"
    path.write_bytes(zstandard.ZstdCompressor().compress(compiled()))
    assert read_trace(path).totals.compiles == 1


def test_a_url_is_read_with_fsspec(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    write(tmp_path, compiled(), name="rank_0.log")
    write(tmp_path, compiled(), name="rank_1.log.gz")
    trace = read_trace(tmp_path.as_uri())
    assert [log.rank for log in trace.logs] == [0, 1]


@pytest.mark.parametrize(
    "content", [b"", b"\0\1\2" * 1000, b"just text\n", b"PK\x03\x04broken", b"\x1f\x8bbroken"]
)
def test_something_else_is_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(content)
    with pytest.raises(NotATrace) as caught:
        read_trace(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_named_file_is_read_however_much_noise_comes_first(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, b"noise\n" * 100_000, compiled()))
    assert trace.totals.compiles == 1
    assert [(p.offset, p.length) for p in trace.logs[0].problems] == [(0, 599_999)]


def test_a_folder_of_something_else_and_a_missing_path_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello")
    for place in (tmp_path, tmp_path / "gone", tmp_path / "a\0b"):
        with pytest.raises(NotATrace):
            read_trace(place)


def test_a_pipe_in_the_folder_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.log")
    write(tmp_path, compiled())
    assert read_trace(tmp_path).totals.logs == 1


def test_many_ranks_are_read_by_processes_with_the_same_result(tmp_path: Path) -> None:
    for rank in range(3):
        write(tmp_path, compiled(), artifact("note", "x" * rank), name=f"rank_{rank}.log")
    alone, together = read_trace(tmp_path, workers=1), read_trace(tmp_path, workers=2)
    assert alone.totals == together.totals
    assert [log.artifacts for log in alone.logs] == [log.artifacts for log in together.logs]


def test_reading_a_trace_never_imports_torch() -> None:
    code = (
        "import sys, torchtriage.cli.trace, torchtriage.trace.diff, torchtriage.trace.page, torchtriage.trace.bundle, "
        "torchtriage.trace.export, torchtriage.report.trace_html, torchtriage.report.trace_terminal; "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_script_without_a_main_guard_can_read_many_ranks(tmp_path: Path) -> None:
    for rank in range(3):
        write(tmp_path / "logs", compiled(), name=f"rank_{rank}.log")
    script = tmp_path / "script.py"
    script.write_text(
        f"print('once')\nfrom torchtriage.trace import read_trace\nprint(read_trace({str(tmp_path / 'logs')!r}, workers=2).totals.logs)\n"
    )
    run = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    assert run.stdout.split() == ["once", "3"], run.stderr


def test_what_a_dead_worker_leaves_is_read_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for rank in range(3):
        write(tmp_path, compiled(), name=f"rank_{rank}.log")
    monkeypatch.setattr(parallel, "COMMAND", "import os; os._exit(3)")
    assert read_trace(tmp_path, workers=2).totals.logs == 3
