"""Rows of the table of ops for windows at indices, sorts, padding and running extremes, with their oracles."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

import popsr
from tests_py.ops.rows.inputs import Case, Draw, Row, normal, small, special, together
from tests_py.support.helpers import ALL_DTYPES, FLOATS, NUMBERS, NUMBERS_AND_BOOL, Array

# Windows at corners: gather_general, scatter_general


def _windows(tensor: Array, indices: Array, sizes: tuple[int, ...], inside: bool, **dims: Any) -> Any:
    """Batch index and slices of each window, in order; None for slices that are not in the tensor."""
    for g in np.ndindex(*indices.shape[:-1]):
        corner = [0] * tensor.ndim
        for k, axis in enumerate(dims["index_map"]):
            corner[axis] = int(indices[g][k])
        for axis, of in zip(
            dims.get("operand_batching_dims", ()), dims.get("indices_batching_dims", ()), strict=True
        ):
            corner[axis] = g[of]
        most = [n - size for n, size in zip(tensor.shape, sizes, strict=True)]
        if inside:
            corner = [min(max(c, 0), m) for c, m in zip(corner, most, strict=True)]
        fits = all(0 <= c <= m for c, m in zip(corner, most, strict=True))
        yield g, tuple(slice(c, c + n) for c, n in zip(corner, sizes, strict=True)) if fits else None


def _left_out(dims: dict[str, Any]) -> tuple[int, ...]:
    return (*dims.get("collapsed_dims", ()), *dims.get("operand_batching_dims", ()))


def _place(g: tuple[int, ...], rank: int, offset_dims: tuple[int, ...]) -> tuple[Any, ...]:
    """Index of a window among the windows."""
    coordinates = iter(g)
    return tuple(slice(None) if d in offset_dims else next(coordinates) for d in range(rank))


def gather_general(
    t: Array,
    indices: Array,
    slice_sizes: tuple[int, ...],
    mode: str = "clip",
    fill_value: float = 0.0,
    **dims: Any,
) -> Array:
    """As XLA defines it, window by window."""
    left_out, offset_dims = _left_out(dims), dims["offset_dims"]
    window = [size for d, size in enumerate(slice_sizes) if d not in left_out]
    extents, batch = iter(window), iter(indices.shape[:-1])
    rank = indices.ndim - 1 + len(window)
    shape = [next(extents) if d in offset_dims else next(batch) for d in range(rank)]
    result = np.full(shape, fill_value).astype(t.dtype)
    for g, at in _windows(t, indices, slice_sizes, mode == "clip", **dims):
        if at is not None:
            result[_place(g, rank, offset_dims)] = t[at].reshape(window)
    return result


_REDUCTIONS: dict[str, Callable[..., Any]] = {
    "sum": np.add,
    "mul": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "none": lambda _, new: new,
}


def scatter_general(
    t: Array, indices: Array, updates: Array, reduction: str = "sum", mode: str = "drop", **dims: Any
) -> Array:
    """As XLA defines it, window by window, in order."""
    left_out, offset_dims = _left_out(dims), dims["offset_dims"]
    extents = iter([updates.shape[d] for d in offset_dims])
    sizes = tuple(1 if d in left_out else next(extents) for d in range(t.ndim))
    result = t.copy()
    for g, at in _windows(t, indices, sizes, mode == "clip", **dims):
        if at is not None:
            new = updates[_place(g, updates.ndim, offset_dims)].reshape(sizes)
            result[at] = _REDUCTIONS[reduction](result[at], new)
    return result


def _corners(low: int, high: int, *shape: int) -> Draw:
    return lambda rng, name: [rng.integers(low, high, shape).astype(name)]


# Shapes of the tensor, the indices and a window's sizes, the range of the indices, and the axes.
_LAYOUTS: dict[
    str, tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, int], dict[str, Any]]
] = {
    "rows": (
        (5, 3),
        (4, 1),
        (1, 3),
        (0, 5),
        {"offset_dims": (1,), "index_map": (0,), "collapsed_dims": (0,)},
    ),
    "elements": (
        (4, 3),
        (9, 2),
        (1, 1),
        (0, 3),
        {"offset_dims": (), "index_map": (0, 1), "collapsed_dims": (0, 1)},
    ),
    "windows": ((6, 7), (2, 3, 2), (2, 3), (-3, 9), {"offset_dims": (1, 3), "index_map": (1, 0)}),
    "batching": (
        (4, 5, 3),
        (2, 4, 1),
        (1, 2, 3),
        (0, 4),
        {
            "offset_dims": (0, 3),
            "index_map": (1,),
            "operand_batching_dims": (0,),
            "indices_batching_dims": (1,),
        },
    ),
    "one": ((5, 6), (2,), (2, 2), (-1, 6), {"offset_dims": (0, 1), "index_map": (0, 1)}),
    "empty": (
        (5, 3),
        (0, 1),
        (1, 3),
        (0, 5),
        {"offset_dims": (1,), "index_map": (0,), "collapsed_dims": (0,)},
    ),
}


def _gather_general() -> Row:
    cases = []
    for (label, (t, at, sizes, ends, dims)), mode in itertools.product(_LAYOUTS.items(), ("clip", "fill")):
        attrs = {"slice_sizes": sizes, "mode": mode, **dims}
        if mode == "fill" and label != "windows":
            attrs["fill_value"] = 3.5
        draw = together(normal(t), (_corners(*ends, *at), "int32" if mode == "clip" else "int64"))
        smooth = label != "empty" and (label, mode) != ("one", "fill")  # that one lies outside
        cases.append(Case(draw, gather_general, attrs, f"{label}-{mode}", NUMBERS_AND_BOOL, smooth=smooth))
    t, at, sizes, ends, dims = _LAYOUTS["rows"]
    attrs = {"slice_sizes": sizes, "mode": "check", **dims}
    draw = together(normal(t), (_corners(*ends, *at), "uint8"))
    return Row((*cases, Case(draw, gather_general, attrs, "check")), "finite")


def _windows_shape(at: tuple[int, ...], sizes: tuple[int, ...], dims: dict[str, Any]) -> tuple[int, ...]:
    nothing = gather_general(
        np.zeros(np.add(sizes, 9)),
        np.zeros(at, int),
        sizes,
        mode="fill",
        **{
            **dims,
            "operand_batching_dims": (),
            "indices_batching_dims": (),
            "collapsed_dims": tuple(sorted(_left_out(dims))),
        },
    )
    return nothing.shape


def _scatter_general() -> Row:
    cases = []
    for (label, (t, at, sizes, ends, dims)), reduction in itertools.product(_LAYOUTS.items(), _REDUCTIONS):
        updates = _windows_shape(at, sizes, dims)
        mode = "clip" if label in ("windows", "rows") else "drop"
        kind = NUMBERS if reduction in ("sum", "mul") else NUMBERS_AND_BOOL
        draw = together(normal(t), (_corners(*ends, *at), "int32"), normal(updates))
        smooth = label != "empty" and reduction != "mul"
        attrs = {"reduction": reduction, "mode": mode, **dims}
        cases.append(Case(draw, scatter_general, attrs, f"{label}-{reduction}", kind, smooth=smooth))
    return Row(tuple(cases), "finite")


# Sort


def sort(*ts: Array, axis: int = -1, num_keys: int = 1, descending: bool = False) -> tuple[Array, ...]:
    """NumPy's stable lexicographic sort, row by row."""
    rows = [np.moveaxis(t, axis, -1) for t in ts]
    results = [np.empty_like(row) for row in rows]
    for at in np.ndindex(*rows[0].shape[:-1]):
        keys = [row[at][::-1] if descending else row[at] for row in reversed(rows[:num_keys])]
        order = np.lexsort(keys)
        order = len(order) - 1 - order[::-1] if descending else order
        for row, result in zip(rows, results, strict=True):
            result[at] = row[at][order]
    return tuple(np.moveaxis(result, -1, axis) for result in results)


