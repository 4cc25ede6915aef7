"""Quantised numbers: whole numbers that stand for ``(number - zero point) * scale``."""

from __future__ import annotations

from typing import Any

from popsr import dtypes, ops
from popsr._program.tensor import Tensor
from popsr.bridge.onnx._node import Node, cast, is_float
from popsr.bridge.onnx._rules import NotSupportedError, rule
from popsr.bridge.onnx._tensors import expanded, reshaped
from popsr.bridge.onnx._types import dtype_of
from popsr.bridge.onnx.ops.elementwise._casts import converted
from popsr.bridge.onnx.ops.neural._convolutions import convolved

__all__ = ["centred", "dequantize", "dynamic_quantize", "product", "quantize", "requantised"]


def _along(node: Node, parameter: Tensor, t: Tensor) -> Tensor:
    """A scale or zero point in the shape that broadcasts to the operand: of all, of an axis, or of blocks of it."""
    if parameter.nelms == 1 and parameter.rank <= 1:
        return reshaped(parameter, ())
    axis, block = node.axis("axis", t.rank, 1), node.integer("block_size", 0)
    if parameter.rank == 1:
        return reshaped(parameter, tuple(parameter.nelms if i == axis else 1 for i in range(t.rank)))
    if not block:
        block = t.shape[axis] // parameter.shape[axis]
    middle = (*parameter.shape[: axis + 1], 1, *parameter.shape[axis + 1 :])
    wide = expanded(reshaped(parameter, middle), (*middle[: axis + 1], block, *middle[axis + 2 :]))
    shape = (*middle[:axis], middle[axis] * block, *middle[axis + 2 :])
    made = reshaped(wide, shape)
    return made if shape[axis] == t.shape[axis] else ops.slice(made, 0, t.shape[axis], 1, axis)


_SHORT = (dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.uint16)


