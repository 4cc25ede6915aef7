"""Random functions for ``shard_map`` on a mesh of two by two."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P

from tests_py.bridge.jax.compare import devices
from tests_py.bridge.jax.drawing import AXES, COLUMNS, ROWS, Move, exact, pick, tamed
from tests_py.bridge.jax.more_moves import MORE_MOVES, RARE_MOVES

__all__ = ["MESH", "RandomStep", "random_step"]

MESH = {"a": 2, "b": 2}
SPECS = [P(), P("a"), P("b"), P(("a", "b")), P("a", "b")]


@dataclass(frozen=True)
class RandomStep:
    """A function of as many arrays as specs, all of whose values it returns, and arguments for it.

    Attributes:
        function: as ``shard_map`` maps it.
        args: arrays.
        specs: of the arguments.
        moves: names of what it does.
        check_vma: whether JAX checks varying axes.
        jaxpr: of the mapped function.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    specs: tuple[Any, ...]
    moves: list[str]
    check_vma: bool
    jaxpr: Any


def _binary(rng: np.random.Generator, pool: list[Any]) -> Any:
    x = pick(rng, pool)
    y = pick(rng, pool, x.dtype)
    op = [jnp.add, jnp.subtract, jnp.multiply, jnp.maximum, jnp.minimum][rng.integers(5)]
    return tamed(op(x, y))


def _unary(rng: np.random.Generator, pool: list[Any]) -> Any:
    x = pick(rng, pool, jnp.float32)
    op = [jnp.sin, jnp.exp, jnp.abs, jax.nn.relu, jax.nn.sigmoid, jnp.square, lax.erf][rng.integers(7)]
    return tamed(op(x))


def _cast(rng: np.random.Generator, pool: list[Any]) -> Any:
    x = pick(rng, exact(pool))
    return (x * 9).astype(jnp.int32) % 23 if x.dtype == jnp.float32 else x.astype(jnp.float32) / 23


def _select(rng: np.random.Generator, pool: list[Any]) -> Any:
    x = pick(rng, pool)
    a, b = pick(rng, pool, jnp.int32), pick(rng, pool, jnp.int32)
    return jnp.where(a > b, x, pick(rng, pool, x.dtype))


def _shape(rng: np.random.Generator, pool: list[Any]) -> Any:
    x, y = pick(rng, pool), pick(rng, pool)
    at = int(rng.integers(1, ROWS))
    moves = [
        lambda: x.T,
        lambda: jnp.concatenate([x[at:], x[:at]], 0),
        lambda: jnp.broadcast_to(x[at], x.shape),
        lambda: x.reshape(2, 2, 2, 2).transpose(2, 0, 3, 1).reshape(x.shape),
        lambda: jnp.pad(x[:, 1:], ((0, 0), (1, 0))),
        lambda: jnp.stack([x[0], x[1], x[1], x[3]], 1),
        lambda: jnp.repeat(x[:2], 2, axis=0) + (y.astype(x.dtype) * 0),
    ]
    return moves[rng.integers(len(moves))]()


def _reduce(rng: np.random.Generator, pool: list[Any]) -> Any:
    x = pick(rng, pool)
    axis = int(rng.integers(2))
    op: Any = [jnp.sum, jnp.max, jnp.min, jnp.cumsum][rng.integers(4)]
    out = op(x, axis=axis)
    return tamed(jnp.broadcast_to(jnp.expand_dims(out, axis) if out.ndim == 1 else out, x.shape))


def _order(rng: np.random.Generator, pool: list[Any]) -> Any:
    x = pick(rng, exact(pool))
    if rng.integers(2):
        return jnp.sort(x, axis=int(rng.integers(2)))
    out = (
        jnp.argsort(x, axis=1)
        if rng.integers(2)
        else jnp.argmax(x, axis=1, keepdims=True) + jnp.zeros_like(x, jnp.int32)
    )
    return out.astype(jnp.int32)


def _matmul(rng: np.random.Generator, pool: list[Any]) -> Any:
    return jnp.tanh(pick(rng, pool, jnp.float32) @ pick(rng, pool, jnp.float32))


