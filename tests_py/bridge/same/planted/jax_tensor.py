"""Tensor-parallel steps: heads, sums of both passes, norms of gradients, decay, adapters, checkpoints."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P

from tests_py.bridge.same.planted.cases import Bug, Program, Right
from tests_py.bridge.same.planted.jax_layers import attend, copy_to, heads, nll, norm, sgd, size_of, sum_from
from tests_py.bridge.same.planted.numbers import draw, integers

__all__ = ["STEPS"]

GRID = {"data": 2, "model": 2}


def block(bug: str = "") -> Program:
    """A transformer block with heads and columns over ``model``, slopes of ALiBi, a bias after the sum."""

    def output(x: Any, b: Any) -> Any:
        if bug == "bias of each rank":
            return sum_from(x + b, "model")  # wrong: bias of each rank
        if bug == "mean for a sum":
            return lax.pmean(x, "model") + b  # wrong: mean for a sum
        total = (
            lax.psum(x, "model") if bug == "sum in both passes" else sum_from(x, "model")
        )  # wrong: sum in both passes
        return total + b

    def attention(p: Any, h: Any) -> Any:
        a = copy_to(norm(h, p["g1"]), "model")
        local = p["q"].shape[0]
        first = 0 if bug == "slopes of local heads" else lax.axis_index("model") * local
        slopes = 2.0 ** -(1 + first + jnp.arange(local))  # wrong: slopes of local heads
        far = (jnp.arange(3)[None, :] - jnp.arange(3)[:, None])[None, None] * slopes[None, :, None, None]
        count = local if bug == "scaled by local heads" else 4
        scale = 1 / np.sqrt(8 / count)  # wrong: scaled by local heads
        q, k, v = (heads(a, p[name]) for name in "qkv")
        out = attend(q, k, v, scale, far)  # wrong: scaled by local heads, slopes of local heads
        return output(jnp.einsum("bhtk,hkd->btd", out, p["o"]), p["c"])

    def loss_of(p: Any, x: Any, y: Any) -> Any:
        h = p["emb"][x]
        h = h + attention(p, h)
        a = copy_to(norm(h, p["g2"]), "model")
        h = h + output(jax.nn.gelu(a @ p["up"]) @ p["down"], p["b"])
        return nll(h @ p["emb"].T, y).mean()

    def step(p: Any, x: Any, y: Any) -> Any:
        loss, g = jax.value_and_grad(loss_of)(p, x, y)
        g = jax.tree.map(lambda t: lax.pmean(t, "data"), g)
        if bug == "norms summed over model":
            g = {
                k: lax.psum(t, "model") if k in ("g1", "g2") else t for k, t in g.items()
            }  # wrong: norms summed over model
        return sgd(p, g), lax.pmean(loss, "data")

    shapes: Any = {"emb": (6, 8), "g1": (8,), "g2": (8,), "q": (4, 8, 2), "k": (4, 8, 2), "v": (4, 8, 2)}
    p = draw(21, **shapes, o=(4, 2, 8), c=(8,), up=(8, 12), down=(12, 8), b=(8,))
    specs = (
        {k: P() for k in p} | {k: P("model") for k in ("q", "k", "v", "o", "down")} | {"up": P(None, "model")}
    )
    args = (p, integers(2, 6, 4, 3), integers(3, 6, 4, 3))
    return Program(step, args, GRID, (specs, P("data"), P("data")), (specs, P()))


def grouped_heads(bug: str = "") -> Program:
    """Eight heads of queries on (kv, rep), two heads of keys and values on kv, whose gradients are summed over rep."""

    def loss_of(p: Any, x: Any, y: Any) -> Any:
        h = p["emb"][x]
        a = copy_to(h, ("kv", "rep"))
        q, k, v = heads(a, p["q"]), heads(a, p["k"]), heads(a, p["v"])
        groups = q.shape[1] // k.shape[1]
        spread = jnp.tile if bug == "heads tiled" else (lambda t, n: jnp.repeat(t, n[1], axis=1))
        k, v = (spread(t, (1, groups, 1, 1)) for t in (k, v))  # wrong: heads tiled
        out = attend(q, k, v, 1 / np.sqrt(2))  # wrong: heads tiled
        if bug == "mean of the heads":
            out = out / (8 // q.shape[1])  # wrong: mean of the heads
        return nll(
            (h + sum_from(jnp.einsum("bhtk,hkd->btd", out, p["o"]), ("kv", "rep"))) @ p["emb"].T, y
        ).mean()

    def step(p: Any, x: Any, y: Any) -> Any:
        loss, g = jax.value_and_grad(loss_of)(p, x, y)
        total = lax.pmean if bug == "mean over replicated heads" else lax.psum
        for name in ("k", "v"):
            g[name] = total(g[name], "rep")  # wrong: mean over replicated heads
        if bug == "heads summed over all":
            g["k"] = lax.psum(g["k"], "kv")  # wrong: heads summed over all
        return sgd(p, g), loss

    p = draw(4, emb=(6, 4), q=(8, 4, 2), k=(2, 4, 2), v=(2, 4, 2), o=(8, 2, 4))
    q, kv = P(("kv", "rep")), P("kv")
    specs = {"emb": P(), "q": q, "k": kv, "v": kv, "o": q}
    args = (p, integers(5, 6, 4, 3), integers(6, 6, 4, 3))
    return Program(step, args, {"kv": 2, "rep": 2}, (specs, P(), P()), (specs, P()))


def clipping(bug: str = "") -> Program:
    """Gradients are clipped by their norm: sharded ones are summed over ``model``, replicated ones count once."""

    def loss_of(p: Any, x: Any, y: Any) -> Any:
        h = jnp.tanh(copy_to(x @ p["w0"], "model") @ p["up"] + p["b"])
        return ((sum_from(h @ p["down"], "model") + p["c"] - y) ** 2).mean()

    def squares(g: Any) -> Any:
        each = {k: (t**2).sum() for k, t in g.items()}  # wrong: norm of the local batch
        sharded, whole = each["up"] + each["b"] + each["down"], each["w0"] + each["c"]
        if bug == "replicated weights on each rank":
            return lax.psum(sharded + whole, "model")  # wrong: replicated weights on each rank
        if bug == "mean of shards":
            return lax.pmean(sharded + whole, "model")  # wrong: mean of shards
        if bug == "largest shard":
            return lax.pmax(sharded, "model") + whole  # wrong: largest shard
        if bug == "over data too":
            return lax.psum(sharded, ("data", "model")) + whole  # wrong: over data too
        if bug == "sum of norms":
            return lax.psum(jnp.sqrt(sharded), "model") ** 2 + whole  # wrong: sum of norms
        return lax.psum(sharded, "model") + whole

    def step(p: Any, x: Any, y: Any) -> Any:
        loss, g = jax.value_and_grad(loss_of)(p, x, y)
        if bug == "norm of the local batch":
            length = jnp.sqrt(lax.pmean(squares(g), "data"))  # wrong: norm of the local batch
            g = jax.tree.map(lambda t: lax.pmean(t, "data"), g)
        else:
            g = jax.tree.map(lambda t: lax.pmean(t, "data"), g)
            length = jnp.sqrt(squares(g))
        g = jax.tree.map(lambda t: t * (0.3 / (length + 1e-6)), g)
        return sgd(p, g), lax.pmean(loss, "data"), length

    p = draw(7, w0=(4, 6), up=(6, 8), b=(8,), down=(8, 2), c=(2,))
    specs = {"w0": P(), "up": P(None, "model"), "b": P("model"), "down": P("model"), "c": P()}
    args = (p, *draw(8, x=(4, 4), y=(4, 2)).values())

    def with_loss(p: Any, x: Any, y: Any) -> Any:
        p, loss, length = step(p, x, y)
        return p, loss * length

    return Program(with_loss, args, GRID, (specs, P("data"), P("data")), (specs, P()))


def penalties(bug: str = "") -> Program:
    """Penalties on weights in the loss, and rates by the norms of whole weights (LARS)."""

    def penalty(p: Any) -> Any:
        sharded, whole = (p["up"] ** 2).sum() + (p["down"] ** 2).sum(), (p["w0"] ** 2).sum()
        if bug == "penalty of replicated weights on each rank":
            return sum_from(sharded + whole, "model")  # wrong: penalty of replicated weights on each rank
        if bug == "penalty summed in both passes":
            return lax.psum(sharded, "model") + whole  # wrong: penalty summed in both passes
        if bug == "penalty as a mean of shards":
            mean = sum_from(sharded, "model") / size_of("model")  # wrong: penalty as a mean of shards
            return mean + whole
        return sum_from(sharded, "model") + whole

    def loss_of(p: Any, x: Any, y: Any) -> Any:
        h = jnp.tanh(copy_to(x @ p["w0"], "model") @ p["up"])
        return ((sum_from(h @ p["down"], "model") - y) ** 2).mean() + 0.05 * penalty(p)

    def step(p: Any, x: Any, y: Any) -> Any:
        loss, g = jax.value_and_grad(loss_of)(p, x, y)
        g = jax.tree.map(lambda t: lax.pmean(t, "data"), g)

        def length(name: str, t: Any) -> Any:
            square = (t**2).sum()
            whole = (
                bug != "rate by the norm on each rank"
                if name == "w0"
                else bug == "rate by the norm of a shard"
            )
            square = square if whole else lax.psum(square, "model")
            return jnp.sqrt(square)  # wrong: rate by the norm of a shard, rate by the norm on each rank

        new = {k: p[k] - 0.1 * (length(k, p[k]) + 1) / (length(k, t) + 0.1) * t for k, t in g.items()}
        if bug == "decay by ranks":
            new["up"] = new["up"] - 0.01 * (size_of("model") - 1) * p["up"]  # wrong: decay by ranks
        return new, lax.pmean(loss, "data")

    p = draw(9, w0=(4, 6), up=(6, 8), down=(8, 2))
    specs = {"w0": P(), "up": P(None, "model"), "down": P("model")}
    args = (p, *draw(10, x=(4, 4), y=(4, 2)).values())
    return Program(step, args, GRID, (specs, P("data"), P("data")), (specs, P()))


def adapters(bug: str = "") -> Program:
    """LoRA on a frozen row-parallel weight: its first factor is cut as the weight, its second is whole."""

    def loss_of(t: Any, fixed: Any, x: Any, y: Any) -> Any:
        h = jnp.tanh(copy_to(x, "model") @ fixed["up"])
        low = h @ t["a"]
        rank = t["a"].shape[0] // 4 if bug == "scaled by the local width" else 2
        scale = 8.0 / rank  # wrong: scaled by the local width
        if bug == "adapter summed twice":
            low = sum_from(low, "model")  # wrong: adapter summed twice
            out = sum_from(h @ fixed["down"] + scale * low @ t["b"], "model")  # wrong: adapter summed twice
        elif bug == "adapter as a mean":
            low = lax.pmean(low, "model")  # wrong: adapter as a mean
            out = sum_from(h @ fixed["down"], "model") + scale * low @ t["b"]  # wrong: adapter as a mean
        else:
            low = sum_from(low, "model")
            out = (
                sum_from(h @ fixed["down"], "model") + scale * low @ t["b"]
            )  # wrong: scaled by the local width
        return ((out - y) ** 2).mean()

    def step(t: Any, fixed: Any, x: Any, y: Any) -> Any:
        loss, g = jax.value_and_grad(loss_of)(t, fixed, x, y)
        return sgd(t, jax.tree.map(lambda t: lax.pmean(t, "data"), g)), fixed, lax.pmean(loss, "data")

    fixed = {"up": P(None, "model"), "down": P("model")}
    own = {"a": P("model"), "b": P()}
    args = (
        draw(11, a=(8, 2), b=(2, 3)),
        draw(12, up=(4, 8), down=(8, 3)),
        *draw(13, x=(4, 4), y=(4, 3)).values(),
    )
    return Program(step, args, GRID, (own, fixed, P("data"), P("data")), (own, fixed, P()))


def hidden_shards(bug: str = "") -> Program:
    """Normalisation over a hidden axis that is cut: the mean of squares is one of all shards."""

    def rms(x: Any, g: Any) -> Any:
        square = (x**2).sum(-1, keepdims=True)
        if bug == "mean of the local width":
            mean = square / x.shape[-1]  # wrong: mean of the local width
        elif bug == "sum by the local width":
            mean = lax.psum(square, "model") / x.shape[-1]  # wrong: sum by the local width
        elif bug == "backward without a sum":
            mean = sum_from(square, "model") / 8  # wrong: backward without a sum
        else:
            mean = lax.psum(square, "model") / 8
        return x / jnp.sqrt(mean + 1e-5) * g  # wrong: mean of the local width, sum by the local width

    def loss_of(p: Any, x: Any, y: Any) -> Any:
        h = rms(copy_to(x, "model") @ p["up"], p["g"])
        return ((sum_from(jnp.tanh(h) @ p["down"], "model") - y) ** 2).mean()

    def step(p: Any, x: Any, y: Any) -> Any:
        loss, g = jax.value_and_grad(loss_of)(p, x, y)
        return sgd(p, jax.tree.map(lambda t: lax.pmean(t, "data"), g)), lax.pmean(loss, "data")

    p = draw(14, up=(4, 8), g=(8,), down=(8, 3))
    specs = {"up": P(None, "model"), "g": P("model"), "down": P("model")}
    args = (p, *draw(15, x=(4, 4), y=(4, 3)).values())
    return Program(step, args, GRID, (specs, P("data"), P("data")), (specs, P()))


def checkpointed(bug: str = "") -> Program:
    """Layers in a scan that are computed again in the backward pass; the copy of the input is inside of them."""

    def layer(h: Any, w: Any) -> Any:
        a = copy_to(norm(h, w["g"]), "model")
        part = jnp.tanh(a @ w["up"]) @ w["down"]
        if bug == "sum in both passes of a checkpoint":
            return h + lax.psum(part, "model"), None  # wrong: sum in both passes of a checkpoint
        return h + sum_from(part, "model"), None

    def gather_checkpoint(h: Any, w: Any) -> Any:
        @jax.custom_vjp
        def run(h: Any, w: Any) -> Any:
            return layer(h, w)[0]

        def backward(kept: Any, g: Any) -> Any:
            _, back = jax.vjp(lambda h, w: layer(h, w)[0], *kept)
            dh, dw = back(g)
            return dh, {**dw, "g": lax.psum(dw["g"], "model")}  # wrong: sums again in the backward pass

        run.defvjp(lambda h, w: (run(h, w), (h, w)), backward)
        return run(h, w), None

    def loss_of(p: Any, x: Any, y: Any) -> Any:
        run = gather_checkpoint if bug == "sums again in the backward pass" else jax.checkpoint(layer)
        h, _ = lax.scan(run, x @ p["w0"], p["layers"])
        depth = 3 * size_of("model") if bug == "scaled by layers on all ranks" else 3
        return ((h / depth - y) ** 2).mean()  # wrong: scaled by layers on all ranks

    def step(p: Any, x: Any, y: Any) -> Any:
        loss, g = jax.value_and_grad(loss_of)(p, x, y)
        return sgd(p, jax.tree.map(lambda t: lax.pmean(t, "data"), g)), lax.pmean(loss, "data")

    layers = draw(16, g=(3, 4), up=(3, 4, 6), down=(3, 6, 4))
    specs = {"w0": P(), "layers": {"g": P(), "up": P(None, None, "model"), "down": P(None, "model")}}
    args = ({"w0": draw(17, w=(3, 4))["w"], "layers": layers}, *draw(18, x=(4, 3), y=(4, 4)).values())
    return Program(step, args, GRID, (specs, P("data"), P("data")), (specs, P()))


STEPS = (
    Right(
        "transformer block",
        block,
        (
            Bug("bias of each rank", "sums in both passes", "*"),
            Bug("mean for a sum", "mean versus sum", "*"),
            Bug("sum in both passes", "sums in both passes", "p.emb p.g? p.[qkv] p.[oc] p.up p.down"),
            Bug("scaled by local heads", "local number of heads", "*"),
            Bug("slopes of local heads", "local number of heads", "*"),
            Bug("norms summed over model", "sums in both passes", "p.g?"),
        ),
    ),
    Right(
        "grouped-query heads",
        grouped_heads,
        (
            Bug("heads tiled", "grouped-query heads", "*"),
            Bug("mean of the heads", "grouped-query heads", "*"),
            Bug("mean over replicated heads", "grouped-query heads", "p.k p.v"),
            Bug("heads summed over all", "grouped-query heads", "p.k"),
        ),
    ),
    Right(
        "clipping",
        clipping,
        (
            Bug("replicated weights on each rank", "clipping norm", "*"),
            Bug("mean of shards", "clipping norm", "*"),
            Bug("largest shard", "clipping norm", "*"),
            Bug("over data too", "clipping norm", "*"),
            Bug("sum of norms", "clipping norm", "*"),
            Bug("norm of the local batch", "clipping norm", "*"),
        ),
    ),
    Right(
        "penalties",
        penalties,
        (
            Bug("penalty of replicated weights on each rank", "weight decay on shards", "loss"),
            Bug("penalty summed in both passes", "weight decay on shards", "p.up p.down"),
            Bug("penalty as a mean of shards", "weight decay on shards", "p.up p.down loss"),
            Bug("rate by the norm of a shard", "weight decay on shards", "p.up p.down"),
            Bug("rate by the norm on each rank", "weight decay on shards", "p.w0"),
            Bug("decay by ranks", "weight decay on shards", "p.up"),
        ),
    ),
    Right(
        "adapters",
        adapters,
        (
            Bug("scaled by the local width", "frozen and unused weights", "t.* loss"),
            Bug("adapter summed twice", "frozen and unused weights", "t.* loss"),
            Bug("adapter as a mean", "frozen and unused weights", "t.* loss"),
        ),
    ),
    Right(
        "hidden axis in shards",
        hidden_shards,
        (
            Bug("mean of the local width", "sequence-parallel norm", "*"),
            Bug("sum by the local width", "sequence-parallel norm", "*"),
            Bug("backward without a sum", "sums in both passes", "p.up"),
        ),
    ),
    Right(
        "checkpointed layers",
        checkpointed,
        (
            Bug("sum in both passes of a checkpoint", "checkpointed layers", "p.*"),
            Bug("sums again in the backward pass", "checkpointed layers", "p.layers.g"),
            Bug("scaled by layers on all ranks", "checkpointed layers", "*"),
        ),
    ),
)
