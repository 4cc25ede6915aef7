"""The Builder: names, descriptions, attributes of nodes, subgraphs, files, and calls that do not fit."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import errors
from popsr.bridge.onnx import load
from popsr.compat import popart
from popsr.compat.popart._recording.onnx_ops import signatures
from tests_py.compat.builder.programs import Linear
from tests_py.support.unchecked import unchecked

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnx.reference")

METHODS = [
    "setGraphName",
    "addInputTensor",
    "addUntypedInputTensor",
    "addInputTensorFromParentGraph",
    "addInitializedInputTensor",
    "addOutputTensor",
    "_createSubgraphBuilder",
    "createSubgraphBuilder",
    "saveModelProto",
    "saveInitializersExternally",
    "customOp",
    "addNodeAttribute",
    "nodeHasAttribute",
    "getInt64NodeAttribute",
    "getInt64VectorNodeAttribute",
    "getFloatNodeAttribute",
    "getFloatVectorNodeAttribute",
    "getStringNodeAttribute",
    "getStringVectorNodeAttribute",
    "removeNodeAttribute",
    "getAllNodeAttributeNames",
    "embedReplicationFactor",
    "getModelProto",
    "getInputTensorIds",
    "getOutputTensorIds",
    "getValueTensorIds",
    "getTrainableTensorIds",
    "getTensorShape",
    "getTensorDtypeString",
    "isInitializer",
    "virtualGraph",
    "executionPhase",
    "outlineAttributes",
    "getExecutionPhase",
    "hasExecutionPhase",
    "recomputeOutput",
    "checkpointOutput",
    "outputTensorLocation",
    "pipelineStage",
    "schedulePriority",
    "commGroup",
    "excludePatterns",
    "getPipelineStage",
    "hasPipelineStage",
    "getVirtualGraph",
    "hasVirtualGraph",
    "setPartialsType",
    "getPartialsType",
    "setAvailableMemoryProportion",
    "setEnableConvDithering",
    "setSerializeMatMul",
    "nameScope",
    "getNameScope",
    "recomputeOutputInBackwardPass",
    "getRecomputeOutputInBackwardPass",
    "setInplacePreferences",
]
SESSION_METHODS = [
    "initAnchorArrays",
    "updateEngineCache",
    "compileAndExport",
    "saveExecutable",
    "saveVariables",
    "loadExecutable",
    "prepareDevice",
    "getRandomSeed",
    "setRandomSeed",
    "getRNGState",
    "setRNGState",
    "getCycleCount",
    "loadEngineAndConnectStreams",
    "weightsToHost",
    "weightsFromHost",
    "readWeights",
    "writeWeights",
    "updateOptimizerFromHost",
    "run",
    "modelToHost",
    "updateExternallySavedTensorLocations",
    "getInfo",
    "getTensorIds",
    "getSummaryReport",
    "getReport",
    "getSerializedGraph",
    "resetHostWeights",
    "broadcastWeights",
    "getIr",
    "connectStreamToCallback",
    "dataFlow",
    "replicationFactor",
    "accumulationFactor",
]


def test_the_methods_of_popart_are_there() -> None:
    assert [name for name in METHODS if not inspect.getdoc(getattr(popart.Builder, name, None))] == []
    for cls in (popart.TrainingSession, popart.InferenceSession):
        assert [name for name in SESSION_METHODS if not inspect.getdoc(getattr(cls, name, None))] == []
    assert {version: len(signatures(version)) for version in (6, 10, 11)} == {6: 95, 10: 136, 11: 154}
    assert "matmul" in dir(popart.Builder().aiOnnx)
    assert "l1loss" in dir(popart.Builder().aiGraphcore)


def test_ids_are_unique_and_have_scopes() -> None:
    builder = popart.Builder()
    inputs = [builder.addInputTensor("FLOAT", [2]) for _ in range(2)]
    assert inputs == ["input", "input/1"]
    with builder.nameScope("layer"):
        first = builder.aiOnnx.add(inputs)
        second = builder.aiOnnx.add(inputs, "sum")
        assert builder.getNameScope("x") == "layer/x"
        with builder.nameScope("inner"):
            ids = [
                builder.addInitializedInputTensor(np.zeros(2, np.float32), "w"),
                builder.addUntypedInputTensor(),
            ]
        ids += [builder.addInputTensor("FLOAT", [2], name) for name in ("w", "w")]
    third = builder.aiOnnx.add(inputs, debugContext="sum")
    assert ids == ["layer/inner/w", "layer/inner/input", "layer/w", "layer/w/1"]
    assert [first, second, third] == ["layer/Add:0", "layer/sum/Add:0", "sum/Add:0"]
    assert builder.getNameScope() == ""
    weight = builder.addInitializedInputTensor(np.zeros(2, np.float32))
    assert builder.isInitializer(weight)
    assert not builder.isInitializer(first)
    builder.addOutputTensor(third)
    assert builder.getInputTensorIds() == [*inputs, *ids[1:], ids[0], weight]
    assert builder.getOutputTensorIds() == [third]
    assert builder.getValueTensorIds() == [first, second]
    assert builder.getTrainableTensorIds() == [ids[0], weight]


def test_shapes_and_types_are_inferred() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT16", [4, 8]), "x")
    w = builder.addInitializedInputTensor(np.zeros((8, 3), np.float16), "w")
    y = builder.aiOnnx.matmul([x, w])
    values, places = builder.aiOnnx.topk([y, builder.aiOnnx.constant(np.array([2], np.int64))])
    loss = builder.aiGraphcore.l1loss([values], 0.1)
    assert [builder.getTensorShape(each) for each in (x, w, y, values, loss)] == [
        [4, 8],
        [8, 3],
        [4, 3],
        [4, 2],
        [],
    ]
    assert [builder.getTensorDtypeString(each) for each in (y, places)] == ["float16", "int64"]


def test_attributes_of_placement_are_metadata() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2])
    with builder.virtualGraph(1), builder.pipelineStage(2):
        assert (builder.hasVirtualGraph(), builder.getVirtualGraph(), builder.getPipelineStage()) == (
            True,
            1,
            2,
        )
        y = builder.aiOnnx.neg([x])
    assert not builder.hasVirtualGraph()
    z = builder.aiOnnx.leakyrelu([y], alpha=0.5)
    builder.virtualGraph(z, 3)
    builder.executionPhase([z], 4)
    builder.recomputeOutput(z, popart.RecomputeType.Recompute)
    builder.recomputeOutputInBackwardPass(z)
    builder.setAvailableMemoryProportion(z, 0.5)
    builder.setPartialsType(z, "HALF")
    assert builder.checkpointOutput([y]) == [y]
    assert (builder.getVirtualGraph(y), builder.getVirtualGraph([z]), builder.getExecutionPhase(z)) == (
        1,
        3,
        4,
    )
    assert (builder.getPartialsType(y), builder.getPartialsType(z)) == ("FLOAT", "HALF")
    assert (builder.getRecomputeOutputInBackwardPass(y), builder.getRecomputeOutputInBackwardPass(z)) == (
        False,
        True,
    )
    assert builder.getInt64NodeAttribute("__ipu_number", z) == 3
    assert builder.getFloatNodeAttribute("alpha", z) == 0.5
    assert builder.getStringNodeAttribute("__recompute_output", z) == "Recompute"
    assert builder.nodeHasAttribute("alpha", z)
    builder.removeNodeAttribute("__ipu_number", z)
    assert not builder.nodeHasAttribute("__ipu_number", z)
    builder.addNodeAttribute("alpha", 0.25, z)
    builder.addNodeAttribute("__mine", [1, 2], z)
    builder.addNodeAttribute("words", ["a", "b"], z)
    assert builder.getStringVectorNodeAttribute("words", z) == ["a", "b"]
    builder.removeNodeAttribute("words", z)
    builder.setSerializeMatMul({z}, "input_channels", 4, keep_precision=True)
    assert builder.getInt64VectorNodeAttribute("__mine", z) == [1, 2]
    builder.addOutputTensor(z)
    model = onnx.ModelProto.FromString(builder.getModelProto())
    onnx.checker.check_model(model)
    [found] = onnx.reference.ReferenceEvaluator(model).run(None, {x: np.array([-2, 4], np.float32)})
    np.testing.assert_array_equal(found, [2.0, -1.0])


def test_models_load_where_models_do(tmp_path: Path) -> None:
    program = Linear(np.ones(2, np.float32))
    program.builder.saveModelProto(tmp_path / "model.onnx")
    read = load(str(tmp_path / "model.onnx"))
    assert list(read.variables) == ["w"]
    np.testing.assert_array_equal(read.run({"x": np.array([3, 4], np.float32)})[program.loss], 7)
    again = popart.Builder(str(tmp_path / "model.onnx"))
    assert again.getTensorShape(program.product) == [2]
    assert again.aiOnnx.neg([program.product]) == "Neg:0"


def test_initializers_in_a_file(tmp_path: Path) -> None:
    program = Linear(np.arange(3, dtype=np.float32))
    program.builder.saveInitializersExternally(["w"], tmp_path / "weights.bin")
    program.builder.saveModelProto(tmp_path / "model.onnx")
    session = popart.InferenceSession(
        str(tmp_path / "model.onnx"),
        popart.DataFlow(1, [program.loss]),
        popart.DeviceManager().createCpuDevice(),
    )
    session.prepareDevice()
    assert program.weight(session).tolist() == [0, 1, 2]
    assert program.weight(program.session()).tolist() == [0, 1, 2]  # a model of bytes
    assert program.builder.getTensorShape(program.product) == [3]
    with pytest.raises(errors.AttributeValueError, match="data in a file already, got 'w'"):
        program.builder.saveInitializersExternally(["w"], tmp_path / "again.bin")
    (tmp_path / "weights.bin").write_bytes(bytes(12))  # another file under that name
    with pytest.raises(errors.CheckpointError, match="SHA-1"):
        program.session()


def test_initializers_of_saved_models_in_a_file(tmp_path: Path) -> None:
    """Data that is not in ``raw_data``; two files of one name in two folders; a model from elsewhere."""
    programs = [Linear(np.full(3, i, np.float32)) for i in (1, 2)]
    models = []
    for i, program in enumerate(programs):
        program.session().modelToHost(tmp_path / f"{i}.onnx")
        builder = popart.Builder(str(tmp_path / f"{i}.onnx"))
        (tmp_path / str(i)).mkdir()
        builder.saveInitializersExternally(["w"], tmp_path / str(i) / "w.bin")
        models.append(builder.getModelProto())
    for program, model, value in zip(programs, models, (1, 2), strict=True):
        session = popart.InferenceSession(
            model, popart.DataFlow(1, [program.loss]), popart.DeviceManager().createCpuDevice()
        )
        session.prepareDevice()
        assert program.weight(session).tolist() == [value] * 3
    other = models[0].replace(b"w.bin", b"v.bin")
    for entry in onnx.ModelProto.FromString(other).graph.initializer[0].external_data:
        if entry.key == "checksum":
            other = other.replace(entry.value.encode(), b"0" * 40)
    with pytest.raises(errors.CheckpointError, match="data of 'w' in another file"):
        popart.InferenceSession(other, popart.DataFlow(1, []), popart.DeviceManager().createCpuDevice())


def test_custom_operators_are_recorded() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2])
    [y] = builder.customOp("Cube", 1, "com.acme", [x], {"scale": 0.5}, 1, "name")
    builder.addOutputTensor(y)
    model = onnx.ModelProto.FromString(builder.getModelProto())
    assert [(each.domain, each.version) for each in model.opset_import] == [("com.acme", 1), ("", 10)]
    with pytest.raises(errors.UnsupportedOpsError, match="Cube"):
        popart.InferenceSession(
            model.SerializeToString(), popart.DataFlow(1, [y]), popart.DeviceManager().createCpuDevice()
        )


def _started() -> tuple[Any, str]:
    builder = popart.Builder()
    return builder, builder.addInputTensor("FLOAT", [2, 3], "x")


B, X = _started()
Y = B.aiOnnx.leakyrelu([X])
BAD: dict[str, Callable[[], Any]] = {
    "aiOnnxOpset10: unknown op, got 'matmull', expected 'matmul'": lambda: B.aiOnnx.matmull([X, X]),
    "aiOnnxOpset10: unknown op, got 'einsum'": lambda: B.aiOnnx.einsum([X]),
    "aiGraphcore: unknown op, got 'l1los', expected 'l1loss'": lambda: B.aiGraphcore.l1los([X]),
    "'Builder' object has no attribute 'aiOnnxOpset12'": lambda: B.aiOnnxOpset12,
    "aiOnnxOpset10.neg: no such tensor, got 'y'": lambda: B.aiOnnx.neg(["y"]),
    "aiOnnxOpset10.neg: wrong number of inputs, got 2, expected 1": lambda: B.aiOnnx.neg([X, X]),
    "aiOnnxOpset10.neg: args is not a sequence of ids, got 'x'": lambda: B.aiOnnx.neg(X),
    "aiOnnxOpset10.neg: args is not a str, got 3": lambda: B.aiOnnx.neg([3]),
    "aiOnnxOpset10.concat: axis is missing": lambda: B.aiOnnx.concat([X, X]),
    "aiOnnxOpset10.concat: axis is not an int": lambda: B.aiOnnx.concat([X, X], "0"),
    "aiOnnxOpset10.split: num_outputs is missing": lambda: B.aiOnnx.split([X]),
    "aiOnnxOpset10.split: num_outputs: got 0": lambda: B.aiOnnx.split([X], 0),
    "aiOnnxOpset10.neg: unknown argument, got 'axis', expected one of args, debugContext": lambda: (
        B.aiOnnx.neg([X], axis=1)
    ),
    "aiOnnxOpset10.neg: too many arguments, got 3": lambda: B.aiOnnx.neg([X], "name", 3),
    "aiOnnxOpset10.neg: argument twice, got 'args'": lambda: B.aiOnnx.neg([X], args=[X]),
    "aiOnnxOpset10.cast: to: unknown data type, got 'FLOATS'": lambda: B.aiOnnx.cast([X], "FLOATS"),
    "aiOnnxOpset10.constant: value is not an array": lambda: B.aiOnnx.constant([1.0]),
    "aiOnnxOpset10.logical_if: else_branch is not a builder": lambda: B.aiOnnx.logical_if([X], 1, 3, 3),
    "aiGraphcore.replicatedallreduce: commGroup is not a group": lambda: B.aiGraphcore.replicatedallreduce(
        [X], commGroup=[1]
    ),
    "addInputTensor: no shape": lambda: B.addInputTensor("FLOAT"),
    "TensorInfo: unknown data type, got 'FLOATY'": lambda: B.addInputTensor("FLOATY", [2]),
    "addInputTensor: ONNX has no tensors of this type, got UNDEFINED": lambda: B.addInputTensor(
        "UNDEFINED", [2]
    ),
    "addInitializedInputTensor: wrong arguments, got": lambda: B.addInitializedInputTensor([1.0]),
    "addOutputTensor: no such tensor, got 'y'": lambda: B.addOutputTensor("y"),
    "getTensorShape: no such tensor, got 'y'": lambda: B.getTensorShape("y"),
    "addInputTensorFromParentGraph: no such tensor": lambda: B.addInputTensorFromParentGraph(X),
    "getVirtualGraph: no such attribute": lambda: B.getVirtualGraph(Y),
    "getFloatNodeAttribute: no such attribute, got 'beta'": lambda: B.getFloatNodeAttribute("beta", Y),
    "virtualGraph: no such node, got": lambda: B.virtualGraph("x", 3),
    "setAvailableMemoryProportion: got 1.5, expected": lambda: B.setAvailableMemoryProportion(Y, 1.5),
    "setAvailableMemoryProportion: got 0, expected": lambda: B.setAvailableMemoryProportion({Y}, 0),
    "setSerializeMatMul: unknown mode, got 'rows'": lambda: B.setSerializeMatMul(Y, "rows", 4),
    "setSerializeMatMul: factor: got -1": lambda: B.setSerializeMatMul(Y, "input_channels", -1),
    "addNodeAttribute: no attribute has this value": lambda: B.addNodeAttribute("alpha", object(), Y),
    "saveInitializersExternally: not an initializer": lambda: B.saveInitializersExternally([X], "/tmp/none"),
    "saveInitializersExternally: ids is not a str": lambda: B.saveInitializersExternally([[X]], "/tmp/none"),
    "saveModelProto: cannot write": lambda: B.saveModelProto("long" * 100),
    "customOp: attributes is not a str, got 1": lambda: B.customOp("Op", 1, "own", [X], {1: 2}),
    "customOp: no attribute has this value": lambda: B.customOp("Op", 1, "own", [X], {"a": object()}),
    "SGD: unknown value, got \\[\\]": lambda: unchecked(popart.SGD({})).value([], X),
    "SGD: lossScaling: got 0": lambda: popart.SGD({"lossScaling": (0.0, True)}),
    "SGD: defaultVelocityScaling: got 0": lambda: popart.SGD({"defaultVelocityScaling": 0}),
    "ConstSGD: lossScaling: got 0": lambda: popart.ConstSGD(0.1, loss_scaling=0),
    "SGD.tensor_name is not a str": lambda: unchecked(popart.SGD({})).tensor_name("momentum", [X]),
    "embedReplicationFactor: replicationFactor: got 0": lambda: B.embedReplicationFactor(0),
    "Builder: unknown version of ONNX, got 12": lambda: popart.Builder(opsets={"ai.onnx": 12}),
    "InputSettings: no such setting, got 3": lambda: popart.InputSettings(3),
}


@pytest.mark.parametrize("text", BAD)
def test_calls_that_do_not_fit(text: str) -> None:
    before = B.getModelProto()
    with pytest.raises((errors.Error, AttributeError), match=f"^{text}"):
        BAD[text]()
    assert B.getModelProto() == before


SHAPES: dict[str, Callable[[Any, str], str]] = {
    "matrices that do not fit": lambda b, x: b.aiOnnx.matmul([x, x]),
    "an axis that is not there": lambda b, x: b.aiOnnx.concat([x, x], 5),
    "a reshape to another size": lambda b, x: b.aiGraphcore.reshape([x], [4]),
    "labels of another shape": lambda b, x: b.aiGraphcore.nllloss(
        [x, b.addInitializedInputTensor(np.zeros(7, np.int32))]
    ),
    "operands of two types": lambda b, x: b.aiOnnx.add(
        [x, b.addInitializedInputTensor(np.zeros((2, 3), np.float16))]
    ),
}


@pytest.mark.parametrize("name", SHAPES)
def test_nodes_that_do_not_fit_are_named(name: str) -> None:
    builder, x = _started()
    made = SHAPES[name](builder, x)
    with pytest.raises(errors.Error, match=r"position 1|at "):
        popart.InferenceSession(
            builder.getModelProto(), popart.DataFlow(1, [made]), popart.DeviceManager().createCpuDevice()
        )


def test_shapes_are_read_once() -> None:
    """Each call begins at the shapes that are known: the work grows with the new nodes alone."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2, 3])
    nodes = []
    for _ in range(20):
        x = builder.aiOnnx.relu([builder.aiOnnx.neg([x])])
        nodes.append(len(builder._part(x).graph.node))
        assert builder.getTensorShape(x) == [2, 3]
    assert nodes == [2] * 20


