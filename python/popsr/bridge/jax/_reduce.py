"""Reductions, scans along an axis, windows."""

from __future__ import annotations

from collections.abc import Callable

from popsr import dtypes, ops
from popsr.bridge.jax._elementwise import least, op_named
from popsr.bridge.jax._rules import Equation, NotSupportedError, Result, rule
from popsr.bridge.jax._shape import reversed_along
from popsr.tensor import Tensor

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


@rule("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp")
def _cumulative(equation: Equation, a: Tensor) -> Result:
    """Sums by the op; others by doubling, which takes a step for each bit of the extent."""
    axis, reverse = int(equation.params["axis"]), bool(equation.params["reverse"])
    if equation.primitive == "cumsum" and not reverse:
        return ops.cumsum(a, axis)
    if equation.primitive == "cumsum":
        return reversed_along(ops.cumsum(reversed_along(a, [axis]), axis), [axis])
    return _doubled(a, axis, reverse, _STEPS[equation.primitive])


def _log_add(a: Tensor, b: Tensor) -> Tensor:
    high = ops.maximum(a, b)
    return ops.add(high, op_named("log1p")(ops.exp(ops.negate(ops.abs(ops.sub(a, b))))))


_STEPS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cumprod": ops.mul,
    "cummax": ops.maximum,
    "cummin": least,
    "cumlogsumexp": _log_add,
}


def _doubled(a: Tensor, axis: int, reverse: bool, step: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
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


@rule("reduce")
def _reduce_by(equation: Equation, a: Tensor, start: Tensor, *more: Tensor) -> Result:
    """By a function that is one primitive."""
    inner = getattr(equation.params["jaxpr"], "jaxpr", equation.params["jaxpr"])
    name = inner.eqns[0].primitive.name if len(inner.eqns) == 1 else ""
    kinds: dict[str, tuple[Reduction, Reduction]] = {
        "add": (ops.sum, ops.add),
        "mul": (ops.prod, ops.mul),
        "max": (ops.max, ops.maximum),
        "min": (ops.min, least),
    }
    if more or name not in kinds or {*map(id, inner.eqns[0].invars)} != {*map(id, inner.invars)}:
        raise NotSupportedError("a function that is not one sum, product, maximum or minimum")
    whole, step = kinds[name]
    axes = [int(axis) for axis in equation.params["dimensions"]]
    return step(start, whole(a, axes) if axes else a)
