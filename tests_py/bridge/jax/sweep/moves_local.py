"""Moves on one device: arithmetic, element types, bits, order, matrices, complex numbers, random bits."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests_py.bridge.jax.sweep.drawing import FLOATS, INTS, SIDE, Drawing, is_complex, is_float

__all__ = ["LOCAL_MOVES"]


def binary(d: Drawing) -> Any:
    x = d.pick()
    y = d.like(x)
    both = [("add", lambda: x + y), ("sub", lambda: x - y), ("mul", lambda: x * y), ("max", lambda: lax.max(x, y)),
            ("min", lambda: lax.min(x, y))]  # fmt: skip
    if x.dtype == jnp.bool_:
        return d.one([("and", lambda: x & y), ("or", lambda: x | y), ("xor", lambda: x ^ y)])
    if is_float(x):
        both += [("div", lambda: x / y), ("rem", lambda: lax.rem(x, y)), ("nextafter", lambda: lax.nextafter(x, y)),
                 ("pow", lambda: lax.pow(x, y)), ("atan2", lambda: jnp.arctan2(x, y))]  # fmt: skip
    else:
        both += [("and", lambda: x & y), ("xor", lambda: x ^ y), ("shift", lambda: lax.shift_left(x, y)),
                 ("div", lambda: lax.div(x, y | 1)), ("rem", lambda: lax.rem(x, y | 1)),
                 ("shift_right", lambda: lax.shift_right_arithmetic(x, y & 7))]  # fmt: skip
    return d.one(both)


def unary(d: Drawing) -> Any:
    x = d.number()
    names = "sin cos exp log tanh sqrt rsqrt erf abs neg floor ceil sign logistic expm1 log1p cbrt is_finite lgamma"
    return d.one([(name, lambda name=name: getattr(lax, name)(x)) for name in names.split()])  # type: ignore[misc]


def cast(d: Drawing) -> Any:
    x = d.pick()
    kinds = [*INTS, *FLOATS, jnp.bool_, *((jnp.float64, jnp.int64, jnp.uint64) if d.wide else ())]
    return x.astype(kinds[d.below(len(kinds))])


_BY_WIDTH: dict[int, list[Any]] = {
    1: [jnp.int8, jnp.uint8, jnp.float8_e4m3fn, jnp.float8_e5m2],
    2: [jnp.int16, jnp.uint16, jnp.bfloat16, jnp.float16],
    4: [jnp.int32, jnp.uint32, jnp.float32],
}


def bitcast(d: Drawing) -> Any:
    x = d.pick(lambda x: not is_complex(x) and x.dtype != jnp.bool_)
    here = x.dtype.itemsize
    kinds = _BY_WIDTH | {8: [jnp.float64, jnp.int64, jnp.uint64]} if d.wide else _BY_WIDTH
    width = here if d.below(2) and here in kinds else [*kinds][d.below(len(kinds))]
    to = kinds[width][d.below(len(kinds[width]))]
    if width > here:
        x = x.reshape(-1, width // here)
    return lax.bitcast_convert_type(x, to)


def precision(d: Drawing) -> Any:
    x = d.pick(is_float)
    pairs = [(5, 10), (8, 7), (4, 3), (5, 2), (8, 3), (3, 9), (6, 12)]
    return lax.reduce_precision(x, *pairs[d.below(len(pairs))])


def select(d: Drawing) -> Any:
    x = d.pick()
    y, a, b = d.like(x), d.number(), d.number()
    return d.one([
        ("greater", lambda: jnp.where(a > b, x, y)), ("nan", lambda: jnp.where(jnp.isnan(a), x, y)),
        ("row", lambda: jnp.where(a[0, 0] < b[0, 0], x, y)), ("n", lambda: lax.select_n(d.whole() % 3, x, y, x.T)),
        ("clamp", lambda: lax.clamp(lax.min(x, y), y.T, lax.max(x, y)) if x.dtype != jnp.bool_ else x | y),
        ("signs", lambda: jnp.where(jnp.signbit(a), x, y)),
    ])  # fmt: skip


def shape(d: Drawing) -> Any:
    x = d.pick()
    at = d.below(3) + 1
    y = d.like(x)
    return d.one([
        ("transpose", lambda: x.T), ("roll", lambda: jnp.concatenate([x[at:], y[:at]])), ("row", lambda: x[at]),
        ("rev", lambda: x[::-1]), ("column", lambda: x[:, at]), ("pad", lambda: jnp.pad(x[:, 1:], ((0, 0), (1, 0)))),
        ("stack", lambda: jnp.stack([x[0], y[1], x[2], y[0]], 1)), ("set", lambda: x.at[at].set(y[0])),
        ("block", lambda: x.at[:2, at:].set(y[2:, at:])),
    ])  # fmt: skip


def reduce(d: Drawing) -> Any:
    x = d.pick(lambda x: not is_complex(x) and x.dtype not in (jnp.float8_e4m3fn, jnp.float8_e5m2))
    axis = d.below(2)
    names = ["sum", "max", "min", "prod", "cumsum", "cumprod", "argmax", "argmin", "any", "all"]
    return d.one([(name, lambda name=name: getattr(jnp, name)(x, axis=axis)) for name in names])  # type: ignore[misc]


def order(d: Drawing) -> Any:
    x = d.pick(lambda x: not is_complex(x) and x.dtype not in (jnp.float8_e4m3fn, jnp.float8_e5m2, jnp.bool_))
    axis, y = d.below(2), d.like(x)
    return d.one([
        ("sort", lambda: jnp.sort(x, axis=axis)), ("argsort", lambda: jnp.argsort(x, axis=axis)),
        ("pairs", lambda: lax.sort((x, y), dimension=axis, num_keys=1)[1]), ("top_k", lambda: lax.top_k(x, 2)[0]),
        ("which", lambda: lax.top_k(x, 2)[1]),
        ("two keys", lambda: lax.sort((x, y, x.T), dimension=axis, num_keys=2)[2]),
    ])  # fmt: skip


def indices(d: Drawing) -> Any:
    x, i = d.pick(), d.whole()
    y = d.like(x)
    return d.one([
        ("take", lambda: x[i[:, 0] % SIDE]), ("along", lambda: jnp.take_along_axis(x, i % SIDE, 1)),
        ("add", lambda: x.at[i[0]].add(y[0]) if x.dtype != jnp.bool_ else x),
        ("set", lambda: x.at[:, i[0, 0]].set(y[0])),
        ("slice", lambda: lax.dynamic_slice(x, (i[0, 1], i[1, 0]), (2, 2))),
        ("update", lambda: lax.dynamic_update_slice(x, y[:2, :3], (i[0, 0], i[1, 1]))),
        ("fill", lambda: x.at[i[:, 2]].get(mode="fill")),
    ])  # fmt: skip


def matrix(d: Drawing) -> Any:
    x, y = d.number(), d.number()
    tame = jnp.tanh(x)
    square = tame @ tame.T + 9 * jnp.eye(SIDE)
    return d.one([
        ("matmul", lambda: x @ y), ("bf16", lambda: (x.astype(jnp.bfloat16) @ y.astype(jnp.bfloat16))),
        ("qr", lambda: jnp.linalg.qr(tame)[d.below(2)]), ("cholesky", lambda: jnp.linalg.cholesky(square)),
        ("solve", lambda: jnp.linalg.solve(square, y)), ("eigh", lambda: jnp.linalg.eigh(square)[1]),
        ("svd", lambda: jnp.linalg.svd(square)[0]), ("det", lambda: jnp.linalg.det(square)),
        ("integers", lambda: d.whole() @ d.whole()),
    ])  # fmt: skip


def complex_numbers(d: Drawing) -> Any:
    old = [x for x in d.values if is_complex(x)]
    c = d.pick(is_complex) if old and d.below(3) else lax.complex(d.number(), d.number())
    x = d.number()
    return d.one([
        ("kept", lambda: c), ("real", lambda: c.real), ("imag", lambda: c.imag), ("abs", lambda: jnp.abs(c)),
        ("conj", lambda: jnp.conj(c)), ("mul", lambda: c * c), ("exp", lambda: jnp.exp(c)),
        ("fft", lambda: jnp.fft.fft(c)),
        ("rfft", lambda: jnp.fft.rfft(x)), ("ifft", lambda: jnp.fft.ifft(c).real), ("add", lambda: (c + x).imag),
        ("matmul", lambda: (c @ c).real), ("where", lambda: jnp.where(x > 0, c, c.T)), ("sum", lambda: c.sum(0).real),
        ("equal", lambda: c == c.T), ("sqrt", lambda: jnp.sqrt(c).imag), ("scan", lambda: jnp.cumsum(c, 0).real),
    ])  # fmt: skip


def random(d: Drawing) -> Any:
    i = d.whole()
    impl = ["threefry2x32", "rbg", "unsafe_rbg"][d.below(3)]
    seed = i[0, 0] if d.below(2) else d.below(9)
    key = jax.random.key(seed, impl=impl)
    data = jax.random.key_data
    at = i[1, 1] if d.below(2) else lax.axis_index(d.axis())
    keys = {
        "seed": lambda: key, "fold": lambda: jax.random.fold_in(key, at), "split": lambda: jax.random.split(key)[1],
        "wrapped": lambda: jax.random.wrap_key_data(data(key) ^ i[0, 2].astype(jnp.uint32), impl=impl),
        "row": lambda: jax.random.split(key, (4,))[at % 4],
        "cond": lambda: lax.cond(i[0, 3] > 2, lambda k: jax.random.split(k)[0], lambda k: k, key),
    }  # fmt: skip
    name = [*keys][d.below(len(keys))]
    key = keys[name]()
    draws = {
        "bits": lambda: jax.random.bits(key, (SIDE, SIDE)), "normal": lambda: jax.random.normal(key, (SIDE, SIDE)),
        "words": lambda: data(key), "uint8": lambda: jax.random.bits(key, (SIDE, SIDE), jnp.uint8),
        "uniform": lambda: jax.random.uniform(key, (SIDE, SIDE)), "rand": lambda: jax.random.randint(key,
        (SIDE, SIDE), 0, 99),
        "exponential": lambda: jax.random.exponential(key,
        (SIDE,)), "permuted": lambda: jax.random.permutation(key, i[0]),
        "category": lambda: jax.random.categorical(key, d.number()),
    }  # fmt: skip
    drawn = [*draws][d.below(len(draws))]
    d._kind = f"{impl} {name} {drawn}"
    return draws[drawn]()


def constants(d: Drawing) -> Any:
    bits = np.array([0x7FC00001, 0xFFC12345, 0x80000000, 0x7F800000, 0, 1, 0x3F800000, 0x7F7FFFFF], np.uint32)
    made = bits[d.rng.integers(len(bits), size=(SIDE, SIDE))].view(np.float32)
    x = d.number()
    return d.one([
        ("alone", lambda: jnp.asarray(made)), ("add", lambda: x + made), ("max", lambda: lax.max(x, jnp.asarray(made))),
        ("mul", lambda: x * made), ("where", lambda: jnp.where(x > 0, x, made)), ("zero", lambda: x * 0.0),
    ])  # fmt: skip


LOCAL_MOVES = [
    binary, binary, unary, cast, bitcast, bitcast, precision, select, shape, shape, reduce, order, indices, matrix,
    complex_numbers, complex_numbers, random, random, constants,
]  # fmt: skip
