"""Weights and states of optimisers that are cut over data-parallel ranks."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

from tests_py.bridge.same.planted.cases import Bug, Program, Right
from tests_py.bridge.same.planted.jax_layers import size_of
from tests_py.bridge.same.planted.numbers import draw

__all__ = ["STEPS"]

CUT, DATA = P("data"), P("data")


def mse(p: Any, x: Any, y: Any) -> Any:
    """Loss of a small network, mean of the rows that it is given."""
    return ((jnp.tanh(x @ p["w1"]) @ p["w2"] - y) ** 2).mean()


def sharded_moments(bug: str = "") -> Program:
    """Adam whose moments are cut (ZeRO 1): gradients are scattered, weights are updated in parts and gathered."""

    def scatter(g: Any) -> Any:
        part = lax.psum_scatter(g, "data", tiled=True)  # wrong: gradients not divided
        if bug == "gradients not divided":
            return part  # wrong: gradients not divided
        return part / size_of("data")

    def part_of(w: Any, rows: int) -> Any:
        rank = lax.axis_index("data")
        if bug == "part of the next rank":
            rank = (rank + 1) % size_of("data")  # wrong: part of the next rank
        return lax.dynamic_slice_in_dim(w, rank * rows, rows, 0)  # wrong: part of the next rank

    def step(p: Any, m: Any, v: Any, x: Any, y: Any) -> Any:
        loss, g = jax.value_and_grad(mse)(p, x, y)
        g = {k: scatter(t) for k, t in g.items()}
        if bug == "clipped by the norm of a part":
            length = jnp.sqrt(sum((t**2).sum() for t in g.values()))  # wrong: clipped by the norm of a part
            g = {k: t / (1 + length) for k, t in g.items()}  # wrong: clipped by the norm of a part
        else:
            length = jnp.sqrt(lax.psum(sum((t**2).sum() for t in g.values()), "data"))
            g = {k: t / (1 + length) for k, t in g.items()}
        m = {k: 0.9 * m[k] + 0.1 * t for k, t in g.items()}
        v = {k: 0.99 * v[k] + 0.01 * t**2 for k, t in g.items()}
        if bug == "second moments summed":
            v = {
                k: lax.psum(0.01 * t**2, "data") + v[k] * 0.99 for k, t in g.items()
            }  # wrong: second moments summed
        new = {}
        for k in p:
            change = m[k] / (jnp.sqrt(v[k]) + 0.1)
            kept = part_of(p[k], change.shape[0])
            decay = 0.1 * (size_of("data") if bug == "decay by ranks" else 1)  # wrong: decay by ranks
            kept = kept - 0.1 * (change + decay * kept)  # wrong: decay by ranks
            new[k] = lax.all_gather(kept, "data", tiled=True)
            if bug == "parts gathered backward":
                parts = lax.all_gather(kept, "data")[::-1]  # wrong: parts gathered backward
                new[k] = parts.reshape(p[k].shape)  # wrong: parts gathered backward
        return new, m, v, lax.pmean(loss, "data")

    shapes: Any = {"w1": (4, 8), "w2": (8, 2)}
    v = {k: t**2 for k, t in draw(3, **shapes).items()}
    args = (draw(1, **shapes), draw(2, **shapes), v, *draw(4, x=(8, 4), y=(8, 2)).values())
    return Program(step, args, {"data": 4}, (P(), CUT, CUT, DATA, DATA), (P(), CUT, CUT, P()))


def trust_ratios(bug: str = "") -> Program:
    """LAMB on parts: the rate of a layer follows from the norms of its whole weights and whole change."""

    def step(p: Any, m: Any, x: Any, y: Any) -> Any:
        loss, g = jax.value_and_grad(mse)(p, x, y)
        new, moments = {}, {}
        for k, t in g.items():
            part = lax.psum_scatter(t, "data", tiled=True) / size_of("data")
            moments[k] = 0.9 * m[k] + 0.1 * part
            kept = lax.dynamic_slice_in_dim(p[k], lax.axis_index("data") * part.shape[0], part.shape[0], 0)
            change = moments[k] + 0.01 * kept

            def length(u: Any, over: Any = lax.psum) -> Any:
                return jnp.sqrt(over((u**2).sum(), "data"))  # wrong: norm of the change as a mean

            if bug == "ratio of a part":
                ratio = jnp.sqrt((kept**2).sum() / (change**2).sum())  # wrong: ratio of a part
            elif bug == "norm of the change as a mean":
                ratio = length(kept) / length(change, lax.pmean)  # wrong: norm of the change as a mean
            elif bug == "norm of whole weights summed":
                ratio = length(p[k]) / length(change)  # wrong: norm of whole weights summed
            else:
                ratio = length(kept) / length(change)
            kept = (
                kept - 0.1 * ratio * change
            )  # wrong: ratio of a part, norm of the change as a mean, norm of whole weights summed
            new[k] = lax.all_gather(kept, "data", tiled=True)
        return new, moments, lax.pmean(loss, "data")

    shapes: Any = {"w1": (4, 8), "w2": (8, 2)}
    args = (draw(5, **shapes), draw(6, **shapes), *draw(7, x=(8, 4), y=(8, 2)).values())
    return Program(step, args, {"data": 2}, (P(), CUT, DATA, DATA), (P(), CUT, P()))


def sharded_weights(bug: str = "") -> Program:
    """Weights that are gathered where they are used (ZeRO 3); a second axis holds copies of the parts."""

    def whole(p: Any) -> Any:
        if bug == "gathered without the sum of gradients":
            return {k: gather_alone(t) for k, t in p.items()}
        return {k: lax.all_gather(t, "shard", tiled=True) for k, t in p.items()}

    @jax.custom_vjp
    def gather_alone(t: Any) -> Any:
        return lax.all_gather(t, "shard", tiled=True)

    def own(rows: Any, g: Any) -> Any:
        return (
            lax.dynamic_slice_in_dim(g, lax.axis_index("shard") * rows, rows, 0),
        )  # wrong: gathered without the sum of gradients

    gather_alone.defvjp(lambda t: (lax.all_gather(t, "shard", tiled=True), t.shape[0]), own)

    def loss_of(p: Any, x: Any, y: Any) -> Any:
        loss = mse(whole(p), x, y)  # wrong: gathered without the sum of gradients
        if bug == "penalty of parts on each rank":
            loss = loss + 0.1 * sum((t**2).sum() for t in p.values())  # wrong: penalty of parts on each rank
        else:
            loss = loss + 0.1 * sum((t**2).sum() for t in whole(p).values())
        return loss

    def step(p: Any, x: Any, y: Any) -> Any:
        loss, g = jax.value_and_grad(loss_of)(p, x, y)
        if bug == "sum over copies":
            g = {k: lax.psum(t, "copy") for k, t in g.items()}  # wrong: sum over copies
        else:
            g = {k: lax.pmean(t, "copy") for k, t in g.items()}
        if bug != "divided by copies":
            g = {k: t / size_of("shard") for k, t in g.items()}
        else:
            g = {k: t / size_of("copy") for k, t in g.items()}  # wrong: divided by copies
        new = {k: t - 0.1 * g[k] for k, t in p.items()}
        if bug == "rotated parts":
            n = size_of("shard")
            new["w2"] = lax.ppermute(
                new["w2"], "shard", [(i, (i + 1) % n) for i in range(n)]
            )  # wrong: rotated parts
        return new, lax.pmean(loss, ("copy", "shard"))

    p = draw(8, w1=(4, 8), w2=(8, 2))
    cut, rows = P("shard"), P(("copy", "shard"))
    args = (p, *draw(9, x=(8, 4), y=(8, 2)).values())
    return Program(step, args, {"copy": 2, "shard": 4}, (cut, rows, rows), (cut, P()))


def factored_moments(bug: str = "") -> Program:
    """Adafactor on columns of a rank: a row's mean square is one over all columns, a column's is local."""

    def step(p: Any, r: Any, c: Any, x: Any, y: Any) -> Any:
        def loss_of(w: Any) -> Any:
            out = jnp.tanh(x @ w)
            return ((out - y) ** 2).sum(1).mean()

        loss, g = jax.value_and_grad(loss_of)(p)
        square = g**2 + 1e-3
        rows = square.mean(1)
        if bug != "rows of local columns":
            rows = lax.pmean(rows, "model")
        if bug == "columns averaged":
            c = 0.5 * c + 0.5 * lax.pmean(square.mean(0), "model")  # wrong: columns averaged
        else:
            c = 0.5 * c + 0.5 * square.mean(0)
        if bug == "rows of local columns":
            used = 0.5 * r + 0.5 * rows  # wrong: rows of local columns
            r = 0.5 * r + 0.5 * lax.pmean(rows, "model")
        else:
            used = r = 0.5 * r + 0.5 * rows
        over = (lambda t: t) if bug == "mean of a rank's factor" else (lambda t: lax.pmean(t, "model"))
        middle = over(c.mean())
        change = g / jnp.sqrt(
            used[:, None] * c[None, :] / middle
        )  # wrong: mean of a rank's factor, rows of local columns
        size = change.size if bug == "size of a part" else 32  # wrong: size of a part
        spread = jnp.sqrt(lax.psum((change**2).sum(), "model") / size)  # wrong: size of a part
        p = p - 0.1 * change / (1 + spread)  # wrong: size of a part
        return p, r, c, lax.psum(loss, "model")

    rows = abs(draw(12, r=(4,))["r"])
    columns = abs(draw(13, c=(8,))["c"])
    arrays = draw(14, x=(6, 4), y=(6, 8))
    cut = P(None, "model")
    specs = (cut, P(), P("model"))
    args = (draw(11, p=(4, 8))["p"], rows, columns, arrays["x"], arrays["y"])
    return Program(step, args, {"model": 2}, (*specs, P(), cut), (*specs, P()))


STEPS = (
    Right(
        "sharded moments",
        sharded_moments,
        (
            Bug("gradients not divided", "sharded optimiser", "p.* m.* v.*"),
            Bug("part of the next rank", "sharded optimiser", "p.*"),
            Bug("clipped by the norm of a part", "clipping norm", "p.* m.* v.*"),
            Bug("second moments summed", "sharded optimiser", "p.* v.*"),
            Bug("decay by ranks", "weight decay on shards", "p.*"),
            Bug("parts gathered backward", "sharded optimiser", "p.*"),
        ),
    ),
    Right(
        "trust ratios",
        trust_ratios,
        (
            Bug("ratio of a part", "sharded optimiser", "p.*"),
            Bug("norm of the change as a mean", "sharded optimiser", "p.*"),
            Bug("norm of whole weights summed", "sharded optimiser", "p.*"),
        ),
    ),
    Right(
        "sharded weights",
        sharded_weights,
        (
            Bug("gathered without the sum of gradients", "sharded optimiser", "p.*"),
            Bug("penalty of parts on each rank", "weight decay on shards", "*"),
            Bug("sum over copies", "sharded optimiser", "p.*"),
            Bug("divided by copies", "sharded optimiser", "p.*"),
            Bug("rotated parts", "sharded optimiser", "p.w2"),
        ),
    ),
    Right(
        "factored moments",
        factored_moments,
        (
            Bug("rows of local columns", "sharded optimiser", "p"),
            Bug("columns averaged", "sharded optimiser", "p c"),
            Bug("mean of a rank's factor", "sharded optimiser", "p"),
            Bug("size of a part", "sharded optimiser", "p"),
        ),
    ),
)
