"""Means of integers are exact, however far their sum is beyond the dtype; sums wrap in it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import popsr
from popsr import ops
from popsr.ops import collectives
from tests_py.support.helpers import INTS, Streams, evaluate

LEAST = {name: int(np.iinfo(name).min) for name in INTS}
MOST = {name: int(np.iinfo(name).max) for name in INTS}


def mean_of(values: list[int]) -> int:
    """The quotient towards zero."""
    total = sum(values)
    return total // len(values) if total >= 0 else -(-total // len(values))


def wrapped(value: int, name: str) -> Any:
    """In two's complement."""
    bits = np.iinfo(name).bits
    return np.array(value % 2**bits, f"u{bits // 8}").view(name)[()]


def values_of(name: str) -> list[list[int]]:
    """Rows of three whose sums are far out, and rows that round."""
    most, least = MOST[name], LEAST[name]
    return [[most] * 3, [least] * 3, [most, most, least], [least, least, most - 1], [1, 0, 1], [most, 1, 1]]


@pytest.mark.parametrize("name", INTS)
@pytest.mark.parametrize("axis", [0, 1])
def test_mean_of_extremes_is_exact(name: str, axis: int) -> None:
    rows = values_of(name)
    data = np.array(rows, name)
    (got,) = evaluate(lambda t: ops.mean(t, axis), [data.T.copy() if axis == 0 else data])
    assert got.dtype == data.dtype
    assert got.tolist() == [mean_of(row) for row in rows]


@pytest.mark.parametrize(
    ("name", "value", "count"), [("int8", 100, 5), ("uint16", 60000, 3), ("int32", 2**31 - 1, 3)]
)
def test_mean_of_equal_numbers_is_that_number(name: str, value: int, count: int) -> None:
    (got,) = evaluate(ops.mean, [np.full(count, value, name)])
    assert got == value


@pytest.mark.parametrize("name", INTS)
def test_long_means_are_exact_over_any_axes(name: str) -> None:
    rng = np.random.default_rng(0)
    data = rng.integers(LEAST[name], MOST[name], (3, 700, 5, 2), name, endpoint=True)
    outputs = evaluate(lambda t: [ops.mean(t, axis) for axis in ((0, 1, 2, 3), (1, 3), (0, 2), (1,))], [data])
    for got, axis in zip(outputs, ((0, 1, 2, 3), (1, 3), (0, 2), (1,)), strict=True):
        kept = [i for i in range(4) if i not in axis]
        expect = data.astype(object).transpose(*kept, *axis).reshape(*(data.shape[i] for i in kept), -1)
        flat = expect.reshape(-1, expect.shape[-1])
        assert got.reshape(-1).tolist() == [mean_of(list(row)) for row in flat]


def test_mean_of_nothing_is_zero() -> None:
    (got,) = evaluate(lambda t: ops.mean(t, 1), [np.zeros((2, 0), np.int16)])
    assert got.tolist() == [0, 0]


@pytest.mark.parametrize("name", INTS)
def test_sum_wraps_in_its_dtype(name: str) -> None:
    rows = values_of(name)
    (got,) = evaluate(lambda t: ops.sum(t, 1), [np.array(rows, name)])
    assert got.tolist() == [wrapped(sum(row), name) for row in rows]


@pytest.mark.parametrize("name", INTS)
def test_mean_over_replicas_is_exact(name: str) -> None:
    rows = values_of(name)
    ir, io = popsr.Ir(replication=3), Streams()
    data = np.array(rows, name).T.copy()
    with ir.main_graph, popsr.in_sequence():
        t = io.feed(data, replicated=True)
        io.fetch(collectives.replicated_all_reduce(t, "mean"))
        io.fetch(collectives.replicated_reduce_scatter(t, "mean"))
        io.fetch(collectives.replicated_all_reduce_(t, "mean"))
    with popsr.Session(ir) as session:
        whole, parts, in_place = io.run(session)
    expect = [mean_of(row) for row in rows]
    assert whole.tolist() == in_place.tolist() == [expect] * 3
    assert parts.reshape(-1).tolist() == expect
