"""Rules of reductions, scans, softmax and order statistics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from popsr import dtypes, ops
from popsr._program.tensor import Tensor, constant
from popsr.bridge.torch._rules.table import Gap, Site, axes_of, cast, rule

__all__: list[str] = []


@rule("sum.default", "sum.dim_IntList")
def _sum(site: Site, t: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    return ops.sum(site.tensor(t), axes_of(t, dim), keepdim) if t.rank else site.tensor(t)


@rule("mean.default", "mean.dim")
def _mean(site: Site, t: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    return ops.mean(site.tensor(t), axes_of(t, dim), keepdim) if t.rank else site.tensor(t)


@rule("prod.default", "prod.dim_int")
def _prod(site: Site, t: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    return ops.prod(site.tensor(t), axes_of(t, dim), keepdim) if t.rank else site.tensor(t)


@rule("amax.default", "max.default")
def _amax(_site: Site, t: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    return _extreme(ops.max, t, axes_of(t, dim), keepdim)


@rule("amin.default", "min.default")
def _amin(_site: Site, t: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    return _extreme(ops.min, t, axes_of(t, dim), keepdim)


def _extreme(function: Callable[..., Tensor], t: Tensor, axes: list[int], keepdim: bool) -> Tensor:
    if not t.rank:
        return t
    if t.dtype == dtypes.bool:
        return cast(function(ops.cast(t, dtypes.uint8), axes, keepdim), dtypes.bool)
    return function(t, axes, keepdim)


@rule("any.default", "any.dim", "any.dims")
def _any(site: Site, t: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    return _amax(site, cast(t, dtypes.bool), dim, keepdim)


@rule("all.default", "all.dim", "all.dims")
def _all(site: Site, t: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    return _amin(site, cast(t, dtypes.bool), dim, keepdim)


@rule("var.correction", "var.dim")
def _var(
    _site: Site,
    t: Tensor,
    dim: Any = None,
    unbiased: Any = None,
    keepdim: bool = False,
    correction: Any = None,
) -> Tensor:
    if isinstance(unbiased, bool):
        correction = int(unbiased)
    return ops.var(t, axes_of(t, dim), keepdim, 1.0 if correction is None else float(correction))


@rule("var_mean.correction", "var_mean.dim")
def _var_mean(
    site: Site,
    t: Tensor,
    dim: Any = None,
    unbiased: Any = None,
    keepdim: bool = False,
    correction: Any = None,
) -> list[Tensor]:
    return [_var(site, t, dim, unbiased, keepdim, correction), ops.mean(t, axes_of(t, dim), keepdim)]


@rule("argmax.default")
def _argmax(_site: Site, t: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    return _index(ops.argmax, t, dim, keepdim)


@rule("argmin.default")
def _argmin(_site: Site, t: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    return _index(ops.argmin, t, dim, keepdim)


@rule("max.dim")
def _max_dim(site: Site, t: Tensor, dim: int, keepdim: bool = False) -> list[Tensor]:
    return [_amax(site, t, dim, keepdim), _index(ops.argmax, t, dim, keepdim)]


@rule("min.dim")
def _min_dim(site: Site, t: Tensor, dim: int, keepdim: bool = False) -> list[Tensor]:
    return [_amin(site, t, dim, keepdim), _index(ops.argmin, t, dim, keepdim)]


def _index(function: Callable[..., Tensor], t: Tensor, dim: int | None, keepdim: bool) -> Tensor:
    """Number of the first extreme element of an axis, or of all elements in their order."""
    if not t.rank:
        return constant(np.zeros((), np.int64), dtypes.int64)
    if t.dtype == dtypes.bool:
        t = ops.cast(t, dtypes.uint8)
    if dim is not None:
        return ops.cast(function(t, dim % t.rank, keepdim), dtypes.int64)
    rank, flat = t.rank, ops.flatten(t)
    found = ops.cast(function(ops.reshape(flat, (int(np.prod(t.shape)),)), 0, False), dtypes.int64)
    return ops.reshape(found, (1,) * rank) if keepdim else found


@rule("cumsum.default")
def _cumsum(site: Site, t: Tensor, dim: int) -> Tensor:
    return ops.cumsum(site.tensor(t), dim % t.rank) if t.rank else site.tensor(t)


@rule("cumprod.default")
def _cumprod(site: Site, t: Tensor, dim: int) -> Tensor:
    return ops.cumprod(site.tensor(t), dim % t.rank) if t.rank else site.tensor(t)


# Softmax


@rule("_softmax.default")
def _softmax(site: Site, t: Tensor, dim: int, half_to_float: bool) -> Tensor:
    return ops.softmax(cast(t, site.dtype) if half_to_float else t, dim % t.rank)


@rule("_log_softmax.default")
def _log_softmax(site: Site, t: Tensor, dim: int, half_to_float: bool) -> Tensor:
    return ops.log_softmax(cast(t, site.dtype) if half_to_float else t, dim % t.rank)


@rule("logsumexp.default")
def _logsumexp(site: Site, t: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    return ops.logsumexp(site.tensor(t), axes_of(t, dim), keepdim)


# Order


@rule("topk.default")
def _topk(
    _site: Site, t: Tensor, k: int, dim: int = -1, largest: bool = True, ordered: bool = True
) -> list[Tensor]:
    values, places = ops.topk(t, k, dim % t.rank, largest, ordered)
    return [values, ops.cast(places, dtypes.int64)]


@rule("sort.default", "sort.stable")
def _sort(_site: Site, t: Tensor, *args: Any, **options: Any) -> list[Tensor]:
    order = {"dim": -1, "descending": False}
    names = (
        ["stable", "dim", "descending"] if "stable" in options or len(args) == 3 else ["dim", "descending"]
    )
    order.update(zip(names, args, strict=False))
    order.update(options)
    if not t.rank:
        return [t, constant(np.zeros((), np.int64), dtypes.int64)]
    axis = order["dim"] % t.rank
    numbers = np.arange(t.shape[axis]).reshape((-1,) + (1,) * (t.rank - axis - 1))
    numbered = constant(np.broadcast_to(numbers, t.shape).copy(), dtypes.int64)
    return list(ops.sort(t, numbered, axis=axis, descending=bool(order["descending"])))


@rule("linalg_vector_norm.default")
def _vector_norm(site: Site, t: Tensor, ord: Any = 2, dim: Any = None, keepdim: bool = False) -> Tensor:
    t = site.tensor(t)
    axes = axes_of(t, dim)
    if ord == 2:
        return ops.sqrt(ops.sumsquare(t, axes, keepdim))
    if ord == 1:
        return ops.sum(ops.abs(t), axes, keepdim)
    if ord == float("inf"):
        return ops.max(ops.abs(t), axes, keepdim)
    raise Gap(f"norm of order {ord}")
