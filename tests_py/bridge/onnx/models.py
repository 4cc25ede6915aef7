"""Models of ONNX as exporters write them, and the same functions in PyTorch: each gives a loss."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from tests_py.bridge.onnx.net import Array, Net

__all__ = ["LARGE", "MODELS", "Trained"]

Weights = Mapping[str, Any]


@dataclass(frozen=True)
class Trained:
    """A model with a loss.

    Attributes:
        proto: the model; its output is the loss.
        loss: the same loss in PyTorch, of weights by name and of data.
        data: data of a batch by input; the first axis is the batch.
    """

    proto: onnx.ModelProto
    loss: Callable[[Weights, Mapping[str, Any]], Any]
    data: Callable[[np.random.Generator, int], dict[str, Array]]


def mlp() -> Trained:
    """Two layers, cross-entropy."""
    net = Net("mlp")
    x, labels = net.input("x", ["N", 12]), net.input("labels", ["N"], TensorProto.INT64)
    net.normal("fc1.weight", (16, 12))
    net.normal("fc1.bias", (16,))
    net.normal("fc2.weight", (5, 16))
    net.normal("fc2.bias", (5,))
    hidden = net.add("Relu", [net.add("Gemm", [x, "fc1.weight", "fc1.bias"], "fc1", transB=1)])
    scores = net.add("Gemm", [hidden, "fc2.weight", "fc2.bias"], "fc2", transB=1)
    net.output(net.add("SoftmaxCrossEntropyLoss", [scores, labels], "loss"))

    def loss(w: Weights, data: Mapping[str, Any]) -> Any:
        from torch.nn import functional

        h = functional.linear(data["x"], w["fc1.weight"], w["fc1.bias"]).relu()
        return functional.cross_entropy(functional.linear(h, w["fc2.weight"], w["fc2.bias"]), data["labels"])

    def data(rng: np.random.Generator, batch: int) -> dict[str, Array]:
        return {"x": rng.normal(size=(batch, 12)).astype(np.float32), "labels": rng.integers(0, 5, batch)}

    return Trained(net.model(), loss, data)


Blocks = Sequence[tuple[int, int]]
"""Channels and stride of each residual block."""

_NARROW: Blocks = ((8, 1), (16, 2))
_RESNET18: Blocks = tuple((64 << i, 1 + (i > 0 and not j)) for i in range(4) for j in range(2))


def resnet() -> Trained:
    """Two residual blocks on 8 x 8 images, as a ResNet-18 has them, narrower."""
    return _resnet("resnet", 8, _NARROW)


def resnet18() -> Trained:
    """A ResNet-18 with all its channels on 32 x 32 images, with a stem of 3 x 3 as is usual for these."""
    return _resnet("resnet18", 32, _RESNET18)


def _resnet(name: str, side: int, blocks: Blocks) -> Trained:
    """A stem, residual blocks with batch norms in training mode, a mean over the image and a linear layer."""
    net = Net(name, seed=1)
    x, labels = net.input("x", ["N", 3, side, side]), net.input("labels", ["N"], TensorProto.INT64)
    width = blocks[0][0]
    h = net.add("Relu", [_conv_norm(net, "stem", x, 3, width, 3, 1)])
    for i, (channels, stride) in enumerate(blocks):
        block = f"block{i + 1}"
        a = net.add("Relu", [_conv_norm(net, f"{block}.0", h, width, channels, 3, stride)])
        b = _conv_norm(net, f"{block}.1", a, channels, channels, 3, 1)
        skip = h if stride == 1 else _conv_norm(net, f"{block}.down", h, width, channels, 1, stride)
        h, width = net.add("Relu", [net.add("Add", [b, skip])]), channels
    pooled = net.add("Flatten", [net.add("GlobalAveragePool", [h])])
    net.normal("fc.weight", (10, width), 0.2 if width < 64 else width**-0.5)
    net.normal("fc.bias", (10,))
    scores = net.add("Gemm", [pooled, "fc.weight", "fc.bias"], "fc", transB=1)
    net.output(net.add("SoftmaxCrossEntropyLoss", [scores, labels], "loss"))

    def data(rng: np.random.Generator, batch: int) -> dict[str, Array]:
        return {
            "x": rng.normal(size=(batch, 3, side, side)).astype(np.float32),
            "labels": rng.integers(0, 10, batch),
        }

    return Trained(net.model(), functools.partial(_resnet_loss, blocks), data)


def _conv_norm(net: Net, name: str, x: str, have: int, channels: int, kernel: int, stride: int) -> str:
    net.normal(f"{name}.conv", (channels, have, kernel, kernel), (2 / (have * kernel * kernel)) ** 0.5)
    net.weight(f"{name}.scale", np.ones(channels, np.float32))
    net.weight(f"{name}.shift", np.zeros(channels, np.float32))
    mean, var = net.constant(np.zeros(channels, np.float32)), net.constant(np.ones(channels, np.float32))
    pad = kernel // 2
    h = net.add("Conv", [x, f"{name}.conv"], f"{name}/Conv", strides=[stride] * 2, pads=[pad] * 4)
    inputs = [h, f"{name}.scale", f"{name}.shift", mean, var]
    return net.add("BatchNormalization", inputs, f"{name}/Norm", outputs=3, training_mode=1)


def _resnet_loss(blocks: Blocks, w: Weights, data: Mapping[str, Any]) -> Any:
    from torch.nn import functional

    def conv_norm(name: str, t: Any, stride: int) -> Any:
        kernel = w[f"{name}.conv"]
        h = functional.conv2d(t, kernel, stride=stride, padding=kernel.shape[-1] // 2)
        return functional.batch_norm(
            h, None, None, w[f"{name}.scale"], w[f"{name}.shift"], training=True, eps=1e-5
        )

    h = conv_norm("stem", data["x"], 1).relu()
    for i, (_, stride) in enumerate(blocks):
        name = f"block{i + 1}"
        b = conv_norm(f"{name}.1", conv_norm(f"{name}.0", h, stride).relu(), 1)
        h = (b + (h if stride == 1 else conv_norm(f"{name}.down", h, stride))).relu()
    return functional.cross_entropy(
        functional.linear(h.mean((2, 3)), w["fc.weight"], w["fc.bias"]), data["labels"]
    )


_WIDTH, _HEADS, _LENGTH, _WORDS = 32, 4, 8, 40


def gpt2() -> Trained:
    """Two layers of GPT-2, with shapes that are computed in the graph, as exporters of PyTorch write them."""
    net = Net("gpt2", seed=2)
    tokens = net.input("tokens", ["N", _LENGTH], TensorProto.INT64)
    labels = net.input("labels", ["N", _LENGTH], TensorProto.INT64)
    net.normal("wte", (_WORDS, _WIDTH))
    net.normal("wpe", (_LENGTH, _WIDTH))
    length = net.add("Gather", [net.add("Shape", [tokens]), net.constant(np.array(1))], axis=0)
    places = net.add("Range", [net.constant(np.array(0)), length, net.constant(np.array(1))])
    h = net.add("Add", [net.add("Gather", ["wte", tokens]), net.add("Gather", ["wpe", places])])
    for i in range(2):
        h = net.add("Add", [h, _attention(net, f"h.{i}.attn", _norm(net, f"h.{i}.ln_1", h))])
        h = net.add("Add", [h, _feed_forward(net, f"h.{i}.mlp", _norm(net, f"h.{i}.ln_2", h))])
    h = _norm(net, "ln_f", h)
    scores = net.add("MatMul", [h, net.add("Transpose", ["wte"], perm=[1, 0])], "lm_head")
    flat = net.add("Reshape", [scores, net.ints(-1, _WORDS)])
    net.output(net.add("SoftmaxCrossEntropyLoss", [flat, net.add("Reshape", [labels, net.ints(-1)])], "loss"))

    def data(rng: np.random.Generator, batch: int) -> dict[str, Array]:
        text = rng.integers(0, _WORDS, (batch, _LENGTH + 1))
        return {"tokens": text[:, :-1].copy(), "labels": text[:, 1:].copy()}

    return Trained(net.model(), _gpt2_loss, data)


def _norm(net: Net, name: str, h: str) -> str:
    net.weight(f"{name}.weight", np.ones(_WIDTH, np.float32))
    net.weight(f"{name}.bias", np.zeros(_WIDTH, np.float32))
    return net.add("LayerNormalization", [h, f"{name}.weight", f"{name}.bias"], name, axis=-1, epsilon=1e-5)


def _linear(net: Net, name: str, h: str, have: int, wide: int) -> str:
    net.normal(f"{name}.weight", (have, wide))
    net.normal(f"{name}.bias", (wide,))
    return net.add("Add", [net.add("MatMul", [h, f"{name}.weight"], name), f"{name}.bias"])


def _attention(net: Net, name: str, h: str) -> str:
    qkv = net.add(
        "Split", [_linear(net, f"{name}.c_attn", h, _WIDTH, 3 * _WIDTH)], f"{name}/split", outputs=3, axis=2
    )
    shape = net.ints(0, 0, _HEADS, _WIDTH // _HEADS)
    q, k, v = (net.add("Reshape", [f"{qkv}{i or ''}", shape]) for i in range(3))
    q, v = (net.add("Transpose", [each], perm=[0, 2, 1, 3]) for each in (q, v))
    scores = net.add("MatMul", [q, net.add("Transpose", [k], perm=[0, 2, 3, 1])], f"{name}/scores")
    extent = net.add("Slice", [net.add("Shape", [v]), net.ints(-1), net.ints(1 << 62), net.ints(0)])
    scores = net.add("Div", [scores, net.add("Sqrt", [net.add("Cast", [extent], to=TensorProto.FLOAT)])])
    mask = net.add("Trilu", [net.constant(np.ones((_LENGTH, _LENGTH), bool))], upper=0)
    scores = net.add("Where", [mask, scores, net.constant(np.array(-1e9, np.float32))])
    mixed = net.add("MatMul", [net.add("Softmax", [scores], axis=-1), v])
    mixed = net.add("Reshape", [net.add("Transpose", [mixed], perm=[0, 2, 1, 3]), net.ints(0, 0, _WIDTH)])
    return _linear(net, f"{name}.c_proj", mixed, _WIDTH, _WIDTH)


def _feed_forward(net: Net, name: str, h: str) -> str:
    """With GELU as exporters wrote it before opset 20."""
    t = _linear(net, f"{name}.c_fc", h, _WIDTH, 4 * _WIDTH)
    root = net.constant(np.array(np.sqrt(2.0), np.float32))
    one, half = (net.constant(np.array(value, np.float32)) for value in (1.0, 0.5))
    inner = net.add("Add", [net.add("Erf", [net.add("Div", [t, root])]), one])
    made = net.add("Mul", [net.add("Mul", [t, inner]), half])
    return _linear(net, f"{name}.c_proj", made, 4 * _WIDTH, _WIDTH)


def _gpt2_loss(w: Weights, data: Mapping[str, Any]) -> Any:
    import torch
    from torch.nn import functional

    def norm(name: str, t: Any) -> Any:
        return functional.layer_norm(t, (_WIDTH,), w[f"{name}.weight"], w[f"{name}.bias"], 1e-5)

    def linear(name: str, t: Any) -> Any:
        return t @ w[f"{name}.weight"] + w[f"{name}.bias"]

    h = w["wte"][data["tokens"]] + w["wpe"]
    batch = h.shape[0]
    mask = torch.ones(_LENGTH, _LENGTH, dtype=torch.bool).tril()
    for i in range(2):
        parts = linear(f"h.{i}.attn.c_attn", norm(f"h.{i}.ln_1", h)).split(_WIDTH, 2)
        q, k, v = (t.reshape(batch, _LENGTH, _HEADS, -1).transpose(1, 2) for t in parts)
        scores = (q @ k.transpose(2, 3)) / (_WIDTH // _HEADS) ** 0.5
        mixed = torch.where(mask, scores, torch.tensor(-1e9)).softmax(-1) @ v
        h = h + linear(f"h.{i}.attn.c_proj", mixed.transpose(1, 2).reshape(batch, _LENGTH, _WIDTH))
        wide = functional.gelu(linear(f"h.{i}.mlp.c_fc", norm(f"h.{i}.ln_2", h)))
        h = h + linear(f"h.{i}.mlp.c_proj", wide)
    return functional.cross_entropy(
        (norm("ln_f", h) @ w["wte"].T).reshape(-1, _WORDS), data["labels"].reshape(-1)
    )


def bert() -> Trained:
    """Two layers of BERT with a mask of the padding; norms are single ops, as exporters wrote them before opset 17."""
    net = Net("bert", seed=4)
    tokens = net.input("tokens", ["N", _LENGTH], TensorProto.INT64)
    mask = net.input("mask", ["N", _LENGTH], TensorProto.INT64)
    labels = net.input("labels", ["N"], TensorProto.INT64)
    net.normal("words", (_WORDS, _WIDTH))
    net.normal("places", (_LENGTH, _WIDTH))
    h = _old_norm(net, "norm", net.add("Add", [net.add("Gather", ["words", tokens]), "places"]))
    one, low = (net.constant(np.array(value, np.float32)) for value in (1.0, -10000.0))
    wide = net.add("Unsqueeze", [net.add("Cast", [mask], to=TensorProto.FLOAT), net.ints(1, 2)])
    bias = net.add("Mul", [net.add("Sub", [one, wide]), low])
    for i in range(2):
        mixed = _bert_attention(net, f"layer.{i}.attention", h, bias)
        h = _old_norm(net, f"layer.{i}.norm1", net.add("Add", [h, mixed]))
        h = _old_norm(net, f"layer.{i}.norm2", net.add("Add", [h, _feed_forward(net, f"layer.{i}", h)]))
    first = net.add("Gather", [h, net.constant(np.array(0))], axis=1)
    pooled = net.add("Tanh", [_linear(net, "pooler", first, _WIDTH, _WIDTH)])
    scores = _linear(net, "classifier", pooled, _WIDTH, 3)
    net.output(net.add("SoftmaxCrossEntropyLoss", [scores, labels], "loss"))

    def data(rng: np.random.Generator, batch: int) -> dict[str, Array]:
        lengths = rng.integers(2, _LENGTH + 1, batch)
        return {
            "tokens": rng.integers(0, _WORDS, (batch, _LENGTH)),
            "mask": (np.arange(_LENGTH) < lengths[:, None]).astype(np.int64),
            "labels": rng.integers(0, 3, batch),
        }

    return Trained(net.model(13), _bert_loss, data)


def _old_norm(net: Net, name: str, h: str) -> str:
    net.weight(f"{name}.weight", np.ones(_WIDTH, np.float32))
    net.weight(f"{name}.bias", np.zeros(_WIDTH, np.float32))
    centred = net.add("Sub", [h, net.add("ReduceMean", [h], axes=[-1])])
    two, epsilon = (net.constant(np.array(value, np.float32)) for value in (2.0, 1e-5))
    variance = net.add("ReduceMean", [net.add("Pow", [centred, two])], axes=[-1])
    deviation = net.add("Sqrt", [net.add("Add", [variance, epsilon])])
    scaled = net.add("Mul", [net.add("Div", [centred, deviation]), f"{name}.weight"])
    return net.add("Add", [scaled, f"{name}.bias"], name)


def _bert_attention(net: Net, name: str, h: str, bias: str) -> str:
    shape = net.ints(0, 0, _HEADS, _WIDTH // _HEADS)
    q, k, v = (
        net.add("Reshape", [_linear(net, f"{name}.{part}", h, _WIDTH, _WIDTH), shape])
        for part in ("q", "k", "v")
    )
    q, v = (net.add("Transpose", [each], perm=[0, 2, 1, 3]) for each in (q, v))
    scores = net.add("MatMul", [q, net.add("Transpose", [k], perm=[0, 2, 3, 1])], f"{name}/scores")
    root = net.constant(np.array(np.sqrt(_WIDTH // _HEADS), np.float32))
    weights = net.add("Softmax", [net.add("Add", [net.add("Div", [scores, root]), bias])], axis=-1)
    mixed = net.add("Transpose", [net.add("MatMul", [weights, v])], perm=[0, 2, 1, 3])
    return _linear(net, f"{name}.out", net.add("Reshape", [mixed, net.ints(0, 0, _WIDTH)]), _WIDTH, _WIDTH)


def _bert_loss(w: Weights, data: Mapping[str, Any]) -> Any:
    from torch.nn import functional

    def norm(name: str, t: Any) -> Any:
        return functional.layer_norm(t, (_WIDTH,), w[f"{name}.weight"], w[f"{name}.bias"], 1e-5)

    def linear(name: str, t: Any) -> Any:
        return t @ w[f"{name}.weight"] + w[f"{name}.bias"]

    h = norm("norm", w["words"][data["tokens"]] + w["places"])
    batch = h.shape[0]
    bias = (1.0 - data["mask"].float())[:, None, None, :] * -10000.0
    for i in range(2):
        name = f"layer.{i}.attention"
        parts = [linear(f"{name}.{part}", h).reshape(batch, _LENGTH, _HEADS, -1) for part in ("q", "k", "v")]
        q, k, v = (each.transpose(1, 2) for each in parts)
        weights = ((q @ k.transpose(2, 3)) / (_WIDTH // _HEADS) ** 0.5 + bias).softmax(-1)
        mixed = (weights @ v).transpose(1, 2).reshape(batch, _LENGTH, _WIDTH)
        h = norm(f"layer.{i}.norm1", h + linear(f"{name}.out", mixed))
        wide = functional.gelu(linear(f"layer.{i}.c_fc", h))
        h = norm(f"layer.{i}.norm2", h + linear(f"layer.{i}.c_proj", wide))
    scores = linear("classifier", linear("pooler", h[:, 0]).tanh())
    return functional.cross_entropy(scores, data["labels"])


MODELS: dict[str, Callable[[], Trained]] = {"mlp": mlp, "resnet": resnet, "gpt2": gpt2, "bert": bert}
LARGE: dict[str, Callable[[], Trained]] = {"resnet18": resnet18}
