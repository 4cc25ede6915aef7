"""Moves between devices, and moves that run functions: collectives, indices of devices, branches, loops, gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests_py.bridge.jax.sweep.drawing import SIDE, Drawing, is_complex

__all__ = ["MESH_MOVES"]

_NARROW = (jnp.float8_e4m3fn, jnp.float8_e5m2)


def _summed(d: Drawing) -> Any:
    return d.pick(lambda x: x.dtype not in (*_NARROW, jnp.bool_))


def reduction(d: Drawing) -> Any:
    axis = d.axis()
    x = _summed(d) if d.below(8) else d.pick(lambda x: x.dtype != jnp.bool_ and x.dtype not in _NARROW)
    kinds: list[tuple[str, Callable[[], Any]]] = [("psum", lambda: lax.psum(x, axis))]
    if not is_complex(x):
        kinds += [("pmax", lambda: lax.pmax(x, axis)), ("pmin", lambda: lax.pmin(x, axis)),
                  ("pmean", lambda: lax.pmean(x.astype(jnp.float32), axis)),
                  ("two", lambda: lax.psum((x, x.T), axis)[1])]  # fmt: skip
        one = d.one_axis()
        kinds += [("groups", lambda: lax.psum(x, one, axis_index_groups=d.groups(one))),
                  ("max of groups", lambda: lax.pmax(x, one, axis_index_groups=d.groups(one)))]  # fmt: skip
    return d.one(kinds)


def moved(d: Drawing) -> Any:
    axis, one = d.axis(), d.one_axis()
    x = d.pick(lambda x: x.dtype != jnp.bool_)
    size, many = d.size(one), d.size(axis)
    shift = d.below(many)
    order = d.rng.permutation(many)
    some = d.rng.permutation(many)[: max(1, many // 2)]
    wide = jnp.concatenate([x] * (size // SIDE)) if size > SIDE else x

    def of_groups() -> Any:
        parts = d.groups(one)
        return lax.all_gather(x, one, axis_index_groups=parts).reshape(len(parts[0]), SIDE, SIDE)[-1]

    def scattered_in_groups() -> Any:
        parts = d.groups(one, 2)
        return lax.psum_scatter(x.astype(jnp.float32), one, tiled=True, axis_index_groups=parts)

    return d.one([
        ("shift", lambda: lax.ppermute(x, axis, [(i, (i + shift) % many) for i in range(many)])),
        ("permute", lambda: lax.ppermute(x, axis, [(i, int(order[i])) for i in range(many)])),
        ("some", lambda: lax.ppermute(x, axis, [(int(some[i]), int(some[i - 1])) for i in range(len(some))])),
        ("gather", lambda: lax.all_gather(x, axis)[d.below(many)]),
        ("gather all", lambda: lax.all_gather(x, axis)[:, 0, 1]),
        ("tiled", lambda: lax.all_gather(x, one, axis=d.below(2), tiled=True)),
        ("gather groups", of_groups),
        ("scatter", lambda: lax.psum_scatter(wide.astype(jnp.float32), one, tiled=True)),
        ("scatter groups", scattered_in_groups),
        ("to all", lambda: lax.all_to_all(wide, one, 0, 0, tiled=True)),
        ("to all, joined", lambda: lax.all_to_all(wide, one, 0, 1, tiled=True)),
        ("to groups", lambda: lax.all_to_all(x, one, 0, 0, axis_index_groups=d.groups(one, 2), tiled=True)),
        ("own row of all", lambda: lax.all_gather(x, one)[lax.axis_index(one)]),
    ])  # fmt: skip


def place(d: Drawing) -> Any:
    axis = d.axis()
    i = lax.axis_index(axis)
    x = d.pick(lambda x: not is_complex(x) and x.dtype != jnp.bool_)
    big = np.int32([1 << 28, 1 << 30, -(1 << 31)][d.below(3)])
    return d.one([
        ("added", lambda: x + i.astype(x.dtype)), ("overflow", lambda: i * big * np.int32(4) + d.whole()),
        ("int8", lambda: (i.astype(jnp.int8) * np.int8(64)) * np.int8(4)), ("parity", lambda: (i % 2) + d.whole() * 0),
        ("half", lambda: i // 2), ("where", lambda: jnp.where(i > d.below(4), x, x.T)), ("row", lambda: x[i % SIDE]),
        ("beyond", lambda: jnp.where(i >= d.size(axis), x, x[0])), ("times zero", lambda: x + (i * 0).astype(x.dtype)),
        ("modulo", lambda: x + (i & 1).astype(x.dtype)), ("own slice", lambda: lax.dynamic_slice(x, (i, 0), (1, SIDE))),
        ("mean of all", lambda: lax.pmean(i.astype(jnp.float32), axis)), ("shifted", lambda: (i << 31) >> 31),
        ("cond", lambda: lax.cond(i % 2 == 0, lambda a: a, lambda a: a[::-1], x)),
    ])  # fmt: skip


def control(d: Drawing) -> Any:
    x = _summed(d)
    i, axis = d.whole(), d.axis()
    if is_complex(x):
        return lax.scan(lambda c, r: (c + r, c.real), x[0], x)[1]
    y = d.like(x)
    agreed = d.agreed()
    one = np.ones((), x.dtype)
    return d.one([
        ("cond", lambda: lax.cond(i[0, 0] > 5, lambda a, b: a, lambda a, b: a + b, x, y)),
        ("agreed cond", lambda: lax.cond(agreed > 9, lambda a, b: a, lambda a, b: b, x, y)),
        ("cond of psum", lambda: lax.cond(agreed > 9, lambda a: lax.psum(a, axis), lambda a: a, x)),
        ("same branches", lambda: lax.cond(i[0, 0] > 5, lambda a: a + one, lambda a: a + one, x)),
        ("switch", lambda: lax.switch(i[0, 0] % 3, [lambda a, b: a, lambda a, b: b, lambda a, b: a.T], x, y)),
        ("constant switch", lambda: lax.switch(1, [lambda a, b: a, lambda a, b: b], x, y)),
        ("scan", lambda: lax.scan(lambda c, r: (c + r, c), x[0], y)[1]),
        ("reverse", lambda: lax.scan(lambda c, r: (c * r, r + c), x[0], y, reverse=True)[1]),
        ("scan of psum", lambda: lax.scan(lambda c, _: (lax.psum(c, axis) + y, None), x, None, length=2)[0]),
        ("scan of pmax", lambda: lax.scan(lambda c, _: (lax.pmax(c.T, axis), c), x, None, length=2)[1][1]),
        ("scan of shift", lambda: lax.scan(lambda c, r: (c, lax.ppermute(r, "a", [(0, 1), (1, 0)])), 0, x)[1]),
        ("fori", lambda: lax.fori_loop(0, 3, lambda k, c: c + k.astype(c.dtype), x)),
        ("dynamic fori", lambda: lax.fori_loop(0, i[1, 1] % 4, lambda k, c: c + y, x)),
        ("while", lambda: lax.while_loop(
            lambda c: (c[0] < i[0, 0]) & (c[0] < 4), lambda c: (c[0] + 1, c[1] + y), (0, x))[1]),
        ("agreed while", lambda: lax.while_loop(
            lambda c: (c[0] < agreed) & (c[0] < 3), lambda c: (c[0] + 1, lax.pmax(c[1].T, axis)), (0, x))[1]),
        ("counted", lambda: lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * y), (0, x))[1]),
        ("map", lambda: lax.map(lambda r: r + r[0], x)), ("nested", lambda: lax.scan(
            lambda c, r: lax.cond(r[0] > 2, lambda: (c + y, r), lambda: (c, r + 1)), x, i)[0]),
        ("associative", lambda: lax.associative_scan(jnp.add, x)),
        ("two", lambda: lax.scan(lambda c, _: ((c[1], c[0]), c[0]), (x, y), None, length=3)[1][2]),
    ])  # fmt: skip


@jax.custom_vjp
def _odd(x: Any) -> Any:
    return x * x


_odd.defvjp(lambda x: (x * x, x), lambda x, g: (jnp.tanh(x) * g,))


@jax.custom_jvp
def _own(x: Any) -> Any:
    return jnp.sin(x)


_own.defjvp(lambda x, t: (jnp.sin(x[0]), 2 * jnp.cos(x[0]) * t[0]))


def functions(d: Drawing) -> Any:
    x, y, axis = d.number(), d.number(), d.axis()
    return d.one([
        ("custom_vjp", lambda: jax.grad(lambda a: (_odd(a) * y).sum())(x)), ("odd", lambda: _odd(x)),
        ("custom_jvp", lambda: jax.grad(lambda a: _own(a).sum())(x)), ("vmap", lambda: jax.vmap(lambda r: r @ y)(x)),
        ("grad of psum", lambda: jax.grad(lambda a: lax.psum(jnp.sin(a * y), axis).sum())(x)),
        ("grad of gather", lambda: jax.grad(lambda a: (lax.all_gather(a, axis) * 2).sum())(x)),
        ("mean of grad", lambda: lax.pmean(jax.grad(lambda a: jnp.tanh(a @ y).sum())(x), axis)),
        ("remat", lambda: jax.grad(lambda a: jax.checkpoint(lambda b: jnp.sin(b * y))(a).sum())(x)),
        ("jit", lambda: jax.jit(lambda a, b: a * b + a)(x, y)), ("softmax", lambda: jax.nn.softmax(x @ y)),
        ("grad of scan", lambda: jax.grad(lambda a: lax.scan(lambda c, r: (c * r, c), a[0], y)[1].sum())(x)),
        ("hessian", lambda: jax.jvp(jax.grad(lambda a: (a**3).sum()), (x,), (y,))[1]),
        ("step", lambda: x - 0.1 * lax.pmean(y, tuple(d.axes))),
    ])  # fmt: skip


MESH_MOVES = [
    reduction,
    reduction,
    reduction,
    moved,
    moved,
    moved,
    place,
    place,
    control,
    control,
    control,
    functions,
]
