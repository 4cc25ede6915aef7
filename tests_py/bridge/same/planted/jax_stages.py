"""Pipelines whose stages pass activations on, and experts on other ranks."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P

from tests_py.bridge.same.planted.cases import Bug, Program, Right
from tests_py.bridge.same.planted.jax_layers import nll, sgd, size_of
from tests_py.bridge.same.planted.numbers import draw, integers

__all__ = ["STEPS"]


def pipeline(bug: str = "") -> Program:
    """Micro batches go through stages of layers (GPipe); embedding and output layer are one table on all stages."""

    def stage(p: Any, h: Any) -> Any:
        n, local = size_of("pipe"), p["w"].shape[0]
        first = 0 if bug == "layers counted from 0" else lax.axis_index("pipe") * local
        for i in range(local):
            depth = local if bug == "depth of a stage" else local * n
            scale = 1.0 / (1 + first + i) + 1.0 / depth  # wrong: layers counted from 0, depth of a stage
            h = h + scale * jnp.tanh(h @ p["w"][i])  # wrong: layers counted from 0, depth of a stage
        return h

    def loss_of(p: Any, x: Any, y: Any) -> Any:
        n, rank = size_of("pipe"), lax.axis_index("pipe")
        last = n - 1
        shift = [(i, i + 1) for i in range(n - 1)]
        if bug == "stages backward":
            shift, last = [(i + 1, i) for i in range(n - 1)], 0
        begin = n - 1 - last
        h, total = jnp.zeros((*x.shape[1:], 4)), jnp.zeros(())
        for tick in range(len(x) + n - 1):
            fed = p["table"][x[min(tick, len(x) - 1)]]
            h = stage(p, jnp.where(rank == begin, fed, h))  # wrong: stages backward
            done = tick - (n - 1)
            if done >= 0:
                late = bug == "labels one late" and n > 1
                label = y[(done + 1) % len(y)] if late else y[done]  # wrong: labels one late
                table = (
                    lax.stop_gradient(p["table"])
                    if bug == "table of the last stage fixed" and n > 1
                    else p["table"]
                )
                each = nll(h @ table.T, label).mean()  # wrong: labels one late, table of the last stage fixed
                total = total + jnp.where(rank == last, each, 0.0)
            if n > 1:
                h = lax.ppermute(h, "pipe", shift)  # wrong: stages backward
        if bug == "loss by stages":
            total = total / n  # wrong: loss by stages
        return total / len(x)

    def step(p: Any, x: Any, y: Any) -> Any:
        loss, g = jax.value_and_grad(loss_of)(p, x, y)
        tied = lax.pmean if bug == "tied weights as a mean" else lax.psum
        g["table"] = tied(g["table"], "pipe")  # wrong: tied weights as a mean
        if bug == "tied weights of the first stage":
            g["table"] = lax.all_gather(jax.grad(loss_of)(p, x, y)["table"], "pipe")[
                0
            ]  # wrong: tied weights of the first stage
        if bug == "tied weights summed twice":
            g["table"] = lax.psum(g["table"], "pipe")  # wrong: tied weights summed twice
        return sgd(p, g), lax.psum(loss, "pipe")

    specs = {"table": P(), "w": P("pipe")}
    args = (draw(1, table=(6, 4), w=(4, 4, 4)), integers(2, 6, 3, 2, 2), integers(3, 6, 3, 2, 2))
    return Program(step, args, {"pipe": 2}, (specs, P(), P()), (specs, P()))


def experts(bug: str = "") -> Program:
    """Rows go to experts on other ranks by `all_to_all` and come back; gates weigh them, an auxiliary loss balances."""

    def dispatch(p: Any, x: Any) -> Any:
        """Each expert's output of each row, (expert, row, width); experts are cut over ranks."""
        n, local = size_of("expert"), p["up"].shape[0]
        sent = jnp.broadcast_to(x, (n, *x.shape))
        got = lax.all_to_all(sent, "expert", 0, 0)
        if bug == "ranks against experts":
            got = got[::-1]  # wrong: ranks against experts
        rows = got.reshape(-1, x.shape[-1])
        out = jnp.einsum("erh,ehd->erd", jnp.tanh(jnp.einsum("rd,edh->erh", rows, p["up"])), p["down"])
        back = out.reshape(local, n, *x.shape).transpose(1, 0, 2, 3)  # wrong: ranks against experts
        return lax.all_to_all(back, "expert", 0, 0).reshape(n * local, *x.shape)

    def balance(p: Any, gates: Any, kept: Any) -> Any:
        """Sum over experts of the share of rows that choose it times its mean gate."""
        count = p["up"].shape[0] if bug == "number of local experts" else 4
        share, mean = kept.mean(0), gates.mean(0)
        if bug == "auxiliary loss of local shares":
            return count * (share * mean).sum()  # wrong: auxiliary loss of local shares
        share = lax.pmean(share, "expert")
        if bug == "shares without gradients of others":
            mean = mean + lax.stop_gradient(lax.pmean(mean, "expert") - mean)
            return (
                count * (share * mean).sum() * size_of("expert")
            )  # wrong: shares without gradients of others
        return count * (share * lax.pmean(mean, "expert")).sum()  # wrong: number of local experts

    def loss_of(p: Any, x: Any, y: Any, chosen: Any) -> Any:
        gates = jax.nn.softmax(x @ p["router"])
        kept = jax.nn.one_hot(chosen, 4, dtype=x.dtype)
        weights = gates * kept
        if bug == "gates by experts of a rank":
            weights = weights * size_of("expert")  # wrong: gates by experts of a rank
        mixed = jnp.einsum("re,erd->rd", weights, dispatch(p, x))  # wrong: gates by experts of a rank
        loss = ((x + mixed - y) ** 2).mean()
        z = (jax.nn.logsumexp(x @ p["router"], -1) ** 2).mean()
        if bug == "router loss on each rank":
            z = lax.psum(z, "expert")  # wrong: router loss on each rank
        return loss + 0.3 * balance(p, gates, kept) + 0.1 * z

    def step(p: Any, x: Any, y: Any, chosen: Any) -> Any:
        loss, g = jax.value_and_grad(loss_of)(p, x, y, chosen)
        n = size_of("expert")
        total = lax.psum if bug == "sum of router gradients" else lax.pmean
        g["router"] = total(g["router"], "expert")  # wrong: sum of router gradients
        for name in ("up", "down"):
            g[name] = g[name] / (1 if bug == "experts not divided" else n)  # wrong: experts not divided
        if bug == "experts averaged":
            g["up"] = lax.pmean(g["up"], "expert")  # wrong: experts averaged
        return sgd(p, g), lax.pmean(loss, "expert")

    specs = {"router": P(), "up": P("expert"), "down": P("expert")}
    p = draw(4, router=(4, 4), up=(4, 4, 6), down=(4, 6, 4))
    chosen = np.array([0, 0, 1, 0, 2, 3, 1, 0], np.int32)
    args = (p, *draw(5, x=(8, 4), y=(8, 4)).values(), chosen)
    cut = P("expert")
    return Program(step, args, {"expert": 2}, (specs, cut, cut, cut), (specs, P()))


