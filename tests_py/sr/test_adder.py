"""``popsr.StochasticAdder``: the founding interface, by value and by counter."""

from __future__ import annotations

import copy
import itertools
import pickle
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from popsr import StochasticAdder, _core, errors, sr
from tests_py.sr.cases import (
    FP8,
    NAMES,
    exact_results,
    from_bits,
    near,
    np_dtype,
    numbers_of,
    operand_bits,
    random_bits,
    raw_dtype,
    rounded,
    to_bits,
)
from tests_py.sr.statistics import assert_binomial
from tests_py.support.unchecked import unchecked

METHODS = ("add", "add_biased")
FORMS = ("value", "counter")
BF16 = ml_dtypes.bfloat16


def pairs(name: Any, n: Any = 1000, seed: Any = 0) -> Any:
    return tuple(
        from_bits(column, name) for column in operand_bits((name, name), n, np.random.default_rng(seed))
    )


# Values


@pytest.mark.parametrize("rng", FORMS)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", NAMES)
def test_exact_or_one_of_the_neighbours(name: Any, method: Any, rng: Any) -> None:
    x, y = pairs(name)
    low, high = (to_bits(sr.add(x, y, key=sr.Key(0), mode=mode), name) for mode in ("rd", "ru"))
    exact = exact_results("add", [to_bits(x, name), to_bits(y, name)], (name, name))
    beyond = rounded(exact, name, [0] * len(exact), "rn")  # where both neighbours are one: infinity, or NaN
    got = to_bits(getattr(StochasticAdder(name, seed=4, rng=rng), method)(x, y), name)
    assert all(g in options for g, *options in zip(got, low, high, beyond, strict=True))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", NAMES)
def test_counter_form_draws_by_the_number_of_the_call(name: Any, method: Any) -> None:
    """Bit for bit, from the documented key: the seed's, at the number of the call."""
    x, y = pairs(name, 300)
    exact = exact_results("add", [to_bits(x, name), to_bits(y, name)], (name, name))
    adder = StochasticAdder(name, seed=8, rng="counter")
    mode = "sr" if method == "add_biased" else "sr_equal"
    for call in range(3):
        us = numbers_of(sr.Key(8).at(call), len(exact))
        assert to_bits(getattr(adder, method)(x, y), name) == rounded(exact, name, us, mode)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", NAMES)
def test_value_form_rounds_by_the_hash_of_the_operands(name: Any, method: Any) -> None:
    """Bit for bit, given the hash; what the hash is good for is tested below."""
    x, y = pairs(name, 300)
    exact = exact_results("add", [to_bits(x, name), to_bits(y, name)], (name, name))
    us = _core.sr.value_bits(sr.Key(8), x, y, list(_core.sr.FORMATS).index(name)).tolist()
    mode = "sr" if method == "add_biased" else "sr_equal"
    got = getattr(StochasticAdder(name, seed=8), method)(x, y)
    assert to_bits(got, name) == rounded(exact, name, us, mode)


@pytest.mark.parametrize("name", FP8)
def test_value_form_over_all_pairs(name: Any) -> None:
    """Chances over all inexact pairs of an 8-bit format, for several seeds; each pair has a coin of its own."""
    every = np.arange(256, dtype=np.uint8)
    x, y = (a.reshape(-1).view(np_dtype(name)) for a in np.meshgrid(every, every, indexing="ij"))
    low, high = (sr.add(x, y, key=sr.Key(0), mode=mode).astype(np.float64) for mode in ("rd", "ru"))
    with np.errstate(invalid="ignore"):
        inexact = np.isfinite(low) & np.isfinite(high) & (low < high)
        total = x.astype(np.float64) + y.astype(np.float64)
        p = np.where(inexact, (total - low) / np.where(inexact, high - low, 1), 0)
    pair = np.minimum(every[:, None], every[None, :]).reshape(-1) == np.repeat(
        every, 256
    )  # x <= y: each pair once
    for method in METHODS:
        counts: dict[float, list[int]] = {}
        for seed in range(40):
            adder = StochasticAdder(name, seed=seed)
            up = getattr(adder, method)(x, y).astype(np.float64) == high
            for chance in np.unique(p[inexact]):
                here = inexact & pair & (p == chance)
                found = counts.setdefault(float(chance), [0, 0])
                found[0] += int(up[here].sum())
                found[1] += int(here.sum())
        for chance, (moved, n) in counts.items():
            assert_binomial(moved, n, 0.5 if method == "add" else chance, f"{method} at {chance}")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", NAMES)
