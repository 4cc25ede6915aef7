"""Data-parallel steps: means and sums, unequal numbers of labels, accumulation, batch norm, contrastive losses."""

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

DATA = P("data")


def data_parallel(bug: str = "") -> Program:
    def loss_of(p: Any, x: Any, y: Any) -> Any:
        each = (jnp.tanh(x @ p["w1"] + p["b1"]) @ p["w2"] - y) ** 2
        return (
            each.sum() if bug == "sum over the local batch" else each.mean()
        )  # wrong: sum over the local batch

    def step(p: Any, m: Any, x: Any, y: Any) -> Any:
        loss, g = jax.value_and_grad(loss_of)(p, x, y)
        mean = lax.psum if bug == "sum of means" else lax.pmean
        g = jax.tree.map(lambda t: mean(t, "data"), g)  # wrong: sum of means, sum over the local batch
        if bug == "mean twice":
            g = jax.tree.map(lambda t: t / size_of("data"), g)  # wrong: mean twice
        if bug == "momentum summed again":
            m = jax.tree.map(lambda t: lax.psum(t, "data"), m)  # wrong: momentum summed again
        m = jax.tree.map(lambda t, d: 0.9 * t + d, m, g)
        rate = 0.1 * size_of("data") if bug == "rate times ranks" else 0.1  # wrong: rate times ranks
        p = jax.tree.map(lambda w, d: w - rate * d, p, m)  # wrong: rate times ranks
        one = bug == "loss of rank 0"
        loss = lax.all_gather(loss, "data")[0] if one else lax.pmean(loss, "data")  # wrong: loss of rank 0
        return p, m, loss

    shapes: Any = {"w1": (4, 6), "b1": (6,), "w2": (6, 2)}
    args = (draw(1, **shapes), draw(2, **shapes), *draw(3, x=(8, 4), y=(8, 2)).values())
    return Program(step, args, {"data": 4}, (P(), P(), DATA, DATA), (P(), P(), P()))


def summed_by_jax(bug: str = "") -> Program:
    """JAX adds the sums of gradients itself (``check_vma=True``): they are sums over ranks, no means."""

    def loss_of(p: Any, x: Any, y: Any) -> Any:
        each = (jnp.tanh(x @ p["w1"]) @ p["w2"] - y) ** 2
        local = bug == "mean of the local batch"
        return each.mean() if local else each.sum() / 16  # wrong: mean of the local batch

    def step(p: Any, x: Any, y: Any) -> Any:
        loss, g = jax.value_and_grad(loss_of)(p, x, y)
        if bug == "summed once more":
            g = jax.tree.map(
                lambda t: lax.psum(lax.pcast(t, "data", to="varying"), "data"), g
            )  # wrong: summed once more
        mean = bug == "mean of sums"
        loss = lax.pmean(loss, "data") if mean else lax.psum(loss, "data")  # wrong: mean of sums
        return sgd(p, g), loss

    args = (draw(4, w1=(4, 6), w2=(6, 2)), *draw(5, x=(8, 4), y=(8, 2)).values())
    return Program(step, args, {"data": 4}, (P(), DATA, DATA), (P(), P()), check_vma=True)


def unequal_labels(bug: str = "") -> Program:
    """Labels below 0 are padding; ranks have unequal numbers of others."""

    def loss_of(p: Any, x: Any, y: Any, count: Any) -> Any:
        each = nll(jnp.tanh(p["emb"][x]) @ p["out"], jnp.maximum(y, 0))
        return jnp.where(y >= 0, each, 0.0).sum() / count

    def step(p: Any, x: Any, y: Any) -> Any:
        count = (y >= 0).sum().astype(p["emb"].dtype)
        if bug == "mean of local means":
            count = count * size_of("data")  # wrong: mean of local means
        elif bug == "count of rank 0":
            count = lax.all_gather(count, "data")[0] * size_of("data")  # wrong: count of rank 0
        elif bug == "mean of counts":
            count = lax.pmean(count, "data")  # wrong: mean of counts
        elif bug == "largest count":
            count = lax.pmax(count, "data") * size_of("data")  # wrong: largest count
        else:
            count = lax.psum(count, "data")
        loss, g = jax.value_and_grad(loss_of)(p, x, y, count)  # wrong: mean of local means
        g = jax.tree.map(lambda t: lax.psum(t, "data"), g)  # wrong: mean of counts
        return sgd(p, g), lax.psum(loss, "data")

    y = integers(7, 6, 8, 3)
    y[:, 2], y[0], y[5, 1] = -1, -1, -1
    args = (draw(6, emb=(6, 4), out=(4, 6)), integers(8, 6, 8, 3), y)
    return Program(step, args, {"data": 4}, (P(), DATA, DATA), (P(), P()))


