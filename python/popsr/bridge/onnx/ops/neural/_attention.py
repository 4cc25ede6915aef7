"""Attention in float32 and float64; other nodes are read by ONNX's function body."""

from __future__ import annotations

from popsr import dtypes, ops
from popsr._program.tensor import Tensor
from popsr.bridge.onnx._node import Node, Value
from popsr.bridge.onnx._rules import FunctionBodyError, rule
from popsr.bridge.onnx._tensors import expanded, moved, reshaped, shape_of

__all__ = ["by_head", "repeated"]

# Numbers of TensorProto.DataType: softmax in the dtype of the operands.
_PRECISION = {dtypes.float32: 1, dtypes.float64: 11}


@rule("Attention", since=23, kind="raw")
def _attention(
    node: Node, query: Value, key: Value, value: Value, given_mask: Value = None, *cache: Value
) -> Tensor:
    q, k, v = (node.tensor(each) for each in (query, key, value))
    plain = node.results() == 1 and all(each is None for each in cache) and q.dtype == k.dtype == v.dtype
    if not plain or not _is_covered(node, q):
        raise FunctionBodyError
    heads = node.integer("q_num_heads", 0) or q.shape[1]
    own = node.integer("kv_num_heads", 0) or k.shape[1]
    queries, keys, values = by_head(q, heads), by_head(k, own), by_head(v, own)
    mask = _mask(node, given_mask, q, (*queries.shape[:3], keys.shape[2]))
    keys, values = repeated(keys, heads), repeated(values, heads)
    scale = node.number("scale", queries.shape[-1] ** -0.5)
    made = ops.attention(queries, keys, values, mask, bool(node.integer("is_causal", 0)), scale)
    if q.rank == 4:
        return made
    return reshaped(moved(made, (0, 2, 1, 3)), (*q.shape[:2], heads * made.shape[-1]))


def _is_covered(node: Node, q: Tensor) -> bool:
    """True for options that ``ops.attention`` has. Narrow floats are rounded at each step of the function body."""
    return (
        q.dtype in _PRECISION
        and node.integer("softmax_precision", _PRECISION[q.dtype]) == _PRECISION[q.dtype]
        and node.number("softcap", 0.0) == 0.0
        and node.integer("left_window_size", -1) == node.integer("right_window_size", -1) == -1
    )


def by_head(t: Tensor, heads: int) -> Tensor:
    """From ``[batch, sequence, features]`` to ``[batch, head, sequence, feature of the head]``."""
    if t.rank == 4:
        return t
    return moved(reshaped(t, (*t.shape[:2], heads, t.shape[2] // heads)), (0, 2, 1, 3))


def repeated(t: Tensor, heads: int) -> Tensor:
    """Each head once for each of the heads of queries that share it."""
    batch, own, *rest = t.shape
    if own == heads:
        return t
    shared = expanded(reshaped(t, (batch, own, 1, *rest)), (batch, own, heads // own, *rest))
    return reshaped(shared, (batch, heads, *rest))


def _mask(node: Node, given: Value, q: Tensor, scores: tuple[int, ...]) -> Tensor | None:
    """Unless it is for fewer keys than there are."""
    if given is None:
        return None
    extents = shape_of(given)
    fits = all(extent in (1, whole) for extent, whole in zip(extents[::-1], scores[::-1], strict=False))
    if not fits or extents[-1] != scores[-1]:
        raise FunctionBodyError
    mask = node.tensor(given)
    if mask.dtype not in (dtypes.bool, q.dtype):
        raise FunctionBodyError
    return mask