def test_value_form_is_a_function_of_seed_and_values(name: Any, method: Any) -> None:
    """Whatever the order of the operands, of the elements, of the calls, and wherever they lie."""
    x, y = pairs(name)
    run = getattr(StochasticAdder(name, seed=4), method)
    expect = to_bits(run(x, y), name)
    assert to_bits(run(y, x), name) == expect
    assert to_bits(run(x, y), name) == expect
    assert to_bits(run(x[::-1], y[::-1])[::-1], name) == expect
    assert to_bits(run(x[7:], y[7:]), name) == expect[7:]
    order = np.random.default_rng(0).permutation(len(x))
    assert to_bits(run(x[order], y[order]), name) == [expect[i] for i in order]
    again = StochasticAdder(name, seed=4)
    assert to_bits(getattr(again, method)(x, y), name) == expect


def test_value_form_depends_on_all_bits_of_seed_and_operands() -> None:
    """Full avalanche: flip any bit of an operand or of the seed and half of the numbers' bits flip."""
    form = list(_core.sr.FORMATS).index("float32")
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(4000).astype(np.float32) for _ in range(2))
    before = _core.sr.value_bits(sr.Key(1), x, y, form)

    def flipped(after: Any) -> Any:
        share = np.unpackbits((before ^ after).view(np.uint8).reshape(len(x), 8), axis=1).mean(axis=0)
        return np.abs(share - 0.5).max()

    bound = 6 * 0.5 / len(x) ** 0.5  # 6 standard errors
    for bit in range(32):
        other = (x.view(np.uint32) ^ np.uint32(1 << bit)).view(np.float32)
        assert flipped(_core.sr.value_bits(sr.Key(1), other, y, form)) < bound
        assert flipped(_core.sr.value_bits(sr.Key(1), y, other, form)) < bound
    for seed in (0, 3, 1 << 63 | 1):
        assert flipped(_core.sr.value_bits(sr.Key(seed), x, y, form)) < bound
    assert np.array_equal(before, _core.sr.value_bits(sr.Key(1), y, x, form))
    assert len(np.unique(before)) == len(before)
    assert len(np.unique(_core.sr.value_bits(sr.Key(1), x, x, form))) == len(before)  # x + x too


def test_negative_zero_and_zero_are_other_values_but_sums_are_exact() -> None:
    adder = StochasticAdder("float32", seed=1)
    zeros = np.array([0.0, -0.0, 0.0, -0.0], np.float32)
    got = adder.add(zeros, np.array([0.0, 0.0, -0.0, -0.0], np.float32))
    assert np.signbit(got).tolist() == [False, False, False, True]


# State


@pytest.mark.parametrize("method", METHODS)
def test_equal_seeds_give_equal_sequences(method: Any) -> None:
    x, y = pairs("bfloat16")
    one, two, other = (StochasticAdder("bfloat16", seed=s, rng="counter") for s in (5, 5, 6))
    rows = [[getattr(a, method)(x, y).tobytes() for _ in range(4)] for a in (one, two, other)]
    assert rows[0] == rows[1]
    assert len(set(rows[0] + rows[2])) == 8


def test_calls_are_state() -> None:
    x, y = pairs("bfloat16")
    adder = StochasticAdder("bfloat16", seed=5, rng="counter")
    assert adder.calls == 0
    first, second, third = (adder.add(x, y).tobytes() for _ in range(3))
    assert adder.calls == 3
    adder.calls = 1
    assert adder.add(x, y).tobytes() == second
    adder.calls = 0
    assert adder.add(x, y).tobytes() == first
    assert (adder.calls, first == third) == (1, False)
    adder.add_biased(x, y)
    assert adder.calls == 2


