"""Samples of images at computed places: GridSample, RoiAlign."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from popsr import dtypes, ops
from popsr.bridge.onnx._node import Node
from popsr.bridge.onnx._rules import NotSupportedError, rule
from popsr.bridge.onnx._tensors import moved, reshaped
from popsr.tensor import Tensor

__all__: list[str] = []


def _elements(t: Tensor, corners: Sequence[Tensor]) -> Tensor:
    """``[samples, places, channels]``: elements of ``[samples, channels, *spatial]`` at whole places of each axis."""
    places = [reshaped(each, (*each.shape, 1)) for each in corners]
    axes = range(2, t.rank)
    return ops.gather_general(
        t,
        ops.concat(places, places[0].rank - 1) if len(places) > 1 else places[0],
        slice_sizes=(1, t.shape[1], *(1 for _ in axes)),
        offset_dims=(2,),
        index_map=axes,
        collapsed_dims=axes,
        operand_batching_dims=(0,),
        indices_batching_dims=(0,),
    )


@rule("GridSample", since=16)
def _grid_sample(node: Node, t: Tensor, grid: Tensor) -> Tensor:
    """Interpolation at places from -1 to 1."""
    spatial, out = t.shape[2:], grid.shape[1:-1]
    rows = reshaped(grid, (grid.shape[0], int(np.prod(out, dtype=np.int64)), len(spatial)))
    parts = [reshaped(each, rows.shape[:2]) for each in ops.split(rows, len(spatial), 2)][::-1]
    corners = bool(node.integer("align_corners", 0))
    places = [_scaled(node, each, extent, corners) for each, extent in zip(parts, spatial, strict=True)]
    padding = node.text("padding_mode", "zeros")
    mode = node.text("mode", "linear").removeprefix("bi")
    if padding in ("border", "reflection") and mode != "cubic":
        places = [
            _moved_inside(node, each, extent, corners, padding)
            for each, extent in zip(places, spatial, strict=True)
        ]
    taps = [_taps(node, each, mode) for each in places]
    total: Tensor | None = None
    for chosen in itertools.product(*taps):
        value = _at(node, t, [place for place, _ in chosen], padding, corners)
        for _, weight in chosen:
            if weight is not None:
                value = ops.mul(value, reshaped(weight, (*weight.shape, 1)))
        total = value if total is None else ops.add(total, value)
    assert total is not None
    return reshaped(moved(total, (0, 2, 1)), (t.shape[0], t.shape[1], *out))


def _scaled(node: Node, place: Tensor, extent: int, corners: bool) -> Tensor:
    """From -1 to 1 to the positions of elements."""
    one = ops.add(place, node.like(1, place))
    if corners:
        return ops.mul(one, node.like((extent - 1) / 2, place))
    return ops.mul(
        ops.sub(ops.mul(one, node.like(extent, place)), node.like(1, place)), node.like(0.5, place)
    )


def _clipped(node: Node, t: Tensor, extent: int) -> Tensor:
    return ops.minimum(ops.maximum(t, node.like(0, t)), node.like(extent - 1, t))


def _moved_inside(node: Node, place: Tensor, extent: int, corners: bool, padding: str) -> Tensor:
    """At the border, or reflected at it."""
    if padding == "border":
        return _clipped(node, place, extent)
    low, high = (0.0, extent - 1.0) if corners else (-0.5, extent - 0.5)
    return _clipped(node, _reflected(node, place, low, high), extent)


def _reflected(node: Node, place: Tensor, low: float, high: float) -> Tensor:
    width = high - low
    if width <= 0:
        return ops.mul(place, node.like(0, place))
    distance = ops.abs(ops.sub(place, node.like(low, place)))
    turn = ops.fmod(distance, node.like(2 * width, place))
    back = ops.sub(node.like(2 * width, place), turn)
    inside = ops.where(ops.greater(turn, node.like(width, place)), back, turn)
    return ops.add(inside, node.like(low, place))


Tap = tuple[Tensor, Tensor | None]


def _taps(node: Node, place: Tensor, mode: str) -> list[Tap]:
    """Whole neighbours of a place, with their weights."""
    if mode == "nearest":
        return [(ops.round(place), None)]
    first = ops.floor(place)
    rest = ops.sub(place, first)
    one = node.like(1, place)
    if mode == "linear":
        return [(first, ops.sub(one, rest)), (ops.add(first, one), rest)]
    if mode != "cubic":
        raise NotSupportedError(f"mode {mode}")
    taps: list[Tap] = []
    for offset in (-1, 0, 1, 2):
        distance = ops.abs(ops.sub(rest, node.like(offset, rest)))
        taps.append((ops.add(first, node.like(offset, first)), _cubic(node, distance, offset in (0, 1))))
    return taps


def _cubic(node: Node, d: Tensor, near: bool) -> Tensor:
    """The weight of a distance up to 1, or up to 2, with a = -0.75."""
    a = -0.75
    factors = (a + 2, -(a + 3), 0.0, 1.0) if near else (a, -5 * a, 8 * a, -4 * a)
    total = node.like(factors[0], d)
    for factor in factors[1:]:
        total = ops.add(ops.mul(total, d), node.like(factor, d))
    return total


def _at(node: Node, t: Tensor, places: Sequence[Tensor], padding: str, corners: bool) -> Tensor:
    """Elements at whole places; those outside are 0, or moved inside."""
    extents, inside, whole = t.shape[2:], None, []
    for place, extent in zip(places, extents, strict=True):
        if padding == "reflection":
            low, high = (0.0, extent - 1.0) if corners else (-0.5, extent - 0.5)
            place = _reflected(node, place, low, high)
        elif padding == "zeros":
            here = ops.logical_and(
                ops.greater_equal(place, node.like(0, place)),
                ops.less_equal(place, node.like(extent - 1, place)),
            )
            inside = here if inside is None else ops.logical_and(inside, here)
        whole.append(ops.cast(_clipped(node, place, extent), dtypes.int64))
    found = _elements(t, whole)
    return (
        found
        if inside is None
        else ops.where(reshaped(inside, (*inside.shape, 1)), found, node.like(0, found))
    )


# Regions


@rule("RoiAlign", since=10)
def _roi_align(node: Node, t: Tensor, rois: Tensor, samples: Tensor) -> Tensor:
    """Means, or greatest products, of samples of each bin; of opset 16 places are moved by half a pixel."""
    size = (node.integer("output_height", 1), node.integer("output_width", 1))
    ratio, scale = node.integer("sampling_ratio", 0), node.number("spatial_scale", 1.0)
    default = "half_pixel" if node.opset >= 16 else "output_half_pixel"
    if node.text("mode", "avg") != "avg":
        raise NotSupportedError("mode max")
    if node.text("coordinate_transformation_mode", default) != "output_half_pixel":
        raise NotSupportedError("coordinates half_pixel")
    return ops.roi_align(t, rois, samples, size, scale, ratio)
