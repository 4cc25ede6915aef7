"""Conversion to and from float8 on the host, against the table of the formats' definition and ml_dtypes."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import popsr
from popsr import dtypes, errors, fp8_utils
from tests_py.support.helpers import FLOAT8, FLOATS, Array, codes, dtype, np_dtype
from tests_py.support.oracles.float8 import (
    NAN,
    form,
    magnitudes,
    midpoints,
    nearest,
    overflow,
    value_of,
    values,
)
from tests_py.support.unchecked import unchecked

ALL_HALVES = np.arange(2**16, dtype=np.uint16).view(np.float16)
# Exponent of the least number, and the greatest one.
LIMITS = {
    "float8_e4m3fn": (-9, 448),
    "float8_e5m2": (-16, 57344),
    "float8_e4m3fnuz": (-10, 240),
    "float8_e5m2fnuz": (-17, 57344),
}
SCALES = (-40, -31, -17, -8, -3, -1, 0, 1, 4, 9, 16, 31, 40)


def encode(x: Array, name: str, scale: int = 0, nan_on_overflow: bool = True) -> Array:
    """The bits."""
    data = fp8_utils.host_pow2scale_cast_to_fp8(x, dtype(name), scale, nan_on_overflow)
    assert data.dtype == dtype(name).as_numpy()
    assert data.shape == x.shape
    return codes(data)


def decode(bits: Array, name: str, to: popsr.dtype = popsr.float64, scale: int = 0) -> Array:
    return fp8_utils.host_pow2scale_cast_from_fp8(bits.view(dtype(name).as_numpy()), to, scale)


def scaled(x: Array, scale: int) -> Array:
    """Exact: none of the test's numbers is near float64's limits."""
    with np.errstate(invalid="ignore"):
        return np.ldexp(x.astype(np.float64), scale)


@pytest.mark.parametrize("name", FLOAT8)
def test_the_definition_is_that_of_ml_dtypes(name: str) -> None:
    """Bit for bit, all 256 codes; the facts that the formats are named after."""
    theirs = np.arange(256, dtype=np.uint8).view(np_dtype(name)).astype(np.float64)
    assert np.array_equal(values(name), theirs, equal_nan=True)
    assert np.array_equal(np.signbit(values(name)), np.signbit(theirs) & ~np.isnan(theirs))
    least, largest = LIMITS[np_dtype(name).name]
    assert value_of(1, name) == Fraction(2) ** least
    assert value_of(form(name).max_code, name) == largest
    if not form(name).negative_zero:
        assert [bits for bits in range(256) if value_of(bits, name) is None] == [NAN]


@pytest.mark.parametrize("name", FLOAT8)
@pytest.mark.parametrize("to", FLOATS)
@pytest.mark.parametrize("scale", SCALES)
def test_every_code_is_decoded(name: str, to: str, scale: int) -> None:
    got = decode(np.arange(256, dtype=np.uint8), name, dtype(to), scale)
    with np.errstate(over="ignore"):
        expect = np.ldexp(values(name), scale).astype(np_dtype(to))
    assert got.dtype == expect.dtype
    assert np.array_equal(got.astype(np.float64), expect.astype(np.float64), equal_nan=True)
    assert not np.any(np.signbit(got.astype(np.float64)[:1])), "zero is positive"
    assert np.array_equal(np.signbit(got.astype(np.float64)[0x80:0x81]), np.signbit(values(name)[0x80:0x81]))


@pytest.mark.parametrize("name", FLOAT8)
@pytest.mark.parametrize("nan_on_overflow", [True, False])
def test_every_half_is_encoded(name: str, nan_on_overflow: bool) -> None:
    for scale in SCALES:
        got = encode(ALL_HALVES, name, scale, nan_on_overflow)
        expect = nearest(scaled(ALL_HALVES, scale), name, nan_on_overflow=nan_on_overflow)
        assert np.array_equal(got, expect), scale


@pytest.mark.parametrize("name", FLOAT8)
def test_every_half_is_encoded_as_by_ml_dtypes(name: str) -> None:
    for scale in (0, -5, 6):
        with np.errstate(invalid="ignore", over="ignore"):
            theirs = scaled(ALL_HALVES, scale).astype(np.float32).astype(np_dtype(name)).view(np.uint8)
        assert np.array_equal(encode(ALL_HALVES, name, scale), theirs)


@pytest.mark.parametrize("name", FLOAT8)
@pytest.mark.parametrize("source", [np.float32, np.float64])
def test_midpoints_go_to_even_and_their_neighbours_do_not(name: str, source: Any) -> None:
    """float64 must not pass through float32 on its way: the neighbours would become ties."""
    middle = midpoints(name).astype(source)
    assert np.array_equal(middle, midpoints(name))
    for scale in (-25, 0, 12):
        x = np.ldexp(middle, scale)
        codes, most = np.arange(len(middle)), form(name).max_code
        assert np.array_equal(encode(x, name, -scale, False), np.minimum(codes + codes % 2, most))
        below, above = np.nextafter(x, source(0)), np.nextafter(x, source(np.inf))
        assert np.array_equal(encode(below, name, -scale, False), codes)
        assert np.array_equal(encode(above, name, -scale, False), np.minimum(codes + 1, most))
        assert np.array_equal(encode(-above, name, -scale)[:-1], codes[:-1] + 129)
        assert encode(-above, name, -scale)[-1] == overflow(name) | 0x80


@given(
    x=st.floats(width=64),
    scale=st.one_of(st.integers(-40, 40), st.integers(-3000, 3000)),
    name=st.sampled_from(FLOAT8),
    nan_on_overflow=st.booleans(),
)
@settings(derandomize=True, deadline=None, database=None)
def test_any_float_at_any_scale(x: float, scale: int, name: str, nan_on_overflow: bool) -> None:
    """Also where neither the number nor the product is a float64 near 1: compared as fractions."""
    got = int(encode(np.array(x), name, scale, nan_on_overflow))
    of, negative = form(name), bool(np.signbit(x))
    if np.isnan(x):
        assert got & ~(0x80 if of.negative_zero else 0) == of.nan
        return
    if np.isinf(x):
        assert got == overflow(name) | 0x80 * negative
        return
    exact = abs(Fraction(x)) * Fraction(2) ** scale
    table, beyond = magnitudes(name), of.max_code + 1
    code = (
        min(range(beyond + 1), key=lambda i: (abs(table[i] - exact), i % 2))
        if exact < table[beyond]
        else beyond
    )
    code = code if code < beyond else overflow(name) if nan_on_overflow else of.max_code
    assert got == (code | 0x80 if negative and (of.negative_zero or code != 0) else code)


@pytest.mark.parametrize("name", ["float8_143", "float8_152"])
def test_the_cases_that_popxl_documents(name: str) -> None:
    assert encode(np.array([0.75], np.float32), "float8_143")[0] == 0x3C
    assert encode(np.array([0.25], np.float32), "float8_152")[0] == 0x38
    with np.errstate(over="ignore"):
        too_large = np.array([70000.0]).astype(np.float16)  # infinity
    assert encode(too_large, name, 0, False)[0] == NAN, "infinite data is NaN in both modes"
    assert encode(np.array([70000.0], np.float32), name, 0, False)[0] == 0x7F
    assert encode(np.array([70000.0], np.float32), name, 0, True)[0] == NAN
    assert encode(np.array([-0.0, 1e-30, -1e-30], np.float32), name).tolist() == [0, 0, 0], (
        "there is no negative zero"
    )


@pytest.mark.parametrize("name", FLOAT8)
def test_conversion_and_back_is_the_identity_on_float8(name: str) -> None:
    bits = np.arange(256, dtype=np.uint8)
    for scale in (-9, 0, 13):
        got = encode(decode(bits, name, popsr.float32, -scale), name, scale)
        assert np.array_equal(got, np.where(np.isnan(values(name)), got, bits))
        assert np.all(np.isnan(values(name)[got[np.isnan(values(name))]]))


@pytest.mark.parametrize("name", FLOAT8)
def test_shapes_and_strides(name: str) -> None:
    x = np.random.default_rng(0).standard_normal((70, 3, 501)).astype(np.float32)
    for view in (x, x.T, x[::-2, :, ::3], x[:, :0], x[0, 0, 0]):
        got = encode(np.asarray(view), name, 2)
        assert np.array_equal(got, nearest(scaled(np.asarray(view), 2), name))
        back = decode(got, name, popsr.float32, -2)
        assert back.shape == np.shape(view)


@pytest.mark.parametrize("name", FLOAT8)
def test_arrays_of_ml_dtypes_are_float8_data(name: str) -> None:
    bits = np.arange(256, dtype=np.uint8)
    got = fp8_utils.host_pow2scale_cast_from_fp8(bits.view(np_dtype(name)), popsr.float32)
    assert np.array_equal(got, values(name).astype(np.float32), equal_nan=True)


def test_defaults() -> None:
    data = fp8_utils.host_pow2scale_cast_to_fp8(np.array([1.0], np.float16))
    assert data.dtype == dtypes.np_dtype_float8_143
    assert fp8_utils.host_pow2scale_cast_from_fp8(data).tolist() == [1.0]


@pytest.mark.parametrize("name", FLOAT8)
def test_dtypes_are_named_as_everywhere(name: str) -> None:
    """Dtypes by their names and by types of NumPy and ml_dtypes; numbers and sequences are data."""
    kind, x = dtype(name), np.array([0.75, -1.5], np.float32)
    data = fp8_utils.host_pow2scale_cast_to_fp8(x, kind)
    for each in (name, kind.as_numpy(), np_dtype(name), np_dtype(name).type):
        assert np.array_equal(fp8_utils.host_pow2scale_cast_to_fp8(x, unchecked(each)), data)
        assert fp8_utils.host_fp8_mse_scale(x, unchecked(each)) == fp8_utils.host_fp8_mse_scale(x, kind)
    for source in ([0.75, -1.5], (np.float16(0.75), -1.5)):
        assert np.array_equal(fp8_utils.host_pow2scale_cast_to_fp8(unchecked(source), kind), data)
    assert fp8_utils.host_pow2scale_cast_to_fp8(unchecked(0.75), kind) == data[0]
    for to in ("float16", np.float16, np.dtype(np.float16)):
        back = fp8_utils.host_pow2scale_cast_from_fp8(data, unchecked(to))
        assert (back.dtype, back.tolist()) == (np.float16, [0.75, -1.5])


def test_torch_tensors_are_data() -> None:
    torch = pytest.importorskip("torch")
    got = fp8_utils.host_pow2scale_cast_to_fp8(torch.tensor([0.75, 1e9]), popsr.float8_143)
    assert got["float8_143"].tolist() == [0x3C, NAN]
    for name in FLOAT8:
        kind = dtype(name).as_torch()
        tensor = torch.arange(256, dtype=torch.uint8).view(kind)
        assert dtypes.dtype.as_dtype(kind) is dtype(name)
        got = fp8_utils.host_pow2scale_cast_from_fp8(tensor, popsr.float64)
        assert np.array_equal(got, values(name), equal_nan=True)


BAD = [
    (
        "data",
        lambda f: f.host_pow2scale_cast_to_fp8(np.arange(3), popsr.float8_143),
        r"to_fp8: wrong data, got int64",
    ),
    ("bools", lambda f: f.host_pow2scale_cast_to_fp8(np.zeros(3, bool)), r"to_fp8: wrong data, got bool"),
    (
        "float8",
        lambda f: f.host_pow2scale_cast_to_fp8(np.zeros(3, ml_dtypes.float8_e5m2fnuz)),
        r"to_fp8: wrong data, got float8_e5m2fnuz, expected float16",
    ),
    (
        "to",
        lambda f: f.host_pow2scale_cast_to_fp8(np.zeros(3), popsr.float16),
        r"wrong dtype, got .*float16",
    ),
    (
        "floats",
        lambda f: f.host_pow2scale_cast_from_fp8(np.zeros(3)),
        r"from_fp8: wrong data, got float64, expected f",
    ),
    (
        "from",
        lambda f: f.host_pow2scale_cast_from_fp8(
            np.zeros(1, "u1").view(dtypes.np_dtype_float8_143), popsr.int8
        ),
        r"from_fp8: wrong dtype, got .*int8, expected float16",
    ),
    ("mse", lambda f: f.host_fp8_mse_scale(np.arange(3)), r"host_fp8_mse_scale: wrong data, got int64"),
    (
        "mse-dtype",
        lambda f: f.host_fp8_mse_scale_pb(np.zeros(3), popsr.float32),
        r"wrong dtype, got .*float32",
    ),
]


@pytest.mark.parametrize(("call", "message"), [bad[1:] for bad in BAD], ids=[bad[0] for bad in BAD])
def test_unsupported_dtypes_are_runtime_errors(call: Any, message: str) -> None:
    with pytest.raises(RuntimeError, match=message) as caught:
        call(fp8_utils)
    assert isinstance(caught.value, errors.Error)


@pytest.mark.parametrize("scale", [1.5, "1", True, None, 2**31])
def test_scales_are_ints(scale: Any) -> None:
    error = errors.AttributeValueError if scale == 2**31 else errors.ArgumentTypeError
    with pytest.raises(error, match=r"to_fp8: log2_scale.* got .* expected an int"):
        fp8_utils.host_pow2scale_cast_to_fp8(np.zeros(2), popsr.float8_143, scale)