_KEYS = np.array([[2.0, 1.0, 1.0, 5.0, 0.0], [1.0, 2.0, 3.0, 4.0, 5.0], [3.0, 3.0, 3.0, -1.0, 2.0]])


def _moved(t: Array) -> Array:
    return sort(_KEYS, t)[1]


def _move(fn: Callable[..., Any], t: popsr.Tensor) -> Any:
    return fn(popsr.constant(_KEYS, popsr.float64), t)[1]


def _sort() -> Row:
    three = together(small((4, 30)), (small((4, 30)), "int8"), (normal((4, 30)), "float16"))

    def case(draw: Draw, label: str, dtypes: tuple[str, ...] = NUMBERS_AND_BOOL, **options: Any) -> Case:
        smooth = options.pop("smooth", False)
        return Case(draw, sort, options, label, dtypes, smooth=smooth)

    return Row(
        (
            case(normal((3, 7)), "", smooth=True),
            case(normal((7, 2, 3)), "first", axis=0),
            case(normal((3, 7)), "down", descending=True, smooth=True),
            case(three, "key"),
            case(three, "keys", num_keys=2),
            case(three, "keys-down", num_keys=3, descending=True),
            case(special(1), "special"),
            case(special(1), "special-down", descending=True),
            case(normal((2, 0)), "empty"),
            case(normal((3, 5), (3, 5)), "together", FLOATS, axis=0),
            Case(normal((3, 5)), _moved, {}, "moved", ("float64",), call=_move, smooth=True),
        ),
        "finite",
    )


