"""Gathers, scatters and slices at indices that are computed; sorting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from popsr import dtypes, ops
from popsr.bridge.jax._elementwise import least
from popsr.bridge.jax._rules import Equation, NotSupportedError, Result, Value, rule
from popsr.bridge.jax._shape import broadcast, moved, strided
from popsr.tensor import Tensor

__all__: list[str] = []


@dataclass(frozen=True, slots=True)
class _Windows:
    """Windows of an array at computed places, in the words of gather.

    Attributes:
        shape: of the array.
        sizes: of a window, one along each dimension of the array.
        mapped: the dimension of the array that each component of an index is about.
        removed: dimensions of the array that a window does not have.
        batching: pairs of a dimension of the array and one of the indices that run together.
        window_axes: dimensions of the windows' elements that are of the window.
        rank: number of dimensions of the windows' elements together.
    """

    shape: tuple[int, ...]
    sizes: tuple[int, ...]
    mapped: tuple[int, ...]
    removed: tuple[int, ...]
    batching: tuple[tuple[int, int], ...]
    window_axes: tuple[int, ...]
    rank: int

    @property
    def strides(self) -> list[int]:
        """Distance in the flat array between neighbours along each dimension."""
        return [int(np.prod(self.shape[axis + 1 :], dtype=np.int64)) for axis in range(len(self.shape))]

    @property
    def rows(self) -> int | None:
        """The one dimension whose whole slices windows are."""
        if len(self.mapped) != 1 or self.batching or self.removed != self.mapped:
            return None
        whole = all(
            size == extent
            for axis, (size, extent) in enumerate(zip(self.sizes, self.shape, strict=True))
            if axis != self.mapped[0]
        )
        return self.mapped[0] if whole and self.sizes[self.mapped[0]] == 1 else None

    @property
    def batch_axes(self) -> list[int]:
        """Dimensions of the windows' elements that are of the indices."""
        return [axis for axis in range(self.rank) if axis not in self.window_axes]


def _components(indices: Tensor, windows: _Windows) -> list[Tensor]:
    """The components of an index, as int32."""
    if indices.dtype != dtypes.int32:
        indices = ops.cast(indices, dtypes.int32)
    lead = indices.shape[:-1]
    count = len(windows.mapped)
    parts = [indices] if count == 1 else ops.split(indices, [1] * count, indices.rank - 1) if count else []
    return [ops.reshape(part, lead) for part in parts]


def _clamped(
    equation: Equation, starts: list[Tensor], windows: _Windows
) -> tuple[list[Tensor], Tensor | None]:
    """Starts moved to where windows fit, and where they did already; None when that is everywhere for sure."""
    inside: Tensor | None = None
    moved_starts = []
    for start, axis in zip(starts, windows.mapped, strict=True):
        low = equation.constant(0, dtypes.int32)
        high = equation.constant(windows.shape[axis] - windows.sizes[axis], dtypes.int32)
        clamped = least(ops.maximum(start, low), high)
        fits = ops.equal(start, clamped)
        inside = fits if inside is None else ops.logical_and(inside, fits)
        moved_starts.append(clamped)
    return moved_starts, inside


def _positions(equation: Equation, starts: list[Tensor], windows: _Windows, lead: tuple[int, ...]) -> Tensor:
    """For each element of each window its place in the flat array."""
    if np.prod(windows.shape, dtype=np.int64) >= 2**31:
        raise NotSupportedError("an array of 2^31 elements")
    base: Tensor = equation.constant(_batch_offsets(windows, lead).astype(np.int32), dtypes.int32)
    for start, axis in zip(starts, windows.mapped, strict=True):
        step = equation.constant(windows.strides[axis], dtypes.int32)
        base = ops.add(base, ops.mul(start, step))
    where = [1] * windows.rank
    for axis, extent in zip(windows.batch_axes, lead, strict=True):
        where[axis] = extent
    offsets = _window_offsets(windows).astype(np.int32)
    return ops.add(ops.reshape(base, tuple(where)), equation.constant(offsets, dtypes.int32))


