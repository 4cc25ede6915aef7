"""Reductions, scans along an axis, windows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from popsr import dtypes, ops
from popsr.bridge.jax.elementwise import least, op_named
from popsr.bridge.jax.rules import Equation, NotSupportedError, Result, rule
from popsr.bridge.jax.shape import padded
from popsr.bridge.jax.windows import window_slices
from popsr.tensor import Tensor

__all__: list[str] = []

_REDUCTIONS: dict[str, Callable[..., Tensor]] = {
    "reduce_sum": ops.sum,
    "reduce_max": ops.max,
    "reduce_min": ops.min,
    "reduce_prod": ops.prod,
}


@rule(*_REDUCTIONS)
def _reduce(equation: Equation, a: Tensor) -> Result:
    axes = [int(axis) for axis in equation.params["axes"]]
    return _REDUCTIONS[equation.primitive](a, axes) if axes else a


@rule("reduce_or", "reduce_and")
def _reduce_logical(equation: Equation, a: Tensor) -> Result:
    axes = [int(axis) for axis in equation.params["axes"]]
    if a.dtype != dtypes.bool:
        raise NotSupportedError(a.dtype.name)
    if not axes:
        return a
    kind = ops.max if equation.primitive == "reduce_or" else ops.min
    return ops.cast(kind(ops.cast(a, dtypes.uint8), axes), dtypes.bool)


@rule("argmax", "argmin")
def _arg(equation: Equation, a: Tensor) -> Result:
    (axis,) = equation.params["axes"]
    if a.dtype == dtypes.bool:
        a = ops.cast(a, dtypes.uint8)
    kind = ops.argmax if equation.primitive == "argmax" else ops.argmin
    return ops.cast(kind(a, int(axis)), equation.dtype)


@rule("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp")
def _cumulative(equation: Equation, a: Tensor) -> Result:
    """Sums by the op; others by doubling, which takes a step for each bit of the extent."""
    axis, reverse = int(equation.params["axis"]), bool(equation.params["reverse"])
    if equation.primitive == "cumsum" and not reverse:
        return ops.cumsum(a, axis)
    if equation.primitive == "cumsum":
        flip = op_named("reverse")
        return flip(ops.cumsum(flip(a, (axis,)), axis), (axis,))
    return _doubled(equation, a, axis, reverse, _STEPS[equation.primitive])


def _log_add(a: Tensor, b: Tensor) -> Tensor:
    high = ops.maximum(a, b)
    return ops.add(high, op_named("log1p")(ops.exp(ops.negate(ops.abs(ops.sub(a, b))))))


_STEPS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cumprod": ops.mul,
    "cummax": ops.maximum,
    "cummin": least,
    "cumlogsumexp": _log_add,
}


def _doubled(
    equation: Equation, a: Tensor, axis: int, reverse: bool, step: Callable[[Tensor, Tensor], Tensor]
) -> Tensor:
    extent, distance = a.shape[axis], 1
    while distance < extent:
        first, last = (0, extent - distance), (distance, extent)
        if reverse:
            kept = ops.slice(a, extent - distance, extent, 1, axis)
            a = ops.concat([step(ops.slice(a, *first, 1, axis), ops.slice(a, *last, 1, axis)), kept], axis)
        else:
            kept = ops.slice(a, 0, distance, 1, axis)
            a = ops.concat([kept, step(ops.slice(a, *last, 1, axis), ops.slice(a, *first, 1, axis))], axis)
        distance *= 2
    return a


@rule("reduce_window_sum", "reduce_window_max", "reduce_window_min")
def _window(equation: Equation, a: Tensor) -> Result:
    """One strided slice for each place of the window, folded in order."""
    params = equation.params
    kind = equation.primitive.removeprefix("reduce_window_")
    step: Callable[[Tensor, Tensor], Tensor] = {"sum": ops.add, "max": ops.maximum, "min": least}[kind]
    edges = [(int(before), int(after)) for before, after in params["padding"]]
    wide = padded(a, neutral(equation, a.dtype, kind), edges, params.get("base_dilation"))
    slices = window_slices(
        wide,
        params["window_dimensions"],
        params["window_strides"],
        params.get("window_dilation"),
        equation.shape,
    )
    total = next(slices)
    for part in slices:
        total = step(total, part)
    return total


def neutral(equation: Equation, dtype: dtypes.dtype, kind: str) -> Tensor:
    """The value that changes nothing in a sum, maximum or minimum."""
    if kind == "sum":
        return equation.constant(0, dtype)
    if dtype.is_floating_point:
        return equation.constant(-np.inf if kind == "max" else np.inf, dtype)
    limits = np.iinfo(dtype.as_numpy())
    return equation.constant(limits.min if kind == "max" else limits.max, dtype)
