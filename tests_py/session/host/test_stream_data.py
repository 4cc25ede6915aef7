"""Host data of streams: which dtypes pass, and wider floats that a stream rounds."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import popsr
from popsr import dtypes, errors, ops
from tests_py.support.helpers import FLOAT8, assert_same_bits, np_dtype
from tests_py.support.unchecked import unchecked

NARROWER = {"float64": "float32", "int64": "int32", "uint64": "uint32"}
STREAMS = [each for each in dtypes.dtype._all.values() if not each.is_complex]
TORCH = {
    "bool": "bool",
    "uint8": "uint8",
    "uint16": "uint16",
    "uint32": "uint32",
    "uint64": "uint64",
    "int8": "int8",
    "int16": "int16",
    "int32": "int32",
    "int64": "int64",
    "float16": "float16",
    "bfloat16": "bfloat16",
    "float32": "float32",
    "float64": "float64",
} | {np_dtype(name).name: name for name in FLOAT8}


class Echo:
    """A program that stores what it loads."""

    def __init__(self, dtype: dtypes.dtype, shape: tuple[int, ...] = (3,), **options: Any) -> None:
        ir = popsr.Ir()
        with ir.main_graph:
            self.stream = popsr.h2d_stream(shape, dtype, "x", **options)
            self.out = popsr.d2h_stream(shape, dtype)
            ops.host_store(self.out, ops.host_load(self.stream))
        self.session = popsr.Session(ir)

    def run(self, data: Any, **options: Any) -> np.ndarray[Any, Any]:
        with self.session:
            return self.session.run({self.stream: data}, **options)[self.out]


@pytest.mark.parametrize("downcast", [True, False])
@pytest.mark.parametrize("name", TORCH)
def test_torch_dtypes_by_dtypes_of_streams(name: str, downcast: bool) -> None:
    """A stream takes its own dtype, 64-bit ones too, and 64-bit data narrowed when ``run`` says so."""
    torch = pytest.importorskip("torch")
    kind = getattr(torch, name)
    values = [0.0, 1.0, 0.5] if kind.is_floating_point else [0, 1, 1]
    data = torch.tensor(values).to(kind)
    own = TORCH[name]
    for dtype in STREAMS:
        accepted = dtype.name == own or (downcast and NARROWER.get(own) == dtype.name)
        echo = Echo(dtype)
        if not accepted:
            with pytest.raises(
                errors.DTypeError, match=rf"^run: dtypes differ for stream 'x', got torch.{name}, "
            ):
                echo.run(data, downcast_inputs=downcast)
            continue
        got = echo.run(data, downcast_inputs=downcast)
        assert got.dtype == dtype.as_numpy()
        if not own.startswith("float8"):
            assert got.astype(np.float64).tolist() == values
        else:
            assert got.tobytes() == data.view(torch.uint8).numpy().tobytes()


@pytest.mark.parametrize("dtype", ["int64", "uint64", "float64"])
def test_64_bit_values_keep_every_bit(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    data = np.array([2**53 + 1, 3, 2**62 + 5] if "int" in dtype else [1 + 2**-52, 0.1, -0.0], dtype)
    for given in (data, torch.from_numpy(data)):
        assert_same_bits(Echo(dtypes.dtype.from_name(dtype)).run(given), data)


# downcast_inputs

FORMATS = {  # bits of the fraction, exponent of the smallest normal, exponent of the greatest
    "float32": (23, -126, 127),
    "bfloat16": (7, -126, 127),
    "float16": (10, -14, 15),
}


def nearest(x: float, name: str) -> float:
    """The value of a format nearest to ``x``, ties to even; in fractions."""
    bits, least, greatest = FORMATS[name]
    if not np.isfinite(x) or x == 0:
        return x
    exact = Fraction(x)
    exponent = max(np.frexp(x)[1] - 1, least)
    spacing = Fraction(2) ** (int(exponent) - bits)
    steps = round(exact / spacing)  # Python's round is to even
    value = steps * spacing
    if abs(value) >= Fraction(2) ** (greatest + 1):
        return float(np.copysign(np.inf, x))
    return float(np.copysign(float(value), x))


def tricky(name: str, source: str) -> np.ndarray[Any, Any]:
    """Numbers at and beside midpoints of the format, of every size; so that rounding twice shows."""
    bits, least, greatest = FORMATS[name]
    rng = np.random.default_rng(7)
    values: list[float] = [0.0, -0.0, np.inf, -np.inf]
    for exponent in (least - bits - 1, least - bits, least - 3, least, -1, 0, 5, greatest):
        for step in (0, 1, 2, 3, 2**bits - 1):
            middle = (1 + (step + 0.5) * 2.0**-bits) * 2.0**exponent
            for offset in (0.0, 2.0**-29, -(2.0**-29), 2.0**-40, -(2.0**-40), 2.0**-51, -(2.0**-51)):
                values += [middle * (1 + offset), -middle * (1 + offset)]
    values += (rng.normal(size=300) * 2.0 ** rng.uniform(least - bits - 2, greatest, size=300)).tolist()
    with np.errstate(over="ignore"):
        return np.array(values).astype(source)


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("float64", "float32"),
        ("float64", "bfloat16"),
        ("float64", "float16"),
        ("float32", "bfloat16"),
        ("float32", "float16"),
    ],
)
@pytest.mark.parametrize("kind", ["numpy", "torch", "big-endian", "strided", "read-only"])
def test_wider_floats_are_rounded_once_to_nearest(source: str, name: str, kind: str) -> None:
    data = tricky(name, source)
    given: Any = data
    if kind == "torch":
        given = pytest.importorskip("torch").from_numpy(data)
    elif kind == "big-endian":
        given = data.astype(data.dtype.newbyteorder(">"))
    elif kind == "strided":
        given = np.repeat(data, 2)[::2]
    elif kind == "read-only":
        given = data.copy()
        given.flags.writeable = False
    dtype = dtypes.dtype.from_name(name)
    got = Echo(dtype, data.shape, downcast_inputs=True).run(given)
    wanted = np.array([nearest(float(x), name) for x in data])
    assert got.dtype == dtype.as_numpy()
    assert_same_bits(got.astype(np.float64), wanted)


def test_rounding_by_way_of_float32_would_differ() -> None:
    """The cast of ml_dtypes does: the test above would see it."""
    data = np.array([1 + 2**-8 + 2**-30])
    assert data.astype(ml_dtypes.bfloat16)[0] == 1
    assert Echo(dtypes.bfloat16, (1,), downcast_inputs=True).run(data)[0] == 1 + 2**-7


def test_nans_stay_nans_and_the_stream_s_own_dtype_keeps_its_bits() -> None:
    got = Echo(dtypes.bfloat16, downcast_inputs=True).run(np.array([np.nan, -np.nan, 1]))
    assert np.isnan(got[:2].astype(np.float64)).all()
    own = np.array([0x7FC1, 0x8000, 0x0001], np.uint16).view(ml_dtypes.bfloat16)
    assert_same_bits(Echo(dtypes.bfloat16, downcast_inputs=True).run(own), own)


def test_numbers_and_lists_are_rounded_once_too() -> None:
    for data in ([1 + 2**-8 + 2**-30] * 3, np.float64(1 + 2**-8 + 2**-30)):
        shape = (3,) if isinstance(data, list) else (1,)
        got = Echo(dtypes.bfloat16, shape, downcast_inputs=True).run(data)
        assert got.astype(np.float64).tolist() == [1 + 2**-7] * shape[0]
    assert Echo(dtypes.bfloat16, downcast_inputs=True).run([1, 2, 3]).astype(float).tolist() == [1, 2, 3]


REFUSED: dict[str, tuple[str, bool, str, str]] = {
    # dtype of the stream, downcast_inputs, dtype of the data: what the error says
    "bf16 without": (
        "bfloat16",
        False,
        "float32",
        "expected bfloat16: make it with h2d_stream(..., downcast_inputs=True) to round, or convert with "
        ".astype('bfloat16'); made at ",
    ),
    "fp16 without": (
        "float16",
        False,
        "float64",
        "make it with h2d_stream(..., downcast_inputs=True) to round",
    ),
    "ints to floats": (
        "bfloat16",
        True,
        "int64",
        "got int64, expected bfloat16: convert with .astype('bfloat16')",
    ),
    "other narrow floats": (
        "bfloat16",
        True,
        "float16",
        "expected bfloat16: convert with .astype('bfloat16')",
    ),
    "narrower floats": ("float32", True, "float16", "expected float32: convert with .astype('float32')"),
    "bools": ("float32", True, "bool", "expected float32: convert with .astype('float32')"),
    "ints to ints": ("int16", False, "int64", "expected int16: convert with .astype('int16')"),
    "floats to ints": ("int32", False, "float32", "expected int32: convert with .astype('int32')"),
    "float8": (
        "float8_143",
        False,
        "float32",
        "expected float8_143: float8 needs a scale, convert with fp8_utils.host_pow2scale_cast_to_fp8; made at ",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_data_is_refused_with_a_way_out(name: str) -> None:
    dtype, downcast, given, text = REFUSED[name]
    echo = Echo(dtypes.dtype.from_name(dtype), **(unchecked({"downcast_inputs": True} if downcast else {})))
    with pytest.raises(errors.DTypeError) as caught:
        echo.run(np.ones(3, given))
    assert text in str(caught.value)
    assert str(caught.value).startswith("run: dtypes differ for stream 'x', got ")
    assert f"made at {__file__}:" in str(caught.value)


def test_advice_for_torch_is_of_torch() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(
        errors.DTypeError, match=r"got torch.float64, expected int32: convert with .to\(torch.int32\); made"
    ):
        Echo(dtypes.int32).run(torch.ones(3, dtype=torch.float64))


@pytest.mark.parametrize("dtype", ["float64", "int32", "bool", *FLOAT8])
def test_streams_of_other_dtypes_do_not_round(dtype: str) -> None:
    text = "h2d_stream: downcast_inputs rounds floats to narrower ones, got "
    text += f"{dtype}, expected one of float32, float16, bfloat16"
    if dtype.startswith("float8"):
        text += ": float8 needs a scale, see fp8_utils.host_pow2scale_cast_to_fp8"
    ir = popsr.Ir()
    with ir.main_graph, pytest.raises(errors.DTypeError) as caught:
        popsr.h2d_stream((3,), dtypes.dtype.from_name(dtype), downcast_inputs=True)
    assert str(caught.value) == text
    assert ir._core.num_streams == 0
    with ir.main_graph, pytest.raises(errors.ArgumentTypeError, match="downcast_inputs is not a bool, got 1"):
        popsr.h2d_stream((3,), popsr.float32, downcast_inputs=1)  # type: ignore[arg-type]


def test_streams_say_that_they_round_and_where_they_were_made() -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        plain, rounding = (
            popsr.h2d_stream((2,), popsr.bfloat16, name, downcast_inputs=flag)
            for name, flag in (("plain", False), ("rounding", True))
        )
        out = popsr.d2h_stream((2,), popsr.bfloat16, "out")
    assert (plain.downcast_inputs, rounding.downcast_inputs) == (False, True)
    assert repr(plain) == "HostToDeviceStream[plain popsr.dtypes.bfloat16 (2,)]"
    assert repr(rounding) == "HostToDeviceStream[rounding popsr.dtypes.bfloat16 (2,) downcast_inputs]"
    assert str(rounding) == "rounding: bfloat16[2] from host to device, wider floats rounded"
    assert all(each.location.startswith(f"{__file__}:") for each in (plain, rounding, out))
