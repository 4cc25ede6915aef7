"""The portable form of sums beside the core and exact fractions: NumPy's here, then torch's and JAX's."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest

from popsr import errors, sr
from popsr.sr._formats import FORMATS
from popsr.sr._portable.add import add_bits
from popsr.sr._portable.arrays import NumpyArrays
from popsr.sr._portable.noise import digits_of
from tests_py.sr.cases import MODES, raw_dtype
from tests_py.support.oracles import rounding as oracle

KEY = sr.Key(7).fold_in("w").at(3)
DIGITS = [digit for word in KEY.words for digit in digits_of(word)]
SPECIAL = (0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 1e-45, -1e-45, 5e-324, 65520.0, -448.0, 464.1, 3e38)
NUMBERS = (0.1, 0.5, 3, -0.0, -1e300, 1e-320, np.inf, np.nan)
UPDATES = ("float32", "bfloat16", "float64")


def random_bits(rng: Any, name: str, n: int) -> Any:
    size = FORMATS[name].itemsize
    return rng.integers(0, 256, (n, size), np.uint8).reshape(-1).view(FORMATS[name].numpy)


def pairs(weights: str, updates: str, n: int, seed: int) -> tuple[Any, Any]:
    """Random bits of both, updates that cancel, or have other exponents; all pairs of what is special."""
    rng = np.random.default_rng(seed)
    x, y = random_bits(rng, weights, n), random_bits(rng, updates, n)
    with np.errstate(all="ignore"):
        wide, k = x.astype(np.float64), n // 4
        near = wide[:k] * (1 + (rng.random(k) - 0.5) * 2.0 ** rng.integers(-80, 10, k))
        far = wide[k : 2 * k] * 2.0 ** rng.integers(-200, 30, k)
        y[:k], y[k : 2 * k] = (-near).astype(y.dtype), far.astype(y.dtype)
        grid = np.meshgrid(np.array(SPECIAL).astype(x.dtype), np.array(SPECIAL).astype(y.dtype))
    for array, values in zip((x, y), grid, strict=True):
        array[-values.size :] = values.reshape(-1)
    return x, y


def operand(array: Any) -> Any:
    name = "float64" if array.dtype == np.float64 else "float32"
    with np.errstate(invalid="ignore"):
        wide = array.astype(name)
    return name, wide.view(f"i{wide.itemsize}")


def portable(op: str, x: Any, y: Any, *, mode: Any = "sr", overflow: Any = "ieee", offset: int = 0) -> Any:
    name = next(name for name, form in FORMATS.items() if form.numpy == x.dtype)
    operands = [operand(x), y if isinstance(y, (int, float)) else operand(y)]
    shape = np.broadcast_shapes(x.shape, np.shape(y))
    options: Any = {"mode": mode, "overflow": overflow, "offset": offset}
    bits = add_bits(NumpyArrays(), operands, op == "sub", name, DIGITS, shape, **options)
    return bits.astype(FORMATS[name].raw)


def core(op: str, x: Any, y: Any, **options: Any) -> Any:
    found = getattr(sr, op)(x, y, key=KEY, **options)
    return found.view(f"u{found.itemsize}")


@pytest.mark.parametrize("updates", UPDATES)
@pytest.mark.parametrize("weights", FORMATS)
def test_bits_are_those_of_the_core(weights: str, updates: str) -> None:
    x, y = pairs(weights, updates, 1000, 1)
    for mode in (*MODES, "sr_bits=16", "sr_bits=17"):
        for op, overflow, offset in (
            ("add", "ieee", 0),
            ("sub", "saturate", 2**33 + 5),
            ("add", "saturate", 3),
        ):
            options: Any = {"mode": mode, "overflow": overflow, "offset": offset}
            assert np.array_equal(portable(op, x, y, **options), core(op, x, y, **options)), options


FACTORS = (0.1, -1e-3, 1.0, 3.0, 2.0**-60, -1e300, 1e-310, 5e-324, 0.0, -0.0, math.nextafter(2, 0))


def scaled(x: Any, y: Any, factor: float, **options: Any) -> Any:
    name = next(name for name, form in FORMATS.items() if form.numpy == x.dtype)
    rounding: Any = {"mode": "sr", "overflow": "ieee", "offset": 0, **options}
    given = [operand(x), operand(y)]
    bits = add_bits(NumpyArrays(), given, False, name, DIGITS, x.shape, factor=factor, **rounding)
    return bits.astype(FORMATS[name].raw)


@pytest.mark.parametrize("weights", FORMATS)
def test_bits_of_scaled_updates_are_those_of_the_core(weights: str) -> None:
    x, y = pairs(weights, "float32", 2000, 7)
    drawn = np.random.default_rng(8).standard_normal(20) * 10.0 ** np.arange(-14, 6)
    for factor in (*FACTORS, *map(float, drawn)):
        for options in ({}, {"mode": "rz", "overflow": "saturate"}, {"mode": "sr_bits=9", "offset": 11}):
            wanted = sr.add_(x.copy(), y, alpha=factor, key=KEY, **options)  # type: ignore[arg-type]
            found = scaled(x, y, factor, **options)
            assert np.array_equal(found, wanted.view(found.dtype)), (factor, options)


@pytest.mark.parametrize("weights", ["float32", "bfloat16", "float8_e4m3fnuz", "float64"])
def test_bits_of_scaled_updates_are_those_of_fractions(weights: str) -> None:
    x, y = pairs(weights, "float32", 600, 9)
    us = sr.uniform_bits(KEY, 600, 0)
    for factor in (0.1, -1e-3, math.nextafter(2, 0)):
        bits = [each.view(raw_dtype(name)).tolist() for each, name in ((y, "float32"), (x, weights))]
        for found, b, a, u in zip(scaled(x, y, factor), *bits, us.tolist(), strict=True):
            operands = [(b, "float32"), (a, weights)]
            assert found == oracle.expected("axpy", operands, weights, u, scalars=(factor,))


@pytest.mark.parametrize("weights", ["float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2fnuz"])
def test_bits_of_a_million(weights: str) -> None:
    x, y = pairs(weights, "float32", 2**20, 2)
    assert np.array_equal(portable("add", x, y), core("add", x, y))


@pytest.mark.slow
@pytest.mark.parametrize("updates", UPDATES)
@pytest.mark.parametrize("weights", FORMATS)
def test_bits_of_many(weights: str, updates: str) -> None:
    for turn in range(100):
        x, y = pairs(weights, updates, 2**20, turn)
        offset = turn << 20
        assert np.array_equal(portable("sub", x, y, offset=offset), core("sub", x, y, offset=offset)), turn


@pytest.mark.parametrize("mode", ["sr", "rn", "sr_bits=7"])
@pytest.mark.parametrize("weights", ["float32", "bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float64"])
def test_bits_are_those_of_fractions(weights: str, mode: Any) -> None:
    x, y = pairs(weights, "float32", 600, 3)
    got, us = portable("add", x, y, mode=mode, offset=5), sr.uniform_bits(KEY, 600, 5)
    bits = [each.view(raw_dtype(name)).tolist() for each, name in ((x, weights), (y, "float32"))]
    for found, a, b, u in zip(got, *bits, us.tolist(), strict=True):
        assert found == oracle.expected("add", [(a, weights), (b, "float32")], weights, u, mode=mode)


@pytest.mark.parametrize("weights", ["bfloat16", "float32", "float64"])
def test_numbers_are_doubles_and_shapes_broadcast(weights: str) -> None:
    x, y = (each.reshape(20, 50) for each in pairs(weights, "float32", 1000, 4))
    for value in NUMBERS:
        assert np.array_equal(portable("sub", x, value), core("sub", x, value)), value
    for a, b in ((x[:, :1], y[0]), (x[:1, :1], y), (x, y[3, 4])):
        assert np.array_equal(portable("add", a, b), core("add", a, b))
    assert portable("add", x[:0], y[:0]).shape == (0, 50)


def test_an_offset_may_be_digits() -> None:
    x, y = pairs("bfloat16", "float32", 1000, 5)
    for offset in (0, 3, 8, 2**33 + 5, 2**60 + 1):
        found = portable("add", x, y, offset=[np.int32(digit) for digit in digits_of(offset)])  # type: ignore[arg-type]
        assert np.array_equal(found, core("add", x, y, offset=offset)), offset


# Torch


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch")


@pytest.fixture
def st() -> Any:
    pytest.importorskip("torch")
    return pytest.importorskip("popsr.sr.torch")


def same(torch: Any, a: Any, b: Any) -> bool:
    return (
        a.dtype == b.dtype
        and a.shape == b.shape
        and torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))
    )


@pytest.mark.parametrize("weights", ["float32", "bfloat16", "float16", "float8_e4m3fn", "float64"])
def test_torch(torch: Any, st: Any, weights: str) -> None:
    with np.errstate(invalid="ignore"):
        x, y = (each.astype(np.float64) for each in pairs(weights, "float32", 1000, 6))
    w = torch.from_numpy(x).to(getattr(torch, weights)).reshape(20, 50).T
    u, key = torch.from_numpy(y).float().reshape(20, 50).T, st.key_tensor(KEY)
    for op, other in (
        (st.add, u),
        (st.sub, u[:, 0].bfloat16()[:, None]),
        (st.sub, 0.1),
        (st.add, u.double()),
    ):
        assert same(torch, op(w, other, key=key, offset=5, portable=True), op(w, other, key=key, offset=5))


def test_torch_rows_under_vmap_are_parts_of_one_array(torch: Any, st: Any) -> None:
    w, u, key = torch.randn(20, 30).bfloat16(), torch.randn(20), st.key_tensor(KEY)
    for rows, axes in (((w, u), (1, None)), ((w, u[:7]), (None, 0)), ((w, w.float()), 0)):
        found = [
            torch.func.vmap(lambda w, u, p=p: st.add(w, u, key=key, portable=p), axes, 1)(*rows)
            for p in (False, True)
        ]
        assert same(torch, *found), axes


@pytest.mark.parametrize("op", ["add", "sub"])
def test_torch_gradients_go_straight_through(torch: Any, st: Any, op: str) -> None:
    found = []
    for p in (False, True):
        w, u = torch.ones(4, 30, dtype=torch.bfloat16).requires_grad_(), torch.ones(30).requires_grad_()
        (getattr(st, op)(w, u, key=st.key_tensor(KEY), portable=p).float() * 3).sum().backward()
        found.append((w.grad, u.grad))
    assert all(same(torch, *each) for each in zip(*found, strict=True))


def test_torch_arguments_are_checked(torch: Any, st: Any) -> None:
    x, options = torch.randn(3), {"key": st.key_tensor(KEY), "portable": True}
    for y, extra, error, words in (
        (x, {"mode": "up"}, errors.AttributeValueError, "unknown mode"),
        (x, {"offset": -1}, errors.AttributeValueError, "offset"),
        (x, {"key": None}, errors.ArgumentTypeError, "key is missing"),
        (x.int(), {}, errors.DTypeError, "not a float format"),
        (None, {}, errors.ArgumentTypeError, "add: y"),
        (torch.randn(2), {}, errors.ShapeError, "shapes do not broadcast"),
    ):
        with pytest.raises(error, match=words):
            st.add(x, y, **{**options, **extra})


# JAX


def same_arrays(a: Any, b: Any) -> bool:
    a, b = np.asarray(a), np.asarray(b)
    return bool(a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes())


@pytest.fixture
def jax() -> Any:
    return pytest.importorskip("jax")


@pytest.fixture
def sj() -> Any:
    pytest.importorskip("jax")
    return pytest.importorskip("popsr.sr.jax")


@pytest.mark.parametrize(
    "weights",
    ["bfloat16", *(pytest.param(name, marks=pytest.mark.slow) for name in ("float32", "float8_e4m3fnuz"))],
)
def test_jax_compiled(jax: Any, sj: Any, weights: str) -> None:
    x, y = (each.reshape(50, 60) for each in pairs(weights, "float32", 3000, 7))
    add = jax.jit(
        lambda x, y, step: sj.add(x, y, key=sj.Key(7).fold_in("w").at(step), offset=5, portable=True)
    )
    assert "callback" not in add.lower(x, y, 3).as_text()
    assert same_arrays(add(x, y, 3), sr.add(x, y, key=KEY, offset=5))


def test_jax_numbers_are_doubles(jax: Any, sj: Any) -> None:
    x, _ = pairs("bfloat16", "float32", 500, 8)
    values = (0.1, -0.0, 1e-320, np.nan)
    sums = jax.jit(lambda x: [sj.sub(x, value, key=KEY, portable=True, mode="rn") for value in values])(x)
    for value, found in zip(values, sums, strict=True):
        assert same_arrays(found, sr.sub(x, value, key=KEY, mode="rn")), value


def test_jax_gradients_go_straight_through(jax: Any, sj: Any) -> None:
    w, u = jax.numpy.ones((4, 30), "bfloat16"), jax.numpy.ones(30)

    def loss(w: Any, u: Any) -> Any:
        return 3 * sj.sub(w, u, key=KEY, mode="rn", portable=True).astype("float32").sum()

    found = jax.jit(jax.grad(loss, (0, 1)))(w, u)
    assert (found[0] == 3).all()
    assert (found[1] == -12).all()
    assert (found[0].dtype, found[1].dtype) == (w.dtype, u.dtype)


@pytest.mark.parametrize("axes", [(None, 0, None), (0, 0, 0)])
def test_jax_rows_under_vmap(jax: Any, sj: Any, axes: Any) -> None:
    w, u = np.ones((20, 20), FORMATS["bfloat16"].numpy), np.full((20, 20), 0.003, np.float32)
    steps = np.arange(20) if axes[2] == 0 else 3
    mode: sr.Mode = "sr_equal" if axes[2] == 0 else "sr_bits=8"

    def add(w: Any, u: Any, step: Any) -> Any:
        return sj.add(w, u, key=sj.Key(7).at(step), mode=mode, portable=True)

    found = jax.jit(jax.vmap(add, axes))(w, u, steps)
    if axes[2] == 0:
        want = np.stack([sr.add(w[i], u[i], key=sr.Key(7).at(i), mode=mode) for i in range(20)])
    else:
        want = sr.add(w[None], u[:, None], key=sr.Key(7).at(3), mode=mode)
    assert same_arrays(found, want)


def test_jax_offsets_may_be_traced(jax: Any, sj: Any) -> None:
    x, y = pairs("bfloat16", "float32", 1000, 9)
    add = jax.jit(lambda offset: sj.add(x, y, key=KEY, offset=offset, mode="sr_equal", portable=True))
    want = sr.add(x, y, key=KEY, offset=13 + (5 << 32), mode="sr_equal")
    assert same_arrays(add(jax.numpy.array([13, 5], "uint32")), want)


@pytest.mark.slow
def test_jax_offsets_may_be_traced_integers(jax: Any, sj: Any) -> None:
    x, y = pairs("bfloat16", "float32", 1000, 9)
    add = jax.jit(lambda offset: sj.add(x, y, key=KEY, offset=offset, portable=True))
    assert same_arrays(add(13), sr.add(x, y, key=KEY, offset=13))


def test_jax_offsets_are_checked(sj: Any, jax: Any) -> None:
    x, y = pairs("bfloat16", "float32", 1000, 9)
    for offset, options, error, words in (
        (jax.numpy.float32(1), {"portable": True}, errors.ArgumentTypeError, "offset is not an integer"),
        (jax.numpy.int32(1), {}, errors.UnsupportedError, "expected portable=True"),
        (-1, {"portable": True}, errors.AttributeValueError, "offset"),
    ):
        with pytest.raises(error, match=re.escape(words)):
            sj.add(x, y, key=KEY, offset=offset, **options)