def test_a_call_that_fails_does_not_count() -> None:
    adder = StochasticAdder("bfloat16", seed=5, rng="counter")
    with pytest.raises(errors.ShapeError):
        adder.add(np.zeros(3, BF16), np.zeros(4, BF16))
    assert adder.calls == 0


def test_repr_shows_seed_and_calls() -> None:
    adder = StochasticAdder("bfloat16", seed=123, rng="counter")
    adder.add(np.zeros(1, BF16), np.zeros(1, BF16))
    assert repr(adder) == "StochasticAdder('bfloat16', seed=123, rng='counter', calls=1)"
    assert repr(StochasticAdder(np.float16, 7)) == "StochasticAdder('float16', seed=7, rng='value')"


def test_without_seed_one_is_drawn_and_shown() -> None:
    seeds = {StochasticAdder("float32").seed for _ in range(8)}
    assert len(seeds) == 8
    adder = StochasticAdder("float32")
    x, y = np.ones(500, np.float32), np.arange(500, dtype=np.float32) * 2.0**-26
    assert f"seed={adder.seed}" in repr(adder)
    assert np.array_equal(StochasticAdder("float32", adder.seed).add(x, y), adder.add(x, y))


def test_copies_and_pickles_go_on_alike() -> None:
    x, y = pairs("float16")
    adder = StochasticAdder("float16", seed=2, rng="counter")
    adder.add(x, y)
    twins = [copy.deepcopy(adder), pickle.loads(pickle.dumps(adder))]
    expect = adder.add(x, y).tobytes()
    assert [twin.add(x, y).tobytes() for twin in twins] == [expect] * 2


@pytest.mark.parametrize("rng", FORMS)
def test_r10_repeated_updates(rng: Any) -> None:
    """By value, weights stop at the first value whose coin says "stay"; by counter they drift as they should."""
    n, steps = 4000, 600
    w, u = np.full(n, 256, BF16), np.full(n, 0.5, BF16)  # a quarter of the spacing
    u = (u.view(np.uint16) + (np.arange(n) % 8).astype(np.uint16)).view(BF16)
    adder = StochasticAdder("bfloat16", seed=3, rng=rng)
    drift = []
    for _ in range(steps):
        before = w.copy()
        adder.add_biased(w, u, out=w)
        drift.append(np.mean(w.view(np.uint16) != before.view(np.uint16)))
    if rng == "value":
        assert drift[-1] == 0
        assert np.mean(w.astype(np.float64) - 256) < 20
    else:
        exact = steps * u.astype(np.float64)
        assert np.mean(w.astype(np.float64) - 256) == pytest.approx(np.mean(exact), rel=0.01)


# Arguments


@pytest.mark.parametrize("rng", FORMS)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", NAMES)
def test_out_and_layouts(name: Any, method: Any, rng: Any) -> None:
    x, y = pairs(name, 100)
    expect = to_bits(getattr(StochasticAdder(name, seed=1, rng=rng), method)(x, y), name)
    for make in (
        lambda: (x.copy(), y.copy(), np.empty_like(x)),
        lambda: (np.repeat(x, 2)[::2], y[::-1].copy()[::-1], np.empty(3 * len(x), x.dtype)[::3]),
    ):
        for target in (0, 1, 2):
            arrays = make()
            run = getattr(StochasticAdder(name, seed=1, rng=rng), method)
            assert run(*arrays[:2], out=arrays[target]) is arrays[target]
            assert to_bits(arrays[target], name) == expect
    if raw_dtype(name).itemsize <= 2:
        raw = [a.view(raw_dtype(name)) for a in (x, y)]
        got = getattr(StochasticAdder(name, seed=1, rng=rng), method)(*raw)
        assert got.dtype == raw_dtype(name)
        assert to_bits(got.view(np_dtype(name)), name) == expect


def test_broadcasting_and_scalars() -> None:
    adder = StochasticAdder("float32", seed=1)
    x, y = np.ones((3, 4), np.float32), np.arange(4, dtype=np.float32)
    assert np.array_equal(adder.add(x, y), x + y)
    assert adder.add(np.float32(1), np.float32(2)) == 3
    assert adder.add(np.zeros((0, 4), np.float32), y).shape == (0, 4)


