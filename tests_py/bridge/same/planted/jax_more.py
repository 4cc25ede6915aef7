"""More right steps, each with a bug or two: convolutions, recurrence, exchanged heads, schedules."""

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

DATA, GRID = P("data"), {"data": 2, "model": 2}


def mean(g: Any, axis: Any = "data") -> Any:
    return jax.tree.map(lambda t: lax.pmean(t, axis), g)


def convolution(bug: str = "") -> Program:
    def loss_of(p: Any, x: Any, y: Any) -> Any:
        h = lax.conv_general_dilated(
            x, p["kernel"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        rows = x.shape[0] if bug == "mean of the local rows" else 4
        return ((jnp.tanh(h).mean((1, 2)) @ p["out"] - y) ** 2).sum() / rows  # wrong: mean of the local rows

    def step(p: Any, x: Any, y: Any) -> Any:
        loss, g = jax.value_and_grad(loss_of)(p, x, y)
        return sgd(p, jax.tree.map(lambda t: lax.psum(t, "data"), g)), lax.psum(
            loss, "data"
        )  # wrong: mean of the local rows

    args = (draw(1, kernel=(3, 3, 2, 3), out=(3, 2)), *draw(2, x=(4, 4, 4, 2), y=(4, 2)).values())
    return Program(step, args, {"data": 2}, (P(), DATA, DATA), (P(), P()))


def recurrence(bug: str = "") -> Program:
    """A gated cell in a scan over time, hidden units cut over ``model``."""

    def loss_of(p: Any, x: Any, y: Any) -> Any:
        def cell(h: Any, x: Any) -> Any:
            total = lax.psum if bug == "sum in both passes of a loop" else sum_from
            part = copy_to(h, "model") @ p["u"]
            a = jnp.tanh(copy_to(x, "model") @ p["w"] + part)
            out = total(a @ p["v"], "model")  # wrong: sum in both passes of a loop
            gate = jax.nn.sigmoid(out)
            return gate * h + (1 - gate) * out, None

        h, _ = lax.scan(cell, jnp.zeros((x.shape[1], 3)), x)
        return ((h - y) ** 2).mean()

    def step(p: Any, x: Any, y: Any) -> Any:
        loss, g = jax.value_and_grad(loss_of)(p, x, y)
        return sgd(p, mean(g)), lax.pmean(loss, "data")

    specs = {"w": P(None, "model"), "u": P(None, "model"), "v": P("model")}
    args = (draw(3, w=(2, 4), u=(3, 4), v=(4, 3)), *draw(4, x=(3, 4, 2), y=(4, 3)).values())
    return Program(step, args, GRID, (specs, P(None, "data"), DATA), (specs, P()))


def exchanged_heads(bug: str = "") -> Program:
    """A sequence in parts; around attention all ranks exchange, so that each has all positions of some heads."""

    def swap(t: Any, there: bool) -> Any:
        if there:
            return lax.all_to_all(t, "seq", 1, 2, tiled=True)
        dims = (2, 1)
        return lax.all_to_all(t, "seq", *dims, tiled=True)

    def loss_of(p: Any, x: Any, y: Any) -> Any:
        q, k, v = (swap(heads(x, p[name]), True) for name in "qkv")
        local = q.shape[1] if bug == "scaled by exchanged heads" else 4
        out = attend(q, k, v, 1 / np.sqrt(8 / local))  # wrong: scaled by exchanged heads
        if bug == "exchanged in another order":
            out = jnp.concatenate(
                jnp.split(out, size_of("seq"), 2)[::-1], 2
            )  # wrong: exchanged in another order
        out = swap(out, False)  # wrong: exchanged in another order
        return ((x + jnp.einsum("bhtk,hkd->btd", out, p["o"]) - y) ** 2).sum() / 64

    def step(p: Any, x: Any, y: Any) -> Any:
        loss, g = jax.value_and_grad(loss_of)(p, x, y)
        return sgd(p, jax.tree.map(lambda t: lax.psum(t, "seq"), g)), lax.psum(loss, "seq")

    cut = P(None, "seq")
    args = (
        draw(5, q=(4, 8, 2), k=(4, 8, 2), v=(4, 8, 2), o=(4, 2, 8)),
        *draw(6, x=(2, 4, 8), y=(2, 4, 8)).values(),
    )
    return Program(step, args, {"seq": 2}, (P(), cut, cut), (P(), P()))


def gathered_context(bug: str = "") -> Program:
    """Keys and values are gathered; queries are a part of the sequence."""

    def loss_of(p: Any, x: Any, y: Any) -> Any:
        first = lax.axis_index("seq") * x.shape[1]
        k, v = (lax.all_gather(x @ p[n], "seq", axis=1, tiled=True) for n in "kv")
        rows = (0 if bug == "mask from 0" else first) + jnp.arange(x.shape[1])
        mask = rows[:, None] >= jnp.arange(k.shape[1])[None, :]
        s = jnp.where(mask, jnp.einsum("btd,bsd->bts", x @ p["q"], k), -1e30)  # wrong: mask from 0
        return (((jax.nn.softmax(s, -1) @ v) @ p["o"] - y) ** 2).sum() / 32

    def step(p: Any, x: Any, y: Any) -> Any:
        loss, g = jax.value_and_grad(loss_of)(p, x, y)
        g = {k: lax.psum(t, "seq") for k, t in g.items()}
        if bug == "keys as a mean":
            g["k"] = g["k"] / size_of("seq")  # wrong: keys as a mean
        return sgd(p, g), lax.psum(loss, "seq")

    cut = P(None, "seq")
    args = (draw(7, q=(4, 4), k=(4, 4), v=(4, 4), o=(4, 4)), *draw(8, x=(2, 4, 4), y=(2, 4, 4)).values())
    return Program(step, args, {"seq": 4}, (P(), cut, cut), (P(), P()))


def two_axes(bug: str = "") -> Program:
    """A weight that is cut in both directions: columns of activations on ``row``, of outputs on ``column``."""

    def loss_of(p: Any, x: Any, y: Any) -> Any:
        h = jnp.tanh(sum_from(x @ p["w1"], "row"))
        over = "row" if bug == "width of one axis" else ("row", "column")
        h = h / size_of(over) ** 0.5 if bug == "width of one axis" else h / 2.0  # wrong: width of one axis
        return ((sum_from(copy_to(h, "row") @ p["w2"], "column") - y) ** 2).mean()

    def step(p: Any, x: Any, y: Any) -> Any:
        loss, g = jax.value_and_grad(loss_of)(p, x, y)
        return sgd(p, jax.tree.map(lambda t: t / size_of("row"), g)), lax.pmean(loss, "row")

    specs = {"w1": P("row", "column"), "w2": P("column", "row")}
    args = (draw(9, w1=(4, 6), w2=(6, 4)), *draw(10, x=(3, 4), y=(3, 4)).values())
    cut = P(None, "row")
    return Program(step, args, {"row": 2, "column": 2}, (specs, cut, cut), (specs, P()))


def schedule(bug: str = "") -> Program:
    """Adam with a counter, warm-up and weights that decay."""

    def step(p: Any, m: Any, v: Any, count: Any, x: Any, y: Any) -> Any:
        def loss_of(p: Any) -> Any:
            return ((jnp.tanh(x @ p["w1"]) @ p["w2"] - y) ** 2).mean()

        loss, g = jax.value_and_grad(loss_of)(p)
        g = mean(g)
        count = count + (
            size_of("data") if bug == "steps counted by ranks" else 1
        )  # wrong: steps counted by ranks
        m = jax.tree.map(lambda a, b: 0.9 * a + 0.1 * b, m, g)
        if bug == "squares before the mean":
            square = mean(
                jax.tree.map(lambda t: t**2, jax.grad(loss_of)(p))
            )  # wrong: squares before the mean
        else:
            square = jax.tree.map(lambda t: t**2, g)
        v = jax.tree.map(lambda a, b: 0.99 * a + 0.01 * b, v, square)  # wrong: squares before the mean
        rate = 0.1 / (3 + count)
        p = jax.tree.map(lambda w, a, b: w - rate * (a / (jnp.sqrt(b) + 0.1) + 0.1 * w), p, m, v)
        return p, m, v, count, lax.pmean(loss, "data")

    shapes: Any = {"w1": (4, 6), "w2": (6, 2)}
    v = {k: t**2 for k, t in draw(13, **shapes).items()}
    args = (draw(11, **shapes), draw(12, **shapes), v, np.int32(3), *draw(14, x=(8, 4), y=(8, 2)).values())
    return Program(step, args, {"data": 2}, (P(), P(), P(), P(), DATA, DATA), (P(), P(), P(), P(), P()))


def gated_columns(bug: str = "") -> Program:
    """Gate and value of a layer in one matrix, whose parts lie side by side on each rank."""

    def loss_of(p: Any, x: Any, y: Any) -> Any:
        both = copy_to(norm(x, p["g"]), "model") @ p["up"]
        if bug == "gate beside its neighbour":
            gate, value = jnp.split(both.reshape(len(x), -1), 2, -1)  # wrong: gate beside its neighbour
        else:
            gate, value = both[:, 0::2], both[:, 1::2]
        return (
            (sum_from(jax.nn.silu(gate) * value @ p["down"], "model") - y) ** 2
        ).mean()  # wrong: gate beside its neighbour

    def step(p: Any, x: Any, y: Any) -> Any:
        loss, g = jax.value_and_grad(loss_of)(p, x, y)
        return sgd(p, mean(g)), lax.pmean(loss, "data")

    specs = {"g": P(), "up": P(None, "model"), "down": P("model")}
    args = (draw(15, g=(4,), up=(4, 8), down=(4, 3)), *draw(16, x=(4, 4), y=(4, 3)).values())
    return Program(step, args, GRID, (specs, DATA, DATA), (specs, P()))


def columns_of_a_table(bug: str = "") -> Program:
    """An embedding cut by its columns, gathered before the layers."""

    def loss_of(p: Any, x: Any, y: Any) -> Any:
        rows = p["table"][x]
        if bug == "whole gradient on each rank":
            h = lax.all_gather(rows, "model", axis=2, tiled=True)  # wrong: whole gradient on each rank
        else:
            h = gather_own(rows)
        return nll(jnp.tanh(h) @ p["out"], y).mean()  # wrong: whole gradient on each rank

    @jax.custom_vjp
    def gather_own(t: Any) -> Any:
        return lax.all_gather(t, "model", axis=2, tiled=True)

    def own(width: Any, g: Any) -> Any:
        return (lax.dynamic_slice_in_dim(g, lax.axis_index("model") * width, width, 2),)

    gather_own.defvjp(lambda t: (lax.all_gather(t, "model", axis=2, tiled=True), t.shape[2]), own)

    def step(p: Any, x: Any, y: Any) -> Any:
        loss, g = jax.value_and_grad(loss_of)(p, x, y)
        return sgd(p, mean(g)), lax.pmean(loss, "data")

    specs = {"table": P(None, "model"), "out": P()}
    args = (draw(17, table=(6, 4), out=(4, 6)), integers(18, 6, 4, 3), integers(19, 6, 4, 3))
    return Program(step, args, GRID, (specs, DATA, DATA), (specs, P()))


def distillation(bug: str = "") -> Program:
    """A student follows a teacher whose logits are cut over the vocabulary."""

    def loss_of(p: Any, t: Any, x: Any) -> Any:
        own = copy_to(jnp.tanh(x @ p["w"]), "model") @ p["out"]
        other = x @ t
        top = lax.pmax(lax.stop_gradient(other).max(-1, keepdims=True), "model")
        soft = jnp.exp(other - top)
        share = soft / lax.psum(soft.sum(-1, keepdims=True), "model")
        total = jnp.log(sum_from(jnp.exp(own).sum(-1, keepdims=True), "model"))
        if bug == "targets of the own part":
            share = soft / soft.sum(-1, keepdims=True)  # wrong: targets of the own part
        cross = sum_from((share * own).sum(-1), "model") - total[..., 0]  # wrong: targets of the own part
        return -cross.mean()

    def step(p: Any, t: Any, x: Any) -> Any:
        loss, g = jax.value_and_grad(loss_of)(p, t, x)
        return sgd(p, mean(g)), t, lax.pmean(loss, "data")

    specs = {"w": P(), "out": P(None, "model")}
    args = (draw(20, w=(3, 4), out=(4, 6)), draw(21, t=(3, 6))["t"], draw(22, x=(4, 3))["x"])
    cut = P(None, "model")
    return Program(step, args, GRID, (specs, cut, DATA), (specs, cut, P()))


def ranked_losses(bug: str = "") -> Program:
    """Losses of pairs of rows, one of which lies on another rank."""

    def loss_of(p: Any, x: Any) -> Any:
        n = size_of("data")
        score = jnp.tanh(x @ p["w"]) @ p["out"]
        back = lax.ppermute(score, "data", [(i, (i + 1) % n) for i in range(n)])
        before = jnp.concatenate([back[-1:], score[:-1]])
        if bug == "pairs on one rank":
            before = jnp.roll(score, 1)  # wrong: pairs on one rank
        return jax.nn.softplus(before - score).mean()  # wrong: pairs on one rank

    def step(p: Any, x: Any) -> Any:
        loss, g = jax.value_and_grad(loss_of)(p, x)
        return sgd(p, mean(g)), lax.pmean(loss, "data")

    args = (draw(27, w=(3, 4), out=(4,)), draw(28, x=(8, 3))["x"])
    return Program(step, args, {"data": 4}, (P(), DATA), (P(), P()))


def whitened(bug: str = "") -> Program:
    """Statistics of pairs of units over all rows, which a penalty keeps apart."""

    def loss_of(p: Any, x: Any, y: Any) -> Any:
        h = jnp.tanh(x @ p["w"])
        second = h.T @ h / h.shape[0]  # wrong: penalty of local statistics
        if bug != "penalty of local statistics":
            second = lax.pmean(second, "data")
        penalty = ((second - jnp.eye(4)) ** 2).sum()  # wrong: penalty of local statistics
        return ((h @ p["out"] - y) ** 2).mean() + 0.1 * penalty  # wrong: penalty of local statistics

    def step(p: Any, x: Any, y: Any) -> Any:
        loss, g = jax.value_and_grad(loss_of)(p, x, y)
        return sgd(p, mean(g)), lax.pmean(loss, "data")

    args = (draw(29, w=(3, 4), out=(4, 2)), *draw(30, x=(8, 3), y=(8, 2)).values())
    return Program(step, args, {"data": 4}, (P(), DATA, DATA), (P(), P()))


def branches(bug: str = "") -> Program:
    """A branch that all ranks take alike: gradients that are too long are cut."""

    def step(p: Any, x: Any, y: Any) -> Any:
        loss, g = jax.value_and_grad(lambda p: ((x @ p - y) ** 2).mean())(p)
        g = lax.pmean(g, "data")
        square = (g**2).sum()
        total = (
            lax.psum(square, "data") if bug == "norm summed over ranks" else square
        )  # wrong: norm summed over ranks
        g = lax.cond(
            total > 1e-6, lambda g: g / jnp.sqrt(total), lambda g: g, g
        )  # wrong: norm summed over ranks
        return p - 0.1 * g, lax.pmean(loss, "data")

    args = (draw(31, p=(3, 2))["p"], *draw(32, x=(8, 3), y=(8, 2)).values())
    return Program(step, args, {"data": 4}, (P(), DATA, DATA), (P(), P()))


STEPS = (
    Right("convolution", convolution, (Bug("mean of the local rows", "mean versus sum", "*"),)),
    Right(
        "recurrence",
        recurrence,
        (Bug("sum in both passes of a loop", "sums in both passes", "p.*"),),
    ),
    Right(
        "exchanged heads",
        exchanged_heads,
        (
            Bug("scaled by exchanged heads", "local number of heads", "*"),
            Bug("exchanged in another order", "context mask and positions", "*"),
        ),
    ),
    Right(
        "gathered context",
        gathered_context,
        (
            Bug("mask from 0", "context mask and positions", "*"),
            Bug("keys as a mean", "mean versus sum", "p.k"),
        ),
    ),
    Right("two axes of a weight", two_axes, (Bug("width of one axis", "local number of heads", "*"),)),
    Right(
        "schedule",
        schedule,
        (
            Bug("steps counted by ranks", "accumulation and loss scale", "p.* count"),
            Bug("squares before the mean", "mean versus sum", "p.* v.*"),
        ),
    ),
    Right("gated columns", gated_columns, (Bug("gate beside its neighbour", "neighbours and stages", "*"),)),
    Right(
        "columns of a table",
        columns_of_a_table,
        (Bug("whole gradient on each rank", "sums in both passes", "p.table"),),
    ),
    Right(
        "distillation",
        distillation,
        (Bug("targets of the own part", "vocabulary-parallel cross entropy", "p.* loss"),),
    ),
    Right("pairs of rows", ranked_losses, (Bug("pairs on one rank", "neighbours and stages", "*"),)),
    Right("statistics of pairs", whitened, (Bug("penalty of local statistics", "batch norm", "p.w loss"),)),
    Right("branches", branches, (Bug("norm summed over ranks", "clipping norm", "p"),)),
)
