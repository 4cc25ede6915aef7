"""Values that are known while a step is read: literals, and what integer arithmetic and data movement make of them.

Indices, masks, trip counts and the bounds of loops become constants here. Only operations whose result is exact are
folded, so that a folded step has the bits of one that computes them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from popsr.bridge.jax._rules.table import Equation

__all__ = ["FOLDS", "MAX_FOLDED", "Fold"]

MAX_FOLDED = 1 << 18
"""Elements of the greatest result that is folded."""

Array = NDArray[Any]
Fold = Callable[..., Array | list[Array] | None]


def _exact(function: Callable[..., Any]) -> Fold:
    """Of integers and bools; floats are left to ops."""

    def fold(_equation: Equation, *values: Array) -> Array | None:
        if any(value.dtype.kind not in "iub" for value in values):
            return None
        with np.errstate(over="ignore"):
            return np.asarray(function(*values))

    return fold


def _quotient(_equation: Equation, a: Array, b: Array) -> Array | None:
    """Towards zero; not by zero."""
    if a.dtype.kind not in "iu" or not b.all():
        return None
    quotient = a // b
    if a.dtype.kind == "i":
        quotient = quotient + ((a % b != 0) & ((a < 0) != (b < 0)))
    return quotient


def _remainder(_equation: Equation, a: Array, b: Array) -> Array | None:
    return np.fmod(a, b) if a.dtype.kind in "iu" and b.all() else None


def _shift(kinds: str, function: Callable[..., Any]) -> Fold:
    """A shift of integers of these kinds by fewer bits than they have."""

    def fold(_equation: Equation, a: Array, by: Array) -> Array | None:
        if a.dtype.kind not in kinds or ((by < 0) | (by >= 8 * a.dtype.itemsize)).any():
            return None
        return np.asarray(function(a, by))

    return fold


def _broadcast_in_dim(equation: Equation, value: Array) -> Array:
    shape, where = equation.shape, equation.params["broadcast_dimensions"]
    middle = [1] * len(shape)
    for axis, dimension in enumerate(where):
        middle[dimension] = value.shape[axis]
    return np.broadcast_to(value.reshape(middle), shape)


def _iota(equation: Equation) -> Array:
    shape, dimension = equation.shape, equation.params["dimension"]
    count = np.arange(shape[dimension]).reshape(
        [-1 if axis == dimension else 1 for axis in range(len(shape))]
    )
    return np.broadcast_to(count, shape).astype(equation.results[0].dtype)


def _converted(equation: Equation, value: Array) -> Array | None:
    """Between integers, and of small ones to floats."""
    to = equation.results[0].dtype
    if value.dtype.kind == "b" or (value.dtype.kind in "iu" and to.kind in "iu"):
        return value.astype(to)
    if value.dtype.kind in "iu" and to.kind == "f" and (abs(value.astype(np.int64)) <= 2048).all():
        return value.astype(to)
    return None


def _slice(equation: Equation, value: Array) -> Array:
    starts, stops, steps = (equation.params[name] for name in ("start_indices", "limit_indices", "strides"))
    steps = steps or (1,) * len(starts)
    return value[tuple(map(slice, starts, stops, steps))]


def _select(equation: Equation, which: Array, *cases: Array) -> Array:
    index = np.broadcast_to(which.astype(np.int64), equation.shape)
    return np.choose(index, [np.broadcast_to(case, equation.shape) for case in cases])


FOLDS: dict[str, Fold] = {
    "abs": _exact(np.abs),
    "add": _exact(np.add),
    "sub": _exact(np.subtract),
    "mul": _exact(np.multiply),
    "div": _quotient,
    "rem": _remainder,
    "neg": _exact(lambda a: np.zeros_like(a) - a),
    "max": _exact(np.maximum),
    "min": _exact(np.minimum),
    "and": _exact(np.bitwise_and),
    "or": _exact(np.bitwise_or),
    "xor": _exact(np.bitwise_xor),
    "not": _exact(np.invert),
    "sign": _exact(np.sign),
    "shift_left": _shift("iu", np.left_shift),
    "shift_right_arithmetic": _shift("i", np.right_shift),
    "shift_right_logical": _shift("u", np.right_shift),
    "eq": _exact(np.equal),
    "ne": _exact(np.not_equal),
    "lt": _exact(np.less),
    "le": _exact(np.less_equal),
    "gt": _exact(np.greater),
    "ge": _exact(np.greater_equal),
    "clamp": _exact(lambda low, a, high: np.minimum(np.maximum(a, low), high)),
    "select_n": _select,
    "convert_element_type": _converted,
    "broadcast_in_dim": _broadcast_in_dim,
    "iota": _iota,
    "reshape": lambda equation, value: value.reshape(equation.shape),
    "squeeze": lambda equation, value: value.reshape(equation.shape),
    "transpose": lambda equation, value: value.transpose(equation.params["permutation"]),
    "slice": _slice,
    "concatenate": lambda equation, *values: np.concatenate(values, equation.params["dimension"]),
    "copy": lambda _, value: value,
    "stop_gradient": lambda _, value: value,
    "pvary": lambda _, *values: list(values),
}
"""By name of the primitive; None where it is not exact."""
