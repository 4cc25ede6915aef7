"""Ends of random steps: gradients summed over copies in several spellings, clipped, and given to an optimiser."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P

from tests_py.bridge.same.random_steps.plan import Plan, rank, size

__all__ = ["Optimiser", "reduction"]

Grads = dict[str, Any]


def reduction(plan: Plan) -> Callable[[Grads], Grads]:
    """Sums of the gradients of copies of weights."""
    if plan.way == "typed":
        return lambda g: g
    spellings = [*_SPELLINGS] if plan.chance(0.7) else ["sum"]
    chosen = {name: plan.one_of(*spellings) for name in plan.weights}
    plan.words.append("gradients: " + ", ".join(sorted({*chosen.values()})))
    axes = {name: _axes_of(plan, name) for name in plan.weights}
    return lambda g: {
        name: _SPELLINGS[chosen[name]](t, axes[name]) if axes[name] else t for name, t in g.items()
    }


def _axes_of(plan: Plan, name: str) -> tuple[str, ...]:
    """Axes over which copies of a weight have parts of its gradient."""
    cut = plan.cut_axes(name)
    parts = plan.mesh if plan.way == "linear" else (*plan.batch, "seq", *plan.inside[name])
    return tuple(axis for axis in plan.mesh if axis in parts and axis not in cut)


def _by_axis(t: Any, axes: tuple[str, ...]) -> Any:
    return functools.reduce(lax.psum, axes, t)


def _scattered(t: Any, axes: tuple[str, ...]) -> Any:
    """Sums of parts, gathered again, as of ZeRO."""
    flat = t.reshape(-1)
    for axis in axes:
        short = -len(flat) % size(axis)
        part = lax.psum_scatter(jnp.pad(flat, (0, short)), axis, tiled=True)
        flat = lax.all_gather(part, axis, tiled=True)[: flat.size]
    return flat.reshape(t.shape)


_SPELLINGS: dict[str, Callable[[Any, tuple[str, ...]], Any]] = {
    "sum": lax.psum,
    "mean": lambda t, axes: lax.pmean(t, axes) * size(axes),
    "by axis": _by_axis,
    "scattered": _scattered,
    "gathered": lambda t, axes: lax.all_gather(t, axes[0]).sum(0) if len(axes) == 1 else lax.psum(t, axes),
}


# Optimisers


class Optimiser:
    """An optimiser as it is drawn.

    Attributes:
        names: of its states, as arguments of the step.
        states: their values.
        specs: how they lie on the mesh.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.kind = plan.form("optimiser", "sgd", "momentum", "adam")
        self.decay = plan.one_of(0.0, 0.0, 0.1)
        self.clip = plan.form("clip", *["none"] * 5, "minimum", "where")
        self.sharded = plan.has("data") and plan.way != "typed" and plan.chance(0.3)
        if self.sharded:
            plan.words.append("sharded moments")
        moments = {name: np.abs(plan.rng.normal(size=w.shape)) for name, w in plan.weights.items()}
        specs = {name: self._spec(name) for name in plan.weights}
        count = {"sgd": 0, "momentum": 1, "adam": 2}[self.kind]
        self.names = ["p", "m", "v"][: 1 + count]
        self.states: list[Any] = [dict(plan.weights), moments, moments][: 1 + count]
        self.specs: list[Any] = [dict(plan.specs), specs, specs][: 1 + count]
        if self.kind == "adam":
            self.names, self.states, self.specs = (
                [*self.names, "count"],
                [*self.states, np.int32(3)],
                [*self.specs, P()],
            )

    def _spec(self, name: str) -> Any:
        """Spec of a weight's moments: also cut over ``data`` where that divides their rows."""
        spec, shape = self.plan.specs[name], self.plan.weights[name].shape
        rows_cut = bool(spec) and spec[0] is not None
        if not self.sharded or rows_cut or shape[0] % self.plan.static("data"):
            return spec
        return P("data", *spec[1:])

    def apply(self, states: list[Any], grads: Grads) -> list[Any]:
        """New states."""
        grads = self._clipped(grads)
        count = states[-1] + 1 if self.kind == "adam" else None
        moments = states[1 : 2 if self.kind == "momentum" else 3] if self.kind != "sgd" else []
        new: list[dict[str, Any]] = [{} for _ in (0, *moments)]
        for name, w in states[0].items():
            own = [each[name] for each in moments]
            cut = self.kind != "sgd" and self._spec(name) != self.plan.specs[name]
            mine = self._rows if cut else lambda t: t
            made = self._one(mine(w), mine(grads[name]), own, count)
            made[0] = lax.all_gather(made[0], "data", tiled=True) if cut else made[0]
            for each, value in zip(new, made, strict=True):
                each[name] = value
        return [*new, *([] if count is None else [count])]

    def _rows(self, t: Any) -> Any:
        part = t.shape[0] // size("data")
        return lax.dynamic_slice_in_dim(t, rank("data") * part, part, 0)

    def _one(self, w: Any, g: Any, own: list[Any], count: Any) -> list[Any]:
        kept = w * (1 - 0.1 * self.decay)
        if self.kind == "sgd":
            return [kept - 0.1 * g]
        if self.kind == "momentum":
            m = 0.9 * own[0] + g
            return [kept - 0.1 * m, m]
        m, v = 0.9 * own[0] + 0.1 * g, 0.99 * own[1] + 0.01 * g**2
        ahead = (m / (1 - 0.9**count)) / (jnp.sqrt(v / (1 - 0.99**count)) + 1e-3)
        return [kept - 0.1 * ahead, m, v]

    def _clipped(self, grads: Grads) -> Grads:
        if self.clip == "none":
            return grads
        squares = jnp.zeros(())
        for axes in dict.fromkeys(map(self.plan.cut_axes, grads)):
            own = sum((t**2).sum() for name, t in grads.items() if self.plan.cut_axes(name) == axes)
            squares = squares + (lax.psum(own, axes) if axes else own)
        norm, most = jnp.sqrt(squares), 0.3
        scale = (
            jnp.minimum(1.0, most / norm)
            if self.clip == "minimum"
            else jnp.where(norm > most, most / norm, 1.0)
        )
        return jax.tree.map(lambda t: t * scale, grads)