def accumulation(bug: str = "") -> Program:
    """Micro batches of two rows with unequal numbers of labels, and a loss scale that is a state."""

    def loss_of(p: Any, x: Any, y: Any, scale: Any) -> Any:
        each = nll(jnp.tanh(x @ p["w"]) @ p["out"], jnp.maximum(y, 0))
        total = jnp.where(y >= 0, each, 0.0).sum()
        if bug == "mean of each micro batch":
            total = total / (y >= 0).sum()  # wrong: mean of each micro batch
        return total * scale

    def step(p: Any, scale: Any, x: Any, y: Any) -> Any:
        def micro(carry: Any, batch: Any) -> Any:
            loss, g = jax.value_and_grad(loss_of)(p, *batch, scale)
            total = jax.tree.map(jnp.add, carry, (loss, g))
            if bug == "sums inside of the loop":
                total = jax.tree.map(lambda t: lax.psum(t, "data"), total)  # wrong: sums inside of the loop
            return total, None

        count = lax.psum((y >= 0).sum(), "data")
        if bug == "mean of each micro batch":
            count = x.shape[0] // 2  # wrong: mean of each micro batch
        start = (jnp.zeros(()), jax.tree.map(jnp.zeros_like, p))
        parts = (x.reshape(-1, 2, *x.shape[1:]), y.reshape(-1, 2))
        total, _ = lax.scan(micro, start, parts)
        if bug != "sums inside of the loop":
            total = jax.tree.map(lambda t: lax.psum(t, "data"), total)
        loss, g = jax.tree.map(lambda t: t / count, total)  # wrong: mean of each micro batch
        unscale = scale * size_of("data") if bug == "scale times ranks" else scale  # wrong: scale times ranks
        g = jax.tree.map(lambda t: t / unscale, g)  # wrong: scale times ranks
        big = 1e-3 * lax.psum(1, "data") if bug == "growth by ranks" else 1e-3  # wrong: growth by ranks
        return sgd(p, g), scale * (1 + big), loss / scale  # wrong: growth by ranks

    y = integers(10, 5, 12)
    y[[0, 3, 6]] = -1
    args = (draw(9, w=(4, 6), out=(6, 5)), np.float64(7.3), draw(11, x=(12, 4))["x"], y)
    return Program(step, args, {"data": 2}, (P(), P(), DATA, DATA), (P(), P(), P()))


