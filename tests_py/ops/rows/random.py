"""Rows of the table of ops for random numbers and dropout; the bits that seeds draw, by the cipher's description."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

import popsr
from tests_py.ops.rows.inputs import Case, Draw, Facts, Row, normal, special, together
from tests_py.support.helpers import FLOATS, INTS, Array
from tests_py.support.oracles import ars as ars_oracle
from tests_py.support.oracles import ops as oracles

SEED_TENSOR, DRAWN = 0x301, 0x302
UNIFORM, NORMAL, MASK, SEED = range(4)


@functools.cache
def _numbers(words: tuple[int, int], drawn: int, count: int) -> Array:
    key = ars_oracle.fold(ars_oracle.ROOT, SEED_TENSOR, words[0] << 32 | words[1])
    key = ars_oracle.fold(key, DRAWN, drawn)
    numbers = np.empty(count, np.uint64)
    for first in range(0, count, 8):
        blocks = [ars_oracle.ars7((first // 8, word), key) for word in range(4)]
        for i in range(first, min(count, first + 8)):
            number = 0
            for low, high in blocks:
                number = number << 16 | (high << 64 | low) >> (16 * (i % 8)) & 0xFFFF
            numbers[i] = number
    return numbers


def bits(seed: Array, drawn: int, count: int) -> Array:
    """The 64 bits of each element."""
    return _numbers((int(seed[0]), int(seed[1])), drawn, count)


def _unit(numbers: Array) -> Array:
    return (numbers >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _toward(values: Array, bound: float) -> Array:
    """The neighbours in the direction of a bound."""
    return np.nextafter(values, np.asarray(bound, values.dtype))


def uniform(
    seed: Array, shape: tuple[int, ...], low: float = 0.0, high: float = 1.0, dtype: str = "float32"
) -> Array:
    """To nearest; what that takes out of the range goes to the next number inside."""
    u = _unit(bits(seed, UNIFORM, int(np.prod(shape, dtype=int))))
    drawn = oracles.round_once(low + (high - low) * u, dtype)
    for _ in range(2):
        wide = drawn.astype(np.float64)
        drawn = np.where(wide < low, _toward(drawn, np.inf), drawn)
        drawn = np.where(wide >= high, _toward(drawn, -np.inf), drawn)
    return drawn.reshape(shape)


def standard_normal(seed: Array, count: int) -> Array:
    """Box and Muller, in long double from the same float64 numbers."""
    numbers = bits(seed, NORMAL, count + count % 2)
    w = (numbers[::2].astype(np.float64) + 1) * 2.0**-64
    radius = np.sqrt(-2 * np.log(w.astype(np.longdouble)))
    angle = 2 * np.longdouble("3.14159265358979323846264338327950288") * _unit(numbers[1::2])
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1).reshape(-1)[:count]


def _normal(
    seed: Array, shape: tuple[int, ...], mean: float = 0.0, std: float = 1.0, dtype: str = "float32"
) -> Array:
    z = standard_normal(seed, int(np.prod(shape, dtype=int)))
    return (mean + std * z).astype(np.float64).reshape(shape)


def kept(seed: Array, shape: tuple[int, ...], p: float) -> Array:
    """Mask of the elements that are kept."""
    numbers = bits(seed, MASK, int(np.prod(shape, dtype=int)))
    threshold = -int(-p * 2**64 // 1)
    return np.array([int(number) >= threshold for number in numbers], bool).reshape(shape)


def _masked(t: Array, mask: Array, p: float) -> Array:
    with np.errstate(all="ignore"):
        return np.where(mask, t * t.dtype.type(1 / (1 - p)), t.dtype.type(0))


def _dropout(t: Array, seed: Array, p: float) -> Array:
    return _masked(t, kept(seed, t.shape, p), p)


def _shaped_dropout(t: Array, seed: Array, shape: tuple[int, ...], ratio: float) -> Array:
    return _masked(t, kept(seed, shape, ratio), ratio)


def modified(seed: Array, modifier: int) -> Array:
    """The seed that a modifier makes."""
    moved = np.array([seed[0], (int(seed[1]) + modifier) % 2**32], np.uint32)
    return np.array([seed[0], int(bits(moved, SEED, 1)[0]) >> 32], np.uint32)


def _split(seed: Array, n: int = 2) -> tuple[Array, ...]:
    return tuple(modified(seed, i) for i in range(n))


def _create(seed: Array, modifier: Array) -> Array:
    return modified(seed, int(modifier.reshape(-1)[0]))


# Rows


def a_seed(rng: np.random.Generator, name: str) -> list[Array]:
    """Two words."""
    return [rng.integers(0, 2**32, 2, np.uint32)]


def _fixed(*words: int) -> Draw:
    return lambda rng, name: [np.array(words, np.uint32)]


def _single(fn: Any, seed: popsr.Tensor, **attrs: Any) -> popsr.Tensor:
    """A float64 result as float32: the oracle is not exact to the last place of float64."""
    return popsr.ops.cast(fn(seed, **attrs), popsr.float32)


_OF_SEEDS = ("uint32",)


def _random(oracle: Any, first: str, second: str, options: tuple[tuple[str, float, float], ...]) -> Row:
    def case(shape: tuple[int, ...], label: str, draw: Draw = a_seed, **attrs: Any) -> Case:
        call = _single if attrs.get("dtype") == "float64" and oracle is _normal else None
        return Case(draw, oracle, {"shape": shape, **attrs}, label, _OF_SEEDS, call=call)

    return Row(
        (
            case((3, 5), ""),
            case((1100,), "tiles"),
            case((), "scalar"),
            case((2, 0), "empty"),
            case((9,), "zero-seed", _fixed(0, 0)),
            case((9,), "all-ones", _fixed(2**32 - 1, 2**32 - 1)),
            *(case((33,), name, dtype=name) for name in FLOATS),
            *(
                case((40,), f"{label}-{name}", **dict[str, Any]({first: low, second: high, "dtype": name}))
                for label, low, high in options
                for name in FLOATS
            ),
        ),
        "nothing",
        defaults={"dtype": popsr.float32},
    )


_RANGES = (("around", -3.0, 5.0), ("inexact", 0.1, 0.3), ("narrow", 1.0, 1.02), ("below", -2.0, 0.0))
_LAWS = (("shifted", 2.0, 0.5), ("wide", -1.0, 300.0), ("constant", 1.25, 0.0))


def _dropouts(oracle: Any, ratio: str, shapes: tuple[tuple[tuple[int, ...], dict[str, Any]], ...]) -> Row:
    def case(label: str, t: Draw, p: float, attrs: dict[str, Any], *, smooth: bool = False) -> Case:
        return Case(together(t, (a_seed, "uint32")), oracle, {**attrs, ratio: p}, label, smooth=smooth)

    def nothing(t: Array, seed: Array, **_: Any) -> Array:
        return t

    first, attrs = shapes[0]
    values = len(special(1)(np.random.default_rng(0), "float32")[0])
    flat: dict[str, Any] = {"shape": (values,)} if attrs else {}
    identity = Case(
        together(special(1), (a_seed, "uint32")), nothing, {**flat, ratio: 0.0}, "identity", smooth=False
    )
    return Row(
        (
            *(
                case("x".join(map(str, shape)), normal(shape), 0.3, given, smooth=bool(np.prod(shape) > 9))
                for shape, given in shapes
            ),
            case("half", normal(first), 0.5, attrs, smooth=True),
            case("most", normal(first), 0.9, attrs),
            case("rarely", normal(first), 1e-30, attrs),
            case("special", special(1), 0.5, flat),
            identity,
        ),
        "finite",
        replicas=(Facts(("0011", "0101"), "0011", case=identity, label="nothing-dropped"),),
    )


def random_rows() -> dict[str, Row]:
    """Rows by op."""
    plain: Any = tuple((shape, {}) for shape in ((3, 5), (1100,), (), (2, 0)))
    masks: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
        ((4, 6, 5), (4, 1, 5)),
        ((4, 30), (30,)),
        ((4, 30), (4, 1)),
        ((3, 4), (3, 4)),
        ((2, 600, 3), (2, 600, 1)),
        ((5,), (1,)),
        ((5,), ()),
        ((0, 3), (1, 3)),
    ]
    shaped = tuple((t, {"shape": mask}) for t, mask in masks)
    modifier = (lambda rng, name: [np.array(rng.integers(0, 100), name)]), "uint32"
    return {
        "random_uniform": _random(uniform, "low", "high", _RANGES),
        "random_normal": _random(_normal, "mean", "std", _LAWS),
        "dropout": _dropouts(_dropout, "p", plain),
        "shaped_dropout": _dropouts(_shaped_dropout, "ratio", shaped),
        "split_random_seed": Row(
            (
                Case(a_seed, _split, {}, "", _OF_SEEDS),
                Case(a_seed, _split, {"n": 1}, "one", _OF_SEEDS),
                Case(a_seed, _split, {"n": 5}, "five", _OF_SEEDS),
                Case(_fixed(7, 2**32 - 1), _split, {"n": 3}, "wraps", _OF_SEEDS),
            ),
            "nothing",
        ),
        "create_random_seed": Row(
            (
                Case(together(a_seed, modifier), _create, {}, "", _OF_SEEDS),
                *(
                    Case(together(a_seed, (_constant(m), name)), _create, {}, f"{m}-{name}", _OF_SEEDS)
                    for m, name in ((3, name) for name in INTS)
                ),
                Case(together(a_seed, (_constant(-1), "int64")), _create, {}, "negative", _OF_SEEDS),
                Case(together(a_seed, (_constant(2**40 + 5), "int64")), _create, {}, "wraps", _OF_SEEDS),
            ),
            "nothing",
        ),
    }


def _constant(value: int) -> Draw:
    return lambda rng, name: [np.array([value], name)]
