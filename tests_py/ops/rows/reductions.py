"""Rows of the table of ops for reductions, for ops that order elements, for running sums and for log_softmax."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests_py.ops.rows.inputs import Case, Draw, Row, normal, positive, small, special
from tests_py.support.helpers import FLOATS, INTS, NUMBERS, Array, np_dtype
from tests_py.support.oracles import ops as oracles

AXES: tuple[tuple[str, tuple[int, ...], dict[str, Any]], ...] = (
    ("", (4, 33), {}),
    ("last", (4, 33), {"axis": -1}),
    ("first", (40, 3), {"axis": 0}),
    ("both", (3, 4, 5), {"axis": [0, 2], "keepdims": True}),
    ("middle", (3, 7, 20), {"axis": 1}),
    ("none", (3, 4), {"axis": []}),
    ("one", (3, 1), {"axis": 1}),
    ("long", (2, 1500), {"axis": [1]}),
    ("kept-nothing", (0, 3), {"axis": 1}),
)
NOTHING: tuple[tuple[str, tuple[int, ...], dict[str, Any]], ...] = (
    ("empty", (0, 3), {"axis": 0}),
    ("empty-row", (3, 0), {"axis": -1, "keepdims": True}),
    ("empty-all", (0,), {}),
)


def _axes(t: Array, axis: Any) -> tuple[int, ...]:
    chosen = range(t.ndim) if axis is None else [axis] if isinstance(axis, int) else axis
    return tuple(sorted(a % t.ndim for a in chosen))


def over_axes(function: Callable[[Array], Any]) -> Callable[..., Array]:
    """A function of one vector as an oracle with ``axis`` and ``keepdims``."""

    def oracle(t: Array, axis: Any = None, keepdims: bool = False) -> Array:
        axes = _axes(t, axis)
        kept = [d for d in range(t.ndim) if d not in axes]
        count = int(np.prod([t.shape[d] for d in axes], dtype=int))
        vectors = t.transpose([*kept, *axes]).reshape(-1 if count else 0, count)
        if not count:
            vectors = np.empty((int(np.prod([t.shape[d] for d in kept], dtype=int)), 0), t.dtype)
        with np.errstate(all="ignore"):
            results = np.array([function(vector) for vector in vectors], t.dtype)
        shape = [1 if d in axes else t.shape[d] for d in range(t.ndim)]
        return results.reshape(shape if keepdims else [t.shape[d] for d in kept])

    return oracle


def _bound(function: Callable[[Array], Any]) -> Callable[..., Array]:
    """The error of one vector in unit roundoffs, ``function``, as a bound."""

    def bound(t: Array, u: Any, axis: Any = None, keepdims: bool = False) -> Array:
        return u * over_axes(function)(t, axis, keepdims)

    return bound


def _near_one(*shapes: tuple[int, ...]) -> Draw:
    """Floats of magnitude 0.5 to 1.5, of both signs."""

    def draw(rng: np.random.Generator, name: str) -> list[Array]:
        return [
            (rng.uniform(0.5, 1.5, s) * rng.choice([-1, 1], s)).astype(np_dtype(name))
            if name in FLOATS
            else normal(s)(rng, name)[0]
            for s in shapes
        ]

    return draw


def _reduction(
    function: Callable[[Array], Any],
    error: Callable[[Array], Any] | None,
    *,
    draw: Callable[..., Draw] = normal,
    integers: bool = True,
    nothing: bool = True,
) -> list[Case]:
    oracle = over_axes(function)
    bound = None if error is None else _bound(error)
    rows = [*AXES, *(NOTHING if nothing else ())]
    cases = [
        Case(draw(shape), oracle, attrs, label, FLOATS, bound=bound, smooth=0 not in shape)
        for label, shape, attrs in rows
    ]
    if integers:
        cases += [Case(draw(shape), oracle, attrs, f"int-{label}", INTS) for label, shape, attrs in rows]
    return cases


def _own(x: Array) -> Any:
    """The dtype in which NumPy must fold, so that integers wrap."""
    return x.dtype


def _log_sum_exp(x: Array) -> Any:
    shift = x.max() if x.size and np.isfinite(x.max()) else x.dtype.type(0)
    return shift + np.log(np.sum(np.exp(x - shift)))


def _log_sum_exp_error(x: Array) -> Any:
    if not x.size:
        return 0.0
    spread = np.max(np.abs(x - x.max()))
    return (x.size + 8 + spread) * (2 + abs(_log_sum_exp(x)) + abs(x.max()))


def _log_sum_error(x: Array) -> Any:
    return (x.size + 4) * (1 + abs(np.log(np.sum(x)))) if x.size else 0.0


def log_softmax(t: Array, axis: int) -> Array:
    """t - max - log(sum(exp(t - max)))."""
    shifted = t - t.max(axis=axis, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True))


def _log_softmax_bound(t: Array, u: Any, axis: int) -> Array:
    spread = np.max(np.abs(t - t.max(axis=axis, keepdims=True)))
    return u * (t.shape[axis] + 8 + spread) * (2 + np.abs(log_softmax(t, axis)))


# Orders


def median(x: Array) -> Any:
    """The lower median; NaN if any is NaN."""
    if x.dtype.kind == "f" and np.any(np.isnan(x)):
        return np.nan
    return np.sort(x, kind="stable")[(len(x) - 1) // 2]


def topk(t: Array, k: int, axis: int, largest: bool, sorted: bool = True) -> tuple[Array, Array]:
    """Ranks by Python numbers: NaN above all, ties by index."""
    t = np.moveaxis(t, axis, -1)
    indices = np.empty((*t.shape[:-1], k), np.int32)
    for at in np.ndindex(t.shape[:-1]):
        indices[at] = _ranked(t[at].tolist(), largest)[:k]
    values = np.take_along_axis(t, indices.astype(np.int64), -1)
    return np.moveaxis(values, -1, axis), np.moveaxis(indices, -1, axis)


def _ranked(numbers: Sequence[Any], largest: bool) -> list[int]:
    def rank(i: int) -> tuple[Any, ...]:
        nan = numbers[i] != numbers[i]
        number = 0 if nan else numbers[i]
        return (not nan, -number, i) if largest else (nan, number, i)

    return sorted(range(len(numbers)), key=rank)


def _arg(function: Callable[..., Any]) -> Row:
    def oracle(t: Array, dim: int = 0, keepdim: bool = False) -> Array:
        return np.asarray(function(t, axis=dim, keepdims=keepdim)).astype(np.int32)

    return Row(
        (
            Case(normal((5, 9)), oracle, {}, "", NUMBERS),
            Case(normal((5, 900)), oracle, {"dim": -1}, "last", NUMBERS),
            Case(normal((2, 9, 4)), oracle, {"dim": -2, "keepdim": True}, "middle", NUMBERS),
            Case(small((6, 40)), oracle, {"dim": 1}, "ties", NUMBERS),
            Case(normal((4,)), oracle, {"keepdim": False}, "to-scalar", NUMBERS),
            Case(special(1), oracle, {}, "special", NUMBERS),
            Case(normal((4, 0)), oracle, {"dim": 0}, "kept-nothing", NUMBERS),
        ),
        "stops",
    )


def _median() -> Row:
    cases = _reduction(median, None, nothing=False)
    return Row(
        (
            *cases,
            Case(small((6, 40)), over_axes(median), {"axis": 1}, "ties", NUMBERS),
            Case(special(1), over_axes(median), {}, "special", NUMBERS),
        ),
        "finite",
    )


def _topk() -> Row:
    def case(draw: Draw, label: str, k: int, axis: int = -1, largest: bool = True) -> Case:
        attrs = {"k": k, "axis": axis, "largest": largest, "sorted": True}
        return Case(draw, topk, attrs, label, NUMBERS)

    def smooth(shape: tuple[int, ...], label: str, **attrs: Any) -> Case:
        return Case(
            normal(shape),
            lambda t, **given: topk(t, **given)[0],
            {"sorted": True, **attrs},
            label,
            call=lambda fn, t, **given: fn(t, **given)[0],
            smooth=True,
        )

    return Row(
        (
            case(normal((4, 9)), "", 3),
            case(normal((4, 9)), "least", 3, largest=False),
            case(normal((9, 4, 2)), "first", 2, 0),
            case(normal((2, 300)), "all", 300),
            case(small((6, 40)), "ties", 30),
            case(small((6, 40)), "ties-least", 30, 1, False),
            case(special(1), "special", 5, 0),
            case(special(1), "special-least", 9, 0, False),
            case(normal((4, 9)), "nothing", 0),
            case(normal((0, 9)), "empty", 2),
            smooth((4, 9), "smooth", k=3, axis=1, largest=True),
            smooth((9, 4), "smooth-first", k=5, axis=0, largest=False),
        ),
        "finite",
        python_only=("sorted",),
    )


# Running sums


def cumsum(t: Array, dim: int = 0) -> Array:
    """One chain; a float32 sum is exact (to odd), so that a narrow result is rounded once."""
    rows = np.moveaxis(t, dim, 0)
    if not rows.size:
        return t
    total, results = rows[0], [rows[0]]
    for row in rows[1:]:
        results.append(oracles.add(total, row))
        with np.errstate(all="ignore"):
            total = total + row
    return np.moveaxis(np.stack([np.asarray(r, results[-1].dtype) for r in results]), 0, dim)


def _cumsum() -> Row:
    def case(shape: tuple[int, ...], label: str, **attrs: Any) -> Case:
        return Case(normal(shape), cumsum, attrs, label, NUMBERS, smooth=0 not in shape)

    return Row(
        (
            case((7, 3), ""),
            case((3, 50), "last", dim=-1),
            case((2, 6, 21), "middle", dim=1),
            case((5,), "vector"),
            case((0, 3), "empty"),
            case((3, 0), "empty-beside", dim=0),
            Case(special(1), cumsum, {}, "special", NUMBERS),
        ),
        "finite",
    )


def _log_softmax() -> Row:
    def case(draw: Draw, label: str, axis: int, smooth: bool = True) -> Case:
        return Case(draw, log_softmax, {"axis": axis}, label, bound=_log_softmax_bound, smooth=smooth)

    return Row(
        (
            case(normal((4, 9), scale=3.0), "", -1),
            case(normal((4, 9, 3)), "middle", 1),
            case(normal((2, 1500)), "long", 1, False),
            case(normal((4, 1)), "one", 1, False),
            case(normal((4, 9), scale=200.0), "far", 1, False),
        ),
        "finite",
    )


def _var() -> Row:
    def variance(x: Array, correction: float) -> Any:
        count = np.asarray(x.size, x.dtype)
        squares = (x - np.sum(x) / count) ** 2
        return np.sum(squares) / np.asarray(max(0.0, x.size - correction), x.dtype)

    def oracle(t: Array, axis: Any = None, keepdims: bool = False, correction: float = 0.0) -> Array:
        return over_axes(lambda x: variance(x, correction))(t, axis, keepdims)

    def bound(t: Array, u: Any, axis: Any = None, keepdims: bool = False, correction: float = 0.0) -> Array:
        def of_row(x: Array) -> Any:
            return (x.size + 5) * variance(x, correction) if x.size else np.asarray(0, x.dtype)  # both NaN

        return u * over_axes(of_row)(t, axis, keepdims)

    of_one = ("none", "one")  # whose gradient is 0
    cases = [
        Case(
            normal(shape),
            oracle,
            attrs,
            label,
            FLOATS,
            bound=bound,
            smooth=0 not in shape and label not in of_one,
        )
        for label, shape, attrs in (*AXES, *NOTHING)
    ]
    sample = {"axis": [0, 2], "correction": 1.0}
    return Row(
        (*cases, Case(normal((3, 4, 5)), oracle, sample, "sample", bound=bound, smooth=True)), "finite"
    )


def reduction_rows() -> dict[str, Row]:
    """Rows by op."""

    def row(*arguments: Any, **options: Any) -> Row:
        return Row(tuple(_reduction(*arguments, **options)), "finite")

    def total(x: Array) -> Any:
        return np.sum(x, dtype=_own(x))

    def norm_error(x: Array) -> Any:
        return (x.size + 2) * np.sqrt(np.sum(x * x))

    least = _reduction(np.min, None, nothing=False)
    extremes = Case(special(1), over_axes(np.min), {}, "special", FLOATS)
    return {
        "min": Row((*least, extremes), "finite"),
        "prod": row(
            lambda x: np.prod(x, dtype=_own(x)), lambda x: x.size * abs(np.prod(x)) + 1e-30, draw=_near_one
        ),
        "sumsquare": row(lambda x: total(x * x), lambda x: (x.size + 1) * np.sum(x * x)),
        "l1": row(lambda x: total(np.abs(x)), lambda x: x.size * np.sum(np.abs(x))),
        "l2": row(lambda x: np.sqrt(total(x * x)), norm_error, integers=False),
        "logsum": row(lambda x: np.log(total(x)), _log_sum_error, draw=positive, integers=False),
        "logsumexp": row(_log_sum_exp, _log_sum_exp_error, integers=False),
        "var": _var(),
        "argmax": _arg(np.argmax),
        "argmin": _arg(np.argmin),
        "median": _median(),
        "topk": _topk(),
        "cumsum": _cumsum(),
        "log_softmax": _log_softmax(),
    }
