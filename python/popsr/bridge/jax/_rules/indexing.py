"""Gathers, scatters and slices at indices that are computed; sorting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from popsr import dtypes, ops
from popsr._program.tensor import Tensor
from popsr.bridge.jax._rules.shape import strided
from popsr.bridge.jax._rules.table import Equation, NotSupportedError, Result, Value, rule

__all__: list[str] = []


def _ints(axes: Sequence[Any]) -> tuple[int, ...]:
    return tuple(int(axis) for axis in axes)


def _mode(equation: Equation) -> str:
    """Name of the mode of indices that are out of range."""
    mode = equation.params["mode"]
    return str(getattr(mode, "name", mode))


@rule("gather")
def _gather(equation: Equation, a: Tensor, indices: Tensor) -> Result:
    """Windows at corners; a key of random bits is a window of its words."""
    numbers, sizes = equation.params["dimension_numbers"], _ints(equation.params["slice_sizes"])
    offset_dims = _ints(numbers.offset_dims)
    if equation.key_operands[0]:
        sizes, offset_dims = (*sizes, a.shape[-1]), (*offset_dims, len(equation.shape) - 1)
    fills = _mode(equation) == "FILL_OR_DROP"
    return ops.gather_general(
        a,
        indices,
        slice_sizes=sizes,
        offset_dims=offset_dims,
        index_map=_ints(numbers.start_index_map),
        collapsed_dims=_ints(numbers.collapsed_slice_dims),
        operand_batching_dims=_ints(numbers.operand_batching_dims),
        indices_batching_dims=_ints(numbers.start_indices_batching_dims),
        mode="fill" if fills else "clip",
        fill_value=_fill(equation, a) if fills else 0.0,
    )


def _fill(equation: Equation, a: Tensor) -> float:
    """The value of elements out of range: the one given, else NaN, the least integer or the greatest unsigned."""
    value = equation.params["fill_value"]
    if value is not None:
        return float(value)
    if a.dtype.is_floating_point:
        return float("nan")
    if a.dtype == dtypes.bool:
        return 1.0
    limits = np.iinfo(a.dtype.as_numpy())
    return float(limits.min if limits.min else limits.max)


_REDUCTIONS = {
    "scatter": "none",
    "scatter-add": "sum",
    "scatter-sub": "sum",
    "scatter-mul": "mul",
    "scatter-max": "max",
    "scatter-min": "min",
}


@rule(*_REDUCTIONS)
def _scatter(equation: Equation, a: Tensor, indices: Tensor, updates: Tensor) -> Result:
    """Windows into corners, in ascending order."""
    numbers, name = equation.params["dimension_numbers"], equation.primitive
    if name == "scatter" and not _takes_the_update(equation):
        raise NotSupportedError("a function of its own")
    return ops.scatter_general(
        a,
        indices,
        ops.negate(updates) if name == "scatter-sub" else updates,
        offset_dims=_ints(numbers.update_window_dims),
        index_map=_ints(numbers.scatter_dims_to_operand_dims),
        collapsed_dims=_ints(numbers.inserted_window_dims),
        operand_batching_dims=_ints(numbers.operand_batching_dims),
        indices_batching_dims=_ints(numbers.scatter_indices_batching_dims),
        reduction=_REDUCTIONS[name],  # type: ignore[arg-type]
        mode="clip" if _mode(equation) == "CLIP" else "drop",
    )


def _takes_the_update(equation: Equation) -> bool:
    """True if the function of a scatter returns its second argument."""
    jaxpr = equation.params.get("update_jaxpr")
    if jaxpr is None:
        return True
    jaxpr = getattr(jaxpr, "jaxpr", jaxpr)
    return not jaxpr.eqns and jaxpr.outvars[0] is jaxpr.invars[1]


# Slices


@rule("dynamic_slice", raw=True)
def _dynamic_slice(equation: Equation) -> Result:
    a = equation.importer.tensor(equation.values[0])
    sizes = [*map(int, equation.params["slice_sizes"])]
    starts = equation.values[1:]
    if equation.key_operands[0]:
        sizes, starts = [*sizes, a.shape[-1]], (*starts, np.int32(0))
    room = [extent - size for extent, size in zip(a.shape, sizes, strict=True)]
    fixed = [
        axis
        for axis, start in enumerate(starts)
        if isinstance(start, (np.ndarray, np.generic)) or not room[axis]
    ]
    at = {axis: min(max(int(starts[axis]), 0), room[axis]) if room[axis] else 0 for axis in fixed}
    a = strided(
        a,
        [at.get(axis, 0) for axis in range(a.rank)],
        [at[axis] + sizes[axis] if axis in at else a.shape[axis] for axis in range(a.rank)],
        [1] * a.rank,
    )
    axes = [axis for axis in range(a.rank) if axis not in at]
    if not axes:
        return a
    offsets = _offsets(equation, [starts[axis] for axis in axes], [room[axis] for axis in axes])
    return ops.dynamic_slice(a, offsets, axes, [sizes[axis] for axis in axes], True)


@rule("dynamic_update_slice", raw=True)
def _dynamic_update_slice(equation: Equation) -> Result:
    a, update = (equation.importer.tensor(value) for value in equation.values[:2])
    starts = equation.values[2:]
    if equation.key_operands[0]:
        starts = (*starts, np.int32(0))
    room = [extent - size for extent, size in zip(a.shape, update.shape, strict=True)]
    axes = [axis for axis in range(a.rank) if room[axis]]
    if not axes:
        return update
    offsets = _offsets(equation, [starts[axis] for axis in axes], [room[axis] for axis in axes])
    return ops.dynamic_update(a, offsets, update, axes, [update.shape[axis] for axis in axes], True)


def _offsets(equation: Equation, starts: Sequence[Value], room: Sequence[int]) -> Tensor:
    """Starts as a vector of int32, moved to where the slice fits."""
    tensors = []
    for start in starts:
        t = equation.importer.tensor(np.asarray(start) if isinstance(start, np.generic) else start)
        t = t if t.dtype == dtypes.int32 else ops.cast(t, dtypes.int32)
        tensors.append(ops.reshape(t, (1,)))
    vector = tensors[0] if len(tensors) == 1 else ops.concat(tensors, 0)
    low, high = (
        equation.constant(np.asarray(bound, np.int32), dtypes.int32)
        for bound in ([0] * len(room), list(room))
    )
    return ops.minimum(ops.maximum(vector, low), high)


# Order


@rule("top_k")
def _top_k(equation: Equation, a: Tensor) -> Result:
    axis = int(equation.params.get("axis", a.rank - 1))
    values, indices = ops.topk(a, int(equation.params["k"]), axis, True, True)
    return [values, ops.cast(indices, dtypes.int32)]


@rule("sort")
def _sort(equation: Equation, *operands: Tensor) -> Result:
    axis, keys = int(equation.params["dimension"]), int(equation.params["num_keys"])
    return list(ops.sort(*operands, axis=axis, num_keys=keys))
