"""Models of ONNX for inference, as exporters write them: GPT-2 and ResNet-18."""

import numpy as np
import onnx
from onnx import TensorProto

from tests_py.bridge.onnx.net import Net

__all__ = ["gpt2", "resnet18"]


def gpt2(layers: int, width: int, heads: int, length: int, words: int) -> onnx.ModelProto:
    """A decoder with a causal mask, GELU as exporters wrote it before opset 20, and the embedding as its last layer."""
    net = Net("gpt2", seed=2)
    tokens = net.input("tokens", ["N", length], TensorProto.INT64)
    net.normal("wte", (words, width), 0.02)
    net.normal("wpe", (length, width), 0.02)
    h = net.add("Add", [net.add("Gather", ["wte", tokens]), "wpe"])
    for i in range(layers):
        name = f"h.{i}"
        h = net.add(
            "Add", [h, _attention(net, name, _norm(net, f"{name}.ln_1", h, width), width, heads, length)]
        )
        wide = _linear(net, f"{name}.c_fc", _norm(net, f"{name}.ln_2", h, width), width, 4 * width)
        h = net.add("Add", [h, _linear(net, f"{name}.c_proj", _gelu(net, wide), 4 * width, width)])
    h = _norm(net, "ln_f", h, width)
    net.output(net.add("MatMul", [h, net.add("Transpose", ["wte"], perm=[1, 0])], "lm_head"))
    return net.model()


def _norm(net: Net, name: str, h: str, width: int) -> str:
    net.weight(f"{name}.weight", np.ones(width, np.float32))
    net.weight(f"{name}.bias", np.zeros(width, np.float32))
    return net.add("LayerNormalization", [h, f"{name}.weight", f"{name}.bias"], name, axis=-1, epsilon=1e-5)


def _linear(net: Net, name: str, h: str, have: int, wide: int) -> str:
    net.normal(f"{name}.weight", (have, wide), 0.02)
    net.normal(f"{name}.bias", (wide,), 0.02)
    return net.add("Add", [net.add("MatMul", [h, f"{name}.weight"], name), f"{name}.bias"])


def _number(net: Net, value: float) -> str:
    return net.constant(np.array(value, np.float32))


def _gelu(net: Net, t: str) -> str:
    inner = net.add(
        "Add", [net.add("Erf", [net.add("Div", [t, _number(net, np.sqrt(2.0))])]), _number(net, 1)]
    )
    return net.add("Mul", [net.add("Mul", [t, inner]), _number(net, 0.5)])


def _attention(net: Net, name: str, h: str, width: int, heads: int, length: int) -> str:
    qkv = net.add(
        "Split", [_linear(net, f"{name}.c_attn", h, width, 3 * width)], f"{name}/split", outputs=3, axis=2
    )
    shape = net.ints(0, 0, heads, width // heads)
    q, k, v = (net.add("Reshape", [f"{qkv}{i or ''}", shape]) for i in range(3))
    q, v = (net.add("Transpose", [each], perm=[0, 2, 1, 3]) for each in (q, v))
    scores = net.add("MatMul", [q, net.add("Transpose", [k], perm=[0, 2, 3, 1])])
    scores = net.add("Div", [scores, _number(net, (width // heads) ** 0.5)])
    mask = net.add("Trilu", [net.constant(np.ones((length, length), bool))], upper=0)
    weights = net.add("Softmax", [net.add("Where", [mask, scores, _number(net, -1e9)])], axis=-1)
    mixed = net.add("Transpose", [net.add("MatMul", [weights, v])], perm=[0, 2, 1, 3])
    return _linear(net, f"{name}.attn", net.add("Reshape", [mixed, net.ints(0, 0, width)]), width, width)


_STAGES = ((64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1))


def resnet18(size: int) -> onnx.ModelProto:
    """Of images of ``size`` x ``size``: above 100 with the stem and pool for ImageNet, else as for CIFAR."""
    net = Net("resnet18", seed=1)
    x = net.input("x", ["N", 3, size, size])
    large = size > 100
    h = net.add("Relu", [_conv_norm(net, "stem", x, 3, 64, 7 if large else 3, 2 if large else 1)])
    if large:
        h = net.add("MaxPool", [h], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    have = 64
    for i, (channels, stride) in enumerate(_STAGES):
        name = f"block{i}"
        inner = net.add("Relu", [_conv_norm(net, f"{name}.0", h, have, channels, 3, stride)])
        made = _conv_norm(net, f"{name}.1", inner, channels, channels, 3, 1)
        side = h if stride == 1 else _conv_norm(net, f"{name}.down", h, have, channels, 1, stride)
        h, have = net.add("Relu", [net.add("Add", [made, side])]), channels
    net.normal("fc.weight", (10, have))
    net.normal("fc.bias", (10,))
    pooled = net.add("Flatten", [net.add("GlobalAveragePool", [h])])
    net.output(net.add("Gemm", [pooled, "fc.weight", "fc.bias"], "fc", transB=1))
    return net.model()


def _conv_norm(net: Net, name: str, x: str, have: int, channels: int, kernel: int, stride: int) -> str:
    net.normal(f"{name}.conv", (channels, have, kernel, kernel), (2 / (have * kernel * kernel)) ** 0.5)
    h = net.add("Conv", [x, f"{name}.conv"], f"{name}/Conv", strides=[stride] * 2, pads=[kernel // 2] * 4)
    parts = [f"{name}.{part}" for part in ("scale", "shift", "mean", "var")]
    for part, value in zip(parts, (1, 0, 0, 1), strict=True):
        net.weight(part, np.full(channels, value, np.float32))
    return net.add("BatchNormalization", [h, *parts], f"{name}/Norm")
