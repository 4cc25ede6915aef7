"""Parts of tensors: at offsets that are known when the program runs, and every k-th element.

The reference leaves a range that does not lie inside the operand undefined; here it is an error when the program runs,
before the op writes anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from popsr._program.building.emit import emit
from popsr._program.building.transaction import transactional
from popsr._program.tensor import Tensor
from popsr._support.host.arguments import read_int, read_ints
from popsr.ops._facts import public_op
from popsr.ops.shape.shape import reshape

__all__ = ["dynamic_slice", "dynamic_update", "dynamic_update_", "subsample"]


@public_op
def dynamic_slice(t: Tensor, index: Tensor, axes: list[int], sizes: list[int], no_overlap: bool) -> Tensor:
    """A range of given size along some axes, from offsets in a tensor.

    Args:
        t: the operand.
        index: integers of any shape: one offset an axis, in C order.
        axes: the axes.
        sizes: how many positions of each.
        no_overlap: accepted for PopXL programs; has no effect.
    Returns:
        Tensor of the dtype of ``t``.
    Raises:
        OutOfRangeError: when the program runs: a range does not lie inside ``t``.
        AttributeValueError: an axis twice or not there, or lists of different lengths.
        ShapeError: a size beyond the axis, or another number of offsets.
        DTypeError: the offsets are not integers.
    Example:
        >>> evaluate(ops.dynamic_slice, [1.0, 2.0, 3.0, 4.0], [2], axes=[0], sizes=[2], no_overlap=True)
        array([3., 4.], dtype=float32)
    """
    return emit(
        "dynamic_slice",
        {"t": t, "index": index},
        axes=read_ints("dynamic_slice", "axes", axes),
        sizes=read_ints("dynamic_slice", "sizes", sizes),
        no_overlap=no_overlap,
    )


@public_op
@transactional
def dynamic_update(
    t: Tensor,
    index: Tensor,
    t_update: Tensor,
    axes: Iterable[int],
    sizes: Iterable[int],
    no_overlap: bool,
) -> Tensor:
    """A copy of ``t`` in which ``t_update`` replaces the range that ``dynamic_slice`` takes.

    Args:
        t: the operand.
        index: integers of any shape: one offset an axis, in C order.
        t_update: what replaces the range: its shape, of which leading extents of 1 may be missing; the dtype of ``t``.
        axes: the axes.
        sizes: how many positions of each.
        no_overlap: accepted for PopXL programs; has no effect.
    Returns:
        Tensor of the shape and dtype of ``t``.
    Raises:
        OutOfRangeError: when the program runs: a range does not lie inside ``t``.
        AttributeValueError: an axis twice or not there, or lists of different lengths.
        ShapeError: a size beyond the axis, another number of offsets, or ``t_update`` of another shape.
        DTypeError: the dtypes of ``t`` and ``t_update`` differ, or the offsets are not integers.
    Example:
        >>> evaluate(ops.dynamic_update, [1.0, 2.0, 3.0], [1], [9.0], axes=[0], sizes=[1], no_overlap=True)
        array([1., 9., 3.], dtype=float32)
    """
    return emit(
        "dynamic_update",
        {"t": t, "index": index, "t_update": _with_leading(t_update, t)},
        axes=read_ints("dynamic_update", "axes", axes),
        sizes=read_ints("dynamic_update", "sizes", sizes),
        no_overlap=no_overlap,
    )


@public_op
@transactional
def dynamic_update_(
    t: Tensor,
    index: Tensor,
    t_update: Tensor,
    axes: Iterable[int],
    sizes: Iterable[int],
    no_overlap: bool,
) -> Tensor:
    """``dynamic_update`` in place.

    Args:
        t: what is modified.
        index: integers of any shape: one offset an axis, in C order.
        t_update: what replaces the range: its shape, of which leading extents of 1 may be missing; the dtype of ``t``.
        axes: the axes.
        sizes: how many positions of each.
        no_overlap: accepted for PopXL programs; has no effect.
    Returns:
        An alias of ``t``.
    Raises:
        OutOfRangeError: when the program runs: a range does not lie inside ``t``, which then keeps its value.
        AttributeValueError: an axis twice or not there, or lists of different lengths.
        ShapeError: a size beyond the axis, another number of offsets, or ``t_update`` of another shape.
        DTypeError: the dtypes of ``t`` and ``t_update`` differ, or the offsets are not integers.
        GraphError: ``t`` is a constant.
    Example:
        >>> evaluate(ops.dynamic_update_, [1.0, 2.0, 3.0], [1], [9.0], axes=[0], sizes=[1], no_overlap=True)
        array([1., 9., 3.], dtype=float32)
    """
    return emit(
        "dynamic_update_",
        {"t": t, "index": index, "t_update": _with_leading(t_update, t)},
        axes=read_ints("dynamic_update_", "axes", axes),
        sizes=read_ints("dynamic_update_", "sizes", sizes),
        no_overlap=no_overlap,
    )


def _with_leading(update: Any, t: Any) -> Any:
    """An update with as many axes as what it updates."""
    if not isinstance(update, Tensor) or not isinstance(t, Tensor) or update.rank >= t.rank:
        return update
    return reshape(update, ((1,) * (t.rank - update.rank) + update.shape))


@public_op
def subsample(t: Tensor, strides: int | Iterable[int]) -> Tensor:
    """Every k-th element of each axis, from the first.

    Args:
        t: the operand.
        strides: k of the first axes; one number is axis 0's. Axes without one are kept. Not modified.
    Returns:
        Tensor of the dtype of ``t``; an extent d becomes ``ceil(d / k)``.
    Raises:
        AttributeValueError: more strides than axes, or one that is not positive.
    Example:
        >>> evaluate(ops.subsample, [1.0, 2.0, 3.0, 4.0, 5.0], 2)
        array([1., 3., 5.], dtype=float32)
    """
    steps: Any = strides if isinstance(strides, Iterable) else [read_int("subsample: strides", strides)]
    return emit("subsample", {"t": t}, strides=read_ints("subsample", "strides", steps))
