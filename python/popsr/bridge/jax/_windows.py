"""Windows that slide over dimensions: a slice for each place of the window."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from popsr import dtypes, ops
from popsr.bridge.jax._rules import Equation, NotSupportedError, Result, rule
from popsr.bridge.jax._shape import padded, strided
from popsr.tensor import Tensor

__all__ = ["window_slices"]


def window_slices(
    a: Tensor,
    window: Sequence[int],
    strides: Sequence[int],
    dilation: Sequence[int] | None,
    shape: Sequence[int],
) -> Iterator[Tensor]:
    """For each place of the window, in ascending order, what it sees at all positions."""
    steps = [1] * len(window) if dilation is None else [int(step) for step in dilation]
    for place in _places(window):
        starts = [index * step for index, step in zip(place, steps, strict=True)]
        stops = [
            start + (extent - 1) * int(stride) + 1
            for start, extent, stride in zip(starts, shape, strides, strict=True)
        ]
        yield strided(a, starts, stops, [int(stride) for stride in strides])


def _places(window: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Places of a window, in ascending order."""
    return itertools.product(*(range(int(extent)) for extent in window))


@rule("reduce_window_sum", "reduce_window_max", "reduce_window_min")
def _window(equation: Equation, a: Tensor) -> Result:
    """One strided slice for each place of the window, folded in order."""
    params = equation.params
    kind = equation.primitive.removeprefix("reduce_window_")
    wide = padded(a, neutral(equation, a.dtype, kind), _edges(params["padding"]), params["base_dilation"])
    slices = _slices(equation, wide, equation.shape, params.get("window_dilation"))
    total = next(slices)
    for part in slices:
        total = STEPS[kind](total, part)
    return total


def _edges(padding: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    return [(int(before), int(after)) for before, after in padding]


def _slices(
    equation: Equation, a: Tensor, shape: Sequence[int], dilation: Sequence[int] | None = None
) -> Iterator[Tensor]:
    params = equation.params
    return window_slices(a, params["window_dimensions"], params["window_strides"], dilation, shape)


def _selected(equation: Equation, operand: Tensor, shape: Sequence[int]) -> tuple[Tensor, list[Tensor]]:
    """The padded operand, and for each place of the window where its element is the first that is selected."""
    name = equation.params["select_prim"].name
    kind = {"ge": "max", "le": "min"}.get(name)
    if kind is None:
        raise NotSupportedError(f"a selection by {name}")
    wide = padded(operand, neutral(equation, operand.dtype, kind), _edges(equation.params["padding"]))
    slices = [*_slices(equation, wide, shape)]
    best = slices[0]
    for part in slices[1:]:
        best = STEPS[kind](best, part)
    free, chosen = None, []
    for part in slices:
        here = ops.equal(part, best)
        chosen.append(here if free is None else ops.logical_and(here, free))
        free = ops.logical_not(here) if free is None else ops.logical_and(free, ops.logical_not(here))
    return wide, chosen


@rule("select_and_scatter_add")
def _select_and_scatter_add(equation: Equation, source: Tensor, operand: Tensor) -> Result:
    """The gradient of a maximum pool: each window gives its element of the source to the first greatest one."""
    params = equation.params
    wide, chosen = _selected(equation, operand, source.shape)
    zero = equation.constant(0, source.dtype)
    total = None
    for place, here in zip(_places(params["window_dimensions"]), chosen, strict=True):
        part = ops.where(here, source, zero)
        spread = [(e - 1) * int(s) + 1 for e, s in zip(source.shape, params["window_strides"], strict=True)]
        edges = [
            (at, whole - at - extent) for at, whole, extent in zip(place, wide.shape, spread, strict=True)
        ]
        part = padded(part, zero, edges, params["window_strides"])
        total = part if total is None else ops.add(total, part)
    assert total is not None
    return padded(total, zero, [(-before, -after) for before, after in _edges(params["padding"])])


@rule("select_and_gather_add")
def _select_and_gather_add(equation: Equation, tangents: Tensor, operand: Tensor) -> Result:
    """The derivative of a maximum pool: for each window the tangent of the first greatest element."""
    params = equation.params
    if any(int(step) != 1 for step in (*params["base_dilation"], *params["window_dilation"])):
        raise NotSupportedError("dilation")
    zero = equation.constant(0, tangents.dtype)
    _, chosen = _selected(equation, operand, equation.shape)
    wide = padded(tangents, zero, _edges(params["padding"]))
    total = None
    for here, part in zip(chosen, _slices(equation, wide, equation.shape), strict=True):
        part = ops.where(here, part, zero)
        total = part if total is None else ops.add(total, part)
    assert total is not None
    return total


STEPS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sum": ops.add,
    "max": ops.maximum,
    "min": ops.minimum,
}


def neutral(equation: Equation, dtype: dtypes.dtype, kind: str) -> Tensor:
    """The value that changes nothing in a sum, maximum or minimum."""
    if kind == "sum":
        return equation.constant(0, dtype)
    if dtype.is_floating_point:
        return equation.constant(-np.inf if kind == "max" else np.inf, dtype)
    limits = np.iinfo(dtype.as_numpy())
    return equation.constant(limits.min if kind == "max" else limits.max, dtype)
