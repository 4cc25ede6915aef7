"""Values that are known when a model is read: constants, shapes, and what follows from them.

Axes, extents, masks and trip counts become constants here. Only what NumPy computes exactly as popsr's ops do is
folded, so that a folded model has the bits of one that computes them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from popsr import dtypes
from popsr._support.text.shown import shown
from popsr.bridge.onnx._node import Node
from popsr.bridge.onnx._rules import axis_in
from popsr.bridge.onnx._types import Array, numpy_type

__all__ = [
    "FOLDS",
    "MAX_FOLDED",
    "NotFoldedError",
    "axes_operand",
    "border_of",
    "reshaped_extents",
    "shape_slice",
    "slices_of",
    "split_lengths",
    "squeezed_axes",
    "tiles_of",
]

MAX_FOLDED = 1 << 18
"""Elements of the greatest result that is folded."""
_SHORT_FLOATS = (dtypes.float16.as_numpy(), dtypes.bfloat16.as_numpy())


class NotFoldedError(Exception):
    """A value is left to ops."""


def _checked(count: int) -> None:
    if count > MAX_FOLDED:
        raise NotFoldedError


def _exact(function: Callable[..., Any], kinds: str = "iubf") -> Callable[..., Array]:
    """Element-wise, of one type: NumPy's arithmetic is exact or rounded once, as popsr's."""

    def fold(node: Node, *values: Array) -> Array:
        if any(value.dtype.kind not in kinds or value.dtype == np.float16 for value in values):
            raise NotFoldedError
        if node.has("broadcast"):  # before opset 7, beside an axis
            raise NotFoldedError
        _checked(math.prod(np.broadcast_shapes(*(value.shape for value in values))))
        with np.errstate(all="ignore"):
            return np.asarray(function(*values))

    return fold


def _quotient(a: Array, b: Array) -> Array:
    """Of integers towards zero."""
    if a.dtype.kind == "f":
        return np.asarray(a / b)
    if not b.all():
        raise NotFoldedError
    quotient = a // b
    return np.asarray(quotient + ((a % b != 0) & ((a < 0) != (b < 0))).astype(a.dtype))


def _mod(node: Node, a: Array, b: Array) -> Array:
    if not b.all() or a.dtype.kind not in "iu":
        raise NotFoldedError
    return np.asarray(np.fmod(a, b) if node.integer("fmod", 0) else np.mod(a, b))


def _cast(node: Node, value: Array) -> Array:
    to = numpy_type(node.type_code("to"))
    whole = value.dtype.kind in "iub"
    if value.dtype == to:
        return value
    if to.kind == "b" and value.dtype.kind in "iuf":
        return np.asarray(value != 0)
    if whole and to.kind in "iu":
        return value.astype(to)
    if whole and to.kind == "f" and to.itemsize > 2:
        return value.astype(to)
    if value.dtype.kind == "f" and to.kind in "iu" and (abs(value) < 2**31).all() and to.itemsize == 8:
        return value.astype(to)
    if value.dtype == np.float32 and to in _SHORT_FLOATS:
        short = value.astype(to)
        if np.array_equal(short.astype(np.float32), value):  # none is rounded
            return short
    if (value.dtype, to) == (np.dtype(np.float32), np.dtype(np.float64)):
        return value.astype(to)
    raise NotFoldedError


def _constant(node: Node) -> Array:
    if node.has("value"):
        return node.array("value")
    for name, kind in (("value_int", np.int64), ("value_float", np.float32)):
        if node.has(name):
            one = node.integer(name) if kind is np.int64 else node.number(name)
            return np.asarray(one, kind)
    if node.has("value_ints"):
        return np.asarray(node.ints("value_ints"), np.int64)
    if node.has("value_floats"):
        return np.asarray(node.floats("value_floats"), np.float32)
    raise NotFoldedError


def _constant_of_shape(node: Node, shape: Array) -> Array:
    extents = tuple(int(n) for n in shape)
    _checked(math.prod(extents))
    value = node.array("value", np.zeros(1, np.float32))
    return np.full(extents, value.reshape(-1)[0], value.dtype)


def _range(_node: Node, start: Array, limit: Array, delta: Array) -> Array:
    """Element i is start + i * delta, of whole numbers."""
    if start.dtype.kind not in "iu" or not int(delta.reshape(-1)[0]):
        raise NotFoldedError
    first, end, step = (int(each.reshape(-1)[0]) for each in (start, limit, delta))
    _checked(max(0, -(-(end - first) // step)))
    return np.arange(first, end, step, dtype=start.dtype)


def _gather(node: Node, data: Array, indices: Array) -> Array:
    axis = node.integer("axis", 0)
    _checked(indices.size * max(1, data.size // max(1, data.shape[axis])))
    if not (-data.shape[axis] <= indices).all() or not (indices < data.shape[axis]).all():
        raise IndexError("an index out of range")
    return np.take(data, indices, axis)


def slices_of(
    shape: Sequence[int],
    starts: Sequence[int],
    ends: Sequence[int],
    axes: Sequence[int],
    steps: Sequence[int],
) -> list[slice]:
    """A slice for each dimension; backwards from before the first element is from that element, unlike in Python."""
    found = [slice(None)] * len(shape)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        if not -len(shape) <= axis < len(shape) or step == 0:
            raise IndexError(f"axis {axis} or step {step} out of range")
        extent = shape[axis]
        first, last = (bound + extent if bound < 0 else bound for bound in (start, end))
        low, high = (0, extent) if step > 0 else (-1, extent - 1)
        first, last = min(max(first, 0), high), min(max(last, low), high)
        found[axis] = slice(max(first, 0), None if last < 0 else last, step)
    return found


def _slice(node: Node, data: Array, *operands: Array | None) -> Array:
    if node.opset < 10:
        begins, ends = node.ints("starts"), node.ints("ends")
        return _cut(
            data, begins, ends, node.ints("axes", ()) or tuple(range(len(begins))), (1,) * len(begins)
        )
    given = [None if each is None else tuple(int(n) for n in each) for each in (*operands, None, None)[:4]]
    starts, stops, axes, steps = given
    if starts is None or stops is None:
        raise ValueError("no bounds")
    along = tuple(range(len(starts))) if axes is None else axes
    return _cut(data, starts, stops, along, (1,) * len(starts) if steps is None else steps)


def _cut(
    data: Array, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int], steps: Sequence[int]
) -> Array:
    return np.asarray(data[tuple(slices_of(data.shape, starts, ends, axes, steps))])


def _concat(node: Node, *parts: Array) -> Array:
    _checked(sum(part.size for part in parts))
    return np.concatenate(parts, node.integer("axis", 1 if node.opset < 4 else None))


def axes_operand(node: Node, axes: Array | None) -> tuple[int, ...] | None:
    """Axes of an attribute, before opset 13, or of an operand."""
    if axes is not None:
        return tuple(int(axis) for axis in axes.reshape(-1))
    return node.ints("axes") if node.has("axes") else None


def squeezed_axes(node: Node, axes: Array | None) -> tuple[int, ...] | None:
    """Axes of Squeeze; None is all of extent 1: onnxruntime and ONNX's reference read an empty attribute so."""
    return axes_operand(node, axes) or (None if axes is None else ())


