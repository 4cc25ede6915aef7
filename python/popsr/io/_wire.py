"""Protobuf's wire format, as far as messages are too big to be objects.

A message is a sequence of fields, each a tag (number and wire type) and a body; bodies of strings, bytes and messages
have their length in front. Fields may come in any order, so the few big ones are written and read by themselves and
the rest is left to the library.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from popsr.io._files import OpenFile

__all__ = ["Field", "delimited", "fields"]

_DELIMITED = 2
_FIXED = {1: 8, 5: 4}


class Field(NamedTuple):
    """A field of a message in a file: it starts at ``start``, its body at ``body``; both end at ``end``."""

    number: int
    is_delimited: bool
    start: int
    body: int
    end: int


def delimited(number: int, length: int) -> bytes:
    """What comes before the ``length`` bytes of a string, bytes or message."""
    return _varint(number << 3 | _DELIMITED) + _varint(length)


def fields(file: OpenFile, start: int, end: int) -> Iterator[Field]:
    """The fields of the message between two positions; they fill it exactly.

    Raises:
        CheckpointError: the bytes are no message.
    """
    at = start
    while at < end:
        tag, body = _read_varint(file, at, end)
        number, kind = tag >> 3, tag & 7
        if kind == 0:
            _, stop = _read_varint(file, body, end)
        elif kind == _DELIMITED:
            length, body = _read_varint(file, body, end)
            stop = body + length
        elif kind in _FIXED:
            stop = body + _FIXED[kind]
        else:
            raise file.bad(f"is no ONNX file, got wire type {kind} at byte {at}, expected 0, 1, 2 or 5")
        if number == 0 or stop > end:
            raise file.bad(
                f"is no ONNX file or cut off, got field {number} from byte {at} to {stop}, expected an end by {end}"
            )
        yield Field(number, kind == _DELIMITED, at, body, stop)
        at = stop


def _varint(value: int) -> bytes:
    result = bytearray()
    while value > 0x7F:
        result.append(value & 0x7F | 0x80)
        value >>= 7
    result.append(value)
    return bytes(result)


def _read_varint(file: OpenFile, at: int, end: int) -> tuple[int, int]:
    value = 0
    for i, byte in enumerate(file.read(at, min(10, end - at))):
        value |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:
            return value, at + i + 1
    raise file.bad(f"is no ONNX file or cut off, got no end of the number at byte {at}")
