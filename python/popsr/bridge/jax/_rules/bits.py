"""The same bits as another element type."""

from __future__ import annotations

import numpy as np

from popsr import dtypes, ops
from popsr._program.tensor import Tensor
from popsr.bridge._step import float_bits as _float_bits
from popsr.bridge._step.float_bits import FORMATS, integer_as, word_of
from popsr.bridge._step.reading import floats_are_wide
from popsr.bridge.jax._rules.table import (
    Equation,
    NotSupportedError,
    Result,
    rule,
    width,
)

__all__ = ["bits_of", "float_of"]


@rule("bitcast_convert_type")
def _bitcast(equation: Equation, a: Tensor) -> Result:
    """Through unsigned integers; of another width they are cut or joined along the last dimension, low bits first."""
    to = _type_of_bits(equation, a)
    for dtype in (a.dtype, to):
        if not dtype.is_int and dtype not in FORMATS:
            raise NotSupportedError(f"{a.dtype.name} to {to.name}")
    if a.dtype.is_int and to.is_int and width(a.dtype) == width(to):
        return integer_as(a, to)
    bits = integer_as(a, word_of(a.dtype)) if a.dtype.is_int else bits_of(equation, a)
    bits = _resized(equation, bits, to)
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


def _resized(equation: Equation, bits: Tensor, to: dtypes.dtype) -> Tensor:
    """Unsigned integers as others, as wide as a type."""
    have, size, narrow = width(bits.dtype), width(to), word_of(to)
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
    """The bits of floats as unsigned integers; NaN is one value."""
    return _float_bits.bits_of(equation.constant, a)


@rule("nextafter")
def _next_after(equation: Equation, a: Tensor, b: Tensor) -> Result:
    """The float beside the first, towards the second: its bits are one more or one less."""
    if a.dtype not in FORMATS:
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
    if a.dtype not in FORMATS:
        raise NotSupportedError(a.dtype.name)
    if floats_are_wide():
        return a
    mantissa_bits, bias = FORMATS[a.dtype]
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
    """The float of a format's bits; NaN is one value."""
    return _float_bits.float_of(equation.constant, bits, to)
