"""Beginnings and ends of random steps: where activations come from, and the sum of losses of a replica."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

from tests_py.bridge.same.random_steps.layers import WIDTH
from tests_py.bridge.same.random_steps.plan import Plan, rank, size

__all__ = ["CLASSES", "End", "embedding", "end_of"]

CLASSES = 8


def embedding(plan: Plan) -> tuple[Callable[[Any, Any], Any], str]:
    """Activations of tokens, from a table that is cut over rows or not; and the name of the table."""
    forms = ["whole", "rows", "rows"] if plan.has("model") else ["whole"]
    form = plan.form("table", *forms)
    table = plan.weight("table", CLASSES, WIDTH, spec=P("model" if form == "rows" else None))

    def embed(p: Any, x: Any) -> Any:
        if form == "whole":
            found = p[table][x]
            return plan.own_positions(found, "model") if plan.sharded_norms else found
        part = p[table].shape[0]
        local = x - rank("model") * part
        mine = (local >= 0) & (local < part)
        return plan.leave(jnp.where(mine[..., None], p[table][jnp.clip(local, 0, part - 1)], 0.0))

    return embed, table


@dataclass(frozen=True)
class End:
    """Loss of activations.

    Attributes:
        losses: sum of the losses of a replica's positions, and how many count, from weights, activations and labels.
        copies: axes whose replicas all have the same losses.
        labels: "classes", "width" or "none".
        axis: of the mesh over which positions of labels are cut.
        varying: axes of the copies along which JAX takes the losses to vary.
    """

    losses: Callable[[Any, Any, Any], tuple[Any, Any]]
    copies: tuple[str, ...]
    labels: str
    axis: str | None
    varying: tuple[str, ...] = ()


def end_of(plan: Plan, table: str | None) -> End:
    """Squared errors, a cross entropy in one of its forms, or one among the examples of all replicas."""
    kinds = ["squares", "classes", "classes"]
    if plan.time is None:
        kinds.append("contrast")
    kind = plan.form("loss", *kinds)
    copies = tuple(
        axis for axis in plan.mesh if axis == "pipe" or (axis == "model" and not plan.sharded_norms)
    )
    if kind == "squares":
        return End(
            lambda p, h, y: (((h - y) ** 2).mean(-1).sum(), y[..., 0].size), copies, "width", plan.time
        )
    if kind == "contrast":
        return End(_contrast(plan), copies, "none", None)
    return _classes(plan, copies, table)


def _contrast(plan: Plan) -> Any:
    a, b = (plan.weight(name, WIDTH, 3) for name in ("left", "right"))

    def losses(p: Any, h: Any, y: Any) -> tuple[Any, Any]:
        middle = h.mean(1)
        left, right, first = middle @ p[a], middle @ p[b], 0
        for axis in reversed(plan.batch):
            right = lax.all_gather(right, axis, tiled=True)
        for axis in plan.batch:
            first = first * size(axis) + rank(axis)
        rows = jnp.arange(left.shape[0])
        logs = jax.nn.log_softmax(left @ right.T, -1)
        return -logs[rows, rows + first * left.shape[0]].sum(), left.shape[0]

    return losses


def _classes(plan: Plan, copies: tuple[str, ...], table: str | None) -> End:
    """Cross entropy of classes that are cut over ``model``, gathered, or whole; labels below 0 do not count."""
    tied = table is not None and plan.chance(0.4)
    over = "model" if plan.has("model") else None
    if tied:
        assert table is not None
        plan.words.append("tied")
        cut = bool(plan.cut_axes(table))
        name = table
    else:
        cut = over is not None and plan.chance(0.7)
        name = plan.weight("out", CLASSES, WIDTH, spec=P(over if cut else None))
    form = plan.form("entropy", "local", "gathered") if cut and plan.way != "layers" else "local"
    scale = 0.01 if plan.chance(0.3) else 0.0
    whole_time = cut and plan.sharded_norms  # then each replica of model has all positions
    axes = None if whole_time else plan.time

    def entropies(p: Any, h: Any, y: Any) -> Any:
        """Logarithm of the sum of exponentials, and the score of the label."""
        part, label = p[name].shape[0], jnp.maximum(y, 0)
        if not cut or form == "gathered":
            logits = (plan.enter(h) if cut else h) @ p[name].T
            logits = lax.all_gather(logits, "model", axis=2, tiled=True) if cut else logits
            total = jax.nn.logsumexp(logits, -1)
            return total, jnp.take_along_axis(logits, label[..., None], -1)[..., 0]
        logits = plan.enter(h) @ p[name].T
        top = lax.pmax(lax.stop_gradient(logits.max(-1)), "model")
        total = jnp.log(plan.total(jnp.exp(logits - top[..., None]).sum(-1))) + top
        local = label - rank("model") * part
        mine = (local >= 0) & (local < part)
        at = jnp.take_along_axis(logits, jnp.clip(local, 0, part - 1)[..., None], -1)[..., 0]
        return total, plan.total(jnp.where(mine, at, 0.0))

    def losses(p: Any, h: Any, y: Any) -> tuple[Any, Any]:
        total, score = entropies(p, h, y)
        each = total - score + scale * total**2
        return jnp.where(y >= 0, each, 0.0).sum(), (y >= 0).sum()

    copies = (*copies, "model") if whole_time else copies
    return End(losses, copies, "classes", axes, ("model",) if form == "gathered" else ())