def _indices(rng: np.random.Generator, pool: list[Any]) -> Any:
    x, i = pick(rng, pool), pick(rng, pool, jnp.int32)
    moves = [
        lambda: x[i[:, 0] % ROWS],
        lambda: jnp.take_along_axis(x, i % ROWS, 1),
        lambda: tamed(x.at[i[0]].add(x[1])),
        lambda: x.at[:, i[0, 0]].set(x[0]),
        lambda: lax.dynamic_update_slice(x, x[:2, :3], (i[0, 0], i[1, 1])),
        lambda: jnp.tile(lax.dynamic_slice(x, (i[0, 1], i[1, 0]), (2, 2)), (2, 2)),
        lambda: tamed(x.at[i[:, 1], i[:, 2]].add(x[:, 0])),
    ]
    return moves[rng.integers(len(moves))]()


def _collective(rng: np.random.Generator, pool: list[Any]) -> Any:
    x = pick(rng, pool)
    axis = AXES[rng.integers(len(AXES))]
    one = AXES[rng.integers(2)]
    size = 2 if isinstance(axis, str) else 4
    shift = int(rng.integers(1, size))
    moves = [
        lambda: tamed(lax.psum(x, axis)),
        lambda: lax.pmax(x, axis),
        lambda: lax.pmin(x, axis),
        lambda: tamed(lax.psum(x, axis) if x.dtype == jnp.int32 else lax.pmean(x, axis)),
        lambda: lax.ppermute(x, axis, [(i, (i + shift) % size) for i in range(size)]),
        lambda: lax.ppermute(x, one, [(0, 1)]),
        lambda: lax.all_to_all(x, one, 0, 0, tiled=True),
        lambda: lax.all_to_all(x, one, 0, 1, tiled=True).reshape(x.shape),
        lambda: lax.all_gather(x, axis)[int(rng.integers(size))],
        lambda: lax.all_gather(x, one, axis=0, tiled=True)[2:6],
        lambda: jnp.tile(tamed(lax.psum_scatter(x, one, tiled=True)), (2, 1)),
        lambda: lax.all_to_all(x, ("b", "a"), 0, 1, tiled=True).reshape(x.shape),
        lambda: x + (lax.axis_index(axis)).astype(x.dtype),
        lambda: tamed(lax.psum(x, one, axis_index_groups=[[0], [1]])),
    ]
    return moves[rng.integers(len(moves))]()


def _control(rng: np.random.Generator, pool: list[Any]) -> Any:
    x = pick(rng, pool)
    y, i = pick(rng, pool, x.dtype), pick(rng, pool, jnp.int32)
    axis = AXES[rng.integers(len(AXES))]
    moves = [
        lambda: lax.cond(i[0, 0] > 5, lambda a, b: a, lambda a, b: tamed(a + b), x, y),
        lambda: lax.switch(i[0, 0] % 3, [lambda a, b: a, lambda a, b: b, lambda a, b: a.T], x, y),
        lambda: lax.scan(lambda c, r: (tamed(c + r), c), x[0], y)[1],
        lambda: lax.scan(lambda c, r: (tamed(c * r), r + c), x[0], y, reverse=True)[1],
        lambda: lax.scan(lambda c, _: (tamed(lax.psum(c, axis) + y), None), x, None, length=3)[0],
        lambda: lax.fori_loop(0, 3, lambda k, c: tamed(c + k.astype(c.dtype)), x),
        lambda: lax.while_loop(
            lambda c: (c[0] < i[0, 0]) & (c[0] < 4), lambda c: (c[0] + 1, tamed(c[1] + y)), (0, x)
        )[1],
        lambda: lax.while_loop(
            lambda c: lax.pmax(c[0], ("a", "b")) < 3,
            lambda c: (c[0] + 1, tamed(lax.psum(c[1], axis))),
            (i[0, 0] % 3, x),
        )[1],
        lambda: jax.checkpoint(lambda a: tamed(a * 3))(x),
        lambda: jax.jit(lambda a, b: tamed(a + 2 * b))(x, y),
        lambda: lax.map(lambda r: r + r[0], x),
        lambda: lax.cond(lax.pmax(i[0, 0], ("a", "b")) > 9, lambda a: lax.pmax(a, axis), lambda a: a, x),
    ]
    return tamed(moves[rng.integers(len(moves))]())


