"""Remote memory while programs run: values through calls and loops, shards, what the host sees, bad input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import popsr
from popsr import errors, ops
from popsr._program.tensor import TensorByRef
from popsr.analysis import analyze
from popsr.ops import collectives, var_updates
from tests_py.support.helpers import Array, assert_same_bits, dtype, np_dtype, random_array
from tests_py.support.unchecked import unchecked

F32, I32 = popsr.float32, popsr.int32
ENTRIES, SHAPE = 3, (5,)
MODES: list[dict[str, Any]] = [{}, {"dedup": False}, {"check": True}, {"num_threads": 2}]


# Random programs against NumPy
# A program is a function of a machine: one emits popsr's ops, the other computes with a row of each replica.


class Device:
    """Emits ops."""

    def __init__(self, ir: popsr.Ir, buffer: Any) -> None:
        self.ir, self.buffer = ir, buffer

    def load(self, offset: Any) -> Any:
        return ops.remote_load(self.buffer, offset)

    def load_into(self, offset: Any, t: Any) -> None:
        ops.remote_load_(self.buffer, offset, t)

    def store(self, offset: Any, t: Any) -> None:
        ops.remote_store(self.buffer, offset, t)

    def add(self, a: Any, b: Any) -> Any:
        return ops.add(a, b)

    def add_into(self, t: Any, x: Any) -> None:
        ops.add_(t, x)

    def reduce(self, x: Any, size: int) -> Any:
        return collectives.replicated_all_reduce(x, "add", self.ir.replica_grouping(1, size))

    def repeat(self, body: Any, count: int | None, x: Any, total: Any, offset: Any) -> Any:
        def build(x: popsr.Tensor, total: TensorByRef, offset: popsr.Tensor) -> Any:
            with popsr.in_sequence():
                return body(x, total, offset)

        graph = self.ir.create_graph(build, x, total, offset)
        if count is None:
            return ops.call(graph, x, total, offset)[0]
        return ops.repeat(graph, count, x, total, offset)[0]


class Host:
    """Computes with arrays of one row a replica."""

    def __init__(self, memory: Array) -> None:
        self.memory = memory  # (entries, replicas, *shape)
        self.replicas = np.arange(memory.shape[1])

    def load(self, offset: Any) -> Array:
        return self.memory[offset, self.replicas]

    def load_into(self, offset: Any, t: Array) -> None:
        t[...] = self.load(offset)

    def store(self, offset: Any, t: Array) -> None:
        self.memory[offset, self.replicas] = t

    def add(self, a: Array, b: Array) -> Array:
        return a + b

    def add_into(self, t: Array, x: Array) -> None:
        t += x

    def reduce(self, x: Array, size: int) -> Array:
        sums: Array = x.reshape(-1, size, *SHAPE).sum(1, dtype=x.dtype)
        return np.repeat(sums, size, 0)

    def repeat(self, body: Any, count: int | None, x: Array, total: Array, offset: Array) -> Array:
        x = x.copy()
        for _ in range(1 if count is None else count):
            x = body(x, total, offset.copy()).copy()
        return x


Step = tuple[str, int, int]


def run_steps(machine: Any, steps: list[Step], pool: list[Any], total: Any, offsets: list[Any]) -> None:
    """Each step takes its operands from ``pool`` and appends its result, if any."""
    for kind, i, j in steps:
        x, y = pool[i % len(pool)], pool[j % len(pool)]
        at = j % ENTRIES if j % 2 else offsets[j % len(offsets)]
        if kind == "load":
            pool.append(machine.load(at))
        elif kind == "load-into":
            machine.load_into(at, total)
        elif kind == "store":
            machine.store(at, x)
        elif kind == "add":
            pool.append(machine.add(x, y))
        elif kind == "add-into":
            machine.add_into(total, x)
        elif kind == "reduce":
            pool.append(machine.reduce(x, 1 + j % 2))
        else:
            inner = STEPS_OF_BODIES[i % len(STEPS_OF_BODIES)]

            def body(a: Any, t: Any, offset: Any, inner: list[Step] = inner) -> Any:
                values = [a]
                run_steps(machine, inner, values, t, [offset])
                return values[-1]

            count = (None, 0, 1, 3)[j % 4]
            pool.append(machine.repeat(body, count, x, total, offsets[i % len(offsets)]))


STEPS_OF_BODIES: list[list[Step]] = [
    [("load", 0, 0), ("store", 0, 1), ("add", 0, 1), ("store", 2, 0)],
    [("store", 0, 0), ("load-into", 0, 1), ("reduce", 0, 1), ("add-into", 1, 0), ("load", 0, 2)],
    [("add-into", 0, 0), ("loop", 0, 3), ("store", 1, 5), ("load", 0, 3)],  # a loop in a loop
]
KINDS = st.sampled_from(["load", "load-into", "store", "add", "add-into", "reduce", "loop", "loop"])


def draw_rows(rng: np.random.Generator, assignment: list[int], shape: tuple[int, ...], name: str) -> Array:
    return random_array(rng, (max(assignment) + 1, *shape), name)


def by_groups(rows: Array) -> Array:
    """Data of a variable: without the dimension of a single group."""
    return rows if len(rows) > 1 else rows[0]


@given(
    steps=st.lists(st.tuples(KINDS, st.integers(0, 20), st.integers(0, 20)), min_size=3, max_size=12),
    assignments=st.lists(
        st.sampled_from([[0, 0, 0, 0], [0, 0, 1, 1], [0, 1, 0, 1], [0, 1, 1, 0], [0, 1, 2, 3]]),
        min_size=6,
        max_size=6,
    ),
    seed=st.integers(0, 99),
)
@settings(max_examples=250, derandomize=True, deadline=None, database=None)
@pytest.mark.filterwarnings("ignore::popsr.ReplicaWarning")  # they drift as it happens
def test_random_programs(steps: list[Step], assignments: list[list[int]], seed: int) -> None:
    rng = np.random.default_rng(seed)
    ir = popsr.Ir(replication=4)
    state = [draw_rows(rng, a, SHAPE, "int32") for a in assignments[:4]]
    index = [rng.integers(0, ENTRIES, max(a) + 1).astype(np.int32) for a in assignments[4:]]
    groups = [ir.replica_grouping_from_assignments(a) for a in assignments]
    rows = [data[a] for data, a in zip([*state, *index], assignments, strict=True)]
    with ir.main_graph, popsr.in_sequence():
        buffer = popsr.remote_buffer(SHAPE, I32, ENTRIES)
        residents = [  # the last entry has none: zeros
            popsr.remote_variable(
                by_groups(data), buffer, i, replica_grouping=groups[i], retrieval_mode="all_replicas"
            )
            for i, data in enumerate(state[: ENTRIES - 1])
        ]
        x, total = (
            popsr.variable(by_groups(state[i]), replica_grouping=groups[i]) for i in (ENTRIES - 1, ENTRIES)
        )
        offsets = [
            popsr.variable(by_groups(index[i]), replica_grouping=groups[4 + i], name="at") for i in range(2)
        ]
        pool: list[Any] = [x, total]
        run_steps(Device(ir, buffer), steps, pool, total, offsets)
        streams = [popsr.d2h_stream(SHAPE, I32) for _ in pool]
        for stream, tensor in zip(streams, pool, strict=True):
            ops.host_store(stream, tensor)
    facts = [analyze(ir).partition(tensor) for tensor in pool]
    for options in MODES:
        host = Host(np.stack([*rows[: ENTRIES - 1], np.zeros_like(rows[0])]))
        kept = rows[ENTRIES].copy()
        with popsr.Session(ir, **options) as session:
            for _ in range(2):
                values = [rows[ENTRIES - 1], kept]
                run_steps(host, steps, values, kept, rows[4:])
                got = session.run()
                for stream, value, fact in zip(streams, values, facts, strict=True):
                    assert_same_bits(got[stream], value, f"{options}")
                    assert all((value[list(block)] == value[block[0]]).all() for block in fact.blocks)
            for i, variable in enumerate(residents):
                data = session.get_tensor_data(variable)
                several = groups[i].group_size > 1
                assert_same_bits(data, host.memory[i] if several else host.memory[i].reshape(data.shape))


# Shards


@pytest.mark.parametrize("options", MODES, ids=str)
@pytest.mark.parametrize(("stride", "over"), [(1, 4), (1, 2), (2, 2)])
def test_sharded_training(stride: int, over: int, options: dict[str, Any]) -> None:
    """An optimiser on shards, updated by reference in a loop, is one on whole values."""
    ir = popsr.Ir(replication=4)
    pair = ir.replica_grouping(stride, over)
    whole = np.arange(1, 7, dtype=np.float32).reshape(2, 3)
    gradient = np.arange(24, dtype=np.float32).reshape(4, 2, 3)
    rows = np.stack([whole + 10 * g for g in range(pair.num_groups)])
    with ir.main_graph, popsr.in_sequence():
        weights, shard = popsr.replica_sharded_variable(by_groups(rows), replica_grouping=pair)
        buffer = popsr.replica_sharded_buffer(by_groups(rows).shape, F32, pair, entries=2)
        moment = popsr.remote_replica_sharded_variable(by_groups(rows * 0), buffer, 1, replica_grouping=pair)
        stream = popsr.h2d_stream((2, 3), F32)

        def step(w: TensorByRef, g: popsr.Tensor, at: popsr.Tensor) -> None:
            with popsr.in_sequence():
                m = ops.add(ops.remote_load(buffer, at), g)
                ops.remote_store(buffer, at, m)
                ops.add_(w, m)

        g = collectives.replicated_reduce_scatter(ops.host_load(stream), "add", pair, True)
        at = popsr.constant(1, I32)
        ops.repeat(ir.create_graph(step, shard, g, at), 3, shard, g, at)
        gathered = collectives.replicated_all_gather(shard, group=pair)
        out = popsr.d2h_stream((2, 3), F32)
        ops.host_store(out, gathered)
    assert (g.shape, g.meta_shape) == (shard.shape, shard.meta_shape) == ((-(-6 // over),), (2, 3))
    sums = np.stack([gradient[list(members)].sum(0) for members in pair.groups])
    with popsr.Session(ir, **options) as session:
        result = session.run({stream: gradient})[out]
        assert_same_bits(result, (rows + 6 * sums)[list(pair.assignment)])
        assert_same_bits(session.get_tensor_data(weights), by_groups(rows + 6 * sums))
        assert_same_bits(session.get_tensor_data(moment), by_groups(3 * sums))
        session.write_variable_data(weights, by_groups(rows))
        session.run({stream: gradient})  # the moment goes on from where it was
        assert_same_bits(session.get_tensor_data(weights), by_groups(rows + 15 * sums))


@pytest.mark.parametrize("shape", [(5,), (), (0,), (2, 3)], ids=str)
@pytest.mark.parametrize("name", ["bool", "int8", "bfloat16", "float16", "float64"])
@pytest.mark.parametrize("assignment", [[0, 0, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1], [0, 1, 2, 3]], ids=str)
def test_host_views(assignment: list[int], name: str, shape: tuple[int, ...]) -> None:
    """Whatever the dtype and shape: what is written is on every member and comes back, whole and in shards."""
    rng = np.random.default_rng(5)
    rows, later = (draw_rows(rng, assignment, shape, name) for _ in range(2))
    ir = popsr.Ir(replication=4)
    groups = ir.replica_grouping_from_assignments(assignment)
    over = groups.const_rg.group_size
    with ir.main_graph, popsr.in_sequence():
        plain = popsr.remote_buffer(shape, dtype(name), 2)
        parts = popsr.replica_sharded_buffer(by_groups(rows).shape, dtype(name), groups)
        options: dict[str, Any] = {"dtype": dtype(name), "downcast": False, "replica_grouping": groups}
        variables = [
            popsr.remote_variable(by_groups(rows), plain, 1, **options),
            popsr.remote_replica_sharded_variable(by_groups(rows), parts, 0, **options),
            popsr.replica_sharded_variable(by_groups(rows), **options)[0],
        ]
        out = popsr.d2h_stream(shape, dtype(name))
        ops.host_store(out, ops.remote_load(plain, 1))
        shard = popsr.d2h_stream(parts.tensor_shape, dtype(name))
        ops.host_store(shard, ops.remote_load(parts, 0))
    with popsr.Session(ir) as session:
        for value in (rows, later):
            results = session.run()
            assert_same_bits(results[out], value[assignment])
            for replica, group in enumerate(assignment):
                padded = np.zeros((over, *parts.tensor_shape), np_dtype(name))
                padded.reshape(-1)[: value[group].size] = value[group].reshape(-1)
                index = groups.groups[group].index(replica) % over
                assert_same_bits(results[shard][replica], padded[index])
            for variable in variables:
                assert_same_bits(session.get_tensor_data(variable), by_groups(value))
            session.write_variables_data(dict.fromkeys(variables, by_groups(later)))


# Entries


def test_entries_added_after_ops_were_made() -> None:
    ir = popsr.Ir(replication=2)
    with ir.main_graph, popsr.in_sequence():
        buffer = popsr.remote_buffer((), F32, 1)
        at = popsr.h2d_stream((), popsr.uint8)
        out = popsr.d2h_stream((), F32)
        offset = ops.host_load(at)
        loaded = ops.remote_load(buffer, offset)
        ops.host_store(out, loaded)
        buffer.entries = 3
        popsr.remote_variable(
            np.array([1, 2], np.float32), buffer, 2, replica_grouping=ir.replica_grouping(1, 1)
        )
        ops.remote_store(buffer, 0, loaded)
    assert analyze(ir).partition(loaded).num_blocks == 2
    with popsr.Session(ir) as session:
        for offsets, expected in (([2, 1], [1, 0]), ([0, 2], [1, 2]), ([0, 0], [1, 2])):
            assert session.run({at: np.uint8(unchecked(offsets))})[out].tolist() == expected
        buffer.entries = 4
        with pytest.raises(
            errors.GraphError, match=r"^run: the program changed since the session was made, got "
        ):
            session.run({at: np.array([0, 0], np.uint8)})


def test_offset_and_destination_are_one_tensor() -> None:
    """Every replica reads its offset before it is overwritten."""
    ir = popsr.Ir(replication=3)
    with ir.main_graph, popsr.in_sequence():
        buffer = popsr.remote_buffer((), I32, 3)
        for i in range(3):
            popsr.remote_variable(
                np.array([i, i + 1, i + 2], np.int32) % 3,
                buffer,
                i,
                replica_grouping=ir.replica_grouping(1, 1),
            )
        at = popsr.variable(np.array([2, 1, 0], np.int32), replica_grouping=ir.replica_grouping(1, 1))
        ops.remote_load_(buffer, at, at)
        ops.remote_store(buffer, at, at)
        out = popsr.d2h_stream((), I32)
        ops.host_store(out, at)
    with popsr.Session(ir) as session:
        assert session.run()[out].tolist() == [2, 2, 2]
        assert session.run()[out].tolist() == [2, 2, 2]


@pytest.mark.parametrize("offset", [3, -1])
@pytest.mark.parametrize("op", ["remote_load", "remote_load_", "remote_store"])
@pytest.mark.filterwarnings("ignore::popsr.ReplicaWarning")  # each replica stores elsewhere
def test_offsets_that_only_the_run_knows(op: str, offset: int) -> None:
    ir = popsr.Ir(replication=2)
    with ir.main_graph, popsr.in_sequence():
        buffer = popsr.remote_buffer((2,), F32, 3)
        kept = popsr.remote_variable(np.array([1, 2], np.float32), buffer, 0)
        t = popsr.variable(np.array([3, 4], np.float32))
        at = popsr.h2d_stream((), I32)
        index = ops.host_load(at)
        getattr(ops, op)(buffer, index, *([] if op == "remote_load" else [t]))
    with popsr.Session(ir) as session:
        with pytest.raises(
            errors.OutOfRangeError,
            match=f"{op}: offset is outside the buffer, got {offset}, expected 0 to 2 of remote buffer 1",
        ):
            session.run({at: np.array([0, offset], np.int32)})
        assert session.get_tensor_data(kept).tolist() == [1, 2]  # nothing was stored
        assert session.get_tensor_data(t).tolist() == [3, 4]


# Bad input

Bad = tuple[str, Callable[[Any, Any], Any], type[Exception], str]
Type, Range, Shape = errors.ArgumentTypeError, errors.OutOfRangeError, errors.ShapeError
Value, Graph = errors.AttributeValueError, errors.GraphError
OUTSIDE = "offset is outside the buffer, got {}, expected 0 to 1 of remote buffer 1"
LOAD, LOAD_, STORE, BUFFER = ops.remote_load, ops.remote_load_, ops.remote_store, popsr.remote_buffer
OTHER = (
    r"^Tensor {}_out does not match buffer\. remote_\w+: got {}\[{}\], expected f32\[2\] of remote buffer 1"
)

# The buffer has two entries float32[2]; t is such a tensor.
BAD: list[Bad] = [
    ("load-behind", lambda b, t: LOAD(b, 2), Range, OUTSIDE.format(2)),
    ("load-before", lambda b, t: LOAD(b, -1), Range, OUTSIDE.format(-1)),
    ("load-far", lambda b, t: LOAD(b, 2**70), Range, OUTSIDE.format(2**70)),
    ("load-constant", lambda b, t: LOAD(b, popsr.constant(2)), Range, OUTSIDE.format(2)),
    ("store-behind", lambda b, t: STORE(b, 2, t), Range, "remote_store: " + OUTSIDE.format(2)),
    ("into-behind", lambda b, t: LOAD_(b, 2, t), Range, "remote_load_: " + OUTSIDE.format(2)),
    ("offset-float", lambda b, t: LOAD(b, 1.0), Type, r"offset is not an int or Tensor, got 1\.0"),  # type: ignore[arg-type]
    ("offset-bool", lambda b, t: LOAD(b, True), Type, "offset is not an int or Tensor, got True"),
    ("offset-none", lambda b, t: STORE(b, None, t), Type, "offset is not an int or Tensor, got None"),  # type: ignore[arg-type]
    ("offset-row", lambda b, t: LOAD(b, np.array([1])), Type, "offset is not an int or Tensor"),  # type: ignore[arg-type]
    ("offset-floats", lambda b, t: LOAD(b, t), errors.DTypeError, "input offset has the wrong"),
    ("offset-two", lambda b, t: LOAD(b, popsr.constant([0, 1])), Shape, "expected one element"),
    ("no-buffer", lambda b, t: LOAD(t, 0), Type, "not a RemoteBuffer, got Variable"),
    ("no-tensor", lambda b, t: STORE(b, 0, 1.0), Type, "t is not a Tensor, got float"),  # type: ignore[arg-type]
    ("store-dtype", lambda b, t: STORE(b, 0, ops.cast(t, I32)), Shape, OTHER.format("cast", "i32", 2)),
    ("into-shape", lambda b, t: LOAD_(b, 1, ops.init((3,), F32)), Shape, OTHER.format("init", "f32", 3)),
    ("into-dtype", lambda b, t: LOAD_(b, 0, ops.cast(t, I32)), Shape, OTHER.format("cast", "i32", 2)),
    ("into-constant", lambda b, t: LOAD_(b, 0, popsr.constant([1.0, 2.0])), Graph, "modified but const"),
    ("entries", lambda b, t: BUFFER((2,), F32, 0), Value, "Entries must be a non-zero, positive inte"),
    ("entries-many", lambda b, t: BUFFER((2,), F32, 2**31), Value, "got 2147483648, expected 1"),
    ("entries-huge", lambda b, t: BUFFER((2,), F32, 2**70), Value, f"got {2**70}, expected 1 to"),
    ("shrink", lambda b, t: setattr(b, "entries", 1), Value, "cannot shrink, got 1 entries, expected 2"),
    ("info", lambda b, t: b.set_remote_buffer_info(F32, (3,), 2), Shape, "buffer 1 is of another type, got"),
    ("too-big", lambda b, t: BUFFER((2**61,), F32), Shape, "remote_buffer: tensor is too big"),
    ("matches", lambda b, t: b.validate_tensor_matches_buffer(t, 2), Shape, "^Tensor t does not match"),
    ("id-is-fixed", lambda b, t: setattr(b, "remote_buffer_id", 2), AttributeError, "no setter"),
]


@pytest.mark.parametrize(("make", "error", "text"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_bad_remote_memory(make: Callable[[Any, Any], Any], error: type[Exception], text: str) -> None:
    ir = popsr.Ir(replication=2)
    with ir.main_graph, popsr.in_sequence():
        buffer = popsr.remote_buffer((2,), F32, 2)
        t = popsr.variable([1.0, 2.0], F32)
        with pytest.raises(error, match=text) as raised:
            make(buffer, t)
        assert "\n" not in str(raised.value.args[0])
        assert (buffer.entries, buffer.meta_shape, buffer.tensor_shape) == (2, (), (2,))
        assert popsr.remote_buffer((), F32).remote_buffer_id == 2  # none was made
        var_updates.copy_var_update_(t, ops.remote_load(buffer, 0))
    with popsr.Session(ir) as session:  # the program runs as if nothing had been tried
        session.run()
        assert session.get_tensor_data(t).tolist() == [0, 0]
