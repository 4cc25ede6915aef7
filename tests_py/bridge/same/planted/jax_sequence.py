"""Steps whose sequence, vocabulary or image is cut over ranks."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P

from tests_py.bridge.same.planted.cases import Bug, Program, Right
from tests_py.bridge.same.planted.jax_layers import copy_to, nll, norm, sgd, size_of, sum_from
from tests_py.bridge.same.planted.numbers import draw, integers

__all__ = ["STEPS"]


def sequence_parallel(bug: str = "") -> Program:
    """Norms work on a part of the sequence; layers gather it and scatter sums of their outputs (Megatron)."""

    def gather(h: Any) -> Any:
        whole = lax.all_gather(h, "model", axis=1, tiled=True)
        if bug == "parts gathered in another order":
            parts = jnp.split(whole, size_of("model"), 1)[::-1]  # wrong: parts gathered in another order
            whole = jnp.concatenate(parts, 1)  # wrong: parts gathered in another order
        return whole

    def scatter(h: Any) -> Any:
        part = lax.psum_scatter(h, "model", scatter_dimension=1, tiled=True)
        if bug == "mean of parts":
            part = part / size_of("model")  # wrong: mean of parts
        return part

    def layer(p: Any, h: Any) -> Any:
        a = gather(norm(h, p["g"]) + p["b"])
        mixed = jnp.tanh(
            jnp.einsum("btd,df->btf", jnp.cumsum(a, 1), p["up"])
        )  # wrong: parts gathered in another order
        out = mixed @ p["down"]
        if bug == "bias before the scatter":
            return h + scatter(out + p["c"])  # wrong: bias before the scatter
        return h + scatter(out) + p["c"]  # wrong: mean of parts

    def loss_of(p: Any, x: Any, y: Any) -> Any:
        at = lax.axis_index("model") * x.shape[1] if bug != "positions from 0" else 0
        h = x + lax.dynamic_slice_in_dim(p["pos"], at, x.shape[1], 0)  # wrong: positions from 0
        h = layer(p, h)
        return ((h - y) ** 2).sum() / (4 * 4 * x.shape[0])

    def step(p: Any, x: Any, y: Any) -> Any:
        loss, g = jax.value_and_grad(loss_of)(p, x, y)
        for name in ("g", "b", "c", "pos"):
            mean = bug == "mean of the gradients of norms" and name in ("g", "b")
            g[name] = (lax.pmean if mean else lax.psum)(
                g[name], "model"
            )  # wrong: mean of the gradients of norms
        if bug == "gradients of norms summed twice":
            g["g"] = lax.psum(g["g"], "model")  # wrong: gradients of norms summed twice
        g = jax.tree.map(lambda t: lax.pmean(t, "data"), g)
        return sgd(p, g), lax.pmean(lax.psum(loss, "model"), "data")

    p = draw(1, g=(4,), b=(4,), pos=(4, 4), up=(4, 6), down=(6, 4), c=(4,))
    specs = {k: P() for k in p} | {"up": P(None, "model"), "down": P("model")}
    cut = P("data", "model")
    args = (p, *draw(2, x=(2, 4, 4), y=(2, 4, 4)).values())
    return Program(step, args, {"data": 2, "model": 2}, (specs, cut, cut), (specs, P()))


def ring_attention(bug: str = "") -> Program:
    """Keys and values go around the ring of ranks; masks and rotary angles follow from global positions."""

    def rotary(t: Any, first: Any) -> Any:
        angle = ((first + jnp.arange(t.shape[1])) * 0.7)[:, None]  # wrong: rotary angles from 0
        a, b = t[..., :2], t[..., 2:]
        return jnp.concatenate(
            [a * jnp.cos(angle) - b * jnp.sin(angle), a * jnp.sin(angle) + b * jnp.cos(angle)], -1
        )

    def attention(q: Any, k: Any, v: Any) -> Any:
        n, rank, part = size_of("seq"), lax.axis_index("seq"), q.shape[1]
        top, total, out = jnp.full(q.shape[:2], -1e30), jnp.zeros(q.shape[:2]), jnp.zeros_like(v)
        for i in range(n):
            source = (
                rank + i if bug == "source against the ring" else rank - i
            ) % n  # wrong: source against the ring
            if bug == "mask of local positions":
                source = rank  # wrong: mask of local positions
            rows, columns = rank * part + jnp.arange(part), source * part + jnp.arange(part)
            seen = rows[:, None] >= columns[None, :]
            s = jnp.where(
                seen, jnp.einsum("btd,bsd->bts", q, k), -1e30
            )  # wrong: mask of local positions, source against the ring
            new = jnp.maximum(top, s.max(-1))
            e = jnp.where(seen, jnp.exp(s - new[..., None]), 0.0)
            old = 1.0 if bug == "sums not scaled anew" else jnp.exp(top - new)  # wrong: sums not scaled anew
            total = total * old + e.sum(-1)  # wrong: sums not scaled anew
            again = jnp.ones(()) if bug == "outputs not scaled anew" else jnp.exp(top - new)[..., None]
            out, top = out * again + e @ v, new  # wrong: outputs not scaled anew
            if i < n - 1:
                ring = [(j, (j + 1) % n) for j in range(n)]
                values = [(j, (j - 1) % n) for j in range(n)] if bug == "values against the ring" else ring
                k, v = (
                    lax.ppermute(k, "seq", ring),
                    lax.ppermute(v, "seq", values),
                )  # wrong: values against the ring
        return out / total[..., None]

    def loss_of(p: Any, x: Any, y: Any) -> Any:
        first = 0 if bug == "rotary angles from 0" else lax.axis_index("seq") * x.shape[1]
        q, k = (rotary(x @ p[name], first) for name in ("q", "k"))  # wrong: rotary angles from 0
        out = attention(q, k, x @ p["v"])  # wrong: rotary angles from 0
        return ((x + out @ p["o"] - y) ** 2).sum() / (2 * 9 * 4)

    def step(p: Any, x: Any, y: Any) -> Any:
        loss, g = jax.value_and_grad(loss_of)(p, x, y)
        total = lax.pmean if bug == "mean over the ring" else lax.psum
        return sgd(p, jax.tree.map(lambda t: total(t, "seq"), g)), lax.psum(
            loss, "seq"
        )  # wrong: mean over the ring

    p = {k: 2 * t for k, t in draw(3, q=(4, 4), k=(4, 4), v=(4, 4), o=(4, 4)).items()}
    cut = P(None, "seq")
    args = (p, *draw(4, x=(2, 9, 4), y=(2, 9, 4)).values())
    return Program(step, args, {"seq": 3}, (P(), cut, cut), (P(), P()))


def vocabulary(bug: str = "") -> Program:
    """Embedding and logits in parts of the vocabulary; a cross entropy with smoothing and a penalty of its norm."""

    def embed(p: Any, x: Any) -> Any:
        part = p["emb"].shape[0]
        local = x - lax.axis_index("model") * part
        mine = (local >= 0) & (local < part)
        rows = p["emb"][jnp.clip(local, 0, part - 1)]  # wrong: rows of others not masked
        if bug != "rows of others not masked":
            rows = jnp.where(mine[..., None], rows, 0.0)
        return sum_from(rows, "model")  # wrong: rows of others not masked

    def entropy(logits: Any, y: Any) -> Any:
        part = logits.shape[-1]
        top = lax.stop_gradient(logits.max(-1))
        top = top if bug == "local maximum" else lax.pmax(top, "model")
        exps = jnp.exp(logits - top[..., None])  # wrong: local maximum
        if bug == "mean of exponentials":
            total = sum_from(exps.sum(-1), "model") / size_of("model")  # wrong: mean of exponentials
        else:
            total = sum_from(exps.sum(-1), "model")  # wrong: local maximum
        log_total = jnp.log(total) + (
            lax.pmean(top, "model") if bug == "local maximum" else top
        )  # wrong: local maximum
        local = y - lax.axis_index("model") * part
        mine = (local >= 0) & (local < part)
        place = jnp.clip(local, 0, part - 1)[..., None]
        at = jnp.take_along_axis(logits, place, -1)[..., 0]  # wrong: targets of others not masked
        if bug == "targets of others not masked":
            target = sum_from(at, "model")  # wrong: targets of others not masked
        elif bug == "targets from 0":
            at = jnp.take_along_axis(logits, (y % part)[..., None], -1)[..., 0]  # wrong: targets from 0
            target = sum_from(jnp.where(mine, at, at) / size_of("model"), "model")  # wrong: targets from 0
        else:
            target = sum_from(jnp.where(mine, at, 0.0), "model")
        vocab = part if bug == "smoothing by the local vocabulary" else 8
        smooth = sum_from(logits.sum(-1), "model") / vocab  # wrong: smoothing by the local vocabulary
        return (log_total - 0.9 * target - 0.1 * smooth + 0.01 * log_total**2).mean()

    def loss_of(p: Any, x: Any, y: Any) -> Any:
        h = copy_to(jnp.tanh(embed(p, x) @ p["w"]), "model")
        return entropy(h @ p["out"], y)

    def step(p: Any, x: Any, y: Any) -> Any:
        loss, g = jax.value_and_grad(loss_of)(p, x, y)
        return sgd(p, jax.tree.map(lambda t: lax.pmean(t, "data"), g)), lax.pmean(loss, "data")

    specs = {"emb": P("model"), "w": P(), "out": P(None, "model")}
    args = (draw(5, emb=(8, 4), w=(4, 5), out=(5, 8)), integers(6, 8, 4, 3), integers(7, 8, 4, 3))
    return Program(step, args, {"data": 2, "model": 2}, (specs, P("data"), P("data")), (specs, P()))


def tied_vocabulary(bug: str = "") -> Program:
    """One table, cut over the vocabulary, is embedding and output layer."""

    def loss_of(p: Any, x: Any, y: Any) -> Any:
        part = p["table"].shape[0]
        local = x - lax.axis_index("model") * part
        mine = (local >= 0) & (local < part)
        h = sum_from(jnp.where(mine[..., None], p["table"][jnp.clip(local, 0, part - 1)], 0.0), "model")
        scale = np.sqrt(part if bug == "scaled by rows of a rank" else 8)
        h = copy_to(jnp.tanh(h @ p["w"]) / scale, "model")  # wrong: scaled by rows of a rank
        logits = lax.all_gather(
            h @ p["table"].T, "model", axis=2, tiled=True
        )  # wrong: gathered logits count on each rank
        loss = nll(logits, y).mean()
        if bug == "gathered logits count on each rank":
            return loss  # wrong: gathered logits count on each rank
        return loss / size_of("model")

    def step(p: Any, x: Any, y: Any) -> Any:
        loss, g = jax.value_and_grad(loss_of)(p, x, y)  # wrong: gathered logits count on each rank
        loss = loss if bug == "gathered logits count on each rank" else loss * size_of("model")
        if bug == "rows halved":
            g["table"] = g["table"] / size_of("model")  # wrong: rows halved
        return sgd(p, jax.tree.map(lambda t: lax.pmean(t, "data"), g)), lax.pmean(loss, "data")

    specs = {"table": P("model"), "w": P()}
    args = (draw(8, table=(8, 4), w=(4, 4)), integers(9, 8, 4, 3), integers(10, 8, 4, 3))
    return Program(step, args, {"data": 2, "model": 2}, (specs, P("data"), P("data")), (specs, P()))


def halos(bug: str = "") -> Program:
    """A convolution over rows of an image that are cut: ranks take the borders of neighbours, zeros outside."""

    def layer(x: Any, w: Any) -> Any:
        n = size_of("rows")
        down, up = [(i, i + 1) for i in range(n - 1)], [(i + 1, i) for i in range(n - 1)]
        if bug == "borders around the edge":
            down, up = [*down, (n - 1, 0)], [*up, (0, n - 1)]
            if n == 1:
                down, up = [], []
        above = lax.ppermute(x[:, -1:], "rows", down)  # wrong: borders around the edge
        below = lax.ppermute(x[:, :1], "rows", up)  # wrong: borders around the edge
        if bug == "no borders":
            above, below = jnp.zeros_like(above), jnp.zeros_like(below)  # wrong: no borders
        if bug == "borders exchanged":
            above, below = below, above  # wrong: borders exchanged
        wide = jnp.concatenate(
            [above, x, below], 1
        )  # wrong: no borders, borders exchanged, borders around the edge
        return sum(wide[:, i : i + x.shape[1]] @ w[i] for i in range(3))

    def loss_of(p: Any, x: Any, y: Any) -> Any:
        h = layer(jnp.tanh(layer(x, p["w1"])), p["w2"])
        return (
            ((h - y) ** 2).sum() / 2 / (x.shape[1] if bug == "mean of the local rows" else 8)
        )  # wrong: mean of the local rows

    def step(p: Any, x: Any, y: Any) -> Any:
        loss, g = jax.value_and_grad(loss_of)(p, x, y)
        return sgd(p, jax.tree.map(lambda t: lax.psum(t, "rows"), g)), lax.psum(
            loss, "rows"
        )  # wrong: mean of the local rows

    cut = P(None, "rows")
    args = (draw(11, w1=(3, 3, 4), w2=(3, 4, 2)), *draw(12, x=(2, 8, 3), y=(2, 8, 2)).values())
    return Program(step, args, {"rows": 4}, (P(), cut, cut), (P(), P()))


STEPS = (
    Right(
        "sequence parallel",
        sequence_parallel,
        (
            Bug("parts gathered in another order", "sequence-parallel norm", "*"),
            Bug("mean of parts", "mean versus sum", "*"),
            Bug("bias before the scatter", "sums in both passes", "*"),
            Bug("positions from 0", "context mask and positions", "*"),
            Bug("mean of the gradients of norms", "sequence-parallel norm", "p.g p.b"),
            Bug("gradients of norms summed twice", "sequence-parallel norm", "p.g"),
        ),
    ),
    Right(
        "ring attention",
        ring_attention,
        (
            Bug("source against the ring", "context mask and positions", "*"),
            Bug("mask of local positions", "context mask and positions", "*"),
            Bug("sums not scaled anew", "context mask and positions", "*"),
            Bug("outputs not scaled anew", "context mask and positions", "*"),
            Bug("values against the ring", "context mask and positions", "*"),
            Bug("rotary angles from 0", "context mask and positions", "*"),
            Bug("mean over the ring", "mean versus sum", "p.*"),
        ),
    ),
    Right(
        "vocabulary",
        vocabulary,
        (
            Bug("rows of others not masked", "vocabulary-parallel cross entropy", "*"),
            Bug("local maximum", "vocabulary-parallel cross entropy", "*"),
            Bug("mean of exponentials", "vocabulary-parallel cross entropy", "*"),
            Bug("targets of others not masked", "vocabulary-parallel cross entropy", "*"),
            Bug("targets from 0", "vocabulary-parallel cross entropy", "*"),
            Bug("smoothing by the local vocabulary", "vocabulary-parallel cross entropy", "*"),
        ),
    ),
    Right(
        "tied vocabulary",
        tied_vocabulary,
        (
            Bug("scaled by rows of a rank", "tied weights", "*"),
            Bug("gathered logits count on each rank", "tied weights", "p.*"),
            Bug("rows halved", "tied weights", "p.table"),
        ),
    ),
    Right(
        "halos",
        halos,
        (
            Bug("borders around the edge", "neighbours and stages", "*"),
            Bug("no borders", "neighbours and stages", "*"),
            Bug("borders exchanged", "neighbours and stages", "*"),
            Bug("mean of the local rows", "mean versus sum", "*"),
        ),
    ),
)
