"""Random tensors: their bits, their laws, what they depend on, errors. Bounds come from theory, for fixed seeds."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import popsr
from popsr import errors, ops
from tests_py.ops.rows import random as random_cases
from tests_py.session.test_determinism import cpu_has
from tests_py.sr.statistics import assert_binomial
from tests_py.support.helpers import (
    FLOATS,
    Array,
    Streams,
    assert_same_bits,
    evaluate,
    np_dtype,
    run_python,
)

Attr, Shape, DType, Argument = (
    errors.AttributeValueError,
    errors.ShapeError,
    errors.DTypeError,
    errors.ArgumentTypeError,
)
COUNT = 1 << 18
CHANCE = 1e-9  # that a test of a law fails although the law holds
PLACES = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}


def dtype_of(name: str) -> Any:
    return getattr(popsr, name)


def seed_of(number: int) -> Array:
    return np.array([number >> 32, number & 0xFFFFFFFF], np.uint32)


def drawn(op: Callable[..., Any], number: int, count: int, **attrs: Any) -> Array:
    """A vector of random numbers."""
    return evaluate(lambda seed: op(seed, (count,), **attrs), [seed_of(number)])[0]


# Laws


def assert_distribution(values: Array, cdf: Callable[[Array], Array], resolution: float = 0.0) -> None:
    """Dvoretzky, Kiefer, Wolfowitz, Massart: P(sup |F_n - F| > e) <= 2 exp(-2 n e^2)."""
    ordered = np.sort(values.astype(np.float64))
    n = len(ordered)
    allowed = math.sqrt(math.log(2 / CHANCE) / (2 * n))
    low, high = cdf(ordered - resolution), cdf(ordered + resolution)
    ranks = np.arange(n)
    assert np.max(np.maximum((ranks + 1) / n - high, low - ranks / n)) <= allowed


def assert_chi_square(counts: Array, expected: Array) -> None:
    """Laurent, Massart: P(X - k >= 2 sqrt(k x) + 2 x) and P(k - X >= 2 sqrt(k x)) are at most exp(-x)."""
    k, x = len(counts) - 1, math.log(1 / CHANCE)
    statistic = float(np.sum((counts - expected) ** 2 / expected))
    assert k - 2 * math.sqrt(k * x) < statistic < k + 2 * math.sqrt(k * x) + 2 * x


def assert_uncorrelated(a: Array, b: Array) -> None:
    """Of bounded or normal variables of deviation 1: the mean product is nearly normal for so many."""
    assert abs(float(np.mean(a * b))) < 6.2 / math.sqrt(len(a))


def normal_cdf(x: Array) -> Array:
    return np.array([math.erfc(-v / math.sqrt(2)) / 2 for v in x])


@pytest.mark.parametrize("name", FLOATS)
def test_uniform_numbers_are_uniform(name: str) -> None:
    values = drawn(ops.random_uniform, 1, COUNT, dtype=dtype_of(name)).astype(np.float64)
    assert values.min() >= 0
    assert values.max() < 1
    # A number stands for the numbers that round to it, at most one spacing below 1 around it.
    assert_distribution(values, lambda x: np.clip(x, 0, 1), 2.0 ** -PLACES[name])
    assert abs(values.mean() - 0.5) < math.sqrt(math.log(2 / CHANCE) / (2 * COUNT)) + 2.0 ** (
        -2 * PLACES[name]
    )  # Hoeffding; the topmost number takes what would round to 1


def test_bins_of_uniform_numbers_are_equal() -> None:
    values = drawn(ops.random_uniform, 2, COUNT)
    for bins in (2, 64, 4096):
        counts = np.bincount((values * bins).astype(int), minlength=bins)
        assert_chi_square(counts, np.full(bins, COUNT / bins))


def test_pairs_of_uniform_numbers_are_independent() -> None:
    """Neighbours, elements of one cipher block and elements of one lane, on a grid of 16 x 16."""
    values = (drawn(ops.random_uniform, 3, COUNT) * 16).astype(int)
    for distance in (1, 2, 7, 8, 1024):
        pairs = values[:-distance] * 16 + values[distance:]
        assert_chi_square(np.bincount(pairs, minlength=256), np.full(256, len(pairs) / 256))


@pytest.mark.parametrize("name", FLOATS)
def test_normal_numbers_are_normal(name: str) -> None:
    values = drawn(ops.random_normal, 4, COUNT, dtype=dtype_of(name)).astype(np.float64)
    few = values[: COUNT // 8]
    assert_distribution(few, normal_cdf, 8 * 2.0 ** -PLACES[name])
    assert abs(values.mean()) < 6.2 / math.sqrt(COUNT) + 2.0 ** -(PLACES[name] + 8)
    x, spread = math.log(1 / CHANCE), float(np.sum(values**2))
    slack = COUNT * 2.0 ** (-2 * PLACES[name])  # variance that rounding adds
    assert -2 * math.sqrt(COUNT * x) - slack < spread - COUNT < 2 * math.sqrt(COUNT * x) + 2 * x + slack


def test_tails_of_normal_numbers_are_right() -> None:
    count = 1 << 21
    values = np.abs(drawn(ops.random_normal, 5, count))
    for limit in (1.0, 2.0, 3.0, 4.0, 4.5):
        assert_binomial(int(np.sum(values > limit)), count, math.erfc(limit / math.sqrt(2)), f"> {limit}")
    assert values.max() > 4.8  # missed with a chance of 4 %; the seed is fixed


def test_rare_bits_reach_far_into_the_tail() -> None:
    """The radius takes all 64 bits: of 2^64 pairs one is 9.4 deviations out."""
    seed, pairs = seed_of(6), 400
    numbers = random_cases.bits(seed, random_cases.NORMAL, 2 * pairs)
    values = drawn(ops.random_normal, 6, 2 * pairs, dtype=popsr.float64)
    radii = np.hypot(values[::2], values[1::2])
    expect = np.sqrt(-2 * (np.log(numbers[::2].astype(np.float64)) - 64 * math.log(2)))
    assert np.allclose(radii, expect, rtol=1e-13)
    assert_distribution(radii, lambda r: 1 - np.exp(-(r**2) / 2))


def test_halves_of_a_normal_pair_are_independent() -> None:
    values = drawn(ops.random_normal, 7, COUNT).astype(np.float64)
    even, odd = values[::2], values[1::2]
    assert_uncorrelated(even, odd)
    assert_uncorrelated((even**2 - 1) / math.sqrt(2), (odd**2 - 1) / math.sqrt(2))
    assert_uncorrelated(even, (odd**2 - 1) / math.sqrt(2))
    assert_uncorrelated(even[1:], even[:-1])


@pytest.mark.parametrize(
    ("a", "b"), [(0, 1), (0, 1 << 32), (1 << 32, 1), (12345, 12346), (2**64 - 1, 2**63 - 1)]
)
def test_seeds_are_independent(a: int, b: int) -> None:
    """Seeds of one different bit, and those whose words are swapped."""
    scale = math.sqrt(12)
    first, second = ((drawn(ops.random_uniform, n, COUNT).astype(np.float64) - 0.5) * scale for n in (a, b))
    assert_uncorrelated(first, second)
    assert_uncorrelated(first[1:], second[:-1])
    grid = ((first / scale + 0.5) * 16).astype(int) * 16 + ((second / scale + 0.5) * 16).astype(int)
    assert_chi_square(np.bincount(grid, minlength=256), np.full(256, COUNT / 256))


def test_ops_with_one_seed_are_independent() -> None:
    uniform = (drawn(ops.random_uniform, 8, COUNT).astype(np.float64) - 0.5) * math.sqrt(12)
    normal = drawn(ops.random_normal, 8, COUNT).astype(np.float64)
    mask = evaluate(lambda t, s: ops.dropout(t, s, 0.5), [np.ones(COUNT, np.float32), seed_of(8)])[0] - 1.0
    for a, b in ((uniform, normal), (uniform, mask), (normal, mask)):
        assert_uncorrelated(a, b)
        assert_uncorrelated(a[1:], b[:-1])


# Bits


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**64 - 1), st.integers(0, 40))
def test_uniform_bits_are_those_of_the_cipher(number: int, count: int) -> None:
    seed = seed_of(number)
    got = drawn(ops.random_uniform, number, count, dtype=popsr.float64)
    expect = (random_cases.bits(seed, random_cases.UNIFORM, count) >> np.uint64(11)) * 2.0**-53
    assert_same_bits(got, expect)


@settings(max_examples=60, deadline=None)
@given(
    st.floats(-60000, 60000),
    st.floats(1e-3, 1000),
    st.sampled_from(FLOATS),
    st.integers(0, 2**32),
)
def test_uniform_numbers_stay_inside_their_range(low: float, width: float, name: str, number: int) -> None:
    high = min(low + width, 65000.0)
    nearest = np.array(low).astype(np_dtype(name))
    beside = [np.nextafter(nearest, np.asarray(way, nearest.dtype)) for way in (-np.inf, np.inf)]
    if not any(low <= float(value) < high for value in (nearest, *beside)):
        with pytest.raises(Attr, match=f"range holds no number of {name}"):
            drawn(ops.random_uniform, number, 200, low=low, high=high, dtype=dtype_of(name))
        return
    values = drawn(ops.random_uniform, number, 200, low=low, high=high, dtype=dtype_of(name))
    assert np.all(values.astype(np.float64) >= low)
    assert np.all(values.astype(np.float64) < high)


def test_a_range_of_one_number_gives_it() -> None:
    values = drawn(ops.random_uniform, 1, 50, low=1.0, high=1.0 + 2.0**-9, dtype=popsr.bfloat16)
    assert np.all(values.astype(np.float64) == 1.0)


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("high", [1.0, 0.0, -1.0, 0.3, 65504.0])
def test_the_upper_bound_is_never_drawn(high: float, name: str) -> None:
    """With all the chance next to it: a range that is one spacing of the dtype wide."""
    top = np.array(high).astype(np_dtype(name))
    below = np.nextafter(top, np.asarray(-np.inf, top.dtype))
    if float(below) >= high:
        below = np.nextafter(below, np.asarray(-np.inf, top.dtype))
    low = float(below)
    values = drawn(ops.random_uniform, 3, 300, low=low, high=high, dtype=dtype_of(name)).astype(np.float64)
    assert np.all((low <= values) & (values < high))


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("op", [ops.random_uniform, ops.random_normal])
def test_dtypes_round_the_same_numbers(op: Callable[..., Any], name: str) -> None:
    wide = drawn(op, 9, 5000, dtype=popsr.float64)
    narrow = drawn(op, 9, 5000, dtype=dtype_of(name)).astype(np.float64)
    assert np.max(np.abs(narrow - wide) / np.maximum(np.abs(wide), 2.0**-14)) <= 2.0 ** -PLACES[name]


def test_normal_float64_is_near_the_exact_numbers() -> None:
    for number in (0, 10, 2**64 - 1):
        seed = seed_of(number)
        got = drawn(ops.random_normal, number, 801, dtype=popsr.float64)
        exact = random_cases.standard_normal(seed, 801)
        assert np.max(np.abs(got.astype(np.longdouble) - exact)) < 4e-15


@pytest.mark.parametrize("op", [ops.random_uniform, ops.random_normal])
def test_elements_depend_on_their_index_alone(op: Callable[..., Any]) -> None:
    seed = [seed_of(11)]
    flat = evaluate(lambda s: op(s, (3000,)), seed)[0]
    assert_same_bits(evaluate(lambda s: op(s, (30, 4, 25)), seed)[0].reshape(-1), flat)
    for count in (1, 7, 1023, 1024, 1025):
        assert_same_bits(evaluate(lambda s, n=count: op(s, (n,)), seed)[0], flat[:count])


# Dependences


def _everything(seed: popsr.Tensor) -> list[popsr.Tensor]:
    """All that seeds draw."""
    ones = popsr.constant(np.ones((40, 1000), np.float32))
    child, other = ops.split_random_seed(seed)
    return [
        ops.random_uniform(seed, (40, 1000)),
        ops.random_normal(child, (40, 1001), dtype=popsr.bfloat16),
        ops.random_normal(child, (3,), dtype=popsr.float64),
        ops.dropout(ones, other, 0.3),
        ops.shaped_dropout(ones, other, (40, 1), 0.3),
        ops.create_random_seed(seed, popsr.constant(5, popsr.uint32)),
    ]


def digest(arrays: list[Array]) -> str:
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()


def main() -> None:
    """For another process."""
    print(digest(evaluate(_everything, [seed_of(77)])))


def test_same_bits_on_any_number_of_threads() -> None:
    assert len({digest(evaluate(_everything, [seed_of(77)], num_threads=n)) for n in (1, 2, 3)}) == 1


@pytest.mark.parametrize("level", ["v2", "v3", "v4"])
def test_same_bits_at_every_instruction_set(level: str) -> None:
    if not cpu_has(level):
        pytest.skip(f"this machine has no {level}")
    got = run_python("from tests_py.ops.random import test_random; test_random.main()", POPSR_ISA=level)
    assert got.strip() == digest(evaluate(_everything, [seed_of(77)]))


def test_session_seed_step_and_stochastic_rounding_change_nothing() -> None:
    results = set()
    for rounded in (False, True):
        ir, io = popsr.Ir(), Streams()
        ir.options.enable_stochastic_rounding = rounded
        with ir.main_graph, popsr.in_sequence():
            seed = io.feed(seed_of(78))
            for dtype in (popsr.bfloat16, popsr.float32):
                io.fetch(ops.random_uniform(seed, (500,), dtype=dtype))
                io.fetch(ops.random_normal(seed, (500,), dtype=dtype))
        for session_seed in (1, 2):
            with popsr.Session(ir, seed=session_seed) as session:
                results |= {digest(io.run(session)) for _ in range(2)}
    assert len(results) == 1


@pytest.mark.parametrize("dedup", [True, False])
def test_replicas_with_one_seed_agree(dedup: bool) -> None:
    """And others do not; the analysis knows both."""
    ir, io = popsr.Ir(replication=4), Streams()
    seeds = np.stack([seed_of(n) for n in (1, 1, 2, 2)])
    with ir.main_graph, popsr.in_sequence():
        shared = popsr.variable(seed_of(1), popsr.uint32)
        grouped = popsr.variable(seeds[::2], popsr.uint32, replica_grouping=ir.replica_grouping(1, 2))
        outputs = [ops.random_uniform(seed, (64,)) for seed in (shared, grouped)]
        outputs += [ops.random_normal(io.feed(seeds, replicated=True), (64,))]
        for output in outputs:
            io.fetch(output)
    facts = popsr.analysis.analyze(ir)
    assert [str(facts.partition(t)) for t in outputs] == ["{0,1,2,3}", "{0,1}{2,3}", "{0}{1}{2}{3}"]
    with popsr.Session(ir, dedup=dedup) as session:
        same, pairs, own = io.run(session)
    assert np.all(same == same[0])
    assert np.array_equal(pairs[0], pairs[1])
    assert np.array_equal(pairs[2], pairs[3])
    assert np.array_equal(own[0], own[1])
    assert not np.any(pairs[0] == pairs[2])
    assert np.array_equal(pairs[0], same[0])


def test_popart_takes_constant_seeds_for_unequal() -> None:
    """The reference's analysis knows the seeds of its ops."""
    ir = popsr.Ir(replication=2)
    with ir.main_graph:
        constant, variable = (
            popsr.constant(seed_of(1), popsr.uint32),
            popsr.variable(seed_of(1), popsr.uint32),
        )
        outputs = [ops.random_normal(seed, (3,)) for seed in (constant, variable)]
        outputs += [ops.dropout(outputs[1], seed, 0.5) for seed in (constant, variable)]
    popart, ours = popsr.analysis.analyze(ir, mode="popart"), popsr.analysis.analyze(ir)
    assert [popart.is_equal(t) for t in outputs] == [False, True, False, True]
    assert all(ours.is_equal(t) for t in outputs)


# Errors


def _seed(*shape: int, kind: Any = popsr.uint32) -> popsr.Tensor:
    return popsr.graph_input(shape or (2,), kind)
