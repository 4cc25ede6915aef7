"""Merged exchanges: same bits, same facts, fewer instructions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import popsr
from popsr import errors, ops, transforms
from popsr.analysis import analyze
from popsr.ops import collectives, var_updates
from tests_py.analysis.test_soundness import INDEX, KINDS, Program, Step
from tests_py.support.helpers import Array, Streams, assert_same_bits, make_variable, random_array
from tests_py.support.unchecked import unchecked

F32 = popsr.float32


def kinds(graph: popsr.Graph) -> list[str]:
    """Kinds of the graph's ops, with the number of parts."""
    return [op.kind + (f" {len(op.parts)}" if op.parts else "") for op in graph.ops]


# Random programs

EXCHANGES = ["reduce", "reduce", "gather", "scatter", "reduce_inplace", "store", "load", "store_anywhere"]
WRITES = {
    "adam",
    "sparse",
    "add_inplace",
    "accumulate",
    "copy",
    "clear",
    "reduce_inplace",
    "load_into",
    "part_inplace",
    "call",
    "repeat",
    "remote_in_loop",
    "branch",
    "branch_of_groups",
}


class Mixed(Program):
    """A program in which only what modifies tensors is in a fixed order."""

    def build(self, steps: list[Step]) -> None:
        """All steps; every tensor is fetched."""
        with self.ir.main_graph, popsr.in_sequence():
            self.inputs()
            for step in steps:
                with popsr.in_sequence(step[0] in WRITES):
                    self.append(step)
            with popsr.in_sequence(False):
                for tensor in self.pool:
                    self.io.fetch(tensor)

    def run(self, **options: Any) -> list[Array]:
        """Outputs of two runs, and the variables."""
        with popsr.Session(self.ir, seed=3, **options) as session:
            outputs = [*self.io.run(session), *self.io.run(session)]
            return [*outputs, *(session.get_tensor_data(unchecked(v)) for v in self.variables)]


def same_before_and_after(n: int, name: str, seed: int, steps: list[Step]) -> int:
    """Compares a program with its merged form; returns by how many ops that is shorter."""
    plain, merged = Mixed(n, name, seed), Mixed(n, name, seed)
    plain.build(steps)
    merged.build(steps)
    before = [str(analyze(plain.ir).partition(t)) for t in plain.pool]
    shorter = transforms.merge_collectives(merged.ir) + transforms.merge_exchange(ir=merged.ir)
    assert [str(analyze(merged.ir).partition(t)) for t in merged.pool] == before
    assert transforms.merge_collectives(merged.ir) + transforms.merge_exchange(ir=merged.ir) == 0
    expected = plain.run()
    for options in ({}, {"dedup": False}, {"check": True}, {"num_threads": 3}):
        for got, expect in zip(merged.run(**options), expected, strict=True):
            assert_same_bits(got, expect, f"{options}\n{merged.ir}")
    return shorter


@given(
    n=st.sampled_from([1, 2, 3, 4, 6, 8]),
    name=st.sampled_from(["float32", "bfloat16", "float16"]),
    seed=st.integers(0, 999),
    steps=st.lists(
        st.tuples(st.sampled_from(KINDS + 3 * EXCHANGES), INDEX, INDEX, INDEX), min_size=8, max_size=20
    ),
)
@settings(max_examples=150, derandomize=True, deadline=None, database=None)
@pytest.mark.filterwarnings("ignore::popsr.ReplicaWarning")  # they drift as it happens
def test_random_programs_keep_their_bits(n: int, name: str, seed: int, steps: list[Step]) -> None:
    same_before_and_after(n, name, seed, steps)


def test_random_programs_merge_something() -> None:
    """The property above is not empty."""
    rng = np.random.default_rng(0)
    steps: list[Any] = [(str(rng.choice(EXCHANGES)), *rng.integers(0, 60, 3).tolist()) for _ in range(40)]
    assert same_before_and_after(4, "bfloat16", 1, steps) > 20


# Merging


class DataParallel:
    """A data-parallel step of several narrow weights, each reduced and updated one after another."""

    def __init__(self, weights: int = 6, n: int = 4) -> None:
        self.ir = popsr.Ir(replication=n)
        self.ir.options.enable_stochastic_rounding = True
        rng = np.random.default_rng(0)
        self.io = Streams()
        self.weights, self.reduced = [], []
        with self.ir.main_graph:
            for i in range(weights):
                w = make_variable(random_array(rng, (5, i + 1), "bfloat16"))
                x = self.io.feed(random_array(rng, (n, 5, i + 1), "bfloat16"), replicated=True)
                self.reduced.append(collectives.replicated_all_reduce(ops.mul(x, w), "mean"))
                var_updates.accumulate_(w, self.reduced[-1], 0.25)
                self.weights.append(w)

    def train(self, steps: int = 5) -> tuple[list[Array], popsr.Session]:
        """Weights after some steps."""
        session = popsr.Session(self.ir, seed=7)
        with session:
            for _ in range(steps):
                self.io.run(session)
            return [session.get_tensor_data(w) for w in self.weights], session


