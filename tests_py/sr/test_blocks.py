"""``cast_blocks`` beside fractions and ml_dtypes: scales, elements, chances, layouts, and what is refused."""

from __future__ import annotations

import copy
import itertools
import math
import pickle
from fractions import Fraction
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from popsr import sr
from tests_py.sr.cases import MODES
from tests_py.sr.refused import ARGUMENT, DTYPE, F32, KEY, SHAPE, VALUE
from tests_py.support.oracles import blocks as oracle
from tests_py.support.unchecked import unchecked

NAMES = tuple(oracle.FORMATS)
DTYPES = ("float32", "float64", "float16", "bfloat16", "float8_e5m2fnuz")
RULES = {name: ("rceil", "nearest" if name == "nvfp4" else "floor") for name in NAMES}
Array = np.ndarray[Any, Any]


def dtype_of(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, name, None) or name)


def sample(name: str, dtype: str, num_blocks: int = 12, seed: int = 0) -> Array:
    """Blocks ``[n, size]``: any bits, values of a magnitude, grid points and their neighbours, and special ones."""
    form, rng = oracle.FORMATS[name], np.random.default_rng(seed)
    shape, to = (num_blocks, form.size), dtype_of(dtype)
    with np.errstate(all="ignore"):
        limit = float(ml_dtypes.finfo(to).max)
        x = (rng.standard_normal(shape) * 2.0 ** rng.integers(-6, 4, shape)).astype(to)
        grid = np.array([float(g) for g in form.grid])[rng.integers(len(form.grid), size=(3, form.size))]
        x[1:4] = (grid * rng.choice([-1, 1], grid.shape)).astype(to)
        x[2] = (x[2].astype(float) * 1.0625).astype(to)
        x[4] = np.frombuffer(rng.bytes(form.size * to.itemsize), to)
        x[5], x[6, 1:], x[6, 0] = 0, 0, -0.0
        x[7, :3] = [limit, -limit, 1]
        x[8] = ml_dtypes.finfo(to).smallest_subnormal
        x[8, 5:] = -0.0
        x[9, 3], x[10, 4] = np.nan, -np.inf
        x[11, :4] = [limit / 2, -1, ml_dtypes.finfo(to).tiny, 0.75]
    return x


def expected(
    x: Array, name: str, rule: str, mode: str, axis: int, offset: int = 0, tensor: float | None = None
) -> tuple[Array, Array, Any]:
    """Bits of elements, bits of scales, and the tensor's scale."""
    form = oracle.FORMATS[name]
    with np.errstate(invalid="ignore"):
        wide = x.astype(np.float64)
    numbers = sr.uniform_bits(KEY, x.size, offset).reshape(x.shape)
    rows = np.moveaxis(wide, axis, -1).reshape(-1, form.size).tolist()
    drawn = np.moveaxis(numbers, axis, -1).reshape(-1, form.size).tolist()
    scale_of_all = None
    if name == "nvfp4":
        scale_of_all = oracle.nvfp4_tensor_scale(rows, rule) if tensor is None else np.float32(tensor)
        whole = Fraction(float(scale_of_all))
        scales = [oracle.nvfp4_scale(row, whole, rule) for row in rows]
        codes = [0x7F if s is None else oracle.E4M3.index(s) for s in scales]
        scales = [None if s is None else s * whole for s in scales]
    else:
        scales = [oracle.mx_scale(row, form, rule) for row in rows]
        codes = [0xFF if s is None else math.frexp(float(s))[1] - 1 + 127 for s in scales]
    bits = [
        oracle.element(v, s, form, mode, u)
        for row, s, us in zip(rows, scales, drawn, strict=True)
        for v, u in zip(row, us, strict=True)
    ]
    moved = np.moveaxis(wide, axis, -1).shape
    elements = np.moveaxis(np.array(bits, np.uint8).reshape(moved), -1, axis)
    blocks = np.array(codes, np.uint8).reshape(*moved[:-1], -1)
    return elements, np.moveaxis(blocks, -1, axis), scale_of_all


