"""Protobuf's wire format, as far as messages are too big to be objects.

A message is a sequence of fields, each a tag (number and wire type) and a body; bodies of strings, bytes and messages
have their length in front. Fields may come in any order, so the few big ones are written and read by themselves.
The library would keep all of a message, in many times its size, before the first limit could be checked.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

from popsr.io._budget import Budget
from popsr.io._open_file import OpenFile

__all__ = ["DELIMITED", "VARINT", "Cursor", "Field", "delimited", "read_varint"]

VARINT, DELIMITED = 0, 2
_FIXED = {1: 8, 5: 4}
_WINDOW = 64 << 10
_HEAD = 20  # bytes of a tag and a number, at most

Field = tuple[int, int, int]
"""Number, wire type, and the value of a varint or else the length of the body."""


def delimited(number: int, length: int) -> bytes:
    """The bytes in front of the ``length`` bytes of a string, bytes or message."""
    return _varint(number << 3 | DELIMITED) + _varint(length)


class Cursor:
    """A way through the messages of a file, front to back.

    ``fields`` goes through the fields of a message. Its user takes or skips the body of each, or goes through its
    fields in turn; what it leaves is skipped.

    Args:
        file: the file.
        budget: counts the fields.
        begin: where the way begins.
        end: where it ends.
        keep: remember what was read, for ``known``.
    """

    def __init__(self, file: OpenFile, budget: Budget, begin: int, end: int, *, keep: bool) -> None:
        self._file, self._budget, self._end = file, budget, end
        self._block, self._base, self._i = b"", begin, 0
        self._mark = 0  # what is before it in the block was kept
        self._kept = bytearray() if keep else None
        self._pieces = array("Q")  # where each kept piece is in the file, and where it ends in `_kept`

    @property
    def at(self) -> int:
        """The place in the file."""
        return self._base + self._i

    def fields(self, end: int) -> Iterator[Field]:
        """The fields of the message that ends at ``end``; they fill it exactly.

        Raises:
            CheckpointError: the bytes are not a message, or there are too many fields.
        """
        budget = self._budget
        while (start := self._base + self._i) < end:
            block, i = self._block, self._i
            if i + _HEAD > len(block) and self._base + len(block) < self._end:
                block, i = self._refill()
            budget.fields -= 1
            if budget.fields < 0:
                budget.take_fields(0)
            tag, value = block[i], block[i + 1] if i + 1 < len(block) else 0x80
            kind = tag & 7
            if tag < 0x80 and value < 0x80 and kind in (VARINT, DELIMITED):
                self._i = i + 2
            else:
                tag, self._i = self._varint(self._i)
                kind = tag & 7
                if kind in (VARINT, DELIMITED):
                    value, self._i = self._varint(self._i)
                elif kind in _FIXED:
                    value = _FIXED[kind]
                else:
                    raise self._file.bad(
                        f"is not an ONNX file, got wire type {kind} at byte {start}, expected 0, 1, 2 or 5"
                    )
            at = self._base + self._i
            stop = at if kind == VARINT else at + value
            if tag < 8 or stop > end:
                raise self._file.bad(
                    f"is not an ONNX file or cut off, got field {tag >> 3} from byte {start} to {stop}, expected an "
                    f"end by {end}"
                )
            yield tag >> 3, kind, value
            if (now := self._base + self._i) < stop:
                self.skip(stop - now)

    def take(self, length: int) -> bytes:
        """The next bytes; the caller has limited their number."""
        i = self._i
        if i + length > len(self._block):
            self._refill(length)
            i = self._i
        self._i = i + length
        return self._block[i : i + length]

    def skip(self, length: int) -> None:
        """Go on without the next bytes."""
        self._keep(self._i)
        self._i += length
        if self._i > len(self._block):
            self._base, self._block, self._i = self._base + self._i, b"", 0
        self._mark = self._i

    def known(self) -> Iterator[tuple[int, memoryview]]:
        """The bytes that were read and not skipped, by their offset."""
        self._keep(self._i)
        self._mark = self._i
        kept, begin = memoryview(self._kept or b""), 0
        for offset, end in zip(self._pieces[::2], self._pieces[1::2], strict=True):
            yield offset, kept[begin:end]
            begin = end

    def _keep(self, stop: int) -> None:
        if self._kept is not None and stop > self._mark:
            offset = self._base + self._mark
            self._kept += self._block[self._mark : stop]
            self._pieces.extend((offset, len(self._kept)))

    def _refill(self, least: int = 0) -> tuple[bytes, int]:
        """Read a block from the place on."""
        self._keep(self._i)
        at = self._base + self._i
        count = max(least, min(_WINDOW, self._end - at))
        self._block, self._base, self._i, self._mark = self._file.read(at, count), at, 0, 0
        return self._block, 0

    def _varint(self, i: int) -> tuple[int, int]:
        try:
            return read_varint(self._block, i)
        except IndexError:
            raise self._file.bad(
                f"is not an ONNX file or cut off, got no end of the number at byte {self._base + i}"
            ) from None


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """A number of 64 bits, and where it ends.

    Raises:
        IndexError: it does not end.
    """
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (1 << 64) - 1, at
    raise IndexError


def _varint(value: int) -> bytes:
    result = bytearray()
    while value > 0x7F:
        result.append(value & 0x7F | 0x80)
        value >>= 7
    result.append(value)
    return bytes(result)
