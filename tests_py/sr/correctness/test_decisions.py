"""Every decision, bit for bit: given its random number, the oracle says which value an element must have."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from popsr import sr
from tests_py.sr.cases import (
    FP8,
    MODES,
    NAMES,
    OPERANDS,
    SCALARS,
    call,
    describe_difference,
    exact_results,
    from_bits,
    np_dtype,
    numbers_of,
    operand_bits,
    random_bits,
    rounded,
    to_bits,
)
from tests_py.support.oracles.rounding import FORMATS, number
from tests_py.support.unchecked import unchecked

KEY = sr.Key(2024).fold_in("decisions")
PAIRS = list(itertools.product(NAMES, NAMES))
RULES = [(mode, "ieee") for mode in MODES] + [(mode, "saturate") for mode in ("sr", "rn", "ru", "rz")]


def check(op: Any, columns: Any, names: Any, rules: Any, scalars: Any = None, key: Any = KEY) -> None:
    """One operation on all rows, by every rule."""
    scalars = SCALARS.get(op, ()) if scalars is None else scalars
    arrays = [from_bits(column, name) for column, name in zip(columns, names, strict=True)]
    exact = exact_results(op, columns, names, scalars)
    us = numbers_of(key, len(exact))
    for mode, overflow in rules:
        got = to_bits(call(op, arrays, scalars, key=key, mode=mode, overflow=overflow), names[0])
        expect = rounded(exact, names[0], us, mode, overflow)
        if got != expect:
            what = describe_difference(got, expect, columns, us)
            raise AssertionError(f"{op} {names} {scalars} {mode} {overflow}: {what}")


@pytest.mark.parametrize(("first", "second"), PAIRS, ids=lambda name: name.removeprefix("float"))
def test_add_of_every_pair_of_formats(first: Any, second: Any) -> None:
    rng = np.random.default_rng([NAMES.index(first), NAMES.index(second)])
    columns = operand_bits((first, second), 250, rng)
    rules = (
        RULES
        if first == second or "bfloat16" in (first, second)
        else [("sr", "ieee"), ("sr_equal", "saturate")]
    )
    check("add", columns, (first, second), rules)


MIXED = [(name, name) for name in NAMES] + [
    ("bfloat16", "float32"),
    ("float16", "float32"),
    ("bfloat16", "float16"),
    ("float16", "bfloat16"),
    ("float32", "float64"),
    ("float64", "float32"),
    ("float32", "bfloat16"),
    ("float8_e4m3fn", "bfloat16"),
    ("float8_e5m2", "float32"),
    ("float8_e5m2fnuz", "float64"),
]


@pytest.mark.parametrize("op", [op for op in OPERANDS if op not in ("add", "cast")])
@pytest.mark.parametrize(("first", "second"), MIXED, ids=lambda name: name.removeprefix("float"))
def test_operations(op: Any, first: Any, second: Any) -> None:
    names = (first, second, second)[: OPERANDS[op]]
    columns = operand_bits(names, 200, np.random.default_rng([NAMES.index(first), NAMES.index(second)]))
    check(op, columns, names, [("sr", "ieee"), ("sr_equal", "ieee"), ("rn", "ieee"), ("rd", "saturate")])


@pytest.mark.parametrize("op", ["fma", "addcmul", "addcdiv"])
def test_three_formats(op: Any) -> None:
    for names in (
        ("bfloat16", "float32", "float16"),
        ("float16", "float8_e5m2", "float64"),
        ("float32", "bfloat16", "float64"),
    ):
        columns = operand_bits(names, 300, np.random.default_rng(5))
        check(op, columns, names, [("sr", "ieee"), ("ru", "ieee")])


FACTORS = (0.0, -0.0, 1.0, -1.0, 2.0, 1 / 3, -1e-300, 5e-324, 1.7e308, float("inf"), float("nan"))


@pytest.mark.parametrize("op", list(SCALARS))
@pytest.mark.parametrize("name", ["float64", "float32", "bfloat16", "float8_e4m3fn"])
def test_factors_are_exact_doubles(op: Any, name: Any) -> None:
    names = (name,) * OPERANDS[op]
    columns = [column[::5] for column in operand_bits(names, 100, np.random.default_rng(9))]
    for factor in FACTORS:
        check(op, columns, names, [("sr", "ieee"), ("rz", "ieee")], (factor,))


@pytest.mark.parametrize("name", NAMES)
def test_lerp_with_an_array_of_weights(name: Any) -> None:
    names = (name, "float32", "float32")
    columns = operand_bits(names, 200, np.random.default_rng(11))
    check("lerp", columns, names, [("sr", "ieee"), ("rn", "ieee")], ())


@pytest.mark.parametrize(("source", "name"), PAIRS, ids=lambda name: name.removeprefix("float"))
def test_cast_between_every_pair_of_formats(source: Any, name: Any) -> None:
    (column,) = operand_bits((source,), 300, np.random.default_rng(NAMES.index(source)))
    exact = exact_results("cast", [column], [source])
    us = numbers_of(KEY, len(exact))
    for mode, overflow in RULES:
        got = unchecked(sr.cast)(from_bits(column, source), name, key=KEY, mode=mode, overflow=overflow)
        expect = rounded(exact, name, us, mode, overflow)
        assert to_bits(got, name) == expect, describe_difference(to_bits(got, name), expect, [column], us)


@pytest.mark.parametrize("mode", [f"sr_bits={r}" for r in range(1, 33)])
def test_every_number_of_bits(mode: Any) -> None:
    columns = operand_bits(("bfloat16", "float32"), 100, np.random.default_rng(3))
    check("add", columns, ("bfloat16", "float32"), [(mode, "ieee")])


# At the threshold: p is put next to the element's own random number


def near_threshold(us: list[int], bits: int) -> np.ndarray:
    """Chances of at most ``bits`` bits next to U / 2^64: below, at the first bits of it, above."""
    steps = np.resize([-1, 0, 1], len(us)).tolist()
    parts = [min(max((u >> (64 - bits)) + s, 0), (1 << bits) - 1) for u, s in zip(us, steps, strict=True)]
    return np.array([part / 2**bits for part in parts])


@pytest.mark.parametrize("bits", [8, 13, 16, 17, 24, 32, 33, 48, 52])
@pytest.mark.parametrize("name", NAMES)
def test_ties_between_the_first_bits(name: Any, bits: Any) -> None:
    """The sum is 1 + p of the spacing above 1: later words of U decide."""
    n = 600
    spacing = 2.0 ** -FORMATS[name].fraction_bits
    key = KEY.fold_in(f"{name} {bits}")
    us = numbers_of(key, n)
    y = near_threshold(us, bits) * spacing
    x = np.ones(n).astype(np_dtype(name))
    signs = np.resize([1.0, 1.0, -1.0], n)
    for sign in (signs, -signs):
        columns = [to_bits((x * sign.astype(x.dtype)), name), to_bits(y * sign, "float64")]
        check("add", columns, (name, "float64"), [("sr", "ieee"), ("sr_bits=32", "ieee")], key=key)


@pytest.mark.parametrize("name", NAMES)
def test_ties_between_the_last_bits(name: Any) -> None:
    """p has 64 bits: a product of one of 53 and one of 12, of which U differs in the last 12 only."""
    key = KEY.fold_in(f"last bits of {name}")
    us = numbers_of(key, 900)
    spacing = 2.0 ** -FORMATS[name].fraction_bits
    factors = np.array([float(u // 2049 + k) for u, k in zip(us, itertools.cycle((-1, 0, 1)), strict=False)])
    exact_factors = (factors < 2**53) & (factors > 0) & (factors * 2049 < 2**64)
    y = np.where(exact_factors, factors, 1.0) * 2.0**-64 * spacing
    x = np.full(len(us), 2049.0)
    # axpy's result has the format of x, so the narrow 1 comes first: 1 + y * 2049 is addcmul(1, y, 2049).
    columns = [
        to_bits(np.ones(len(us)).astype(np_dtype(name)), name),
        to_bits(y, "float64"),
        to_bits(x, "float64"),
    ]
    check("addcmul", columns, (name, "float64", "float64"), [("sr", "ieee")], (1.0,), key=key)


@pytest.mark.parametrize("name", ["float64", "float32", "bfloat16", "float16"])
def test_sums_just_beside_an_exact_value(name: Any) -> None:
    """x + y with y far below the last place of x: the chance is tiny or nearly one, and not rounded away."""
    n = 4000
    rng = np.random.default_rng(8)
    form = FORMATS[name]
    x = [(form.bias << form.fraction_bits) + int(c) for c in rng.integers(0, 1 << form.fraction_bits, n)]
    y = [int(c) for c in rng.integers(1, max(form.bias - 30, 5) << form.fraction_bits, n)]
    y = [c | form.sign * int(s) for c, s in zip(y, rng.integers(2, size=n), strict=True)]
    check("add", [x, y], (name, name), [("sr", "ieee"), ("sr_equal", "ieee"), ("ru", "ieee"), ("rd", "ieee")])


@pytest.mark.parametrize("name", [n for n in NAMES if n not in FP8])
def test_many_random_sums(name: Any) -> None:
    rng = np.random.default_rng(77)
    a, b = random_bits(name, 6000, rng), random_bits(name, 6000, rng)
    check("add", [a, b], (name, name), [("sr", "ieee")])
    check("sub", [a, b], (name, name), [("sr", "ieee")])


@pytest.mark.parametrize("second", ["float32", "float64"])
@pytest.mark.parametrize("name", [name for name in NAMES if FORMATS[name].bits <= 16])
def test_sums_whose_chance_is_just_beside_their_number(name: Any, second: Any) -> None:
    """The first bits decide nothing here, however many of them an engine has, also below the least normal number."""
    n, form = 3000, FORMATS[name]
    rng = np.random.default_rng(91)
    codes = rng.integers(8, np.where(rng.random(n) < 0.6, 1 << form.fraction_bits + 2, form.max_code // 2))
    low, high = (from_bits(codes + k, name).astype(np.float64) for k in (0, 1))
    beside = rng.choice([-1.0, 1.0], n) * 2.0 ** -rng.integers(14, 40, n)
    chance = np.array([u / 2.0**64 for u in numbers_of(KEY, n)])
    total = low + (high - low) * np.clip(chance + beside, 0, 1)
    x = (codes + rng.integers(-3, 4, n)).tolist()
    y = (total - from_bits(x, name).astype(np.float64)).astype(second)
    columns = [x, y.view(f"u{y.itemsize}").tolist()]
    check(
        "add", columns, (name, second), [("sr", "ieee"), ("sr_bits=16", "ieee"), ("sr_bits=11", "saturate")]
    )
    ones = np.ones(n, second).view(f"u{y.itemsize}").tolist()
    check("fma", [columns[0], ones, columns[1]], (name, second, second), [("sr", "ieee")])
    check("axpy", columns[::-1], (second, name), [("sr", "ieee")], scalars=(1.0,))
    columns[0] = [code | form.sign for code in x]
    check("sub", columns, (name, second), [("sr", "ieee"), ("sr", "saturate")])
    exact = [number(value) for value in total.tolist()]
    got = to_bits(sr.cast(total, np_dtype(name), key=KEY), name)
    assert got == rounded(exact, name, numbers_of(KEY, n), "sr", "ieee")
