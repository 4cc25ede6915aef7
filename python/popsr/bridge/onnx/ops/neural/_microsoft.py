"""Ops of the domain ``com.microsoft`` that onnxruntime's quantiser writes, and some of those that it fuses."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from popsr import dtypes, ops
from popsr.bridge.onnx._node import Node, cast
from popsr.bridge.onnx._rules import NotSupportedError, rule
from popsr.bridge.onnx._tensors import expanded, moved, reshaped
from popsr.bridge.onnx.ops.elementwise._elementwise import leaky_relu
from popsr.bridge.onnx.ops.neural import _convolutions, _quantise
from popsr.bridge.onnx.ops.neural._quantise import product, requantised
from popsr.bridge.onnx.ops.shape._reduce import of_rows
from popsr.tensor import Tensor

__all__: list[str] = []

DOMAIN = "com.microsoft"
_microsoft = functools.partial(rule, domain=DOMAIN)

_microsoft("QuantizeLinear")(_quantise.quantize)
_microsoft("DequantizeLinear")(_quantise.dequantize)


def _wide(t: Tensor, scale: Tensor, zero: Tensor | None) -> Tensor:
    """Quantised numbers as float32."""
    return ops.dequantize_linear(t, reshaped(scale, ()), None if zero is None else reshaped(zero, ()))


def _back(t: Tensor, scale: Tensor, zero: Tensor | None, kind: dtypes.dtype) -> Tensor:
    """Floats as quantised numbers."""
    point = None if zero is None else reshaped(zero, ())
    return ops.quantize_linear(t, reshaped(scale, ()), point, kind)


def _binary(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    def of(_node: Node, *operands: Tensor | None) -> Tensor:
        a, a_scale, a_zero, b, b_scale, b_zero, scale, zero = (*operands, None)[:8]
        made = function(_wide(_given(a), _given(a_scale), a_zero), _wide(_given(b), _given(b_scale), b_zero))
        return _back(made, _given(scale), zero, _given(a).dtype)

    return of


def _given(t: Tensor | None) -> Tensor:
    if t is None:
        raise NotSupportedError("without an operand")
    return t


_microsoft("QLinearAdd")(_binary(ops.add))
_microsoft("QLinearMul")(_binary(ops.mul))


def _unary(function: Callable[[Node, Tensor], Tensor]) -> Callable[..., Tensor]:
    def of(
        node: Node, t: Tensor, scale: Tensor, zero: Tensor | None, to: Tensor, to_zero: Tensor | None = None
    ) -> Tensor:
        return _back(function(node, _wide(t, scale, zero)), to, to_zero, t.dtype)

    return of


def _softmax(node: Node, t: Tensor) -> Tensor:
    """Along an axis; before opset 13 of ONNX, over all axes from it on."""
    if node.integer("opset", 13) >= 13:
        return ops.softmax(t, node.integer("axis", -1))
    return of_rows(node, t, ops.softmax, -1)


def _channels_first(function: Callable[[Node, Tensor], Tensor]) -> Callable[[Node, Tensor], Tensor]:
    """A function of images whose channels may be last."""

    def of(node: Node, t: Tensor) -> Tensor:
        if not node.integer("channels_last", 0):
            return function(node, t)
        made = function(node, moved(t, (0, t.rank - 1, *range(1, t.rank - 1))))
        return moved(made, (0, *range(2, t.rank), 1))

    return of


_microsoft("QLinearSigmoid")(_unary(lambda _, t: ops.sigmoid(t)))
_microsoft("QLinearLeakyRelu")(_unary(leaky_relu))
_microsoft("QLinearSoftmax")(_unary(_softmax))
_microsoft("QLinearAveragePool")(_unary(_channels_first(_convolutions.average_pool)))
_microsoft("QLinearGlobalAveragePool")(
    _unary(_channels_first(lambda _, t: ops.mean(t, list(range(2, t.rank)), True)))
)


@_microsoft("QLinearConcat")
def _concat(node: Node, scale: Tensor, zero: Tensor, *operands: Tensor) -> Tensor:
    parts = [_wide(*operands[i : i + 3]) for i in range(0, len(operands), 3)]
    return _back(ops.concat(parts, node.integer("axis")), scale, zero, zero.dtype)


@_microsoft("QLinearWhere")
def _where(_node: Node, which: Tensor, *operands: Tensor) -> Tensor:
    made = ops.where(which, _wide(*operands[:3]), _wide(*operands[3:6]))
    return _back(made, operands[6], operands[7], operands[0].dtype)


# Products


@_microsoft("QGemm")
def _gemm(node: Node, *operands: Tensor | None) -> Tensor:
    """Floats without a scale of the result; the bias is whole numbers in the scale of the products."""
    a, a_scale, a_zero, b, b_scale, b_zero, bias, scale, zero = (*operands, None, None, None)[:9]
    a, b, a_scale, b_scale = _given(a), _given(b), _given(a_scale), _given(b_scale)
    left = moved(a, (1, 0)) if node.integer("transA", 0) else a
    right = moved(b, (1, 0)) if node.integer("transB", 0) else b
    sums = cast(product(left, right, a_zero, b_zero), dtypes.float64)
    if bias is not None:
        sums = ops.add(sums, cast(bias, sums.dtype))
    alpha = node.number("alpha", 1.0)
    if alpha != 1.0:
        a_scale = ops.mul(cast(a_scale, dtypes.float64), node.constant(alpha, dtypes.float64))
    if scale is None:
        return cast(ops.mul(sums, _product(a_scale, b_scale)), dtypes.float32)
    return requantised(node, sums, (a_scale, b_scale), scale, _given(zero))


def _product(a: Tensor, b: Tensor) -> Tensor:
    """Two scales, or one and those of columns, as one in float64."""
    one, other = (reshaped(each, () if each.nelms == 1 else (each.nelms,)) for each in (a, b))
    return ops.mul(cast(one, dtypes.float64), cast(other, dtypes.float64))


def _matmul_to_float(
    _node: Node,
    a: Tensor,
    b: Tensor,
    a_scale: Tensor,
    b_scale: Tensor,
    a_zero: Tensor | None = None,
    b_zero: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    sums = cast(product(a, b, a_zero, b_zero), dtypes.float64)
    made = cast(ops.mul(sums, _product(a_scale, b_scale)), dtypes.float32)
    return made if bias is None else ops.add(made, bias)


_microsoft("MatMulIntegerToFloat")(_matmul_to_float)


@_microsoft("DynamicQuantizeMatMul")
def _dynamic_matmul(
    node: Node,
    a: Tensor,
    b: Tensor,
    b_scale: Tensor,
    b_zero: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    whole, scale, point = _quantise.dynamic_quantize(node, a)
    return _matmul_to_float(node, whole, b, scale, b_scale, point, b_zero, bias)


@_microsoft("QAttention")
def _attention(
    node: Node,
    t: Tensor,
    weight: Tensor,
    bias: Tensor,
    scale: Tensor,
    w_scale: Tensor,
    mask: Tensor | None = None,
    zero: Tensor | None = None,
    w_zero: Tensor | None = None,
    past: Tensor | None = None,
) -> Tensor:
    """Attention of quantised rows to themselves; a mask is 1 for keys that are seen."""
    if past is not None or node.wants(1):
        raise NotSupportedError("with past keys")
    if node.integer("do_rotary", 0):
        raise NotSupportedError("with rotary embeddings")
    if mask is not None and mask.shape != t.shape[:2]:
        raise NotSupportedError(f"a mask of shape {list(mask.shape)}")
    joined = _matmul_to_float(node, t, weight, scale, w_scale, zero, w_zero, bias)
    batch, length, heads = *t.shape[:2], node.integer("num_heads")
    width = joined.shape[2] // 3 // heads
    parts = [
        moved(reshaped(each, (batch, length, heads, width)), (0, 2, 1, 3)) for each in ops.split(joined, 3, 2)
    ]
    added = None
    if mask is not None:
        hidden = ops.equal(mask, node.like(0, mask))
        low = node.constant(node.number("mask_filter_value", -10000.0), dtypes.float32)
        row = ops.where(hidden, low, node.constant(0, dtypes.float32))
        added = expanded(reshaped(row, (batch, 1, 1, length)), (batch, heads, length, length))
    queries, keys, values = parts
    made = ops.attention(
        queries,
        keys,
        values,
        added,
        bool(node.integer("unidirectional", 0)),
        node.number("scale", 0.0) or width**-0.5,
    )
    return reshaped(moved(made, (0, 2, 1, 3)), (batch, length, heads * width))


# Fused ops


@_microsoft("FusedMatMul")
def _fused_matmul(node: Node, a: Tensor, b: Tensor) -> Tensor:
    if node.integer("transBatchA", 0) or node.integer("transBatchB", 0):
        raise NotSupportedError("with moved batches")
    a = _transposed(a) if node.integer("transA", 0) else a
    b = _transposed(b) if node.integer("transB", 0) else b
    made, alpha = ops.matmul(a, b), node.number("alpha", 1.0)
    return made if alpha == 1.0 else ops.mul(made, node.like(alpha, made))


def _transposed(t: Tensor) -> Tensor:
    return moved(t, (*range(t.rank - 2), t.rank - 1, t.rank - 2)) if t.rank > 1 else t


@_microsoft("Gelu")
def _gelu(_node: Node, t: Tensor) -> Tensor:
    return ops.geluerf(t)


@_microsoft("BiasGelu")
def _bias_gelu(_node: Node, t: Tensor, bias: Tensor) -> Tensor:
    return ops.geluerf(ops.add(t, bias))


@_microsoft("FastGelu")
def _fast_gelu(_node: Node, t: Tensor, bias: Tensor | None = None) -> Tensor:
    return ops.gelu(t if bias is None else ops.add(t, bias))


@_microsoft("QuickGelu")
def _quick_gelu(node: Node, t: Tensor) -> Tensor:
    return ops.mul(t, ops.sigmoid(ops.mul(t, node.like(node.number("alpha", 1.702), t))))


@_microsoft("SkipLayerNormalization")
def _skip_layer_norm(
    node: Node,
    t: Tensor,
    skip: Tensor,
    scale: Tensor,
    shift: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """The norm of a sum."""
    if node.results() > 1:
        raise NotSupportedError("with more than one result")
    total = ops.add(t, skip if bias is None else ops.add(skip, bias))
    if shift is None:
        shift = node.like(np.zeros(scale.shape), scale)
    rows = reshaped(total, (total.nelms // total.shape[-1], total.shape[-1]))
    return reshaped(ops.layer_norm(rows, scale, shift, node.number("epsilon", 1e-12)), total.shape)
