"""The hash of docs/guard.md by whole numbers of Python, written from the page and from nothing else."""

from __future__ import annotations

import functools
import operator
from typing import Any

__all__ = ["hash_of_bytes", "key"]

_MASK = 2**64 - 1


def key(index: int) -> int:
    """The odd key of an index."""
    z = (index + 1) * 0x9E3779B97F4A7C15 & _MASK
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & _MASK
    return z ^ z >> 31 | 1


def hash_of_bytes(data: bytes | Any) -> int:
    """The hash of bytes."""
    total = key(4096) * len(data)
    padded = bytes(data) + b"\0" * (len(data) % 2)
    words = [int.from_bytes(padded[i : i + 2], "little", signed=True) for i in range(0, len(padded), 2)]
    for row in range(-(-len(words) // 4096)):
        sums = sum(map(operator.mul, _columns(), words[4096 * row : 4096 * row + 4096]))
        total += key(4097 + row) * sums
    return total & _MASK


@functools.cache
def _columns() -> list[int]:
    return [key(column) for column in range(4096)]
