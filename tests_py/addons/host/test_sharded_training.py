"""Adam on weights that lie in parts in remote buffers, beside tensor and data parallelism, against whole weights.

Weights of three kinds: of each rank of tensor parallelism, for which data parallelism leaves groups without a stride
where ranks are not neighbours; of all replicas; and of a distributed layer norm.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import popsr
from popsr import addons
from popsr.addons import layers, rts
from popsr.addons.named_replica_grouping import NamedReplicaGrouping
from popsr.addons.named_tensors import NamedTensors
from popsr.addons.ops import (
    replicated_all_reduce_identical_grad_inputs,
    replicated_all_reduce_identical_inputs,
)
from popsr.addons.optimizers import AdamOptimizerStep
from popsr.addons.remote import load_remote, named_variable_buffers, store_remote
from popsr.addons.variable_factory import NamedVariableFactories
from tests_py.support.helpers import Array, assert_same_bits

F32, HIDDEN, STEPS = popsr.float32, 8, 2


class Net(addons.Module):
    """``norm(x @ columns) @ rows + bias``; ``group`` shares out the columns and rows."""

    def __init__(self, group: popsr.ReplicaGrouping) -> None:
        super().__init__()
        self.group = group
        self.norm = layers.LayerNormDistributed(group)

    def build(self, x: popsr.Tensor) -> popsr.Tensor:
        ranks, same = self.group.group_size, self.group.transpose()
        rng = np.random.default_rng(7)
        shapes = {"columns": (HIDDEN, HIDDEN // ranks), "rows": (HIDDEN // ranks, HIDDEN)}
        columns, rows = (
            self.add_variable_input(
                key, iter(rng.standard_normal((ranks, *shape))), F32, replica_grouping=same
            )
            for key, shape in shapes.items()
        )
        bias = self.add_variable_input("bias", lambda: np.ones(HIDDEN), F32)
        x = replicated_all_reduce_identical_inputs(x, group=self.group)
        y = self.norm(x @ columns) @ rows
        return replicated_all_reduce_identical_grad_inputs(y, group=self.group) + bias


class State:
    """Variables of factories: whole in the main graph, or loaded in parts from buffers and stored again."""

    def __init__(self, factories: NamedVariableFactories, in_parts: bool, prefix: str = "") -> None:
        self.buffers = None
        if in_parts:
            self.buffers = named_variable_buffers(factories, shard_over_dict=parts_of(factories))
            self.variables = factories.init_remote(self.buffers, prefix=prefix)
        else:
            self.variables = factories.init(prefix)

    def load(self) -> NamedTensors:
        return self.variables if self.buffers is None else load_remote(self.buffers)

    def store(self, tensors: NamedTensors) -> None:
        if self.buffers is not None:
            store_remote(self.buffers, tensors)


def parts_of(factories: NamedVariableFactories) -> dict[str, int]:
    """As many as a group in its constant-stride form has members, where they divide the elements."""
    sizes = {
        key: (f.replica_grouping.const_rg.group_size, np.prod(f.shape, dtype=int))
        for key, f in factories.to_dict().items()
    }
    return {key: size if elements % size == 0 else 1 for key, (size, elements) in sizes.items()}


def trained(groups: tuple[int, ...], in_parts: bool) -> dict[str, Array]:
    """Weights after some steps."""
    replicas, stride, size = groups
    ir = popsr.Ir(replicas)
    tensor_parallel, ones = ir.replica_grouping(stride, size), ir.replica_grouping(group_size=1)
    data = np.random.default_rng(1).standard_normal((2, tensor_parallel.num_groups, 3, HIDDEN))
    rows: Any = data[:, list(tensor_parallel.assignment)]
    with ir.main_graph, popsr.in_sequence():
        x, dy = (popsr.variable(each, F32, replica_grouping=ones) for each in rows)
        factories, graph = Net(tensor_parallel).create_graph(x)
        keys, own = factories.keys_flat(), factories.replica_groupings
        backward = addons.autodiff(graph, grads_required=[graph.args[key] for key in keys])
        gather_of = own if in_parts else None
        shards = own if in_parts else NamedReplicaGrouping.build_groups(keys, ones)
        reduce, names = rts.reduce_replica_sharded_graph(
            factories, "mean", shard_groups=shards, replica_group=tensor_parallel.transpose()
        )
        weights, moments, steps = State(factories, in_parts), None, {}
        for _ in range(STEPS):
            parts = weights.load()
            gather, gathered = rts.all_gather_replica_sharded_graph(parts, replica_groups=gather_of)
            call = graph.bind(NamedTensors.pack(gathered, gather.bind(parts).call())).call_with_info(x)
            results = backward.call(dy, args=backward.grad_graph_info.inputs_dict(call))
            means = NamedTensors.pack(names, reduce.bind(NamedTensors.pack(keys, results)).call())
            if moments is None:
                steps = {
                    key: AdamOptimizerStep().create_graph(parts[key], means[key], own[key], lr=0.1)
                    for key in keys
                }
                of_moments = NamedVariableFactories.from_dict({key: each[0] for key, each in steps.items()})
                moments = State(of_moments, in_parts, "adam")
            state = moments.load()
            for key in keys:
                steps[key][1].bind(state[key]).call(parts[key], means[key])
            weights.store(parts)
            moments.store(state)
    with popsr.Session(ir, check=True) as session:
        session.run()
        return {key: session.get_tensor_data(weights.variables[key]) for key in keys}


@pytest.mark.parametrize("groups", [(4, 1, 2), (8, 2, 2), (12, 2, 3), (8, 2, 4)])
def test_weights_in_parts_train_as_whole_ones(groups: tuple[int, ...]) -> None:
    """Bit for bit; the transposes of (8, 2, 2) and (12, 2, 3) have no stride."""
    whole, in_parts = trained(groups, False), trained(groups, True)
    assert list(whole) == ["columns", "rows", "bias", "norm.weight", "norm.bias"]
    for key, value in whole.items():
        assert_same_bits(in_parts[key], value)
    start = np.random.default_rng(7).standard_normal(whole["columns"].shape).astype(np.float32)
    assert np.all(abs(whole["columns"] - start) > 1e-3)
