"""Reductions over axes."""

from __future__ import annotations

import numpy as np

from popsr._support.fields import Numbers
from popsr.ops._exact.elementwise import absolute
from popsr.ops._exact.functions import log, sqrt
from popsr.ops._exact.registry import Exact, exact

__all__ = ["axes_of", "extreme", "keep_axes", "rows_over"]


def axes_of(op: Exact, t: Numbers) -> list[int]:
    """The axes that are reduced; all without an attribute."""
    given = op["axis"]
    return sorted({axis % t.ndim for axis in given}) if given is not None else list(range(t.ndim))


def count_of(t: Numbers, axes: list[int]) -> int:
    """Number of elements that become one."""
    return int(np.prod([t.shape[axis] for axis in axes], dtype=np.int64))


def keep_axes(t: Numbers, axes: list[int]) -> Numbers:
    """A reduced value with axes of one element where axes were."""
    shape = list(t.shape)
    for axis in axes:
        shape.insert(axis, 1)
    return t.reshape(shape)


def rows_over(t: Numbers, axes: list[int]) -> Numbers:
    """The elements along some axes as the last axis, after the other axes."""
    kept = [axis for axis in range(t.ndim) if axis not in axes]
    return t.transpose([*kept, *axes]).reshape((*[t.shape[axis] for axis in kept], count_of(t, axes)))


@exact("sum")
def total(op: Exact, t: Numbers) -> Numbers:
    return t.sum(axes_of(op, t)).reshape(op.shape)


@exact("mean")
def mean(op: Exact, t: Numbers) -> Numbers:
    axes = axes_of(op, t)
    return (t.sum(axes) / op.number(count_of(t, axes))).reshape(op.shape)


@exact("var")
def var(op: Exact, t: Numbers) -> Numbers:
    axes = axes_of(op, t)
    count = count_of(t, axes)
    away = t - keep_axes(t.sum(axes) / op.number(count), axes)
    return ((away * away).sum(axes) / op.number(count - op["correction"])).reshape(op.shape)


@exact("sumsquare")
def sumsquare(op: Exact, t: Numbers) -> Numbers:
    return (t * t).sum(axes_of(op, t)).reshape(op.shape)


@exact("l1")
def l1(op: Exact, t: Numbers) -> Numbers:
    return absolute(op, t).sum(axes_of(op, t)).reshape(op.shape)


@exact("l2")
def l2(op: Exact, t: Numbers) -> Numbers:
    return sqrt((t * t).sum(axes_of(op, t))).reshape(op.shape)


@exact("logsum")
def logsum(op: Exact, t: Numbers) -> Numbers:
    return log(t.sum(axes_of(op, t))).reshape(op.shape)


@exact("logsumexp")
def logsumexp(op: Exact, t: Numbers) -> Numbers:
    axes = axes_of(op, t)
    top = extreme(op, t, axes, 1)
    return (top + log((t - keep_axes(top, axes)).exp().sum(axes))).reshape(op.shape)


def extreme(op: Exact, t: Numbers, axes: list[int], sign: int) -> Numbers:
    """The greatest numbers over axes, or the least for a sign of -1; undefined where one is."""
    rows = rows_over(t, axes)
    if not rows.size:
        return op.number(-sign * np.inf).broadcast_to(rows.shape[:-1])
    best = op.extreme(rows, sign)
    found = rows.at(np.arange(best.size).reshape(best.shape) * rows.shape[-1] + best)
    undefined = rows.is_undefined().any(-1)
    return Numbers(found.residues, np.where(undefined, np.nan, 0.0 if found.huge is None else found.huge))


@exact("max")
def greatest(op: Exact, t: Numbers) -> Numbers:
    return extreme(op, t, axes_of(op, t), 1).reshape(op.shape)


@exact("min")
def least(op: Exact, t: Numbers) -> Numbers:
    return extreme(op, t, axes_of(op, t), -1).reshape(op.shape)
