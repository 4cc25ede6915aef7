"""Rules of random numbers: popsr's own, from a seed that is a state of the step. They are not torch's bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from popsr import dtypes, ops
from popsr._lazy import names_only
from popsr.bridge.torch._dtypes import is_float
from popsr.bridge.torch._rules.table import Gap, Site, cast, rule
from popsr.tensor import Tensor

__all__: list[str] = []

__dir__ = names_only(__all__)


def _uniform(site: Site, shape: Sequence[int]) -> Tensor:
    return ops.random_uniform(site.random_seed(), tuple(shape), 0.0, 1.0, dtypes.float32)


def _kept(site: Site, shape: Sequence[int], share: float) -> Tensor:
    """Bools that are true with a chance."""
    return ops.greater(site.full((), share, dtypes.float32), _uniform(site, shape))


@rule("rand.default", "rand_like.default", "uniform.default")
def _rand(site: Site, *operands: Any) -> Tensor:
    low, high = (*operands[1:3], 0.0, 1.0)[:2] if len(operands) == 3 else (0.0, 1.0)
    wide = ops.random_uniform(site.random_seed(), site.shape, float(low), float(high), dtypes.float32)
    return cast(wide, site.dtype)


@rule("randn.default", "randn_like.default", "normal_functional.default")
def _randn(site: Site, *operands: Any) -> Tensor:
    mean, std = operands[1:3] if len(operands) == 3 else (0.0, 1.0)
    wide = ops.random_normal(site.random_seed(), site.shape, float(mean), float(std), dtypes.float32)
    return cast(wide, site.dtype)


@rule("bernoulli.p", "bernoulli.default")
def _bernoulli(site: Site, t: Tensor, p: float | None = None) -> Tensor:
    if p is not None:
        return cast(_kept(site, site.shape, p), site.dtype)
    return cast(ops.greater(cast(t, dtypes.float32), _uniform(site, site.shape)), site.dtype)


@rule("native_dropout.default")
def _native_dropout(site: Site, t: Tensor, p: float, train: bool | None = True) -> list[Tensor]:
    if not train or p == 0:
        return [t, site.full(t.shape, True, dtypes.bool)]
    kept = _kept(site, t.shape, 1 - p)
    scale = 0.0 if p == 1 else 1 / (1 - p)
    return [ops.mul(ops.mul(t, cast(kept, t.dtype)), site.full((), scale, t.dtype)), kept]


@rule("randperm.default")
def _randperm(site: Site, count: int) -> Tensor:
    drawn = ops.random_uniform(site.random_seed(), (count,), 0.0, 1.0, dtypes.float64)
    return cast(ops.argsort(drawn), site.dtype)


@rule("randint.low", "randint.default", "randint_like.low_dtype")
def _randint(site: Site, *operands: Any) -> Tensor:
    bounds = [each for each in operands if isinstance(each, int)]
    low, high = bounds if len(bounds) == 2 else (0, bounds[0])
    if high - low > 2**24 or is_float(site.dtype):
        raise Gap(f"integers up to {high}")
    wide = ops.random_uniform(site.random_seed(), site.shape, 0.0, float(high - low), dtypes.float64)
    return ops.add(cast(ops.floor(wide), site.dtype), site.full((), low, site.dtype))
