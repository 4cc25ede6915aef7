"""Other shapes and parts of tensors: values, and views, whose functions end in ``_``.

A view has no memory of its own. Writing it in place, by any op, call or loop that modifies it, changes its operands and
all other views of the same elements; reading it gives what they hold at that time. Making one reads and writes nothing.
Gradients pass ``concat_`` alone: they stop at the others, and at ``slice_`` asking for one is an error.
"""

from __future__ import annotations

import builtins
import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from popsr._program.building.emit import emit
from popsr._program.building.operands import read_axis
from popsr._program.building.transaction import transactional
from popsr._program.tensor import Tensor
from popsr._support.host.arguments import is_a, read_a, read_int, read_int64s, read_ints, read_items
from popsr._support.text.entry_points import public_call
from popsr._support.text.shown import shown
from popsr.errors import AttributeValueError, ShapeError
from popsr.ops._facts import public_op

__all__ = [
    "detach",
    "detach_",
    "expand",
    "flatten",
    "flatten_",
    "reshape",
    "reshape_",
    "reverse",
    "slice",
    "slice_",
    "split",
    "squeeze",
    "transpose",
    "transpose_",
]

INT_MIN, INT_MAX = -(2**31), 2**31 - 1
"""Bounds that ``process_args`` puts where one is left out; an op clamps them to the axis."""


_FIRST, _LAST = -(2**63), 2**63 - 1  # as the ops have them: also beyond the longest axis


@public_op
def transpose(t: Tensor, permutation: tuple[int, ...] | None = None) -> Tensor:
    """Permute the axes.

    Args:
        t: the operand.
        permutation: for each axis of the result, the axis of ``t``. Default: reversed.
    Returns:
        Tensor of the dtype of ``t``.
    Raises:
        ValueError: not each axis once.
    Example:
        >>> evaluate(ops.transpose, [[1.0, 2.0], [3.0, 4.0]])
        array([[1., 3.],
               [2., 4.]], dtype=float32)
    """
    axes = None if permutation is None else read_ints("transpose", "permutation", permutation)
    return emit("transpose", {"t": t}, permutation=axes)


