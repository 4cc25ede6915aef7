"""Layers whose weights are whole numbers of few bits, several in a byte, with a scale for each block."""

from __future__ import annotations

import numpy as np

from popsr import dtypes, ops
from popsr._program.tensor import Tensor
from popsr.bridge.onnx._node import Node, Value, cast, is_float
from popsr.bridge.onnx._rules import NotSupportedError
from popsr.bridge.onnx._tensors import moved, reshaped
from popsr.bridge.onnx._types import Array
from popsr.bridge.onnx.ops.microsoft._domain import microsoft

__all__: list[str] = []

_BITS = (2, 4, 8)
_BYTE = 8


def _unpacked(packed: Array, bits: int) -> Array:
    """Numbers of bytes along the last axis, the low bits first."""
    if packed.dtype != np.uint8:
        raise NotSupportedError(f"weights of {packed.dtype}")
    shifts = np.arange(0, _BYTE, bits, dtype=np.uint8)
    parts = (packed[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    return parts.reshape(*packed.shape[:-1], -1)


def _bits(node: Node) -> int:
    bits = node.integer("bits", 4)
    if bits not in _BITS:
        raise NotSupportedError(f"weights of {bits} bits")
    return bits


def _dequantised(node: Node, codes: Tensor, scales: Tensor, zeros: Value, axis: int, block: int) -> Tensor:
    """Codes less their zero point, times the scale of their block; in float32 at least."""
    wide = scales if scales.dtype == dtypes.float64 else cast(scales, dtypes.float32)
    return ops.dequantize_linear(codes, wide, node.tensor(zeros), axis, block)


@microsoft("MatMulNBits", kind="raw")
def _matmul_bits(
    node: Node,
    value: Value,
    packed: Value,
    scales: Value,
    zeros: Value = None,
    order: Value = None,
    bias: Value = None,
) -> Tensor:
    """A product with weights ``[outputs, inputs]``, each row in blocks."""
    if order is not None:
        raise NotSupportedError("with g_idx, an order of the inputs")
    if node.integer("weight_prepacked", 0):
        raise NotSupportedError("weights in the layout of a device")
    t, bits, block = node.tensor(value), _bits(node), node.integer("block_size")
    rows, columns = node.integer("N"), node.integer("K")
    blocks = -(-columns // block)
    known = node.known(packed, "weights")
    if known.size != rows * blocks * block * bits // _BYTE:
        raise NotSupportedError(f"weights of shape {list(known.shape)}")
    codes = _unpacked(known.reshape(rows, -1), bits)[:, :columns]
    factors = reshaped(node.tensor(scales), (rows, blocks))
    table = node.constant(codes, dtypes.uint8)
    points = _zero_points(node, zeros, rows, blocks, bits)
    if points.dtype == np.uint8:
        weight = _dequantised(node, table, factors, points, 1, block)
    else:  # numbers between codes
        ends = [np.repeat(points, block, 1)[:, :columns], None]
        shift = node.constant(ends[0], dtypes.float32)
        numbers = ops.sub(cast(table, dtypes.float32), shift)
        wide = ops.gather(
            cast(factors, dtypes.float32), node.constant(np.arange(columns) // block, dtypes.int64), 1
        )
        weight = ops.mul(numbers, wide)
    made = cast(ops.matmul(cast(t, weight.dtype), moved(weight, (1, 0))), t.dtype)
    return made if bias is None else ops.add(made, node.tensor(bias))


def _zero_points(node: Node, zeros: Value, rows: int, blocks: int, bits: int) -> Array:
    """A code for each block, or a float; the middle by default."""
    if zeros is None:
        return np.full((rows, blocks), 1 << (bits - 1), np.uint8)
    known = node.known(zeros, "zero points")
    if known.dtype != np.uint8:
        return known.reshape(rows, blocks).astype(np.float32)
    return np.ascontiguousarray(_unpacked(known.reshape(rows, -1), bits)[:, :blocks])


@microsoft("GatherBlockQuantized", kind="raw")
def _gather_blocks(node: Node, packed: Value, indices: Value, scales: Value, zeros: Value = None) -> Tensor:
    """Rows of a table, whose columns are in blocks."""
    known, bits, block = node.known(packed, "table"), _bits(node), node.integer("block_size", 128)
    if known.ndim != 2 or node.integer("gather_axis", 0) or node.integer("quantize_axis", 1) % 2 != 1:
        raise NotSupportedError("along other axes than those of a table")
    codes = _unpacked(known, bits)
    factors, where = node.tensor(scales), node.tensor(indices)
    rows, blocks = factors.shape
    points = node.constant(_zero_points(node, zeros, rows, blocks, bits), dtypes.uint8)
    flat = reshaped(where, (where.nelms,))
    parts = [ops.gather(each, flat, 0) for each in (node.constant(codes, dtypes.uint8), factors, points)]
    made = _dequantised(node, parts[0], parts[1], parts[2], 1, block)
    if not is_float(factors.dtype):
        raise NotSupportedError(f"scales of {factors.dtype.name}")
    return reshaped(cast(made, factors.dtype), (*where.shape, codes.shape[1]))
