"""Chances, by counting: with fixed keys, against exact binomial bounds. Bit-for-bit checks are in test_decisions."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from popsr import StochasticAdder, sr
from tests_py.sr.cases import NAMES, np_dtype
from tests_py.sr.statistics import assert_binomial, binomial_interval
from tests_py.support.oracles.rounding import FORMATS

N = 40_000
KEY = sr.Key(77).fold_in("statistics")


def test_bounds_are_right() -> None:
    low, high = binomial_interval(100, 0.5, 1e-3)
    assert (low, high) == (35, 65)  # tables: P(X <= 34) = 0.0009, P(X <= 35) = 0.0018


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("sixteenths", [1, 4, 8, 13])
@pytest.mark.parametrize("name", NAMES)
def test_chances_are_distances(name: Any, sixteenths: Any, sign: Any) -> None:
    p = sixteenths / 16
    x = np.full(N, sign).astype(np_dtype(name))
    y = np.full(N, sign * p * 2.0 ** -FORMATS[name].fraction_bits)
    key = KEY.fold_in(f"{name} {sixteenths} {sign}")
    away = int(np.sum(np.abs(sr.add(x, y, key=key).astype(np.float64)) > 1))
    assert_binomial(away, N, p)
    away = int(np.sum(np.abs(sr.add(x, y, key=key.fold_in("equal"), mode="sr_equal").astype(np.float64)) > 1))
    assert_binomial(away, N, 0.5)


@pytest.mark.parametrize("rng", ["value", "counter"])
@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith("float8")])
def test_chances_of_an_adder(name: Any, rng: Any) -> None:
    """Pairs of different values, since the value form flips one coin for each pair: sums with a known mean of p."""
    form = FORMATS[name]
    every = np.random.default_rng(5).integers(0, 1 << (form.bits - 1), 4 * N)
    top = form.bias << form.fraction_bits
    x = (top + every[:N] % (1 << form.fraction_bits)).astype(f"u{form.bits // 8}").view(np_dtype(name))
    y = (top - (3 << form.fraction_bits) + every[N : 2 * N] % (1 << form.fraction_bits)).astype(
        x.view(f"u{form.bits // 8}").dtype
    )
    y = y.view(np_dtype(name))
    low = sr.add(x, y, key=KEY, mode="rz").astype(np.float64)
    high = sr.add(x, y, key=KEY, mode="ru").astype(np.float64)
    inexact = low < high
    adder = StochasticAdder(name, seed=3, rng=rng)
    moved = adder.add(x, y).astype(np.float64) == high
    assert_binomial(int(moved[inexact].sum()), int(inexact.sum()), 0.5, "add")
    # The last 3 bits of the residual are uniform: each eighth of the spacing has its share, and its chance.
    exact = (x.astype(np.longdouble) + y.astype(np.longdouble)).astype(np.longdouble)
    eighths = np.rint((exact - low) / np.where(inexact, high - low, 1) * 16).astype(int)
    moved = adder.add_biased(x, y).astype(np.float64) == high
    for k in range(1, 16):
        here = inexact & (eighths == k)
        if here.sum() > 500:
            assert_binomial(int(moved[here].sum()), int(here.sum()), k / 16, f"add_biased at {k}/16")


@pytest.mark.parametrize("increment", [5, 7, 9, 11, 16])
def test_small_increments_are_counted_right(increment: Any) -> None:
    """bf16 256 + 2^-increment: the chance is 2^-(increment + 1), whether or not fp32 has the sum."""
    n, p = 1 << 20, 2.0 ** -(increment + 1)
    x = np.full(n, 256.0, ml_dtypes.bfloat16)
    moved = sr.add(x, np.full(n, 2.0**-increment).astype(ml_dtypes.bfloat16), key=KEY.at(increment)) > 256
    assert_binomial(int(moved.sum()), n, p)


def test_addition_is_associative_on_average() -> None:
    """The mean of (a + b) + c - (a + (b + c)) over keys is within 4 standard errors of 0."""
    rng = np.random.default_rng(0)
    for name in ("float16", "bfloat16", "float8_e4m3fn", "float32"):
        a, b, c = (rng.uniform(0.1, 4, 64).astype(np_dtype(name)) for _ in range(3))
        differences = []
        for step in range(2000):
            key = KEY.at(step)
            k1, k2, k3, k4 = (key.fold_in(f"{name} {i}") for i in range(4))
            left = sr.add(sr.add(a, b, key=k1), c, key=k2)
            right = sr.add(a, sr.add(b, c, key=k3), key=k4)
            differences.append(left.astype(np.float64) - right.astype(np.float64))
        means = np.mean(differences, axis=0)
        errors = np.std(differences, axis=0) / np.sqrt(len(differences))
        assert np.any(errors > 0)
        # 4 standard errors for the mean of all, 5 for the largest of 64 means.
        assert abs(means.mean()) <= 4 * np.sqrt(np.mean(errors**2) / 64)
        assert np.all(np.abs(means) <= 5 * errors)


def test_additions_to_nearest_are_not_associative_on_average() -> None:
    """The same measure, so that it can fail."""
    a, b, c = (np.full(64, v).astype(ml_dtypes.bfloat16) for v in (256.0, 0.9, 0.9))
    add = lambda x, y: sr.add(x, y, key=KEY, mode="rn").astype(np.float64)  # noqa: E731
    left = add(sr.add(a, b, key=KEY, mode="rn"), c)
    right = add(a, sr.add(b, c, key=KEY, mode="rn"))
    assert np.all(left != right)


def test_elements_steps_and_names_draw_for_themselves() -> None:
    x, y = np.ones(N, np.float32), np.full(N, 2.0**-24, np.float32)
    moved = {
        k: sr.add(x, y, key=k) > 1 for k in (KEY, KEY.at(0), KEY.at(1), KEY.fold_in(0), KEY.fold_in("a"))
    }
    rows = list(moved.values())
    for i, a in enumerate(rows):
        assert_binomial(int(a.sum()), N, 0.5)
        for b in rows[:i]:
            assert_binomial(int(np.sum(a == b)), N, 0.5)
        for lag in (1, 7, 8, 64, 4096):
            assert_binomial(int(np.sum(a[lag:] == a[:-lag])), N - lag, 0.5, f"lag {lag}")
