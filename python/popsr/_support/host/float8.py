"""Bits of float8 from numbers and back: exact, rounded once, on the host."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from popsr import dtypes
from popsr._support.host.float_environment import in_default_environment

Array = np.ndarray[Any, Any]

__all__ = ["FLOAT8", "FLOAT8_NAMES", "decode", "encode", "float8_of", "has_values"]

_CHUNK = 1 << 15  # elements whose temporaries fit into a cache
_FAR = 300  # so many powers of two are beyond every float8

FLOAT8: dict[dtypes.dtype, dtypes.FloatFormat] = {
    kind: kind._format
    for kind in dtypes.dtype._all.values()
    if kind._format is not None and kind.as_numpy().itemsize == 1
}

FLOAT8_NAMES = " or ".join(", ".join(kind.name for kind in FLOAT8).rsplit(", ", 1))
"""For messages."""


def float8_of(array: Array) -> dtypes.dtype | None:
    """The float8 type of an array, structured or of ml_dtypes; None if it is of none."""
    kind = dtypes.dtype._of_numpy(array.dtype)
    return kind if kind in FLOAT8 else None


def has_values(array: Array) -> bool:
    """True for an array of wider floats."""
    kind = dtypes.dtype._of_numpy(array.dtype)
    return kind is not None and kind._format is not None and kind not in FLOAT8


@in_default_environment
def encode(values: Array, to: dtypes.dtype, log2_scale: int, nan_on_overflow: bool) -> Array:
    """``values * 2**log2_scale``, rounded once to the nearest float8, ties to even.

    Args:
        values: wider floats, any shape.
        to: the float8 type.
        log2_scale: any int.
        nan_on_overflow: finite values that round beyond the largest float8 become infinite, or NaN where the format
            has no infinity; else the largest. What is infinite becomes so anyway.
    Returns:
        Structured array of the shape of ``values``.
    """
    flat = np.ascontiguousarray(values).reshape(-1)
    bits = np.empty(flat.shape, np.uint8)
    shift = int(np.clip(log2_scale, -4 * _FAR * 8, 4 * _FAR * 8))
    for i in range(0, flat.size, _CHUNK):
        piece = flat[i : i + _CHUNK].astype(np.float64)  # exact
        bits[i : i + _CHUNK] = _round(piece, FLOAT8[to], shift, nan_on_overflow)
    return bits.view(to.as_numpy()).reshape(values.shape)


def _round(x: Array, to: dtypes.FloatFormat, shift: int, nan_on_overflow: bool) -> Array:
    finite = np.isfinite(x)
    # |x| = fraction * 2^exponent, 0.5 <= fraction < 1. frexp of a signalling NaN would warn.
    fraction, exponent = np.frexp(np.where(finite, np.abs(x), 0.0))
    exponent = np.where(fraction == 0, -_FAR, np.clip(exponent + shift, -_FAR, _FAR)).astype(np.int32)
    field = np.maximum(exponent - 1 + to.bias, 1)  # of the result: 1 for the least normals and all subnormals
    steps = np.rint(np.ldexp(fraction, exponent - field + to.bias + to.mantissa_bits))  # of its last place
    code = ((field - 1) << to.mantissa_bits) + steps.astype(np.int32)
    code = np.where(code > to.max_code, to.inf_code if nan_on_overflow else to.max_code, code)
    code = np.where(finite, code, np.where(np.isnan(x), to.nan_code, to.inf_code))
    negative = np.signbit(x) & (to.negative_zero | (code != 0))
    return np.asarray(code | np.where(negative, 0x80, 0), np.uint8)


@cache
def _values(of: dtypes.FloatFormat) -> Array:
    """The value of each of the 256 bit patterns, as float64."""
    bits = np.arange(256)
    code = bits & 0x7F
    field, mantissa = code >> of.mantissa_bits, code & ((1 << of.mantissa_bits) - 1)
    steps = np.where(field == 0, mantissa, mantissa + (1 << of.mantissa_bits))
    magnitude = np.ldexp(steps.astype(np.float64), np.maximum(field, 1) - of.bias - of.mantissa_bits)
    magnitude[code > of.max_code] = np.nan
    if of.inf_code != of.nan_code:
        magnitude[code == of.inf_code] = np.inf
    values: Array = np.where(bits >= 0x80, -magnitude, magnitude)
    values[of.nan_code] = np.nan
    values.flags.writeable = False
    return values


@in_default_environment
def decode(array: Array, to: dtypes.dtype, log2_scale: int) -> Array:
    """``array * 2**log2_scale`` in a wider float, rounded once.

    Args:
        array: of a float8 type, structured or of ml_dtypes, any shape.
        to: the wider type.
        log2_scale: any int.
    """
    kind = float8_of(array)
    assert kind is not None
    shift = int(np.clip(log2_scale, -16 * _FAR, 16 * _FAR))
    with np.errstate(over="ignore", under="ignore"):  # as in every cast of host data
        values = np.ldexp(_values(FLOAT8[kind]), shift).astype(
            to.as_ml_dtypes()
        )  # exact in float64, or beyond all
    return np.asarray(values[array.view(np.uint8)])
