"""Ops that onnxruntime makes of several: products, activations and norms of transformers, convolutions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from popsr import dtypes, ops
from popsr._program.tensor import Tensor
from popsr.bridge.onnx._node import Node, cast
from popsr.bridge.onnx._rules import NotSupportedError
from popsr.bridge.onnx._tensors import expanded, moved, reshaped
from popsr.bridge.onnx.ops.microsoft._domain import microsoft
from popsr.bridge.onnx.ops.neural._convolutions import convolved
from popsr.bridge.onnx.ops.neural._neural import gemm

__all__: list[str] = []

Results = list[Tensor | None]


@microsoft("FusedMatMul")
def _fused_matmul(node: Node, a: Tensor, b: Tensor) -> Tensor:
    if node.integer("transBatchA", 0) or node.integer("transBatchB", 0):
        raise NotSupportedError("with moved batches")
    a = _transposed(a) if node.integer("transA", 0) else a
    b = _transposed(b) if node.integer("transB", 0) else b
    made, alpha = ops.matmul(a, b), node.number("alpha", 1.0)
    return made if alpha == 1.0 else ops.mul(made, node.like(alpha, made))


def _transposed(t: Tensor) -> Tensor:
    return moved(t, (*range(t.rank - 2), t.rank - 1, t.rank - 2)) if t.rank > 1 else t


@microsoft("Gelu")
def _gelu(_node: Node, t: Tensor) -> Tensor:
    return ops.geluerf(t)


@microsoft("BiasGelu")
def _bias_gelu(_node: Node, t: Tensor, bias: Tensor) -> Tensor:
    return ops.geluerf(ops.add(t, bias))


@microsoft("FastGelu")
def _fast_gelu(_node: Node, t: Tensor, bias: Tensor | None = None) -> Tensor:
    return ops.gelu(t if bias is None else ops.add(t, bias))


@microsoft("QuickGelu")
def _quick_gelu(node: Node, t: Tensor) -> Tensor:
    return ops.mul(t, ops.sigmoid(ops.mul(t, node.like(node.number("alpha", 1.702), t))))


# Layers with an activation


def _activated(node: Node, t: Tensor, numbers: tuple[float, ...]) -> Tensor:
    """The activation of a node, with its numbers."""

    def number(place: int, default: float) -> Tensor:
        return node.like(numbers[place] if place < len(numbers) else default, t)

    zero, one = node.like(0, t), node.like(1, t)

    def clipped(low: Tensor, value: Tensor, high: Tensor) -> Tensor:
        return ops.minimum(ops.maximum(value, low), high)

    made: dict[str, Callable[[], Tensor]] = {
        "": lambda: t,
        "Relu": lambda: ops.relu(t),
        "Sigmoid": lambda: ops.sigmoid(t),
        "Tanh": lambda: ops.tanh(t),
        "LeakyRelu": lambda: ops.where(ops.less(t, zero), ops.mul(t, number(0, 0.01)), t),
        "Clip": lambda: clipped(number(0, 0.0), t, number(1, 0.0)),
        "HardSigmoid": lambda: clipped(zero, ops.add(ops.mul(t, number(0, 0.2)), number(1, 0.5)), one),
    }
    name = node.text("activation", "")
    if name not in made or (name == "Clip" and len(numbers) < _TWO):
        raise NotSupportedError(f"activation {name}")
    return made[name]()


_TWO = 2


@microsoft("FusedConv")
def _fused_conv(
    node: Node, t: Tensor, weight: Tensor, bias: Tensor | None = None, other: Tensor | None = None
) -> Tensor:
    made = convolved(node, t, weight, bias)
    made = made if other is None else ops.add(made, other)
    return _activated(node, made, node.floats("activation_params", ()))


@microsoft("FusedGemm")
def _fused_gemm(node: Node, a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
    given = [f"activation_{name}" for name in ("alpha", "beta", "gamma") if node.has(f"activation_{name}")]
    return _activated(node, gemm(node, a, b, c), tuple(node.number(name) for name in given))


# Norms


def _layer_normed(node: Node, t: Tensor, scale: Tensor, shift: Tensor | None) -> Tensor:
    if shift is None:
        shift = node.like(np.zeros(scale.shape), scale)
    rows = reshaped(t, (t.nelms // t.shape[-1], t.shape[-1]))
    return reshaped(ops.layer_norm(rows, scale, shift, node.number("epsilon", 1e-12)), t.shape)


def _without_statistics(node: Node) -> None:
    if node.wants(1) or node.wants(2):
        raise NotSupportedError("with saved statistics")


@microsoft("SkipLayerNormalization")
def _skip_layer_norm(
    node: Node,
    t: Tensor,
    skip: Tensor,
    scale: Tensor,
    shift: Tensor | None = None,
    bias: Tensor | None = None,
) -> Results:
    """The norm of a sum, and the sum."""
    _without_statistics(node)
    total = ops.add(t, skip if bias is None else ops.add(skip, bias))
    return [_layer_normed(node, total, scale, shift), None, None, total]


@microsoft("SkipSimplifiedLayerNormalization")
def _skip_rms_norm(node: Node, t: Tensor, skip: Tensor, scale: Tensor, bias: Tensor | None = None) -> Results:
    """A sum over the root of its mean square, and the sum."""
    _without_statistics(node)
    total = ops.add(t, skip if bias is None else ops.add(skip, bias))
    wide = total if total.dtype == dtypes.float64 else cast(total, dtypes.float32)
    square = ops.mean(ops.square(wide), [wide.rank - 1], True)
    normal = ops.mul(wide, ops.rsqrt(ops.add(square, node.like(node.number("epsilon", 1e-12), wide))))
    return [ops.mul(cast(normal, t.dtype), scale), None, None, total]


@microsoft("QEmbedLayerNormalization")
def _q_embed_layer_norm(
    node: Node, words: Tensor, segments: Tensor | None, *operands: Tensor | None
) -> Results:
    """Embeddings and their norm, with tables, factors and shifts that are quantised."""
    mask, codes, scales, zeros = operands[5], operands[:5], operands[6:11], operands[11:16]
    wide = [
        None
        if code is None or scale is None
        else ops.dequantize_linear(code, reshaped(scale, ()), None if zero is None else reshaped(zero, ()))
        for code, scale, zero in zip(codes, scales, zeros, strict=True)
    ]
    return list(_embed_layer_norm(node, words, segments, *wide, mask))


@microsoft("EmbedLayerNormalization")
def _embed_layer_norm(
    node: Node,
    words: Tensor,
    segments: Tensor | None,
    word_table: Tensor,
    place_table: Tensor,
    segment_table: Tensor | None,
    scale: Tensor,
    shift: Tensor,
    mask: Tensor | None = None,
    places: Tensor | None = None,
) -> Results:
    """The norm of embeddings of words, places and segments, the number of words of each row, and the sum."""
    length = words.shape[1]
    total = ops.gather(word_table, words, 0)
    rows = ops.slice(place_table, 0, length, 1, 0) if places is None else ops.gather(place_table, places, 0)
    total = ops.add(total, rows)
    if segments is not None and segment_table is not None:
        total = ops.add(total, ops.gather(segment_table, segments, 0))
    if mask is None:
        count = expanded(node.constant(0, dtypes.int32), (words.shape[0],))
    else:
        count = ops.sum(cast(ops.equal(mask, node.like(1, mask)), dtypes.int32), [1], False)
    return [_layer_normed(node, total, scale, shift), count, total]
