"""Gathers and scatters that are more than moves."""

from __future__ import annotations

from typing import Any

import numpy as np

from popsr._support.fields import Array, Numbers
from popsr.errors import UnsupportedError
from popsr.ops._exact.elementwise import COMBINED
from popsr.ops._exact.moves import moved
from popsr.ops._exact.registry import Exact, Value, exact, scalar

__all__: list[str] = []


@exact("gather_general")
def gather_general(op: Exact, t: Numbers, indices: Array) -> Value:
    positions = np.arange(1, t.size + 1, dtype=np.int64).reshape(t.shape)
    (found,) = op.run(positions, indices, fill_value=float(t.size + 1))
    pool = [op.number(0), t.reshape((t.size,)), op.number(op["fill_value"] or 0.0)]
    return Numbers.concat([part.reshape((part.size,)) for part in pool]).at(found)


@exact("scatter_general")
def scatter_general(op: Exact, t: Numbers, indices: Array, updates: Numbers) -> Value:
    reduction = op["reduction"]
    if reduction == "none":
        return moved(op, t, indices, updates)
    return reduced(op, reduction, t, _places(op, t, indices, updates), updates)


def _places(op: Exact, t: Numbers, indices: Array, updates: Numbers) -> Array:
    """The position that each update goes to, -1 for none: what a gather of the same windows reads."""
    dims = {name: op[name] for name in ("offset_dims", "index_map", "collapsed_dims")}
    dims |= {name: op[name] for name in ("operand_batching_dims", "indices_batching_dims")}
    spanned = [
        d for d in range(t.ndim) if d not in dims["collapsed_dims"] and d not in dims["operand_batching_dims"]
    ]
    sizes = [1] * t.ndim
    for axis, offset in zip(spanned, dims["offset_dims"], strict=True):
        sizes[axis] = updates.shape[offset]
    mode = {"drop": "fill"}.get(op["mode"], op["mode"])
    positions = np.arange(t.size, dtype=np.int64).reshape(t.shape)
    attributes = {**dims, "slice_sizes": sizes, "mode": mode, "fill_value": -1.0}
    (found,) = op.run(positions, indices, kind="gather_general", only=attributes)
    return np.asarray(found)


def reduced(op: Exact, reduction: str, t: Numbers, places: Array, updates: Numbers) -> Numbers:
    """Updates reduced into the elements at their places."""
    flat, values, at = t.reshape((t.size, 1)), updates.reshape((updates.size, 1)), places.reshape(-1)
    if reduction in ("sum", "add"):
        return flat.scatter_add(at, values).reshape(t.shape)
    combine = COMBINED[reduction]
    inside = np.flatnonzero(at >= 0)
    order = inside[np.argsort(at[inside], kind="stable")]
    while len(order):  # one update of each element at a time
        first = np.concatenate([[True], at[order][1:] != at[order][:-1]])
        now, order = order[first], order[~first]
        flat = flat.with_rows(at[now], combine(op, flat.at_rows(at[now]), values.at_rows(now)))
    return flat.reshape(t.shape)


def _forward_places(
    op: Exact, kind: str, extents: tuple[int, ...], indices: Array, **attributes: Any
) -> Array:
    """The position that each element goes to, -1 for none: what the op that reads them reads."""
    positions = np.arange(1, int(np.prod(extents, dtype=np.int64)) + 1, dtype=np.int64).reshape(extents)
    (found,) = op.run(positions, indices, kind=kind, only=attributes)
    return np.asarray(found - 1)


@exact("gather_grad")
def gather_grad(op: Exact, dy: Numbers, indices: Array) -> Numbers:
    grouped = {"group_size": op["group_size"]} if op["group_size"] != 1 else {}
    kind = "groupedgather" if grouped else "gather"
    places = _forward_places(op, kind, op.shape, indices, axis=op["axis"], zero_OOR=op["zero_OOR"], **grouped)
    return reduced(op, "sum", op.full(0), places, dy)


@exact("scatter_elements")
def scatter_elements(op: Exact, t: Numbers, indices: Array, updates: Numbers) -> Value:
    if op["reduction"] == "none":
        return moved(op, t, indices, updates)
    places = _forward_places(op, "gather_elements", t.shape, indices, axis=op["axis"])
    return reduced(op, op["reduction"], t, places, updates)


@exact("scatter_reduce", "grouped_scatter_reduce")
def scatter_reduce(op: Exact, data: Numbers, indices: Array, initial: Numbers | None = None) -> Value:
    if op["reduction"] == "none":
        return moved(op, data, indices, initial)
    if initial is None and op["reduction"] != "sum":
        raise UnsupportedError("extremes without initial values")
    groups = op["group_size"] or 1
    attributes = {"axis": op["axis"], "shape": list(data.shape), "last_only": False, "group_size": groups}
    places = _forward_places(op, "take_along", op.shape, indices, **attributes)
    return reduced(op, op["reduction"], op.full(0) if initial is None else initial, places, data)


@exact("sparse_accumulate_")
def sparse_accumulate(
    op: Exact, t: Numbers, x: Numbers, indices: Array, f: Numbers | None = None, w: Numbers | None = None
) -> Numbers:
    del w
    places = _forward_places(op, "gather", t.shape, indices, axis=op["axis"])
    return reduced(op, "sum", t, places, x * scalar(op, "f", f, 1))


def _is_on(op: Exact, t: Array, shape: tuple[int, ...]) -> Array:
    """1 where an element of a result of onehot is of the class of its index, else 0."""
    axis = op["axis"] % len(shape)
    classes = np.arange(shape[axis]).reshape([-1 if d == axis else 1 for d in range(len(shape))])
    on: Array = np.expand_dims(t, axis) == classes
    return on.astype(np.int64)


@exact("onehot")
def onehot(op: Exact, t: Array, _: Array, values: Value) -> Value:
    on = _is_on(op, t, op.shape)
    return values.at(on) if isinstance(values, Numbers) else values[on]


@exact("onehot_grad")
def onehot_grad(op: Exact, dy: Numbers, t: Array) -> Numbers:
    return reduced(op, "sum", op.full(0), _is_on(op, t, dy.shape), dy)
