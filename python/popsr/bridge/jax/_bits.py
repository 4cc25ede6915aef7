"""The same bits as another element type."""

from __future__ import annotations

import numpy as np

from popsr import dtypes, ops
from popsr.bridge._reading import floats_are_wide
from popsr.bridge.jax._rules import (
    Equation,
    NotSupportedError,
    Result,
    rule,
    width,
)
from popsr.tensor import Tensor

__all__ = ["bits_of", "float_of", "integer_as"]


def integer_as(a: Tensor, dtype: dtypes.dtype) -> Tensor:
    """The same bits as an integer with or without a sign, or the lowest of them: casts of integers wrap."""
    return a if a.dtype == dtype else ops.cast(a, dtype)


_FORMATS = {
    dtypes.float16: (10, 15),
    dtypes.bfloat16: (7, 127),
    dtypes.float32: (23, 127),
    dtypes.float64: (52, 1023),
}
"""Bits of the mantissa, and the bias of the exponent."""


def _word(size: int) -> dtypes.dtype:
    """The unsigned integer of so many bytes."""
    return dtypes.dtype.as_dtype(f"uint{8 * size}")


@rule("bitcast_convert_type")
def _bitcast(equation: Equation, a: Tensor) -> Result:
    """Through unsigned integers; of another width they are cut or joined along the last dimension, low bits first."""
    to = _type_of_bits(equation, a)
    for dtype in (a.dtype, to):
        if not dtype.is_int and dtype not in _FORMATS:
            raise NotSupportedError(f"{a.dtype.name} to {to.name}")
    if a.dtype.is_int and to.is_int and width(a.dtype) == width(to):
        return integer_as(a, to)
    bits = integer_as(a, _word(width(a.dtype))) if a.dtype.is_int else bits_of(equation, a)
    bits = _resized(equation, bits, width(to))
    return integer_as(bits, to) if to.is_int else float_of(equation, bits, to)


def _type_of_bits(equation: Equation, a: Tensor) -> dtypes.dtype:
    """The element type that bits become, which is not kept in another format.

    Raises:
        NotSupportedError: bits of a float that is kept in another format.
    """
    if not floats_are_wide():
        return equation.dtype
    if not a.dtype.is_int:
        raise NotSupportedError("bits of a float that is read as float64")
    return dtypes.dtype.as_dtype(np.dtype(equation.params["new_dtype"]))


