"""Rules of pools: a gather of the elements of each window, then a reduction; backwards a scatter."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from popsr import dtypes, ops
from popsr._program.tensor import Tensor, constant
from popsr.bridge.torch._dtypes import is_float
from popsr.bridge.torch._rules.indexing import flat
from popsr.bridge.torch._rules.table import Gap, Site, rule

__all__ = ["planes_of", "scattered_sums"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Windows:
    """Elements of the windows over spatial axes.

    Attributes:
        places: ``[windows, elements]``, number of the element among all of the spatial axes; 0 where there is none.
        inside: ``[windows, elements]``, true for elements, false for padding.
        padded: ``[windows]``, number of elements and of those of the padding.
        out: spatial extents of the result.
    """

    places: Array
    inside: Array
    padded: Array
    out: tuple[int, ...]


def _windows(
    extents: Sequence[int],
    out: Sequence[int],
    kernel: Sequence[int],
    step: Sequence[int],
    pad: Sequence[int],
    gap: Sequence[int],
) -> Windows:
    """Windows of a fixed size at fixed steps."""
    axes = []
    for i, extent in enumerate(extents):
        begin = np.arange(out[i])[:, None] * step[i] - pad[i]
        position = begin + np.arange(kernel[i])[None, :] * gap[i]
        padded = np.minimum(begin[:, 0] + kernel[i], extent + pad[i]) - begin[:, 0]
        axes.append((position, (position >= 0) & (position < extent), padded))
    return _combined(extents, out, axes)


def _adaptive(extents: Sequence[int], out: Sequence[int]) -> Windows:
    """Windows that cut each axis into a number of parts of about one size."""
    axes = []
    for extent, count in zip(extents, out, strict=True):
        begin = np.arange(count) * extent // count
        end = -(-(np.arange(count) + 1) * extent // count)
        position = begin[:, None] + np.arange((end - begin).max())[None, :]
        axes.append((position, position < end[:, None], end - begin))
    return _combined(extents, out, axes)


def _combined(extents: Sequence[int], out: Sequence[int], axes: list[tuple[Array, Array, Array]]) -> Windows:
    places, inside, padded = np.zeros((1, 1), np.int64), np.ones((1, 1), bool), np.ones(1, np.int64)
    for extent, (position, here, count) in zip(extents, axes, strict=True):
        places = _outer(places * extent, np.where(here, position, 0), np.add)
        inside = _outer(inside, here, np.logical_and)
        padded = np.multiply.outer(padded, count).reshape(-1)
    return Windows(np.where(inside, places, 0), inside, padded, tuple(out))


def _outer(a: Array, b: Array, function: np.ufunc) -> Array:
    """All pairs of windows, and in each all pairs of elements."""
    made = function(a[:, None, :, None], b[None, :, None, :])
    return np.asarray(made).reshape(a.shape[0] * b.shape[0], a.shape[1] * b.shape[1])


def planes_of(t: Tensor, axes: int) -> Tensor:
    """``[planes, elements]``: the spatial axes as one."""
    return ops.reshape(t, (math.prod(t.shape[:-axes]), math.prod(t.shape[-axes:])))


def _patches(t: Tensor, w: Windows, filling: float) -> Tensor:
    """``[planes, windows, elements]`` with a filling for padding."""
    taken = ops.gather(planes_of(t, len(w.out)), constant(w.places, dtypes.int64), 1)
    if w.inside.all():
        return taken
    return ops.where(constant(w.inside, dtypes.bool), taken, constant(np.asarray(filling), t.dtype))


def scattered_sums(values: Tensor, places: Tensor, shape: Sequence[int], axes: int) -> Tensor:
    """Sums of values at places of their plane, in a tensor of a shape."""
    planes, elements = math.prod(shape[:-axes]), math.prod(shape[-axes:])
    begin = constant(
        (np.arange(planes) * elements).reshape((planes,) + (1,) * (values.rank - 1)), dtypes.int64
    )
    where = flat(ops.add(places, begin))
    zeros = constant(np.zeros(planes * elements), values.dtype)
    made = ops.scatter_reduce(
        flat(values), where, "sum", zeros, axis=0, axis_size=planes * elements, enable_index_broadcast=False
    )
    return ops.reshape(made, tuple(shape))


def _numbers(values: Sequence[int] | int | None, axes: int, default: Sequence[int] = ()) -> tuple[int, ...]:
    if values is None or values == []:
        return tuple(default)
    given = [values] if isinstance(values, int) else list(values)
    return tuple(given * axes if len(given) == 1 else given)


# The largest element


def _max_windows(t: Tensor, out: Sequence[int], kernel: Any, step: Any, pad: Any, gap: Any) -> Windows:
    axes = len(out)
    size = _numbers(kernel, axes)
    return _windows(
        t.shape[-axes:], out, size, _numbers(step, axes, size), _numbers(pad, axes), _numbers(gap, axes)
    )


def _max_pool(site: Site, t: Tensor, axes: int, kernel: Any, step: Any, pad: Any, gap: Any) -> list[Tensor]:
    w = _max_windows(t, site.shape[-axes:], kernel, step, pad, gap)
    if not is_float(t.dtype):
        raise Gap(f"of {t.dtype.name}")
    patches = _patches(t, w, -math.inf)
    first = ops.cast(ops.argmax(patches, 2, False), dtypes.int64)
    begin = constant(np.arange(w.places.shape[0]) * w.places.shape[1], dtypes.int64)
    places = ops.gather(constant(w.places.reshape(-1), dtypes.int64), ops.add(first, begin), 0)
    return [ops.reshape(ops.max(patches, [2], False), site.shape), ops.reshape(places, site.shape)]


@rule("max_pool2d_with_indices.default")
def _max_pool2d(
    site: Site, t: Tensor, kernel: Any, step: Any = (), pad: Any = 0, gap: Any = 1, _ceil_mode: bool = False
) -> list[Tensor]:
    return _max_pool(site, t, 2, kernel, list(step), pad, gap)


@rule("max_pool3d_with_indices.default")
def _max_pool3d(
    site: Site, t: Tensor, kernel: Any, step: Any = (), pad: Any = 0, gap: Any = 1, _ceil_mode: bool = False
) -> list[Tensor]:
    return _max_pool(site, t, 3, kernel, list(step), pad, gap)


@rule("max_pool2d_with_indices_backward.default")
def _max_pool2d_backward(_site: Site, dy: Tensor, t: Tensor, *options: Any) -> Tensor:
    return scattered_sums(planes_of(dy, 2), planes_of(options[-1], 2), t.shape, 2)


@rule("max_pool3d_with_indices_backward.default")
def _max_pool3d_backward(_site: Site, dy: Tensor, t: Tensor, *options: Any) -> Tensor:
    return scattered_sums(planes_of(dy, 3), planes_of(options[-1], 3), t.shape, 3)


# Means


def _divisors(w: Windows, include_pad: bool, divisor: int | None) -> Array:
    if divisor is not None:
        return np.full(w.padded.shape, divisor)
    return w.padded if include_pad else w.inside.sum(1)


def _average(t: Tensor, w: Windows, divisors: Array, shape: Sequence[int]) -> Tensor:
    sums = ops.sum(_patches(t, w, 0.0), [2], False)
    return ops.reshape(ops.div(sums, constant(divisors, t.dtype)), tuple(shape))


def _average_gradient(dy: Tensor, w: Windows, divisors: Array, shape: Sequence[int]) -> Tensor:
    axes = len(w.out)
    shares = ops.div(planes_of(dy, axes), constant(divisors, dy.dtype))
    weights = constant(w.inside[None].astype(np.float32), dy.dtype)
    values = ops.mul(ops.reshape(shares, (*shares.shape, 1)), weights)
    places = constant(np.broadcast_to(w.places, values.shape).copy(), dtypes.int64)
    return scattered_sums(values, places, shape, axes)


def _average_windows(t: Tensor, out: Sequence[int], kernel: Any, step: Any, pad: Any) -> Windows:
    return _max_windows(t, out, kernel, list(step), pad, 1)


@rule("avg_pool2d.default", "avg_pool1d.default", "avg_pool3d.default")
def _avg_pool(
    site: Site,
    t: Tensor,
    kernel: Any,
    step: Any = (),
    pad: Any = 0,
    _ceil_mode: bool = False,
    include_pad: bool = True,
    divisor: int | None = None,
) -> Tensor:
    axes = len(kernel)
    w = _average_windows(t, site.shape[-axes:], kernel, step, pad)
    return _average(t, w, _divisors(w, include_pad, divisor), site.shape)


@rule("avg_pool2d_backward.default", "avg_pool3d_backward.default")
def _avg_pool_backward(
    _site: Site,
    dy: Tensor,
    t: Tensor,
    kernel: Any,
    step: Any,
    pad: Any,
    _ceil_mode: bool,
    include_pad: bool,
    divisor: int | None,
) -> Tensor:
    w = _average_windows(t, dy.shape[-len(kernel) :], kernel, step, pad)
    return _average_gradient(dy, w, _divisors(w, include_pad, divisor), t.shape)


@rule("_adaptive_avg_pool2d.default", "_adaptive_avg_pool3d.default")
def _adaptive_avg_pool(site: Site, t: Tensor, out: Sequence[int]) -> Tensor:
    w = _adaptive(t.shape[-len(out) :], out)
    return _average(t, w, w.padded, site.shape)


@rule("_adaptive_avg_pool2d_backward.default")
def _adaptive_avg_pool2d_backward(_site: Site, dy: Tensor, t: Tensor) -> Tensor:
    w = _adaptive(t.shape[-2:], dy.shape[-2:])
    return _average_gradient(dy, w, w.padded, t.shape)