def capacity(bug: str = "") -> Program:
    """Experts of which a rank holds one and takes so many rows: places follow from a running count over all ranks."""

    def loss_of(p: Any, x: Any, y: Any, chosen: Any) -> Any:
        rank, n = lax.axis_index("expert"), size_of("expert")
        whole, picks = lax.all_gather(x, "expert", tiled=True), lax.all_gather(chosen, "expert", tiled=True)
        hot = jax.nn.one_hot(picks, 4, dtype=jnp.int32)
        place = jnp.cumsum(hot, 0) * hot
        if bug == "places counted on each rank":
            own = jax.nn.one_hot(
                picks.reshape(n, -1), 4, dtype=jnp.int32
            )  # wrong: places counted on each rank
            place = (jnp.cumsum(own, 1) * own).reshape(place.shape)  # wrong: places counted on each rank
        room = 1 if bug == "capacity of local rows" and n > 1 else 2  # wrong: capacity of local rows
        kept = (place > 0) & (place <= room)  # wrong: places counted on each rank, capacity of local rows
        local = p["up"].shape[0]
        mine = lax.dynamic_slice_in_dim(kept.astype(x.dtype), rank * local, local, 1)
        if bug == "experts from 0":
            mine = kept.astype(x.dtype)[:, :local]  # wrong: experts from 0
        out = jnp.einsum("re,erd->rd", mine, jnp.tanh(jnp.einsum("rd,edh->erh", whole, p["up"])) @ p["down"])
        out = lax.psum_scatter(out, "expert", tiled=True)
        kept_here = lax.psum_scatter(mine.sum(1), "expert", tiled=True)[:, None]
        if bug == "kept rows as a mean":
            kept_here = kept_here / n  # wrong: kept rows as a mean
        return ((x * (1 - kept_here) + out - y) ** 2).mean()  # wrong: kept rows as a mean, experts from 0

    def step(p: Any, x: Any, y: Any, chosen: Any) -> Any:
        loss, g = jax.value_and_grad(loss_of)(p, x, y, chosen)
        return sgd(p, jax.tree.map(lambda t: t / size_of("expert"), g)), lax.pmean(loss, "expert")

    specs = {"up": P("expert"), "down": P("expert")}
    chosen = np.array([0, 0, 1, 0, 2, 3, 1, 1], np.int32)
    args = (draw(6, up=(4, 4, 6), down=(4, 6, 4)), *draw(7, x=(8, 4), y=(8, 4)).values(), chosen)
    cut = P("expert")
    return Program(step, args, {"expert": 4}, (specs, cut, cut, cut), (specs, P()))


