"""Reductions over axes.

The innermost axis is reduced in a fixed tree, outer axes in ascending order: the bits depend on nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable

from popsr._program.building.emit import emit
from popsr._program.tensor import Tensor
from popsr._support.host.arguments import read_ints
from popsr.ops._facts import public_op

__all__ = ["l1", "l2", "logsum", "logsumexp", "max", "mean", "min", "prod", "sum", "sumsquare", "var"]


def _axes(op: str, axis: int | Iterable[int] | None) -> tuple[int, ...] | None:
    if axis is None:
        return None
    return read_ints(op, "axis", axis) if isinstance(axis, Iterable) else (axis,)


@public_op
def sum(t: Tensor, axis: int | Iterable[int] | None = None, keepdims: bool = False) -> Tensor:
    """Sum over axes.

    Args:
        t: the operand.
        axis: an axis or several. Default: all.
        keepdims: keep the reduced axes with extent 1.
    Returns:
        Tensor of the dtype of ``t`` without the reduced axes. Integers wrap in it, as in all arithmetic.
    Raises:
        ValueError: an axis is out of range or given twice.
        DTypeError: ``t`` is bool.
    Example:
        >>> evaluate(ops.sum, [[1.0, 2.0], [3.0, 4.0]], axis=0)
        array([4., 6.], dtype=float32)
    """
    return emit("sum", {"t": t}, axis=_axes("sum", axis), keepdims=keepdims)


@public_op
def mean(t: Tensor, axis: int | Iterable[int] | None = None, keepdims: bool = False) -> Tensor:
    """Mean over axes.

    Args:
        t: the operand.
        axis: an axis or several. Default: all.
        keepdims: keep the reduced axes with extent 1.
    Returns:
        Tensor of the dtype of ``t`` without the reduced axes. Of integers it is the exact quotient, towards zero,
        however large their sum is.
    Raises:
        ValueError: an axis is out of range or given twice.
        DTypeError: ``t`` is bool.
    Example:
        >>> evaluate(ops.mean, [[1.0, 2.0], [3.0, 4.0]], axis=0)
        array([2., 3.], dtype=float32)
    """
    return emit("mean", {"t": t}, axis=_axes("mean", axis), keepdims=keepdims)


@public_op
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
        ShapeError: a reduced axis is empty.
        DTypeError: ``t`` is bool.
    Example:
        >>> evaluate(ops.max, [[1.0, 2.0], [3.0, 4.0]], axis=0)
        array([3., 4.], dtype=float32)
    """
    return emit("max", {"t": t}, axis=_axes("max", axis), keepdims=keepdims)


@public_op
def min(t: Tensor, axis: int | Iterable[int] | None = None, keepdims: bool = False) -> Tensor:
    """Least element over axes; NaN if any is NaN.

    Args:
        t: the operand.
        axis: an axis or several. Default: all.
        keepdims: keep the reduced axes with extent 1.
    Returns:
        Tensor of the dtype of ``t`` without the reduced axes.
    Raises:
        ValueError: an axis is out of range or given twice.
        ShapeError: a reduced axis is empty.
        DTypeError: ``t`` is bool.
    Example:
        >>> evaluate(ops.min, [[1.0, 2.0], [3.0, 4.0]], axis=0)
        array([1., 2.], dtype=float32)
    """
    return emit("min", {"t": t}, axis=_axes("min", axis), keepdims=keepdims)


@public_op
def prod(t: Tensor, axis: int | Iterable[int] | None = None, keepdims: bool = False) -> Tensor:
    """Product over axes; 1 of no elements.

    The gradient of an element is the product of the others, right where some are 0, too.

    Args:
        t: the operand.
        axis: an axis or several. Default: all.
        keepdims: keep the reduced axes with extent 1.
    Returns:
        Tensor of the dtype of ``t`` without the reduced axes.
    Raises:
        ValueError: an axis is out of range or given twice.
        DTypeError: ``t`` is bool.
    Example:
        >>> evaluate(ops.prod, [[1.0, 2.0], [3.0, 4.0]], axis=0)
        array([3., 8.], dtype=float32)
    """
    return emit("prod", {"t": t}, axis=_axes("prod", axis), keepdims=keepdims)


