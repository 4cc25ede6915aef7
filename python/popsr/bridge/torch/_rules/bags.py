"""Rules of bags of embeddings, and of distances between the rows of one matrix."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from popsr import dtypes, ops
from popsr._program.tensor import Tensor, constant
from popsr.bridge.torch._rules.indexing import flat_places, put
from popsr.bridge.torch._rules.table import Gap, Site, cast, rule

__all__: list[str] = []

_SUM, _MEAN, _MAX = 0, 1, 2


def _bags(count: int, offsets: Tensor, bags: int) -> Tensor:
    """Number of the bag of each place in the indices: the last one that begins there or before it."""
    places = constant(np.arange(count).reshape(count, 1), dtypes.int64)
    begins = ops.reshape(cast(offsets, dtypes.int64), (1, offsets.shape[0]))
    begun = ops.cast(ops.greater_equal(places, begins), dtypes.int64)
    last = constant(np.asarray(bags - 1), dtypes.int64)
    return ops.minimum(ops.sub(ops.sum(begun, [1], False), constant(np.asarray(1), dtypes.int64)), last)


def _counted(indices: Tensor, padding: int) -> Tensor:
    """True for the places in the indices that are not padding."""
    return ops.not_equal(cast(indices, dtypes.int64), constant(np.asarray(padding), dtypes.int64))


def _sums(values: Tensor, bag: Tensor, bags: int, reduction: str | None = "sum", start: Any = 0) -> Tensor:
    """Reductions of the rows of each bag."""
    shape = (bags, *values.shape[1:])
    wide = ops.expand(ops.reshape(bag, (bag.shape[0],) + (1,) * (values.rank - 1)), values.shape)
    old = constant(np.full(shape, start), values.dtype)
    return put(old, flat_places(shape, 0, wide), values, reduction)


def _column(t: Tensor) -> Tensor:
    return ops.reshape(t, (t.shape[0], 1))


@rule("_embedding_bag.default", "_embedding_bag_forward_only.default")
def _embedding_bag(
    site: Site,
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    _scaled: bool = False,
    mode: int = _SUM,
    _sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    _ends: bool = False,
    padding_idx: int = -1,
) -> list[Tensor]:
    """The reduction of each bag, then what the backward pass of torch reads."""
    bags = site.shape[0]
    bag = _bags(indices.shape[0], offsets, bags)
    counted = _counted(indices, padding_idx)
    sizes = _sums(ops.cast(counted, dtypes.int64), bag, bags)
    rows = ops.gather(weight, indices, 0)
    if mode == _MAX:
        made, largest = _largest(rows, indices, bag, counted, sizes)
    else:
        if per_sample_weights is not None:
            rows = ops.mul(rows, _column(per_sample_weights))
        zero = constant(np.zeros(()), rows.dtype)
        made = _sums(ops.where(_column(counted), rows, zero), bag, bags)
        largest = sizes
        if mode == _MEAN:
            made = ops.div(made, _column(_size(sizes, made.dtype)))
    given = site.outputs()
    unused = [constant(np.zeros(shape), kind) for shape, kind in given]
    if mode == _SUM:
        return [made, cast(bag, given[1][1]) if given[1][0] == bag.shape else unused[1], *unused[2:]]
    rest = (bag, sizes, largest)
    return [made, *(cast(t, kind) for t, (_, kind) in zip(rest, given[1:], strict=True))]


def _size(sizes: Tensor, kind: dtypes.dtype) -> Tensor:
    """Sizes to divide by: 1 for an empty bag."""
    return ops.cast(ops.maximum(sizes, constant(np.asarray(1), dtypes.int64)), kind)


def _largest(
    rows: Tensor, indices: Tensor, bag: Tensor, counted: Tensor, sizes: Tensor
) -> tuple[Tensor, Tensor]:
    """The largest element of each column of a bag, and the index of the first row that has it."""
    bags, count = sizes.shape[0], rows.shape[0]
    lowest = constant(np.asarray(-np.inf), rows.dtype)
    top = _sums(ops.where(_column(counted), rows, lowest), bag, bags, "max", -np.inf)
    here = ops.logical_and(_column(counted), ops.equal(rows, ops.gather(top, bag, 0)))
    places = constant(np.arange(count).reshape(count, 1), dtypes.int64)
    first = _sums(ops.where(here, places, constant(np.asarray(count), dtypes.int64)), bag, bags, "min", count)
    found = ops.gather(cast(indices, dtypes.int64), ops.clip(first, 0, count - 1), 0)
    some = _column(ops.greater(sizes, constant(np.asarray(0), dtypes.int64)))
    zero = constant(np.zeros(()), rows.dtype)
    return ops.where(some, top, zero), ops.where(some, found, constant(np.asarray(0), dtypes.int64))


@rule("_embedding_bag_backward.default")
def _embedding_bag_backward(
    site: Site,
    grad: Tensor,
    indices: Tensor,
    offsets: Tensor,
    _bag_of_each: Tensor,
    _sizes: Tensor,
    largest: Tensor,
    rows: int,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    weights: Tensor | None,
    padding: int = -1,
) -> Tensor:
    if scale_grad_by_freq or sparse:
        raise Gap("gradients that are sparse or scaled by frequency")
    bags = grad.shape[0]
    bag = _bags(indices.shape[0], offsets, bags)
    counted = _counted(indices, padding)
    sizes = _sums(ops.cast(counted, dtypes.int64), bag, bags)
    old = site.full((rows, grad.shape[1]), 0, grad.dtype)
    zero = constant(np.zeros(()), grad.dtype)
    if mode == _MAX:
        some = _column(ops.greater(sizes, constant(np.asarray(0), dtypes.int64)))
        return put(old, flat_places(old.shape, 0, largest), ops.where(some, grad, zero), "sum")
    if mode == _MEAN:
        grad = ops.div(grad, _column(_size(sizes, grad.dtype)))
    each = ops.gather(grad, bag, 0)
    if weights is not None:
        each = ops.mul(each, _column(weights))
    each = ops.where(_column(counted), each, zero)
    wide = ops.expand(_column(indices), each.shape)
    return put(old, flat_places(old.shape, 0, wide), each, "sum")


@rule("_embedding_bag_per_sample_weights_backward.default")
def _weights_backward(
    _site: Site,
    grad: Tensor,
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    _bag_of_each: Tensor,
    _mode: int,
    padding: int = -1,
) -> Tensor:
    each = ops.gather(grad, _bags(indices.shape[0], offsets, grad.shape[0]), 0)
    made = ops.sum(ops.mul(each, ops.gather(weight, indices, 0)), [1], False)
    return ops.where(_counted(indices, padding), made, constant(np.zeros(()), made.dtype))


# Distances between the rows of one matrix


def _pairs(t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Differences of the rows of all pairs, and the numbers of both."""
    first, second = (constant(each, dtypes.int64) for each in np.triu_indices(t.shape[0], 1))
    return ops.sub(ops.gather(t, first, 0), ops.gather(t, second, 0)), first, second


