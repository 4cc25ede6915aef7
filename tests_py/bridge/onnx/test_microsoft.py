"""Models that onnxruntime's quantiser wrote, and nodes of ``com.microsoft``, give onnxruntime's results."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")

from onnx import helper, numpy_helper  # noqa: E402

from popsr.bridge.onnx import load  # noqa: E402
from tests_py.bridge.onnx.net import Net  # noqa: E402

DOMAIN = "com.microsoft"


def images(net: Net) -> str:
    """Convolutions, pools, a gate, a linear layer."""
    x = net.input("x", (2, 3, 8, 8))
    for name, shape in (
        ("w1", (4, 3, 3, 3)),
        ("b1", (4,)),
        ("w2", (4, 4, 1, 1)),
        ("w3", (8, 5)),
        ("b3", (5,)),
    ):
        net.normal(name, shape)
    a = net.add("Relu", [net.add("Conv", [x, "w1", "b1"], pads=[1] * 4)])
    b = net.add("Conv", [a, "w2"])
    c = net.add("Add", [net.add("Mul", [net.add("Sigmoid", [b]), a]), b])
    c = net.add("Concat", [c, net.add("LeakyRelu", [a], alpha=0.1)], axis=1)
    c = net.add("AveragePool", [c], kernel_shape=[2, 2], strides=[2, 2])
    c = net.add("GlobalAveragePool", [net.add("MaxPool", [c], kernel_shape=[2, 2])])
    return net.add("Softmax", [net.add("Gemm", [net.add("Flatten", [c]), "w3", "b3"])], axis=1)


def rows(net: Net) -> str:
    """Two linear layers."""
    x = net.input("x", (2, 6, 8))
    for name, shape in (("w", (8, 16)), ("b", (16,)), ("v", (16, 4))):
        net.normal(name, shape)
    return net.add("MatMul", [net.add("Relu", [net.add("Add", [net.add("MatMul", [x, "w"]), "b"])]), "v"])


def recurrent(net: Net) -> str:
    """An LSTM of both directions."""
    x = net.input("x", (5, 2, 3))
    for name, shape in (("w", (2, 16, 3)), ("r", (2, 16, 4)), ("b", (2, 32))):
        net.normal(name, shape, 0.5)
    return net.add("LSTM", [x, "w", "r", "b"], hidden_size=4, direction="bidirectional")


def moves(net: Net) -> str:
    """Layers whose ops move numbers of 8 bits."""
    x = net.input("x", (1, 4, 8, 8))
    for name, shape in (("w", (4, 4, 3, 3)), ("v", (4, 4))):
        net.normal(name, shape)
    a = net.add("Conv", [x, "w"], pads=[1] * 4)
    a = net.add("Clip", [a, *(net.constant(np.array(each, np.float32)) for each in (-1, 1))])
    a = net.add("MaxPool", [a], kernel_shape=[2, 2], strides=[2, 2])
    a = net.add("Pad", [a, net.ints(0, 0, 1, 0, 0, 0, 0, 1)])
    first = net.add("Split", [a, net.ints(2, 2)], "split", outputs=2, axis=1)
    a = net.add("Concat", [first, "split.out1"], axis=1)
    a = net.add("Resize", [a, "", net.constant(np.array([1, 1, 2, 2], np.float32))], mode="nearest")
    a = net.add("Reshape", [net.add("Transpose", [a], perm=[0, 2, 3, 1]), net.ints(1, -1, 4)])
    return net.add("MatMul", [a, "v"])


NETS: dict[str, tuple[Callable[[Net], str], tuple[int, ...]]] = {
    "images": (images, (2, 3, 8, 8)),
    "rows": (rows, (2, 6, 8)),
    "recurrent": (recurrent, (5, 2, 3)),
    "moves": (moves, (1, 4, 8, 8)),
}
WAYS = ("ops", "signed ops", "pairs", "dynamic", "dynamic, fused")


def reader(shape: tuple[int, ...]) -> Any:
    from onnxruntime.quantization import CalibrationDataReader

    class Reader(CalibrationDataReader):  # type: ignore[misc, unused-ignore]
        def __init__(self) -> None:
            rng = np.random.default_rng(1)
            self.data = iter([{"x": rng.normal(size=shape).astype(np.float32)} for _ in range(3)])

        def get_next(self) -> Any:
            return next(self.data, None)

    return Reader()


def options(folder: Path | None = None) -> Any:
    made = runtime.SessionOptions()
    levels = runtime.GraphOptimizationLevel
    made.graph_optimization_level = levels.ORT_DISABLE_ALL if folder is None else levels.ORT_ENABLE_EXTENDED
    made.intra_op_num_threads, made.log_severity_level = 1, 3
    if folder is not None:
        made.optimized_model_filepath = str(folder)
    return made


def expected(model: Any, feeds: dict[str, Any]) -> list[Any]:
    source = model if isinstance(model, str) else model.SerializeToString()
    session = runtime.InferenceSession(source, options(), providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


def quantised(name: str, way: str, folder: Path) -> Path:
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_dynamic, quantize_static

    make, shape = NETS[name]
    net = Net(name, seed=1)
    net.outputs.append(helper.make_tensor_value_info(make(net), 1, None))
    source, target = folder / "float.onnx", folder / "quantised.onnx"
    onnx.save(net.model(13), source)
    if way.startswith("dynamic"):
        quantize_dynamic(source, target, weight_type=QuantType.QInt8, per_channel=True, reduce_range=True)
        if way == "dynamic, fused":
            fused = folder / "fused.onnx"
            runtime.InferenceSession(str(target), options(fused), providers=["CPUExecutionProvider"])
            return fused
        return target
    quantize_static(
        source,
        target,
        reader(shape),
        quant_format=QuantFormat.QDQ if way == "pairs" else QuantFormat.QOperator,
        per_channel=way != "signed ops",
        reduce_range=True,
        activation_type=QuantType.QInt8 if way == "signed ops" else QuantType.QUInt8,
    )
    return target


@pytest.mark.parametrize(
    ("name", "way"),
    [
        *((name, way) for name in ("images", "rows") for way in WAYS),
        *(("moves", way) for way in WAYS[:3]),
        ("recurrent", "dynamic"),
    ],
)
def test_quantised_models(name: str, way: str, tmp_path: Path) -> None:
    """Equal, but where float32 products are summed in another order: there up to one step of the last scale."""
    logging.disable(logging.WARNING)
    try:
        path = quantised(name, way, tmp_path)
    finally:
        logging.disable(logging.NOTSET)
    x = np.random.default_rng(9).normal(size=NETS[name][1]).astype(np.float32)
    (truth,) = expected(str(path), {"x": x})
    model = load(path)
    found = next(iter(model.run({"x": x}).values()))
    if way.endswith("ops"):
        np.testing.assert_array_equal(found, truth)
    else:
        np.testing.assert_allclose(found, truth, rtol=1e-5, atol=0.005 if way == "pairs" else 1e-6)
    assert not any(each.endswith("_scale") for each in model.variables)


RNG = np.random.default_rng(5)
U8 = RNG.integers(0, 256, (2, 4, 6)).astype(np.uint8)
I8 = RNG.integers(-128, 128, (2, 4, 6)).astype(np.int8)
F32 = RNG.normal(size=(2, 4, 6)).astype(np.float32)
BIAS = RNG.normal(size=6).astype(np.float32)
# Weights of 7 bits, as `reduce_range` makes them: where the processor has no VNNI, onnxruntime adds pairs of products
# of uint8 and int8 in 16 bits, which saturate.
W8 = RNG.integers(-64, 65, (6, 6)).astype(np.int8)
COLUMNS = np.linspace(0.01, 0.03, 6).astype(np.float32)
A, B, OUT = np.float32(0.02), np.float32(0.03), np.float32(0.05)
Z, ZB, ZO = np.uint8(120), np.uint8(130), np.uint8(128)

NODES: dict[str, tuple[str, list[Any], dict[str, Any]]] = {
    "add": ("QLinearAdd", [U8, A, Z, U8[:1], B, ZB, OUT, ZO], {}),
    "add, signed": ("QLinearAdd", [I8, A, np.int8(3), I8, B, np.int8(0), OUT, np.int8(-2)], {}),
    "mul": ("QLinearMul", [U8, A, Z, U8, B, ZB, OUT, ZO], {}),
    "sigmoid": ("QLinearSigmoid", [U8, A, Z, np.float32(1 / 256), np.uint8(0)], {}),
    "leaky": ("QLinearLeakyRelu", [I8, A, np.int8(3), OUT, np.int8(0)], {"alpha": 0.2}),
    "concat": ("QLinearConcat", [OUT, ZO, U8, A, Z, U8, B, ZB], {"axis": 1}),
    "where": ("QLinearWhere", [F32 > 0, U8, A, Z, U8, B, ZB, OUT, ZO], {}),
    "softmax": ("QLinearSoftmax", [U8, A, Z, np.float32(1 / 256), np.uint8(0)], {"axis": 1, "opset": 12}),
    "softmax, opset 13": (
        "QLinearSoftmax",
        [U8, A, Z, np.float32(1 / 256), np.uint8(0)],
        {"axis": -1, "opset": 13},
    ),
    "pool": (
        "QLinearAveragePool",
        [U8[None], A, Z, OUT, ZO],
        {"kernel_shape": [2, 2], "channels_last": 0, "pads": [0, 0, 1, 1]},
    ),
    "global pool": ("QLinearGlobalAveragePool", [U8[None], A, Z, OUT, ZO], {"channels_last": 0}),
    "global pool, channels last": (
        "QLinearGlobalAveragePool",
        [U8[None], A, Z, OUT, ZO],
        {"channels_last": 1},
    ),
    "gemm": ("QGemm", [U8[0], A, Z, W8, B, np.int8(0), np.arange(6, dtype=np.int32), OUT, ZO], {}),
    "gemm, columns, turned, floats": (
        "QGemm",
        [U8[0], A, Z, W8, COLUMNS, np.zeros(6, np.int8), np.arange(6, dtype=np.int32)],
        {"transB": 1},
    ),
    "product to floats": ("MatMulIntegerToFloat", [U8, W8, A, COLUMNS, Z, np.zeros(6, np.int8), BIAS], {}),
    "dynamic product": ("DynamicQuantizeMatMul", [F32, W8, COLUMNS, np.zeros(6, np.int8), BIAS], {}),
    "quantize": ("QuantizeLinear", [F32, A, Z], {}),
    "dequantize": ("DequantizeLinear", [I8, A, np.int8(3)], {}),
    "fused product": ("FusedMatMul", [F32, F32], {"transB": 1, "alpha": 0.5}),
    "gelu": ("Gelu", [F32], {}),
    "gelu with a bias": ("BiasGelu", [F32, BIAS], {}),
    "fast gelu": ("FastGelu", [F32, BIAS], {}),
    "quick gelu": ("QuickGelu", [F32], {"alpha": 1.7}),
    "norm of a sum": (
        "SkipLayerNormalization",
        [F32, F32[:, ::-1].copy(), BIAS, BIAS, BIAS],
        {"epsilon": 1e-5},
    ),
}
QKV = RNG.integers(-64, 65, (6, 18)).astype(np.int8)
for _name, _mask, _more in (
    ("attention", None, {}),
    ("causal attention", None, {"unidirectional": 1}),
    ("masked attention", np.array([[1, 1, 1, 0], [1, 1, 0, 0]], np.int32), {}),
):
    NODES[_name] = (
        "QAttention",
        [U8, QKV, np.linspace(-1, 1, 18).astype(np.float32), A, B, _mask, Z, np.int8(0)],
        {"num_heads": 2, **_more},
    )


def node_model(
    row: tuple[str, list[Any], dict[str, Any], list[str]], free: int = 1
) -> tuple[Any, dict[str, Any]]:
    """A model of one node, whose first operands are inputs; and these."""
    op_type, operands, attributes, results = row
    names = [f"x{i}" if each is not None else "" for i, each in enumerate(operands)]
    given = {key: np.asarray(each) for key, each in zip(names, operands, strict=True) if key}
    inputs = list(given)[:free] if op_type != "QLinearConcat" else ["x2"]
    if op_type == "GatherBlockQuantized":
        names[:2] = names[1::-1]
    kind = helper.np_dtype_to_tensor_dtype
    graph = helper.make_graph(
        [helper.make_node(op_type, names, results, "here", domain=DOMAIN, **attributes)],
        "node",
        [helper.make_tensor_value_info(key, kind(given[key].dtype), given[key].shape) for key in inputs],
        [helper.make_empty_tensor_value_info(each) for each in results if each],
        [numpy_helper.from_array(each, key) for key, each in given.items() if key not in inputs],
    )
    imports = [helper.make_opsetid("", 13), helper.make_opsetid(DOMAIN, 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=8)
    return model, {key: given[key] for key in inputs}


def check(row: tuple[str, list[Any], dict[str, Any], list[str]]) -> None:
    """The node has onnxruntime's results."""
    model, feeds = node_model(row)
    truths = expected(model, feeds)
    for found, truth in zip(load(model).run(feeds).values(), truths, strict=True):
        assert (found.dtype, found.shape) == (truth.dtype, truth.shape)
        if truth.dtype == np.float16:
            np.testing.assert_allclose(found, truth, rtol=1e-2, atol=0.05)
        elif truth.dtype.kind == "f":
            np.testing.assert_allclose(found, truth, rtol=1e-4, atol=1e-5)
        else:
            apart = np.abs(found.astype(int) - truth.astype(int))
            assert apart.max() <= 1
            assert apart.mean() < 0.03


@pytest.mark.parametrize("name", NODES)
def test_nodes(name: str) -> None:
    check((*NODES[name], ["y"]))


def test_products_of_all_weights_are_exact() -> None:
    """Integers in NumPy, as onnxruntime saturates on some processors; pairs of products are beyond 16 bits."""
    x, w = np.full((2, 6), 255, np.uint8), np.full((6, 6), 127, np.int8)
    one, none = np.ones(6, np.float32), np.zeros(6, np.int8)
    model, feeds = node_model(
        ("MatMulIntegerToFloat", [x, w, np.float32(1), one, np.uint8(0), none], {}, ["y"])
    )
    (found,) = load(model).run(feeds).values()
    np.testing.assert_array_equal(found, (x.astype(np.int64) @ w.astype(np.int64)).astype(np.float32))
