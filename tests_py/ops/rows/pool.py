"""Rows of the table of ops for pooling, resizing and regions, and their oracles: loops that follow the definitions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import popsr
from tests_py.ops.rows.inputs import Case, Draw, Row, normal, specials, together
from tests_py.support.helpers import FLOATS, INTS, Array

_ONE = ("float32",)

# Windows


def _per_dimension(values: Any, count: int, default: int) -> list[int]:
    return [default] * count if values is None else [int(value) for value in values]


def window_count(extent: int, kernel: int, stride: int, pads: tuple[int, int], ceil_mode: bool) -> int:
    """Windows that begin at multiples of the stride: those inside the padded line, or one more."""
    starts = range(0, extent + sum(pads), stride)
    inside = [start for start in starts if start + kernel <= extent + sum(pads)]
    if ceil_mode and inside[-1] + kernel < extent + sum(pads):
        following = inside[-1] + stride
        return len(inside) + int(following < extent + pads[0])
    return len(inside)


class Windows:
    """The elements that windows of one dimension meet: ``taps[o]`` in ascending order."""

    def __init__(
        self,
        extent: int,
        kernel: int,
        stride: int,
        pads: tuple[int, int],
        dilation: int,
        spread: int,
        auto_pad: str,
        ceil_mode: bool,
    ) -> None:
        span, reach = (kernel - 1) * dilation + 1, (extent - 1) * spread + 1
        if auto_pad.startswith("same"):
            count = math.ceil(reach / stride)
            total = max((count - 1) * stride + span - reach, 0)
            small, large = total // 2, total - total // 2
            pads = (small, large) if auto_pad == "same_upper" else (large, small)
        else:
            pads = (0, 0) if auto_pad == "valid" else pads
            count = window_count(reach, span, stride, pads, ceil_mode and auto_pad == "not_set")
        places = {i * spread + pads[0]: i for i in range(extent)}
        self.taps = [
            [places[o * stride + k * dilation] for k in range(kernel) if o * stride + k * dilation in places]
            for o in range(count)
        ]


def windows_of(
    t: Array,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = None,
    out_pads: Any = None,
    dilation: Any = None,
    in_dilations: Any = None,
    auto_pad: str = "not_set",
    ceil_mode: bool = False,
    storage_order: str = "row",
) -> tuple[list[Windows], list[int]]:
    """Windows along each spatial dimension, and the zeros around the result."""
    n = t.ndim - 2
    pads = _per_dimension(padding, 2 * n, 0)
    steps, dilations = _per_dimension(stride, n, 1), _per_dimension(dilation, n, 1)
    spreads = _per_dimension(in_dilations, n, 1)
    axes = [
        Windows(
            t.shape[2 + d],
            kernel_size[d],
            steps[d],
            (pads[d], pads[n + d]),
            dilations[d],
            spreads[d],
            auto_pad,
            ceil_mode,
        )
        for d in range(n)
    ]
    return axes, _per_dimension(out_pads, 2 * n, 0)


def pooled(t: Array, fold: Callable[[Array], Any], **attrs: Any) -> Array:
    """``fold`` of the elements [samples, channels, elements] that each window meets."""
    axes, around = windows_of(t, **attrs)
    n = len(axes)
    result = np.zeros((*t.shape[:2], *(len(axis.taps) for axis in axes)), t.dtype)
    for at in np.ndindex(result.shape[2:]):
        taps: tuple[Any, ...] = np.ix_(*(axis.taps[o] for axis, o in zip(axes, at, strict=True)))
        met = t[(slice(None), slice(None), *taps)]
        result[(slice(None), slice(None), *at)] = fold(met.reshape(*t.shape[:2], math.prod(met.shape[2:])))
    return np.pad(result, [(0, 0), (0, 0), *((around[d], around[n + d]) for d in range(n))])


def _mean(met: Array) -> Array:
    """In order: NumPy's sums are pairwise."""
    total = np.zeros(met.shape[:2], met.dtype)
    with np.errstate(all="ignore"):
        for i in range(met.shape[2]):
            total += met[:, :, i]
        return total / met.dtype.type(max(met.shape[2], 1))


