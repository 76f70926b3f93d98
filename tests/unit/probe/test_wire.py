"""Messages over socket pairs, and event logs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from socket import socket
from typing import Any

import pytest

from torchtriage.probe import wire


@pytest.fixture
def ends() -> Iterator[tuple[socket, socket]]:
    ours, theirs = wire.pair()
    with ours, theirs:
        yield ours, theirs


def test_messages_come_whole_and_in_order(ends: tuple[socket, socket]) -> None:
    ours, theirs = ends
    for message in ({"event": "call", "call": 0}, {"event": "end", "text": "é日本"}):
        wire.send(ours, message)
    assert wire.receive(theirs) == ({"event": "call", "call": 0}, [])
    assert wire.receive(theirs) == ({"event": "end", "text": "é日本"}, [])


def test_a_descriptor_is_passed_with_a_message(ends: tuple[socket, socket], tmp_path: Path) -> None:
    ours, theirs = ends
    with open(tmp_path / "file", "w") as file:
        wire.send(ours, {"event": "file"}, file.fileno())
    message, (descriptor,) = wire.receive(theirs)  # type: ignore[misc]
    os.write(descriptor, b"through the wire")
    os.close(descriptor)
    assert message == {"event": "file"}
    assert (tmp_path / "file").read_text() == "through the wire"


def test_a_socket_that_was_passed_can_be_spoken_to(ends: tuple[socket, socket]) -> None:
    ours, theirs = ends
    near, far = wire.pair()
    with near:
        wire.send(ours, {"event": "judge"}, far.fileno())
        far.close()
        _, (descriptor,) = wire.receive(theirs)  # type: ignore[misc]
        with wire.from_descriptor(descriptor) as passed:
            wire.send(passed, {"verdict": "same"})
            assert wire.receive(near) == ({"verdict": "same"}, [])


def test_when_the_other_end_has_gone_there_is_nothing(ends: tuple[socket, socket]) -> None:
    ours, theirs = ends
    ours.close()
    assert wire.receive(theirs) is None
    theirs.close()
    assert wire.receive(theirs) is None


@pytest.mark.parametrize(
    ("message", "cut"),
    [
        ({"log": "x" * 300_000, "n": 1}, {"log": "x" * 4000, "n": 1}),
        ({"list": [1] * 200_000}, {"list": [1] * 30}),
        ({"deep": {"log": ["x" * 300_000]}}, {"deep": {"log": ["x" * 4000]}}),
    ],
)
def test_a_message_that_is_too_long_is_cut_to_its_short_fields(
    ends: tuple[socket, socket], message: dict[str, Any], cut: dict[str, Any]
) -> None:
    ours, theirs = ends
    wire.send(ours, message)
    assert wire.receive(theirs) == (cut, [])


def test_a_message_of_almost_the_limit_is_not_cut(ends: tuple[socket, socket]) -> None:
    ours, theirs = ends
    message = {"log": "x" * (wire.LIMIT - 100)}
    wire.send(ours, message)
    assert wire.receive(theirs) == (message, [])


@pytest.mark.parametrize(
    "message",
    [
        pytest.param({"configs": {str(n): "x" * 200 for n in range(1000)}}, id="many short fields"),
        pytest.param({str(n): "日" * 4000 for n in range(8)}, id="eight fields that are not ASCII"),
    ],
)
def test_a_message_that_stays_too_long_is_never_split(
    ends: tuple[socket, socket], message: dict[str, Any]
) -> None:
    ours, theirs = ends
    wire.send(ours, message)
    assert wire.receive(theirs) is not None


def test_an_event_log_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = str(tmp_path / "events.jsonl")
    for number in range(3):
        wire.append(path, {"event": "call", "call": number})
    assert [event["call"] for event in wire.read_log(path)] == [0, 1, 2]


def test_a_last_half_line_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    wire.append(str(path), {"event": "begin"})
    with open(path, "a") as file:
        file.write('{"event": "ca')
    assert wire.read_log(str(path)) == [{"event": "begin"}]


def test_a_log_that_was_never_written_is_empty(tmp_path: Path) -> None:
    assert wire.read_log(str(tmp_path / "events.jsonl")) == []
