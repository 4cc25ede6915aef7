"""A digest of gigabytes that costs less than writing them."""

from __future__ import annotations

import hashlib
import zlib

__all__ = ["Digest"]

_PIECE = 4 << 20


class Digest:
    """SHA-256 of the length and the CRC-32s of all 4 MiB pieces, as ``crc32-4mib:`` and 64 hexadecimal digits.

    It finds damage, not forgery. One or two wrong bits anywhere are always found (a CRC-32 tells them in pieces of up
    to 512 MiB), more of them in one piece all but once in 2^32. SHA-256 of everything took longer than the disk.
    """

    LENGTH = len("crc32-4mib:") + 64

    def __init__(self) -> None:
        self._root = hashlib.sha256()
        self._length = self._crc = 0

    def update(self, data: bytes | memoryview) -> None:
        """Append bytes: ``bytes`` or a contiguous memoryview of them."""
        rest = memoryview(data)
        while rest:
            head = rest[: _PIECE - self._length % _PIECE]
            self._crc = zlib.crc32(head, self._crc)
            self._length += len(head)
            rest = rest[len(head) :]
            if self._length % _PIECE == 0:
                self._end_piece()

    def copy(self) -> Digest:
        """A digest that goes on from here."""
        result = Digest()
        result._root, result._length, result._crc = self._root.copy(), self._length, self._crc
        return result

    def text(self) -> str:
        """The digest of all that was given; ends the use of this object."""
        self._end_piece()
        self._root.update(self._length.to_bytes(8, "little"))
        return f"crc32-4mib:{self._root.hexdigest()}"

    def _end_piece(self) -> None:
        self._root.update(self._crc.to_bytes(4, "little"))
        self._crc = 0
