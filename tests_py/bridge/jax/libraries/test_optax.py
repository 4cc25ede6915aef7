"""Chains of optax: the place of the mean in them decides which states drift."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")
pytest.importorskip("optax")
import jax
import optax
from jax import lax
from jax.sharding import PartitionSpec as P

import popsr
from tests_py.bridge.jax.libraries.steps import DATA, MAPPED, X, Y

SCHEDULE = optax.warmup_cosine_decay_schedule(0.0, 1e-3, 2, 10)
CHAINS: dict[str, Any] = {
    "sgd with momentum": optax.sgd(0.1, momentum=0.9),
    "clip, adamw, a schedule": optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(SCHEDULE)),
    "accumulation": optax.MultiSteps(optax.chain(optax.clip(1.0), optax.adamw(1e-3)), 2),
    "masked decay": optax.chain(
        optax.masked(optax.add_decayed_weights(0.1), {"w": True, "b": False}), optax.adam(1e-3)
    ),
    "an optimiser for each label": optax.multi_transform(
        {"a": optax.adam(0.1), "b": optax.rmsprop(1e-3)}, {"w": "a", "b": "b"}
    ),
    "skips of what is not finite": optax.apply_if_finite(optax.adamw(1e-3), 3),
    "lion": optax.lion(1e-3),
    "adafactor": optax.adafactor(1e-3),
    "hyperparameters as states": optax.inject_hyperparams(optax.adamw)(learning_rate=SCHEDULE),
    "noise": optax.chain(optax.add_noise(0.1, 0.5, jax.random.key(0)), optax.sgd(0.1)),
}
PARAMS = {"w": np.ones((4, 2), np.float32), "b": np.zeros(2, np.float32)}


def step(chain: Any, where: str, params: Any, state: Any, x: Any, y: Any) -> Any:
    loss, grads = jax.value_and_grad(lambda p: ((x @ p["w"] + p["b"] - y) ** 2).mean())(params)
    if where == "before":
        grads = lax.pmean(grads, "data")
    updates, state = chain.update(grads, state, params)
    if where == "after":
        updates = lax.pmean(updates, "data")
    return optax.apply_updates(params, updates), state, lax.pmean(loss, "data")


def proof_of(name: str, where: str) -> Any:
    chain = CHAINS[name]
    args = (PARAMS, chain.init(PARAMS), X, Y)
    return popsr.prove(functools.partial(step, chain, where), *args, in_specs=(P(), P(), *DATA), **MAPPED)


@pytest.mark.parametrize("name", CHAINS)
def test_gradients_that_are_averaged_keep_all_states_equal(name: str) -> None:
    proof = proof_of(name, "before")
    assert proof.ok, str(proof)
    assert not proof.gaps


@pytest.mark.parametrize("name", CHAINS)
def test_parameters_drift_without_a_mean(name: str) -> None:
    assert {each.path for each in proof_of(name, "never").drifting} >= {"params['w']", "params['b']"}


@pytest.mark.parametrize("name", ["sgd with momentum", "clip, adamw, a schedule", "lion", "masked decay"])
def test_moments_drift_where_updates_are_averaged(name: str) -> None:
    drifting = {each.path for each in proof_of(name, "after").drifting}
    assert drifting
    assert not any(path.startswith("params") for path in drifting)
