"""Shapes: what computes them, changes them and moves elements."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from popsr import dtypes, ops
from popsr._program.tensor import Tensor
from popsr.bridge.onnx._folding import (
    axes_operand,
    border_of,
    reshaped_extents,
    shape_slice,
    slices_of,
    split_lengths,
    squeezed_axes,
    tiles_of,
)
from popsr.bridge.onnx._node import Node, Value, cast
from popsr.bridge.onnx._rules import NotSupportedError, axis_in, rule
from popsr.bridge.onnx._tensors import counting, expanded, moved, reshaped, shape_of
from popsr.bridge.onnx._train.trained import is_floating
from popsr.bridge.onnx._types import Array, dtype_of, numpy_type
from popsr.bridge.onnx.ops.shape._indexing import rows_at

__all__: list[str] = []

# Known values


@rule("Shape", kind="raw")
def _shape(node: Node, value: Value) -> Array:
    return np.asarray(shape_slice(node, shape_of(value)), np.int64)


@rule("Size", kind="raw")
def _size(_node: Node, value: Value) -> Array:
    return np.asarray(math.prod(shape_of(value)), np.int64)


@rule("Constant", kind="raw")
def _constant(_node: Node) -> Array:
    """Only what folding leaves: texts and sparse tensors."""
    raise NotSupportedError("of a text or a sparse tensor")


@rule("ConstantOfShape", since=9, kind="raw")
def _constant_of_shape(node: Node, shape: Value) -> Tensor:
    value = node.array("value", np.zeros(1, np.float32)).reshape(-1)[:1]
    one = node.tensor(value.reshape(()))
    return expanded(one, node.known_ints(shape, "shape"))


@rule("Range", since=11, kind="raw")
def _range(node: Node, start: Value, limit: Value, delta: Value) -> Array:
    first, end, step = (
        node.known(each, what)
        for each, what in zip((start, limit, delta), ("start", "limit", "delta"), strict=True)
    )
    low, high, by = (each.reshape(-1)[0] for each in (first, end, step))
    count = max(0, math.ceil((float(high) - float(low)) / float(by)))
    if count > 1 << 24:
        raise NotSupportedError(f"{count} elements")
    kind = first.dtype
    if is_floating(first) and kind.itemsize == 2:
        kind = numpy_type(node.integer("stash_type", 1))
    return np.asarray(
        (np.arange(count).astype(kind) * by.astype(kind) + low.astype(kind)).astype(first.dtype)
    )


@rule("EyeLike", since=9, kind="raw")
def _eye_like(node: Node, value: Value) -> Array:
    rows, columns = shape_of(value)
    counting(rows, columns)
    kind = dtype_of(node.integer("dtype")) if node.has("dtype") else node.tensor(value).dtype
    return np.eye(rows, columns, node.integer("k", 0)).astype(kind.as_numpy())


@rule("Identity", kind="raw")
def _identity(_node: Node, value: Value) -> Value:
    return value


# Extents


@rule("Reshape", kind="raw")
def _reshape(node: Node, value: Value, shape: Value = None) -> Tensor:
    t = node.tensor(value)
    wanted = node.ints("shape") if shape is None else node.known_ints(shape, "shape")
    return reshaped(t, reshaped_extents(t.shape, wanted, bool(node.integer("allowzero", 0))))


@rule("Flatten", own_shapes=True)
def _flatten(node: Node, t: Tensor) -> Tensor:
    """Its axis may count from the end before opset 11 too."""
    axis = border_of(node, t.rank)
    return reshaped(t, (math.prod(t.shape[:axis]), math.prod(t.shape[axis:])))


def _axes(node: Node, axes: Value) -> tuple[int, ...] | None:
    return axes_operand(node, None if axes is None else node.known(axes, "axes"))


@rule("Squeeze", kind="raw", own_shapes=True)
def _squeeze(node: Node, value: Value, axes: Value = None) -> Tensor:
    t = node.tensor(value)
    given = squeezed_axes(node, None if axes is None else node.known(axes, "axes"))
    cut = (
        {i for i, extent in enumerate(t.shape) if extent == 1}
        if given is None
        else {axis_in(a, t.rank) for a in given}
    )
    if any(t.shape[axis] != 1 for axis in cut):
        raise ValueError(f"axes {sorted(cut)} of {list(t.shape)}")
    return reshaped(t, tuple(extent for axis, extent in enumerate(t.shape) if axis not in cut))


@rule("Unsqueeze", kind="raw")
def _unsqueeze(node: Node, value: Value, axes: Value = None) -> Tensor:
    t = node.tensor(value)
    given = _axes(node, axes) or ()
    rank = t.rank + len(given)
    new = {axis_in(axis, rank) for axis in given}
    if len(new) != len(given):
        raise ValueError(f"axes {given} given twice")
    rest = iter(t.shape)
    return reshaped(t, tuple(1 if axis in new else next(rest) for axis in range(rank)))


@rule("Expand", since=8, kind="raw")
def _expand(node: Node, value: Value, shape: Value) -> Tensor:
    t = node.tensor(value)
    return expanded(t, np.broadcast_shapes(t.shape, node.known_ints(shape, "shape")))


@rule("Tile", kind="raw")
def _tile(node: Node, value: Value, repeats: Value, axis: Value = None) -> Tensor:
    t = node.tensor(value)
    along = None if axis is None else node.known(axis, "axis")
    times = tiles_of(node, t.rank, node.known(repeats, "repeats"), along)
    if len(times) != t.rank:
        raise ValueError(f"{len(times)} repeats of rank {t.rank}")
    middle = tuple(n for extent in t.shape for n in (1, extent))
    wide = tuple(n for count, extent in zip(times, t.shape, strict=True) for n in (count, extent))
    shape = tuple(count * extent for count, extent in zip(times, t.shape, strict=True))
    return reshaped(expanded(reshaped(t, middle), wide), shape)


# Movement


@rule("Transpose")
def _transpose(node: Node, t: Tensor) -> Tensor:
    return moved(t, node.ints("perm", ()) or tuple(range(t.rank))[::-1])


@rule("Concat")
def _concat(node: Node, *parts: Tensor) -> Tensor:
    axis = node.integer("axis", 1 if node.opset < 4 else None)
    full = [part for part in parts if part.nelms] or list(parts[:1])
    return full[0] if len(full) == 1 else ops.concat(full, axis)


@rule("Split", kind="raw")
def _split(node: Node, value: Value, sizes: Value = None) -> list[Tensor]:
    t = node.tensor(value)
    axis = node.axis("axis", t.rank, 0)
    lengths = split_lengths(node, t.shape[axis], None if sizes is None else node.known(sizes, "split"))
    ends = np.cumsum([0, *lengths])
    return [cut(t, [int(a)], [int(b)], [axis], [1]) for a, b in itertools.pairwise(ends)]


def cut(
    t: Tensor, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int], steps: Sequence[int]
) -> Tensor:
    """``slice`` with the bounds of Python, of any step."""
    for axis, part in enumerate(slices_of(t.shape, starts, ends, axes, steps)):
        if part == slice(None):
            continue
        places = range(t.shape[axis])[part]
        if len(places) == t.shape[axis] and part.step == 1:
            continue
        if not places:
            shape = (*t.shape[:axis], 0, *t.shape[axis + 1 :])
            t = ops.slice(t, 0, 0, 1, axis) if t.shape[axis] else reshaped(t, shape)
        elif part.step == -1 and len(places) == t.shape[axis]:
            t = ops.reverse(t, [axis])
        elif part.step < 0:
            t = ops.reverse(ops.slice(t, places[-1], places[0] + 1, -part.step, axis), [axis])
        else:
            t = ops.slice(t, places[0], places[-1] + 1, part.step, axis)
    return t


@rule("Slice", since=10, kind="raw")
def _slice(
    node: Node, value: Value, starts: Value, ends: Value, axes: Value = None, steps: Value = None
) -> Tensor:
    t = node.tensor(value)
    first, last = node.known_ints(starts, "starts"), node.known_ints(ends, "ends")
    along = tuple(range(len(first))) if axes is None else node.known_ints(axes, "axes")
    by = (1,) * len(first) if steps is None else node.known_ints(steps, "steps")
    return cut(t, first, last, along, by)


@rule("Slice", since=1)
def _slice_1(node: Node, t: Tensor) -> Tensor:
    starts = node.ints("starts")
    axes = node.ints("axes", ()) or tuple(range(len(starts)))
    return cut(t, starts, node.ints("ends"), axes, (1,) * len(starts))


@rule("Pad", kind="raw")
def _pad(node: Node, value: Value, pads: Value = None, filling: Value = None, axes: Value = None) -> Tensor:
    t = node.tensor(value)
    own = "paddings" if node.opset < 2 else "pads"
    edges = node.ints(own) if pads is None else node.known_ints(pads, "pads")
    along = (
        range(t.rank) if axes is None else [axis_in(axis, t.rank) for axis in node.known_ints(axes, "axes")]
    )
    if len(edges) != 2 * len(along):
        raise ValueError(f"{len(edges)} pads of {len(along)} axes, expected {2 * len(along)}")
    if len(set(along)) != len(along):
        raise ValueError(f"axes {list(along)} given twice")
    low, high = [0] * t.rank, [0] * t.rank
    for i, axis in enumerate(along):
        low[axis], high[axis] = edges[i], edges[len(along) + i]
        if t.shape[axis] + low[axis] + high[axis] < 0 or min(low[axis], high[axis]) < -t.shape[axis]:
            raise ValueError(
                f"pads {low[axis]} and {high[axis]} of axis {axis} with {t.shape[axis]} elements"
            )
    mode = node.word("mode", ("constant", "edge", "reflect", "wrap"), "constant")
    if mode != "constant":
        return _mirrored(node, t, low, high, mode)
    one = node.like(node.number("value", 0.0), t) if filling is None else reshaped(node.tensor(filling), ())
    return ops.pad(t, low, high, value=one)


def _mirrored(node: Node, t: Tensor, low: Sequence[int], high: Sequence[int], mode: str) -> Tensor:
    """A gather of the elements that stand for the padding: those that are not cut off."""
    for axis, (before, after) in enumerate(zip(low, high, strict=True)):
        if not before and not after:
            continue
        extent = t.shape[axis]
        rest = extent + min(before, 0) + min(after, 0)
        most = rest - 1 if mode == "reflect" else max(before, after)
        if max(before, after) > most or rest < 1:
            raise ValueError(
                f"pads {before} and {after} of axis {axis} in mode {mode}, expected at most {most} for {rest} elements"
            )
        if mode == "wrap" and min(before, after) < 0:
            raise NotSupportedError("mode wrap with elements that are cut off")
        places = counting(extent + before + after) - before
        if mode == "edge":
            places = np.clip(places, 0, extent - 1)
        elif mode == "wrap":
            places = places % extent
        else:
            period = max(2 * (extent - 1), 1)
            places = np.minimum(places % period, period - places % period) if extent > 1 else places * 0
        t = ops.gather(t, node.constant(places.astype(np.int32), dtypes.int32), axis)
    return t


@rule("CenterCropPad", since=18, kind="raw")
def _center_crop_pad(node: Node, value: Value, shape: Value) -> Tensor:
    t, wanted = node.tensor(value), node.known_ints(shape, "shape")
    along = [axis_in(axis, t.rank) for axis in node.ints("axes", tuple(range(t.rank)))]
    low, high = [0] * t.rank, [0] * t.rank
    for axis, extent in zip(along, wanted, strict=True):
        have = t.shape[axis]
        if extent < have:
            start = (have - extent) // 2
            t = cut(t, [start], [start + extent], [axis], [1])
        else:
            low[axis] = (extent - have) // 2
            high[axis] = extent - have - low[axis]
    return ops.pad(t, low, high) if any((*low, *high)) else t


@rule("DepthToSpace")
def _depth_to_space(node: Node, t: Tensor) -> Tensor:
    b = node.integer("blocksize")
    n, c, h, w = t.shape
    if node.word("mode", ("DCR", "CRD"), "DCR") == "DCR":
        t = moved(reshaped(t, (n, b, b, c // b**2, h, w)), (0, 3, 4, 1, 5, 2))
    else:
        t = moved(reshaped(t, (n, c // b**2, b, b, h, w)), (0, 1, 4, 2, 5, 3))
    return reshaped(t, (n, c // b**2, h * b, w * b))


@rule("SpaceToDepth")
def _space_to_depth(node: Node, t: Tensor) -> Tensor:
    b = node.integer("blocksize")
    n, c, h, w = t.shape
    order = (0, 3, 5, 1, 2, 4) if node.word("mode", ("DCR", "CRD"), "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    t = moved(reshaped(t, (n, c, h // b, b, w // b, b)), order)
    return reshaped(t, (n, c * b * b, h // b, w // b))


@rule("Trilu", since=14, kind="raw")
def _trilu(node: Node, value: Value, k: Value = None) -> Tensor:
    t = node.tensor(value)
    diagonal = 0 if k is None else node.known_int(k, "k")
    rows, columns = t.shape[-2:]
    upper = bool(node.integer("upper", 1))
    kept = counting(columns, rows)[None, :] - counting(rows)[:, None]
    mask = kept >= diagonal if upper else kept <= diagonal
    return ops.where(node.constant(mask, dtypes.bool), t, node.like(0, t))


@rule("ReverseSequence", since=10, kind="raw")
def _reverse_sequence(node: Node, value: Value, lengths: Value) -> Tensor:
    """Element i of a sequence of length n is that at n - 1 - i, for i < n."""
    t, length = node.tensor(value), cast(node.tensor(lengths), dtypes.int32)
    batch, time = node.integer("batch_axis", 1), node.integer("time_axis", 0)
    t = moved(t, (batch, time, *range(2, t.rank)))
    number = node.constant(counting(t.shape[1])[None, :], dtypes.int32)
    count = reshaped(length, (length.nelms, 1))
    back = ops.sub(ops.sub(count, node.constant(1, dtypes.int32)), number)
    places = ops.where(ops.less(number, count), back, expanded(number, back.shape))
    # A length below 0 is a place out of range, as one beyond the end.
    places = ops.where(ops.less(count, node.like(0, count)), expanded(count, back.shape), places)
    return moved(rows_at(t, places, 1), (batch, time, *range(2, t.rank)))