def batch_norm(bug: str = "") -> Program:
    @jax.custom_vjp
    def mean_of_ranks(t: Any) -> Any:
        return lax.pmean(t, "data")

    mean_of_ranks.defvjp(lambda t: (lax.pmean(t, "data"), None), lambda _, g: (g,))

    def statistics(h: Any) -> Any:
        mean = mean_of_ranks if bug == "local backward of statistics" else lambda t: lax.pmean(t, "data")
        mu = mean(h.mean(0))  # wrong: local backward of statistics
        centre = (
            h.mean(0) if bug == "variance about the local mean" else mu
        )  # wrong: variance about the local mean
        return mu, mean(
            ((h - centre) ** 2).mean(0)
        )  # wrong: local backward of statistics, variance about the local mean

    def loss_of(p: Any, x: Any, y: Any) -> Any:
        h = x @ p["w1"]
        mu, var = statistics(h)
        local = bug == "local statistics"
        at, spread = (h.mean(0), h.var(0)) if local else (mu, var)  # wrong: local statistics
        h = (h - at) / jnp.sqrt(spread + 1e-5) * p["g"] + p["b"]  # wrong: local statistics
        return (((jnp.tanh(h) @ p["w2"]) - y) ** 2).mean(), (mu, var)

    def step(p: Any, s: Any, x: Any, y: Any) -> Any:
        (loss, (mu, var)), g = jax.value_and_grad(loss_of, has_aux=True)(p, x, y)
        rows = x.shape[0] if bug == "unbiased by local rows" else x.shape[0] * size_of("data")
        var = var * rows / (rows - 1)  # wrong: unbiased by local rows
        s = {"mean": 0.9 * s["mean"] + 0.1 * mu, "var": 0.9 * s["var"] + 0.1 * var}
        return sgd(p, jax.tree.map(lambda t: lax.pmean(t, "data"), g)), s, lax.pmean(loss, "data")

    p = draw(12, w1=(4, 6), g=(6,), b=(6,), w2=(6, 2))
    args = (p, draw(13, mean=(6,), var=(6,)), *draw(14, x=(12, 4), y=(12, 2)).values())
    return Program(step, args, {"data": 4}, (P(), P(), DATA, DATA), (P(), P(), P()))


def contrastive(bug: str = "") -> Program:
    """Images and texts of all ranks against each other."""

    def gather(t: Any) -> Any:
        if bug == "own pairs alone":
            return t  # wrong: own pairs alone
        whole = lax.all_gather(t, "data", tiled=True)
        if bug == "gathered without gradients":
            start = lax.axis_index("data") * t.shape[0]
            fixed = lax.stop_gradient(whole)  # wrong: gathered without gradients
            whole = lax.dynamic_update_slice_in_dim(fixed, t, start, 0)  # wrong: gathered without gradients
        return whole

    def loss_of(p: Any, x: Any, y: Any) -> Any:
        a, b = x @ p["image"], y @ p["text"]
        first = lax.axis_index("data") * a.shape[0]
        if bug in ("own pairs alone", "labels from 0"):
            first = 0  # wrong: labels from 0
        labels = first + jnp.arange(a.shape[0])  # wrong: labels from 0
        left = nll(a @ gather(b).T * jnp.exp(p["t"]), labels)  # wrong: own pairs alone, labels from 0
        return (left + nll(b @ gather(a).T * jnp.exp(p["t"]), labels)).mean()  # wrong: own pairs alone

    def step(p: Any, x: Any, y: Any) -> Any:
        loss, g = jax.value_and_grad(loss_of)(p, x, y)
        return sgd(p, jax.tree.map(lambda t: lax.pmean(t, "data"), g)), lax.pmean(loss, "data")

    p = draw(15, image=(4, 3), text=(5, 3), t=())
    args = (p, *draw(16, x=(8, 4), y=(8, 5)).values())
    return Program(step, args, {"data": 4}, (P(), DATA, DATA), (P(), P()))


