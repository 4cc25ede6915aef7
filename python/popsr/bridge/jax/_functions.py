"""Functions of one variable that are made of several ops."""

from __future__ import annotations

import numpy as np

from popsr import dtypes, ops
from popsr.bridge.jax._elementwise import op_named
from popsr.bridge.jax._rules import Equation, NotSupportedError, Result, rule
from popsr.tensor import Tensor

__all__: list[str] = []


@rule("expm1", plain=True)
def _expm1(a: Tensor) -> Result:
    return op_named("expm1")(a)


@rule("log1p", plain=True)
def _log1p(a: Tensor) -> Result:
    return op_named("log1p")(a)


@rule("sinh")
def _sinh(equation: Equation, a: Tensor) -> Result:
    """(m + m / (m + 1)) / 2 with m = e^x - 1."""
    m = op_named("expm1")(a)
    return ops.mul(half(equation, a), ops.add(m, ops.div(m, ops.add(m, one(equation, a)))))


@rule("cosh")
def _cosh(equation: Equation, a: Tensor) -> Result:
    return ops.mul(half(equation, a), ops.add(ops.exp(a), ops.exp(ops.negate(a))))


@rule("asinh")
def _asinh(equation: Equation, a: Tensor) -> Result:
    """sign(x) log1p(|x| + x^2 / (1 + sqrt(x^2 + 1)))."""
    size, square = ops.abs(a), ops.mul(a, a)
    root = ops.sqrt(ops.add(square, one(equation, a)))
    inner = ops.add(size, ops.div(square, ops.add(root, one(equation, a))))
    return ops.mul(ops.sign(a), op_named("log1p")(inner))


@rule("acosh")
def _acosh(equation: Equation, a: Tensor) -> Result:
    """log1p(t + sqrt(2 t + t^2)) with t = x - 1."""
    t = ops.sub(a, one(equation, a))
    root = ops.sqrt(ops.mul(t, ops.add(t, equation.constant(2, a.dtype))))
    return op_named("log1p")(ops.add(t, root))


@rule("atanh")
def _atanh(equation: Equation, a: Tensor) -> Result:
    """log1p(2 x / (1 - x)) / 2."""
    quotient = ops.div(ops.add(a, a), ops.sub(one(equation, a), a))
    return ops.mul(half(equation, a), op_named("log1p")(quotient))


@rule("erfc")
def _erfc(equation: Equation, a: Tensor) -> Result:
    """1 - erf(x): small results have the absolute error of numbers near 1."""
    return ops.sub(one(equation, a), ops.erf(a))


@rule("round")
def _round(equation: Equation, a: Tensor) -> Result:
    """The whole part of |x|, and one more from the half on; exact, since |x| - floor(|x|) is."""
    size = ops.abs(a)
    below = ops.floor(size)
    rest = ops.sub(size, below)
    middle = half(equation, a)
    up = ops.greater(rest, middle)
    tie = ops.equal(rest, middle)
    if int(equation.params["rounding_method"]) == 1:  # to nearest even
        odd = ops.equal(ops.fmod(below, equation.constant(2, a.dtype)), one(equation, a))
        tie = ops.logical_and(tie, odd)
    whole = ops.where(ops.logical_or(up, tie), ops.add(below, one(equation, a)), below)
    zero = equation.constant(0, a.dtype)
    signed = ops.where(ops.greater(zero, a), ops.negate(whole), whole)
    return ops.where(ops.equal(a, zero), a, signed)


def one(equation: Equation, a: Tensor) -> Tensor:
    """One, of the dtype of an operand."""
    return equation.constant(1, a.dtype)


def half(equation: Equation, a: Tensor) -> Tensor:
    """One half, of the dtype of an operand."""
    return equation.constant(0.5, a.dtype)


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

    w = ops.negate(op_named("log1p")(ops.negate(ops.mul(x, x))))
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
