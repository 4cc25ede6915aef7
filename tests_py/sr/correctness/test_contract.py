"""The correctness contract, line by line: value, coupling, specials, safety of the residual, independence."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from popsr import sr
from tests_py.sr.cases import (
    MODES,
    NAMES,
    call,
    exact_results,
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
from tests_py.support.oracles.rounding import FORMATS
from tests_py.support.unchecked import unchecked

KEY = sr.Key(99).fold_in("contract")


def overlapping_pairs(name: Any, n: Any = 1500, seed: Any = 0) -> Any:
    rng = np.random.default_rng(seed)
    x = random_bits(name, n, rng)
    return x, near(x, name, name, rng)


# 1. value


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", NAMES)
def test_exact_results_never_move(name: Any, mode: Any) -> None:
    """Sums that the format has, found by the oracle among all pairs of specials; x + 0, x - x, x + x among them."""
    columns = operand_bits((name, name), 300, np.random.default_rng(0))
    some = random_bits(name, 300, np.random.default_rng(1))
    columns = [
        columns[0] + some + some + some,
        columns[1] + some + [b ^ FORMATS[name].sign for b in some] + [0] * 300,
    ]
    if not FORMATS[name].negative_zero:
        columns = [[0 if b == FORMATS[name].sign else b for b in column] for column in columns]
    exact = exact_results("add", columns, (name, name))
    down = [oracle.round_bits(x, name, "rd") for x in exact]
    keeps = [
        d == oracle.round_bits(x, name, "ru") and x.kind == "finite" for d, x in zip(down, exact, strict=True)
    ]
    assert sum(keeps) > 600
    x, y = (from_bits(column, name)[keeps] for column in columns)
    expect = [d for d, keep in zip(down, keeps, strict=True) if keep]
    for step in range(3):
        assert to_bits(sr.add(x, y, key=KEY.at(step), mode=mode), name) == expect


@pytest.mark.parametrize("name", NAMES)
def test_only_neighbours(name: Any) -> None:
    x, y = (from_bits(bits, name) for bits in overlapping_pairs(name))
    low, high = (to_bits(sr.add(x, y, key=KEY, mode=mode), name) for mode in ("rd", "ru"))
    seen = set()
    for step in range(4):
        for mode in ("sr", "sr_equal", "sr_bits=5"):
            got = to_bits(sr.add(x, y, key=KEY.at(step), mode=mode), name)
            assert all(g in (a, b) for g, a, b in zip(got, low, high, strict=True))
            seen |= {(i, g) for i, g in enumerate(got)}
    inexact = sum(a != b for a, b in zip(low, high, strict=True))
    assert len(seen) > len(low) + inexact // 4  # both of them occur


def test_chances_use_the_spacing_of_the_binade() -> None:
    """Below 1 the spacing is half of that above: 1 - 3/8 of the upper spacing is 3/4 of the way down to 1 - 2^-8."""
    low, high, p = sr.bracket(from_bits(0x3F80, "bfloat16")[()], np.float32(-3 * 2.0**-10))
    assert (float(low), float(high), p) == (1 - 2.0**-8, 1.0, unchecked(oracle).Fraction(1, 4))


# 3. coupling


@pytest.mark.parametrize("mode", ["sr", "sr_equal", "sr_bits=4", "rn"])
@pytest.mark.parametrize("name", NAMES)
def test_commutative(name: Any, mode: Any) -> None:
    x, y = (from_bits(bits, name) for bits in overlapping_pairs(name))
    assert to_bits(sr.add(x, y, key=KEY, mode=mode), name) == to_bits(sr.add(y, x, key=KEY, mode=mode), name)
    assert to_bits(sr.mul(x, y, key=KEY, mode=mode), name) == to_bits(sr.mul(y, x, key=KEY, mode=mode), name)


def negated(array: Any, name: Any) -> Any:
    form = FORMATS[name]
    flipped = np.asarray(array).view(f"u{array.dtype.itemsize}") ^ np.array(
        form.sign, f"u{array.dtype.itemsize}"
    )
    if not form.negative_zero:  # 0 and NaN stay
        flipped = np.where(flipped == form.sign, 0, np.where(flipped == 0, form.sign, flipped)).astype(
            flipped.dtype
        )
    return flipped.view(array.dtype)


@pytest.mark.parametrize("mode", ["sr", "sr_equal", "sr_bits=4", "rn", "rz"])
@pytest.mark.parametrize("name", NAMES)
def test_odd(name: Any, mode: Any) -> None:
    x, y = (from_bits(bits, name) for bits in overlapping_pairs(name))
    got = np.asarray(sr.add(x, y, key=KEY, mode=mode))
    mirrored = np.asarray(sr.add(negated(x, name), negated(y, name), key=KEY, mode=mode))
    nonzero = [
        oracle.decode(b, name).value != 0 for b in to_bits(got, name)
    ]  # an exact zero is +0 both times
    assert to_bits(negated(mirrored, name)[nonzero], name) == to_bits(got[nonzero], name)


@pytest.mark.parametrize("mode", ["sr", "sr_equal", "sr_bits=4", "rn", "ru", "rd", "rz"])
@pytest.mark.parametrize("name", NAMES)
def test_monotone(name: Any, mode: Any) -> None:
    """The same draws (one key, one offset each), ever larger sums."""
    n = 300
    base = from_bits(np.full(n, specials(name)[14]), name)
    steps = np.sort(np.random.default_rng(2).uniform(-3, 3, 40)) * 2.0 ** -FORMATS[name].fraction_bits
    rows = [sr.add(base, np.full(n, step), key=KEY, mode=mode).astype(np.float64) for step in steps]
    assert all(np.all(a <= b) for a, b in itertools.pairwise(rows))
    assert np.any(rows[0] < rows[-1])


def test_formats_look_at_the_same_number() -> None:
    """One draw serves all: what rounds 1 + p/4 up in one format does so in the others."""
    n, p = 4000, 0.3
    us = np.array(numbers_of(KEY, n), np.uint64)
    for name in NAMES:
        moved = (
            sr.cast(np.full(n, 1 + p * 2.0 ** -FORMATS[name].fraction_bits), name, key=KEY).astype(np.float64)
            > 1
        )
        place = oracle.place(
            unchecked(oracle).Fraction(1 + p * 2.0 ** -FORMATS[name].fraction_bits), FORMATS[name]
        )
        assert np.array_equal(moved, us < np.uint64((place.part << 64) // place.whole))


# 5. specials


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["float64", "float32", "float16", "bfloat16", "float8_e5m2"])
def test_infinities_and_nan_as_ieee(name: Any, mode: Any) -> None:
    inf, nan, one, largest = (np.array(v).astype(np_dtype(name)) for v in (np.inf, np.nan, 1.0, 0.0))
    largest = from_bits(FORMATS[name].max_code, name)
    for x, y, expect in (
        (inf, one, np.inf),
        (one, -inf, -np.inf),
        (inf, inf, np.inf),
        (inf, -inf, np.nan),
        (nan, one, np.nan),
        (inf, nan, np.nan),
        (inf, -largest, np.inf),
        (largest, largest, np.inf if mode not in ("rz", "rd") else float(largest.astype(np.float64))),
    ):
        got = float(sr.add(x, y, key=KEY, mode=mode).astype(np.float64))
        assert got == expect or (np.isnan(got) and np.isnan(expect)), (x, y, got)


def test_nans_stay_nan_and_become_quiet() -> None:
    """Signalling NaNs and NaNs of all ones too, of which adding to the bits makes infinities or zeros."""
    for name in ("float64", "float32", "float16", "bfloat16"):
        form: Any = FORMATS[name]
        nans = from_bits(
            [form.infinity + 1, form.sign - 1, form.nan, form.sign | form.infinity + 1, 2 * form.sign - 1],
            name,
        )
        zero = np.zeros(5).astype(nans.dtype)
        quiet = np.array(1 << (form.fraction_bits - 1), f"u{nans.dtype.itemsize}")
        for step in range(50):
            for got in (sr.add(nans, zero, key=KEY.at(step)), sr.add(zero, nans, key=KEY.at(step))):
                raw = got.view(quiet.dtype)
                assert np.all((raw & form.infinity) == form.infinity)
                assert np.all(raw & quiet)


def test_nans_are_kept_by_casts() -> None:
    for source in ("float64", "float32", "float16", "bfloat16"):
        form: Any = FORMATS[source]
        nans = from_bits([form.infinity + 1, form.sign - 1, form.nan, 2 * form.sign - 1], source)
        for name in NAMES:
            for overflow in ("ieee", "saturate"):
                got = sr.cast(nans, name, key=KEY, overflow=overflow)
                assert [oracle.decode(b, name).kind for b in to_bits(got, name)] == ["nan"] * 4


@pytest.mark.parametrize("name", NAMES)
def test_overflow_is_proportional_up_to_the_next_value_of_the_grid(name: Any) -> None:
    form = FORMATS[name]
    largest, beyond = form.magnitude(form.max_code), form.magnitude(form.max_code + 1)
    n = 4000
    x = from_bits(np.full(n, form.max_code), name)
    quarter = np.full(n, float((beyond - largest) / 4))
    us = np.array(numbers_of(KEY, n), np.uint64)
    got = sr.add(x, quarter, key=KEY).astype(np.float64)
    away = us < np.uint64(1 << 62)
    assert np.array_equal(~np.isfinite(got), away)
    assert np.all(got[~away] == float(largest))
    assert np.all(sr.add(x, quarter, key=KEY, overflow="saturate").astype(np.float64) == float(largest))
    assert not np.any(np.isfinite(sr.add(x, 4 * quarter, key=KEY).astype(np.float64)))


@pytest.mark.parametrize("name", NAMES)
def test_subnormals_are_numbers(name: Any) -> None:
    """Halves of the least one round to it or to a zero of their sign, by their number."""
    form, n = FORMATS[name], 2000
    us = np.array(numbers_of(KEY, n), np.uint64)
    for sign in (1.0, -1.0):
        x = from_bits(np.full(n, 1), name)
        got = sr.mul(x, np.full(n, sign / 2), key=KEY)
        bits = (us < np.uint64(1 << 63)).astype(int).tolist()
        expect = [b | (form.sign if sign < 0 and (b or form.negative_zero) else 0) for b in bits]
        assert to_bits(got, name) == expect


# 6. the residual


def test_no_pair_of_finite_numbers_gives_nan() -> None:
    """TwoSum overflows for some of these, in one order of the operands or in the other."""
    for name in ("float64", "float32", "float16", "bfloat16"):
        form = FORMATS[name]
        top = [form.max_code - k for k in range(3)]
        top += [form.max_code - (k << form.fraction_bits) for k in range(1, 30)]
        every = top + [b | form.sign for b in top] + random_bits(name, 50, np.random.default_rng(6))
        every = [b for b in every if oracle.decode(b, name).kind == "finite"]
        x, y = (a.reshape(-1) for a in np.meshgrid(from_bits(every, name), from_bits(every, name)))
        for op in ("add", "sub"):
            assert not np.any(np.isnan(call(op, (x, y), key=KEY).astype(np.float64)))


def test_the_known_pair_is_decided_by_its_number_in_both_orders() -> None:
    """x = -1.5 * 2^104 with the largest fp32 number: half way between two values."""
    n = 1000
    x = np.full(n, -1.5 * 2.0**104, np.float32)
    y = np.full(n, np.finfo(np.float32).max)
    us = np.array(numbers_of(KEY, n), np.uint64)
    low, high, p = sr.bracket(x[0], y[0])
    expect = np.where(us < np.uint64(1 << 63), high, low)
    assert p == unchecked(oracle).Fraction(1, 2)
    assert np.array_equal(sr.add(x, y, key=KEY), expect)
    assert np.array_equal(sr.add(y, x, key=KEY), expect)


# 8. independence


def test_no_two_uses_draw_alike() -> None:
    """Seeds, folds, steps and elements: in 200,000 numbers of 64 bits no two are equal."""
    keys = [
        sr.Key(seed).fold_in(name).at(step)
        for seed in range(4)
        for name in ("a", "b", 0, 1)
        for step in range(5)
    ]
    bits = np.concatenate([sr.uniform_bits(key, 2500) for key in keys])
    assert len(np.unique(bits)) == bits.size


# 9. replicas


def test_replicas_with_one_key_stay_equal() -> None:
    w = [np.full(1000, 1.0).astype(np_dtype("bfloat16")) for _ in range(2)]
    for step in range(20):
        for replica in w:
            sr.add_(replica, np.full(1000, 1e-3, np.float32), key=KEY.at(step))
    assert np.array_equal(w[0].view(np.uint16), w[1].view(np.uint16))
