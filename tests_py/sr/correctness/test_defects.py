"""Inputs on which other libraries go wrong (spec: stochastic adder, section 2): each must come out right here.

The letters are the specification's. Where a defect is about chances, the decisions are compared with the
numbers of ``uniform_bits``, not counted.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from popsr import StochasticAdder, sr
from tests_py.sr.cases import NAMES, np_dtype
from tests_py.support.oracles.rounding import FORMATS

BF16 = ml_dtypes.bfloat16
KEY = sr.Key(3).fold_in("defects")
WIDE = ("float64", "float32", "float16", "bfloat16")


def full(value: Any, name: Any, n: Any = 2000) -> Any:
    return np.full(n, value).astype(np_dtype(name))


def u_of(key: Any, n: Any = 2000) -> Any:
    return sr.uniform_bits(key, n)


def chance(p: Any) -> Any:
    """As a threshold."""
    return np.uint64(int(p * 2**64))


def adders(name: Any) -> Any:
    return [
        StochasticAdder(name, seed=s, rng=r) for s in (0, 1, 3, 7, 9, 2**64 - 1) for r in ("value", "counter")
    ]


@pytest.mark.parametrize("name", NAMES)
def test_s1_r9_adding_zero_changes_nothing(name: Any) -> None:
    """Other adders: bf16 1.0 + 0.0 moves in 0.4 % of draws; 1.0 drifts to 0.969 in 2,000 steps."""
    values = np.array([1.0, -1.0, 0.0, 1.5, 0.015625]).astype(np_dtype(name))
    w = np.repeat(values, 40)
    zero = np.zeros_like(w)
    for step in range(2000):
        sr.add_(w, zero, key=KEY.at(step))
    assert w.tobytes() == np.repeat(values, 40).tobytes()
    for adder in adders(name):
        for _ in range(20):
            adder.add(w, zero, out=w)
            adder.add_biased(w, zero, out=w)
    assert w.tobytes() == np.repeat(values, 40).tobytes()


@pytest.mark.parametrize("power", [5, 7, 9, 11, 16, 17, 40])
def test_s2_i2_small_increments_have_their_chance(power: Any) -> None:
    """Other adders: up to 16 times too often with few random bits, never beyond fp32's last place."""
    n = 1 << 18
    moved = sr.add(full(256, "bfloat16", n), full(2.0**-power, "bfloat16", n), key=KEY) > 256
    assert np.array_equal(moved, u_of(KEY, n) < chance(2.0 ** -(power + 1)))


@pytest.mark.parametrize("name", NAMES)
def test_s3_cancellation_gives_zero(name: Any) -> None:
    x = np.array([0.5, 1.0, 0.75] * 500).astype(np_dtype(name))
    for got in (sr.sub(x, x, key=KEY), *(adder.add(x, (-x).astype(x.dtype)) for adder in adders(name))):
        assert np.all(got.astype(np.float64) == 0)
        assert not np.any(np.signbit(got.astype(np.float64)))


@pytest.mark.parametrize("name", ["float64", "float32", "float16", "bfloat16", "float8_e5m2"])
def test_s4_infinity_stays(name: Any) -> None:
    """Other adders: inf + 1 is the largest finite number."""
    inf, one = full(np.inf, name), full(1, name)
    results = [sr.add(inf, one, key=KEY)] + [f(inf, one) for a in adders(name) for f in (a.add, a.add_biased)]
    assert all(np.all(got.astype(np.float64) == np.inf) for got in results)
    assert np.all(sr.sub(one, inf, key=KEY).astype(np.float64) == -np.inf)
    if name in ("float32", "bfloat16"):  # finite overflow is not the largest number for ever
        assert np.all(np.isinf(sr.add(full(3e38, name), full(3e38, name), key=KEY).astype(np.float64)))


@pytest.mark.parametrize("name", WIDE)
def test_s5_v4_the_residual_does_not_overflow(name: Any) -> None:
    """Half way between two values, one operand the largest number: decided by the coin in both orders."""
    form = FORMATS[name]
    largest = form.magnitude(form.max_code)
    spacing = form.magnitude(form.max_code) - form.magnitude(form.max_code - 1)
    x, y = full(float(largest), name), full(float(-spacing * 3 / 2), name)
    high, low = float(largest - spacing), float(largest - 2 * spacing)
    expect = np.where(u_of(KEY) < chance(0.5), high, low)
    for got in (sr.add(x, y, key=KEY), sr.add(y, x, key=KEY)):
        assert np.array_equal(got.astype(np.float64), expect)
    for adder in adders(name):
        found = {*adder.add(x, y).astype(np.float64).tolist(), *adder.add(y, x).astype(np.float64).tolist()}
        assert found <= {low, high}


def test_s6_subnormals_are_added() -> None:
    x = np.full(100, 1e-39, np.float32)
    assert np.all(sr.add(x, x, key=KEY) == np.float32(1e-39) * 2)


