"""Softmax, its logarithm, attention, and their gradients, by exp alone."""

from __future__ import annotations

import numpy as np

from popsr._support.fields import Array, Numbers, select
from popsr.ops._exact.functions import log
from popsr.ops._exact.linalg import product
from popsr.ops._exact.reduce import extreme, keep_axes
from popsr.ops._exact.registry import Exact, exact

__all__: list[str] = []


def _shifted(op: Exact, t: Numbers, axis: int) -> Numbers:
    return t - keep_axes(extreme(op, t, [axis], 1), [axis])


def _total(t: Numbers, axis: int) -> Numbers:
    return keep_axes(t.sum([axis]), [axis])


def weights(op: Exact, t: Numbers, axis: int) -> Numbers:
    """Softmax along an axis."""
    parts = _shifted(op, t, axis).exp()
    return parts / _total(parts, axis)


@exact("softmax")
def softmax(op: Exact, t: Numbers) -> Numbers:
    return weights(op, t, op["axis"] % t.ndim)


@exact("log_softmax")
def log_softmax(op: Exact, t: Numbers) -> Numbers:
    axis = op["axis"] % t.ndim
    away = _shifted(op, t, axis)
    return away - log(_total(away.exp(), axis))


def slopes(y: Numbers, dy: Numbers, axis: int) -> Numbers:
    """Gradient of a softmax with result y."""
    return y * (dy - _total(y * dy, axis))


@exact("softmax_grad")
def softmax_grad(op: Exact, y: Numbers, dy: Numbers) -> Numbers:
    return slopes(y, dy, op["axis"] % y.ndim)


@exact("log_softmax_grad")
def log_softmax_grad(op: Exact, y: Numbers, dy: Numbers) -> Numbers:
    axis = op["axis"] % y.ndim
    return dy - y.exp() * _total(dy, axis)


def _attended(op: Exact, q: Numbers, k: Numbers, mask: Numbers | Array | None) -> tuple[Numbers, Numbers]:
    """Scaled queries, and the weight of each key; zeros for a query that sees none."""
    axes = [*range(k.ndim - 2), k.ndim - 1, k.ndim - 2]
    scaled = q * op.number(op["scale"])
    scores = product(scaled, k.transpose(axes))
    seen = np.ones(scores.shape[-2:], bool)
    if op["is_causal"]:
        seen = np.tril(seen)
    if isinstance(mask, Numbers):
        scores = scores + mask
    elif mask is not None:
        seen = seen & mask
    scores = select(seen, scores, op.number(-np.inf)).broadcast_to(scores.shape)
    some = np.ones(scores.shape, bool) if scores.huge is None else ~np.isneginf(scores.huge)
    seen = np.asarray(some.any(-1))
    top = select(seen, extreme(op, scores, [scores.ndim - 1], 1), op.number(0))
    parts = (scores - keep_axes(top, [scores.ndim - 1])).exp()
    total = select(seen, parts.sum([parts.ndim - 1]), op.number(1))
    return scaled, parts / keep_axes(total, [parts.ndim - 1])


@exact("attention")
def attention(op: Exact, q: Numbers, k: Numbers, v: Numbers, mask: Numbers | Array | None = None) -> Numbers:
    return product(_attended(op, q, k, mask)[1], v)


@exact("attention_grad")
def attention_grad(
    op: Exact, q: Numbers, k: Numbers, v: Numbers, dy: Numbers, mask: Numbers | Array | None = None
) -> list[Numbers]:
    axes = [*range(k.ndim - 2), k.ndim - 1, k.ndim - 2]
    scaled, y = _attended(op, q, k, mask)
    dscores = slopes(y, product(dy, v.transpose(axes)), y.ndim - 1)
    dq = product(dscores, k) * op.number(op["scale"])
    return [dq, product(dscores.transpose(axes), scaled), product(y.transpose(axes), dy)]
