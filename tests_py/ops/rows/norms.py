"""Rows of the table of ops for normalisation, and lamb_square."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests_py.ops.rows.inputs import Case, Draw, Row, normal, positive, special, together
from tests_py.support.helpers import Array


def _rows(t: Array, num_groups: int) -> Array:
    """[samples, groups, elements of a row]."""
    count = t.size // max(1, t.shape[0] * num_groups)
    return t.reshape(t.shape[0], num_groups, count)


def _of_channels(values: Array, t: Array) -> Array:
    return values.reshape(-1, *[1] * (t.ndim - 2))


def group_norm(t: Array, weight: Array, bias: Array, num_groups: int = 1, eps: float = 1e-5) -> Array:
    """From the definition, with NumPy's mean and variance."""
    if not t.size:
        return t
    rows = _rows(t, num_groups)
    unit = (rows - rows.mean(2, keepdims=True)) / np.sqrt(rows.var(2, keepdims=True) + eps)
    return unit.reshape(t.shape) * _of_channels(weight, t) + _of_channels(bias, t)


def _bound(t: Array, weight: Array, bias: Array, *, u: Any, num_groups: int = 1, eps: float = 1e-5) -> Array:
    """Sums of n terms err by n units of their magnitudes; the inverse deviation magnifies the mean's error."""
    if not t.size:
        return t
    rows = _rows(t, num_groups)
    n = rows.shape[2]
    deviation = np.sqrt(rows.var(2, keepdims=True) + eps)
    unit = np.abs(rows - rows.mean(2, keepdims=True)) / deviation
    shifted = (n + 4) * np.abs(rows).mean(2, keepdims=True) / deviation
    error = (shifted + (n + 8) * unit).reshape(t.shape) * np.abs(_of_channels(weight, t))
    return np.nan_to_num(u * (error + 4 * np.abs(_of_channels(bias, t))))


def _operands(*shape: int, scale: float = 1.0, channels: int | None = None) -> Draw:
    """An operand, weights and biases."""
    vectors = (shape[1] if channels is None else channels,)
    return together(normal(shape, scale=scale), positive(vectors), normal(vectors))


def _far_from_zero(rng: np.random.Generator, name: str) -> list[Array]:
    t, weight, bias = _operands(3, 4, 5)(rng, name)
    return [(t.astype(np.float64) + 30).astype(t.dtype), weight, bias]


def _constant(rng: np.random.Generator, name: str) -> list[Array]:
    t, weight, bias = _operands(3, 6)(rng, name)
    return [np.broadcast_to(t[:, :1], t.shape).copy(), weight, bias]


def _specials(rng: np.random.Generator, name: str) -> list[Array]:
    """Infinities and NaN, each in a row of its own and beside rows without."""
    t, weight, bias = _operands(4, 3)(rng, name)
    t[0, 1], t[1, 2], t[2, 0] = np.inf, -np.inf, np.nan
    return [t, weight, bias]


def _norms(grouped: tuple[tuple[tuple[int, ...], int], ...], name: str | None) -> tuple[Case, ...]:
    def attrs(groups: int, **options: Any) -> dict[str, Any]:
        return {name: groups, **options} if name else options

    def case(draw: Draw, label: str, groups: int, *, smooth: bool = False, **options: Any) -> Case:
        return Case(draw, group_norm, attrs(groups, **options), label, bound=_bound, smooth=smooth)

    shaped = (
        case(_operands(*shape), "" if i == 0 else "x".join(map(str, (*shape, groups))), groups, smooth=True)
        for i, (shape, groups) in enumerate(grouped)
    )
    last = grouped[0][1]
    return (
        *shaped,
        case(_operands(2, 6, 7), "eps", last, eps=0.25, smooth=True),
        case(_operands(2, 6, 700, scale=3.0), "long", last),
        case(_operands(40, 1200), "wide", last),
        case(_far_from_zero, "far", min(last, 2)),
        case(_constant, "constant", last, eps=0.01),
        case(_specials, "special", 1),
        case(_operands(0, 6), "no-sample", last),
        case(_operands(2, 6, 0), "empty", last),
        case(_operands(2, 0), "no-channel", last),
    )


def _batch_norm(
    t: Array, scale: Array, bias: Array, mean: Array, var: Array, epsilon: float = 1e-5, momentum: float = 0.9
) -> Array:
    """Each operation rounded in the compute type."""
    one = t.dtype.type
    with np.errstate(all="ignore"):
        inverse = one(1) / np.sqrt(var + one(epsilon))
        unit = (t - _of_channels(mean, t)) * _of_channels(inverse, t)
        return np.asarray(unit * _of_channels(scale, t) + _of_channels(bias, t))


def _batch_norms() -> Row:
    def case(shape: tuple[int, ...], label: str = "", **attrs: Any) -> Case:
        one = (shape[1],)
        draw = together(normal(shape), normal(one), normal(one), normal(one), positive(one))
        return Case(draw, _batch_norm, attrs, label)

    def vectors(rng: np.random.Generator, name: str) -> list[Array]:
        dtype = normal((1,))(rng, name)[0].dtype
        (values,) = special(1)(rng, name)
        given = ([1, -2], [0.5, 0], [0, 3], [0, 4])
        return [np.stack([values, values])[None], *(np.array(vector, dtype) for vector in given)]

    return Row(
        (
            case((2, 3, 5)),
            case((2, 3, 4, 7), "images", epsilon=0.1, momentum=0.5),
            case((3, 70, 1), "one"),
            case((2, 20, 900), "long"),
            case((0, 3, 2), "empty"),
            Case(vectors, _batch_norm, {"epsilon": 0.0}, "special"),
        ),
        "throws",
    )


def _squared_norm(t: Array) -> Array:
    return np.asarray(np.sum(t * t))


def _squared_norm_bound(t: Array, u: Any) -> Array:
    """The float64 sum is as good as exact; its rounding to float32 is added by the test."""
    return np.nan_to_num(np.asarray(np.sum(t * t)) * 2.0**-24 * (1 + 2.0**-20))


def lamb_square_row() -> Row:
    """Of float32 whatever the operand."""

    def case(draw: Draw, label: str = "") -> Case:
        return Case(draw, _squared_norm, {}, label, bound=_squared_norm_bound)

    return Row(
        (
            case(normal((3, 4))),
            case(normal((70, 90)), "tiles"),
            case(normal(()), "scalar"),
            case(normal((0, 3)), "empty"),
            case(special(1), "special"),
        ),
        "stops",
    )


def norm_rows() -> dict[str, Row]:
    """Rows by op."""
    grouped = (
        ((2, 6, 5), 3),
        ((4, 8), 2),
        ((3, 4), 4),
        ((2, 4, 3, 3), 1),
        ((2, 4, 1, 5), 4),
        ((1, 20, 40), 5),
    )
    single = tuple((shape, 1) for shape in ((4, 6), (3, 6, 5), (2, 40, 3, 2), (5, 1)))
    return {
        "group_norm": Row(_norms(grouped, "num_groups"), "finite"),
        "layer_norm": Row(_norms(single, None), "finite"),
        "batch_norm_inference": _batch_norms(),
        "lamb_square": lamb_square_row(),
    }
