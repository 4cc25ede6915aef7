"""Reductions and scans over axes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from popsr import dtypes, ops
from popsr._program.tensor import Tensor
from popsr.bridge.onnx._folding import axes_operand
from popsr.bridge.onnx._node import Node, Value, cast, is_float
from popsr.bridge.onnx._rules import add_rule, axis_in, rule
from popsr.bridge.onnx._tensors import counting, expanded, reshaped

__all__ = ["of_rows", "over_axes"]

Function = Callable[[Tensor, tuple[int, ...], bool], Tensor]


def _as_numbers(function: Function) -> Function:
    """Of bool as of integers 0 and 1."""

    def reduce(t: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
        if t.dtype != dtypes.bool:
            return function(t, axes, keep)
        return cast(function(cast(t, dtypes.uint8), axes, keep), dtypes.bool)

    return reduce


_REDUCTIONS: dict[str, Function] = {
    "ReduceL1": ops.l1,
    "ReduceL2": ops.l2,
    "ReduceLogSum": ops.logsum,
    "ReduceLogSumExp": ops.logsumexp,
    "ReduceMax": _as_numbers(ops.max),
    "ReduceMean": ops.mean,
    "ReduceMin": _as_numbers(ops.min),
    "ReduceProd": ops.prod,
    "ReduceSum": ops.sum,
    "ReduceSumSquare": ops.sumsquare,
}

_OF_FLOATS = frozenset({"ReduceL2", "ReduceLogSum", "ReduceLogSumExp"})
_EMPTY = {"ReduceMax": -np.inf, "ReduceMin": np.inf}


def over_axes(node: Node, t: Tensor, axes: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """The axes of a reduction; None where it leaves the operand as it is."""
    if not axes:
        return None if node.integer("noop_with_empty_axes", 0) else tuple(range(t.rank))
    return tuple(axis_in(axis, t.rank) for axis in axes)


def _reduction(name: str, function: Function) -> Callable[..., Tensor]:
    def reduce(node: Node, value: Value, axes: Value = None) -> Tensor:
        t = node.tensor(value)
        given = axes_operand(node, None if axes is None else node.known(axes, "axes"))
        along = over_axes(node, t, given)
        if along is None:
            return _single(name, t)
        keep = bool(node.integer("keepdims", 1))
        if not t.nelms and name in _EMPTY:
            return _extreme_of_none(node, name, t, along, keep)
        if name in _OF_FLOATS and not is_float(t.dtype):
            return cast(function(cast(t, dtypes.float64), along, keep), t.dtype)
        return function(t, along, keep)

    return reduce


def _single(name: str, t: Tensor) -> Tensor:
    """Without axes each element is reduced alone."""
    if name in ("ReduceL1", "ReduceL2"):
        return ops.abs(t)
    if name == "ReduceSumSquare":
        return ops.square(t)
    return ops.log(t) if name == "ReduceLogSum" else t


def _extreme_of_none(node: Node, name: str, t: Tensor, along: tuple[int, ...], keep: bool) -> Tensor:
    """The identity of the reduction where there are no elements."""
    shape = tuple(
        1 if axis in along else extent for axis, extent in enumerate(t.shape) if keep or axis not in along
    )
    kind = t.dtype.as_numpy()
    if is_float(t.dtype):
        value = _EMPTY[name]
    elif kind.kind == "b":
        value = float(name == "ReduceMin")
    else:
        value = np.iinfo(kind).min if name == "ReduceMax" else np.iinfo(kind).max
    return expanded(node.like(value, t), shape)


for _name, _function in _REDUCTIONS.items():
    add_rule(_name, _reduction(_name, _function), 1, "raw", module=__name__)


# Scans


@rule("CumSum", since=11, kind="raw")
def _cumsum(node: Node, value: Value, axis: Value) -> Tensor:
    return _scan(node, value, axis, ops.cumsum, 0)


@rule("CumProd", since=26, kind="raw")
def _cumprod(node: Node, value: Value, axis: Value) -> Tensor:
    return _scan(node, value, axis, ops.cumprod, 1)


def _scan(
    node: Node, value: Value, axis: Value, function: Callable[[Tensor, int], Tensor], neutral: int
) -> Tensor:
    t = node.tensor(value)
    along = axis_in(node.known_int(axis, "axis"), t.rank)
    back = bool(node.integer("reverse", 0))
    t = ops.reverse(t, [along]) if back else t
    if node.integer("exclusive", 0):
        low = [int(i == along) for i in range(t.rank)]
        high = [-n for n in low]
        t = ops.pad(t, low, high, value=node.like(neutral, t))
    made = function(t, along)
    return ops.reverse(made, [along]) if back else made


# Normalised rows


@rule("Softmax", since=13)
def _softmax(node: Node, t: Tensor) -> Tensor:
    return ops.softmax(t, node.integer("axis", -1))


@rule("LogSoftmax", since=13)
def _log_softmax(node: Node, t: Tensor) -> Tensor:
    return ops.log_softmax(t, node.integer("axis", -1))


@rule("Softmax", since=1)
def _softmax_1(node: Node, t: Tensor) -> Tensor:
    return of_rows(node, t, ops.softmax)


@rule("LogSoftmax", since=1)
def _log_softmax_1(node: Node, t: Tensor) -> Tensor:
    return of_rows(node, t, ops.log_softmax)


def of_rows(node: Node, t: Tensor, function: Callable[[Tensor, int], Tensor], default: int = 1) -> Tensor:
    """A function of rows as before opset 13: over all axes from one on."""
    axis = node.axis("axis", t.rank, default)
    count = int(np.prod(t.shape[axis:], dtype=np.int64))
    rows = reshaped(t, (t.nelms // max(count, 1), count))
    return reshaped(function(rows, 1), t.shape)


@rule("Hardmax", since=13)
def _hardmax(node: Node, t: Tensor) -> Tensor:
    axis = node.axis("axis", t.rank, -1)
    return _first_greatest(node, t, axis)


@rule("Hardmax", since=1)
def _hardmax_1(node: Node, t: Tensor) -> Tensor:
    return of_rows(node, t, lambda rows, axis: _first_greatest(node, rows, axis))


def _first_greatest(node: Node, t: Tensor, axis: int) -> Tensor:
    line = counting(t.shape[axis]).reshape([-1 if i == axis else 1 for i in range(t.rank)])
    found = cast(ops.argmax(t, axis, True), dtypes.int64)
    return cast(ops.equal(found, node.constant(line, dtypes.int64)), t.dtype)
