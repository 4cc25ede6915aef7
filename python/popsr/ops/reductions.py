"""Reductions over axes, and softmax.

The innermost axis folds in a fixed tree, outer axes in ascending order: the bits depend on nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable

from popsr._emit import emit
from popsr.tensor import Tensor

__all__ = ["max", "mean", "softmax", "sum"]


def _axes(axis: int | Iterable[int] | None) -> tuple[int, ...] | None:
    if axis is None:
        return None
    return tuple(axis) if isinstance(axis, Iterable) else (axis,)


def sum(t: Tensor, axis: int | Iterable[int] | None = None, keepdims: bool = False) -> Tensor:
    """Sum over axes.

    Args:
        t: the operand.
        axis: an axis or several. Default: all.
        keepdims: keep the reduced axes with extent 1.
    Returns:
        Tensor of the dtype of ``t`` without the reduced axes.
    Raises:
        ValueError: an axis is out of range or given twice.
        DTypeError: ``t`` is bool.
    """
    return emit("sum", {"t": t}, axis=_axes(axis), keepdims=keepdims)


def mean(t: Tensor, axis: int | Iterable[int] | None = None, keepdims: bool = False) -> Tensor:
    """Mean over axes.

    Args:
        t: the operand.
        axis: an axis or several. Default: all.
        keepdims: keep the reduced axes with extent 1.
    Returns:
        Tensor of the dtype of ``t`` without the reduced axes.
    Raises:
        ValueError: an axis is out of range or given twice.
        DTypeError: ``t`` is bool.
    """
    return emit("mean", {"t": t}, axis=_axes(axis), keepdims=keepdims)


def max(t: Tensor, axis: int | Iterable[int] | None = None, keepdims: bool = False) -> Tensor:
    """Greatest element over axes.

    Args:
        t: the operand.
        axis: an axis or several. Default: all.
        keepdims: keep the reduced axes with extent 1.
    Returns:
        Tensor of the dtype of ``t`` without the reduced axes.
    Raises:
        ValueError: an axis is out of range or given twice.
        DTypeError: ``t`` is bool.
    """
    return emit("max", {"t": t}, axis=_axes(axis), keepdims=keepdims)


def softmax(t: Tensor, axis: int) -> Tensor:
    """Exponentials along an axis, scaled to sum 1.

    Args:
        t: the operand.
        axis: the axis; negative ones count from the end.
    Returns:
        Tensor of the shape and dtype of ``t``.
    Raises:
        ValueError: the axis is out of range.
        DTypeError: ``t`` is not floating.
    """
    return emit("softmax", {"t": t}, axis=axis)
