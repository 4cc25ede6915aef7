"""OCP's scales and 4-bit floats: stored, moved and cast to and from float32, never computed with."""

from __future__ import annotations

import itertools
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import errors, io, ops, sr
from tests_py.arrays.paths import CARRIERS, bits_of, numpy_of, program_of, sample, to_torch
from tests_py.support.helpers import Array, Streams

KEY = sr.Key(1)
E8M0, FP4 = popsr.float8_e8m0fnu, popsr.float4_e2m1fn
MAGNITUDES = [Fraction(each) for each in (0, 0.5, 1, 1.5, 2, 3, 4, 6)]


def floats() -> Array:
    """float32 values: the neighbours of all values of both carriers, of the middles, and all kinds of specials."""
    powers = [2.0**exponent for exponent in range(-149, 128)]
    middles = [1.5 * power for power in powers[:-1]]
    middles += [float(a + b) / 2 for a, b in itertools.pairwise(MAGNITUDES)]
    exact = np.array([*powers, *middles, *map(float, MAGNITUDES), 1.5 * 2.0**127], np.float32)
    near = np.concatenate([np.nextafter(exact, np.float32(sign * np.inf)) for sign in (1, -1)])
    random = np.random.default_rng(0).integers(0, 2**32, 2000, np.uint32).view(np.float32)
    specials = np.array([np.inf, np.nan, 1e30, 7, 5, 100], np.float32)
    one_sign = np.concatenate([exact, near, random, specials])
    return np.concatenate([one_sign, -one_sign])


def encoded(value: np.float32, name: str) -> int:
    """The code of a float32, by exact arithmetic."""
    negative, finite = bool(np.signbit(value)), bool(np.isfinite(value))
    if name == "float8_e8m0fnu":
        if negative or not finite or value == 0:
            return 255
        exact = Fraction(float(value))
        if exact < Fraction(1, 2**126):
            return int(exact > Fraction(1, 2**127))  # up, in torch and ml_dtypes too
        codes = [code for code in range(256) if exact < Fraction(3, 2) * Fraction(2) ** (code - 127)]
        return min(codes, default=255)
    if np.isnan(value):
        return 0 if negative else 8
    exact = abs(Fraction(float(value))) if finite else Fraction(10**9)
    # The nearest, of two the one of the even code.
    code = min(range(8), key=lambda each: (abs(MAGNITUDES[each] - exact), each % 2))
    return code | 8 * negative


def decoded(code: int, name: str) -> float:
    if name == "float8_e8m0fnu":
        return np.nan if code == 255 else 2.0 ** (code - 127)
    return float(MAGNITUDES[code & 7]) * (-1 if code & 8 else 1)


def cast(x: Array, to: popsr.dtype, **options: Any) -> Array:
    """The data as a program casts it."""
    ir = popsr.Ir()
    for option, value in options.items():
        setattr(ir.options, option, value)
    io_ = Streams()
    with ir.main_graph:
        io_.fetch(ops.cast(io_.feed(x), to))
    with popsr.Session(ir) as session:
        return io_.run(session)[0]


@pytest.mark.parametrize("stochastic", [False, True])
@pytest.mark.parametrize("name", CARRIERS)
def test_cast_from_float32(name: str, stochastic: bool) -> None:
    x = floats()
    want = np.array([encoded(each, name) for each in x], np.uint8)
    to = popsr.dtype.as_dtype(name)
    options = {"enable_stochastic_rounding": True} if stochastic else {}
    np.testing.assert_array_equal(bits_of(cast(x, to, **options)), want)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(bits_of(x.astype(numpy_of(name))), want)  # as ml_dtypes does
    np.testing.assert_array_equal(bits_of(sr.cast(x, name, key=KEY, mode="rn")), want)
    np.testing.assert_array_equal(bits_of(popsr.utils.to_numpy(x, to)), want)


@pytest.mark.parametrize("name", CARRIERS)
def test_cast_to_float32(name: str) -> None:
    codes = np.arange(256 if name == "float8_e8m0fnu" else 16, dtype=np.uint8)
    want = np.array([decoded(int(code), name) for code in codes], np.float32)
    x = codes.view(numpy_of(name))
    for got in (
        cast(x, popsr.float32),
        sr.cast(x, np.float32, key=KEY),
        popsr.utils.to_numpy(x, popsr.float32),
    ):
        assert got.dtype == np.float32
        np.testing.assert_array_equal(bits_of(got), bits_of(want))


