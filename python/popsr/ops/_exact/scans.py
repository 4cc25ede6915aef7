"""Sums and products of what comes before along an axis, and products over axes."""

from __future__ import annotations

import functools
import operator

import numpy as np

from popsr._support.fields import Numbers
from popsr.ops._exact.reduce import axes_of, rows_over
from popsr.ops._exact.registry import Exact, exact

__all__: list[str] = []


def _lines(t: Numbers, axis: int) -> list[Numbers]:
    return [t[(slice(None),) * axis + (i,)] for i in range(t.shape[axis])]


def _joined(lines: list[Numbers], like: Numbers, axis: int) -> Numbers:
    """Lines as an array again, along that axis."""
    shape = (*like.shape[:axis], 1, *like.shape[axis + 1 :])
    return Numbers.concat([line.reshape(shape) for line in lines], axis) if lines else like


@exact("cumsum")
def cumsum(op: Exact, t: Numbers) -> Numbers:
    axis = op["dim"] % t.ndim
    step = -1 if op["reverse"] else 1
    lines: list[Numbers] = []
    for line in _lines(t, axis)[::step]:
        lines.append(lines[-1] + line if lines else line)
    return _joined(lines[::step], t, axis)


@exact("cumprod")
def cumprod(op: Exact, t: Numbers) -> Numbers:
    axis = op["dim"] % t.ndim
    lines: list[Numbers] = []
    for line in _lines(t, axis):
        lines.append(lines[-1] * line if lines else line)
    return _joined(lines, t, axis)


@exact("cumprod_grad")
def cumprod_grad(op: Exact, t: Numbers, dy: Numbers) -> Numbers:
    axis = op["dim"] % t.ndim
    xs, dys = _lines(t, axis), _lines(dy, axis)
    before, found = None, []
    for i, x in enumerate(xs):
        others = before
        total = dys[i] if others is None else dys[i] * others
        for j in range(i + 1, len(xs)):
            others = xs[j] if others is None else others * xs[j]
            total = total + dys[j] * others
        found.append(total)
        before = x if before is None else before * x
    return _joined(found, t, axis)


@exact("prod")
def prod(op: Exact, t: Numbers) -> Numbers:
    rows = rows_over(t, axes_of(op, t))
    factors = _lines(rows, rows.ndim - 1)
    return functools.reduce(operator.mul, factors).reshape(op.shape) if factors else op.full(1)


@exact("prod_of_others")
def prod_of_others(op: Exact, t: Numbers) -> Numbers:
    axes = axes_of(op, t)
    rows, order = rows_over(t, axes), [*(axis for axis in range(t.ndim) if axis not in axes), *axes]
    xs = _lines(rows, rows.ndim - 1)
    found = [
        functools.reduce(operator.mul, xs[:i] + xs[i + 1 :], op.number(1).broadcast_to(xs[i].shape))
        for i in range(len(xs))
    ]
    back = _joined(found, rows, rows.ndim - 1).reshape(tuple(t.shape[axis] for axis in order))
    return back.transpose(list(np.argsort(order)))
