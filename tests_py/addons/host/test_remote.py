"""Remote buffers by name, and values in parts on the members of their groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import errors, ops
from popsr.addons import rts
from popsr.addons.named_replica_grouping import NamedReplicaGrouping
from popsr.addons.named_tensors import NamedTensors
from popsr.addons.remote import (
    NamedRemoteBuffers,
    create_remote_buffer,
    load_remote,
    load_remote_graph,
    named_buffers,
    named_variable_buffers,
    store_remote,
    store_remote_graph,
)
from popsr.addons.variable_factory import NamedVariableFactories, VariableFactory
from tests_py.support.helpers import Array, assert_same_bits, groupings
from tests_py.support.unchecked import unchecked

F32 = popsr.float32
Value, Replica, Shape = errors.AttributeValueError, errors.ReplicaError, errors.ShapeError


@pytest.fixture
def ir() -> Iterator[popsr.Ir]:
    """Of 4 replicas, with its main graph entered in sequence."""
    program = popsr.Ir(4)
    with program.main_graph, popsr.in_sequence():
        yield program


def fetch(ir: popsr.Ir, *tensors: Any) -> list[Array]:
    """Values of tensors of the main graph, a row a replica."""
    streams = [popsr.d2h_stream(t.shape, t.dtype) for t in tensors]
    for stream, t in zip(streams, tensors, strict=True):
        ops.host_store(stream, t)
    with popsr.Session(ir, check=True) as session:
        results = session.run()
    return [np.asarray(results[stream]) for stream in streams]


def rows(ir: popsr.Ir, shape: tuple[int, ...], seed: int = 0) -> tuple[Array, popsr.Variable]:
    """Integers, others on each replica, and a variable that holds them."""
    data = np.random.default_rng(seed).integers(-9, 9, (ir.replication_factor, *shape)).astype(np.float32)
    return data, popsr.variable(data, replica_grouping=ir.replica_grouping(group_size=1))


# Buffers

BUFFERS: dict[str, tuple[tuple[int, ...], Any, tuple[int, int] | None, Any, tuple[int, ...], Any]] = {
    "all members": ((4, 2), None, None, None, (2,), (4, 2)),
    "two": ((4, 2), None, None, 2, (4,), (4, 2)),
    "whole": ((4, 2), None, None, 1, (4, 2), ()),
    "members of a pair": ((4, 2), None, (1, 2), None, (4,), (4, 2)),
    "a group of one": ((4, 2), None, (1, 1), None, (4, 2), ()),
    "a shard": ((3,), (4, 3), None, None, (3,), (4, 3)),
}


@pytest.mark.parametrize("name", BUFFERS)
def test_buffers(name: str, ir: popsr.Ir) -> None:
    shape, meta_shape, group, over, expected, expected_meta = BUFFERS[name]
    spec = popsr.TensorSpec(shape, popsr.float16, meta_shape or ())
    grouping = None if group is None else ir.replica_grouping(*group)
    buffer = create_remote_buffer(spec, 3, grouping, over)
    assert (buffer.tensor_shape, buffer.meta_shape) == (expected, expected_meta)
    assert (buffer.tensor_dtype, buffer.entries) == (popsr.float16, 3)


def factories(ir: popsr.Ir) -> NamedVariableFactories:
    """``a.w`` of all replicas, ``b`` of pairs, and ``s``, sharded over two of four."""
    return NamedVariableFactories.from_dict(
        {
            "a.w": VariableFactory(partial(np.ones, (4, 2)), F32),
            "b": VariableFactory(
                partial(np.ones, 8), popsr.float16, replica_grouping=ir.replica_grouping(2, 2)
            ),
            "s": VariableFactory(partial(np.ones, 8), F32, shard_over=2),
        }
    )


SHARD_OVER: dict[str, tuple[Any, list[tuple[int, ...]]]] = {
    "True": (True, [(2,), (4,), (4,)]),
    "False": (False, [(4, 2), (8,), (4,)]),
    "1": (1, [(4, 2), (8,), (4,)]),
    "2": (2, [(4,), (4,), (4,)]),
    "by name": ({"a.w": 2, "b": 1}, [(4,), (8,), (4,)]),
    "no name": ({}, [(2,), (4,), (4,)]),
    "a sharded one": ({"s": 4}, [(2,), (4,), (4,)]),
}


@pytest.mark.parametrize("name", SHARD_OVER)
def test_buffers_of_factories(name: str, ir: popsr.Ir) -> None:
    over, shapes = SHARD_OVER[name]
    made = factories(ir)
    buffers = named_variable_buffers(made, 2, over)
    assert type(buffers) is NamedRemoteBuffers
    assert buffers.keys_flat() == ["a.w", "b", "s"]
    assert [b.tensor_shape for b in buffers.values_flat()] == shapes
    for buffer, whole in zip(buffers.values_flat(), [(4, 2), (8,), (8,)], strict=True):
        assert buffer.meta_shape == (() if buffer.tensor_shape == whole else whole)
    assert [b.tensor_dtype for b in buffers.values_flat()] == [F32, popsr.float16, F32]
    assert {b.entries for b in buffers.values_flat()} == {2}
    made.init_remote(buffers, 1)


def test_inputs_of_sharded_factories_fit_what_is_loaded(ir: popsr.Ir) -> None:
    made = factories(ir).filter_keys(["s"])
    buffers = named_variable_buffers(made)
    made.init_remote(buffers)
    with ir.create_empty_graph() as graph:
        popsr.graph_output(made.s.create_input())
    (shard,) = ops.call(graph, load_remote(buffers).s)
    assert (shard.shape, shard.meta_shape) == ((4,), (8,))


REFUSED: dict[str, tuple[Callable[[popsr.Ir], Any], type[Exception], str]] = {
    "parts": (
        lambda ir: create_remote_buffer(popsr.TensorSpec((6,), F32)),
        Shape,
        r"different lengths, got shape \(6,\) over 4",
    ),
    "no divisor": (
        lambda ir: create_remote_buffer(popsr.TensorSpec((6,), F32), shard_over=3),
        Replica,
        "got shard_over 3, expected a divisor of 4",
    ),
    "none": (
        lambda ir: create_remote_buffer(popsr.TensorSpec((6,), F32), shard_over=0),
        Value,
        "shard_over: got 0",
    ),
    "entries": (
        lambda ir: create_remote_buffer(popsr.TensorSpec((8,), F32), 0),
        Value,
        "positive integer, got 0",
    ),
    "0 of a factory": (lambda ir: named_variable_buffers(factories(ir), 1, 0), Value, r"'a\.w': got 0"),
    "more than members": (
        lambda ir: named_variable_buffers(factories(ir), 1, 4),
        Replica,
        "more shards than members of a group, got 4 for 'b', expected at most 2",
    ),
    "more by name": (
        lambda ir: named_variable_buffers(factories(ir), 1, {"a.w": 8}),
        Replica,
        r"got 8 for 'a\.w', expected at most 4",
    ),
    "no divisor by name": (
        lambda ir: named_variable_buffers(factories(ir), 1, {"a.w": 3}),
        Replica,
        "shard_over 3",
    ),
    "text": (
        lambda ir: named_variable_buffers(factories(ir), 1, unchecked({"b": "2"})),
        errors.ArgumentTypeError,
        "'b' is not an int, got '2'",
    ),
    "no tensors": (
        lambda ir: named_buffers(unchecked({"a": 1})),
        errors.ArgumentTypeError,
        "named_buffers: tensors is not a NamedTensors or NamedVariableFactories, got dict",
    ),
    "no entry": (lambda ir: load_remote(plain_buffers(), 2), errors.OutOfRangeError, "2"),
    "no entries": (lambda ir: load_remote_graph(plain_buffers(), 0), Value, "entries: got 0"),
    "another shape": (
        lambda ir: store_remote(plain_buffers(), NamedTensors(a=popsr.constant(np.zeros(2, np.float32)))),
        ValueError,
        "shape|match",
    ),
    "op": (
        lambda ir: rts.reduce_replica_sharded_tensor(popsr.constant(np.zeros(8)), unchecked("sum")),
        ValueError,
        "sum",
    ),
}


def plain_buffers() -> NamedRemoteBuffers:
    return NamedRemoteBuffers(a=popsr.remote_buffer((3,), F32, 2))


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str, ir: popsr.Ir) -> None:
    call, error, match = REFUSED[name]
    with pytest.raises(error, match=match) as caught:
        call(ir)
    assert isinstance(caught.value, popsr.Error)
    assert "\n" not in str(caught.value)
    assert not ir.main_graph.ops


# Loads and stores


def tensors_of(ir: popsr.Ir) -> tuple[dict[str, Array], NamedTensors]:
    data, variables = zip(*(rows(ir, (n,), n) for n in (3, 2)), strict=True)
    return dict(zip(("z.b", "a"), data, strict=True)), NamedTensors.from_dict(
        dict(zip(("z.b", "a"), variables, strict=True))
    )


@pytest.mark.parametrize("io", [False, True])
@pytest.mark.parametrize("as_tensor", [False, True])
@pytest.mark.parametrize("inline", [False, True])
def test_round_trips(io: bool, as_tensor: bool, inline: bool, ir: popsr.Ir) -> None:
    data, tensors = tensors_of(ir)
    buffers = named_buffers(tensors)
    assert buffers.keys_flat() == ["z.b", "a"]
    assert [b.tensor_shape for b in buffers.values_flat()] == [(3,), (2,)]
    load, names = load_remote_graph(buffers, 3, io)
    store = store_remote_graph(buffers, 2, io)
    assert {b.entries for b in buffers.values_flat()} == {3}  # grown, never less
    assert names == store.args.keys_flat() == ["a", "z.b"]
    assert load.args.keys() == []
    assert [(t.shape, t.dtype) for t in load.graph.inputs] == [((), popsr.int32)]
    doubled = tensors.map(lambda t: t + t)
    at = [popsr.constant(i, popsr.int32) if as_tensor else i for i in range(3)]
    if inline:
        store_remote(buffers, tensors, at[2], io)
        store_remote(buffers, doubled, at[1], io)
        loaded = [load_remote(buffers, at[i], io) for i in (2, 1, 0)]
    else:
        store.bind(tensors).call(at[2])
        store.bind(doubled).call(at[1])
        loaded = [NamedTensors.pack(names, load.call(at[i])) for i in (2, 1, 0)]
    for each in loaded:
        assert each.keys_flat() == ["a", "z.b"]
    found = fetch(ir, *(each[key] for each in loaded for key in ("a", "z.b")))
    expected = [factor * data[key] + 0.0 for factor in (1, 2, 0) for key in ("a", "z.b")]
    for value, wanted in zip(found, expected, strict=True):
        assert_same_bits(value, wanted.astype(np.float32))


def test_loaded_values_are_copies(ir: popsr.Ir) -> None:
    data, tensors = tensors_of(ir)
    buffers = named_buffers(tensors)
    store_remote(buffers, tensors)
    loaded = load_remote(buffers)
    ops.add_(loaded.a, popsr.constant(1.0))
    between = load_remote(buffers)
    store_remote(
        buffers, NamedTensors(a=loaded.a, other=loaded.a)
    )  # keys that only one side has are left alone
    after = load_remote(buffers)
    found = fetch(ir, between.a, after.a, after.z.b)
    for value, wanted in zip(found, (data["a"], data["a"] + 1, data["z.b"]), strict=True):
        assert_same_bits(value, wanted)


def test_shards_are_kept_as_they_are(ir: popsr.Ir) -> None:
    data, whole = rows(ir, (4, 2))
    shard = rts.reduce_replica_sharded_tensor(whole)
    buffers = named_buffers(NamedTensors(s=shard))
    assert (buffers.s.tensor_shape, buffers.s.meta_shape) == ((2,), (4, 2))
    store_remote_graph(buffers).bind(NamedTensors(s=shard)).call(0)
    loaded = load_remote(buffers).s
    assert loaded.meta_shape == (4, 2)
    gathered = rts.gather_replica_sharded_tensor(loaded)
    assert_same_bits(fetch(ir, gathered)[0], np.broadcast_to(data.sum(axis=0), (4, 4, 2)))


def test_io_tiles_are_used_on_demand(ir: popsr.Ir) -> None:
    def kinds(io: bool) -> list[str]:
        return [op.kind for op in load_remote_graph(plain_buffers(), 1, io)[0].graph.ops]

    assert kinds(False) == ["remote_load"]
    assert kinds(True) == ["remote_load", "io_tile_copy"]
    store = store_remote_graph(plain_buffers(), 1, True).graph
    assert [op.kind for op in store.ops] == ["io_tile_copy", "remote_store"]


# Parts


def reduced(data: Array, grouping: popsr.ReplicaGrouping, op: str) -> Array:
    """Each replica's row becomes what its group's rows are together."""
    fold = {"add": np.sum, "mean": np.mean, "max": np.max}[op]
    return np.stack([unchecked(fold)(data[list(grouping.groups[g])], axis=0) for g in grouping.assignment])


def part(data: Array, grouping: popsr.ReplicaGrouping) -> Array:
    """Each replica's part of its row."""
    flat, size = data.reshape(len(data), -1), grouping.group_size
    length = flat.shape[1] // size
    ranks = [grouping.groups[g].index(r) for r, g in enumerate(grouping.assignment)]
    return np.stack([row[k * length : (k + 1) * length] for row, k in zip(flat, ranks, strict=True)])


