"""Elements addressed by index tensors along one axis.

Indices count from 0. The reference leaves an index outside the axis undefined; here it is an error when the program
runs, before the op writes anything.
"""

from __future__ import annotations

import builtins
import itertools
import math
from collections.abc import Sequence
from typing import Literal

from popsr import dtypes
from popsr._args import is_a, read_choice, read_flag, read_ints, read_items, read_number
from popsr._emit import emit, tensor
from popsr._shown import shown
from popsr._transaction import transactional
from popsr.errors import ArgumentTypeError, AttributeValueError
from popsr.tensor import Tensor, constant

__all__ = [
    "ScatterReductionType",
    "check_increment",
    "gather",
    "groupedgather",
    "histogram",
    "onehot",
    "scatter",
    "scatter_reduce",
    "tied_gather",
]

ScatterReductionType = Literal["sum", "min", "max", "none"]


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
        Tensor of the dtype of ``t`` whose shape has that of ``indices`` in place of the axis.
    Raises:
        OutOfRangeError: when the program runs: an index is not one of 0 to n - 1, without ``zero_OOR``.
        AttributeValueError: there is no such axis.
        DTypeError: the indices are not integers.
    """
    return emit(
        "gather",
        {"t": t, "indices": indices},
        axis=axis,
        available_memory_proportion=available_memory_proportion,
        zero_OOR=zero_OOR,
    )


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
        AttributeValueError: there is no such axis.
        DTypeError: the indices are not integers.
    """
    return emit(
        "tied_gather",
        {"t": t, "indices": indices},
        axis=axis,
        available_memory_proportion=available_memory_proportion,
        zero_OOR=zero_OOR,
    )


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
        AttributeValueError: the axis is that of the groups or is not there, or there is less than one group.
        ShapeError: axis 0 of an operand is not the number of groups.
        DTypeError: the indices are not integers.
    """
    return emit(
        "groupedgather",
        {"t": t, "indices": indices},
        axis=axis,
        group_size=group_size,
        available_memory_proportion=available_memory_proportion,
        zero_OOR=zero_OOR,
    )


def onehot(t: Tensor, num_classes: Tensor, values: Tensor, axis: int) -> Tensor:
    """A new axis of classes that is "on" at the index and "off" elsewhere; all "off" where the index is no class.

    Args:
        t: integers. Sessions log one that is no class (logger ``popsr``), or refuse it with ``strict={"labels"}``.
        num_classes: the extent of the new axis: a constant of one element.
        values: what is off and what is on, shape ``[2]``; differentiable.
        axis: the place of the new axis in the result.
    Returns:
        Tensor of the dtype of ``values``.
    Raises:
        GraphError: ``num_classes`` is not constant.
        AttributeValueError: it is not positive, or there is no such axis.
        ShapeError: it is not one number, or ``values`` has another shape.
        DTypeError: ``t`` is not of integers.
    """
    return emit("onehot", {"t": t, "num_classes": num_classes, "values": values}, axis=axis)


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
        AttributeValueError: there is no such axis.
    """
    return emit(
        "scatter",
        {"t": t, "indices": indices, "values": values},
        axis=axis,
        available_memory_proportion=available_memory_proportion,
    )


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

    Elements are folded in ascending order along the axis, narrow floats as float32 that are rounded once. Positions
    that nothing goes to are 0 without initial values.

    Args:
        data: what is folded.
        indices: integers of the shape of ``data``. A vector lies along the axis; other shapes are filled up with
            extents of 1 at the end; then extents of 1 are repeated.
        reduction: "sum", "min", "max", or "none": the last element replaces the others.
        initial_values: what the elements are folded into: the shape of ``data`` but for the axis.
        axis: the axis that the indices address.
        axis_size: extent of that axis in the result. Default: that of ``initial_values``.
        enable_index_broadcast: if false, indices must have the shape of ``data``.
        available_memory_proportion: accepted for PopXL programs; has no effect.
    Returns:
        Tensor of the dtype of ``data``.
    Raises:
        OutOfRangeError: when the program runs: an index is out of range.
        AttributeValueError: another reduction, neither ``initial_values`` nor ``axis_size``, or no such axis.
        ShapeError: the shapes do not fit.
        DTypeError: the dtypes of ``data`` and ``initial_values`` differ, or the indices are not integers.
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


@transactional
def histogram(t: Tensor, levels: builtins.list[float], absolute_of_input: bool) -> Tensor:
    """Count the elements below, between and above levels: bin i counts ``levels[i-1] <= x < levels[i]``.

    Args:
        t: floats. NaN counts as above all levels.
        levels: ascending numbers.
        absolute_of_input: count absolute values.
    Returns:
        uint32 tensor of shape ``[len(levels) + 1]``.
    Raises:
        AttributeValueError: the levels do not ascend.
        DTypeError: ``t`` is not floating.
    """
    if not is_a(t, Tensor):
        raise ArgumentTypeError(f"histogram: t is not a Tensor, got {shown(t)}, expected a Tensor")
    numbers = read_ints("histogram", "levels", levels)
    numbers = tuple(read_number("histogram: an item of levels", each) for each in numbers)
    check_increment(numbers)
    # Levels are rounded as elements are: those of narrow floats are compared as float32.
    kind = dtypes.float64 if t.dtype == dtypes.float64 else dtypes.float32
    return emit(
        "histogram",
        {"t": t, "levels": constant(builtins.list(numbers), kind, "levels")},
        absolute_of_input=absolute_of_input,
    )


def check_increment(levels: Sequence[float]) -> None:
    """Check that the levels of a histogram ascend.

    Raises:
        ValueError: they do not.
    """
    numbers = [
        read_number("histogram: an item of levels", x) for x in read_items("histogram", "levels", levels)
    ]
    if not all(a <= b for a, b in itertools.pairwise((*numbers, math.inf))):
        raise AttributeValueError(f"histogram: levels do not ascend, got {shown(numbers)}")