@public_op
def reshape(t: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The same elements in another shape.

    Args:
        t: the operand.
        shape: shape of the result; one extent may be -1 and is worked out.
    Returns:
        Tensor of the dtype of ``t``.
    Raises:
        ValueError: an extent is 0 or below -1, or the numbers of elements differ.
    Example:
        >>> evaluate(ops.reshape, [[1.0, 2.0], [3.0, 4.0]], (1, -1))
        array([[1., 2., 3., 4.]], dtype=float32)
    """
    return emit("reshape", {"t": t}, shape=read_ints("reshape", "shape", shape))


def reshape_handle_negative_axis(t: Tensor, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that ``reshape`` gives: -1 is worked out.

    Args:
        t: the operand.
        shape: as for ``reshape``.
    Raises:
        ValueError: an extent is 0 or below -1, -1 is there twice, or the numbers of elements differ.
    """
    where = "reshape_handle_negative_axis"
    read_a(f"{where}: t", t, Tensor)
    extents = read_int64s(where, "shape", shape)
    if any(each == 0 or each < -1 for each in extents) or extents.count(-1) > 1:
        raise AttributeValueError(
            f"{where}: bad shape, got {shown(builtins.list(extents))}, expected positive extents and -1 at most once"
        )
    known = math.prod(each for each in extents if each != -1)
    if -1 in extents:
        extents = tuple(t.nelms // known if each == -1 else each for each in extents)
    if math.prod(extents) != t.nelms:
        raise ShapeError(
            f"{where}: not the elements of {shown(t)}, got {shown(shape)}, expected {t.nelms} elements"
        )
    return extents


@public_op
def expand(t: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Repeat elements to a shape, as NumPy broadcasts. An addition of popsr.

    The gradient is the sum over the axes that were repeated.

    Args:
        t: the operand; axes of extent 1 are repeated, and missing ones in front.
        shape: shape of the result.
    Returns:
        Tensor of that shape and the dtype of ``t``.
    Raises:
        ShapeError: ``t`` does not broadcast to the shape.
        AttributeValueError: an extent is negative.
    Example:
        >>> evaluate(ops.expand, [[1.0], [2.0]], (2, 3))
        array([[1., 1., 1.],
               [2., 2., 2.]], dtype=float32)
    """
    return emit("expand", {"t": t}, shape=read_ints("expand", "shape", shape))


@public_op
def flatten(t: Tensor) -> Tensor:
    """The same elements in one dimension.

    Args:
        t: the operand.
    Returns:
        Tensor of shape ``(nelms,)`` and the dtype of ``t``.
    Example:
        >>> evaluate(ops.flatten, [[1.0, 2.0], [3.0, 4.0]])
        array([1., 2., 3., 4.], dtype=float32)
    """
    return emit("flatten", {"t": t})


@public_op
def squeeze(t: Tensor, axes: list[int] | None = None) -> Tensor:
    """Remove axes of extent 1.

    Args:
        t: the operand.
        axes: the axes. Default: all of extent 1.
    Returns:
        Tensor of the dtype of ``t``.
    Raises:
        ValueError: an axis is given twice, is out of range or has another extent than 1.
    Example:
        >>> evaluate(ops.squeeze, [[[1.0, 2.0]]], axes=[0])
        array([[1., 2.]], dtype=float32)
    """
    return emit("squeeze", {"t": t}, axes=None if axes is None else read_ints("squeeze", "axes", axes))


@public_call
def reverse(t: Tensor, axes: Iterable[int]) -> Tensor:
    """The elements of axes in reverse order. An addition of popsr; a ``slice`` of step -1.

    Args:
        t: the operand.
        axes: the axes; negative ones count from the end.
    Returns:
        Tensor of the shape and dtype of ``t``.
    Raises:
        ValueError: an axis is out of range or given twice.
    Example:
        >>> evaluate(ops.reverse, [[1.0, 2.0], [3.0, 4.0]], (1,))
        array([[2., 1.],
               [4., 3.]], dtype=float32)
    """
    turned = read_ints("reverse", "axes", axes)
    return emit("slice", {"t": t}, step=[-1] * len(turned), axis=turned)


@public_op
def slice(
    t: Tensor,
    start: int | Sequence[int | None] | None = None,
    stop: int | Sequence[int | None] | None = None,
    step: int | Sequence[int | None] | None = None,
    axis: int | Sequence[int] | None = None,
) -> Tensor:
    """A range along some axes. Bounds count and are clamped as in NumPy.

    Args:
        t: the operand.
        start: first position along each axis. Default: the whole axis.
        stop: position after the last.
        step: every how many positions, downwards if negative; not 0. Default: 1.
        axis: the axes. Default: the first ones.
    Returns:
        The part; ``t`` itself when nothing is given.
    Raises:
        ValueError: lists of different lengths, an inverted range, or a step 0.
    Example:
        >>> evaluate(ops.slice, [1.0, 2.0, 3.0, 4.0], start=1, stop=4, step=2)
        array([2., 4.], dtype=float32)
    """
    attributes = slice_attributes("slice", start, stop, step, axis)
    return t if attributes is None else emit("slice", {"t": t}, **attributes)


@public_op
def detach(t: Tensor) -> Tensor:
    """A copy through which no gradient flows.

    Args:
        t: the operand.
    Returns:
        Tensor of the shape and dtype of ``t``.
    Example:
        >>> evaluate(ops.detach, [1.0, 2.0])
        array([1., 2.], dtype=float32)
    """
    return emit("detach", {"t": t})


def _split_extents(t: Tensor, splits: int | Sequence[int], axis: int) -> list[int]:
    extent = t.shape[axis]
    if not is_a(splits, Iterable) or is_a(splits, str):
        count = read_int("split: splits", splits)
        if count < 1:
            raise AttributeValueError(
                f"split: number of parts is not positive, got {count}, expected 1 or more"
            )
        if extent % count:
            raise ShapeError(
                f"split: parts are not equal, got {count} of extent {extent}, expected a divisor"
            )
        return [extent // count] * count
    extents = builtins.list(read_int64s("split", "splits", splits))
    if any(each < 0 for each in extents):
        raise AttributeValueError(f"split: an extent is negative, got {shown(extents)}, expected 0 or more")
    if sum(extents) != extent:
        raise ShapeError(
            f"split: extents do not fill axis {axis}, got {shown(extents)}, expected a sum of {extent}"
        )
    return extents


def process_args(
    start: int | Sequence[int | None] | None = None,
    stop: int | Sequence[int | None] | None = None,
    step: int | Sequence[int | None] | None = None,
    axis: int | Sequence[int] | None = None,
) -> tuple[list[int], list[int], list[int], list[int]]:
    """The arguments of ``slice`` as lists of one length.

    Args:
        start: first position along each axis. Default: ``INT_MIN``, or ``INT_MAX`` where the step is negative.
        stop: position after the last. Default: the other of these.
        step: the steps. Default: 1.
        axis: the axes. Default: the first ones.
    Returns:
        Starts, stops, steps and axes.
    Raises:
        ValueError: lists of different lengths.
    """
    given = slice_attributes("process_args", start, stop, step, axis, first=INT_MIN, last=INT_MAX)
    return (
        ([], [], [], []) if given is None else (given["start"], given["stop"], given["step"], given["axis"])
    )


def slice_attributes(
    op: str,
    start: int | Sequence[int | None] | None,
    stop: int | Sequence[int | None] | None,
    step: int | Sequence[int | None] | None,
    axis: int | Sequence[int] | None,
    *,
    first: int = _FIRST,
    last: int = _LAST,
) -> dict[str, list[int]] | None:
    """Attributes of a slice; None when nothing is given."""
    given = [_as_list(op, each) for each in (start, stop, step, axis)]
    sizes = {len(each) for each in given if each is not None}
    if not sizes:
        return None
    if len(sizes) > 1:
        raise AttributeValueError(
            f"{op}: lists differ in length, got start={shown(start)}, stop={shown(stop)}, step={shown(step)}, "
            f"axis={shown(axis)}, expected lists of one length"
        )
    size = sizes.pop()
    steps = [1 if each is None else each for each in given[2] or [None] * size]
    down = [each < 0 for each in steps]
    starts = _bounds(given[0], [last if d else first for d in down])
    stops = _bounds(given[1], [first if d else last for d in down])
    axes = _bounds(given[3], builtins.list(range(size)))
    return {"start": starts, "stop": stops, "step": steps, "axis": axes}


def _as_list(op: str, value: Any) -> list[int | None] | None:
    if value is None:
        return None
    if not isinstance(value, (list, tuple)) and not (isinstance(value, np.ndarray) and value.ndim == 1):
        return [read_int(f"{op}: bound", value)]
    items = read_items(op, "bounds", value, kind="ints")
    return [None if each is None else read_int(f"{op}: bound", each) for each in items]


def _bounds(given: list[int | None] | None, default: list[int]) -> list[int]:
    if given is None:
        return default
    return [d if each is None else each for each, d in zip(given, default, strict=True)]


@public_op
def slice_(
    t: Tensor,
    start: int | Sequence[int | None] | None = None,
    stop: int | Sequence[int | None] | None = None,
    step: int | Sequence[int | None] | None = None,
    axis: int | Sequence[int] | None = None,
) -> Tensor:
    """A view of a range along some axes. Bounds count and are clamped as in NumPy.

    Args:
        t: the operand.
        start: first position along each axis. Default: the whole axis.
        stop: position after the last.
        step: every how many positions, downwards if negative; not 0. Default: 1.
        axis: the axes. Default: the first ones.
    Returns:
        The part; ``t`` itself when nothing is given.
    Raises:
        ValueError: lists of different lengths, an inverted range, or a step 0.
    Example:
        >>> evaluate(ops.slice_, [1.0, 2.0, 3.0, 4.0], start=1, stop=4, step=2)
        array([2., 4.], dtype=float32)
    """
    attributes = slice_attributes("slice_", start, stop, step, axis)
    return t if attributes is None else emit("slice_", {"t": t}, **attributes)


@public_op
def reshape_(t: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A view of the same elements in another shape.

    Args:
        t: the operand.
        shape: shape of the result; one extent may be -1 and is worked out.
    Returns:
        Tensor of the dtype of ``t``.
    Raises:
        ValueError: an extent is 0 or below -1, or the numbers of elements differ.
    Example:
        >>> evaluate(ops.reshape_, [[1.0, 2.0], [3.0, 4.0]], (1, -1))
        array([[1., 2., 3., 4.]], dtype=float32)
    """
    return emit("reshape_", {"t": t}, shape=read_ints("reshape_", "shape", shape))


@public_op
def flatten_(t: Tensor) -> Tensor:
    """A view of the same elements in one dimension.

    Args:
        t: the operand.
    Returns:
        Tensor of shape ``(nelms,)`` and the dtype of ``t``.
    Example:
        >>> evaluate(ops.flatten_, [[1.0, 2.0], [3.0, 4.0]])
        array([1., 2., 3., 4.], dtype=float32)
    """
    return emit("flatten_", {"t": t})


@public_op
def transpose_(t: Tensor, permutation: tuple[int, ...] | None = None) -> Tensor:
    """A view with permuted axes.

    Args:
        t: the operand.
        permutation: for each axis of the result, the axis of ``t``. Default: reversed.
    Returns:
        Tensor of the dtype of ``t``.
    Raises:
        ValueError: not each axis once.
    Example:
        >>> evaluate(ops.transpose_, [[1.0, 2.0], [3.0, 4.0]])
        array([[1., 3.],
               [2., 4.]], dtype=float32)
    """
    axes = None if permutation is None else read_ints("transpose_", "permutation", permutation)
    return emit("transpose_", {"t": t}, permutation=axes)


@public_op
def detach_(t: Tensor) -> Tensor:
    """A view of all of a tensor through which no gradient flows.

    Args:
        t: the operand.
    Returns:
        Tensor of the shape and dtype of ``t``.
    Example:
        >>> evaluate(ops.detach_, [1.0, 2.0])
        array([1., 2.], dtype=float32)
    """
    return emit("detach_", {"t": t})


@public_call
@transactional
def split(t: Tensor, splits: int | Sequence[int], axis: int = 0) -> list[Tensor]:
    """The parts of a tensor along an axis, as slices.

    Args:
        t: the operand.
        splits: the number of equal parts, or the extent of each.
        axis: the axis.
    Returns:
        The parts, in order.
    Raises:
        ShapeError: the number does not divide the axis, or the extents do not sum up to it.
        AttributeValueError: a number below 1, a negative extent, or an axis that is not there.
    Example:
        >>> evaluate(ops.split, [1.0, 2.0, 3.0], splits=[1, 2])
        [array([1.], dtype=float32), array([2., 3.], dtype=float32)]
    """
    read_a("split: t", t, Tensor)
    axis = read_axis("split", axis, t.shape)
    extents = _split_extents(t, splits, axis)
    ends = builtins.list(itertools.accumulate(extents))
    starts = [end - extent for end, extent in zip(ends, extents, strict=True)]
    return [slice(t, [a], [b], [1], [axis]) for a, b in zip(starts, ends, strict=True)]
