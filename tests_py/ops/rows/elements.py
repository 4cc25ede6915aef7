"""Rows of the table of ops for single elements at indices and quantised numbers, and their oracles: loops, NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import popsr
from tests_py.ops.rows.inputs import Case, Draw, Row, normal, positive, together
from tests_py.support.helpers import ALL_DTYPES, FLOATS, INTS, NUMBERS, Array

_ONE = ("float32",)

# Elements at indices


def _between(low: int, high: int, *shape: int) -> Draw:
    return lambda rng, name: [rng.integers(max(low, np.iinfo(name).min), high, shape).astype(name)]


def gather_elements(t: Array, indices: Array, axis: int = 0) -> Array:
    """Element by element."""
    result = np.zeros(indices.shape, t.dtype)
    for at in np.ndindex(indices.shape):
        from_ = list(at)
        from_[axis] = int(indices[at])
        result[at] = t[tuple(from_)]
    return result


_FOLDS: dict[str, Callable[[Any, Any], Any]] = {
    "none": lambda a, b: b,
    "sum": np.add,
    "mul": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
}


def scatter_elements(
    t: Array, indices: Array, updates: Array, axis: int = 0, reduction: str = "none"
) -> Array:
    """Element by element, in order."""
    result = t.copy()
    for at in np.ndindex(indices.shape):
        to = list(at)
        to[axis] = int(indices[at])
        with np.errstate(over="ignore"):
            result[tuple(to)] = _FOLDS[reduction](result[tuple(to)], updates[at])
    return result


_SHAPES: dict[str, tuple[tuple[int, ...], tuple[int, ...], int]] = {
    "": ((5, 3), (4, 3), 0),
    "last": ((3, 6), (3, 4), -1),
    "middle": ((2, 4, 3), (2, 9, 3), 1),
    "part": ((3, 5, 4, 2), (2, 3, 3, 2), 1),
    "merged": ((2, 5, 3, 4), (2, 3, 3, 4), 1),
    "vector": ((7,), (11,), 0),
}


def _gathers() -> list[Case]:
    def case(label: str, t: tuple[int, ...], at: tuple[int, ...], axis: int, index: str = "int64") -> Case:
        draw = together(normal(t), (_between(-t[axis], max(t[axis], 1), *at), index))
        attrs = {"axis": axis}
        smooth = 0 not in at
        return Case(draw, gather_elements, attrs, label, ALL_DTYPES, smooth=smooth)

    signed = [name for name in INTS if name.startswith("int")]
    return [
        *(case(label, *shapes) for label, shapes in _SHAPES.items()),
        *(case(f"by-{name}", (5, 3), (4, 3), 0, name) for name in signed),
        case("no-index", (5, 3), (0, 3), 0),
        Case(
            together(normal((9, 2)), (_between(0, 9, 4, 2), "uint8")), gather_elements, {}, "unsigned", _ONE
        ),
    ]


def _scatters() -> list[Case]:
    def case(label: str, t: tuple[int, ...], at: tuple[int, ...], axis: int, reduction: str) -> Case:
        draw = together(normal(t), (_between(-t[axis], t[axis], *at), "int32"), normal(at))
        attrs = {"axis": axis, "reduction": reduction}
        smooth = reduction != "mul" and 0 not in at
        return Case(draw, scatter_elements, attrs, label, NUMBERS, smooth=smooth)

    cases = [
        case(f"{label}-{reduction}".strip("-"), *shapes, reduction)
        for label, shapes in _SHAPES.items()
        for reduction in _FOLDS
    ]
    return [*cases, case("nothing", (5, 3), (0, 3), 0, "sum")]


# Quantised numbers


def _spread(t: Array, parameter: Array, axis: int, block: int) -> Array:
    """A parameter for each element."""
    if block:
        return np.take(parameter, np.arange(t.shape[axis]) // block, axis)
    if parameter.shape in ((), (1,)):
        return np.broadcast_to(parameter.reshape(()), t.shape)
    shape = [-1 if i == axis % t.ndim else 1 for i in range(t.ndim)]
    return np.broadcast_to(parameter.reshape(shape), t.shape)


def quantize_linear(
    t: Array,
    scale: Array,
    zero_point: Array | None = None,
    data_type: str = "uint8",
    axis: int = 1,
    block_size: int = 0,
) -> Array:
    """Of one number after another, as arrays."""
    info = np.iinfo(data_type)
    with np.errstate(all="ignore"):
        quotient = t / _spread(t, scale, axis, block_size)
    moved = np.rint(np.clip(quotient, -1e6, 1e6)).astype(np.float64)
    if zero_point is not None:
        moved = moved + _spread(t, zero_point, axis, block_size)
    whole = np.clip(moved, info.min, info.max)
    return np.where(np.isnan(whole), 0, whole).astype(data_type)


def dequantize_linear(
    t: Array, scale: Array, zero_point: Array | None = None, axis: int = 1, block_size: int = 0
) -> Array:
    """In the type of the scales."""
    centred = t.astype(scale.dtype)
    if zero_point is not None:
        centred = centred - _spread(t, zero_point, axis, block_size).astype(scale.dtype)
    return np.asarray(centred * _spread(t, scale, axis, block_size))


# Shapes of the operand and of its scales, and attributes.
_LAYOUTS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, int]]] = {
    "": ((3, 4, 5), (), {}),
    "one": ((3, 4), (1,), {}),
    "axis": ((3, 4, 5), (4,), {}),
    "axis-last": ((3, 4, 5), (5,), {"axis": -1}),
    "axis-first": ((3, 4), (3,), {"axis": 0}),
    "block": ((3, 7, 5), (3, 3, 5), {"axis": 1, "block_size": 3}),
    "block-last": ((3, 8), (3, 3), {"block_size": 3}),
    "long": ((2, 3, 5000), (3,), {}),
    "many": ((90001,), (), {"axis": 0}),
    "empty": ((0, 4), (4,), {}),
}
_KINDS = ("int8", "uint8", "int16", "uint16")


def _numbers(shape: tuple[int, ...]) -> Draw:
    """Some far beyond the range, ties, infinities and NaN."""

    def draw(rng: np.random.Generator, name: str) -> list[Array]:
        t = normal(shape, scale=100.0)(rng, name)[0]
        flat = t.reshape(-1)
        for i, value in enumerate((np.inf, -np.inf, np.nan, 1.5, 2.5, -0.5)[: flat.size // 2]):
            flat[i * 2] = value
        return [t]

    return draw


def _quantized() -> Row:
    def case(label: str, kind: str, zero: bool, dtypes: tuple[str, ...]) -> Case:
        shape, scale, attrs = _LAYOUTS[label]
        parts: list[Any] = [_numbers(shape), positive(scale)]
        if zero:
            parts.append((normal(scale), kind))
        given = {"data_type": kind, **attrs}
        name = f"{label}-{kind}-{zero}".strip("-")
        return Case(together(*parts), quantize_linear, given, name, dtypes)

    return Row(
        (
            *(case(label, "uint8", True, FLOATS) for label in _LAYOUTS),
            *(case("axis", kind, zero, _ONE) for kind in _KINDS for zero in (True, False)),
        ),
        "stops",
        defaults={"data_type": popsr.uint8},
    )


def _dequantized() -> Row:
    def case(label: str, zero: bool, kind: str, dtypes: tuple[str, ...]) -> Case:
        shape, scale, attrs = _LAYOUTS[label]
        parts: list[Any] = [normal(shape), (positive(scale), kind)]
        if zero:
            parts.append(normal(scale))
        name = f"{label}-{kind}-{zero}".strip("-")
        return Case(together(*parts), dequantize_linear, attrs, name, dtypes)

    return Row(
        (
            *(case(label, True, kind, ("int8",)) for label in _LAYOUTS for kind in FLOATS),
            *(case("axis", zero, "float32", (*_KINDS, "int32")) for zero in (True, False)),
        ),
        "stops",
    )


def matmul_integer(
    lhs: Array, rhs: Array, lhs_zero: Array | None = None, rhs_zero: Array | None = None
) -> Array:
    """Sums in integers of 64 bits, of which the lower half stays."""
    a, b = (t.astype(np.int64) for t in (lhs, rhs))
    if lhs_zero is not None:
        a = a - lhs_zero.astype(np.int64).reshape(())
    if rhs_zero is not None:
        b = b - rhs_zero.astype(np.int64)
    return np.asarray(np.matmul(a, b)).astype(np.int32)


def _byte_products() -> Row:
    bytes_ = ("int8", "uint8")
    shapes: dict[str, list[tuple[int, ...]]] = {
        "": [(3, 4), (4, 5)],
        "zeros": [(3, 4), (4, 5), (), ()],
        "columns": [(7, 6), (6, 5), (1,), (5,)],
        "batch": [(2, 3, 4), (4, 5), ()],
        "batches": [(2, 3, 4), (2, 4, 5), (), (5,)],
        "vectors": [(40,), (40,), (), (1,)],
        "tiles": [(37, 530), (530, 70), (), (70,)],
        "empty": [(3, 0), (0, 2)],
    }
    cases = [Case(normal(*each), matmul_integer, {}, label, bytes_) for label, each in shapes.items()]
    mixed = together(normal((9, 33)), (normal((33, 20)), "int8"), normal(()), (normal((20,)), "int8"))
    return Row((*cases, Case(mixed, matmul_integer, {}, "signs", bytes_)), "nothing")


def element_rows() -> dict[str, Row]:
    """Rows by op."""
    return {
        "gather_elements": Row(tuple(_gathers()), "finite"),
        "scatter_elements": Row(tuple(_scatters()), "finite"),
        "quantize_linear": _quantized(),
        "dequantize_linear": _dequantized(),
        "matmul_integer": _byte_products(),
    }