def _squeeze(node: Node, data: Array, axes: Array | None = None) -> Array:
    return np.squeeze(data, squeezed_axes(node, axes))


def _unsqueeze(node: Node, data: Array, axes: Array | None = None) -> Array:
    return np.expand_dims(data, axes_operand(node, axes) or ())


def reshaped_extents(shape: Sequence[int], wanted: Sequence[int], allow_zero: bool) -> tuple[int, ...]:
    """Extents of Reshape: 0 keeps one, -1 takes the rest."""
    extents = [shape[i] if n == 0 and not allow_zero else n for i, n in enumerate(wanted)]
    count = math.prod(shape)
    if extents.count(-1) == 1:
        rest = math.prod(n for n in extents if n != -1)
        if (rest == 0 and count) or (rest and count % rest):
            raise ValueError(f"{list(shape)} reshaped to {list(wanted)}")
        extents[extents.index(-1)] = count // rest if rest else 0
    if any(n < 0 for n in extents) or math.prod(extents) != count:
        raise ValueError(f"{list(shape)} reshaped to {list(wanted)}")
    return tuple(extents)


def _reshape(node: Node, data: Array, shape: Array | None = None) -> Array:
    wanted = node.ints("shape") if shape is None else [int(n) for n in shape]
    return data.reshape(reshaped_extents(data.shape, wanted, bool(node.integer("allowzero", 0))))


def _expand(_node: Node, data: Array, shape: Array) -> Array:
    extents = np.broadcast_shapes(data.shape, tuple(int(n) for n in shape))
    _checked(math.prod(extents))
    return np.broadcast_to(data, extents)


def tiles_of(node: Node, rank: int, repeats: Array, axis: Array | None) -> list[int]:
    """Copies along each axis; before opset 6 along one that is an operand."""
    if axis is None or node.opset >= 6:
        return [int(n) for n in repeats.reshape(-1)]
    along = axis_in(int(axis.reshape(-1)[0]), rank)
    return [int(repeats.reshape(-1)[0]) if i == along else 1 for i in range(rank)]


def _tile(node: Node, data: Array, repeats: Array, axis: Array | None = None) -> Array:
    times = tiles_of(node, data.ndim, repeats, axis)
    _checked(data.size * math.prod(times))
    return np.tile(data, times)


def _reduced(function: Callable[..., Any]) -> Callable[..., Array]:
    def fold(node: Node, data: Array, axes: Array | None = None) -> Array:
        if data.dtype.kind not in "iu":
            raise NotFoldedError
        where = axes_operand(node, axes)
        if not where and node.integer("noop_with_empty_axes", 0):
            return data
        keep = bool(node.integer("keepdims", 1))
        return np.asarray(function(data, axis=where or None, keepdims=keep)).astype(data.dtype)

    return fold


