"""Whether a bisection goes on with the journal that is there: what is asked must be the same, files included."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from torchtriage.bisect.errors import BadInput
from torchtriage.bisect.run import Settings, check, run_folder
from torchtriage.bisect.trial import Target


@pytest.fixture(autouse=True)
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("check.sh", "prog.py", "beside.py", "r.txt", "more.txt", "versions"):
        (tmp_path / name).write_text("1.0\n")
    (tmp_path / "r.txt").write_text("-r more.txt\n")
    return tmp_path


SCRIPT = Target("script", "prog.py", ("--steps", "3"))
PLAIN = Settings("1", "2")


@pytest.mark.parametrize(
    ("target", "settings", "file"),
    [
        (Target("command", "sh", ("check.sh",)), PLAIN, "check.sh"),
        (Target("command", "./check.sh"), PLAIN, "check.sh"),
        (SCRIPT, PLAIN, "prog.py"),
        (SCRIPT, PLAIN, "beside.py"),
        (SCRIPT, Settings("1", "2", files=("r.txt",)), "more.txt"),
        (SCRIPT, Settings("1", "2", versions="@versions"), "versions"),
    ],
)
def test_a_file_that_was_changed_is_another_question(
    work: Path, target: Target, settings: Settings, file: str
) -> None:
    before = run_folder(target, settings)
    assert run_folder(target, settings) == before
    (work / file).write_text("something else\n")
    assert run_folder(target, settings) != before


def test_how_much_is_done_at_once_is_no_other_question() -> None:
    more = Settings("1", "2", jobs=4, ahead=True, store_limit=1, max_installs=3, flips=0)
    assert run_folder(SCRIPT, more) == run_folder(SCRIPT, PLAIN)


@pytest.mark.parametrize("kind", ["r", "versions"])
def test_a_file_that_is_no_text_is_one_line(work: Path, kind: str) -> None:
    (work / "bytes").write_bytes(b"\xff\xfe\x00")
    settings = Settings("1", "2", files=("bytes",)) if kind == "r" else Settings("1", "2", versions="@bytes")
    with pytest.raises(BadInput, match="cannot read bytes: it is not a text in UTF-8"):
        run_folder(SCRIPT, settings)


@pytest.mark.parametrize(
    ("target", "settings", "said"),
    [
        (SCRIPT, Settings("1", "2", timeout=math.nan), "are finite numbers"),
        (SCRIPT, Settings("1", "2", timeout=math.inf), "are finite numbers"),
        (SCRIPT, Settings("1", "2", threshold=math.nan), "are finite numbers"),
        (SCRIPT, Settings("1", "2", error=math.nan), "are finite numbers"),
        (SCRIPT, Settings("1", "2", regress="command"), "does not go with this target"),
        (
            Target("command", "sh"),
            Settings("1", "2", regress="eager"),
            "of a command, the exit status counts",
        ),
        (Target("command", "sh"), Settings("1", "2", regress="any"), "of a command, the exit status counts"),
        (
            SCRIPT,
            Settings("1", "2", regress="x"),
            "is one of any, signature, eager, step-time, compile-time, memory, recom",
        ),
    ],
)
def test_settings_that_cannot_be_are_refused(target: Target, settings: Settings, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        check(settings, target)