def _largest(met: Array) -> Array:
    total = np.full(met.shape[:2], -np.inf, met.dtype)
    for i in range(met.shape[2]):
        value = met[:, :, i]
        zeros = (total == 0) & (value == 0)
        total = np.where(zeros, np.where(np.signbit(total), value, total), np.maximum(total, value))
    return total


def average_pool(t: Array, **attrs: Any) -> Array:
    """Averages of what windows meet."""
    return pooled(t, _mean, **attrs)


def max_pool(t: Array, **attrs: Any) -> Array:
    """Maxima of what windows meet."""
    return pooled(t, _largest, **attrs)


def _specials(*shape: int) -> Draw:
    """Special values in random places."""
    return lambda rng, name: [rng.choice(specials(name), shape)]


_WINDOWS: tuple[tuple[str, tuple[int, ...], dict[str, Any]], ...] = (
    ("", (2, 3, 6, 7), {"kernel_size": (2, 2)}),
    ("strides", (2, 3, 7, 8), {"kernel_size": (3, 2), "stride": (2, 3)}),
    ("padding", (1, 2, 5, 6), {"kernel_size": (3, 3), "stride": (2, 2), "padding": (1, 0, 1, 2)}),
    ("dilation", (1, 2, 7, 8), {"kernel_size": (2, 3), "dilation": (3, 2), "padding": (0, 1, 2, 0)}),
    ("ceil", (1, 2, 6, 7), {"kernel_size": (3, 2), "stride": (2, 2), "ceil_mode": True}),
    (
        "ceil-padded",
        (1, 2, 5, 4),
        {"kernel_size": (2, 2), "stride": (3, 2), "padding": (1, 1, 1, 1), "ceil_mode": True},
    ),
    ("same-upper", (1, 2, 6, 7), {"kernel_size": (4, 3), "stride": (2, 3), "auto_pad": "same_upper"}),
    ("same-lower", (1, 2, 6, 7), {"kernel_size": (4, 2), "stride": (1, 2), "auto_pad": "same_lower"}),
    ("valid", (1, 2, 6, 7), {"kernel_size": (4, 2), "stride": (3, 2), "auto_pad": "valid"}),
    ("rule-and-padding", (1, 1, 6), {"kernel_size": (3,), "padding": (2, 2), "auto_pad": "valid"}),
    ("valid-ceil", (1, 1, 6), {"kernel_size": (3,), "stride": (2,), "auto_pad": "valid", "ceil_mode": True}),
    ("spread", (1, 2, 4, 5), {"kernel_size": (3, 4), "stride": (1, 3), "in_dilations": (2, 2)}),
    ("spread-strides", (1, 2, 4, 3), {"kernel_size": (2, 4), "stride": (3, 2), "in_dilations": (2, 3)}),
    ("margins", (2, 1, 4, 5), {"kernel_size": (2, 2), "out_pads": (1, 0, 2, 3)}),
    ("line", (2, 3, 9), {"kernel_size": (3,), "stride": (2,), "padding": (1, 1)}),
    (
        "volume",
        (1, 2, 4, 5, 6),
        {"kernel_size": (2, 3, 2), "stride": (2, 1, 3), "padding": (1, 0, 0, 0, 1, 1)},
    ),
    ("whole", (2, 3, 5, 4), {"kernel_size": (5, 4)}),
    ("nothing-met", (1, 2, 3, 3), {"kernel_size": (1, 2), "padding": (2, 3, 1, 3), "dilation": (1, 4)}),
)


def _pools(oracle: Callable[..., Array]) -> list[Case]:
    wide = {"kernel_size": (3, 3), "stride": (2, 2), "padding": (1, 1, 1, 1)}
    return [
        *(
            # No difference of infinite maxima.
            Case(normal(shape), oracle, attrs, label, smooth=oracle is average_pool or label != "nothing-met")
            for label, shape, attrs in _WINDOWS
        ),
        Case(normal((3, 16, 33, 35)), oracle, wide, "threads"),
        Case(normal((0, 3, 4)), oracle, {"kernel_size": (2,)}, "no-sample", _ONE),
        Case(_specials(2, 3, 9, 9), oracle, {"kernel_size": (2, 3)}, "special"),
    ]


