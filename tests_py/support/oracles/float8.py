"""The float8 numbers as a table of exact fractions, from the definition of the formats."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from itertools import pairwise

import numpy as np

from tests_py.support.helpers import FLOAT8, Array, np_dtype
from tests_py.support.oracles.rounding import FORMATS, Format

NAN = 0x80
"""Of the formats without negative zero."""


def form(name: str) -> Format:
    """The definition of a dtype's format."""
    return FORMATS[np_dtype(name).name]


def overflow(name: str) -> int:
    """Of infinity and of what is too large."""
    infinity = form(name).infinity
    return form(name).nan if infinity is None else infinity


@cache
def magnitudes(name: str) -> tuple[Fraction, ...]:
    """The values of the finite codes, and the one that a larger format would have next."""
    of = form(name)
    values = []
    for code in range(of.max_code + 2):
        exponent, mantissa = divmod(code, 2**of.fraction_bits)
        hidden = 0 if exponent == 0 else 1
        significand = Fraction(mantissa, 2**of.fraction_bits) + hidden
        values.append(significand * Fraction(2) ** (max(exponent, 1) - of.bias))
    return tuple(values)


def value_of(bits: int, name: str) -> Fraction | None:
    """None for NaN and infinity."""
    of = form(name)
    if bits & 0x7F > of.max_code or bits == of.nan:
        return None
    return magnitudes(name)[bits & 0x7F] * (-1 if bits & 0x80 else 1)


@cache
def values(name: str) -> Array:
    """The values of all 256 codes, exactly as float64."""
    exact = [value_of(bits, name) for bits in range(256)]
    assert all(value is None or Fraction(float(value)) == value for value in exact)
    found = np.array([np.nan if value is None else float(value) for value in exact])
    of = form(name)
    if of.infinity is not None:
        found[of.infinity], found[of.infinity | 0x80] = np.inf, -np.inf
    if of.negative_zero:
        found[0x80] = -0.0
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
    of = form(name)
    code = np.where(code > of.max_code, overflow(name) if nan_on_overflow else of.max_code, code)
    code = np.where(np.isfinite(x), code, np.where(np.isnan(x), of.nan, overflow(name)))
    negative = np.signbit(x) & (of.negative_zero | (code != 0) & (code != of.nan))
    return (code + 128 * negative).astype(np.uint8)


def to_float8(x: Array, name: str) -> Array:
    """``nearest`` as array of ml_dtypes."""
    assert name in FLOAT8
    return nearest(np.asarray(x, np.float64), name).view(np_dtype(name)).reshape(np.shape(x))


def from_float8(x: Array) -> Array:
    """The numbers as float64."""
    (name,) = (name for name in FLOAT8 if x.dtype == np_dtype(name))
    return np.asarray(values(name)[x.view(np.uint8)])
