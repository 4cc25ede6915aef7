"""Elements addressed by index tensors along one axis, and reductions of those with the same index.

Indices count from 0. The reference leaves an index outside the axis undefined; here it is an error when the program
runs, before the op writes anything.
"""

from __future__ import annotations

from typing import Literal

from popsr._program.building.emit import emit, tensor
from popsr._program.tensor import Tensor
from popsr._support.host.arguments import is_a, read_choice, read_flag
from popsr._support.host.choices import Choices
from popsr._support.text.shown import shown
from popsr.errors import ArgumentTypeError
from popsr.ops._facts import public_op

__all__ = [
    "gather",
    "grouped_scatter_reduce",
    "groupedgather",
    "scatter",
    "scatter_reduce",
    "tied_gather",
]

ScatterReductionType = Literal["sum", "min", "max", "none"]


@public_op
def gather(
    t: Tensor,
    indices: Tensor,
    axis: int = 0,
    available_memory_proportion: float | None = None,
    zero_OOR: bool = False,
) -> Tensor:
    """Elements of an axis, as ``numpy.take``.

    Args:
        t: the operand, shape ``[..., n, ...]``.
        indices: integers of any shape.
        axis: the axis that they address.
        available_memory_proportion: accepted for PopXL programs; has no effect.
        zero_OOR: indices out of range give zeros.
    Returns:
        Tensor of the dtype of ``t`` in the shape of ``t``, its axis replaced by the shape of ``indices``.
    Raises:
        OutOfRangeError: when the program runs: an index is not one of 0 to n - 1, without ``zero_OOR``.
        AttributeValueError: the axis is out of range.
        DTypeError: the indices are not integers.
    Example:
        >>> evaluate(ops.gather, [[1.0, 2.0], [3.0, 4.0]], [1, 0, 1])
        array([[3., 4.],
               [1., 2.],
               [3., 4.]], dtype=float32)
    """
    return emit(
        "gather",
        {"t": t, "indices": indices},
        axis=axis,
        available_memory_proportion=available_memory_proportion,
        zero_OOR=zero_OOR,
    )


@public_op
def tied_gather(
    t: Tensor,
    indices: Tensor,
    axis: int = 0,
    available_memory_proportion: float | None = None,
    zero_OOR: bool = False,
) -> Tensor:
    """``gather`` of a weight that a matrix product also uses: the same values and the same gradient.

    Args:
        t: the operand.
        indices: integers of any shape.
        axis: the axis that they address.
        available_memory_proportion: accepted for PopXL programs; has no effect.
        zero_OOR: indices out of range give zeros.
    Returns:
        As ``gather``.
    Raises:
        OutOfRangeError: as for ``gather``.
        AttributeValueError: the axis is out of range.
        DTypeError: the indices are not integers.
    Example:
        >>> evaluate(ops.tied_gather, [[1.0, 2.0], [3.0, 4.0]], [1, 0, 1])
        array([[3., 4.],
               [1., 2.],
               [3., 4.]], dtype=float32)
    """
    return emit(
        "tied_gather",
        {"t": t, "indices": indices},
        axis=axis,
        available_memory_proportion=available_memory_proportion,
        zero_OOR=zero_OOR,
    )


@public_op
def groupedgather(
    t: Tensor,
    indices: Tensor,
    axis: int = 0,
    group_size: int | None = 1,
    available_memory_proportion: float | None = None,
    zero_OOR: bool = False,
) -> Tensor:
    """``gather`` in each of several groups, which are axis 0 of both operands.

    Args:
        t: the operand, shape ``[group_size, ...]``.
        indices: integers, shape ``[group_size, ...]``.
        axis: the axis of ``t`` that they address, not 0.
        group_size: number of groups. 1: a plain gather, without an axis of groups.
        available_memory_proportion: accepted for PopXL programs; has no effect.
        zero_OOR: indices out of range give zeros.
    Returns:
        Tensor of the dtype of ``t``: for each group what ``gather`` gives.
    Raises:
        OutOfRangeError: as for ``gather``.
        AttributeValueError: the axis is the axis of the groups or out of range, or there is less than one group.
        ShapeError: axis 0 of an operand is not the number of groups.
        DTypeError: the indices are not integers.
    Example:
        >>> evaluate(ops.groupedgather, [[1.0, 2.0], [3.0, 4.0]], [[1], [0]], axis=1, group_size=2)
        array([[2.],
               [3.]], dtype=float32)
    """
    return emit(
        "groupedgather",
        {"t": t, "indices": indices},
        axis=axis,
        group_size=group_size,
        available_memory_proportion=available_memory_proportion,
        zero_OOR=zero_OOR,
    )


@public_op
def scatter(
    t: Tensor,
    indices: Tensor,
    values: Tensor,
    axis: int = 0,
    available_memory_proportion: float | None = None,
) -> Tensor:
    """A copy of ``t`` in which element ``(.., i, ..)`` of ``values`` replaces element ``(.., indices[.., i, ..], ..)``.

    Where several of them meet at one element, the last one along the axis stays.

    Args:
        t: the operand.
        indices: integers of the shape of ``values``.
        values: of the dtype and rank of ``t``; no greater than it beside the axis.
        axis: the axis that the indices address.
        available_memory_proportion: accepted for PopXL programs; has no effect.
    Returns:
        Tensor of the shape and dtype of ``t``.
    Raises:
        OutOfRangeError: when the program runs: an index is out of range.
        ShapeError: the shapes do not fit.
        DTypeError: the dtypes of ``t`` and ``values`` differ, or the indices are not integers.
        AttributeValueError: the axis is out of range.
    Example:
        >>> evaluate(ops.scatter, [0.0, 0.0, 0.0], [2, 0], [5.0, 7.0])
        array([7., 0., 5.], dtype=float32)
    """
    return emit(
        "scatter",
        {"t": t, "indices": indices, "values": values},
        axis=axis,
        available_memory_proportion=available_memory_proportion,
    )


