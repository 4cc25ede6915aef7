"""Rules of convolutions and norms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from popsr import ops
from popsr._program.tensor import Tensor
from popsr.bridge.torch._rules.table import Site, rule

__all__: list[str] = []


@rule("convolution.default")
def _convolution(
    _site: Site,
    t: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Tensor:
    axes = t.rank - 2
    step, pad, gap = (_each(values, axes) for values in (stride, padding, dilation))
    if transposed:
        extra = _each(output_padding, axes)
        made = ops.conv_transpose(t, weight, step, pad + pad, gap, groups, output_padding=extra)
    else:
        made = ops.conv(t, weight, step, pad + pad, gap, groups)
    if bias is None:
        return made
    return ops.add(made, ops.reshape(bias, (bias.shape[0],) + (1,) * axes))


def _each(values: Sequence[int], axes: int) -> tuple[int, ...]:
    """A number for each spatial axis; one number is for all."""
    return tuple(values) * axes if len(values) == 1 else tuple(values)


@rule("convolution_backward.default")
def _convolution_backward(
    _site: Site,
    dy: Tensor,
    t: Tensor,
    weight: Tensor,
    _bias_sizes: Any,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    _output_padding: Sequence[int],
    groups: int,
    mask: Sequence[bool],
) -> list[Tensor | None]:
    axes = t.rank - 2
    step, pad, gap = (_each(values, axes) for values in (stride, padding, dilation))
    dt = dweight = None
    if mask[0] and transposed:
        dt = ops.conv(dy, weight, step, pad + pad, gap, groups)
    elif mask[0]:
        reach = [
            step[i] * (dy.shape[i + 2] - 1) + (weight.shape[i + 2] - 1) * gap[i] + 1 - 2 * pad[i]
            for i in range(axes)
        ]
        extra = tuple(t.shape[i + 2] - reach[i] for i in range(axes))
        dt = ops.conv_transpose(dy, weight, step, pad + pad, gap, groups, output_padding=extra)
    if mask[1]:
        wide, narrow = (dy, t) if transposed else (t, dy)
        dweight = _weight_gradient(wide, narrow, weight.shape[2:], step, pad, gap, groups)
    dbias = ops.sum(dy, [0, *range(2, dy.rank)], False) if mask[2] else None
    return [dt, dweight, dbias]


def _weight_gradient(
    wide: Tensor,
    narrow: Tensor,
    kernel: tuple[int, ...],
    step: tuple[int, ...],
    pad: tuple[int, ...],
    gap: tuple[int, ...],
    groups: int,
) -> Tensor:
    """Gradient of the kernel: a convolution over the batch, in which step and dilation change places."""
    order = (1, 0, *range(2, wide.rank))
    parts = []
    for t, dy in zip(_cut(wide, groups), _cut(narrow, groups), strict=True):
        made = ops.conv(ops.transpose(t, order), ops.transpose(dy, order), gap, pad + pad, step, 1)
        for axis, extent in enumerate(kernel, 2):
            if made.shape[axis] != extent:
                made = ops.slice(made, 0, extent, 1, axis)
        parts.append(ops.transpose(made, order))
    return ops.concat(parts, 0) if len(parts) > 1 else parts[0]


def _cut(t: Tensor, groups: int) -> list[Tensor]:
    return ops.split(t, [t.shape[1] // groups] * groups, 1) if groups > 1 else [t]


@rule("native_layer_norm.default")
def _layer_norm(
    site: Site, t: Tensor, shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> list[Tensor]:
    axes = list(range(t.rank - len(shape), t.rank))
    statistics = site.outputs()[1][1]
    wide = site.tensor(t, statistics)
    mean = ops.mean(wide, axes, True)
    scale = ops.rsqrt(ops.add(ops.var(wide, axes, True, 0.0), site.tensor(eps, statistics)))
    made = ops.mul(ops.sub(wide, mean), scale)
    if weight is not None:
        made = ops.mul(made, site.tensor(weight, statistics))
    if bias is not None:
        made = ops.add(made, site.tensor(bias, statistics))
    return [site.tensor(made, t.dtype), mean, scale]
