"""Training steps as users of JAX write them: plain functions with ``jax.lax`` collectives."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

__all__ = [
    "adamw",
    "gpt",
    "gpt_parallel_step",
    "gpt_params",
    "gpt_specs",
    "gpt_state",
    "gpt_step",
    "mlp_params",
    "mlp_step",
    "state_specs",
    "tokens",
]


# A multi-layer perceptron, data parallel


def mlp_params(seed: int = 0, sizes: tuple[int, ...] = (6, 16, 16, 4)) -> Any:
    rng = np.random.default_rng(seed)
    return [
        {"w": rng.normal(0, n**-0.5, (n, m)).astype(np.float32), "b": np.zeros(m, np.float32)}
        for n, m in itertools.pairwise(sizes)
    ]


def mlp_loss(params: Any, x: Any, y: Any) -> Any:
    for layer in params[:-1]:
        x = jax.nn.relu(x @ layer["w"] + layer["b"])
    logits = x @ params[-1]["w"] + params[-1]["b"]
    picked = jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1)
    return -picked.mean()


def mlp_step(params: Any, x: Any, y: Any, forgotten: tuple[int, str] | None = None) -> Any:
    """SGD. One gradient may miss its mean."""
    loss, grads = jax.value_and_grad(mlp_loss)(params, x, y)
    mean = jax.tree.map(lambda g: lax.pmean(g, "data"), grads)
    if forgotten is not None:
        layer, name = forgotten
        mean[layer][name] = grads[layer][name]
    new = jax.tree.map(lambda p, g: p - 0.1 * g, params, mean)
    return new, lax.pmean(loss, "data")


# A small GPT, its layers stacked for a scan

VOCABULARY, WIDTH, HEADS, LAYERS, LENGTH = 32, 16, 4, 3, 8


def gpt_params(seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)

    def normal(*shape: int) -> Any:
        return rng.normal(0, 0.1, shape).astype(np.float32)

    return {
        "embedding": normal(VOCABULARY, WIDTH),
        "position": normal(LENGTH, WIDTH),
        "blocks": {
            "scale1": np.ones((LAYERS, WIDTH), np.float32),
            "qkv": normal(LAYERS, 3, WIDTH, HEADS, WIDTH // HEADS),
            "out": normal(LAYERS, HEADS, WIDTH // HEADS, WIDTH),
            "scale2": np.ones((LAYERS, WIDTH), np.float32),
            "up": normal(LAYERS, WIDTH, 4 * WIDTH),
            "bias": np.zeros((LAYERS, 4 * WIDTH), np.float32),
            "down": normal(LAYERS, 4 * WIDTH, WIDTH),
        },
        "scale": np.ones(WIDTH, np.float32),
    }


def gpt_specs(axis: str | None) -> Any:
    """Heads and the inner width of each block are cut over an axis."""
    from jax.sharding import PartitionSpec as P

    if axis is None:
        return jax.tree.map(lambda _: P(), gpt_params())
    cut = {
        "qkv": P(None, None, None, axis),
        "out": P(None, axis),
        "up": P(None, None, axis),
        "bias": P(None, axis),
        "down": P(None, axis),
    }
    whole = jax.tree.map(lambda _: P(), gpt_params())
    return {**whole, "blocks": {**whole["blocks"], **cut}}


def rms_norm(x: Any, scale: Any) -> Any:
    return x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * scale


def block(x: Any, p: Any, axis: str | None, forgotten: str | None) -> Any:
    q, k, v = jnp.einsum("bld,cdhe->cblhe", rms_norm(x, p["scale1"]), p["qkv"])
    scores = jnp.einsum("blhe,bmhe->bhlm", q, k) * q.shape[-1] ** -0.5
    mask = jnp.tril(jnp.ones((x.shape[1], x.shape[1]), bool))
    weights = jax.nn.softmax(jnp.where(mask, scores, -1e9), axis=-1)
    mixed = jnp.einsum("bhlm,bmhe,hed->bld", weights, v, p["out"])
    if axis is not None and forgotten != "attention":
        mixed = lax.psum(mixed, axis)
    x = x + mixed
    inner = jax.nn.gelu(rms_norm(x, p["scale2"]) @ p["up"] + p["bias"])
    mlp = inner @ p["down"]
    if axis is not None and forgotten != "mlp":
        mlp = lax.psum(mlp, axis)
    return x + mlp


def gpt(params: Any, tokens: Any, labels: Any, axis: str | None = None, forgotten: str | None = None) -> Any:
    x = params["embedding"][tokens] + params["position"]
    x, _ = lax.scan(lambda x, p: (block(x, p, axis, forgotten), None), x, params["blocks"])
    logits = rms_norm(x, params["scale"]) @ params["embedding"].T
    logp = jax.nn.log_softmax(logits)
    return -jnp.take_along_axis(logp, labels[..., None], -1).mean()


def adamw(params: Any, m: Any, v: Any, grads: Any, count: Any) -> Any:
    m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, grads)
    v = jax.tree.map(lambda v, g: 0.95 * v + 0.05 * g * g, v, grads)
    scale1, scale2 = 1 / (1 - 0.9**count), 1 / (1 - 0.95**count)

    def update(p: Any, m: Any, v: Any) -> Any:
        return p - 0.01 * (m * scale1 / (jnp.sqrt(v * scale2) + 1e-3) + 0.1 * p)

    return jax.tree.map(update, params, m, v), m, v


def gpt_step(state: Any, tokens: Any, labels: Any, forgotten: str | None = None) -> Any:
    """Data parallel, with means of gradients by hand; ``forgotten`` is the name of one that misses its mean."""
    loss, grads = jax.value_and_grad(gpt)(state["params"], tokens, labels)
    mean = jax.tree.map(lambda g: lax.pmean(g, "data"), grads)
    if forgotten is not None:
        mean["blocks"][forgotten] = grads["blocks"][forgotten]
    count = state["count"] + 1
    params, m, v = adamw(state["params"], state["m"], state["v"], mean, count.astype(jnp.float32))
    return {"params": params, "m": m, "v": v, "count": count}, lax.pmean(loss, "data")


def gpt_parallel_step(state: Any, tokens: Any, labels: Any) -> Any:
    """Data and tensor parallel, where JAX adds the sums of gradients (``check_vma=True``)."""

    def loss_of(params: Any) -> Any:
        return lax.pmean(gpt(params, tokens, labels, "model"), "data")

    loss, grads = jax.value_and_grad(loss_of)(state["params"])
    count = state["count"] + 1
    params, m, v = adamw(state["params"], state["m"], state["v"], grads, count.astype(jnp.float32))
    return {"params": params, "m": m, "v": v, "count": count}, loss


def gpt_state(seed: int = 0) -> Any:
    params = gpt_params(seed)
    zeros = jax.tree.map(np.zeros_like, params)
    return {"params": params, "m": zeros, "v": zeros, "count": np.int32(0)}


def state_specs(axis: str | None = None) -> Any:
    from jax.sharding import PartitionSpec as P

    specs = gpt_specs(axis)
    return {"params": specs, "m": specs, "v": specs, "count": P()}


def tokens(batch: int, seed: int = 1) -> Any:
    rng = np.random.default_rng(seed)
    return [rng.integers(0, VOCABULARY, (batch, LENGTH)).astype(np.int32) for _ in range(2)]
