"""Resize and Upsample: interpolation along one axis after another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from popsr import dtypes, ops
from popsr.bridge.onnx._node import Node, Value, cast, is_float
from popsr.bridge.onnx._rules import NotSupportedError, rule
from popsr.bridge.onnx._tensors import counting
from popsr.tensor import Tensor

__all__: list[str] = []


@rule("Upsample", since=7, kind="raw")
def _upsample(node: Node, value: Value, scales: Value = None) -> Tensor:
    given = node.floats("scales") if scales is None else [float(n) for n in node.known(scales, "scales")]
    return _scaled(node, node.tensor(value), given)


@rule("Upsample", since=1)
def _upsample_1(node: Node, t: Tensor) -> Tensor:
    return _scaled(node, t, [1.0, 1.0, node.number("height_scale"), node.number("width_scale")])


@rule("Resize", since=10, kind="raw")
def _resize_10(node: Node, value: Value, scales: Value) -> Tensor:
    return _scaled(node, node.tensor(value), [float(n) for n in node.known(scales, "scales")])


def _scaled(node: Node, t: Tensor, scales: Sequence[float]) -> Tensor:
    """Of opset 10 and before: the neighbour of "nearest" is the upper one along axes that shrink, else the lower."""
    mode = node.text("mode", "nearest")
    mode = "linear" if mode == "bilinear" else mode
    for neighbour, shrinks in (("ceil", True), ("floor", False)):
        axes = [axis for axis, scale in enumerate(scales) if (scale < 1) == shrinks]
        if axes:
            t = _resized(
                t,
                axes=axes,
                scales=[scales[axis] for axis in axes],
                mode=mode,
                nearest_mode=neighbour,
                coordinate_transformation_mode="asymmetric",
            )
    return t


@rule("Resize", since=11, kind="raw")
def _resize(node: Node, value: Value, roi: Value = None, scales: Value = None, sizes: Value = None) -> Tensor:
    t = node.tensor(value)
    axes = [axis % t.rank for axis in node.ints("axes", tuple(range(t.rank)))]
    rule_of_places = node.text("coordinate_transformation_mode", "half_pixel")
    if rule_of_places == "tf_half_pixel_for_nn":
        raise NotSupportedError(f"coordinates {rule_of_places}")
    crops = rule_of_places == "tf_crop_and_resize"
    return _resized(
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


def _resized(t: Tensor, **attrs: Any) -> Tensor:
    """Whole numbers between others are rounded."""
    for extent in attrs.get("sizes") or ():
        counting(extent)
    if is_float(t.dtype) or attrs["mode"] == "nearest":
        return ops.resize(t, **attrs)
    return cast(ops.round(ops.resize(cast(t, dtypes.float32), **attrs)), t.dtype)


def _extents(node: Node, t: Tensor, axes: Sequence[int], scales: Value, sizes: Value) -> dict[str, Any]:
    """Sizes, scales, or both of the op, of the operand that is given."""
    have = [t.shape[axis] for axis in axes]
    given = () if scales is None else [float(n) for n in node.known(scales, "scales").reshape(-1)]
    if len(given):
        return {"scales": given}
    wanted = list(node.known_ints(sizes, "sizes"))
    policy = node.text("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return {"sizes": wanted}
    factors = [size / extent for size, extent in zip(wanted, have, strict=True)]
    factor = (min if policy == "not_larger" else max)(factors)
    return {
        "scales": [factor] * len(have),
        "sizes": [math.floor(extent * factor + 0.5) for extent in have],
    }
