"""Rows of the table of ONNX's ops as a Builder records them: method, arrays, further arguments, versions.

Results are those of onnx's reference evaluator, except where it has a later version's meaning, or lacks the op.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

__all__ = ["ROWS", "Row"]

Array = np.ndarray[Any, Any]
_rng = np.random.default_rng(0)


class Row(NamedTuple):
    """A call of a method; arrays are inputs of the model, integers initializers."""

    method: str
    arrays: tuple[Any, ...]
    args: tuple[Any, ...] = ()
    named: Mapping[str, Any] = MappingProxyType({})
    since: int = 6
    until: int = 11
    tolerance: float = 1e-5
    expected: Callable[..., Array] | None = None


def _floats(*shape: int) -> Array:
    return _rng.normal(size=shape).astype(np.float32)


def _above(least: float, *shape: int) -> Array:
    return (least + _rng.uniform(0.1, 1.0, size=shape)).astype(np.float32)


def _inside(*shape: int) -> Array:
    return _rng.uniform(-0.9, 0.9, size=shape).astype(np.float32)


def _bools(*shape: int) -> Array:
    return _rng.integers(0, 2, size=shape).astype(bool)


def _ints(*values: int) -> Array:
    return np.array(values, np.int64)


F, G = _floats(2, 3, 4), _floats(2, 3, 4)
IMAGE = _floats(1, 2, 5, 5)
MATRIX = _floats(3, 4)


def _elementwise() -> Iterator[Row]:
    plain = [
        "abs",
        "ceil",
        "cos",
        "exp",
        "floor",
        "neg",
        "reciprocal",
        "relu",
        "sigmoid",
        "sin",
        "softplus",
        "softsign",
    ]
    for name in [*plain, "tanh", "elu", "leakyrelu", "selu", "hardsigmoid", "identity"]:
        versions = {"cos": 7, "sin": 7}
        yield Row(name, (F,), since=versions.get(name, 6))
    for name in ["atan", "asinh", "cosh", "erf", "sign", "sinh"]:
        yield Row(name, (F,), since=7 if name == "atan" else 9)
    for name in ("acos", "asin", "atanh", "tan"):
        yield Row(name, (_inside(2, 3),), since=9 if name == "atanh" else 7)
    yield Row("acosh", (_above(1.0, 2, 3),), since=9)
    yield Row("round", (F,), since=11)
    for name in ("log", "sqrt"):
        yield Row(name, (_above(0.1, 2, 3),))
    for name in ("add", "sub", "mul", "div"):
        yield Row(name, (F, _above(0.5, 3, 1)), since=7)
    yield Row("pow", (_above(0.5, 2, 3), _floats(3)), since=7)
    yield Row("prelu", (F, _floats(3, 1)), since=7)
    for name in ("max", "min", "sum", "mean"):
        yield Row(name, (F, G, F + G), since=8)
    for name in ("logical_and", "logical_or", "logical_xor"):
        yield Row(name, (_bools(2, 3), _bools(2, 3)), since=7)
    yield Row("logical_not", (_bools(2, 3),))
    for name in ("greater", "less"):
        yield Row(name, (F, G), since=9)
    yield Row("equal", (np.array([1, 2, 3], np.int32), np.array([1, 0, 3], np.int32)), since=7)
    yield Row("clip", (F,), (), {"min": -0.5, "max": 0.5}, until=10)
    yield Row("clip", (F, np.float32(-0.5), np.float32(0.5)), since=11)
    yield Row("thresholdedrelu", (F,), (), {"alpha": 0.3}, since=10)
    yield Row("shrink", (F,), (), {"lambd": 0.3, "bias": 0.1}, since=9)
    yield Row("isnan", (np.array([1.0, np.nan], np.float32),), since=9)
    yield Row("isinf", (np.array([1.0, np.inf, -np.inf], np.float32),), since=10)
    yield Row("mod", (np.array([5, -5, 7], np.int32), np.array([3, 3, -4], np.int32)), since=10)
    yield Row("where", (_bools(2, 3), F[:, :, 0], G[:, :, 0]), since=9)
    yield Row("cast", (F,), ("INT32",))
    yield Row("cast", (np.array([0.0, 2.0], np.float32),), (), {"to": "BOOL"}, since=9)
    yield Row("bitshift", (np.array([16, 4], np.uint32), np.array([1, 2], np.uint32)), ("RIGHT",), since=11)
    yield Row("det", (_floats(3, 3),), since=11, tolerance=1e-4)


def _softmax(rows: Array) -> Array:
    e = np.exp(rows - rows.max(1, keepdims=True))
    return np.asarray(e / e.sum(1, keepdims=True))


def _hardmax(rows: Array) -> Array:
    return np.eye(rows.shape[1], dtype=np.float32)[rows.argmax(1)]


def _of_rows(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Before version 13 all axes from ``axis`` on are one."""
    return lambda x: function(x.reshape(x.shape[0], -1)).reshape(x.shape)


