"""What float8 numbers are: a table of exact fractions from the definition of the formats."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from itertools import pairwise

import numpy as np
from helpers import FLOAT8, Array, np_dtype

NAN = 0x80


@cache
def magnitudes(name: str) -> tuple[Fraction, ...]:
    """The values of codes 0 to 127, and the one that a larger format would have next."""
    mantissa_bits, bias = (3, 8) if name == "float8_143" else (2, 16)
    values = []
    for code in range(129):
        exponent, mantissa = divmod(code, 2**mantissa_bits)
        hidden = 0 if exponent == 0 else 1
        significand = Fraction(mantissa, 2**mantissa_bits) + hidden
        values.append(significand * Fraction(2) ** (max(exponent, 1) - bias))
    return tuple(values)


def value_of(bits: int, name: str) -> Fraction | None:
    """None for NaN."""
    if bits == NAN:
        return None
    return magnitudes(name)[bits & 0x7F] * (-1 if bits & 0x80 else 1)


@cache
def values(name: str) -> Array:
    """The values of all 256 codes, exactly as float64."""
    exact = [value_of(bits, name) for bits in range(256)]
    found = np.array([np.nan if value is None else float(value) for value in exact])
    assert all(value is None or Fraction(float(value)) == value for value in exact)
    return found


@cache
def midpoints(name: str) -> Array:
    """Halfway between neighbours, exactly as float64."""
    table = magnitudes(name)
    exact = [(low + high) / 2 for low, high in pairwise(table)]
    assert all(Fraction(float(value)) == value for value in exact)
    return np.array([float(value) for value in exact])


def nearest(x: Array, name: str, *, nan_on_overflow: bool = True) -> Array:
    """Bits of the float8 nearest to float64 numbers, ties to even."""
    assert x.dtype == np.float64
    magnitude, middle = np.abs(x), midpoints(name)
    below = np.searchsorted(middle, magnitude)  # ties: the lower one
    tie = magnitude == middle[np.minimum(below, len(middle) - 1)]
    code = below + (tie & (below % 2 == 1))
    code = np.where(code > 127, NAN if nan_on_overflow else 127, code)
    code = np.where(np.isfinite(x), code, NAN)
    negative = np.signbit(x) & (code != 0) & (code != NAN)
    return (code + 128 * negative).astype(np.uint8)


def to_float8(x: Array, name: str) -> Array:
    """``nearest`` as array of ml_dtypes."""
    assert name in FLOAT8
    return nearest(np.asarray(x, np.float64), name).view(np_dtype(name)).reshape(np.shape(x))


def from_float8(x: Array) -> Array:
    """The numbers as float64."""
    name = FLOAT8[x.dtype == np_dtype(FLOAT8[1])]
    return np.asarray(values(name)[x.view(np.uint8)])
