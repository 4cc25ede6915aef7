"""Rows of the table of ops for ops that address elements by index tensors, and for parts at offsets of the run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import popsr
from tests_py.ops.rows.inputs import Case, Draw, Facts, Row, normal, small, special, together
from tests_py.support.helpers import ALL_DTYPES, FLOATS, INTS, NUMBERS, Array

_ONE = ("float32",)


def _below(end: int, *shape: int, start: int = 0) -> Draw:
    """Integers from ``start`` to end - 1."""
    return lambda rng, name: [rng.integers(start, end, shape).astype(name)]


def _constant(*values: Any) -> Draw:
    return lambda rng, name: [np.array(value, name) for value in values]


def _with(t: Draw, *indices: tuple[Draw, str]) -> Draw:
    return together(t, *indices)


# Gather


def _take(t: Array, indices: Array, axis: int = 0, zero_OOR: bool = False, **_: Any) -> Array:
    outside = (indices < 0) | (indices >= t.shape[axis])
    if not zero_OOR or not outside.any():
        return np.take(t, indices, axis)
    axis %= t.ndim
    padded = np.concatenate([t, np.zeros_like(np.take(t, [0], axis))], axis)
    return np.take(padded, np.where(outside, t.shape[axis], indices), axis)


def _group_take(t: Array, indices: Array, axis: int = 0, group_size: int = 1, **options: Any) -> Array:
    if group_size == 1:
        return _take(t, indices, axis, **options)
    axis %= t.ndim
    return np.stack([_take(x, i, axis - 1, **options) for x, i in zip(t, indices, strict=True)])


def _gathers(oracle: Callable[..., Array] = _take) -> list[Case]:
    wide = together(normal((40, 700)), (_below(40, 80), "int32"))
    return [
        Case(_with(normal((5, 3)), (_below(5, 7), "int32")), oracle, {}, "", ALL_DTYPES, smooth=True),
        Case(
            _with(normal((4, 6, 2)), (_below(6, 2, 3), "int32")),
            oracle,
            {"axis": 1},
            "middle",
            ALL_DTYPES,
            smooth=True,
        ),
        Case(_with(normal((3, 5)), (_below(5, 4), "int32")), oracle, {"axis": -1}, "last", smooth=True),
        Case(_with(normal((5, 3)), (_below(5), "int32")), oracle, {}, "scalar", smooth=True),
        Case(_with(normal((6,)), (_below(6, 3), "int32")), oracle, {}, "vector", smooth=True),
        Case(
            _with(normal((5, 3)), (_below(9, 8, start=-4), "int32")),
            oracle,
            {"zero_OOR": True},
            "zeros",
            ALL_DTYPES,
            smooth=True,
        ),
        Case(
            wide, oracle, {"available_memory_proportion": 0.3}, "wide", ("bfloat16", "float64"), smooth=True
        ),
        Case(_with(normal((5, 3)), (_below(5, 0), "int32")), oracle, {}, "no-index", _ONE),
        Case(_with(normal((5, 0)), (_below(5, 2), "int32")), oracle, {}, "empty", _ONE),
        Case(_with(normal((0, 3)), (_below(1, 0, 2), "int32")), oracle, {}, "empty-axis", _ONE),
        *(Case(_with(normal((9, 2)), (_below(9, 5), i)), oracle, {}, f"by-{i}", _ONE) for i in INTS),
    ]


def _grouped() -> list[Case]:
    def case(t: tuple[int, ...], indices: tuple[int, ...], label: str, **attrs: Any) -> Case:
        low, high = (-2, 7) if attrs.get("zero_OOR") else (0, 4)
        draw = _with(normal(t), (_below(high, *indices, start=low), "int32"))
        return Case(draw, _group_take, attrs, label, ALL_DTYPES, smooth=True)

    return [
        *_gathers(_group_take),
        case((3, 4, 2), (3, 5), "groups", axis=1, group_size=3),
        case((2, 3, 4), (2, 2, 3), "groups-last", axis=-1, group_size=2),
        case((3, 4), (3, 6), "groups-zeros", axis=1, group_size=3, zero_OOR=True),
    ]


# Scatter


def _scatter(t: Array, indices: Array, values: Array, axis: int = 0) -> Array:
    result = t.copy()
    for at in np.ndindex(values.shape):
        result[_replaced(at, axis % t.ndim, int(indices[at]))] = values[at]
    return result


def _replaced(at: tuple[int, ...], axis: int, position: int) -> tuple[int, ...]:
    return (*at[:axis], position, *at[axis + 1 :])


def _scatters() -> Row:
    def case(t: tuple[int, ...], values: tuple[int, ...], label: str, axis: int = 0, **options: Any) -> Case:
        indices = _below(max(t[axis], 1), *values)
        draw = together(normal(t), (indices, "int32"), normal(values))
        attrs = {"axis": axis} if axis else {}
        return Case(draw, _scatter, attrs, label, **{"dtypes": ALL_DTYPES, "smooth": True, **options})

    return Row(
        (
            case((5, 3), (2, 3), ""),
            case((3, 6), (3, 4), "last", axis=-1),
            case((2, 4, 3), (2, 9, 3), "duplicates", axis=1),
            case((5, 4), (3, 2), "part"),
            case((7,), (4,), "vector"),
            case((5, 3), (0, 3), "nothing", smooth=False),
            case((0, 3), (0, 3), "empty", smooth=False),
            *(
                Case(together(normal((9, 2)), (_below(9, 4, 2), i), normal((4, 2))), _scatter, {}, i, _ONE)
                for i in INTS
            ),
        ),
        "finite",
    )


_FOLDS: dict[str, Callable[[Any, Any], Any]] = {
    "sum": np.add,
    "max": np.maximum,
    "min": np.minimum,
    "none": lambda a, b: b,
}


def _scatter_reduce(
    data: Array,
    indices: Array,
    initial_values: Array | None = None,
    *,
    reduction: str,
    axis: int = 0,
    axis_size: int | None = None,
    enable_index_broadcast: bool = True,
) -> Array:
    axis %= data.ndim
    if indices.ndim == 1:
        indices = indices.reshape((1,) * axis + (-1,) + (1,) * (data.ndim - axis - 1))
    indices = np.broadcast_to(indices.reshape(indices.shape + (1,) * (data.ndim - indices.ndim)), data.shape)
    if initial_values is not None:
        result, met = initial_values.copy(), np.ones(initial_values.shape, bool)
    else:
        shape = (*data.shape[:axis], axis_size or 0, *data.shape[axis + 1 :])
        result, met = np.zeros(shape, data.dtype), np.full(shape, reduction == "sum")
    for at in np.ndindex(data.shape):
        to = _replaced(at, axis, int(indices[at]))
        with np.errstate(over="ignore"):
            result[to] = _FOLDS[reduction](result[to], data[at]) if met[to] else data[at]
        met[to] = True
    return result


def _reduces(fn: Any, data: Any, indices: Any, initial: Any = None, **attrs: Any) -> Any:
    return fn(data, indices, attrs.pop("reduction"), initial, **attrs)


def _scatter_reduces() -> Row:
    def case(label: str, data: tuple[int, ...], indices: tuple[int, ...], size: int, **attrs: Any) -> Case:
        options = {key: attrs.pop(key) for key in ("smooth", "dtypes") if key in attrs}
        parts: list[Any] = [normal(data), (_below(size, *indices), "int32")]
        if attrs.pop("initial", False):
            axis = attrs.get("axis", 0) % len(data)
            parts.append(normal((*data[:axis], size, *data[axis + 1 :])))
        else:
            attrs["axis_size"] = size
        return Case(
            together(*parts),
            _scatter_reduce,
            attrs,
            label,
            **{"dtypes": NUMBERS, "smooth": True, **options},
            call=_reduces,
        )

    several = [
        each
        for reduction in _FOLDS
        for each in (
            case(reduction, (6, 3), (6,), 4, reduction=reduction),
            case(f"{reduction}-initial", (6, 3), (6, 3), 4, reduction=reduction, initial=True),
            case(f"{reduction}-last", (2, 3, 7), (7,), 5, reduction=reduction, axis=-1, initial=True),
            case(f"{reduction}-rows", (4, 5, 2), (4, 5), 3, reduction=reduction, axis=1),
        )
    ]
    wide = {"dtypes": ("bfloat16", "float16"), "smooth": False}
    return Row(
        (
            *several,
            case("wide", (90, 700), (90,), 7, reduction="sum", **wide),
            case("no-broadcast", (6, 2), (6, 2), 3, reduction="sum", enable_index_broadcast=False),
            case("one-index", (6, 2), (1, 2), 3, reduction="sum"),
            case("nothing", (0, 2), (0,), 3, reduction="max", smooth=False),
            case("empty", (0, 2), (0,), 0, reduction="sum", smooth=False, initial=True),
            Case(
                together(special(1), lambda rng, name: [np.zeros(_count(name), np.int32)]),
                lambda data, *_, **__: np.max(data, keepdims=True),
                {"reduction": "max", "axis_size": 1},
                "special",
                FLOATS,
                call=_reduces,
            ),
        ),
        "finite",
        parameters=(
            "data",
            "indices",
            "reduction",
            "initial_values",
            "axis",
            "axis_size",
            "enable_index_broadcast",
            "available_memory_proportion",
        ),
    )


def _grouped_scatter_reduce(
    data: Array,
    indices: Array,
    initial_values: Array | None = None,
    *,
    axis: int = 0,
    group_size: int = 1,
    **options: Any,
) -> Array:
    if group_size == 1:
        return _scatter_reduce(data, indices, initial_values, axis=axis, **options)
    initial = [None] * group_size if initial_values is None else initial_values
    inner = axis % data.ndim - 1
    return np.stack(
        [
            _scatter_reduce(*operands, axis=inner, **options)
            for operands in zip(data, indices, initial, strict=True)
        ]
    )


def _grouped_scatter_reduces() -> Row:
    def case(label: str, data: tuple[int, ...], indices: tuple[int, ...], size: int, **attrs: Any) -> Case:
        parts: list[Any] = [normal(data), (_below(size, *indices), "int32")]
        if attrs.pop("initial", False):
            axis = attrs["axis"] % len(data)
            parts.append(normal((*data[:axis], size, *data[axis + 1 :])))
        else:
            attrs["axis_size"] = size
        return Case(
            together(*parts), _grouped_scatter_reduce, attrs, label, NUMBERS, call=_reduces, smooth=True
        )

    groups = [
        each
        for reduction in _FOLDS
        for each in (
            case(reduction, (3, 6, 2), (3, 6), 4, reduction=reduction, axis=1, group_size=3),
            case(f"{reduction}-last", (2, 3, 5), (2, 5), 4, reduction=reduction, axis=-1, group_size=2),
            case(
                f"{reduction}-initial",
                (2, 5, 3),
                (2, 5, 3),
                4,
                reduction=reduction,
                axis=1,
                group_size=2,
                initial=True,
            ),
        )
    ]
    plain = _scatter_reduces()
    names = [name for name in plain.parameters if name != "enable_index_broadcast"]
    names[6:6] = ["group_size", "enable_index_broadcast"]
    return Row((*plain.cases[:2], *groups), "finite", parameters=tuple(names))


def _count(name: str) -> int:
    (values,) = special(1)(np.random.default_rng(0), name)
    return len(values)


# Onehot, histogram


def _onehot(t: Array, values: Array, axis: int) -> Array:
    classes = np.arange(5).reshape((5,) + (1,) * (t.ndim - axis % (t.ndim + 1)))
    return np.where(np.expand_dims(t, axis) == classes, values[1], values[0])


def _onehots() -> Row:
    def call(fn: Any, t: Any, values: Any, **attrs: Any) -> Any:
        return fn(t, popsr.constant(5, popsr.int32), values, **attrs)

    def case(label: str, shape: tuple[int, ...], axis: int, values: str = "float32") -> Case:
        draw = together(small(shape), (normal((2,)), values))
        return Case(draw, _onehot, {"axis": axis}, label, INTS, call=call)

    outside = together((_constant([-1, 0, 4, 5, 99]), "int32"), (normal((2,)), "float32"))
    return Row(
        (
            case("", (6,), -1),
            case("first", (2, 3), 0),
            case("middle", (2, 3), 1),
            case("scalar", (), 0),
            case("empty", (2, 0), -1),
            *(case(f"of-{name}", (3, 2), 2, name) for name in ALL_DTYPES),
            Case(outside, _onehot, {"axis": -1}, "outside", ("int32",), call=call),
        ),
        "stated",
    )


def _counts(t: Array, levels: list[float], absolute_of_input: bool) -> Array:
    bins = np.searchsorted(np.array(levels, t.dtype), np.abs(t) if absolute_of_input else t, side="right")
    return np.bincount(bins.reshape(-1), minlength=len(levels) + 1).astype(np.uint32)


def _histograms() -> Row:
    levels = {"levels": [-0.5, 0.1, 0.7], "absolute_of_input": False}
    return Row(
        (
            Case(normal((40, 70)), _counts, levels),
            Case(normal((33,)), _counts, {"levels": [0.5], "absolute_of_input": True}, "absolute"),
            Case(special(1), _counts, {"levels": [-1e4, 0.0, 2.5], "absolute_of_input": False}, "special"),
            Case(normal((2, 0)), _counts, levels, "empty"),
            Case(normal(()), _counts, {"levels": [], "absolute_of_input": False}, "no-levels"),
            Case(small((9,)), _counts, {"levels": [1.0, 1.0, 2.0], "absolute_of_input": False}, "bounds"),
        ),
        "stops",
        python_only=(),
    )


# Dynamic slices, subsample


def _box(t: Array, index: Array, axes: Any, sizes: Any) -> tuple[slice, ...]:
    key = [slice(None)] * t.ndim
    for axis, start, size in zip(axes, np.reshape(index, -1), sizes, strict=True):
        key[axis] = slice(int(start), int(start) + size)
    return tuple(key)


def _sliced(t: Array, index: Array, axes: Any, sizes: Any, no_overlap: bool) -> Array:
    return t[_box(t, index, axes, sizes)]


def _updated(t: Array, index: Array, update: Array, axes: Any, sizes: Any, no_overlap: bool) -> Array:
    result = t.copy()
    result[_box(t, index, axes, sizes)] = update
    return result


def _boxes(*, updates: bool) -> tuple[Case, ...]:
    def case(shape: tuple[int, ...], axes: list[int], sizes: list[int], label: str, **options: Any) -> Case:
        kind, scalar = options.pop("kind", "uint32"), options.pop("scalar", False)
        missing, part = options.pop("missing", 0), list(shape)
        for axis, size in zip(axes, sizes, strict=True):
            part[axis] = size

        def index(rng: np.random.Generator, name: str) -> list[Array]:
            ends = [shape[axis] - size + 1 for axis, size in zip(axes, sizes, strict=True)]
            at = rng.integers(0, ends) if axes else np.empty(0)
            return [np.asarray(at[0] if scalar else at).astype(name)]

        draws: list[Any] = [normal(shape), (index, kind), *[normal(tuple(part[missing:]))] * updates]
        attrs = {"axes": axes, "sizes": sizes, "no_overlap": True}
        oracle = _updated if updates else _sliced
        return Case(
            together(*draws), oracle, attrs, label, **{"dtypes": ALL_DTYPES, "smooth": True, **options}
        )

    return (
        case((5, 3), [0], [2], ""),
        case((4, 5, 6), [2, 0], [3, 2], "two-axes"),
        case((4, 5), [-1], [1], "negative"),
        case((3, 4), [0, 1], [3, 4], "all"),
        case((3, 4), [1], [0], "nothing", smooth=False),
        case((7,), [0], [3], "scalar", scalar=True),
        case((2, 3), [], [], "no-axes"),
        case((5, 1, 3), [0], [1], "leading-ones", missing=2),
        *(case((9, 2), [0], [4], f"by-{kind}", kind=kind, dtypes=_ONE, smooth=False) for kind in INTS),
    )


def _subsampled(t: Array, strides: Any) -> Array:
    steps = [strides] if isinstance(strides, int) else strides
    return t[tuple(slice(None, None, step) for step in steps)]


def _subsamples() -> Row:
    def case(shape: tuple[int, ...], strides: Any, label: str) -> Case:
        return Case(
            normal(shape), _subsampled, {"strides": strides}, label, ALL_DTYPES, smooth=0 not in shape
        )

    return Row(
        (
            case((7, 6), [2, 3], ""),
            case((7, 6), 3, "int"),
            case((4, 5, 6), (1, 2), "fewer"),
            case((3, 4), [9, 4], "beyond"),
            case((3,), [], "none"),
            case((), [], "scalar"),
            case((0, 4), [2, 2], "empty"),
        ),
        "finite",
    )


def indexing_rows() -> dict[str, Row]:
    """Rows by op."""
    updates = _boxes(updates=True)
    covered = next(case for case in updates if case.label == "all")
    of_the_update = (Facts(("0011", "0000", "0101"), "0101", case=covered, label="covers-everything"),)
    return {
        "gather": Row(tuple(_gathers()), "finite"),
        "tied_gather": Row(tuple(_gathers()), "finite"),
        "groupedgather": Row(tuple(_grouped()), "finite"),
        "scatter": _scatters(),
        "scatter_reduce": _scatter_reduces(),
        "grouped_scatter_reduce": _grouped_scatter_reduces(),
        "onehot": _onehots(),
        "histogram": _histograms(),
        "dynamic_slice": Row(_boxes(updates=False), "finite"),
        "dynamic_update": Row(updates, "finite", replicas=of_the_update),
        "dynamic_update_": Row(updates, "modifies", inplace_of="dynamic_update", replicas=of_the_update),
        "subsample": _subsamples(),
    }