def _resized(equation: Equation, bits: Tensor, size: int) -> Tensor:
    """Unsigned integers as others of so many bytes."""
    have, narrow = width(bits.dtype), _word(size)
    if have > size:
        shifts = [equation.constant(8 * size * part, bits.dtype) for part in range(have // size)]
        parts = [ops.cast(ops.shift_right_logical(bits, by), narrow) for by in shifts]
        return ops.concat([ops.reshape(part, (*part.shape, 1)) for part in parts], bits.rank)
    if have < size:
        parts = ops.split(bits, [1] * (size // have), bits.rank - 1)
        whole: Tensor | None = None
        for number, part in enumerate(parts):
            wide = ops.cast(ops.reshape(part, part.shape[:-1]), narrow)
            moved = ops.shift_left(wide, equation.constant(8 * have * number, narrow)) if number else wide
            whole = moved if whole is None else ops.bitwise_or(whole, moved)
        assert whole is not None
        return whole
    return bits


def bits_of(equation: Equation, a: Tensor) -> Tensor:
    """The bits of floats as unsigned integers: exponents are found by halving, each step is exact; NaN is one value."""
    mantissa_bits, bias = _FORMATS[a.dtype]
    size = 8 * width(a.dtype)
    wide, word, whole = dtypes.float64, _word(width(a.dtype)), dtypes.uint64

    def number(value: float) -> Tensor:
        return equation.constant(value, wide)

    def bits(value: int) -> Tensor:
        return equation.constant(np.asarray(value, np.uint64), whole)

    x = ops.cast(a, wide)
    magnitude = ops.abs(x)
    one, exponent = magnitude, equation.constant(bias, dtypes.int32)
    for step in (512, 512, 256, 128, 64, 32, 16, 8, 4, 2, 1):
        if step > 2 * bias:
            continue
        by = equation.constant(step, dtypes.int32)
        large, small = (
            ops.greater_equal(one, number(2.0**step)),
            ops.less(one, number(2.0 ** (1 - step))),
        )
        exponent = ops.where(large, ops.add(exponent, by), ops.where(small, ops.sub(exponent, by), exponent))
        scaled = ops.where(small, ops.mul(one, number(2.0**step)), one)
        one = ops.where(large, ops.mul(one, number(2.0**-step)), scaled)
    is_normal = ops.greater(exponent, equation.constant(0, dtypes.int32))
    half = 2.0 ** ((bias - 1 + mantissa_bits) // 2)
    least = ops.mul(
        ops.mul(magnitude, number(half)),
        number(2.0 ** (bias - 1 + mantissa_bits) / half if bias < 1023 else half),
    )
    fraction = ops.where(is_normal, ops.mul(ops.sub(one, number(1.0)), number(2.0**mantissa_bits)), least)
    raised = ops.cast(ops.maximum(exponent, equation.constant(0, dtypes.int32)), whole)
    finite = ops.bitwise_or(ops.shift_left(raised, bits(mantissa_bits)), ops.cast(fraction, whole))
    infinite = ((1 << (size - 1 - mantissa_bits)) - 1) << mantissa_bits
    found = ops.where(ops.isfinite(x), finite, bits(infinite))
    found = ops.where(ops.isnan(x), bits(infinite | 1 << (mantissa_bits - 1)), found)
    negative = ops.less(ops.copysign(number(1.0), x), number(0.0))
    return ops.cast(ops.where(negative, ops.bitwise_or(found, bits(1 << (size - 1))), found), word)


@rule("nextafter")
def _next_after(equation: Equation, a: Tensor, b: Tensor) -> Result:
    """The float beside the first, towards the second: its bits are one more or one less."""
    if a.dtype not in _FORMATS:
        raise NotSupportedError(a.dtype.name)
    zero = equation.constant(0, a.dtype)
    here = bits_of(equation, a)
    word = here.dtype
    one = equation.constant(1, word)
    grows = ops.equal(ops.less(a, b), ops.greater(a, zero))
    beside = ops.where(grows, ops.add(here, one), ops.sub(here, one))
    sign = equation.constant(np.asarray(1 << (8 * width(a.dtype) - 1), word.as_numpy()), word)
    least = ops.where(ops.less(b, zero), ops.bitwise_or(sign, one), one)
    found = float_of(equation, ops.where(ops.equal(a, zero), least, beside), a.dtype)
    found = ops.where(ops.equal(a, b), b, found)
    return ops.where(ops.logical_or(ops.isnan(a), ops.isnan(b)), ops.add(a, b), found)


@rule("reduce_precision")
def _reduce_precision(equation: Equation, a: Tensor) -> Result:
    """The mantissa rounded to nearest, exponents that are too large infinite and those that are too small zero."""
    if a.dtype not in _FORMATS:
        raise NotSupportedError(a.dtype.name)
    if floats_are_wide():
        return a
    mantissa_bits, bias = _FORMATS[a.dtype]
    exponents, mantissas = int(equation.params["exponent_bits"]), int(equation.params["mantissa_bits"])
    size = 8 * width(a.dtype)
    if mantissas >= mantissa_bits and exponents >= size - 1 - mantissa_bits:
        return a
    bits = bits_of(equation, a)

    def number(value: int) -> Tensor:
        return equation.constant(np.asarray(value, bits.dtype.as_numpy()), bits.dtype)

    if mantissas < mantissa_bits:
        cut = mantissa_bits - mantissas
        last = ops.bitwise_and(ops.shift_right_logical(bits, number(cut)), number(1))
        rounded = ops.add(bits, ops.add(last, number((1 << (cut - 1)) - 1)))
        bits = ops.bitwise_and(rounded, number((1 << size) - (1 << cut)))
    if exponents < size - 1 - mantissa_bits:
        new_bias = (1 << (exponents - 1)) - 1
        infinite = ((1 << (size - 1 - mantissa_bits)) - 1) << mantissa_bits
        sign, exponent = (
            ops.bitwise_and(bits, number(1 << (size - 1))),
            ops.bitwise_and(bits, number(infinite)),
        )
        beyond = ops.greater(exponent, number((bias + new_bias) << mantissa_bits))
        below = ops.less_equal(exponent, number((bias - new_bias) << mantissa_bits))
        bits = ops.where(below, sign, ops.where(beyond, ops.bitwise_or(sign, number(infinite)), bits))
    return ops.where(ops.isnan(a), a, float_of(equation, bits, a.dtype))


def float_of(equation: Equation, bits: Tensor, to: dtypes.dtype) -> Tensor:
    """The float of a format's bits: mantissa times power of two, with a sign. Each step is exact; NaN is one value."""
    mantissa_bits, bias = _FORMATS[to]
    size = 8 * width(to)
    word = dtypes.uint64 if size == 64 else dtypes.uint32
    wide = dtypes.float64 if size == 64 else dtypes.float32
    bits = integer_as(integer_as(bits, dtypes.dtype.as_dtype(f"uint{size}")), word)

    def number(value: int) -> Tensor:
        return equation.constant(np.asarray(value, word.as_numpy()), word)

    top = (1 << (size - 1 - mantissa_bits)) - 1
    exponent = ops.bitwise_and(ops.shift_right_logical(bits, number(mantissa_bits)), number(top))
    fraction = ops.bitwise_and(bits, number((1 << mantissa_bits) - 1))
    is_normal = ops.greater(exponent, number(0))
    whole = ops.where(is_normal, ops.bitwise_or(fraction, number(1 << mantissa_bits)), fraction)
    powers = np.ldexp(1.0, np.maximum(np.arange(top + 1), 1) - bias - mantissa_bits).astype(wide.as_numpy())
    scale = ops.gather(equation.constant(powers, wide), ops.cast(exponent, dtypes.int32), 0)
    size_of = ops.mul(ops.cast(whole, wide), scale)
    beyond = ops.where(
        ops.greater(fraction, number(0)), equation.constant(np.nan, wide), equation.constant(np.inf, wide)
    )
    size_of = ops.where(ops.equal(exponent, number(top)), beyond, size_of)
    is_negative = ops.greater(ops.shift_right_logical(bits, number(size - 1)), number(0))
    value = ops.where(is_negative, ops.negate(size_of), size_of)
    return value if to == wide else ops.cast(value, to)