def _gradient(rng: np.random.Generator, pool: list[Any]) -> Any:
    x, y = pick(rng, pool, jnp.float32), pick(rng, pool, jnp.float32)
    axis = AXES[rng.integers(len(AXES))]

    def loss(a: Any) -> Any:
        return (jax.nn.softmax(a @ y) * jnp.tanh(a)).sum()

    g = jax.grad(loss)(x)
    return jnp.tanh(lax.pmean(g, axis) if rng.integers(2) else g)


def _random(rng: np.random.Generator, pool: list[Any]) -> Any:
    i = pick(rng, pool, jnp.int32)
    key = jax.random.fold_in(jax.random.key(int(rng.integers(100))), i[0, 0])
    moves = [
        lambda: jax.random.uniform(key, (ROWS, COLUMNS)),
        lambda: jax.random.randint(key, (ROWS, COLUMNS), 0, 23),
        lambda: jnp.where(
            jax.random.bernoulli(jax.random.split(key)[1], 0.5, (ROWS, COLUMNS)), pick(rng, pool), 0
        ),
        lambda: jnp.tanh(jax.random.normal(key, (ROWS, COLUMNS))),
    ]
    return moves[rng.integers(len(moves))]()


def _bits(rng: np.random.Generator, pool: list[Any]) -> Any:
    a, b = pick(rng, pool, jnp.int32), pick(rng, pool, jnp.int32)
    op = [jnp.bitwise_and, jnp.bitwise_or, jnp.bitwise_xor][rng.integers(3)]
    return tamed((op(a, b) << (b & 7)) >> (a & 3)) if rng.integers(2) else tamed(op(a, ~b))


MOVES: list[Move] = [
    _binary, _binary, _unary, _cast, _select, _shape, _reduce, _order, _matmul, _indices, _collective, _collective,
    _collective, _control, _gradient, _random, _bits,
]  # fmt: skip


def random_step(seed: int) -> RandomStep:
    """A function of two to six moves on 4 x 4 arrays of float32 and int32."""
    outer = np.random.default_rng(seed)
    specs = (*(SPECS[outer.integers(len(SPECS))] for _ in range(3)), P())
    kinds = [np.float32, np.int32, np.float32, np.int32]
    args = []
    for spec, kind in zip(specs, kinds, strict=True):
        shape = [ROWS, COLUMNS]
        for dimension, axes in enumerate(spec):
            shape[dimension] *= 1 if axes is None else 2 ** len([axes] if isinstance(axes, str) else axes)
        values = outer.uniform(-2, 2, shape) if kind == np.float32 else outer.integers(0, 23, shape)
        args.append(values.astype(kind))
    kept = [MOVES, MORE_MOVES, RARE_MOVES]
    lists = [kept[k] for k in outer.choice(3, size=outer.integers(2, 7), p=[0.45, 0.53, 0.02])]
    order = [moves[outer.integers(len(moves))] for moves in lists]

    def function(*values: Any) -> Any:
        rng = np.random.default_rng(seed + 1)  # the same moves in each trace
        pool = [jnp.asarray(value) for value in values]
        for move in order:
            pool.append(move(rng, pool))
        return tuple(pool)

    names = [move.__name__ for move in order]
    for check in [True, False] if outer.integers(3) == 0 else [False]:
        mesh = devices(MESH)
        mapped = jax.shard_map(function, mesh=mesh, in_specs=specs, out_specs=P(("a", "b")), check_vma=check)
        try:
            jaxpr = jax.make_jaxpr(mapped)(*args)
            break
        except (ValueError, TypeError, NotImplementedError, KeyError):  # the check refuses some
            if not check:
                raise
    return RandomStep(function, tuple(args), specs, names, check, jaxpr)
