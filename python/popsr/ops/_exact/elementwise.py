"""Arithmetic and order, element by element."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from popsr._support.fields import Array, Numbers, same, select
from popsr.errors import UnsupportedError
from popsr.ops._exact.registry import Exact, Value, exact, numbers, scalar

__all__ = ["COMBINED", "defined", "larger", "order_sign", "smaller"]


def defined(*numbers: Numbers) -> None:
    """Refuse to compare what is undefined: the outcome would hide it.

    Raises:
        UnsupportedError: an element is undefined.
    """
    if any(t.is_undefined().any() for t in numbers):
        raise UnsupportedError("an undefined number is compared")


def larger(op: Exact, a: Numbers, b: Numbers) -> Numbers:
    """The greater of two numbers; undefined where one is."""
    return select(op.above(b, a) | b.is_undefined(), b, a)


def smaller(op: Exact, a: Numbers, b: Numbers) -> Numbers:
    """The less of two numbers; undefined where one is."""
    return select(op.above(a, b) | b.is_undefined(), b, a)


COMBINED: dict[str, Callable[[Exact, Numbers, Numbers], Numbers]] = {
    "mul": lambda _, a, b: a * b,
    "min": smaller,
    "max": larger,
}
"""Rules by which two numbers become one, by name of the reduction; sums have none here."""


def order_sign(op: Exact, t: Numbers) -> tuple[Array, Array]:
    """Return masks of the numbers above 0, and of those below."""
    defined(t)
    zero = op.number(0)
    return op.above(t, zero), zero.above(t, op.draw)


@exact("add", "add_")
def add(_: Exact, a: Numbers, b: Numbers) -> Numbers:
    return a + b


@exact("sub")
def sub(_: Exact, a: Numbers, b: Numbers) -> Numbers:
    return a - b


@exact("mul")
def mul(_: Exact, a: Numbers, b: Numbers) -> Numbers:
    return a * b


@exact("div")
def div(_: Exact, a: Numbers, b: Numbers) -> Numbers:
    return a / b


@exact("negate")
def negate(_: Exact, t: Numbers) -> Numbers:
    return -t


@exact("reciprocal")
def reciprocal(_: Exact, t: Numbers) -> Numbers:
    return t.inverse()


@exact("square")
def square(_: Exact, t: Numbers) -> Numbers:
    return t * t


@exact("scale")
def scale(op: Exact, t: Numbers) -> Numbers:
    return t * op.number(op["factor"])


@exact("scaled_add", "scaled_add_")
def scaled_add(op: Exact, x: Numbers, y: Value, a: Value | None = None, b: Value | None = None) -> Numbers:
    return x * scalar(op, "a", a, 1) + numbers(op, y) * scalar(op, "b", b, 1)


@exact("maximum")
def maximum(op: Exact, *ts: Numbers) -> Numbers:
    return functools.reduce(functools.partial(larger, op), ts).broadcast_to(op.shape)


@exact("minimum")
def minimum(op: Exact, *ts: Numbers) -> Numbers:
    return functools.reduce(functools.partial(smaller, op), ts).broadcast_to(op.shape)


@exact("clip")
def clip(op: Exact, t: Numbers) -> Numbers:
    return smaller(op, larger(op, t, op.number(op["min"])), op.number(op["max"]))


@exact("relu", "relu_")
def relu(op: Exact, t: Numbers) -> Numbers:
    return larger(op, t, op.number(0))


@exact("abs")
def absolute(op: Exact, t: Numbers) -> Numbers:
    found = larger(op, t, -t)
    found.is_positive = True
    return found


@exact("sign")
def sign(op: Exact, t: Numbers) -> Numbers:
    above, below = order_sign(op, t)
    return Numbers.of(above.astype(np.int64) - below.astype(np.int64), op.low)


@exact("copysign")
def copysign(op: Exact, t: Numbers, sign: Numbers) -> Numbers:
    size, (_, below) = absolute(op, t), order_sign(op, sign)
    return select(below, -size, size)


def _comparison(name: str, rule: Callable[[Exact, Numbers, Numbers], Array]) -> None:
    def compare(op: Exact, a: Value, b: Value) -> Array:
        left, right = numbers(op, a), numbers(op, b)
        defined(left, right)
        return rule(op, left, right)

    exact(name)(compare)


_comparison("equal", lambda _, a, b: same(a, b))
_comparison("not_equal", lambda _, a, b: ~same(a, b))
_comparison("greater", lambda op, a, b: op.above(a, b))
_comparison("less", lambda op, a, b: op.above(b, a))
_comparison("greater_equal", lambda op, a, b: ~op.above(b, a))
_comparison("less_equal", lambda op, a, b: ~op.above(a, b))


@exact("isnan", "isinf", "isfinite")
def classified(op: Exact, t: Numbers) -> Array:
    defined(t)
    infinite = np.zeros(t.shape, bool) if t.huge is None else np.isinf(t.huge)
    return {"isnan": np.zeros(t.shape, bool), "isinf": infinite, "isfinite": ~infinite}[op.kind]


def _truth(value: Value) -> Array:
    """True where a value is not 0."""
    if not isinstance(value, Numbers):
        return np.asarray(value != 0)
    defined(value)
    return ~value.is_zero()


@exact("where")
def where(_: Exact, condition: Value, a: Any, b: Any) -> Value:
    if isinstance(a, Numbers) and isinstance(b, Numbers):
        return select(_truth(condition), a, b)
    return np.asarray(np.where(_truth(condition), a, b))


@exact("logical_and", "logical_or", "logical_xor", "logical_not")
def logical(op: Exact, *ts: Value) -> Array:
    (found,) = op.run(*map(_truth, ts))
    return found


@exact("equal_mask")
def equal_mask(op: Exact, a: Numbers, b: Numbers) -> Numbers:
    defined(a, b)
    return Numbers.of(same(a, b), op.low)


@exact("relu_grad")
def relu_grad(op: Exact, t: Numbers, dy: Numbers) -> Numbers:
    above, _ = order_sign(op, t)
    return select(above, dy, op.number(0))


@exact("abs_grad")
def abs_grad(op: Exact, t: Numbers, dy: Numbers) -> Numbers:
    above, below = order_sign(op, t)
    return select(above, dy, select(below, -dy, op.number(0)))


@exact("clip_grad")
def clip_grad(op: Exact, y: Numbers, dy: Numbers) -> Numbers:
    defined(y)
    at_bound = same(y, op.number(op["min"])) | same(y, op.number(op["max"]))
    return select(at_bound, op.number(0), dy)
