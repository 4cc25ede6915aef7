"""Rules of views as another element type: the bits stay, the first ones of an element are its lowest."""

from __future__ import annotations

from typing import Any

import numpy as np

from popsr import dtypes, ops
from popsr._program.tensor import Tensor, constant
from popsr.bridge.torch._rules.table import Gap, Site, rule

__all__: list[str] = []

_FORMATS = {dtypes.float16: (10, 15), dtypes.bfloat16: (7, 127), dtypes.float32: (23, 127)}
"""Bits of the mantissa, and the bias of the exponent."""


@rule("view.dtype", "view_copy.dtype")
def _view_dtype(site: Site, t: Tensor, _dtype: Any) -> Tensor:
    to = site.dtype
    if t.dtype == to:
        return t
    own, wanted = (8 * kind.as_numpy().itemsize for kind in (t.dtype, to))
    if own == wanted and t.dtype.is_int and to.is_int:
        return ops.cast(t, to)
    if max(own, wanted) > 32:
        raise Gap("bits of more than 32")
    if not all(kind.is_int or kind in _FORMATS for kind in (t.dtype, to)):
        raise Gap("bits as another element type")
    words = _words_of(t)
    if own > wanted:
        parts = [
            ops.bitwise_and(ops.shift_right_logical(words, _word(start)), _word((1 << wanted) - 1))
            for start in range(0, own, wanted)
        ]
        stacked = ops.concat([ops.reshape(part, (*t.shape, 1)) for part in parts], len(t.shape))
        words = ops.reshape(stacked, site.shape)
    elif own < wanted:
        count = wanted // own
        parts = ops.split(ops.reshape(words, (*site.shape, count)), [1] * count, len(site.shape))
        words = ops.reshape(parts[0], site.shape)
        for number, part in enumerate(parts[1:], 1):
            words = ops.bitwise_or(words, ops.shift_left(ops.reshape(part, site.shape), _word(own * number)))
    if to.is_int:
        return ops.cast(ops.cast(words, _unsigned(to)), to)
    return _float_of(words, to)


def _words_of(t: Tensor) -> Tensor:
    """The bits of each element, in uint32."""
    if t.dtype.is_int:
        return ops.cast(ops.cast(t, _unsigned(t.dtype)), dtypes.uint32)
    return ops.cast(_bits_of(t), dtypes.uint32)


def _unsigned(kind: dtypes.dtype) -> dtypes.dtype:
    return dtypes.dtype.as_dtype(f"uint{8 * kind.as_numpy().itemsize}")


def _word(value: int) -> Tensor:
    return constant(np.asarray(value, np.uint32), dtypes.uint32)


def _wide(value: float) -> Tensor:
    return constant(np.asarray(value, np.float32), dtypes.float32)


def _bits_of(t: Tensor) -> Tensor:
    """The bits of a float as an integer: exponent and mantissa by exact scaling. NaN is one value."""
    mantissa, bias = _FORMATS[t.dtype]
    exponents = np.arange(1 - bias, bias + 1)
    wide = t if t.dtype == dtypes.float32 else ops.cast(t, dtypes.float32)
    size = ops.abs(wide)
    is_finite = ops.greater(_wide(np.inf), size)
    is_small = ops.greater(_wide(2.0 ** (1 - bias)), size)
    is_nan = ops.logical_not(ops.equal(wide, wide))
    is_normal = ops.logical_and(is_finite, ops.logical_not(is_small))
    number = ops.where(is_normal, size, _wide(1.0))
    guess = ops.floor(ops.div(ops.log(number), _wide(float(np.log(2.0)))))
    place = ops.cast(ops.add(guess, _wide(float(bias - 1))), dtypes.int32)
    place = ops.maximum(place, constant(np.asarray(0), dtypes.int32))
    place = ops.minimum(place, constant(np.asarray(len(exponents) - 1), dtypes.int32))
    scale = constant(np.ldexp(1.0, -exponents).astype(np.float32), dtypes.float32)
    scaled = ops.mul(number, ops.gather(scale, place, 0))
    is_above, is_below = ops.logical_not(ops.greater(_wide(2.0), scaled)), ops.greater(_wide(1.0), scaled)
    one = constant(np.asarray(1), dtypes.int32)
    place = ops.where(is_above, ops.add(place, one), ops.where(is_below, ops.sub(place, one), place))
    scaled = ops.where(is_above, ops.mul(scaled, _wide(0.5)), scaled)
    scaled = ops.where(is_below, ops.mul(scaled, _wide(2.0)), scaled)
    fraction = ops.cast(ops.mul(ops.sub(scaled, _wide(1.0)), _wide(2.0**mantissa)), dtypes.uint32)
    exponent = ops.cast(ops.add(place, one), dtypes.uint32)
    normal = ops.bitwise_or(ops.shift_left(exponent, _word(mantissa)), fraction)
    shift = (bias - 1 + mantissa) // 2
    tiny = ops.where(is_small, size, _wide(0.0))
    tiny = ops.mul(ops.mul(tiny, _wide(2.0**shift)), _wide(2.0 ** (bias - 1 + mantissa - shift)))
    top = (2 * bias + 1) << mantissa
    beyond = ops.where(is_nan, _word(top | 1 << (mantissa - 1)), _word(top))
    bits = ops.where(is_normal, normal, ops.where(is_small, ops.cast(tiny, dtypes.uint32), beyond))
    return ops.bitwise_or(
        bits, ops.where(_is_negative(wide), _word(1 << (mantissa + _width(bias))), _word(0))
    )


def _width(bias: int) -> int:
    """Bits of an exponent."""
    return (2 * bias + 1).bit_length()


def _is_negative(t: Tensor) -> Tensor:
    """True for numbers below zero, and for the zero that has a sign."""
    zero = _wide(0.0)
    is_zero = ops.equal(t, zero)
    inverse = ops.div(_wide(1.0), ops.where(is_zero, t, _wide(1.0)))
    return ops.greater(zero, ops.where(is_zero, inverse, t))


def _float_of(bits: Tensor, to: dtypes.dtype) -> Tensor:
    """The float of a format's bits: mantissa times power of two, with a sign. Each step is exact; NaN is one value."""
    mantissa, bias = _FORMATS[to]
    top = 2 * bias + 1
    exponent = ops.bitwise_and(ops.shift_right_logical(bits, _word(mantissa)), _word(top))
    fraction = ops.bitwise_and(bits, _word((1 << mantissa) - 1))
    is_normal = ops.greater(exponent, _word(0))
    whole = ops.where(is_normal, ops.bitwise_or(fraction, _word(1 << mantissa)), fraction)
    powers = np.ldexp(1.0, np.maximum(np.arange(top + 1), 1) - bias - mantissa).astype(np.float32)
    scale = ops.gather(constant(powers, dtypes.float32), ops.cast(exponent, dtypes.int32), 0)
    size = ops.mul(ops.cast(whole, dtypes.float32), scale)
    beyond = ops.where(ops.greater(fraction, _word(0)), _wide(np.nan), _wide(np.inf))
    size = ops.where(ops.equal(exponent, _word(top)), beyond, size)
    is_negative = ops.greater(ops.shift_right_logical(bits, _word(mantissa + _width(bias))), _word(0))
    value = ops.where(is_negative, ops.negate(size), size)
    return value if to == dtypes.float32 else ops.cast(value, to)
