"""Functions that Haiku transforms, with and without state."""

from __future__ import annotations

import functools
from typing import Any

import pytest

pytest.importorskip("jax")
pytest.importorskip("optax")
pytest.importorskip("haiku")
import haiku as hk
import jax
import optax
from jax import lax
from jax.sharding import PartitionSpec as P

import popsr
from tests_py.bridge.jax.libraries.steps import DATA, MAPPED, OPTIMISER, X, Y, averaged


def forward(x: Any, cross: bool) -> Any:
    hidden = jax.nn.relu(hk.Linear(8)(x))
    hidden = hk.BatchNorm(True, True, 0.9, cross_replica_axis="data" if cross else None)(
        hidden, is_training=True
    )
    return hk.Linear(2)(hk.dropout(hk.next_rng_key(), 0.1, hidden))


def step(which: Any, cross: bool, params: Any, state: Any, moments: Any, key: Any, x: Any, y: Any) -> Any:
    network = hk.transform_with_state(functools.partial(forward, cross=cross))

    def loss(params: Any) -> Any:
        out, new = network.apply(params, state, jax.random.fold_in(key, lax.axis_index("data")), x)
        return ((out - y) ** 2).mean(), new

    (value, state), grads = jax.value_and_grad(loss, has_aux=True)(params)
    updates, moments = OPTIMISER.update(averaged(grads, which), moments, params)
    return (
        optax.apply_updates(params, updates),
        state,
        moments,
        jax.random.split(key)[0],
        lax.pmean(value, "data"),
    )


def proof_of(which: Any, cross: bool = True) -> Any:
    params, state = hk.transform_with_state(functools.partial(forward, cross=False)).init(
        jax.random.key(0), X
    )
    args = (params, state, OPTIMISER.init(params), jax.random.key(1), X, Y)
    f = functools.partial(step, which, cross)
    return popsr.prove(f, *args, in_specs=(P(), P(), P(), P(), *DATA), **MAPPED)


def test_a_step() -> None:
    proof = proof_of(lambda path: True)
    assert proof.ok, str(proof)


def test_gradients_of_a_layer_without_their_mean() -> None:
    assert "params['linear_1']['w']" in {
        each.path for each in proof_of(lambda path: "linear_1" not in path).drifting
    }


def test_averages_of_a_batch_of_its_own() -> None:
    drifting = {each.path for each in proof_of(lambda path: True, cross=False).drifting}
    assert drifting
    assert all(path.startswith("state") for path in drifting)