def _pool_rows() -> dict[str, Row]:
    order = Case(
        normal((1, 1, 4)), max_pool, {"kernel_size": (2,), "storage_order": "column"}, "column", _ONE
    )
    empty = Case(
        lambda rng, name: [np.zeros((2, 3, 0), name)],
        max_pool_of_nothing,
        {"kernel_size": (2,), "padding": (1, 2)},
        "no-element",
        _ONE,
    )
    return {
        "average_pool": Row(tuple(_pools(average_pool)), "finite"),
        "max_pool": Row((*_pools(max_pool), order, empty), "finite"),
    }


def max_pool_of_nothing(t: Array, **_: Any) -> Array:
    """Two windows of padding alone."""
    return np.full((*t.shape[:2], 2), -np.inf, t.dtype)


# Interpolation

Weights = list[tuple[int, Any]]


def _place(rule: str, i: int, scale: float, extent: int, results: int) -> float:
    if rule in ("half_pixel", "pytorch_half_pixel"):
        return 0.0 if results == 1 and rule == "pytorch_half_pixel" else (i + 0.5) / scale - 0.5
    if rule == "asymmetric":
        return i / scale
    if results == 1:
        return 0.0 if rule == "align_corners" else (extent - 1) / 2
    return i * (extent - 1) / (results - 1)


def _nearest(rule: str, x: float) -> int:
    low, fraction = math.floor(x), x - math.floor(x)
    if rule == "floor" or fraction == 0:
        return low
    if rule == "ceil":
        return low + 1
    half = 0 if rule == "round_prefer_floor" else 1
    return low + (half if fraction == 0.5 else int(fraction > 0.5))


def _cubic(distance: float) -> float:
    """Keys' kernel, a = -0.75."""
    a, x = -0.75, abs(distance)
    if x <= 1:
        return (a + 2) * x**3 - (a + 3) * x**2 + 1
    return a * (x**3 - 5 * x**2 + 8 * x - 4) if x < 2 else 0.0


def _neighbours(mode: str, nearest_mode: str, x: float) -> Weights:
    low = math.floor(x)
    if mode == "nearest":
        return [(_nearest(nearest_mode, x), 1.0)]
    if mode == "linear":
        return [(k, max(0.0, 1 - abs(x - k))) for k in (low, low + 1)]
    return [(k, _cubic(x - k)) for k in range(low - 1, low + 3)]


def resize_matrix(
    extent: int, scale: float, mode: str, nearest_mode: str, coordinate_transformation_mode: str
) -> Array:
    """Results times elements of one dimension."""
    results = math.floor(extent * scale)
    matrix = np.zeros((results, extent), np.longdouble)
    for i in range(results if scale != 1 else 0):
        x = _place(coordinate_transformation_mode, i, scale, extent, results)
        for k, weight in _neighbours(mode, nearest_mode, x):
            matrix[i, min(max(k, 0), extent - 1)] += weight
    return np.eye(extent, dtype=np.longdouble) if scale == 1 else matrix


def interpolate(
    t: Array,
    scale_factor: Any = (1.0, 1.0, 1.0, 1.0),
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
    coordinate_transformation_mode: str = "half_pixel",
    size: bool = False,
) -> Array:
    """By a matrix per dimension; ``size``: of absolute values."""
    result = np.abs(t) if size else t
    for axis, scale in enumerate(scale_factor):
        matrix = resize_matrix(t.shape[axis], scale, mode, nearest_mode, coordinate_transformation_mode)
        matrix = (np.abs(matrix) if size else matrix).astype(t.dtype)
        result = np.moveaxis(np.tensordot(matrix, result, (1, axis)), 0, axis)
    return np.asarray(result)


def _resize_bound(t: Array, u: Any, **attrs: Any) -> Array:
    # Weights are computed as float64, here and there.
    largest = np.max(np.abs(t))
    return 8 * len(t.shape) * u * interpolate(t, size=True, **attrs) + 1e-14 * largest


def taken(t: Array, **attrs: Any) -> Array:
    """Nearest elements, which are moved alone: exact, also for special values."""
    rules = [attrs.get("nearest_mode", "round_prefer_floor")]
    rules.append(attrs.get("coordinate_transformation_mode", "half_pixel"))
    for axis, scale in enumerate(attrs.get("scale_factor", (1.0,) * 4)):
        matrix = resize_matrix(t.shape[axis], scale, "nearest", *rules)
        t = np.take(t, np.argmax(matrix, 1) if matrix.shape[1] else np.zeros(0, int), axis)
    return t


