"""OCP's float8: facts of the specification, beside what every test does that is parametrised by float8 types."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import popsr
from popsr import errors, ops, sr
from tests_py.checkpoints.cases import ONNX, SAFETENSORS, Format, Program, saved
from tests_py.support.helpers import Array, Streams, codes, dtype

E4M3, E5M2 = popsr.float8_e4m3fn, popsr.float8_e5m2

# Codes of numbers at the limits (OFP8 1.0, section 5.1): greatest, least normal, greatest and least subnormal, and
# what overflows: a tie beyond the greatest goes to the even neighbour, which is 448 itself in E4M3.
LIMITS = {
    "float8_e4m3fn": [
        (448, 0x7E),
        (464, 0x7E),
        (465, 0x7F),
        (2**-6, 0x08),
        (0.875 * 2**-6, 0x07),
        (2**-9, 0x01),
    ],
    "float8_e5m2": [
        (57344, 0x7B),
        (61439, 0x7B),
        (61440, 0x7C),
        (2**-14, 0x04),
        (0.75 * 2**-14, 0x03),
        (2**-16, 0x01),
    ],
}
SPECIALS = {
    "float8_e4m3fn": [(np.inf, 0x7F), (-np.inf, 0xFF), (np.nan, 0x7F), (-0.0, 0x80), (-(2.0**-12), 0x80)],
    "float8_e5m2": [(np.inf, 0x7C), (-np.inf, 0xFC), (np.nan, 0x7E), (-0.0, 0x80), (-(2.0**-20), 0x80)],
}


def cast(x: Array, name: str, **options: bool) -> Array:
    """The codes that a program makes of floats."""
    ir = popsr.Ir()
    for option, value in options.items():
        setattr(ir.options, option, value)
    io = Streams()
    with ir.main_graph:
        io.fetch(ops.pow2scale_cast_to_fp8(io.feed(x), popsr.constant(0, popsr.int32), dtype(name)))
    with popsr.Session(ir) as session:
        return codes(io.run(session)[0])


@pytest.mark.parametrize("stochastic", [False, True])
@pytest.mark.parametrize("name", LIMITS)
def test_limits_and_specials(name: str, stochastic: bool) -> None:
    rows = (
        LIMITS[name]
        if not stochastic
        else [row for row in LIMITS[name] if row[0] not in (464, 465, 61439, 61440)]
    )
    rows = rows + [row for row in SPECIALS[name] if not stochastic or not -1 < row[0] < 0]
    x = np.array([number for number, _ in rows], np.float32)
    got = cast(x, name, enable_stochastic_rounding=stochastic)
    assert got.tolist() == [code for _, code in rows]


@pytest.mark.parametrize("source", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", LIMITS)
def test_casts_are_those_of_ml_dtypes(name: str, source: str) -> None:
    """And of torch, but that its NaN of E5M2 has another payload."""
    rng = np.random.default_rng(5)
    numbers = np.ldexp(rng.standard_normal(1 << 16), rng.integers(-22, 18, 1 << 16))
    with np.errstate(all="ignore"):
        x = numbers.astype(dtype(source).as_ml_dtypes())
        expect = x.astype(getattr(ml_dtypes, name))
    assert np.array_equal(cast(x, name), codes(expect))


@pytest.mark.parametrize("name", LIMITS)
def test_stochastic_casts_are_on_the_grid_of_popsr_sr(name: str) -> None:
    """Each result is one of the two that rounding down and up give."""
    x = np.ldexp(np.random.default_rng(6).standard_normal(1 << 14), -3).astype(np.float32)
    got = cast(x, name, enable_stochastic_rounding=True)
    down, up = (codes(sr.cast(x, name, key=sr.Key(0), mode=mode)) for mode in ("rd", "ru"))
    assert np.all((got == down) | (got == up))
    away = (got == up)[down != up].mean()
    assert 0.45 < away < 0.55


def test_host_data_are_arrays_of_ml_dtypes() -> None:
    for kind, foreign in ((E4M3, ml_dtypes.float8_e4m3fn), (E5M2, ml_dtypes.float8_e5m2)):
        assert kind.as_numpy() == kind.as_ml_dtypes() == np.dtype(foreign)
        assert popsr.dtypes.dtype.as_dtype(foreign) is kind
        with popsr.Ir().main_graph:
            assert popsr.variable(np.zeros(3, foreign)).dtype is kind


@pytest.mark.parametrize(
    ("format", "names"),
    [(SAFETENSORS, (b'"F8_E4M3"', b'"F8_E5M2"')), (ONNX, (b"", b""))],
    ids=["safetensors", "onnx"],
)
def test_checkpoints_name_the_types(tmp_path: Path, format: Format, names: tuple[bytes, bytes]) -> None:
    if format is ONNX:
        pytest.importorskip("onnx")
    everything = {name: np.arange(256, dtype=np.uint8).view(getattr(ml_dtypes, name)) for name in LIMITS}
    program = Program()
    for name, data in everything.items():
        program.add(name, data)
    path = saved(tmp_path, format, program.session())
    text = path.read_bytes()
    assert all(name in text for name in names)
    found = format.load(path)
    for name, data in everything.items():
        assert found[name].dtype == data.dtype
        assert np.array_equal(codes(found[name]), codes(data))


@pytest.mark.parametrize("kind", [E4M3, E5M2])
def test_arithmetic_needs_a_scale(kind: popsr.dtypes.dtype) -> None:
    with popsr.Ir().main_graph:
        x = popsr.constant(np.ones(3, kind.as_numpy()))
        for call in (lambda: x + x, lambda: ops.exp(x), lambda: ops.cast(x, popsr.float32)):
            with pytest.raises(
                errors.DTypeError, match=r"has the wrong dtype, got f8_e.*: see pow2scale_cast_from_fp8"
            ):
                call()
        with pytest.raises(errors.DTypeError, match=r"cast: float8 needs a scale, got float8_e"):
            ops.cast(popsr.constant(1.0), kind)
