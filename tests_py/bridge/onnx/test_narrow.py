"""Integers of 2 and 4 bits beside onnxruntime and ONNX's evaluator; ops that compute with them are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from popsr.errors import DTypeError

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

from popsr.bridge.onnx import backend, load  # noqa: E402

NUMBERS = np.arange(-8, 8)
X = np.linspace(-3, 3, 8, dtype=np.float32).reshape(2, 4)


def model(*nodes: Any, opset: int = 21, **tensors: Any) -> Any:
    """Nodes from ``x`` to ``y`` with initializers: int4 numbers, or arrays."""
    made = [
        helper.make_tensor(name, TensorProto.INT4, value.shape, value.reshape(-1).tolist())
        if isinstance(value, np.ndarray) and value.dtype == np.int64
        else numpy_helper.from_array(np.asarray(value, np.float32), name)
        for name, value in tensors.items()
    ]
    graph = helper.make_graph(
        [helper.make_node(kind, list(ins), [out], **attributes) for kind, ins, out, attributes in nodes],
        "narrow",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)],
        [helper.make_empty_tensor_value_info("y")],
        made,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


MODELS = {
    "weights of 4 bits": model(
        ("DequantizeLinear", ("w", "s"), "d", {}),
        ("MatMul", ("x", "d"), "y", {}),
        w=NUMBERS.reshape(4, 4),
        s=0.25,
    ),
    "blocks": model(
        ("DequantizeLinear", ("w", "s", "z"), "d", {"axis": 0, "block_size": 2}),
        ("MatMul", ("x", "d"), "y", {}),
        w=NUMBERS.reshape(4, 4),
        s=np.full((2, 4), 0.5),
        z=np.arange(8).reshape(2, 4) - 4,
    ),
    "moved weights": model(
        ("Transpose", ("w",), "t", {}),
        ("DequantizeLinear", ("t", "s"), "d", {}),
        ("MatMul", ("x", "d"), "y", {}),
        w=NUMBERS.reshape(4, 4),
        s=0.25,
    ),
    "activations": model(
        ("QuantizeLinear", ("x", "s", "z"), "q", {}),
        ("DequantizeLinear", ("q", "s", "z"), "y", {}),
        s=0.25,
        z=np.array(-1),
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_values(name: str, tmp_path: Path) -> None:
    evaluator: Any = ReferenceEvaluator(MODELS[name])
    expected = evaluator.run(None, {"x": X})[0]
    onnx.save(MODELS[name], tmp_path / "m.onnx")
    for source in (MODELS[name], tmp_path / "m.onnx"):
        np.testing.assert_allclose(load(source).run({"x": X})["y"], expected, rtol=1e-6)


def test_arithmetic_is_refused() -> None:
    nodes: Any = (
        ("QuantizeLinear", ("x", "s"), "q", {"output_dtype": TensorProto.INT4}),
        ("Relu", ("q",), "y", {}),
    )
    with pytest.raises(
        DTypeError, match=r"\(Relu\) at position 2 has an operand of a wrong type, got tensor\(int4\)"
    ):
        load(model(*nodes, s=0.5))


def test_a_backend_gives_the_declared_type() -> None:
    node = helper.make_node("Cast", ["x"], ["y"], to=TensorProto.UINT4)
    proto = model(opset=21)
    proto.graph.node.append(node)
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.UINT4, X.shape))
    (found,) = backend.run_model(proto, [np.full((2, 4), 17.9, np.float32)])
    assert found.dtype == helper.tensor_dtype_to_np_dtype(TensorProto.UINT4)
    assert (found.astype(np.int64) == 1).all()
