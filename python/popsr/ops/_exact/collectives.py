"""Exchanges between replicas: functions of the values of all of them."""

from __future__ import annotations

import functools
import operator
from typing import Any

import numpy as np

from popsr._fields import Array, Numbers
from popsr.ops._exact.elementwise import larger, smaller
from popsr.ops._exact.registry import Exact, Value, collective

__all__: list[str] = []

Rows = list[Any]
"""A value for each replica; None where one does not run the op."""


def groups_of(op: Exact, replicas: int) -> list[tuple[int, ...]]:
    """Members of each group, ascending."""
    group = op["group"]
    return [tuple(range(replicas))] if group is None else list(group.groups)


def reduction(op: Exact, name: str, values: list[Value]) -> Value:
    """The values of the members as one."""
    if not isinstance(values[0], Numbers):
        return _of_arrays(name, values)  # type: ignore[arg-type]
    if name in ("add", "mean"):
        total = functools.reduce(operator.add, values)
        return total if name == "add" else total / op.number(len(values))  # type: ignore[operator]
    if name == "square_add":
        return functools.reduce(operator.add, [value * value for value in values])  # type: ignore[operator]
    rules = {"mul": lambda _, a, b: a * b, "min": smaller, "max": larger}
    return functools.reduce(functools.partial(rules[name], op), values)  # type: ignore[arg-type]


_ARRAYS = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}


def _of_arrays(name: str, values: list[Array]) -> Array:
    if name in ("and", "or"):
        logical = {"and": np.logical_and, "or": np.logical_or}
        bits = {"and": np.bitwise_and, "or": np.bitwise_or}
        rule = (logical if values[0].dtype == bool else bits)[name]
        return np.asarray(functools.reduce(rule, values))
    if name == "square_add":
        return np.asarray(functools.reduce(np.add, [value * value for value in values]))
    if name == "mean":
        total = sum(value.astype(object) for value in values)
        return np.asarray(total // len(values) if False else np.trunc(total / len(values))).astype(values[0].dtype)
    if values[0].dtype == bool and name in ("add", "mul"):
        name = {"add": "or", "mul": "and"}[name]
        return _of_arrays(name, values)
    return np.asarray(functools.reduce(_ARRAYS[name], values))


def by_group(op: Exact, rows: Rows, compute: Any) -> Rows:
    """For each group compute(values of its members) -> a value for each of them; equal groups are computed once."""
    out: Rows = [None] * len(rows)
    known: dict[tuple[int, ...], list[Any]] = {}
    for members in groups_of(op, len(rows)):
        if rows[members[0]] is None:
            continue
        key = tuple(id(rows[r]) for r in members)
        if key not in known:
            known[key] = compute([rows[r] for r in members])
        for r, value in zip(members, known[key], strict=True):
            out[r] = value
    return out


@collective("replicated_all_reduce", "replicated_all_reduce_", "replicated_all_reduce_identical_grad_inputs")
def all_reduce(op: Exact, rows: Rows) -> Rows:
    return by_group(op, rows, lambda values: [reduction(op, op["op"], values)] * len(values))
