"""Limits on what a file may say, so that the memory and time of loading stay in proportion to its size."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterable

from popsr._support.host.files import shown_name, shown_shape
from popsr.errors import CheckpointError

__all__ = ["Budget"]

# The control characters of C0 and C1, and halves of UTF-16 pairs, which no encoding can write.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_TENSOR_BYTES = 560  # of a tensor's objects besides its name and data
_BLOCKS = 4 << 20
_ENTRY_BYTES = 110  # of an entry of a table
_TEXT_BYTES = 200  # of one, and a short text


class Budget:
    """The limits of one file, and how much of them is used.

    Whatever a file of ``s`` bytes contains, loading it takes at most ``PER_BYTE * s + FIXED`` bytes of memory besides
    the variables of the caller's program. Every limit is a CheckpointError when it is exceeded, raised before the
    memory is taken. A program that exceeds one is not saved.

    Args:
        bad: makes the error of a text.
        size: bytes of the file.
    """

    TENSORS = 1 << 16
    NAME = 1 << 12  # bytes of a tensor's name
    RANK = 32
    HEADER = 16 << 20  # bytes of the header of a safetensors file
    METADATA = 1 << 20  # bytes of texts; equal groups of several tensors count once
    FIELDS = 1 << 20  # of protobuf messages, and another for each of
    BYTES_PER_FIELD = 128  # of the file
    FIXED = 48 << 20
    PER_BYTE = 2

    def __init__(self, bad: Callable[[str], CheckpointError], size: int) -> None:
        self._bad = bad
        self._tensors = self._metadata = 0
        self._texts: dict[str, str] = {}
        self._room = self.PER_BYTE * size + self.FIXED
        # Its bytes are in memory once, as text that is read or as data of a tensor; and there are blocks to
        # read with, and pages that the interpreter keeps.
        self._memory = size + _BLOCKS
        self.fields = self._fields = self.FIELDS + size // self.BYTES_PER_FIELD
        """Protobuf fields that are left; for the reader's inner loop."""

    def take_fields(self, count: int) -> None:
        """Count fields of protobuf messages."""
        self.fields -= count
        if self.fields < 0:
            raise self.too_many("protobuf fields", self._fields - self.fields, self._fields)

    def too_many(self, what: str, got: int, limit: int) -> CheckpointError:
        """The error for more than a limit."""
        return self._bad(f"has too many {what}, got at least {got}, expected at most {limit}")

    def check_header(self, length: int) -> None:
        """Refuse a header that is too long."""
        if length > self.HEADER:
            raise self.too_many("bytes in its header", length, self.HEADER)

    def take_metadata(self, length: int) -> None:
        """Count a text of that many bytes."""
        self._metadata += length
        if self._metadata > self.METADATA:
            raise self.too_many("bytes of metadata", self._metadata, self.METADATA)

    def add_text(self, text: str) -> str:
        """Count a text of a tensor's settings. Equal texts count once and become one object, which is returned."""
        found = self._texts.get(text)
        if found is None:
            self.take_metadata(len(text))
            self.take_memory(_TEXT_BYTES)
            found = self._texts[text] = text
        return found

    def add_entry(self, key: str, value: str) -> None:
        """Count another entry of metadata."""
        self.take_metadata(len(key) + len(value))
        self.take_memory(_ENTRY_BYTES + sys.getsizeof(key) + sys.getsizeof(value))

    def take_memory(self, nbytes: int) -> None:
        """Count memory that is about to be taken."""
        self._memory += nbytes
        if self._memory > self._room:
            raise self._bad(
                f"needs too much memory, got at least {self._memory} bytes, expected at most {self._room} "
                f"({self.PER_BYTE} per byte of the file, and {self.FIXED})"
            )

    def add_tensor(self, name: str, shape: Iterable[int]) -> tuple[int, ...]:
        """Count a tensor and check its name and shape, which is returned."""
        self._tensors += 1
        if self._tensors > self.TENSORS:
            raise self.too_many("tensors", self._tensors, self.TENSORS)
        if len(name) > self.NAME or not name.isascii():
            self._check_name_length(name)
        if _UNPRINTABLE.search(name):
            raise self._bad(
                f"has a tensor whose name has control characters or surrogates, got {shown_name(name)}"
            )
        self.take_memory(_TENSOR_BYTES + sys.getsizeof(name))
        return self._check_shape(name, shape)

    def _check_name_length(self, name: str) -> None:
        length = len(name.encode(errors="surrogatepass"))
        if length > self.NAME:
            raise self._bad(
                f"has a tensor whose name is too long, got {length} bytes, expected at most {self.NAME}, "
                f"for {shown_name(name)}"
            )

    def _check_shape(self, name: str, shape: Iterable[int]) -> tuple[int, ...]:
        """Refuse negative extents, and what NumPy has no arrays for or makes huge ones of when it adds up an axis."""
        extents = tuple(shape)
        if len(extents) > self.RANK:
            raise self._bad(
                f"has a tensor of absurd size, got {shown_name(name)} of rank {len(extents)}, expected at most "
                f"{self.RANK}"
            )
        if extents and min(extents) < 0:
            raise self._bad(
                f"has a negative dimension, got {shown_shape(extents)} for {shown_name(name)}, expected 0 or more"
            )
        is_empty = 0 in extents
        if math.prod(filter(None, extents) if is_empty else extents) >= (1 << 31 if is_empty else 1 << 59):
            raise self._bad(
                f"has a tensor of absurd size, got {shown_name(name)} of shape {shown_shape(extents)}"
            )
        return extents
