"""Names that programs of PopART's users have beside ops: each runs as they write it."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import popsr.compat
from popsr import errors, ops
from popsr.compat import popart
from popsr.compat._check import check as _check
from popsr.compat.popart._recording.signatures import Signature
from popsr.compat.popart._supported import _operations
from tests_py.compat.builder.programs import Linear, run_once

onnx = pytest.importorskip("onnx")

DEVICE = popart.DeviceManager().createCpuDevice()
SUM = popart.ReductionType.Sum


def _started(shape: tuple[int, ...] = (2, 3), kind: str = "FLOAT") -> tuple[popart.Builder, str, Any]:
    builder, data = popart.Builder(), np.arange(6, dtype=popart.TensorInfo(kind, [1]).data_type_lcase())
    return builder, builder.addInputTensor(kind, shape, "x"), data.reshape(shape)


# Sessions


def test_weights_are_uploaded_for_inference() -> None:
    program = Linear(np.array([2.0, 3.0], np.float32))
    found = run_once(program.builder.getModelProto(), [program.loss], {program.x: np.ones(2, np.float32)})
    assert found[program.loss] == 5


def test_training_without_weights_needs_no_upload() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2], "x")
    loss = builder.aiGraphcore.identityloss([x], SUM)
    session = popart.TrainingSession(
        builder.getModelProto(), popart.DataFlow(1, [loss]), loss, popart.ConstSGD(0.5), DEVICE
    )
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({x: np.ones(2, np.float32)}, anchors))
    assert anchors[loss] == 2


def test_saved_weights_are_in_float_data(tmp_path: Path) -> None:
    builder = popart.Builder()
    rows: dict[str, Any] = {
        "w": np.array([[1.5, -2]], np.float32),
        "half": np.ones(2, np.float16),
        "n": np.array([3], np.int64),
    }
    rows |= {"nan": np.array([np.nan, 1], np.float32), "none": np.zeros((0, 2), np.float32)}
    for name, value in rows.items():
        builder.addInitializedInputTensor(value, name)
    y = builder.aiOnnx.identity(["w"])
    session = popart.InferenceSession(builder.getModelProto(), popart.DataFlow(1, [y]), DEVICE)
    session.prepareDevice()
    session.modelToHost(tmp_path / "model.onnx")
    saved = {each.name: each for each in onnx.load(str(tmp_path / "model.onnx")).graph.initializer}
    assert list(saved["w"].float_data) == [1.5, -2]
    for name, value in rows.items():
        assert onnx.numpy_helper.to_array(saved[name]).tobytes() == value.tobytes()
    session.resetHostWeights(tmp_path / "model.onnx")


# Ops of a builder


def test_reshape_const() -> None:
    builder, x, data = _started()
    y = builder.reshape_const(builder.aiOnnx, [x], [3, -1])
    np.testing.assert_array_equal(run_once(builder.getModelProto(), [y], {x: data})[y], data.reshape(3, 2))
    assert builder.getTensorShape(y) == [3, 2]
    with pytest.raises(errors.Error, match="reshape_const: aiOnnx"):
        builder.reshape_const(builder, [x], [6])  # type: ignore[arg-type]
    with pytest.raises(errors.Error, match="reshape_const: shape"):
        builder.reshape_const(builder.aiOnnx, [x], [3.5])  # type: ignore[list-item]


def test_constants_say_that_they_are_dense() -> None:
    builder, x, data = _started()
    ids = [
        builder.aiOnnxOpset11.constant(data, False),
        builder.aiOnnxOpset11.constant(data, False, "a name"),
        builder.aiOnnxOpset11.constant(data, is_value_sparse=False),
        builder.aiOnnx.constant(value=data, debugContext="another"),
    ]
    assert [id_.partition("Constant")[0] for id_ in ids] == ["", "a name/", "", "another/"]
    y = builder.aiOnnxOpset11.sum([x, *ids])
    np.testing.assert_array_equal(run_once(builder.getModelProto(), [y], {x: data})[y], 5 * data)
    with pytest.raises(errors.UnsupportedError, match="constant: a sparse value"):
        builder.aiOnnxOpset11.constant(data, True)


def test_init_with_a_name() -> None:
    builder, x, data = _started()
    kind = popart.DataType.FLOAT, popart.InitType.Zero
    ids = [
        builder.aiGraphcore.init([2, 3], *kind, "one"),
        builder.aiGraphcore.init([2, 3], *kind, 0, "two"),
        builder.aiGraphcore.init([2, 3], *kind, debugContext=popart.DebugContext("three")),
    ]
    assert [id_.partition("/")[0] for id_ in ids] == ["one", "two", "three"]
    y = builder.aiOnnx.sum([x, *ids])
    np.testing.assert_array_equal(run_once(builder.getModelProto(), [y], {x: data})[y], data)


def test_dynamicslice_into_a_tensor() -> None:
    builder, x, data = _started()
    index = builder.addInputTensor("UINT32", [1], "index")
    into = builder.addInputTensor("FLOAT", [1, 3], "into")
    y = builder.aiGraphcore.dynamicslice([x, index, into], [0], [1])
    given = {x: data, index: np.ones(1, np.uint32), into: np.zeros((1, 3), np.float32)}
    np.testing.assert_array_equal(run_once(builder.getModelProto(), [y], given)[y], data[1:])
    wrong = builder.aiGraphcore.dynamicslice([x, index, x], [0], [1])
    with pytest.raises(errors.Error, match=r"slice of .1, 3. into .2, 3."):
        run_once(builder.getModelProto(), [wrong], {x: data, index: given[index]})


@pytest.mark.parametrize("method", ["argmin", "argmax"])
@pytest.mark.parametrize("kind", ["INT32", "FLOAT"])
def test_places_are_int32(method: str, kind: str) -> None:
    builder, x, data = _started(kind=kind)
    y = getattr(builder.aiOnnx, method)([x], 1, 0)
    found = run_once(builder.getModelProto(), [y], {x: -data})[y]
    assert (found.dtype, builder.getTensorDtypeString(y)) == (np.int32, "int32")
    np.testing.assert_array_equal(found, getattr(np, method)(-data, 1))


def test_a_batch_norm_without_shared_places() -> None:
    """``spatial=0``: each place of a channel has its own moments."""
    builder, x, data = _started((3, 2))
    kept = [builder.addInitializedInputTensor(np.full(2, v, np.float32)) for v in (2, 1, 0.5, 4)]
    [y] = builder.aiOnnxOpset7.batchnormalization([x, *kept], 1, spatial=0, epsilon=0.0)
    z, mean, var, own_mean, own_var = builder.aiOnnxOpset7.batchnormalization(
        [x, *kept], 5, spatial=0, momentum=0.5, epsilon=0.0
    )
    found = run_once(builder.getModelProto(), [y, z, mean, var, own_mean, own_var], {x: data})
    m, v = data.mean(0), data.var(0)
    wanted = [(data - 0.5) + 1, 2 * (data - m) / np.sqrt(v) + 1, (0.5 + m) / 2, (4 + v) / 2, m, v]
    for id_, value in zip((y, z, mean, var, own_mean, own_var), wanted, strict=True):
        np.testing.assert_allclose(found[id_], value, rtol=1e-5)


def test_a_batch_norm_of_planes_without_shared_places() -> None:
    builder, x, data = _started((2, 1, 3))
    kept = [builder.addInitializedInputTensor(np.full((1, 3), v, np.float32)) for v in (1, 0, 2, 1)]
    [y] = builder.aiOnnxOpset7.batchnormalization([x, *kept], 1, spatial=0, epsilon=0.0)
    z = builder.aiOnnxOpset7.batchnormalization([x, *kept], 5, spatial=0, epsilon=0.0)[0]
    found = run_once(builder.getModelProto(), [y, z], {x: data})
    np.testing.assert_allclose(found[y], data - 2, rtol=1e-6)
    np.testing.assert_allclose(found[z], np.array([-1, 1]).reshape(2, 1, 1) * np.ones((1, 1, 3)), rtol=1e-6)


@pytest.mark.parametrize("wide", ["moments", "all"])
@pytest.mark.parametrize("results", [1, 5])
def test_a_batch_norm_of_mixed_types(wide: str, results: int) -> None:
    """Data of fp16 with moments, and also scale and bias, of fp32."""
    builder, x, data = _started((3, 2), "FLOAT16")
    kinds = [np.float32 if wide == "all" else np.float16] * 2 + [np.float32] * 2
    kept = [
        builder.addInitializedInputTensor(np.full(2, v, k))
        for v, k in zip((2, 1, 0.5, 4), kinds, strict=True)
    ]
    made = builder.aiOnnx.batchnormalization([x, *kept], results)
    ids = [made] if isinstance(made, str) else list(made)
    found = run_once(builder.getModelProto(), ids, {x: data})
    assert [found[id_].dtype for id_ in ids] == [np.float16, *[np.float32] * 4][:results]
    mean, var = (0.5, 4.0) if results == 1 else (data.mean(0), data.var(0))
    wanted = 2 * (data.astype(np.float32) - mean) / np.sqrt(var + 1e-5) + 1
    np.testing.assert_allclose(found[ids[0]], wanted, rtol=2e-3, atol=2e-3)


# Graphs


def test_called_graphs_read_tensors_of_their_parent() -> None:
    """They train; whether the call names the tensor among its inputs does not matter."""
    for named in (False, True):
        builder = popart.Builder()
        x = builder.addInputTensor("FLOAT", [2], "x")
        w = builder.addInitializedInputTensor(np.array([2, 3], np.float32), "w")
        inner = builder.createSubgraphBuilder()
        first, weight = inner.addInputTensor("FLOAT", [2]), inner.addInputTensorFromParentGraph(w)
        inner.addOutputTensor(inner.aiOnnx.mul([first, weight]))
        [y] = builder.aiGraphcore.call([x, w] if named else [x], 1, inner)
        [z] = builder.aiGraphcore.call([y, w] if named else [y], 1, inner)
        loss = builder.aiGraphcore.identityloss([z], SUM)
        gradient = popart.reservedGradientPrefix() + w
        found = run_once(builder.getModelProto(), [z, gradient], {x: np.ones(2, np.float32)}, loss)
        assert found[z].tolist() == [4, 9]
        assert found[gradient].tolist() == [4, 6]
        assert builder.getTensorShape(z) == [2]


def test_a_call_may_give_other_tensors_for_those_of_the_parent() -> None:
    builder = popart.Builder()
    x, other = (builder.addInputTensor("FLOAT", [2], name) for name in ("x", "other"))
    inner = builder.createSubgraphBuilder()
    seen = inner.addInputTensorFromParentGraph(x)
    inner.addOutputTensor(inner.aiOnnx.neg([seen]))
    ids = [builder.aiGraphcore.call(args, 1, inner)[0] for args in ([], [x], [other])]
    found = run_once(
        builder.getModelProto(), ids, {x: np.ones(2, np.float32), other: np.zeros(2, np.float32)}
    )
    assert [found[id_].tolist() for id_ in ids] == [[-1, -1], [-1, -1], [0, 0]]


# Custom operators


@pytest.fixture
def _own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("popsr.compat._objects.custom_ops._entries", {})


def _cube(builder: popart.Builder, x: str, version: int = 1, **attributes: Any) -> str:
    return builder.customOp(
        opName="Cube",
        domain="custom.ops",
        opVersion=version,
        inputs=[x],
        numOutputs=1,
        attributes={"scale": 2.0, **attributes},
    )[0]


@pytest.mark.usefixtures("_own")
def test_custom_operators_run_and_train() -> None:
    @popsr.compat.custom_op("custom.ops", "Cube", 1)
    def cube(x: popsr.Tensor, scale: float, words: Any = ()) -> popsr.Tensor:
        assert list(words) in ([], ["a", "b"])
        return x * x * x * scale

    @popsr.compat.custom_op("custom.ops", "Cube", 2)
    def other(x: popsr.Tensor, scale: float) -> popsr.Tensor:
        return ops.negate(x) * scale

    builder, w = popart.Builder(), np.array([1, 2], np.float32)
    id_ = builder.addInitializedInputTensor(w, "w")
    y, z = _cube(builder, id_, words=["a", "b"]), _cube(builder, id_, 2)
    assert builder.getTensorShape(y) == [2]
    loss = builder.aiGraphcore.identityloss([builder.aiOnnx.add([y, z])], SUM)
    gradient = popart.reservedGradientPrefix() + id_
    found = run_once(builder.getModelProto(), [y, z, gradient], {}, loss)
    np.testing.assert_array_equal(found[y], 2 * w**3)
    np.testing.assert_array_equal(found[z], -2 * w)
    np.testing.assert_array_equal(found[gradient], 6 * w**2 - 2)


@pytest.mark.usefixtures("_own")
def test_custom_operators_that_do_not_fit() -> None:
    builder, x, _ = _started()
    y = _cube(builder, x)
    with pytest.raises(errors.UnsupportedOpsError, match="Cube") as caught:
        run_once(builder.getModelProto(), [y], {})
    assert "popsr.compat.custom_op('custom.ops', 'Cube', 1)" in str(caught.value.__notes__)
    popsr.compat.custom_op("custom.ops", "Cube", 1)(lambda x, size: x)
    with pytest.raises(errors.AttributeValueError, match=r"Cube.*does not take"):
        run_once(builder.getModelProto(), [y], {})
    builder, x, _ = _started()
    popsr.compat.custom_op("custom.ops", "Cube", 3)(lambda x, scale: [x, x])
    y = _cube(builder, x, 3)
    with pytest.raises(errors.GraphError, match="return a tensor an output, got 2 results, expected 1"):
        run_once(builder.getModelProto(), [y], {})


# The module


def test_debug_names() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2], popart.DebugContext("in"))
    assert x == "in"
    assert builder.aiOnnx.neg([x], popart.DebugContext("layer")) == "layer/Neg:0"
    assert popart.initializePoplarDebugInfo("debug.cbor", "cbor") is False
    assert popart.closePoplarDebugInfo() is False
    assert not Path("debug.cbor").exists()
    with pytest.raises(errors.Error, match="initializePoplarDebugInfo"):
        popart.initializePoplarDebugInfo(3)  # type: ignore[arg-type]


def test_version() -> None:
    number = popart.versionNumber()
    assert (number.major, number.minor, number.point) == tuple(number) == (3, 4, 0)
    assert popart.versionString().startswith("3.4.0 ")


def test_supported_operations() -> None:
    there, missing = popart.getSupportedOperations(False), popart.getUnsupportedOperations()
    assert {*there} | {*missing} == {*_operations()}
    assert not {*there} & {*missing}
    refused = {each.type for each in missing}
    assert refused >= {"Abort", "CtcBeamSearchDecoder", "PackedDataBlock", "MaxRoiPool", "StringNormalizer"}
    assert not refused & {"Slice", "RandomNormal", "Dropout", "Gelu", "L1", "Celu"}
    definitions = popart.getSupportedOperationsDefinition(False)
    assert list(definitions) == there
    conv = definitions[popart.OperatorIdentifier("ai.onnx", "Conv", 11)]
    assert (conv.inputs, conv.outputs) == ((2, 3), (1, 1))
    assert "dilations" in conv.attributes
    assert all(isinstance(each, Signature) for each in _operations().values())


def test_patterns_by_name() -> None:
    patterns = popart.Patterns(popart.PatternsLevel.NoPatterns)
    assert not patterns.PreUniRepl
    patterns.PreUniRepl = True
    assert patterns.isPatternEnabled("PreUniRepl")
    patterns.enablePattern("OpToIdentity", True)
    assert patterns.OpToIdentity
    assert popart.Patterns(["PostNRepl"]).PostNRepl
    with pytest.raises(errors.Error, match="enablePattern: value"):
        patterns.PreUniRepl = 1


def test_types_of_states_of_sgd() -> None:
    half = popart.DataType.FLOAT16
    values = {"defaultLearningRate": (0.5, False), "defaultMomentum": (0.5, True)}
    spellings: list[dict[str, Any]] = [{"accl1Type": half, "accumType": half}, {"accl1_type": half}]
    for named in spellings:
        program = Linear(np.zeros(2, np.float32))
        session = program.session(popart.SGD(values, **named))
        assert session.getInfo("Accl___w") == popart.TensorInfo("FLOAT16", [2])
        program.step(session, np.ones(2, np.float32))
        assert program.weight(session).tolist() == [-0.5, -0.5]
    with pytest.raises(errors.Error, match="SGD: accl1Type"):
        popart.SGD(values, accl1Type="FLOAT16")


def test_a_compiled_library_is_passed_over_with_a_note(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    library = tmp_path / "custom_ops.so"
    library.write_bytes(b"\x7fELF")
    popart.load_library(str(library))
    assert [each.levelno for each in caplog.records] == [logging.WARNING]
    assert "custom_ops.so' is not loaded" in caplog.messages[0]


def test_shapes_of_settings_are_lists() -> None:
    groups = popart.CommGroup(popart.CommGroupType.Consecutive, 2)
    settings = popart.VariableSettings(groups, popart.VariableRetrievalMode.OnePerGroup)
    assert settings.shapeOnReplica([2, 3], 4, "w") == [3]
    assert settings.shapeOnHost([3], 4) == [2, 3]
    with pytest.raises(errors.Error):
        settings.shapeOnReplica([3, 3], 4, "w")


def test_the_type_of_a_remap_may_be_its_number() -> None:
    builder, x, data = _started()
    made = [
        builder.aiGraphcore.tensorremap([x], each, debugContext="remap")
        for each in (0, 2, popart.TensorRemapType.FwdBwd)
    ]
    found = run_once(builder.getModelProto(), made, {x: data})
    assert all(np.array_equal(found[each], data) for each in made)
    with pytest.raises(errors.Error, match="tensorremap: remap_type"):
        builder.aiGraphcore.tensorremap([x], 3)


def test_check_finds_ops_that_a_builder_lacks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "main.py").write_text(CHECKED)
    assert _check.main([str(tmp_path / "main.py"), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)["findings"]
    assert [(each["line"], each["text"], each["suggestion"]) for each in found] == [
        (5, "no op aiOnnxOpset9.matmull", "'matmul'"),
        (6, "op aiGraphcore.abort: sessions of models refuse it", None),
        (8, "no op aiOnnxOpset10.bitshift", "aiOnnxOpset11.bitshift"),
    ]


CHECKED = """import popart
builder = popart.Builder()
class Model:
    def __init__(self): self.builder = popart.Builder()
    def run(self, x): return self.builder.aiOnnxOpset9.matmull([x, x]), self.builder.aiOnnx.matmul([x, x])
builder.aiGraphcore.abort()
builder.aiGraphcore.gelu([]), builder.aiGraphcore.init([2], "FLOAT", popart.InitType.Zero)
builder.aiOnnx.bitshift([], "LEFT"), builder.aiOnnxOpset10.bitshift([], "LEFT"), builder.aiOnnx.constant(2)
try:
    builder.aiOnnx.einsum([])
except AttributeError:
    pass
"""
