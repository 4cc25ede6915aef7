"""Rules of ops that move elements to fixed places: views, concatenation, padding, and tensors made of nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from popsr import dtypes, ops
from popsr._program.tensor import Tensor, constant
from popsr.bridge.torch._dtypes import Scalar
from popsr.bridge.torch._rules.table import Gap, Site, rule
from popsr.bridge.torch._tracing.uninitialised import EMPTY

__all__ = ["at_places"]


@rule(
    "view.default",
    "view_copy.default",
    "_unsafe_view.default",
    "reshape.default",
    "_reshape_copy.default",
    "unsqueeze.default",
    "unsqueeze_copy.default",
    "squeeze.default",
    "squeeze.dim",
    "squeeze.dims",
    "squeeze_copy.dims",
)
def _reshape(site: Site, t: Tensor, *_shape: Any) -> Tensor:
    return t if t.shape == site.shape else ops.reshape(t, site.shape)


@rule("permute.default", "permute_copy.default")
def _permute(_site: Site, t: Tensor, dims: Sequence[int]) -> Tensor:
    return ops.transpose(t, tuple(d % t.rank for d in dims)) if t.rank else t


@rule("t.default", "t_copy.default")
def _t(_site: Site, t: Tensor) -> Tensor:
    return ops.transpose(t, (1, 0)) if t.rank == 2 else t


@rule("transpose.int", "transpose_copy.int")
def _transpose(_site: Site, t: Tensor, a: int, b: int) -> Tensor:
    if not t.rank:
        return t
    order = list(range(t.rank))
    order[a], order[b] = order[b % t.rank], order[a % t.rank]
    return ops.transpose(t, tuple(order))


@rule("expand.default", "expand_copy.default")
def _expand(site: Site, t: Tensor, _shape: Any, **_options: Any) -> Tensor:
    return site.expand(t, site.shape)


@rule("repeat.default")
def _repeat(site: Site, t: Tensor, repeats: Sequence[int]) -> Tensor:
    shape = (1,) * (len(repeats) - t.rank) + t.shape
    pairs = tuple(n for pair in zip((1,) * len(shape), shape, strict=True) for n in pair)
    wide = tuple(n for pair in zip(repeats, shape, strict=True) for n in pair)
    if 0 in site.shape:
        return site.full(site.shape, 0, site.dtype)
    return ops.reshape(site.expand(ops.reshape(t, pairs), wide), site.shape)


@rule("cat.default")
def _cat(site: Site, ts: Sequence[Tensor], dim: int = 0) -> Tensor:
    rank = len(site.shape)
    parts = [site.tensor(t) for t in ts if t.shape != (0,) or rank == 1]
    return ops.concat(parts, dim % rank)


@rule("stack.default")
def _stack(site: Site, ts: Sequence[Tensor], dim: int = 0) -> Tensor:
    axis = dim % len(site.shape)
    one = (*site.shape[:axis], 1, *site.shape[axis + 1 :])
    return ops.concat([ops.reshape(site.tensor(t), one) for t in ts], axis)


@rule("split_with_sizes.default", "split_with_sizes_copy.default")
def _split_with_sizes(_site: Site, t: Tensor, sizes: Sequence[int], dim: int = 0) -> list[Tensor]:
    return ops.split(t, list(sizes), dim % t.rank)


@rule("split.Tensor", "split_copy.Tensor")
def _split(_site: Site, t: Tensor, size: int, dim: int = 0) -> list[Tensor]:
    whole = t.shape[dim]
    return ops.split(t, [min(size, whole - start) for start in range(0, whole, size)], dim % t.rank)


@rule("unbind.int", "unbind_copy.int")
def _unbind(_site: Site, t: Tensor, dim: int = 0) -> list[Tensor]:
    axis = dim % t.rank
    rest = t.shape[:axis] + t.shape[axis + 1 :]
    return [ops.reshape(each, rest) for each in ops.split(t, [1] * t.shape[axis], axis)]


@rule("slice.Tensor", "slice_copy.Tensor")
def _slice(_site: Site, t: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Tensor:
    axis = dim % t.rank
    first, last, _ = _bounds(t, axis, start, end)
    if (first, last, step) == (0, t.shape[axis], 1):
        return t
    if first >= last:
        return constant(np.zeros((*t.shape[:axis], 0, *t.shape[axis + 1 :])), t.dtype)
    return ops.slice(t, first, last, step, axis)


def _bounds(t: Tensor, axis: int, start: Any, end: Any) -> tuple[int, int, int]:
    if isinstance(start, Scalar) or isinstance(end, Scalar):
        raise Gap("bounds that are known only when the step runs")
    return slice(start, end).indices(t.shape[axis])


@rule("select.int", "select_copy.int")
def _select(site: Site, t: Tensor, dim: int, index: Any) -> Tensor:
    axis = dim % t.rank
    if isinstance(index, Scalar):
        place = ops.reshape(index.tensor, (1,))
        return ops.reshape(ops.gather(t, place, axis), site.shape)
    first = index % t.shape[axis]
    return ops.reshape(ops.slice(t, first, first + 1, 1, axis), site.shape)


@rule("slice_scatter.default")
def _slice_scatter(
    site: Site, t: Tensor, new: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Tensor:
    axis = dim % t.rank
    first, last, _ = _bounds(t, axis, start, end)
    return _written(t, axis, list(range(first, last, step)), site.tensor(new))


@rule("select_scatter.default")
def _select_scatter(site: Site, t: Tensor, new: Tensor, dim: int, index: int) -> Tensor:
    axis = dim % t.rank
    row = ops.reshape(site.tensor(new), (*t.shape[:axis], 1, *t.shape[axis + 1 :]))
    return _written(t, axis, [index % t.shape[axis]], row)


def _written(t: Tensor, axis: int, places: list[int], new: Tensor) -> Tensor:
    """The tensor with new elements at some places of an axis: by a gather from both."""
    if not places:
        return t
    if places == list(range(t.shape[axis])):
        return new
    order = np.arange(t.shape[axis])
    order[places] = t.shape[axis] + np.arange(len(places))
    both = ops.concat([t, new], axis)
    return ops.gather(both, constant(order, dtypes.int64), axis)


@rule("flip.default")
def _flip(_site: Site, t: Tensor, dims: Sequence[int]) -> Tensor:
    return ops.reverse(t, [d % t.rank for d in dims]) if t.rank else t


@rule("diagonal.default", "diagonal_copy.default")
def _diagonal(site: Site, t: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    numbers = np.arange(math.prod(t.shape)).reshape(t.shape)
    return at_places(t, np.diagonal(numbers, offset, dim1, dim2).reshape(site.shape))


def _strided_places(size: Sequence[int], stride: Sequence[int], offset: Any) -> np.ndarray[Any, Any]:
    places = np.full(tuple(size), offset or 0)
    for axis, (extent, step) in enumerate(zip(size, stride, strict=True)):
        steps = np.arange(extent) * step
        places = places + steps.reshape((extent,) + (1,) * (len(size) - axis - 1))
    return places


@rule("as_strided.default", "as_strided_copy.default")
def _as_strided(
    _site: Site, t: Tensor, size: Sequence[int], stride: Sequence[int], offset: Any = 0
) -> Tensor:
    places = _strided_places(size, stride, offset)
    if places.size and places.max() >= math.prod(t.shape):
        raise Gap("memory outside the tensor", everywhere=True)
    return at_places(t, places)


@rule("diagonal_scatter.default")
def _diagonal_scatter(
    site: Site, t: Tensor, new: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Tensor:
    numbers = np.arange(math.prod(t.shape)).reshape(t.shape)
    return _put_at_places(t, np.diagonal(numbers, offset, dim1, dim2), site.tensor(new))


@rule("as_strided_scatter.default")
def _as_strided_scatter(
    site: Site, t: Tensor, new: Tensor, size: Sequence[int], stride: Sequence[int], offset: Any = 0
) -> Tensor:
    places = _strided_places(size, stride, offset)
    if places.size and places.max() >= math.prod(t.shape):
        raise Gap("memory outside the tensor", everywhere=True)
    return _put_at_places(t, places, site.tensor(new))


def _put_at_places(t: Tensor, places: np.ndarray[Any, Any], new: Tensor) -> Tensor:
    """The tensor with new elements at fixed numbers that count its elements."""
    flat, values = (ops.reshape(each, (math.prod(each.shape),)) for each in (t, new))
    return ops.reshape(_written(flat, 0, places.reshape(-1).tolist(), values), t.shape)


def at_places(t: Tensor, places: np.ndarray[Any, Any]) -> Tensor:
    """Elements by fixed numbers that count the elements of the tensor."""
    flat = ops.reshape(t, (math.prod(t.shape),))
    return ops.gather(flat, constant(places, dtypes.int64), 0)


@rule("constant_pad_nd.default")
def _constant_pad(site: Site, t: Tensor, pad: Sequence[int], value: Any = 0) -> Tensor:
    for number, axis in enumerate(range(t.rank - 1, t.rank - 1 - len(pad) // 2, -1)):
        below, above = pad[2 * number : 2 * number + 2]
        t = _cut(t, axis, max(-below, 0), max(-above, 0))
        parts = [_filling(site, t, axis, below, value), t, _filling(site, t, axis, above, value)]
        kept = [part for part in parts if part is not None]
        t = ops.concat(kept, axis) if len(kept) > 1 else t
    return t


def _cut(t: Tensor, axis: int, below: int, above: int) -> Tensor:
    return ops.slice(t, below, t.shape[axis] - above, 1, axis) if below or above else t


def _filling(site: Site, t: Tensor, axis: int, extent: int, value: Any) -> Tensor | None:
    if extent <= 0:
        return None
    return site.full((*t.shape[:axis], extent, *t.shape[axis + 1 :]), value, t.dtype)


# Tensors that are made of numbers


@rule("full.default", "full_like.default", "new_full.default")
def _full(site: Site, _shape: Any, *values: Any) -> Tensor:
    return site.full(site.shape, values[-1], site.dtype)


@rule(
    "zeros.default",
    "zeros_like.default",
    "new_zeros.default",
)
def _zeros(site: Site, *_shape: Any) -> Tensor:
    return site.full(site.shape, 0, site.dtype)


@rule(*EMPTY)
def _empty(site: Site, *_shape: Any) -> Tensor:
    return ops.init(site.shape, site.dtype, name=site.memory, init_type="undef")


@rule("resize.default")
def _resize(site: Site, t: Tensor, _shape: Any) -> Tensor:
    """The elements in memory, as many as fit, and then what nothing has written."""
    old, new = math.prod(t.shape), math.prod(site.shape)
    flat = ops.reshape(t, (old,))
    if new > old:
        flat = ops.concat([flat, ops.init((new - old,), t.dtype, name=site.memory, init_type="undef")], 0)
    elif new < old:
        flat = ops.slice(flat, 0, new, 1, 0)
    return ops.reshape(flat, site.shape)


@rule("ones.default", "ones_like.default", "new_ones.default")
def _ones(site: Site, *_shape: Any) -> Tensor:
    return site.full(site.shape, 1, site.dtype)


@rule("scalar_tensor.default")
def _scalar_tensor(site: Site, value: Any) -> Tensor:
    return site.full((), value, site.dtype)


@rule("arange.start_step", "arange.start", "arange.default")
def _arange(site: Site, *bounds: Any) -> Tensor:
    if any(isinstance(each, Scalar) for each in bounds):
        raise Gap("bounds that are known only when the step runs")
    start, step = (bounds[0] if len(bounds) > 1 else 0), (bounds[2] if len(bounds) > 2 else 1)
    return constant(start + step * np.arange(site.shape[0]), site.dtype)


@rule("eye.m", "eye.default")
def _eye(site: Site, *_shape: Any) -> Tensor:
    return constant(np.eye(site.shape[0], site.shape[1]), site.dtype)
