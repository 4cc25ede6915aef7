"""Seeds that the host makes, and seeds that programs make of others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import popsr
from popsr import errors, ops
from popsr._program.random_seed import MAX_UINT64, create_seeds, two_uint32_to_uint64, uint64_to_two_uint32
from tests_py.ops.rows import random as random_cases
from tests_py.support.helpers import Array, assert_same_bits, evaluate

# The host


@pytest.mark.parametrize(
    ("extents", "shape"),
    [
        ((1, 1, 1), (2,)),
        ((1, 1, 4), (4, 2)),
        ((2, 1, 4), (2, 4, 2)),
        ((2, 1, 1), (2, 2)),
        ((1, 3, 1), (3, 2)),
        ((2, 3, 4), (2, 3, 4, 2)),
        ((1, 3, 4), (3, 4, 2)),
        ((2, 3, 1), (2, 3, 2)),
    ],
)
def test_shapes_of_seeds(extents: tuple[int, int, int], shape: tuple[int, ...]) -> None:
    steps, factor, replicas = extents
    seeds = create_seeds(3, batches_per_step=steps, gradient_accumulation_factor=factor, replicas=replicas)
    assert seeds.shape == shape
    assert seeds.dtype == np.uint32
    draws = np.random.default_rng(3).integers(0, 2**64 - 1, extents, np.uint64, endpoint=True)
    words = [[int(draw) >> 32, int(draw) % 2**32] for draw in draws.reshape(-1)]
    assert np.array_equal(seeds.reshape(-1, 2), words), "high word first"


def test_seed_and_offset_count_as_a_sum() -> None:
    assert_same_bits(create_seeds(40, 2, replicas=3), create_seeds(42, replicas=3))
    assert_same_bits(create_seeds(50, -8, replicas=3), create_seeds(42, replicas=3))
    assert not np.array_equal(create_seeds(40), create_seeds(41))


def test_seeds_of_one_number_are_known() -> None:
    """The stream of NumPy's generator is part of its interface; so are these."""
    assert create_seeds(42).tolist() == [*divmod(14276969152011380360, 2**32)]
    assert popsr.create_seeds is create_seeds


@given(st.integers(0, MAX_UINT64))
def test_words_and_back(number: int) -> None:
    high, low = uint64_to_two_uint32(number)
    assert (high, low) == (number // 2**32, number % 2**32)
    assert two_uint32_to_uint64(high, low) == number


def test_numpy_integers_are_integers() -> None:
    assert uint64_to_two_uint32(np.uint64(2**63)) == (2**31, 0)  # type: ignore[arg-type]
    assert two_uint32_to_uint64(*np.array([1, 2], np.uint32)) == 2**32 + 2


HOST: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (
        lambda: uint64_to_two_uint32(-1),
        ValueError,
        r"uint64_to_two_uint32: num: got -1, expected an int from 0",
    ),
    (lambda: uint64_to_two_uint32(2**64), ValueError, r"uint64_to_two_uint32: num: got 184"),
    (lambda: uint64_to_two_uint32(1.5), TypeError, r"uint64_to_two_uint32: num is not an int, got 1.5"),  # type: ignore[arg-type]
    (
        lambda: two_uint32_to_uint64(2**32, 0),
        ValueError,
        r"two_uint32_to_uint64: a: got 4294967296",
    ),
    (lambda: two_uint32_to_uint64(0, -1), ValueError, r"two_uint32_to_uint64: b: got -1"),
    (lambda: two_uint32_to_uint64("1", 0), TypeError, r"two_uint32_to_uint64: a is not an int, got '1'"),  # type: ignore[arg-type]
    (
        lambda: create_seeds(1, -2),
        ValueError,
        r"create_seeds: seed \+ offset is out of range, got -1, expected 0",
    ),
    (lambda: create_seeds("x"), TypeError, r"create_seeds: seed is not an int, got 'x', expected an int"),  # type: ignore[arg-type]
    (lambda: create_seeds(1, 0.5), TypeError, r"create_seeds: offset is not an int, got 0.5"),  # type: ignore[arg-type]
    (
        lambda: create_seeds(1, replicas=0),
        ValueError,
        r"create_seeds: replicas: got 0, expected an int from 1",
    ),
    (lambda: create_seeds(1, batches_per_step=-1), ValueError, r"create_seeds: batches_per_step: got -1"),
    (
        lambda: create_seeds(1, gradient_accumulation_factor=0),
        ValueError,
        r"create_seeds: gradient_accumulation_factor: got 0",
    ),
]


