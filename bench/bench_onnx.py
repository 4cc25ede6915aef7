"""Time to read a model of ONNX of 1,000 nodes. See README.md here.

The model is a chain of layers with 500 weights. A ratio takes out Python's own speed: by turns a chain of as many
calls of ``ops.add`` is built.
"""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import popsr
from bench.compare import by_turns
from popsr import ops
from popsr.bridge.onnx import load

ROUNDS, LAYERS, WIDTH = 9, 250, 32


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


def test_reading(benchmark):
    model = _model()
    assert len(model.graph.node) == 1000
    sides = {"model": lambda: load(model, shapes={"N": 4}), "chain": lambda: _chain(1000)}
    times = by_turns(benchmark, sides, ROUNDS)
    own, chain = times["model"], times["chain"]
    print(
        f"\nreading 1,000 nodes: best {own.best:.3f} s, median {own.median:.3f} s (goal: at most 0.2 s), "
        f"{own.best / chain.best:.1f}x a chain of as many additions"
    )
    assert own.best <= 0.2