@public_op
def scatter_reduce(
    data: Tensor,
    indices: Tensor,
    reduction: ScatterReductionType,
    initial_values: Tensor | None = None,
    axis: int = 0,
    axis_size: int | None = None,
    enable_index_broadcast: bool = True,
    available_memory_proportion: float | None = None,
) -> Tensor:
    """Fold the elements of ``data`` that have the same index.

    Element ``(.., i, ..)`` goes to ``(.., indices[.., i, ..], ..)``.

    Elements are reduced in ascending order along the axis, narrow floats as float32 that are rounded once. Positions
    that nothing goes to are 0 without initial values.

    Args:
        data: the elements to reduce.
        indices: integers of the shape of ``data``. A vector lies along the axis; other shapes are filled up with
            extents of 1 at the end; then extents of 1 are repeated.
        reduction: "sum", "min", "max", or "none": the last element replaces the others.
        initial_values: initial values of the reduction: the shape of ``data`` but for the axis.
        axis: the axis that the indices address.
        axis_size: extent of that axis in the result. Default: the extent in ``initial_values``.
        enable_index_broadcast: if false, indices must have the shape of ``data``.
        available_memory_proportion: accepted for PopXL programs; has no effect.
    Returns:
        Tensor of the dtype of ``data``.
    Raises:
        OutOfRangeError: when the program runs: an index is out of range.
        AttributeValueError: another reduction, neither ``initial_values`` nor ``axis_size``, or no such axis.
        ShapeError: the shapes do not fit.
        DTypeError: the dtypes of ``data`` and ``initial_values`` differ, or the indices are not integers.
    Example:
        >>> evaluate(ops.scatter_reduce, [1.0, 2.0, 4.0], [0, 2, 0], reduction="sum", axis_size=3)
        array([5., 0., 2.], dtype=float32)
    """
    read_choice("scatter_reduce", "reduction", reduction, ("sum", "min", "max", "none"))
    if initial_values is not None and not is_a(initial_values, Tensor):
        raise ArgumentTypeError(
            f"scatter_reduce: initial_values is not a Tensor, got {shown(initial_values)}, expected a Tensor"
        )
    return emit(
        "scatter_reduce",
        {"data": data, "indices": indices, "initial_values": tensor(initial_values)},
        reduction=reduction,
        axis=axis,
        axis_size=axis_size,
        enable_index_broadcast=read_flag("scatter_reduce: enable_index_broadcast", enable_index_broadcast),
        available_memory_proportion=available_memory_proportion,
    )


class ScatterReduction(Choices):
    """Reductions of elements with equal indices."""

    Sum = 0
    Max = 1
    Min = 2
    NoReduction = 3


reduction_dict = {
    "sum": ScatterReduction.Sum,
    "min": ScatterReduction.Min,
    "max": ScatterReduction.Max,
    "none": ScatterReduction.NoReduction,
}


@public_op
def grouped_scatter_reduce(
    data: Tensor,
    indices: Tensor,
    reduction: ScatterReductionType,
    initial_values: Tensor | None = None,
    axis: int = 0,
    axis_size: int | None = None,
    group_size: int = 1,
    enable_index_broadcast: bool = True,
    available_memory_proportion: float | None = None,
) -> Tensor:
    """``scatter_reduce`` in each of several groups, which are axis 0 of all operands and of the result.

    Args:
        data: the elements to reduce, shape ``[group_size, ...]``.
        indices: integers of the shape of ``data``. A vector a group lies along the axis; other shapes are filled up
            with extents of 1 at the end; then extents of 1 are repeated.
        reduction: "sum", "min", "max", or "none": the last element replaces the others.
        initial_values: initial values of the reduction: the shape of ``data`` but for the axis.
        axis: the axis of ``data`` that the indices address, not 0.
        axis_size: extent of that axis in the result. Default: the extent in ``initial_values``.
        group_size: number of groups. 1: a plain ``scatter_reduce``, without an axis of groups.
        enable_index_broadcast: if false, indices must have the shape of ``data``.
        available_memory_proportion: accepted for PopXL programs; has no effect.
    Returns:
        Tensor of the dtype of ``data``: for each group what ``scatter_reduce`` gives.
    Raises:
        OutOfRangeError: when the program runs: an index is out of range.
        AttributeValueError: as for ``scatter_reduce``; or the axis holds the groups, or there is less than one.
        ShapeError: the shapes do not fit, or axis 0 is not the number of groups.
        DTypeError: the dtypes of ``data`` and ``initial_values`` differ, or the indices are not integers.
    Example:
        >>> data, indices = [[1.0, 2.0], [4.0, 8.0]], [[0, 0], [1, 0]]
        >>> evaluate(ops.grouped_scatter_reduce, data, indices, reduction="sum", axis=1, axis_size=2, group_size=2)
        array([[3., 0.],
               [8., 4.]], dtype=float32)
    """
    where = "grouped_scatter_reduce"
    read_choice(where, "reduction", reduction, tuple(reduction_dict))
    if initial_values is not None and not is_a(initial_values, Tensor):
        raise ArgumentTypeError(
            f"{where}: initial_values is not a Tensor, got {shown(initial_values)}, expected a Tensor"
        )
    return emit(
        where,
        {"data": data, "indices": indices, "initial_values": tensor(initial_values)},
        reduction=reduction,
        axis=axis,
        axis_size=axis_size,
        group_size=group_size,
        enable_index_broadcast=read_flag(f"{where}: enable_index_broadcast", enable_index_broadcast),
        available_memory_proportion=available_memory_proportion,
    )
