"""A keeper ends what does not end by itself, and leaves nothing behind. The children are shells and small Pythons."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any

import pytest

from torchtriage.probe import keeper, wire

KEEP = """
import json, os, sys
from torchtriage.probe import keeper, wire
lab, seconds, bytes, *command = sys.argv[1:]
ours, theirs = wire.pair()
if lab == "gone":
    ours.close()
limits = keeper.Limits(float(seconds), int(bytes))
begin = sum(os.times()[:2])
found = keeper.keep(lambda: os.execvp(command[0], command), limits, theirs)
print(json.dumps({**found, "spent": sum(os.times()[:2]) - begin}))
"""
pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc and uses prctl")


def kept(*command: str, seconds: float = 30.0, megabytes: int = 4096, lab: str = "there") -> dict[str, Any]:
    """What a keeper, in a process of its own, says about one command."""
    argv = [sys.executable, "-c", KEEP, lab, str(seconds), str(megabytes << 20), *command]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def shell(script: str, **limits: Any) -> dict[str, Any]:
    return kept("sh", "-c", script, **limits)


def python(script: str, **limits: Any) -> dict[str, Any]:
    return kept(sys.executable, "-c", script, **limits)


def living(pid: str) -> bool:
    return os.path.exists(f"/proc/{pid}")


def test_a_child_that_ends_well() -> None:
    found = shell("echo out; echo err >&2")
    assert (found["reason"], found["signal"], found["status"], found["left_behind"]) == ("", "", 0, 0)
    assert found["log"] == "out\nerr\n"


def test_an_exit_status_is_kept() -> None:
    found = shell("exit 3")
    assert (found["reason"], found["signal"], found["status"]) == ("", "", 3)


@pytest.mark.parametrize("name", ["SEGV", "FPE", "KILL", "ABRT"])
def test_a_signal_is_named(name: str) -> None:
    found = shell(f"kill -{name} $$")
    assert (found["reason"], found["signal"]) == ("", f"SIG{name}")


def test_a_command_that_cannot_be_started_has_its_own_status() -> None:
    assert kept("/no/such/program")["status"] == 127


def test_a_child_reads_nothing_from_the_terminal() -> None:
    assert shell("cat; echo end")["log"] == "end\n"


def test_time_is_up() -> None:
    found = shell("sleep 300", seconds=0.3)
    assert (found["reason"], found["signal"]) == ("timeout", "")
    assert 0.3 <= found["seconds"] < 20
    assert "sleep" in " ".join(found["busy"])


def test_a_child_that_was_stopped_or_ignores_sigterm_is_ended_all_the_same() -> None:
    assert shell("kill -STOP $$", seconds=0.3)["reason"] == "timeout"
    assert shell("trap '' TERM; while :; do sleep 1; done", seconds=0.3)["reason"] == "timeout"


def test_when_time_is_up_grandchildren_in_sessions_of_their_own_are_ended_too() -> None:
    # the inner shell leaves, so its sleep is an orphan in another session
    found = shell("setsid sh -c 'sleep 300 & echo $!'; sleep 300", seconds=1.0)
    (orphan,) = found["log"].split()
    assert found["reason"] == "timeout"
    assert not living(orphan)


def test_what_a_child_leaves_behind_is_ended() -> None:
    found = shell("setsid sleep 300 & echo $!")
    assert (found["reason"], found["status"]) == ("", 0)
    assert found["left_behind"] >= 1
    assert found["seconds"] < 20
    assert not living(found["log"].strip())


def test_much_output_is_cut_and_holds_nobody_up() -> None:
    found = shell("echo first; head -c 200000000 /dev/zero | tr '\\0' x; echo; echo last", seconds=60.0)
    assert (found["reason"], found["status"]) == ("", 0)
    assert len(found["log"]) <= 60_000
    assert found["log"].endswith("xxx\nlast\n")


def test_the_beginning_of_much_output_is_kept() -> None:
    assert shell("echo first; head -c 1000000 /dev/zero | tr '\\0' x")["log"].startswith("first\n")


def test_output_that_is_not_text_is_shown_all_the_same() -> None:
    assert shell("printf 'a\\377b'")["log"] == "a\ufffdb"


def test_a_child_that_closed_its_output_is_still_watched() -> None:
    found = shell("exec >&- 2>&-; sleep 0.5; exit 7")
    assert (found["reason"], found["status"]) == ("", 7)
    assert found["seconds"] >= 0.5
    assert shell("exec >&- 2>&-; sleep 300", seconds=0.3)["reason"] == "timeout"


def test_a_child_that_closes_its_output_as_it_ends_is_not_waited_for() -> None:
    reading, writing = os.pipe()
    alarm, ended = os.pipe()
    os.close(writing), os.close(ended)
    begin = time.monotonic()
    keeper.drain(reading, keeper.Output(), 20.0, alarm)
    assert time.monotonic() - begin < 10.0  # half of what it may wait
    os.close(reading), os.close(alarm)


def test_watching_a_child_that_closed_its_output_costs_next_to_nothing() -> None:
    assert shell("exec >&- 2>&-; sleep 1.5")["spent"] < 0.75  # seconds on the CPU, of the keeper


def test_a_child_that_takes_too_much_memory_is_ended() -> None:
    found = python("x = b'x' * (350 << 20); import time; time.sleep(300)", megabytes=300)
    assert found["reason"] == "oom"
    assert found["peak_bytes"] > 300 << 20


def test_memory_counts_over_all_processes_of_a_trial() -> None:
    half = "import os, time; os.fork(); x = b'x' * (120 << 20); time.sleep(300)"
    assert python(half, megabytes=200)["reason"] == "oom"


def test_memory_that_is_asked_for_and_not_used_does_not_count() -> None:
    found = python("import mmap; x = mmap.mmap(-1, 2 << 30); print('fine')", megabytes=300)
    assert (found["reason"], found["log"]) == ("", "fine\n")


def test_a_keeper_notices_that_its_lab_has_gone() -> None:
    ours, theirs = wire.pair()
    assert not keeper.gone(theirs)
    wire.send(ours, {"event": "more"})
    assert not keeper.gone(theirs)
    assert wire.receive(theirs) is not None
    ours.close()
    assert keeper.gone(theirs)


def test_a_trial_ends_with_its_lab() -> None:
    found = shell("sleep 300", lab="gone")
    assert found["reason"] == "lab-gone"
    assert found["seconds"] < 20


@pytest.mark.parametrize(
    ("status", "name"), [(9, "SIGKILL"), (11 | 0x80, "SIGSEGV"), (42, "SIG42"), (0, ""), (3 << 8, "")]
)
def test_signals_have_names(status: int, name: str) -> None:
    assert keeper.signal_name(status) == name


def test_little_output_is_kept_whole_and_much_by_both_ends() -> None:
    output = keeper.Output()
    output.add(b"a" * keeper.HEAD + b"b" * keeper.TAIL)
    assert "cut" not in output.text()
    output.add(b"c" * 10)
    assert (
        output.text() == "a" * keeper.HEAD + "\n... 10 bytes cut ...\n" + "b" * (keeper.TAIL - 10) + "c" * 10
    )
