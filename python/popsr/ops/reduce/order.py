"""Ops that find elements by their order.

Of equal elements the first comes first, and -0 equals +0.
"""

from __future__ import annotations

from collections.abc import Iterable

from popsr._program.building.emit import emit, emit_op
from popsr._program.building.location import warn_user
from popsr._program.building.transaction import transactional
from popsr._program.tensor import Tensor
from popsr._support.host.arguments import read_flag
from popsr.ops._facts import public_op
from popsr.ops.reduce.reductions import _axes

__all__ = ["argmax", "argmin", "median", "topk"]


@public_op
def argmax(t: Tensor, dim: int | None = 0, keepdim: bool | None = False) -> Tensor:
    """Index of the greatest element along an axis: the first one; the first NaN where there is one.

    Args:
        t: the operand, of rank >= 1.
        dim: the axis; negative ones count from the end.
        keepdim: keep the axis with extent 1.
    Returns:
        int32 tensor without the axis.
    Raises:
        ValueError: the axis is out of range.
        ShapeError: the axis is empty.
        DTypeError: ``t`` is bool.
    Example:
        >>> evaluate(ops.argmax, [1.0, 5.0, 5.0])
        array(1, dtype=int32)
    """
    return emit("argmax", {"t": t}, dim=dim, keepdim=keepdim)


@public_op
def argmin(t: Tensor, dim: int | None = 0, keepdim: bool | None = False) -> Tensor:
    """Index of the least element along an axis: the first one; the first NaN where there is one.

    Args:
        t: the operand, of rank >= 1.
        dim: the axis; negative ones count from the end.
        keepdim: keep the axis with extent 1.
    Returns:
        int32 tensor without the axis.
    Raises:
        ValueError: the axis is out of range.
        ShapeError: the axis is empty.
        DTypeError: ``t`` is bool.
    Example:
        >>> evaluate(ops.argmin, [4.0, 1.0, 1.0])
        array(1, dtype=int32)
    """
    return emit("argmin", {"t": t}, dim=dim, keepdim=keepdim)


@public_op
def median(t: Tensor, axis: int | Iterable[int] | None = None, keepdims: bool = False) -> Tensor:
    """Median over axes: the lower one of an even count; NaN if any element is NaN.

    The gradient goes to one element: the first NaN, or the one at position ``(n - 1) // 2`` of the stable order.

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
        >>> evaluate(ops.median, [4.0, 1.0, 3.0])
        array(3., dtype=float32)
    """
    return emit("median", {"t": t}, axis=_axes("median", axis), keepdims=keepdims)


@public_op
@transactional
def topk(
    t: Tensor,
    k: int,
    axis: int,
    largest: bool,
    sorted: bool,
    available_memory_proportion: float | None = None,
) -> tuple[Tensor, Tensor]:
    """The ``k`` greatest elements along an axis, descending, or the ``k`` least, ascending.

    NaN counts as the greatest number. Values are differentiated, indices are not.

    Args:
        t: the operand, of rank >= 1.
        k: how many, at most the extent of the axis.
        axis: the axis; negative ones count from the end.
        largest: the greatest, else the least.
        sorted: results are sorted in any case; False warns.
        available_memory_proportion: accepted for PopXL programs; has no effect.
    Returns:
        Values of the dtype of ``t``, and their int32 indices; extent ``k`` on the axis.
    Raises:
        ValueError: the axis or ``k`` is out of range.
        DTypeError: ``t`` is bool.
    Example:
        >>> evaluate(ops.topk, [3.0, 1.0, 2.0], axis=0, k=2, largest=True, sorted=True)
        [array([3., 2.], dtype=float32), array([0, 2], dtype=int32)]
    """
    if not read_flag("topk: sorted", sorted):
        warn_user("topk: sorted=False is not supported, results are sorted")
    attrs = {
        "k": k,
        "axis": axis,
        "largest": largest,
        "available_memory_proportion": available_memory_proportion,
    }
    values, indices = emit_op("topk", {"t": t}, attrs, outputs=2)[1]
    return values, indices