GROUPS: dict[str, tuple[int, tuple[int, int] | None, tuple[int, int] | None]] = {
    "default": (4, None, None),
    "pairs": (4, (1, 2), (1, 2)),
    "shards of pairs of a sum of all": (4, (1, 4), (1, 2)),
    "strided": (8, (2, 4), (2, 4)),
    "shards of a stride": (8, (1, 8), (4, 2)),
    "data and tensor parallel": (8, (2, 2), (1, 2)),
    "reduce, do not shard": (4, (1, 4), (1, 1)),
    "shard, do not reduce": (4, (1, 1), (1, 4)),
}


@pytest.mark.parametrize("op", ["add", "mean", "max"])
@pytest.mark.parametrize("name", GROUPS)
def test_reduced_parts(name: str, op: Any) -> None:
    replicas, over, shard = GROUPS[name]
    ir = popsr.Ir(replicas)
    everyone = ir.replica_grouping()
    reduce_group = everyone if over is None else ir.replica_grouping(*over)
    shard_group = reduce_group if shard is None else ir.replica_grouping(*shard)
    with ir.main_graph, popsr.in_sequence():
        data, t = rows(ir, (4, 6))
        odd, u = rows(ir, (7,), 1)
        names = {"replica_group": None if over is None else reduce_group}
        sharded = rts.reduce_replica_sharded_tensor(
            t, op, shard_group=None if shard is None else shard_group, **names
        )
        whole = rts.reduce_replica_sharded_tensor(
            u, op, shard_group=None if shard is None else shard_group, **names
        )
        spec = rts.replica_sharded_spec(t, shard_group)
        assert (sharded.shape, sharded.meta_shape or None) == (spec.shape, spec.meta_shape or None)
        assert rts.replica_sharded_spec(u, shard_group) == popsr.TensorSpec((7,), F32)
        if sharded.meta_shape:
            assert rts.replica_sharded_spec(sharded, shard_group).shape == sharded.shape
        gathered = rts.gather_replica_sharded_tensor(sharded, replica_group=shard_group)
        assert gathered.shape == (4, 6)
        found = fetch(ir, sharded, whole, gathered)
    expected = reduced(data, reduce_group, op)
    size = shard_group.group_size
    assert_same_bits(found[0], expected if size == 1 else part(expected, shard_group))
    assert_same_bits(found[1], reduced(odd, reduce_group, op))
    # Members of a shard group had other sums when they are not reduced together: each gives its part.
    together = [
        expected[r]
        if size == 1
        else np.concatenate([part(expected, shard_group)[m] for m in members]).reshape(4, 6)
        for r, members in ((r, shard_group.groups[g]) for r, g in enumerate(shard_group.assignment))
    ]
    assert_same_bits(found[2], np.stack(together))


