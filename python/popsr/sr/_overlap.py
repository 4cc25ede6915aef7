"""May an output share memory with an operand? Equal views and disjoint ones may; anything between may not."""

from __future__ import annotations

from typing import Any

import numpy as np

from popsr._support.host.overlap import overlaps, overlaps_itself
from popsr.errors import AttributeValueError

__all__ = ["check_out_overlap", "is_same_view", "overlaps_itself"]

Array = np.ndarray[Any, Any]


def is_same_view(a: Array, b: Array) -> bool:
    """True if element i of one is the same memory as element i of the other, for every i."""
    return (
        a.itemsize == b.itemsize
        and a.shape == b.shape
        and a.ctypes.data == b.ctypes.data
        and all(extent <= 1 or s == t for extent, s, t in zip(a.shape, a.strides, b.strides, strict=True))
    )


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
        if (not same or (array is not out and not is_same_view(out, array))) and overlaps(out, array):
            expected = "the same view or disjoint memory" if same else "disjoint memory"
            raise AttributeValueError(
                f"{op}: {name} overlaps {other}, got strides {out.strides} and {array.strides}, expected {expected}"
            )