def experts_by_data(bug: str = "") -> Program:
    """Experts on one axis, copies of them on the other: gradients of experts are means over copies alone."""

    def loss_of(p: Any, x: Any, y: Any) -> Any:
        rows = lax.all_gather(x, "expert", tiled=True)
        gates = jax.nn.softmax(rows @ p["router"])
        local = p["w"].shape[0]
        mine = lax.dynamic_slice_in_dim(gates, lax.axis_index("expert") * local, local, 1)
        out = jnp.einsum("re,erd->rd", mine, jnp.tanh(jnp.einsum("rd,edf->erf", rows, p["w"])))
        out = lax.psum_scatter(out, "expert", tiled=True)
        return ((x + out - y) ** 2).mean()

    def step(p: Any, x: Any, y: Any) -> Any:
        loss, g = jax.value_and_grad(loss_of)(p, x, y)
        over = ("copy", "expert") if bug == "experts over all ranks" else "copy"
        g["w"] = lax.pmean(g["w"], over) / (
            1 if bug == "experts over all ranks" else size_of("expert")
        )  # wrong: experts over all ranks
        router = lax.pmean(g["router"], ("copy", "expert"))
        if bug == "router over copies":
            router = lax.psum(lax.pmean(g["router"], "copy"), "expert")  # wrong: router over copies
        return sgd(p, {"w": g["w"], "router": router}), lax.pmean(loss, ("copy", "expert"))

    specs = {"router": P(), "w": P("expert")}
    cut = P(("copy", "expert"))
    args = (draw(23, router=(3, 4), w=(4, 3, 3)), *draw(24, x=(8, 3), y=(8, 3)).values())
    return Program(step, args, {"copy": 2, "expert": 2}, (specs, cut, cut), (specs, P()))


