"""Loops of a known number of passes: one graph that repeats, or the passes one after another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from popsr import dtypes, ops
from popsr._program.tensor import Tensor
from popsr.bridge.onnx._node import Node, Value
from popsr.bridge.onnx._rules import NotSupportedError
from popsr.bridge.onnx._tensors import numbered, reshaped

__all__ = ["Index", "repeated", "row_at", "stacked", "with_row"]

Index = Any
"""Number of a pass: a tensor of int64 in a graph that repeats, else a known array."""

Step = Callable[[Index, list[Tensor], list[Any]], Sequence[Tensor]]


def repeated(
    node: Node, times: int, carried: Sequence[Tensor], outer: Sequence[Any], step: Step
) -> list[Tensor]:
    """The values that are carried, after all passes.

    Args:
        node: the node that loops.
        times: number of passes.
        carried: values before the first pass, which keep their shapes and types.
        outer: values that passes read and do not change.
        step: makes the values after a pass, of its number, those before it, and ``outer``.
    """
    state = list(carried)
    most = node.reader.unroll
    if most is None or times <= max(most, 2):
        for number in numbered(times, "passes"):
            state = list(step(np.asarray(number, np.int64), state, list(outer)))
        return state
    count = ops.identity(node.constant(0, dtypes.int64))
    # An operand that occurs twice would be one input, but each is carried alone; and constants are not carried.
    start = [ops.identity(t) for t in state]

    def body(inner: list[Any]) -> Sequence[Tensor]:
        own, rest = inner[1 : 1 + len(start)], inner[1 + len(start) :]
        new = [node.tensor(value) for value in step(inner[0], own, rest)]
        for before, after in zip(start, new, strict=True):
            if (before.shape, before.dtype) != (after.shape, after.dtype):
                raise NotSupportedError("a value that changes its shape from pass to pass")
        return [ops.add(inner[0], node.constant(1, dtypes.int64)), *new]

    graph, inputs = node.reader.make_graph("loop", [count, *start, *outer], body)
    return list(ops.repeat(graph, times, *inputs))[1 : 1 + len(start)]


def _place(node: Node, index: Index, length: int, reverse: bool) -> Any:
    if isinstance(index, np.ndarray):
        return length - 1 - int(index) if reverse else int(index)
    at = ops.sub(node.like(length - 1, index), index) if reverse else index
    return reshaped(ops.cast(at, dtypes.int32), (1,))


def row_at(node: Node, t: Tensor, index: Index, reverse: bool = False, axis: int = 0) -> Tensor:
    """A row along an axis, without the axis; counted from the end with ``reverse``."""
    place = _place(node, index, t.shape[axis], reverse)
    shape = (*t.shape[:axis], *t.shape[axis + 1 :])
    if isinstance(place, int):
        return reshaped(ops.slice(t, place, place + 1, 1, axis), shape)
    return reshaped(ops.dynamic_slice(t, place, [axis], [1], True), shape)


def with_row(
    node: Node, t: Tensor, index: Index, row: Tensor, reverse: bool = False, axis: int = 0
) -> Tensor:
    """A tensor with another row along an axis."""
    place = _place(node, index, t.shape[axis], reverse)
    if isinstance(place, int):
        place = node.constant([place], dtypes.int32)
    wide = reshaped(row, (*t.shape[:axis], 1, *t.shape[axis + 1 :]))
    return ops.dynamic_update(t, place, wide, [axis], [1], True)


def stacked(node: Node, values: Sequence[Value], axis: int) -> Tensor:
    """Values on a new axis."""
    tensors = [node.tensor(value) for value in values]
    axis %= tensors[0].rank + 1
    rows = [reshaped(t, (*t.shape[:axis], 1, *t.shape[axis:])) for t in tensors]
    return rows[0] if len(rows) == 1 else ops.concat(rows, axis)
