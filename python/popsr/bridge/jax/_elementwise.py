"""Element-wise primitives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from popsr import dtypes, ops
from popsr.bridge.jax._rules import Equation, NotSupportedError, Result, dtype_of, rule, width
from popsr.tensor import Tensor

__all__: list[str] = []

_OPS: dict[str, Callable[..., Tensor]] = {
    "add": ops.add,
    "add_any": ops.add,
    "sub": ops.sub,
    "div": ops.div,
    "max": ops.maximum,
    "neg": ops.negate,
    "abs": ops.abs,
    "sign": ops.sign,
    "floor": ops.floor,
    "ceil": ops.ceil,
    "exp": ops.exp,
    "log": ops.log,
    "tanh": ops.tanh,
    "sin": ops.sin,
    "cos": ops.cos,
    "sqrt": ops.sqrt,
    "rsqrt": ops.rsqrt,
    "erf": ops.erf,
    "logistic": ops.sigmoid,
    "is_finite": ops.isfinite,
    "eq": ops.equal,
    "gt": ops.greater,
    "rem": ops.fmod,
}


def _one_op(function: Callable[..., Tensor]) -> Callable[..., Result]:
    """The op as a function of this file, which is how the table knows the kind of a rule."""
    return lambda *operands: function(*operands)


for _name, _function in _OPS.items():
    rule(_name, plain=True)(_one_op(_function))


@rule("mul", plain=True)
def _mul(a: Tensor, b: Tensor) -> Result:
    return ops.logical_and(a, b) if a.dtype == dtypes.bool else ops.mul(a, b)


@rule("min", plain=True)
def _min(a: Tensor, b: Tensor) -> Result:
    """One op beside the comparison, right for NaN and for the least integer."""
    return least(a, b)


def least(a: Tensor, b: Tensor) -> Tensor:
    """The smaller of each pair; NaN where one is."""
    if a.dtype == dtypes.bool:
        return ops.logical_and(a, b)
    if a.dtype.is_floating_point:
        return ops.negate(ops.maximum(ops.negate(a), ops.negate(b)))
    return ops.where(ops.greater(a, b), b, a)


@rule("lt", plain=True)
def _lt(a: Tensor, b: Tensor) -> Result:
    return ops.greater(b, a)


@rule("ge", plain=True)
def _ge(a: Tensor, b: Tensor) -> Result:
    return ops.logical_or(ops.greater(a, b), ops.equal(a, b))


@rule("le", plain=True)
def _le(a: Tensor, b: Tensor) -> Result:
    return ops.logical_or(ops.greater(b, a), ops.equal(a, b))


@rule("ne", plain=True)
def _ne(a: Tensor, b: Tensor) -> Result:
    return ops.logical_not(ops.equal(a, b))


@rule("square", plain=True)
def _square(a: Tensor) -> Result:
    return ops.mul(a, a)


@rule("integer_pow")
def _integer_pow(equation: Equation, a: Tensor) -> Result:
    """By repeated squaring; 1 / power where the exponent is negative."""
    exponent = int(equation.params["y"])
    if exponent < 0 and not a.dtype.is_floating_point:
        raise NotSupportedError(f"{a.dtype.name} to a negative power")
    if exponent == 0:
        return ops.add(
            ops.mul(ops.where(ops.isfinite(a), a, zero_of(equation)), zero_of(equation)), one_of(equation)
        )
    left, square, result = abs(exponent), a, None
    while left:
        if left & 1:
            result = square if result is None else ops.mul(result, square)
        left >>= 1
        square = ops.mul(square, square) if left else square
    assert result is not None
    return ops.div(one_of(equation), result) if exponent < 0 else result


@rule("pow", plain=True)
def _pow(a: Tensor, b: Tensor) -> Result:
    if not a.dtype.is_floating_point:
        raise NotSupportedError(f"{a.dtype.name}")
    return ops.pow(a, b if b.dtype == a.dtype else ops.cast(b, a.dtype))


@rule("exp2")
def _exp2(equation: Equation, a: Tensor) -> Result:
    return ops.pow(equation.constant(2, a.dtype), a)


@rule("tan", plain=True)
def _tan(a: Tensor) -> Result:
    return ops.div(ops.sin(a), ops.cos(a))


@rule("cbrt")
def _cbrt(equation: Equation, a: Tensor) -> Result:
    third = ops.pow(ops.abs(a), equation.constant(1 / 3, a.dtype))
    return ops.mul(ops.sign(a), third)


@rule("clamp", plain=True)
def _clamp(low: Tensor, a: Tensor, high: Tensor) -> Result:
    return least(ops.maximum(a, low), high)


@rule("select_n")
def _select_n(equation: Equation, which: Tensor, *cases: Tensor) -> Result:
    """Case k where the predicate is k; a bool counts as 0 or 1."""
    if len(cases) == 1:
        return cases[0]
    if which.dtype == dtypes.bool:
        return ops.where(which, cases[1], cases[0])
    chosen = cases[0]
    for number, case in enumerate(cases[1:], 1):
        chosen = ops.where(ops.equal(which, equation.constant(number, which.dtype)), case, chosen)
    return chosen


@rule("convert_element_type")
def _convert(equation: Equation, a: Tensor) -> Result:
    to = equation.dtype
    if to == dtypes.bool and a.dtype != dtypes.bool:
        return ops.logical_not(ops.equal(a, equation.constant(0, a.dtype)))
    return a if a.dtype == to else ops.cast(a, to)


@rule("reduce_precision")
def _reduce_precision(equation: Equation, a: Tensor) -> Result:
    """Through the float type that has these bits."""
    bits = equation.params["exponent_bits"], equation.params["mantissa_bits"]
    types = {
        (5, 10): dtypes.float16,
        (8, 7): dtypes.bfloat16,
        (8, 23): dtypes.float32,
        (11, 52): dtypes.float64,
    }
    narrow = types.get(bits)
    if narrow is None:
        raise NotSupportedError(f"{bits[0]} bits of exponent and {bits[1]} of mantissa")
    if width(narrow) >= width(a.dtype):
        return a
    return ops.cast(ops.cast(a, narrow), a.dtype)


@rule("copy", "stop_gradient", "optimization_barrier", "name", plain=True)
def _same(*operands: Tensor) -> Result:
    return list(operands)


@rule("pvary", "sharding_constraint", "device_put", raw=True)
def _kept(equation: Equation) -> Result:
    """The operands: the place of an array and the axes that it varies over change no value."""
    return list(equation.values)


def op_named(name: str) -> Callable[..., Tensor]:
    """An op of popsr that a rule needs.

    Raises:
        NotSupportedError: popsr lacks it.
    """
    found: Any = ops.__dict__.get(name)
    if found is None:
        raise NotSupportedError(f"needs ops.{name}")
    return found  # type: ignore[no-any-return]


def zero_of(equation: Equation) -> Tensor:
    """Zero, of the dtype of the result."""
    return equation.constant(0)


def one_of(equation: Equation) -> Tensor:
    """One, of the dtype of the result."""
    return equation.constant(1)


def full(equation: Equation, value: float, dtype: Any) -> Tensor:
    """A constant of the shape of the result."""
    return equation.constant(np.full(equation.shape, value), dtype_of(np.dtype(dtype)))
