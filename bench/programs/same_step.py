"""A training step of a GPT-like model in JAX: data parallel, with heads, hidden units and vocabulary over "model"."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P

from tests_py.bridge.same.planted.jax_layers import copy_to, sum_from

__all__ = ["Sizes", "cross_entropy", "step_of"]


@dataclass(frozen=True)
class Sizes:
    """Sizes of the model and of its mesh."""

    layers: int = 12
    hidden: int = 128
    heads: int = 4
    wide: int = 512
    vocabulary: int = 512
    samples: int = 8
    sequence: int = 16
    data: int = 4
    model: int = 2


def cross_entropy(scores: Any, y: Any) -> Any:
    """The mean cross entropy of labels, whose scores lie in parts along "model"."""
    first = lax.axis_index("model") * scores.shape[-1]
    top = lax.pmax(lax.stop_gradient(scores).max(-1, keepdims=True), "model")
    away = scores - top
    here = (y[..., None] - first) == jnp.arange(scores.shape[-1])
    picked = sum_from(jnp.sum(jnp.where(here, away, 0), -1), "model")
    return jnp.mean(jnp.log(sum_from(jnp.sum(jnp.exp(away), -1), "model")) - picked)


def step_of(sizes: Sizes) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The step, its arguments by shapes alone, and the options of ``popsr.prove``."""
    head = sizes.hidden // sizes.heads

    def norm(x: Any, gain: Any) -> Any:
        away = x - x.mean(-1, keepdims=True)
        return away / jnp.sqrt((away**2).mean(-1, keepdims=True) + 1e-5) * gain

    def block(h: Any, p: Any) -> Any:
        a = copy_to(norm(h, p["gain1"]), "model")
        q, k, v = (jnp.einsum("btd,dhk->bhtk", a, p[name]) for name in "qkv")
        scores = jnp.einsum("bhtk,bhsk->bhts", q, k) / np.sqrt(head)
        seen = jnp.tril(jnp.ones((h.shape[1], h.shape[1]), bool))
        weights = jax.nn.softmax(jnp.where(seen, scores, -1e30), -1)
        h = h + sum_from(jnp.einsum("bhts,bhsk,hkd->btd", weights, v, p["out"]), "model")
        a = copy_to(norm(h, p["gain2"]), "model")
        return h + sum_from(jax.nn.gelu(a @ p["up"]) @ p["down"], "model")

    def loss_of(params: Any, x: Any, y: Any) -> Any:
        h = params["words"][x] + params["places"]
        for layer in params["layers"]:
            h = block(h, layer)
        scores = copy_to(norm(h, params["gain"]), "model") @ params["head"]
        return cross_entropy(scores, y)

    def step(params: Any, x: Any, y: Any) -> Any:
        loss, grads = jax.value_and_grad(loss_of)(params, x, y)
        grads = lax.pmean(grads, "data")
        return jax.tree.map(lambda w, g: w - 0.1 * g, params, grads), lax.pmean(loss, "data")

    columns, rows = P(None, "model"), P("model")
    cuts = {
        **dict.fromkeys(("gain1", "gain2"), P()),
        **dict.fromkeys("qkv", columns),
        "out": rows,
        "up": columns,
        "down": rows,
    }
    wide = (sizes.hidden, sizes.heads, head)
    shapes = {
        **dict.fromkeys(("gain1", "gain2"), (sizes.hidden,)),
        **dict.fromkeys("qkv", wide),
        "out": (*wide[1:], sizes.hidden),
        "up": (sizes.hidden, sizes.wide),
        "down": (sizes.wide, sizes.hidden),
    }

    def of(shape: tuple[int, ...], dtype: Any = np.float32) -> Any:
        return jax.ShapeDtypeStruct(shape, dtype)

    params = {
        "words": of((sizes.vocabulary, sizes.hidden)),
        "places": of((sizes.sequence, sizes.hidden)),
        "layers": [{name: of(shape) for name, shape in shapes.items()}] * sizes.layers,
        "gain": of((sizes.hidden,)),
        "head": of((sizes.hidden, sizes.vocabulary)),
    }
    specs = {
        **dict.fromkeys(("words", "places", "gain"), P()),
        "layers": [cuts] * sizes.layers,
        "head": columns,
    }
    rng = np.random.default_rng(0)
    batch = tuple(
        rng.integers(0, sizes.vocabulary, (sizes.samples, sizes.sequence)).astype(np.int32) for _ in "xy"
    )
    options = {
        "mesh": {"data": sizes.data, "model": sizes.model},
        "in_specs": (specs, P("data"), P("data")),
        "out_specs": (specs, P()),
        "check_vma": False,
    }
    return step, (params, *batch), options
