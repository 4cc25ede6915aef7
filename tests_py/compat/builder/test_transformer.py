"""``popart.GraphTransformer``: element types and weights of a model change before a session reads it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from popsr import errors
from popsr.compat import popart
from tests_py.compat.builder.programs import run_once

onnx = pytest.importorskip("onnx")

DEVICE = popart.DeviceManager().createCpuDevice()


def _model(kind: Any) -> tuple[bytes, str]:
    """x + w + c, where c is a constant and a cast makes a part."""
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo(np.dtype(kind), [2]), "x")
    w = builder.addInitializedInputTensor(np.array([1, 2], kind), "w")
    c = builder.aiOnnx.constant(np.array([3, 4], kind))
    part = builder.aiOnnx.cast(
        [builder.aiOnnx.cast([x], "INT32")], popart.TensorInfo(np.dtype(kind), [1]).data_type()
    )
    y = builder.aiOnnx.sum([x, w]) if np.dtype(kind).kind == "f" else builder.aiOnnx.add([x, w])
    y = builder.aiOnnx.add([y, builder.aiOnnx.add([c, part])])
    builder.addOutputTensor(y)
    return builder.getModelProto(), y


CONVERSIONS = {
    "convertFloatsToHalfs": (np.float32, np.float16),
    "convertDoublesToFloats": (np.float64, np.float32),
    "convertDoublesToHalfs": (np.float64, np.float16),
    "convertINT8ToINT32": (np.int8, np.int32),
    "convertINT16ToINT32": (np.int16, np.int32),
    "convertUINT8ToINT32": (np.uint8, np.int32),
    "convertUINT16ToINT32": (np.uint16, np.int32),
    "convertINT64ToINT32": (np.int64, np.int32),
}


@pytest.mark.parametrize("method", CONVERSIONS)
def test_element_types(method: str) -> None:
    before, after = CONVERSIONS[method]
    model, y = _model(before)
    transformer = popart.GraphTransformer(model)
    getattr(transformer, method)()
    anchors = run_once(transformer.getModelProto(), [y], {"x": np.array([5, 6], after)})
    assert anchors[y].dtype == after
    assert anchors[y].tolist() == [14, 18]


def test_bfloat16_becomes_float() -> None:
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.BFLOAT16, [1])
    w = onnx.helper.make_tensor("w", onnx.TensorProto.BFLOAT16, [1], [1.5])
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.BFLOAT16, [1])
    graph = onnx.helper.make_graph([onnx.helper.make_node("Add", ["x", "w"], ["y"])], "g", [x], [y], [w])
    transformer = popart.GraphTransformer(onnx.helper.make_model(graph).SerializeToString())
    transformer.convertBFloats16ToFloat32()
    made = onnx.ModelProto.FromString(transformer.getModelProto()).graph
    assert onnx.numpy_helper.to_array(made.initializer[0]).tolist() == [1.5]
    assert made.input[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT


def test_numbers_beyond_32_bits() -> None:
    builder = popart.Builder()
    builder.addInitializedInputTensor(np.array([2**40, -(2**40), 1], np.int64), "w")
    transformer = popart.GraphTransformer(builder.getModelProto())
    with pytest.raises(
        errors.AttributeValueError, match="convertINT64ToINT32: numbers beyond INT32, got them in 'w'"
    ):
        transformer.convertINT64ToINT32()
    transformer.convertINT64ToINT32(clip=True)
    [found] = onnx.ModelProto.FromString(transformer.getModelProto()).graph.initializer
    assert onnx.numpy_helper.to_array(found).tolist() == [2**31 - 1, -(2**31), 1]


def _constants(transformer: popart.GraphTransformer) -> None:
    transformer.convertInitializersToConstants(["w"])


def _whole(transformer: popart.GraphTransformer) -> None:
    transformer.convertAllFixedPointInitializersToConstants()


@pytest.mark.parametrize(("change", "trained"), [(_constants, ["v"]), (_whole, ["v", "w"])])
def test_constants_are_not_trained(change: Callable[[Any], None], trained: list[str]) -> None:
    builder = popart.Builder()
    ids = [builder.addInitializedInputTensor(np.zeros(2, np.float32), name) for name in "vw"]
    n = builder.addInitializedInputTensor(np.zeros(2, np.int64), "n")
    loss = builder.aiGraphcore.identityloss([builder.aiOnnx.add(ids)], popart.ReductionType.Sum)
    kept = builder.aiOnnx.add([n, n])
    transformer = popart.GraphTransformer(builder.getModelProto())
    change(transformer)
    session = popart.TrainingSession(
        transformer.getModelProto(), popart.DataFlow(1, [*ids, kept]), loss, popart.ConstSGD(1.0), DEVICE
    )
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    for _ in range(2):
        session.run(popart.PyStepIO({}, anchors))
    assert [id_ for id_ in ids if anchors[id_].any()] == trained
    with pytest.raises(errors.UnknownNameError, match="not an initializer"):
        transformer.convertInitializersToConstants(["x"])


def test_unused_inputs_go() -> None:
    builder = popart.Builder()
    names = [builder.addInputTensor("FLOAT", [2], name) for name in ("used", "unused", "output")]
    builder.addInitializedInputTensor(np.zeros(2, np.float32), "unused weight")
    builder.addOutputTensor(builder.aiOnnx.neg([names[0]]))
    builder.addOutputTensor("output")
    transformer = popart.GraphTransformer(builder.getModelProto())
    transformer.removeUnusedInputs()
    graph = onnx.ModelProto.FromString(transformer.getModelProto()).graph
    assert [each.name for each in graph.input] == ["used", "output"]
    assert not graph.initializer


def test_norms_train() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [4, 2], "x")
    kept = [builder.addInitializedInputTensor(np.full(2, v, np.float32)) for v in (1, 0, 5, 9)]
    [y] = builder.aiOnnx.batchnormalization([x, *kept], 1)
    transformer = popart.GraphTransformer(builder.getModelProto())
    transformer.prepareNodesForTraining()
    anchors = run_once(transformer.getModelProto(), [y], {x: np.arange(8, dtype=np.float32)})
    np.testing.assert_allclose(anchors[y].mean(0), 0, atol=1e-6)


def test_initializers_in_a_file(tmp_path: Path) -> None:
    model, y = _model(np.float32)
    transformer = popart.GraphTransformer(model)
    transformer.saveInitializersExternally(["w"], tmp_path / "w.bin")
    anchors = run_once(transformer.getModelProto(), [y], {"x": np.zeros(2, np.float32)})
    assert anchors[y].tolist() == [4, 6]


def test_no_model() -> None:
    with pytest.raises(errors.CheckpointError, match="GraphTransformer: fnModel is not a model"):
        popart.GraphTransformer(b"x")
    with pytest.raises(errors.ArgumentTypeError, match="GraphTransformer: fnModel is not a model"):
        popart.GraphTransformer(3)
