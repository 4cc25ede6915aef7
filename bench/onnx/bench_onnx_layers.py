"""Layers of one kind beside onnxruntime on one thread: convolutions, recurrent layers, products of bytes.

Each is a model of its own with weights in the file; a call of either side is one inference.
"""

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import popsr
from bench.onnx.bench_onnx import on_one_thread, record_beside
from bench.sides.compare import by_turns
from popsr.bridge.onnx import load
from tests_py.bridge.onnx.net import Net

ROUNDS = 25


def _conv(channels: int, size: int, kernel: int, *, groups: int = 1, stride: int = 1) -> onnx.ModelProto:
    """Two convolutions with bias and ReLU."""
    net = Net("conv", seed=1)
    h = net.input("x", ["N", channels, size, size])
    for i in range(2):
        fan_in = channels // groups * kernel * kernel
        net.normal(f"w{i}", (channels, channels // groups, kernel, kernel), (2 / fan_in) ** 0.5)
        net.normal(f"b{i}", (channels,), 0.1)
        given = {"strides": [stride] * 2, "pads": [kernel // 2] * 4, "group": groups}
        h = net.add("Relu", [net.add("Conv", [h, f"w{i}", f"b{i}"], **given)])
    net.output(h)
    return net.model()


def _recurrent(kind: str, length: int, width: int, hidden: int) -> onnx.ModelProto:
    net = Net(kind, seed=2)
    x = net.input("x", [length, "N", width])
    gates = {"LSTM": 4, "GRU": 3}[kind]
    net.normal("w", (1, gates * hidden, width), width**-0.5)
    net.normal("r", (1, gates * hidden, hidden), hidden**-0.5)
    net.normal("b", (1, 2 * gates * hidden), 0.1)
    net.output(net.add(kind, [x, "w", "r", "b"], hidden_size=hidden))
    return net.model()


def _bytes(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.integers(-127, 128, shape).astype(np.int8)


def _dynamic(width: int, wide: int) -> onnx.ModelProto:
    """Two layers as ``quantize_dynamic`` writes them."""
    rng = np.random.default_rng(3)
    net = Net("dynamic", seed=3)
    h = net.input("x", ["N", width])
    for i, (have, want) in enumerate(((width, wide), (wide, width))):
        net.weight(f"w{i}", _bytes(rng, (have, want)))
        net.weight(f"w{i}_zero", np.array(0, np.int8))
        net.weight(f"w{i}_scale", np.array(0.01 * have**-0.5, np.float32))
        net.normal(f"b{i}", (want,), 0.1)
        part = net.add("DynamicQuantizeLinear", [h], f"part{i}", outputs=3)
        whole, scale, zero = (f"{part}{n or ''}" for n in range(3))
        sums = net.add("MatMulInteger", [whole, f"w{i}", zero, f"w{i}_zero"])
        factor = net.add("Mul", [scale, f"w{i}_scale"])
        h = net.add("Add", [net.add("Mul", [net.add("Cast", [sums], to=TensorProto.FLOAT), factor]), f"b{i}"])
        h = net.add("Relu", [h]) if i == 0 else h
    net.output(h)
    return net.model()


def _static(width: int, wide: int) -> onnx.ModelProto:
    """Two layers in the format of operators: QLinearMatMul between QuantizeLinear and DequantizeLinear."""
    rng = np.random.default_rng(4)
    net = Net("static", seed=4)
    x = net.input("x", ["N", width])
    net.weight("scale", np.array(0.02, np.float32))
    net.weight("zero", np.array(120, np.uint8))
    h = net.add("QuantizeLinear", [x, "scale", "zero"])
    for i, (have, want) in enumerate(((width, wide), (wide, width))):
        net.weight(f"w{i}", _bytes(rng, (have, want)))
        net.weight(f"w{i}_zero", np.array(0, np.int8))
        net.weight(f"w{i}_scale", np.array(0.01 * have**-0.5, np.float32))
        operands = [h, "scale", "zero", f"w{i}", f"w{i}_scale", f"w{i}_zero", "scale", "zero"]
        h = net.add("QLinearMatMul", operands)
    net.output(net.add("DequantizeLinear", [h, "scale", "zero"]))
    return net.model()


def _integer(have: int, want: int) -> onnx.ModelProto:
    rng = np.random.default_rng(5)
    net = Net("integer", seed=5)
    x = net.input("x", ["N", have], TensorProto.UINT8)
    net.weight("w", _bytes(rng, (have, want)))
    net.weight("zero", np.array(128, np.uint8))
    net.output(net.add("MatMulInteger", [x, "w", "zero"]))
    return net.model()


# Model and batch
LAYERS: dict[str, tuple[Callable[[], onnx.ModelProto], int]] = {
    "conv 3x3, 64 channels of 56 x 56": (lambda: _conv(64, 56, 3), 1),
    "conv 3x3, 256 channels of 14 x 14": (lambda: _conv(256, 14, 3), 1),
    "conv 1x1, 128 channels of 28 x 28": (lambda: _conv(128, 28, 1), 1),
    "depthwise 3x3, 128 channels of 56 x 56": (lambda: _conv(128, 56, 3, groups=128), 1),
    "depthwise 3x3, 512 channels of 14 x 14": (lambda: _conv(512, 14, 3, groups=512), 1),
    "depthwise 3x3, stride 2, 96 channels of 112 x 112": (lambda: _conv(96, 112, 3, groups=96, stride=2), 1),
    "LSTM, 50 steps of 1 x 128 to 256": (lambda: _recurrent("LSTM", 50, 128, 256), 1),
    "LSTM, 50 steps of 8 x 128 to 256": (lambda: _recurrent("LSTM", 50, 128, 256), 8),
    "GRU, 50 steps of 1 x 128 to 256": (lambda: _recurrent("GRU", 50, 128, 256), 1),
    "GRU, 50 steps of 8 x 128 to 256": (lambda: _recurrent("GRU", 50, 128, 256), 8),
    "MatMulInteger, 128 x 768 x 768": (lambda: _integer(768, 768), 128),
    "MatMulInteger, 1 x 768 x 768": (lambda: _integer(768, 768), 1),
    "quantize_dynamic, 128 x 768 x 3,072 and back": (lambda: _dynamic(768, 3072), 128),
    "QLinearMatMul, 128 x 768 x 3,072 and back": (lambda: _static(768, 3072), 128),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers(benchmark, record, name):
    make, batch = LAYERS[name]
    model = make()
    (given,) = model.graph.input
    shape = tuple(each.dim_value or batch for each in given.type.tensor_type.shape.dim)
    rng = np.random.default_rng(0)
    is_float = given.type.tensor_type.elem_type == TensorProto.FLOAT
    x = (
        rng.normal(size=shape).astype(np.float32)
        if is_float
        else rng.integers(0, 256, shape).astype(np.uint8)
    )
    threads = popsr.num_threads()
    popsr.set_num_threads(1)
    own, other = load(model, shapes={"N": batch}), on_one_thread(model)
    (found,), (expected,) = own.run({"x": x}).values(), other.run(None, {"x": x})
    assert np.abs(found.astype(np.float64) - expected).max() <= 1e-2 * np.abs(expected).max()
    sides = {"popsr": lambda: own.run({"x": x}), "onnxruntime": lambda: other.run(None, {"x": x})}
    times = by_turns(benchmark, sides, ROUNDS, calls=4)
    popsr.set_num_threads(threads)
    record_beside(record, "Layers of one kind on one thread", name, times)
