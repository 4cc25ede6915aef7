"""Ops that find elements by their order: they run on the ranks of the numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from popsr._support.fields import Array, Numbers
from popsr.ops._exact.elementwise import absolute, defined
from popsr.ops._exact.moves import Pool
from popsr.ops._exact.registry import Exact, Value, exact

__all__ = ["by_rank"]


def ranked(op: Exact, ts: tuple[Value, ...]) -> tuple[list[Any], Numbers]:
    """Operands with ranks from 1 on in place of numbers, and the numbers of the ranks; that of 0 is 0."""
    numbers = [t for t in ts if isinstance(t, Numbers)]
    defined(*numbers)
    every = Numbers.concat([t.reshape((t.size,)) for t in numbers])
    ranks = op.ranks(every)
    _, first = np.unique(ranks, return_index=True)
    pool = Numbers.concat([op.number(0).reshape((1,)), every.at(first)])
    given: list[Any] = []
    at = 0
    for t in ts:
        if isinstance(t, Numbers):
            given.append((ranks[at : at + t.size] + 1.0).reshape(t.shape))
            at += t.size
        else:
            given.append(t)
    return given, pool


@exact("argmax", "argmin", "topk", "median", "cummax", "cummin")
def by_rank(op: Exact, *ts: Value) -> list[Value]:
    given, pool = ranked(op, ts)
    return [
        pool.at(found.astype(np.int64)) if "float" in of.dtype else found
        for found, of in zip(op.run(*given), op.outputs, strict=True)
    ]


@exact("sort")
def sort(op: Exact, *ts: Value) -> list[Value]:
    keys = op["num_keys"]
    given, _ = (
        ranked(op, ts[:keys]) if any(isinstance(t, Numbers) for t in ts[:keys]) else (list(ts[:keys]), None)
    )
    positions = np.arange(ts[0].size, dtype=np.int64).reshape(ts[0].shape)
    order = op.run(*given, positions)[-1]
    return [t.at(order) if isinstance(t, Numbers) else t.reshape(-1)[order] for t in ts]


@exact("sort_grad", "median_grad")
def moved_back(op: Exact, *ts: Value) -> Value:
    """The last operand moved by the order of those before."""
    given, _ = ranked(op, ts[:-1]) if any(isinstance(t, Numbers) for t in ts[:-1]) else (list(ts[:-1]), None)
    pool = Pool(op)
    positions = pool.add(ts[-1])
    (found,) = op.run(*given, positions)
    return pool.at(found)


@exact("cumulative_extreme_grad")
def cumulative_extreme_grad(op: Exact, t: Numbers, dy: Numbers) -> Numbers:
    defined(t)
    axis = op["dim"] % t.ndim
    n = t.shape[axis]
    ranks = np.moveaxis(t.ranks(op.draw), axis, -1)
    if op["largest"]:
        best = np.maximum.accumulate(ranks * n + np.arange(n), -1) % max(n, 1)
    else:
        best = n - 1 - np.minimum.accumulate(ranks * n + np.arange(n)[::-1], -1) % max(n, 1)
    lines = np.moveaxis(np.arange(t.size).reshape(t.shape), axis, -1)
    places: Array = np.moveaxis(np.take_along_axis(lines, best, -1), -1, axis)
    zeros = op.full(0).reshape((t.size, 1))
    return zeros.scatter_add(places.reshape(-1), dy.reshape((dy.size, 1))).reshape(t.shape)


@exact("histogram")
def histogram(op: Exact, t: Numbers, levels: Numbers) -> Array:
    if op["absolute_of_input"]:
        t = absolute(op, t)
    given, _ = ranked(op, (t, levels))
    (found,) = op.run(*given, absolute_of_input=False)
    return found
