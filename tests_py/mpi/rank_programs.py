"""Random programs for ranks: those of ``random_programs`` with shards, loops by condition, groups' streams and more.

Their numbers of replicas are such that ranks often do not divide them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

import popsr
from popsr import TensorByRef, analysis, errors, ops, transforms
from popsr.ops import collectives, var_updates
from tests_py.golden.sources import ExactProgram
from tests_py.support.helpers import Array, dtype, np_dtype
from tests_py.support.programs.bit_judge import quiet
from tests_py.support.programs.random_operands import TRANSFERS, Axes, random_axes
from tests_py.support.programs.random_programs import KINDS, Step

REPLICAS = (2, 3, 4, 4, 5, 6, 6, 7, 8, 8, 9, 12)
OWN_KINDS = (
    *(
        "shard",
        "shard",
        "remote_shard",
        "remote_variable",
        "group_load",
        "group_load",
        "group_store",
        "while_loop",
    ),
    *("accumulate", "accumulate", "scan", "gather_layer", "pairs", "counted"),
)


class RankProgram(ExactProgram):
    """Counts the kinds of steps that are in it."""

    def __init__(self, axes: Axes, seed: int) -> None:
        super().__init__(axes, seed)
        self.kinds: Counter[str] = Counter()

    def step(self, kind: str, rng: np.random.Generator) -> None:
        before = self.refused
        super().step(kind, rng)
        self.kinds[kind] += self.refused == before

    # Memory that replicas share out

    def _data(self, rng: np.random.Generator, group: popsr.ReplicaGrouping, shape: tuple[int, ...]) -> Array:
        rows = (group.num_groups,) if group.num_groups > 1 else ()
        return self.draw(rng, (*rows, *shape), self.axes.name).astype(np_dtype(self.axes.name))

    def _shard(self, rng: np.random.Generator) -> Any:
        """As in an optimiser whose state is sharded: each member updates its part, and all get the whole."""
        group, shape = self.grouping(rng), self.axes.shape
        whole, shard = popsr.replica_sharded_variable(
            self._data(rng, group, shape), dtype(self.axes.name), "whole", replica_grouping=group
        )
        gradient = self.fitting(rng, lambda t: t.shape == shape and t.dtype == whole.dtype)
        how: Any = str(rng.choice(["add", "mean", "max"]))
        part = collectives.replicated_reduce_scatter(gradient, how, group, True)
        if rng.random() < 0.7:
            ops.scaled_add_(shard, part, b=-0.5)
        return collectives.replicated_all_gather(shard, group=group)

    def _remote_shard(self, rng: np.random.Generator) -> Any:
        group, of = self.grouping(rng), dtype(self.axes.name)
        data = self._data(rng, group, self.axes.shape)
        buffer = popsr.replica_sharded_buffer(data.shape, of, replica_grouping=group, entries=2)
        popsr.remote_replica_sharded_variable(data, buffer, 1, of, "remote", replica_grouping=group)
        part = ops.remote_load(buffer, 1)
        other = collectives.replica_sharded_slice(self.like(self.pool[0], rng), group)
        ops.add_(part, other)
        ops.remote_store(buffer, int(rng.integers(2)), part)
        return collectives.replicated_all_gather(part, group=group)

    def _remote_variable(self, rng: np.random.Generator) -> Any:
        group, name = self.grouping(rng), self.axes.name
        buffer = popsr.remote_buffer(self.axes.shape, dtype(name), 2)
        data = self._data(rng, group, self.axes.shape)
        popsr.remote_variable(data, buffer, 0, dtype(name), replica_grouping=group)
        value = ops.remote_load(buffer, 0)
        ops.remote_store(buffer, int(rng.integers(2)), self.like(self.pool[0], rng))
        return value

    # Streams

    def _group_load(self, rng: np.random.Generator) -> Any:
        """A row for each group; in a branch too."""
        group = self.grouping(rng)
        rows = (group.num_groups,) if group.num_groups > 1 else ()
        data = self.draw(rng, (TRANSFERS, *rows, *self.axes.shape), self.axes.name)
        stream = popsr.h2d_stream(self.axes.shape, dtype(self.axes.name), "in", replicated_stream_mode=group)
        self.io.inputs[stream] = data.astype(np_dtype(self.axes.name))
        return ops.host_load(stream)

    def _group_store(self, rng: np.random.Generator) -> Any:
        x = self.any(rng)
        group = self.grouping(rng)
        if rng.integers(2) == 1:
            group = self.ir.replica_grouping()
        stream = popsr.d2h_stream(x.shape, x.dtype, "out", replicated_stream_mode=group)
        ops.host_store(stream, x)

    # Loops and gradients

    def _while_loop(self, rng: np.random.Generator) -> Any:
        """Each replica, or each group, goes on as often as it loads."""
        group = self.grouping(rng)
        count = self.io.feed(
            rng.integers(0, 4, (TRANSFERS, self.axes.replicas)).astype(np.int32),
            replicated=True,
            transfers=True,
        )
        if rng.random() < 0.9:
            count = collectives.replicated_broadcast(count, 0, group)
        steps = [str(each) for each in rng.choice(["add", "reduce", "reduce_", "update", "dropout"], 3)]
        _, args = self._graph(rng, "add")
        inner = self._body(rng, steps, group=group)

        def body(n: popsr.Tensor, a: popsr.Tensor, b: popsr.Tensor, total: TensorByRef) -> Any:
            return [n - 1, *inner(a, b, total)]

        holds = self.ir.create_graph(lambda n: ops.greater(n, popsr.constant(0)), count)
        graph = self.ir.create_graph(body, count, *args)
        return ops.while_loop(holds, graph, count, *args)

    def _counted(self, rng: np.random.Generator) -> Any:
        """A loop in a branch in a loop."""
        _, args = self._graph(rng, "add")
        group = self.grouping(rng)
        flags = collectives.replicated_broadcast(self.load(rng, (), "bool"), 0, group)
        inner = self.ir.create_graph(self._body(rng, ["reduce", "add", "update"], group=group), *args)
        other = self.ir.create_graph(self._body(rng, ["reduce_", "add"], group=group), *args)

        def branch(a: popsr.Tensor, b: popsr.Tensor, total: TensorByRef) -> Any:
            return ops.repeat(inner, 2, a, b, total)

        def body(a: popsr.Tensor, b: popsr.Tensor, total: TensorByRef, flag: popsr.Tensor) -> Any:
            both = self.ir.create_graph(branch, a, b, total)
            return ops.conditional(flag, both, other, [a, b, total], [a, b, total])

        self.branches += 1
        try:
            graph = self.ir.create_graph(body, *args, flags)
        finally:
            self.branches -= 1
        return ops.repeat(graph, 1 + int(rng.integers(2)), *args, flags)

    def _accumulate(self, rng: np.random.Generator) -> Any:
        """Gradients of micro batches are added up in a loop, then over replicas, and update the weights."""
        group, n = self.grouping(rng), int(rng.integers(2, 5))
        name = self.axes.name if self.axes.name in ("bfloat16", "float16", "float32") else "float32"
        w, total = self.variable(rng, (n, 3), name), self.variable(rng, (n, 3), "float32")
        into = w if rng.random() < 0.3 else total
        with_factor = bool(rng.random() < 0.5)

        def micro_batch(w: popsr.Tensor, total: TensorByRef) -> None:
            x, dy = self.load(rng, (4, n), name), self.load(rng, (4, 3), name)
            if rng.random() < 0.5:
                dy = ops.matmul(x, w) - dy
            gradient = ops.matmul(ops.transpose(x), dy)
            if with_factor:
                var_updates.accumulate_(total, gradient, 0.5)
            elif total.dtype == gradient.dtype:
                ops.add_(total, gradient)
            else:
                var_updates.accumulate_(total, gradient)

        ops.repeat(self.ir.create_graph(micro_batch, w, into), int(rng.integers(1, 4)), w, into)
        summed = collectives.replicated_all_reduce_(into, "mean" if rng.random() < 0.5 else "add", group)
        if into is total:
            ops.scaled_add_(w, ops.cast(summed, w.dtype), b=-0.25)
        return ops.detach(w)

    def _gather_layer(self, rng: np.random.Generator) -> Any:
        """Members hold parts of a layer: the gradients of what moves between them move back."""
        group, x = self.grouping(rng), self.matrix(rng)
        kind = int(rng.integers(4))

        def layer(x: popsr.Tensor) -> popsr.Tensor:
            if kind == 0:
                return ops.tanh(collectives.replicated_all_gather(x, 0, group))
            if kind == 1:
                return collectives.replicated_slice(
                    collectives.replicated_all_gather(ops.sin(x), 0, group), 0, group
                )
            if kind == 2:
                return collectives.replica_sharded_slice(x * x, group)
            joined = collectives.replicated_all_gather(x, 0, group)
            return collectives.replicated_all_to_all(joined * joined, 0, group)

        graph = self.ir.create_graph(layer, x)
        info = ops.call_with_info(graph, x)
        grad = transforms.autodiff(graph)
        out = info.outputs[0]
        return [out, *ops.call(grad.graph, ops.tanh(out), inputs_dict=grad.inputs_dict(info))]

    def _pairs(self, rng: np.random.Generator) -> Any:
        pairs: list[Callable[..., Any]] = [
            collectives.replicated_all_reduce_identical_inputs,
            collectives.replicated_all_reduce_identical_grad_inputs,
        ]
        return pairs[rng.integers(2)](self.floating(rng), group=self.grouping(rng))

    def _scan(self, rng: np.random.Generator) -> Any:
        how: Any = str(rng.choice(["add", "max", "mul"]))
        return collectives.replicated_scan(self.floating(rng), how, self.grouping(rng))


def program_of(number: int) -> tuple[Axes, list[Step]]:
    """The program of that number."""
    rng = np.random.default_rng([20261127, number])
    kinds = (*KINDS, *OWN_KINDS)
    axes = replace(random_axes(rng), replicas=int(rng.choice(REPLICAS)))
    steps = [(kinds[rng.integers(len(kinds))], int(rng.integers(2**31))) for _ in range(rng.integers(6, 17))]
    return axes, steps


def of_number(number: int) -> RankProgram | None:
    """The program; None where mode "popart" stops at it."""
    axes, steps = program_of(number)
    program = RankProgram(axes, number)
    with quiet():
        try:
            program.build(steps)
            analysis.analyze(program.ir)
        except errors.GraphError as error:
            if axes.rounding == "popart" and "mode 'popart'" in str(error):
                return None
            raise
    return program
