"""Layers of random steps, each in one of its parallel forms: a function of weights and activations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P

from tests_py.bridge.same.random_steps.plan import Plan, rank, size

__all__ = ["WIDTH", "Layer", "attention", "batch_norm", "experts", "feed_forward", "norm", "stages"]

Layer = Callable[[Any, Any], Any]
"""New activations (examples, positions, width) from the weights and the activations before."""

WIDTH, HIDDEN, HEADS = 4, 8, 4
ACTIVATIONS: tuple[Callable[[Any], Any], ...] = (jnp.tanh, jax.nn.gelu, jax.nn.silu, jax.nn.relu)


def norm(plan: Plan) -> Layer:
    """Normalisation of each position, whose gain is replicated."""
    gain = plan.weight("gain", WIDTH, near=1.0)
    if plan.chance():
        return lambda p, h: h * lax.rsqrt((h**2).mean(-1, keepdims=True) + 1e-5) * p[gain]
    bias = plan.weight("bias", WIDTH)
    return lambda p, h: (
        (h - h.mean(-1, keepdims=True)) / jnp.sqrt(h.var(-1, keepdims=True) + 1e-5) * p[gain] + p[bias]
    )


def batch_norm(plan: Plan) -> Layer:
    """Normalisation by the mean and the variance of all examples and positions."""
    gain = plan.weight("gain", WIDTH, near=1.0)
    axes = (*plan.batch, *([plan.time] if plan.time else []))
    form = plan.form("batch norm", "means", "sums")

    def mean(t: Any) -> Any:
        if not axes:
            return t.mean((0, 1))
        if form == "means":
            return lax.pmean(t.mean((0, 1)), axes)
        return lax.psum(t.sum((0, 1)), axes) / (t.shape[0] * t.shape[1] * size(axes))

    def layer(p: Any, h: Any) -> Any:
        middle = mean(h)
        return (h - middle) * lax.rsqrt(mean((h - middle) ** 2) + 1e-5) * p[gain]

    return layer


def feed_forward(plan: Plan) -> Layer:
    """Two products, the first cut by columns, the second by rows; or alike on all replicas."""
    act, gated, bias = plan.one_of(*ACTIVATIONS), plan.chance(0.3), plan.chance(0.3)
    form = plan.form("feed forward", *(["cut", "cut", "whole"] if plan.has("model") else ["whole"]))
    over = "model" if form == "cut" else None
    up = plan.weight("up", WIDTH, HIDDEN, spec=P(None, over))
    gate = plan.weight("gate", WIDTH, HIDDEN, spec=P(None, over)) if gated else ""
    first = plan.weight("b", HIDDEN, spec=P(over)) if bias else ""
    down = plan.weight("down", HIDDEN, WIDTH, spec=P(over))
    last = plan.weight("c", WIDTH) if bias else ""

    def hidden(p: Any, h: Any) -> Any:
        made = act(h @ p[up] + (p[first] if bias else 0.0))
        return (made * (h @ p[gate]) if gated else made) @ p[down]

    def cut(p: Any, h: Any) -> Any:
        return plan.leave(hidden(p, plan.enter(h)))

    inner = cut if over else hidden
    return lambda p, h: h + inner(p, h) + (p[last] if bias else 0.0)


def attention(plan: Plan) -> Layer:
    """Attention with heads cut over ``model``; over ``seq`` keys are gathered or go around, or heads are exchanged."""
    parallel = plan.has("model") and plan.form("attention", "cut", "cut", "whole") == "cut"
    over = "model" if parallel else None
    local = HEADS // plan.static("model") if parallel else HEADS
    groups = plan.one_of(HEADS, 2)
    shared = parallel and groups % plan.static("model") != 0
    forms = ["gathered", "ring"] if plan.has("seq") else ["local"]
    if plan.has("seq") and groups == HEADS and local % plan.static("seq") == 0:
        forms.append("exchanged")
    form, causal, turned = plan.form("context", *forms), plan.chance(0.7), plan.chance(0.4)
    plan.words.append(f"{groups} key heads")
    q, o = (
        plan.weight("q", WIDTH, HEADS, 2, spec=P(None, over)),
        plan.weight("o", HEADS, 2, WIDTH, spec=P(over)),
    )
    spec, inside = (P(), ("model",)) if shared else (P(None, over), ())
    k, v = (plan.weight(name, WIDTH, groups, 2, spec=spec, inside=inside) for name in "kv")

    def inner(p: Any, h: Any) -> Any:
        seq = "seq" if plan.has("seq") else None
        at = plan.positions(h.shape[1], seq)
        mine, keys, values = (jnp.einsum("btd,dhk->bthk", h, p[name]) for name in (q, k, v))
        if groups != HEADS or shared:
            first = rank("model") * mine.shape[2] if parallel else 0
            base = 0 if shared else first // (HEADS // groups)
            chosen = (first + jnp.arange(mine.shape[2])) // (HEADS // groups) - base
            keys, values = (jnp.take(t, chosen, axis=2) for t in (keys, values))
        if turned:
            mine, keys = _turned(mine, at), _turned(keys, at)
        out = _CONTEXTS[form](mine, keys, values, at, causal)
        return jnp.einsum("bthk,hkd->btd", out, p[o])

    if parallel:
        return lambda p, h: h + plan.leave(inner(p, plan.enter(h)))
    rest = plan.whole(inner)
    return lambda p, h: h + rest(p, h)


def _turned(t: Any, at: Any) -> Any:
    """Rotary positions."""
    angle = (at * 0.7)[:, None, None]
    a, b = t[..., :1], t[..., 1:]
    return jnp.concatenate(
        [a * jnp.cos(angle) - b * jnp.sin(angle), a * jnp.sin(angle) + b * jnp.cos(angle)], -1
    )


def _seen(scores: Any, rows: Any, columns: Any, causal: bool) -> Any:
    return jnp.where(rows[:, None] >= columns[None, :], scores, -1e30) if causal else scores


def _local(q: Any, k: Any, v: Any, at: Any, causal: bool, columns: Any = None) -> Any:
    scores = jnp.einsum("bthk,bshk->bhts", q, k) / np.sqrt(2.0)
    part = jax.nn.softmax(_seen(scores, at, at if columns is None else columns, causal), -1)
    return jnp.einsum("bhts,bshk->bthk", part, v)


def _gathered(q: Any, k: Any, v: Any, at: Any, causal: bool) -> Any:
    k, v = (lax.all_gather(t, "seq", axis=1, tiled=True) for t in (k, v))
    return _local(q, k, v, at, causal, jnp.arange(k.shape[1]))


def _exchanged(q: Any, k: Any, v: Any, at: Any, causal: bool) -> Any:
    q, k, v = (lax.all_to_all(t, "seq", 2, 1, tiled=True) for t in (q, k, v))
    return lax.all_to_all(_local(q, k, v, jnp.arange(q.shape[1]), causal), "seq", 1, 2, tiled=True)


def _ring(q: Any, k: Any, v: Any, at: Any, causal: bool) -> Any:
    """Keys and values go around; sums of exponentials are scaled anew where a larger score comes."""
    n, part = size("seq"), q.shape[1]
    top, total, out = (
        jnp.full(q.shape[:3], -1e30, q.dtype),
        jnp.zeros(q.shape[:3], q.dtype),
        jnp.zeros_like(q),
    )
    for i in range(n):
        columns = (rank("seq") - i) % n * part + jnp.arange(part)
        scores = jnp.einsum("bthk,bshk->bths", q, k) / np.sqrt(2.0)
        if causal:
            seen = (at[:, None] >= columns[None, :])[None, :, None, :]
            scores = jnp.where(seen, scores, -1e30)
        new = lax.stop_gradient(jnp.maximum(top, scores.max(-1)))
        parts = jnp.exp(scores - new[..., None])
        parts = jnp.where(seen, parts, 0.0) if causal else parts
        old = jnp.exp(top - new)
        total = total * old + parts.sum(-1)
        out = out * old[..., None] + jnp.einsum("bths,bshk->bthk", parts, v)
        top = new
        if i < n - 1:
            around = [(j, (j + 1) % n) for j in range(n)]
            k, v = (lax.ppermute(t, "seq", around) for t in (k, v))
    return out / total[..., None]


_CONTEXTS = {"local": _local, "gathered": _gathered, "exchanged": _exchanged, "ring": _ring}


def experts(plan: Plan) -> Layer:
    """Experts cut over ``expert``, to which rows go by an exchange or by gathering, weighted by a router."""
    form = plan.form("experts", *(["exchanged", "gathered"] if plan.has("expert") else ["whole"]))
    over, act = ("expert" if plan.has("expert") else None), plan.one_of(*ACTIVATIONS)
    router = plan.weight("router", WIDTH, 4)
    up, down = plan.weight("up", 4, WIDTH, 4, spec=P(over)), plan.weight("down", 4, 4, WIDTH, spec=P(over))

    def each(p: Any, rows: Any) -> Any:
        """Rows (experts, rows, width) through the experts of a replica."""
        return jnp.einsum("erf,efd->erd", act(jnp.einsum("erd,edf->erf", rows, p[up])), p[down])

    def layer(p: Any, h: Any) -> Any:
        rows = h.reshape(-1, WIDTH)
        gates = jax.nn.softmax(rows @ p[router], -1)
        if form == "gathered":
            rows, gates = (lax.all_gather(t, "expert", tiled=True) for t in (rows, gates))
            local = p[up].shape[0]
            mine = lax.dynamic_slice_in_dim(gates, rank("expert") * local, local, 1)
            made = each(p, jnp.broadcast_to(rows, (local, *rows.shape)))
            out = lax.psum_scatter(jnp.einsum("re,erd->rd", mine, made), "expert", tiled=True)
        else:
            sent = jnp.broadcast_to(rows, (4, *rows.shape))
            if form == "exchanged":
                sent = lax.all_to_all(sent, "expert", 0, 1, tiled=True)
            made = each(p, sent)
            if form == "exchanged":
                made = lax.all_to_all(made, "expert", 1, 0, tiled=True)
            out = jnp.einsum("re,erd->rd", gates, made)
        return h + out.reshape(h.shape)

    return layer


def stages(plan: Plan) -> Layer:
    """Layers cut over ``pipe``: micro batches go from stage to stage."""
    count = 2 * plan.static("pipe")
    w = plan.weight("stages", count, WIDTH, WIDTH, spec=P("pipe"))
    micro, scanned = plan.one_of(1, 2), plan.way != "typed" and plan.chance(0.3)
    around = plan.chance(0.3)
    plan.words.append(f"{micro} micro batches{', scanned' if scanned else ''}")

    def stage(weights: Any, h: Any) -> Any:
        if scanned:
            return lax.scan(lambda h, w: (h + jnp.tanh(h @ w), None), h, weights)[0]
        for i in range(weights.shape[0]):
            h = h + jnp.tanh(h @ weights[i])
        return h

    def layer(p: Any, h: Any) -> Any:
        n, at = size("pipe"), rank("pipe")
        parts = jnp.split(plan.enter(h, "pipe"), micro if h.shape[0] % micro == 0 else 1)
        state, outs = jnp.zeros_like(parts[0]), []
        for tick in range(len(parts) + n - 1):
            state = stage(p[w], jnp.where(at == 0, parts[min(tick, len(parts) - 1)], state))
            if tick >= n - 1:
                outs.append(jnp.where(at == n - 1, state, 0.0))
            neighbours = [(i, (i + 1) % n) for i in range(n if around else n - 1)]
            state = lax.ppermute(state, "pipe", neighbours)
        return plan.total(jnp.concatenate(outs), "pipe")

    return layer
