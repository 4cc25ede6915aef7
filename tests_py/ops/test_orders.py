"""Ops that order the elements of a row, at lengths where they change their way of sorting."""

from __future__ import annotations

from functools import cmp_to_key

import numpy as np
import pytest

import popsr
from popsr import ops
from tests_py.support.helpers import Array, assert_same_bits, evaluate, np_dtype

LENGTHS = (1, 2, 7, 8, 15, 16, 17, 23, 24, 33, 64, 100, 128, 159, 160, 161, 257, 1000)
NAMES = (
    "float32",
    "float64",
    "float16",
    "bfloat16",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint32",
    "uint64",
)


def drawn(name: str, length: int, kind: str) -> Array:
    """Two rows; ``ties``: few different values, with zeros of both signs and NaN where the dtype has them."""
    rng = np.random.default_rng(length)
    dtype = np_dtype(name)
    if kind == "ties":
        values = [0, -0.0, 1, 2, -1, np.inf, -np.inf, np.nan] if "float" in name else [0, 1, 2, 3]
        return np.array(values)[rng.integers(0, len(values), (2, length))].astype(dtype)
    if "float" in name:
        return (rng.standard_normal((2, length)) * 100).astype(dtype)
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, (2, length), dtype, endpoint=True)


def stable_order(row: Array, descending: bool) -> list[int]:
    """One comparison after another: NaN is the largest, -0 equals +0, and equal elements keep their order."""

    def compare(a: int, b: int) -> int:
        x, y = row[a], row[b]
        way = int(x > y) - int(x < y) if x == x and y == y else int(x != x) - int(y != y)
        return -way if descending else way

    return sorted(range(len(row)), key=cmp_to_key(compare))


@pytest.mark.parametrize("kind", ["random", "ties"])
@pytest.mark.parametrize("name", NAMES)
def test_orders_of_every_length(name: str, kind: str) -> None:
    for length in LENGTHS:
        t = drawn(name, length, kind)
        places = np.broadcast_to(np.arange(length, dtype=np.int32), t.shape)
        ks = sorted({min(k, length) for k in (1, 5, 16, 17, length // 4 + 1, length)})

        def program(x: popsr.Tensor, i: popsr.Tensor, ks: list[int] = ks) -> list[popsr.Tensor]:
            sorts = [each for down in (False, True) for each in ops.sort(x, i, descending=down)]
            tops = [each for k in ks for down in (False, True) for each in ops.topk(x, k, 1, down, True)]
            return [*sorts, *tops, ops.median(x, 1), ops.argmax(x, 1), ops.argmin(x, 1)]

        orders = {down: np.array([stable_order(row, down) for row in t], np.int32) for down in (False, True)}
        wide = t.astype(np.float64) if "float" in name else t
        firsts = []
        for down in (False, True):
            nan = np.isnan(wide).any(1)
            extreme = wide.max(1) if down else wide.min(1)
            found = np.where(nan[:, None], np.isnan(wide), wide == extreme[:, None])
            firsts.append(found.argmax(1).astype(np.int32))
        middle = np.where(
            np.isnan(wide).any(1), np.isnan(wide).argmax(1), orders[False][:, (length - 1) // 2]
        )
        expected = [
            taken
            for down in (False, True)
            for taken in (np.take_along_axis(t, orders[down], 1), orders[down])
        ]
        for k in ks:
            for down in (False, True):
                expected += [np.take_along_axis(t, orders[down][:, :k], 1), orders[down][:, :k]]
        expected += [t[np.arange(2), middle], firsts[1], firsts[0]]
        for got, want in zip(evaluate(program, [t, places]), expected, strict=True):
            assert_same_bits(got, want)
