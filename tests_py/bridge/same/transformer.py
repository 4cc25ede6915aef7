"""A block of a transformer, data and tensor parallel, with lines that are wrong on all replicas alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P

__all__ = ["BATCH", "MESH", "OPTIONS", "PARAMS", "SPECS", "WRONG", "Lines", "step_of"]

WIDTH, HEADS, HIDDEN, TOKENS, BATCHES, VOCABULARY = 4, 2, 4, 3, 4, 6
MESH = {"data": 2, "model": 2}
SPECS = {
    "embedding": P(),
    "qkv": P(None, "model"),
    "out": P("model"),
    "up": P(None, "model"),
    "down": P("model"),
    "gain1": P(),
    "gain2": P(),
}
SHAPES = {
    "embedding": (VOCABULARY, WIDTH),
    "qkv": (3, HEADS, WIDTH, WIDTH // HEADS),
    "out": (HEADS, WIDTH // HEADS, WIDTH),
    "up": (WIDTH, HIDDEN),
    "down": (HIDDEN, WIDTH),
    "gain1": (WIDTH,),
    "gain2": (WIDTH,),
}
RNG = np.random.default_rng(7)
PARAMS = {name: RNG.normal(size=shape).astype(np.float32) for name, shape in SHAPES.items()}
BATCH = tuple(RNG.integers(0, VOCABULARY, (BATCHES, TOKENS)).astype(np.int32) for _ in "xy")
OPTIONS: dict[str, Any] = {
    "mesh": MESH,
    "in_specs": (SPECS, P("data"), P("data")),
    "out_specs": (SPECS, P()),
    "check_vma": False,
}
Reduce = Callable[[Any, str], Any]


@dataclass(frozen=True)
class Lines:
    """Lines of the step that may be wrong; the defaults are right."""

    of_gradients: Reduce = lax.pmean
    of_outputs: Reduce = lax.psum
    heads: int | None = HEADS
    copied: bool = True
    summed_twice: bool = False
    mean: Callable[[Any], Any] = jnp.mean


WRONG = {
    "sum of means": Lines(of_gradients=lax.psum),
    "scaled by the heads of a replica": Lines(heads=None),
    "no sum in the backward pass": Lines(copied=False),
    "sum in both passes": Lines(summed_twice=True),
    "mean of partial outputs": Lines(of_outputs=lax.pmean),
    "sum over the batch of a replica": Lines(mean=jnp.sum),
}


def step_of(lines: Lines) -> Callable[..., Any]:
    """A training step: new parameters and the loss."""

    @jax.custom_vjp
    def copy(t: Any) -> Any:
        return t

    copy.defvjp(lambda t: (t, None), lambda _, g: (lax.psum(g, "model"),))

    @jax.custom_vjp
    def reduce(t: Any) -> Any:
        return lines.of_outputs(t, "model")

    def back(_: Any, g: Any) -> tuple[Any]:
        return (lax.psum(g, "model") if lines.summed_twice else g,)

    reduce.defvjp(lambda t: (reduce(t), None), back)

    def loss_of(p: Any, x: Any, y: Any) -> Any:
        h = p["embedding"][x]
        a = copy(norm(h, p["gain1"]))
        q, k, v = (jnp.einsum("btd,hdk->bhtk", a, p["qkv"][i]) for i in range(3))
        heads = p["qkv"].shape[1] if lines.heads is None else lines.heads
        scores = jnp.einsum("bhtk,bhsk->bhts", q, k) / np.sqrt(WIDTH // heads)
        weights = jax.nn.softmax(jnp.where(np.tril(np.ones((TOKENS, TOKENS), bool)), scores, -1e30), -1)
        h = h + reduce(jnp.einsum("bhts,bhsk,hkd->btd", weights, v, p["out"]))
        a = norm(h, p["gain2"])
        h = h + reduce(jax.nn.gelu((copy(a) if lines.copied else a) @ p["up"]) @ p["down"])
        picked = jnp.take_along_axis(jax.nn.log_softmax(h @ p["embedding"].T), y[..., None], -1)
        return -lines.mean(picked)

    def step(params: Any, x: Any, y: Any) -> Any:
        loss, grads = jax.value_and_grad(loss_of)(params, x, y)
        grads = jax.tree.map(lambda g: lines.of_gradients(g, "data"), grads)
        return jax.tree.map(lambda w, g: w - 0.1 * g, params, grads), lax.pmean(loss, "data")

    return step


def norm(x: Any, gain: Any) -> Any:
    return (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5) * gain