@pytest.mark.parametrize("io", [False, True])
def test_graphs_that_reduce_and_gather(io: bool) -> None:
    ir = popsr.Ir(8)
    data_parallel, tensor_parallel = ir.replica_grouping(2, 4), ir.replica_grouping(1, 2)
    with ir.main_graph, popsr.in_sequence():
        values, made = zip(*(rows(ir, shape, i) for i, shape in enumerate([(4, 2), (8,), (3,)])), strict=True)
        tensors = NamedTensors.from_dict(dict(zip(("w", "b.x", "a"), made, strict=True)))
        groups = NamedReplicaGrouping.from_dict(
            {"b.x": tensor_parallel, "a": ir.replica_grouping(group_size=1)}
        )
        reduce, names = rts.reduce_replica_sharded_graph(tensors, "mean", io, groups, data_parallel)
        assert names == reduce.args.keys_flat() == ["a", "b.x", "w"]
        assert [t.name for t in reduce.graph.inputs] == names
        parts = NamedTensors.pack(names, reduce.bind(tensors).call())
        assert [parts[k].shape for k in names] == [(3,), (4,), (2,)]
        own = NamedReplicaGrouping.from_dict({"w": data_parallel, "b.x": tensor_parallel})
        gather, gathered_names = rts.all_gather_replica_sharded_graph(parts, io, own)
        assert gathered_names == gather.args.keys_flat() == names
        gathered = NamedTensors.pack(names, gather.bind(parts).call())
        assert [gathered[k].shape for k in names] == [(3,), (8,), (4, 2)]
        used = {op.kind for op in (*reduce.graph.ops, *gather.graph.ops)}
        assert ("io_tile_copy" in used) is io
        facts = popsr.analysis.analyze(ir)
        for key, group in (("w", data_parallel), ("a", data_parallel)):
            assert facts.is_equal(gathered[key], group)
            assert not facts.is_equal(gathered[key])
        assert not facts.is_equal(parts.w, data_parallel)
        found = fetch(ir, *(gathered[k] for k in names))
    means = [reduced(value, data_parallel, "mean") for value in values]
    assert_same_bits(found[0], means[2])
    assert_same_bits(found[2], means[0])
    halves = part(means[1], tensor_parallel)
    pairs = [np.concatenate(halves[2 * (r // 2) : 2 * (r // 2) + 2]) for r in range(8)]
    assert_same_bits(found[1], np.stack(pairs))


@pytest.mark.parametrize("replicas", [4, 8])
def test_reducing_and_gathering_is_reducing(replicas: int) -> None:
    ir = popsr.Ir(replicas)
    with ir.main_graph, popsr.in_sequence():
        data, t = rows(ir, (replicas, 3))
        results = []
        for group in groupings(ir):
            shard = rts.reduce_replica_sharded_tensor(t, "add", group)
            results.append(rts.gather_replica_sharded_tensor(shard, replica_group=group))
        facts = popsr.analysis.analyze(ir)
        for result, group in zip(results, groupings(ir), strict=True):
            assert facts.is_equal(result, group)
        found = fetch(ir, *results)
    for value, group in zip(found, groupings(ir), strict=True):
        assert_same_bits(value, reduced(data, group, "add"))


def test_whole_tensors_pass_through_gathers(ir: popsr.Ir) -> None:
    _, t = rows(ir, (4,))
    assert rts.gather_replica_sharded_tensor(t) is t
    assert rts.gather_replica_sharded_tensor(t, True) is t
    spec = popsr.TensorSpec((8,), F32)
    assert rts.replica_sharded_spec(spec, ir.replica_grouping()) == popsr.TensorSpec((2,), F32, (8,))
    graph, names = rts.all_gather_replica_sharded_graph(NamedTensors())
    assert (names, graph.graph.inputs, graph.graph.outputs) == ([], (), ())