def test_s7_fp16_works() -> None:
    x, y = full(1.0, "float16"), full(2.0**-12, "float16")
    for adder in adders("float16"):
        assert {*adder.add(x, y).tolist()} <= {1.0, 1 + 2.0**-10}
    assert np.array_equal(sr.add(x, y, key=KEY) > 1, u_of(KEY) < chance(0.25))


def test_s8_addcdiv_rounds_once() -> None:
    """1 + 1/3: the mean has no error beyond the random decisions'."""
    n = 1 << 16
    got = sr.addcdiv(full(1, "bfloat16", n), full(1, "bfloat16", n), full(3, "bfloat16", n), key=KEY)
    p = (1 + 1 / 3 - 1.328125) / 2.0**-7
    assert {*got.astype(np.float64).tolist()} == {1.328125, 1.3359375}
    away = u_of(KEY, n) < chance(2 / 3)  # 1 + 1/3 is 42 2/3 spacings above 1
    assert p == pytest.approx(2 / 3)
    assert np.array_equal(got > 1.33, away)


@pytest.mark.parametrize("name", NAMES)
def test_s9_v3_doubling_is_exact(name: Any) -> None:
    """A hash of x xor y is 0 for equal operands."""
    x = np.arange(1, 8).astype(np_dtype(name))
    for got in (sr.add(x, x, key=KEY), *(f(x, x) for a in adders(name) for f in (a.add, a.add_biased))):
        assert np.array_equal(got.astype(np.float64), 2 * np.arange(1, 8))
    zero = np.zeros(3, x.dtype)
    assert all(not np.any(a.add(zero, zero).astype(np.float64)) for a in adders(name))


@pytest.mark.parametrize("name", ["bfloat16", "float32", "float64"])
@pytest.mark.parametrize("seed", [0, 1, 3, 7, 9, 255])
def test_s10_no_seed_is_weak(name: Any, seed: Any) -> None:
    """With a weak hash, seeds 1, 3, 7 and 9 give one side always for operands between 1 and 2."""
    form, n = FORMATS[name], 5000
    rng = np.random.default_rng(seed)
    x = rng.uniform(1, 2, n).astype(np_dtype(name))
    y = (rng.integers(1, 1 << 4, n) * 2.0 ** -(form.fraction_bits + 4)).astype(np_dtype(name))
    low, high = (sr.add(x, y, key=KEY, mode=mode) for mode in ("rd", "ru"))
    inexact = low < high
    up = (StochasticAdder(name, seed=seed).add(x, y) == high)[inexact]
    assert 0.45 < up.mean() < 0.55
    assert 0.45 < (StochasticAdder(name, seed=seed, rng="counter").add(x, y) == high)[inexact].mean() < 0.55


def test_s10_n_plus_one_is_exact() -> None:
    n = np.arange(1, 100_001, dtype=np.float32)
    for seed in (1, 7, 9):
        assert np.array_equal(StochasticAdder("float32", seed=seed).add(n, np.ones_like(n)), n + 1)


def test_s12_add_biased_works() -> None:
    for adder in adders("bfloat16"):
        assert float(adder.add_biased(np.array([1], BF16), np.array([2], BF16))[0]) == 3


@pytest.mark.parametrize("sixteenths", [1, 2, 4, 6, 7, 12, 15])
def test_v1_c1_i6_i8_no_chance_is_cut_off(sixteenths: Any) -> None:
    """Chances saturating at 1/8, at 1/4, at 0, or rounded to 8 bits."""
    for name in WIDE:
        y = full(sixteenths / 16 * 2.0 ** -FORMATS[name].fraction_bits, "float64")
        moved = sr.add(full(1, name), y, key=KEY) > 1
        assert np.array_equal(moved, u_of(KEY) < chance(sixteenths / 16))


def test_c2_native_precision_moves() -> None:
    """2^24 + 1/2 in fp32: a chance of 1/4."""
    moved = sr.add(full(2.0**24, "float32"), full(0.5, "float32"), key=KEY) > 2**24
    assert np.array_equal(moved, u_of(KEY) < chance(0.25))


def test_c4_q1_p1_seeds_give_their_own_sequence() -> None:
    x, y = full(1, "float32"), full(2.0**-24, "float32")
    assert np.array_equal(sr.add(x, y, key=sr.Key(1)), sr.add(x, y, key=sr.Key(1)))
    assert not np.array_equal(sr.add(x, y, key=sr.Key(1)), sr.add(x, y, key=sr.Key(2)))
    assert StochasticAdder("float32").seed != StochasticAdder("float32").seed


def test_q2_strides_and_broadcast_operands_are_respected() -> None:
    x = np.arange(16, dtype=np.float32)
    assert np.array_equal(sr.add(x[::2], x[1::2], key=KEY), x[::2] + x[1::2])
    three = np.broadcast_to(np.float32(3), 4)
    assert np.array_equal(sr.add(three, three, key=KEY), np.full(4, 6, np.float32))


