"""Rules of ops whose elements are addressed by index tensors. Each becomes one gather or scatter of flat elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from popsr import dtypes, ops
from popsr._program.tensor import Tensor, constant
from popsr._support.text.shown import shown
from popsr.bridge.torch._rules.table import Gap, Site, rule

__all__ = ["flat", "flat_places", "put"]


def flat(t: Tensor) -> Tensor:
    """The elements in their order."""
    return ops.reshape(t, (math.prod(t.shape),))


def _int64(value: Any) -> Tensor:
    return constant(np.asarray(value), dtypes.int64)


def _counted(indices: Tensor, extent: int) -> Tensor:
    """Indices as 64-bit integers that count from the front."""
    indices = indices if indices.dtype == dtypes.int64 else ops.cast(indices, dtypes.int64)
    return ops.where(ops.greater(_int64(0), indices), ops.add(indices, _int64(extent)), indices)


@rule("embedding.default")
def _embedding(_site: Site, weight: Tensor, indices: Tensor, *_options: Any, **_more: Any) -> Tensor:
    return ops.gather(weight, indices, 0)


@rule("index_select.default")
def _index_select(_site: Site, t: Tensor, dim: int, indices: Tensor) -> Tensor:
    return ops.gather(t, indices if indices.rank else ops.reshape(indices, (1,)), dim % t.rank)


# One index for each element: gather and scatter along an axis


def flat_places(shape: Sequence[int], axis: int, indices: Tensor) -> Tensor:
    """Number of the element that each index of an axis means, in a tensor of a shape."""
    strides = [math.prod(shape[d + 1 :]) for d in range(len(shape))]
    numbers = np.zeros(indices.shape, np.int64)
    for d, extent in enumerate(indices.shape):
        if d != axis:
            numbers += np.arange(extent).reshape((extent,) + (1,) * (indices.rank - d - 1)) * strides[d]
    along = ops.mul(_counted(indices, shape[axis]), _int64(strides[axis]))
    return ops.add(along, _int64(numbers))


@rule("gather.default")
def _gather(_site: Site, t: Tensor, dim: int, indices: Tensor, **_options: Any) -> Tensor:
    if not t.rank:
        return ops.reshape(t, indices.shape)
    return ops.gather(flat(t), flat_places(t.shape, dim % t.rank, indices), 0)


def _first_part(t: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The elements of the source that have an index: its leading part in each axis."""
    for axis, extent in enumerate(shape):
        if t.shape[axis] != extent:
            t = ops.slice(t, 0, extent, 1, axis)
    return t


@rule("scatter.src", "scatter.value")
def _scatter(site: Site, t: Tensor, dim: int, indices: Tensor, new: Any) -> Tensor:
    values = (
        _first_part(new, indices.shape) if isinstance(new, Tensor) else site.full(indices.shape, new, t.dtype)
    )
    return _scattered(t, dim, indices, values, None)


@rule("scatter_add.default")
def _scatter_add(_site: Site, t: Tensor, dim: int, indices: Tensor, new: Tensor) -> Tensor:
    return _scattered(t, dim, indices, _first_part(new, indices.shape), "sum")


@rule("scatter_reduce.two")
def _scatter_reduce(
    _site: Site, t: Tensor, dim: int, indices: Tensor, new: Tensor, reduce: str, include_self: bool = True
) -> Tensor:
    known = {"sum": "sum", "amax": "max", "amin": "min"}
    if reduce not in known or not include_self:
        raise Gap(f"reduction {shown(reduce)}{'' if include_self else ' without the old elements'}")
    return _scattered(t, dim, indices, _first_part(new, indices.shape), known[reduce])


def _scattered(t: Tensor, dim: int, indices: Tensor, new: Tensor, reduction: str | None) -> Tensor:
    if not t.rank:
        t, indices, new = (ops.reshape(each, (1,)) for each in (t, indices, new))
        return ops.reshape(_scattered(t, 0, indices, new, reduction), ())
    return put(t, flat_places(t.shape, dim % t.rank, indices), new, reduction)


