"""Rules of matrix products."""

from __future__ import annotations

from typing import Any

from popsr import ops
from popsr._lazy import names_only
from popsr.bridge.torch._dtypes import Scalar, is_float
from popsr.bridge.torch._rules.table import Gap, Site, rule
from popsr.tensor import Tensor

__all__: list[str] = []

__dir__ = names_only(__all__)


@rule("mm.default", "bmm.default", "matmul.default", "mv.default", "dot.default")
def _product(_site: Site, a: Tensor, b: Tensor) -> Tensor:
    if not is_float(a.dtype):
        raise Gap(f"products of {a.dtype.name}")
    return ops.matmul(a, b)


@rule("addmm.default", "baddbmm.default", "addmv.default")
def _add_product(site: Site, t: Tensor, a: Tensor, b: Tensor, beta: Any = 1, alpha: Any = 1) -> Tensor:
    product = _scaled(site, _product(site, a, b), alpha)
    if not isinstance(beta, Scalar) and beta == 0:
        return product
    return ops.add(product, _scaled(site, t, beta))


@rule("_cdist_forward.default")
def _distances(_site: Site, a: Tensor, b: Tensor, p: float, _mode: int | None) -> Tensor:
    """Distances between all rows of two matrices."""
    difference = ops.sub(ops.reshape(a, (*a.shape[:-1], 1, a.shape[-1])), _rows_of_all(b))
    if p == 2:
        return ops.sqrt(ops.sumsquare(difference, [-1], False))
    if p == 1:
        return ops.sum(ops.abs(difference), [-1], False)
    raise Gap(f"distances of order {p}")


def _rows_of_all(t: Tensor) -> Tensor:
    return ops.reshape(t, (*t.shape[:-2], 1, *t.shape[-2:]))


def _scaled(site: Site, t: Tensor, factor: Any) -> Tensor:
    one = not isinstance(factor, Scalar) and factor == 1
    return t if one else ops.mul(t, site.tensor(factor, t.dtype))
