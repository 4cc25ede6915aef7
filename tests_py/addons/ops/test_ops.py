"""Ops of ``popsr.addons`` that stay on a replica: values against NumPy, gradients, refused arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import popsr
from popsr import fp8_utils, ops
from popsr.addons.ops import (
    dense_const_sparse_matmul,
    fp8_amax_scale,
    fp8_mse_scale,
    grad_reduce_square_add,
    group_quantize_compress_numpy,
    group_quantize_decompress,
    group_quantize_decompress_numpy,
    linear_layout,
    random_sparse,
    rotary_pos_embed,
    trig_table_constants,
    trig_tables,
)
from tests_py.addons.gradients import assert_derivative, run
from tests_py.support.helpers import Array, assert_same_bits, dtype, evaluate, np_dtype
from tests_py.support.unchecked import unchecked

RNG = np.random.default_rng(11)


def one(fn: Callable[..., Any], *arrays: Array) -> Array:
    """The one output of a function."""
    (result,) = evaluate(fn, list(arrays))
    return result


# Sums of squares, layout


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_sum_of_squares_of_unscaled_gradients(name: str) -> None:
    """Elements are divided first: squares of scaled ones would not fit."""
    x = (RNG.standard_normal((4, 50)) * 1e4).astype(np_dtype(name))
    scale = 2.0**14
    expect = np.sum((x.astype(np.float64) / scale) ** 2)
    got = one(lambda t: grad_reduce_square_add(t, scale), x)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, expect, rtol=1e-6)
    for kind in ("float32", "float16"):
        for shape in ((), (1,), (1, 1)):
            fed = np.full(shape, scale, np_dtype(kind))
            assert_same_bits(one(grad_reduce_square_add, x, fed), got)
    large = np.array([1e30, -1e30], np.float32)
    np.testing.assert_allclose(one(lambda t: grad_reduce_square_add(t, 1e25), large), 2e10, rtol=1e-6)


def test_linear_layout_is_the_identity() -> None:
    x = RNG.standard_normal((1, 3, 2))
    assert_same_bits(one(lambda t: linear_layout(t, 4), x), x)
    outcome = run(popsr.Ir(), linear_layout, [x], seeds=[2 * x])
    assert_same_bits(outcome.gradients[0], 2 * x)


# Scales of float8

GREATEST = {"float8_143": 240.0, "float8_152": 57344.0, "float8_e4m3fn": 448.0, "float8_e5m2": 57344.0}
DATA: dict[str, Array] = {
    "normal": RNG.standard_normal(500).astype(np.float32),
    "half": (RNG.standard_normal(300) * 1e-3).astype(np.float16),
    "subnormal half": np.array([2**-24, -(2**-23)], np.float16),
    "bfloat": (RNG.standard_normal(300) * 1e4).astype(ml_dtypes.bfloat16),
    "double": RNG.standard_normal((3, 40)) * 1e-5,
    "heavy tails": (RNG.standard_normal(900) * np.exp(2 * RNG.standard_normal(900))).astype(np.float32),
    "not finite": np.array([np.nan, 3.5, -np.inf, np.inf], np.float32),
    "zeros": np.zeros((2, 3), np.float32),
    "tiny": np.array([1e-45, 0], np.float32),
    "huge": np.array([3e38], np.float32),
    "scalar": unchecked(np.float32(0.3)),
    "sparse": np.where(RNG.random(500) < 0.9, 0, RNG.standard_normal(500)).astype(np.float32),
    "nothing finite": np.array([np.inf, np.nan], np.float32),
}


def peak_of(x: Array) -> float:
    wide = np.abs(x.astype(np.float64))
    return float(np.max(wide, where=np.isfinite(wide), initial=0))


@pytest.mark.parametrize("name", GREATEST)
@pytest.mark.parametrize("data", DATA)
def test_amax_scale(data: str, name: str) -> None:
    """The greatest scale that fits, computed in integers."""
    scale = one(lambda t: fp8_amax_scale(t, dtype(name)), DATA[data])
    peak = peak_of(DATA[data])
    fits = [s for s in range(-31, 32) if np.ldexp(peak, s) <= GREATEST[name]]
    assert scale.dtype == np.int32
    assert scale == (max(fits, default=-31) if peak else 0)


@pytest.mark.parametrize("name", GREATEST)
@pytest.mark.parametrize("exponent", [-20, -3, 0, 5])
def test_amax_scale_at_the_greatest_float8(exponent: int, name: str) -> None:
    x = np.array([np.ldexp(GREATEST[name], -exponent)], np.float32)
    assert one(lambda t: fp8_amax_scale(t, dtype(name)), x) == exponent
    above = np.nextafter(x, np.float32(np.inf))
    assert one(lambda t: fp8_amax_scale(t, dtype(name)), above) in (exponent - 1, exponent)
    converted = one(lambda t: cast_and_back(t, name), above)
    assert np.isfinite(converted).all()


def cast_and_back(t: popsr.Tensor, name: str) -> popsr.Tensor:
    scale = fp8_amax_scale(t, dtype(name))
    return ops.pow2scale_cast_from_fp8(
        ops.pow2scale_cast_to_fp8(t, scale, dtype(name)), ops.negate(scale), t.dtype
    )


@pytest.mark.parametrize("name", GREATEST)
@pytest.mark.parametrize("data", DATA)
def test_mse_scale_is_that_of_the_host(data: str, name: str) -> None:
    scale = one(lambda t: fp8_mse_scale(t, dtype(name)), DATA[data])
    assert scale.dtype == np.int32
    assert scale == fp8_utils.host_fp8_mse_scale_pb(DATA[data], dtype(name))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(width=16, allow_nan=False), min_size=1, max_size=20),
    st.integers(-8, 8),
    st.sampled_from(sorted(GREATEST)),
)
def test_mse_scale_of_any_data(values: list[float], exponent: int, name: str) -> None:
    """As good as the host's by the host's own measure (of equal ones, sums may be rounded differently)."""
    x = np.ldexp(np.float32(unchecked(values)), exponent)
    got = int(one(lambda t: fp8_mse_scale(t, dtype(name)), x))
    _, best = fp8_utils.host_fp8_mse_scale(x, dtype(name))
    if got != best:
        counts, limits = fp8_utils.log_histogram(x, fp8_utils.ieee_fp32_no_denorms)
        definition = fp8_utils._DEFS[dtype(name)]
        candidate = fp8_utils.CandidateConfig(
            dtype(name), fp8_utils.ieee_fp32_no_denorms, definition, np.float32
        )
        metric, scales = fp8_utils.calculate_candidate_metric(counts, limits, candidate)
        metrics = dict(zip(scales.tolist(), metric.tolist(), strict=True))
        np.testing.assert_allclose(metrics[got], metrics[best], rtol=1e-12)


# Rotary position embedding


def turned(x: Array, rotary_dim: int, base: float = 10000) -> Array:
    """By complex numbers; axis 1 is the sequence, or axis 0 of a matrix."""
    result = x.astype(np.float64).copy()
    sequence = np.moveaxis(result, 0 if x.ndim == 2 else 1, 0)
    for position in range(len(sequence)):
        for i in range(rotary_dim // 2):
            pair = sequence[position, ..., 2 * i] + 1j * sequence[position, ..., 2 * i + 1]
            pair = pair * np.exp(1j * position * base ** (-2 * i / rotary_dim))
            sequence[position, ..., 2 * i], sequence[position, ..., 2 * i + 1] = pair.real, pair.imag
    return result


@pytest.mark.parametrize("name", ["float64", "float32", "float16"])
@pytest.mark.parametrize(
    ("shape", "rotary_dim"),
    [
        ((5, 8), None),
        ((2, 5, 8), 4),
        ((2, 3, 7, 6), 6),
        ((2, 3, 1, 6), 4),
        ((2, 3, 3, 6), 4),
        ((1, 4, 3, 2, 6), 4),
        ((1, 6), 2),
        ((3, 5), 4),
        ((3, 4), 0),
        ((0, 4), None),
    ],
)
def test_rotary_embedding(shape: tuple[int, ...], rotary_dim: int | None, name: str) -> None:
    x = RNG.standard_normal(shape).astype(np_dtype(name))
    count = shape[-1] if rotary_dim is None else rotary_dim

    def function(t: popsr.Tensor) -> popsr.Tensor:
        tables = trig_table_constants(shape[0 if len(shape) == 2 else 1], count, dtype=t.dtype)
        return rotary_pos_embed(t, *tables, rotary_dim)

    got = one(function, x)
    assert got.dtype == x.dtype
    tolerance = {"float64": 1e-13, "float32": 2e-6, "float16": 4e-3}[name]
    np.testing.assert_allclose(got.astype(np.float64), turned(x, count), atol=tolerance)
    assert_same_bits(got[..., count:], x[..., count:])


def test_gradient_of_a_rotary_embedding() -> None:
    def function(t: popsr.Tensor, sin: popsr.Tensor, cos: popsr.Tensor) -> popsr.Tensor:
        return rotary_pos_embed(t, sin, cos, 4)

    # assert_derivative has a leading axis for replicas
    inputs = [RNG.standard_normal(shape) for shape in ((1, 2, 3, 2, 6), (1, 3, 2), (1, 2, 3, 2))]
    steps = [RNG.standard_normal(x.shape) for x in inputs]
    assert_derivative(
        lambda: (popsr.Ir(), function), inputs, seeds=[RNG.standard_normal(inputs[0].shape)], steps=steps
    )


@pytest.mark.parametrize("rank", [3, 4])
def test_tables_of_rotary_embeddings_may_have_a_batch_axis(rank: int) -> None:
    """Rows for each sample, as when positions are shifted by padding."""
    shape = (2, 5, 8) if rank == 3 else (2, 5, 3, 8)
    x = RNG.standard_normal(shape).astype(np.float32)
    sin, cos = (RNG.standard_normal((2, 5, 2)).astype(np.float32) for _ in range(2))

    def function(t: popsr.Tensor, *tables: popsr.Tensor) -> list[popsr.Tensor]:
        sin, cos, row_sin, row_cos, one_sin, _ = tables
        return [
            rotary_pos_embed(t, sin, cos, 4),
            rotary_pos_embed(t, row_sin, row_cos, 4),
            rotary_pos_embed(t, one_sin, row_cos, 4),
        ]

    batch, row, one = evaluate(function, [x, sin, cos, sin[0], cos[0], sin[:1], cos[:1]], check=True)
    spread = (slice(None), slice(None), *[None] * (rank - 3))
    for got, sines, cosines in ((batch, sin, cos), (row, sin[:1], cos[:1]), (one, sin[:1], cos[:1])):
        even, odd = x[..., 0:4:2], x[..., 1:4:2]
        expect = x.copy()
        expect[..., 0:4:2] = even * cosines[spread] - odd * sines[spread]
        expect[..., 1:4:2] = odd * cosines[spread] + even * sines[spread]
        np.testing.assert_allclose(got, expect, rtol=1e-6, atol=1e-6)
    assert_same_bits(row, one)


def test_tables() -> None:
    sin, cos = trig_tables(4, 6, 100, np.float16)
    angles = np.arange(4)[:, None] * 100.0 ** (-np.arange(3) / 3)
    assert_same_bits(sin, np.sin(angles).astype(np.float16))
    assert_same_bits(cos, np.cos(angles).astype(np.float16))
    assert trig_tables(2, 4)[0].dtype == np.float32


# Numbers of four bits


@pytest.mark.parametrize("name", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize(
    ("shape", "group_size", "dim"),
    [((8,), 8, 0), ((3, 16), 4, -1), ((12, 5), 6, 0), ((2, 8, 3), 2, 1), ((4, 4), 0, -1), ((2, 8), 1, 1)],
)
def test_group_quantisation(shape: tuple[int, ...], group_size: int, dim: int, name: str) -> None:
    """Each number comes back as the nearest of 16 levels; program and host agree bit for bit."""
    x = RNG.standard_normal(shape).astype(np_dtype(name))
    packed, scale, bias = group_quantize_compress_numpy(x, group_size, dim)
    size = group_size or shape[dim]
    quarter, groups = list(shape), list(shape)
    quarter[dim] //= 4
    groups[dim] //= size
    assert (packed.dtype, packed.shape) == (np.uint16, tuple(quarter))
    assert scale.dtype == bias.dtype == x.dtype
    assert scale.shape == bias.shape == tuple(groups)
    host = group_quantize_decompress_numpy(packed, scale, bias, dim)
    rows, steps = (np.moveaxis(each.astype(np.float64), dim, -1) for each in (x, scale))
    back = np.moveaxis(host.astype(np.float64), dim, -1)
    half = np.repeat(steps, size, -1) / 2
    rounding = {"float64": 1e-12, "float32": 1e-6, "float16": 4e-3, "bfloat16": 4e-2}[name]
    assert (np.abs(back - rows) <= half + rounding).all()
    got = one(lambda t, s, b: group_quantize_decompress(t, s, b, dim), packed, scale, bias)
    assert_same_bits(got, host)


def test_group_quantisation_by_hand() -> None:
    """Sixteen levels of a group are exact; a group of one number is its offset."""
    x = np.array([[0, 15, 3, 7], [5, 5, 5, 5]], np.float32)
    packed, scale, bias = group_quantize_compress_numpy(x, 4, 1)
    assert packed.tolist() == [[0x73F0], [0]]
    assert scale.tolist() == [[1], [0]]
    assert bias.tolist() == [[0], [5]]
    assert_same_bits(one(group_quantize_decompress, packed, scale, bias), x)


def test_gradient_of_group_quantisation() -> None:
    packed, scale, bias = (
        each[None] for each in group_quantize_compress_numpy(RNG.standard_normal((2, 8)), 4, -1)
    )
    steps = [RNG.standard_normal(scale.shape), RNG.standard_normal(bias.shape)]
    assert_derivative(
        lambda: (popsr.Ir(), lambda s, b, t: group_quantize_decompress(t, s, b)),
        [scale, bias],
        [packed],
        seeds=[RNG.standard_normal((1, 2, 8))],
        steps=steps,
    )


# Sparse matrices


@pytest.mark.parametrize("density", [0, 0.005, 0.1, 1])
@pytest.mark.parametrize("lead", [(4,), (2, 3), (0,)])
def test_products_with_a_sparse_matrix(lead: tuple[int, ...], density: float) -> None:
    """Gathered and dense products: values, gradients and derivatives."""
    pytest.importorskip("scipy")
    dense = RNG.standard_normal((20, 10))
    sparse = random_sparse(dense, density)
    kept = sparse.toarray()
    assert np.count_nonzero(kept) == round(200 * density)
    assert ((kept == dense) | (kept == 0)).all()
    x, step = RNG.standard_normal((2, 1, *lead, 20))
    seed = RNG.standard_normal((1, *lead, 10))

    def function(t: popsr.Tensor) -> popsr.Tensor:
        return dense_const_sparse_matmul(t, sparse, 10)

    outcome = run(popsr.Ir(), function, [x], seeds=[seed])
    np.testing.assert_allclose(outcome.values[0], x @ kept, atol=1e-13)
    np.testing.assert_allclose(outcome.gradients[0], seed @ kept.T, atol=1e-13)
    if density and x.size:
        assert_derivative(lambda: (popsr.Ir(), function), [x], seeds=[seed], steps=[step])


def test_few_elements_are_gathered() -> None:
    """Elements that are not there are not multiplied, and sums of narrow floats are rounded once."""
    scipy_sparse = pytest.importorskip("scipy.sparse")
    matrix = np.zeros((200, 2))
    matrix[[0, 1, 2], 0] = [1, 2**-11, 2**-11]
    sparse = scipy_sparse.csr_matrix(matrix)
    x = np.ones((2, 200), np.float16)
    x[1, 5] = np.inf
    got = one(lambda t: dense_const_sparse_matmul(t, sparse, 2), x)
    assert_same_bits(got, unchecked(np.float16(unchecked([[1 + 2**-10, 0]] * 2))))


def test_random_sparse_draws_anew() -> None:
    pytest.importorskip("scipy")
    dense = np.ones((8, 8))
    first, second = random_sparse(dense).toarray(), random_sparse(dense).toarray()
    assert (first != second).any()
    assert dense.all()
