"""Training steps of JAX on a mesh beside the same steps on one device: right ones are equal, wrong ones are not."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from popsr._support.fields import Numbers, same
from popsr.bridge._exact import run_exact
from popsr.bridge._proof.prove import read_step

jax = pytest.importorskip("jax")
jnp, lax = jax.numpy, jax.lax
P = jax.sharding.PartitionSpec
from tests_py.bridge.same.transformer import (  # noqa: E402
    BATCH,
    PARAMS,
    SPECS,
    WRONG,
    Lines,
    step_of,
)

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
    first = next(iter(inspect.signature(step).parameters))
    names = {**{f"{first}['{k}']": k for k in states}, **{k: k for k in data}}
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
            found[names[each.path]] = ran.value(variable._id)
    for result in bridged.results:
        found[result.path] = ran.value(result.tensor._id)
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


EVERY = {*PARAMS}
# The states and results that each wrong line reaches.
REACHED = {
    "sum of means": EVERY,
    "scaled by the heads of a replica": {*EVERY, "result[1]"},
    "no sum in the backward pass": EVERY - {"up", "down"},
    "sum in both passes": EVERY,
    "mean of partial outputs": {*EVERY, "result[1]"},
    "sum over the batch of a replica": {*EVERY, "result[1]"},
}


@pytest.mark.parametrize("name", ["right", *WRONG])
def test_transformer_step(name: str) -> None:
    data = dict(zip("xy", BATCH, strict=True))
    found = differing(step_of(WRONG.get(name, Lines())), PARAMS, data, SPECS)
    assert found == REACHED.get(name, set())


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
