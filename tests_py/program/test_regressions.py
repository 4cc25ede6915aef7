"""Regressions: each test is named after what broke."""

from __future__ import annotations

import subprocess
import sys
from typing import Any, Literal

import numpy as np
import pytest

import popsr
from popsr import ops, transforms
from popsr.errors import GraphError, ReplicaError, ShapeError, UnknownNameError
from popsr.ops import collectives, var_updates

MODES: tuple[dict[str, Any], ...] = ({}, {"dedup": False}, {"check": True})


def _run(ir: popsr.Ir, **options: Any) -> list[Any]:
    with popsr.Session(ir, **options) as session:
        return list(session.run().values())


def _store(t: popsr.Tensor) -> None:
    ops.host_store(popsr.d2h_stream(t.shape, t.dtype), t)


@pytest.mark.parametrize("options", MODES)
def test_product_that_reads_the_accumulator_it_is_added_to(options: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    start = rng.integers(-8, 8, (64, 64)).astype(np.float32)
    factor = rng.integers(-8, 8, (64, 64)).astype(np.float32)
    ir = popsr.Ir(replication=2)
    with ir.main_graph, popsr.in_sequence():
        w = popsr.variable(start)
        var_updates.accumulate_(w, w @ popsr.variable(factor))
    with popsr.Session(ir, **options) as session:
        session.run()
        np.testing.assert_array_equal(session.get_tensor_data(w), start + start @ factor)


@pytest.mark.parametrize("repeats", [0, 1, 3])
@pytest.mark.parametrize("options", MODES)
@pytest.mark.filterwarnings("ignore::popsr.ReplicaWarning")  # each replica has its own index
def test_loop_input_keeps_its_value_while_the_same_tensor_is_modified_by_reference(
    options: dict[str, Any], repeats: int
) -> None:
    ir = popsr.Ir(replication=2)

    def body(total: popsr.Tensor, kept: popsr.Tensor, modified: popsr.TensorByRef) -> popsr.Tensor:
        index = popsr.h2d_stream((4,), popsr.float32, name="index")
        var_updates.accumulate_(modified, ops.host_load(index))  # differs between the replicas
        return total + kept

    with ir.main_graph, popsr.in_sequence():
        w = popsr.variable(np.ones(4, np.float32))
        graph = ir.create_graph(body, w, w, w)
        (total,) = ops.repeat(graph, repeats, popsr.constant(np.zeros(4, np.float32)), w, w)
        _store(total)
        _store(w)
    with popsr.Session(ir, **options) as session:
        data = np.arange(2, dtype=np.float32)[:, None] + np.zeros((2, 4), np.float32)
        total_data, w_data = session.run(dict.fromkeys(session.expected_inputs(), data)).values()
    np.testing.assert_array_equal(total_data, np.full((2, 4), repeats, np.float32))
    np.testing.assert_array_equal(w_data, 1 + repeats * data)


@pytest.mark.parametrize("op", [ops.call, lambda graph, *args: ops.repeat(graph, 2, *args)])
def test_tensor_modified_through_two_inputs_of_one_call_is_refused(op: Any) -> None:
    ir = popsr.Ir(replication=2)

    def body(a: popsr.TensorByRef, b: popsr.TensorByRef) -> None:
        collectives.replicated_all_reduce_(a)
        ops.relu_(b)

    with ir.main_graph, popsr.in_sequence():
        w = popsr.variable(np.ones(4, np.float32))
        op(ir.create_graph(body, w, w), w, w)
    with pytest.raises(GraphError, match=r"Inplacing ambiguity detected.*passed twice"):
        popsr.Session(ir)


@pytest.mark.parametrize("options", MODES)
@pytest.mark.parametrize("op", ["add", "max"])
@pytest.mark.parametrize("dtype", [popsr.float32, popsr.bfloat16])
def test_matrix_times_vector_whose_result_is_reduced(
    options: dict[str, Any], op: Literal["add", "max"], dtype: popsr.dtype
) -> None:
    matrix = np.arange(20).reshape(5, 4) % 7
    ir = popsr.Ir(replication=2)
    with ir.main_graph:
        product = ops.matmul(popsr.variable(matrix, dtype), popsr.variable(np.ones(4), dtype))
        _store(collectives.replicated_all_reduce(product, op))
    (result,) = _run(ir, **options)
    expected = matrix.sum(1) * (2 if op == "add" else 1)
    np.testing.assert_array_equal(result.astype(np.float64), np.stack([expected, expected]))


def test_input_added_to_a_graph_that_is_called_is_refused() -> None:
    ir = popsr.Ir()
    graph = ir.create_empty_graph("late")
    with graph:
        popsr.graph_output(ops.tanh(popsr.graph_input((4,), popsr.float32)))
    with ir.main_graph:
        ops.call(graph, popsr.variable(np.zeros(4, np.float32)))
    with graph, pytest.raises(GraphError, match="is called already"):
        popsr.graph_input((4,), popsr.float32)
    popsr.Session(ir)


@pytest.mark.parametrize("group_size", [2**62, 2**63 - 1])
def test_group_size_whose_product_with_the_stride_overflows_is_refused(group_size: int) -> None:
    with pytest.raises(ReplicaError, match="groups do not tile the replicas"):
        popsr.Ir(replication=8).replica_grouping(4, group_size)


def test_tensor_whose_bytes_overflow_is_refused() -> None:
    ir = popsr.Ir(replication=4)
    with ir.main_graph:
        with pytest.raises(ShapeError, match="tensor is too big"):
            ops.init((2**33, 2**31), popsr.float32, "x")
        tall, wide = (popsr.variable(np.zeros(s, np.float32)) for s in ((2**20, 0), (0, 2**20)))
        square = tall @ wide
        row, column = ops.reshape(square, (1, 2**40)), ops.reshape(square, (2**40, 1))
        ops_before = len(ir.main_graph.ops) if hasattr(ir.main_graph, "ops") else None
        with pytest.raises(ShapeError, match="tensor is too big"):
            column @ row
        assert ops_before is None or len(ir.main_graph.ops) == ops_before


# Remote memory and shards


def test_entry_of_a_remote_buffer_is_not_a_tensor_for_users() -> None:
    ir = popsr.Ir(replication=2)
    with ir.main_graph:
        popsr.remote_buffer((2,), popsr.float32, 2)
        with pytest.raises(UnknownNameError, match="unknown tensor, got 'remote_buffer_1/0'"):
            ir.main_graph.get_tensor("remote_buffer_1/0")
        assert ir.main_graph.tensors == ()


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_recomputation_does_not_load_and_store_remote_memory_again(depth: int) -> None:
    ir = popsr.Ir()
    with ir.main_graph, popsr.in_sequence():
        buffer = popsr.remote_buffer((), popsr.float32, 1)
        x = popsr.variable(1.0)

        def forward(t: popsr.Tensor) -> popsr.Tensor:
            loaded = ops.remote_load(buffer, 0)
            ops.remote_store(buffer, 0, loaded + loaded)
            return ops.mul(t, loaded)

        def called(t: popsr.Tensor, level: int) -> popsr.Tensor:
            if level == 0:
                return forward(t)
            inner = ir.create_graph(called, t, level - 1)
            (result,) = ops.call(inner, t)
            return ops.mul(result, result)

        graph = ir.create_graph(called, x, depth)
        ops.repeat(graph, 1, x)  # its values are not handed out, so gradients compute them again
        with pytest.raises(GraphError, match="cannot be recomputed, got remote_"):
            transforms.autodiff(graph)


def test_gradient_of_a_shard_crosses_a_call() -> None:
    ir = popsr.Ir(replication=2)
    with ir.main_graph, popsr.in_sequence():
        _, shard = popsr.replica_sharded_variable(np.arange(3, dtype=np.float32))
        inner = ir.create_graph(lambda t: ops.mul(t, t), shard)

        def forward(t: popsr.Tensor) -> popsr.Tensor:
            return ops.sum(collectives.replicated_all_gather(ops.call(inner, t)[0]), 0)

        graph = ir.create_graph(forward, shard)
        call = ops.call_with_info(graph, shard)
        gradient = transforms.autodiff(graph)
        _store(*ops.call(gradient.graph, 1.0, inputs_dict=gradient.inputs_dict(call)))
    (got,) = _run(ir)
    np.testing.assert_array_equal(got, [[0, 2], [4, 0]])


@pytest.mark.parametrize(("last", "differs"), [(2, False), (1, True)])
def test_padding_of_a_shard_is_not_a_divergence(last: int, differs: bool) -> None:
    ir = popsr.Ir(replication=4)
    with ir.main_graph, popsr.in_sequence():
        whole, shard = popsr.replica_sharded_variable(np.zeros(3, np.float32), shard_over=2)
        stream = popsr.h2d_stream((2,), popsr.float32)
        var_updates.copy_var_update_(shard, ops.host_load(stream))
    data = np.array([[0, 1], [2, 3], [0, 1], [2, 9]], np.float32)
    data[3, 0] = last
    with popsr.Session(ir, strict=("L3",), weights_to_host_on_exit=False) as session:
        session.run({stream: data})
        if differs:
            with pytest.raises(ReplicaError, match="differ at element 2"):
                session.get_tensor_data(whole)
        else:
            np.testing.assert_array_equal(session.get_tensor_data(whole), [0, 1, 2])


def test_shard_of_another_tensor_is_not_stored() -> None:
    ir = popsr.Ir(replication=2)
    with ir.main_graph:
        _, shard = popsr.replica_sharded_variable(np.zeros((2, 2), np.float32))
        buffer = popsr.replica_sharded_buffer((4,), popsr.float32)
        with pytest.raises(ShapeError, match=r"got a shard of \[2, 2\], expected one of \[4\]"):
            ops.remote_store(buffer, 0, shard)
        with pytest.raises(ShapeError, match=r"keeps shards, got meta_shape \(4,\)"):
            popsr.remote_variable(np.zeros(2, np.float32), buffer)


@pytest.mark.parametrize("options", [*MODES, {"num_threads": 1}])
@pytest.mark.parametrize("view", [False, True])
def test_rows_of_a_tensor_are_added_to_itself_as_they_were(options: dict[str, Any], view: bool) -> None:
    rng = np.random.default_rng(0)
    start = rng.integers(-99, 99, (2, 500, 3)).astype(np.float32)
    indices = rng.integers(0, 500, 500).astype(np.int32)
    ir = popsr.Ir(replication=2)
    with ir.main_graph, popsr.in_sequence():
        t = popsr.variable(start, replica_grouping=ir.replica_grouping(group_size=1))
        rows = ops.reshape_(t, (500, 3)) if view else t
        var_updates.sparse_accumulate_(t, rows, popsr.constant(indices))
    with popsr.Session(ir, **options) as session:
        session.run()
        got = session.get_tensor_data(t)
    for replica in range(2):
        expect = start[replica].copy()
        np.add.at(expect, indices, start[replica])
        np.testing.assert_array_equal(got[replica], expect)


def test_the_op_where_a_required_gradient_stops_is_named() -> None:
    graph = popsr.Ir().create_empty_graph("g")
    with graph:
        x = popsr.graph_input((1, 1, 4), popsr.float32, "x")
        popsr.graph_output(ops.tanh(ops.increment_mod(ops.exp(x), 1, 3)))
    with pytest.raises(
        GraphError, match=r"gradient of '.*/x' f32\[1, 1, 4\], got increment_mod at .*\.py:\d+ "
    ):
        transforms.autodiff(graph)


def test_more_replicas_than_memory_has_room_for_are_said_with_their_size() -> None:
    code = (
        "import resource, popsr\n"
        "pages = int(open('/proc/self/statm').read().split()[0])\n"
        "limit = pages * resource.getpagesize() + (2 << 20)\n"
        "resource.setrlimit(resource.RLIMIT_AS, (limit, limit))\n"
        "try: popsr.Ir(replication=2**20)\n"
        "except MemoryError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("replication: not enough memory, got a need of 12582912 bytes at once")


def test_errors_of_programs_that_do_not_fit_into_memory_have_their_size() -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        _store(ops.sum(ops.random_normal(popsr.constant([1, 2], popsr.uint32), (2**57,))))
    with pytest.raises(MemoryError, match=r"^session: not enough memory, got a need of \d{18} bytes at once"):
        _run(ir)
