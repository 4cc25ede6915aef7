"""Running sums, products and extremes along an axis."""

from __future__ import annotations

from popsr._program.building.emit import emit
from popsr._program.tensor import Tensor
from popsr.ops._facts import public_op

__all__ = ["cummax", "cummin", "cumprod", "cumsum"]


@public_op
def cummax(t: Tensor, dim: int | None = 0) -> Tensor:
    """Greatest of every element and those before it along an axis. An addition of popsr.

    The gradient of a result goes to the element that it is, to the last one of equals.

    Args:
        t: the operand, of rank >= 1.
        dim: the axis; negative ones count from the end.
    Returns:
        Tensor of the shape and dtype of ``t``; NaN from the first NaN on.
    Raises:
        ValueError: the axis is out of range.
        DTypeError: ``t`` is bool.
    Example:
        >>> evaluate(ops.cummax, [2.0, 1.0, 3.0])
        array([2., 2., 3.], dtype=float32)
    """
    return emit("cummax", {"t": t}, dim=dim)


@public_op
def cummin(t: Tensor, dim: int | None = 0) -> Tensor:
    """Least of every element and those before it along an axis. An addition of popsr.

    The gradient of a result goes to the element that it is, to the last one of equals.

    Args:
        t: the operand, of rank >= 1.
        dim: the axis; negative ones count from the end.
    Returns:
        Tensor of the shape and dtype of ``t``; NaN from the first NaN on.
    Raises:
        ValueError: the axis is out of range.
        DTypeError: ``t`` is bool.
    Example:
        >>> evaluate(ops.cummin, [2.0, 1.0, 3.0])
        array([2., 1., 1.], dtype=float32)
    """
    return emit("cummin", {"t": t}, dim=dim)


@public_op
def cumprod(t: Tensor, dim: int | None = 0) -> Tensor:
    """Products of every element and those before it along an axis, in one chain. An addition of popsr.

    The gradient of a row of n elements takes n^2 / 2 products, and is right where elements are 0.

    Args:
        t: the operand, of rank >= 1.
        dim: the axis; negative ones count from the end.
    Returns:
        Tensor of the shape and dtype of ``t``; integers wrap.
    Raises:
        ValueError: the axis is out of range.
        DTypeError: ``t`` is bool.
    Example:
        >>> evaluate(ops.cumprod, [1.0, 2.0, 3.0])
        array([1., 2., 6.], dtype=float32)
    """
    return emit("cumprod", {"t": t}, dim=dim)


@public_op
def cumsum(t: Tensor, dim: int | None = 0) -> Tensor:
    """Sums of every element and those before it along an axis, in one chain of additions.

    Args:
        t: the operand, of rank >= 1.
        dim: the axis; negative ones count from the end.
    Returns:
        Tensor of the shape and dtype of ``t``; integers wrap.
    Raises:
        ValueError: the axis is out of range.
        DTypeError: ``t`` is bool.
    Example:
        >>> evaluate(ops.cumsum, [1.0, 2.0, 3.0])
        array([1., 3., 6.], dtype=float32)
    """
    return emit("cumsum", {"t": t}, dim=dim)
