"""``popsr.sr.jax`` and ``popsr.sr.optax`` beside the eager calls, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from popsr import errors, sr
from tests_py.sr.cases import NAMES, named_calls, np_dtype

jax = pytest.importorskip("jax")
jnp = jax.numpy
sj = pytest.importorskip("popsr.sr.jax")

MINUS = jnp.int32(-1)
KEY = sr.Key(5).fold_in("w")
OFFSETS = {"offset": 7}
CALLS = named_calls(np.float16)


def same(a: Any, b: Any) -> bool:
    a, b = np.asarray(a), np.asarray(b)
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def operands(name: str = "bfloat16", shape: Any = (4, 6)) -> Any:
    rng = np.random.default_rng(0)
    x = rng.uniform(0.5, 2, shape).astype(np_dtype(name))
    y, z = rng.uniform(0.1, 1, shape).astype(np.float32), rng.uniform(0.5, 1, shape[-1]).astype(np.float32)
    return x, y, z


@pytest.mark.parametrize("name", [name for name in NAMES if name != "float64"])
@pytest.mark.parametrize("what", CALLS)
def test_a_compiled_call_has_the_bits_of_the_eager_one(what: str, name: str) -> None:
    arrays = operands(name)
    compiled = jax.jit(lambda step, *xs: CALLS[what](sj, *xs, key=sj.Key(KEY).at(step), **OFFSETS))
    for step in (1, 2):
        expect = CALLS[what](sr, *arrays, key=KEY.at(step), **OFFSETS)
        assert same(compiled(step, *arrays), expect)
        assert same(CALLS[what](sj, *map(jnp.asarray, arrays), key=KEY.at(step), **OFFSETS), expect)


@pytest.mark.parametrize("mode", ["sr_equal", "rn", "ru", "sr_bits=4"])
def test_modes(mode: Any) -> None:
    x, y, _ = operands()
    assert same(
        jax.jit(lambda x, y: sj.add(x, y, key=KEY, mode=mode))(x, y), sr.add(x, y, key=KEY, mode=mode)
    )


@pytest.mark.parametrize("what", CALLS)
def test_mapped_operands_are_numbered_as_one_array(what: str) -> None:
    x, y, z = operands(shape=(3, 4, 6))
    mapped = jax.jit(jax.vmap(lambda x, y: CALLS[what](sj, x, y, z, key=KEY)))(x, y)
    if what == "sum":
        assert same(mapped, sr.sum(x, np.float16, axis=2, key=KEY))
    elif what == "sum all":
        assert same(mapped, sr.sum(x, axis=(1, 2), key=KEY))
    else:
        assert same(mapped, CALLS[what](sr, x, y, z, key=KEY))


@pytest.mark.parametrize("what", CALLS)
def test_mapped_keys_count_their_own_rows(what: str) -> None:
    x, y, z = operands(shape=(3, 4, 6))
    steps = jnp.arange(3)
    mapped = jax.jit(jax.vmap(lambda x, y, s: CALLS[what](sj, x, y, z, key=sj.Key(KEY).at(s))))(x, y, steps)
    assert same(mapped, np.stack([CALLS[what](sr, x[i], y[i], z, key=KEY.at(i)) for i in range(3)]))


def test_two_mapped_axes_of_which_one_is_the_key() -> None:
    x, y, _ = operands(shape=(2, 3, 6))

    def call(x: Any, y: Any, step: Any) -> Any:
        return sj.add(x, y, key=sj.Key(KEY).at(step))

    inner = jax.vmap(call, (0, 0, None))
    got = jax.jit(jax.vmap(inner))(x, y, jnp.arange(2))
    assert same(got, np.stack([sr.add(x[i], y[i], key=KEY.at(i)) for i in range(2)]))
    outer = jax.jit(jax.vmap(jax.vmap(call), (0, 0, None)))(x, y, jnp.arange(3))
    expect = np.stack([sr.add(x[:, i], y[:, i], key=KEY.at(i)) for i in range(3)], axis=1)
    assert same(outer, expect)


def test_operands_that_are_not_mapped_have_other_ranks() -> None:
    x, _, z = operands(shape=(3, 4, 6))
    assert same(jax.vmap(lambda x: sj.add(x, z, key=KEY))(x), sr.add(x, z, key=KEY))
    assert same(
        jax.vmap(lambda z, x: sj.add(x, z, key=KEY), (None, 1))(z, x), sr.add(x.swapaxes(0, 1), z, key=KEY)
    )


GRADIENTS: dict[str, Any] = {
    "add": lambda x, y, z: x + y,
    "sub": lambda x, y, z: x - y,
    "mul": lambda x, y, z: x * y,
    "fma": lambda x, y, z: x * y + z,
    "axpy": lambda x, y, z: 0.3 * x + y,
    "lerp": lambda x, y, z: x + 0.7 * (y - x),
    "lerp array": lambda x, y, z: x + z * (y - x),
    "addcmul": lambda x, y, z: x - 1.7 * y * z,
    "addcdiv": lambda x, y, z: x + 0.1 * y / z,
    "sum": lambda x, y, z: x.sum(1),
}


@pytest.mark.parametrize("what", GRADIENTS)
def test_gradients_are_those_before_rounding(what: str) -> None:
    arrays = [jnp.asarray(x, jnp.float32) for x in operands("float32")]

    def loss(*xs: Any) -> Any:
        return (CALLS[what](sj, *xs, key=KEY).astype(jnp.float32) * 3).sum()

    def smooth(*xs: Any) -> Any:
        return (GRADIENTS[what](*xs).astype(jnp.float32) * 3).sum()

    got = jax.jit(jax.grad(loss, (0, 1, 2)))(*arrays)
    for a, b in zip(got, jax.grad(smooth, (0, 1, 2))(*arrays), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-3 if what == "sum" else 1e-5)


def test_gradients_have_the_dtypes_of_the_operands() -> None:
    x, y, _ = map(jnp.asarray, operands("float8_e4m3fn"))
    dx, dy = jax.grad(lambda x, y: sj.add(x, y, key=KEY).astype(jnp.float32).sum(), (0, 1))(x, y)
    assert (dx.dtype, dy.dtype) == (x.dtype, y.dtype)
    assert (np.asarray(dy) == 1).all()


def test_a_scan_adds_what_nearest_loses() -> None:
    start = jnp.ones(4000, jnp.bfloat16)

    def body(w: Any, step: Any) -> Any:
        return sj.add(w, 2.0**-10, key=sj.Key(KEY).at(step)), None

    got, _ = jax.jit(lambda w: jax.lax.scan(body, w, jnp.arange(512)))(start)
    # The exact end is 1.5; a step moves by at most 2**-7, so 512 steps have a deviation below 2**-7 * 16 / 2.
    assert abs(float(np.asarray(got, np.float64).mean()) - 1.5) < 5 * 2.0**-4 / 4000**0.5
    again, _ = jax.lax.scan(body, start, jnp.arange(512))
    assert same(got, again)


def test_keys_of_jax_are_seeds() -> None:
    x, y, _ = map(jnp.asarray, operands())
    seed = int(np.asarray(jax.random.key_data(jax.random.key(3)))[1])
    got = jax.jit(lambda k: sj.add(x, y, key=sj.Key(k).fold_in("a").fold_in(2**40).at(1)))(jax.random.key(3))
    assert same(got, sr.add(x, y, key=sr.Key(seed).fold_in("a").fold_in(2**40).at(1)))


def test_a_traced_factor_is_the_factor() -> None:
    x, y, _ = operands("float32")
    got = jax.jit(lambda a: sj.axpy(a, x, y, key=KEY))(jnp.float32(0.375))
    assert same(got, sr.axpy(0.375, x, y, key=KEY))


X = np.ones(3, np.float32)
REFUSED: dict[str, Any] = {
    "no key": (lambda x: sj.add(x, x), errors.ArgumentTypeError, "add: key is missing"),
    "another key": (
        lambda x: sj.add(x, x, key=3),
        errors.ArgumentTypeError,
        "add: key is missing or of the wrong",
    ),
    "integers": (
        lambda x: sj.add(x, X.astype(int), key=KEY),
        errors.DTypeError,
        "no supported dtype, got int",
    ),
    "shapes": (lambda x: sj.add(x, X[:2], key=KEY), errors.ShapeError, "add: shapes do not broadcast"),
    "mode": (lambda x: sj.mul(x, x, key=KEY, mode="up"), errors.AttributeValueError, "mul: unknown mode"),
    "number first": (
        lambda x: sj.add(1.0, x, key=KEY),
        errors.ArgumentTypeError,
        "the first operand is a number",
    ),
    "nothing": (lambda x: sj.add(x, None, key=KEY), errors.ArgumentTypeError, "operand is not an array"),
    "axis": (lambda x: sj.sum(x, axis=4, key=KEY), errors.AttributeValueError, "sum: axis is out of range"),
    "dtype": (lambda x: sj.cast(x, "int8", key=KEY), errors.DTypeError, "cast: unknown dtype"),
    "step": (lambda x: sj.Key(1).at(0.5), errors.ArgumentTypeError, "Key.at: not an integer, got 0.5"),
    "negative step": (lambda x: sj.Key(1).at(-1), errors.AttributeValueError, "Key.at"),
    "negative step of jax": (lambda x: sj.Key(1).at(MINUS), errors.AttributeValueError, "Key.at: got -1"),
    "key": (lambda x: sj.Key(x), errors.ArgumentTypeError, "Key: not a key, got float32"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused_when_traced(what: str) -> None:
    call, kind, text = REFUSED[what]
    with pytest.raises(kind, match=text):
        jax.jit(call)(X)


# Optax


def tree(dtype: str) -> Any:
    rng = np.random.default_rng(1)
    return {
        "a": {"w": jnp.asarray(rng.standard_normal((8, 4)).astype(np_dtype(dtype)))},
        "b": jnp.asarray(rng.standard_normal(4), jnp.float32),
    }


@pytest.mark.parametrize("name", ["adamw", "sgd", "lion", "adafactor"])
def test_optimisers_of_optax_round_stochastically(name: str) -> None:
    """``optax.apply_updates`` gives the bits that eager sums of the unrounded updates have."""
    optax = pytest.importorskip("optax")
    inner = getattr(optax, name)(1e-3)
    optimiser = sr.optax.stochastic_rounding(inner, key=KEY)

    @jax.jit
    def step(params: Any, state: Any, grads: Any) -> Any:
        updates, state = optimiser.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    params, rng = tree("bfloat16"), np.random.default_rng(2)
    state, wide_state = (
        optimiser.init(params),
        inner.init(jax.tree.map(lambda x: x.astype(jnp.float32), params)),
    )
    inner_update = jax.jit(inner.update)
    for number in (1, 2, 3):
        grads = jax.tree.map(lambda x: jnp.asarray(rng.standard_normal(x.shape), x.dtype), params)
        wide, wide_grads = (jax.tree.map(lambda x: x.astype(jnp.float32), t) for t in (params, grads))
        updates, wide_state = inner_update(wide_grads, wide_state, wide)
        direct = sr.optax.apply_updates(params, updates, key=KEY.at(number))
        expect = sr.add(params["a"]["w"], updates["a"]["w"], key=KEY.at(number).fold_in("['a']['w']"))
        assert same(direct["a"]["w"], expect)
        params, state = step(params, state, grads)
        assert (
            float(np.mean(np.asarray(params["a"]["w"] != expect))) <= 1 / 32
        )  # XLA may fuse the update otherwise
        np.testing.assert_allclose(params["b"], wide["b"] + updates["b"], rtol=1e-6)
    assert params["a"]["w"].dtype == jnp.bfloat16


def test_optax_without_drift() -> None:
    optax = pytest.importorskip("optax")
    n, steps, rate = 4000, 200, 2.0**-12
    optimiser = sr.optax.stochastic_rounding(optax.sgd(rate), key=KEY)
    params = jnp.ones(n, jnp.bfloat16)

    def body(carry: Any, _: Any) -> Any:
        params, state = carry
        updates, state = optimiser.update(jnp.ones_like(params), state, params)
        return (optax.apply_updates(params, updates), state), None

    (params, _), _ = jax.jit(lambda c: jax.lax.scan(body, c, length=steps))((params, optimiser.init(params)))
    got = np.asarray(params, np.float64)
    assert abs(got.mean() - (1 - steps * rate)) < 5 * got.std() / n**0.5


def test_refused_by_optax() -> None:
    optax = pytest.importorskip("optax")
    with pytest.raises(errors.ArgumentTypeError, match="stochastic_rounding: key is missing"):
        sr.optax.stochastic_rounding(optax.sgd(0.1))
    with pytest.raises(errors.ArgumentTypeError, match="apply_updates: key is missing"):
        sr.optax.apply_updates(tree("bfloat16"), tree("float32"))
    optimiser = sr.optax.stochastic_rounding(optax.sgd(0.1), key=KEY)
    with pytest.raises(errors.ArgumentTypeError, match="params are missing"):
        optimiser.update(tree("bfloat16"), optimiser.init(tree("bfloat16")))
