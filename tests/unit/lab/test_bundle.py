"""A bundle for a redacted script has no path of the machine in it, and its trace can still be read."""

import hashlib
from pathlib import Path

from torchtriage.lab import bundle
from torchtriage.trace.records import Record, read_records

HEAD = b'V1130 10:00:00.000001 7 /home/me/venv/lib/torch/x.py:3] {"artifact": {"name": "a"}, "has_payload": "%s"}'
KNOWN = {"/home/me/venv": "PYTHON", "/home/me": "HOME"}


def trace(payload: bytes) -> bytes:
    digest = hashlib.md5(payload).hexdigest().encode()
    return HEAD % digest + b"\n\t" + payload.replace(b"\n", b"\n\t") + b"\n"


def test_paths_go_and_the_trace_stays_whole() -> None:
    data = trace(b"first /home/me/secret/train.py\nsecond") + trace(b"nothing here") + trace(b"/home/men")
    made = bundle.hidden_in_trace(data, KNOWN)
    assert b"HOME/secret/train.py" in made and b"PYTHON/lib/torch/x.py" in made
    assert b"/home/me/" not in made and b"/home/men" in made
    records = list(read_records([made]))
    assert len(records) == 3 and all(isinstance(r, Record) and r.intact for r in records)
    assert bundle.hidden_in_trace(data, {}) == data


def test_every_file_of_a_folder_is_looked_at(tmp_path: Path) -> None:
    (tmp_path / "trace").mkdir()
    (tmp_path / "trace" / "rank.log").write_bytes(trace(b"/home/me/a"))
    (tmp_path / "log-guards.txt").write_text("File /home/me/venv/lib/a.py\n")
    bundle.hide_paths(tmp_path, KNOWN)
    assert (tmp_path / "log-guards.txt").read_text() == "File PYTHON/lib/a.py\n"
    assert all(r.intact for r in read_records([(tmp_path / "trace" / "rank.log").read_bytes()]))


def test_the_paths_of_this_machine_are_known_the_longest_first() -> None:
    known = bundle.own_paths("/opt/env/bin/python")
    assert known["/opt/env"] == "PYTHON" and known[str(Path.home())] == "HOME"
    assert [len(path) for path in known] == sorted(map(len, known), reverse=True)
