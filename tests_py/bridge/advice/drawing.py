"""Random right training steps of JAX on a mesh, and the same steps with one mistake."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AbstractMesh
from jax.sharding import PartitionSpec as P

from popsr.bridge._step.step import BridgedStep
from popsr.bridge.jax import from_jax

__all__ = ["Recipe", "drawn", "read", "whole"]

MESHES = [{"data": 4}, {"data": 2, "more": 2}, {"data": 2, "model": 2}, {"data": 2}]
LOSSES = ["mean", "rows", "global", "sum", "half", "inside", "scaled", "two", "weighted", "decay", "parts"]
ROWS = 4
"""Rows of data of a replica."""


@dataclass(frozen=True)
class Recipe:
    """The parts of a step.

    Attributes:
        mesh: sizes of axes; over "model" two weights are cut, over the others the data.
        loss: what is differentiated.
        optimiser: "sgd", "momentum" or "adam".
        clip: clip gradients by their norm.
        wide: features of the result.
        plain: sums of ``lax.psum`` that JAX differentiates with ``check_vma=True``, in place of Megatron's functions.
        fault: the mistake; empty in a right step.
        seed: of the values.
    """

    mesh: tuple[tuple[str, int], ...]
    loss: str
    optimiser: str
    clip: bool
    wide: int
    plain: bool
    fault: str
    seed: int

    @property
    def data_axes(self) -> tuple[str, ...]:
        """Axes over which the data are cut."""
        return tuple(name for name, _ in self.mesh if name != "model")

    @property
    def right(self) -> Recipe:
        """The step without the mistake."""
        return replace(self, fault="")

    @property
    def reduces(self) -> str:
        """Reduction of gradients that makes them whole."""
        return "sum" if self.loss in ("global", "sum") else "mean"


def drawn(seed: int) -> Recipe:
    """A step with a mistake."""
    rng = np.random.default_rng(seed)
    mesh = MESHES[rng.integers(len(MESHES))]
    model = "model" in mesh
    plain = bool(rng.integers(3) == 0)
    faults = ["none", "none", "one", "bias", "late", "swap", "swapone"]
    faults += ["axis"] if len(mesh) == 2 else []
    faults += ["f", "g", "f"] if model and not plain else []
    loss = "inside" if plain else LOSSES[rng.integers(len(LOSSES))]
    fault = "vma" if plain else faults[rng.integers(len(faults))]
    clip = bool(rng.integers(2)) or fault == "late"
    return Recipe(
        tuple(mesh.items()),
        loss,
        ["sgd", "momentum", "adam"][rng.integers(3)],
        clip,
        int(rng.integers(1, 4)),
        plain,
        fault,
        seed,
    )


@jax.custom_vjp
def _f(x: Any) -> Any:
    return x


_f.defvjp(lambda x: (x, None), lambda _, ct: (lax.psum(ct, "model"),))


@jax.custom_vjp
def _g(x: Any) -> Any:
    return lax.psum(x, "model")


_g.defvjp(lambda x: (lax.psum(x, "model"), None), lambda _, ct: (ct,))

_ROW_LOSSES = {"mean", "inside", "scaled", "two", "decay", "parts", "weighted"}


def _loss(recipe: Recipe, p: Any, x: Any, y: Any, scale: Any, w: Any, replicas: int) -> Any:
    """The loss on the rows of a replica; of one replica that has all rows the whole loss."""
    model = dict(recipe.mesh).get("model", 0) > 1 and replicas > 0
    hidden = jnp.tanh(x @ p["w0"])
    if model and not recipe.plain and recipe.fault != "f":
        hidden = _f(hidden)
    inner = jnp.tanh(hidden @ p["w1"] + p["b1"])
    part = inner @ p["w2"]
    if model and recipe.plain:
        part = lax.psum(part, "model")
    elif model and recipe.fault != "g":
        part = _g(part)
    square = (part + p["b2"] - y) ** 2
    count = dict(recipe.mesh)
    shares = int(np.prod([count[name] for name in recipe.data_axes])) if replicas else 1
    match recipe.loss:
        case "rows":
            return jnp.mean(jnp.sum(square, 1))
        case "global":
            return jnp.sum(square) / (square.shape[0] * shares)
        case "sum":
            return jnp.sum(square)
        case "half":
            return 0.5 * jnp.mean(square)
        case "inside":
            found = jnp.mean(square)
            return lax.pmean(found, recipe.data_axes) if replicas else found
        case "scaled":
            return jnp.mean(square) * scale
        case "two":
            return jnp.mean(square) + 0.1 * jnp.mean(hidden**2)
        case "weighted":
            return jnp.mean(square * w[:, None])
        case "decay":
            return jnp.mean(square) + 1e-2 * jnp.sum(p["w0"] ** 2)
    return jnp.mean(square)


def _gradients(recipe: Recipe, p: Any, x: Any, y: Any, scale: Any, w: Any, replicas: int) -> Any:
    def loss(p: Any, x: Any, y: Any, w: Any) -> Any:
        return _loss(recipe, p, x, y, scale, w, replicas)

    if recipe.loss != "parts":
        g = jax.grad(loss)(p, x, y, w)
        return jax.tree.map(lambda g: g / scale, g) if recipe.loss == "scaled" else g
    half = [slice(0, None, 2), slice(1, None, 2)]
    first, second = (jax.grad(lambda p, at=at: loss(p, x[at], y[at], w[at]) / 2)(p) for at in half)
    return jax.tree.map(jnp.add, first, second)


def _step(recipe: Recipe, p: Any, m: Any, v: Any, x: Any, y: Any, scale: Any, w: Any, replicas: int) -> Any:
    axes, fault = recipe.data_axes, recipe.fault

    def reduced(path: Any, g: Any) -> Any:
        name, how = path[-1].key, recipe.reduces
        over: Any = axes
        if recipe.plain or not replicas:
            return g
        if fault == "none" or (fault, name) in (("one", "w0"), ("bias", "b2")):
            return g
        if fault == "axis":
            over = [name for name, _ in recipe.mesh][-1]
        if fault == "swap" or (fault, name) == ("swapone", "w0"):
            how = {"mean": "sum", "sum": "mean"}[how]
        return lax.pmean(g, over) if how == "mean" else lax.psum(g, over)

    def norm(g: Any) -> Any:
        total = jnp.zeros(())
        for name, each in g.items():
            square = jnp.sum(each**2)
            cut = replicas and name in ("w1", "b1", "w2") and "model" in dict(recipe.mesh)
            total += lax.psum(square, "model") if cut else square
        return jnp.sqrt(total)

    def everywhere(g: Any) -> Any:
        return jax.tree_util.tree_map_with_path(reduced, g)

    g = _gradients(recipe, p, x, y, scale, w, replicas)
    if fault != "late":
        g = everywhere(g)
    if recipe.clip:
        factor = jnp.minimum(1.0, 0.1 / norm(g))
        g = jax.tree.map(lambda g: g * factor, g)
    if fault == "late":
        g = everywhere(g)
    if recipe.optimiser == "sgd":
        return jax.tree.map(lambda p, g: p - 0.1 * g, p, g), m, v
    m = jax.tree.map(lambda m, g: 0.9 * m + g, m, g)
    if recipe.optimiser == "momentum":
        return jax.tree.map(lambda p, m: p - 0.1 * m, p, m), m, v
    v = jax.tree.map(lambda v, g: 0.9 * v + 0.1 * g * g, v, g)
    return jax.tree.map(lambda p, m, v: p - 0.1 * m / (jnp.sqrt(v) + 1e-3), p, m, v), m, v


def _arguments(recipe: Recipe) -> tuple[Any, ...]:
    rng = np.random.default_rng(recipe.seed)
    count = dict(recipe.mesh)
    rows = ROWS * int(np.prod([count[name] for name in recipe.data_axes]))
    shapes = {"w0": (4, 4), "w1": (4, 8), "b1": (8,), "w2": (8, recipe.wide), "b2": (recipe.wide,)}
    p = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    m = {name: rng.normal(size=shape).astype(np.float32) * 0.1 for name, shape in shapes.items()}
    v = {name: rng.random(shape).astype(np.float32) for name, shape in shapes.items()}
    x, y = (rng.normal(size=(rows, n)).astype(np.float32) for n in (4, recipe.wide))
    return p, m, v, x, y, np.float32(4), rng.random(rows).astype(np.float32)


def read(recipe: Recipe) -> BridgedStep:
    """The step on simulated replicas."""
    cut = {"w0": P(), "w1": P(None, "model"), "b1": P("model"), "w2": P("model"), "b2": P()}
    weights: Any = cut if "model" in dict(recipe.mesh) else P()
    data = P(recipe.data_axes)

    def step(p: Any, m: Any, v: Any, x: Any, y: Any, scale: Any, w: Any) -> Any:
        return _step(recipe, p, m, v, x, y, scale, w, 1)

    return from_jax(
        step,
        *_arguments(recipe),
        mesh=AbstractMesh(tuple(size for _, size in recipe.mesh), tuple(name for name, _ in recipe.mesh)),
        in_specs=(weights, weights, weights, data, data, P(), data),
        out_specs=(weights, weights, weights),
        check_vma=recipe.plain and not recipe.fault,
        roles={"p": "state", "m": "state", "v": "state"},
        updates={0: 0, 1: 1, 2: 2},
    )


def whole(recipe: Recipe) -> dict[str, Any]:
    """New states of one replica that has all data and all weights."""
    made = _step(recipe.right, *_arguments(recipe), 0)  # type: ignore[call-arg]
    return {
        f"{kind}['{name}']": t for kind, each in zip("pmv", made, strict=True) for name, t in each.items()
    }
