"""Attention of onnxruntime: with projections, with keys of earlier tokens, with fewer heads of keys, with rotations."""

from __future__ import annotations

from typing import Any

import numpy as np

from popsr import dtypes, ops
from popsr._program.tensor import Tensor
from popsr.bridge.onnx._node import Node, Value
from popsr.bridge.onnx._rules import NotSupportedError
from popsr.bridge.onnx._tensors import check_known, counting, expanded, moved, reshaped
from popsr.bridge.onnx._types import Array
from popsr.bridge.onnx.ops.microsoft._domain import microsoft
from popsr.bridge.onnx.ops.microsoft._quantised import matmul_to_float
from popsr.bridge.onnx.ops.neural._attention import by_head, repeated

__all__: list[str] = []

Results = list[Tensor | None]
_ROWS = 3
"""Rank of rows of several samples."""
_PARTS = 3
"""Queries, keys and values."""


def _attended(
    node: Node, parts: tuple[Tensor, Tensor, Tensor], added: Tensor | None, seen: Array | None
) -> Tensor:
    """Rows of all heads, of queries, keys and values ``[batch, head, row, feature]``.

    Args:
        node: the node, with ``scale``.
        parts: queries, keys and values.
        added: numbers that are added to the scores.
        seen: which keys a query sees, ``[queries, keys]``; None: all.
    """
    queries, keys, values = parts
    mask = added
    if seen is not None:
        see = node.constant(seen, dtypes.bool)
        low = node.like(-np.inf, queries)
        mask = see if added is None else ops.where(see, added, low)
    scale = node.number("scale", 0.0) or queries.shape[-1] ** -0.5
    made = ops.attention(queries, keys, values, mask, False, scale)
    rows = moved(made, (0, 2, 1, 3))
    return reshaped(rows, (*rows.shape[:2], rows.shape[2] * rows.shape[3]))


def _earlier(rows: int, keys: int, window: int = -1) -> Array:
    """True where the last ``rows`` keys see a key: those before them and themselves, of a window the last ones."""
    check_known(rows * keys)
    apart = counting(rows)[:, None] + (keys - rows) - counting(keys)[None, :]
    seen = apart >= 0
    return np.asarray(seen if window < 0 else seen & (apart < window))


