"""Conversions as ONNX defines them."""

from __future__ import annotations

from popsr import dtypes, ops
from popsr._program.tensor import Tensor
from popsr.bridge._step.float_bits import FORMATS, bits_of, float_of, integer_as
from popsr.bridge.onnx._node import Node, cast, is_float
from popsr.bridge.onnx._rules import NotSupportedError, rule
from popsr.bridge.onnx._types import dtype_of

__all__ = ["converted"]

_FLOAT8 = (dtypes.float8_e4m3fn, dtypes.float8_e5m2)
_GREATEST = {dtypes.float8_e4m3fn: 448.0, dtypes.float8_e5m2: 57344.0}


def converted(node: Node, t: Tensor, kind: dtypes.dtype) -> Tensor:
    """A tensor of another type: to bool by comparing with zero, to float8 with or without saturation.

    Integers that become narrower keep their low bits.
    """
    if t.dtype == kind:
        return t
    if kind in _FLOAT8:
        return _to_float8(node, t, kind)
    if t.dtype in _FLOAT8:
        return cast(_from_float8(node, t), kind)
    if kind == dtypes.bool:
        return ops.not_equal(t, node.like(0, t))
    return cast(t, kind)


def _zero(node: Node) -> Tensor:
    return node.constant(0, dtypes.int32)


def _to_float8(node: Node, t: Tensor, kind: dtypes.dtype) -> Tensor:
    """Rounded once; what is too large becomes the greatest number, or without saturation NaN or infinity."""
    wide = t if is_float(t.dtype) and t.dtype not in _FLOAT8 else None
    if wide is None:
        wide = _from_float8(node, t) if t.dtype in _FLOAT8 else cast(t, dtypes.float32)
    if wide.dtype == dtypes.float16 or wide.dtype == dtypes.bfloat16:
        wide = cast(wide, dtypes.float32)
    if node.integer("saturate", 1):
        edge = _GREATEST[kind]
        kept = ops.minimum(ops.maximum(wide, node.like(-edge, wide)), node.like(edge, wide))
        wide = ops.where(ops.isnan(wide), wide, kept)
    return ops.pow2scale_cast_to_fp8(wide, _zero(node), kind)


def _from_float8(node: Node, t: Tensor) -> Tensor:
    """Every float8 is a float16."""
    return ops.pow2scale_cast_from_fp8(t, _zero(node), dtypes.float16)


@rule("BitCast", since=26)
def _bit_cast(node: Node, t: Tensor) -> Tensor:
    """Bits of numbers, read as another type of equal width; NaN is one value."""
    to = dtype_of(node.integer("to"))
    if to.as_numpy().itemsize != t.dtype.as_numpy().itemsize:
        raise NotSupportedError(f"{t.dtype.name} to {to.name}")
    whole = [not is_float(each) for each in (t.dtype, to)]
    if all(whole) and to != dtypes.bool:
        return integer_as(t, to)
    for each in (t.dtype, to):
        if each == dtypes.bool or (is_float(each) and each not in FORMATS):
            raise NotSupportedError(f"{t.dtype.name} to {to.name}")
    if t.dtype == to:
        return t
    word = t if whole[0] else bits_of(node.constant, t)
    return integer_as(word, to) if whole[1] else float_of(node.constant, word, to)
