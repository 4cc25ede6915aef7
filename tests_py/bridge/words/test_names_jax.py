"""Explanations, lints and reports of steps of JAX call values by paths, variables and named scopes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import popsr
from popsr.bridge import Proof

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
from jax import lax  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

from tests_py.bridge.words.library import check_told  # noqa: E402

ROWS, WIDTH = 8, 4


def mlp(p: Any, h: Any) -> Any:
    with jax.named_scope("mlp"):
        hidden = jnp.tanh(h @ p["up"])
        return h + hidden @ p["down"]


def loss_of(params: Any, x: Any) -> Any:
    for number, p in enumerate(params["blocks"]):
        with jax.named_scope(f"block{number}"):
            x = mlp(p, x)
    return jnp.mean(x**2)


def weights() -> Any:
    square = np.eye(WIDTH, dtype=np.float32)
    return {"blocks": [{"up": square, "down": square} for _ in range(2)]}


def forgotten() -> Proof:
    """The gradient of one layer is not averaged."""

    def step(params: Any, x: Any) -> Any:
        grads = jax.grad(loss_of)(params, x)
        mean = lax.pmean(grads, "data")
        mean["blocks"][1]["down"] = grads["blocks"][1]["down"]
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, mean)

    x = np.ones((ROWS, WIDTH), np.float32)
    specs: Any = {"mesh": {"data": 4}, "in_specs": (P(), P("data")), "out_specs": P(), "check_vma": False}
    return popsr.prove(step, weights(), x, **specs)


def noisy() -> Proof:
    """Noise of each replica, and statistics of its rows."""

    def step(w: Any, seen: Any, x: Any) -> Any:
        place = lax.axis_index("batch") + 1
        w = w + 0.01 * place
        seen *= 0.9
        seen += 0.1 * x.mean(0)
        return w, seen

    w, x = np.ones(WIDTH, np.float32), np.ones((2, ROWS, WIDTH), np.float32)
    return popsr.prove(step, w, w, x, replicas=2, axis_name="batch", in_axes=(None, None, 0))


def wrong_axis() -> Proof:
    """Partial products are summed over the other axis of the mesh."""

    def step(params: Any, x: Any) -> Any:
        hidden = x @ params["up"]
        part = hidden @ params["down"]
        out = lax.psum(part, "data")
        first, second = out - x, out + x
        params["norm"] = params["norm"] - first.mean() * second.mean()
        return params

    params = {"norm": np.ones(1, np.float32), **weights()["blocks"][0]}
    specs = {"norm": P(), "up": P(None, "model"), "down": P("model")}
    return popsr.prove(
        step, params, np.ones((ROWS, WIDTH), np.float32),
        mesh={"data": 2, "model": 2}, in_specs=(specs, P()), out_specs=specs, check_vma=False,
    )  # fmt: skip


def scanned() -> Proof:
    """A loop over layers keeps statistics of each replica."""

    def step(layers: Any, seen: Any, x: Any) -> Any:
        def layer(h: Any, w: Any) -> Any:
            with jax.named_scope("layer"):
                h = jnp.sin(h * w)
            return h, None

        last, _ = lax.scan(layer, x, layers)
        return layers, seen + last.sum(0)

    layers, x = np.ones((3, WIDTH), np.float32), np.ones((2, ROWS, WIDTH), np.float32)
    return popsr.prove(step, layers, x[0, 0], x, replicas=2, axis_name="batch", in_axes=(None, None, 0))


TABLE: list[tuple[Callable[[], Proof], str, list[str]]] = [
    (
        forgotten,
        "params['blocks'][1]['down']",
        [
            "'params['blocks'][1]['down']' takes its new value",
            "the new 'params['blocks'][1]['down']' = sub('params['blocks'][1]['down']', mul)",
            "mul(0.1, transpose at HERE in the backward pass of 'block1/mlp')",
            "transpose(matmul) in the backward pass of 'block1/mlp'",
            "matmul(transpose, tanh for 'hidden' at HERE in 'block1/mlp') in the backward pass of 'block1/mlp'",
            "tanh(matmul) for 'hidden' in 'block1/mlp'",
            "matmul(add at HERE in 'block0/mlp', 'params['blocks'][1]['up']') for 'hidden' in 'block1/mlp'",
            "add('x', matmul) in 'block0/mlp'",
            "'x' is given to the step",
            "root: stream 'x' gives each replica data of its own",
            "suggestion: take the mean or the sum over data of the new 'params['blocks'][1]['down']' before HERE",
        ],
    ),
    (
        noisy,
        "w",
        [
            "'w' takes its new value",
            "the new 'w' = add('w', mul)",
            "mul(0.01, reshape) for 'w'",
            "root: axis_index gives replicas 0 and 1 values of their own",
            "suggestion: take the mean or the sum over batch of the new 'w' before HERE",
        ],
    ),
    (
        noisy,
        "seen",
        ["the new 'seen' = add(mul for 'seen' at HERE, mul)", "'x' is given to the step"],
    ),
    (
        wrong_axis,
        "params['norm']",
        [
            "sum over data {0,2}{1,3} of matmul for 'part' at HERE for 'out'",
            "matmul(matmul for 'hidden' at HERE, 'params['down']') for 'part'",
            "root: 'params['down']' is declared equal over data {0,2}{1,3}",
        ],
    ),
    (
        scanned,
        "seen",
        ["sin(mul) for 'h' in 'layer'", "'x' is given to the step"],
    ),
]


@pytest.mark.parametrize(("make", "path", "lines"), TABLE)
def test_a_difference_is_told_in_names_of_the_user(
    make: Callable[[], Proof], path: str, lines: list[str], tmp_path: Any
) -> None:
    check_told(make(), path, lines, __file__, tmp_path)


def test_values_of_a_program_of_popsr_keep_their_names() -> None:
    step = noisy().step
    proof = popsr.prove(step.ir)
    assert "copy_var_update_('w', '" in str(proof.explain("w"))
