"""Serialised batches whose activations lie in parts on the members of groups, in remote buffers.

Values are those of the program written out, bit for bit, and NumPy's.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import addons, errors, ops
from popsr.addons import rts
from popsr.addons.remote import create_remote_buffer
from popsr.addons.transforms.batch_serialisation import (
    RemoteHandle,
    batch_serial_buffer,
    batch_serialise,
    batch_serialise_fwd_and_grad,
)
from tests_py.support.helpers import Array, assert_same_bits

F32 = popsr.float32
STEPS, ROWS, ROW = 2, 3, 1
RNG = np.random.default_rng(3)
W = RNG.standard_normal((4, 4)).astype(np.float32)
SPEC = popsr.TensorSpec((2, 4), F32)


class Layer(addons.Module):
    """``exp(tanh(x @ w))``: the weight comes whole, the activations are."""

    def build(self, x: popsr.Tensor) -> popsr.Tensor:
        return ops.exp(ops.tanh(x @ self.add_variable_input("w", lambda: W, F32)))


class InParts(addons.Module):
    """As ``Layer``, with the weight and an activation in parts on all replicas."""

    def build(self, x: popsr.Tensor) -> popsr.Tensor:
        weight = rts.gather_replica_sharded_tensor(
            self.add_replica_sharded_variable_input("w", lambda: W, F32)
        )
        part = ops.collectives.replica_sharded_slice(ops.tanh(x @ weight))
        return rts.gather_replica_sharded_tensor(ops.exp(part))


def grouping(replicas: int, stride: int, size: int, transposed: bool = False) -> popsr.ReplicaGrouping:
    """Groups of so many replicas."""
    groups = popsr.Ir(replicas).replica_grouping(stride, size)
    return groups.transpose() if transposed else groups


def shared(group: popsr.ReplicaGrouping, seed: int) -> Array:
    """Data of each step, alike in each group."""
    data = np.random.default_rng(seed).standard_normal((STEPS, group.num_groups, 2, 4))
    return data[:, list(group.assignment)].astype(np.float32)


def differentiate(layer: addons.Module, groups: popsr.ReplicaGrouping, serialised: Any) -> list[Array]:
    """Gradients of x, a row a step and replica, and the mean gradient of w on the first replica."""
    ir = popsr.Ir(groups.num_replicas)
    ir.num_host_transfers = STEPS
    with ir.main_graph, popsr.in_sequence():
        x, dy = (popsr.h2d_stream((2, 4), F32, name) for name in ("x", "dy"))
        dx = popsr.d2h_stream((2, 4), F32, "dx")
        factories, forward = layer.create_graph(SPEC)
        ones = ir.replica_grouping(group_size=1)
        of_gradient, backward = addons.autodiff_with_accumulation(
            forward,
            forward.args.tensors,
            forward.graph.outputs[:1],
            forward.graph.inputs[:1],
            replica_groupings=addons.named_replica_grouping.NamedReplicaGrouping(w=ones),
        )
        buffers = addons.named_variable_buffers(factories, shard_over_dict=False)
        factories.init_remote(buffers)
        state = addons.remote.load_remote(buffers)
        sums = of_gradient.init("sum")
        if serialised is None:
            calls = [forward.bind(state).call_with_info(ops.host_load(x)) for _ in range(STEPS)]
            for call in calls:
                values = backward.grad_graph_info.inputs_dict(call)
                ops.host_store(dx, backward.bind(sums).call(ops.host_load(dy), args=values)[0])
        else:
            loads, stores, options = serialised(forward, backward, groups)
            loads = {forward.graph.inputs[0]: x, backward.graph.inputs[0]: dy, **loads}
            results = batch_serialise_fwd_and_grad(
                forward,
                backward,
                options.pop("named", forward.args),
                STEPS,
                loads,
                {backward.graph.outputs[0]: dx},
                stores,
                rows=ROWS,
                **options,
            )
            for result, also in zip(results, (addons.NamedTensors(), sums), strict=True):
                tensors = state.copy()
                tensors.update(also)
                result.graph.bind(tensors).call(ROW)
    data = {x: shared(groups, 1), dy: shared(groups, 2)}
    with popsr.Session(ir, check=True) as session:
        gradients = session.run(data)[dx]
    return [gradients, np.asarray(session.get_tensor_data(sums.accum.w))[0]]


def kept(forward: Any, handle: Callable[[popsr.Tensor], Any]) -> dict[popsr.Tensor, Any]:
    """A handle for the input and the output."""
    return {t: handle(t) for t in (forward.graph.inputs[0], forward.graph.outputs[0])}


def by_group(forward: Any, backward: Any, group: Any) -> Any:
    return {}, kept(forward, lambda _: group), {}


def by_handle(forward: Any, backward: Any, group: Any) -> Any:
    def handle(t: popsr.Tensor) -> RemoteHandle:
        return RemoteHandle(batch_serial_buffer(t, STEPS, ROWS, group), 0, group)

    return {}, kept(forward, handle), {"io_mode": "compute"}


def shared_by_rows(forward: Any, backward: Any, group: Any) -> Any:
    """Buffers of ``create_remote_buffer``, rows that share their entries."""

    def handle(t: popsr.Tensor) -> RemoteHandle:
        with t.ir.main_graph:
            return RemoteHandle(create_remote_buffer(t.spec, STEPS, group), None, group)

    return {}, kept(forward, handle), {"io_mode": "io_overlapped"}


def by_load_handles(forward: Any, backward: Any, group: Any) -> Any:
    """The gradient graph's inputs say where they come from; nothing is named."""
    stores = {
        t: RemoteHandle(batch_serial_buffer(t, STEPS, ROWS, group), lambda row: 2 - row, group)
        for t in {c.fwd_tensor for c in backward.grad_graph_info.expected_inputs[1:]}
    }
    inputs = zip(backward.graph.inputs, backward.grad_graph_info.expected_inputs, strict=False)
    loads = {theirs: stores[c.fwd_tensor] for theirs, c in inputs if c.fwd_tensor in stores}
    del loads[backward.graph.inputs[0]]
    return loads, stores, {"named": addons.NamedTensors()}


