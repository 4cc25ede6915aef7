"""Reductions, scans along an axis, windows."""

from __future__ import annotations

from collections.abc import Callable

from popsr import dtypes, ops
from popsr._program.tensor import Tensor
from popsr.bridge.jax._rules.table import Equation, NotSupportedError, Result, rule

__all__: list[str] = []

Reduction = Callable[..., Tensor]

_REDUCTIONS: dict[str, Reduction] = {
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


_SCANS: dict[str, Reduction] = {
    "cumsum": ops.cumsum,
    "cumprod": ops.cumprod,
    "cummax": ops.cummax,
    "cummin": ops.cummin,
}


@rule(*_SCANS)
def _cumulative(equation: Equation, a: Tensor) -> Result:
    axis, scan = int(equation.params["axis"]), _SCANS[equation.primitive]
    if equation.params["reverse"]:
        return ops.reverse(scan(ops.reverse(a, (axis,)), axis), (axis,))
    return scan(a, axis)


@rule("cumlogsumexp")
def _cumulative_log(equation: Equation, a: Tensor) -> Result:
    """By doubling the distance that is added, which takes a step for each bit of the extent."""
    axis, reverse = int(equation.params["axis"]), bool(equation.params["reverse"])
    a = ops.reverse(a, (axis,)) if reverse else a
    distance = 1
    while distance < a.shape[axis]:
        kept = ops.slice(a, 0, distance, 1, axis)
        before, here = ops.slice(a, 0, -distance, 1, axis), ops.slice(a, distance, None, 1, axis)
        a = ops.concat([kept, _log_add(before, here)], axis)
        distance *= 2
    return ops.reverse(a, (axis,)) if reverse else a


def _log_add(a: Tensor, b: Tensor) -> Tensor:
    gap = ops.negate(ops.abs(ops.sub(a, b)))
    return ops.add(ops.maximum(a, b), ops.log1p(ops.exp(gap)))


@rule("reduce")
def _reduce_by(equation: Equation, a: Tensor, start: Tensor, *more: Tensor) -> Result:
    """By a function that is one primitive."""
    inner = getattr(equation.params["jaxpr"], "jaxpr", equation.params["jaxpr"])
    name = inner.eqns[0].primitive.name if len(inner.eqns) == 1 else ""
    kinds: dict[str, tuple[Reduction, Reduction]] = {
        "add": (ops.sum, ops.add),
        "mul": (ops.prod, ops.mul),
        "max": (ops.max, ops.maximum),
        "min": (ops.min, ops.minimum),
    }
    if more or name not in kinds or {*map(id, inner.eqns[0].invars)} != {*map(id, inner.invars)}:
        raise NotSupportedError("a function that is not one sum, product, maximum or minimum")
    whole, step = kinds[name]
    axes = [int(axis) for axis in equation.params["dimensions"]]
    return step(start, whole(a, axes) if axes else a)
