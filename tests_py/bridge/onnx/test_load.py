"""Models that are read: names, options, weights through popsr's own ways."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import ops
from popsr.transforms import autodiff

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper  # noqa: E402

from popsr.bridge.onnx import OnnxModel, load, op_types, prove, rule_files  # noqa: E402
from tests_py.bridge.onnx.models import MODELS  # noqa: E402
from tests_py.bridge.onnx.net import Net  # noqa: E402
from tests_py.bridge.onnx.test_training import training  # noqa: E402


def linear() -> Any:
    """y = x @ w + b."""
    net = Net("linear")
    net.weight("w", np.arange(6, dtype=np.float32).reshape(2, 3))
    net.weight("b", np.ones(3, np.float32))
    product = net.add("MatMul", [net.input("x", ["N", 2]), "w"], "product")
    net.output(net.add("Add", [product, "b"], "sum"))
    return net.model()


X = np.array([[1.0, 2.0]], np.float32)
Y = np.array([[7.0, 10.0, 13.0]], np.float32)


def test_names() -> None:
    model = load(linear(), shapes={"N": 1})
    assert list(model.inputs) == ["x"]
    assert list(model.outputs) == ["sum.out"]
    assert list(model.variables) == list(model.weights) == ["w", "b"]
    assert [v.name for v in model.ir.main_graph.variables] == ["w", "b"]
    assert set(model.tensors) == {"x", "w", "b", "product.out", "sum.out"}
    assert [op.location for op in model.graph.ops] == ["product (MatMul):1", "sum (Add):2"]
    assert repr(model) == "OnnxModel[linear: 1 replicas 2 ops 1 inputs 2 variables 1 outputs]"
    np.testing.assert_array_equal(model.run({"x": X})["sum.out"], Y)


def test_replicas_have_inputs_of_their_own() -> None:
    model = load(linear(), replicas=2, shapes={"x": (1, 2)})
    result = model.run({"x": np.stack([X, 2 * X])})["sum.out"]
    np.testing.assert_array_equal(result, [Y, 2 * Y - 1])


def test_weights_as_constants() -> None:
    model = load(linear(), shapes={"N": 1}, weights="constants")
    assert not model.variables
    np.testing.assert_array_equal(model.run({"x": X})["sum.out"], Y)


def test_a_session_of_ones_own() -> None:
    model = load(linear(), shapes={"N": 1})
    with popsr.Session(model.ir) as session:
        session.write_variable_data(model.variables["b"], np.zeros(3, np.float32))
        stored = session.run({model.input_streams["x"]: X})
    np.testing.assert_array_equal(stored[model.output_streams["sum.out"]], Y - 1)


def test_groups_and_checkpoints(tmp_path: Path) -> None:
    """Weights of groups go into a checkpoint and come back by ONNX's names."""
    halves = popsr.ReplicaGrouping.from_assignment([0, 0, 1, 1])

    def read() -> OnnxModel:
        return load(linear(), replicas=4, shapes={"N": 1}, groups={"w": halves})

    model, path = read(), tmp_path / "weights.onnx"
    new = np.stack([np.full((2, 3), 5, np.float32), np.full((2, 3), 7, np.float32)])
    with popsr.Session(model.ir) as session:
        assert session.get_tensor_data(model.variables["w"]).shape == (2, 2, 3)
        session.write_variable_data(model.variables["w"], new)
        popsr.io.save_onnx(session, path)
    stored = popsr.io.load_onnx(path)
    assert set(stored) == {"w", "b"}
    again = read()
    with popsr.Session(again.ir) as session:
        popsr.io.reset_host_weights(session, path)
        np.testing.assert_array_equal(session.get_tensor_data(again.variables["w"]), new)


def test_a_file_is_read_as_a_message(tmp_path: Path) -> None:
    path = tmp_path / "linear.onnx"
    onnx.save(linear(), path)
    model = load(path, shapes={"N": 1})
    assert model.name == "linear"
    np.testing.assert_array_equal(model.run({"x": X})["sum.out"], Y)


def test_an_input_with_a_fixed_value() -> None:
    net = Net()
    x, shape = net.input("x", (2, 3)), net.input("shape", (1,), TensorProto.INT64)
    net.output(net.add("Reshape", [x, shape], "flat"))
    model = load(net.model(), values={"shape": np.array([6])})
    assert list(model.inputs) == ["x"]
    assert model.outputs["flat.out"].shape == (6,)


