"""``sum`` against the oracle's running sum, and ``bracket`` against the oracle's neighbours."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from popsr import sr
from tests_py.sr.cases import (
    NAMES,
    from_bits,
    near,
    np_dtype,
    numbers_of,
    operand_bits,
    random_bits,
    specials,
    to_bits,
)
from tests_py.support.oracles import rounding as oracle
from tests_py.support.unchecked import unchecked

KEY = sr.Key(41)
BF16 = ml_dtypes.bfloat16


# Sum


def finite_bits(name: Any, n: Any, seed: Any = 0) -> Any:
    """Bits of numbers of one size, so that sums have something to round."""
    rng = np.random.default_rng(seed)
    return to_bits(rng.uniform(-1, 3, n).astype(np_dtype(name)), name)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("source", NAMES)
def test_running_sums(source: Any, name: Any) -> None:
    bits = finite_bits(source, 60)
    us = numbers_of(KEY, 60, 7)
    for mode, overflow in (
        ("sr", "ieee"),
        ("sr_equal", "saturate"),
        ("rn", "ieee"),
        ("rd", "ieee"),
        ("sr_bits=3", "ieee"),
    ):
        got = unchecked(sr.sum)(
            from_bits(bits, source), name, key=KEY, mode=mode, overflow=overflow, offset=7
        )
        expect = oracle.expected_sum(bits, source, name, us, mode=mode, overflow=overflow)
        assert got.shape == ()
        assert to_bits(got, name) == [expect], mode


@pytest.mark.parametrize("name", NAMES)
def test_sums_of_any_bits(name: Any) -> None:
    """Infinities, NaN, subnormals, overflow on the way."""
    rng = np.random.default_rng(3)
    for seed in range(20):
        bits = random_bits(name, 12, rng) + specials(name)[seed::11]
        got = to_bits(sr.sum(from_bits(bits, name), key=KEY.at(seed)), name)
        assert got == [oracle.expected_sum(bits, name, name, numbers_of(KEY.at(seed), len(bits)))]


AXES = [None, 0, 1, 2, -1, (0, 1), (1, 2), (2, 0), (0, 1, 2), ()]


@pytest.mark.parametrize("axis", AXES)
def test_axes(axis: Any) -> None:
    """Each element draws its own number, by its place in ``x``; elements are added in C order."""
    shape = (3, 4, 5)
    bits = np.array(finite_bits("float32", 60)).reshape(shape)
    us = np.array(numbers_of(KEY, 60), np.uint64).reshape(shape)
    axes = (
        tuple(range(3))
        if axis is None
        else tuple(a % 3 for a in (axis if isinstance(axis, tuple) else (axis,)))
    )
    kept = [a for a in range(3) if a not in axes]
    rest = tuple(shape[a] for a in kept)
    order = [*kept, *sorted(axes)]
    rows = bits.transpose(order).reshape(math.prod(rest), -1).tolist()
    numbers = us.transpose(order).reshape(math.prod(rest), -1).tolist()
    expect = [
        oracle.expected_sum(row, "float32", "bfloat16", u) for row, u in zip(rows, numbers, strict=True)
    ]
    x = from_bits(bits, "float32")
    for view in (x, np.array(x, order="F"), np.repeat(x, 2, axis=1)[:, ::2], x[::-1].copy()[::-1]):
        for threads in (1, 2, 5):
            got = sr.sum(view, "bfloat16", key=KEY, axis=axis, num_threads=threads)
            assert got.shape == rest
            assert to_bits(got, "bfloat16") == expect


def test_sums_of_nothing() -> None:
    assert sr.sum(np.zeros((0,), BF16), key=KEY) == 0
    got = sr.sum(np.zeros((3, 0, 2), np.float32), "float16", key=KEY, axis=1)
    assert (got.shape, got.dtype) == ((3, 2), np.float16)
    assert not np.any(np.signbit(got))
    assert np.array_equal(got, np.zeros((3, 2)))
    assert sr.sum(np.zeros((0, 3), np.float32), key=KEY, axis=1).shape == (0,)


def test_sums_without_rounding_are_those_of_numpy() -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for axis in AXES:
        assert np.array_equal(sr.sum(x, key=KEY, axis=axis), np.sum(x, axis=axis))
    assert float(sr.sum(np.array([-0.0, -0.0], np.float32), key=KEY)) == 0
    assert np.signbit(sr.sum(np.array([-0.0, -0.0], np.float32), key=KEY))


def test_many_long_rows() -> None:
    """More rows than one tile, and rows longer than one."""
    x = np.random.default_rng(0).uniform(0, 1, (700, 1500)).astype(np.float32)
    for axis in (0, 1):
        got = sr.sum(x, "bfloat16", key=KEY, axis=axis, num_threads=2)
        again = sr.sum(np.array(x, order="F"), "bfloat16", key=KEY, axis=axis, num_threads=1)
        assert got.tobytes() == again.tobytes()
        k = 123
        row = np.take(x, k, axis=1 - axis)
        places = np.arange(x.size).reshape(x.shape).take(k, axis=1 - axis)
        us = [numbers_of(KEY, 1, int(place))[0] for place in unchecked(places)]
        assert to_bits(got[k], "bfloat16") == [
            oracle.expected_sum(to_bits(row, "float32"), "float32", "bfloat16", us)
        ]


# Bracket


@pytest.mark.parametrize(
    ("first", "second"), list(itertools.product(NAMES, ["float64", "float32", "bfloat16", "float8_e5m2fnuz"]))
)
def test_brackets(first: Any, second: Any) -> None:
    columns = operand_bits((first, second), 60, np.random.default_rng(2))
    columns = [column[::3] for column in columns]
    x, y = (from_bits(column, name) for column, name in zip(columns, (first, second), strict=True))
    low, high, p = sr.bracket(x, y)
    assert low.dtype == high.dtype == x.dtype
    assert p.dtype == np.float64
    for i, (a, b) in enumerate(zip(*columns, strict=True)):
        exact = oracle.exact("add", oracle.decode(a, first), oracle.decode(b, second))
        lo, hi, chance = oracle.bracket(exact, first)
        assert oracle.decode(to_bits(low[i], first)[0], first) == lo
        assert oracle.decode(to_bits(high[i], first)[0], first) == hi
        assert p[i] == float(chance)


def test_brackets_of_scalars_have_exact_chances() -> None:
    low, high, p = sr.bracket(BF16(1), np.float32(2.0**-30))
    assert (float(low), float(high), p) == (1, 1 + 2.0**-7, Fraction(1, 2**23))
    assert isinstance(p, Fraction)
    assert type(low) is BF16
    low, high, p = sr.bracket(1.0, 2.0**-1074)
    assert (low, high, p) == (1.0, 1 + 2.0**-52, Fraction(1, 2**1022))
    low, high, p = sr.bracket(np.array(-1, np.float16), np.array(-(2.0**-12), np.float16))
    assert (float(low), float(high), p) == (-1 - 2.0**-10, -1, Fraction(3, 4))
    low, high, p = sr.bracket(1.5, 2.0)
    assert (low, high, p) == (3.5, 3.5, 0)
    assert isinstance(p, Fraction)


def test_brackets_at_the_limits() -> None:
    largest = np.finfo(np.float32).max
    low, high, p = sr.bracket(largest, np.float32(2.0**102))
    assert unchecked((low, high, p)) == (largest, np.inf, Fraction(1, 4))
    low, high, p = sr.bracket(-largest, np.float32(-(2.0**102)))
    assert unchecked((low, high, p)) == (-np.inf, -largest, Fraction(3, 4))
    assert unchecked(sr.bracket(largest, largest)) == (np.inf, np.inf, 0)
    low, high, p = sr.bracket(np.float32(np.inf), np.float32(-np.inf))
    assert np.isnan(low)
    assert np.isnan(high)
    assert p == 0
    low, high, p = sr.bracket(ml_dtypes.float8_e4m3fn(448), np.float32(8))
    assert (float(low), np.isnan(high), p) == (448, True, Fraction(1, 4))


@pytest.mark.parametrize("name", NAMES)
def test_brackets_say_what_add_does(name: Any) -> None:
    """``add`` gives ``hi`` iff the element's number is below the chance of going away from zero."""
    bits = random_bits(name, 400, np.random.default_rng(5))
    other = near(bits, name, name, np.random.default_rng(6))
    x, y = from_bits(bits, name), from_bits(other, name)
    low, high, p = sr.bracket(x, y)
    us = sr.uniform_bits(KEY, len(bits)).astype(np.float64) * 2.0**-64
    positive = low.astype(np.float64) >= 0
    is_high = np.where(positive, us < p, us >= 1 - p)
    expect = np.where(is_high & (p > 0), high.astype(np.float64), low.astype(np.float64))
    clear = np.minimum(np.abs(us - p), np.abs(us - (1 - p))) > 1e-9  # p and U as doubles
    got = sr.add(x, y, key=KEY).astype(np.float64)
    assert np.array_equal(got[clear], expect[clear], equal_nan=True)


def test_brackets_of_arrays_broadcast() -> None:
    low, high, p = sr.bracket(np.ones((2, 1), BF16), np.array([0, 2.0**-9, 2.0**-8], np.float32))
    assert p.tolist() == [[0, 0.25, 0.5]] * 2
    assert low.shape == high.shape == (2, 3)
    low, high, p = sr.bracket(np.ones((0, 3), BF16), np.ones(3, BF16))
    assert low.shape == high.shape == p.shape == (0, 3)
    raw = sr.bracket(np.array([0x3F80], np.uint16), np.array([2.0**-8]), dtype="bfloat16")
    assert [int(raw[0][0]), int(raw[1][0]), float(raw[2][0])] == [0x3F80, 0x3F81, 0.5]
