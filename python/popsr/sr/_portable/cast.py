"""Casts in array operations, from the digits of a key to the bits of the result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from popsr._support.text.shown import shown
from popsr.errors import DTypeError
from popsr.sr._formats import FORMATS
from popsr.sr._portable.arrays import Arrays
from popsr.sr._portable.noise import numbers
from popsr.sr._portable.rounding import grid_of, num_digits, num_dropped, round_bits
from popsr.sr._types import Mode, Overflow

__all__ = ["GRIDS", "cast_bits", "is_narrower", "widened"]

GRIDS = {name: grid_of(form) for name, form in FORMATS.items()}


def widened(op: str, source: str) -> str:
    """The format whose bits are rounded: float32, to which formats of 8 and 16 bits are cast exactly, or float64.

    Raises:
        DTypeError: the source is not a float format.
    """
    if source not in FORMATS:
        raise DTypeError(
            f"{op}: x is not a float format, got {shown(source)}, expected one of {', '.join(FORMATS)}"
        )
    return "float64" if source == "float64" else "float32"


def is_narrower(target: str, source: str) -> bool:
    """True if values of float32 or float64 are rounded to the format; casts to others are exact."""
    return FORMATS[target].itemsize < FORMATS[source].itemsize


def cast_bits(
    xp: Arrays,
    bits: Any,
    source: str,
    target: str,
    key: Sequence[Any],
    *,
    mode: Mode,
    overflow: Overflow,
    offset: Any,
) -> Any:
    """Bits of values in a narrower format.

    Args:
        xp: the framework.
        bits: of float32 ``[...]`` in int32, or of float64 in int64.
        source: name of that format.
        target: name of the other format.
        key: its 8 digits of 16 bits, the lowest first.
        mode: how to round.
        overflow: what becomes of values that are too large.
        offset: number of the first element: an integer, or its digits.
    Returns:
        signed integers of the format's size, ``[...]``.
    """
    grids = GRIDS[source], GRIDS[target]
    count = num_digits(mode, num_dropped(*grids))
    us = numbers(xp, key, bits.shape, offset, count)
    return round_bits(xp, bits, *grids, us, mode, overflow)
