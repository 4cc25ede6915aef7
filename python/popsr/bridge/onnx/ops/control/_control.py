"""Branches and loops."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from popsr import ops
from popsr._program.tensor import Tensor
from popsr.bridge.onnx._node import Node, Sequenced, Value
from popsr.bridge.onnx._rules import BehindGapError, NotSupportedError, ValueNeededError, axis_in, rule
from popsr.bridge.onnx._tensors import expanded, numbered, reshaped
from popsr.bridge.onnx._types import array_of
from popsr.bridge.onnx.ops.control._graphs import closed, free_values
from popsr.bridge.onnx.ops.control._loops import Index, repeated, row_at, stacked, with_row
from popsr.bridge.onnx.ops.control._while import depends_on_data, while_loop
from popsr.bridge.onnx.ops.shape._shape import cut
from popsr.errors import AttributeValueError, DTypeError, ShapeError

__all__: list[str] = []

_MAX_UNROLLED = 256
"""Passes of a loop whose body is not the same graph in each."""


# Branches


@rule("If", kind="raw")
def _if(node: Node, condition: Value) -> list[Value]:
    """The branch of a known condition, else both in a conditional."""
    then, other = node.graph("then_branch"), node.graph("else_branch")
    if isinstance(condition, np.ndarray):
        return node.reader.subgraph(then if condition.any() else other, node.scope, [])
    if any(
        each.type.WhichOneof("value") not in ("tensor_type", None) for each in (*then.output, *other.output)
    ):
        node.known(condition, "condition")
    which = reshaped(node.tensor(condition), ())
    graphs, inputs = [], []
    try:
        for name, branch in (("then", then), ("else", other)):
            with contextlib.suppress(BehindGapError):
                graph, given = closed(node, name, branch, [])
                graphs.append(graph)
                inputs.append(given)
        if len(graphs) < 2:
            raise BehindGapError
        return list(ops.conditional(which, graphs[0], graphs[1], inputs[0], inputs[1]))
    except (AttributeValueError, DTypeError, ShapeError) as error:
        try:
            node.known(condition, "condition, of branches with different results,")
        except ValueNeededError as needed:
            if needed.inputs or isinstance(error, (DTypeError, ShapeError)):
                raise
        raise


# Loops


@rule("Loop", kind="raw")
def _loop(node: Node, count: Value, condition: Value, *carried: Value) -> list[Value]:
    """Passes whose number is known when the model is read are counted or unrolled; others are a ``while_loop``."""
    body = node.graph("body")
    if depends_on_data(body, node.scope, count, condition, carried):
        return while_loop(node, body, count, condition, carried)
    times = None if count is None else max(node.known_int(count, "trip count"), 0)
    if condition is not None and not node.known(condition, "condition").any():
        times = 0
    if times is not None and _always_goes_on(body):
        return _counted_loop(node, body, times, carried)
    return _unrolled(node, body, times, carried)


def _always_goes_on(body: Any) -> bool:
    """True if the condition of the next pass is that of this one, or a constant."""
    name = body.output[0].name
    made = {out: each for each in body.node for out in each.output}
    while name in made and made[name].op_type in ("Identity", "Cast"):
        name = made.pop(name).input[0]  # once: a damaged graph may have a cycle
    if name in made and made[name].op_type == "Constant":
        return any(each.name == "value" and array_of(each.t).all() for each in made[name].attribute)
    return bool(name == body.input[1].name)


def _counted_loop(node: Node, body: Any, times: int, carried: Sequence[Value]) -> list[Value]:
    """One graph that repeats, where a few passes do not do: what is carried keeps its shape."""
    rows = len(body.output) - 1 - len(carried)
    if times <= 2 or rows or any(isinstance(value, (Sequenced, type(None))) for value in carried):
        return _unrolled(node, body, times, carried)
    outer = free_values(body, node.scope)

    def step(index: Index, state: list[Tensor], rest: list[Any]) -> list[Tensor]:
        scope = dict(zip(outer, rest, strict=True))
        found = node.reader.subgraph(body, scope, [index, np.asarray(True), *state], varies=True)[1:]
        return [node.tensor(value) for value in found]

    return list(repeated(node, times, [node.tensor(value) for value in carried], list(outer.values()), step))


def _unrolled(node: Node, body: Any, times: int | None, carried: Sequence[Value]) -> list[Value]:
    """Each pass read in place."""
    state, goes_on, number = list(carried), True, 0
    rows: list[list[Value]] = [[] for _ in range(len(body.output) - 1 - len(carried))]
    while goes_on and (times is None or number < times):
        if number >= _MAX_UNROLLED:
            raise NotSupportedError(f"more than {_MAX_UNROLLED} passes")
        inputs = [np.asarray(number, np.int64), np.asarray(True), *state]
        found = node.reader.subgraph(body, node.scope, inputs, varies=True)
        goes_on = bool(node.known(found[0], "condition").any())
        state = found[1 : 1 + len(carried)]
        for row, value in zip(rows, found[1 + len(carried) :], strict=True):
            row.append(value)
        number += 1
    if any(not row for row in rows):
        raise NotSupportedError("results of no pass")
    return [*state, *(stacked(node, row, 0) for row in rows)]


@rule("Scan", since=9, kind="raw")
def _scan(node: Node, *operands: Value) -> list[Value]:
    """A loop over rows of operands, of a known number."""
    body, count = node.graph("body"), node.integer("num_scan_inputs")
    carried, scanned = (
        operands[: len(operands) - count],
        [node.tensor(t) for t in operands[len(operands) - count :]],
    )
    outputs = len(body.output) - len(carried)
    axes = node.ints("scan_input_axes", (0,) * count)
    back = node.ints("scan_input_directions", node.ints("directions", (0,) * count))
    out_axes = node.ints("scan_output_axes", (0,) * outputs)
    out_back = node.ints("scan_output_directions", (0,) * outputs)
    lengths = {t.shape[axis_in(axis, t.rank)] for t, axis in zip(scanned, axes, strict=True)}
    if len(lengths) != 1:
        raise ValueError(f"operands of {sorted(lengths)} rows, expected as many of each")
    length = lengths.pop()
    if length == 0:
        raise NotSupportedError("of no rows")
    outer = free_values(body, node.scope)

    def rows_of(index: Index, tensors: Sequence[Tensor]) -> list[Tensor]:
        return [
            row_at(node, t, index, bool(reverse), axis_in(axis, t.rank))
            for t, axis, reverse in zip(tensors, axes, back, strict=True)
        ]

    def passed(
        index: Index, state: Sequence[Value], scope: Mapping[str, Value], tensors: Sequence[Tensor]
    ) -> list[Tensor]:
        found = node.reader.subgraph(body, scope, [*state, *rows_of(index, tensors)])
        return [node.tensor(value) for value in found]

    # The first pass, in place, shows the shapes of what is stacked; the others repeat.
    first = passed(np.asarray(0, np.int64), carried, node.scope, scanned)
    state, rows = first[: len(carried)], first[len(carried) :]
    wide = []
    for row, axis, reverse in zip(rows, out_axes, out_back, strict=True):
        along = axis_in(axis, row.rank + 1)
        empty = expanded(node.like(0, row), (*row.shape[:along], length, *row.shape[along:]))
        wide.append(with_row(node, empty, np.asarray(0, np.int64), row, bool(reverse), along))

    def step(index: Index, inner: list[Tensor], rest: list[Any]) -> list[Tensor]:
        number = ops.add(index, node.like(1, index)) if isinstance(index, Tensor) else np.asarray(index + 1)
        scope = dict(zip(outer, rest[len(scanned) :], strict=True))
        found = passed(number, inner[: len(carried)], scope, rest[: len(scanned)])
        tables = [
            with_row(node, table, number, row, bool(reverse), axis_in(axis, row.rank + 1))
            for table, row, axis, reverse in zip(
                inner[len(carried) :], found[len(carried) :], out_axes, out_back, strict=True
            )
        ]
        return [*found[: len(carried)], *tables]

    return list(repeated(node, length - 1, [*state, *wide], [*scanned, *outer.values()], step))


@rule("Scan", since=8, kind="raw")
def _scan_8(node: Node, lengths: Value, *operands: Value) -> list[Value]:
    """Of opset 8: each sample of the batch alone."""
    if lengths is not None:
        raise NotSupportedError("of sequences of different lengths")
    tensors = [node.tensor(value) for value in operands]
    samples = []
    for number in numbered(tensors[0].shape[0], "samples"):
        parts = [reshaped(cut(t, [number], [number + 1], [0], [1]), t.shape[1:]) for t in tensors]
        samples.append(_scan(node, *parts))
    return [stacked(node, each, 0) for each in zip(*samples, strict=True)]