def _shape(node: Node, data: Array) -> Array:
    return np.asarray(shape_slice(node, data.shape), np.int64)


def shape_slice(node: Node, shape: Sequence[int]) -> tuple[int, ...]:
    """Extents of a value from ``start`` to ``end``."""
    end = node.integer("end") if node.has("end") else None
    return tuple(shape)[node.integer("start", 0) : end]


def _where(_node: Node, which: Array, a: Array, b: Array) -> Array:
    _checked(math.prod(np.broadcast_shapes(which.shape, a.shape, b.shape)))
    return np.where(which, a, b)


def split_lengths(node: Node, extent: int, sizes: Array | None) -> list[int]:
    """Extents of the parts: given, or equal ones; from opset 18 on the last may be shorter."""
    parts = len(node.proto.output)
    if node.integer("num_outputs", parts) != parts:
        raise ValueError(f"num_outputs {node.integer('num_outputs')} of {parts} outputs")
    each = -(-extent // parts)
    given = node.ints("split", ()) if sizes is None else [int(n) for n in sizes.reshape(-1)]
    if not given and extent % parts and node.opset < 18:
        raise ValueError(f"{extent} elements split in {parts} equal parts")
    lengths = list(given) or [max(0, min(each, extent - each * i)) for i in range(parts)]
    if sum(lengths) != extent or len(lengths) != parts:
        raise ValueError(f"{extent} elements split in {shown(lengths)} for {parts} outputs")
    return lengths


def _split(node: Node, data: Array, sizes: Array | None = None) -> list[Array]:
    axis = node.integer("axis", 0)
    return np.split(data, np.cumsum(split_lengths(node, data.shape[axis], sizes))[:-1], axis)


def _transpose(node: Node, data: Array) -> Array:
    return data.transpose(node.ints("perm", ()) or tuple(range(data.ndim))[::-1])


def border_of(node: Node, rank: int) -> int:
    """First axis of the columns of Flatten; all axes are rows where it is the rank."""
    axis = node.integer("axis", 1)
    return axis if axis == rank else axis_in(axis, rank)


def _flatten(node: Node, data: Array) -> Array:
    axis = border_of(node, data.ndim)
    return (
        data.reshape(math.prod(data.shape[:axis]), -1)
        if data.size
        else data.reshape(math.prod(data.shape[:axis]), math.prod(data.shape[axis:]))
    )


FOLDS: dict[str, Callable[..., Any]] = {
    "Abs": _exact(np.abs, "i"),
    "Add": _exact(np.add, "iuf"),
    "And": _exact(np.logical_and, "b"),
    "Cast": _cast,
    "Ceil": _exact(np.ceil, "f"),
    "Concat": _concat,
    "Constant": _constant,
    "ConstantOfShape": _constant_of_shape,
    "Div": _exact(_quotient, "iuf"),
    "Equal": _exact(np.equal),
    "Expand": _expand,
    "Flatten": _flatten,
    "Floor": _exact(np.floor, "f"),
    "Gather": _gather,
    "Greater": _exact(np.greater),
    "GreaterOrEqual": _exact(np.greater_equal),
    "Identity": lambda _, value: value,
    "Less": _exact(np.less),
    "LessOrEqual": _exact(np.less_equal),
    "Max": _exact(
        lambda *values: np.maximum.reduce(values) if len(values) < 2 else _pairs(np.maximum, values), "iu"
    ),
    "Min": _exact(
        lambda *values: np.minimum.reduce(values) if len(values) < 2 else _pairs(np.minimum, values), "iu"
    ),
    "Mod": _mod,
    "Mul": _exact(np.multiply, "iuf"),
    "Neg": _exact(np.negative, "i"),
    "Not": _exact(np.logical_not, "b"),
    "Or": _exact(np.logical_or, "b"),
    "Range": _range,
    "ReduceMax": _reduced(np.max),
    "ReduceMin": _reduced(np.min),
    "ReduceProd": _reduced(np.prod),
    "ReduceSum": _reduced(np.sum),
    "Relu": _exact(lambda a: np.maximum(a, a.dtype.type(0)), "if"),
    "Reshape": _reshape,
    "Shape": _shape,
    "Size": lambda _, value: np.asarray(value.size, np.int64),
    "Slice": _slice,
    "Split": _split,
    "Sqrt": _exact(np.sqrt, "f"),
    "Squeeze": _squeeze,
    "Sub": _exact(np.subtract, "iuf"),
    "Tile": _tile,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
    "Where": _where,
    "Xor": _exact(np.logical_xor, "b"),
}
"""By op type; ``NotFoldedError`` where it is not exact or too large."""


def _pairs(function: Callable[[Any, Any], Any], values: Sequence[Array]) -> Array:
    found = values[0]
    for value in values[1:]:
        found = function(found, value)
    return found
