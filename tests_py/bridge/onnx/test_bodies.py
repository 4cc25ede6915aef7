"""Ops that are read by the function body that ONNX publishes: bits, number of ops, places and errors of the node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import popsr
from popsr import Tensor, ops
from popsr.errors import Error, ShapeError, UnsupportedOpsError

pytest.importorskip("onnx")

from onnx import TensorProto, helper

from popsr.bridge.onnx import load
from tests_py.bridge.onnx.net import Net

ENDS = [0.0, -0.0, 1e-30, -1e-3, 0.5, -1.0, 3.0, -20.0, 90.0, -np.inf, np.inf, np.nan]
KINDS = (popsr.float32, popsr.float16, popsr.bfloat16, popsr.float64)


def constant(value: float, t: Tensor) -> Tensor:
    return popsr.constant(value, t.dtype)


def mish(t: Tensor) -> Tensor:
    softplus = ops.maximum(t, constant(0, t)) + ops.log1p(ops.exp(ops.negate(ops.abs(t))))
    return t * ops.tanh(softplus)


def softsign(t: Tensor) -> Tensor:
    return t / (constant(1, t) + ops.abs(t))


class Row(NamedTuple):
    """The ops that a node is, the latest opset of each version, and how many they are with constants."""

    function: Callable[[Tensor], Tensor]
    opsets: tuple[int, ...]
    number: int


ROWS = {"Mish": Row(mish, (21, 28), 8), "Softsign": Row(softsign, (21, 28), 3)}


def node(op_type: str, kind: int, shape: tuple[int, ...], opset: int, **attributes: Any) -> Any:
    net = Net()
    net.output(net.add(op_type, [net.input("x", shape, kind)], "here", 1, "", **attributes))
    return net.model(opset)


def bits(array: Any) -> Any:
    return np.where(np.isnan(array.astype(np.float64)), np.nan, array.astype(np.float64)).tobytes()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("op_type", ROWS)
def test_bodies_are_the_ops_of_a_rule(op_type: str, kind: Any) -> None:
    row = ROWS[op_type]
    x = np.concatenate([ENDS, np.random.default_rng(0).normal(size=100) * 3]).astype(kind.as_numpy())
    ir = popsr.Ir()
    with ir.main_graph, popsr.in_sequence():
        stream = popsr.h2d_stream(x.shape, kind, "x")
        out = popsr.d2h_stream(x.shape, kind, "y")
        ops.host_store(out, row.function(ops.host_load(stream)))
    with popsr.Session(ir) as session:
        expected = session.run({stream: x})[out]
    for opset in row.opsets:
        if kind == popsr.bfloat16 and opset < 22:
            continue
        model = load(node(op_type, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape, opset))
        assert len(model.graph.ops) == row.number
        assert bits(model.run({"x": x})["here.out"]) == bits(expected)


@pytest.mark.parametrize("like", [np.float16, np.float64, np.int8, np.bool_])
def test_cast_like_is_a_cast(like: Any) -> None:
    x = np.array([-3.7, -1, 0, 0.1, 1, 100.5], np.float32)
    net = Net()
    net.output(net.add("CastLike", [net.input("x", x.shape), net.weight("w", np.zeros(1, like))], "here"))
    model = load(net.model(19))
    assert [op.location for op in model.graph.ops] == ["here (CastLike):1"]
    np.testing.assert_array_equal(model.run({"x": x})["here.out"], x.astype(like), strict=True)


def test_ops_of_a_body_have_the_place_of_its_node() -> None:
    made = load(node("Mish", TensorProto.FLOAT, (3,), 22)).graph.ops
    assert {op.location for op in made} == {"here (Mish):1"}


def rotary(rows: int) -> Any:
    net = Net()
    operands = [net.input("x", (1, 2, 3, 4)), net.input("c", (1, rows, 2)), net.input("s", (1, 3, 2))]
    net.output(net.add("RotaryEmbedding", operands, "here"))
    return net.model(23)


def window(kind: int) -> Any:
    net = Net()
    net.output(net.add("HannWindow", [net.input("size", (), kind)], "here"))
    return net.model(17)


REFUSED: dict[str, tuple[Any, type[Error], str]] = {
    "shapes that do not fit": (
        rotary(2),
        ShapeError,
        "bridge.onnx.load: node 'here' (RotaryEmbedding) at position 1 (Mul of its function body)",
    ),
    "a value that is needed": (
        window(TensorProto.INT64),
        UnsupportedOpsError,
        "give values of 'size') at here (HannWindow):1",
    ),
    "a later op": (
        node("Mish", TensorProto.FLOAT, (3,), 13),
        UnsupportedOpsError,
        "Mish (of opset 13, expected 18 or later) at here (Mish):1",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_errors_name_the_node_of_the_model(name: str) -> None:
    model, kind, text = REFUSED[name]
    with pytest.raises(kind) as found:
        load(model)
    assert text in str(found.value)