def test_q3_fp16_and_fp8_keep_nan_and_their_largest_value() -> None:
    wide = np.array([np.nan, np.inf, -np.inf, 70000, -70000], np.float32)
    assert np.array_equal(
        sr.cast(wide, "float16", key=KEY),
        np.array([np.nan, np.inf, -np.inf, np.inf, -np.inf]),
        equal_nan=True,
    )
    saturated = sr.cast(wide, "float16", key=KEY, overflow="saturate")
    assert np.array_equal(saturated, np.array([np.nan, 65504, -65504, 65504, -65504]), equal_nan=True)
    e4m3 = sr.cast(wide, "float8_e4m3fn", key=KEY, overflow="saturate").astype(np.float64)
    assert np.array_equal(e4m3, [np.nan, 448, -448, 448, -448], equal_nan=True)


def test_q4_ties_go_to_even() -> None:
    halves = np.array([1 + 2.0**-8, 1 + 3 * 2.0**-8], np.float32)
    assert sr.cast(halves, "bfloat16", key=KEY, mode="rn").astype(np.float64).tolist() == [1.0, 1 + 2.0**-6]


def test_i1_nans_of_all_ones_are_not_zeros() -> None:
    nans = np.array([0x7FFFFFFF, 0x7F800001, 0xFFFFFFFF, 0xFF800001] * 500, np.uint32).view(np.float32)
    assert np.all(np.isnan(sr.cast(nans, "bfloat16", key=KEY).astype(np.float32)))
    assert np.all(np.isnan(sr.add(full(1, "bfloat16"), nans, key=KEY).astype(np.float32)))


def test_i3_alpha_scales_the_update() -> None:
    w = full(1, "bfloat16")
    sr.add_(w, full(10, "bfloat16"), key=KEY, alpha=0.125)
    assert np.all(w.astype(np.float64) == 2.25)
    sr.sub_(w, full(10, "bfloat16"), key=KEY, alpha=0.125)
    assert np.all(w.astype(np.float64) == 1)


def test_i4_i5_zero_updates_do_not_drift() -> None:
    """Noise that is added and not cut off moves exact values in half of the draws; dithering twice makes NaN of 0."""
    w = np.array([1.0, 0.0, -0.0, 3.0], BF16)
    before = w.tobytes()
    for step in range(200):
        sr.add_(w, np.zeros(4, np.float32), key=KEY.at(step))
        sr.cast(w, "bfloat16", key=KEY.at(step), out=w)
    assert w[[0, 1, 3]].tobytes() == np.frombuffer(before, BF16)[[0, 1, 3]].tobytes()


def test_i4b_j2_fp16_subnormals_have_their_chance() -> None:
    """2^-26 becomes 2^-24 in a quarter of the draws, and only that or 0."""
    got = sr.cast(full(2.0**-26, "float32"), "float16", key=KEY).astype(np.float64)
    assert np.array_equal(got, np.where(u_of(KEY) < chance(0.25), 2.0**-24, 0))


def test_i6_the_largest_fraction_below_one() -> None:
    """65,535/65,536 and 1/65,536 of the spacing of bf16."""
    n = 1 << 18
    for part in (1, 65535):
        moved = sr.cast(full(1 + part * 2.0**-23, "float32", n), "bfloat16", key=KEY) > 1
        assert np.array_equal(moved, u_of(KEY, n) < chance(part / 65536))


def test_i7_fp8_is_not_rounded_to_fp16_first() -> None:
    x = full(1 + 2.0**-3 - 2.0**-14, "float32")  # fp16 would make it 1.125, which e4m3 has
    got = sr.cast(x, "float8_e4m3fn", key=KEY).astype(np.float64)
    assert np.array_equal(got, np.where(u_of(KEY) < chance(1 - 2.0**-11), 1.125, 1))


def test_i9_parameters_need_not_share_their_coins() -> None:
    x, y = full(1, "bfloat16"), full(2.0**-8, "bfloat16")
    names = [sr.add(x, y, key=sr.Key(0).fold_in(name)).tobytes() for name in ("w0", "w1", "b0", "b1")]
    assert len(set(names)) == 4


def test_j1_fp64_beside_a_power_of_two() -> None:
    """1 - 2^-55 goes down to 1 - 2^-53 in a quarter of the draws; 1.0 stays."""
    got = sr.add(full(1, "float64"), full(-(2.0**-55), "float64"), key=KEY)
    # Away from zero is up: to 1 with a chance of 3/4.
    assert np.array_equal(got, np.where(u_of(KEY) < chance(0.75), 1.0, 1 - 2.0**-53))
    assert np.all(sr.add(full(1, "float64"), full(0, "float64"), key=KEY) == 1)


def test_p2_equal_chances_are_not_certain() -> None:
    up = sr.add(full(1, "bfloat16"), full(2.0**-10, "bfloat16"), key=KEY, mode="sr_equal") > 1
    assert np.array_equal(up, u_of(KEY) < chance(0.5))
