"""Loops whose number of passes depends on data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from popsr import dtypes, ops
from popsr._program.tensor import Tensor
from popsr.bridge.onnx._node import Node, Value
from popsr.bridge.onnx._places import graphs_of
from popsr.bridge.onnx._rules import NotSupportedError
from popsr.bridge.onnx._tensors import reshaped
from popsr.bridge.onnx.ops.control._graphs import free_names, free_values

__all__ = ["MAX_PASSES", "depends_on_data", "while_loop"]

MAX_PASSES = 1 << 24
"""Passes of a loop whose number is not known; a run that needs more is an OutOfRangeError."""

_OF_TYPES = ("Shape", "Size", "SequenceLength", "OptionalHasElement")
"""Op types whose results are known although their operands are not."""


def depends_on_data(
    body: Any, scope: Mapping[str, Value], count: Value, condition: Value, carried: Sequence[Value]
) -> bool:
    """True if the trip count, the condition or that of a later pass follows from tensors."""
    if isinstance(count, Tensor) or isinstance(condition, Tensor):
        return True
    given = dict(zip((each.name for each in body.input[2:]), carried, strict=False))
    after = {each.name: out.name for each, out in zip(body.input[2:], body.output[1:], strict=False)}
    made = {out: each for each in body.node for out in each.output}
    names, seen = [body.output[0].name], set[str]()
    while names:
        name = names.pop()
        if name in seen:
            continue
        seen.add(name)
        if name in made:
            names += _read(made[name])
        elif isinstance(given.get(name, scope.get(name)), Tensor):
            return True
        elif name in after:
            names.append(after[name])
    return False


def _read(proto: Any) -> list[str]:
    """Names whose elements a node reads, its graphs included."""
    if proto.op_type in _OF_TYPES:
        return []
    inside = [name for graph in graphs_of(proto) for name in free_names(graph)]
    return [name for name in (*proto.input, *inside) if name]


def while_loop(
    node: Node, body: Any, count: Value, condition: Value, carried: Sequence[Value]
) -> list[Value]:
    """``ops.while_loop`` over the number of the pass, the condition, the trip count and what is carried.

    Raises:
        NotSupportedError: the loop stacks results of its passes, or carries a sequence or a value whose shape changes:
            the program would have shapes that depend on data.
    """
    if len(body.output) != 1 + len(carried):
        raise _unknown(node, count, condition, "results of each pass, whose number depends on data")
    try:
        values = [node.tensor(each) for each in carried]
    except NotSupportedError:
        raise _unknown(node, count, condition, "a sequence in passes whose number depends on data") from None
    goes_on = node.tensor(np.asarray(True) if condition is None else condition)
    times = node.tensor(np.asarray(MAX_PASSES + 1, np.int64) if count is None else count)
    own = [node.constant(0, dtypes.int64), reshaped(goes_on, ()), reshaped(times, ())]
    # An operand that occurs twice would be one input, but each is carried alone; and constants are not carried.
    start = [ops.identity(t) for t in (*own, *values)]
    outer = free_values(body, node.scope)

    def passed(inner: list[Value]) -> Sequence[Value]:
        number, on, most, *state = inner[: len(start)]
        scope = dict(zip(outer, inner[len(start) :], strict=True))
        made = node.reader.subgraph(body, scope, [number, on, *state], varies=True)
        on, *new = (node.tensor(each) for each in made)
        for before, each in zip(values, new, strict=True):
            if (before.shape, before.dtype) != (each.shape, each.dtype):
                raise _unknown(node, count, condition, "a value that changes its shape from pass to pass")
        return [ops.add(number, node.constant(1, dtypes.int64)), reshaped(on, ()), most, *new]

    def asked(inner: list[Value]) -> Sequence[Value]:
        number, on, most = inner
        return [ops.logical_and(on, ops.less(number, most))]

    asks, _ = node.reader.make_graph("loop_condition", start[: len(own)], asked)
    graph, inputs = node.reader.make_graph("loop", [*start, *outer.values()], passed)
    return list(ops.while_loop(asks, graph, *inputs, max_iterations=_most(count)))[len(own) :]


def _most(count: Value) -> int:
    """The passes that may run: those of a known trip count, but no more than ``MAX_PASSES``."""
    return min(max(int(count.reshape(-1)[0]), 1), MAX_PASSES) if isinstance(count, np.ndarray) else MAX_PASSES


def _unknown(node: Node, count: Value, condition: Value, text: str) -> NotSupportedError:
    """The error of a loop that needs a known number of passes, with the inputs that decide it, where these do."""
    for value, what in ((count, "trip count"), (condition, "condition")):
        if value is not None:
            node.known(value, what)
    return NotSupportedError(text)