def check(
    x: Array, name: str, rule: str, mode: str, axis: int = -1, offset: int = 0, tensor: float | None = None
) -> sr.Blocks:
    """The cast, if it is the oracle's."""
    got = unchecked(sr.cast_blocks)(
        x, name, key=KEY, axis=axis, scale=rule, mode=mode, offset=offset, tensor_scale=tensor
    )
    elements, scales, whole = expected(x, name, rule, mode, axis, offset, tensor)
    assert got.tensor_scale == whole
    assert got.scales.view(np.uint8).tolist() == scales.tolist()
    differ = np.argwhere(got.elements.view(np.uint8) != elements)
    assert not differ.size, (len(differ), differ[0], x[tuple(differ[0])])
    return got


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NAMES)
def test_against_fractions(name: str, dtype: str) -> None:
    for rule, mode in itertools.product(RULES[name], MODES):
        check(sample(name, dtype), name, rule, mode)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NAMES)
def test_against_fractions_at_length(name: str, dtype: str) -> None:
    for seed, rule, mode in itertools.product(range(4), RULES[name], MODES):
        check(sample(name, dtype, 60, seed), name, rule, mode)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_magnitudes_of_every_exponent(dtype: str) -> None:
    """Scales are of every size, and so are elements beside them, down to where quotients leave float64."""
    low, high = (-1074, 1023) if dtype == "float64" else (-149, 127)
    rng = np.random.default_rng(1)
    for name, rule in (("mxfp4", "rceil"), ("mxint8", "floor"), ("mxfp8_e5m2", "rceil"), ("nvfp4", "rceil")):
        tops = np.arange(low, high + 1, 5 if dtype == "float32" else 13)[:, None]
        below = rng.integers(0, 60, (len(tops), oracle.FORMATS[name].size))
        below[:, 0] = 0
        x = np.ldexp(rng.uniform(1, 2, below.shape), np.maximum(tops - below, low)).astype(dtype)
        check(x, name, rule, "sr")
        check(x, name, rule, "ru")