def without_group(forward: Any, backward: Any, group: Any) -> Any:
    """Buffers with a part on each replica say by their shape that all replicas are the group."""
    handles = kept(forward, lambda t: (batch_serial_buffer(t, STEPS, ROWS, t.ir.replica_grouping()), 0))
    return {}, handles, {}


ROUTES = [by_group, by_handle, shared_by_rows, by_load_handles]
GROUPS: dict[str, tuple[Any, ...]] = {
    "all": (4, 1, 4),
    "neighbours": (4, 1, 2),
    "strided": (4, 2, 2),
    "each alone": (4, 1, 1),
    "without a stride": (8, 2, 2, True),
}
CASES = [*itertools.product(ROUTES, GROUPS), (without_group, "all")]


@pytest.mark.parametrize(("route", "group"), CASES)
def test_activations_in_parts(route: Any, group: str) -> None:
    got = differentiate(Layer(), grouping(*GROUPS[group]), route)
    written_out = differentiate(Layer(), grouping(*GROUPS[group]), None)
    for each, expect in zip(got, written_out, strict=True):
        assert_same_bits(each, expect)
    check(got, grouping(*GROUPS[group]))


def check(got: list[Array], groups: popsr.ReplicaGrouping) -> None:
    """Against NumPy; a gradient of w in parts is the first replica's."""
    x, dy = (shared(groups, seed).astype(np.float64) for seed in (1, 2))
    h = np.tanh(x @ W)
    of_product = dy * np.exp(h) * (1 - h**2)
    np.testing.assert_allclose(got[0], of_product @ W.T, rtol=1e-4, atol=1e-5)
    of_w = np.mean(x[:, 0].transpose(0, 2, 1) @ of_product[:, 0], 0).reshape(-1)[: got[1].size]
    np.testing.assert_allclose(got[1].reshape(-1), of_w, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("named", [True, False])
def test_graphs_with_parts_of_their_own(named: bool) -> None:
    """Weights and activations that are parts in the graph are kept as they are, named or from buffers."""

    def route(forward: Any, backward: Any, group: Any) -> Any:
        return {}, {}, {} if named else {"named": addons.NamedTensors()}

    got = differentiate(InParts(), grouping(4, 1, 4), route)
    for each, expect in zip(got, differentiate(InParts(), grouping(4, 1, 4), None), strict=True):
        assert_same_bits(each, expect)
    check(got, grouping(4, 1, 4))


@pytest.mark.parametrize("place", ["buffers", "handles", "new buffer"])
def test_parts_that_the_host_put_into_the_buffer(place: str) -> None:
    """Remote variables in parts are loaded step by step, put together, and their results stored in parts."""
    ir = popsr.Ir(4)
    data = np.random.default_rng(5).standard_normal((ROWS, STEPS, 2, 4)).astype(np.float32)
    with ir.main_graph, popsr.in_sequence():
        everyone = ir.replica_grouping()
        factories, graph = Layer().create_graph(SPEC)
        x, y = graph.graph.inputs[0], graph.graph.outputs[0]
        source, target = (batch_serial_buffer(t, STEPS, ROWS, everyone) for t in (x, y))
        for entry, each in enumerate(data.reshape(-1, 2, 4)):
            popsr.remote_replica_sharded_variable(each, source, entry)
        group = everyone if place == "handles" else None
        load, store = RemoteHandle(source, 0, group), RemoteHandle(target, 0, group)
        stores: Any = {y: everyone if place == "new buffer" else store}
        result = batch_serialise(graph, STEPS, {x: load}, {}, stores, rows=ROWS)
        if place == "new buffer":
            target = result.stored_buffers[y].buffer
        assert result.stored_buffers == {y: RemoteHandle(target, 0, everyone)}
        result.graph.bind(factories.init()).call(2)
        out = popsr.d2h_stream((2,), F32)
        for step in range(STEPS):
            ops.host_store(out, ops.remote_load(target, 2 * STEPS + step))
    ir.num_host_transfers = STEPS
    with popsr.Session(ir, check=True) as session:
        got = session.run()[out]
    expect = np.exp(np.tanh(data[2].astype(np.float64) @ W)).reshape(STEPS, 4, 2)
    np.testing.assert_allclose(got, expect, rtol=1e-5)


@pytest.mark.parametrize("shards", [(1, 2), (2, 2)])
def test_fewer_parts_than_replicas_need_their_groups(shards: tuple[int, int]) -> None:
    ir = popsr.Ir(4)
    with ir.main_graph:
        _, graph = Layer().create_graph(SPEC)
        y = graph.graph.outputs[0]
        buffer = batch_serial_buffer(y, STEPS, 1, ir.replica_grouping(*shards))
        for group in (None, ir.replica_grouping()):
            with pytest.raises(
                errors.ShapeError,
                match=r"of another shape, got \(4,\), expected \(2,( 4)?\), or shard_group=\.\.\., the groups",
            ):
                batch_serialise(graph, STEPS, {}, {}, {y: RemoteHandle(buffer, 0, group)})


def test_tensors_inside_the_graph_have_no_buffers() -> None:
    """Errors by handle and by group, in both functions; nothing is made."""
    ir = popsr.Ir(4)
    with ir.main_graph:
        _, graph = Layer().create_graph(SPEC)
        backward = addons.autodiff(graph)
        inner = next(t for t in graph.graph.tensors if t not in (*graph.graph.inputs, *graph.graph.outputs))
        loads = {backward.graph.inputs[0]: popsr.h2d_stream((2, 4), F32)}
        for value in (ir.replica_grouping(), batch_serial_buffer(inner)):
            stores: Any = {inner: value}
            for call in (
                lambda stores=stores: batch_serialise(graph, STEPS, {}, {}, stores),
                lambda stores=stores: batch_serialise_fwd_and_grad(
                    graph, backward, graph.args, STEPS, loads, {}, stores
                ),
            ):
                with pytest.raises(
                    errors.GraphError, match="store_buffers has a tensor that callers of the graph"
                ):
                    call()


@pytest.mark.parametrize("group", ["all", "strided", "without a stride"])
def test_layers_hand_on_activations_and_gradients_in_parts(group: str) -> None:
    """A row of a buffer for each value between layers, as in phased execution, forward and backward, against NumPy."""
    groups, layers = grouping(*GROUPS[group]), 3
    ir = popsr.Ir(groups.num_replicas)
    ir.num_host_transfers = STEPS
    with ir.main_graph, popsr.in_sequence():
        x, dy = (popsr.h2d_stream((2, 4), F32, name) for name in ("x", "dy"))
        dx = popsr.d2h_stream((2, 4), F32, "dx")
        factories, forward = Layer().create_graph(SPEC)
        of_gradient, backward = addons.autodiff_with_accumulation(
            forward, forward.args.tensors, grads_required=forward.graph.inputs[:1]
        )
        between, gradients = (
            batch_serial_buffer(forward.graph.inputs[0], shard_group=groups) for _ in range(2)
        )

        def row(buffer: popsr.RemoteBuffer, offset: int) -> RemoteHandle:
            return RemoteHandle(buffer, offset, groups)

        (of_x, _), of_y = forward.graph.inputs, forward.graph.outputs[0]
        of_dy, of_dx = backward.graph.inputs[0], backward.graph.outputs[0]
        first, second = batch_serialise_fwd_and_grad(
            forward,
            backward,
            forward.args,
            STEPS,
            {of_x: row(between, 0), of_dy: row(gradients, 1)},
            {},
            {of_y: row(between, 1), of_dx: row(gradients, 0)},
            rows=layers,
        )
        copy = addons.GraphWithNamedArgs(ir.create_graph(lambda t: t, SPEC))
        given, result = copy.graph.inputs[0], copy.graph.outputs[0]
        for stream, target in ((x, row(between, 0)), (dy, row(gradients, layers))):
            batch_serialise(copy, STEPS, {given: stream}, {}, {result: target}).graph.call(0)
        weights, sums = factories.init(), of_gradient.init("sum")
        for layer in range(layers):
            first.graph.bind(weights).call(layer)
        sums.update(weights)
        for layer in reversed(range(layers)):
            second.graph.bind(sums).call(layer)
        batch_serialise(copy, STEPS, {given: row(gradients, 0)}, {result: dx}, {}).graph.call(0)
    data = [shared(groups, seed)[:, [0] * groups.num_replicas] for seed in (1, 2)]
    with popsr.Session(ir, check=True) as session:
        got = session.run({x: data[0], dy: data[1]})[dx]
        of_w = session.get_tensor_data(sums.accum.w)

    values, of_value, expect_w = [data[0].astype(np.float64)], data[1].astype(np.float64), []
    for _ in range(layers):
        values.append(np.exp(np.tanh(values[-1] @ W)))
    for given_value in values[-2::-1]:
        h = np.tanh(given_value @ W)
        of_product = of_value * np.exp(h) * (1 - h**2)
        expect_w.append(given_value.swapaxes(2, 3) @ of_product)
        of_value = of_product @ W.T
    np.testing.assert_allclose(got, of_value, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(of_w, np.mean(expect_w, (0, 1, 2)), rtol=1e-4, atol=1e-5)
