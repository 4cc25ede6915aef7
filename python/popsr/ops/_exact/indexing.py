"""Gathers and scatters that are more than moves."""

from __future__ import annotations

import numpy as np

from popsr._fields import Array, Numbers
from popsr.ops._exact.elementwise import larger, smaller
from popsr.ops._exact.moves import moved
from popsr.ops._exact.registry import Exact, Value, exact

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
    rules = {"mul": lambda _, a, b: a * b, "min": smaller, "max": larger}
    combine = rules[reduction]
    inside = np.flatnonzero(at >= 0)
    order = inside[np.argsort(at[inside], kind="stable")]
    while len(order):  # one update of each element at a time
        first = np.concatenate([[True], at[order][1:] != at[order][:-1]])
        now, order = order[first], order[~first]
        flat = flat.with_rows(at[now], combine(op, flat.at_rows(at[now]), values.at_rows(now)))
    return flat.reshape(t.shape)
