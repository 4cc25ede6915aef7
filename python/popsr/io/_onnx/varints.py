"""Numbers of an ONNX tensor as protobuf packs them: a byte for each seven bits, decoded while they are read."""

from __future__ import annotations

import numpy as np

from popsr._session.rows import Array
from popsr._support.host.files import shown_name
from popsr.io._open_file import OpenFile

__all__ = ["Varints"]

_BLOCK = 64 << 10  # bytes that are decoded at a time: what is made of them stays in the cache
_MAX_LENGTH = 10


class Varints:
    """The numbers of one tensor.

    Args:
        file: where they come from, for errors.
        name: the tensor.
        count: how many there must be.
        array: where they go to; without one they are counted.
    """

    def __init__(self, file: OpenFile, name: str, count: int, array: Array | None) -> None:
        self._file, self._name, self._count = file, name, count
        self._found = 0
        self._rest = b""  # the begin of a number whose end is in the next block
        self._kind = None if array is None else array.dtype
        self._target: Array | None = None
        if array is not None:
            is_int = array.dtype.kind in "iu"  # floats of up to 16 bits come as their bits
            self._target = array.reshape(-1).view(array.dtype if is_int else f"u{array.dtype.itemsize}")

    def append(self, block: memoryview) -> None:
        """Decode the next bytes."""
        for begin in range(0, len(block), _BLOCK):
            data = np.frombuffer(self._rest + bytes(block[begin : begin + _BLOCK]), np.uint8)
            ends = np.flatnonzero(data < 0x80) + 1
            stop = int(ends[-1]) if len(ends) else 0
            self._rest = data[stop:].tobytes()
            if len(self._rest) >= _MAX_LENGTH:
                raise self._bad_length()
            if self._found + len(ends) > self._count:
                raise self._bad_count(f"at least {self._found + len(ends)}")
            if self._target is not None:
                values = data[:stop] if len(ends) == stop else self._decode(data, ends)
                self._store(values)
            self._found += len(ends)

    def finish(self) -> None:
        """Refuse too few numbers, and one without its end."""
        if self._rest:
            raise self._bad_length()
        if self._found != self._count:
            raise self._bad_count(str(self._found))

    def _decode(self, data: Array, ends: Array) -> Array:
        starts = np.concatenate(([0], ends[:-1]))
        lengths = ends - starts
        longest = int(lengths.max())
        if longest > _MAX_LENGTH:
            raise self._bad_length()
        values: Array = (data[starts] & 0x7F).astype(np.uint64)
        for i in range(1, longest):
            longer = np.flatnonzero(lengths > i)
            part = (data[starts[longer] + i] & 0x7F).astype(np.uint64)
            values[longer] |= part << np.uint64(7 * i)
        return values

    def _store(self, values: Array) -> None:
        assert self._target is not None
        wide = (
            values.view(np.int64) if self._target.dtype.kind == "i" and values.dtype.itemsize == 8 else values
        )
        narrow = wide.astype(self._target.dtype)
        if not np.array_equal(narrow, wide):
            raise self._file.bad(
                f"has a number out of range for {shown_name(self._name)}, expected {self._kind}"
            )
        self._target[self._found : self._found + len(narrow)] = narrow

    def _bad_length(self) -> Exception:
        return self._file.bad(f"has a number without an end in the data of {shown_name(self._name)}")

    def _bad_count(self, found: str) -> Exception:
        return self._file.bad(
            f"has data of the wrong size for {shown_name(self._name)}, got {found} numbers, expected {self._count}"
        )
