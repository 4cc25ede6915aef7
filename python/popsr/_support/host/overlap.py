"""Arrays that share memory, with others or element with element."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

__all__ = ["first_overlap", "overlaps", "overlaps_itself", "own_memory"]

Array = np.ndarray[Any, Any]
_FEW_ELEMENTS = 1 << 16
_MAX_WORK = 100_000  # of NumPy's exact search; beyond it, an overlap is assumed


def overlaps(a: Array, b: Array) -> bool:
    """True if an element of one is in the memory of the other; also when that is hard to tell."""
    if not np.may_share_memory(a, b):
        return False
    try:
        return np.shares_memory(a, b, max_work=_MAX_WORK)  # type: ignore[arg-type]  # the stub knows 0 and -1
    except np.exceptions.TooHardError:
        return True


def overlaps_itself(a: Array) -> bool:
    """True if two elements are in the same memory; also when that is hard to tell."""
    if a.flags.c_contiguous or a.size <= 1:
        return False
    reach = a.itemsize
    nested = True
    for stride, extent in sorted((abs(s), n) for s, n in zip(a.strides, a.shape, strict=True) if n > 1):
        nested = nested and stride >= reach
        reach += stride * (extent - 1)
    if nested:
        return False
    if a.size > _FEW_ELEMENTS or 0 in a.strides:
        return True
    offsets = np.zeros((), np.int64)
    for stride, extent in zip(a.strides, a.shape, strict=True):
        offsets = np.add.outer(offsets, np.arange(extent, dtype=np.int64) * stride)
    return bool(np.min(np.diff(np.sort(offsets, axis=None))) < a.itemsize)


def own_memory(arrays: Collection[Array]) -> bool:
    """True if it is clear at once that every element of the arrays has memory of its own."""
    for array in arrays:
        if array.base is not None or not array.flags.c_contiguous:
            return False
    return len(arrays) < 2 or len({id(array) for array in arrays}) == len(arrays)


def first_overlap(arrays: Sequence[Array]) -> tuple[int, int] | None:
    """The indices of two arrays with memory in common, if there are any."""
    near: list[tuple[int, int]] = []  # (end, index) of those that may reach the next one
    for low, high, i in sorted((*_bounds(array), i) for i, array in enumerate(arrays) if array.size > 0):
        near = [(end, j) for end, j in near if end > low]
        for _, j in near:
            if overlaps(arrays[i], arrays[j]):
                return min(i, j), max(i, j)
        near.append((high, i))
    return None


def _bounds(array: Array) -> tuple[int, int]:
    """Addresses of the first byte and after the last."""
    steps = [stride * (extent - 1) for stride, extent in zip(array.strides, array.shape, strict=True)]
    low: int = array.ctypes.data + sum(step for step in steps if step < 0)
    return low, low + sum(map(abs, steps)) + array.itemsize
