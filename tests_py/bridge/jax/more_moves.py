"""Moves of random steps that reach the rarer primitives: windows, convolutions, scatters, functions, loops, keys."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.ad_checkpoint import checkpoint_name

from tests_py.bridge.jax.drawing import AXES, COLUMNS, ROWS, Move, exact, pick, tamed

__all__ = ["MORE_MOVES", "RARE_MOVES"]

Rng = np.random.Generator

_SMOOTH: list[Callable[[Any], Any]] = [
    lambda x: lax.acos(0.9 * lax.tanh(x)),
    lambda x: lax.acosh(1.5 + x * x),
    lambda x: lax.asin(0.9 * lax.tanh(x)),
    lax.asinh,
    lax.atan,
    lambda x: lax.atanh(0.9 * lax.tanh(x)),
    lambda x: lax.cbrt(1.0 + x * x),
    lax.cos,
    lax.cosh,
    lax.sinh,
    lambda x: lax.tan(lax.tanh(x)),
    lax.erfc,
    lax.exp2,
    lax.expm1,
    lambda x: lax.log(0.5 + x * x),
    lambda x: lax.log1p(x * x),
    lambda x: lax.rsqrt(0.5 + x * x),
    lambda x: lax.sqrt(0.5 + x * x),
    lambda x: lax.atan2(x, 1.0 + x * x),
    lambda x: lax.pow(1.0 + x * x, x),
    lambda x: lax.erf_inv(0.9 * lax.tanh(x)),
    lax.logistic,
]
_STEPPED: list[Callable[[Any], Any]] = [
    lax.ceil,
    lax.floor,
    lax.round,
    lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN),
    lax.sign,
    lambda x: lax.reduce_precision(x, 5, 7),
    lambda x: lax.nextafter(x, x + 1),
    lambda x: lax.is_finite(x).astype(x.dtype),
    lambda x: (x >= 0.5).astype(x.dtype),
]


def _smooth(rng: Rng, pool: list[Any]) -> Any:
    return tamed(_SMOOTH[rng.integers(len(_SMOOTH))](pick(rng, pool, jnp.float32)))


def _stepped(rng: Rng, pool: list[Any]) -> Any:
    """Functions that jump: of values without rounding errors."""
    x = pick(rng, exact(pool))
    return tamed(
        _STEPPED[rng.integers(len(_STEPPED))](x.astype(jnp.float32) / (1 if x.dtype == jnp.float32 else 4))
    )


def _words(rng: Rng, pool: list[Any]) -> Any:
    i = pick(rng, pool, jnp.int32)
    u = i.astype(jnp.uint32) * jnp.uint32(2654435761)
    moves: list[Callable[[], Any]] = [
        lambda: lax.population_count(u),
        lambda: lax.clz(u),
        lambda: lax.bitcast_convert_type(u >> 9 | jnp.uint32(0x3F800000), jnp.float32) - 1,
        lambda: lax.shift_right_arithmetic(i - 11, i & 3),
        lambda: lax.shift_right_logical(u, u & 7),
    ]
    found = moves[rng.integers(len(moves))]()
    return found if found.dtype == jnp.float32 else (found % 23).astype(jnp.int32)


def _along(rng: Rng, pool: list[Any]) -> Any:
    """Reductions and scans along a dimension."""
    x = pick(rng, pool)
    axis, back = int(rng.integers(2)), bool(rng.integers(2))
    jumps = pick(rng, exact(pool))
    moves: list[Callable[[], Any]] = [
        lambda: lax.cumprod(tamed(x), axis, back),
        lambda: lax.cummax(x, axis, back),
        lambda: lax.cummin(x, axis, back),
        lambda: lax.cumlogsumexp(x.astype(jnp.float32), axis, back),
        lambda: jnp.prod(tamed(x), axis, keepdims=True) + 0 * x,
        lambda: jnp.where((jumps > 1).all(axis, keepdims=True), x, tamed(x + 1)),
        lambda: jnp.where((jumps > 3).any(axis, keepdims=True), x, tamed(x + 2)),
        lambda: jnp.argmin(jumps, axis, keepdims=True).astype(jnp.int32) + jnp.zeros_like(x, jnp.int32),
        lambda: lax.top_k(jumps, 2)[0].repeat(2, 1),
        lambda: lax.top_k(jumps, COLUMNS)[1].astype(jnp.int32),
        lambda: lax.sort((jumps, x), dimension=axis, num_keys=1)[1],
        lambda: lax.reduce(tamed(x), np.zeros((), x.dtype), lambda a, b: a + b, (axis,))[None] + 0 * x,
    ]
    return tamed(moves[rng.integers(len(moves))]())


def _layout(rng: Rng, pool: list[Any]) -> Any:
    x = pick(rng, pool)
    moves: list[Callable[[], Any]] = [
        lambda: x[::-1],
        lambda: lax.rev(x, (0, 1)),
        lambda: jnp.concatenate(lax.split(x, (1, 3), 0)[::-1], 0),
        lambda: jnp.stack(jnp.unstack(x, axis=1)[::-1], 0),
        lambda: jnp.array(x, copy=True),
        lambda: lax.optimization_barrier((x, x.T))[1],
        lambda: lax.pad(x, np.ones((), x.dtype), ((-1, 1, 0), (1, -1, 0))),
        lambda: lax.pad(x[::2, ::2], np.ones((), x.dtype), ((0, 1, 1), (1, 0, 1))),
        lambda: lax.reshape(x, (COLUMNS, ROWS), (1, 0)),
        lambda: jax.device_put(x),
        lambda: lax.stop_gradient(checkpoint_name(x, "kept")),
        lambda: x + lax.broadcasted_iota(x.dtype, (ROWS, COLUMNS), int(rng.integers(2))),
    ]
    return tamed(moves[rng.integers(len(moves))]())


def _window(rng: Rng, pool: list[Any]) -> Any:
    x = pick(rng, exact(pool))
    whole = np.iinfo(np.int32)
    lowest, greatest = (whole.min, whole.max) if x.dtype == jnp.int32 else (-np.inf, np.inf)
    starts = [(lax.add, 0), (lax.max, lowest), (lax.min, greatest), (lax.add, 2), (lax.max, 1)]
    op, start = starts[rng.integers(len(starts))]
    window, dilation = (int(rng.integers(1, 4)), int(rng.integers(1, 3))), (1, int(rng.integers(1, 3)))
    if rng.integers(2):
        initial = np.full((), start, x.dtype)
        return tamed(lax.reduce_window(x, initial, op, window, (1, 1), "SAME", window_dilation=dilation))
    wide = x.astype(jnp.float32)[None, :, :, None]

    def pool_of(a: Any) -> Any:
        return lax.reduce_window(a, -np.inf, lax.max, (1, 2, 2, 1), (1, 1, 1, 1), "SAME")

    if rng.integers(2):
        return tamed(jax.grad(lambda a: (pool_of(a) * wide).sum())(wide)[0, :, :, 0])
    return tamed(jax.jvp(pool_of, (wide,), (wide,))[1][0, :, :, 0])


def _convolution(rng: Rng, pool: list[Any]) -> Any:
    x, k = pick(rng, pool, jnp.float32), pick(rng, pool, jnp.float32)
    left, right = x.reshape(1, 1, ROWS, COLUMNS), k[:3, :3].reshape(1, 1, 3, 3)
    moves: list[Callable[[], Any]] = [
        lambda: lax.conv_general_dilated(left, right, (1, 1), "SAME"),
        lambda: lax.conv_general_dilated(left, right, (1, 1), "SAME", rhs_dilation=(2, 1)),
        lambda: lax.conv_general_dilated(
            left[:, :, ::2], right, (1, 1), ((2, 1), (1, 1)), lhs_dilation=(2, 1)
        ),
        lambda: jax.grad(lambda a: lax.conv_general_dilated(a, right, (1, 1), "SAME").sum())(left),
        lambda: lax.conv_general_dilated(
            x.reshape(1, 4, 4), k[:, :3].reshape(4, 1, 3), (1,), "SAME", feature_group_count=4
        ),
    ]
    return jnp.tanh(moves[rng.integers(len(moves))]().reshape(ROWS, COLUMNS))


def _scatter(rng: Rng, pool: list[Any]) -> Any:
    x, i = pick(rng, pool), pick(rng, pool, jnp.int32)
    y = pick(rng, pool, x.dtype)
    rows = i[:, 0]
    moves: list[Callable[[], Any]] = [
        lambda: x.at[rows].max(y),
        lambda: x.at[rows].min(y),
        lambda: x.at[rows % ROWS].multiply(tamed(y), mode="promise_in_bounds"),
        lambda: x.at[rows, i[:, 1]].subtract(y[:, 0], mode="drop"),
        lambda: x.at[i[:, 1], rows].max(y[0], mode="clip"),
        lambda: x.at[:, rows].get(mode="clip"),
        lambda: x.at[rows, i[:, 2]].get(mode="fill", fill_value=3)[:, None] + 0 * y,
        lambda: x.at[jnp.arange(ROWS), i[:, 3] % COLUMNS].set(y[:, 1]),
    ]
    return tamed(moves[rng.integers(len(moves))]())


@jax.custom_jvp
def _with_jvp(x: Any) -> Any:
    return jnp.sin(x)


_with_jvp.defjvp(lambda x, t: (jnp.sin(x[0]), 2 * jnp.cos(x[0]) * t[0]))


@jax.custom_vjp
def _with_vjp(x: Any) -> Any:
    return x * x


_with_vjp.defvjp(lambda x: (x * x, x), lambda x, g: (jnp.tanh(x) * g,))


@jax.custom_batching.custom_vmap
def _with_vmap(x: Any) -> Any:
    return x + 1


@_with_vmap.def_vmap
def _vmapped(size: int, batched: Any, x: Any) -> Any:
    return x + 2, batched[0]


@functools.partial(lax.composite, name="popsr.test")
def _composed(x: Any) -> Any:
    return jnp.tanh(x) * 2


def _functions(rng: Rng, pool: list[Any]) -> Any:
    """Functions with derivatives and batches of their own, rematerialised and nested."""
    x = pick(rng, pool, jnp.float32)
    axis = AXES[rng.integers(2)]
    moves: list[Callable[[], Any]] = [
        lambda: jax.grad(lambda a: _with_jvp(a).sum())(x),
        lambda: _with_vjp(x),
        lambda: jax.grad(lambda a: (_with_vjp(a) * 3).sum())(x),
        lambda: jax.vmap(_with_vmap)(x),
        lambda: _with_vmap(x),
        lambda: _composed(x),
        lambda: jax.grad(lambda a: jax.checkpoint(lambda b: jnp.sin(jnp.sin(b)))(a).sum())(x),
        lambda: jax.vmap(lambda row: lax.psum(row, axis))(x),
        lambda: jax.grad(lambda a: lax.psum(jnp.sin(a), axis).sum())(x),
        lambda: jax.grad(lambda a: (lax.all_gather(a, axis) ** 2).sum())(x),
        lambda: jax.grad(lambda a: (lax.scan(lambda c, r: (jnp.tanh(c * r), c + r), a[0], a)[1]).sum())(x),
        lambda: jax.vmap(lambda row, by: lax.cond(by > 0, jnp.sin, jnp.cos, row))(x, pool[1].sum(1) - 20),
        lambda: lax.map(jax.checkpoint(lambda row: jnp.tanh(row @ x)), x),
        lambda: jax.jvp(lambda a: jnp.tanh(a @ a), (x,), (x,))[1],
    ]
    return tamed(moves[rng.integers(len(moves))]())


def _groups(rng: Rng, pool: list[Any]) -> Any:
    """Collectives on parts of axes, in other dimensions, and of several axes in both orders."""
    x = pick(rng, pool)
    axis = AXES[rng.integers(len(AXES))]
    one = AXES[rng.integers(2)]
    both = AXES[2 + rng.integers(2)]
    moves: list[Callable[[], Any]] = [
        lambda: lax.psum_scatter(x, both, scatter_dimension=1, tiled=True) + 0 * x,
        lambda: lax.psum_scatter(x, both, scatter_dimension=0)[None] + 0 * x,
        lambda: lax.all_gather(x, both, axis=1, tiled=True)[:, 3:13:3],
        lambda: lax.all_gather(x, one, axis=1)[:, 1],
        lambda: lax.all_gather(x, one, axis_index_groups=[[0], [1]])[0],
        lambda: lax.pmax(x, one, axis_index_groups=[[0, 1]]),
        lambda: lax.all_to_all(x, both, 1, 0, tiled=True).reshape(x.shape),
        lambda: lax.all_to_all(x, both, 0, 0),
        lambda: lax.ppermute(x, both, [(0, 3), (2, 1), (3, 2)]),
        lambda: lax.psum((x, x.T), axis)[1],
        lambda: lax.pmean(x.astype(jnp.float32), both),
        lambda: jnp.where(lax.axis_index(axis) > 0, x, x.T),
        lambda: lax.switch(lax.axis_index(axis), [lambda a: a, lambda a: a + 1, lambda a: a.T], x),
        lambda: lax.psum(1, axis) * x,
    ]
    return tamed(moves[rng.integers(len(moves))]())


def _loops(rng: Rng, pool: list[Any]) -> Any:
    x = pick(rng, pool)
    i = pick(rng, pool, jnp.int32)
    axis = AXES[rng.integers(len(AXES))]
    agreed = lax.pmax(i[0, 0], ("a", "b"))
    moves: list[Callable[[], Any]] = [
        lambda: lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, tamed(c[1] + x)), (0, x))[1],
        lambda: lax.while_loop(lambda c: c[0] < i[0, 0], lambda c: (c[0] + 3, tamed(c[1] + x)), (0, x))[1],
        lambda: lax.while_loop(
            lambda c: c[0] < agreed, lambda c: (c[0] + 5, tamed(lax.psum(c[1], axis))), (0, x)
        )[1],
        lambda: lax.while_loop(lambda c: (c < 20).all(), lambda c: c * 2 + 1, abs(i)) % 23,
        lambda: lax.fori_loop(0, i[1, 1], lambda k, c: tamed(c + x), x),
        lambda: lax.scan(
            lambda c, r: lax.cond(r[0] > 5, lambda: (tamed(c + x), r), lambda: (c, r + 1)), x, i
        )[0],
        lambda: lax.cond(
            agreed > 5,
            lambda a: lax.scan(lambda c, _: (lax.pmax(c.T, axis), None), a, None, 2)[0],
            lambda a: a,
            x,
        ),
        lambda: lax.associative_scan(jnp.maximum, x, axis=int(rng.integers(2))),
        lambda: lax.scan(lambda c, r: (c, lax.ppermute(r, "a", [(0, 1), (1, 0)])), 0, x)[1],
    ]
    return tamed(moves[rng.integers(len(moves))]())


def _keys(rng: Rng, pool: list[Any]) -> Any:
    i = pick(rng, pool, jnp.int32)
    words = jnp.stack([i[0, 0], i[1, 1]]).astype(jnp.uint32)
    key = jax.random.wrap_key_data(words)
    moves: list[Callable[[], Any]] = [
        lambda: jax.random.bits(jax.random.clone(key), (ROWS, COLUMNS)),
        lambda: jax.random.key_data(jax.random.split(key, (2, 4))).reshape(ROWS, COLUMNS),
        lambda: jax.random.permutation(key, COLUMNS)[None] + jnp.zeros((ROWS, 1), jnp.int32),
        lambda: jax.random.randint(jax.random.fold_in(key, lax.axis_index("a")), (ROWS, COLUMNS), 0, 23),
        lambda: jax.vmap(lambda n: jax.random.bits(jax.random.fold_in(key, n), (COLUMNS,)))(i[:, 0]),
        lambda: jax.random.categorical(key, pool[0], axis=1)[:, None] + jnp.zeros((1, COLUMNS), jnp.int32),
    ]
    return (moves[rng.integers(len(moves))]() % 23).astype(jnp.int32)


def _analysed(rng: Rng, pool: list[Any]) -> Any:
    """Primitives without a rule: the claims around their stand-ins must hold."""
    x = pick(rng, pool, jnp.float32)
    moves: list[Callable[[], Any]] = [
        lambda: lax.lgamma(1.5 + x * x),
        lambda: lax.digamma(1.5 + x * x),
        lambda: jnp.linalg.cholesky(x @ x.T + 9 * jnp.eye(ROWS)),
        lambda: jnp.linalg.qr(x + 9 * jnp.eye(ROWS))[1],
    ]
    return jnp.tanh(moves[rng.integers(len(moves))]())


MORE_MOVES: list[Move] = [
    _smooth, _smooth, _stepped, _words, _along, _along, _layout, _window, _convolution, _scatter, _functions,
    _functions, _groups, _groups, _loops, _loops, _keys,
]  # fmt: skip
"""Of primitives that have a rule."""

RARE_MOVES: list[Move] = [_analysed]
"""Of primitives that are analysed only."""
