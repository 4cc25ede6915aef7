"""A training step of Llama 3 405B in JAX: its mesh has axes for data, for parts of weights ("fsdp") and for heads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P

from bench.programs.same_step import cross_entropy
from tests_py.bridge.same.planted.jax_layers import copy_to, sum_from

__all__ = ["Llama", "step_of"]


@dataclass(frozen=True)
class Llama:
    """Sizes of the model, its batch and its mesh.

    Attributes:
        wrong: gradients of gathered weights are sums over "fsdp" and means over "data", a line that is wrong alike.
    """

    layers: int = 126
    hidden: int = 16384
    heads: int = 128
    kv_heads: int = 8
    head: int = 128
    wide: int = 53248
    vocabulary: int = 128256
    samples: int = 2048
    sequence: int = 8192
    data: int = 8
    model: int = 8
    fsdp: int = 2
    wrong: bool = False


def step_of(sizes: Llama) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The step, its arguments by shapes alone, and the options of ``popsr.prove``."""

    def whole(w: Any, axis: int) -> Any:
        """Weights whose rows lie on the places of "fsdp"; their gradients are summed and cut."""
        return lax.all_gather(w, "fsdp", axis=axis, tiled=True)

    def norm(x: Any, gain: Any) -> Any:
        return x * lax.rsqrt((x**2).mean(-1, keepdims=True) + 1e-5) * gain

    def rotated(x: Any) -> Any:
        """Rotary positions of [samples, tokens, heads, head]."""
        half = x.shape[-1] // 2
        rates = 500000.0 ** (-jnp.arange(half) / half)
        angles = jnp.arange(x.shape[1])[:, None, None] * rates
        a, b = x[..., :half], x[..., half:]
        return jnp.concatenate(
            [a * jnp.cos(angles) - b * jnp.sin(angles), a * jnp.sin(angles) + b * jnp.cos(angles)], -1
        )

    def block(h: Any, p: Any) -> tuple[Any, None]:
        a = copy_to(norm(h, p["gain1"]), "model")
        q, k, v = (jnp.einsum("btd,dhk->bthk", a, whole(p[name], 0)) for name in "qkv")
        q, k = rotated(q), rotated(k)
        k, v = (jnp.repeat(each, q.shape[2] // each.shape[2], 2) for each in (k, v))
        scores = jnp.einsum("bthk,bshk->bhts", q, k) / np.sqrt(q.shape[-1])
        tokens = jnp.arange(h.shape[1])
        weights = jax.nn.softmax(jnp.where(tokens[:, None] >= tokens, scores, -1e30), -1)
        mixed = jnp.einsum("bhts,bshk->bthk", weights, v)
        h = h + sum_from(jnp.einsum("bthk,hkd->btd", mixed, whole(p["out"], 2)), "model")
        a = copy_to(norm(h, p["gain2"]), "model")
        up = jax.nn.silu(a @ whole(p["gate"], 0)) * (a @ whole(p["up"], 0))
        return h + sum_from(up @ whole(p["down"], 1), "model"), None

    def loss_of(params: Any, x: Any, y: Any) -> Any:
        h = whole(params["words"], 1)[x]
        h, _ = lax.scan(block, h, params["layers"])
        scores = copy_to(norm(h, params["gain"]), "model") @ whole(params["head"], 0)
        return cross_entropy(scores, y)

    def reduced(path: Any, gradient: Any) -> Any:
        """The mean over the batch; gradients of gathered weights are summed over "fsdp" already."""
        if "gain" in str(path[-1]):
            return lax.pmean(gradient, ("data", "fsdp"))
        return lax.pmean(gradient, "data") / (1 if sizes.wrong else lax.axis_size("fsdp"))

    def step(params: Any, first: Any, second: Any, count: Any, x: Any, y: Any) -> Any:
        loss, gradients = jax.value_and_grad(loss_of)(params, x, y)
        gradients = jax.tree_util.tree_map_with_path(reduced, gradients)
        count = count + 1
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradients)
        second = jax.tree.map(lambda m, g: 0.95 * m + 0.05 * g**2, second, gradients)

        def new(w: Any, m: Any, v: Any) -> Any:
            return w - 8e-5 * (m / (1 - 0.9**count) / (jnp.sqrt(v / (1 - 0.95**count)) + 1e-8) + 0.1 * w)

        params = jax.tree.map(new, params, first, second)
        return params, first, second, count, lax.pmean(loss, ("data", "fsdp"))

    def of(*shape: int, dtype: Any = np.float32) -> Any:
        return jax.ShapeDtypeStruct(shape, dtype)

    d, wide, head = sizes.hidden, sizes.wide, sizes.head
    layer = {
        "gain1": (of(d), P()),
        "gain2": (of(d), P()),
        "q": (of(d, sizes.heads, head), P("fsdp", "model")),
        "k": (of(d, sizes.kv_heads, head), P("fsdp", "model")),
        "v": (of(d, sizes.kv_heads, head), P("fsdp", "model")),
        "out": (of(sizes.heads, head, d), P("model", None, "fsdp")),
        "gate": (of(d, wide), P("fsdp", "model")),
        "up": (of(d, wide), P("fsdp", "model")),
        "down": (of(wide, d), P("model", "fsdp")),
    }
    stacked = {name: (of(sizes.layers, *each.shape), P(None, *spec)) for name, (each, spec) in layer.items()}
    outer = {
        "words": (of(sizes.vocabulary, d), P(None, "fsdp")),
        "gain": (of(d), P()),
        "head": (of(d, sizes.vocabulary), P("fsdp", "model")),
    }
    params, specs = (
        {
            **{name: both[i] for name, both in outer.items()},
            "layers": {name: both[i] for name, both in stacked.items()},
        }
        for i in (0, 1)
    )
    batch = of(sizes.samples, sizes.sequence, dtype=np.int32)
    rows = P(("data", "fsdp"))
    options = {
        "mesh": {"data": sizes.data, "model": sizes.model, "fsdp": sizes.fsdp},
        "in_specs": (specs, specs, specs, P(), rows, rows),
        "out_specs": (specs, specs, specs, P(), P()),
        "check_vma": False,
    }
    return step, (params, params, params, np.int32(0), batch, batch), options
