"""The GPT-like model of compared_models.py in JAX, its step jitted, all samples at once."""

import os
from collections.abc import Callable
from functools import partial

# As many threads as the other sides have, and no others are started: JAX takes one for each core.
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
os.environ["JAX_PLATFORMS"] = "cpu"

import jax  # noqa: E402 (it counts the cores)
import jax.numpy as jnp  # noqa: E402

from bench.sides.compared_models import STEPS, Gpt, weights_of  # noqa: E402

Params = dict[str, jax.Array]


def _linear(p: Params, name: str, x: jax.Array) -> jax.Array:
    return x @ p[f"{name}.weight"] + p[f"{name}.bias"]


def _norm(p: Params, name: str, x: jax.Array) -> jax.Array:
    x = x - x.mean(-1, keepdims=True)
    scale = jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5)
    return x * scale * p[f"{name}.weight"] + p[f"{name}.bias"]


def _attention_layer(model: Gpt, p: Params, name: str, x: jax.Array, attention: str) -> jax.Array:
    heads = (*x.shape[:2], model.heads, model.hidden // model.heads)
    q, k, v = (each.reshape(heads) for each in jnp.split(_linear(p, f"{name}.qkv", x), 3, axis=-1))
    if attention == "op":
        mixed = jax.nn.dot_product_attention(q, k, v, is_causal=True)
    else:
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * heads[-1] ** -0.5
        seen = jnp.tri(model.sequence, dtype=bool)
        mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(jnp.where(seen, scores, -jnp.inf)), v)
    return _linear(p, f"{name}.output", mixed.reshape(x.shape))


def _loss_of(model: Gpt, attention: str, p: Params, tokens: jax.Array, labels: jax.Array) -> jax.Array:
    x = p["words.weight"][tokens] + p["places"]
    for i in range(model.layers):
        name = f"layers.{i}"
        x = x + _attention_layer(model, p, name, _norm(p, f"{name}.norm1", x), attention)
        wide = jax.nn.gelu(_linear(p, f"{name}.wide", _norm(p, f"{name}.norm2", x)))
        x = x + _linear(p, f"{name}.back", wide)
    rows = jax.nn.log_softmax(_norm(p, "norm", x) @ p["head.weight"])
    return -jnp.take_along_axis(rows, labels[..., None], axis=-1).mean()


def gpt(dtype: str, attention: str, **sizes: int) -> Callable[[], dict]:
    """``dtype`` of weights and activations; ``attention``: "op" or "parts"."""
    model = Gpt(**sizes)
    params = {name: jnp.asarray(value, dtype) for name, value in weights_of(model).items()}
    tokens, labels = map(jnp.asarray, model.batch())

    @partial(jax.jit, donate_argnums=0)
    def step(p: Params, tokens: jax.Array, labels: jax.Array) -> tuple[Params, jax.Array]:
        loss, gradients = jax.value_and_grad(partial(_loss_of, model, attention))(p, tokens, labels)
        return {name: p[name] - model.rate * gradients[name] for name in p}, loss

    def turn() -> dict:
        nonlocal params
        losses = []
        for _ in range(STEPS):
            params, loss = step(params, tokens, labels)
            losses.append(float(loss))
        jax.block_until_ready(params)
        return {"values": [losses]}

    return turn
