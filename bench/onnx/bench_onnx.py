"""Reading a model of ONNX of 1,000 nodes, and inference beside onnxruntime.

The model that is read is a chain of layers with 500 weights. A ratio takes out Python's own speed: by turns a chain of
as many calls of ``ops.add`` is built.
"""

from collections.abc import Mapping

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import popsr
from bench.programs.onnx_models import gpt2, resnet18
from bench.record import Recorder, at_least, at_most, duration, number, ratios, times
from bench.sides.compare import Times, by_turns
from popsr import ops
from popsr.bridge.onnx import load
from popsr.compat import popart

ROUNDS, LAYERS, WIDTH = 9, 250, 32

READING = "From a message to a program that can run"


def _model() -> onnx.ModelProto:
    """Four nodes a layer."""
    rng = np.random.default_rng(0)
    nodes, weights, x = [], [], "x"
    for i in range(LAYERS):
        for name, shape in ((f"w{i}", (WIDTH, WIDTH)), (f"b{i}", (WIDTH,))):
            weights.append(numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name))
        nodes += [
            helper.make_node("MatMul", [x, f"w{i}"], [f"product{i}"], f"layer{i}/MatMul"),
            helper.make_node("Add", [f"product{i}", f"b{i}"], [f"sum{i}"], f"layer{i}/Add"),
            helper.make_node("Relu", [f"sum{i}"], [f"relu{i}"], f"layer{i}/Relu"),
            helper.make_node("Mul", [f"relu{i}", f"sum{i}"], [f"out{i}"], f"layer{i}/Mul"),
        ]
        x = f"out{i}"
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", WIDTH])]
    graph = helper.make_graph(nodes, "chain", inputs, [helper.make_empty_tensor_value_info(x)], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def _chain(length: int) -> popsr.Ir:
    ir = popsr.Ir()
    with ir.main_graph, popsr.in_sequence():
        x = y = popsr.variable(1.0, popsr.float32)
        for _ in range(length):
            y = ops.add(y, x)
    return ir


def test_reading(benchmark, record):
    model = _model()
    assert len(model.graph.node) == 1000
    sides = {"model": lambda: load(model, shapes={"N": 4}), "chain": lambda: _chain(1000)}
    taken = by_turns(benchmark, sides, ROUNDS)
    own, chain = taken["model"], taken["chain"]
    goal = at_most(0.2, own.best, duration)
    record(READING, "reading 1,000 nodes", **times(own), **goal)
    record(
        READING, "reading, against a chain of as many calls of `ops.add`", best=number(own.best / chain.best)
    )
    assert own.best <= 0.2


def _record() -> popart.Builder:
    """The same layers with an L1 loss, by a Builder: 1,001 nodes."""
    rng = np.random.default_rng(0)
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [4, WIDTH])
    for _ in range(LAYERS):
        w, b = (
            builder.addInitializedInputTensor(rng.normal(size=shape).astype(np.float32))
            for shape in ((WIDTH, WIDTH), (WIDTH,))
        )
        total = builder.aiOnnx.add([builder.aiOnnx.matmul([x, w]), b])
        x = builder.aiOnnx.mul([builder.aiOnnx.relu([total]), total])
    builder.addOutputTensor(builder.aiGraphcore.l1loss([x], 0.1))
    return builder


def _session(model: bytes, loss: str) -> popart.TrainingSession:
    device = popart.DeviceManager().createIpuModelDevice({})
    return popart.TrainingSession(
        model, popart.DataFlow(1, [loss]), loss, popart.ConstSGD(0.1), deviceInfo=device
    )


def _shapes() -> None:
    """Layers whose shapes are asked for as they are recorded."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [4, WIDTH])
    w = builder.addInitializedInputTensor(np.ones((WIDTH, WIDTH), np.float32))
    for _ in range(200):
        x = builder.aiOnnx.relu([builder.aiOnnx.matmul([x, w])])
        assert builder.getTensorShape(x) == [4, WIDTH]


def test_builder(benchmark, record):
    model = _record().getModelProto()
    (loss,) = _record().getOutputTensorIds()
    sides = {
        "recording 1,001 nodes": _record,
        "recording and `getModelProto`": lambda: _record().getModelProto(),
        "a training session of it": lambda: _session(model, loss),
        "recording 200 layers, `getTensorShape` after each": _shapes,
    }
    for name, taken in by_turns(benchmark, sides, ROUNDS).items():
        record("A Builder of the same layers with a loss", name, **times(taken))


INFERENCE_TABLE = "Inference on one thread"
# Model, batch, and turns
INFERENCE = {
    "GPT-2, 12 layers of 768, 64 tokens": (lambda: gpt2(12, 768, 12, 64, 8000), 1, 25),
    "GPT-2, 4 layers of 256, 4 x 128 tokens": (lambda: gpt2(4, 256, 8, 128, 1000), 4, 25),
    "ResNet-18, an image of 224 x 224": (lambda: resnet18(224), 1, 25),
    "ResNet-18, 4 images of 32 x 32": (lambda: resnet18(32), 4, 25),
}


def on_one_thread(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


@pytest.mark.parametrize("name", INFERENCE)
def test_inference(benchmark, record, name):
    make, batch, rounds = INFERENCE[name]
    model = make()
    (given,) = model.graph.input
    shape = (batch, *(each.dim_value for each in given.type.tensor_type.shape.dim[1:]))
    rng = np.random.default_rng(0)
    is_float = given.type.tensor_type.elem_type == TensorProto.FLOAT
    data = {
        given.name: rng.normal(size=shape).astype(np.float32) if is_float else rng.integers(0, 1000, shape)
    }
    threads = popsr.num_threads()
    popsr.set_num_threads(1)
    own, other = load(model, shapes={"N": batch}), on_one_thread(model)
    (found,) = own.run(data).values()
    (expected,) = other.run(None, data)
    assert np.abs(found.reshape(expected.shape) - expected).max() <= 1e-4 * np.abs(expected).max()
    sides = {"popsr": lambda: own.run(data), "onnxruntime": lambda: other.run(None, data)}
    taken = by_turns(benchmark, sides, rounds)
    popsr.set_num_threads(threads)
    record_beside(record, INFERENCE_TABLE, name, taken)


def record_beside(record: Recorder, table: str, case: str, taken: Mapping[str, Times]) -> None:
    """Rows of popsr and of onnxruntime, with the second one's time over the first's."""
    own, other = taken["popsr"], taken["onnxruntime"]
    record(table, case, "popsr", **times(own))
    record(
        table,
        case,
        "onnxruntime",
        **times(other),
        **ratios(other, own),
        **at_least(0.7, other.best / own.best),
    )


def test_reference_evaluator(benchmark, record):
    model = gpt2(2, 128, 4, 32, 500)
    data = {"tokens": np.random.default_rng(0).integers(0, 500, (1, 32))}
    own, other = load(model, shapes={"N": 1}), ReferenceEvaluator(model)
    sides = {"popsr": lambda: own.run(data), "reference": lambda: other.run(None, data)}
    taken = by_turns(benchmark, sides, ROUNDS)
    ratio = taken["reference"].best / taken["popsr"].best
    record(
        INFERENCE_TABLE, "GPT-2, 2 layers of 128", "onnx's reference evaluator", ratio_of_bests=number(ratio)
    )
