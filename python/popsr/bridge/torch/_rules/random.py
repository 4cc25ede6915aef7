"""Rules of random numbers: popsr's own, from a seed that is a state of the step. They are not torch's bits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from popsr import dtypes, ops
from popsr._program.tensor import Tensor, constant
from popsr.bridge._step.reading import floats_are_wide, noise_is_off
from popsr.bridge.torch._rules.table import Gap, Site, cast, rule

__all__: list[str] = []


def _is_off(site: Site) -> bool:
    """True where random numbers are the same whatever the generator, which a note says."""
    if noise_is_off():
        site.note(_OFF)
    return noise_is_off()


_OFF = (
    "random numbers are off beside one device: masks of dropout and bernoulli keep all, normal numbers are their mean, "
    "uniform ones the middle, permutations in order"
)


def _uniform(site: Site, shape: Sequence[int], low: float = 0.0, high: float = 1.0) -> Tensor:
    kind = dtypes.float32
    if _is_off(site):
        return site.full(tuple(shape), (low + high) / 2, dtypes.float64 if floats_are_wide() else kind)
    return ops.random_uniform(site.random_seed(), tuple(shape), low, high, kind)


def _normal_numbers(site: Site, mean: float, std: float) -> Tensor:
    kind = dtypes.float32
    if _is_off(site):
        return site.full(site.shape, mean, dtypes.float64 if floats_are_wide() else kind)
    return ops.random_normal(site.random_seed(), site.shape, mean, std, kind)


def _kept(site: Site, shape: Sequence[int], share: float) -> Tensor:
    """Bools that are true with a chance."""
    if _is_off(site):
        return site.full(tuple(shape), share > 0, dtypes.bool)
    return ops.greater(site.full((), share, dtypes.float32), _uniform(site, shape))


@rule("rand.default", "rand_like.default", "uniform.default")
def _rand(site: Site, *operands: Any) -> Tensor:
    low, high = (*operands[1:3], 0.0, 1.0)[:2] if len(operands) == 3 else (0.0, 1.0)
    return cast(_uniform(site, site.shape, float(low), float(high)), site.dtype)


@rule("randn.default", "randn_like.default", "normal_functional.default")
def _randn(site: Site, *operands: Any) -> Tensor:
    mean, std = operands[1:3] if len(operands) == 3 else (0.0, 1.0)
    return cast(_normal_numbers(site, float(mean), float(std)), site.dtype)


@rule("normal.Tensor_Tensor", "normal.Tensor_float", "normal.float_Tensor", "normal.float_float")
def _normal(site: Site, mean: Any, std: Any = 1.0, *_shape: Any) -> Tensor:
    drawn = _normal_numbers(site, 0.0, 1.0)
    mean, std = (site.tensor(each, drawn.dtype) for each in (mean, std))
    return cast(ops.add(mean, ops.mul(drawn, std)), site.dtype)


@rule("exponential.default")
def _exponential(site: Site, _old: Tensor, rate: float = 1.0) -> Tensor:
    return cast(ops.mul(_waiting(site), site.full((), 1 / rate, dtypes.float32)), site.dtype)


def _waiting(site: Site) -> Tensor:
    """Numbers of the exponential distribution of mean 1."""
    return ops.negate(ops.log(ops.sub(site.full((), 1.0, dtypes.float32), _uniform(site, site.shape))))


@rule("geometric.default")
def _geometric(site: Site, _old: Tensor, p: float) -> Tensor:
    if not 0 < p < 1:
        raise Gap(f"a chance of {p}")
    trials = ops.mul(_waiting(site), site.full((), -1 / math.log1p(-p), dtypes.float32))
    return cast(ops.add(ops.floor(trials), site.full((), 1.0, dtypes.float32)), site.dtype)


@rule("log_normal.default")
def _log_normal(site: Site, _old: Tensor, mean: float = 1.0, std: float = 2.0) -> Tensor:
    return cast(ops.exp(_normal_numbers(site, float(mean), float(std))), site.dtype)


@rule("cauchy.default")
def _cauchy(site: Site, _old: Tensor, median: float = 0.0, sigma: float = 1.0) -> Tensor:
    half_turns = ops.sub(_uniform(site, site.shape), site.full((), 0.5, dtypes.float32))
    drawn = ops.tan(ops.mul(half_turns, site.full((), math.pi, dtypes.float32)))
    scaled = ops.mul(drawn, site.full((), sigma, dtypes.float32))
    return cast(ops.add(scaled, site.full((), median, dtypes.float32)), site.dtype)


@rule("bernoulli.Tensor")
def _bernoulli_of(site: Site, _old: Tensor, p: Tensor) -> Tensor:
    return cast(_chosen(site, p), site.dtype)


def _chosen(site: Site, p: Tensor) -> Tensor:
    """Bools that are true with the chances that a tensor has."""
    if _is_off(site):
        return site.full(site.shape, True, dtypes.bool)
    return ops.greater(cast(p, dtypes.float32), _uniform(site, site.shape))


@rule("bernoulli.p", "bernoulli.default")
def _bernoulli(site: Site, t: Tensor, p: float | None = None) -> Tensor:
    if p is not None:
        return cast(_kept(site, site.shape, p), site.dtype)
    return cast(_chosen(site, t), site.dtype)


@rule("native_dropout.default")
def _native_dropout(site: Site, t: Tensor, p: float, train: bool | None = True) -> list[Tensor]:
    if not train or p == 0:
        return [t, site.full(t.shape, True, dtypes.bool)]
    kept = _kept(site, t.shape, 1 - p)
    scale = 0.0 if p == 1 else 1 / (1 - p)
    return [ops.mul(ops.mul(t, cast(kept, t.dtype)), site.full((), scale, t.dtype)), kept]


@rule("randperm.default")
def _randperm(site: Site, count: int) -> Tensor:
    if _is_off(site):
        return constant(np.arange(count), site.dtype)
    drawn = ops.random_uniform(site.random_seed(), (count,), 0.0, 1.0, dtypes.float64)
    return cast(ops.argsort(drawn), site.dtype)


@rule("randint.low", "randint.default", "randint_like.default", "randint_like.low_dtype", "random.to")
def _randint(site: Site, *operands: Any) -> Tensor:
    bounds = [each for each in operands if isinstance(each, int)]
    low, high = bounds if len(bounds) == 2 else (0, bounds[0])
    if high - low > 2**24:
        raise Gap(f"integers up to {high}")
    if _is_off(site):
        return site.full(site.shape, (low + high) // 2, site.dtype)
    wide = ops.random_uniform(site.random_seed(), site.shape, 0.0, float(high - low), dtypes.float64)
    whole = ops.add(ops.floor(wide), site.full((), low, dtypes.float64))
    return cast(whole, site.dtype)