def _layout(node: Node, t: Tensor, scale: Tensor) -> dict[str, int]:
    """Axis and block size of scales, as the ops take them."""
    if scale.nelms == 1 and scale.rank <= 1:
        return {}
    axis = node.axis("axis", t.rank, 1)
    if scale.rank == 1:
        return {"axis": axis}
    return {"axis": axis, "block_size": node.integer("block_size", 0) or t.shape[axis] // scale.shape[axis]}


def _one_or_all(parameter: Tensor | None) -> Tensor | None:
    """One number without axes."""
    if parameter is None or parameter.nelms > 1 or parameter.rank > 1:
        return parameter
    return reshaped(parameter, ())


@rule("QuantizeLinear", since=10)
def quantize(node: Node, t: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
    """Rounded to even, then moved by the zero point, then saturated."""
    if zero is not None:
        kind = zero.dtype
    else:
        kind = dtype_of(node.integer("output_dtype")) if node.integer("output_dtype", 0) else dtypes.uint8
    if node.integer("precision", 0):
        scale = cast(scale, dtype_of(node.integer("precision")))
    wide = cast(cast(t, dtypes.float32) if not is_float(t.dtype) else t, scale.dtype)
    if kind in _SHORT and is_float(scale.dtype):
        one = _one_or_all(scale)
        assert one is not None
        return ops.quantize_linear(wide, one, _one_or_all(zero), kind, **_layout(node, t, scale))
    quotient = ops.div(wide, _along(node, scale, t))
    return _quantised(node, quotient, None if zero is None else _along(node, zero, t), kind)


def _quantised(node: Node, quotient: Tensor, zero: Tensor | None, kind: dtypes.dtype) -> Tensor:
    if is_float(kind):
        return converted(node, quotient, kind)
    whole = cast(ops.round(quotient), dtypes.float64 if quotient.dtype == dtypes.float64 else dtypes.float32)
    if zero is not None:
        whole = ops.add(whole, cast(zero, whole.dtype))
    return ops.cast(whole, kind)


@rule("DequantizeLinear", since=10)
def dequantize(node: Node, t: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
    to = dtype_of(node.integer("output_dtype")) if node.integer("output_dtype", 0) else scale.dtype
    if t.dtype in (*_SHORT, dtypes.int32) and is_float(scale.dtype):
        one = _one_or_all(scale if to == scale.dtype else cast(scale, dtypes.float32))
        assert one is not None
        return cast(ops.dequantize_linear(t, one, _one_or_all(zero), **_layout(node, t, scale)), to)
    wide = converted(node, t, dtypes.float32)
    if zero is not None:
        wide = ops.sub(wide, converted(node, _along(node, zero, t), dtypes.float32))
    return cast(ops.mul(wide, cast(_along(node, scale, t), dtypes.float32)), to)


@rule("DynamicQuantizeLinear", since=11)
def dynamic_quantize(node: Node, t: Tensor) -> list[Tensor]:
    """Bytes for numbers, whose range, with 0 in it, becomes that of bytes. Gradients stop, at the scale too."""
    zero = node.like(0, t)
    low, high = (ops.detach(each) for each in (ops.minimum(ops.min(t), zero), ops.maximum(ops.max(t), zero)))
    scale = ops.div(ops.sub(high, low), node.like(255, t))
    point = ops.cast(ops.round(ops.div(ops.sub(zero, low), scale)), dtypes.uint8)
    return [ops.quantize_linear(t, scale, point, dtypes.uint8), scale, point]


def centred(t: Tensor, zero: Tensor | None, axis: int | None = None) -> Tensor:
    """Numbers less their zero point, as 64-bit floats."""
    wide = cast(t, dtypes.float64)
    if zero is None:
        return wide
    if zero.nelms == 1:
        zero = reshaped(zero, ())
    elif axis is not None and zero.rank == 1:
        zero = reshaped(zero, tuple(zero.nelms if i == axis % t.rank else 1 for i in range(t.rank)))
    return ops.sub(wide, cast(zero, dtypes.float64))


_LONGEST = (2**31 - 1) // 255**2
"""Sums of so many products of bytes less their zero points fit 32 bits."""


def product(a: Tensor, b: Tensor, a_zero: Tensor | None = None, b_zero: Tensor | None = None) -> Tensor:
    """Exact sums of products of numbers less their zero points: int32 of bytes, else 64-bit floats."""
    a_one, b_one = _one_or_all(a_zero), _one_or_all(b_zero)
    b_rank = 1 if b.rank > 1 else 0
    if a.shape[-1] <= _LONGEST and _are_bytes(a, a_one, 0) and _are_bytes(b, b_one, b_rank):
        return ops.matmul_integer(a, b, a_one, b_one)
    return ops.matmul(centred(a, a_zero, -2), centred(b, b_zero, -1))


def _are_bytes(t: Tensor, zero: Tensor | None, rank: int) -> bool:
    """True if it has bytes, and zero points of at most so many axes."""
    kinds = (dtypes.int8, dtypes.uint8)
    return t.dtype in kinds and (zero is None or (zero.dtype == t.dtype and zero.rank <= rank))


@rule("MatMulInteger", since=10)
def _matmul_integer(
    _node: Node, a: Tensor, b: Tensor, a_zero: Tensor | None = None, b_zero: Tensor | None = None
) -> Tensor:
    return cast(product(a, b, a_zero, b_zero), dtypes.int32)


@rule("ConvInteger", since=10)
def _conv_integer(
    node: Node, t: Tensor, weight: Tensor, zero: Tensor | None = None, weight_zero: Tensor | None = None
) -> Tensor:
    return ops.cast(convolved(node, centred(t, zero), centred(weight, weight_zero, 0)), dtypes.int32)


@rule("QLinearMatMul", since=10)
def _qlinear_matmul(node: Node, *operands: Tensor) -> Tensor:
    a, a_scale, a_zero, b, b_scale, b_zero, scale, zero = operands
    return requantised(node, product(a, b, a_zero, b_zero), (a_scale, b_scale), scale, zero)


@rule("QLinearConv", since=10)
def _qlinear_conv(node: Node, *operands: Any) -> Tensor:
    t, t_scale, t_zero, weight, w_scale, w_zero, scale, zero = operands[:8]
    sums = convolved(node, centred(t, t_zero), centred(weight, w_zero, 0))
    if len(operands) > 8 and operands[8] is not None:
        bias = cast(operands[8], dtypes.float64)
        sums = ops.add(sums, reshaped(bias, (bias.nelms, *(1,) * (t.rank - 2))))
    if w_scale.nelms > 1:
        w_scale = reshaped(w_scale, (w_scale.nelms, *(1,) * (t.rank - 2)))
    return requantised(node, sums, (t_scale, w_scale), scale, zero)


def requantised(
    node: Node, sums: Tensor, scales: tuple[Tensor, Tensor], scale: Tensor, zero: Tensor
) -> Tensor:
    """Sums of products in the type of the result."""
    if not is_float(scale.dtype):
        raise NotSupportedError(f"a scale of {scale.dtype.name}")
    one, other, divisor = (cast(_scalar(each), dtypes.float64) for each in (*scales, scale))
    wide = ops.mul(ops.mul(cast(sums, dtypes.float64), one), other)
    if zero.dtype in _SHORT and divisor.rank == 0:
        return ops.quantize_linear(wide, divisor, _scalar(zero), zero.dtype)
    return _quantised(node, ops.div(wide, divisor), _scalar(zero), zero.dtype)


def _scalar(t: Tensor) -> Tensor:
    return reshaped(t, ()) if t.nelms == 1 else t
