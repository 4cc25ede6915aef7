"""``t[...]`` with integers, slices, a mask of bools, or integer tensors or arrays of positions on axis 0."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np
from numpy.typing import NDArray

from popsr import dtypes
from popsr._program.building.append import append
from popsr._program.tensor_handle import TensorHandle
from popsr._program.variables.constants import add_constant
from popsr._support.host.arguments import read_index, require_memory
from popsr._support.text.shown import shown
from popsr.errors import ArgumentTypeError, AttributeValueError, OutOfRangeError, ShapeError
from popsr.utils import as_array

_MAX_RANK = 64  # of arrays of NumPy


def index(t: TensorHandle, key: Any) -> Any:
    """NumPy's basic indexing without Ellipsis and None, and its indexing of axis 0 by integers of any shape.

    A tensor's indices count from 0, as ``gather``'s; an array's may count from the end. A mask of bools (a
    tensor, an array or a list) keeps the shape and puts 0 where it is false, as in PopXL. In a tuple, beside integers
    and slices, a mask that is an array or a list takes the elements where it is true, as in NumPy.

    Raises:
        TypeError: something else than integers, slices, and bools.
        IndexError: an integer is out of range; one of a tensor when the program runs.
        ValueError: too many indices, or an inverted range.
    """
    if isinstance(key, TensorHandle) and key.dtype is dtypes.bool:
        return append("where", {"condition": key, "lhs": t, "rhs": _zero(t)})
    mask = _mask(key)
    if mask is not None:
        return append("where", {"condition": add_constant(mask), "lhs": t, "rhs": _zero(t)})
    if isinstance(key, (TensorHandle, list)) or (isinstance(key, np.ndarray) and key.ndim > 0):
        return append(
            "gather", {"t": t, "indices": key if isinstance(key, TensorHandle) else _positions(t, key)}
        )
    keys = key if isinstance(key, tuple) else (key,)
    masks = [_mask(each) for each in keys]
    if any(mask is not None for mask in masks):
        return _taken(t, [each if mask is None else mask for each, mask in zip(keys, masks, strict=True)])
    if len(keys) > t.rank:
        raise ShapeError(
            f"getitem: too many indices, got {len(keys)} for {shown(t)}, expected at most {t.rank}"
        )
    starts, stops, steps, axes, squeezed = [], [], [], [], []
    strides = [1] * t.rank
    for axis, each in enumerate(keys):
        start, stop, step = _bounds(t, axis, each)
        if not isinstance(each, builtins.slice):
            squeezed.append(axis)
        elif (start, stop, step) == (0, t.shape[axis], 1):
            continue
        # Before element 0: -1 would count from the end.
        before = -t.shape[axis] - 1
        starts.append(before if start < 0 else start)
        stops.append(before if stop < 0 else stop)
        steps.append(1 if step > 0 else -1)
        strides[axis] = abs(step)
        axes.append(axis)
    result = t
    if axes:
        result = append("slice", {"t": t}, start=starts, stop=stops, step=steps, axis=axes)
    if any(stride != 1 for stride in strides):
        result = append("subsample", {"t": result}, strides=strides)
    return append("squeeze", {"t": result}, axes=squeezed) if squeezed else result


def _zero(t: TensorHandle) -> Any:
    return add_constant(0.0 if t.dtype.is_floating_point else 0, t.dtype)


def _mask(key: Any) -> NDArray[np.bool_] | None:
    """The array of bools that an array or a list of bools is; None for anything else."""
    if isinstance(key, np.ndarray):
        return key if key.dtype == np.bool_ else None
    if not isinstance(key, list) or not key or not _starts_with_bool(key):
        return None
    try:
        array = as_array("getitem", key)
    except (ArgumentTypeError, ShapeError):
        return None
    return array if array.dtype == np.bool_ else None


def _starts_with_bool(key: Any) -> bool:
    for _ in range(_MAX_RANK):
        if not isinstance(key, (list, tuple)) or not key:
            break
        key = key[0]
    return isinstance(key, (bool, np.bool_)) or (isinstance(key, np.ndarray) and key.dtype == np.bool_)


def _taken(t: TensorHandle, keys: list[Any]) -> Any:
    """The elements that NumPy takes for integers, slices and masks that are known now."""
    axis = 0
    for each in keys:
        extents = each.shape if isinstance(each, np.ndarray) else (1,)
        if axis + len(extents) > t.rank:
            raise ShapeError(
                f"getitem: too many indices, got {shown(tuple(keys))} for {shown(t)}, "
                "expected at most one for each dimension"
            )
        if not isinstance(each, np.ndarray):
            _bounds(t, axis, each)
        elif extents != t.shape[axis : axis + len(extents)]:
            raise ShapeError(
                f"getitem: mask does not fit, got shape {extents} from axis {axis} on of {shown(t)}, expected "
                f"{t.shape[axis : axis + len(extents)]}"
            )
        axis += len(extents)
    require_memory("getitem", 16 * t.nelms)
    positions = np.arange(t.nelms).reshape(t.shape)[tuple(keys)]
    indices = add_constant(positions.reshape(-1), dtypes.int64)
    flat = append("gather", {"t": append("flatten", {"t": t}), "indices": indices})
    return append("reshape", {"t": flat}, shape=positions.shape)


def _bounds(t: TensorHandle, axis: int, key: Any) -> tuple[int, int, int]:
    extent = t.shape[axis]
    if isinstance(key, builtins.slice):
        try:
            start, stop, step = key.indices(extent)
        except Exception as error:  # also of a bound's own __index__
            kind = AttributeValueError if isinstance(error, ValueError) else ArgumentTypeError
            raise kind(
                f"getitem: bad slice, got {shown(key)} on axis {axis} of {shown(t)}: {error}"
            ) from None
        if (stop - start) * step < 0:
            raise AttributeValueError(
                f"getitem: range is inverted, got {shown(key)} on axis {axis} of {shown(t)}, expected start <= stop"
            )
        return start, stop, step
    position = read_index(f"getitem: index on axis {axis} of {t!r}", key, extent, -extent) % extent
    return position, position + 1, 1


def _positions(t: TensorHandle, key: Any) -> Any:
    """Positions on axis 0 that are known now, as a constant."""
    if t.rank == 0:
        raise ShapeError(f"getitem: too many indices, got 1 for {shown(t)}, expected at most 0")
    try:
        array = as_array("getitem", key)
    except (ArgumentTypeError, ShapeError):
        array = np.empty(1, object)
    if array.size == 0 and isinstance(key, list):
        array = array.astype(np.int32)
    if array.dtype.kind not in "iu":
        raise ArgumentTypeError(f"getitem: indices are not integers, got {shown(key)}, expected ints")
    extent = t.shape[0]
    require_memory("getitem", 24 * array.size)
    outside = array[(array < -extent) | (array >= extent)]
    if outside.size:
        raise OutOfRangeError(
            f"getitem: index out of range, got {outside.flat[0]} on axis 0 of {shown(t)}, "
            f"expected {-extent} <= index < {extent}"
        )
    return add_constant(np.where(array < 0, array + extent, array), dtypes.int64)