def _scattered(x: Array, indices: Array, updates: Array) -> Array:
    made = x.copy()
    np.put_along_axis(made, indices, updates, 0)
    return made


def _batch_norm(x: Array, scale: Array, bias: Array, mean: Array, var: Array) -> Array:
    scale, bias, mean, var = (each.reshape(1, -1, 1, 1) for each in (scale, bias, mean, var))
    return np.asarray((x - mean) / np.sqrt(var + 1e-5) * scale + bias)


def _lrn(x: Array) -> Array:
    square = np.pad(x * x, ((0, 0), (1, 1), (0, 0), (0, 0)))
    sums = square[:, :-2] + square[:, 1:-1] + square[:, 2:]
    return np.asarray(x / (1 + 1e-4 / 3 * sums) ** 0.75)


def _regions(*arrays: Array) -> Array:
    """Places are not moved by half a pixel, which version 16 made the default."""
    onnx = importlib.import_module("onnx")
    importlib.import_module("onnx.reference")
    node = onnx.helper.make_node(
        "RoiAlign",
        ["x", "rois", "batch"],
        ["y"],
        output_height=2,
        output_width=2,
        sampling_ratio=2,
        coordinate_transformation_mode="output_half_pixel",
    )
    kinds = [onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT, onnx.TensorProto.INT64]
    inputs = [
        onnx.helper.make_tensor_value_info(n, k, a.shape)
        for n, k, a in zip(node.input, kinds, arrays, strict=True)
    ]
    graph = onnx.helper.make_graph([node], "g", inputs, [onnx.helper.make_tensor_value_info("y", 1, None)])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 16)], ir_version=8)
    feeds = dict(zip(node.input, arrays, strict=True))
    return np.asarray(onnx.reference.ReferenceEvaluator(model).run(None, feeds)[0])


def _doubled(x: Array, *_: Array) -> Array:
    return x.repeat(2, 2).repeat(2, 3)


def _reductions() -> Iterator[Row]:
    for name in ["l1", "l2", "max", "mean", "min", "prod", "sum", "sumsquare", "logsumexp"]:
        yield Row(f"reduce{name}", (F,), (), {"axes": [1], "keepdims": 0}, tolerance=1e-4)
    yield Row("reducelogsum", (_above(0.5, 2, 3),), (), {"axes": [1]})
    yield Row("reducesum", (F,))
    for name in ("argmax", "argmin"):
        yield Row(name, (F,), (), {"axis": 1, "keepdims": 0})
    functions = {"softmax": _softmax, "logsoftmax": lambda x: np.log(_softmax(x)), "hardmax": _hardmax}
    for name, function in functions.items():
        yield Row(name, (F,), (), {"axis": 1}, expected=_of_rows(function))
    yield Row("cumsum", (F, np.int64(1)), since=11)
    yield Row("topk", (MATRIX,), (2,), until=9)
    yield Row("topk", (MATRIX, _ints(2)), since=10)