@pytest.mark.parametrize(("build", "error", "match"), HOST)
def test_refused_on_the_host(build: Callable[[], Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match="^" + match) as caught:
        build()
    assert isinstance(caught.value, errors.Error)
    assert "\n" not in str(caught.value)


# The program


def split(seed: list[int], n: int) -> list[Array]:
    return evaluate(lambda s: list(ops.split_random_seed(s, n)), [np.array(seed, np.uint32)])


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.integers(1, 6))
def test_split_seeds_are_those_of_the_formula(first: int, second: int, n: int) -> None:
    children = split([first, second], n)
    assert len(children) == n
    for i, child in enumerate(children):
        assert_same_bits(child, random_cases.modified(np.array([first, second], np.uint32), i))
        assert child[0] == first


def test_children_overlap_as_the_formula_says() -> None:
    """Child i depends on the second word plus i."""
    assert_same_bits(split([5, 8], 3)[2], split([5, 10], 1)[0])
    assert not np.array_equal(split([5, 8], 1)[0], split([6, 8], 1)[0])


def test_children_differ_from_each_other_and_from_what_the_parent_draws() -> None:
    children = split([1, 2], 50)
    assert len({int(child[1]) for child in children}) == 50
    draws = [
        evaluate(lambda s: ops.random_uniform(s, (64,)), [child])[0]
        for child in (np.array([1, 2], np.uint32), *children[:4])
    ]
    for i, a in enumerate(draws):
        for b in draws[:i]:
            assert np.intersect1d(a, b).size == 0


def test_default_is_two() -> None:
    with popsr.Ir().main_graph:
        seeds = ops.split_random_seed(popsr.constant([1, 2], popsr.uint32))
        assert isinstance(seeds, tuple)
        assert [(t.shape, t.dtype) for t in seeds] == [((2,), popsr.uint32)] * 2


@given(st.integers(-(2**40), 2**40))
def test_a_modifier_makes_what_split_makes(modifier: int) -> None:
    made = evaluate(ops.create_random_seed, [np.array([3, 4], np.uint32), np.array(modifier, np.int64)])[0]
    assert_same_bits(made, split([3, (4 + modifier) % 2**32], 1)[0])


def test_replicas_get_seeds_of_their_own_by_index() -> None:
    """One seed for all, modified by the replica's index."""

    def build(seed: popsr.Tensor) -> popsr.Tensor:
        return ops.create_random_seed(seed, ops.replica_index())

    got = evaluate(build, [np.array([9, 9], np.uint32)], replication=3)[0]
    for replica, child in enumerate(got):
        assert_same_bits(child, split([9, 9], 3)[replica])


def test_seeds_can_be_added_to() -> None:
    """The idiom ``seed + 1`` moves the second word, and the first."""
    seed = np.array([7, 2**32 - 1], np.uint32)

    def build(s: popsr.Tensor) -> popsr.Tensor:
        return ops.random_uniform(s + popsr.constant(1, popsr.uint32), (20,))

    expect = random_cases.uniform(np.array([8, 0], np.uint32), (20,))
    assert_same_bits(evaluate(build, [seed])[0], expect)


def _t(*shape: int, kind: Any = popsr.uint32) -> popsr.Tensor:
    return popsr.graph_input(shape, kind)
