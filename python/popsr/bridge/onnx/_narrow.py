"""Integers of 2 and 4 bits: tensors of 8 bits carry them, and only ops that move or convert them read them."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from popsr import dtypes, ops
from popsr._program.tensor import Tensor, constant
from popsr.bridge.onnx._node import Node, Value
from popsr.bridge.onnx._rules import NotSupportedError
from popsr.bridge.onnx._tensors import shape_of
from popsr.bridge.onnx._types import Array, array_of
from popsr.io._onnx.format import require_onnx

__all__ = [
    "Narrow",
    "as_carried",
    "as_declared",
    "is_narrow",
    "narrow_kind",
    "narrow_results",
    "value_of",
    "without_narrow",
]


class Kind(NamedTuple):
    """An element type of few bits.

    Attributes:
        name: ONNX's name.
        code: its number of ``TensorProto.DataType``.
        bits: bits of a number.
        signed: True if there are negative numbers.
    """

    name: str
    code: int
    bits: int
    signed: bool

    @property
    def dtype(self) -> dtypes.dtype:
        """The element type of the tensors that carry it."""
        return dtypes.int8 if self.signed else dtypes.uint8

    @property
    def ends(self) -> tuple[int, int]:
        """The least and the greatest number."""
        half = 1 << (self.bits - 1)
        return (-half, half - 1) if self.signed else (0, 2 * half - 1)


class Narrow:
    """A value of few bits.

    Attributes:
        value: the tensor or array of 8 bits that carries it.
        kind: its element type.
    """

    __slots__ = ("kind", "value")

    def __init__(self, value: Value, kind: Kind) -> None:
        """Numbers that the type has."""
        self.value, self.kind = value, kind

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents."""
        return shape_of(self.value)


_NAMES = {"INT4": (4, True), "UINT4": (4, False), "INT2": (2, True), "UINT2": (2, False)}


@functools.cache
def _kinds() -> dict[int, Kind]:
    types = require_onnx("bridge.onnx").TensorProto.DataType
    return {
        types.Value(name): Kind(name, types.Value(name), *each)
        for name, each in _NAMES.items()
        if name in list(types.keys())
    }


def is_narrow(name: str) -> bool:
    """True for the name of a type of few bits, in ONNX or NumPy."""
    return name.upper() in _NAMES


def narrow_kind(code: int) -> Kind | None:
    """The type of few bits of a number of ``TensorProto.DataType``; None for other types."""
    return _kinds().get(code)


def value_of(tensor: Any) -> Array | Narrow:
    """The elements of a ``TensorProto``, those of few bits too.

    Raises:
        NotSupportedError: as ``array_of``.
        ValueError: as ``array_of``.
    """
    kind = narrow_kind(tensor.data_type)
    onnx = require_onnx("bridge.onnx")
    if kind is None or tensor.data_location == onnx.TensorProto.EXTERNAL:
        return array_of(tensor)
    if any(extent < 0 for extent in tensor.dims):
        raise ValueError(f"shape {list(tensor.dims)}")
    size = -(-math.prod(tensor.dims) * kind.bits // 8)
    if tensor.HasField("raw_data") and len(tensor.raw_data) != size:
        raise ValueError(f"{len(tensor.raw_data)} bytes, expected {size}")
    if not tensor.HasField("raw_data") and len(tensor.int32_data) != size:
        raise ValueError(f"{len(tensor.int32_data)} numbers of int32_data, expected {size}")
    return Narrow(as_carried(np.asarray(onnx.numpy_helper.to_array(tensor))), kind)


def as_carried(array: Array) -> Array:
    """An array of few bits in those of 8 that carry it; others as they are."""
    if not is_narrow(array.dtype.name):
        return array
    return array.astype(np.uint8 if array.dtype.name.startswith("u") else np.int8)


def as_declared(array: Array, code: int) -> Array:
    """An array in the type that a model declares for it, if that is one of few bits."""
    kind = narrow_kind(code)
    if kind is None:
        return array
    return array.astype(require_onnx("bridge.onnx").helper.tensor_dtype_to_np_dtype(code))


_MOVES = frozenset(
    (
        *("Concat", "DepthToSpace", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity"),
        *("Reshape", "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze"),
    )
)
"""Op types whose results have elements of their operands."""

_READS = frozenset(("Cast", "CastLike", "DequantizeLinear", "Shape", "Size"))
"""Op types whose results do not have them, and that read any numbers."""


def without_narrow(values: Sequence[Value]) -> None:
    """Refuse values of few bits.

    Raises:
        NotSupportedError: there is one.
    """
    for each in values:
        if isinstance(each, Narrow):
            raise NotSupportedError(f"element type {each.kind.name.lower()}")


def narrow_results(
    node: Node, operands: list[Value], read: Callable[[list[Value]], list[Value]]
) -> list[Value] | None:
    """Results of a node that reads or makes numbers of few bits; None if it does neither.

    Args:
        node: a node of ONNX's own domain.
        operands: its operands.
        read: its results for plain operands.
    Raises:
        NotSupportedError: its op type is none of those that move or convert such numbers.
    """
    given = [each for each in operands if isinstance(each, Narrow)]
    kind, op_type = _made(node, operands), node.proto.op_type
    if kind is None and not given:
        return None
    plain = [each.value if isinstance(each, Narrow) else each for each in operands]
    if op_type == "Constant" and kind is not None:
        return [value_of(node.attributes["value"].t)]
    if op_type in ("Cast", "CastLike") and kind is not None:
        return [Narrow(_low_bits(node, node.tensor(plain[0]), kind), kind)]
    if op_type == "QuantizeLinear" and kind is not None:
        return [Narrow(_quantised(plain, kind, read), kind)]
    if op_type in _MOVES and len({each.kind for each in given}) == 1:
        return [Narrow(each, given[0].kind) for each in read(plain)]
    if op_type not in _READS:
        without_narrow(operands)
    return read(plain)


def _made(node: Node, operands: Sequence[Value]) -> Kind | None:
    """The type of few bits that a node converts numbers to."""
    op_type = node.proto.op_type
    if op_type in ("CastLike", "QuantizeLinear"):
        like = operands[-1] if len(operands) > (1 if op_type == "CastLike" else 2) else None
        if isinstance(like, Narrow):
            return like.kind
    name = {"Cast": "to", "QuantizeLinear": "output_dtype"}.get(op_type)
    if name is not None:
        return narrow_kind(node.type_code(name, 0))
    if op_type == "Constant" and node.has("value"):
        return narrow_kind(node.attributes["value"].t.data_type)
    return None


def _low_bits(node: Node, t: Tensor, kind: Kind) -> Tensor:
    """The low bits of whole numbers; of floats without their fraction."""
    whole = ops.cast(t, dtypes.int32)
    low = ops.bitwise_and(whole, node.like((1 << kind.bits) - 1, whole))
    if kind.signed:
        half = node.like(1 << (kind.bits - 1), whole)
        low = ops.sub(ops.bitwise_xor(low, half), half)
    return ops.cast(low, kind.dtype)


def _quantised(operands: list[Value], kind: Kind, read: Callable[[list[Value]], list[Value]]) -> Tensor:
    """Numbers of 8 bits, saturated once more."""
    given = [*operands, None][:3]
    if given[2] is None:
        given[2] = np.zeros(shape_of(given[1]), kind.dtype.as_numpy())
    made = read(given)[0]
    low, high = (constant(np.asarray(end, kind.dtype.as_numpy()), kind.dtype) for end in kind.ends)
    return ops.minimum(ops.maximum(made, low), high)