def test_shapes_that_need_values_of_a_part_that_is_known() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2, 3])
    two = builder.aiOnnx.constant(np.array([2.0], np.float32))
    assert builder.getTensorShape(two) == [1]
    sizes = builder.aiOnnx.cast(
        [builder.aiOnnx.mul([two, builder.aiOnnx.constant(np.array([3.0], np.float32))])], "INT64"
    )
    assert builder.getTensorShape(builder.aiOnnx.reshape([x, sizes])) == [6]


def test_shapes_follow_attributes_and_replication() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [1, 2, 3])
    y = builder.aiOnnx.transpose([x], perm=[0, 2, 1])
    z = builder.aiOnnx.neg([y])
    assert builder.getTensorShape(z) == [1, 3, 2]
    builder.addNodeAttribute("perm", [2, 1, 0], [y])
    assert (builder.getTensorShape(y), builder.getTensorShape(z)) == ([3, 2, 1], [3, 2, 1])
    groups = popart.VariableSettings(popart.CommGroup(popart.CommGroupType.Consecutive, 2))
    w = builder.aiOnnx.neg([builder.addInitializedInputTensor(np.zeros((2, 4), np.float32), groups)])
    assert builder.getTensorShape(w) == [2, 4]
    builder.embedReplicationFactor(4)
    assert builder.getTensorShape(w) == [4]


def test_onnx_is_needed_when_a_builder_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    with pytest.raises(ImportError, match="Builder: ONNX is not installed"):
        popart.Builder()


def test_installed_programs_have_it() -> None:
    popsr.compat.install(force=True)
    try:
        assert __import__("popart").Builder is popart.Builder
    finally:
        popsr.compat.uninstall()