# Pad


def pad(t: Array, value: Array, low: Any, high: Any, interior: Any = None) -> Array:
    """Element by element."""
    between = interior or (0,) * t.ndim
    shape = [a + n + max(n - 1, 0) * i + b for a, n, i, b in zip(low, t.shape, between, high, strict=True)]
    result = np.full(shape, value, t.dtype)
    for at in np.ndindex(*t.shape):
        to = tuple(a + k * (i + 1) for a, k, i in zip(low, at, between, strict=True))
        if all(0 <= k < n for k, n in zip(to, shape, strict=True)):
            result[to] = t[at]
    return result


def _padded(fn: Callable[..., Any], t: popsr.Tensor, value: popsr.Tensor, **attrs: Any) -> Any:
    return fn(t, value=value, **attrs)


def _pad() -> Row:
    layouts: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
        "": ((3, 4), {"low": (1, 0), "high": (2, 3)}),
        "interior": ((3, 4), {"low": (0, 2), "high": (1, 0), "interior": (2, 1)}),
        "cut": ((5, 6), {"low": (-1, 2), "high": (-2, -3)}),
        "cut-between": ((5, 4), {"low": (-2, -1), "high": (-3, -4), "interior": (1, 2)}),
        "scalar": ((), {"low": (), "high": ()}),
        "empty": ((0, 2), {"low": (1, 0), "high": (1, 0), "interior": (3, 0)}),
        "nothing": ((3,), {"low": (-3,), "high": (0,)}),
        "only-value": ((3,), {"low": (-3,), "high": (2,)}),
    }
    cases = [
        Case(
            normal(shape, ()),
            pad,
            attrs,
            label,
            ALL_DTYPES,
            call=_padded,
            smooth=label not in ("empty", "nothing", "only-value"),
        )
        for label, (shape, attrs) in layouts.items()
    ]
    return Row(
        tuple(cases),
        "finite",
        parameters=("t", "low", "high", "interior", "value"),
        defaults={"value": 0},
    )


# Running products and extremes


def _running(step: Callable[[Any, Any], Any]) -> Callable[..., Array]:
    def oracle(t: Array, dim: int = 0) -> Array:
        rows = np.moveaxis(t, dim, 0).copy()
        with np.errstate(all="ignore"):
            for i in range(1, len(rows)):
                rows[i] = step(rows[i - 1], rows[i])
        return np.moveaxis(rows, 0, dim)

    return oracle


def _greater(before: Array, x: Array) -> Array:
    return np.where((before != before) | (x < before), before, x)


def _less(before: Array, x: Array) -> Array:
    return np.where((before != before) | (x > before), before, x)


def _scan(step: Callable[[Any, Any], Any]) -> Row:
    oracle = _running(step)

    def case(shape: tuple[int, ...], label: str, **attrs: int) -> Case:
        return Case(normal(shape), oracle, attrs, label, NUMBERS, smooth=0 not in shape)

    return Row(
        (
            case((5,), ""),
            case((4, 5), "rows", dim=1),
            case((3, 4, 2), "middle", dim=-2),
            case((3, 0), "empty", dim=0),
            Case(special(1), oracle, {}, "special", NUMBERS),
        ),
        "finite",
    )