BAD = [
    (
        lambda: StochasticAdder("int8"),
        errors.DTypeError,
        "StochasticAdder: unknown dtype, got 'int8', expected one",
    ),
    (lambda: StochasticAdder(unchecked(None)), errors.ArgumentTypeError, "dtype is not a dtype, got None"),
    (lambda: StochasticAdder("float32", seed=-1), ValueError, "got -1"),
    (lambda: StochasticAdder("float32", seed=2**64), ValueError, "got 18446744073709551616"),
    (lambda: StochasticAdder("float32", seed=unchecked(1.5)), (TypeError, ValueError), "1.5"),
    (
        lambda: StochasticAdder("float32", rng=unchecked("hash")),
        ValueError,
        "unknown rng, got 'hash', expected one of 'value', 'c",
    ),
    (lambda: StochasticAdder("float32", 1, "counter").__setattr__("calls", -1), ValueError, "calls: got -1"),
    (
        lambda: StochasticAdder("float32", 1, "counter").__setattr__("calls", 1.5),
        TypeError,
        "calls is not an int, got 1.5",
    ),
    (lambda: StochasticAdder("float32", 1).__setattr__("calls", 1), errors.StateError, "rng='counter' only"),
]


@pytest.mark.parametrize(("make", "error", "text"), BAD)
def test_bad_adders(make: Any, error: Any, text: Any) -> None:
    with pytest.raises(error) as caught:
        make()
    assert isinstance(caught.value, errors.Error)
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("rng", "method"), list(itertools.product(FORMS, METHODS)))
def test_bad_operands_leave_out_alone(rng: Any, method: Any) -> None:
    run = getattr(StochasticAdder("bfloat16", seed=1, rng=rng), method)
    good = np.arange(6).astype(BF16)
    out = np.full(6, 7, BF16)
    frozen = np.full(6, 7, BF16)
    frozen.flags.writeable = False
    for arguments, error, text in (
        (
            (good, good.astype(np.float32), out),
            errors.DTypeError,
            "y has another dtype, got float32, expected bfloat16",
        ),
        ((good.astype(np.float32),) * 2 + (out,), errors.DTypeError, "x has another dtype"),
        ((good, good, np.zeros(6, np.float32)), errors.DTypeError, "out has another dtype"),
        ((good, good.astype(np.int64), out), errors.DTypeError, "y has no supported dtype, got int64"),
        ((good, good[:4], out), errors.ShapeError, "do not broadcast, got (6,) and (4,)"),
        ((good, good, out[:3]), errors.ShapeError, "out of (3,), expected (6,)"),
        ((good, good, frozen), errors.ArgumentTypeError, "out is read-only"),
        ((out[1:4], out[:3], out[2:5]), ValueError, "out overlaps x"),
        ((good, [1.0] * 6, out), errors.ArgumentTypeError, "y is not an array, got list"),
    ):
        x, y, target = arguments
        with pytest.raises(error) as caught:
            run(x, y, out=target)
        assert text in str(caught.value)
        assert str(caught.value).startswith(f"{method}: ")
        assert np.all(out.astype(int) == 7)
        assert np.all(frozen.astype(int) == 7)


def test_signature() -> None:
    import inspect

    assert str(inspect.signature(StochasticAdder)).startswith(
        "(dtype: 'FormatLike', seed: 'int | None' = None, rng: 'Rng' = "
    )
    for method in METHODS:
        assert list(inspect.signature(getattr(StochasticAdder, method)).parameters) == [
            "self",
            "x",
            "y",
            "out",
        ]


def test_random_operands_that_overlap_are_symmetric_in_both_forms() -> None:
    rng = np.random.default_rng(1)
    for name in NAMES:
        a = random_bits(name, 500, rng)
        x, y = from_bits(a, name), from_bits(near(a, name, name, rng), name)
        for form in FORMS:
            for method in METHODS:
                one, two = (StochasticAdder(name, seed=3, rng=unchecked(form)) for _ in range(2))
                assert to_bits(getattr(one, method)(x, y), name) == to_bits(getattr(two, method)(y, x), name)
