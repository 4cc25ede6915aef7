"""Folding elements that have the same index, in groups."""

from __future__ import annotations

from popsr._args import is_a, read_choice, read_flag
from popsr._choices import Choices
from popsr._emit import emit, tensor
from popsr._shown import shown
from popsr.errors import ArgumentTypeError
from popsr.ops.indexing import ScatterReductionType, scatter_reduce
from popsr.tensor import Tensor

__all__ = ["grouped_scatter_reduce", "scatter_reduce"]


class ScatterReduction(Choices):
    """What becomes of elements that meet."""

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
        data: what is folded, shape ``[group_size, ...]``.
        indices: integers of the shape of ``data``. A vector a group lies along the axis; other shapes are filled up
            with extents of 1 at the end; then extents of 1 are repeated.
        reduction: "sum", "min", "max", or "none": the last element replaces the others.
        initial_values: what the elements are folded into: the shape of ``data`` but for the axis.
        axis: the axis of ``data`` that the indices address, not 0.
        axis_size: extent of that axis in the result. Default: that of ``initial_values``.
        group_size: number of groups. 1: a plain ``scatter_reduce``, without an axis of groups.
        enable_index_broadcast: if false, indices must have the shape of ``data``.
        available_memory_proportion: accepted for PopXL programs; has no effect.
    Returns:
        Tensor of the dtype of ``data``: for each group what ``scatter_reduce`` gives.
    Raises:
        OutOfRangeError: when the program runs: an index is out of range.
        AttributeValueError: as for ``scatter_reduce``; or the axis is that of the groups, or there is less than one.
        ShapeError: the shapes do not fit, or axis 0 is not the number of groups.
        DTypeError: the dtypes of ``data`` and ``initial_values`` differ, or the indices are not integers.
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
