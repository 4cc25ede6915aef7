"""Rules of ops that compute each element by itself: arithmetic, comparisons, functions, conversions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from popsr import dtypes, ops
from popsr._program.tensor import Tensor, constant
from popsr.bridge.torch._dtypes import Scalar, common_dtype, is_float
from popsr.bridge.torch._rules.table import Gap, Site, cast, rule

__all__: list[str] = []


def _scaled(site: Site, t: Tensor, alpha: Any) -> Tensor:
    return t if alpha == 1 and not isinstance(alpha, Scalar) else ops.mul(t, site.tensor(alpha, t.dtype))


@rule("add.Tensor", "add.Scalar")
def _add(site: Site, a: Any, b: Any, alpha: Any = 1) -> Tensor:
    left, right = site.common(a, b)
    if left.dtype == dtypes.bool:
        return ops.logical_or(left, right)
    return ops.add(left, _scaled(site, right, alpha))


@rule("sub.Tensor", "sub.Scalar")
def _sub(site: Site, a: Any, b: Any, alpha: Any = 1) -> Tensor:
    left, right = site.common(a, b)
    return ops.sub(left, _scaled(site, right, alpha))


@rule("mul.Tensor", "mul.Scalar")
def _mul(site: Site, a: Any, b: Any) -> Tensor:
    left, right = site.common(a, b)
    return (ops.logical_and if left.dtype == dtypes.bool else ops.mul)(left, right)


@rule("div.Tensor", "div.Scalar")
def _div(site: Site, a: Any, b: Any) -> Tensor:
    kind = common_dtype((a, b))
    kind = kind if is_float(kind) else site.dtype
    return ops.div(site.tensor(a, kind), site.tensor(b, kind))


@rule("div.Tensor_mode", "div.Scalar_mode")
def _div_mode(site: Site, a: Any, b: Any, rounding_mode: str | None = None) -> Tensor:
    if rounding_mode is None:
        return _div(site, a, b)
    left, right = site.common(a, b)
    if not is_float(left.dtype):
        remainder = ops.fmod(left, right)
        if rounding_mode == "floor":
            remainder = _remainder(site, left, right)
        return ops.div(ops.sub(left, remainder), right)
    if rounding_mode == "trunc":
        return _trunc(site, ops.div(left, right))
    remainder = ops.fmod(left, right)
    quotient = ops.div(ops.sub(left, remainder), right)
    quotient = ops.where(_wraps(remainder, right), ops.sub(quotient, _like(quotient, 1)), quotient)
    floor = ops.floor(quotient)
    floor = ops.where(
        ops.greater(ops.sub(quotient, floor), _like(floor, 0.5)), ops.add(floor, _like(floor, 1)), floor
    )
    return ops.where(ops.equal(right, _like(right, 0)), ops.div(left, right), floor)


def _like(t: Tensor, value: Any) -> Tensor:
    return constant(np.asarray(value), t.dtype)


def _wraps(remainder: Tensor, divisor: Tensor) -> Tensor:
    """True where the remainder of a truncating division and the divisor have different signs."""
    zero = _like(remainder, 0)
    differs = ops.logical_not(ops.equal(ops.less(remainder, zero), ops.less(divisor, zero)))
    return ops.logical_and(ops.logical_not(ops.equal(remainder, zero)), differs)


@rule("fmod.Tensor", "fmod.Scalar")
def _fmod(site: Site, a: Any, b: Any) -> Tensor:
    return ops.fmod(*site.common(a, b))


@rule("remainder.Tensor", "remainder.Scalar", "remainder.Scalar_Tensor")
def _remainder(site: Site, a: Any, b: Any) -> Tensor:
    left, right = site.common(a, b)
    remainder = ops.fmod(left, right)
    return ops.where(_wraps(remainder, right), ops.add(remainder, right), remainder)


@rule("pow.Tensor_Tensor", "pow.Tensor_Scalar", "pow.Scalar")
def _pow(site: Site, base: Any, exponent: Any) -> Tensor:
    left, right = site.common(base, exponent)
    if is_float(left.dtype):
        if isinstance(exponent, int | float) and exponent in _POWERS:
            return _POWERS[exponent](left)
        return ops.pow(left, right)
    if isinstance(exponent, int) and exponent >= 0:
        return ops.integer_pow(left, exponent)
    raise Gap("integers to a power that is not a constant")


_POWERS: dict[float, Callable[[Tensor], Tensor]] = {
    0.5: ops.sqrt,
    1: ops.identity,
    2: lambda t: ops.mul(t, t),
    3: lambda t: ops.mul(ops.mul(t, t), t),
    -0.5: ops.rsqrt,
    -1: lambda t: ops.div(_like(t, 1), t),
    -2: lambda t: ops.div(_like(t, 1), ops.mul(t, t)),
}


# Comparisons


def _comparison(name: str, function: Callable[[Tensor, Tensor], Tensor]) -> None:
    def apply(site: Site, a: Any, b: Any) -> Tensor:
        return function(*_comparable(site, a, b))

    rule(f"{name}.Tensor", f"{name}.Scalar")(apply)


def _comparable(site: Site, a: Any, b: Any) -> list[Tensor]:
    left, right = site.common(a, b)
    if left.dtype == dtypes.bool:
        return [ops.cast(left, dtypes.uint8), ops.cast(right, dtypes.uint8)]
    return [left, right]


for _name, _function in {
    "eq": ops.equal,
    "ne": ops.not_equal,
    "gt": ops.greater,
    "lt": ops.less,
    "ge": ops.greater_equal,
    "le": ops.less_equal,
}.items():
    _comparison(_name, _function)


@rule("maximum.default")
def _maximum(site: Site, a: Any, b: Any) -> Tensor:
    left, right = site.common(a, b)
    return ops.logical_or(left, right) if left.dtype == dtypes.bool else ops.maximum(left, right)


@rule("minimum.default")
def _minimum(site: Site, a: Any, b: Any) -> Tensor:
    left, right = site.common(a, b)
    if left.dtype == dtypes.bool:
        return ops.logical_and(left, right)
    return ops.minimum(left, right)


@rule("clamp.default", "clamp.Tensor")
def _clamp(site: Site, t: Tensor, low: Any = None, high: Any = None) -> Tensor:
    kind = common_dtype([each for each in (t, low, high) if each is not None])
    t = site.tensor(t, kind)
    if low is not None:
        t = ops.maximum(t, site.tensor(low, kind))
    return t if high is None else _minimum(site, t, site.tensor(high, kind))


@rule("clamp_min.default", "clamp_min.Tensor")
def _clamp_min(site: Site, t: Tensor, low: Any) -> Tensor:
    return _clamp(site, t, low)


@rule("clamp_max.default", "clamp_max.Tensor")
def _clamp_max(site: Site, t: Tensor, high: Any) -> Tensor:
    return _clamp(site, t, None, high)


@rule("where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar")
def _where(site: Site, condition: Tensor, a: Any, b: Any) -> Tensor:
    left, right = site.common(a, b)
    if left.dtype == dtypes.bool:
        picked = ops.where(condition, ops.cast(left, dtypes.uint8), ops.cast(right, dtypes.uint8))
        return cast(picked, dtypes.bool)
    return ops.where(cast(condition, dtypes.bool), left, right)


@rule("lerp.Scalar", "lerp.Tensor")
def _lerp(site: Site, start: Tensor, end: Tensor, weight: Any) -> Tensor:
    """Between two tensors, from the nearer end, as torch does it."""
    share = site.tensor(weight, start.dtype)
    difference = ops.sub(end, start)
    near = ops.add(start, ops.mul(share, difference))
    far = ops.sub(end, ops.mul(difference, ops.sub(_like(start, 1), share)))
    if isinstance(weight, int | float):
        return near if abs(weight) < 0.5 else far
    return ops.where(ops.less(ops.abs(share), _like(start, 0.5)), near, far)


# Logic


@rule("logical_and.default")
def _logical_and(_site: Site, a: Tensor, b: Tensor) -> Tensor:
    return ops.logical_and(cast(a, dtypes.bool), cast(b, dtypes.bool))


@rule("logical_or.default")
def _logical_or(_site: Site, a: Tensor, b: Tensor) -> Tensor:
    return ops.logical_or(cast(a, dtypes.bool), cast(b, dtypes.bool))


@rule("logical_xor.default")
def _logical_xor(_site: Site, a: Tensor, b: Tensor) -> Tensor:
    return ops.logical_xor(cast(a, dtypes.bool), cast(b, dtypes.bool))


@rule("logical_not.default")
def _logical_not(_site: Site, t: Tensor) -> Tensor:
    return ops.logical_not(cast(t, dtypes.bool))


def _bitwise(
    name: str, bits: Callable[[Tensor, Tensor], Tensor], bools: Callable[[Tensor, Tensor], Tensor]
) -> None:
    def apply(site: Site, a: Any, b: Any) -> Tensor:
        left, right = site.common(a, b)
        return (bools if left.dtype == dtypes.bool else bits)(left, right)

    rule(f"{name}.Tensor", f"{name}.Scalar")(apply)


_bitwise("bitwise_and", ops.bitwise_and, ops.logical_and)
_bitwise("bitwise_or", ops.bitwise_or, ops.logical_or)
_bitwise("bitwise_xor", ops.bitwise_xor, ops.logical_xor)


@rule("bitwise_not.default")
def _bitwise_not(_site: Site, t: Tensor) -> Tensor:
    return ops.logical_not(t) if t.dtype == dtypes.bool else ops.bitwise_not(t)


@rule("bitwise_left_shift.Tensor", "bitwise_left_shift.Tensor_Scalar")
def _left_shift(site: Site, a: Any, b: Any) -> Tensor:
    return ops.shift_left(*site.common(a, b))


@rule("bitwise_right_shift.Tensor", "bitwise_right_shift.Tensor_Scalar")
def _right_shift(site: Site, a: Any, b: Any) -> Tensor:
    return ops.shift_right_arithmetic(*site.common(a, b))


# Functions of one element


def _unary(name: str, function: Callable[[Tensor], Tensor], *, floats_only: bool = False) -> None:
    """A rule of a function; of integers that have no such function, in the float type of the result."""

    def apply(site: Site, t: Tensor) -> Tensor:
        return function(site.tensor(t) if floats_only else t)

    rule(name)(apply)


_EXPONENTIAL = "exp exp2 expm1 log log2 log1p sqrt rsqrt reciprocal sinh cosh tanh asinh acosh atanh"
_CIRCULAR = "sin cos tan asin acos atan"
for _name in (*_EXPONENTIAL.split(), *_CIRCULAR.split(), "sigmoid", "erf", "erfc"):
    _unary(f"{_name}.default", getattr(ops, _name), floats_only=True)
for _name, _one in {"neg": ops.negate, "floor": ops.floor, "ceil": ops.ceil, "relu": ops.relu}.items():
    _unary(f"{_name}.default", _one)
_unary("erfinv.default", ops.erf_inv, floats_only=True)
_unary("log10.default", lambda t: ops.mul(ops.log(t), _like(t, 1 / math.log(10))), floats_only=True)
_unary("silu.default", lambda t: ops.div(t, ops.add(ops.exp(ops.negate(t)), _like(t, 1))), floats_only=True)


@rule("atan2.default")
def _atan2(site: Site, y: Tensor, x: Tensor) -> Tensor:
    return ops.atan2(site.tensor(y), site.tensor(x))


@rule("copysign.Tensor", "copysign.Scalar")
def _copysign(site: Site, t: Tensor, sign: Any) -> Tensor:
    return ops.copysign(site.tensor(t), site.tensor(sign))


@rule("abs.default")
def _abs(_site: Site, t: Tensor) -> Tensor:
    return t if t.dtype == dtypes.bool else ops.abs(t)


@rule("sign.default")
def _sign(_site: Site, t: Tensor) -> Tensor:
    if t.dtype == dtypes.bool:
        return t
    signs = ops.sign(t)
    return ops.where(ops.isnan(t), _like(t, 0), signs) if is_float(t.dtype) else signs


@rule("trunc.default")
def _trunc(_site: Site, t: Tensor) -> Tensor:
    return ops.trunc(t) if is_float(t.dtype) else t


@rule("round.default")
def _round(_site: Site, t: Tensor) -> Tensor:
    return ops.round(t) if is_float(t.dtype) else t


@rule("isnan.default")
def _isnan(site: Site, t: Tensor) -> Tensor:
    return ops.isnan(t) if is_float(t.dtype) else site.full(site.shape, False, dtypes.bool)


@rule("isinf.default")
def _isinf(site: Site, t: Tensor) -> Tensor:
    return ops.isinf(t) if is_float(t.dtype) else site.full(site.shape, False, dtypes.bool)


@rule("gelu.default")
def _gelu(_site: Site, t: Tensor, approximate: str = "none") -> Tensor:
    return ops.gelu(t) if approximate == "tanh" else ops.geluerf(t)


@rule("elu.default")
def _elu(_site: Site, t: Tensor, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Tensor:
    zero = _like(t, 0)
    below = ops.sub(ops.exp(ops.mul(_at_most_zero(t), _like(t, input_scale))), _like(t, 1))
    below = ops.mul(below, _like(t, alpha * scale))
    return ops.where(ops.greater(t, zero), ops.mul(t, _like(t, scale)), below)


def _at_most_zero(t: Tensor) -> Tensor:
    return ops.negate(ops.relu(ops.negate(t)))


@rule("hardtanh.default")
def _hardtanh(site: Site, t: Tensor, low: float = -1, high: float = 1) -> Tensor:
    return _clamp(site, t, low, high)


@rule("leaky_relu.default")
def _leaky_relu(_site: Site, t: Tensor, slope: float = 0.01) -> Tensor:
    return ops.where(ops.greater(t, _like(t, 0)), t, ops.mul(t, _like(t, slope)))


# Conversions and copies


@rule("_to_copy.default")
def _to_copy(site: Site, t: Tensor) -> Tensor:
    return cast(t, site.dtype)


@rule(
    "clone.default",
    "alias.default",
    "alias_copy.default",
    "detach.default",
    "detach_copy.default",
    "lift_fresh_copy.default",
    "lift_fresh.default",
    "lift.default",
    "contiguous.default",
)
def _identity(_site: Site, t: Tensor) -> Tensor:
    return t


@rule("copy.default")
def _copy(site: Site, _old: Tensor, new: Tensor) -> Tensor:
    return site.expand(site.tensor(new), site.shape)


@rule("fill.Scalar", "fill.Tensor")
def _fill(site: Site, _old: Tensor, value: Any) -> Tensor:
    return site.full(site.shape, value, site.dtype)
