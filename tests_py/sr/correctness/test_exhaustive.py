"""All pairs of two 8-bit formats, against an oracle in NumPy's integers that tests itself against the scalar one."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from popsr import sr
from tests_py.sr.cases import FP8, call, exact_results, from_bits, np_dtype, rounded
from tests_py.support.oracles import rounding as oracle
from tests_py.support.oracles.rounding import FORMATS
from tests_py.support.unchecked import unchecked

MODES = ("sr", "sr_equal", "rn", "ru", "rd", "rz", "sr_bits=3")
UNIT = -34  # products of two numbers of these formats are multiples of 2^-34


class Table:
    """A format's 256 values as integers in units of 2^UNIT; what is not finite has ``kind`` 1 (inf) or 2 (NaN)."""

    def __init__(self, name: str) -> None:
        numbers = [oracle.decode(b, name) for b in range(256)]
        self.kind = np.array([("finite", "inf", "nan").index(n.kind) for n in numbers], np.int8)
        self.value = np.array([int(n.value * 2**-UNIT) for n in numbers], np.int64)
        self.negative = np.array([n.negative for n in numbers])


def exact_pairs(op: Any, x: Any, y: Any) -> Any:
    """Kind, value and sign of all 65,536 results, as rows of x and columns of y."""
    sign = y.negative ^ (op == "sub")
    if op == "mul":
        kind = np.maximum.outer(x.kind, y.kind)
        zero = lambda t: (t.kind == 0) & (t.value == 0)  # noqa: E731
        kind[np.logical_and.outer(x.kind == 1, zero(y)) | np.logical_and.outer(zero(x), y.kind == 1)] = 2
        # Exact in float64; what is too large for every format stays so when it is cut off.
        product = np.multiply.outer(np.ldexp(x.value * 1.0, UNIT), np.ldexp(y.value * 1.0, UNIT))
        value = np.ldexp(np.clip(product, -(2.0**18), 2.0**18), -UNIT).astype(np.int64)
        return kind, value, np.logical_xor.outer(x.negative, sign)
    kind = np.maximum.outer(x.kind, y.kind)
    kind[np.logical_and.outer(x.kind == 1, y.kind == 1) & np.logical_xor.outer(x.negative, sign)] = 2
    value = np.add.outer(x.value, -y.value if op == "sub" else y.value)
    infinite = np.where((x.kind == 1)[:, None], x.negative[:, None], sign[None, :])
    negative = np.where(value == 0, np.logical_and.outer(x.negative, sign), value < 0)
    return kind, value, np.where(kind == 1, infinite, negative)


def round_all(kind: Any, value: Any, negative: Any, name: Any, u: Any, mode: Any, overflow: Any) -> Any:
    """The bits of all results."""
    form = FORMATS[name]
    size = np.abs(value)
    length = np.frexp(size.astype(np.float64))[1].astype(np.int64)  # exact below 2^53
    shift = np.maximum(length - 1 - form.fraction_bits, form.quantum - UNIT)
    whole = size >> shift
    part = size - (whole << shift)
    code = ((shift - (form.quantum - UNIT)) << form.fraction_bits) + whole
    p = part.astype(np.uint64) << (64 - shift).astype(np.uint64)  # in units of 2^-64; shift >= 17
    twice = p >> np.uint64(63), p << np.uint64(1)
    away = {
        "sr": u < p,
        "sr_equal": u < np.uint64(1 << 63),
        "rn": (twice[0] == 1) & ((twice[1] != 0) | (code % 2 == 1)),
        "ru": ~negative,
        "rd": negative,
        "rz": np.zeros(p.shape, bool),
        "sr_bits=3": (u >> np.uint64(61)) < (p >> np.uint64(61)),
    }[mode]
    beyond = code > form.max_code
    code = code + (away & (part != 0))
    stays = {"rz": True, "ru": negative, "rd": ~negative}.get(mode, False)
    infinite = (
        form.max_code if overflow == "saturate" else (form.nan if form.infinity is None else form.infinity)
    )
    code = np.where(code > form.max_code, np.where(beyond & stays, form.max_code, infinite), code)
    code = np.where(kind == 1, infinite, code)
    sign = np.where(negative, form.sign, 0)
    bits = np.where((code == 0) & (not form.negative_zero), 0, code | sign)
    is_nan = (kind == 2) | ((code == infinite) & (form.infinity is None) & (overflow == "ieee"))
    return np.where(is_nan, form.nan, bits)


def canonical(bits: Any, name: Any) -> Any:
    """All NaNs as one."""
    nans = np.array([oracle.decode(b, name).kind == "nan" for b in range(256)])
    return np.where(nans[bits], FORMATS[name].nan, bits)


TABLES = {name: Table(name) for name in FP8}
PAIRS = list(itertools.product(FP8, FP8))
EVERY = np.arange(256, dtype=np.uint8)


@pytest.mark.parametrize("op", ["add", "sub", "mul"])
@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_all_pairs(op: Any, first: Any, second: Any) -> None:
    x = np.repeat(EVERY, 256).view(np_dtype(first))
    y = np.tile(EVERY, 256).view(np_dtype(second))
    exact = exact_pairs(op, TABLES[first], TABLES[second])
    for number, (mode, overflow) in enumerate(itertools.product(MODES, ("ieee", "saturate"))):
        key = sr.Key(31).fold_in(op).at(number)
        u = sr.uniform_bits(key, 1 << 16).reshape(256, 256)
        got = canonical(call(op, (x, y), key=key, mode=mode, overflow=overflow).view(np.uint8), first)
        expect = unchecked(round_all)(*exact, first, u, mode, overflow).reshape(-1)
        wrong = np.flatnonzero(got != expect)
        assert not len(wrong), f"{mode} {overflow}: {len(wrong)} differ, first {divmod(int(wrong[0]), 256)}"


@pytest.mark.parametrize("op", ["add", "sub", "mul"])
@pytest.mark.parametrize("name", FP8)
def test_the_vectorised_oracle_is_the_scalar_one(op: Any, name: Any) -> None:
    rng = np.random.default_rng(4)
    rows = rng.integers(0, 1 << 16, 1500)
    columns = [(rows // 256).tolist(), (rows % 256).tolist()]
    us = rng.integers(0, 2**64, 1 << 16, dtype=np.uint64, endpoint=False)
    exact = exact_results(op, columns, (name, name))
    pairs = exact_pairs(op, TABLES[name], TABLES[name])
    for mode, overflow in itertools.product(MODES, ("ieee", "saturate")):
        fast = (
            unchecked(round_all)(*pairs, name, us.reshape(256, 256), mode, overflow)
            .reshape(-1)[rows]
            .tolist()
        )
        assert fast == rounded(exact, name, us[rows].tolist(), mode, overflow)


@pytest.mark.parametrize("name", FP8)
def test_all_casts_from_float16(name: Any) -> None:
    """Every float16 number."""
    key = sr.Key(8).fold_in(name)
    every = np.arange(1 << 16, dtype=np.uint16)
    us = sr.uniform_bits(key, 1 << 16).tolist()
    exact = exact_results("cast", [every.tolist()], ["float16"])
    got = sr.cast(every.view(np.float16), name, key=key)
    assert canonical(got.view(np.uint8), name).tolist() == rounded(exact, name, us)
    assert from_bits([0], name).dtype == got.dtype
