"""The portable form over several devices of JAX, and in optimisers of optax and Flax: the bits of one device."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from popsr import errors, sr
from tests_py.bridge.jax.older import add_newer_names
from tests_py.sr.cases import np_dtype

jax = pytest.importorskip("jax")
add_newer_names(jax)
jnp = jax.numpy
sj = pytest.importorskip("popsr.sr.jax")
P = jax.sharding.PartitionSpec

KEY = sr.Key(5)
SUM = KEY.fold_in("w").at(3)


def same(a: Any, b: Any) -> bool:
    a, b = np.asarray(a), np.asarray(b)
    return bool(a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes())


@pytest.fixture
def mesh() -> Any:
    if len(jax.devices()) < 4:
        pytest.skip(
            f"JAX has {len(jax.devices())} devices, started by a test before: run this folder by itself"
        )
    return jax.sharding.Mesh(np.array(jax.devices()[:4]), ("data",))


def operands(shape: tuple[int, ...] = (12, 20)) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    return rng.normal(size=shape).astype(np_dtype("bfloat16")), rng.normal(0, 1e-3, shape).astype(np.float32)


def is_local(text: str) -> bool:
    """True for compiled code in which devices compute alone, without the host."""
    moves = r" (all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter)\S*\("
    return not re.search(moves, text) and not re.search(r'custom_call_target="[^"]*callback', text)


@pytest.mark.parametrize("spec", [P("data"), pytest.param(P(None, "data"), marks=pytest.mark.slow)])
def test_shards_have_the_bits_of_one_device_and_are_not_gathered(mesh: Any, spec: Any) -> None:
    sharding = jax.sharding.NamedSharding(mesh, spec)
    w, u = (jax.device_put(x, sharding) for x in operands())
    add = jax.jit(
        lambda w, u, step: sj.add(w, u, key=sj.Key(KEY).fold_in("w").at(step), portable=True),
        donate_argnums=0,
    )
    compiled = add.lower(w, u, 3).compile()
    assert is_local(compiled.as_text())
    found = compiled(w, u, 3)
    assert found.sharding.is_equivalent_to(sharding, 2)
    assert w.is_deleted()
    assert same(found, sr.add(*operands(), key=SUM))


def test_shards_in_shard_map_count_from_their_offset(mesh: Any) -> None:
    w, u = operands()

    def local(w: Any, u: Any) -> Any:
        offset = sj.shard_offset(w, "data")
        return sj.add(w, u, key=SUM, offset=offset, portable=True), sj.cast(
            u, "float16", key=SUM, offset=offset, portable=True
        )

    step = jax.jit(jax.shard_map(local, mesh=mesh, in_specs=P("data"), out_specs=P("data")))
    total, cast = step(w, u)
    assert is_local(step.lower(w, u).compile().as_text())
    assert same(total, sr.add(w, u, key=SUM))
    assert same(cast, sr.cast(u, "float16", key=SUM))


def test_offsets_of_large_arrays_have_two_words(mesh: Any) -> None:
    def offsets(x: Any) -> Any:
        return sj.shard_offset(jax.ShapeDtypeStruct((2**31 - 16 + 5,), x.dtype), "data")

    found = jax.jit(jax.shard_map(offsets, mesh=mesh, in_specs=P("data"), out_specs=P("data")))(jnp.ones(4))
    assert [low + (high << 32) for low, high in np.asarray(found).reshape(4, 2).tolist()] == [
        k * (2**31 - 11) for k in range(4)
    ]


def test_offsets_of_other_axes_are_refused() -> None:
    with pytest.raises(errors.UnsupportedError, match=r"shard_offset: .*got axis 1, expected 0"):
        sj.shard_offset(jnp.ones((2, 2)), "data", axis=1)


# Optimisers


def params() -> Any:
    return {"w": jnp.ones((8, 4), jnp.bfloat16), "b": jnp.ones(4)}


def test_optimisers_of_optax_need_no_callback_in_a_scan(mesh: Any) -> None:
    optax = pytest.importorskip("optax")
    found = []
    for portable in (False, True):
        tx = sr.optax.stochastic_rounding(optax.sgd(2.0**-10), key=KEY, portable=portable)

        def run(params: Any, tx: Any = tx) -> Any:
            def step(carry: Any, _: Any) -> Any:
                params, state = carry
                grads = jax.grad(lambda p: sum(x.astype(jnp.float32).sum() for x in jax.tree.leaves(p)))(
                    params
                )
                updates, state = tx.update(grads, state, params)
                return (optax.apply_updates(params, updates), state), None

            return jax.lax.scan(step, (params, tx.init(params)), length=5)[0][0]

        compiled = jax.jit(run).lower(params()).compile()
        assert is_local(compiled.as_text()) is portable
        found.append(compiled(params()))
    assert all(same(found[0][name], found[1][name]) for name in ("w", "b"))
    assert not same(found[0]["w"], params()["w"])


@pytest.mark.slow
def test_updates_of_shards_have_the_bits_of_whole_parameters(mesh: Any) -> None:
    pytest.importorskip("optax")
    w, u = operands()

    def local(w: Any, u: Any) -> Any:
        options: Any = {"portable": True, "offset": lambda p: sj.shard_offset(p, "data")}
        return sr.optax.apply_updates({"w": w}, {"w": u}, key=KEY.at(1), **options)["w"]

    found = jax.jit(jax.shard_map(local, mesh=mesh, in_specs=P("data"), out_specs=P("data")))(w, u)
    assert same(found, sr.add(w, u, key=KEY.at(1).fold_in("['w']")))


@pytest.mark.parametrize("portable", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_optimisers_of_flax_have_the_bits_of_a_loop_with_optax(portable: bool) -> None:
    optax, nnx = pytest.importorskip("optax"), pytest.importorskip("flax.nnx")
    model = nnx.Linear(8, 4, param_dtype=jnp.bfloat16, dtype=jnp.float32, rngs=nnx.Rngs(0))
    tx = sr.optax.stochastic_rounding(optax.adamw(1e-3), key=KEY, portable=portable)
    optimizer, x = nnx.Optimizer(model, tx, wrt=nnx.Param), jnp.linspace(-1, 1, 80).reshape(10, 8)
    definition, start = nnx.split(model)

    def loss_of(model: Any) -> Any:
        return (model(x) ** 2).mean()

    @nnx.jit
    def step(model: Any, optimizer: Any) -> None:
        optimizer.update(model, nnx.grad(loss_of)(model))

    @jax.jit
    def plain(params: Any, state: Any) -> Any:
        def loss(params: Any) -> Any:
            filled = jax.tree.map(lambda x: x, start)
            nnx.replace_by_pure_dict(filled, params)
            return loss_of(nnx.merge(definition, filled))

        updates, state = tx.update(jax.grad(loss)(params), state, params)
        return optax.apply_updates(params, updates), state

    params = jax.tree.map(jnp.copy, nnx.to_pure_dict(start))
    state = tx.init(params)
    for _ in range(3):
        step(model, optimizer)
        params, state = plain(params, state)
    assert model.kernel[...].dtype == jnp.bfloat16
    assert same(model.kernel[...], params["kernel"])
    assert same(model.bias[...], params["bias"])