_COORDINATES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize")
_NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


def _resizes() -> Iterator[Case]:
    up, down, mixed = (1.0, 1.0, 2.0, 3.0), (1.0, 1.0, 0.6, 0.34), (1.0, 1.0, 1.7, 0.5)
    yield Case(normal((2, 3, 4, 5)), taken, {"scale_factor": up}, "", smooth=True)
    yield Case(normal((2, 3, 4, 5)), taken, {}, "default", smooth=True)
    for rule, near in itertools.product(_COORDINATES, _NEAREST):
        attrs = {"nearest_mode": near, "coordinate_transformation_mode": rule}
        for label, scale in (("up", up), ("mixed", mixed)):
            case = Case(
                normal((1, 2, 5, 6)), taken, {"scale_factor": scale, **attrs}, f"{rule}-{near}-{label}", _ONE
            )
            yield case
    for mode, rule in itertools.product(("linear", "cubic"), _COORDINATES):
        attrs = {"mode": mode, "coordinate_transformation_mode": rule}
        for label, scale in (("up", up), ("down", down), ("mixed", mixed)):
            yield Case(
                normal((2, 2, 5, 6)),
                interpolate,
                {"scale_factor": scale, **attrs},
                f"{mode}-{rule}-{label}",
                FLOATS if label == "mixed" else (*_ONE, "float64"),
                bound=_resize_bound,
                smooth=True,
            )
    for mode, rule in itertools.product(("nearest", "linear"), _COORDINATES):
        scaled = {"mode": mode, "coordinate_transformation_mode": rule, "scale_factor": (1.0, 1.0, 0.26)}
        yield Case(normal((1, 2, 5)), interpolate, scaled, f"{mode}-{rule}-one", bound=_resize_bound)
    line = {"scale_factor": (2.0, 1.0, 1.5), "mode": "linear"}
    yield Case(normal((2, 3, 4)), interpolate, line, "samples", bound=_resize_bound, smooth=True)
    five = {"scale_factor": (1.0, 2.0, 1.5, 0.5, 1.0), "mode": "cubic"}
    yield Case(normal((1, 2, 3, 4, 2)), interpolate, five, "five", bound=_resize_bound, smooth=True)
    plane = {"scale_factor": (1.0, 1.0, 2.5, 2.5), "mode": "linear"}
    yield Case(normal((2, 8, 31, 33)), interpolate, plane, "threads", bound=_resize_bound)
    yield Case(_specials(1, 2, 5, 6), taken, {"scale_factor": mixed}, "special")
    yield Case(normal((0, 2, 3)), taken, {"scale_factor": (1.0, 1.0, 2.0)}, "no-sample", _ONE)
    yield Case(normal((2, 0)), taken, {"scale_factor": (1.0, 2.0)}, "no-element", _ONE)
    yield Case(normal(()), taken, {"scale_factor": ()}, "scalar", _ONE)


# Regions


def _sample(plane: Array, y: Any, x: Any) -> Any:
    """Bilinear, of [channels, height, width]."""
    height, width = plane.shape[1:]
    if not (-1 <= y <= height and -1 <= x <= width):
        return np.zeros(plane.shape[0], plane.dtype)
    y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
    total = np.zeros(plane.shape[0], plane.dtype)
    for i in range(int(y), min(int(y) + 2, height)):
        for j in range(int(x), min(int(x) + 2, width)):
            total = total + plane[:, i, j] * (1 - abs(y - i)) * (1 - abs(x - j))
    return total


def roi_align(
    t: Array, rois: Array, batch_index: Array, output_size: Any, spatial_scale: float, sampling_ratio: int
) -> Array:
    """Sample by sample."""
    bins_y, bins_x = output_size
    result = np.zeros((len(rois), t.shape[1], bins_y, bins_x), t.dtype)
    for r, (corners, sample) in enumerate(zip(rois.astype(float), batch_index, strict=True)):
        if not np.isfinite(corners).all():
            result[r] = np.nan
            continue
        x1, y1, x2, y2 = (float(corner) * spatial_scale for corner in corners)
        bin_h, bin_w = max(y2 - y1, 1) / bins_y, max(x2 - x1, 1) / bins_x
        grid_y, grid_x = sampling_ratio or math.ceil(bin_h), sampling_ratio or math.ceil(bin_w)
        for p, q in np.ndindex(bins_y, bins_x):
            for i, j in np.ndindex(grid_y, grid_x):
                y = y1 + p * bin_h + (i + 0.5) * bin_h / grid_y
                x = x1 + q * bin_w + (j + 0.5) * bin_w / grid_x
                result[r, :, p, q] += _sample(t[int(sample)], y, x)
        result[r] /= grid_y * grid_x
    return result


