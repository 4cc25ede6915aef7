"""Training steps of JAX on a mesh beside the same steps on one device: right ones are equal, wrong ones are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from popsr._exact import run_exact
from popsr._fields import Numbers, same
from popsr.bridge._prove import read_step

jax = pytest.importorskip("jax")
jnp, lax = jax.numpy, jax.lax
P = jax.sharding.PartitionSpec
AXES = ("data", "model")

Sizes = tuple[int, int]


def parts(value: Any, spec: Any, sizes: Sizes) -> list[Any]:
    """The part of a global value on each device; one object on devices that share it."""
    known: dict[tuple[int, ...], Any] = {}
    rows = []
    for place in np.ndindex(*sizes):
        cuts = [(axis, AXES.index(name)) for axis, name in enumerate(spec) if name is not None]
        key = tuple(place[i] for _, i in cuts)
        if key not in known:
            index: list[Any] = [slice(None)] * value.ndim
            for axis, i in cuts:
                size = value.shape[axis] // sizes[i]
                index[axis] = slice(place[i] * size, (place[i] + 1) * size)
            known[key] = value[tuple(index)]
        rows.append(known[key])
    return rows


def run(
    step: Callable[..., Any],
    states: dict[str, Any],
    data: dict[str, Any],
    specs: dict[str, Any],
    sizes: Sizes,
    draw: int = 0,
) -> dict[str, list[Any]]:
    """New states and the loss on each device of a mesh, from random states."""
    names = {**{f"p['{k}']": k for k in states}, **{k: k for k in data}}
    of_states, of_data = {k: specs.get(k, P()) for k in states}, {k: P("data") for k in data}
    bridged = read_step(
        "test",
        step,
        states,
        *data.values(),
        mesh=jax.sharding.AbstractMesh(sizes, AXES),
        in_specs=(of_states, *of_data.values()),
        out_specs=(of_states, P()),
        check_vma=False,
    )
    given: dict[int, Any] = {}
    found: dict[str, Any] = {}
    for each in bridged.arguments:
        name = names[each.path]
        value = {**states, **data}[name]
        if np.asarray(value).dtype.kind == "f":
            value = Numbers.draw(np.shape(value), each.path, draw)
        tensor: Any = each.source if each.role == "state" else each.tensor
        given[tensor._id] = parts(value, {**of_states, **of_data}[name], sizes)
    ran = run_exact(bridged.ir, given, draw)
    for each in bridged.arguments:
        if each.role == "state":
            variable: Any = each.source
            found[names[each.path]] = ran.variable(variable._id)
    for result in bridged.results:
        found[result.path] = ran.output(result.tensor._id)
    return found


def differing(
    step: Callable[..., Any],
    states: dict[str, Any],
    data: dict[str, Any],
    specs: dict[str, Any],
    sizes: Sizes = (2, 2),
    draws: int = 1,
) -> set[str]:
    """States and results that are not those of one device in some draw."""
    found = set()
    for draw in range(draws):
        many = run(step, states, data, specs, sizes, draw)
        one = run(step, states, data, specs, (1, 1), draw)
        wanted = {name: parts(rows[0], specs.get(name, P()), sizes) for name, rows in one.items()}
        found |= {
            name
            for name, rows in many.items()
            if not all(bool(same(a, b).all()) for a, b in zip(rows, wanted[name], strict=True))
        }
    return found


# A transformer block, data x tensor parallel, in which each argument plants a wrong line

D, HEADS, F, T, B, V = 4, 2, 4, 3, 2, 6
SPECS = {"qkv": P(None, "model"), "o": P("model"), "up": P(None, "model"), "down": P("model")}
SHAPES = {
    "emb": (V, D),
    "qkv": (3, HEADS, D, D // HEADS),
    "o": (HEADS, D // HEADS, D),
    "up": (D, F),
    "down": (F, D),
    "g1": (D,),
    "g2": (D,),
}
PARAMS = {name: np.ones(shape, np.float32) for name, shape in SHAPES.items()}
DATA = {"x": np.array([[0, 3, 5], [2, 2, 1]], np.int32), "y": np.array([[1, 4, 0], [5, 3, 2]], np.int32)}
MASK = np.tril(np.ones((T, T), bool))


def make(
    grads: Any = lax.pmean,
    local_scale: bool = False,
    copy_up: bool = True,
    back: Any = lambda g: g,
    forward: Any = lax.psum,
    mean: Any = jnp.mean,
) -> Any:
    @jax.custom_vjp
    def copy(t: Any) -> Any:
        return t

    copy.defvjp(lambda t: (t, None), lambda _, g: (lax.psum(g, "model"),))

    @jax.custom_vjp
    def reduce(t: Any) -> Any:
        return forward(t, "model")

    reduce.defvjp(lambda t: (forward(t, "model"), None), lambda _, g: (back(g),))

    def norm(x: Any, g: Any) -> Any:
        return (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5) * g

    def loss_of(p: Any, x: Any, y: Any) -> Any:
        h = p["emb"][x]
        a = copy(norm(h, p["g1"]))
        q, k, v = (jnp.einsum("btd,hdk->bhtk", a, p["qkv"][i]) for i in range(3))
        s = jnp.einsum("bhtk,bhsk->bhts", q, k) / np.sqrt(D // (p["qkv"].shape[1] if local_scale else HEADS))
        w = jax.nn.softmax(jnp.where(MASK, s, -1e30), -1)
        h = h + reduce(jnp.einsum("bhts,bhsk,hkd->btd", w, v, p["o"]))
        a = norm(h, p["g2"])
        h = h + reduce(jax.nn.gelu((copy(a) if copy_up else a) @ p["up"]) @ p["down"])
        return -mean(jnp.take_along_axis(jax.nn.log_softmax(h @ p["emb"].T), y[..., None], -1))

    def step(p: Any, x: Any, y: Any) -> Any:
        loss, g = jax.value_and_grad(loss_of)(p, x, y)
        g = jax.tree.map(lambda t: grads(t, "data"), g)
        return jax.tree.map(lambda w, d: w - 0.1 * d, p, g), lax.pmean(loss, "data")

    return step


EVERY = {*PARAMS}
PLANTED: dict[str, tuple[dict[str, Any], set[str]]] = {
    "right": ({}, set()),
    "sum of means": ({"grads": lax.psum}, EVERY),
    "scaled by the local heads": ({"local_scale": True}, {*EVERY, "result[1]"}),
    "no sum in the backward pass": ({"copy_up": False}, EVERY - {"up", "down"}),
    "sum in both passes": ({"back": lambda g: lax.psum(g, "model")}, EVERY),
    "mean for a sum": ({"forward": lax.pmean}, {*EVERY, "result[1]"}),
    "sum over the local batch": ({"mean": jnp.sum}, {*EVERY, "result[1]"}),
}


@pytest.mark.parametrize("name", PLANTED)
def test_transformer_step(name: str) -> None:
    options, expected = PLANTED[name]
    assert differing(make(**options), PARAMS, DATA, SPECS) == expected


# Other steps: an optimiser with moments, convolutions, batch norm, scans, clipping by norm


def adam(p: Any, g: Any, count: Any) -> Any:
    m, v = 0.9 * p["m"] + 0.1 * g, 0.99 * p["v"] + 0.01 * g * g
    t = (count + 1).astype(jnp.float32)
    update = (m / (1 - 0.9**t)) / (jnp.sqrt(v / (1 - 0.99**t)) + 1e-8) + 0.01 * p["w"]
    return {**p, "w": p["w"] - 1e-3 * update, "m": m, "v": v, "count": count + 1}


def adam_step(mean: Any = lax.pmean) -> Any:
    def step(p: Any, x: Any, y: Any) -> Any:
        loss, g = jax.value_and_grad(lambda w: jnp.mean((jnp.tanh(x @ w) - y) ** 2))(p["w"])
        return adam(p, mean(g, "data"), p["count"]), lax.pmean(loss, "data")

    return step


W = np.ones((3, 2), np.float32)
ADAM = {"w": W, "m": W, "v": W, "count": np.int32(3)}
FLOATS = {"x": np.ones((4, 3), np.float32), "y": np.ones((4, 2), np.float32)}


def norm_of_batch(h: Any, synchronised: bool) -> Any:
    mean, square = h.mean((0, 2, 3)), (h * h).mean((0, 2, 3))
    if synchronised:
        mean, square = lax.pmean(mean, "data"), lax.pmean(square, "data")
    shape = (1, -1, 1, 1)
    return (h - mean.reshape(shape)) * lax.rsqrt((square - mean * mean).reshape(shape) + 1e-5)


def image_step(synchronised: bool = True, mean: Any = lax.pmean) -> Any:
    def loss_of(p: Any, x: Any, y: Any) -> Any:
        h = lax.conv_general_dilated(x, p["k"], (1, 1), "SAME")
        h = jax.nn.relu(norm_of_batch(h, synchronised))
        h = lax.reduce_window(h, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
        logits = h.reshape(h.shape[0], -1) @ p["w"]
        loss = -jnp.mean(jnp.sum(jax.nn.log_softmax(logits) * jax.nn.one_hot(y, 3), -1))
        return lax.pmean(loss, "data")

    def step(p: Any, x: Any, y: Any) -> Any:
        loss, g = jax.value_and_grad(loss_of)(p, x, y)
        return jax.tree.map(lambda w, d: w - 0.1 * mean(d, "data"), p, g), loss

    return step


IMAGES = {"x": np.ones((4, 2, 4, 4), np.float32), "y": np.array([0, 2, 1, 1], np.int32)}
KERNELS = {"k": np.ones((2, 2, 3, 3), np.float32), "w": np.ones((8, 3), np.float32)}


def deep_step(clipped: Any = lambda n: n) -> Any:
    """A stack of layers in a scan, whose gradients are clipped by their norm."""

    def loss_of(w: Any, x: Any, y: Any) -> Any:
        h, _ = lax.scan(lambda h, layer: (h + jax.nn.silu(h @ layer), None), x, w)
        return jnp.mean((h[:, :2] - y) ** 2)

    def step(p: Any, x: Any, y: Any) -> Any:
        loss, g = jax.value_and_grad(loss_of)(p["w"], x, y)
        g = lax.pmean(g, "data")
        norm = jnp.sqrt(clipped(jnp.sum(g * g)))
        g = jnp.where(norm > 1.0, g / norm, g)
        return {"w": p["w"] - 0.1 * g}, lax.pmean(loss, "data")

    return step


DEEP = {"w": np.ones((3, 3, 3), np.float32)}
STEPS: dict[str, tuple[Any, dict[str, Any], dict[str, Any], set[str]]] = {
    "adam": (adam_step(), ADAM, FLOATS, set()),
    "adam, sum of means": (adam_step(lax.psum), ADAM, FLOATS, {"w", "m", "v"}),
    "images": (image_step(), KERNELS, IMAGES, set()),
    "images, local statistics": (image_step(False), KERNELS, IMAGES, {"k", "w", "result[1]"}),
    "images, sum of means": (image_step(mean=lax.psum), KERNELS, IMAGES, {"k", "w"}),
    "clipped": (deep_step(), DEEP, FLOATS, set()),
    "clipped by a sum of norms": (deep_step(lambda n: lax.psum(n, "data")), DEEP, FLOATS, {"w"}),
}


@pytest.mark.parametrize("name", STEPS)
def test_other_steps(name: str) -> None:
    step, states, data, expected = STEPS[name]
    draws = 4 if "clipped" in name else 1  # a comparison of one number is decided once in a draw
    assert differing(step, states, data, {}, draws=draws) == expected
