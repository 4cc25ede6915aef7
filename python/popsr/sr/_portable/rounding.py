"""Rounding in array operations: by the bits of a float32 or float64, so that nothing is contracted or flushed.

A value is sig * 2**k. The format's code at or below it is found by a shift of sig; what the shift drops, over what it
could drop, is the chance p of the code above. It is compared as a 64-bit number, in digits of 16 bits.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from ml_dtypes import finfo

from popsr.sr._formats import Format
from popsr.sr._portable.arrays import Arrays, is_less
from popsr.sr._types import Mode, Overflow

__all__ = ["Grid", "Place", "grid_of", "num_digits", "num_dropped", "round_bits", "settle"]

_HALF = 0x8000


class Grid(NamedTuple):
    """Codes of a format, which are its bits without the sign.

    Attributes:
        fraction_bits: of a code.
        quantum: exponent of the least subnormal.
        sign: bit of the sign.
        most: code of the largest finite number.
        infinity: bits of infinity without the sign, or None.
        nan: bits of the NaN that results have.
        has_negative_zero: True but of the fnuz formats.
    """

    fraction_bits: int
    quantum: int
    sign: int
    most: int
    infinity: int | None
    nan: int
    has_negative_zero: bool


class Place(NamedTuple):
    """Magnitudes between two codes.

    Attributes:
        code: at or below.
        digits: of 16 bits, of the way to the next code, the highest first.
        rest: whether anything is left after these.
    """

    code: Any
    digits: list[Any]
    rest: Any


def grid_of(form: Format) -> Grid:
    """Grid of a format, as ml_dtypes publishes it."""
    info = finfo(form.numpy)  # type: ignore[no-untyped-call, unused-ignore]
    sign = 1 << (8 * form.itemsize - 1)
    most, infinity, nan, zero = (
        int(np.array(value).astype(form.numpy).view(form.raw)) for value in (info.max, np.inf, np.nan, -0.0)
    )
    has_infinity = bool(np.isinf(np.array(np.inf).astype(form.numpy)))
    quantum = int(info.minexp) - int(info.nmant)
    return Grid(int(info.nmant), quantum, sign, most, infinity if has_infinity else None, nan, zero == sign)


def num_digits(mode: Mode, of_chance: int) -> int:
    """Digits of an element's number that decide how it is rounded, where the chance has so many."""
    if mode == "sr":
        return of_chance
    if mode.startswith("sr_bits="):
        return -(-_bits_of(mode) // 16)
    return 1 if mode == "sr_equal" else 0


def _bits_of(mode: Mode) -> int:
    return int(mode.removeprefix("sr_bits="))


def num_dropped(source: Grid, target: Grid) -> int:
    """Digits of the chance of a cast: one where no more than 16 bits are ever dropped."""
    most = max(source.fraction_bits - target.fraction_bits, target.quantum - source.quantum)
    return 1 if most <= 16 else 4


def round_bits(
    xp: Arrays,
    bits: Any,
    source: Grid,
    target: Grid,
    numbers: list[Any],
    mode: Mode,
    overflow: Overflow,
) -> Any:
    """Bits of values, rounded once.

    Args:
        xp: the framework.
        bits: of float32 in int32, or of float64 in int64.
        source: their grid.
        target: grid of the result, whose exponents and fractions are not wider.
        numbers: digits of the elements' numbers, :func:`num_digits` of them, the highest first.
        mode: how to round.
        overflow: what becomes of values that are too large.
    Returns:
        bits of the results, as signed integers of the format's size.
    """
    negative = bits < 0
    magnitude = bits & (source.sign - 1)
    exponent = xp.largest(magnitude >> source.fraction_bits, 1)
    least_normal = 1 << source.fraction_bits
    fraction = magnitude & (least_normal - 1)
    significand = fraction + xp.where(magnitude >= least_normal, least_normal, 0)

    shift = xp.largest(
        target.quantum - source.quantum + 1 - exponent, source.fraction_bits - target.fraction_bits
    )
    whole = xp.smallest(shift, source.fraction_bits + 1)  # all bits of a significand
    dropped = significand & ((1 << whole) - 1)
    steps = shift + exponent - 1 + source.quantum - target.quantum  # of the spacing, from the least one
    code = (xp.smallest(steps, target.most) << target.fraction_bits) + (significand >> whole)

    at = Place(code, *_chance(xp, dropped, shift, source, num_dropped(source, target)))
    infinity = source.infinity or 0
    return settle(
        xp, at, numbers, target, mode, overflow, negative, magnitude == infinity, magnitude > infinity
    )


def settle(
    xp: Arrays,
    at: Place,
    numbers: list[Any],
    target: Grid,
    mode: Mode,
    overflow: Overflow,
    negative: Any,
    is_infinite: Any,
    is_nan: Any,
) -> Any:
    """Bits of the results that values have by their places, as signed integers of the format's size.

    Args:
        xp: the framework.
        at: the places.
        numbers: digits of the elements' numbers, the highest first.
        target: grid of the result.
        mode: how to round.
        overflow: what becomes of values that are too large.
        negative: signs.
        is_infinite: whose places mean nothing.
        is_nan: likewise.
    """
    inexact = at.rest
    for digit in at.digits:
        inexact = inexact | (digit != 0)
    away = _goes_away(at.digits, at.rest, numbers, mode, negative, (at.code & 1) != 0)
    code = xp.smallest(at.code, target.most + 1)
    rounded = code + xp.where(inexact & away, 1, 0)
    too_large = _too_large(target, overflow)
    result = xp.where(rounded > target.most, too_large, rounded)
    if mode in ("rz", "ru", "rd"):
        stays = {"rz": negative | ~negative, "ru": negative, "rd": ~negative}[mode]
        result = xp.where((code > target.most) & stays, target.most, result)
    result = xp.where(is_infinite, too_large, result)
    return _with_sign(xp, xp.where(is_nan, target.nan, result), negative, target)


def _chance(xp: Arrays, dropped: Any, shift: Any, source: Grid, count: int) -> tuple[list[Any], Any]:
    """Digits of dropped / 2**shift, and whether anything is left after these."""
    digits = []
    for k in range(count):
        down = shift - 16 * (k + 1)
        up = xp.smallest(xp.largest(-down, 0), 16)
        low = dropped >> xp.smallest(xp.largest(down, 0), source.fraction_bits + 1)
        digits.append((low & (0xFFFF >> up)) << up)
    below = xp.smallest(xp.largest(shift - 16 * count, 0), source.fraction_bits + 1)
    return digits, (dropped & ((1 << below) - 1)) != 0


def _goes_away(
    digits: list[Any], rest: Any, numbers: list[Any], mode: Mode, negative: Any, is_odd: Any
) -> Any:
    """Whether an inexact result is the neighbour away from zero."""
    if mode == "sr":
        less, equal = is_less(numbers, digits)
        return less | (equal & rest)
    if mode == "sr_equal":
        return numbers[0] < _HALF
    if mode == "rn":
        less, equal = is_less([_HALF, 0, 0, 0][: len(digits)], digits)
        return less | (equal & (rest | is_odd))
    if mode.startswith("sr_bits="):
        masks = [
            0xFFFF0000 >> count & 0xFFFF for count in (min(_bits_of(mode), 16), max(_bits_of(mode) - 16, 0))
        ]
        pairs = [(u & mask, p & mask) for u, p, mask in zip(numbers, digits, masks, strict=False)]
        return is_less(*zip(*pairs, strict=True))[0]
    return {"ru": ~negative, "rd": negative, "rz": negative & ~negative}[mode]


def _too_large(target: Grid, overflow: Overflow) -> int:
    if overflow == "saturate":
        return target.most
    return target.nan if target.infinity is None else target.infinity


def _with_sign(xp: Arrays, result: Any, negative: Any, target: Grid) -> Any:
    signed = negative & (result != target.nan)
    if not target.has_negative_zero:
        signed = signed & (result != 0)
    if target.nan == target.sign:  # the sign alone
        result = xp.where(result == target.nan, -target.sign, result)
    return result + xp.where(signed, -target.sign, 0)