# Windows


_STEPS: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any], Any]]] = {
    "sum": (lambda a, b: a + b, lambda _: 0),
    "mul": (lambda a, b: a * b, lambda _: 1),
    "min": (lambda a, b: a if a != a or b >= a else b, lambda t: _extreme(t, largest=True)),
    "max": (lambda a, b: a if a != a or b <= a else b, lambda t: _extreme(t, largest=False)),
}


def _extreme(t: Array, *, largest: bool) -> Any:
    if t.dtype.kind == "f":
        return np.inf if largest else -np.inf
    return np.iinfo(t.dtype).max if largest else np.iinfo(t.dtype).min


def reduce_window(t: Array, window: Any, reduction: str = "sum", **layout: Any) -> Array:
    """Window by window, element by element, on an operand whose padding is marked."""

    def given(name: str, absent: int) -> tuple[int, ...]:
        return layout.get(name) or (absent,) * t.ndim

    marks = pad(
        np.ones(t.shape, bool),
        np.array(False),
        given("low", 0),
        given("high", 0),
        [base - 1 for base in given("base_dilation", 1)],
    )
    values = pad(
        t,
        t.dtype.type(0),
        given("low", 0),
        given("high", 0),
        [base - 1 for base in given("base_dilation", 1)],
    )
    dilation, strides = given("window_dilation", 1), given("strides", 1)
    spans = [(w - 1) * d + 1 for w, d in zip(window, dilation, strict=True)]
    shape = [
        max((n - span) // step + 1, 0) for n, span, step in zip(values.shape, spans, strides, strict=True)
    ]
    step, neutral = _STEPS[reduction]
    result = np.empty(shape, t.dtype)
    for o in np.ndindex(*shape):
        met: Any = None
        for k in np.ndindex(*window):
            at = tuple(i * s + j * d for i, s, j, d in zip(o, strides, k, dilation, strict=True))
            if marks[at]:
                with np.errstate(all="ignore"):
                    met = values[at] if met is None else step(met, values[at])
        result[o] = neutral(t) if met is None else met
    return result


def _reduce_window() -> Row:
    layouts: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
        "": ((5, 6), {"window": (2, 3)}),
        "strides": (
            (7, 2, 6),
            {"window": (3, 1, 2), "strides": (2, 1, 3), "low": (1, 0, 1), "high": (1, 0, 0)},
        ),
        "dilated": ((5, 7), {"window": (2, 3), "window_dilation": (2, 2), "strides": (1, 2), "low": (0, 3)}),
        "spread": ((4, 3), {"window": (3, 2), "base_dilation": (2, 3), "high": (2, 1), "low": (-1, 0)}),
        "margins": ((3,), {"window": (2,), "low": (3,), "high": (2,)}),
        "too-small": ((3, 2), {"window": (4, 1)}),
        "scalar": ((), {"window": ()}),
    }
    cases = []
    for (label, (shape, attrs)), reduction in itertools.product(layouts.items(), _STEPS):
        infinite = label in ("spread", "margins") and reduction in ("min", "max")  # windows that meet nothing
        smooth = reduction != "mul" and label != "too-small" and not infinite
        given = {"reduction": reduction, **attrs}
        cases.append(
            Case(normal(shape), reduce_window, given, f"{label}-{reduction}", NUMBERS, smooth=smooth)
        )
    special_case = {"window": (3,), "low": (1,), "high": (1,)}
    for reduction in ("min", "max", "sum"):
        given = {"reduction": reduction, **special_case}
        cases.append(Case(special(1), reduce_window, given, f"special-{reduction}", NUMBERS))
    return Row(tuple(cases), "finite")


def arrangement_rows() -> dict[str, Row]:
    """Rows by op."""
    return {
        "gather_general": _gather_general(),
        "scatter_general": _scatter_general(),
        "sort": _sort(),
        "pad": _pad(),
        "reduce_window": _reduce_window(),
        "cumprod": _scan(np.multiply),
        "cummax": _scan(_greater),
        "cummin": _scan(_less),
    }