def test_a_step_has_one_reduction_and_one_load() -> None:
    plain, merged = DataParallel(), DataParallel()
    assert transforms.merge_collectives(merged.ir) == 5
    assert transforms.merge_exchange(ir=merged.ir) == 5
    assert kinds(merged.ir.main_graph) == [
        "multi_exchange 6",
        *["mul"] * 6,
        "multi_replicated_all_reduce 6",
        *["accumulate_"] * 6,
    ]
    (expected, before), (got, after) = plain.train(), merged.train()
    for a, b in zip(got, expected, strict=True):
        assert_same_bits(a, b)
    assert len(str(before.plan).splitlines()) == 24
    assert len(str(after.plan).splitlines()) == 14
    calls = after.stats["kernel_calls"]
    assert (calls["multi_exchange"], calls["multi_replicated_all_reduce"]) == (5, 5)
    assert "replicated_all_reduce" not in calls


def test_order_with_the_transform_of_stochastic_rounding_does_not_matter() -> None:
    first, second = DataParallel(), DataParallel()
    for each in (first, second):
        each.ir.options.enable_stochastic_rounding = True
    transforms.merge_collectives(first.ir)
    transforms.stochastic_rounding(first.ir)
    transforms.stochastic_rounding(second.ir)
    transforms.merge_collectives(second.ir)
    for a, b in zip(first.train()[0], second.train()[0], strict=True):
        assert_same_bits(a, b)


def test_op_views_of_merged_ops() -> None:
    step = DataParallel(2)
    single = step.ir.main_graph.ops[2]
    transforms.merge_collectives(step.ir)
    step.ir.options.enable_stochastic_rounding = True
    transforms.stochastic_rounding(step.ir)
    (merged,) = [op for op in step.ir.main_graph.ops if op.parts]
    assert merged.kind == "multi_replicated_all_reduce"
    assert [part.kind for part in merged.parts] == ["replicated_all_reduce"] * 2
    assert merged.parts[0] == single
    assert merged.outputs == tuple(step.reduced)
    assert merged.inputs == tuple(t for part in merged.parts for t in part.inputs)
    assert merged.parts[1].attributes["op"] == "mean"
    assert str(merged.parts[1].seed_partition) == str(merged.seed_partition) == "{0,1,2,3}"
    assert merged.stochastic_rounding_method is popsr.StochasticRoundingMethod.IdenticalSeeds
    assert single.parts == ()
    assert merged.parts[1].location.startswith(__file__)
    assert analyze(step.ir).values(step.reduced[0])[-1][1] == merged
    assert f"| {merged.parts[0]!r}" in str(step.ir)


def test_products_are_still_folded_into_merged_reductions() -> None:
    def build(merge: bool) -> tuple[list[Array], dict[str, int]]:
        ir = popsr.Ir(replication=4)
        io = Streams()
        rng = np.random.default_rng(0)
        with ir.main_graph:
            for _ in range(2):
                x = io.feed(random_array(rng, (4, 8, 2), "float32"), replicated=True)
                y = io.feed(random_array(rng, (4, 2, 64), "float32"), replicated=True)
                io.fetch(collectives.replicated_all_reduce(ops.matmul(x, y)))
        if merge:
            assert transforms.merge_collectives(ir) == 1
        with popsr.Session(ir) as session:
            outputs = io.run(session)
            activations = session.memory()["activations"]
        return outputs, {"activations": activations, "products": session.stats["kernel_calls"]["matmul"]}

    (plain, one_by_one), (merged, together) = build(False), build(True)
    for a, b in zip(plain, merged, strict=True):
        assert_same_bits(a, b)
    assert together["products"] == one_by_one["products"] == 2
    # The products are not stored: four replicas of them would need 16 KiB.
    assert together["activations"] < 16384


