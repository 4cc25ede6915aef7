"""Rules of matrix products."""

from __future__ import annotations

from typing import Any

from popsr import dtypes, ops
from popsr._program.tensor import Tensor
from popsr.bridge.torch._dtypes import Scalar, is_float
from popsr.bridge.torch._rules.table import Gap, Site, cast, rule

__all__: list[str] = []


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


@rule("_scaled_mm.default")
def _scaled_product(
    site: Site,
    a: Tensor,
    b: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Any = None,
    *_options: Any,
    **_: Any,
) -> Tensor:
    """A product of float8 with a scale for each operand, or for each row and column."""
    if scale_a.dtype != dtypes.float32 or scale_b.dtype != dtypes.float32:
        raise Gap("scales that are not float32")
    rows, columns = (a.shape[0], 1), (1, b.shape[1])
    if any(s.nelms > 1 and tuple(s.shape) != own for s, own in ((scale_a, rows), (scale_b, columns))):
        raise Gap("scales of blocks")
    wide = ops.matmul(cast(a, dtypes.float32), cast(b, dtypes.float32))
    for scale in (scale_a, scale_b):
        wide = ops.mul(wide, ops.reshape(scale, ()) if scale.nelms == 1 else scale)
    if bias is not None:
        wide = ops.add(wide, cast(bias, dtypes.float32))
    return cast(wide, site.dtype)
