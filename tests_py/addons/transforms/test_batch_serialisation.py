"""Serialised graphs compute what calls, written out, compute: streams, remote buffers, seeds, gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import addons, ops
from popsr._program.streams import StreamMode
from popsr.addons.transforms.batch_serialisation import (
    RemoteHandle,
    batch_serial_buffer,
    batch_serialise,
    batch_serialise_fwd_and_grad,
)
from tests_py.support.helpers import Array, assert_same_bits, make_variable

STEPS, ROWS = 4, 3
RNG = np.random.default_rng(11)
X = RNG.standard_normal((ROWS * STEPS, 2, 4)).astype(np.float32)
W = RNG.standard_normal((4, 4)).astype(np.float32)
SPEC = popsr.TensorSpec((2, 4), popsr.float32)
MODES = ["compute", "io", "io_overlapped"]


class Layer(addons.Module):
    """``tanh(x @ w)``, and how often it ran."""

    def build(self, x: popsr.Tensor) -> tuple[popsr.Tensor, popsr.Tensor]:
        product = x @ self.add_variable_input("w", lambda: W, popsr.float32)
        return ops.tanh(product), product


class Counting(addons.Module):
    """``x + runs``, where runs is state that each step changes."""

    def build(self, x: popsr.Tensor) -> popsr.Tensor:
        runs = self.add_variable_input("runs", lambda: np.zeros((), np.float32), popsr.float32, by_ref=True)
        with popsr.in_sequence():
            ops.add_(runs, popsr.constant(1.0, popsr.float32))
            return x + runs


class Noisy(addons.Module):
    def build(self, x: popsr.Tensor, seed: popsr.Tensor) -> popsr.Tensor:
        return ops.dropout(x, seed, p=0.5)


def run(ir: popsr.Ir, inputs: dict[Any, Array], transfers: int, output: Any, **options: Any) -> Array:
    ir.num_host_transfers = transfers
    with popsr.Session(ir, **options) as session:
        return session.run(inputs)[output]


def streams(mode: StreamMode = "replicate", shape: tuple[int, ...] = (2, 4)) -> tuple[Any, Any]:
    h2d = popsr.h2d_stream(shape, popsr.float32, "x", replicated_stream_mode=mode)
    return h2d, popsr.d2h_stream(shape, popsr.float32, "y")


# Streams and state


@pytest.mark.parametrize("replication", [1, 2])
@pytest.mark.parametrize("io_mode", MODES)
def test_streams_are_loaded_and_stored_in_each_step(io_mode: Any, replication: int) -> None:
    def program(serialised: bool) -> Array:
        ir = popsr.Ir(replication=replication)
        with ir.main_graph, popsr.in_sequence():
            x, y = streams("broadcast" if replication > 1 else "replicate")
            factories, graph = Layer().create_graph(SPEC)
            variables = factories.init()
            if serialised:
                inner = graph.graph
                result = batch_serialise(
                    graph, STEPS, {inner.inputs[0]: x}, {inner.outputs[0]: y}, {}, io_mode=io_mode
                )
                assert result.graph.graph.inputs[0].spec == popsr.TensorSpec((), popsr.int32)
                assert result.graph.graph.outputs == ()
                assert result.stored_buffers == {}
                assert result.remap_tensors(graph.args).to_dict() == result.graph.args.to_dict()
                result.graph.bind(variables).call(0)
            else:
                for _ in range(STEPS):
                    ops.host_store(y, graph.bind(variables).call(ops.host_load(x))[0])
        return run(ir, {x: X[:STEPS]}, STEPS, y, check=replication > 1)

    got = program(True)
    assert_same_bits(got, program(False))
    expect = np.tanh(X[:STEPS].astype(np.float64) @ W)
    np.testing.assert_allclose(got if replication == 1 else got[:, 1], expect, rtol=1e-5, atol=1e-6)


def test_inputs_by_reference_stay_so() -> None:
    ir = popsr.Ir()
    with ir.main_graph, popsr.in_sequence():
        x, y = streams()
        factories, graph = Counting().create_graph(SPEC)
        variables = factories.init()
        inner = graph.graph
        result = batch_serialise(graph, STEPS, {inner.inputs[0]: x}, {inner.outputs[0]: y}, {})
        result.graph.bind(variables).call(0)
    ir.num_host_transfers = STEPS
    with popsr.Session(ir, check=True) as session:
        got = session.run({x: X[:STEPS]})[y]
    assert_same_bits(got, X[:STEPS] + np.arange(1, STEPS + 1, dtype=np.float32)[:, None, None])
    assert float(session.get_tensor_data(variables.runs)) == STEPS


def test_inputs_without_handle_are_the_same_in_each_step_and_inputs_can_be_stored() -> None:
    ir = popsr.Ir()
    with ir.main_graph, popsr.in_sequence():
        y = popsr.d2h_stream((2, 4), popsr.float32, "y")
        factories, graph = Layer().create_graph(SPEC)
        result = batch_serialise(graph, STEPS, {}, {graph.graph.inputs[0]: y}, {})
        x = make_variable(X[0])
        result.graph.bind(factories.init()).call(0, x)
    assert_same_bits(run(ir, {}, STEPS, y), np.stack([X[0]] * STEPS))


@pytest.mark.parametrize("io_mode", MODES)
def test_each_step_has_a_seed_of_its_own(io_mode: Any) -> None:
    """Number i of what the seed is split into."""

    def program(serialised: bool) -> Array:
        ir = popsr.Ir()
        with ir.main_graph, popsr.in_sequence():
            y = popsr.d2h_stream((2, 4), popsr.float32, "y")
            seed = popsr.variable(np.array([3, 5], np.uint32), popsr.uint32)
            x = make_variable(np.ones((2, 4), np.float32))
            _, graph = Noisy().create_graph(SPEC, seed)
            inner = graph.graph
            if serialised:
                result = batch_serialise(
                    graph, STEPS, {}, {inner.outputs[0]: y}, {}, seed_input=inner.inputs[1], io_mode=io_mode
                )
                result.graph.call(0, seed, x)
            else:
                for each in ops.split_random_seed(seed, STEPS):
                    ops.host_store(y, graph.call(x, each)[0])
        return run(ir, {}, STEPS, y)

    got = program(True)
    assert_same_bits(got, program(False))
    assert len({each.tobytes() for each in got}) == STEPS


# Remote buffers


def through_buffers(
    write_offset: Any,
    read_offset: Any,
    order: list[tuple[str, int]],
    replication: int = 1,
    shard: bool = False,
) -> tuple[Array, popsr.RemoteBuffer]:
    """Streams to buffer, and buffer to streams, in rows as ``order`` says."""
    ir = popsr.Ir(replication=replication)
    with ir.main_graph, popsr.in_sequence():
        x, y = streams("broadcast" if replication > 1 else "replicate")
        factories, graph = Counting().create_graph(SPEC)
        variables = factories.init()
        (inner_x, _), inner_y = graph.graph.inputs, graph.graph.outputs[0]
        group = ir.replica_grouping() if shard else None
        buffer = batch_serial_buffer(inner_y, shard_group=group)
        write_handle = (buffer, write_offset) if group is None else RemoteHandle(buffer, write_offset, group)
        write = batch_serialise(graph, STEPS, {inner_x: x}, {}, {inner_y: write_handle}, rows=ROWS)
        read = batch_serialise(
            graph, STEPS, {inner_x: RemoteHandle(buffer, read_offset, group)}, {inner_y: y}, {}, rows=ROWS
        )
        assert write.stored_buffers == {inner_y: RemoteHandle(buffer, write_offset, group)}
        for kind, row in order:
            {"write": write, "read": read}[kind].graph.bind(variables).call(row)
    loads, stores = (STEPS * sum(kind == name for kind, _ in order) for name in ("write", "read"))
    assert loads == stores
    return run(ir, {x: X[:loads]}, loads, y, check=replication > 1), buffer


ORDER = [("write", 2), ("write", 0), ("read", 0), ("read", 2)]


@pytest.mark.parametrize("replication", [1, 2])
@pytest.mark.parametrize("shard", [False, True])
@pytest.mark.parametrize(
    ("write", "read", "entries"),
    [
        (0, 0, STEPS * ROWS),
        (1, 1, STEPS * (ROWS + 1)),
        (lambda n: n + 0, lambda n: n, STEPS * ROWS),
        (lambda n: 2 - n, lambda n: 2 - n, STEPS * ROWS),
    ],
    ids=["rows", "rows from 1", "function", "rows backwards"],
)
def test_rows_keep_their_values_apart(
    write: Any, read: Any, entries: int, shard: bool, replication: int
) -> None:
    got, buffer = through_buffers(write, read, ORDER, replication, shard)
    counts = np.arange(1, 4 * STEPS + 1, dtype=np.float32).reshape(4, STEPS, 1, 1)
    rows = X[: 2 * STEPS].reshape(2, STEPS, 2, 4) + counts[:2]
    expect = np.concatenate([rows[1] + counts[2], rows[0] + counts[3]])
    assert_same_bits(got if replication == 1 else got[:, -1], expect)
    assert buffer.entries == entries
    assert buffer.tensor_shape == ((4,) if shard and replication == 2 else (2, 4))


def test_without_offset_rows_share_their_entries() -> None:
    got, buffer = through_buffers(None, None, [("write", 0), ("write", 2), ("read", 1), ("read", 0)])
    counts = np.arange(1, 4 * STEPS + 1, dtype=np.float32).reshape(4, STEPS, 1, 1)
    last = X[STEPS : 2 * STEPS] + counts[1]
    assert_same_bits(got, np.concatenate([last + counts[2], last + counts[3]]))
    assert buffer.entries == STEPS


@pytest.mark.parametrize(
    ("replication", "group", "shape", "meta_shape"),
    [
        (1, None, (2, 4), ()),
        (4, None, (2, 4), ()),
        (4, (1, 4), (2,), (2, 4)),
        (4, (2, 2), (4,), (2, 4)),
        (3, (1, 3), (2, 4), ()),
    ],
)
def test_buffers_are_like_the_tensor_or_its_parts(
    replication: int, group: Any, shape: tuple[int, ...], meta_shape: tuple[int, ...]
) -> None:
    ir = popsr.Ir(replication=replication)
    with ir.main_graph:
        t = make_variable(X[0])
        buffer = batch_serial_buffer(t, 3, 5, None if group is None else ir.replica_grouping(*group))
    assert (buffer.tensor_shape, buffer.meta_shape, buffer.entries) == (shape, meta_shape, 15)
    assert buffer.tensor_dtype == popsr.float32


# Gradients


def differentiate(serialised: Callable[..., Any] | None, replication: int = 1, **options: Any) -> list[Array]:
    """Gradients of x as they are stored, and the mean gradient of w, after a forward and a backward pass."""
    ir = popsr.Ir(replication=replication)
    mode: StreamMode = "broadcast" if replication > 1 else "replicate"
    with ir.main_graph, popsr.in_sequence():
        x, y = streams(mode)
        of_y = popsr.h2d_stream((2, 4), popsr.float32, "dy", replicated_stream_mode=mode)
        factories, forward = Layer().create_graph(SPEC)
        inputs, outputs = forward.graph.inputs, forward.graph.outputs
        of_gradient, backward = addons.autodiff_with_accumulation(
            forward, forward.args.tensors, [outputs[0]], [inputs[0]]
        )
        variables, accumulators = factories.init(), of_gradient.init("grad")
        if serialised is not None:
            for result in serialised(forward, backward, x, of_y, y):
                result.graph.bind(variables).bind(
                    result.graph.args.to_mapping(accumulators) if "accum" in result.graph.args else {}
                ).call(1)
        else:
            calls = [forward.bind(variables).call_with_info(ops.host_load(x)) for _ in range(STEPS)]
            for call in calls:
                values = backward.grad_graph_info.inputs_dict(call)
                (dx,) = backward.bind(accumulators).call(ops.host_load(of_y), args=values)
                ops.host_store(y, dx)
    ir.num_host_transfers = STEPS
    with popsr.Session(ir, **options) as session:
        gradients = session.run({x: X[:STEPS], of_y: X[STEPS : 2 * STEPS]})[y]
    return [gradients, session.get_tensor_data(accumulators.accum.w)]


def every(forward: Any, backward: Any, x: Any, dy: Any, dx: Any, **options: Any) -> tuple[Any, Any]:
    loads = {forward.graph.inputs[0]: x, backward.graph.inputs[0]: dy}
    stores = {backward.graph.outputs[0]: dx}
    options.setdefault("store_buffers", {})
    return batch_serialise_fwd_and_grad(
        forward, backward, forward.args, STEPS, loads, stores, rows=2, **options
    )


def by_itself(forward: Any, *rest: Any) -> Any:
    results = every(forward, *rest)
    kept = [handle.buffer.entries for handle in results[0].stored_buffers.values()]
    assert set(results[0].stored_buffers) == {forward.graph.inputs[0], forward.graph.outputs[0]}
    assert kept == [2 * STEPS] * 2
    assert results[1].stored_buffers == {}
    return results


def in_buffers_of_mine(forward: Any, *rest: Any) -> Any:
    tensors = (forward.graph.inputs[0], forward.graph.outputs[0])
    mine = {t: RemoteHandle(batch_serial_buffer(t), None) for t in tensors}
    results = every(forward, *rest, store_buffers=mine)
    assert results[0].stored_buffers == mine
    return results


def in_shards(forward: Any, *rest: Any) -> Any:
    group = forward.graph.ir.replica_grouping()
    results = every(forward, *rest, store_buffers={forward.graph.outputs[0]: group}, io_mode="compute")
    handle = results[0].stored_buffers[forward.graph.outputs[0]]
    assert handle.shard_group == group
    assert handle.buffer.tensor_shape == (8 // group.group_size,) if group.group_size > 1 else (2, 4)
    return results


def weights_from_buffers(forward: Any, backward: Any, x: Any, dy: Any, dx: Any) -> Any:
    """Nothing is named: the gradient graph gets the weights from a buffer too."""
    loads = {forward.graph.inputs[0]: x, backward.graph.inputs[0]: dy}
    results = batch_serialise_fwd_and_grad(
        forward, backward, addons.NamedTensors(), STEPS, loads, {backward.graph.outputs[0]: dx}, {}, rows=2
    )
    assert forward.args.w in results[0].stored_buffers
    return results


@pytest.mark.parametrize("replication", [1, 2])
@pytest.mark.parametrize("serialised", [by_itself, in_buffers_of_mine, in_shards, weights_from_buffers])
def test_gradients_are_those_of_the_program_written_out(
    serialised: Callable[..., Any], replication: int
) -> None:
    got = differentiate(serialised, replication, check=replication > 1)
    for each, expect in zip(got, differentiate(None, replication), strict=True):
        assert_same_bits(each, expect)


def test_gradients_match_numpy() -> None:
    dx, dw = differentiate(by_itself)
    x, dy, w = X[:STEPS].astype(np.float64), X[STEPS : 2 * STEPS].astype(np.float64), W.astype(np.float64)
    of_product = dy * (1 - np.tanh(x @ w) ** 2)
    np.testing.assert_allclose(dx, of_product @ w.T, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(dw, np.mean(x.transpose(0, 2, 1) @ of_product, axis=0), rtol=1e-4, atol=1e-5)


def test_forward_and_gradient_steps_have_the_same_seeds() -> None:
    """Dropout drops the same elements both times."""
    ir = popsr.Ir()
    ir.num_host_transfers = STEPS
    with ir.main_graph, popsr.in_sequence():
        y, dx = (popsr.d2h_stream((2, 4), popsr.float32, name) for name in ("y", "dx"))
        x, dy = (popsr.h2d_stream((2, 4), popsr.float32, name) for name in ("x", "dy"))
        seed = popsr.variable(np.array([3, 5], np.uint32), popsr.uint32)
        _, forward = Noisy().create_graph(SPEC, seed)
        inputs, outputs = forward.graph.inputs, forward.graph.outputs
        backward = addons.autodiff(forward, grads_required=[inputs[0]])
        first, second = batch_serialise_fwd_and_grad(
            forward,
            backward,
            addons.NamedTensors(),
            STEPS,
            {inputs[0]: x, backward.graph.inputs[0]: dy},
            {outputs[0]: y, backward.graph.outputs[0]: dx},
            {},
            seed_input=inputs[1],
        )
        first.graph.call(0, seed)
        second.graph.call(0)
        assert [t.name for t in second.graph.graph.inputs] == ["row_offset"]
        assert first.stored_buffers[inputs[1]].buffer.tensor_shape == (2,)
    ones = np.ones((STEPS, 2, 4), np.float32)
    with popsr.Session(ir) as session:
        results = session.run({x: ones, dy: ones})
    assert_same_bits(results[y], results[dx])
    assert len({each.tobytes() for each in results[y]}) > 1


def test_inputs_are_the_row_then_the_seed_then_the_others() -> None:
    """Wherever the seed stands among the inputs of the graph; two rows have seeds of their own."""

    class Mixed(addons.Module):
        def build(self, x: popsr.Tensor, seed: popsr.Tensor, scale: popsr.Tensor) -> popsr.Tensor:
            w = self.add_variable_input("w", lambda: np.full((), 3, np.float32))
            return ops.dropout(x * scale, seed, p=0.5) * w

    ir = popsr.Ir()
    ir.num_host_transfers = 2 * STEPS
    with ir.main_graph, popsr.in_sequence():
        y, dx = (popsr.d2h_stream((2, 4), popsr.float32, name) for name in ("y", "dx"))
        x, dy = (popsr.h2d_stream((2, 4), popsr.float32, name) for name in ("x", "dy"))
        seeds = [popsr.constant(np.array([3, 100 * i], np.uint32)) for i in range(2)]
        scale = popsr.constant(np.float32(2))
        facts, forward = Mixed().create_graph(SPEC, seeds[0], scale)
        inputs, outputs = forward.graph.inputs, forward.graph.outputs
        backward = addons.autodiff(forward, grads_required=[inputs[0]])
        named = addons.NamedTensors.from_dict({"w": forward.args.w})
        first, second = batch_serialise_fwd_and_grad(
            forward,
            backward,
            named,
            STEPS,
            {inputs[0]: x, backward.graph.inputs[0]: dy},
            {outputs[0]: y, backward.graph.outputs[0]: dx},
            {},
            seed_input=inputs[1],
            rows=2,
        )
        names = [t.name for t in first.graph.graph.inputs]
        assert names == ["row_offset", "seed", "scale", "w"]
        assert first.remap_dict[inputs[1]] is first.graph.graph.inputs[1]
        assert "seed" not in [t.name for t in second.graph.graph.inputs]
        variables = facts.init()
        for row in (0, 1):
            first.graph.bind(variables).call(row, seeds[row], scale)
        for row in (0, 1):
            second.graph.bind(variables).call(row)
        reference = [
            forward.bind(variables).call(popsr.constant(np.ones((2, 4), np.float32)), each, scale)[0]
            for seed in seeds
            for each in ops.split_random_seed(seed, STEPS)
        ]
        out = popsr.d2h_stream((2, 4), popsr.float32)
        for t in reference:
            ops.host_store(out, t)
    ones = np.ones((2 * STEPS, 2, 4), np.float32)
    with popsr.Session(ir) as session:
        results = session.run({x: ones, dy: ones})
    assert_same_bits(results[y], results[out])
    assert_same_bits(results[dx] != 0, results[y] != 0)
    assert len({each.tobytes() for each in results[y]}) == 2 * STEPS