def _roi_bound(t: Array, rois: Array, batch_index: Array, u: Any, **attrs: Any) -> Array:
    # Positions are computed as float64: a part of an element more or less where its rounding matters.
    largest = np.max(np.abs(np.where(np.isfinite(t), t, 0)))
    return 16 * u * roi_align(np.abs(t), rois, batch_index, **attrs) + 1e-12 * largest


def _regions(count: int, height: int, width: int) -> Draw:
    """Corners of ordinary regions, and of some that are tiny, inverted or reach outside."""

    def draw(rng: np.random.Generator, name: str) -> list[Array]:
        ends = np.sort(rng.uniform(-1.5, 1.2, (count, 2, 2)) * [[width], [height]], axis=2)
        corners = ends.transpose(0, 2, 1).reshape(count, 4)
        corners[0] = [1, 1, 1.25, 1.5]
        if count > 1:
            corners[1] = corners[1][[2, 3, 0, 1]]
        kind = popsr.dtypes.dtype.from_name(name).as_numpy()
        return [corners.astype(kind)]

    return draw


def _samples(count: int, below: int, kind: str = "int32") -> tuple[Draw, str]:
    return (lambda rng, name: [rng.integers(0, below, (count,)).astype(name)]), kind


def _on_fixed_regions(fn: Callable[..., Any], t: Any, **attrs: Any) -> Any:
    corners = _regions(4, 6, 7)(np.random.default_rng(3), "float64")[0]
    return fn(t, popsr.constant(corners, t.dtype), popsr.constant([1, 0, 1, 1], popsr.int32), **attrs)


def _of_fixed_regions(t: Array, **attrs: Any) -> Array:
    corners = _regions(4, 6, 7)(np.random.default_rng(3), "float64")[0]
    return roi_align(t, corners, np.array([1, 0, 1, 1]), **attrs)


def _roi_row() -> Row:
    def case(label: str, size: Any, scale: float, ratio: int, dtypes: Any = FLOATS, **kind: str) -> Case:
        attrs = {"output_size": size, "spatial_scale": scale, "sampling_ratio": ratio}
        draw = together(normal((2, 3, 6, 7)), _regions(5, 6, 7), _samples(5, 2, **kind))
        return Case(draw, roi_align, attrs, label, dtypes, bound=_roi_bound)

    def smooth(label: str, size: Any, scale: float, ratio: int) -> Case:
        attrs = {"output_size": size, "spatial_scale": scale, "sampling_ratio": ratio}
        return Case(
            normal((2, 3, 6, 7)),
            _of_fixed_regions,
            attrs,
            label,
            ("float64",),
            bound=lambda t, u, **_: np.full((4, 3, *size), 1e-12),
            call=_on_fixed_regions,
            smooth=True,
        )

    attrs = {"output_size": (2, 2), "spatial_scale": 1.0, "sampling_ratio": 1}
    none = together(normal((2, 3, 6, 7)), lambda rng, name: [np.zeros((0, 4), name)], _samples(0, 2))
    return Row(
        (
            case("", (2, 3), 1.0, 2),
            case("adaptive", (3, 2), 1.0, 0),
            case("scaled", (2, 2), 0.5, 3),
            case("fine", (5, 7), 0.7, 1),
            *(case(f"by-{kind}", (1, 2), 1.0, 2, _ONE, kind=kind) for kind in INTS),
            smooth("smooth", (2, 3), 1.0, 2),
            smooth("smooth-adaptive", (3, 2), 0.8, 0),
            Case(none, roi_align, attrs, "no-region", _ONE, bound=lambda *_, **__: np.zeros((0, 3, 2, 2))),
        ),
        "finite",
        grad_of="first",
    )


def pool_rows() -> dict[str, Row]:
    """Rows by op."""
    return {**_pool_rows(), "interpolate": Row(tuple(_resizes()), "finite"), "roi_align": _roi_row()}
