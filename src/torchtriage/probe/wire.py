"""Messages between the lab and the processes that it starts: JSON over socket pairs, with file descriptors.

There are no socket files and no ports: only processes that inherited or were sent an end can speak.
"""

from __future__ import annotations

import array
import json
import os
import socket
from typing import Any

LIMIT = 1 << 17


def pair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def send(to: socket.socket, message: dict[str, Any], *descriptors: int) -> None:
    """Send one message. What is over the limit is cut down to its short fields, never split."""
    data = json.dumps(message, default=str).encode()
    for length in (4000, 400, 40):
        if len(data) <= LIMIT:
            break
        data = json.dumps(shortened(message, length), default=str).encode()
    if len(data) > LIMIT:
        kept = {k: v for k, v in message.items() if isinstance(v, (bool, int, float)) or k == "event"}
        data = json.dumps({**dict(list(kept.items())[:50]), "cut": True}).encode()
    if descriptors:
        socket.send_fds(to, [data], list(descriptors))
    else:
        to.sendall(data)


def shortened(value: Any, length: int) -> Any:
    if isinstance(value, str):
        return value[:length]
    if isinstance(value, dict):
        return {k: shortened(v, length) for k, v in value.items()}
    if isinstance(value, list):
        return [shortened(v, length) for v in value[:30]]
    return value


def receive(source: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """One message with its descriptors; None when the other end is gone."""
    size = array.array("i", [0]).itemsize
    try:
        data, ancillary, _, _ = source.recvmsg(1 << 18, socket.CMSG_LEN(8 * size))
    except (ConnectionError, OSError):
        return None
    if not data:
        return None
    descriptors = array.array("i")
    for level, kind, payload in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(payload[: len(payload) - len(payload) % size])
    return json.loads(data), list(descriptors)


def from_descriptor(descriptor: int) -> socket.socket:
    return socket.socket(fileno=descriptor)


def append(path: str, event: dict[str, Any]) -> None:
    """Add one line to an event log, in one write."""
    line = (json.dumps(event, default=str) + "\n").encode()
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, line)
    finally:
        os.close(descriptor)


def read_log(path: str) -> list[dict[str, Any]]:
    """The whole lines of an event log; a last half line is left out."""
    found = []
    try:
        with open(path, "rb") as file:
            for line in file:
                if line.endswith(b"\n"):
                    found.append(json.loads(line))
    except FileNotFoundError:
        pass
    return found