def put(t: Tensor, places: Tensor, new: Tensor, reduction: str | None) -> Tensor:
    """New elements, or their reduction with the old ones, at flat places."""
    if not math.prod(places.shape):
        return t
    old, where, values = flat(t), flat(places), flat(new)
    if reduction is None:
        return ops.reshape(ops.scatter(old, where, values, 0), t.shape)
    done = ops.scatter_reduce(
        values, where, cast(Any, reduction), old, axis=0, axis_size=old.shape[0], enable_index_broadcast=False
    )
    return ops.reshape(done, t.shape)


# Index tensors that are broadcast together: t[i, :, j]


def _positions(t: Tensor, indices: Sequence[Tensor | None]) -> tuple[Tensor, tuple[int, ...]]:
    """Flat places of ``t[indices]``, and their shape: that of the index tensors takes the place of their axes.

    It comes first where the index tensors are not side by side.
    """
    if any(each is not None and each.dtype in (dtypes.bool, dtypes.uint8) for each in indices):
        raise Gap("masks, which give as many elements as they have ones")
    axes = [axis for axis, each in enumerate(indices) if each is not None]
    strides = [math.prod(t.shape[d + 1 :]) for d in range(t.rank)]
    together = np.broadcast_shapes(*(cast(Tensor, indices[axis]).shape for axis in axes))
    side_by_side = axes == list(range(axes[0], axes[0] + len(axes)))
    first = axes[0] if side_by_side else 0
    kept = [axis for axis in range(t.rank) if axis not in axes]
    before, after = [a for a in kept if a < first], [a for a in kept if a >= first]
    if not side_by_side:
        before, after = [], kept
    shape = (*(t.shape[a] for a in before), *together, *(t.shape[a] for a in after))
    numbers = np.zeros((1,) * len(shape), np.int64)
    for axis, place in zip(
        [*before, *after], [*range(len(before)), *range(len(shape) - len(after), len(shape))], strict=True
    ):
        numbers = (
            numbers
            + np.arange(t.shape[axis]).reshape((-1,) + (1,) * (len(shape) - place - 1)) * strides[axis]
        )
    places = _int64(numbers)
    for axis in axes:
        index = _counted(cast(Tensor, indices[axis]), t.shape[axis])
        index = ops.reshape(index, (*index.shape, *(1,) * len(after)))
        places = ops.add(places, ops.mul(index, _int64(strides[axis])))
    return places, shape


@rule("index.Tensor", "_unsafe_index.Tensor")
def _index(_site: Site, t: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    if indices and indices[0] is not None and indices[0].dtype == dtypes.int64 and not any(indices[1:]):
        return ops.gather(t, _counted(indices[0], t.shape[0]), 0)
    places, _ = _positions(t, indices)
    return ops.gather(flat(t), places, 0)


@rule("index_put.default", "_unsafe_index_put.default")
def _index_put(
    site: Site,
    t: Tensor,
    indices: Sequence[Tensor | None],
    new: Tensor,
    accumulate: bool = False,
    _unsafe: bool = False,
) -> Tensor:
    mask = indices[0]
    if (
        mask is not None
        and mask.dtype == dtypes.bool
        and len(indices) == 1
        and not accumulate
        and not new.rank
    ):
        wide = ops.reshape(mask, mask.shape + (1,) * (t.rank - mask.rank))
        return ops.where(wide, new, t)
    places, shape = _positions(t, indices)
    values = site.expand(site.tensor(new), shape)
    return put(t, site.expand(places, shape), values, "sum" if accumulate else None)


@rule("masked_scatter.default")
def _masked_scatter(site: Site, t: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """The n-th element that the mask selects is the n-th of the source."""
    wide = flat(site.expand(mask, t.shape))
    numbers = ops.sub(ops.cumsum(ops.cast(wide, dtypes.int64), 0), _int64(1))
    places = ops.clip(numbers, 0, math.prod(source.shape) - 1)
    return ops.reshape(ops.where(wide, ops.gather(flat(source), places, 0), flat(t)), t.shape)


@rule("masked_fill.Scalar", "masked_fill.Tensor")
def _masked_fill(site: Site, t: Tensor, mask: Tensor, value: Any) -> Tensor:
    return ops.where(mask, site.tensor(value, t.dtype), t)
