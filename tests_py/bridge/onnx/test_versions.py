"""Ops as each version of ONNX defines them give onnxruntime's results, as operands and as values that are known."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest

from popsr.errors import AttributeValueError, UnsupportedOpsError

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")

from onnx import helper, numpy_helper  # noqa: E402

from popsr.bridge.onnx import load  # noqa: E402

RNG = np.random.default_rng(0)


def floats(*shape: int) -> Any:
    return RNG.normal(size=shape).astype(np.float32)


def ints(*values: int) -> Any:
    return np.array(values, np.int64)


X, IMAGE, ROWS, NONE = floats(2, 3, 4), floats(1, 2, 4, 4), floats(5, 2, 3), np.array([], np.float32)
TURNED = X[::-1].copy()
CHANNELS = [abs(floats(2)) for _ in range(4)]
SCALES = np.array([1, 1, 2.3, 0.7], np.float32)


def layer(gates: int, directions: int = 1) -> list[Any]:
    return [
        ROWS,
        floats(directions, gates * 4, 3),
        floats(directions, gates * 4, 4),
        floats(directions, gates * 8),
    ]


class Case(NamedTuple):
    """Nodes of an op, one of each version; ``outs`` results."""

    op_type: str
    versions: tuple[int, ...]
    operands: list[Any]
    attributes: Mapping[str, Any] = MappingProxyType({})
    outs: int = 1


MIDDLE: dict[str, Any] = {"mode": "linear"}
PLACES: dict[str, Any] = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
POOL: dict[str, Any] = {"kernel_shape": [3, 3], "pads": [1] * 4, "strides": [2, 2]}
WIDE: dict[str, Any] = {"kernel_shape": [2, 2], "pads": [1] * 4, "strides": [3, 3], "ceil_mode": 1}
CASES = [
    Case("Affine", (1,), [X], {"alpha": 0.3, "beta": 2.0}),
    Case("ArgMax", (1, 11, 12, 13), [np.array([[1, 3, 3], [2, 2, 1]], np.float32)], {"axis": 1}),
    Case("ArgMax", (12,), [np.array([[1, 3, 3]], np.float32)], {"axis": 1, "select_last_index": 1}),
    Case("AveragePool", (7, 10, 11, 19, 22), [IMAGE], {**POOL, "count_include_pad": 1}),
    Case("AveragePool", (10, 19, 22), [IMAGE], {**POOL, "count_include_pad": 1, "ceil_mode": 1}),
    Case("AveragePool", (10, 19, 22), [IMAGE], WIDE),
    Case("BatchNormalization", (7, 9, 14), [IMAGE, *CHANNELS]),
    Case("BatchNormalization", (14,), [IMAGE, *CHANNELS], {"training_mode": 1}, 3),
    Case("Cast", (6, 9, 13), [np.array([1.7, -2.5, 0], np.float32)], {"to": 7}),
    Case("Cast", (6, 13), [ints(300, -1)], {"to": 2}),
    Case("Clip", (6, 10), [np.array([np.inf, -np.inf, 3.4028235e38], np.float32)]),
    Case("Clip", (6, 10), [X], {"min": -1.0}),
    Case("Clip", (11, 12, 13), [X, np.float32(-1), np.float32(0.5)]),
    Case("Concat", (4, 11), [X, TURNED], {"axis": 2}),
    Case("Conv", (1, 11), [IMAGE, floats(3, 2, 3, 3)], {"auto_pad": "SAME_LOWER", "strides": [2, 2]}),
    Case("ConvTranspose", (1, 11), [IMAGE, floats(2, 3, 3, 3)], {"strides": [2, 2], "output_shape": [8, 8]}),
    Case("Crop", (1,), [IMAGE], {"border": [1, 0, 1, 2]}),
    Case("Crop", (1,), [IMAGE], {"border": [1, 0, 0, 0], "scale": [2, 3]}),
    Case("DepthToSpace", (1, 11), [floats(1, 8, 2, 2)], {"blocksize": 2}),
    Case("DepthToSpace", (11,), [floats(1, 8, 2, 2)], {"blocksize": 2, "mode": "CRD"}),
    Case("Dropout", (7, 10, 12), [X]),
    Case("DynamicSlice", (1,), [X, ints(0, 1), ints(1, 3), ints(0, 2)]),
    Case("Flatten", (1, 9, 11), [X]),
    Case("GRU", (7, 14, 22), layer(3, 2), {"hidden_size": 4, "direction": "bidirectional"}, 2),
    Case("GRU", (7,), layer(3), {"hidden_size": 4, "linear_before_reset": 1}, 2),
    Case("Gemm", (7, 9), [X[0], floats(4, 2), floats(2)], {"alpha": 0.5, "beta": 2.0}),
    Case("GlobalLpPool", (2,), [IMAGE], {"p": 3}),
    Case("GroupNormalization", (18, 21), [IMAGE, CHANNELS[0], CHANNELS[1]], {"num_groups": 2}),
    Case("GroupNormalization", (18,), [floats(2, 6, 3), CHANNELS[0], CHANNELS[1]], {"num_groups": 2}),
    Case("Hardmax", (1, 11, 13), [X]),
    Case("ImageScaler", (1,), [IMAGE], {"scale": 0.3, "bias": [1.0, 2.0]}),
    Case("InstanceNormalization", (6,), [IMAGE, *CHANNELS[:2]]),
    Case("LSTM", (7, 14), layer(4), {"hidden_size": 4, "direction": "reverse"}, 3),
    Case("LayerNormalization", (1, 9, 17), [X, floats(4), floats(4)]),
    Case("LogSoftmax", (1, 11, 13), [X]),
    Case("LpPool", (2, 11, 18), [IMAGE], {"kernel_shape": [2, 2], "p": 3}),
    Case("Max", (6, 8), [X, TURNED]),
    Case("MaxPool", (1, 8), [IMAGE], {"kernel_shape": [3, 3], "auto_pad": "SAME_LOWER"}),
    Case("MaxPool", (8,), [IMAGE], {"kernel_shape": [3, 3], "storage_order": 1}, 2),
    Case("MaxPool", (10, 12, 22), [IMAGE], WIDE),
    Case("Mean", (6, 8), [X, TURNED]),
    Case("MeanVarianceNormalization", (1, 9, 13), [IMAGE]),
    Case("MeanVarianceNormalization", (1,), [IMAGE], {"across_channels": 1}),
    Case("MeanVarianceNormalization", (1,), [IMAGE], {"normalize_variance": 0}),
    Case("Pad", (11, 13, 18), [X, ints(0, 1, 0, 0, 0, 2), np.float32(2)]),
    Case("Pad", (2,), [X], {"pads": [0, -1, 0, 0, 0, 2], "mode": "edge"}),
    Case("Pad", (2,), [X], {"pads": [0, 1, 0, 0, 0, 2], "value": 3.0}),
    Case("ParametricSoftplus", (1,), [X], {"alpha": 0.3, "beta": 2.0}),
    Case(
        "GRU",
        (14,),
        layer(3, 2),
        {
            "hidden_size": 4,
            "direction": "bidirectional",
            "activations": ["HardSigmoid", "ScaledTanh", "Affine", "ThresholdedRelu"],
            "activation_alpha": [0.3, 0.5, 0.7, 0.2],
            "activation_beta": [0.4, 0.9, 0.1],
        },
        2,
    ),
    Case("RNN", (7, 14), layer(1), {"hidden_size": 4, "activations": ["Elu"], "clip": 0.3}, 2),
    Case("ReduceMean", (1, 11, 13), [X], {"axes": [1, -1]}),
    Case("ReduceMean", (18,), [X, ints(1)]),
    Case("ReduceSum", (13,), [X], {"noop_with_empty_axes": 1}),
    Case("Reshape", (5, 14), [X, ints(0, -1)]),
    Case("Resize", (10,), [IMAGE, np.array([1, 1, 1.7, 0.6], np.float32)]),
    Case("Resize", (10,), [IMAGE, np.array([1, 1, 1.7, 0.6], np.float32)], MIDDLE),
    Case("Resize", (11, 13, 18, 19), [IMAGE, NONE, SCALES]),
    Case("Resize", (11, 13, 18, 19), [IMAGE, NONE, SCALES], {"mode": "cubic"}),
    Case("Resize", (11, 13), [IMAGE, NONE, NONE, ints(1, 2, 7, 3)], MIDDLE),
    Case("Resize", (11, 13), [IMAGE, NONE, NONE, ints(1, 2, 7, 3)], PLACES),
    Case("Resize", (11, 18), [floats(1, 1, 8, 10), NONE, np.array([1, 1, 0.6, 0.7], np.float32)], PLACES),
    Case("Resize", (11, 18), [floats(1, 1, 8, 10), NONE, np.array([1, 1, 0.6, 0.7], np.float32)], MIDDLE),
    Case("Resize", (11,), [IMAGE, NONE, SCALES], {"coordinate_transformation_mode": "tf_half_pixel_for_nn"}),
    Case("Resize", (19,), [IMAGE, NONE, SCALES], {"coordinate_transformation_mode": "half_pixel_symmetric"}),
    Case("Scale", (1,), [X], {"scale": 0.3}),
    Case("ScaledTanh", (1,), [X], {"alpha": 0.3, "beta": 2.0}),
    Case("Selu", (6,), [X]),
    Case("Shrink", (9,), [X], {"lambd": -0.5, "bias": 0.25}),
    Case("Shrink", (9,), [np.arange(-4, 5, dtype=np.int8)], {"lambd": 1.5, "bias": 1.0}),
    Case("Shrink", (9,), [np.arange(9, dtype=np.uint32)], {"lambd": 1.5}),
    Case("Shrink", (9,), [np.arange(9, dtype=np.uint8)], {"lambd": 300.0}),
    Case("SimplifiedLayerNormalization", (1,), [X, floats(4)], {"epsilon": 1e-5, "axis": -1}),
    Case("Slice", (1,), [X], {"starts": [0, -2], "ends": [1, 100], "axes": [2, 1]}),
    Case("Slice", (10, 13), [X, ints(3), ints(-100), ints(-1), ints(-2)]),
    Case("Slice", (10, 13), [X, ints(-9, 9), ints(-9, -9), ints(2, 1), ints(-1, -2)]),
    Case("Slice", (10, 13), [X, ints(-9), ints(1), ints(2), ints(-1)]),
    Case("Softmax", (1, 11, 13), [X]),
    Case("Softmax", (1, 11), [X], {"axis": 0}),
    Case("Split", (13,), [X, ints(1, 3)], {"axis": -1}, 2),
    Case("Split", (18,), [X], {"axis": 2, "num_outputs": 3}, 3),
    Case("Split", (2, 11), [X], {"axis": 1}, 3),
    Case("Squeeze", (1, 11, 13), [X[:1, :1]]),
    Case("ThresholdedRelu", (1, 10), [X], {"alpha": 0.3}),
    Case("Tile", (6, 13), [X, ints(1, 2, 1)]),
    Case("TopK", (1,), [X], {"k": 2, "axis": 1}, 2),
    Case("TopK", (11,), [X, ints(2)], {"largest": 0}, 2),
    Case("Unsqueeze", (1, 11), [X], {"axes": [0, 3]}),
    Case("Upsample", (7,), [IMAGE], {"scales": [1.0, 1.0, 2.0, 3.0], "mode": "linear"}),
    Case("Upsample", (9,), [IMAGE, np.array([1, 1, 2, 1.5], np.float32)]),
]


def model(case: Case, version: int, known: bool) -> Any:
    arrays = {f"x{i}": np.asarray(each) for i, each in enumerate(case.operands)}
    names = [f"y{i}" for i in range(case.outs)]
    free = {} if known else {"x0": arrays["x0"]}
    kind = helper.np_dtype_to_tensor_dtype
    graph = helper.make_graph(
        [helper.make_node(case.op_type, list(arrays), names, "here", **case.attributes)],
        "one",
        [helper.make_tensor_value_info(name, kind(each.dtype), each.shape) for name, each in free.items()],
        [helper.make_empty_tensor_value_info(name) for name in names],
        [numpy_helper.from_array(each, name) for name, each in arrays.items() if name not in free],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=8)


def found(case: Case, version: int, known: bool) -> list[Any]:
    feed = {} if known else {"x0": case.operands[0]}
    return list(load(model(case, version, known), weights="constants").run(feed).values())


def expected(case: Case, version: int) -> list[Any]:
    source = model(case, version, False).SerializeToString()
    session = runtime.InferenceSession(source, providers=["CPUExecutionProvider"])
    return list(session.run(None, {"x0": case.operands[0]}))


def close(values: list[Any], truths: list[Any], label: str) -> None:
    for value, truth in zip(values, truths, strict=True):
        assert (value.dtype, value.shape) == (truth.dtype, truth.shape), label
        np.testing.assert_allclose(value, truth, rtol=1e-4, atol=1e-5, err_msg=label)


@pytest.mark.parametrize("op_type", sorted({case.op_type for case in CASES}))
def test_versions(op_type: str) -> None:
    for case in CASES:
        for version in case.versions if case.op_type == op_type else ():
            truths = expected(case, version)
            for known in (False, True):
                close(found(case, version, known), truths, f"{version} {case.attributes} {known}")


# Versions that onnxruntime does not run: another version of the op, or NumPy, has the values.

GATES = layer(3)
OF_1: list[tuple[Case, Any]] = [
    (Case("Concat", (1,), [X, TURNED]), [np.concatenate([X, TURNED], 1)]),
    (Case("Cast", (1,), [X], {"to": "INT32"}), [X.astype(np.int32)]),
    (Case("Cast", (1,), [ints(1, 0)], {"to": "BOOL"}), [np.array([True, False])]),
    (Case("Clip", (1,), [X], {"max": 0.5}), [np.minimum(X, np.float32(0.5))]),
    (Case("Dropout", (1, 6), [X], {"is_test": 1}, 2), [X, np.ones_like(X)]),
    (Case("GRU", (1, 3), GATES, {"output_sequence": 1}, 2), Case("GRU", (7,), GATES, {"hidden_size": 4}, 2)),
    (Case("GlobalLpPool", (1,), [IMAGE], {"p": 3.0}), Case("GlobalLpPool", (2,), [IMAGE], {"p": 3})),
    (
        Case("LpPool", (1,), [IMAGE], {"kernel_shape": [2, 2], "p": 3.0}),
        Case("LpPool", (2,), [IMAGE], {"kernel_shape": [2, 2], "p": 3}),
    ),
    (Case("Pad", (1,), [X], {"paddings": [0, 1, 0, 0, 0, 2]}), [np.pad(X, ((0, 0), (1, 0), (0, 2)))]),
    (Case("Reshape", (1,), [X], {"shape": [4, -1]}), [X.reshape(4, 6)]),
    (
        Case("Selu", (1,), [X]),
        [np.float32(1.0507) * np.where(X > 0, X, np.float32(1.6732) * np.expm1(X))],
    ),
    (Case("Split", (1,), [X, np.array([1, 2], np.float32)], {"axis": 1}, 2), np.split(X, [1], 1)),
    (Case("Tile", (1,), [X, np.array([2], np.float32), np.array([-1], np.float32)]), [np.tile(X, (1, 1, 2))]),
    (
        Case("Upsample", (1,), [IMAGE], {"height_scale": 2.0, "width_scale": 3.0, "mode": "bilinear"}),
        Case("Upsample", (7,), [IMAGE], {"scales": [1.0, 1.0, 2.0, 3.0], "mode": "linear"}),
    ),
    *(
        (Case(op_type, (1, 6), [X, np.array([1, 2, 4], np.float32)], {"broadcast": 1, "axis": 1}), [value])
        for op_type, value in (
            ("Add", X + np.array([[1], [2], [4]], np.float32)),
            ("Div", X / np.array([[1], [2], [4]], np.float32)),
        )
    ),
    (
        Case("Sub", (6,), [np.arange(4).reshape(2, 2), ints(1, 9)], {"broadcast": 1, "axis": 0}),
        [np.array([[-1, 0], [-7, -6]])],
    ),
]


@pytest.mark.parametrize("number", range(len(OF_1)))
def test_versions_before_7(number: int) -> None:
    case, truth = OF_1[number]
    truths = expected(truth, truth.versions[0]) if isinstance(truth, Case) else truth
    for version in case.versions:
        for known in (False, True):
            close(found(case, version, known), truths, f"{case.op_type} {version} {known}")


def test_dropout_before_7_drops_unless_it_is_a_test() -> None:
    ones = np.ones(4000, np.float32)
    value, mask = found(Case("Dropout", (6,), [ones], {"ratio": 0.25}, 2), 6, False)
    assert 0.2 < (value == 0).mean() < 0.3
    np.testing.assert_array_equal(value, mask * np.float32(1 / 0.75))


def test_scan_of_opset_8_may_go_back() -> None:
    body = helper.make_graph(
        [helper.make_node("Add", ["s", "e"], ["t"]), helper.make_node("Mul", ["t", "e"], ["o"])],
        "body",
        [helper.make_tensor_value_info(name, 1, (2,)) for name in ("s", "e")],
        [helper.make_tensor_value_info(name, 1, (2,)) for name in ("t", "o")],
    )
    rows = RNG.normal(size=(1, 3, 2)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("Scan", ["", "s", "x"], ["t", "o"], body=body, num_scan_inputs=1, directions=[1])],
        "back",
        [helper.make_tensor_value_info(name, 1, shape) for name, shape in (("s", (1, 2)), ("x", (1, 3, 2)))],
        [helper.make_empty_tensor_value_info(name) for name in ("t", "o")],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 8)], ir_version=8)
    last, made = load(proto).run({"s": np.zeros((1, 2), np.float32), "x": rows}).values()
    back = rows[0, ::-1]
    np.testing.assert_allclose(last[0], back.sum(0), rtol=1e-6)
    np.testing.assert_allclose(made[0], back.cumsum(0) * back, rtol=1e-6)


MALFORMED: dict[str, tuple[Case, str]] = {
    "an attribute of another version": (
        Case("Add", (7,), [X, X[0, 0]], {"broadcast": 1, "axis": 2}),
        "an attribute that opset 7 does not have, got .axis.",
    ),
    "an attribute that is none": (
        Case("Softmax", (13,), [X], {"axes": 1}),
        "an attribute that opset 13 does not have, got .axes.",
    ),
    "no attribute": (
        Case("Concat", (4,), [X, X]),
        "lacks an attribute that opset 4 needs, got .., expected .axis. too",
    ),
    "parts that are not equal": (Case("Split", (13,), [X], {"axis": 1}, 2), "3 elements split in 2 equal"),
    "dilations with auto_pad": (
        Case(
            "MaxPool", (12,), [IMAGE], {"kernel_shape": [2, 2], "dilations": [2, 1], "auto_pad": "SAME_UPPER"}
        ),
        "MaxPool .auto_pad with dilations",
    ),
    "a window that is too large": (
        Case("MaxPool", (12,), [floats(1, 1, 4)], {"kernel_shape": [3], "dilations": [2]}),
        "MaxPool .a kernel of 3 in steps of 2 for 4 elements",
    ),
    "elements between windows": (
        Case(
            "AveragePool",
            (11,),
            [floats(1, 1, 9)],
            {"kernel_shape": [1], "strides": [3], "auto_pad": "SAME_UPPER"},
        ),
        "AveragePool .auto_pad of a kernel of 1 for steps of 3",
    ),
    "elements between kernels": (
        Case(
            "ConvTranspose",
            (11,),
            [floats(1, 1, 3), floats(1, 1, 2)],
            {"strides": [3], "auto_pad": "SAME_UPPER"},
        ),
        "ConvTranspose .auto_pad of a kernel that is shorter than the stride",
    ),
    "elements at the front": (
        Case(
            "ConvTranspose", (11,), [floats(1, 1, 3), floats(1, 1, 2)], {"strides": [3], "output_shape": [10]}
        ),
        r"ConvTranspose .output_shape \[10\], of which",
    ),
    "a wrap of what is cut off": (
        Case("Pad", (19,), [X, ints(0, 0, -1, 0, 0, 2)], {"mode": "wrap"}),
        "Pad .mode wrap with elements that are cut",
    ),
    "a clip of cells": (
        Case("LSTM", (7,), layer(4), {"hidden_size": 4, "clip": 0.3}),
        "LSTM .clip, which readers apply to the cell",
    ),
    "an activation without numbers": (
        Case("RNN", (7,), layer(1), {"hidden_size": 4, "activations": ["Affine"]}),
        "RNN .activation Affine without its numbers",
    ),
    "a scale that shrinks": (
        Case("Upsample", (9,), [IMAGE, np.array([1, 1, 0.5, 1], np.float32)]),
        r"Upsample .scales \[1.0, 1.0, 0.5, 1.0\], which shrink",
    ),
    "places that readers do not agree on": (
        Case("Resize", (11,), [IMAGE, NONE, SCALES], {"coordinate_transformation_mode": "align_corners"}),
        "Resize .align_corners with scales, of which readers have different places: needs sizes",
    ),
    "part of a whole number": (
        Case("Shrink", (9,), [ints(1, 2)], {"bias": 0.75}),
        "Shrink .lambd 0.5 and bias 0.75 of int64",
    ),
    "a kind of element": (Case("Cast", (1,), [X], {"to": "HALF"}), "element type half"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed(name: str) -> None:
    case, text = MALFORMED[name]
    with pytest.raises((AttributeValueError, UnsupportedOpsError), match=text):
        load(model(case, case.versions[0], False))
