"""Windows that slide over dimensions, and the derivatives of maximum pools."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import numpy as np

from popsr import dtypes, ops
from popsr._program.tensor import Tensor
from popsr.bridge.jax._rules.shape import padded, strided
from popsr.bridge.jax._rules.table import Equation, NotSupportedError, Result, rule

__all__: list[str] = []

Extreme = Literal["max", "min"]


def _ints(numbers: Sequence[int]) -> list[int]:
    return [int(number) for number in numbers]


def _edges(equation: Equation) -> list[tuple[int, int]]:
    return [(int(before), int(after)) for before, after in equation.params["padding"]]


@rule("reduce_window_sum", "reduce_window_max", "reduce_window_min")
def _window(equation: Equation, a: Tensor) -> Result:
    return _windows(equation, a, equation.primitive.removeprefix("reduce_window_"))


def _windows(equation: Equation, a: Tensor, reduction: str) -> Tensor:
    params = equation.params
    low, high = zip(*_edges(equation), strict=True)
    return ops.reduce_window(
        a,
        _ints(params["window_dimensions"]),
        strides=_ints(params["window_strides"]),
        low=low,
        high=high,
        base_dilation=_ints(params["base_dilation"]),
        window_dilation=_ints(params["window_dilation"]),
        reduction=reduction,  # type: ignore[arg-type]
    )


_MONOIDS: dict[str, tuple[str, Callable[[Tensor, Tensor], Tensor]]] = {
    "add": ("sum", ops.add),
    "max": ("max", ops.maximum),
    "min": ("min", ops.minimum),
}


@rule("reduce_window")
def _window_from(equation: Equation, a: Tensor, start: Tensor) -> Result:
    """A sum or extreme with a start; as XLA on CPUs, which leaves out the padding."""
    body = equation.params["jaxpr"]
    equations = getattr(body, "jaxpr", body).eqns
    name = equations[0].primitive.name if len(equations) == 1 else "a function"
    if name not in _MONOIDS:
        raise NotSupportedError(f"by {name}")
    kind, op = _MONOIDS[name]
    return op(_windows(equation, a, kind), start)


def _places(equation: Equation) -> Iterator[tuple[int, ...]]:
    """Places of a window, in ascending order."""
    return itertools.product(*(range(extent) for extent in _ints(equation.params["window_dimensions"])))


def _slices(equation: Equation, a: Tensor, shape: Sequence[int]) -> Iterator[Tensor]:
    """For each place of the window the elements that it meets at all positions."""
    strides = _ints(equation.params["window_strides"])
    for place in _places(equation):
        stops = [
            start + (extent - 1) * stride + 1
            for start, extent, stride in zip(place, shape, strides, strict=True)
        ]
        yield strided(a, [*place], stops, strides)


def _selected(equation: Equation, operand: Tensor, shape: Sequence[int]) -> tuple[Tensor, list[Tensor]]:
    """The padded operand, and for each place of the window whether its element is the first that is selected."""
    kinds: dict[str, Extreme] = {"ge": "max", "le": "min"}
    kind = kinds.get(equation.params["select_prim"].name)
    if kind is None:
        raise NotSupportedError(f"a selection by {equation.params['select_prim'].name}")
    wide = padded(operand, _weakest(equation, operand.dtype, kind), _edges(equation))
    window, strides = (_ints(equation.params[name]) for name in ("window_dimensions", "window_strides"))
    best = ops.reduce_window(wide, window, strides=strides, reduction=kind)
    free: Tensor | None = None
    chosen = []
    for part in _slices(equation, wide, shape):
        here = ops.equal(part, best)
        chosen.append(here if free is None else ops.logical_and(here, free))
        other = ops.logical_not(here)
        free = other if free is None else ops.logical_and(free, other)
    return wide, chosen


@rule("select_and_scatter_add")
def _select_and_scatter_add(equation: Equation, source: Tensor, operand: Tensor) -> Result:
    """The gradient of a maximum pool: each window gives its element of the source to the first greatest one."""
    strides = _ints(equation.params["window_strides"])
    wide, chosen = _selected(equation, operand, source.shape)
    zero = equation.constant(0, source.dtype)
    total: Tensor | None = None
    for place, here in zip(_places(equation), chosen, strict=True):
        part = ops.where(here, source, zero)
        spread = [(extent - 1) * stride + 1 for extent, stride in zip(source.shape, strides, strict=True)]
        edges = [
            (at, whole - at - extent) for at, whole, extent in zip(place, wide.shape, spread, strict=True)
        ]
        part = padded(part, zero, edges, strides)
        total = part if total is None else ops.add(total, part)
    assert total is not None
    return padded(total, zero, [(-before, -after) for before, after in _edges(equation)])


@rule("select_and_gather_add")
def _select_and_gather_add(equation: Equation, tangents: Tensor, operand: Tensor) -> Result:
    """The derivative of a maximum pool: for each window the tangent of the first greatest element."""
    params = equation.params
    if any(step != 1 for step in _ints([*params["base_dilation"], *params["window_dilation"]])):
        raise NotSupportedError("dilation")
    zero = equation.constant(0, tangents.dtype)
    _, chosen = _selected(equation, operand, equation.shape)
    wide = padded(tangents, zero, _edges(equation))
    total: Tensor | None = None
    for here, part in zip(chosen, _slices(equation, wide, equation.shape), strict=True):
        taken = ops.where(here, part, zero)
        total = taken if total is None else ops.add(total, taken)
    assert total is not None
    return total


def _weakest(equation: Equation, dtype: dtypes.dtype, kind: Extreme) -> Tensor:
    """The value that is never selected."""
    if dtype.is_floating_point:
        return equation.constant(-np.inf if kind == "max" else np.inf, dtype)
    limits = np.iinfo(dtype.as_numpy())
    return equation.constant(limits.min if kind == "max" else limits.max, dtype)
