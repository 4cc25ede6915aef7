"""Samples of images at computed places: GridSample, RoiAlign."""

from __future__ import annotations

from typing import Any

from popsr import ops
from popsr._program.tensor import Tensor
from popsr.bridge.onnx._node import Node
from popsr.bridge.onnx._rules import NotSupportedError, rule

__all__: list[str] = []


@rule("GridSample", since=16)
def _grid_sample(node: Node, t: Tensor, grid: Tensor) -> Tensor:
    """Interpolation at places from -1 to 1."""
    if t.rank > 5:
        raise NotSupportedError(f"{t.rank - 2} spatial axes")
    mode: Any = node.text("mode", "linear").removeprefix("bi")
    padding: Any = node.text("padding_mode", "zeros")
    return ops.grid_sample(t, grid, mode, padding, bool(node.integer("align_corners", 0)))


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
