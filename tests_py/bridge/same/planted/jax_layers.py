"""Parts that several steps share: collectives with a backward pass of their own, attention."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

__all__ = ["attend", "copy_to", "heads", "nll", "norm", "sgd", "size_of", "sum_from"]


def size_of(axis: Any) -> Any:
    """Replicas along an axis of the mesh, a number that is known while JAX traces."""
    return lax.psum(1, axis)


def copy_to(x: Any, axis: Any) -> Any:
    """The input of a column-parallel layer: itself forward, a sum of gradients backward (Megatron's f)."""

    @jax.custom_vjp
    def copy(x: Any) -> Any:
        return x

    copy.defvjp(lambda x: (x, None), lambda _, g: (lax.psum(g, axis),))
    return copy(x)


def sum_from(x: Any, axis: Any) -> Any:
    """The output of a row-parallel layer: a sum forward, the gradient itself backward (Megatron's g)."""

    @jax.custom_vjp
    def total(x: Any) -> Any:
        return lax.psum(x, axis)

    total.defvjp(lambda x: (lax.psum(x, axis), None), lambda _, g: (g,))
    return total(x)


def norm(x: Any, g: Any) -> Any:
    """Layer normalisation of the last axis."""
    return (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5) * g


def heads(x: Any, w: Any) -> Any:
    """Queries, keys or values of each head: (batch, time, width) by (head, width, part)."""
    return jnp.einsum("btd,hdk->bhtk", x, w)


def attend(q: Any, k: Any, v: Any, scale: Any, bias: Any = 0.0) -> Any:
    """Causal attention of each head."""
    scores = jnp.einsum("bhtk,bhsk->bhts", q, k) * scale + bias
    mask = np.tril(np.ones(scores.shape[-2:], bool))
    return jnp.einsum("bhts,bhsk->bhtk", jax.nn.softmax(jnp.where(mask, scores, -1e30), -1), v)


def nll(logits: Any, y: Any) -> Any:
    """Cross entropy of each label."""
    return -jnp.take_along_axis(jax.nn.log_softmax(logits, -1), y[..., None], -1)[..., 0]


def sgd(p: Any, g: Any, rate: Any = 0.1) -> Any:
    """New weights after a step of gradient descent."""
    return jax.tree.map(lambda w, d: w - rate * d, p, g)
