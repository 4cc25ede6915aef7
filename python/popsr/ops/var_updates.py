"""Updates of variables and accumulators, in place; each returns an alias of ``t``.

``X`` is converted to the dtype of ``t``; shapes are equal.
"""

from __future__ import annotations

from popsr._emit import emit, number, tensor
from popsr.tensor import Tensor

__all__ = [
    "accumulate_",
    "accumulate_mean_",
    "accumulator_scale_",
    "accumulator_zero_",
    "copy_var_update_",
]


def accumulate_(t: Tensor, X: Tensor, f: float | Tensor | None = None) -> Tensor:
    """``t + f * X``.

    Args:
        t: what is modified.
        X: what is added.
        f: a number or a tensor of one element. Default: 1.
    Returns:
        An alias of ``t``.
    Raises:
        ShapeError: the shapes differ, or the factor has not one element.
        GraphError: ``t`` is a constant.
    """
    return emit("accumulate_", {"t": t, "X": X, "f": tensor(f)}, f=number(f))


def accumulate_mean_(t: Tensor, X: Tensor, step: float | Tensor) -> Tensor:
    """Running mean: ``(1 - b) * t + b * X`` with ``b = 1 / (step + 1)``.

    Args:
        t: what is modified.
        X: the next value.
        step: how many values ``t`` already is the mean of: a number or a tensor of one element.
    Returns:
        An alias of ``t``.
    Raises:
        ShapeError: the shapes differ, or the factor has not one element.
        GraphError: ``t`` is a constant.
    """
    return emit("accumulate_mean_", {"t": t, "X": X, "step": tensor(step)}, step=number(step))


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
    """
    return emit("accumulator_scale_", {"t": t, "f": tensor(f)}, f=number(f))


def accumulator_zero_(t: Tensor) -> Tensor:
    """Set to zero.

    Args:
        t: what is modified.
    Returns:
        An alias of ``t``.
    Raises:
        GraphError: ``t`` is a constant.
    """
    return emit("accumulator_zero_", {"t": t})


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
    """
    return emit("copy_var_update_", {"t": t, "X": X})
