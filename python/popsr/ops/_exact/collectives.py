"""Exchanges between replicas: functions of the values of all of them."""

from __future__ import annotations

import functools
import operator
from typing import Any

import numpy as np

from popsr._support.fields import Array, Numbers
from popsr.errors import UnsupportedError
from popsr.ops._exact.elementwise import COMBINED
from popsr.ops._exact.registry import Exact, Value, collective, exact

__all__: list[str] = []

Rows = list[Any]
"""A value for each replica; None where one does not run the op."""


def groups_of(op: Exact, replicas: int) -> list[tuple[int, ...]]:
    """Members of each group, ascending."""
    group = op["group"]
    return [tuple(range(replicas))] if group is None else list(group.groups)


def reduction(op: Exact, name: str, values: list[Any]) -> Value:
    """The values of the members as one."""
    if not isinstance(values[0], Numbers):
        return _of_arrays(name, values)
    if name == "square_add":
        values = [value * value for value in values]
    if name in ("add", "mean", "square_add"):
        total: Numbers = functools.reduce(operator.add, values)
        return total / op.number(len(values)) if name == "mean" else total
    found: Numbers = functools.reduce(functools.partial(COMBINED[name], op), values)
    return found


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
        total = np.asarray(sum(value.astype(object) for value in values))
        quotients = [abs(int(n)) // len(values) * (-1 if n < 0 else 1) for n in total.reshape(-1)]
        return np.array(quotients, values[0].dtype).reshape(values[0].shape)
    if values[0].dtype == bool and name in ("add", "mul"):
        name = {"add": "or", "mul": "and"}[name]
        return _of_arrays(name, values)
    return np.asarray(functools.reduce(_ARRAYS[name], values))


def by_group(op: Exact, rows: Rows, compute: Any) -> Rows:
    """For each group compute(values of its members) -> a value for each of them; equal groups are computed once."""
    out: Rows = [None] * len(rows)
    known: dict[tuple[int, ...], list[Any]] = {}
    for members in groups_of(op, len(rows)):
        running = [rows[r] is not None for r in members]
        if not any(running):
            continue
        if not all(running):
            raise UnsupportedError("some members of a group do not take part")
        key = tuple(id(rows[r]) for r in members)
        if key not in known:
            known[key] = compute([rows[r] for r in members])
        for r, value in zip(members, known[key], strict=True):
            out[r] = value
    return out


@collective("replicated_all_reduce", "replicated_all_reduce_", "replicated_all_reduce_identical_grad_inputs")
def all_reduce(op: Exact, rows: Rows) -> Rows:
    return by_group(op, rows, lambda values: [reduction(op, op["op"], values)] * len(values))


@collective("replicated_all_gather")
def all_gather(op: Exact, rows: Rows) -> Rows:
    return by_group(op, rows, lambda values: [_gathered(op, values)] * len(values))


def _gathered(op: Exact, values: list[Value]) -> Value:
    info = op.inputs[0]
    assert info is not None
    mode = op["output_shape"]
    if mode == "auto":
        mode = "meta_shape" if info.meta_shape else "concat"
    if mode == "meta_shape":
        flat = joined([value.reshape((value.size,)) for value in values], 0)
        return flat[: int(np.prod(op.shape, dtype=np.int64))].reshape(op.shape)
    if mode == "new_axis":
        axis = op["axis"] % (values[0].ndim + 1)
        shape = values[0].shape
        return joined([value.reshape((*shape[:axis], 1, *shape[axis:])) for value in values], axis)
    return joined([value.reshape((1,)) if not value.ndim else value for value in values], op["axis"])


def joined(values: list[Any], axis: int) -> Value:
    """Arrays one after the other along an axis."""
    if not isinstance(values[0], Numbers):
        return np.concatenate(values, axis)
    return Numbers.concat(values, axis)


def zeros(like: Value, shape: tuple[int, ...]) -> Value:
    """Zeros of the kind of a value."""
    return like.constant(0).broadcast_to(shape) if isinstance(like, Numbers) else np.zeros(shape, like.dtype)


def chunk(value: Value, members: int, index: int) -> Value:
    """The part of a member of the flat value, which zeros fill up."""
    flat = value.reshape((value.size,))
    size = -(-value.size // members)
    missing = size * members - value.size
    if missing:
        flat = joined([flat, zeros(value, (missing,))], 0)
    return flat[index * size : (index + 1) * size]


@collective("replicated_reduce_scatter")
def reduce_scatter(op: Exact, rows: Rows) -> Rows:
    def compute(values: list[Value]) -> list[Value]:
        total = reduction(op, op["op"], values)
        return [chunk(total, len(values), k) for k in range(len(values))]

    return by_group(op, rows, compute)


@collective("replica_sharded_slice")
def sharded_slice(op: Exact, rows: Rows) -> Rows:
    return by_group(op, rows, lambda values: [chunk(value, len(values), k) for k, value in enumerate(values)])


@collective("replicated_scan")
def scan(op: Exact, rows: Rows) -> Rows:
    def compute(values: list[Value]) -> list[Value]:
        step = -1 if op["reverse"] else 1
        ordered = values[::step]
        return [reduction(op, op["op"], ordered[: k + 1]) for k in range(len(values))][::step]

    return by_group(op, rows, compute)


def parts(value: Value, axis: int, count: int) -> list[Value]:
    """Equal parts along an axis."""
    size = value.shape[axis] // count
    return [value[(slice(None),) * axis + (slice(k * size, (k + 1) * size),)] for k in range(count)]


@collective("replicated_slice")
def own_slice(op: Exact, rows: Rows) -> Rows:
    def compute(values: list[Value]) -> list[Value]:
        axis = op["axis"] % values[0].ndim
        known: dict[tuple[int, int], Value] = {}
        return [
            known.setdefault((id(value), k), parts(value, axis, len(values))[k])
            for k, value in enumerate(values)
        ]

    return by_group(op, rows, compute)


@collective("replicated_gather_grad")
def gather_grad(op: Exact, rows: Rows) -> Rows:
    def compute(values: list[Value]) -> list[Value]:
        outer = max(op["outer"], 1)
        size = int(np.prod(op.shape, dtype=np.int64)) // outer
        found = []
        for k, value in enumerate(values):
            lines = (
                value.reshape((outer, -1))
                if not isinstance(value, Numbers)
                else value.reshape((outer, value.size // outer))
            )
            found.append(_cut(lines, k * size, size).reshape(op.shape))
        return found

    return by_group(op, rows, compute)


def _cut(lines: Value, start: int, size: int) -> Value:
    """Columns of lines, zeros past their end."""
    here = lines[:, start : start + size]
    missing = size - here.shape[1]
    return joined([here, zeros(here, (here.shape[0], missing))], 1) if missing else here


@collective("replicated_all_to_all")
def all_to_all(op: Exact, rows: Rows) -> Rows:
    def compute(values: list[Value]) -> list[Value]:
        axis = op["axis"] % values[0].ndim
        cut = [parts(value, axis, len(values)) for value in values]
        return [joined([each[k] for each in cut], axis) for k in range(len(values))]

    return by_group(op, rows, compute)


@collective("replicated_broadcast")
def broadcast(op: Exact, rows: Rows) -> Rows:
    return by_group(op, rows, lambda values: [values[op["root"]]] * len(values))


@collective("replicated_broadcast_grad")
def broadcast_grad(op: Exact, rows: Rows) -> Rows:
    def compute(values: list[Value]) -> list[Value]:
        nothing = zeros(values[0], values[0].shape)
        return [reduction(op, op["op"], values) if k == op["root"] else nothing for k in range(len(values))]

    return by_group(op, rows, compute)


@collective("replicated_permute")
def permute(op: Exact, rows: Rows) -> Rows:
    out: Rows = [None] * len(rows)
    some = next((row for row in rows if row is not None), None)
    if some is None:
        return out
    nothing = zeros(some, some.shape)
    out = [None if row is None else nothing for row in rows]
    for source, target in enumerate(op["mapping"]):
        if target >= 0 and out[target] is not None:
            out[target] = rows[source]
    return out


@collective("replica_index")
def replica_index(op: Exact) -> Rows:
    count = op.replicas
    dtype = {"int32": np.int32, "uint32": np.uint32}[op.outputs[0].dtype]
    out: Rows = [None] * count
    known: dict[int, Array] = {}
    for number, members in enumerate(groups_of(op, count)):
        for index, r in enumerate(members):
            value = number if op["what"] == "group" else index
            out[r] = known.setdefault(value, np.array(value, dtype))
    return out


@collective("check_labels")
def check_labels(_: Exact, rows: Rows, *__: Rows) -> Rows:
    return [None] * len(rows)


@exact("replicated_all_reduce_identical_inputs")
def identical_inputs(_: Exact, t: Value) -> Value:
    return t


@exact("all_reduce", "all_reduce_identical_grad_inputs")
def reduce_tensors(op: Exact, *ts: Value) -> list[Value]:
    return [reduction(op, op["op"], list(ts))] * len(ts)


@exact("all_reduce_identical_inputs")
def same_tensors(_: Exact, *ts: Value) -> list[Value]:
    return list(ts)
