"""Primitives on bits: of integers, and of floats read as integers."""

from __future__ import annotations

import numpy as np

from popsr import dtypes, ops
from popsr.bridge.jax.elementwise import op_named
from popsr.bridge.jax.rules import Equation, Result, rule
from popsr.tensor import Tensor

__all__ = ["bits_as", "both", "either", "flipped", "inverted", "shifted_left", "shifted_right"]


def both(a: Tensor, b: Tensor) -> Tensor:
    """Bits that are set in both; of bools logical and."""
    return ops.logical_and(a, b) if a.dtype == dtypes.bool else op_named("bitwise_and")(a, b)


def either(a: Tensor, b: Tensor) -> Tensor:
    """Bits that are set in one or both; of bools logical or."""
    return ops.logical_or(a, b) if a.dtype == dtypes.bool else op_named("bitwise_or")(a, b)


def flipped(a: Tensor, b: Tensor) -> Tensor:
    """Bits that are set in one."""
    if a.dtype == dtypes.bool:
        return ops.logical_not(ops.equal(a, b))
    return op_named("bitwise_xor")(a, b)


def inverted(a: Tensor) -> Tensor:
    """All bits turned round."""
    return ops.logical_not(a) if a.dtype == dtypes.bool else op_named("bitwise_not")(a)


def shifted_left(a: Tensor, by: Tensor) -> Tensor:
    """Bits moved up, zeros behind them."""
    return op_named("shift_left")(a, by)


def shifted_right(a: Tensor, by: Tensor) -> Tensor:
    """Bits moved down, zeros before them."""
    return op_named("shift_right_logical")(a, by)


def bits_as(a: Tensor, dtype: dtypes.dtype) -> Tensor:
    """The same bits as another element type of their width."""
    return op_named("bitcast")(a, dtype)


@rule("and")
def _and(equation: Equation, a: Tensor, b: Tensor) -> Result:
    return both(a, b)


@rule("or")
def _or(equation: Equation, a: Tensor, b: Tensor) -> Result:
    return either(a, b)


@rule("xor")
def _xor(equation: Equation, a: Tensor, b: Tensor) -> Result:
    return flipped(a, b)


@rule("not")
def _not(equation: Equation, a: Tensor) -> Result:
    return inverted(a)


@rule("shift_left")
def _shift_left(equation: Equation, a: Tensor, by: Tensor) -> Result:
    return shifted_left(a, by)


@rule("shift_right_logical")
def _shift_right_logical(equation: Equation, a: Tensor, by: Tensor) -> Result:
    return shifted_right(a, by)


@rule("shift_right_arithmetic")
def _shift_right_arithmetic(equation: Equation, a: Tensor, by: Tensor) -> Result:
    return op_named("shift_right_arithmetic")(a, by)


@rule("bitcast_convert_type")
def _bitcast(equation: Equation, a: Tensor) -> Result:
    to = equation.dtype
    if np.dtype(a.dtype.as_numpy()).itemsize != np.dtype(to.as_numpy()).itemsize:
        from popsr.bridge.jax.rules import NotSupportedError

        raise NotSupportedError("another width")
    return a if a.dtype == to else bits_as(a, to)
