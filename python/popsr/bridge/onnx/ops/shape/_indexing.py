"""Gathers and scatters; one-hot; orders."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from popsr import dtypes, ops
from popsr._program.tensor import Tensor
from popsr.bridge.onnx._node import Node, Value, cast
from popsr.bridge.onnx._rules import rule
from popsr.bridge.onnx._tensors import counting, expanded, moved, reshaped
from popsr.bridge.onnx._types import Array

__all__ = ["rows_at"]


def _counted(node: Node, indices: Tensor, extent: int) -> Tensor:
    """Indices that count from the front."""
    zero, length = node.like(0, indices), node.like(extent, indices)
    return ops.where(ops.less(indices, zero), ops.add(indices, length), indices)


def _counted_value(node: Node, indices: Value, extent: int) -> Tensor:
    """The same; of known indices they are known."""
    if isinstance(indices, np.ndarray):
        return node.tensor(np.where(indices < 0, indices + extent, indices))
    return _counted(node, node.tensor(indices), extent)


@rule("Gather", kind="raw")
def _gather(node: Node, value: Value, indices: Value) -> Tensor:
    t = node.tensor(value)
    axis = node.axis("axis", t.rank, 0)
    return ops.gather(t, _counted_value(node, indices, t.shape[axis]), axis)


def rows_at(t: Tensor, indices: Tensor, axis: int) -> Tensor:
    """Rows at indices along an axis, for each place of the axes before it; the axes after it stay.

    An index out of range is an OutOfRangeError when the program runs.
    """
    batch = list(range(axis))
    rest = t.rank - axis - 1
    return ops.gather_general(
        t,
        reshaped(indices, (*indices.shape, 1)),
        slice_sizes=(*(1,) * (axis + 1), *t.shape[axis + 1 :]),
        offset_dims=range(indices.rank, indices.rank + rest),
        index_map=(axis,),
        collapsed_dims=(axis,),
        operand_batching_dims=batch,
        indices_batching_dims=batch,
        mode="check",
    )


@rule("GatherElements", since=11, kind="raw")
def _gather_elements(node: Node, value: Value, indices: Value) -> Tensor:
    t = node.tensor(value)
    return ops.gather_elements(t, node.tensor(indices), node.axis("axis", t.rank, 0))


Reduction = Literal["sum", "mul", "min", "max", "none"]
_REDUCTIONS: dict[str, Reduction] = {"none": "none", "add": "sum", "mul": "mul", "min": "min", "max": "max"}


@rule("Scatter", since=9, kind="raw")
@rule("ScatterElements", since=11, kind="raw")
def _scatter_elements(node: Node, value: Value, indices: Value, updates: Value) -> Tensor:
    t, new = node.tensor(value), node.tensor(updates)
    axis, reduction = node.axis("axis", t.rank, 0), _REDUCTIONS[node.text("reduction", "none")]
    if t.dtype != dtypes.bool:
        return ops.scatter_elements(t, node.tensor(indices), new, axis, reduction)
    numbers = (cast(each, dtypes.uint8) for each in (t, new))
    made = ops.scatter_elements(next(numbers), node.tensor(indices), next(numbers), axis, reduction)
    return cast(made, dtypes.bool)


def _counted_corners(node: Node, indices: Value, extents: Sequence[int]) -> Tensor:
    """Corners that count from the front; the last axis is the number of the dimension."""
    lengths = np.asarray(extents)
    if isinstance(indices, np.ndarray):
        return node.tensor(np.where(indices < 0, indices + lengths, indices).astype(indices.dtype))
    t = node.tensor(indices)
    return ops.where(ops.less(t, node.like(0, t)), ops.add(t, node.like(lengths, t)), t)


@rule("GatherND", since=11, kind="raw")
def _gather_nd(node: Node, value: Value, indices: Value) -> Tensor:
    t, batch = node.tensor(value), node.integer("batch_dims", 0)
    count = (indices if isinstance(indices, np.ndarray) else node.tensor(indices)).shape[-1]
    axes = range(batch, batch + count)
    corners = _counted_corners(node, indices, t.shape[batch : batch + count])
    rest = t.rank - batch - count
    return ops.gather_general(
        t,
        corners,
        slice_sizes=(*(1,) * (batch + count), *t.shape[batch + count :]),
        offset_dims=range(corners.rank - 1, corners.rank - 1 + rest),
        index_map=axes,
        collapsed_dims=axes,
        operand_batching_dims=range(batch),
        indices_batching_dims=range(batch),
        mode="check",
    )


@rule("ScatterND", since=11, kind="raw")
def _scatter_nd(node: Node, value: Value, indices: Value, updates: Value) -> Tensor:
    t = node.tensor(value)
    count = (indices if isinstance(indices, np.ndarray) else node.tensor(indices)).shape[-1]
    corners = _counted_corners(node, indices, t.shape[:count])
    given = node.tensor(updates)
    return ops.scatter_general(
        t,
        corners,
        given,
        offset_dims=range(corners.rank - 1, given.rank),
        index_map=range(count),
        collapsed_dims=range(count),
        reduction=_REDUCTIONS[node.text("reduction", "none")],
        mode="check",
    )


@rule("TensorScatter", since=24, kind="raw")
def _tensor_scatter(node: Node, value: Value, update: Value, places: Value = None) -> Tensor:
    """Write a sequence of rows per sample, from a place on; circular ones go on at the front."""
    t, rows = node.tensor(value), node.tensor(update)
    axis = node.axis("axis", t.rank, -2)
    count, extent, batch = rows.shape[axis], t.shape[axis], t.shape[0]
    number = node.constant(counting(count)[None, :], dtypes.int64)
    if places is None:
        at = expanded(number, (batch, count))
    else:
        at = ops.add(reshaped(cast(node.tensor(places), dtypes.int64), (batch, 1)), number)
    if node.word("mode", ("linear", "circular"), "linear") == "circular":
        at = ops.fmod(at, node.constant(extent, dtypes.int64))
    order = (0, axis, *(i for i in range(1, t.rank) if i != axis))
    back = sorted(range(t.rank), key=lambda i: order[i])
    wide = moved(t, order)
    sample = expanded(node.constant(counting(batch)[:, None, None], dtypes.int64), (batch, count, 1))
    made = ops.scatter_general(
        wide,
        ops.concat([sample, reshaped(at, (batch, count, 1))], 2),
        moved(rows, order),
        offset_dims=range(2, t.rank),
        index_map=(0, 1),
        collapsed_dims=(0, 1),
        reduction="none",
        mode="check",
    )
    return moved(made, back)


@rule("OneHot", since=9, kind="raw")
def _one_hot(node: Node, indices: Value, depth: Value, values: Value) -> Tensor:
    """Ones where an index is the number of the class; indices below 0 count from the end, others beyond have none."""
    count = int(node.known_float(depth, "depth"))
    if count < 1:
        raise ValueError(f"depth {count}, expected 1 or more")
    where = node.tensor(indices)
    axis = node.axis("axis", where.rank + 1, -1)
    whole = cast(where, dtypes.int64)
    whole = _counted(node, whole, count)
    shape = (*where.shape[:axis], 1, *where.shape[axis:])
    line = counting(count).reshape([-1 if i == axis else 1 for i in range(len(shape))])
    pair = node.tensor(values)
    off, on = (reshaped(part, ()) for part in ops.split(pair, [1, 1], 0))
    hot = ops.equal(reshaped(whole, shape), node.constant(line, dtypes.int64))
    return ops.where(hot, on, off)


# Order


@rule("ArgMax")
def _argmax(node: Node, t: Tensor) -> Tensor:
    return _arg_extreme(node, t, ops.argmax)


@rule("ArgMin")
def _argmin(node: Node, t: Tensor) -> Tensor:
    return _arg_extreme(node, t, ops.argmin)


def _arg_extreme(node: Node, t: Tensor, function: Any) -> Tensor:
    axis, keep = node.axis("axis", t.rank, 0), bool(node.integer("keepdims", 1))
    last = bool(node.integer("select_last_index", 0))
    found = cast(function(ops.reverse(t, [axis]) if last else t, axis, keep), dtypes.int64)
    return ops.sub(node.like(t.shape[axis] - 1, found), found) if last else found


@rule("TopK", since=10, kind="raw")
def _topk(node: Node, value: Value, k: Value) -> list[Tensor]:
    return _top(node, node.tensor(value), node.known_int(k, "k"))


@rule("TopK", since=1)
def _topk_1(node: Node, t: Tensor) -> list[Tensor]:
    return _top(node, t, node.integer("k"))


def _top(node: Node, t: Tensor, k: int) -> list[Tensor]:
    """The first of a stable sort; equal ones are in the order of their indices."""
    axis, largest = node.axis("axis", t.rank, -1), bool(node.integer("largest", 1))
    if not 0 <= k <= t.shape[axis]:
        raise ValueError(f"{k} of {t.shape[axis]} elements")
    number = counting(t.shape[axis]).reshape([-1 if i == axis else 1 for i in range(t.rank)])
    places = expanded(node.constant(number, dtypes.int64), t.shape)
    made = ops.sort(t, places, axis=axis, descending=largest)
    return [ops.slice(each, 0, k, 1, axis) if k < t.shape[axis] else each for each in made]


# Results whose shape depends on values


@rule("NonZero", since=9, kind="raw")
def _non_zero(node: Node, value: Value) -> Array:
    return np.stack(np.nonzero(node.known(value, "operand"))).astype(np.int64)


@rule("Compress", since=9, kind="raw")
def _compress(node: Node, value: Value, condition: Value) -> Tensor:
    t = node.tensor(value)
    if not node.has("axis"):
        t = reshaped(t, (math.prod(t.shape),))
    kept = np.flatnonzero(node.known(condition, "condition"))
    return ops.gather(t, node.constant(kept, dtypes.int64), node.axis("axis", t.rank, 0))


@rule("Unique", since=11, kind="raw")
def _unique(node: Node, value: Value) -> list[Array]:
    """The values, the place of the first of each, where each element went, and how often each occurs."""
    data = node.known(value, "operand")
    axis = node.integer("axis") if node.has("axis") else None
    made, first, inverse, counts = np.unique(data, True, True, True, axis=axis)
    inverse = inverse.reshape(-1)
    if not node.integer("sorted", 1):
        order = np.argsort(first, kind="stable")
        made = np.take(made, order, 0 if axis is None else axis)
        first, counts, inverse = first[order], counts[order], np.argsort(order, kind="stable")[inverse]
    return [made, *(each.astype(np.int64) for each in (first, inverse, counts))]


@rule("NonMaxSuppression", since=10, kind="raw")
def _non_max_suppression(
    node: Node, boxes: Value, scores: Value, most: Value = None, overlap: Value = None, least: Value = None
) -> Array:
    """Rows of sample, class and box, the best first, without boxes that overlap a better one of their class."""
    corners = _corners(node.known(boxes, "boxes"), bool(node.integer("center_point_box", 0)))
    points = node.known(scores, "scores")
    count = 0 if most is None else node.known_int(most, "max_output_boxes_per_class")
    edge = 0.0 if overlap is None else node.known_float(overlap, "iou_threshold")
    floor = -np.inf if least is None else node.known_float(least, "score_threshold")
    found = []
    for sample, label in np.ndindex(*points.shape[:2]):
        own = points[sample, label]
        waiting = [i for i in np.argsort(-own, kind="stable") if own[i] > floor]
        kept: list[int] = []
        for box in waiting:
            if len(kept) >= count:
                break
            if not (_shares(corners[sample], int(box), kept) > edge).any():
                kept.append(int(box))
        found += [(sample, label, box) for box in kept]
    return np.asarray(found, np.int64).reshape(-1, 3)


def _corners(boxes: Array, centred: bool) -> Array:
    """Least and greatest coordinates of both axes: ``[samples, boxes, 2, 2]``."""
    if centred:
        middle, half = boxes[..., :2], boxes[..., 2:] / 2
        return np.stack([middle - half, middle + half], -2)
    ends = boxes.reshape(*boxes.shape[:-1], 2, 2)
    return np.sort(ends, -2)


def _shares(corners: Array, box: int, others: list[int]) -> Array:
    """The common part of a box and others over what they cover; 0 of empty boxes."""
    a, b = corners[box], corners[others]
    common = np.clip(np.minimum(a[1], b[:, 1]) - np.maximum(a[0], b[:, 0]), 0, None).prod(-1)
    areas = [(each[..., 1, :] - each[..., 0, :]).prod(-1) for each in (a, b)]
    covered = areas[0] + areas[1] - common
    regular = (common > 0) & (areas[0] > 0) & (areas[1] > 0)
    return np.asarray(np.divide(common, covered, out=np.zeros_like(common), where=regular & (covered > 0)))
