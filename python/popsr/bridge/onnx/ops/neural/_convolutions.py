"""Convolutions and pools."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from popsr import dtypes, ops
from popsr._program.tensor import Tensor
from popsr.bridge.onnx._node import Node, Value, cast, is_float
from popsr.bridge.onnx._rules import NotSupportedError, rule
from popsr.bridge.onnx._tensors import check_known, counting, reshaped
from popsr.bridge.onnx._types import Array

__all__ = ["average_pool", "convolved"]


class Windows(NamedTuple):
    """Places of the windows of a convolution or pool; a number for each spatial axis."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    low: tuple[int, ...]
    high: tuple[int, ...]
    ceil: bool

    def counts(self, extents: Sequence[int]) -> tuple[int, ...]:
        """Number of windows; with ``ceil`` a last one begins before the end of the operand."""
        found = []
        for extent, size, step, gap, low, high in zip(
            extents, self.kernel, self.strides, self.dilations, self.low, self.high, strict=True
        ):
            room = extent + low + high - (size - 1) * gap - 1
            count = (-(-room // step) if self.ceil else room // step) + 1
            if self.ceil and (count - 1) * step >= extent + low:
                count -= 1
            found.append(count)
        return tuple(found)

    def beyond(self, extents: Sequence[int]) -> tuple[int, ...]:
        """Padding at the end that the last windows reach to, at least ``high``."""
        counts = self.counts(extents)
        return tuple(
            max(high, (count - 1) * step + (size - 1) * gap + 1 - low - extent)
            for extent, size, step, gap, low, high, count in zip(
                extents, self.kernel, self.strides, self.dilations, self.low, self.high, counts, strict=True
            )
        )


_AUTO = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")


def _check_kernel(node: Node, kernel: Sequence[int]) -> None:
    given = node.ints("kernel_shape", ())
    if given and given != tuple(kernel):
        raise ValueError(f"kernel_shape {list(given)} for weights of {list(kernel)}")


def windows_of(node: Node, extents: Sequence[int], kernel: Sequence[int]) -> Windows:
    """The windows of a node's attributes."""
    _check_kernel(node, kernel)
    axes = len(extents)
    strides, gaps = node.ints("strides", (1,) * axes), node.ints("dilations", (1,) * axes)
    auto, pads = node.word("auto_pad", _AUTO, "NOTSET"), node.ints("pads", (0,) * (2 * axes))
    if auto == "VALID":
        pads = (0,) * (2 * axes)
    elif auto in ("SAME_UPPER", "SAME_LOWER"):
        low, high = [], []
        for extent, size, step, gap in zip(extents, kernel, strides, gaps, strict=True):
            total = max(0, (-(-extent // step) - 1) * step + (size - 1) * gap + 1 - extent)
            small, large = total // 2, total - total // 2
            low.append(small if auto == "SAME_UPPER" else large)
            high.append(large if auto == "SAME_UPPER" else small)
        pads = (*low, *high)
    ceil = bool(node.integer("ceil_mode", 0))
    return Windows(tuple(kernel), strides, gaps, tuple(pads[:axes]), tuple(pads[axes:]), ceil)


def convolved(node: Node, t: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """The convolution of a node."""
    w = windows_of(node, t.shape[2:], weight.shape[2:])
    made = ops.conv(t, weight, w.strides, (*w.low, *w.high), w.dilations, node.integer("group", 1))
    return made if bias is None else ops.add(made, _per_channel(bias, made))


def _per_channel(t: Tensor, like: Tensor) -> Tensor:
    if t.shape != like.shape[1:2]:
        raise ValueError(f"bias of shape {list(t.shape)} for {like.shape[1]} channels")
    return reshaped(t, (t.nelms, *(1,) * (like.rank - 2)))


@rule("Conv")
def _conv(node: Node, t: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return convolved(node, t, weight, bias)


@rule("ConvTranspose")
def _conv_transpose(node: Node, t: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    axes = t.rank - 2
    _check_kernel(node, weight.shape[2:])
    auto, wanted = node.word("auto_pad", _AUTO, "NOTSET"), node.ints("output_shape", ())[-axes:]
    steps, gaps = node.ints("strides", (1,) * axes), node.ints("dilations", (1,) * axes)
    spans = [(size - 1) * gap + 1 for size, gap in zip(weight.shape[2:], gaps, strict=True)]
    if auto.startswith("SAME") and not wanted and any(map(operator.lt, spans, steps)):
        raise NotSupportedError(
            "auto_pad of a kernel that is shorter than the stride: readers have other extents"
        )
    made = ops.conv_transpose(
        t,
        weight,
        steps,
        (0,) * (2 * axes) if wanted else node.ints("pads", (0,) * (2 * axes)),
        gaps,
        node.integer("group", 1),
        "not_set" if auto == "NOTSET" or wanted else auto.lower(),  # type: ignore[arg-type]
        node.ints("output_padding", ()),
    )
    if wanted:
        made = _of_extents(made, wanted, auto)
    return made if bias is None else ops.add(made, _per_channel(bias, made))


def _of_extents(t: Tensor, wanted: Sequence[int], auto: str) -> Tensor:
    """Cut at both ends, or padded: an odd element in front, or at the end with SAME_UPPER."""
    cut = [have - extent for have, extent in zip(t.shape[2:], wanted, strict=True)]
    low = [n // 2 if auto == "SAME_UPPER" else n - n // 2 for n in cut]
    if min(low, default=0) < 0:
        raise NotSupportedError(
            f"output_shape {list(wanted)}, of which readers add elements at different ends"
        )
    high = [n - first for n, first in zip(cut, low, strict=True)]
    return ops.pad(t, [0, 0, *(-n for n in low)], [0, 0, *(-n for n in high)]) if any(cut) else t


# Pools


def _pool_windows(node: Node, extents: Sequence[int]) -> Windows:
    """The windows of a pool; where readers place them differently, it is refused."""
    kernel = node.ints("kernel_shape")
    if node.text("auto_pad", "NOTSET").startswith("SAME"):
        strides = node.ints("strides", (1,) * len(kernel))
        if any(gap > 1 for gap in node.ints("dilations", ())):
            raise NotSupportedError("auto_pad with dilations, which some readers do not count")
        for extent, size, step in zip(extents, kernel, strides, strict=True):
            if (-(-extent // step) - 1) * step + size - extent < -1:
                raise NotSupportedError(
                    f"auto_pad of a kernel of {size} for steps of {step}, which leaves elements out"
                )
    w = windows_of(node, extents, kernel)
    for extent, size, gap, low, high in zip(extents, kernel, w.dilations, w.low, w.high, strict=True):
        if extent + low + high < (size - 1) * gap + 1:
            raise NotSupportedError(
                f"a kernel of {size} in steps of {gap} for {extent + low + high} elements"
            )
    return w


@rule("MaxPool", own_shapes=True)
def _max_pool(node: Node, t: Tensor) -> list[Tensor]:
    w = _pool_windows(node, t.shape[2:])
    if node.wants(1):
        return _max_with_indices(node, t, w)
    if not is_float(t.dtype):
        return [_window_reduced(t, w, "max")]
    pads = (*w.low, *w.high)
    return [ops.max_pool(t, w.kernel, w.strides, pads, None, w.dilations, ceil_mode=w.ceil)]


def _window_reduced(t: Tensor, w: Windows, reduction: str) -> Tensor:
    """``reduce_window`` over the spatial axes, with the padding that the last windows reach to."""
    return ops.reduce_window(
        t,
        (1, 1, *w.kernel),
        strides=(1, 1, *w.strides),
        low=(0, 0, *w.low),
        high=(0, 0, *w.beyond(t.shape[2:])),
        window_dilation=(1, 1, *w.dilations),
        reduction=reduction,  # type: ignore[arg-type]
    )


def _max_with_indices(node: Node, t: Tensor, w: Windows) -> list[Tensor]:
    """The greatest element of each window, and its place among all of the operand."""
    extents, counts = t.shape[2:], w.counts(t.shape[2:])
    check_known(math.prod(counts) * math.prod(w.kernel))
    places, inside = np.zeros((1, 1), np.int64), np.ones((1, 1), bool)
    column = bool(node.integer("storage_order", 0))
    numbers = np.zeros((1, 1), np.int64)
    scale = 1
    for axis, extent in enumerate(extents):
        at = counting(counts[axis], w.kernel[axis])[:, None] * w.strides[axis] - w.low[axis]
        at = at + counting(w.kernel[axis])[None, :] * w.dilations[axis]
        here = (at >= 0) & (at < extent)
        at = np.where(here, at, 0)
        places, inside = _pairs(places * extent, at, np.add), _pairs(inside, here, np.logical_and)
        numbers = _pairs(numbers, at * scale, np.add) if column else places
        scale *= extent
    planes = math.prod(t.shape[:2])
    flat = reshaped(t, (planes, math.prod(extents)))
    patches = ops.gather(flat, node.constant(places, dtypes.int64), 1)
    low = -np.inf if is_float(t.dtype) else np.iinfo(t.dtype.as_numpy()).min
    patches = ops.where(node.constant(inside, dtypes.bool), patches, node.like(low, patches))
    first = cast(ops.argmax(patches, 2, False), dtypes.int64)
    begin = node.constant(np.arange(len(places)) * places.shape[1], dtypes.int64)
    found = ops.gather(node.constant(numbers.reshape(-1), dtypes.int64), ops.add(first, begin), 0)
    plane = node.constant((counting(planes) * math.prod(extents))[:, None], dtypes.int64)
    shape = (*t.shape[:2], *counts)
    return [reshaped(ops.max(patches, [2], False), shape), reshaped(ops.add(found, plane), shape)]


def _pairs(a: Array, b: Array, function: np.ufunc) -> Array:
    """All pairs of windows, and in each all pairs of elements."""
    made = function(a[:, None, :, None], b[None, :, None, :])
    return np.asarray(made).reshape(a.shape[0] * b.shape[0], a.shape[1] * b.shape[1])


@rule("MaxUnpool", since=9, kind="raw")
def _max_unpool(node: Node, value: Value, indices: Value, shape: Value = None) -> Tensor:
    """Elements at the places where a pool found them, zeros elsewhere."""
    t, places = node.tensor(value), node.tensor(indices)
    w = windows_of(node, t.shape[2:], node.ints("kernel_shape"))
    own = tuple(
        (n - 1) * step - low - high + size
        for n, step, low, high, size in zip(t.shape[2:], w.strides, w.low, w.high, w.kernel, strict=True)
    )
    wanted = (*t.shape[:2], *own) if shape is None else node.known_ints(shape, "output_shape")
    at = reshaped(places, (places.nelms, 1))
    if shape is not None:  # the places are those of the smaller operand of the pool
        numbers = counting(math.prod((*t.shape[:2], *own))).reshape((*t.shape[:2], *own))
        corner = np.unravel_index(numbers.reshape(-1), (*t.shape[:2], *own))
        table = np.ravel_multi_index(corner, wanted)
        at = reshaped(
            ops.gather(node.constant(table, dtypes.int64), reshaped(places, (places.nelms,)), 0), at.shape
        )
    zeros = node.like(np.zeros(math.prod(wanted)), t)
    made = ops.scatter_general(
        zeros,
        at,
        reshaped(t, (t.nelms,)),
        offset_dims=(),
        index_map=(0,),
        collapsed_dims=(0,),
        reduction="none",
        mode="check",
    )
    return reshaped(made, tuple(wanted))


@rule("AveragePool", own_shapes=True)
def average_pool(node: Node, t: Tensor) -> Tensor:
    w = _pool_windows(node, t.shape[2:])
    if node.integer("count_include_pad", 0) and any((*w.low, *w.high)):
        return ops.div(_window_reduced(t, w, "sum"), node.like(_elements(w, t.shape[2:]), t))
    pads = (*w.low, *w.high)
    return ops.average_pool(t, w.kernel, w.strides, pads, None, w.dilations, ceil_mode=w.ceil)


def _elements(w: Windows, extents: Sequence[int]) -> Array:
    """Elements of each window, those of the padding counted."""
    total = np.ones(())
    for axis, count in enumerate(w.counts(extents)):
        at = counting(count, w.kernel[axis])[:, None] * w.strides[axis] - w.low[axis]
        at = at + counting(w.kernel[axis])[None, :] * w.dilations[axis]
        total = np.multiply.outer(total, (at < extents[axis] + w.high[axis]).sum(1))
    return total


def power_of(node: Node) -> float:
    """The power of a norm, which opset 1 writes as a float."""
    return node.number("p", 2.0) if node.opset < 2 else node.integer("p", 2)


@rule("LpPool", own_shapes=True)
def _lp_pool(node: Node, t: Tensor) -> Tensor:
    w = _pool_windows(node, t.shape[2:])
    p = power_of(node)
    powers = ops.square(t) if p == 2 else ops.pow(ops.abs(t), node.like(p, t))
    sums = _window_reduced(powers, w, "sum")
    return ops.sqrt(sums) if p == 2 else ops.pow(sums, node.like(1 / p, t))


def _spatial(t: Tensor) -> list[int]:
    return list(range(2, t.rank))


@rule("GlobalAveragePool", kind="plain")
def _global_average_pool(t: Tensor) -> Tensor:
    return ops.mean(t, _spatial(t), True)


@rule("GlobalMaxPool", kind="plain")
def _global_max_pool(t: Tensor) -> Tensor:
    return ops.max(t, _spatial(t), True)


@rule("GlobalLpPool")
def _global_lp_pool(node: Node, t: Tensor) -> Tensor:
    p = power_of(node)
    if p == 2:
        return ops.l2(t, _spatial(t), True)
    sums = ops.sum(ops.pow(ops.abs(t), node.like(p, t)), _spatial(t), True)
    return ops.pow(sums, node.like(1 / p, t))


@rule("Col2Im", since=18, kind="raw")
def _col2im(node: Node, value: Value, image: Value, block: Value) -> Tensor:
    """Columns are added to the places of an image that their windows meet."""
    t = node.tensor(value)
    extents, kernel = node.known_ints(image, "image_shape"), node.known_ints(block, "block_shape")
    w = windows_of(node, extents, kernel)
    counts = w.counts(extents)
    check_known(math.prod(kernel) * math.prod(counts))
    grid = np.zeros((math.prod(kernel), math.prod(counts)), np.int64)
    inside = np.ones(grid.shape, bool)
    for i, offset in enumerate(itertools.product(*map(range, kernel))):
        place = np.zeros(counts, np.int64)
        here = np.ones(counts, bool)
        for axis, extent in enumerate(extents):
            at = np.arange(counts[axis]) * w.strides[axis] - w.low[axis] + offset[axis] * w.dilations[axis]
            at = at.reshape([-1 if a == axis else 1 for a in range(len(extents))])
            place, here = place * extent + at, here & (at >= 0) & (at < extent)
        grid[i], inside[i] = place.reshape(-1), here.reshape(-1)
    size = math.prod(extents)
    samples, channels = t.shape[0], t.shape[1] // math.prod(kernel)
    planes = samples * channels
    check_known(planes * max(size + 1, grid.size))
    places = np.where(inside, grid, size)[None] + np.arange(planes)[:, None, None] * (size + 1)
    zeros = node.like(np.zeros(planes * (size + 1)), t)
    made = ops.scatter_general(
        zeros,
        node.constant(places.reshape(-1, 1), dtypes.int64),
        reshaped(t, (t.nelms,)),
        offset_dims=(),
        index_map=(0,),
        collapsed_dims=(0,),
        reduction="sum",
    )
    rows = ops.slice(reshaped(made, (planes, size + 1)), 0, size, 1, 1)
    return reshaped(rows, (samples, channels, *extents))
