"""Ops that ONNX has removed, or never had, in its own domain; onnxruntime still reads them in old and fused models."""

from __future__ import annotations

from popsr import ops
from popsr._program.tensor import Tensor
from popsr.bridge.onnx._node import Node, Value
from popsr.bridge.onnx._rules import FunctionBodyError, rule
from popsr.bridge.onnx._tensors import reshaped
from popsr.bridge.onnx.ops.neural._neural import normalised, rms_norm
from popsr.bridge.onnx.ops.shape._shape import cut

__all__: list[str] = []


@rule("SimplifiedLayerNormalization")
def _simplified_layer_norm(node: Node, t: Tensor, scale: Tensor) -> Tensor:
    made: Tensor = rms_norm(node, t, scale)
    return made


@rule("Affine")
def _affine(node: Node, t: Tensor) -> Tensor:
    line = ops.mul(t, node.like(node.number("alpha", 1.0), t))
    return ops.add(line, node.like(node.number("beta", 0.0), t))


@rule("Scale")
def _scale(node: Node, t: Tensor) -> Tensor:
    return ops.mul(t, node.like(node.number("scale", 1.0), t))


@rule("ScaledTanh")
def _scaled_tanh(node: Node, t: Tensor) -> Tensor:
    inner = ops.tanh(ops.mul(t, node.like(node.number("beta"), t)))
    return ops.mul(inner, node.like(node.number("alpha"), t))


@rule("ParametricSoftplus")
def _parametric_softplus(node: Node, t: Tensor) -> Tensor:
    """Product of alpha and max(u, 0) + log1p(exp(-|u|)), of u = beta * t, which does not overflow."""
    inner = ops.mul(t, node.like(node.number("beta"), t))
    rest = ops.log1p(ops.exp(ops.negate(ops.abs(inner))))
    return ops.mul(ops.add(ops.relu(inner), rest), node.like(node.number("alpha"), t))


@rule("ImageScaler")
def _image_scaler(node: Node, t: Tensor) -> Tensor:
    """A factor of all, and a shift of each channel."""
    shift = node.floats("bias", ())
    made = ops.mul(t, node.like(node.number("scale", 1.0), t))
    return ops.add(made, reshaped(node.like(shift, t), (len(shift), 1, 1))) if shift else made


@rule("Crop")
def _crop(node: Node, t: Tensor) -> Tensor:
    """Less a border on the left, the top, the right and the bottom; ``scale`` is an extent in place of the last two."""
    left, top, right, bottom = node.ints("border")
    height, width = t.shape[2:]
    ends = [height - bottom, width - right]
    if node.has("scale"):
        ends = [begin + extent for begin, extent in zip((top, left), node.ints("scale"), strict=True)]
    return cut(t, [top, left], ends, [2, 3], [1, 1])


@rule("DynamicSlice", kind="raw")
def _dynamic_slice(node: Node, value: Value, starts: Value, ends: Value, axes: Value = None) -> Tensor:
    first = node.known_ints(starts, "starts")
    along = tuple(range(len(first))) if axes is None else node.known_ints(axes, "axes")
    return cut(node.tensor(value), first, node.known_ints(ends, "ends"), along, (1,) * len(first))


@rule("MeanVarianceNormalization")
def _mean_variance(node: Node, t: Tensor) -> Tensor:
    """The op of opset 8 and before; later ones have axes, and a function body."""
    if node.opset >= 9:
        raise FunctionBodyError
    axes = [0, *([1] if node.integer("across_channels", 0) else []), *range(2, t.rank)]
    if node.integer("normalize_variance", 1):
        return normalised(node, t, axes, 0.0)[0]
    return ops.sub(t, ops.mean(t, axes, True))
