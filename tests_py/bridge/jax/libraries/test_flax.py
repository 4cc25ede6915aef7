"""Modules of Flax: NNX, which steps write to, and linen."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")
pytest.importorskip("optax")
pytest.importorskip("flax")
import jax
import jax.numpy as jnp
import optax
from flax import linen, nnx
from flax.training.train_state import TrainState
from jax import lax
from jax.sharding import PartitionSpec as P

import popsr
from popsr.bridge.jax import from_jax
from popsr.errors import AttributeValueError
from tests_py.bridge.jax.libraries.steps import DATA, MAPPED, OPTIMISER, X, Y, averaged, mesh

LENGTH, WIDTH, VOCABULARY = 6, 8, 16


class Block(nnx.Module):
    """Attention and a perceptron."""

    def __init__(self, rngs: Any) -> None:
        self.norm = nnx.LayerNorm(WIDTH, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(2, WIDTH, decode=False, dropout_rate=0.1, rngs=rngs)
        self.up, self.down = nnx.Linear(WIDTH, 16, rngs=rngs), nnx.Linear(16, WIDTH, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        x = x + self.attention(self.norm(x), mask=nnx.make_causal_mask(x[..., 0]))
        return x + self.down(nnx.gelu(self.up(x)))


class Gpt(nnx.Module):
    """A block between tied embeddings."""

    def __init__(self, rngs: Any) -> None:
        self.embedding = nnx.Embed(VOCABULARY, WIDTH, rngs=rngs)
        self.block = Block(rngs)

    def __call__(self, tokens: Any) -> Any:
        return self.embedding.attend(self.block(self.embedding(tokens)))


TOKENS = np.random.default_rng(3).integers(0, VOCABULARY, (8, LENGTH)).astype(np.int32)


def made() -> tuple[Any, Any]:
    model = Gpt(nnx.Rngs(0))
    model.train()
    return model, nnx.Optimizer(model, OPTIMISER, wrt=nnx.Param)


def train(which: Callable[[str], bool], model: Any, optimizer: Any, tokens: Any) -> Any:
    def loss(model: Any) -> Any:
        logits = model(tokens)[:, :-1]
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

    value, grads = nnx.value_and_grad(loss)(model)
    optimizer.update(model, averaged(grads, which))
    return lax.pmean(value, "data")


def direct(which: Any) -> Any:
    f = functools.partial(train, which)
    return popsr.prove(f, *made(), TOKENS, in_specs=(P(), P(), P("data")), **MAPPED)


def jitted(which: Any) -> Any:
    @nnx.jit
    def step(model: Any, optimizer: Any, tokens: Any) -> Any:
        f = functools.partial(train, which)
        specs = (P(), P(), P("data"))
        return nnx.shard_map(f, mesh=mesh(), in_specs=specs, out_specs=P(), check_vma=False)(
            model, optimizer, tokens
        )

    return popsr.prove(step, *made(), TOKENS)


def functional(which: Any) -> Any:
    definition, state = nnx.split(made())

    def step(state: Any, tokens: Any) -> Any:
        model, optimizer = nnx.merge(definition, state)
        value = train(which, model, optimizer, tokens)
        return nnx.state((model, optimizer)), value

    return popsr.prove(step, state, TOKENS, in_specs=(P(), P("data")), **MAPPED)


FORMS = [direct, jitted, functional]


@pytest.mark.share(3)
@pytest.mark.parametrize("prove", FORMS)
def test_a_step_that_writes_to_its_modules(prove: Any) -> None:
    proof = prove(lambda path: True)
    assert proof.ok, str(proof)
    assert not proof.gaps
    assert len(proof.states) > 30


@pytest.mark.parametrize("prove", FORMS)
def test_a_gradient_without_its_mean(prove: Any) -> None:
    proof = prove(lambda path: "down" not in path)
    drifting = {each.path for each in proof.drifting}
    assert any("['block']['down']['kernel']" in path for path in drifting)


def test_the_values_are_those_of_flax() -> None:
    model, optimizer = made()
    model.eval()
    f = functools.partial(train, lambda path: True)
    read = from_jax(f, model, optimizer, TOKENS, in_specs=(P(), P(), P("data")), **MAPPED)
    found = read.run()["model['embedding']['embedding'].value"]
    nnx.jit(nnx.shard_map(f, mesh=mesh(), in_specs=(P(), P(), P("data")), out_specs=P(), check_vma=False))(
        model, optimizer, TOKENS
    )
    np.testing.assert_allclose(found[0], np.asarray(model.embedding.embedding[...]), atol=1e-4)


def test_averages_of_a_batch_of_its_own_drift() -> None:
    class Normed(nnx.Module):
        def __init__(self, rngs: Any) -> None:
            self.layer, self.norm = nnx.Linear(4, 2, rngs=rngs), nnx.BatchNorm(2, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            return self.norm(self.layer(x))

    model = Normed(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.sgd(0.1), wrt=nnx.Param)

    def step(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
        value, grads = nnx.value_and_grad(lambda model: jnp.mean((model(x) - y) ** 2))(model)
        optimizer.update(model, averaged(grads))
        return lax.pmean(value, "data")

    proof = popsr.prove(step, model, optimizer, X, Y, in_specs=(P(), P(), *DATA), **MAPPED)
    assert {each.path for each in proof.drifting} == {
        f"model['norm']['{name}'].value" for name in ("mean", "var")
    }


def test_updates_of_modules_are_known() -> None:
    with pytest.raises(AttributeValueError, match="updates beside modules of Flax"):
        from_jax(train, *made(), TOKENS, updates={0: 0})


class Perceptron(linen.Module):
    """Two layers and dropout."""

    @linen.compact
    def __call__(self, x: Any) -> Any:
        x = linen.LayerNorm()(linen.relu(linen.Dense(8)(x)))
        return linen.Dense(2)(linen.Dropout(0.1, deterministic=False)(x))


def linen_step(which: Any, state: Any, key: Any, x: Any, y: Any) -> Any:
    own = jax.random.fold_in(jax.random.fold_in(key, state.step), lax.axis_index("data"))

    def loss(params: Any) -> Any:
        return ((state.apply_fn(params, x, rngs={"dropout": own}) - y) ** 2).mean()

    value, grads = jax.value_and_grad(loss)(state.params)
    return state.apply_gradients(grads=averaged(grads, which)), lax.pmean(value, "data")


@pytest.mark.share(2)
@pytest.mark.parametrize("whole", [True, False])
def test_a_train_state_of_linen(whole: bool) -> None:
    model = Perceptron()
    params = model.init({"params": jax.random.key(0), "dropout": jax.random.key(1)}, X)
    state = TrainState.create(apply_fn=model.apply, params=params, tx=OPTIMISER)
    f = functools.partial(linen_step, lambda path: whole or "Dense_1" not in path)
    proof = popsr.prove(f, state, jax.random.key(2), X, Y, in_specs=(P(), P(), *DATA), **MAPPED)
    assert proof.ok is whole, str(proof)
    if not whole:
        assert "state.params['params']['Dense_1']['kernel']" in {each.path for each in proof.drifting}
