"""``t[...]`` with integers and slices, or with a mask of bools."""

from __future__ import annotations

import builtins
import operator
from typing import Any

import numpy as np

from popsr import dtypes, ops
from popsr.errors import ArgumentTypeError, AttributeValueError, OutOfRangeError, ShapeError
from popsr.tensor import Tensor, constant


def index(t: Tensor, key: Any) -> Tensor:
    """NumPy's basic indexing without Ellipsis and None; a mask keeps the shape and puts 0 where it is false.

    Raises:
        TypeError: something else than integers, slices, and a bool tensor or array.
        IndexError: an integer is out of range.
        ValueError: too many indices, an inverted range, or a step other than 1 and -1.
    """
    if isinstance(key, (Tensor, np.ndarray)) and key.dtype in (dtypes.bool, np.bool_):
        mask = key if isinstance(key, Tensor) else constant(key)
        return ops.where(mask, t, constant(0, t.dtype))
    keys = key if isinstance(key, tuple) else (key,)
    if len(keys) > t.rank:
        raise ShapeError(f"getitem: too many indices, got {len(keys)} for {t!r}, expected at most {t.rank}")
    starts, stops, steps, axes, squeezed = [], [], [], [], []
    for axis, each in enumerate(keys):
        start, stop, step = _bounds(t, axis, each)
        if not isinstance(each, builtins.slice):
            squeezed.append(axis)
        elif (start, stop, step) == (0, t.shape[axis], 1):
            continue
        starts.append(start)
        # Going down to element 0 means stopping before it: -1 would count from the end.
        stops.append(-t.shape[axis] - 1 if step < 0 and stop < 0 else stop)
        steps.append(step)
        axes.append(axis)
    result = ops.slice(t, starts, stops, steps, axes) if axes else t
    return ops.squeeze(result, squeezed) if squeezed else result


def _bounds(t: Tensor, axis: int, key: Any) -> tuple[int, int, int]:
    extent = t.shape[axis]
    if isinstance(key, builtins.slice):
        try:
            start, stop, step = key.indices(extent)
        except (TypeError, ValueError) as error:
            kind = ArgumentTypeError if isinstance(error, TypeError) else AttributeValueError
            raise kind(f"getitem: bad slice, got {key} on axis {axis} of {t!r}: {error}") from None
        if step not in (1, -1):
            raise AttributeValueError(f"getitem: step is not supported yet, got {step}, expected 1 or -1")
        if (stop - start) * step < 0:
            raise AttributeValueError(f"getitem: range is inverted, got {key} on axis {axis} of {t!r}")
        return start, stop, step
    try:
        position = None if isinstance(key, bool) else operator.index(key)
    except TypeError:
        position = None
    if position is None:
        raise ArgumentTypeError(
            f"getitem: index is not supported, got {type(key).__name__} {key!r}, expected ints and slices"
        )
    if not -extent <= position < extent:
        raise OutOfRangeError(
            f"getitem: index out of range, got {position} on axis {axis} of {t!r}, "
            f"expected {-extent} <= index < {extent}"
        )
    position %= extent
    return position, position + 1, 1