def _shapes() -> Iterator[Row]:
    yield Row("reshape", (F, _ints(4, -1)))
    yield Row("flatten", (F,), (), {"axis": 2})
    yield Row("transpose", (F,), ([2, 0, 1],))
    yield Row("squeeze", (F[:, :1],), (), {"axes": [1]})
    yield Row("unsqueeze", (F,), ([0, 2],))
    yield Row("concat", (F, G), (1,))
    yield Row("split", (F,), (2,), {"axis": 2, "split": [1, 3]})
    yield Row("split", (F,), (2,))
    yield Row("expand", (F[:, :1], _ints(2, 3, 4)), since=8)
    yield Row("tile", (MATRIX, _ints(2, 1)))
    yield Row("slice", (F,), ([2, 3], [0, 1]), {"axes": [0, 1]}, until=9)
    yield Row("slice", (F, _ints(0, 1), _ints(2, 3), _ints(0, 1)), since=10)
    yield Row("pad", (MATRIX,), ([0, 1, 2, 0],), {"value": 1.5}, until=10)
    yield Row("pad", (MATRIX, _ints(0, 1, 2, 0), np.float32(1.5)), since=11)
    yield Row("shape", (F,))
    yield Row("size", (F,))
    yield Row("constant", (), (np.arange(6, dtype=np.float32).reshape(2, 3),))
    yield Row("constantofshape", (_ints(2, 3),), (np.array([1.5], np.float32),), since=9)
    yield Row("range", (np.int64(1), np.int64(9), np.int64(2)), since=11)
    yield Row("eyelike", (MATRIX,), ("FLOAT",), since=9)
    yield Row("depthtospace", (_floats(1, 8, 2, 3),), (2,))
    yield Row("spacetodepth", (_floats(1, 2, 4, 6),), (2,))
    yield Row("reversesequence", (_floats(4, 3), _ints(1, 4, 2)), since=10)
    yield Row("gather", (F, _ints(2, 0)), (), {"axis": 1})
    yield Row("gatherelements", (MATRIX, np.array([[0, 2, 1, 0]], np.int64)), (), {"axis": 0}, since=11)
    yield Row("gathernd", (MATRIX, np.array([[0, 1], [2, 3]], np.int64)), since=11)
    scattered = (MATRIX, np.array([[0, 2, 1, 0]], np.int64), _floats(1, 4))
    yield Row("scatter", scattered, (), {"axis": 0}, since=9, until=10, expected=_scattered)
    yield Row("scatterelements", scattered, (), {"axis": 0}, since=11)
    yield Row("scatternd", (MATRIX, np.array([[0], [2]], np.int64), _floats(2, 4)), since=11)
    yield Row("onehot", (_ints(2, 0), np.int64(3), np.array([0.0, 1.0], np.float32)), since=9)
    yield Row("nonzero", (np.array([[1, 0], [2, 3]], np.int64),), since=9)
    yield Row("compress", (MATRIX, np.array([True, False, True])), (), {"axis": 0}, since=9)


