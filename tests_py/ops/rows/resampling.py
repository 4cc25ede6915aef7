"""Rows of the table of ops for resizing, samples at places and Fourier transforms; oracles: matrices, loops."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tests_py.ops.rows.inputs import Case, Draw, Row, normal, together
from tests_py.support.helpers import FLOATS, NUMBERS_AND_BOOL, Array

_ONE = ("float32",)

# Resize


def _keys(d: float, a: float) -> float:
    d = abs(d)
    if d <= 1:
        return (a + 2) * d**3 - (a + 3) * d**2 + 1
    return a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a if d < 2 else 0.0


_ROUNDED: dict[str, Callable[[float], int]] = {
    "round_prefer_floor": lambda x: math.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: math.floor(x + 0.5),
    "floor": math.floor,
    "ceil": math.ceil,
}


def _position(rule: str, i: int, have: int, count: int, scale: float, span: float, crop: Any) -> float:
    half = (i + 0.5) / scale - 0.5
    if rule == "half_pixel_symmetric":
        return have / 2 * (1 - count / span) + half
    if rule == "asymmetric":
        return i / scale
    if rule == "tf_crop_and_resize":
        begin, end = crop
        if count == 1:
            return 0.5 * (begin + end) * (have - 1)
        return float(begin * (have - 1) + i * (end - begin) * (have - 1) / (count - 1))
    if rule != "half_pixel" and count == 1:
        return 0.0
    return i * (have - 1) / (span - 1) if rule == "align_corners" else half


def _matrix(have: int, places: list[float], scale: float, attrs: dict[str, Any]) -> Array:
    """Results times elements of one axis."""
    matrix = np.zeros((len(places), have), np.longdouble)
    mode, outside = attrs.get("mode", "nearest"), attrs.get("exclude_outside", False)
    shrunk = attrs.get("antialias", False) and scale < 1
    for row, x in zip(matrix, places, strict=True):
        if mode == "nearest":
            row[min(max(_ROUNDED[attrs.get("nearest_mode", "round_prefer_floor")](x), 0), have - 1)] = 1
            continue
        for k in range(math.floor(x) - 12, math.floor(x) + 13):
            d = (k - x) * (scale if shrunk else 1)
            weight = max(0.0, 1 - abs(d)) if mode == "linear" else _keys(d, attrs.get("cubic_coeff_a", -0.75))
            if 0 <= k < have or not outside:
                row[min(max(k, 0), have - 1)] += weight
        if shrunk or outside:
            row /= row.sum()
    return matrix


def _resized(t: Array, size: bool, **attrs: Any) -> Array:
    axes = attrs.get("axes") or range(t.ndim)
    rule = attrs.get("coordinate_transformation_mode", "half_pixel")
    for number, axis in sorted(enumerate(axes), key=lambda pair: pair[1] % t.ndim):
        have = t.shape[axis]
        given = attrs["scales"][number] if attrs.get("scales") else None
        count = attrs["sizes"][number] if attrs.get("sizes") else math.floor(have * given)
        scale = count / max(have, 1) if given is None else given
        roi = attrs.get("roi", ())
        crop = (roi[number], roi[number + len(axes)]) if rule == "tf_crop_and_resize" else (0.0, 1.0)
        if have == count == 0 or (scale == 1 and count == have and crop == (0.0, 1.0)):
            continue
        span = count if given is None else have * scale
        places = [_position(rule, i, have, count, scale, span, crop) for i in range(count)]
        if attrs.get("mode", "nearest") == "nearest":
            t = np.take(t, np.argmax(_matrix(have, places, scale, attrs), 1), axis)
        else:
            matrix = _matrix(have, places, scale, attrs)
            matrix = (np.abs(matrix) if size else matrix).astype(t.dtype)
            t = np.moveaxis(np.tensordot(matrix, t, (1, axis)), 0, axis)
        if rule == "tf_crop_and_resize":
            beyond = np.array([x < 0 or x > have - 1 for x in places])
            shape = [-1 if i == axis % t.ndim else 1 for i in range(t.ndim)]
            t = np.where(
                beyond.reshape(shape), np.array(attrs.get("extrapolation_value", 0.0)).astype(t.dtype), t
            )
    return t


def resize(t: Array, **attrs: Any) -> Array:
    """By a matrix per axis."""
    return _resized(t, False, **attrs)


def _resize_bound(t: Array, u: Any, **attrs: Any) -> Array:
    # Weights are computed as float64, here and there.
    largest = np.max(np.abs(t), initial=0)
    return 16 * t.ndim * u * (_resized(np.abs(t), True, **attrs) + 4) + 1e-13 * largest


_RULES = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric")


def _nearest_cases() -> Iterator[Case]:
    two = {"axes": (-1, 1)}
    yield Case(normal((2, 3, 5)), resize, {"sizes": (2, 6, 8)}, "", NUMBERS_AND_BOOL, smooth=True)
    yield Case(normal((2, 3, 5)), resize, {"sizes": (7, 2), **two}, "axes", NUMBERS_AND_BOOL, smooth=True)
    yield Case(normal((4, 5, 3)), resize, {"sizes": (9,), "axes": (1,)}, "runs", FLOATS)
    for rule, near in itertools.product(_RULES, _ROUNDED):
        attrs = {"nearest_mode": near, "coordinate_transformation_mode": rule}
        yield Case(normal((1, 5, 6)), resize, {"scales": (1.7, 0.6), **two, **attrs}, f"{rule}-{near}", _ONE)
    yield Case(normal((0, 2)), resize, {"sizes": (0, 4)}, "empty", _ONE)
    yield Case(normal((3, 2)), resize, {"scales": (1.0, 1.0)}, "same", _ONE)


def _blend_cases() -> Iterator[Case]:
    def case(label: str, kinds: tuple[str, ...] = (*_ONE, "float64"), **attrs: Any) -> Case:
        attrs = {"axes": (1, 2), **attrs}
        return Case(normal((2, 6, 7, 2)), resize, attrs, label, kinds, bound=_resize_bound, smooth=True)

    for mode in ("linear", "cubic"):
        yield case(mode, FLOATS, mode=mode, scales=(1.7, 0.5))
        for rule in _RULES[1:]:
            yield case(f"{mode}-{rule}", mode=mode, sizes=(4, 11), coordinate_transformation_mode=rule)
            given: dict[str, Any] = {
                "mode": mode,
                "scales": (1.3, 0.62),
                "coordinate_transformation_mode": rule,
            }
            yield case(f"{mode}-{rule}-scales", **given)
        yield case(f"{mode}-antialias", mode=mode, sizes=(3, 4), antialias=True)
        yield case(f"{mode}-inside", mode=mode, sizes=(9, 4), exclude_outside=True)
        yield case(f"{mode}-both", mode=mode, sizes=(2, 9), exclude_outside=True, antialias=True)
    yield case("coefficient", mode="cubic", scales=(1.5, 2.0), cubic_coeff_a=-0.5)
    yield case("inner", mode="linear", sizes=(4, 5), axes=(3, 0))
    plane = {"sizes": (61, 47), "axes": (2, 3), "mode": "linear"}
    yield Case(normal((2, 8, 31, 33)), resize, plane, "threads", bound=_resize_bound)


def _crop_cases() -> Iterator[Case]:
    crop = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 3.5}
    roi = (-0.25, 0.125, 0.75, 1.5)
    for mode in ("nearest", "linear", "cubic"):
        attrs = {"mode": mode, "sizes": (5, 7), "axes": (1, 2), "roi": roi, **crop}
        exact = mode == "nearest"
        draw = normal((2, 6, 7, 2))
        yield Case(draw, resize, attrs, f"crop-{mode}", bound=None if exact else _resize_bound, smooth=True)
    one = {"mode": "linear", "sizes": (1, 7), "axes": (1, 2), "roi": (0.0, 0.0, 0.5, 1.0), **crop}
    yield Case(normal((2, 6, 7)), resize, one, "crop-one", bound=_resize_bound)


# Samples at computed places


def _inside(x: Any, extent: int, padding: str, corners: bool) -> Any:
    """Of a position."""
    if padding == "reflection":
        low, width = (0.0, extent - 1) if corners else (-0.5, extent)
        if width == 0:
            return x * 0
        x = (x - low) % (2 * width)
        x = low + (2 * width - x if x > width else x)
    return x if padding == "zeros" else min(max(x, x * 0), x * 0 + extent - 1)


def _taps(x: Any, extent: int, mode: str, padding: str, corners: bool) -> list[tuple[int, Any]]:
    if mode != "cubic":
        x = _inside(x, extent, padding, corners)
    low = math.floor(x)
    if mode == "nearest":
        taps = [(round(x), x * 0 + 1)]
    elif mode == "linear":
        taps = [(k, 1 - abs(x - k)) for k in (low, low + 1)]
    else:
        near = range(low - 1, low + 3)
        taps = [(round(_inside(x * 0 + k, extent, padding, corners)), _keys(x - k, -0.75)) for k in near]
    return [(k, weight) for k, weight in taps if 0 <= k < extent]


def grid_sample(
    t: Array,
    grid: Array,
    mode: str = "linear",
    padding_mode: str = "zeros",
    align_corners: bool = False,
) -> Array:
    """Place by place."""
    spatial = t.shape[2:]
    result = np.zeros((*t.shape[:2], *grid.shape[1:-1]), t.dtype)
    for n, *place in np.ndindex(*grid.shape[:-1]):
        found = grid[(n, *place)][::-1]
        if np.isnan(found).any():
            continue
        scaled = [
            (g + 1) * (extent - 1) / 2 if align_corners else ((g + 1) * extent - 1) / 2
            for g, extent in zip(found, spatial, strict=True)
        ]
        taps = [_taps(x, e, mode, padding_mode, align_corners) for x, e in zip(scaled, spatial, strict=True)]
        for chosen in itertools.product(*taps):
            weight = np.prod([w for _, w in chosen])
            result[(n, slice(None), *place)] += weight * t[(n, slice(None), *(k for k, _ in chosen))]
    return result


def _grid_bound(t: Array, grid: Array, u: Any, **attrs: Any) -> Array:
    # A position is off by a few roundings of an extent, or of what lies as far outside.
    shape = (*t.shape[:2], *grid.shape[1:-1])
    most = np.max(np.abs(t), initial=0) * 64 * max(t.shape[2:], default=1)
    return np.full(shape, u * most)


def _places(*shape: int) -> Draw:
    def draw(rng: np.random.Generator, name: str) -> list[Array]:
        kind = normal(())(rng, name)[0].dtype
        return [rng.uniform(-1.6, 1.6, shape).astype(kind)]

    return draw


def _grid_cases() -> Iterator[Case]:
    paddings, modes = ("zeros", "border", "reflection"), ("nearest", "linear", "cubic")

    def case(label: str, spatial: tuple[int, ...], out: tuple[int, ...], *kinds: str, **attrs: Any) -> Case:
        draw = together(normal((2, 3, *spatial)), _places(2, *out, len(spatial)))
        smooth = 1 not in spatial
        return Case(draw, grid_sample, attrs, label, kinds or FLOATS, bound=_grid_bound, smooth=smooth)

    yield case("", (5, 6), (4, 3))
    for mode, padding, corners in itertools.product(modes, paddings, (False, True)):
        attrs = {"mode": mode, "padding_mode": padding, "align_corners": corners}
        yield case(f"{mode}-{padding}-{corners}", (4, 5), (3, 4), "float32", "float64", **attrs)
    for mode, padding in zip(modes, paddings, strict=True):
        yield case(f"{mode}-line", (7,), (9,), "float64", mode=mode, padding_mode=padding)
        yield case(f"{mode}-volume", (3, 4, 5), (2, 2, 3), "float64", mode=mode, padding_mode=padding)
        one = {"mode": mode, "padding_mode": padding, "align_corners": True}
        yield case(f"{mode}-one", (1, 4), (3, 2), "float64", **one)
    yield case("threads", (17, 19), (41, 40), "float32", mode="linear")
    yield case("no-place", (3, 4), (0, 2), "float32")

    def nan(rng: np.random.Generator, name: str) -> list[Array]:
        t, grid = together(normal((1, 2, 3, 4)), _places(1, 2, 2, 2))(rng, name)
        grid[0, 0, 0, 0] = grid[0, 1, 0, 1] = np.nan
        return [t, grid]

    yield Case(nan, grid_sample, {}, "nan", bound=_grid_bound)


# Fourier transforms


def fft(t: Array, axis: int = -2, inverse: bool = False, real_part: bool = False) -> Array:
    """By the matrix of the definition."""
    n = t.shape[axis]
    turns = (np.outer(np.arange(n), np.arange(n)) % max(n, 1)).astype(np.longdouble) / max(n, 1)
    angles = (8 if inverse else -8) * np.arctan(np.longdouble(1)) * turns
    parts = [np.cos(angles), np.sin(angles)]
    x = [np.moveaxis(t[..., k], axis + 1 if axis < 0 else axis, -1) for k in range(t.shape[-1])]
    x.append(np.zeros_like(x[0]))
    made = [x[0] @ parts[0] - x[1] @ parts[1], x[0] @ parts[1] + x[1] @ parts[0]]
    share = max(n, 1) if inverse else 1
    kept = [
        np.moveaxis(each / share, -1, axis + 1 if axis < 0 else axis)
        for each in made[: 1 if real_part else 2]
    ]
    return np.stack(kept, -1)


def _fft_bound(t: Array, u: Any, axis: int = -2, inverse: bool = False, real_part: bool = False) -> Array:
    # Computed as float64; by Parseval's identity sums are as large as the whole.
    n = max(t.shape[axis], 1)
    size = np.sqrt(np.sum(np.square(t.astype(np.float64)), axis=(axis, -1), keepdims=True)) / (
        n if inverse else 1
    )
    exact = np.abs(fft(t, axis, inverse, real_part))
    return 2 * u * exact + 24e-16 * (np.log2(n) + 2) * np.sqrt(n) * size


def _fft_cases() -> Iterator[Case]:
    def case(label: str, *shape: int, kinds: tuple[str, ...] = ("float32", "float64"), **attrs: Any) -> Case:
        return Case(normal(shape), fft, attrs, label, kinds, bound=_fft_bound, smooth=0 not in shape)

    yield case("", 3, 8, 2, kinds=FLOATS)
    yield case("inverse", 3, 12, 2, kinds=FLOATS, inverse=True)
    for n in (1, 2, 3, 5, 6, 16, 17, 30, 49, 53, 64, 143, 360):
        yield case(f"n-{n}", 2, n, 2, inverse=n % 2 == 0)
    yield case("real", 4, 10, 1)
    yield case("real-part", 4, 19, 2, real_part=True, inverse=True)
    yield case("middle", 2, 15, 3, 2, 2, axis=1)
    yield case("threads", 64, 256, 2)
    yield case("empty", 3, 0, 2)


def resampling_rows() -> dict[str, Row]:
    """Rows by op."""
    return {
        "resize": Row((*_nearest_cases(), *_blend_cases(), *_crop_cases()), "finite"),
        "fft": Row(tuple(_fft_cases()), "finite"),
        "grid_sample": Row(tuple(_grid_cases()), "finite"),
    }
