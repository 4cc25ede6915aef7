"""Graphs as models of ONNX: read again to the same bits, and run by ONNX's own evaluator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import ops
from popsr._program.graph import Graph
from popsr._program.tensor import Tensor
from popsr.bridge import UnsupportedOpsError
from popsr.testing import evaluate

onnx = pytest.importorskip("onnx")

from onnx.reference import ReferenceEvaluator  # noqa: E402

from popsr.bridge.onnx import export, load  # noqa: E402
from popsr.bridge.onnx._export._rules import EXPORTS  # noqa: E402
from tests_py.bridge.onnx.models import MODELS  # noqa: E402

Function = Callable[..., Tensor]
RNG = np.random.default_rng(5)
A, B = (RNG.normal(size=(3, 4)).astype(np.float32) for _ in range(2))
SMALL, IMAGE = (np.abs(A) % 0.9), RNG.normal(size=(2, 4, 6, 6)).astype(np.float32)
WHOLE, BITS, TRUE = np.arange(12, dtype=np.int32).reshape(3, 4), np.arange(12, dtype=np.uint32), A > 0
KERNEL = RNG.normal(size=(3, 4, 3, 3)).astype(np.float32)
ONES = np.ones(4, np.float32)


def graph_of(function: Function, *arrays: Any) -> Graph:
    ir = popsr.Ir()
    graph = ir.create_empty_graph("g")
    with graph, popsr.in_sequence():
        kinds = [popsr.dtypes.dtype.as_dtype(a.dtype) for a in arrays]
        inputs = [popsr.graph_input(a.shape, kind) for a, kind in zip(arrays, kinds, strict=True)]
        popsr.graph_output(function(*inputs))
    return graph


ROWS: dict[str, tuple[Function, tuple[Any, ...]]] = {
    **{name: (getattr(ops, name), (A,)) for name in (
        "abs", "asinh", "atan", "ceil", "cos", "detach", "erf", "exp", "exp2", "expm1", "floor", "gelu", "geluerf",
        "identity", "isfinite", "isinf", "isnan", "negate", "reciprocal", "relu", "round", "sigmoid", "sign", "sin",
        "sinh", "cosh", "square", "swish", "tan", "tanh", "flatten", "l1", "l2", "sum", "mean", "max", "min", "prod",
        "sumsquare", "logsumexp", "argmax", "argmin", "var", "squeeze",
    )},
    **{name: (getattr(ops, name), (SMALL,)) for name in (
        "acos", "asin", "atanh", "log", "log1p", "log2", "rsqrt", "sqrt", "logsum",
    )},
    "acosh": (ops.acosh, (SMALL + 1,)),
    **{name: (getattr(ops, name), (A, B)) for name in (
        "add", "div", "equal", "greater", "greater_equal", "less", "less_equal", "maximum", "minimum", "mul", "sub",
        "fmod",
    )},
    **{name: (getattr(ops, name), (TRUE, ~TRUE)) for name in ("logical_and", "logical_or", "logical_xor")},
    **{name: (getattr(ops, name), (BITS, BITS)) for name in (
        "bitwise_and", "bitwise_or", "bitwise_xor", "shift_left", "shift_right_logical",
    )},
    "bitwise_not": (ops.bitwise_not, (BITS,)),
    "logical_not": (ops.logical_not, (TRUE,)),
    "pow": (ops.pow, (SMALL, B)),
    "where": (ops.where, (TRUE, A, B)),
    "softmax": (lambda t: ops.softmax(t, 1), (A,)),
    "log_softmax": (lambda t: ops.log_softmax(t, 0), (A,)),
    "clip": (lambda t: ops.clip(t, -0.5, 0.25), (A,)),
    "cast": (lambda t: ops.cast(t, popsr.float16), (A,)),
    "reshape": (lambda t: ops.reshape(t, (2, 6)), (A,)),
    "transpose": (lambda t: ops.transpose(t, (1, 0)), (A,)),
    "expand": (lambda t: ops.expand(t, (2, 3, 4)), (A,)),
    "concat": (lambda a, b: ops.concat([a, b], 1), (A, B)),
    "slice": (lambda t: ops.slice(t, [2, 0], [0, 4], [-1, 2], [0, 1]), (A,)),
    "pad": (lambda t: ops.pad(t, (1, 0), (0, 2), value=3.0), (A,)),
    "gather": (lambda t, i: ops.gather(t, i, 1), (A, np.array([2, 0], np.int64))),
    "gather_general": (
        lambda t, i: ops.gather_general(
            t, i, slice_sizes=(1, 1), offset_dims=(), index_map=(1,), collapsed_dims=(1,), operand_batching_dims=(0,),
            indices_batching_dims=(0,),
        ),
        (A, np.array([[1], [0], [3]], np.int64)),
    ),
    "cumsum": (lambda t: ops.cumsum(t, 1), (A,)),
    "matmul": (ops.matmul, (A, B.T.copy())),
    "conv": (lambda t, w: ops.conv(t, w, stride=(2, 1), padding=(1, 0, 1, 0)), (IMAGE, KERNEL)),
    "max_pool": (lambda t: ops.max_pool(t, (2, 3), (1, 2), (0, 1, 1, 0)), (IMAGE,)),
    "average_pool": (lambda t: ops.average_pool(t, (2, 2), (2, 2)), (IMAGE,)),
    "layer_norm": (ops.layer_norm, (A, ONES, ONES)),
}  # fmt: skip


def test_each_export_has_a_row() -> None:
    assert set(ROWS) == set(EXPORTS) - {"cumprod"}  # of a later opset


@pytest.mark.parametrize("kind", ROWS)
def test_a_written_op_is_read_to_the_same_bits(kind: str) -> None:
    function, arrays = ROWS[kind]
    graph = graph_of(function, *arrays)
    assert kind in [op.kind for op in graph.ops]
    written = export(graph)
    onnx.checker.check_model(written, full_check=True)
    data = {each.name: a for each, a in zip(written.graph.input, arrays, strict=True)}
    (result,) = load(written).run(data).values()
    expected = evaluate(function, *arrays)
    assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
    assert result.tobytes() == expected.tobytes()
    (other,) = map(np.asarray, ReferenceEvaluator(written).run(None, data))
    np.testing.assert_allclose(other, result, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_written_and_read_to_the_same_bits(name: str) -> None:
    trained = MODELS[name]()
    model = load(trained.proto, shapes={"N": 4})
    written = export(model)
    onnx.checker.check_model(written, full_check=True)
    again = load(written)
    assert list(again.variables) == list(model.variables)
    assert list(again.inputs) == list(model.inputs)
    data = trained.data(np.random.default_rng(0), 4)
    (first,), (second,) = model.run(data).values(), again.run(data).values()
    assert first.tobytes() == second.tobytes()
    (other,) = map(np.asarray, ReferenceEvaluator(written).run(None, data))
    np.testing.assert_allclose(other, first, rtol=1e-5)


def test_calls_are_written_in_place() -> None:
    ir = popsr.Ir()
    inner = ir.create_graph(lambda t: t * 2.0, popsr.TensorSpec((2,), popsr.float32))
    graph = ir.create_empty_graph("outer")
    with graph, popsr.in_sequence():
        x = popsr.graph_input((2,), popsr.float32, "x")
        once = ops.call(inner, x)[0]
        popsr.graph_output(ops.call(inner, once)[0])
        popsr.graph_output(ops.identity(x))
    written = export(graph)
    assert [node.op_type for node in written.graph.node] == ["Constant", "Mul", "Mul", "Identity"]
    results = load(written).run({"x": ONES[:2]})
    np.testing.assert_array_equal(list(results.values()), [[4.0, 4.0], [1.0, 1.0]])


def test_new_weights() -> None:
    model = load(MODELS["mlp"]().proto, shapes={"N": 4})
    new = {"fc1.bias": np.full(16, 3, np.float32)}
    np.testing.assert_array_equal(load(export(model, weights=new)).initial["fc1.bias"], new["fc1.bias"])


def test_weights_of_a_graph() -> None:
    graph = graph_of(ops.add, A, B)
    first, second = (t.name for t in graph.inputs)
    written = export(graph, weights={second: B})
    assert [each.name for each in written.graph.input] == [first]
    (result,) = load(written).run({first: A}).values()
    np.testing.assert_array_equal(result, A + B)


def test_all_ops_without_a_counterpart_are_in_one_error() -> None:
    def function(t: Tensor) -> Tensor:
        return ops.sort(ops.cbrt(ops.cumprod(t, 0)))[0]

    with pytest.raises(
        UnsupportedOpsError, match=r"bridge\.onnx\.export: 3 kinds of op without a counterpart"
    ) as found:
        export(graph_of(function, A))
    assert [gap.op for gap in found.value.gaps] == ["cumprod", "cbrt", "sort"]
