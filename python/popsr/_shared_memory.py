"""Arrays whose elements are in memory twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["first_overlap", "overlaps_itself"]

Array = np.ndarray[Any, Any]

_MAX_WORK: Any = 10_000  # of the search for a common byte of two arrays of interleaved elements


def overlaps_itself(array: Array) -> bool:
    """True if elements of an array share memory, or could: strides that no slicing gives are not looked into."""
    if array.size <= 1:
        return False
    end = array.itemsize
    for stride, extent in sorted(
        (abs(stride), extent) for stride, extent in zip(array.strides, array.shape, strict=True) if extent > 1
    ):
        if stride < end:
            return True
        end = stride * (extent - 1) + end
    return False


def first_overlap(arrays: Sequence[Array]) -> tuple[int, int] | None:
    """The numbers of two arrays that share memory, or of two for which that takes too long to tell; None if none do."""
    by_begin = sorted((*_bounds(array), i) for i, array in enumerate(arrays) if array.size)
    open_ones: list[tuple[int, int]] = []  # end and number of arrays that reach beyond the current begin
    for begin, end, i in by_begin:
        open_ones = [(other_end, j) for other_end, j in open_ones if other_end > begin]
        for _, j in open_ones:
            if _share(arrays[i], arrays[j]):
                return min(i, j), max(i, j)
        open_ones.append((end, i))
    return None


def _bounds(array: Array) -> tuple[int, int]:
    """The addresses of the first byte and of the one after the last."""
    begin: int = array.__array_interface__["data"][0]
    spans = [stride * (extent - 1) for stride, extent in zip(array.strides, array.shape, strict=True)]
    low = begin + sum(span for span in spans if span < 0)
    return low, begin + sum(span for span in spans if span > 0) + array.itemsize


def _share(a: Array, b: Array) -> bool:
    try:
        return np.shares_memory(a, b, max_work=_MAX_WORK)
    except np.exceptions.TooHardError:
        return True
