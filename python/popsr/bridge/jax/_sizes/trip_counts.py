"""Trip counts of loops that follow from their text: a counter, a step and a bound that are known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["trip_count"]

_COMPARE = {
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "ne": lambda a, b: a != b,
}
_MAX_TRIPS = 1 << 31


def trip_count(
    cond: Any, body: Any, cond_consts: Sequence[Any], body_consts: Sequence[Any], carry: Sequence[Any]
) -> int | None:
    """Number of passes of a loop; None when that depends on data.

    Args:
        cond: jaxpr of the condition.
        body: jaxpr of the loop.
        cond_consts: what the condition reads beside the carry.
        body_consts: what the body reads beside it.
        carry: values before the first pass.
    """
    found = _bound(cond, body, cond_consts, body_consts, carry)
    if found is None:
        return None
    compare, start, step, stop = found
    if not _COMPARE[compare](start, stop):
        return 0
    if compare in ("lt", "le") and step > 0:
        return -(-(stop - start + (compare == "le")) // step)
    if compare in ("gt", "ge") and step < 0:
        return -(-(start - stop + (compare == "ge")) // -step)
    if compare == "ne" and step and (stop - start) % step == 0 and (stop - start) // step > 0:
        return (stop - start) // step
    return None


def _bound(
    cond: Any, body: Any, cond_consts: Sequence[Any], body_consts: Sequence[Any], carry: Sequence[Any]
) -> tuple[str, int, int, int] | None:
    """The comparison of a counter with a bound, the counter's start and step, and the bound."""
    test = cond.jaxpr
    if len(test.eqns) != 1 or test.eqns[0].primitive.name not in _COMPARE or cond.consts:
        return None
    compare = test.eqns[0]
    if test.outvars[0] is not compare.outvars[0]:
        return None
    values = [*cond_consts, *carry]
    sides = [_read(atom, test.invars, values, len(cond_consts), body, body_consts) for atom in compare.invars]
    name = compare.primitive.name
    first, second = sides
    if first is None or second is None:
        return None
    (left, left_step), (right, right_step) = first, second
    if left_step and right_step:
        return None
    if right_step:
        mirrored = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "ne": "ne"}
        return mirrored[name], right, right_step, left
    return name, left, left_step, right


def _read(
    atom: Any,
    invars: Sequence[Any],
    values: Sequence[Any],
    consts: int,
    body: Any,
    body_consts: Sequence[Any],
) -> tuple[int, int] | None:
    """Start and step of an operand of the condition: integers that are known."""
    if hasattr(atom, "val"):
        return _whole(atom.val, 0)
    place = [index for index, var in enumerate(invars) if var is atom]
    if not place:
        return None
    value = values[place[0]]
    if not isinstance(value, np.ndarray):
        return None
    step = 0 if place[0] < consts else _step(body, place[0] - consts, body_consts)
    return None if step is None else _whole(value, step)


def _whole(value: Any, step: int) -> tuple[int, int] | None:
    array = np.asarray(value)
    return (int(array), step) if array.dtype.kind in "iu" and array.shape == () else None


def _step(body: Any, place: int, body_consts: Sequence[Any]) -> int | None:
    """The number that a pass adds to a component of the carry."""
    jaxpr = body.jaxpr
    inside, after = jaxpr.invars[len(body_consts) + place], jaxpr.outvars[place]
    if after is inside:
        return 0
    for equation in jaxpr.eqns:
        if equation.primitive.name in ("add", "sub") and equation.outvars[0] is after:
            left, right = equation.invars
            if left is inside and hasattr(right, "val"):
                return int(right.val) * (1 if equation.primitive.name == "add" else -1)
            if right is inside and hasattr(left, "val") and equation.primitive.name == "add":
                return int(left.val)
    return None