def test_a_function_of_the_model() -> None:
    """An attribute of the call is one of the function's nodes."""
    net = Net()
    net.output(net.add("leaky", [net.input("x", (2,))], domain="own", slope=0.5))
    model = net.model(opsets={"": 17, "own": 1})
    node = helper.make_node("LeakyRelu", ["a"], ["b"])
    node.attribute.append(onnx.AttributeProto(name="alpha", ref_attr_name="slope", type=1))
    model.functions.append(
        helper.make_function("own", "leaky", ["a"], ["b"], [node], [helper.make_opsetid("", 17)], ["slope"])
    )
    result = load(model).run({"x": np.array([-2.0, 2.0], np.float32)})
    np.testing.assert_array_equal(next(iter(result.values())), [-1.0, 2.0])


def branches(known: bool) -> Any:
    """x + 1 where c, else x * 3; both read x of the graph around."""
    net = Net()
    x = net.input("x", (2,))
    c = net.constant(np.array(True)) if known else net.input("c", (), TensorProto.BOOL)
    one, three = (net.constant(np.array(value, np.float32)) for value in (1.0, 3.0))
    parts = {
        name: helper.make_graph(
            [helper.make_node(op, [x, operand], [name])],
            name,
            [],
            [helper.make_tensor_value_info(name, 1, [2])],
        )
        for name, op, operand in (("then_branch", "Add", one), ("else_branch", "Mul", three))
    }
    net.output(net.add("If", [c], "choice", **parts))
    return net.model()


def test_branches() -> None:
    x = np.array([1.0, 2.0], np.float32)
    assert [op.kind for op in load(branches(known=True)).graph.ops] == ["add"]
    model = load(branches(known=False))
    for value, expected in ((True, x + 1), (False, x * 3)):
        np.testing.assert_array_equal(model.run({"x": x, "c": np.array(value)})["choice.out"], expected)


def counted(times: int) -> Any:
    """x doubled, so many times."""
    kinds = {"i": (7, []), "c": (9, []), "v": (1, [2])}
    inputs = [helper.make_tensor_value_info(name, *kind) for name, kind in kinds.items()]
    outputs = [helper.make_tensor_value_info("d", 9, []), helper.make_tensor_value_info("w", 1, [2])]
    nodes = [helper.make_node("Identity", ["c"], ["d"]), helper.make_node("Add", ["v", "v"], ["w"])]
    net = Net()
    count = net.constant(np.array(times))
    body = helper.make_graph(nodes, "body", inputs, outputs)
    net.output(net.add("Loop", [count, "", net.input("x", (2,))], "loop", body=body))
    return net.model()


def test_a_loop_is_one_graph_that_repeats() -> None:
    model = load(counted(100))
    assert [op.kind for op in model.graph.ops if op.kind == "repeat"] == ["repeat"]
    x = np.array([1.0, -3.0], np.float32)
    np.testing.assert_array_equal(model.run({"x": x})["loop.out"], np.ldexp(x, 100))
    straight = load(counted(100), unroll=True)
    assert [op.kind for op in straight.graph.ops].count("add") == 100
    np.testing.assert_array_equal(straight.run({"x": x})["loop.out"], np.ldexp(x, 100))


def lstm() -> Any:
    """The sum of the rows of a recurrent layer."""
    net = Net("lstm", seed=3)
    weights = [
        net.normal(name, shape) for name, shape in (("W", (1, 20, 3)), ("R", (1, 20, 5)), ("B", (1, 40)))
    ]
    y = net.add("LSTM", [net.input("x", (6, 2, 3)), *weights], "lstm", hidden_size=5)
    net.output(net.add("ReduceSum", [y], "total", keepdims=0))
    return net.model()


