"""Reshapes and broadcasts that leave out what changes nothing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from popsr import ops
from popsr._program.tensor import Tensor
from popsr.bridge.onnx._node import Value, Weight
from popsr.bridge.onnx._rules import NotSupportedError, axis_in
from popsr.bridge.onnx._types import Array

__all__ = ["check_known", "counting", "expanded", "moved", "numbered", "reshaped", "shape_of"]


_MAX_KNOWN = 1 << 24
"""Elements of the greatest array that is made when a model is read."""


_MAX_PARTS = 1 << 16


def check_known(count: int) -> None:
    """Refuse an array of so many elements before it is made."""
    if count > _MAX_KNOWN:
        raise NotSupportedError(f"{count} elements that are known when the model is read")


def counting(extent: int, columns: int = 1) -> Array:
    """The numbers from 0 to an extent; so many that an array of them and ``columns`` can be made."""
    check_known(extent * columns)
    return np.arange(extent)


def numbered(count: int, what: str) -> range:
    """The numbers from 0 to a count of parts or passes, each of which becomes ops."""
    if count > _MAX_PARTS:
        raise NotSupportedError(f"{count} {what}, more than {_MAX_PARTS}")
    return range(count)


def reshaped(t: Tensor, shape: tuple[int, ...]) -> Tensor:
    """``reshape`` where it changes something."""
    return t if t.shape == shape else ops.reshape(t, shape)


def moved(t: Tensor, permutation: Sequence[int]) -> Tensor:
    """``transpose`` where it changes something."""
    order = tuple(axis_in(axis, t.rank) for axis in permutation)
    return t if order == tuple(range(t.rank)) else ops.transpose(t, order)


def expanded(t: Tensor, shape: tuple[int, ...]) -> Tensor:
    """``expand`` where it changes something."""
    return t if t.shape == shape else ops.expand(t, shape)


def shape_of(value: Value) -> tuple[int, ...]:
    """Extents of a tensor, a known array or a weight."""
    if isinstance(value, Weight):
        return value.array.shape
    if not hasattr(value, "shape"):
        raise NotSupportedError("of a sequence" if isinstance(value, tuple) else "without an operand")
    return tuple(value.shape)