@pytest.mark.parametrize("name", CARRIERS)
def test_moves_keep_bits(name: str) -> None:
    x = np.arange(12, dtype=np.uint8).reshape(3, 4).view(numpy_of(name))
    ir = popsr.Ir(replication=2)
    streams = Streams()
    with ir.main_graph, popsr.in_sequence():
        v = popsr.variable(
            np.stack([x, x[::-1]]), name="v", replica_grouping=ir.replica_grouping(group_size=1)
        )
        t = ops.transpose(ops.reshape(ops.concat([v, popsr.constant(x)]), (2, 12)))
        w = popsr.variable(np.zeros((3, 4), np.float32), popsr.float32, name="w")
        ops.var_updates.copy_var_update_(
            v, ops.cast(ops.add(w, popsr.constant(np.ones((3, 4), np.float32))), popsr.dtype.as_dtype(name))
        )
        streams.fetch(t)
    with popsr.Session(ir, check=True) as session:
        (got,) = streams.run(session)
        for row, first in zip(got, (x, x[::-1]), strict=True):
            want = np.concatenate([bits_of(first), bits_of(x)]).reshape(2, 12).T
            np.testing.assert_array_equal(bits_of(row), want)
        np.testing.assert_array_equal(session.get_tensor_data(v).astype(np.float32), np.ones((2, 3, 4)))


@pytest.mark.parametrize("name", CARRIERS)
def test_numbers_and_float32_become_carriers(name: str) -> None:
    dtype = popsr.dtype.as_dtype(name)
    assert dtype.is_floating_point
    ir = popsr.Ir()
    with ir.main_graph:
        v = popsr.variable([1, 2.0, 3], dtype)
        w = popsr.variable(np.array([1, 2, 3], np.float32), dtype)
        ops.host_store(popsr.d2h_stream(v.shape, dtype), v)
    with popsr.Session(ir) as session:
        for each in (v, w):
            assert session.get_tensor_data(each).astype(np.float32).tolist() == [
                1,
                2,
                4 if dtype is E8M0 else 3,
            ]


# Refused


def refused(name: str) -> list[tuple[Any, type[errors.Error], str]]:
    """Calls in a graph with a carrier ``t`` and a float32 ``f``."""
    dtype = popsr.dtype.as_dtype(name)
    half = np.ones(2, np.float16)
    alone = f"{name} is cast to and from float32 alone"
    return [
        (lambda t, f: ops.add(t, t), errors.DTypeError, f"add: .*{name} has no arithmetic, see cast"),
        (lambda t, f: t * f, errors.DTypeError, f"{name} has no arithmetic, see cast"),
        (lambda t, f: ops.matmul(t, t), errors.DTypeError, f"{name} has no arithmetic, see cast"),
        (lambda t, f: ops.sum(t), errors.DTypeError, f"{name} has no arithmetic, see cast"),
        (lambda t, f: ops.cast(t, popsr.float16), errors.DTypeError, f"cast: {alone}, got {name} to float16"),
        (lambda t, f: ops.cast(t, popsr.int32), errors.DTypeError, f"cast: {alone}, got {name} to int32"),
        (
            lambda t, f: ops.cast(ops.cast(f, popsr.bfloat16), dtype),
            errors.DTypeError,
            f"cast: {alone}, got bfloat16 to {name}",
        ),
        (lambda t, f: popsr.variable(half, dtype), errors.DTypeError, f"{alone}, got float16 as {name}"),
        (
            lambda t, f: popsr.constant(sample(name), popsr.bfloat16),
            errors.DTypeError,
            f"{alone}, got {name} as bfloat16",
        ),
        (lambda t, f: ops.var_updates.copy_var_update_(f, t), errors.DTypeError, "dtype"),
    ]


@pytest.mark.parametrize("row", range(10))
@pytest.mark.parametrize("name", CARRIERS)
def test_refused_in_programs(name: str, row: int) -> None:
    call, error, text = refused(name)[row]
    with popsr.Ir().main_graph:
        t = popsr.variable(sample(name), name="t")
        f = popsr.variable(np.ones((2, 4), np.float32), name="f")
        with pytest.raises(error, match=text):
            call(t, f)


