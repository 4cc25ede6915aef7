"""Primitives that run other jaxprs: calls, branches, loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from popsr import dtypes, ops
from popsr._program.create_graph import graph_input, graph_output
from popsr._program.graph import Graph
from popsr._program.tensor import Tensor
from popsr.bridge.jax._known.per_replica import is_known
from popsr.bridge.jax._rules.calls import CALLED
from popsr.bridge.jax._rules.random import without_noise
from popsr.bridge.jax._rules.table import Equation, NotSupportedError, Result, Value, rule, stand_in_dtype
from popsr.bridge.jax._sizes.trip_counts import trip_count

__all__: list[str] = []


@rule(*CALLED, raw=True)
def _call(equation: Equation) -> Result:
    """Part of the caller: what is known stays known, and equations keep their lines."""
    jaxpr = equation.params.get(CALLED[equation.primitive])
    if jaxpr is None:
        raise NotSupportedError("without a jaxpr")
    found = without_noise(equation, jaxpr)
    return equation.importer.closed(jaxpr, equation.values) if found is None else found


# Graphs

Body = Callable[[list[Value]], Sequence[Value]]


def _graph(equation: Equation, name: str, values: Sequence[Value], body: Body) -> tuple[Graph, list[Tensor]]:
    """A graph of a function of values: tensors are its inputs, known arrays stay known in it.

    Returns:
        The graph, and the tensors to call it with.
    """
    importer = equation.importer
    values = [value if is_known(value) else importer.tensor(value) for value in values]
    tensors = [value for value in values if isinstance(value, Tensor)]
    graph = importer.builder.ir.create_empty_graph(name)
    with graph:
        inputs = iter([graph_input(t.shape, t.dtype, f"in{i}") for i, t in enumerate(tensors)])
        inner = [next(inputs) if isinstance(value, Tensor) else value for value in values]
        seen: set[Tensor] = set()
        for value in body(inner):
            out = importer.tensor(value)
            if out in seen or out in graph.inputs:
                out = ops.identity(out)
            seen.add(out)
            graph_output(out)
    return graph, tensors


def _jaxpr_body(equation: Equation, jaxpr: Any, results: Sequence[Any]) -> Body:
    return lambda values: [
        _as(equation, value, aval)
        for value, aval in zip(equation.importer.closed(jaxpr, values), results, strict=True)
    ]


def _as(equation: Equation, value: Value, aval: Any) -> Tensor:
    t = equation.importer.tensor(value)
    return t if t.dtype == stand_in_dtype(aval.dtype) else ops.cast(t, stand_in_dtype(aval.dtype))


# Branches


@rule("cond", raw=True)
def _cond(equation: Equation) -> Result:
    """The branch of an index that is known, else conditionals on the index, one fewer than branches."""
    which, values = equation.values[0], equation.values[1:]
    branches = equation.params["branches"]
    if isinstance(which, np.ndarray):
        number = min(max(int(which), 0), len(branches) - 1)
        return equation.importer.closed(branches[number], values)
    if len(branches) == 1:
        return equation.importer.closed(branches[0], values)
    if not equation.results:
        raise NotSupportedError("branches without results")
    index = equation.importer.tensor(which)
    if index.dtype == dtypes.bool:
        index = ops.cast(index, dtypes.int32)
    return _choose(equation, index, 0, list(values))


def _choose(equation: Equation, index: Tensor, first: int, values: list[Value]) -> list[Tensor]:
    """Branch ``first`` where the index is not greater, else one of the later branches."""
    branches = equation.params["branches"]
    here = _jaxpr_body(equation, branches[first], equation.results)
    if first + 2 == len(branches):
        other, passed = _jaxpr_body(equation, branches[first + 1], equation.results), values
    else:
        passed = [index, *values]

        def other(inner: list[Value]) -> Sequence[Value]:
            return _choose(equation, inner[0], first + 1, inner[1:])

    later, later_inputs = _graph(equation, f"branch{first + 1}", passed, other)
    this, this_inputs = _graph(equation, f"branch{first}", values, here)
    beyond = ops.greater(index, equation.constant(first, index.dtype))
    return list(ops.conditional(beyond, later, this, later_inputs, this_inputs))


# Loops


@rule("scan", raw=True)
def _scan(equation: Equation) -> Result:
    """A loop that counts: it reads row i of what is scanned, and writes row i of what is stacked."""
    params, values = equation.params, list(equation.values)
    num_consts, num_carry, length = _counts(params)
    consts, carry, scanned = (
        values[:num_consts],
        values[num_consts : num_consts + num_carry],
        values[num_consts + num_carry :],
    )
    if length <= 1:
        return _one_pass(equation, consts, carry, scanned, length)
    importer, jaxpr = equation.importer, params["jaxpr"]
    carried, stacked = equation.results[:num_carry], equation.results[num_carry:]
    start = [_as(equation, value, aval) for value, aval in zip(carry, carried, strict=True)]
    rows = [ops.init(aval.shape, stand_in_dtype(aval.dtype)) for aval in stacked]
    count = importer.constant(np.zeros((), np.int32), dtypes.int32)
    loop: list[Value] = [ops.identity(count), *start, *rows]

    def body(inner: list[Value]) -> Sequence[Value]:
        index, state = inner[0], inner[1 : 1 + num_carry]
        buffers, rest = inner[1 + num_carry : len(loop)], inner[len(loop) :]
        at = ops.sub(equation.constant(length - 1, dtypes.int32), index) if params["reverse"] else index
        place = ops.reshape(at, (1,))
        taken = [_row(importer.tensor(value), place) for value in rest[num_consts:]]
        found = importer.closed(jaxpr, [*rest[:num_consts], *state, *taken])
        new = [_as(equation, value, aval) for value, aval in zip(found[:num_carry], carried, strict=True)]
        written = [
            _with_row(importer.tensor(buffer), place, importer.tensor(value))
            for buffer, value in zip(buffers, found[num_carry:], strict=True)
        ]
        return [ops.add(index, equation.constant(1, dtypes.int32)), *new, *written]

    graph, inputs = _graph(equation, "scan", [*loop, *consts, *scanned], body)
    return list(ops.repeat(graph, length, *inputs))[1 : len(loop)]


def _counts(params: Any) -> tuple[int, int, int]:
    return int(params["num_consts"]), int(params["num_carry"]), int(params["length"])


def _one_pass(
    equation: Equation, consts: list[Value], carry: list[Value], scanned: list[Value], length: int
) -> list[Value]:
    """A scan of at most one row, without a loop."""
    if length == 0:
        empty = [np.zeros(aval.shape, aval.dtype) for aval in equation.results[len(carry) :]]
        return [*carry, *empty]
    importer = equation.importer
    rows = []
    for value in scanned:
        t = importer.tensor(value)
        rows.append(ops.reshape(t, t.shape[1:]))
    found = importer.closed(equation.params["jaxpr"], [*consts, *carry, *rows])
    stacked = [ops.reshape(t, (1, *t.shape)) for t in map(importer.tensor, found[len(carry) :])]
    return [*found[: len(carry)], *stacked]


def _row(t: Tensor, place: Tensor) -> Tensor:
    return ops.reshape(ops.dynamic_slice(t, place, [0], [1], True), t.shape[1:])


def _with_row(t: Tensor, place: Tensor, row: Tensor) -> Tensor:
    return ops.dynamic_update(t, place, ops.reshape(row, (1, *row.shape)), [0], [1], True)


@rule("while", raw=True)
def _while(equation: Equation) -> Result:
    """A loop of a trip count that follows from its text; else one that asks its condition."""
    params, values = equation.params, equation.values
    first, last = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
    cond_consts, body_consts, carry = values[:first], values[first:last], values[last:]
    times = trip_count(params["cond_jaxpr"], params["body_jaxpr"], cond_consts, body_consts, carry)
    if times == 0:
        return list(carry)
    start = [_as(equation, value, aval) for value, aval in zip(carry, equation.results, strict=True)]
    if times is None:
        return _while_loop(equation, start, cond_consts, body_consts)
    graph, inputs = _graph(
        equation,
        "while",
        [*start, *body_consts],
        lambda inner: _pass(equation, inner[: len(start)], inner[len(start) :]),
    )
    return list(ops.repeat(graph, times, *inputs))


def _pass(equation: Equation, state: Sequence[Value], consts: Sequence[Value]) -> list[Tensor]:
    found = equation.importer.closed(equation.params["body_jaxpr"], [*consts, *state])
    return [_as(equation, value, aval) for value, aval in zip(found, equation.results, strict=True)]


def _while_loop(
    equation: Equation, start: Sequence[Tensor], cond_consts: Sequence[Value], body_consts: Sequence[Value]
) -> list[Value]:
    """A loop that asks its condition; of one that is mapped over elements, each element's."""
    importer, jaxpr = equation.importer, equation.params["cond_jaxpr"]
    first, last = len(start), len(start) + len(cond_consts)
    mapped = jaxpr.out_avals[0].shape != ()

    def condition(inner: list[Value]) -> Tensor:
        return importer.tensor(importer.closed(jaxpr, [*inner[first:last], *inner[:first]])[0])

    def asked(inner: list[Value]) -> Sequence[Value]:
        held = condition(inner)
        return [ops.cast(ops.max(ops.cast(held, dtypes.uint8)), dtypes.bool) if mapped else held]

    def body(inner: list[Value]) -> Sequence[Value]:
        new = _pass(equation, inner[:first], inner[last:])
        if not mapped:
            return new
        goes_on, old = condition(inner), map(importer.tensor, inner[:first])
        return [_chosen(goes_on, ours, before) for ours, before in zip(new, old, strict=True)]

    graph, inputs = _graph(equation, "while", [*start, *cond_consts, *body_consts], body)
    cond, _ = _graph(equation, "while_condition", [*start, *cond_consts], asked)
    return list(ops.while_loop(cond, graph, *inputs))


def _chosen(goes_on: Tensor, new: Tensor, old: Tensor) -> Tensor:
    """The new value where a loop that is mapped over elements goes on."""
    mask = ops.reshape(goes_on, (*goes_on.shape, *[1] * (new.rank - goes_on.rank)))
    return ops.where(mask if mask.shape == new.shape else ops.expand(mask, new.shape), new, old)
