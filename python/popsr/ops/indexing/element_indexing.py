"""Gather and scatter of single elements: each index addresses an element of its own line along an axis."""

from __future__ import annotations

from typing import Literal, get_args

from popsr._program.building.emit import emit
from popsr._program.tensor import Tensor
from popsr._support.host.arguments import read_choice
from popsr.ops._facts import public_op

__all__ = ["gather_elements", "scatter_elements"]

ElementReduction = Literal["none", "sum", "mul", "min", "max"]


@public_op
def gather_elements(t: Tensor, indices: Tensor, axis: int = 0) -> Tensor:
    """Element ``(.., indices[.., i, ..], ..)`` of ``t`` at each place ``(.., i, ..)``. An addition of popsr.

    It is ``numpy.take_along_axis``, and PyTorch's ``gather``: beside the axis the indices may be smaller than ``t``.
    The gradient adds elements in ascending order along the axis.

    Args:
        t: the operand.
        indices: integers of the rank of ``t``, from -n to n - 1 for an axis of extent n; those below 0 count from the
            end.
        axis: the axis that they address.
    Returns:
        Tensor of the dtype of ``t`` and the shape of ``indices``.
    Raises:
        OutOfRangeError: when the program runs: an index is out of range.
        ShapeError: the indices have another rank, or a greater extent beside the axis.
        AttributeValueError: the axis is out of range.
        DTypeError: the indices are not integers.
    Source:
        ONNX: operator GatherElements.
    Example:
        >>> evaluate(ops.gather_elements, [[1.0, 2.0], [3.0, 4.0]], [[0, 0], [-1, 0]], axis=1)
        array([[1., 1.],
               [4., 3.]], dtype=float32)
    """
    return emit("gather_elements", {"t": t, "indices": indices}, axis=axis)


@public_op
def scatter_elements(
    t: Tensor,
    indices: Tensor,
    updates: Tensor,
    axis: int = 0,
    reduction: ElementReduction = "none",
) -> Tensor:
    """A copy of ``t`` in which updates meet the elements that indices address. An addition of popsr.

    Element ``(.., i, ..)`` of ``updates`` meets element ``(.., indices[.., i, ..], ..)``. Several at one element are
    reduced in ascending order along the axis, narrow floats as float32 that are rounded once. A least or greatest
    element that occurs several times receives the whole gradient each time; "mul" has no gradient: asking for one is
    an error.

    Args:
        t: what is reduced into.
        indices: integers of the rank of ``t``, no greater than it beside the axis, from -n to n - 1 for an axis of
            extent n; those below 0 count from the end.
        updates: of the dtype of ``t`` and the shape of ``indices``.
        axis: the axis that the indices address.
        reduction: "sum", "mul", "min" or "max" with what is there; "none": the last update stays.
    Returns:
        Tensor of the shape and dtype of ``t``.
    Raises:
        OutOfRangeError: when the program runs: an index is out of range; nothing is written.
        ShapeError: the shapes do not fit.
        AttributeValueError: the axis is out of range, or ``reduction`` is none of these words.
        DTypeError: the dtypes of ``t`` and ``updates`` differ, or the indices are not integers.
    Source:
        ONNX: operator ScatterElements.
    Example:
        >>> evaluate(ops.scatter_elements, [0.0, 1.0, 2.0], [-1, 0, -1], [5.0, 7.0, 1.0], reduction="sum")
        array([7., 1., 8.], dtype=float32)
    """
    read_choice("scatter_elements", "reduction", reduction, get_args(ElementReduction))
    inputs = {"t": t, "indices": indices, "updates": updates}
    return emit("scatter_elements", inputs, axis=axis, reduction=reduction)
