"""Floats as the real numbers that they are meant to be."""

from __future__ import annotations

import functools
import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["fraction_of", "huge_of", "lifted"]

Array = NDArray[Any]
# Significand bits by the name of the dtype; others are exact.
_BITS = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}
# Decimal digits up to which the shortest decimal is the number that is meant.
_DIGITS = {"float64": 12, "float32": 6, "float16": 3, "bfloat16": 2}
_MOST_DENOMINATOR = 1 << 16
_INSIDE = Fraction(1023, 1024)  # of half a step, so that no number is meant by two floats
_HUGE_NEGATIVE, _HUGE_POSITIVE = -1e8, 1e20
_LIMIT_OF_FLOAT16 = 65504.0


def huge_of(values: Array) -> Array:
    """The multiples of a formal infinite number that floats stand for; 0 for a finite number.

    Large negative numbers fill what masks leave out, such as -1e9, -1e30 or the least number of the dtype: their exp is
    0. Infinities and NaN are themselves.
    """
    given = values.astype(np.float64)
    huge = ~np.isfinite(given) | (given <= _HUGE_NEGATIVE) | (given >= _HUGE_POSITIVE)
    if values.dtype.name == "float16":
        huge |= np.abs(given) == _LIMIT_OF_FLOAT16
    return np.where(huge, given, 0.0)


@functools.lru_cache(maxsize=1 << 16)
def fraction_of(value: float, shortest: str, dtype: str) -> Fraction:
    """The number that a float is meant to be, which no other float of its dtype is meant to be.

    A short decimal (0.1), else the simplest fraction that rounds to it (1/3), else the float itself.
    """
    exact = Fraction(value)
    bits = _BITS.get(dtype)
    if bits is None or exact.denominator == 1:
        return exact
    decimal = Fraction(shortest)
    significant = shortest.lower().split("e")[0].replace(".", "").lstrip("-0").rstrip("0")
    reach = Fraction(2) ** (math.frexp(value)[1] - bits - 1)  # half a step: what rounds to the float
    if len(significant) <= _DIGITS[dtype] and abs(decimal - exact) < reach:
        return decimal
    below = reach / 2 if math.frexp(value)[0] == 0.5 else reach  # steps below a power of two are halves
    above = reach / 2 if math.frexp(value)[0] == -0.5 else reach
    simple = _simplest(exact - below * _INSIDE, exact + above * _INSIDE)
    return simple if simple.denominator <= _MOST_DENOMINATOR else exact


def _simplest(low: Fraction, high: Fraction) -> Fraction:
    """The fraction of least denominator between two."""
    whole = low.numerator // low.denominator
    if low == whole:
        return Fraction(whole)
    if whole + 1 <= high:
        return Fraction(whole + 1)
    return whole + 1 / _simplest(1 / (high - whole), 1 / (low - whole))


def lifted(values: Array, primes: tuple[int, ...]) -> NDArray[np.uint64]:
    """Residues of finite floats or integers, a row for each prime."""
    flat = values.reshape(-1)
    unique, places = np.unique(flat, return_inverse=True)
    if values.dtype.kind in "iub":
        numbers = [Fraction(int(v)) for v in unique]
    else:
        numbers = [fraction_of(float(v), str(v), values.dtype.name) for v in unique]
    rows = [[n.numerator * pow(n.denominator, -1, p) % p for n in numbers] for p in primes]
    table = np.array(rows, np.uint64).reshape(len(primes), len(numbers))
    return table[:, places].reshape(len(primes), *values.shape)