def frozen(bug: str = "") -> Program:
    """A frozen embedding, adapters of which a rank may use none, decay, and a teacher that follows."""

    def loss_of(p: Any, x: Any, y: Any, use: Any) -> Any:
        h = jnp.tanh(x @ lax.stop_gradient(p["frozen"]) + jnp.einsum("bd,bdh->bh", x, p["adapters"][use]))
        return ((h @ p["out"] - y) ** 2).mean()

    def step(p: Any, teacher: Any, x: Any, y: Any, use: Any) -> Any:
        loss, g = jax.value_and_grad(loss_of)(p, x, y, use)
        early = bug == "decay before the sum"
        if early:
            decayed = {
                k: t / size_of("data") + 0.1 * p[k] for k, t in g.items()
            }  # wrong: decay before the sum
            g = {k: lax.psum(t, "data") for k, t in decayed.items()}  # wrong: decay before the sum
        else:
            g = {k: lax.pmean(t, "data") + 0.1 * p[k] for k, t in g.items()}
        if bug == "mean over ranks that use it":
            users = jax.nn.one_hot(use, 3).max(0)
            count = jnp.maximum(lax.psum(users, "data"), 1.0)  # wrong: mean over ranks that use it
            count = count[:, None, None]
            more = g["adapters"] - 0.1 * p["adapters"]
            g["adapters"] = (
                g["adapters"] - more + more * size_of("data") / count
            )  # wrong: mean over ranks that use it
        g["frozen"] = jnp.zeros_like(g["frozen"])
        if bug == "frozen weights decay by ranks":
            g["frozen"] = p["frozen"] * (size_of("data") - 1) * 0.1  # wrong: frozen weights decay by ranks
        p = sgd(p, g)
        keep = 0.9 ** size_of("data") if bug == "teacher by ranks" else 0.9  # wrong: teacher by ranks
        teacher = jax.tree.map(lambda t, w: keep * t + (1 - keep) * w, teacher, p)  # wrong: teacher by ranks
        return p, teacher, lax.pmean(loss, "data")

    shapes: Any = {"frozen": (4, 6), "adapters": (3, 4, 6), "out": (6, 2)}
    use = np.array([0, 0, 0, 2, 0, 2, 2, 2], np.int32)
    args = (draw(17, **shapes), draw(18, **shapes), *draw(19, x=(8, 4), y=(8, 2)).values(), use)
    return Program(step, args, {"data": 4}, (P(), P(), DATA, DATA, DATA), (P(), P(), P()))


STEPS = (
    Right(
        "data parallel",
        data_parallel,
        (
            Bug("sum of means", "mean versus sum", "p.* m.*"),
            Bug("sum over the local batch", "mean versus sum", "*"),
            Bug("mean twice", "mean versus sum", "p.* m.*"),
            Bug("momentum summed again", "sharded optimiser", "p.* m.*"),
            Bug("rate times ranks", "mean versus sum", "p.*"),
            Bug("loss of rank 0", "mean versus sum", "loss"),
        ),
    ),
    Right(
        "sums by JAX",
        summed_by_jax,
        (
            Bug("mean of the local batch", "mean versus sum", "*"),
            Bug("summed once more", "sums in both passes", "p.*"),
            Bug("mean of sums", "mean versus sum", "loss"),
        ),
    ),
    Right(
        "unequal labels",
        unequal_labels,
        (
            Bug("mean of local means", "unequal numbers of labels", "*"),
            Bug("count of rank 0", "unequal numbers of labels", "*"),
            Bug("mean of counts", "unequal numbers of labels", "*"),
            Bug("largest count", "unequal numbers of labels", "*"),
        ),
    ),
    Right(
        "accumulation",
        accumulation,
        (
            Bug("mean of each micro batch", "accumulation and loss scale", "p.* loss"),
            Bug("sums inside of the loop", "accumulation and loss scale", "p.* loss"),
            Bug("scale times ranks", "accumulation and loss scale", "p.*"),
            Bug("growth by ranks", "accumulation and loss scale", "scale"),
        ),
    ),
    Right(
        "batch norm",
        batch_norm,
        (
            Bug("variance about the local mean", "batch norm", "p.* s.var loss"),
            Bug("local statistics", "batch norm", "p.* loss"),
            Bug("unbiased by local rows", "batch norm", "s.var"),
            Bug("local backward of statistics", "batch norm", "p.w1"),
        ),
    ),
    Right(
        "contrastive",
        contrastive,
        (
            Bug("own pairs alone", "unequal numbers of labels", "*"),
            Bug("labels from 0", "unequal numbers of labels", "*"),
            Bug("gathered without gradients", "sums in both passes", "p.image p.text"),
        ),
    ),
    Right(
        "frozen weights",
        frozen,
        (
            Bug(
                "decay before the sum",
                "weight decay on shards",
                "p.adapters p.out teacher.adapters teacher.out",
            ),
            Bug("mean over ranks that use it", "frozen and unused weights", "p.adapters teacher.adapters"),
            Bug("frozen weights decay by ranks", "frozen and unused weights", "p.frozen teacher.frozen"),
            Bug("teacher by ranks", "frozen and unused weights", "teacher.*"),
        ),
    ),
)
