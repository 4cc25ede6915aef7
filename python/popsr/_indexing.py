"""``t[...]`` with integers, slices, a mask of bools, or integer tensors or arrays of positions on axis 0."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from popsr import dtypes, ops
from popsr._args import read_index, require_memory
from popsr._shown import shown
from popsr.errors import ArgumentTypeError, AttributeValueError, OutOfRangeError, ShapeError
from popsr.tensor import Tensor, constant
from popsr.utils import as_array


def index(t: Tensor, key: Any) -> Tensor:
    """NumPy's basic indexing without Ellipsis and None, and its indexing of axis 0 by integers of any shape.

    A tensor's indices count from 0, as those of ``gather``; an array's may count from the end. A mask of bools
    keeps the shape and puts 0 where it is false.

    Raises:
        TypeError: something else than integers, slices, and bools.
        IndexError: an integer is out of range; one of a tensor when the program runs.
        ValueError: too many indices, or an inverted range.
    """
    if isinstance(key, (Tensor, np.ndarray)) and key.dtype in (dtypes.bool, np.bool_):
        mask = key if isinstance(key, Tensor) else constant(key)
        return ops.where(mask, t, constant(0, t.dtype))
    if isinstance(key, (Tensor, list)) or (isinstance(key, np.ndarray) and key.ndim > 0):
        return ops.gather(t, key if isinstance(key, Tensor) else _positions(t, key))
    keys = key if isinstance(key, tuple) else (key,)
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
        starts.append(start)
        # Going down to element 0 means stopping before it: -1 would count from the end.
        stops.append(-t.shape[axis] - 1 if step < 0 and stop < 0 else stop)
        steps.append(1 if step > 0 else -1)
        strides[axis] = abs(step)
        axes.append(axis)
    result = ops.slice(t, starts, stops, steps, axes) if axes else t
    if any(stride != 1 for stride in strides):
        result = ops.subsample(result, strides)
    return ops.squeeze(result, squeezed) if squeezed else result


def _bounds(t: Tensor, axis: int, key: Any) -> tuple[int, int, int]:
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
                f"getitem: range is inverted, got {shown(key)} on axis {axis} of {shown(t)}"
            )
        return start, stop, step
    position = read_index(f"getitem: index on axis {axis} of {t!r}", key, extent, -extent) % extent
    return position, position + 1, 1


def _positions(t: Tensor, key: Any) -> Tensor:
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
    return constant(np.where(array < 0, array + extent, array), dtypes.int64)
