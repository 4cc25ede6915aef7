"""Ops as older opsets define them, bits, boxes and random numbers, beside NumPy and ONNX's evaluator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from popsr.errors import UnsupportedOpsError

pytest.importorskip("onnx")

from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from popsr.bridge.onnx import load
from tests_py.bridge.onnx.net import Net

X = np.linspace(-2, 2, 24, dtype=np.float32).reshape(2, 3, 4)
SHIFT, SLOPES = np.array([1, 2, 3], np.float32), np.array([0.1, 0.2, 0.3], np.float32)


def net_of(op_type: str, operands: list[str], results: int = 1, left_out: int = 0, **attributes: Any) -> Net:
    net = Net()
    for name, value in (("s", SLOPES), ("b", SHIFT), ("m", SLOPES), ("v", SHIFT)):
        net.weight(name, value)
    first = net.add(op_type, [net.input("x", X.shape), *operands], "here", results, **attributes)
    net.nodes[-1].output.extend([""] * left_out)
    for number in range(results):
        net.output(f"{first}{number or ''}")
    return net


def normal(mean: Any, var: Any) -> Any:
    column = [each.reshape(-1, 1) for each in (SLOPES, SHIFT, mean, var)]
    return column[0] * (X - column[2]) / np.sqrt(column[3] + 1e-5) + column[1]


BATCH = X.mean((0, 2)), X.var((0, 2))
CASES: dict[str, tuple[Net, int, list[Any]]] = {
    "PRelu of channels": (
        net_of("PRelu", ["s"]), 6, [np.where(X < 0, X * SLOPES.reshape(3, 1), X)]
    ),
    "norm of opset 6": (
        net_of("BatchNormalization", ["s", "b", "m", "v"], is_test=1), 6, [normal(SLOPES, SHIFT)]
    ),
    "norm of opset 9": (net_of("BatchNormalization", ["s", "b", "m", "v"]), 9, [normal(SLOPES, SHIFT)]),
    "norm of opset 9 in training mode": (
        net_of("BatchNormalization", ["s", "b", "m", "v"], 3, 2, momentum=0.75),
        9,
        [normal(*BATCH), *(0.75 * old + 0.25 * new for old, new in zip((SLOPES, SHIFT), BATCH, strict=True))],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_older_opsets(name: str) -> None:
    net, opset, expected = CASES[name]
    found = list(load(net.model(opset)).run({"x": X}).values())
    for value, truth in zip(found, expected, strict=True):
        np.testing.assert_allclose(value, truth, rtol=1e-4, atol=1e-5)


REFUSED = {
    "a mode that readers take apart": (
        net_of("BatchNormalization", ["s", "b", "m", "v"]),
        6,
        "without is_test",
    ),
    "saved statistics": (net_of("BatchNormalization", ["s", "b", "m", "v"], 5), 9, "with saved statistics"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    net, opset, text = REFUSED[name]
    with pytest.raises(UnsupportedOpsError, match=text):
        load(net.model(opset))


PATTERNS = [0, 1, 0x7F800000, 0x80000000, 0x3F800000, 0xC0490FDB, 0x007FFFFF, 0x00800000, 0x7F7FFFFF]


@pytest.mark.parametrize("to", [TensorProto.FLOAT, TensorProto.UINT32])
def test_bits_are_kept(to: int) -> None:
    words = np.array(PATTERNS, np.uint32)
    given = words if to == TensorProto.FLOAT else words.view(np.float32)
    net = Net()
    x = net.input("x", given.shape, helper.np_dtype_to_tensor_dtype(given.dtype))
    net.output(net.add("BitCast", [x], "here", to=to))
    found = load(net.model(26)).run({"x": given})["here.out"]
    np.testing.assert_array_equal(found.view(np.uint32), words)


def test_bits_of_another_width_are_refused() -> None:
    net = Net()
    net.output(net.add("BitCast", [net.input("x", (2,))], to=TensorProto.INT64))
    with pytest.raises(UnsupportedOpsError, match="float32 to int64"):
        load(net.model(26))


@pytest.mark.parametrize("centred", [0, 1])
def test_boxes_are_those_of_the_evaluator(centred: int) -> None:
    """Results have a shape that depends on data: the operands are given as values."""
    rng = np.random.default_rng(4)
    boxes, scores = (
        rng.uniform(0, 1, (2, 9, 4)).astype(np.float32),
        rng.uniform(0, 1, (2, 3, 9)).astype(np.float32),
    )
    net = Net()
    net.input("boxes", boxes.shape)
    net.input("scores", scores.shape)
    limits = [net.constant(np.array([each])) for each in (4, np.float32(0.2), np.float32(0.3))]
    net.output(net.add("NonMaxSuppression", ["boxes", "scores", *limits], "here", center_point_box=centred))
    proto = net.model(11)
    evaluator: Any = ReferenceEvaluator(proto)
    truth = evaluator.run(None, {"boxes": boxes, "scores": scores})[0]
    found = load(proto, values={"boxes": boxes, "scores": scores}).run({})["here.out"]
    np.testing.assert_array_equal(found, truth)
    with pytest.raises(UnsupportedOpsError, match="give values of 'boxes'"):
        load(proto)


def test_random_numbers() -> None:
    """Each node has its own; a seed chooses them; two runs have the same."""
    net = Net()
    x = net.input("x", (1000,))
    for op_type, more in (
        ("RandomUniformLike", {}),
        ("RandomUniformLike", {}),
        ("RandomNormalLike", {"seed": 3.0}),
    ):
        net.output(net.add(op_type, [x], "", 1, "", **more))
    net.output(net.add("RandomUniform", [], shape=[1000], low=2.0, high=3.0))
    net.output(net.add("RandomNormal", [], shape=[1000], mean=5.0, scale=2.0))
    model = load(net.model(15))
    a, b, c, d, e = model.run({"x": np.zeros(1000, np.float32)}).values()
    again = model.run({"x": np.zeros(1000, np.float32)})
    np.testing.assert_array_equal(next(iter(again.values())), a)
    assert (a != b).any()
    for values, mean, deviation in ((a, 0.5, 0.289), (b, 0.5, 0.289), (c, 0, 1), (d, 2.5, 0.289), (e, 5, 2)):
        assert abs(values.mean() - mean) < 0.15 * deviation
        assert abs(values.std() - deviation) < 0.1 * deviation
