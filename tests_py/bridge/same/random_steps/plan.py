"""A random parallel step as it is drawn: its mesh, its weights, and how its values lie on the mesh.

In each step the losses of all replicas add up to a known multiple of the loss of one device. There are three ways to
the gradients. "linear": collectives are differentiated as they are, so that each copy of a weight has the gradient of
the sum of all losses; copies are summed, and divided by the multiple. "layers": collectives of layers have a backward
pass of their own, as in Megatron, so that each replica of a layer has the gradient of one loss. "typed": JAX follows
what varies, and sums gradients itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P

from tests_py.bridge.same.planted.jax_layers import copy_to, sum_from

__all__ = ["MESHES", "Plan", "Way", "rank", "size"]

Way = Literal["linear", "layers", "typed"]

MESHES: tuple[dict[str, int], ...] = (
    {"data": 2},
    {"data": 3},
    {"data": 4},
    {"data": 2, "model": 2},
    {"data": 2, "model": 2},
    {"data": 2, "model": 4},
    {"model": 2},
    {"model": 4},
    {"data": 2, "seq": 2},
    {"seq": 2, "model": 2},
    {"seq": 3},
    {"seq": 4},
    {"data": 2, "expert": 2},
    {"expert": 2},
    {"expert": 4},
    {"data": 2, "pipe": 2},
    {"pipe": 2},
    {"pipe": 3},
    {"pipe": 2, "model": 2},
    {"data": 2, "model": 2, "seq": 2},
)

WHOLE = P()
BATCH = ("data", "expert")
"""Axes over which examples are cut."""


def size(axes: str | Sequence[str]) -> Any:
    """Replicas along axes of the mesh, a number that is known while JAX traces; 1 of none."""
    return lax.psum(1, axes if isinstance(axes, str) else tuple(axes)) if axes else 1


def rank(axis: str) -> Any:
    """Place along an axis."""
    return lax.axis_index(axis)


@dataclass
class Plan:
    """Choices that make a step.

    Attributes:
        rng: source of all choices and numbers.
        mesh: sizes by axis.
        way: to the gradients.
        sharded_norms: True if activations between layers are cut over time by ``model``, too.
        weights: arrays by name.
        specs: how each lies on the mesh.
        inside: of "layers": axes over which copies of a weight in a parallel layer have parts of its gradient.
        words: choices, for messages.
    """

    rng: np.random.Generator
    mesh: dict[str, int]
    way: Way
    sharded_norms: bool
    weights: dict[str, Any] = field(default_factory=dict)
    specs: dict[str, Any] = field(default_factory=dict)
    inside: dict[str, tuple[str, ...]] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)

    # Choices

    def one_of(self, *choices: Any) -> Any:
        """One of some values."""
        return choices[int(self.rng.integers(len(choices)))]

    def form(self, what: str, *choices: str) -> str:
        """One of some forms, which the words of the plan name."""
        found: str = self.one_of(*choices)
        self.words.append(f"{what}: {found}")
        return found

    def chance(self, part: float = 0.5) -> bool:
        """True with a probability."""
        return bool(self.rng.random() < part)

    def has(self, axis: str) -> bool:
        """True if the mesh has an axis."""
        return axis in self.mesh

    def weight(
        self, name: str, *shape: int, spec: Any = WHOLE, near: float = 0.0, inside: tuple[str, ...] = ()
    ) -> str:
        """One more weight; returns its name."""
        name = f"{name}{len(self.weights)}"
        self.weights[name] = near + self.rng.normal(size=shape) * 0.5
        self.specs[name] = spec
        self.inside[name] = tuple(axis for axis in inside if self.has(axis))
        return name

    # Axes

    @property
    def batch(self) -> tuple[str, ...]:
        """Axes over which examples are cut."""
        return tuple(axis for axis in self.mesh if axis in BATCH)

    @property
    def time(self) -> str | None:
        """The axis over which positions of activations are cut."""
        return "seq" if self.has("seq") else "model" if self.sharded_norms else None

    def cut_axes(self, name: str) -> tuple[str, ...]:
        """Axes over which a weight is cut."""
        found: list[str] = []
        for part in self.specs[name]:
            found += [part] if isinstance(part, str) else list(part or ())
        return tuple(axis for axis in self.mesh if axis in found)

    def static(self, *axes: str) -> int:
        """Replicas along axes of the mesh that is drawn, which has not to be used inside of the step."""
        return math.prod(self.mesh.get(axis, 1) for axis in axes)

    # Borders of parallel layers

    def enter(self, h: Any, axis: str = "model") -> Any:
        """The input of a layer that is cut over an axis."""
        if axis == "model" and self.sharded_norms:
            return lax.all_gather(h, axis, axis=1, tiled=True)
        return copy_to(h, axis) if self.way == "layers" else h

    def leave(self, h: Any, axis: str = "model") -> Any:
        """The sum of its partial outputs."""
        if axis == "model" and self.sharded_norms:
            return lax.psum_scatter(h, axis, scatter_dimension=1, tiled=True)
        return self.total(h, axis)

    def total(self, h: Any, axis: str = "model") -> Any:
        """A sum over a layer's axis, whichever way activations lie."""
        return sum_from(h, axis) if self.way == "layers" else lax.psum(h, axis)

    def whole(self, layer: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        """A layer of all positions that is the same on all replicas of ``model``."""
        if not self.sharded_norms:
            return layer

        def on_part(p: Any, h: Any) -> Any:
            made = layer(p, lax.all_gather(h, "model", axis=1, tiled=True))
            return self.own_positions(made, "model")

        return on_part

    def own_positions(self, t: Any, axis: str, dim: int = 1) -> Any:
        """The part of positions that a replica has."""
        part = t.shape[dim] // size(axis)
        return lax.dynamic_slice_in_dim(t, rank(axis) * part, part, dim)

    def positions(self, part: int, axis: str | None) -> Any:
        """Global positions of the part of a replica."""
        return jnp.arange(part) + (rank(axis) * part if axis else 0)
