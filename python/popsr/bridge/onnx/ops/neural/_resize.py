"""Resize and Upsample: interpolation along one axis after another."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from popsr import dtypes, ops
from popsr._program.tensor import Tensor
from popsr.bridge.onnx._node import Node, Value, cast, is_float
from popsr.bridge.onnx._rules import NotSupportedError, axis_in, rule
from popsr.bridge.onnx._tensors import counting
from popsr.bridge.onnx._types import Array

__all__: list[str] = []


@rule("Upsample", since=7, kind="raw", own_shapes=True)
def _upsample(node: Node, value: Value, scales: Value = None) -> Tensor:
    given = node.floats("scales") if scales is None else [float(n) for n in node.known(scales, "scales")]
    return _scaled(node, node.tensor(value), given)


@rule("Upsample", since=1, own_shapes=True)
def _upsample_1(node: Node, t: Tensor) -> Tensor:
    return _scaled(node, t, [1.0, 1.0, node.number("height_scale"), node.number("width_scale")])


@rule("Resize", since=10, kind="raw", own_shapes=True)
def _resize_10(node: Node, value: Value, scales: Value) -> Tensor:
    return _scaled(node, node.tensor(value), [float(n) for n in node.known(scales, "scales")])


def _scaled(node: Node, t: Tensor, scales: Sequence[float]) -> Tensor:
    """Resize before opset 11: the neighbour of "nearest" is the upper one along axes that shrink, else the lower."""
    if len(scales) != t.rank:
        raise ValueError(f"scales {list(scales)} for {t.rank} dimensions")
    mode = node.text("mode", "nearest")
    mode = "linear" if mode == "bilinear" else mode
    if node.proto.op_type == "Upsample" and any(scale < 1 for scale in scales):
        raise NotSupportedError(f"scales {list(scales)}, which shrink")
    for neighbour, shrinks in (("ceil", True), ("floor", False)):
        axes = [axis for axis, scale in enumerate(scales) if (scale < 1) == shrinks]
        if axes:
            t = _resized(
                node,
                t,
                axes=axes,
                scales=[scales[axis] for axis in axes],
                mode=mode,
                nearest_mode=neighbour,
                coordinate_transformation_mode="asymmetric",
            )
    return t


@rule("Resize", since=11, kind="raw", own_shapes=True)
def _resize(node: Node, value: Value, roi: Value = None, scales: Value = None, sizes: Value = None) -> Tensor:
    t = node.tensor(value)
    axes = [axis_in(axis, t.rank) for axis in node.ints("axes", tuple(range(t.rank)))]
    rule_of_places = node.text("coordinate_transformation_mode", "half_pixel")
    if rule_of_places == "tf_half_pixel_for_nn" and node.text("mode", "nearest") != "nearest":
        raise NotSupportedError(f"coordinates {rule_of_places}")
    crops = rule_of_places == "tf_crop_and_resize"
    return _resized(
        node,
        t,
        axes=axes,
        mode=node.text("mode", "nearest"),
        nearest_mode=node.text("nearest_mode", "round_prefer_floor"),
        coordinate_transformation_mode=rule_of_places,
        cubic_coeff_a=node.number("cubic_coeff_a", -0.75),
        antialias=node.integer("antialias", 0),
        exclude_outside=node.integer("exclude_outside", 0),
        roi=[float(n) for n in node.known(roi, "roi")] if crops else (),
        extrapolation_value=node.number("extrapolation_value", 0.0),
        **_extents(node, t, axes, scales, sizes),
    )


def _resized(node: Node, t: Tensor, **attrs: Any) -> Tensor:
    """Whole numbers between others are rounded. Extents follow from scales in float32, as in other readers."""
    scales, sizes = attrs.get("scales"), attrs.get("sizes")
    extents = [t.shape[axis] for axis in attrs["axes"]]
    if sizes is None:
        products = [
            np.float32(extent) * np.float32(scale)
            for extent, scale in zip(extents, attrs["scales"], strict=True)
        ]
        sizes = attrs["sizes"] = [math.floor(each) for each in products]
        if attrs["coordinate_transformation_mode"] == "align_corners" and sizes != products:
            raise NotSupportedError(
                "align_corners with scales, of which readers have different places: needs sizes"
            )
    for extent in sizes:
        counting(extent)
    if attrs["mode"] != "nearest":
        if is_float(t.dtype):
            return ops.resize(t, **attrs)
        return cast(ops.round(ops.resize(cast(t, dtypes.float32), **attrs)), t.dtype)
    if scales is None:
        scales = [size / max(extent, 1) for size, extent in zip(sizes, extents, strict=True)]
    places_of = attrs["coordinate_transformation_mode"]
    is_exact = places_of in _OF_SCALES and all(math.frexp(scale)[0] == _HALF for scale in scales)
    if places_of == "tf_crop_and_resize" or is_exact:
        return ops.resize(t, **attrs)
    for axis, extent, size, scale in zip(attrs["axes"], extents, sizes, scales, strict=True):
        places = _places(places_of, extent, size, np.float32(scale))
        at = np.clip(_NEIGHBOURS[attrs["nearest_mode"]](places), 0, extent - 1).astype(np.int64)
        if size != extent or (at != np.arange(extent)).any():
            t = ops.gather(t, node.constant(at, dtypes.int64), axis)
    return t


_HALF = np.float32(0.5)
_OF_SCALES = ("asymmetric", "half_pixel", "pytorch_half_pixel")
"""Rules whose places are the same in float32 and float64 where scales are powers of 2."""

_NEIGHBOURS: dict[str, Callable[[Array], Array]] = {
    "round_prefer_floor": lambda places: np.floor(places) + (places - np.floor(places) > _HALF),
    "round_prefer_ceil": lambda places: np.floor(places) + (places - np.floor(places) >= _HALF),
    "floor": np.floor,
    "ceil": np.ceil,
}


def _places(rule_of_places: str, extent: int, size: int, scale: np.float32) -> Array:
    """Places of a result's elements in the operand, in float32: others are on the other side of whole numbers."""
    number = counting(size).astype(np.float32)
    if rule_of_places == "asymmetric":
        return number / scale
    if rule_of_places == "tf_half_pixel_for_nn":
        return (number + _HALF) / scale
    if rule_of_places == "align_corners":
        return number * np.float32(extent - 1) / np.float32(max(size - 1, 1))
    if rule_of_places == "pytorch_half_pixel" and size == 1:
        return number
    centres = (number + _HALF) / scale
    if rule_of_places == "half_pixel_symmetric":
        share = np.float32(size) / (scale * np.float32(extent))
        centres += np.float32(extent / 2) * (np.float32(1) - share)
    if rule_of_places not in ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel"):
        raise NotSupportedError(f"coordinates {rule_of_places}")
    return centres - _HALF


def _extents(node: Node, t: Tensor, axes: Sequence[int], scales: Value, sizes: Value) -> dict[str, Any]:
    """Sizes, scales, or both of the op, of the operand that is given."""
    have = [t.shape[axis] for axis in axes]
    given = () if scales is None else [float(n) for n in node.known(scales, "scales").reshape(-1)]
    if len(given):
        return {"scales": given}
    wanted = list(node.known_ints(sizes, "sizes"))
    policy = node.word("keep_aspect_ratio_policy", ("stretch", "not_larger", "not_smaller"), "stretch")
    if policy == "stretch":
        return {"sizes": wanted}
    factors = [size / extent for size, extent in zip(wanted, have, strict=True)]
    factor = (min if policy == "not_larger" else max)(factors)
    return {
        "scales": [factor] * len(have),
        "sizes": [math.floor(extent * factor + 0.5) for extent in have],
    }
