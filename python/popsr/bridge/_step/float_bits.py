"""Bits of floats by exact arithmetic: their words as unsigned integers, and floats of words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from popsr import dtypes, ops
from popsr._program.tensor import Tensor

__all__ = ["FORMATS", "bits_of", "float_of", "integer_as", "word_of"]

Make = Callable[[Any, dtypes.dtype], Tensor]
"""Makes a constant of the current graph."""

FORMATS = {
    dtypes.float16: (10, 15),
    dtypes.bfloat16: (7, 127),
    dtypes.float32: (23, 127),
    dtypes.float64: (52, 1023),
}
"""Bits of the mantissa, and the bias of the exponent."""


def word_of(dtype: dtypes.dtype) -> dtypes.dtype:
    """The unsigned integer of as many bytes."""
    return dtypes.dtype.as_dtype(f"uint{8 * dtype.as_numpy().itemsize}")


def integer_as(a: Tensor, dtype: dtypes.dtype) -> Tensor:
    """Equal bits as an integer with or without a sign, or the lowest of them: casts of integers wrap."""
    return a if a.dtype == dtype else ops.cast(a, dtype)


def bits_of(make: Make, a: Tensor) -> Tensor:
    """The bits of floats as unsigned integers: exponents are found by halving, each step is exact; NaN is one value."""
    mantissa_bits, bias = FORMATS[a.dtype]
    size = 8 * a.dtype.as_numpy().itemsize
    wide, word, whole = dtypes.float64, word_of(a.dtype), dtypes.uint64

    def number(value: float) -> Tensor:
        return make(value, wide)

    def bits(value: int) -> Tensor:
        return make(np.asarray(value, np.uint64), whole)

    x = ops.cast(a, wide)
    magnitude = ops.abs(x)
    one, exponent = magnitude, make(bias, dtypes.int32)
    for step in (512, 512, 256, 128, 64, 32, 16, 8, 4, 2, 1):
        if step > 2 * bias:
            continue
        by = make(step, dtypes.int32)
        large, small = (
            ops.greater_equal(one, number(2.0**step)),
            ops.less(one, number(2.0 ** (1 - step))),
        )
        exponent = ops.where(large, ops.add(exponent, by), ops.where(small, ops.sub(exponent, by), exponent))
        scaled = ops.where(small, ops.mul(one, number(2.0**step)), one)
        one = ops.where(large, ops.mul(one, number(2.0**-step)), scaled)
    is_normal = ops.greater(exponent, make(0, dtypes.int32))
    half = 2.0 ** ((bias - 1 + mantissa_bits) // 2)
    least = ops.mul(
        ops.mul(magnitude, number(half)),
        number(2.0 ** (bias - 1 + mantissa_bits) / half if bias < 1023 else half),
    )
    fraction = ops.where(is_normal, ops.mul(ops.sub(one, number(1.0)), number(2.0**mantissa_bits)), least)
    raised = ops.cast(ops.maximum(exponent, make(0, dtypes.int32)), whole)
    finite = ops.bitwise_or(ops.shift_left(raised, bits(mantissa_bits)), ops.cast(fraction, whole))
    infinite = ((1 << (size - 1 - mantissa_bits)) - 1) << mantissa_bits
    found = ops.where(ops.isfinite(x), finite, bits(infinite))
    found = ops.where(ops.isnan(x), bits(infinite | 1 << (mantissa_bits - 1)), found)
    negative = ops.less(ops.copysign(number(1.0), x), number(0.0))
    return ops.cast(ops.where(negative, ops.bitwise_or(found, bits(1 << (size - 1))), found), word)


def float_of(make: Make, bits: Tensor, to: dtypes.dtype) -> Tensor:
    """The float of a format's bits: mantissa times power of two, with a sign. Each step is exact; NaN is one value."""
    mantissa_bits, bias = FORMATS[to]
    size = 8 * to.as_numpy().itemsize
    word = dtypes.uint64 if size == 64 else dtypes.uint32
    wide = dtypes.float64 if size == 64 else dtypes.float32
    bits = integer_as(integer_as(bits, word_of(to)), word)

    def number(value: int) -> Tensor:
        return make(np.asarray(value, word.as_numpy()), word)

    top = (1 << (size - 1 - mantissa_bits)) - 1
    exponent = ops.bitwise_and(ops.shift_right_logical(bits, number(mantissa_bits)), number(top))
    fraction = ops.bitwise_and(bits, number((1 << mantissa_bits) - 1))
    is_normal = ops.greater(exponent, number(0))
    whole = ops.where(is_normal, ops.bitwise_or(fraction, number(1 << mantissa_bits)), fraction)
    powers = np.ldexp(1.0, np.maximum(np.arange(top + 1), 1) - bias - mantissa_bits).astype(wide.as_numpy())
    scale = ops.gather(make(powers, wide), ops.cast(exponent, dtypes.int32), 0)
    size_of = ops.mul(ops.cast(whole, wide), scale)
    beyond = ops.where(ops.greater(fraction, number(0)), make(np.nan, wide), make(np.inf, wide))
    size_of = ops.where(ops.equal(exponent, number(top)), beyond, size_of)
    is_negative = ops.greater(ops.shift_right_logical(bits, number(size - 1)), number(0))
    value = ops.where(is_negative, ops.negate(size_of), size_of)
    return value if to == wide else ops.cast(value, to)