def test_big_and_small_values_share_one_op() -> None:
    """Small values share a pass of the threads, big ones have their own; streams are served in turn."""
    shapes = [(3,), (300,), (70_000,), (40_000,), (0,), (20_000,), (1, 5)]
    results = []
    for merge in (False, True):
        ir = popsr.Ir(replication=4)
        io = Streams()
        rng = np.random.default_rng(0)
        with ir.main_graph:
            for shape in shapes:
                t = io.feed(random_array(rng, (4, *shape), "float32"), replicated=True)
                io.fetch(collectives.replicated_all_reduce(t, "add", ir.replica_grouping(1, 2)))
        if merge:
            assert transforms.merge_collectives(ir) == transforms.merge_exchange(ir=ir) // 2 == 6
            assert kinds(ir.main_graph) == [
                "multi_exchange 7",
                "multi_replicated_all_reduce 7",
                "multi_exchange 7",
            ]
        with popsr.Session(ir, num_threads=3) as session:
            results.append(io.run(session))
    for a, b in zip(*results, strict=True):
        assert_same_bits(a, b)


def test_merging_in_called_graphs() -> None:
    ir = popsr.Ir(replication=2)

    def body(x: popsr.Tensor, y: popsr.Tensor) -> Any:
        return collectives.replicated_all_reduce(x), collectives.replicated_all_reduce(y, "add")

    def looped(x: popsr.Tensor, y: popsr.Tensor) -> Any:
        return ops.call(ir.create_graph(body, x, y), x, y)

    io = Streams()
    data = np.arange(4, dtype=np.float32).reshape(2, 2)
    with ir.main_graph:
        x = io.feed(data, replicated=True)
        graph = ir.create_graph(looped, x, x)
        for t in ops.repeat(graph, 3, x, x):
            io.fetch(t)
    assert transforms.merge_collectives(ir) == 1
    assert kinds(graph.called_graphs[0]) == ["multi_replicated_all_reduce 2"]
    with popsr.Session(ir, check=True) as session:
        for got in io.run(session):
            assert np.array_equal(got, np.broadcast_to(4 * data.sum(0), (2, 2)))


# Blocks


def _streams(count: int) -> list[Any]:
    return [popsr.h2d_stream((2,), F32) for _ in range(count)]


def test_exchanges_of_a_block() -> None:
    ir = popsr.Ir(replication=2)
    with ir.main_graph:
        a, b, c = _streams(3)
        ops.host_load(a)
        with transforms.merge_exchange():
            x = ops.host_load(b)
            ops.relu(x)
            ops.host_load(c)
    assert kinds(ir.main_graph) == ["host_load", "multi_exchange 2", "relu"]


def test_exchange_of_io_tiles() -> None:
    ir = popsr.Ir()
    with ir.main_graph, popsr.in_sequence():
        a, b = _streams(2)
        out = popsr.d2h_stream((2,), F32)
        value = popsr.constant([1.0, 2.0])
        with transforms.io_tile_exchange():
            ops.host_load(a)
            ops.host_store(out, value)
            ops.host_load(b)
        assert kinds(ir.main_graph) == ["multi_exchange 3"]
        with (
            pytest.raises(
                errors.StateError, match=r"ops do not become one exchange, got 2 ops, expected one"
            ),
            transforms.io_tile_exchange(),
        ):
            ops.host_store(out, ops.host_load(a))
        with (
            pytest.raises(errors.StateError, match=r"got 2 ops, expected one: .* and no other op"),
            transforms.io_tile_exchange(),
        ):
            ops.relu(ops.host_load(a))
        with transforms.io_tile_exchange(verify_overlap=False):
            loaded = ops.host_load(a)
            ops.host_store(out, ops.host_load(b))
        assert (loaded.tile_set, ops.io_tile_copy(loaded).tile_set, value.tile_set) == ("io", "compute", "io")


def test_sessions_are_of_one_version() -> None:
    step = DataParallel(2)
    session = popsr.Session(step.ir)
    transforms.merge_collectives(step.ir)
    with session, pytest.raises(errors.GraphError, match="the program changed"):
        step.io.run(session)


@pytest.mark.parametrize("name", ["merge_collectives", "merge_exchange"])
def test_errors(name: str) -> None:
    def transform(ir: Any) -> Any:
        return getattr(transforms, name)(ir=ir)

    with pytest.raises(errors.ArgumentTypeError, match=rf"^{name}: ir is not an Ir, got 'x'"):
        transform("x")
    ir = popsr.Ir(replication=2)
    ir.options.enable_inplace_ambiguity_checking = True
    with ir.main_graph:
        x = ops.init((2,), F32)
        collectives.replicated_all_reduce(x)
        ops.relu_(x)
    text = str(ir)
    with pytest.raises(errors.GraphError, match="Inplacing ambiguity"):
        transform(ir)
    assert str(ir) == text
    assert transform(popsr.Ir()) == 0