@rule("_pdist_forward.default")
def _row_distances(_site: Site, t: Tensor, p: float = 2.0) -> Tensor:
    difference, _, _ = _pairs(t)
    if p == 2:
        return ops.sqrt(ops.sumsquare(difference, [1], False))
    if p == 1:
        return ops.sum(ops.abs(difference), [1], False)
    if math.isinf(p):
        return ops.max(ops.abs(difference), [1], False)
    raise Gap(f"distances of order {p}")


@rule("_pdist_backward.default")
def _row_distances_backward(site: Site, grad: Tensor, t: Tensor, p: float, distances: Tensor) -> Tensor:
    difference, first, second = _pairs(t)
    if p == 2:
        zero = constant(np.zeros(()), t.dtype)
        far = ops.not_equal(distances, zero)
        share = ops.where(far, ops.div(grad, ops.where(far, distances, site.tensor(1, t.dtype))), zero)
        each = ops.mul(_column(share), difference)
    elif p == 1:
        each = ops.mul(_column(grad), ops.sign(difference))
    else:
        raise Gap(f"distances of order {p}")
    old = site.full(t.shape, 0, t.dtype)
    for rows, values in ((first, each), (second, ops.negate(each))):
        old = put(old, flat_places(t.shape, 0, ops.expand(_column(rows), each.shape)), values, "sum")
    return old
