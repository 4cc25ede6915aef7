"""Weights of a model are the floats that train; epsilons, masks, exponents and scales stay as they are."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from popsr.errors import AttributeValueError, Error, UnknownNameError

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper  # noqa: E402

from popsr.bridge.onnx import load, op_types  # noqa: E402
from popsr.bridge.onnx._train import trained as _trained  # noqa: E402
from popsr.compat.popart import _model  # noqa: E402
from tests_py.bridge.onnx.models import MODELS  # noqa: E402
from tests_py.bridge.onnx.net import Net  # noqa: E402


def f32(*values: Any) -> np.ndarray[Any, Any]:
    return np.array(values, np.float32)


TRIL = np.where(np.tri(3, dtype=bool), 0, -3).astype(np.float32)


def decomposed_norm(net: Net, x: str) -> str:
    """A batch norm whose ops an exporter wrote one by one: statistics and the epsilon are constants."""
    net.weight("mean", f32(1, 2, 3))
    net.weight("var", f32(3, 2, 1))
    net.weight("eps", f32(1e-5)[0])
    net.normal("scale", (3,))
    net.normal("shift", (3,))
    deviation = net.add("Sqrt", [net.add("Add", ["var", "eps"])])
    normal = net.add("Div", [net.add("Sub", [x, "mean"]), deviation])
    return net.add("Add", [net.add("Mul", [normal, "scale"]), "shift"])


def batch_norm(net: Net, x: str) -> str:
    for name in ("scale", "shift", "mean", "var"):
        net.weight(name, f32(1, 2, 3))
    return net.add("BatchNormalization", [x, "scale", "shift", "mean", "var"])


def scores(net: Net, x: str) -> str:
    """A mask is added, another one hides; products have a weight, a power an exponent, a bound its ends."""
    net.normal("w", (3, 3))
    net.weight("mask", TRIL)
    net.weight("hidden", np.full((1, 3), -1e9, np.float32))
    net.weight("two", f32(2)[0])
    net.weight("exponents", f32(1, 2, 3))
    net.weight("low", f32(-1)[0])
    t = net.add("Add", [net.add("MatMul", [x, "w"]), "mask"])
    t = net.add("Softmax", [net.add("Where", [net.constant(np.array([True, False, True])), t, "hidden"])])
    t = net.add("Pow", [net.add("Pow", [t, "two"]), "exponents"])
    return net.add("Clip", [t, "low"])


def carried(net: Net, x: str) -> str:
    """Weights through ops that move, normalise or shift them."""
    net.normal("moved", (3, 3))
    net.normal("direction", (3, 3))
    net.weight("length", f32(1, 2, 3))
    net.normal("gamma", (3,))
    net.weight("one", f32(1)[0])
    t = net.add("MatMul", [x, net.add("Transpose", ["moved"], perm=[1, 0])])
    unit = net.add("Div", ["direction", net.add("ReduceL2", ["direction"])])
    t = net.add("MatMul", [t, net.add("Mul", [unit, "length"])])
    return net.add("Mul", [t, net.add("Add", ["gamma", "one"])])


def tokens(net: Net, x: str) -> str:
    """Learned tokens and padding are joined to rows, places are added."""
    net.normal("token", (1, 3))
    net.weight("padding", np.zeros((1, 3), np.float32))
    net.normal("places", (5, 3))
    t = net.add("Concat", ["token", net.add("Concat", [x, "padding"], axis=0)], axis=0)
    return net.add("Add", [t, "places"])


def one_feature(net: Net, x: str) -> str:
    """A bias of one element is one of a layer; other numbers of that shape are constants."""
    net.normal("w", (3, 1))
    for name in ("bias", "eps", "factor"):
        net.weight(name, f32(0.5))
    t = net.add("Add", [net.add("MatMul", [x, "w"]), "bias"])
    return net.add("Mul", [net.add("Add", [net.add("Relu", [t]), "eps"]), "factor"])


def constants(net: Net, x: str) -> str:
    """Weights in nodes; ones and zeros of an exporter are none."""
    made = [net.constant(value) for value in (f32(1, 2, 3), f32(1, 1, 1), f32(0.5)[0])]
    t = net.add("Mul", [net.add("Add", [x, made[0]]), made[1]])
    return net.add("Mul", [t, made[2]])


def quantised(net: Net, x: str) -> str:
    """A product as a quantiser writes it: the scales are none, the bias is a weight."""
    net.weight("w", np.arange(9, dtype=np.int8).reshape(3, 3))
    net.weight("w_scale", f32(0.1, 0.2, 0.3))
    net.normal("bias", (3,))
    x8 = net.add("DynamicQuantizeLinear", [x], outputs=3)
    whole = net.add("MatMulInteger", [x8, "w", f"{x8}2"])
    scale = net.add("Mul", [f"{x8}1", "w_scale"])
    product = net.add("Mul", [net.add("Cast", [whole], to=TensorProto.FLOAT), scale])
    return net.add("Add", [product, "bias"])


def statically_quantised(net: Net, x: str) -> str:
    """Scales and zero points on both sides of the weight."""
    net.weight("scale", f32(0.1)[0])
    net.weight("w", np.arange(9, dtype=np.int8).reshape(3, 3))
    net.weight("w_scale", f32(0.1, 0.2, 0.3))
    net.normal("bias", (3,))
    q = net.add("QuantizeLinear", [x, "scale"])
    t = net.add("DequantizeLinear", [q, "scale"])
    product = net.add("MatMul", [t, net.add("DequantizeLinear", ["w", "w_scale"], axis=1)])
    return net.add("Add", [product, "bias"])


def inside(net: Net, x: str) -> str:
    """Weights that graphs of nodes read, and those that a loop carries."""
    net.normal("w", (3, 3))
    net.normal("b", (3,))
    net.weight("exponent", f32(2)[0])
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["v", "w"], ["m"]),
            helper.make_node("Add", ["m", "u"], ["a"]),
            helper.make_node("Pow", ["a", "exponent"], ["n"]),
            helper.make_node("Identity", ["u"], ["u2"]),
            helper.make_node("Identity", ["c"], ["d"]),
        ],
        "body",
        [
            helper.make_tensor_value_info(name, kind, None)
            for name, kind in (("i", 7), ("c", 9), ("v", 1), ("u", 1))
        ],
        [helper.make_empty_tensor_value_info(name) for name in ("d", "n", "u2")],
    )
    return net.add("Loop", [net.constant(np.array(2)), "", x, "b"], "loop", outputs=2, body=body)


CASES: dict[str, tuple[Callable[[Net, str], str], set[str]]] = {
    "batch norm": (batch_norm, {"scale", "shift"}),
    "norm of single ops": (decomposed_norm, {"scale", "shift"}),
    "scores": (scores, {"w"}),
    "moved weights": (carried, {"moved", "direction", "length", "gamma"}),
    "tokens": (tokens, {"token", "places"}),
    "a layer of one feature": (one_feature, {"w", "bias"}),
    "constant nodes": (constants, {"constant0.out"}),
    "quantised": (quantised, {"bias"}),
    "statically quantised": (statically_quantised, {"bias"}),
    "graphs of nodes": (inside, {"w", "b"}),
}


def model(make: Callable[[Net, str], str]) -> Any:
    net = Net()
    net.output(make(net, net.input("x", (3, 3))))
    return net.model()


@pytest.mark.parametrize("name", CASES)
def test_weights_are_what_trains(name: str) -> None:
    make, expected = CASES[name]
    proto = model(make)
    read = load(proto)
    assert set(read.variables) == set(read.weights) == expected
    floats = {each.name for each in proto.graph.initializer if each.data_type == TensorProto.FLOAT}
    assert set(read.fixed) == floats - expected
    x = np.arange(9, dtype=np.float32).reshape(3, 3) / 9
    fixed = load(proto, weights="constants")
    assert not fixed.variables
    assert set(fixed.fixed) == floats
    for value, other in zip(read.run({"x": x}).values(), fixed.run({"x": x}).values(), strict=True):
        np.testing.assert_allclose(value, other, rtol=1e-6)


def test_names_that_are_given_train() -> None:
    read = load(model(batch_norm), trainable=["scale", "mean"])
    assert set(read.variables) == {"scale", "mean"}
    assert "constant" in str(read)
    assert set(load(model(constants), trainable=["constant2.out"]).variables) == {"constant2.out"}


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        ({"trainable": ["w8"]}, UnknownNameError, "trainable, but no float of the model, got 'w8'"),
        ({"trainable": 3}, Error, "trainable"),
        ({"trainable": [], "weights": "constants"}, AttributeValueError, "trainable and constant, got ()"),
        ({"groups": {"mean": None}}, Error, "groups"),
    ],
)
def test_options(options: dict[str, Any], kind: type[Error], text: str) -> None:
    with pytest.raises(kind, match=re.escape(text)):
        load(model(batch_norm), **options)


@pytest.mark.parametrize("name", MODELS)
def test_weights_of_models_are_all_but_running_statistics(name: str) -> None:
    proto = MODELS[name]().proto
    read = load(proto, shapes={"N": 2})
    rest = {each.name for each in proto.graph.initializer} - set(read.variables)
    assert all(each.endswith((".mean", ".var")) for each in rest), rest


def test_operands_of_the_table_are_those_of_onnx() -> None:
    known = op_types()
    for (domain, op_type), positions in _trained.WEIGHTS.items():
        if domain == "" and onnx.defs.has(op_type):
            schema = onnx.defs.get_schema(op_type)
            assert positions[-1] < schema.max_input, op_type
        else:
            assert f"{domain}.{op_type}".strip(".") in known
    for op_type in (*_trained.CARRIES, *_trained.ELEMENTWISE):
        assert op_type in known or onnx.defs.get_schema(op_type).has_context_dependent_function, op_type


def test_popart_reads_no_weight() -> None:
    """Initializers are inputs there, and constants stay constants."""
    proto = model(constants)
    read, _ = _model.read_graph("test", proto, {}, [proto.graph.output[0].name], 1, {}, False)
    assert not read.variables
