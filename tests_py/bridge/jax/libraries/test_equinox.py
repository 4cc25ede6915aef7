"""Modules of Equinox, partitioned by hand and by its own wrappers."""

from __future__ import annotations

import functools
from typing import Any

import pytest

pytest.importorskip("jax")
pytest.importorskip("optax")
pytest.importorskip("equinox")
import equinox as eqx
import jax
from jax import lax
from jax.sharding import PartitionSpec as P

import popsr
from tests_py.bridge.jax.libraries.steps import DATA, MAPPED, OPTIMISER, X, Y, averaged, mesh


class Net(eqx.Module):
    """Two layers, and a function, which is not an array."""

    first: Any
    last: Any
    activation: Any

    def __init__(self, key: Any) -> None:
        one, other = jax.random.split(key)
        self.first, self.last = eqx.nn.Linear(4, 8, key=one), eqx.nn.Linear(8, 2, key=other)
        self.activation = jax.nn.relu

    def __call__(self, x: Any) -> Any:
        return self.last(self.activation(self.first(x)))


def parts() -> tuple[Any, Any, Any]:
    params, static = eqx.partition(Net(jax.random.key(0)), eqx.is_array)
    return params, static, OPTIMISER.init(params)


def update(which: Any, static: Any, params: Any, state: Any, x: Any, y: Any) -> Any:
    def loss(params: Any) -> Any:
        return ((jax.vmap(eqx.combine(params, static))(x) - y) ** 2).mean()

    value, grads = jax.value_and_grad(loss)(params)
    updates, state = OPTIMISER.update(averaged(grads, which), state, params)
    return eqx.apply_updates(params, updates), state, lax.pmean(value, "data")


def of_arrays(which: Any) -> Any:
    params, static, state = parts()
    f = functools.partial(update, which, static)
    return popsr.prove(f, params, state, X, Y, in_specs=(P(), P(), *DATA), **MAPPED)


def filtered(which: Any) -> Any:
    @eqx.filter_jit
    def step(model: Any, state: Any, x: Any, y: Any) -> Any:
        params, static = eqx.partition(model, eqx.is_array)
        inner = functools.partial(update, which, static)
        params, state, value = jax.shard_map(
            inner, mesh=mesh(), in_specs=(P(), P(), *DATA), out_specs=P(), check_vma=False
        )(params, state, x, y)
        return eqx.combine(params, static), state, value

    _, _, state = parts()
    return popsr.prove(step, Net(jax.random.key(0)), state, X, Y)


@pytest.mark.parametrize("prove", [of_arrays, filtered])
def test_a_step(prove: Any) -> None:
    proof = prove(lambda path: True)
    assert proof.ok, str(proof)
    assert any(each.path.endswith("first.weight") for each in proof.states)


@pytest.mark.parametrize("prove", [of_arrays, filtered])
def test_a_layer_without_its_mean(prove: Any) -> None:
    """Its gradient is clipped with the others' norm, so all of them drift."""
    proof = prove(lambda path: "last" not in path)
    assert not proof.ok
    assert {"last.weight", "last.bias"} <= {each.path.partition(".")[2] for each in proof.drifting}