def test_gradients_of_a_recurrent_layer_are_those_of_torch() -> None:
    """Unrolled; a loop has the same values, and gradients stop at it."""
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(0).normal(size=(6, 2, 3)).astype(np.float32)
    model = load(lstm(), streams=False, unroll=True)
    with model.ir.main_graph, popsr.in_sequence():
        call = model.call({"x": popsr.constant(x)})
        backward = autodiff(model.graph, grads_required=list(model.weights.values()))
        gradients = ops.call(backward.graph, popsr.constant(1.0), inputs_dict=backward.inputs_dict(call))
        streams = [popsr.d2h_stream(t.shape, t.dtype) for t in (call.outputs[0], *gradients)]
        for stream, t in zip(streams, (call.outputs[0], *gradients), strict=True):
            ops.host_store(stream, t)
    with popsr.Session(model.ir) as session:
        stored = session.run()
    total, *found = (stored[stream] for stream in streams)
    np.testing.assert_allclose(load(lstm()).run({"x": x})["total.out"], total, rtol=1e-6)

    layer = torch.nn.LSTM(3, 5)
    order = [0, 2, 3, 1]  # torch's gates are i f g o, ONNX's i o f g
    initial = model.initial

    def gates(value: Any) -> Any:
        return torch.tensor(value.reshape(4, 5, -1)[order].reshape(20, -1).squeeze())

    with torch.no_grad():
        layer.weight_ih_l0.copy_(gates(initial["W"][0]))
        layer.weight_hh_l0.copy_(gates(initial["R"][0]))
        layer.bias_ih_l0.copy_(gates(initial["B"][0, :20]))
        layer.bias_hh_l0.copy_(gates(initial["B"][0, 20:]))
    expected = layer(torch.tensor(x))[0].sum()
    expected.backward()
    np.testing.assert_allclose(total, expected.detach().numpy(), rtol=1e-5)
    for gradient, name in zip(found, ("weight_ih_l0", "weight_hh_l0"), strict=False):
        own = getattr(layer, name).grad.numpy()
        np.testing.assert_allclose(gates(gradient[0]).numpy(), own, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mean", [True, False])
def test_proofs_have_the_names_of_onnx(mean: bool) -> None:
    model = load(MODELS["mlp"]().proto, replicas=2, shapes={"N": 4}, streams=False)
    training(model, 0.1, mean=mean)
    for proof in (prove(model), popsr.prove(model)):
        assert proof.ok == mean
        names = ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"]
        assert [each.path for each in proof.states] == names
        assert [each.path for each in proof.drifting] == ([] if mean else names)


def test_a_message_is_proved() -> None:
    proto = MODELS["mlp"]().proto
    proof = popsr.prove(proto, replicas=2, shapes={"N": 4})
    assert proof.ok
    assert repr(proof) == "Proof[no state is written: 4 states on 2 replicas, none drifts]"
    assert prove(proto, replicas=2, shapes={"N": 4}).ok


def test_older_opsets_mean_the_same() -> None:
    """Of the versions that popart.Builder writes: axes and sizes are attributes."""
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    edges = ((0, 0), (0, 0), (1, 0))
    exps = np.exp(x - x.max((1, 2), keepdims=True))
    cases: list[tuple[str, dict[str, Any], int, Any, Any]] = [
        ("Squeeze", {"axes": [0]}, 11, x[:1], x[0]),
        ("Unsqueeze", {"axes": [1]}, 11, x, x[:, None]),
        ("Slice", {"starts": [1], "ends": [3], "axes": [2]}, 9, x, x[:, :, 1:3]),
        ("ReduceSum", {"axes": [1], "keepdims": 0}, 11, x, x.sum(1)),
        ("Clip", {"min": 3.0, "max": 9.0}, 6, x, x.clip(3, 9)),
        ("Softmax", {"axis": 1}, 11, x, exps / exps.sum((1, 2), keepdims=True)),
        ("Pad", {"pads": [0, 0, 1, 0, 0, 0], "value": 2.0}, 10, x, np.pad(x, edges, constant_values=2)),
        ("Dropout", {"ratio": 0.3}, 7, x, x),
    ]
    for op_type, attributes, opset, given, expected in cases:
        net = Net()
        net.output(net.add(op_type, [net.input("x", given.shape)], "here", **attributes))
        np.testing.assert_allclose(load(net.model(opset)).run({"x": given})["here.out"], expected, rtol=1e-6)


def test_operands_of_opset_6_begin_at_an_axis() -> None:
    net = Net()
    a, b = net.input("a", (2, 3, 4)), net.input("b", (3,))
    net.output(net.add("Add", [a, b], "sum", broadcast=1, axis=1))
    x, y = np.ones((2, 3, 4), np.float32), np.arange(3, dtype=np.float32)
    np.testing.assert_array_equal(load(net.model(6)).run({"a": x, "b": y})["sum.out"], x + y[:, None])


def test_each_rule_begins_at_a_version_that_onnx_has() -> None:
    schemas = onnx.defs.get_all_schemas_with_history()
    for name, versions in op_types().items():
        domain, _, op_type = name.rpartition(".")
        if domain in ("ai.popsr", "ai.graphcore", "com.microsoft") or rule_files()[name] == "removed":
            continue
        known = {each.since_version for each in schemas if (each.domain, each.name) == (domain, op_type)}
        assert known, name
        assert max(versions) <= max(known), name
