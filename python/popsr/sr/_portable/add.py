"""Sums in array operations, from the digits of a key to the bits of the result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from popsr.sr._portable import exact
from popsr.sr._portable.arrays import Arrays, NumpyArrays
from popsr.sr._portable.cast import GRIDS
from popsr.sr._portable.noise import numbers
from popsr.sr._portable.rounding import num_digits, settle
from popsr.sr._types import Mode, Overflow

__all__ = ["add_bits"]

_PRODUCTS = exact.product_grid(GRIDS["float64"])

Operand = tuple[str, Any] | float


def add_bits(
    xp: Arrays,
    operands: Sequence[Operand],
    negates: bool,
    target: str,
    key: Sequence[Any],
    shape: tuple[int, ...],
    *,
    mode: Mode,
    overflow: Overflow,
    offset: Any,
    factor: float | None = None,
) -> Any:
    """Bits of ``x + y``, of ``x - y``, or of ``x + factor * y``, rounded once.

    Args:
        xp: the framework.
        operands: two, each a format with the bits of values in it, float32 in int32 or float64 in int64, that broadcast
            to ``shape``; or a number.
        negates: subtract.
        target: name of the format of the result.
        key: its 8 digits of 16 bits, the lowest first.
        shape: of the result.
        mode: how to round.
        overflow: what becomes of sums that are too large.
        offset: number of the first element: an integer, or its digits.
        factor: of ``y``, which is float32 then; finite.
    Returns:
        signed integers of the format's size.
    """
    known = [_read(xp, each) for each in operands]
    source = GRIDS["float64" if any(is_wide for _, is_wide in known) else "float32"]
    x, y = (each for each, _ in known)
    if factor is not None:
        source = _PRODUCTS
        y = exact.times(xp, y, factor, source)
    total = exact.add(xp, x, y._replace(negative=~y.negative) if negates else y, source, GRIDS[target])
    at = exact.place(xp, total, GRIDS[target])
    us = numbers(xp, key, shape, offset, num_digits(mode, len(at.digits)))
    return settle(xp, at, us, GRIDS[target], mode, overflow, *total.signs())


def _read(xp: Arrays, operand: Operand) -> tuple[exact.Number, bool]:
    """The operand, and whether float32 does not have it."""
    if isinstance(operand, tuple):
        name, bits = operand
        return exact.number(xp, bits, GRIDS[name]), name == "float64"
    value = np.array([operand])
    with np.errstate(over="ignore", under="ignore"):
        narrow = value.astype(np.float32)
    is_wide = bool((narrow.astype(np.float64) != value)[0])  # NaN too
    bits = value.view(np.int64) if is_wide else narrow.view(np.int32)
    known = exact.number(NumpyArrays(), bits, GRIDS["float64" if is_wide else "float32"])

    def constant(x: Any) -> Any:
        return xp.constants([int(x[0])])[0]

    return exact.Number(
        constant(known.negative) != 0,
        constant(known.exponent),
        [constant(limb) for limb in known.limbs],
        constant(known.infinite) != 0,
        constant(known.nan) != 0,
    ), is_wide
