"""The oracle itself, against libraries that are not ours: ml_dtypes, NumPy, and Python's own floats."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests_py.sr.cases import NAMES, from_bits, np_dtype, random_bits, specials
from tests_py.support.oracles import rounding as oracle

RNG = np.random.default_rng(1)


@pytest.mark.parametrize("name", NAMES)
def test_decoding(name: Any) -> None:
    bits = range(256) if oracle.FORMATS[name].bits == 8 else specials(name) + random_bits(name, 2000, RNG)
    with np.errstate(invalid="ignore"):
        wide = from_bits(list(bits), name).astype(np.float64)
    for b, x in zip(bits, wide.tolist(), strict=True):
        found = oracle.decode(b, name)
        if math.isnan(x):
            assert found.kind == "nan"
        else:
            assert found == oracle.number(x)


@pytest.mark.parametrize("name", NAMES)
def test_largest_and_least(name: Any) -> None:
    form, limits = oracle.FORMATS[name], ml_dtypes.finfo(np_dtype(name))
    assert float(form.magnitude(form.max_code)) == float(limits.max)
    assert float(form.magnitude(1)) == float(limits.smallest_subnormal)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "float64"])
def test_rounding_to_nearest_is_that_of_the_library(name: Any) -> None:
    form = oracle.FORMATS[name]
    exponents = RNG.integers(form.quantum - 3, 2 - form.quantum, 3000)
    with np.errstate(over="ignore", invalid="ignore"):
        x = np.ldexp(RNG.standard_normal(3000), exponents).astype(np.float32)  # rounded once from here
        if name == "float32":
            x = np.ldexp(RNG.standard_normal(3000), exponents)
        expect = x.astype(np_dtype(name)).view(f"u{form.bits // 8}").tolist()
    for value, bits in zip(x.tolist(), expect, strict=True):
        got = oracle.round_bits(oracle.number(value), name, "rn")
        assert oracle.decode(got, name) == oracle.decode(bits, name)


def test_rounding_to_nearest_of_doubles() -> None:
    """``Fraction`` to float is correctly rounded."""
    for x, y in RNG.standard_normal((500, 2)).tolist():
        total = Fraction(x) + Fraction(y) * Fraction(1, 3)
        got = oracle.round_bits(oracle.Number("finite", total < 0, total), "float64", "rn")
        assert got == int(np.float64(float(total)).view(np.uint64))


def test_ties_at_the_largest_value() -> None:
    """To even: the last code of e4m3fn is even, the others' is odd."""
    for name, tie, last in (
        ("float8_e4m3fn", 464, 448),
        ("float8_e5m2", 61440, 57344),
        ("float16", 65520, 65504),
    ):
        form = oracle.FORMATS[name]
        got = oracle.decode(oracle.round_bits(oracle.number(tie), name, "rn"), name)
        assert (got.kind == "finite" and got.value == last) == (form.max_code % 2 == 0)


def test_decisions_at_the_threshold() -> None:
    """bf16, 1 + 3/8 of the spacing: away iff U < 3/8."""
    x = oracle.number(1 + 3 * 2.0**-10)
    threshold = 3 << 61
    for u, away in ((0, True), (threshold - 1, True), (threshold, False), (2**64 - 1, False)):
        assert oracle.round_bits(x, "bfloat16", "sr", u) == (0x3F81 if away else 0x3F80)
        assert oracle.round_bits(-x, "bfloat16", "sr", u) == (0xBF81 if away else 0xBF80)
    for u, away in ((0, True), (2**63 - 1, True), (2**63, False)):
        assert oracle.round_bits(x, "bfloat16", "sr_equal", u) == (0x3F81 if away else 0x3F80)
    # One bit of 3/8 is 0; two bits are 1/4; three bits are all.
    for r, away in ((1, False), (2, True), (3, True), (32, True)):
        assert oracle.round_bits(x, "bfloat16", f"sr_bits={r}", 2**62 - 1) == (0x3F81 if away else 0x3F80)
    assert oracle.round_bits(x, "bfloat16", "sr_bits=2", 2**62) == 0x3F80
    assert oracle.round_bits(x, "bfloat16", "sr_bits=3", 2**62) == 0x3F81