def _neural() -> Iterator[Row]:
    yield Row("matmul", (_floats(2, 3, 4), _floats(4, 2)), since=6)
    yield Row(
        "gemm", (MATRIX, _floats(2, 4), _floats(2)), (), {"transB": 1, "alpha": 0.5, "beta": 2.0}, since=7
    )
    yield Row("conv", (IMAGE, _floats(3, 2, 3, 3), _floats(3)), (), {"pads": [1, 1, 1, 1], "strides": [2, 2]})
    yield Row("conv", (IMAGE, _floats(4, 1, 2, 2)), ([1, 1], 2), {})
    yield Row("convtranspose", (IMAGE, _floats(2, 3, 3, 3)), (), {"strides": [2, 2]})
    yield Row("maxpool", (IMAGE,), ([2, 2],), {"strides": [2, 2]}, until=7)
    yield Row("maxpool", (IMAGE,), (1, [2, 2]), {"strides": [2, 2]}, since=8)
    yield Row("averagepool", (IMAGE,), ([2, 2],), {"strides": [2, 2]})
    yield Row("averagepool", (IMAGE,), ([3, 3],), {"pads": [1, 1, 1, 1], "count_include_pad": 1}, since=7)
    yield Row("lppool", (IMAGE,), ([2, 2],), {"p": 2})
    for name in ("globalaveragepool", "globalmaxpool"):
        yield Row(name, (IMAGE,))
    yield Row("globallppool", (IMAGE,), expected=lambda x: np.sqrt((x * x).sum((2, 3), keepdims=True)))
    norm = (IMAGE, _floats(2), _floats(2), _floats(2), _above(0.5, 2))
    yield Row("batchnormalization", norm, (1,), expected=_batch_norm)
    yield Row("instancenormalization", norm[:3])
    yield Row("meanvariancenormalization", (IMAGE,), since=9)
    yield Row("lpnormalization", (MATRIX,), (), {"axis": 1})
    yield Row("lrn", (_floats(4, 3, 2, 2),), (3,), expected=_lrn)
    yield Row("dropout", (F,), (1,), {"ratio": 0.3}, since=7)
    yield Row(
        "maxunpool",
        (np.array([[[[1, 2], [3, 4]]]], np.float32), np.array([[[[5, 7], [13, 15]]]], np.int64)),
        ([2, 2],),
        {"strides": [2, 2]},
        since=9,
    )
    regions = (_above(0.0, 1, 1, 6, 6), np.array([[0, 0, 4, 4]], np.float32), _ints(0))
    yield Row(
        "roialign",
        regions,
        (),
        {"output_height": 2, "output_width": 2, "sampling_ratio": 2},
        since=10,
        expected=_regions,
    )
    gates = {"gru": 3, "lstm": 4, "rnn": 1}
    for name, count in gates.items():
        operands = (
            _floats(3, 2, 4),
            _floats(1, 5 * count, 4),
            _floats(1, 5 * count, 5),
            _floats(1, 10 * count),
        )
        yield Row(name, operands, (2,), {"hidden_size": 5}, since=7, tolerance=1e-4)
    yield Row("quantizelinear", (F, np.float32(0.1), np.uint8(10)), since=10)
    yield Row(
        "dequantizelinear",
        (np.array([1, 2], np.uint8), np.float32(0.1), np.uint8(10)),
        since=10,
        expected=lambda x, scale, zero: (x.astype(np.float32) - np.float32(zero)) * scale,
    )
    bytes_ = _rng.integers(0, 255, (2, 3)).astype(np.uint8), _rng.integers(0, 255, (3, 2)).astype(np.uint8)
    yield Row("matmulinteger", bytes_, since=10)
    yield Row(
        "convinteger",
        (
            _rng.integers(0, 255, (1, 1, 4, 4)).astype(np.uint8),
            _rng.integers(0, 255, (1, 1, 2, 2)).astype(np.uint8),
        ),
        since=10,
    )
    scales = np.float32(0.05), np.uint8(128)
    yield Row(
        "qlinearmatmul", (bytes_[0], *scales, bytes_[1], *scales, np.float32(0.5), np.uint8(100)), since=10
    )
    filters = _rng.integers(0, 255, (2, 1, 2, 2)).astype(np.uint8)
    picture = _rng.integers(0, 255, (1, 1, 4, 4)).astype(np.uint8)
    yield Row("qlinearconv", (picture, *scales, filters, *scales, np.float32(0.5), np.uint8(100)), since=10)
    yield Row("dynamicquantizelinear", (F,), since=11)
    yield Row(
        "upsample", (_floats(1, 1, 2, 2),), ([1.0, 1.0, 2.0, 2.0],), since=7, until=8, expected=_doubled
    )
    yield Row(
        "upsample",
        (_floats(1, 1, 2, 2), np.array([1, 1, 2, 2], np.float32)),
        since=9,
        until=9,
        expected=_doubled,
    )
    yield Row(
        "resize",
        (_floats(1, 1, 2, 2), np.array([1, 1, 2, 2], np.float32)),
        since=10,
        until=10,
        expected=_doubled,
    )


ROWS: list[Row] = [row for family in (_elementwise, _reductions, _shapes, _neural) for row in family()]
