"""Element-wise primitives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from popsr import dtypes, ops
from popsr.bridge.jax.rules import Equation, NotSupportedError, Result, dtype_of, rule, width
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


def _plain(function: Callable[..., Tensor]) -> Callable[..., Result]:
    return lambda equation, *operands: function(*operands)


for _name, _function in _OPS.items():
    rule(_name)(_plain(_function))


@rule("mul")
def _mul(equation: Equation, a: Tensor, b: Tensor) -> Result:
    return ops.logical_and(a, b) if a.dtype == dtypes.bool else ops.mul(a, b)


@rule("min")
def _min(equation: Equation, a: Tensor, b: Tensor) -> Result:
    """One op beside the comparison, right for NaN and for the least integer."""
    return least(a, b)


def least(a: Tensor, b: Tensor) -> Tensor:
    """The smaller of each pair; NaN where one is."""
    if a.dtype == dtypes.bool:
        return ops.logical_and(a, b)
    if a.dtype.is_floating_point:
        return ops.negate(ops.maximum(ops.negate(a), ops.negate(b)))
    return ops.where(ops.greater(a, b), b, a)


@rule("lt")
def _lt(equation: Equation, a: Tensor, b: Tensor) -> Result:
    return ops.greater(b, a)


@rule("ge")
def _ge(equation: Equation, a: Tensor, b: Tensor) -> Result:
    return ops.logical_or(ops.greater(a, b), ops.equal(a, b))


@rule("le")
def _le(equation: Equation, a: Tensor, b: Tensor) -> Result:
    return ops.logical_or(ops.greater(b, a), ops.equal(a, b))


@rule("ne")
def _ne(equation: Equation, a: Tensor, b: Tensor) -> Result:
    return ops.logical_not(ops.equal(a, b))


@rule("square")
def _square(equation: Equation, a: Tensor) -> Result:
    return ops.mul(a, a)


@rule("integer_pow")
def _integer_pow(equation: Equation, a: Tensor) -> Result:
    """By repeated squaring; 1 / power where the exponent is negative."""
    exponent = int(equation.params["y"])
    if exponent < 0 and not a.dtype.is_floating_point:
        raise NotSupportedError(f"{a.dtype.name} to a negative power")
    if exponent == 0:
        return ops.add(ops.mul(ops.where(ops.isfinite(a), a, zero_of(equation)), zero_of(equation)), one_of(equation))
    left, square, result = abs(exponent), a, None
    while left:
        if left & 1:
            result = square if result is None else ops.mul(result, square)
        left >>= 1
        square = ops.mul(square, square) if left else square
    assert result is not None
    return ops.div(one_of(equation), result) if exponent < 0 else result


@rule("pow")
def _pow(equation: Equation, a: Tensor, b: Tensor) -> Result:
    if not a.dtype.is_floating_point:
        raise NotSupportedError(f"{a.dtype.name}")
    return ops.pow(a, b if b.dtype == a.dtype else ops.cast(b, a.dtype))


@rule("exp2")
def _exp2(equation: Equation, a: Tensor) -> Result:
    return ops.pow(equation.constant(2, a.dtype), a)


@rule("tan")
def _tan(equation: Equation, a: Tensor) -> Result:
    return ops.div(ops.sin(a), ops.cos(a))


@rule("cbrt")
def _cbrt(equation: Equation, a: Tensor) -> Result:
    third = ops.pow(ops.abs(a), equation.constant(1 / 3, a.dtype))
    return ops.mul(ops.sign(a), third)


@rule("clamp")
def _clamp(equation: Equation, low: Tensor, a: Tensor, high: Tensor) -> Result:
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


@rule("copy", "copy_p", "stop_gradient", "optimization_barrier", "name", "pin", "unpin", "layout_constraint")
def _same(equation: Equation, *operands: Tensor) -> Result:
    return list(operands)


@rule("pvary", "vary_unreduced_cast_p", "sharding_constraint", "device_put", "reshard", raw=True)
def _kept(equation: Equation) -> Result:
    """Where an array is, and for which axes it counts as varying, changes no value."""
    return list(equation.values)


@rule("erf_inv")
def _erf_inv(equation: Equation, x: Tensor) -> Result:
    """In fp32 by the two polynomials of M. Giles, Approximating the erfinv function (2010)."""
    if x.dtype == dtypes.float64:
        raise NotSupportedError("float64")
    narrow, x = x.dtype, x if x.dtype == dtypes.float32 else ops.cast(x, dtypes.float32)

    def number(value: float) -> Tensor:
        return equation.constant(np.float32(value), dtypes.float32)

    def polynomial(at: Tensor, coefficients: tuple[float, ...]) -> Tensor:
        value = number(coefficients[0])
        for coefficient in coefficients[1:]:
            value = ops.add(ops.mul(value, at), number(coefficient))
        return value

    w = ops.negate(_log1p_of(equation, ops.negate(ops.mul(x, x))))
    centre = polynomial(ops.sub(w, number(2.5)), _ERF_INV_CENTRE)
    tail = polynomial(ops.sub(ops.sqrt(w), number(3.0)), _ERF_INV_TAIL)
    value = ops.mul(ops.where(ops.greater(number(5.0), w), centre, tail), x)
    at_one = ops.equal(ops.abs(x), number(1.0))
    value = ops.where(at_one, ops.mul(x, number(np.inf)), value)
    return value if narrow == dtypes.float32 else ops.cast(value, narrow)


_ERF_INV_CENTRE = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503, -0.00417768164,
    0.246640727, 1.50140941,
)  # fmt: skip
_ERF_INV_TAIL = (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613, 0.00943887047,
    1.00167406, 2.83297682,
)  # fmt: skip


def _log1p_of(equation: Equation, x: Tensor) -> Tensor:
    op = op_named("log1p")
    return op(x)


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
