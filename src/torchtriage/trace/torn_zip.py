"""Members of a zip archive that was cut off: its directory stands at the end, so they are found by their own headers."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

#: signature, version, flags, method, time, date, crc, packed size, size, length of the name, length of the extra field
_HEADER = struct.Struct("<4sHHHHHIIIHH")
_SIGNATURE = b"PK\x03\x04"
_STORED, _DEFLATED = 0, 8
_PIECE = 1 << 20
#: Members that are looked for.
MOST = 10_000


class Member:
    """The unpacked bytes of one member. Reading past the end of a cut file raises EOFError."""

    def __init__(self, path: str, offset: int) -> None:
        self.file = open(path, "rb")  # noqa: SIM115
        self.file.seek(offset)
        try:
            fields = _HEADER.unpack(self.file.read(_HEADER.size))
        except struct.error as error:
            self.file.close()
            raise EOFError("the archive ends inside a header") from error
        if fields[0] != _SIGNATURE or fields[3] not in (_STORED, _DEFLATED):
            self.file.close()
            raise ValueError("no member that can be unpacked begins here")
        self.name = self.file.read(fields[9]).decode("utf-8", "replace")
        self.file.seek(fields[10], 1)
        self.left = fields[7]
        self.unpacker = zlib.decompressobj(-15) if fields[3] == _DEFLATED else None
        self.ready = bytearray()

    def read(self, size: int = -1) -> bytes:
        """Up to `size` bytes, all of them where it is negative; none at the member's end."""
        while (size < 0 or len(self.ready) < size) and self._fill(_PIECE if size < 0 else size):
            pass
        out = bytes(self.ready if size < 0 else self.ready[:size])
        del self.ready[: len(out)]
        return out

    def read1(self, size: int = -1) -> bytes:
        """What one step unpacks: what came before the cut is not lost with the error."""
        while not self.ready and self._fill(_PIECE):
            pass
        out = bytes(self.ready[:size] if size >= 0 else self.ready)
        del self.ready[: len(out)]
        return out

    def _fill(self, most: int) -> bool:
        """Unpacks some more; False at the member's end."""
        unpacker = self.unpacker
        if unpacker is None:
            piece = self.file.read(min(self.left, _PIECE))
            if not piece and self.left:
                raise EOFError("the archive ends inside a member")
            self.left -= len(piece)
            self.ready += piece
            return bool(piece)
        if unpacker.eof:
            return False
        packed = unpacker.unconsumed_tail or self.file.read(64 << 10)
        if not packed:
            raise EOFError("the archive ends inside a member")
        self.ready += unpacker.decompress(packed, most)
        return True

    def skip(self) -> int:
        """Reads to the end; where the next header may begin at the earliest."""
        while self.read1():
            pass
        unused = len(self.unpacker.unused_data) if self.unpacker is not None else 0
        return self.file.tell() - unused

    def close(self) -> None:
        self.file.close()


def members(path: Path) -> Iterator[tuple[str, int]]:
    """(name, where its header begins) of each member, the last one cut off."""
    at = 0
    for _ in range(MOST):
        try:
            member = Member(str(path), at)
        except (EOFError, ValueError):
            return
        try:
            yield member.name, at
            after = member.skip()
        except (EOFError, zlib.error):
            return
        finally:
            member.close()
        with path.open("rb") as file:  # a descriptor of a few bytes may stand between two members
            file.seek(after)
            found = file.read(64).find(_SIGNATURE)
        if found < 0:
            return
        at = after + found
