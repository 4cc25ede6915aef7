"""Resize and Upsample: interpolation along one axis after another, with weights that are known when a model is read."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from popsr import dtypes, ops
from popsr.bridge.onnx._node import Node, Value, cast, is_float
from popsr.bridge.onnx._rules import NotSupportedError, rule
from popsr.bridge.onnx._tensors import counting, moved
from popsr.bridge.onnx._types import Array
from popsr.tensor import Tensor

__all__: list[str] = []


@rule("Upsample", since=7, kind="raw")
def _upsample(node: Node, value: Value, scales: Value = None) -> Tensor:
    t = node.tensor(value)
    given = node.floats("scales") if scales is None else [float(n) for n in node.known(scales, "scales")]
    mode = node.text("mode", "nearest")
    for axis, scale in enumerate(given):
        extent = math.floor(t.shape[axis] * scale)
        t = _axis(node, t, axis, extent, scale, mode, "asymmetric", "floor", None)
    return t


@rule("Resize", since=10, kind="raw")
def _resize(node: Node, value: Value, roi: Value = None, scales: Value = None, sizes: Value = None) -> Tensor:
    t = node.tensor(value)
    if node.opset == 10:
        roi, scales = None, roi
    axes = [axis % t.rank for axis in node.ints("axes", tuple(range(t.rank)))]
    factors, extents = _factors(node, t, axes, scales, sizes)
    coordinates = node.text(
        "coordinate_transformation_mode", "half_pixel" if node.opset > 10 else "asymmetric"
    )
    crop = None
    if coordinates == "tf_crop_and_resize":
        crop = [float(n) for n in node.known(roi, "roi")]
    mode = node.text("mode", "nearest")
    nearest = node.text("nearest_mode", "round_prefer_floor" if node.opset > 10 else "floor")
    if crop is None and _is_one_op(node, t, mode, coordinates, axes, factors, extents):
        scale_of = dict(zip(axes, factors, strict=True))
        every = [scale_of.get(axis, 1.0) for axis in range(t.rank)]
        return ops.interpolate(t, every, mode, nearest, coordinates)  # type: ignore[arg-type]
    for i, axis in enumerate(axes):
        part = None if crop is None else (crop[i], crop[len(axes) + i])
        t = _axis(node, t, axis, extents[i], factors[i], mode, coordinates, nearest, part)
    return t


def _is_one_op(
    node: Node,
    t: Tensor,
    mode: str,
    coordinates: str,
    axes: Sequence[int],
    factors: Sequence[float],
    extents: Sequence[int],
) -> bool:
    """True where ``interpolate`` has the meaning of the node."""
    plain = not node.integer("antialias", 0) and not node.integer("exclude_outside", 0)
    same = all(
        math.floor(t.shape[axis] * scale) == extent
        and (coordinates != "align_corners" or extent == t.shape[axis] * scale)
        for axis, scale, extent in zip(axes, factors, extents, strict=True)
    )
    cubic = mode != "cubic" or node.number("cubic_coeff_a", -0.75) == -0.75
    known = coordinates in ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
    return is_float(t.dtype) and plain and same and cubic and known and min(extents, default=1) > 0


def _factors(
    node: Node, t: Tensor, axes: Sequence[int], scales: Value, sizes: Value
) -> tuple[list[float], list[int]]:
    """Scales and resulting extents, of the operand that is given."""
    have = [t.shape[axis] for axis in axes]
    given = () if scales is None else [float(n) for n in node.known(scales, "scales").reshape(-1)]
    if len(given):
        return list(given), [math.floor(extent * scale) for extent, scale in zip(have, given, strict=True)]
    wanted = list(node.known_ints(sizes, "sizes"))
    factors = [size / extent for size, extent in zip(wanted, have, strict=True)]
    policy = node.text("keep_aspect_ratio_policy", "stretch")
    if policy != "stretch":
        factor = (min if policy == "not_larger" else max)(factors)
        factors = [factor] * len(have)
        wanted = [math.floor(extent * factor + 0.5) for extent in have]
    return factors, wanted


def _axis(
    node: Node,
    t: Tensor,
    axis: int,
    extent: int,
    scale: float,
    mode: str,
    coordinates: str,
    nearest: str,
    crop: tuple[float, float] | None,
) -> Tensor:
    """One axis resized."""
    if scale == 1.0 and extent == t.shape[axis] and crop in (None, (0.0, 1.0)):
        return t
    counting(extent, t.shape[axis] if mode != "nearest" else 1)
    places = _positions(t.shape[axis], extent, scale, coordinates, crop)
    outside = (places < 0) | (places > t.shape[axis] - 1) if crop is not None else np.zeros(extent, bool)
    if mode == "nearest":
        rows = np.clip(_rounded(places, nearest), 0, t.shape[axis] - 1).astype(np.int64)
        t = ops.gather(t, node.constant(rows, dtypes.int64), axis)
    else:
        weights = _weights(node, t.shape[axis], places, scale, mode)
        t = _weighted(node, t, axis, weights)
    if outside.any():
        shape = [-1 if i == axis else 1 for i in range(t.rank)]
        filling = node.like(node.number("extrapolation_value", 0.0), t)
        t = ops.where(node.constant(outside.reshape(shape), dtypes.bool), filling, t)
    return t


def _positions(
    have: int, extent: int, scale: float, coordinates: str, crop: tuple[float, float] | None
) -> Array:
    """Positions of the elements of the result among those of the operand."""
    i = np.arange(extent, dtype=np.float64)
    if coordinates == "half_pixel":
        return np.asarray((i + 0.5) / scale - 0.5)
    if coordinates == "half_pixel_symmetric":
        exact = have * scale
        adjustment = extent / exact
        centre = have / 2
        return np.asarray(centre * (1 - adjustment) + (i + 0.5) / scale - 0.5)
    if coordinates == "pytorch_half_pixel":
        return np.asarray((i + 0.5) / scale - 0.5) if extent > 1 else np.zeros(extent)
    if coordinates == "align_corners":
        return np.asarray(i * (have - 1) / (have * scale - 1)) if extent > 1 else np.zeros(extent)
    if coordinates == "asymmetric":
        return np.asarray(i / scale)
    if coordinates == "tf_crop_and_resize" and crop is not None:
        begin, end = crop
        if extent > 1:
            return np.asarray(begin * (have - 1) + i * (end - begin) * (have - 1) / (extent - 1))
        return np.full(extent, 0.5 * (begin + end) * (have - 1))
    raise NotSupportedError(f"coordinates {coordinates}")


def _rounded(places: Array, nearest: str) -> Array:
    functions: dict[str, Callable[[Array], Array]] = {
        "round_prefer_floor": lambda x: np.ceil(x - 0.5),
        "round_prefer_ceil": lambda x: np.floor(x + 0.5),
        "floor": np.floor,
        "ceil": np.ceil,
    }
    return functions[nearest](places)


def _kernel(node: Node, mode: str) -> tuple[Callable[[Array], Array], int]:
    """The weight of a distance, and the greatest distance that has one."""
    if mode == "linear":
        return lambda d: np.maximum(1 - np.abs(d), 0), 1
    a = node.number("cubic_coeff_a", -0.75)

    def cubic(distance: Array) -> Array:
        d = np.abs(distance)
        near = (a + 2) * d**3 - (a + 3) * d**2 + 1
        far = a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a
        return np.where(d <= 1, near, np.where(d < 2, far, 0.0))

    if mode != "cubic":
        raise NotSupportedError(f"mode {mode}")
    return cubic, 2


def _weights(node: Node, have: int, places: Array, scale: float, mode: str) -> Array:
    """``[result, operand]``: the weights of the neighbours of each place; those outside count for the edge."""
    kernel, reach = _kernel(node, mode)
    shrink = min(scale, 1.0) if node.integer("antialias", 0) else 1.0
    radius = math.ceil(reach / shrink) + 1
    weights = np.zeros((len(places), have))
    for number, place in enumerate(places):
        near = np.arange(math.floor(place) - radius, math.floor(place) + radius + 1)
        part = kernel((near - place) * shrink)
        if node.integer("exclude_outside", 0):
            part = np.where((near >= 0) & (near < have), part, 0.0)
        if shrink != 1.0 or node.integer("exclude_outside", 0):
            part = part / part.sum()
        np.add.at(weights[number], np.clip(near, 0, have - 1), part)
    return weights


def _weighted(node: Node, t: Tensor, axis: int, weights: Array) -> Tensor:
    """A product with the weights along an axis."""
    wide = t if is_float(t.dtype) else cast(t, dtypes.float32)
    last = axis == t.rank - 1
    order = [i for i in range(t.rank) if i != axis] + [axis]
    rows = wide if last else moved(wide, order)
    made = ops.matmul(rows, node.like(weights.T, rows))
    back = sorted(range(t.rank), key=lambda i: order[i])
    made = made if last else moved(made, back)
    return made if is_float(t.dtype) else cast(ops.round(made), t.dtype)
