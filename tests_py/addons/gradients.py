"""Values and gradients of functions on replicas, and directional derivatives, for tests of ``popsr.addons``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import popsr
from popsr import ops, transforms
from tests_py.support.helpers import Array, Streams, as_list, rows


@dataclass(frozen=True)
class Outcome:
    """Of one run, with a row a replica.

    Attributes:
        values: of each output.
        gradients: of each differentiable input.
        partitions: of each output, as the analysis proves it.
    """

    values: list[Array]
    gradients: list[Array]
    partitions: list[popsr.replicas.Partition]


Fn = Callable[..., Any]
Group = popsr.ReplicaGrouping

GROUPS: dict[str, Callable[[popsr.Ir], Group]] = {
    "all": lambda ir: ir.replica_grouping(),
    "pairs": lambda ir: ir.replica_grouping(1, 2),
    "stride 2": lambda ir: ir.replica_grouping(2, 2),
    "transpose": lambda ir: ir.replica_grouping(2, 2).transpose(),
    "stride 4": lambda ir: ir.replica_grouping(4, 2),
    "apart": lambda ir: ir.replica_grouping(1, 1),
}
"""Groupings of 8 replicas; the transpose has no stride."""


def members_of(group: Group) -> list[list[int]]:
    """The replicas of each group, ascending."""
    return [list(group.members(k)) for k in range(group.num_groups)]


def run(
    ir: popsr.Ir,
    function: Fn,
    inputs: Sequence[Array],
    labels: Sequence[Array] = (),
    seeds: Sequence[Array] | None = None,
    **options: Any,
) -> Outcome:
    """One run of ``function(*inputs, *labels)``, and of its gradient to the inputs where seeds are given."""
    io = Streams()
    n = ir.replication_factor

    def feed(array: Array) -> popsr.Tensor:
        return io.feed(array if n > 1 else array[0], replicated=True)

    with ir.main_graph, popsr.in_sequence():
        tensors = [feed(array) for array in (*inputs, *labels)]
        graph = ir.create_graph(function, *tensors)
        count = len(graph.outputs)
        info = None
        if seeds is not None:
            info = transforms.autodiff(graph, grads_required=graph.inputs[: len(inputs)])
        call = ops.call_with_info(graph, *tensors)
        outputs = list(call.outputs)[:count]
        for y in outputs:
            io.fetch(y)
        if info is not None and seeds is not None:
            fed = [feed(seed) for seed in seeds]
            for gradient in as_list(ops.call(info.graph, *fed, inputs_dict=info.inputs_dict(call))):
                io.fetch(gradient)
    facts = popsr.analysis.analyze(ir)
    with popsr.Session(ir, check=True, **options) as session:
        results = [rows(each, n) for each in io.run(session)]
    return Outcome(results[:count], results[count:], [facts.partition(y) for y in outputs])


def assert_derivative(
    make: Callable[[], tuple[popsr.Ir, Fn]],
    inputs: Sequence[Array],
    labels: Sequence[Array] = (),
    *,
    outputs_shared_by: int = 1,
    inputs_shared_by: int = 1,
    seeds: Sequence[Array],
    steps: Sequence[Array],
    rtol: float = 1e-6,
) -> None:
    """Gradients times steps are the central difference of the sum of seeds times outputs, in float64.

    Args:
        make: a new program, and the function.
        inputs: a row a replica.
        labels: inputs without gradient.
        outputs_shared_by: how many replicas hold one value of the loss: it counts once.
        inputs_shared_by: how many replicas hold one value of an input: its gradient counts once.
        seeds: gradients of the outputs, a row a replica.
        steps: directions.
        rtol: relative tolerance.
    """

    def loss(sign: float) -> float:
        ir, function = make()
        at = [x + sign * 1e-5 * step for x, step in zip(inputs, steps, strict=True)]
        values = run(ir, function, at, labels).values
        return sum(float(np.sum(y * s)) for y, s in zip(values, seeds, strict=True)) / outputs_shared_by

    ir, function = make()
    gradients = run(ir, function, inputs, labels, seeds).gradients
    expect = (loss(1) - loss(-1)) / 2e-5
    got = sum(float(np.sum(g * step)) for g, step in zip(gradients, steps, strict=True)) / inputs_shared_by
    assert abs(got - expect) <= rtol * max(abs(expect), 1e-3), (got, expect)
    assert any(np.any(g) for g in gradients)