@pytest.mark.parametrize("name", [name for name in NAMES if name != "mxint8"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_nearest_is_that_of_ml_dtypes(name: str, dtype: str) -> None:
    size = oracle.FORMATS[name].size
    x = (np.random.default_rng(2).standard_normal((999, size)) * 3).astype(dtype_of(dtype))
    got = sr.cast_blocks(x, unchecked(name), key=KEY, mode="rn")
    scales = got.scales.astype(np.float64)[..., None, :] * (got.tensor_scale or 1)
    quotients = x.astype(np.float64) / scales.reshape(-1, 1)  # inexact for nvfp4, and no tie of these is near
    assert got.elements.tobytes() == quotients.astype(got.elements.dtype).tobytes()


# The mean is exact: each chance is a number of 256ths, so that the first byte of an element's number decides. All 256
# bytes are drawn, each decides alike wherever it is, and the mean of what they decide is the value.

CHANCES = [Fraction(n, 256) for n in (0, 1, 3, 64, 127, 128, 129, 200, 255)]


@pytest.mark.parametrize("name", ["mxfp4", "nvfp4", "mxint8", "mxfp6_e2m3", "mxfp6_e3m2", "mxfp8_e4m3"])
def test_mean_over_all_numbers(name: str) -> None:
    form, n = oracle.FORMATS[name], 4096
    first_bytes = (sr.uniform_bits(KEY, n) >> np.uint64(56)).astype(np.intp)
    inner = np.arange(n) % form.size != 0  # the first of each block has the largest value
    pairs = list(itertools.pairwise(form.grid))
    for low, high in pairs if len(pairs) <= 8 else pairs[:2] + pairs[len(pairs) // 2 :: 16] + pairs[-1:]:
        for chance, sign in itertools.product(CHANCES, (1, -1)):
            exact = low + chance * (high - low)
            x = np.where(inner, float(sign * exact), float(form.grid[-1])).reshape(-1, form.size)
            tensor = 1.0 if name == "nvfp4" else None
            blocks = sr.cast_blocks(x, unchecked(name), key=KEY, tensor_scale=tensor)
            assert np.all(blocks.scales.astype(np.float64) == 1)
            values = blocks.dequantise("float64").reshape(-1)
            least, most = np.full(256, np.inf), np.full(256, -np.inf)
            np.minimum.at(least, first_bytes[inner], values[inner])
            np.maximum.at(most, first_bytes[inner], values[inner])
            assert least.tolist() == most.tolist()
            assert sum(map(Fraction, least.tolist())) / 256 == sign * exact


def test_floor_saturates_and_rceil_does_not() -> None:
    x = np.array([7.5, *[1.0] * 31], np.float32)
    floor, rceil = (sr.cast_blocks(x, "mxfp4", key=KEY, scale=rule) for rule in ("floor", "rceil"))  # type: ignore[arg-type]
    assert [floor.dequantise()[0], float(floor.scales[0])] == [6, 1]
    assert float(rceil.scales[0]) == 2
    assert rceil.dequantise()[0] in (6, 8)
    offsets = range(0, 32 * 100, 32)
    many = [float(sr.cast_blocks(x, "mxfp4", key=KEY, offset=k).dequantise()[0]) for k in offsets]
    assert set(many) == {6.0, 8.0}


def test_least_scale_that_fits() -> None:
    """At the largest element and just above it."""
    for name, largest in (("mxfp4", 6.0), ("mxfp8_e4m3", 448.0), ("mxint8", 127 / 64), ("mxfp6_e3m2", 28.0)):
        for value, scale in ((largest, 1), (np.nextafter(np.float32(largest), np.float32(500)), 2)):
            x = np.full(32, value, np.float32)
            assert float(sr.cast_blocks(x, unchecked(name), key=KEY).scales[0]) == scale, name


# Layouts


@pytest.mark.parametrize("name", ["mxfp4", "mxfp8_e4m3", "nvfp4", "mxint8"])
@pytest.mark.parametrize("axis", [0, 1, 2, -1, -2])
def test_axes_and_strides(name: str, axis: int) -> None:
    extents = [3, 2, 4]
    extents[axis] = 2 * oracle.FORMATS[name].size
    x = np.random.default_rng(3).standard_normal(extents).astype(np.float32)
    straight = check(x, name, "rceil", "sr", axis)
    assert straight.axis == axis % 3
    assert straight.scales.shape == tuple(2 if k == axis % 3 else e for k, e in enumerate(extents))
    spread = np.zeros([2 * e for e in extents], np.float32)[::2, ::2, ::-2]
    spread[...] = x
    strided = [np.asfortranarray(x), spread, np.ascontiguousarray(x.T).T]
    if axis % 3 != 0:
        strided.append(np.broadcast_to(x[:1], x.shape))
    for each in strided[:3]:
        got = sr.cast_blocks(each, unchecked(name), key=KEY, axis=axis, num_threads=3)
        assert got.elements.tobytes() == straight.elements.tobytes()
        assert got.scales.tobytes() == straight.scales.tobytes()
        assert got.elements.flags.c_contiguous
        assert got.dequantise().tobytes() == straight.dequantise().tobytes()
    for each in strided[3:]:
        check(each, name, "rceil", "sr", axis)


def test_parts_of_an_array() -> None:
    x = np.random.default_rng(4).standard_normal((6, 64)).astype(np.float32)
    for name in NAMES:
        whole = sr.cast_blocks(x, unchecked(name), key=KEY)
        scale = None if whole.tensor_scale is None else float(whole.tensor_scale)
        for k in (0, 2, 5):
            part = sr.cast_blocks(x[k:], unchecked(name), key=KEY, offset=64 * k, tensor_scale=scale)
            assert part.elements.tobytes() == whole.elements[k:].tobytes()
            assert part.scales.tobytes() == whole.scales[k:].tobytes()
    check(x, "mxfp4", "rceil", "sr", offset=2**64 - x.size)


@pytest.mark.parametrize("axis", [0, 1])
def test_more_than_a_tile(axis: int) -> None:
    """Arrays are cast in parts, which begin at their own numbers."""
    x = np.random.default_rng(8).standard_normal((96, 4096)).astype(np.float32)
    for name in ("mxfp4", "nvfp4"):
        whole = sr.cast_blocks(x, unchecked(name), key=KEY, axis=axis, offset=5)
        scale = None if whole.tensor_scale is None else float(whole.tensor_scale)
        for k in range(0, 96, 32):
            options = {"key": KEY, "axis": axis, "offset": 5 + k * 4096, "tensor_scale": scale}
            part = unchecked(sr.cast_blocks)(x[k : k + 32], name, **options)
            assert part.elements.tobytes() == whole.elements[k : k + 32].tobytes()


@pytest.mark.parametrize("shape", [(0, 32), (3, 0), (0,)])
@pytest.mark.parametrize("name", ["mxfp4", "nvfp4", "mxint8"])
def test_nothing(name: str, shape: tuple[int, ...]) -> None:
    blocks = sr.cast_blocks(np.zeros(shape, np.float32), unchecked(name), key=KEY)
    assert blocks.elements.shape == blocks.dequantise().shape == shape
    assert blocks.scales.shape == (*shape[:-1], shape[-1] // oracle.FORMATS[name].size)


def test_other_arrays() -> None:
    x = np.random.default_rng(5).standard_normal((2, 32)).astype(np.float32)
    want = sr.cast_blocks(x, "mxfp4", key=KEY)

    class Other:
        def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
            return x

    for each in (unchecked(memoryview)(x), Other()):
        assert sr.cast_blocks(unchecked(each), "mxfp4", key=KEY).elements.tobytes() == want.elements.tobytes()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_torch(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    x = torch.linspace(-3, 5, 64, dtype=getattr(torch, dtype)).reshape(2, 32).requires_grad_()
    got = sr.cast_blocks(x, "mxfp4", key=KEY)
    same = x.detach().double().numpy().astype(dtype_of(dtype))
    assert got.elements.tobytes() == sr.cast_blocks(same, "mxfp4", key=KEY).elements.tobytes()


def test_subnormals_are_not_flushed() -> None:
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(6).integers(1, 2**12, (4, 32)).astype(np.uint32).view(np.float32)
    for name in ("mxfp4", "mxfp8_e5m2", "nvfp4"):
        want = check(x, name, "rceil", "sr")
        assert torch.set_flush_denormal(True)
        try:
            got = sr.cast_blocks(x, unchecked(name), key=KEY)
            numbers = got.dequantise()
        finally:
            torch.set_flush_denormal(False)
        assert got.elements.tobytes() == want.elements.tobytes()
        assert numbers.tobytes() == want.dequantise().tobytes()


# Numbers again


@pytest.mark.parametrize("name", NAMES)
def test_dequantise(name: str) -> None:
    form, x = oracle.FORMATS[name], sample(name, "float32")
    blocks = sr.cast_blocks(x, unchecked(name), key=KEY)
    wide, narrow = blocks.dequantise("float64"), blocks.dequantise()
    assert (wide.dtype, narrow.dtype) == (np.float64, np.float32)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(narrow, wide.astype(np.float32))
    bits = blocks.elements.view(np.uint8).astype(int)
    for (i, j), code in np.ndenumerate(bits):
        scale = float(blocks.scales[i, 0])
        if math.isnan(scale):
            assert code == 0
            assert math.isnan(wide[i, j])
            continue
        whole = 1 if blocks.tensor_scale is None else Fraction(float(blocks.tensor_scale))
        negative = code & form.sign if form.sign else code > 127
        magnitude = form.grid[code & ~form.sign if form.sign else (256 - code if negative else code)]
        assert Fraction(float(wide[i, j])) == (-1 if negative else 1) * magnitude * Fraction(scale) * whole
        assert math.copysign(1, wide[i, j]) == (-1 if negative and (form.sign or code) else 1)


def test_beyond_float32() -> None:
    x = np.full(32, np.finfo(np.float32).max)
    blocks = sr.cast_blocks(x, "mxfp8_e4m3", key=KEY, mode="ru")
    assert np.all(np.isposinf(blocks.dequantise()))
    assert np.all(blocks.dequantise("float64") == 2.0**128)


def test_blocks_are_values() -> None:
    x = np.random.default_rng(7).standard_normal((32, 3)).astype(np.float32)
    for name in ("mxfp4", "nvfp4"):
        blocks = sr.cast_blocks(x, unchecked(name), key=KEY, axis=0)
        scale = None if blocks.tensor_scale is None else float(blocks.tensor_scale)
        again = sr.Blocks(blocks.elements, blocks.scales, blocks.format, -2, unchecked(scale))
        for each in (again, copy.deepcopy(blocks), pickle.loads(pickle.dumps(blocks))):
            assert (each.format, each.axis, each.tensor_scale) == (name, 0, blocks.tensor_scale)
            assert each.dequantise().tobytes() == blocks.dequantise().tobytes()
        assert repr(blocks) == f"Blocks({name} [32, 3], axis=0)"
        with pytest.raises(AttributeError):
            blocks.axis = 1  # type: ignore[misc]


# Refused

X = np.ones((2, 32), np.float32)
GOOD = sr.cast_blocks(X, "mxfp4", key=KEY)
NV = sr.cast_blocks(X, "nvfp4", key=KEY)


def cast(x: Any = X, format: Any = "mxfp4", **options: Any) -> Any:
    return unchecked(sr.cast_blocks)(x, format, **{"key": KEY, **options})


def rebuilt(blocks: Any = GOOD, **fields: Any) -> Any:
    names = ("elements", "scales", "format", "axis", "tensor_scale")
    return unchecked(sr.Blocks)(**{name: fields.get(name, getattr(blocks, name)) for name in names})


BAD: dict[str, tuple[Any, Any, str]] = {
    "no key": (
        lambda: unchecked(sr.cast_blocks)(X, "mxfp4"),
        ARGUMENT,
        "cast_blocks: key is missing or of the wrong type, got none",
    ),
    "format": (
        lambda: cast(format="mxfp8"),
        VALUE,
        "cast_blocks: unknown format, got 'mxfp8', expected one of 'mxfp8_e4m3', 'mxfp8_e5m2',",
    ),
    "no format": (lambda: cast(format=None), VALUE, "cast_blocks: unknown format, got None, expected one of"),
    "extent": (
        lambda: cast(np.ones((2, 40), np.float32)),
        SHAPE,
        "cast_blocks: axis 1 cannot be cut into blocks, got shape (2, 40), expected an extent that is a multiple of 32",
    ),
    "extent of 16": (
        lambda: cast(np.ones((40, 2), np.float32), "nvfp4", axis=0),
        SHAPE,
        "cast_blocks: axis 0 cannot be cut into blocks, got shape (40, 2), expected an extent that is a multiple of 16",
    ),
    "no axis": (
        lambda: cast(np.float32(1)),
        VALUE,
        "cast_blocks: axis is out of range, got -1, expected an axis of 0",
    ),
    "axis": (lambda: cast(axis=2), VALUE, "cast_blocks: axis is out of range, got 2, expected an axis of 2"),
    "axis below": (
        lambda: cast(axis=-3),
        VALUE,
        "cast_blocks: axis is out of range, got -3, expected an axis",
    ),
    "axis of words": (lambda: cast(axis="0"), ARGUMENT, "cast_blocks: axis is not an int, got '0'"),
    "two axes": (lambda: cast(axis=(0, 1)), ARGUMENT, "cast_blocks: axis is not an int, got (0, 1)"),
    "mode": (lambda: cast(mode="up"), VALUE, "cast_blocks: unknown mode, got 'up', expected one of 'sr', "),
    "rule": (
        lambda: cast(scale="ceil"),
        VALUE,
        "cast_blocks: unknown scale, got 'ceil', expected one of 'rceil', 'floor' for mxfp4",
    ),
    "nearest of MX": (
        lambda: cast(scale="nearest"),
        VALUE,
        "cast_blocks: unknown scale, got 'nearest', expected one of 'rceil', 'floor' for mxfp4",
    ),
    "floor of nvfp4": (
        lambda: cast(format="nvfp4", scale="floor"),
        VALUE,
        "cast_blocks: unknown scale, got 'floor', expected one of 'rceil', 'nearest' for nvfp4",
    ),
    "scale of MX": (
        lambda: cast(tensor_scale=1.0),
        VALUE,
        "cast_blocks: mxfp4 has no tensor_scale, got 1.0, expected None",
    ),
    **{
        f"tensor scale {value}": (
            partial(cast, format="nvfp4", tensor_scale=value),
            VALUE,
            f"cast_blocks: tensor_scale is not a positive float32, got {value}, expected a finite one",
        )
        for value in (0.0, -1.0, math.inf, math.nan, 0.1, 1e300, 1e-300)
    },
    "tensor scale of words": (
        lambda: cast(format="nvfp4", tensor_scale="1"),
        ARGUMENT,
        "cast_blocks: tensor_scale is not a number, got str '1', expected a float",
    ),
    "offset": (
        lambda: cast(offset=2**64 - 63),
        VALUE,
        "cast_blocks: offset is too large, got 18446744073709551553 with shape (2, 32), expected offset + size",
    ),
    "negative offset": (
        lambda: cast(offset=-1),
        VALUE,
        "cast_blocks: offset: got -1, expected an int from 0",
    ),
    "threads": (lambda: cast(num_threads=0), VALUE, "cast_blocks: num_threads: got 0, expected an int from"),
    "integers": (
        lambda: cast(np.ones(32, np.int32)),
        DTYPE,
        "cast_blocks: x has no supported dtype, got int32",
    ),
    "bits": (
        lambda: cast(np.ones(32, np.uint16)),
        DTYPE,
        "cast_blocks: x is a buffer of integers, got uint16",
    ),
    "carriers": (lambda: cast(GOOD.elements), DTYPE, "cast_blocks: x has no arithmetic, got float4_e2m1fn"),
    "a list": (lambda: cast([1.0] * 32), ARGUMENT, "cast_blocks: x is not an array, got list"),
    "blocks": (lambda: cast(GOOD), ARGUMENT, "cast_blocks: x is not an array, got Blocks"),
    "narrow result": (
        lambda: unchecked(GOOD.dequantise)("bfloat16"),
        DTYPE,
        "dequantise: dtype is not wide enough, got bfloat16, expected float32 or float64",
    ),
    "elements": (
        lambda: rebuilt(elements=X),
        ARGUMENT,
        "Blocks: elements of mxfp4 have another type, got float32, expected a NumPy array of float4_e2m1fn",
    ),
    "no elements": (
        lambda: rebuilt(elements=[1]),
        ARGUMENT,
        "Blocks: elements of mxfp4 have another type, got list, expected a NumPy array of float4_e2m1fn",
    ),
    "scales": (
        lambda: rebuilt(scales=NV.scales),
        ARGUMENT,
        "Blocks: scales of mxfp4 have another type, got float8_e4m3fn, expected a NumPy array of float8_e8m0fnu",
    ),
    "scales of one block": (
        lambda: rebuilt(scales=GOOD.scales[:1]),
        SHAPE,
        "Blocks: scales have another shape, got (1, 1), expected (2, 1)",
    ),
    "part of a block": (
        lambda: rebuilt(elements=GOOD.elements[:, 1:]),
        SHAPE,
        "Blocks: axis 1 cannot be cut into blocks, got shape (2, 31)",
    ),
    "no tensor scale": (
        lambda: rebuilt(NV, tensor_scale=None),
        VALUE,
        "Blocks: tensor_scale of nvfp4 is missing, expected a float",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_refused(name: str) -> None:
    call, error, text = BAD[name]
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value).startswith(text), caught.value
    assert F32.tolist() == [1.0] * len(F32)
