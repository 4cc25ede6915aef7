"""Ops that move elements: functions of arrays of any kind; of exact numbers their positions are moved."""

from __future__ import annotations

import numpy as np

from popsr._support.fields import Array, Numbers
from popsr.ops._exact.registry import Exact, Value, exact

__all__ = ["Pool", "moved"]


@exact(
    "identity", "detach", "detach_", "io_tile_copy", "ipu_copy", "replicated_identical_grad", "print_tensor"
)
def same_value(_: Exact, t: Value) -> Value:
    return t


@exact("reshape", "reshape_", "flatten", "flatten_", "squeeze")
def reshape(op: Exact, t: Value) -> Value:
    return t.reshape(op.shape)


@exact("transpose", "transpose_")
def transpose(op: Exact, t: Value) -> Value:
    given = op["permutation"]
    return t.transpose([a % t.ndim for a in given] if given is not None else list(range(t.ndim))[::-1])


@exact("expand", "broadcast_to")
def expand(op: Exact, t: Value) -> Value:
    return t.broadcast_to(op.shape) if isinstance(t, Numbers) else np.broadcast_to(t, op.shape)


class Pool:
    """Numbers whose positions an op moves in their place; position 0 is the number 0."""

    def __init__(self, op: Exact) -> None:
        """Zero alone."""
        self._parts = [op.number(0).reshape((1,))]
        self._size = 1

    def add(self, value: Value) -> Array:
        """The positions of numbers that are added, as floats, which all ops of numbers take; an array as it is."""
        if not isinstance(value, Numbers):
            return value
        positions = np.arange(self._size, self._size + value.size, dtype=np.float64).reshape(value.shape)
        self._parts.append(value.reshape((value.size,)))
        self._size += value.size
        return positions

    def at(self, positions: Array) -> Numbers:
        """The numbers at positions."""
        return Numbers.concat(self._parts).at(positions.astype(np.int64))


def moved(op: Exact, *operands: Value | None) -> Value:
    """The result of an op that only moves elements: it moves their positions. Zeros between come from 0."""
    pool = Pool(op)
    (positions,) = op.run(*(None if value is None else pool.add(value) for value in operands))
    return pool.at(positions)


exact(
    "slice",
    "slice_",
    "slice_grad",
    "concat",
    "concat_",
    "subsample",
    "subsample_grad",
    "dynamic_slice",
    "dynamic_slice_grad",
    "dynamic_update",
    "dynamic_update_",
    "dynamic_clear",
    "gather",
    "groupedgather",
    "tied_gather",
    "gather_elements",
    "scatter",
    "scatter_clear",
    "take_along",
    "topk_grad",
    "pad",
    "pad_grad",
)(moved)
