"""Gradient graphs: what they are called, what they take and give, and what they do to the forward graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import popsr
from popsr import TensorByRef, TensorSpec, errors, ops, transforms
from popsr.ops import collectives
from popsr.transforms import ExpectedConnectionType
from tests_py.support.helpers import Streams, assert_same_bits, random_array
from tests_py.support.unchecked import unchecked

F32, F64 = popsr.float32, popsr.float64
Fwd, FwdGrad = ExpectedConnectionType.Fwd, ExpectedConnectionType.FwdGrad


def linear(x: popsr.Tensor, w: popsr.Tensor) -> popsr.Tensor:
    return ops.relu(ops.matmul(x, w))


def make(function: Any = linear, *shapes: tuple[int, ...], dtype: Any = F32) -> tuple[popsr.Ir, popsr.Graph]:
    ir = popsr.Ir()
    return ir, ir.create_graph(function, *[TensorSpec(s, dtype) for s in shapes or ((2, 3), (3, 4))])


def test_names_and_connections() -> None:
    ir, graph = make()
    info = transforms.autodiff(graph)
    assert info.graph.id == f"{graph.id}_bwd"
    assert info.forward_graph is graph
    x, w = graph.inputs
    assert info.expected_inputs[0].connection_type is FwdGrad
    assert info.inputs[0] is graph.outputs[0]
    assert info.graph.inputs[0].name == "Gradient___relu_out"
    assert {each.connection_type for each in info.expected_inputs[1:]} == {Fwd}
    assert set(info.inputs[1:]) >= {x, w}
    assert info.outputs == (x, w)
    assert {each.connection_type for each in info.expected_outputs} == {FwdGrad}
    assert [t.shape for t in info.graph.outputs] == [(2, 3), (3, 4)]
    assert "GradGraphInfo" in repr(info)
    again = transforms.autodiff(graph)
    assert again.graph.id != info.graph.id
    assert again.graph.id.startswith(f"{graph.id}_bwd_")
    assert ir.main_graph.ops == ()


def test_order_of_required_gradients() -> None:
    _, graph = make()
    x, w = graph.inputs
    assert transforms.autodiff(graph, grads_required=[w, x]).outputs == (w, x)
    assert transforms.autodiff(graph, grads_required=[w]).outputs == (w,)


def test_intermediates_become_outputs_of_all_calls() -> None:
    ir, graph = make()
    with ir.main_graph:
        x, w = popsr.constant(np.ones((2, 3), np.float32)), popsr.constant(np.ones((3, 4), np.float32))
        info = ops.call_with_info(graph, x, w)
        assert len(unchecked(info).outputs) == 1
        grad = transforms.autodiff(graph)
        assert len(graph.outputs) == len(info.outputs) == 2
        assert graph.outputs[1].name == "matmul_out"
        assert info.graph_to_parent(graph.outputs[1]) is info.outputs[1]
        named = grad.inputs_dict(info)
        assert set(named) == set(grad.graph.inputs[1:])
        assert named[grad.graph.inputs[1 + grad.inputs[1:].index(graph.inputs[0])]] is x
        call = ops.call_with_info(grad.graph, info.outputs[0], inputs_dict=named)
        by_graph = grad.fwd_graph_ins_to_grad_parent_outs(call)
        assert by_graph == dict(zip(graph.inputs, call.outputs, strict=True))
        assert grad.fwd_parent_ins_to_grad_parent_outs(info, call) == {x: call.outputs[0], w: call.outputs[1]}
        with pytest.raises(TypeError, match=r"inputs_dict: no call of"):
            grad.inputs_dict(call)
        with pytest.raises(ValueError, match="Not enough inputs"):
            ops.call(grad.graph, inputs_dict=named)


def test_repeated_graphs_recompute() -> None:
    """With a call site that cannot gain outputs, the gradient graph makes the intermediates itself."""

    def body(x: popsr.Tensor) -> popsr.Tensor:
        return ops.tanh(ops.exp(x))

    ir, graph = make(body, (3,), dtype=F64)
    io = Streams()
    data = np.array([0.1, -0.4, 0.3])
    with ir.main_graph, popsr.in_sequence():
        x = io.feed(data)
        ops.repeat(graph, 2, x)
        info = transforms.autodiff(graph)
        assert len(graph.outputs) == 1
        call = ops.call_with_info(graph, x)
        seed = popsr.constant(np.ones(3), F64)
        io.fetch(ops.call(info.graph, seed, inputs_dict=info.inputs_dict(call))[0])
    with popsr.Session(ir) as session:
        got = io.run(session)[0]
    e = np.exp(data)
    np.testing.assert_allclose(got, (1 - np.tanh(e) ** 2) * e, rtol=1e-12)


def test_contributions_are_summed() -> None:
    def body(x: popsr.Tensor) -> Any:
        y = ops.mul(x, x)
        return y, ops.add(ops.mul(y, x), x)

    ir, graph = make(body, (2,), dtype=F64)
    io = Streams()
    x, first, second = np.array([2.0, -3.0]), np.array([5.0, 7.0]), np.array([11.0, 13.0])
    with ir.main_graph, popsr.in_sequence():
        t = io.feed(x)
        info = transforms.autodiff(graph)
        call = ops.call_with_info(graph, t)
        seeds = [io.feed(first), io.feed(second)]
        io.fetch(ops.call(info.graph, *seeds, inputs_dict=info.inputs_dict(call))[0])
    with popsr.Session(ir) as session:
        got = io.run(session)[0]
    assert np.array_equal(got, first * 2 * x + second * (3 * x**2 + 1))


def test_called_graphs() -> None:
    def layer(x: popsr.Tensor, w: popsr.Tensor) -> popsr.Tensor:
        return ops.tanh(ops.matmul(x, w))

    def model(x: popsr.Tensor, w1: popsr.Tensor, w2: popsr.Tensor) -> popsr.Tensor:
        graph = popsr.gir().create_graph(layer, x, w1)
        return ops.call(graph, ops.call(graph, x, w1)[0], w2)[0]

    ir, graph = make(model, (2, 3), (3, 3), (3, 3), dtype=F64)
    infos = transforms.autodiff(graph, return_all_grad_graphs=True)
    assert set(infos) == {graph, graph.called_graphs[0]}
    info = infos[graph]
    rng = np.random.default_rng(0)
    x, w1, w2, seed = (rng.standard_normal(s) for s in ((2, 3), (3, 3), (3, 3), (2, 3)))
    io = Streams()
    with ir.main_graph, popsr.in_sequence():
        tensors = [io.feed(array) for array in (x, w1, w2)]
        call = ops.call_with_info(graph, *tensors)
        for each in ops.call(info.graph, io.feed(seed), inputs_dict=info.inputs_dict(call)):
            io.fetch(each)
    with popsr.Session(ir) as session:
        got = io.run(session)
    h = np.tanh(x @ w1)
    d2 = seed * (1 - np.tanh(h @ w2) ** 2)
    d1 = (d2 @ w2.T) * (1 - h**2)
    for gradient, expected in zip(got, (d1 @ w1.T, x.T @ d1, h.T @ d2), strict=True):
        np.testing.assert_allclose(gradient, expected, rtol=1e-12, atol=1e-14)


def test_given_gradient_of_a_called_graph_is_used() -> None:
    def inner(x: popsr.Tensor) -> popsr.Tensor:
        return ops.exp(x)

    def outer(x: popsr.Tensor) -> popsr.Tensor:
        return ops.call(popsr.gir().create_graph(inner, x), x)[0]

    _, graph = make(outer, (2,))
    called = graph.called_graphs[0]
    given = transforms.autodiff(called)
    info = transforms.autodiff(graph, called_graphs_grad_info={called: given})
    assert given.graph in info.graph.called_graphs


def test_gradient_dtypes_are_those_of_the_forward() -> None:
    def body(x: popsr.Tensor, y: popsr.Tensor) -> popsr.Tensor:
        return ops.add(ops.cast(x, F32), y)

    ir = popsr.Ir()
    graph = ir.create_graph(body, TensorSpec((2,), popsr.bfloat16), TensorSpec((2,), F32))
    assert [t.dtype for t in transforms.autodiff(graph).graph.outputs] == [popsr.bfloat16, F32]


def test_gradient_of_an_all_gather_is_the_own_part() -> None:
    def body(x: popsr.Tensor) -> popsr.Tensor:
        return collectives.replicated_all_gather(x, 1, popsr.gir().replica_grouping(1, 2))

    ir = popsr.Ir(replication=4)
    graph = ir.create_graph(body, TensorSpec((2, 3), F32))
    info = transforms.autodiff(graph)
    io = Streams()
    rng = np.random.default_rng(0)
    x, seed = random_array(rng, (4, 2, 3), "float32"), random_array(rng, (4, 2, 6), "float32")
    with ir.main_graph, popsr.in_sequence():
        call = ops.call_with_info(graph, io.feed(x, replicated=True))
        given = io.feed(seed, replicated=True)
        io.fetch(ops.call(info.graph, given, inputs_dict=info.inputs_dict(call))[0])
    with popsr.Session(ir) as session:
        got = io.run(session)[0]
    for replica in range(4):
        part = seed[replica][:, 3 * (replica % 2) : 3 * (replica % 2) + 3]
        assert_same_bits(got[replica], np.ascontiguousarray(part))


def test_print_of_gradients(capfd: pytest.CaptureFixture[str]) -> None:
    def body(x: popsr.Tensor) -> popsr.Tensor:
        return ops.exp(ops.print_tensor(x, "value", print_gradient=True))

    ir, graph = make(body, (2,))
    with ir.main_graph, popsr.in_sequence():
        x = popsr.constant([0.0, 0.0])
        info = transforms.autodiff(graph)
        call = ops.call_with_info(graph, x)
        out = popsr.d2h_stream((2,), F32)
        seed = popsr.constant([3.0, 4.0])
        ops.host_store(out, ops.call(info.graph, seed, inputs_dict=info.inputs_dict(call))[0])
    with popsr.Session(ir) as session:
        assert session.run()[out].tolist() == [3.0, 4.0]
    printed = capfd.readouterr().err
    assert "value" in printed
    assert "value_gradient" in printed
    assert "[" in printed


def _labels(x: popsr.Tensor, n: popsr.Tensor) -> popsr.Tensor:
    return ops.nll_loss(ops.softmax(x, 1), n)


def test_integer_inputs_need_required() -> None:
    ir = popsr.Ir()
    graph = ir.create_graph(_labels, TensorSpec((2, 3), F32), TensorSpec((2,), popsr.int32))
    with pytest.raises(errors.GraphError, match=r"unable to provide required gradient.*/n.*i32\[2\]"):
        transforms.autodiff(graph)
    assert len(transforms.autodiff(graph, grads_required=graph.inputs[:1]).outputs) == 1


def test_errors() -> None:
    ir, graph = make()
    other = ir.create_graph(linear, TensorSpec((2, 3), F32), TensorSpec((3, 4), F32))
    with pytest.raises(errors.GraphError, match="no gradients are required"):
        transforms.autodiff(graph, grads_required=[])
    with pytest.raises(errors.GraphError, match="grads_required holds a tensor of another graph"):
        transforms.autodiff(graph, grads_required=other.inputs)
    with pytest.raises(errors.GraphError, match="grads_provided holds a tensor of another graph"):
        transforms.autodiff(graph, grads_provided=other.outputs)
    with pytest.raises(TypeError, match="graph is not a Graph"):
        unchecked(transforms.autodiff)(linear)

    def modifies(x: popsr.Tensor) -> popsr.Tensor:
        y = ops.exp(x)
        y += 1.0
        return y

    def calls(x: popsr.Tensor) -> popsr.Tensor:
        def inner(a: TensorByRef) -> None:
            ops.add_(a, popsr.constant([1.0]))

        y = ops.exp(x)
        ops.call(popsr.gir().create_graph(inner, y), y)
        return y

    for function in (modifies, calls):
        bad = ir.create_graph(function, TensorSpec((1,), F32))
        with pytest.raises(
            errors.GraphError, match=r"^The graph test_errors\.\w+_subgraph\(\d\) contains a modifying op"
        ):
            transforms.autodiff(bad)


def test_errors_leave_the_program_as_it_was() -> None:
    ir = popsr.Ir()
    graph = ir.create_graph(_labels, TensorSpec((2, 3), F32), TensorSpec((2,), popsr.int32))
    before = str(ir)
    with pytest.raises(errors.GraphError):
        transforms.autodiff(graph)
    assert str(ir) == before
    assert len(graph.outputs) == 1
