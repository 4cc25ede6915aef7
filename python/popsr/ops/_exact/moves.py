"""Ops that move elements: functions of arrays of any kind; of exact numbers their positions are moved."""

from __future__ import annotations

from typing import Any

import numpy as np

from popsr._fields import Numbers
from popsr.ops._exact.registry import Exact, Value, exact

__all__ = ["moved"]


@exact("identity", "detach", "detach_", "io_tile_copy", "ipu_copy", "replicated_identical_grad", "print_tensor")
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


def moved(op: Exact, *operands: Value, **attributes: Any) -> Value:
    """The result of an op that only moves elements of its first result's kind: it moves their positions.

    Zeros that the op puts between come from position 0.
    """
    given: list[Any] = []
    parts = [op.number(0).reshape((1,))]
    for value, of in zip(operands, op.inputs, strict=True):
        if isinstance(value, Numbers):
            at = sum(part.size for part in parts)
            given.append(np.arange(at, at + value.size, dtype=np.int64).reshape(value.shape))
            parts.append(value.reshape((value.size,)))
        else:
            given.append(value)
    (positions,) = op.run(*given, **attributes)
    return Numbers.concat(parts).at(positions)


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
    "pad",
)(moved)
