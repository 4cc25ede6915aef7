"""Losses of further models, each small: ``loss(params, batch)`` with data along the first dimension of a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

__all__ = ["MODELS", "Model", "train"]

Model = tuple[Callable[..., Any], Any, Any]


def normal(rng: np.random.Generator, *shape: int) -> Any:
    return rng.normal(0, 0.3, shape).astype(np.float32)


def cross_entropy(logits: Any, labels: Any) -> Any:
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], -1).mean()


def layer_norm(x: Any, p: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    var = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(var + 1e-5) * p["scale"] + p["bias"]


def norm_params(width: int) -> Any:
    return {"scale": np.ones(width, np.float32), "bias": np.zeros(width, np.float32)}


def attention(x: Any, p: Any, heads: int, *, memory: Any = None, causal: bool = False) -> Any:
    memory = x if memory is None else memory
    b, n, d = x.shape
    q, k, v = (
        (source @ p[name]).reshape(b, -1, heads, d // heads)
        for source, name in ((x, "q"), (memory, "k"), (memory, "v"))
    )
    scores = jnp.einsum("bnhe,bmhe->bhnm", q, k) / jnp.sqrt(d // heads)
    if causal:
        scores = jnp.where(jnp.arange(n)[:, None] >= jnp.arange(n), scores, -jnp.inf)
    return jnp.einsum("bhnm,bmhe->bnhe", jax.nn.softmax(scores), v).reshape(b, n, d) @ p["o"]


def attention_params(rng: np.random.Generator, d: int) -> Any:
    return {name: normal(rng, d, d) for name in "qkvo"}


def conv(x: Any, w: Any, stride: int = 1) -> Any:
    return lax.conv_general_dilated(
        x, w, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def batch_norm(x: Any, p: Any) -> Any:
    """Over the batch of all replicas."""
    mean = lax.pmean(x.mean((0, 1, 2)), "data")
    var = lax.pmean(((x - mean) ** 2).mean((0, 1, 2)), "data")
    return (x - mean) * lax.rsqrt(var + 1e-5) * p["scale"] + p["bias"]


def resnet(rng: np.random.Generator) -> Model:
    def block(x: Any, p: Any, stride: int) -> Any:
        y = jax.nn.relu(batch_norm(conv(x, p["conv1"], stride), p["norm1"]))
        y = batch_norm(conv(y, p["conv2"]), p["norm2"])
        return jax.nn.relu(y + (conv(x, p["skip"], stride) if "skip" in p else x))

    def loss(params: Any, batch: Any) -> Any:
        x = jax.nn.relu(batch_norm(conv(batch[0], params["stem"]), params["norm"]))
        x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "SAME")
        for p, stride in zip(params["blocks"], (1, 2), strict=True):
            x = block(x, p, stride)
        return cross_entropy(x.mean((1, 2)) @ params["head"], batch[1])

    def block_params(inputs: int, outputs: int) -> Any:
        p = {
            "conv1": normal(rng, 3, 3, inputs, outputs),
            "conv2": normal(rng, 3, 3, outputs, outputs),
            "norm1": norm_params(outputs),
            "norm2": norm_params(outputs),
        }
        return p | ({} if inputs == outputs else {"skip": normal(rng, 1, 1, inputs, outputs)})

    params = {
        "stem": normal(rng, 3, 3, 3, 4),
        "norm": norm_params(4),
        "blocks": [block_params(4, 4), block_params(4, 8)],
        "head": normal(rng, 8, 5),
    }
    return loss, params, (normal(rng, 16, 8, 8, 3), rng.integers(0, 5, 16).astype(np.int32))


def vit(rng: np.random.Generator) -> Model:
    def loss(params: Any, batch: Any) -> Any:
        x = (
            batch[0].reshape(-1, 2, 4, 2, 4, 3).transpose(0, 1, 3, 2, 4, 5).reshape(-1, 4, 48)
            @ params["patch"]
        )
        x = (
            jnp.concatenate([jnp.broadcast_to(params["class"], (x.shape[0], 1, 8)), x], 1)
            + params["position"]
        )
        x = x + attention(layer_norm(x, params["norm1"]), params["attention"], 2)
        x = x + jax.nn.gelu(layer_norm(x, params["norm2"]) @ params["up"], approximate=False) @ params["down"]
        return cross_entropy(x[:, 0] @ params["head"], batch[1])

    params = {
        "patch": normal(rng, 48, 8),
        "class": normal(rng, 8),
        "position": normal(rng, 5, 8),
        "attention": attention_params(rng, 8),
        "norm1": norm_params(8),
        "norm2": norm_params(8),
        "up": normal(rng, 8, 16),
        "down": normal(rng, 16, 8),
        "head": normal(rng, 8, 5),
    }
    return loss, params, (normal(rng, 16, 8, 8, 3), rng.integers(0, 5, 16).astype(np.int32))


def llama(rng: np.random.Generator) -> Model:
    """Rotary positions, grouped queries, SwiGLU."""

    def rotated(x: Any) -> Any:
        half = x.shape[-1] // 2
        angles = jnp.arange(x.shape[1])[:, None] * 10.0 ** (-jnp.arange(half) / half)
        sin, cos = jnp.sin(angles)[:, None], jnp.cos(angles)[:, None]
        a, b = jnp.split(x, 2, -1)
        return jnp.concatenate([a * cos - b * sin, a * sin + b * cos], -1)

    def rms(x: Any, scale: Any) -> Any:
        return x * lax.rsqrt((x**2).mean(-1, keepdims=True) + 1e-5) * scale

    def loss(params: Any, batch: Any) -> Any:
        x = params["embedding"][batch[0]]
        n = x.shape[1]
        y = rms(x, params["scale1"])
        q = rotated((y @ params["q"]).reshape(-1, n, 4, 4))
        k = jnp.repeat(rotated((y @ params["k"]).reshape(-1, n, 2, 4)), 2, axis=2)
        v = jnp.repeat((y @ params["v"]).reshape(-1, n, 2, 4), 2, axis=2)
        scores = jnp.einsum("bnhe,bmhe->bhnm", q, k) / 2
        scores = jnp.where(jnp.tril(jnp.ones((n, n), bool)), scores, -1e9)
        x = x + jnp.einsum("bhnm,bmhe->bnhe", jax.nn.softmax(scores), v).reshape(-1, n, 16) @ params["o"]
        y = rms(x, params["scale2"])
        x = x + (jax.nn.silu(y @ params["gate"]) * (y @ params["up"])) @ params["down"]
        return cross_entropy(x @ params["embedding"].T, batch[1])

    shapes = {"q": (16, 16), "k": (16, 8), "v": (16, 8), "o": (16, 16), "gate": (16, 24), "up": (16, 24)}
    params = {name: normal(rng, *shape) for name, shape in shapes.items()}
    params |= {"down": normal(rng, 24, 16), "embedding": normal(rng, 12, 16)}
    params |= {"scale1": np.ones(16, np.float32), "scale2": np.ones(16, np.float32)}
    return loss, params, tuple(rng.integers(0, 12, (16, 6)).astype(np.int32) for _ in range(2))


def bert(rng: np.random.Generator) -> Model:
    """Masked tokens, with padding."""

    def loss(params: Any, batch: Any) -> Any:
        tokens, labels = batch
        x = layer_norm(params["embedding"][tokens] + params["position"], params["norm"])
        x = layer_norm(x + attention(x, params["attention"], 2), params["norm1"])
        x = layer_norm(x + jax.nn.gelu(x @ params["up"]) @ params["down"], params["norm2"])
        logp = jax.nn.log_softmax(x @ params["embedding"].T)
        picked = jnp.take_along_axis(logp, jnp.maximum(labels, 0)[..., None], -1)[..., 0]
        wanted = labels >= 0
        return -jnp.where(wanted, picked, 0).sum() / jnp.maximum(wanted.sum(), 1)

    params = {
        "embedding": normal(rng, 12, 8),
        "position": normal(rng, 6, 8),
        "attention": attention_params(rng, 8),
        "up": normal(rng, 8, 16),
        "down": normal(rng, 16, 8),
        **{name: norm_params(8) for name in ("norm", "norm1", "norm2")},
    }
    return (
        loss,
        params,
        (
            rng.integers(0, 12, (16, 6)).astype(np.int32),
            rng.integers(-4, 12, (16, 6)).astype(np.int32),
        ),
    )


def t5(rng: np.random.Generator) -> Model:
    """An encoder, and a decoder that attends to it, with biases by distance."""

    def loss(params: Any, batch: Any) -> Any:
        memory = params["embedding"][batch[0]]
        memory = memory + attention(memory, params["encoder"], 2)
        x = params["embedding"][batch[1]]
        distance = jnp.clip(jnp.arange(5)[:, None] - jnp.arange(5), 0, 3)
        x = x + attention(x, params["self"], 2, causal=True) + params["bias"][distance].sum(0)
        x = x + attention(x, params["cross"], 2, memory=memory)
        x = x + jax.nn.relu(x @ params["up"]) @ params["down"]
        return cross_entropy(x @ params["embedding"].T, batch[1])

    params = {
        "embedding": normal(rng, 12, 8),
        "bias": normal(rng, 4, 8),
        "up": normal(rng, 8, 16),
        "down": normal(rng, 16, 8),
        **{name: attention_params(rng, 8) for name in ("encoder", "self", "cross")},
    }
    return loss, params, tuple(rng.integers(0, 12, (16, n)).astype(np.int32) for n in (6, 5))


def experts(rng: np.random.Generator) -> Model:
    """A mixture of experts, two for each replica, to which tokens go and come back by all_to_all."""

    def loss(params: Any, batch: Any) -> Any:
        x = batch[0] @ params["in"]
        weights = jax.nn.softmax(x @ params["router"])
        size = lax.axis_size("data")
        best = jnp.argmax(weights, -1)
        mine = jax.nn.one_hot(best, params["router"].shape[1]) * weights
        sent = jnp.einsum("nr,nd->rnd", mine, x)
        got = lax.all_to_all(sent, "data", 0, 1, tiled=True)
        at = lax.axis_index("data") * (params["router"].shape[1] // size)
        local = [
            lax.dynamic_slice_in_dim(params[name], at, params["router"].shape[1] // size)
            for name in ("up", "down")
        ]
        y = jnp.einsum("etd,edf->etf", got, local[0])
        y = jnp.einsum("etf,efd->etd", jax.nn.relu(y), local[1])
        back = lax.all_to_all(y, "data", 1, 0, tiled=True).sum(0)
        return cross_entropy((x + back) @ params["out"], batch[1])

    params = {
        "in": normal(rng, 6, 8),
        "router": normal(rng, 8, 16),
        "up": normal(rng, 16, 8, 8),
        "down": normal(rng, 16, 8, 8),
        "out": normal(rng, 8, 5),
    }
    return loss, params, (normal(rng, 32, 6), rng.integers(0, 5, 32).astype(np.int32))


def lstm(rng: np.random.Generator) -> Model:
    def loss(params: Any, batch: Any) -> Any:
        x = params["embedding"][batch[0]].transpose(1, 0, 2)

        def cell(state: Any, x: Any) -> Any:
            h, c = state
            i, f, g, o = jnp.split(x @ params["w"] + h @ params["u"] + params["b"], 4, -1)
            c = jax.nn.sigmoid(f + 1) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        zero = jnp.zeros((x.shape[1], 8))
        _, hidden = lax.scan(cell, (zero, zero), x)
        return cross_entropy(hidden.transpose(1, 0, 2) @ params["out"], batch[1])

    params = {
        "embedding": normal(rng, 12, 6),
        "w": normal(rng, 6, 32),
        "u": normal(rng, 8, 32),
        "b": np.zeros(32, np.float32),
        "out": normal(rng, 8, 12),
    }
    return loss, params, tuple(rng.integers(0, 12, (16, 7)).astype(np.int32) for _ in range(2))


def unet(rng: np.random.Generator) -> Model:
    """Diffusion: the noise of an image at a time, with group norms, a skip and nearest upsampling."""

    def group_norm(x: Any, p: Any) -> Any:
        g = x.reshape(*x.shape[:3], 2, -1)
        mean = g.mean((1, 2, 4), keepdims=True)
        var = ((g - mean) ** 2).mean((1, 2, 4), keepdims=True)
        return ((g - mean) * lax.rsqrt(var + 1e-5)).reshape(x.shape) * p["scale"] + p["bias"]

    def loss(params: Any, batch: Any) -> Any:
        image, noise, time = batch
        angle = time[:, None] * jnp.exp(-jnp.arange(4.0))
        embedding = jnp.concatenate([jnp.sin(angle), jnp.cos(angle)], -1) @ params["time"]
        keep = jnp.cos(time)[:, None, None, None] ** 2
        x = jnp.sqrt(keep) * image + jnp.sqrt(1 - keep) * noise
        first = jax.nn.silu(group_norm(conv(x, params["in"]), params["norm1"]) + embedding[:, None, None])
        low = jax.nn.silu(group_norm(conv(first, params["down"], 2), params["norm2"]))
        up = jnp.repeat(jnp.repeat(low, 2, 1), 2, 2)
        return ((conv(jnp.concatenate([up, first], -1), params["out"]) - noise) ** 2).mean()

    params = {
        "time": normal(rng, 8, 4),
        "in": normal(rng, 3, 3, 3, 4),
        "down": normal(rng, 3, 3, 4, 8),
        "out": normal(rng, 3, 3, 12, 3),
        "norm1": norm_params(4),
        "norm2": norm_params(8),
    }
    images = normal(rng, 16, 8, 8, 3), normal(rng, 16, 8, 8, 3)
    return loss, params, (*images, rng.uniform(0, 1.5, 16).astype(np.float32))


def word2vec(rng: np.random.Generator) -> Model:
    """Skip-gram with negative samples."""

    def loss(params: Any, batch: Any) -> Any:
        centre, context, negative = batch
        x = params["in"][centre]
        near = (x * params["out"][context]).sum(-1)
        far = jnp.einsum("bd,bkd->bk", x, params["out"][negative])
        return -(jax.nn.log_sigmoid(near) + jax.nn.log_sigmoid(-far).sum(-1)).mean()

    params = {"in": normal(rng, 20, 6), "out": normal(rng, 20, 6)}
    shapes = (16,), (16,), (16, 3)
    return loss, params, tuple(rng.integers(0, 20, shape).astype(np.int32) for shape in shapes)


MODELS: dict[str, Callable[[np.random.Generator], Model]] = {
    "ResNet": resnet,
    "ViT": vit,
    "LLaMA": llama,
    "BERT": bert,
    "T5": t5,
    "mixture of experts": experts,
    "LSTM": lstm,
    "diffusion U-Net": unet,
    "word2vec": word2vec,
}


def train(loss: Callable[..., Any], forgets: bool = False, summed: str | None = None) -> Callable[..., Any]:
    """A step with the norm of all gradients clipped, momentum and decay, as a chain of transformations.

    Bugs: gradients without their means, or the sum of one of them.
    """

    def mean(path: Any, g: Any) -> Any:
        return lax.psum(g, "data") if jax.tree_util.keystr(path) == summed else lax.pmean(g, "data")

    def step(params: Any, momentum: Any, batch: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(params, batch)
        if not forgets:
            grads = jax.tree_util.tree_map_with_path(mean, grads)
        norm = jnp.sqrt(sum((g * g).sum() for g in jax.tree.leaves(grads)))
        grads = jax.tree.map(lambda g: g * jnp.minimum(1.0, 1.0 / (norm + 1e-6)), grads)
        momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, grads)
        params = jax.tree.map(lambda p, m: p - 0.05 * (m + 0.01 * p), params, momentum)
        return params, momentum, lax.pmean(value, "data")

    return step
