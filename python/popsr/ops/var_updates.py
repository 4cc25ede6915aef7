"""Updates of variables and accumulators, in place; each returns an alias of ``t``.

``X`` is converted to the type that ``t`` computes in (float32 for narrow floats), and the result is rounded once.
Shapes are equal. A factor is a number or a tensor of one element, and rounded to that type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from popsr._program.building.emit import emit, number, tensor
from popsr._program.tensor import Tensor
from popsr._support.text.suggestions import unknown_attribute
from popsr.ops._facts import public_op
from popsr.ops.update import optimisers, sparse_accumulate
from popsr.ops.update.optimisers import *
from popsr.ops.update.sparse_accumulate import *

__all__ = [
    "accumulate_",
    "accumulate_mean_",
    "accumulate_moving_average_",
    "accumulate_moving_average_square_",
    "accumulate_square_",
    "accumulator_scale_",
    "accumulator_zero_",
    "copy_var_update_",
    *optimisers.__all__,
    *sparse_accumulate.__all__,
]


@public_op
def accumulate_(t: Tensor, X: Tensor, f: float | Tensor | None = None) -> Tensor:
    """``t + f * X``; the number 0 leaves ``t`` alone, whatever ``X`` holds.

    Args:
        t: what is modified.
        X: what is added.
        f: a number or a tensor of one element. Default: 1.
    Returns:
        An alias of ``t``.
    Raises:
        ShapeError: the shapes differ, or the factor has not one element.
        GraphError: ``t`` is a constant.
    Example:
        >>> evaluate(ops.var_updates.accumulate_, [1.0, 2.0], [10.0, 20.0], 0.5)
        array([ 6., 12.], dtype=float32)
    """
    return emit("accumulate_", {"t": t, "X": X, "f": tensor(f)}, f=number(f))


@public_op
def accumulate_mean_(t: Tensor, X: Tensor, step: float | Tensor) -> Tensor:
    """Running mean: ``(1 - b) * t + b * X`` with ``b = 1 / (step + 1)``; ``X`` at step 0, whatever ``t`` holds.

    Args:
        t: what is modified.
        X: the next value.
        step: how many values ``t`` already is the mean of: a number or a tensor of one element.
    Returns:
        An alias of ``t``.
    Raises:
        ShapeError: the shapes differ, or the factor has not one element.
        GraphError: ``t`` is a constant.
    Example:
        >>> evaluate(ops.var_updates.accumulate_mean_, [1.0, 2.0], [10.0, 20.0], 1.0)
        array([ 5.5, 11. ], dtype=float32)
    """
    return emit("accumulate_mean_", {"t": t, "X": X, "step": tensor(step)}, step=number(step))


@public_op
def accumulate_square_(t: Tensor, X: Tensor, f: float | Tensor = 1.0) -> Tensor:
    """``t + f * X**2``; the number 0 leaves ``t`` alone, whatever ``X`` holds.

    Args:
        t: what is modified.
        X: what is squared and added.
        f: a number or a tensor of one element.
    Returns:
        An alias of ``t``.
    Raises:
        ShapeError: the shapes differ, or the factor has not one element.
        GraphError: ``t`` is a constant.
    Example:
        >>> evaluate(ops.var_updates.accumulate_square_, [1.0, 2.0], [10.0, 20.0], 0.5)
        array([ 51., 202.], dtype=float32)
    """
    return emit("accumulate_square_", {"t": t, "X": X, "f": tensor(f)}, f=number(f))


@public_op
def accumulate_moving_average_(t: Tensor, X: Tensor, f: float | Tensor) -> Tensor:
    """``f * t + (1 - f) * X``.

    Args:
        t: what is modified.
        X: the next value.
        f: how much of ``t`` stays: a number or a tensor of one element.
    Returns:
        An alias of ``t``.
    Raises:
        ShapeError: the shapes differ, or the factor has not one element.
        DTypeError: ``t`` is not floating.
        GraphError: ``t`` is a constant.
    Example:
        >>> evaluate(ops.var_updates.accumulate_moving_average_, [1.0, 2.0], [10.0, 20.0], 0.5)
        array([ 5.5, 11. ], dtype=float32)
    """
    return emit("accumulate_moving_average_", {"t": t, "X": X, "f": tensor(f)}, f=number(f))


@public_op
def accumulate_moving_average_square_(t: Tensor, X: Tensor, f: float | Tensor) -> Tensor:
    """``f * t + (1 - f) * X**2``.

    Args:
        t: what is modified.
        X: the next value, which is squared.
        f: how much of ``t`` stays: a number or a tensor of one element.
    Returns:
        An alias of ``t``.
    Raises:
        ShapeError: the shapes differ, or the factor has not one element.
        DTypeError: ``t`` is not floating.
        GraphError: ``t`` is a constant.
    Example:
        >>> evaluate(ops.var_updates.accumulate_moving_average_square_, [1.0, 2.0], [10.0, 20.0], 0.5)
        array([ 50.5, 201. ], dtype=float32)
    """
    return emit("accumulate_moving_average_square_", {"t": t, "X": X, "f": tensor(f)}, f=number(f))


@public_op
def accumulator_scale_(t: Tensor, f: float | Tensor) -> Tensor:
    """``f * t``; the number 0 writes zeros and so clears NaN and infinities.

    Args:
        t: what is modified.
        f: a number or a tensor of one element.
    Returns:
        An alias of ``t``.
    Raises:
        ShapeError: the factor has not one element.
        GraphError: ``t`` is a constant.
    Example:
        >>> evaluate(ops.var_updates.accumulator_scale_, [1.0, 2.0], 0.5)
        array([0.5, 1. ], dtype=float32)
    """
    return emit("accumulator_scale_", {"t": t, "f": tensor(f)}, f=number(f))


@public_op
def accumulator_zero_(t: Tensor) -> Tensor:
    """Set to zero.

    Args:
        t: what is modified.
    Returns:
        An alias of ``t``.
    Raises:
        GraphError: ``t`` is a constant.
    Example:
        >>> evaluate(ops.var_updates.accumulator_zero_, [1.0, 2.0])
        array([0., 0.], dtype=float32)
    """
    return emit("accumulator_zero_", {"t": t})


@public_op
def copy_var_update_(t: Tensor, X: Tensor) -> Tensor:
    """Set to ``X``.

    Args:
        t: what is modified.
        X: the new value.
    Returns:
        An alias of ``t``.
    Raises:
        ShapeError: the shapes differ.
        GraphError: ``t`` is a constant.
    Example:
        >>> evaluate(ops.var_updates.copy_var_update_, [1.0, 2.0], [10.0, 20.0])
        array([10., 20.], dtype=float32)
    """
    return emit("copy_var_update_", {"t": t, "X": X})


if not TYPE_CHECKING:
    __getattr__ = unknown_attribute(__name__, __all__)
