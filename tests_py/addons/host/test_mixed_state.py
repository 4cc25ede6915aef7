"""State from several factories at once: local and remote, whole and in shards, of groups and of all replicas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import popsr
from popsr import addons, errors, ops
from popsr.addons import rts
from popsr.addons.named_replica_grouping import NamedReplicaGrouping
from popsr.addons.named_tensors import NamedTensors
from popsr.addons.ops import replicated_strided_collectives as strided
from popsr.addons.remote import load_remote, named_buffers, named_variable_buffers, store_remote
from popsr.addons.variable_factory import (
    NamedVariableFactories,
    VariableFactory,
    add_replica_sharded_variable_input,
)
from tests_py.support.helpers import Array, assert_same_bits
from tests_py.support.unchecked import unchecked

F32 = popsr.float32
REPLICAS, N = 4, 4
PAIRS = [[0, 1], [2, 3]]
KEYS = ("a", "b", "c", "d")
REMOTE = ("b", "c", "d")


def integers(seed: int, *shape: int) -> Array:
    """Small enough for exact products."""
    return np.random.default_rng(seed).integers(-2, 3, shape).astype(np.float32)


class Product(addons.Module):
    """``x @ a @ b @ c @ d``: ``a`` is of pairs of replicas, ``b`` comes in shards of all."""

    def build(self, x: popsr.Tensor) -> popsr.Tensor:
        pairs = popsr.gir().replica_grouping(1, 2)
        rows = iter(integers(0, 2, N, N))
        weights = [
            self.add_variable_input("a", rows, F32, replica_grouping=pairs),
            rts.gather_replica_sharded_tensor(
                self.add_replica_sharded_variable_input("b", lambda: integers(1, N, N), F32)
            ),
            self.add_variable_input("c", lambda: integers(2, N, N), F32),
            self.add_variable_input("d", [integers(3, N, N).tolist()], F32),
        ]
        for weight in weights:
            x = x @ weight
        return x


def fetch(ir: popsr.Ir, results: dict[str, popsr.Tensor]) -> dict[str, Array]:
    """Values by key, a row a replica."""
    streams = {key: popsr.d2h_stream(t.shape, t.dtype) for key, t in results.items()}
    for key, stream in streams.items():
        ops.host_store(stream, results[key])
    with popsr.Session(ir, check=True) as session:
        outputs = session.run()
    return {key: np.asarray(outputs[stream]) for key, stream in streams.items()}


def own(ir: popsr.Ir, data: Array) -> popsr.Variable:
    return popsr.variable(data, replica_grouping=ir.replica_grouping(group_size=1))


def part(whole: Array, replica: int) -> Array:
    return np.split(whole.reshape(-1), REPLICAS)[replica]


@pytest.mark.parametrize("from_factories", [False, True])
def test_products_and_gradients_of_mixed_factories(from_factories: bool) -> None:
    """Weights of four kinds in one product; means of their gradients in shards or whole, as their factories are."""
    ir = popsr.Ir(REPLICAS)
    ones, pairs = ir.replica_grouping(group_size=1), ir.replica_grouping(1, 2)
    x, dy = integers(4, REPLICAS, 2, N), integers(5, REPLICAS, 2, N)
    with ir.main_graph, popsr.in_sequence():
        factories, graph = Product().create_graph(popsr.TensorSpec((2, N), F32))
        groups = NamedReplicaGrouping.build_groups(KEYS, ones)
        of_gradients, backward = addons.autodiff_with_accumulation(
            graph, graph.args.tensors, replica_groupings=groups
        )
        remote = factories.filter_keys(REMOTE)
        buffers = named_variable_buffers(remote, shard_over_dict={"c": REPLICAS, "d": 1})
        assert {key: buffer.tensor_shape for key, buffer in buffers.to_dict().items()} == {
            "b": (N,),
            "c": (N,),
            "d": (N, N),
        }
        remote.init_remote(buffers)
        loaded = load_remote(buffers)
        gather, names = rts.all_gather_replica_sharded_graph(loaded.filter_keys(["c"]))
        state = NamedTensors()
        state.update(factories.filter_keys(["a"]).init())
        state.update(loaded.filter_keys(["b", "d"]))
        state.update(NamedTensors.pack(names, gather.bind(loaded).call()))
        call = graph.bind(state).call_with_info(own(ir, x))
        accumulators = of_gradients.init("mean")
        backward.bind(accumulators).call(own(ir, dy), args=backward.grad_graph_info.inputs_dict(call))

        gradients = accumulators.accum
        like: Any = factories if from_factories else gradients
        reduce, names = rts.reduce_replica_sharded_graph(
            like.filter_keys(["c", "d"]), "mean", shard_groups=NamedReplicaGrouping(d=ones)
        )
        means = NamedTensors.pack(names, reduce.bind(gradients).call())
        assert (means.c.shape, means.c.meta_shape, means.d.shape) == ((N,), (N, N), (N, N))
        reduce, _ = rts.reduce_replica_sharded_graph(like.filter_keys(["a"]), "mean", replica_group=pairs)
        (means_of_a,) = reduce.bind(gradients).call()
        results = {"y": call.outputs[0], "b": gradients.b, "a": means_of_a, "c": means.c, "d": means.d}
        found = fetch(ir, results)

    a, b, c, d = integers(0, 2, N, N), *(integers(seed, N, N) for seed in (1, 2, 3))
    mine = [(x[r], dy[r], a[r // 2]) for r in range(REPLICAS)]
    of_c = np.mean([(x @ a @ b).T @ (dy @ d.T) for x, dy, a in mine], 0)
    of_d = np.mean([(x @ a @ b @ c).T @ dy for x, dy, a in mine], 0)
    of_b = [
        (x @ a).T @ (dy @ d.T @ c.T) for x, dy, a in mine
    ]  # gathers sum no gradients: each keeps its own part
    of_a = [x.T @ (dy @ d.T @ c.T @ b.T) for x, dy, _ in mine]
    for r in range(REPLICAS):
        pair = PAIRS[r // 2]
        assert_same_bits(found["y"][r], mine[r][0] @ mine[r][2] @ b @ c @ d)
        assert_same_bits(found["d"][r], of_d)
        assert_same_bits(found["c"][r], part(of_c, r))
        assert_same_bits(found["b"][r], part(of_b[r], r))
        assert_same_bits(found["a"][r], np.split(np.mean([of_a[m] for m in pair], 0).reshape(-1), 2)[r % 2])


GRAPHS: dict[str, Any] = {
    "reduce": rts.reduce_replica_sharded_graph,
    "gather": rts.all_gather_replica_sharded_graph,
    "all-reduce": strided.replicated_all_reduce_strided_graph,
}


@pytest.mark.parametrize("name", GRAPHS)
def test_graphs_for_factories_are_those_for_what_factories_make(name: str) -> None:
    """Inputs, keys and outputs; factories make no variable for it and use no item."""
    with popsr.Ir(2).main_graph:
        factories = NamedVariableFactories.from_dict(
            {
                "w": VariableFactory([np.zeros((2, 3), np.float32)], by_ref=True),
                "b.x": VariableFactory([np.zeros(3, np.float16)]),
                "b.s": VariableFactory([np.zeros((2, 2), np.float32)], shard_over=2),
            }
        )
        made = [GRAPHS[name](factories), GRAPHS[name](factories.init_zero())]
        mixed = NamedTensors.from_dict(unchecked({"w": factories.w, "b": factories.init_zero().b}))
        made.append(GRAPHS[name](mixed))
        kinds = [
            (names, [t.spec for t in graph.graph.inputs], [t.spec for t in graph.graph.outputs])
            for graph, names in made
        ]
        assert kinds[0] == kinds[1] == kinds[2]
        assert kinds[0][0] == ["b.s", "b.x", "w"] == [t.name for t in made[0][0].graph.inputs]
        buffers = [named_buffers(tree).to_dict() for tree in (factories, factories.init_zero())]
        kept = [{key: (b.tensor_shape, b.meta_shape) for key, b in each.items()} for each in buffers]
        assert kept[0] == kept[1] == {"w": ((2, 3), ()), "b.x": ((3,), ()), "b.s": ((2,), (2, 2))}
        assert popsr.gmg().variables == ()
        factories.init()


@pytest.mark.parametrize("name", GRAPHS)
def test_other_leaves_and_trees_are_refused(name: str) -> None:
    with popsr.Ir(2).main_graph:
        for tree, text in (
            ([1], "tensors is not a NamedTensors or NamedVariableFactories, got"),
            (NamedReplicaGrouping(), "tensors is not a NamedTensors or NamedVariableFactories, got"),
            (NamedTensors(w=unchecked(3)), "'w' of tensors is not a Tensor or VariableFactory, got int 3"),
        ):
            with pytest.raises(errors.ArgumentTypeError, match=text):
                GRAPHS[name](tree)


WITHOUT_STRIDE = {
    "pairs of four": ([0, 0, 1, 1, 0, 0, 1, 1], 2),
    "threes of six": ([0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1], 3),
    "single ones": ([0, 1, 1, 0], 1),
}


@pytest.mark.parametrize("name", WITHOUT_STRIDE)
def test_groups_without_a_stride_keep_parts_in_their_constant_form(name: str) -> None:
    """As tensor parallelism beside data parallelism makes them: buffers, reduced parts and gathers have equal parts."""
    assignment, parts = WITHOUT_STRIDE[name]
    ir = popsr.Ir(len(assignment))
    groups = ir.replica_grouping_from_assignments(assignment)
    data = integers(7, groups.num_groups, 6, 4)
    updates = integers(8, len(assignment), 6, 4)
    with ir.main_graph, popsr.in_sequence():
        factory = VariableFactory(iter(data), replica_grouping=groups)
        factories = NamedVariableFactories(w=factory)
        with ir.create_empty_graph():
            part, in_parts = add_replica_sharded_variable_input("w", lambda: data[0], replica_grouping=groups)
        buffers = named_variable_buffers(factories)
        assert in_parts.shard_over == parts
        assert part.shape == buffers.w.tensor_shape
        spec = rts.replica_sharded_spec(popsr.TensorSpec((6, 4), F32), groups)
        assert spec.shape == buffers.w.tensor_shape == ((24 // parts,) if parts > 1 else (6, 4))
        variables = factories.init_remote(buffers)
        own_groups = factories.replica_groupings
        gradients = NamedTensors(w=own(ir, updates))
        reduce, names = rts.reduce_replica_sharded_graph(factories, "add", False, own_groups, groups)
        of_parts = NamedTensors.pack(names, reduce.bind(gradients).call())
        loaded = load_remote(buffers)
        assert of_parts.w.spec == loaded.w.spec == spec
        updated = NamedTensors(w=loaded.w + of_parts.w)
        store_remote(buffers, updated)
        gather, names = rts.all_gather_replica_sharded_graph(updated, replica_groups=own_groups)
        whole = NamedTensors.pack(names, gather.bind(updated).call())
        assert popsr.analysis.analyze(ir).is_equal(whole.w, groups)
        out = popsr.d2h_stream((6, 4), F32)
        ops.host_store(out, whole.w)
    with popsr.Session(ir, check=True) as session:
        got = session.run()[out]
        kept = session.get_tensor_data(variables.w)
    expect = np.stack([data[g] + updates[list(groups.groups[g])].sum(0) for g in range(groups.num_groups)])
    assert_same_bits(got, expect[list(groups.assignment)])
    assert_same_bits(kept, expect)
    with (
        ir.main_graph,
        pytest.raises(errors.ReplicaError, match=rf"got shard_over \d, expected a divisor of {parts}$"),
    ):
        VariableFactory(lambda: data[0], replica_grouping=groups, shard_over=2 * parts)