def _batch_offsets(windows: _Windows, lead: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """The part of a position that is the index's own place."""
    total = np.zeros(lead, np.int64)
    for axis, of_indices in windows.batching:
        shape = [-1 if each == of_indices else 1 for each in range(len(lead))]
        total = total + (np.arange(lead[of_indices]) * windows.strides[axis]).reshape(shape)
    return total


def _window_offsets(windows: _Windows) -> np.ndarray[Any, Any]:
    """The part of a position that is the place in the window, in the dimensions of the windows' elements."""
    gone = {*windows.removed, *(axis for axis, _ in windows.batching)}
    kept = [axis for axis in range(len(windows.shape)) if axis not in gone]
    total = np.zeros([1] * windows.rank, np.int64)
    for axis, place in zip(kept, windows.window_axes, strict=True):
        shape = [-1 if each == place else 1 for each in range(windows.rank)]
        total = total + (np.arange(windows.sizes[axis]) * windows.strides[axis]).reshape(shape)
    return total


@rule("gather")
def _gather(equation: Equation, a: Tensor, indices: Tensor) -> Result:
    """Elements of the flat array; whole rows where windows are that."""
    numbers = equation.params["dimension_numbers"]
    key = equation.key_operands[0]
    shape = equation.shape
    windows = _Windows(
        a.shape,
        (*map(int, equation.params["slice_sizes"]), *((a.shape[-1],) if key else ())),
        tuple(map(int, numbers.start_index_map)),
        tuple(map(int, numbers.collapsed_slice_dims)),
        tuple(
            (int(axis), int(of_indices))
            for axis, of_indices in zip(
                numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True
            )
        ),
        (*map(int, numbers.offset_dims), *((len(shape) - 1,) if key else ())),
        len(shape),
    )
    lead = indices.shape[:-1]
    starts, inside = _clamped(equation, _components(indices, windows), windows)
    if (axis := windows.rows) is not None:
        found = _rows(ops.gather(a, starts[0], axis), windows, axis, len(lead))
    else:
        positions = _positions(equation, starts, windows, lead)
        found = ops.gather(ops.reshape(a, (a.nelms,)), positions, 0)
    mode = str(getattr(equation.params["mode"], "name", equation.params["mode"]))
    if mode != "FILL_OR_DROP" or inside is None:
        return found
    where = [1] * len(shape)
    for place, extent in zip(windows.batch_axes, lead, strict=True):
        where[place] = extent
    return ops.where(ops.reshape(inside, tuple(where)), found, _fill(equation, a))


def _rows(found: Tensor, windows: _Windows, axis: int, batches: int) -> Tensor:
    """Dimensions in the order of the result; ``ops.gather`` leaves those of the indices where the axis was."""
    source: list[int] = [0] * found.rank
    for number, place in enumerate(windows.batch_axes):
        source[place] = axis + number
    kept = [place for place in range(found.rank) if not axis <= place < axis + batches]
    for number, place in enumerate(windows.window_axes):
        source[place] = kept[number]
    return moved(found, tuple(source))


def _fill(equation: Equation, a: Tensor) -> Tensor:
    """The value of elements out of range: the one given, else NaN, the least integer or the greatest unsigned."""
    value = equation.params["fill_value"]
    if value is None:
        if a.dtype.is_floating_point:
            value = np.nan
        elif a.dtype == dtypes.bool:
            value = True
        else:
            limits = np.iinfo(a.dtype.as_numpy())
            value = limits.min if limits.min else limits.max
    return equation.constant(value, a.dtype)


_REDUCTIONS = {
    "scatter-add": "sum",
    "scatter-sub": "sum",
    "scatter-mul": "mul",
    "scatter-max": "max",
    "scatter-min": "min",
}


@rule("scatter", *_REDUCTIONS)
def _scatter(equation: Equation, a: Tensor, indices: Tensor, updates: Tensor) -> Result:
    """Into the flat array with one place more, which takes what is out of range."""
    numbers = equation.params["dimension_numbers"]
    removed = tuple(map(int, numbers.inserted_window_dims))
    batching = tuple(
        (int(axis), int(of_indices))
        for axis, of_indices in zip(
            numbers.operand_batching_dims, numbers.scatter_indices_batching_dims, strict=True
        )
    )
    window_axes = tuple(map(int, numbers.update_window_dims))
    gone = {*removed, *(axis for axis, _ in batching)}
    extents = iter(updates.shape[axis] for axis in window_axes)
    sizes = tuple(1 if axis in gone else next(extents) for axis in range(a.rank))
    mapped = tuple(map(int, numbers.scatter_dims_to_operand_dims))
    windows = _Windows(a.shape, sizes, mapped, removed, batching, window_axes, updates.rank)
    lead = indices.shape[:-1]
    starts, inside = _clamped(equation, _components(indices, windows), windows)
    mode = str(getattr(equation.params["mode"], "name", equation.params["mode"]))
    if mode == "CLIP":
        inside = None
    if windows.rows == 0 and windows.window_axes == tuple(range(len(lead), updates.rank)):
        at, beyond = starts[0], equation.constant(a.shape[0], dtypes.int32)
        at = at if inside is None else ops.where(inside, at, beyond)
        return _scattered(equation, a, at, ops.reshape(updates, (at.nelms, *a.shape[1:])))
    positions = _positions(equation, starts, windows, lead)
    if inside is not None:
        where = [1] * updates.rank
        for place, extent in zip(windows.batch_axes, lead, strict=True):
            where[place] = extent
        outside = equation.constant(a.nelms, dtypes.int32)
        positions = ops.where(ops.reshape(inside, tuple(where)), positions, outside)
    if positions.shape != updates.shape:
        positions = broadcast(positions, positions.shape, updates.shape)
    flat = _scattered(equation, ops.reshape(a, (a.nelms,)), positions, ops.reshape(updates, (updates.nelms,)))
    return ops.reshape(flat, a.shape)


def _scattered(equation: Equation, a: Tensor, at: Tensor, values: Tensor) -> Tensor:
    """Rows after updates, in ascending order; the row after the last is dropped."""
    if equation.primitive == "scatter" and not _takes_the_update(equation):
        raise NotSupportedError("a function of its own")
    reduction = {**_REDUCTIONS, "scatter": "none"}[equation.primitive]
    if reduction == "mul" or (a.dtype == dtypes.bool and reduction != "none"):
        raise NotSupportedError(a.dtype.name)
    if a.dtype == dtypes.bool:
        wide = _scattered(equation, ops.cast(a, dtypes.uint8), at, ops.cast(values, dtypes.uint8))
        return ops.cast(wide, dtypes.bool)
    if equation.primitive == "scatter-sub":
        values = ops.negate(values)
    rows = a.shape[0]
    spare = equation.constant(np.zeros((1, *a.shape[1:])), a.dtype)
    result = ops.scatter_reduce(
        values,
        ops.reshape(at, (at.nelms,)),
        reduction,  # type: ignore[arg-type]
        initial_values=ops.concat([a, spare], 0),
        axis=0,
        axis_size=rows + 1,
    )
    return ops.slice(result, 0, rows, 1, 0)


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
    return least(ops.maximum(vector, low), high)


# Order


@rule("top_k")
def _top_k(equation: Equation, a: Tensor) -> Result:
    axis = int(equation.params.get("axis", a.rank - 1))
    values, indices = ops.topk(a, int(equation.params["k"]), axis, True, True)
    return [values, ops.cast(indices, dtypes.int32)]


@rule("sort")
def _sort(equation: Equation, *operands: Tensor) -> Result:
    """By the last key first, each time stable, so that the first key decides at the end."""
    axis, keys = int(equation.params["dimension"]), int(equation.params["num_keys"])
    found = list(operands)
    for number in reversed(range(keys)):
        key = found[number]
        if key.dtype == dtypes.bool:
            key = ops.cast(key, dtypes.uint8)
        _, order = ops.topk(key, key.shape[axis], axis, False, True)
        found = [_along(equation, each, order, axis) for each in found]
    return found


def _along(equation: Equation, a: Tensor, order: Tensor, axis: int) -> Tensor:
    """``numpy.take_along_axis``."""
    stride = int(np.prod(a.shape[axis + 1 :], dtype=np.int64))
    places = np.arange(a.nelms, dtype=np.int64).reshape(a.shape)
    places = places - (places // stride) % a.shape[axis] * stride
    offset = equation.constant(places.astype(np.int32), dtypes.int32)
    at = ops.add(ops.mul(order, equation.constant(stride, dtypes.int32)), offset)
    return ops.gather(ops.reshape(a, (a.nelms,)), at, 0)