def pipeline_by_data(bug: str = "") -> Program:
    """Two stages, each on two data-parallel ranks."""

    def loss_of(p: Any, x: Any, y: Any) -> Any:
        n, rank = size_of("pipe"), lax.axis_index("pipe")
        h, total = jnp.zeros(x.shape[1:]), jnp.zeros(())
        for tick in range(len(x) + n - 1):
            h = jnp.where(rank == 0, x[min(tick, len(x) - 1)], h)
            for i in range(p["w"].shape[0]):
                h = h + jnp.tanh(h @ p["w"][i])
            if tick >= n - 1:
                total = total + jnp.where(rank == n - 1, ((h - y[tick - n + 1]) ** 2).mean(), 0.0)
            h = lax.ppermute(h, "pipe", [(i, i + 1) for i in range(n - 1)]) if n > 1 else h
        return total / len(x)

    def step(p: Any, x: Any, y: Any) -> Any:
        loss, g = jax.value_and_grad(loss_of)(p, x, y)
        total = lax.psum if bug == "sum over data" else lax.pmean
        g = jax.tree.map(lambda t: total(t, "data"), g)  # wrong: sum over data
        everywhere = (
            lax.pmean(loss, ("data", "pipe")) if bug == "loss as a mean of stages" else None
        )  # wrong: loss as a mean of stages
        loss = (
            lax.pmean(lax.psum(loss, "pipe"), "data") if everywhere is None else everywhere
        )  # wrong: loss as a mean of stages
        return sgd(p, g), loss

    cut = P(None, "data")
    args = (draw(25, w=(4, 3, 3)), *draw(26, x=(2, 4, 3), y=(2, 4, 3)).values())
    return Program(step, args, {"data": 2, "pipe": 2}, ({"w": P("pipe")}, cut, cut), ({"w": P("pipe")}, P()))


STEPS = (
    Right(
        "pipeline",
        pipeline,
        (
            Bug("layers counted from 0", "neighbours and stages", "*"),
            Bug("depth of a stage", "neighbours and stages", "*"),
            Bug("stages backward", "neighbours and stages", "*"),
            Bug("labels one late", "neighbours and stages", "*"),
            Bug("loss by stages", "mean versus sum", "*"),
            Bug("table of the last stage fixed", "tied weights", "p.table"),
            Bug("tied weights as a mean", "tied weights", "p.table"),
            Bug("tied weights of the first stage", "tied weights", "p.table"),
            Bug("tied weights summed twice", "tied weights", "p.table"),
        ),
    ),
    Right(
        "experts",
        experts,
        (
            Bug("ranks against experts", "router and auxiliary loss", "*"),
            Bug("number of local experts", "router and auxiliary loss", "p.router loss"),
            Bug("auxiliary loss of local shares", "router and auxiliary loss", "p.router loss"),
            Bug("shares without gradients of others", "router and auxiliary loss", "p.router loss"),
            Bug("gates by experts of a rank", "router and auxiliary loss", "*"),
            Bug("router loss on each rank", "router and auxiliary loss", "p.router loss"),
            Bug("sum of router gradients", "router and auxiliary loss", "p.router"),
            Bug("experts not divided", "router and auxiliary loss", "p.up p.down"),
            Bug("experts averaged", "router and auxiliary loss", "p.up"),
        ),
    ),
    Right(
        "capacity of experts",
        capacity,
        (
            Bug("places counted on each rank", "router and auxiliary loss", "*"),
            Bug("capacity of local rows", "router and auxiliary loss", "*"),
            Bug("experts from 0", "router and auxiliary loss", "*"),
            Bug("kept rows as a mean", "router and auxiliary loss", "*"),
        ),
    ),
    Right(
        "experts by data",
        experts_by_data,
        (
            Bug("experts over all ranks", "router and auxiliary loss", "p.w"),
            Bug("router over copies", "router and auxiliary loss", "p.router"),
        ),
    ),
    Right(
        "pipeline by data",
        pipeline_by_data,
        (
            Bug("sum over data", "mean versus sum", "p.*"),
            Bug("loss as a mean of stages", "neighbours and stages", "loss"),
        ),
    ),
)
