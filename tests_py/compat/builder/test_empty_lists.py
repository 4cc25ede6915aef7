"""Lists that may be empty: of axes, extents, pads and strides, as programs of popart.Builder mean them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from popsr.compat import popart
from tests_py.compat.builder.programs import run_once

onnx = pytest.importorskip("onnx")

X = np.arange(1, 7, dtype=np.float32).reshape(1, 2, 3)
IMAGE = np.arange(1, 17, dtype=np.float32).reshape(1, 1, 4, 4)
Make = Callable[[popart.Builder, str], Any]


def _empty(b: popart.Builder) -> str:
    return str(b.aiOnnx.constant(np.zeros(0, np.int64)))


def _conv(b: popart.Builder, x: str) -> Any:
    w = b.aiOnnx.constant(np.ones((1, 1, 2, 2), np.float32))
    return b.aiOnnx.conv([x, w], kernel_shape=[], strides=[], pads=[], dilations=[])


def _over_none(method: str, keepdims: int) -> Make:
    return lambda b, x: getattr(b.aiOnnx, method)([x], axes=[], keepdims=keepdims)


REDUCTIONS: dict[str, Callable[[Any], Any]] = {
    "reducel1": np.abs,
    "reducel2": np.abs,
    "reducelogsum": np.log,
    "reducelogsumexp": lambda x: x,
    "reducemax": lambda x: x,
    "reducemean": lambda x: x,
    "reducemin": lambda x: x,
    "reduceprod": lambda x: x,
    "reducesum": lambda x: x,
    "reducesumsquare": np.square,
}
SUMS = IMAGE[:, :, :3, :3] + IMAGE[:, :, 1:, :3] + IMAGE[:, :, :3, 1:] + IMAGE[:, :, 1:, 1:]
ROWS: dict[str, tuple[Make, Any, Any]] = {
    "squeeze all": (lambda b, x: b.aiOnnx.squeeze([x], []), X, X[0]),
    "squeeze without": (lambda b, x: b.aiOnnx.squeeze([x]), X, X[0]),
    "unsqueeze none": (lambda b, x: b.aiOnnx.unsqueeze([x], []), X, X),
    "transpose": (lambda b, x: b.aiOnnx.transpose([x], []), X, X.T),
    "transpose without": (lambda b, x: b.aiOnnx.transpose([x]), X, X.T),
    "slice 9": (lambda b, x: b.aiOnnxOpset9.slice([x], [1, 2], [0, 1], []), X, X[:1, 1:2]),
    "slice 9 none": (lambda b, x: b.aiOnnxOpset9.slice([x], [], [], []), X, X),
    "slice 10 none": (lambda b, x: b.aiOnnx.slice([x, _empty(b), _empty(b), _empty(b)]), X, X),
    "graphcore.slice": (lambda b, x: b.aiGraphcore.slice([x], [1, 2], [0, 1], []), X, X[:1, 1:2]),
    "graphcore.slice none": (lambda b, x: b.aiGraphcore.slice([x], [], [], []), X, X),
    "reverse none": (lambda b, x: b.aiGraphcore.reverse([x], []), X, X),
    "reducemedian none": (lambda b, x: b.aiGraphcore.reducemedian([x], [])[0], X, X),
    "reducemedian without": (lambda b, x: b.aiGraphcore.reducemedian([x])[0], X, np.full((1, 1, 1), 3.0)),
    "reshape": (lambda b, x: b.aiOnnx.reshape([x, _empty(b)]), X[:1, :1, :1], X[0, 0, 0]),
    "graphcore.reshape": (lambda b, x: b.aiGraphcore.reshape([x], []), X[:1, :1, :1], X[0, 0, 0]),
    "expand": (lambda b, x: b.aiOnnx.expand([x, _empty(b)]), X, X),
    "constantofshape": (lambda b, x: b.aiOnnx.add([x, b.aiOnnx.constantofshape([_empty(b)])]), X, X),
    "split": (lambda b, x: b.aiOnnx.split([x], 2, 1, [])[1], X, X[:, 1:]),
    "maxpool": (
        lambda b, x: b.aiOnnx.maxpool([x], 1, [4, 4], pads=[], strides=[])[0],
        IMAGE,
        IMAGE[:, :, 3:, 3:],
    ),
    "averagepool": (
        lambda b, x: b.aiOnnx.averagepool([x], [4, 4], pads=[]),
        IMAGE,
        np.full((1, 1, 1, 1), 8.5),
    ),
    "conv": (_conv, IMAGE, SUMS),
    **{f"{name} none": (_over_none(name, keepdims=1), X, rule(X)) for name, rule in REDUCTIONS.items()},
    **{
        f"{name} none, dropped": (_over_none(name, keepdims=0), X, rule(X))
        for name, rule in REDUCTIONS.items()
    },
}


@pytest.mark.parametrize("name", ROWS)
def test_empty_lists(name: str) -> None:
    make, given, wanted = ROWS[name]
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo(given), "x")
    y = make(builder, x)
    shape = builder.getTensorShape(y)
    builder.addOutputTensor(y)
    onnx.checker.check_model(onnx.ModelProto.FromString(builder.getModelProto()))
    anchors = run_once(builder.getModelProto(), [y], {x: given})
    np.testing.assert_allclose(anchors[y], wanted, rtol=1e-6)
    assert tuple(shape) == np.shape(anchors[y]) == np.shape(wanted)


@pytest.mark.parametrize("method", REDUCTIONS)
def test_reductions_without_axes_reduce_all(method: str) -> None:
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo(X), "x")
    assert builder.getTensorShape(getattr(builder.aiOnnx, method)([x])) == [1, 1, 1]
    assert builder.getTensorShape(getattr(builder.aiOnnx, method)([x], keepdims=0)) == []


def test_models_of_other_tools() -> None:
    """An empty attribute of a model that no Builder wrote: as onnxruntime and ONNX's reference read it."""
    helper, kind = onnx.helper, onnx.AttributeProto.INTS
    for op_type, key, extents in (("Squeeze", "axes", (2, 3)), ("Transpose", "perm", (3, 2, 1))):
        node = helper.make_node(op_type, ["x"], ["y"])
        node.attribute.append(helper.make_attribute(key, [], attr_type=kind))
        x, y = (
            helper.make_tensor_value_info(name, 1, shape) for name, shape in (("x", X.shape), ("y", None))
        )
        model = helper.make_model(
            helper.make_graph([node], "g", [x], [y]), opset_imports=[helper.make_opsetid("", 10)]
        )
        session = popart.InferenceSession(
            model.SerializeToString(), popart.DataFlow(1, ["y"]), popart.DeviceManager().createCpuDevice()
        )
        assert tuple(session.getInfo("y").shape()) == extents