SR_REFUSED: list[tuple[Any, type[errors.Error], str]] = [
    (
        lambda x: sr.add(x, x, key=KEY),
        errors.DTypeError,
        "add: x has no arithmetic, got .*, expected popsr.sr.cast",
    ),
    (lambda x: sr.sum(x, key=KEY), errors.DTypeError, "sum: x has no arithmetic"),
    (
        lambda x: sr.cast(x, np.float16, key=KEY),
        errors.DTypeError,
        "to and from float32 alone, got .* to float16",
    ),
    (
        lambda x: sr.cast(np.ones(2), x.dtype, key=KEY, mode="rn"),
        errors.DTypeError,
        "to and from float32 alone, got float64 to",
    ),
    (
        lambda x: sr.cast(np.ones(2, np.float32), x.dtype, key=KEY),
        errors.AttributeValueError,
        "is rounded to nearest alone, got mode 'sr', expected mode='rn'",
    ),
    (
        lambda x: sr.cast(x, np.float32, key=KEY, out=np.ones((2, 4))),
        errors.DTypeError,
        "out has another dtype, got float64",
    ),
    (
        lambda x: sr.cast(x, np.float32, key=KEY, out=np.ones(3, np.float32)),
        errors.ShapeError,
        "shapes differ, got out of",
    ),
]


@pytest.mark.parametrize("row", SR_REFUSED)
@pytest.mark.parametrize("name", CARRIERS)
def test_refused_by_sr(name: str, row: Any) -> None:
    call, error, text = row
    with pytest.raises(error, match=text):
        call(sample(name))


def test_out() -> None:
    x = sample("float4_e2m1fn")
    out = np.zeros((2, 4), np.float32)
    assert sr.cast(x, "float32", key=KEY, out=out) is out
    np.testing.assert_array_equal(out, x.astype(np.float32))
    back = np.zeros_like(x)
    assert sr.cast(out, x.dtype, key=KEY, mode="rn", out=back) is back
    np.testing.assert_array_equal(bits_of(back), bits_of(x))


def test_torch_has_pairs() -> None:
    tensor = to_torch(sample("float4_e2m1fn"))
    wide = sr.cast(tensor, "float32", key=KEY)
    assert tuple(wide.shape) == (2, 4)
    with pytest.raises(errors.ShapeError, match="torch has pairs"):
        sr.cast(wide[:, :3], "float4_e2m1fn", key=KEY, mode="rn")


# Files


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_files_hold_two_float4_a_byte(tmp_path: Path, count: int) -> None:
    pytest.importorskip("onnx")
    x = np.arange(1, count + 1, dtype=np.uint8).view(numpy_of("float4_e2m1fn"))
    ir, _ = program_of(x, "w")
    path = tmp_path / "w.onnx"
    io.save_onnx(ir, path)
    got = io.load_onnx(path)["w"]
    assert got.dtype == x.dtype
    np.testing.assert_array_equal(bits_of(got), bits_of(x))
    if count % 2:
        with pytest.raises(errors.ShapeError, match=r"^save_safetensors: the format has whole bytes, got"):
            io.save_safetensors(ir, tmp_path / "w.safetensors")
        return
    io.save_safetensors(ir, tmp_path / "w.safetensors")
    np.testing.assert_array_equal(bits_of(io.load_safetensors(tmp_path / "w.safetensors")["w"]), bits_of(x))


def test_rows_of_odd_size_are_packed_as_one(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    x = np.arange(6, dtype=np.uint8).reshape(2, 3).view(numpy_of("float4_e2m1fn"))
    ir = popsr.Ir(replication=2)
    with ir.main_graph:
        v = popsr.variable(x, name="w", replica_grouping=ir.replica_grouping(group_size=1))
        ops.host_store(popsr.d2h_stream(v.shape, v.dtype), v)
    with popsr.Session(ir) as session:
        session.run()
        for save, load, end in (
            (io.save_onnx, io.load_onnx, "onnx"),
            (io.save_safetensors, io.load_safetensors, "safetensors"),
        ):
            path = tmp_path / f"w.{end}"
            save(session, path)
            np.testing.assert_array_equal(bits_of(load(path)["w"]), bits_of(x))
            session.reset_host_weights(path)
            np.testing.assert_array_equal(bits_of(session.get_tensor_data(v)), bits_of(x))
