"""The same bits as another element type."""

from __future__ import annotations

import numpy as np

from popsr import dtypes, ops
from popsr.bridge.jax._rules import Equation, NotSupportedError, Result, rule, width
from popsr.tensor import Tensor

__all__ = ["float_of", "integer_as"]


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


@rule("bitcast_convert_type")
def _bitcast(equation: Equation, a: Tensor) -> Result:
    to = equation.dtype
    if width(a.dtype) != width(to):
        raise NotSupportedError("another width")
    if a.dtype.is_int and to.is_int:
        return integer_as(a, to)
    if not a.dtype.is_int or to not in _FORMATS:
        raise NotSupportedError(f"{a.dtype.name} to {to.name}")
    return float_of(equation, a, to)


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