OVERFLOW = [
    # format, value, mode, U / 2^64, overflow, result
    ("float16", 65504 + 8, "sr", 0.24, "ieee", math.inf),  # a quarter of the way to 65536
    ("float16", 65504 + 8, "sr", 0.25, "ieee", 65504),
    ("float16", -65504 - 8, "sr", 0.24, "ieee", -math.inf),
    ("float16", 65504 + 8, "sr", 0.24, "saturate", 65504),
    ("float16", 65536, "sr", 0.99, "ieee", math.inf),
    ("float16", 1e9, "rz", 0.0, "ieee", 65504),
    ("float16", 1e9, "rd", 0.0, "ieee", 65504),
    ("float16", 1e9, "ru", 0.0, "ieee", math.inf),
    ("float16", -1e9, "ru", 0.0, "ieee", -65504),
    ("float16", math.inf, "rz", 0.0, "ieee", math.inf),
    ("float16", math.inf, "sr", 0.0, "saturate", 65504),
    ("float8_e4m3fn", 464, "sr", 0.49, "ieee", math.nan),  # half way to 480
    ("float8_e4m3fn", 464, "sr", 0.51, "ieee", 448),
    ("float8_e4m3fn", 480, "sr", 0.99, "ieee", math.nan),
    ("float8_e4m3fn", -math.inf, "sr", 0.0, "saturate", -448),
    ("float8_e4m3fnuz", 244, "sr", 0.24, "ieee", math.nan),  # from 240 to 256
    ("float8_e4m3fnuz", 244, "sr", 0.26, "ieee", 240),
    ("bfloat16", math.nan, "sr", 0.0, "saturate", math.nan),
]


@pytest.mark.parametrize(("name", "value", "mode", "u", "overflow", "expect"), OVERFLOW)
def test_overflow(name: Any, value: Any, mode: Any, u: Any, overflow: Any, expect: Any) -> None:
    bits = oracle.round_bits(oracle.number(value), name, mode, int(u * 2**64), overflow)
    got = oracle.decode(bits, name)
    assert got == oracle.number(expect)


ZEROS = [
    ("add", (0.0, -0.0), 0.0),
    ("add", (-0.0, -0.0), -0.0),
    ("add", (1.5, -1.5), 0.0),
    ("sub", (-0.0, 0.0), -0.0),
    ("sub", (0.0, 0.0), 0.0),
    ("mul", (-2.0, 0.0), -0.0),
    ("fma", (-2.0, 0.0, -0.0), -0.0),
    ("fma", (2.0, 3.0, -6.0), 0.0),
    ("axpy", (-0.0, -0.0, 1.0), -0.0),
    ("addcdiv", (-0.0, 1.0, -math.inf, 1.0), -0.0),
]


@pytest.mark.parametrize(("op", "operands", "expect"), ZEROS)
@pytest.mark.parametrize("mode", oracle.MODES)
def test_signs_of_exact_zeros(op: Any, operands: Any, expect: Any, mode: Any) -> None:
    exact = oracle.exact(op, *[oracle.number(x) for x in operands])
    got = oracle.decode(oracle.round_bits(exact, "bfloat16", mode), "bfloat16")
    assert got == oracle.number(expect)


def test_results_that_round_to_zero_keep_their_sign_where_there_is_one() -> None:
    tiny = oracle.number(-(2.0**-60))
    assert oracle.round_bits(tiny, "float16", "rz") == 0x8000
    assert oracle.round_bits(tiny, "float8_e4m3fnuz", "rz") == 0
    assert oracle.round_bits(tiny, "float16", "rd") == 0x8001
