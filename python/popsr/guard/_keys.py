"""Keys and sizes of the hash that ``docs/guard.md`` specifies; each framework computes it by operations of its own."""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt

__all__ = ["BLOCK_BYTES", "BLOCK_ROWS", "ROW_BYTES", "ROW_WORDS", "column_keys", "length_key", "row_keys"]

ROW_WORDS = 4096
"""Words of 16 bits in a row."""

ROW_BYTES = 2 * ROW_WORDS

BLOCK_ROWS = 64
"""Rows that are hashed at once: a choice of speed and memory, which no hash depends on."""

BLOCK_BYTES = BLOCK_ROWS * ROW_BYTES

_STEP = np.uint64(0x9E3779B97F4A7C15)


def _keys(start: int, stop: int) -> npt.NDArray[np.uint64]:
    """Odd numbers of 64 bits by their index: SplitMix64 from the seed 0."""
    z = np.arange(start + 1, stop + 1, dtype=np.uint64) * _STEP
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (z ^ (z >> np.uint64(31))) | np.uint64(1)


@functools.cache
def column_keys() -> npt.NDArray[np.uint64]:
    """A key for each word of a row."""
    return _keys(0, ROW_WORDS)


@functools.cache
def length_key() -> int:
    """The key of the number of bytes."""
    return int(_keys(ROW_WORDS, ROW_WORDS + 1)[0])


def row_keys(start: int, stop: int) -> npt.NDArray[np.uint64]:
    """Keys of the rows from ``start`` to before ``stop``."""
    return _keys(ROW_WORDS + 1 + start, ROW_WORDS + 1 + stop)
