"""Primitives that move elements: reshapes, slices, concatenation, broadcasts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from popsr import ops
from popsr._program.tensor import Tensor
from popsr.bridge.jax._rules.table import Equation, NotSupportedError, Result, rule

__all__ = ["broadcast", "moved", "padded", "reshaped", "strided"]


@rule("reshape", "squeeze")
def _reshape(equation: Equation, a: Tensor) -> Result:
    if equation.params.get("dimensions") is not None and equation.primitive == "reshape":
        a = ops.transpose(a, tuple(equation.params["dimensions"]))
    return reshaped(a, equation.shape)


def reshaped(a: Tensor, shape: tuple[int, ...]) -> Tensor:
    """``reshape`` where it changes something."""
    return a if a.shape == shape else ops.reshape(a, shape)


@rule("transpose")
def _transpose(equation: Equation, a: Tensor) -> Result:
    permutation = tuple(equation.params["permutation"])
    if equation.key_operands[0]:
        permutation = (*permutation, len(permutation))
    return moved(a, permutation)


def moved(a: Tensor, permutation: tuple[int, ...]) -> Tensor:
    """``transpose`` where it changes something."""
    return a if permutation == tuple(range(a.rank)) else ops.transpose(a, permutation)


@rule("broadcast_in_dim")
def _broadcast_in_dim(equation: Equation, a: Tensor) -> Result:
    where = tuple(equation.params["broadcast_dimensions"])
    if equation.key_operands[0]:
        where = (*where, len(equation.shape) - 1)
    middle = [1] * len(equation.shape)
    for axis, dimension in enumerate(where):
        middle[dimension] = a.shape[axis]
    return broadcast(a, tuple(middle), equation.shape)


def broadcast(a: Tensor, middle: tuple[int, ...], shape: tuple[int, ...]) -> Tensor:
    """A tensor reshaped to ``middle``, then repeated where that is 1 and the shape is not."""
    if a.shape != middle:
        a = ops.reshape(a, middle)
    if middle == shape:
        return a
    return ops.expand(a, shape)


@rule("iota")
def _iota(equation: Equation) -> Result:
    """Too large to be folded."""
    shape, dimension = equation.shape, equation.params["dimension"]
    middle = tuple(extent if axis == dimension else 1 for axis, extent in enumerate(shape))
    line = equation.constant(np.arange(shape[dimension]).reshape(middle).astype(equation.results[0].dtype))
    return broadcast(line, middle, shape)


@rule("slice")
def _slice(equation: Equation, a: Tensor) -> Result:
    starts, stops = list(equation.params["start_indices"]), list(equation.params["limit_indices"])
    steps = list(equation.params["strides"] or [1] * len(starts))
    if equation.key_operands[0]:
        starts, stops, steps = [*starts, 0], [*stops, a.shape[-1]], [*steps, 1]
    return strided(a, starts, stops, steps)


def strided(a: Tensor, starts: list[int], stops: list[int], steps: list[int]) -> Tensor:
    """``slice`` along the dimensions where it leaves something out."""
    cut = [
        axis
        for axis, (start, stop, step) in enumerate(zip(starts, stops, steps, strict=True))
        if (start, stop, step) != (0, a.shape[axis], 1)
    ]
    if not cut:
        return a
    return ops.slice(
        a, [int(starts[i]) for i in cut], [int(stops[i]) for i in cut], [int(steps[i]) for i in cut], cut
    )


@rule("concatenate", raw=True)
def _concatenate(equation: Equation) -> Result:
    parts = [
        equation.importer.tensor(value)
        for value, aval in zip(equation.values, equation.operands, strict=True)
        if aval.size
    ]
    return parts[0] if len(parts) == 1 else ops.concat(parts, int(equation.params["dimension"]))


@rule("split")
def _split(equation: Equation, a: Tensor) -> Result:
    sizes = [int(size) for size in equation.params["sizes"]]
    if 0 in sizes:
        raise NotSupportedError("an empty part")
    return ops.split(a, sizes, int(equation.params["axis"]))


@rule("unstack")
def _unstack(equation: Equation, a: Tensor) -> Result:
    axis = int(equation.params["axis"])
    parts = ops.split(a, [1] * a.shape[axis], axis) if a.shape[axis] > 1 else [a]
    return [ops.reshape(part, aval.shape) for part, aval in zip(parts, equation.results, strict=True)]


@rule("stack")
def _stack(equation: Equation, *parts: Tensor) -> Result:
    axis = int(equation.params["axis"])
    shape = (*equation.shape[:axis], 1, *equation.shape[axis + 1 :])
    rows = [ops.reshape(part, shape) for part in parts]
    return rows[0] if len(rows) == 1 else ops.concat(rows, axis)


@rule("tile")
def _tile(equation: Equation, a: Tensor) -> Result:
    repeats = tuple(equation.params["reps"])
    lead = (1,) * (len(repeats) - a.rank) + a.shape
    middle = tuple(extent for size in lead for extent in (1, size))
    wide = tuple(extent for times, size in zip(repeats, lead, strict=True) for extent in (times, size))
    return ops.reshape(broadcast(a, middle, wide), equation.shape)


@rule("rev")
def _rev(equation: Equation, a: Tensor) -> Result:
    return ops.reverse(a, [int(axis) for axis in equation.params["dimensions"]])


@rule("pad")
def _pad(equation: Equation, a: Tensor, value: Tensor) -> Result:
    edges = [(int(low), int(high)) for low, high, _ in equation.params["padding_config"]]
    return padded(a, value, edges, [int(gap) + 1 for _, _, gap in equation.params["padding_config"]])


def padded(
    a: Tensor, value: Tensor, edges: Sequence[tuple[int, int]], dilation: Sequence[int] | None = None
) -> Tensor:
    """A tensor with ``value`` at its edges, cut where they are negative, and between elements where it is dilated."""
    low, high = zip(*edges, strict=True)
    between = [0] * a.rank if dilation is None else [int(step) - 1 for step in dilation]
    if not any((*low, *high, *between)):
        return a
    return ops.pad(a, low, high, between, value=value)