def _sum(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    if a is None or b is None:
        return b if a is None else a
    return ops.add(a, b)


def _hidden(node: Node, mask: Tensor | None, like: Tensor, keys: int) -> Tensor | None:
    """Numbers for the scores of keys that a mask hides: by key, by query and key, or by the length of a sample."""
    if mask is None:
        return None
    batch, rows = like.shape[0], like.shape[2]
    shapes = {(batch, keys): (batch, 1, 1, keys), (batch, rows, keys): (batch, 1, rows, keys)}
    if mask.shape in shapes:
        hidden = reshaped(ops.equal(mask, node.like(0, mask)), shapes[mask.shape])
    elif mask.shape in ((batch,), (2 * batch,)):
        place = node.constant(counting(keys)[None, :], mask.dtype)
        ends = reshaped(ops.slice(mask, 0, batch, 1, 0), (batch, 1))
        hidden = ops.greater_equal(expanded(place, (batch, keys)), ends)
        if mask.shape != (batch,):
            begins = reshaped(ops.slice(mask, batch, 2 * batch, 1, 0), (batch, 1))
            hidden = ops.logical_or(hidden, ops.less(expanded(place, (batch, keys)), begins))
        hidden = reshaped(hidden, (batch, 1, 1, keys))
    else:
        raise NotSupportedError(f"a mask of shape {list(mask.shape)}")
    low = node.like(node.number("mask_filter_value", -10000.0), like)
    return ops.where(hidden, low, node.like(0, like))


def _with_past(past: Tensor | None, new: Tensor) -> Tensor:
    """Keys or values of earlier tokens, then new ones."""
    return new if past is None or not past.shape[2] else ops.concat([past, new], 2)


# With projections


def _projected(
    node: Node, joined: Tensor, mask: Tensor | None, past: Tensor | None, bias: Tensor | None = None
) -> Results:
    """Queries, keys and values beside each other, as attention of rows to themselves and to earlier ones."""
    if node.integer("do_rotary", 0):
        raise NotSupportedError("with rotary embeddings")
    if node.integer("past_present_share_buffer", 0):
        raise NotSupportedError("with past keys in a buffer")
    heads = node.integer("num_heads")
    sizes = node.ints("qkv_hidden_sizes", (joined.shape[2] // _PARTS,) * _PARTS)
    q, k, v = (by_head(each, heads) for each in ops.split(joined, list(sizes), 2))
    if past is not None:
        old_k, old_v = (reshaped(each, past.shape[1:]) for each in ops.split(past, 2, 0))
        k, v = _with_past(old_k, k), _with_past(old_v, v)
    added = _sum(_hidden(node, mask, q, k.shape[2]), bias)
    seen = _earlier(q.shape[2], k.shape[2]) if node.integer("unidirectional", 0) else None
    made = _attended(node, (q, k, v), added, seen)
    if not node.wants(1):
        return [made]
    return [made, ops.concat([reshaped(each, (1, *each.shape)) for each in (k, v)], 0)]


@microsoft("Attention")
def _attention(
    node: Node,
    t: Tensor,
    weight: Tensor,
    shift: Tensor | None = None,
    mask: Tensor | None = None,
    past: Tensor | None = None,
    bias: Tensor | None = None,
    past_length: Tensor | None = None,
) -> Results:
    if past_length is not None:
        raise NotSupportedError("with past keys in a buffer")
    joined = ops.matmul(t, weight)
    return _projected(node, joined if shift is None else ops.add(joined, shift), mask, past, bias)


@microsoft("QAttention")
def _q_attention(
    node: Node,
    t: Tensor,
    weight: Tensor,
    shift: Tensor,
    scale: Tensor,
    w_scale: Tensor,
    mask: Tensor | None = None,
    zero: Tensor | None = None,
    w_zero: Tensor | None = None,
    past: Tensor | None = None,
) -> Results:
    """Attention of quantised rows and weights."""
    joined: Tensor = matmul_to_float(node, t, weight, scale, w_scale, zero, w_zero, shift)
    return _projected(node, joined, mask, past)


# Attention of queries, keys and values


@microsoft("MultiHeadAttention")
def _multi_head(
    node: Node,
    query: Tensor,
    key: Tensor | None = None,
    value: Tensor | None = None,
    shift: Tensor | None = None,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
    *buffers: Tensor | None,
) -> Results:
    """Keys and values that have heads already are used as they are."""
    if any(each is not None for each in buffers) or node.wants(3):
        raise NotSupportedError("with past keys in a buffer, or with scores as a result")
    heads = node.integer("num_heads")
    if key is None or value is None:
        raise NotSupportedError("with queries, keys and values in one operand")
    q, k, v = _shifted((query, key, value), shift)
    q, k, v = (by_head(each, heads) for each in (q, k, v))
    k, v = _with_past(past_key, k), _with_past(past_value, v)
    added = _sum(_hidden(node, mask, q, k.shape[2]), bias)
    seen = _earlier(q.shape[2], k.shape[2]) if node.integer("unidirectional", 0) else None
    return [_attended(node, (q, k, v), added, seen), k, v]


def _shifted(parts: tuple[Tensor, Tensor, Tensor], shift: Tensor | None) -> tuple[Tensor, ...]:
    """Queries, keys and values with the parts of a bias."""
    if shift is None:
        return parts
    if any(each.rank != _ROWS for each in parts):
        raise NotSupportedError("a bias of keys that have heads")
    biases = ops.split(shift, [each.shape[2] for each in parts], 0)
    return tuple(ops.add(each, own) for each, own in zip(parts, biases, strict=True))


_GROUPED = {
    "smooth_softmax": 0,
    "qk_output": 0,
    "kv_cache_bit_width": 0,
    "sliding_window_cache": 0,
    "softcap": 0.0,
}
"""Attributes of ``GroupQueryAttention`` that have no counterpart, and their values without an effect."""
_UNREAD = (
    "position_ids",
    "attention_bias",
    "head_sink",
    "k_scale",
    "v_scale",
    "q_norm_weight",
    "k_norm_weight",
)
"""Operands of ``GroupQueryAttention`` after the rotations; only the bias has a counterpart."""
_BIAS = 1


@microsoft("GroupQueryAttention", kind="raw")
def _grouped(
    node: Node,
    query: Value,
    key: Value,
    value: Value,
    past_key: Value,
    past_value: Value,
    lengths: Value,
    total: Value,
    cosines: Value = None,
    sines: Value = None,
    *more: Value,
) -> Results:
    """Heads of queries that share heads of keys; rows are after earlier ones, which are as many in each sample."""
    _check_grouped(node, more)
    heads, own = node.integer("num_heads"), node.integer("kv_num_heads")
    q = node.tensor(query)
    if key is None or value is None:
        width = q.shape[2] // (heads + 2 * own)
        parts = ops.split(q, [heads * width, own * width, own * width], 2)
    else:
        parts = [q, node.tensor(key), node.tensor(value)]
    queries, keys, values = (by_head(part, n) for part, n in zip(parts, (heads, own, own), strict=True))
    old_k, old_v = (None if each is None else node.tensor(each) for each in (past_key, past_value))
    begin, rows = 0 if old_k is None else old_k.shape[2], queries.shape[2]
    if begin:
        _check_lengths(node, lengths, total, begin + rows)
    if node.integer("do_rotary", 0):
        places = node.constant(begin + counting(rows), dtypes.int64)
        tables = [ops.gather(node.tensor(each), places, 0) for each in (cosines, sines)]
        turn = bool(node.integer("rotary_interleaved", 0))
        queries, keys = (_rotated(each, tables[0], tables[1], turn) for each in (queries, keys))
    keys, values = _with_past(old_k, keys), _with_past(old_v, values)
    window = node.integer("local_window_size", -1)
    seen = _earlier(rows, keys.shape[2], window) if node.integer("causal", 1) else None
    bias = None if len(more) <= _BIAS or more[_BIAS] is None else node.tensor(more[_BIAS])
    made = _attended(node, (queries, repeated(keys, heads), repeated(values, heads)), bias, seen)
    return [made, keys, values]


def _check_grouped(node: Node, more: tuple[Value, ...]) -> None:
    for name, plain in _GROUPED.items():
        if node.has(name) and getattr(node.attributes[name], "i" if isinstance(plain, int) else "f") != plain:
            raise NotSupportedError(f"{name}")
    if any(node.text(f"{part}_quant_type", "NONE") != "NONE" for part in "kv"):
        raise NotSupportedError("with quantised keys")
    for place, each in enumerate(more):
        if each is not None and place != _BIAS:
            raise NotSupportedError(f"with {_UNREAD[place] if place < len(_UNREAD) else 'query_seqlens'}")
    if node.wants(3):
        raise NotSupportedError("with scores as a result")


def _check_lengths(node: Node, lengths: Value, total: Value, keys: int) -> None:
    """Past keys are those of all samples, not a buffer that is filled in part."""
    last = node.known(lengths, "number of keys of each sample")
    if (last != keys - 1).any() or node.known_int(total, "number of keys") != keys:
        raise NotSupportedError(f"{keys} keys, of which samples use other numbers")


# Rotations


def _rotated(t: Tensor, cosines: Tensor, sines: Tensor, interleaved: bool) -> Tensor:
    """Pairs of features turned: of the first half and the second, or neighbours; what is beyond the tables stays.

    Args:
        t: ``[batch, head, row, feature]``.
        cosines: of each row, or of each sample and row.
        sines: as cosines.
        interleaved: True for neighbours.
    """
    half = cosines.shape[-1]
    shape = (1, 1, *cosines.shape) if cosines.rank == 2 else (cosines.shape[0], 1, *cosines.shape[1:])
    c, s = (reshaped(each, shape) for each in (cosines, sines))
    own, rest = _cut(t, 2 * half)
    if interleaved:
        pairs = reshaped(own, (*t.shape[:3], half, 2))
        a, b = (reshaped(each, (*t.shape[:3], half)) for each in ops.split(pairs, 2, 4))
    else:
        a, b = ops.split(own, 2, 3)
    first, second = ops.sub(ops.mul(a, c), ops.mul(b, s)), ops.add(ops.mul(b, c), ops.mul(a, s))
    if interleaved:
        wide = [reshaped(each, (*each.shape, 1)) for each in (first, second)]
        made = reshaped(ops.concat(wide, 4), own.shape)
    else:
        made = ops.concat([first, second], 3)
    return made if rest is None else ops.concat([made, rest], 3)


def _cut(t: Tensor, count: int) -> tuple[Tensor, Tensor | None]:
    """The first features, and the others if there are any."""
    if count == t.shape[3]:
        return t, None
    own, rest = ops.split(t, [count, t.shape[3] - count], 3)
    return own, rest


@microsoft("RotaryEmbedding")
def _rotary(node: Node, t: Tensor, places: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    if node.integer("is_packed_batching", 0) or node.number("scale", 1.0) != 1.0:
        raise NotSupportedError("of rows without padding, or with a scale")
    whole = t.shape[-1] // (2 * cosines.shape[1])  # heads, of which all features turn
    wide = by_head(t, node.integer("num_heads") if node.integer("rotary_embedding_dim", 0) else whole)
    if places.nelms == 1 and places.rank == 1:
        number = node.constant(counting(wide.shape[2]), places.dtype)
        places = ops.add(expanded(places, number.shape), number)
    tables: list[Any] = [ops.gather(each, places, 0) for each in (cosines, sines)]
    made = _rotated(wide, tables[0], tables[1], bool(node.integer("interleaved", 0)))
    return made if t.rank != _ROWS else reshaped(moved(made, (0, 2, 1, 3)), t.shape)
