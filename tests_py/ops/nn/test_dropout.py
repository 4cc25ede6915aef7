"""Dropout: chances, masks, gradients, what an absent chance means, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import popsr
from popsr import errors, ops, transforms
from tests_py.ops.rows import random as random_cases
from tests_py.sr.statistics import assert_binomial
from tests_py.support.helpers import (
    FLOATS,
    Array,
    Streams,
    assert_same_bits,
    evaluate,
    np_dtype,
)
from tests_py.support.unchecked import unchecked

Attr, Shape, DType = errors.AttributeValueError, errors.ShapeError, errors.DTypeError
COUNT = 1 << 17


def seed_of(number: int) -> Array:
    return np.array([number >> 32, number & 0xFFFFFFFF], np.uint32)


def dropped(t: Array, number: int, p: float, mask: tuple[int, ...] | None = None, **options: Any) -> Array:
    def build(x: popsr.Tensor, seed: popsr.Tensor) -> popsr.Tensor:
        return ops.dropout(x, seed, p) if mask is None else ops.shaped_dropout(x, seed, mask, p)

    return evaluate(build, [t, seed_of(number)], **options)[0]


@pytest.mark.parametrize("p", [0.001, 0.1, 0.5, 0.9, 0.9999])
def test_chances(p: float) -> None:
    for number in (1, 2):
        got = dropped(np.ones(COUNT, np.float32), number, p)
        assert_binomial(int(np.sum(got == 0)), COUNT, p)
        assert set(got.tolist()) <= {0.0, float(np.float32(1 / (1 - p)))}


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**64 - 1), st.floats(0, 1, exclude_max=True), st.sampled_from(FLOATS))
def test_masks_are_those_of_the_cipher(number: int, p: float, name: str) -> None:
    got = dropped(np.ones((3, 11), np_dtype(name)), number, p)
    expect = random_cases.kept(seed_of(number), (3, 11), p) if p else np.ones((3, 11), bool)
    assert np.array_equal(got != 0, expect)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 99), st.floats(0.01, 0.99), st.floats(0.01, 0.99))
def test_a_greater_chance_drops_more(number: int, p: float, q: float) -> None:
    low, high = (dropped(np.ones(500, np.float32), number, chance) for chance in sorted((p, q)))
    assert np.all((high == 0) >= (low == 0))


@pytest.mark.parametrize("mask", [None, (40, 1), (1, 300), (300,), (40, 300)])
def test_the_gradient_has_the_same_mask(mask: tuple[int, ...] | None) -> None:
    t = np.random.default_rng(1).standard_normal((40, 300)).astype(np.float32)
    dy = np.random.default_rng(2).standard_normal(t.shape).astype(np.float32)

    def body(x: popsr.Tensor, seed: popsr.Tensor) -> popsr.Tensor:
        return ops.dropout(x, seed, 0.4) if mask is None else ops.shaped_dropout(x, seed, mask, 0.4)

    ir, io = popsr.Ir(), Streams()
    with ir.main_graph, popsr.in_sequence():
        tensors = [io.feed(t), io.feed(seed_of(9))]
        graph = ir.create_graph(body, *tensors)
        info = transforms.autodiff(graph, grads_required=[graph.inputs[0]])
        call = ops.call_with_info(graph, *tensors)
        (gradient,) = ops.call(info.graph, io.feed(dy), inputs_dict=info.inputs_dict(call))
        for tensor in (*call.outputs, gradient):
            io.fetch(tensor)
    with popsr.Session(ir) as session:
        y, dx = io.run(session)[0], io.run(session)[-1]
    assert_same_bits(dx, dropped(dy, 9, 0.4, mask))
    assert np.array_equal(y == 0, dx == 0)
    assert 0 < np.sum(y == 0) < y.size


def test_dropped_infinities_are_zeros() -> None:
    t = np.tile(np.array([np.inf, -np.inf, np.nan, -0.0], np.float32), 50)
    got = dropped(t, 3, 0.5)
    kept = random_cases.kept(seed_of(3), t.shape, 0.5)
    assert_same_bits(got, np.where(kept, t, np.float32(0)))


def test_a_mask_of_the_operands_shape_is_that_of_dropout() -> None:
    t = np.random.default_rng(4).standard_normal((30, 70)).astype(np_dtype("bfloat16"))
    assert_same_bits(dropped(t, 5, 0.3, (30, 70)), dropped(t, 5, 0.3))


@pytest.mark.parametrize("mask", [(6, 1, 500), (500,), (6, 40, 1), (1, 40, 1)])
def test_broadcast_masks_share_their_zeros(mask: tuple[int, ...]) -> None:
    t = np.ones((6, 40, 500), np.float32)
    expect = np.broadcast_to(dropped(np.ones(mask, np.float32), 6, 0.5), t.shape)
    for threads in (1, 2):
        assert_same_bits(dropped(t, 6, 0.5, mask, num_threads=threads), expect.copy())


@pytest.mark.parametrize("mask", [None, (4, 1)])
def test_replicas_with_seeds_of_their_own(mask: tuple[int, ...] | None) -> None:
    """One copy of the operand, masks by replica: each has the bits of its seed."""
    t = np.random.default_rng(7).standard_normal((4, 50)).astype(np.float32)
    seeds = np.stack([seed_of(n) for n in (1, 2, 1)])
    for options in ({"dedup": True}, {"dedup": False}, {"check": True}):
        ir, io = popsr.Ir(replication=3), Streams()
        with ir.main_graph, popsr.in_sequence():
            operands = [popsr.variable(t), io.feed(seeds, replicated=True)]
            io.fetch(
                unchecked(ops.dropout)(*unchecked(operands), 0.5)
                if mask is None
                else unchecked(ops.shaped_dropout)(*unchecked(operands), mask, 0.5)
            )
        with popsr.Session(ir, **unchecked(options)) as session:
            got = io.run(session)[0]
        for row, number in zip(got, (1, 2, 1), strict=True):
            assert_same_bits(row, dropped(t, number, 0.5, mask))


@pytest.mark.parametrize("name", FLOATS)
def test_without_a_chance_it_is_the_operand(name: str) -> None:
    """Bit by bit, whatever the seed, also while narrow floats are rounded stochastically."""
    t = np.random.default_rng(8).standard_normal((4, 9)).astype(np_dtype(name))
    ir, io = popsr.Ir(replication=2), Streams()
    ir.options.enable_stochastic_rounding = True
    with ir.main_graph, popsr.in_sequence():
        operand = popsr.variable(t, dtype=getattr(popsr, name))
        seed = io.feed(np.stack([seed_of(1), seed_of(2)]), replicated=True)
        outputs = [ops.dropout(operand, seed, 0.0), ops.shaped_dropout(operand, seed, (9,), 0.0)]
        unequal = ops.dropout(operand, seed, 0.5)
        for output in outputs:
            io.fetch(output)
    facts = popsr.analysis.analyze(ir)
    assert all(facts.is_equal(output) for output in outputs), "the seed does not matter"
    assert not facts.is_equal(unequal)
    with popsr.Session(ir) as session:
        for got in io.run(session):
            assert_same_bits(got, np.stack([t, t]))