@public_op
def sumsquare(t: Tensor, axis: int | Iterable[int] | None = None, keepdims: bool = False) -> Tensor:
    """Sum of squares over axes.

    Args:
        t: the operand.
        axis: an axis or several. Default: all.
        keepdims: keep the reduced axes with extent 1.
    Returns:
        Tensor of the dtype of ``t`` without the reduced axes.
    Raises:
        ValueError: an axis is out of range or given twice.
        DTypeError: ``t`` is bool.
    Example:
        >>> evaluate(ops.sumsquare, [[1.0, 2.0], [3.0, 4.0]], axis=0)
        array([10., 20.], dtype=float32)
    """
    return emit("sumsquare", {"t": t}, axis=_axes("sumsquare", axis), keepdims=keepdims)


@public_op
def l1(t: Tensor, axis: int | Iterable[int] | None = None, keepdims: bool = False) -> Tensor:
    """Sum of magnitudes over axes.

    Args:
        t: the operand.
        axis: an axis or several. Default: all.
        keepdims: keep the reduced axes with extent 1.
    Returns:
        Tensor of the dtype of ``t`` without the reduced axes.
    Raises:
        ValueError: an axis is out of range or given twice.
        DTypeError: ``t`` is bool.
    Example:
        >>> evaluate(ops.l1, [[1.0, -2.0], [-3.0, 4.0]], axis=0)
        array([4., 6.], dtype=float32)
    """
    return emit("l1", {"t": t}, axis=_axes("l1", axis), keepdims=keepdims)


@public_op
def l2(t: Tensor, axis: int | Iterable[int] | None = None, keepdims: bool = False) -> Tensor:
    """Square root of the sum of squares over axes.

    Squares may overflow where the result would not. The gradient of zeros is 0.

    Args:
        t: the operand.
        axis: an axis or several. Default: all.
        keepdims: keep the reduced axes with extent 1.
    Returns:
        Tensor of the dtype of ``t`` without the reduced axes.
    Raises:
        ValueError: an axis is out of range or given twice.
        DTypeError: ``t`` is not floating.
    Example:
        >>> evaluate(ops.l2, [3.0, 4.0])
        array(5., dtype=float32)
    """
    return emit("l2", {"t": t}, axis=_axes("l2", axis), keepdims=keepdims)


@public_op
def logsum(t: Tensor, axis: int | Iterable[int] | None = None, keepdims: bool = False) -> Tensor:
    """Logarithm of the sum over axes.

    Args:
        t: the operand.
        axis: an axis or several. Default: all.
        keepdims: keep the reduced axes with extent 1.
    Returns:
        Tensor of the dtype of ``t`` without the reduced axes.
    Raises:
        ValueError: an axis is out of range or given twice.
        DTypeError: ``t`` is not floating.
    Example:
        >>> evaluate(ops.logsum, [1.0, 9.0])
        array(2.3025851, dtype=float32)
    """
    return emit("logsum", {"t": t}, axis=_axes("logsum", axis), keepdims=keepdims)


@public_op
def logsumexp(t: Tensor, axis: int | Iterable[int] | None = None, keepdims: bool = False) -> Tensor:
    """Logarithm of the sum of exponentials over axes, without overflow on the way.

    Args:
        t: the operand.
        axis: an axis or several. Default: all.
        keepdims: keep the reduced axes with extent 1.
    Returns:
        Tensor of the dtype of ``t`` without the reduced axes.
    Raises:
        ValueError: an axis is out of range or given twice.
        DTypeError: ``t`` is not floating.
    Example:
        >>> evaluate(ops.logsumexp, [1000.0, 1000.0])
        array(1000.6932, dtype=float32)
    """
    return emit("logsumexp", {"t": t}, axis=_axes("logsumexp", axis), keepdims=keepdims)


@public_op
def var(
    t: Tensor, axis: int | Iterable[int] | None = None, keepdims: bool = False, correction: float = 0.0
) -> Tensor:
    """Variance over axes: the sum of the squared distances from the mean, over their number less ``correction``.

    Two passes: the mean, then the squared distances from it, each summed in the order of all reductions.

    Args:
        t: the operand.
        axis: an axis or several. Default: all.
        keepdims: keep the reduced axes with extent 1.
        correction: 0, as in the array API standard and NumPy, for the variance of all values; 1, PyTorch's default,
            for an estimate from a sample.
    Returns:
        Tensor of the dtype of ``t`` without the reduced axes; NaN where there are no more elements than ``correction``
        and no distances.
    Raises:
        ValueError: an axis is out of range or given twice.
        AttributeValueError: ``correction`` is not a finite number of at least 0.
        DTypeError: ``t`` is not floating.
    Example:
        >>> evaluate(ops.var, [1.0, 2.0, 3.0, 4.0])
        array(1.25, dtype=float32)
    """
    return emit("var", {"t": t}, axis=_axes("var", axis), keepdims=keepdims, correction=correction)
