"""Variables in remote buffers and in shards: where values live, what the host sees, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import popsr
from popsr import errors, ops
from popsr._program.variables.remote_buffer import RemoteBuffer
from popsr.io import PyWeightsIO
from tests_py.support.helpers import Array, assert_same_bits
from tests_py.support.unchecked import unchecked

F32 = popsr.float32
Shape, Replica, Graph = errors.ShapeError, errors.ReplicaError, errors.GraphError


def shards(value: Array, count: int) -> Array:
    """The parts of one value, padded with zeros."""
    length = -(-value.size // count)
    padded = np.zeros(length * count, value.dtype)
    padded[: value.size] = value.reshape(-1)
    return padded.reshape(count, length)


def expected_shards(rows: Array, grouping: popsr.ReplicaGrouping, count: int) -> Array:
    """The part of each replica: so many consecutive members of a group share one value."""
    return np.stack(
        [
            shards(rows[group], count)[grouping.groups[group].index(r) % count]
            for r, group in enumerate(grouping.assignment)
        ]
    )


# Remote variables


@pytest.mark.parametrize("given", ["array", "list", "mapped"])
@pytest.mark.parametrize("shape", [(), (1,), (2, 3), (1, 3)])
def test_one_group_may_have_its_row(shape: tuple[int, ...], given: str, tmp_path: Path) -> None:
    """As programs make data that stack a row for each group; the host sees the value without it."""
    ir = popsr.Ir(replication=4)
    value = np.arange(np.prod(shape), dtype=np.float32).reshape(shape) + 1
    mapped = np.memmap(tmp_path / "row", np.float32, "w+", shape=(1, *shape))
    mapped[0] = value
    row: Any = {"array": value[None], "list": value[None].tolist(), "mapped": mapped}[given]
    with ir.main_graph, popsr.in_sequence():
        buffer = popsr.remote_buffer(shape, F32, entries=2)
        a = popsr.remote_variable(row, buffer, 0, F32, replica_grouping=ir.replica_grouping())
        b = popsr.remote_variable(value, buffer, 1, F32)
        ops.remote_store(buffer, 0, ops.remote_load(buffer, 0) + ops.remote_load(buffer, 1))
    assert (a.shape, a.shape_on_host, b.shape) == (shape, shape, shape)
    with popsr.Session(ir, "ipu_hw") as session:
        session.run()
        assert_same_bits(np.asarray(session.get_tensor_data(a)), value + value)
        session.write_variable_data(a, value)
    if given != "list":
        assert_same_bits(np.asarray(session.get_tensor_data(a)), value)


def test_one_group_of_shards_may_have_its_row() -> None:
    ir = popsr.Ir(replication=4)
    value = np.arange(6, dtype=np.float32).reshape(2, 3)
    with ir.main_graph:
        buffer = popsr.replica_sharded_buffer((2, 3), F32, entries=2)
        a = popsr.remote_replica_sharded_variable(value[None], buffer, 0)
        b = popsr.remote_replica_sharded_variable(value, buffer, 1)
        ops.remote_load(buffer, 0)
    assert (a.shape, b.shape) == ((2, 3), (2, 3))
    with popsr.Session(ir) as session:
        assert_same_bits(session.get_tensor_data(a), session.get_tensor_data(b))
    with ir.main_graph:
        other = popsr.remote_buffer((2, 3), F32)
        for wrong in (
            np.zeros((2, 2, 3), np.float32),
            np.zeros((1, 1, 2, 3), np.float32),
            np.zeros((1, 3, 2), np.float32),
        ):
            with pytest.raises(
                errors.ShapeError, match=r"remote_variable: 't' does not match its buffer, got "
            ):
                popsr.remote_variable(wrong, other)


@pytest.mark.parametrize("assignment", [[0, 0, 0, 0], [0, 0, 1, 1], [0, 1, 1, 0], [0, 1, 2, 3]], ids=str)
@pytest.mark.parametrize("mode", ["one_per_group", "all_replicas"])
def test_remote_variables(assignment: list[int], mode: Any) -> None:
    ir = popsr.Ir(replication=4)
    grouping = ir.replica_grouping_from_assignments(assignment)
    groups = grouping.num_groups
    data = np.arange(2 * 6 * groups, dtype=np.float32).reshape(2, groups, 2, 3)
    with ir.main_graph, popsr.in_sequence():
        buffer = popsr.remote_buffer((2, 3), F32, entries=3)
        a, b = (
            popsr.remote_variable(
                data[i] if groups > 1 else data[i, 0], buffer, 2 * i, F32, "ab"[i], True, grouping, mode
            )
            for i in range(2)
        )
        loaded = ops.remote_load(buffer, 0)
        out = popsr.d2h_stream((2, 3), F32)
        ops.host_store(out, loaded)
        ops.remote_store(buffer, 0, ops.add(loaded, popsr.constant(1.0)))
    assert (a.shape, a.meta_shape, a.shape_on_host) == ((2, 3), (), b.shape_on_host)
    session = popsr.Session(ir)
    several = mode == "all_replicas" and groups < 4
    with session:
        for i in range(2):
            assert_same_bits(session.run()[out], data[0, assignment] + i)
        seen = session.get_tensors_data([a, b])
        whole = data[:, assignment] if several else data.reshape(2, *a.shape_on_host)
        assert_same_bits(seen[a], whole[0] + 2)
        assert_same_bits(seen[b], whole[1])
        session.write_weights(PyWeightsIO({"a": -data[0, assignment]}))
        assert_same_bits(session.run()[out], -data[0, assignment])
        session.run()
        session.weights_from_host()
        assert_same_bits(session.get_tensor_data(a), -whole[0])
    assert_same_bits(session.get_tensor_data(a), -whole[0])


@pytest.mark.parametrize("options", [{}, {"dedup": False}, {"check": True}], ids=str)
def test_entries_stored_at_offsets_known_when_running(options: Any) -> None:
    """Every entry may change, so every variable there is kept before a run and read after it."""
    ir = popsr.Ir(replication=2)
    with ir.main_graph, popsr.in_sequence():
        buffer = popsr.remote_buffer((2,), F32, 2)
        first, second = (popsr.remote_variable(np.full(2, 1 + i, np.float32), buffer, i) for i in range(2))
        at = popsr.h2d_stream((), popsr.uint32, replicated_stream_mode="broadcast")
        offset = ops.host_load(at)
        loaded = ops.remote_load(buffer, offset)
        ops.remote_store(buffer, offset, ops.add(loaded, popsr.constant(10.0)))
    with popsr.Session(ir, **options) as session:
        session.run({at: np.uint32(1)})
        assert session.get_tensor_data(second).tolist() == [12, 12]
        session.run({at: np.uint32(0)})
        session.run({at: np.uint32(1)})
        assert session.get_tensors_data([first, second])[first].tolist() == [11, 11]
        assert session.get_tensor_data(second).tolist() == [22, 22]
        session.run({at: np.uint32(0)})
        session.weights_from_host()
        assert session.get_tensor_data(first).tolist() == [11, 11]


@pytest.mark.filterwarnings("ignore:L2:popsr.ReplicaWarning")  # v drifts on purpose
def test_rows_of_an_iterator_and_one_warning_for_unequal_groups() -> None:
    ir = popsr.Ir(replication=4)
    with ir.main_graph, popsr.in_sequence():
        buffer = popsr.remote_buffer((2,), F32)
        v = popsr.remote_variable(
            iter([[1.0, 2.0], [3.0, 4.0]]), buffer, replica_grouping=ir.replica_grouping(group_size=2)
        )
        x = popsr.h2d_stream((2,), F32)
        ops.remote_store(buffer, 0, ops.host_load(x))
    with popsr.Session(ir) as session:
        assert session.get_tensor_data(v).tolist() == [[1, 2], [3, 4]]
        session.run({x: np.array([[5, 6], [5, 6], [7, 8], [7, 9]], np.float32)})
        with pytest.warns(
            popsr.ReplicaWarning, match="replicas 2 and 3 of one group of 't' differ at element 1"
        ):
            assert session.get_tensor_data(v).tolist() == [[5, 6], [7, 8]]


# Shards


@st.composite
def sharded(draw: Any) -> tuple[list[int], int | None, tuple[int, ...]]:
    groups, size = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    if groups * size == 1:
        size = 2
    const = draw(st.booleans())
    labels = [g for g in range(groups) for _ in range(size)]
    labels = labels if const else draw(st.permutations(labels))
    order = {label: i for i, label in enumerate(dict.fromkeys(labels))}
    shape = tuple(draw(st.lists(st.integers(0, 4), max_size=3)))
    return [order[label] for label in labels], draw(st.sampled_from([None, 1, 2, 4])), shape


@given(
    case=sharded(),
    mode=st.sampled_from(["one_per_group", "all_replicas"]),
    remote=st.booleans(),
    options=st.sampled_from([{}, {"dedup": False}, {"check": True}]),
)
@settings(max_examples=150, derandomize=True, deadline=None, database=None)
def test_shards_of_random_variables(
    case: tuple[list[int], int | None, tuple[int, ...]], mode: Any, remote: bool, options: Any
) -> None:
    assignment, over, shape = case
    ir = popsr.Ir(replication=len(assignment))
    grouping = ir.replica_grouping_from_assignments(assignment)
    size = grouping.const_rg.group_size
    if over is not None and size % over:
        over = None
    count = size if over is None else over
    rng = np.random.default_rng(len(shape))
    rows = rng.standard_normal((grouping.num_groups, *shape)).astype(np.float32)
    data = rows if len(rows) > 1 else rows[0]
    with ir.main_graph, popsr.in_sequence():
        if remote:
            buffer = popsr.replica_sharded_buffer(data.shape, F32, grouping, over, entries=2)
            v = popsr.remote_replica_sharded_variable(
                data, buffer, 1, replica_grouping=grouping, retrieval_mode=mode
            )
            shard = ops.remote_load(buffer, 1)
        else:
            v, shard = popsr.replica_sharded_variable(
                data, replica_grouping=grouping, shard_over=over, retrieval_mode=mode
            )
        out = popsr.d2h_stream(shard.shape, F32)
        ops.host_store(out, shard)
        if remote:
            ops.remote_store(buffer, 1, ops.add(shard, shard))
        else:
            ops.add_(shard, shard)
    elements = int(np.prod(shape))
    assert (shard.shape, shard.meta_shape) == ((-(-elements // count),), shape)
    assert (v.shape, v.meta_shape, v.shape_on_host) == (shape, (), data.shape)
    several = mode == "all_replicas" and grouping.group_size > 1
    with popsr.Session(ir, **options) as session:
        assert_same_bits(session.run()[out], expected_shards(rows, grouping, count))
        assert_same_bits(session.get_tensor_data(v), (rows[assignment] if several else data) * 2)
        session.write_weights(PyWeightsIO({v: rows[assignment]}))
        assert_same_bits(session.run()[out], expected_shards(rows, grouping, count))
        buffers = {v: np.zeros((len(assignment) if several else len(rows), *shape), np.float32)}
        session.read_weights(PyWeightsIO(buffers))
        assert_same_bits(buffers[v], (rows[assignment] if several else rows) * 2)


def test_shards_of_a_value_are_on_consecutive_members() -> None:
    ir = popsr.Ir(replication=4)
    with ir.main_graph:
        v, shard = popsr.replica_sharded_variable([1, 2], name="w", shard_over=2)
        out = popsr.d2h_stream((1,), popsr.int32)
        ops.host_store(out, shard)
    assert (v.id, shard.id, type(shard)) == ("w", "w_shard", popsr.Tensor)
    with popsr.Session(ir) as session:
        assert session.run()[out].reshape(-1).tolist() == [1, 2, 1, 2]


@pytest.mark.parametrize(
    ("assignment", "shape", "over", "entry", "meta"),
    [
        ([0, 0, 0, 0], (2, 5), None, 3, (2, 5)),
        ([0, 0, 0, 0], (2, 5), 2, 5, (2, 5)),
        ([0, 0, 0, 0], (2, 5), 1, 10, (2, 5)),
        ([0, 0, 1, 1], (2, 2, 5), None, 5, (2, 5)),
        ([0, 1, 2, 3], (4, 3), None, 3, (3,)),
        ([0, 0, 1, 1, 0, 0, 1, 1], (2, 3), None, 2, (3,)),  # parts of 2 have a constant stride
        ([0, 1, 1, 0], (2, 3), None, 3, (3,)),
        ([0, 0], (), None, 1, ()),
    ],
    ids=str,
)
def test_sharded_buffers(assignment: list[int], shape: Any, over: int | None, entry: int, meta: Any) -> None:
    ir = popsr.Ir(replication=len(assignment))
    with ir.main_graph:
        grouping = ir.replica_grouping_from_assignments(assignment)
        buffer = popsr.replica_sharded_buffer(shape, popsr.bfloat16, grouping, over, 2)
    assert isinstance(buffer, RemoteBuffer)
    assert (buffer.tensor_shape, buffer.meta_shape, buffer.entries) == ((entry,), meta, 2)
    assert buffer.tensor_dtype is popsr.bfloat16


def test_a_plain_buffer_becomes_one_of_shards() -> None:
    ir = popsr.Ir(replication=4)
    with ir.main_graph:
        buffer = popsr.remote_buffer((2,), F32, 2)
        assert buffer.meta_shape == ()
        popsr.remote_replica_sharded_variable(np.zeros((2, 3), np.float32), buffer, 0)
        assert unchecked(buffer.meta_shape) == (2, 3)
        popsr.remote_replica_sharded_variable(np.ones((2, 3), np.float32), buffer, 1)
        out = popsr.d2h_stream((2,), F32)
        ops.host_store(out, ops.remote_load(buffer, 1))
    with popsr.Session(ir) as session:
        assert session.run()[out].tolist() == [[1, 1], [1, 1], [1, 1], [0, 0]]


# Bad input

Bad = tuple[str, Callable[[popsr.Ir, RemoteBuffer], Any], type[Exception], str]
REMOTE, SHARDED = popsr.remote_variable, popsr.remote_replica_sharded_variable
Z6 = np.zeros(6, np.float32)

# The buffer has two entries of shape (6,); the first is taken.
BAD: list[Bad] = [
    (
        "shape",
        lambda ir, b: REMOTE(Z6[:5], b, 1, name="w"),
        Shape,
        r"remote_variable: 'w' does not match its ",
    ),
    ("rank", lambda ir, b: REMOTE(Z6.reshape(2, 3), b, 1), Shape, r"float32\[2, 3\], expected float32\[6\]"),
    ("dtype", lambda ir, b: REMOTE(Z6.astype(np.int32), b, 1), Shape, r"int32\[6\], expected float32\[6\]"),
    ("taken", lambda ir, b: REMOTE(Z6, b, name="w"), Graph, r"offset 0 for 'w', which holds 'first'"),
    (
        "taken-shard",
        lambda ir, b: SHARDED(np.zeros(24, np.float32), b),
        Graph,
        r"entry is taken, got offset 0",
    ),
    ("offset", lambda ir, b: REMOTE(Z6, b, 2), errors.OutOfRangeError, r"got offset 2, expected 0 to 1"),
    ("negative", lambda ir, b: REMOTE(Z6, b, -1), errors.OutOfRangeError, r"got offset -1, expected 0 to 1"),
    (
        "no-int",
        lambda ir, b: REMOTE(Z6, b, unchecked(1.0)),
        errors.ArgumentTypeError,
        r"offset is not an int, got 1\.0",
    ),  # type: ignore[arg-type]
    ("no-buffer", lambda ir, b: REMOTE(Z6, Z6), errors.ArgumentTypeError, r"not a RemoteBuffer, got array"),  # type: ignore[arg-type]
    (
        "mode",
        lambda ir, b: REMOTE(Z6, b, 1, retrieval_mode=unchecked("x")),
        errors.AttributeValueError,
        r"mode, got 'x'",
    ),  # type: ignore[arg-type]
    (
        "group-row",
        lambda ir, b: REMOTE(Z6, b, 1, replica_grouping=ir.replica_grouping(group_size=2)),
        Shape,
        r"remote_variable 't': .* got shape \(6,\), expected \(2, \.\.\.\)",
    ),
    (
        "group-rows-in-the-buffer",
        lambda ir, b: REMOTE(
            np.zeros((2, 6)), popsr.remote_buffer((2, 6), F32), 0, None, "w", True, _pairs(ir)
        ),
        Shape,
        r"got float32\[6\], expected float32\[2, 6\]",
    ),
    (
        "shard-size",
        lambda ir, b: SHARDED(np.zeros(25, np.float32), b, 1),
        Shape,
        r"got float32\[7\], expected float32\[6\]",
    ),
    (
        "shard-dtype",
        lambda ir, b: SHARDED(np.zeros(24, np.int32), b, 1),
        Shape,
        r"got int32\[6\], expected float32\[6\]",
    ),
    (
        "meta-shape",
        lambda ir, b: SHARDED(np.zeros((4, 6)), popsr.replica_sharded_buffer((24,), F32)),
        Shape,
        r"buffer keeps shards of another shape than 't', got meta_shape \(24,\), expected \(4, 6\)",
    ),
    (
        "shards-of-other-groups",
        lambda ir, b: SHARDED(
            np.zeros((2, 6)), popsr.replica_sharded_buffer((12,), F32), replica_grouping=_pairs(ir)
        ),
        Replica,
        r"shards do not tile the groups, got shard_over 4, expected a divisor of 2",
    ),
    (
        "buffer-over",
        lambda ir, b: popsr.replica_sharded_buffer((6,), F32, shard_over=3),
        Replica,
        r"replica_sharded_buffer: shards do not tile the groups, got shard_over 3, expected a divisor of 4",
    ),
    (
        "buffer-over-larger",
        lambda ir, b: popsr.replica_sharded_buffer((2, 6), F32, _pairs(ir), 4),
        Replica,
        r"got shard_over 4, expected a divisor of 2",
    ),
    (
        "buffer-over-zero",
        lambda ir, b: popsr.replica_sharded_buffer((6,), F32, shard_over=0),
        errors.AttributeValueError,
        r"replica_sharded_buffer: shard_over: got 0",
    ),
    (
        "buffer-rows",
        lambda ir, b: popsr.replica_sharded_buffer((6,), F32, _pairs(ir)),
        Shape,
        r"replica_sharded_buffer: no row per group, got shape \(6,\), expected \(2, \.\.\.\)",
    ),
    (
        "buffer-scalar",
        lambda ir, b: popsr.replica_sharded_buffer((), F32, _pairs(ir)),
        Shape,
        r"no row per group, got shape \(\)",
    ),
    (
        "buffer-entries",
        lambda ir, b: popsr.replica_sharded_buffer((6,), F32, entries=0),
        errors.AttributeValueError,
        r"Entries must be a non-zero, positive integer, got 0",
    ),
    (
        "variable-over",
        lambda ir, b: popsr.replica_sharded_variable(Z6, shard_over=3),
        Replica,
        r"replica_sharded_variable: shards do not tile .* shard_over 3, expected a divisor of 4",
    ),
    (
        "variable-rows",
        lambda ir, b: popsr.replica_sharded_variable(iter([Z6]), replica_grouping=_pairs(ir)),
        Shape,
        r"too few rows, got no row 1",
    ),
]


def _pairs(ir: popsr.Ir) -> popsr.ReplicaGrouping:
    return ir.replica_grouping(group_size=2)


@pytest.mark.parametrize(("make", "error", "text"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_bad_remote_and_sharded_variables(
    make: Callable[[popsr.Ir, RemoteBuffer], Any], error: type[Exception], text: str
) -> None:
    ir = popsr.Ir(replication=4)
    with ir.main_graph:
        buffer = popsr.remote_buffer((6,), F32, 2)
        first = popsr.remote_variable(Z6, buffer, 0, name="first")
        with pytest.raises(error, match=text) as raised:
            make(ir, buffer)
    assert "\n" not in str(raised.value)
    assert isinstance(raised.value, errors.Error)
    assert ir.main_graph.variables == (first,)
    assert buffer.meta_shape == ()


@pytest.mark.parametrize(
    "make",
    [
        lambda: SHARDED(Z6, popsr.remote_buffer((6,), F32)),
        lambda: popsr.replica_sharded_variable(Z6),
    ],
    ids=["remote", "device"],
)
def test_one_replica_cannot_shard(make: Callable[[], Any]) -> None:
    ir = popsr.Ir()
    with (
        ir.main_graph,
        pytest.raises(Replica, match=r"_variable: there is nothing to shard over, got 1 replica"),
    ):
        make()
    assert ir.main_graph.variables == ()


def test_buffers_and_variables_of_the_main_graph_of_one_ir() -> None:
    other, ir = popsr.Ir(replication=2), popsr.Ir(replication=2)
    with other.main_graph:
        buffer = popsr.remote_buffer((6,), F32)
    with (
        ir.main_graph,
        pytest.raises(Graph, match=r"^remote_variable: remote buffer of another Ir, got Remote"),
    ):
        REMOTE(Z6, buffer)
    with other.create_empty_graph("g"):
        for make in (lambda: REMOTE(Z6, buffer), lambda: popsr.replica_sharded_variable(Z6)):
            with pytest.raises(Graph, match=r"made in graph '.*', expected the main graph"):
                make()
    assert other.main_graph.variables == ()
