"""May an output share memory with an operand? Equal views and disjoint ones may; anything between may not."""

from __future__ import annotations

from typing import Any

import numpy as np

from popsr.errors import AttributeValueError

__all__ = ["check_out_overlap", "is_same_view", "overlaps_itself"]

Array = np.ndarray[Any, Any]
_FEW_ELEMENTS = 1 << 16
_MAX_WORK = 100_000  # of NumPy's exact search; beyond it, an overlap is assumed


def is_same_view(a: Array, b: Array) -> bool:
    """Is element i of one the same memory as element i of the other, for every i?"""
    return (
        a.itemsize == b.itemsize
        and a.shape == b.shape
        and a.ctypes.data == b.ctypes.data
        and all(extent <= 1 or s == t for extent, s, t in zip(a.shape, a.strides, b.strides, strict=True))
    )


def _overlaps(a: Array, b: Array) -> bool:
    if not np.may_share_memory(a, b):
        return False
    try:
        return np.shares_memory(a, b, max_work=_MAX_WORK)  # type: ignore[arg-type]  # the stub knows 0 and -1
    except np.exceptions.TooHardError:
        return True


def overlaps_itself(a: Array) -> bool:
    """Are two elements in the same memory? When that is hard to tell, yes."""
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


def check_out_overlap(
    op: str, name: str, out: Array, operands: dict[str, Array], *, same: bool = True
) -> None:
    """Raise unless every operand is disjoint from ``out``, or the same view.

    Args:
        op: for the message.
        name: of the output, for the message.
        out: what is written.
        operands: what is read, broadcast to the shape of ``out``, by name.
        same: is the same view allowed?
    Raises:
        AttributeValueError: partial overlap.
    """
    if overlaps_itself(out):
        raise AttributeValueError(
            f"{op}: elements of {name} overlap each other, got shape {out.shape} and strides {out.strides}, "
            "expected an element of memory for each"
        )
    for other, array in operands.items():
        if (not same or (array is not out and not is_same_view(out, array))) and _overlaps(out, array):
            expected = "the same view or disjoint memory" if same else "disjoint memory"
            raise AttributeValueError(
                f"{op}: {name} overlaps {other}, got strides {out.strides} and {array.strides}, expected {expected}"
            )
