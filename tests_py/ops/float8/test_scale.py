"""The scale that suits given data: against the error of every scale, computed by converting the data."""

from __future__ import annotations

import numpy as np
import pytest

import popsr
from popsr import errors, fp8_utils
from popsr.fp8_utils import FpDef
from tests_py.support.helpers import FLOAT8, Array, dtype
from tests_py.support.oracles.float8 import nearest, values
from tests_py.support.unchecked import unchecked

RNG = np.random.default_rng(7)
NORMAL = RNG.standard_normal(8000)
DATA = {
    "normal": NORMAL.astype(np.float32),
    "small": (NORMAL * 1e-6).astype(np.float32),
    "large": (NORMAL * 3e5).astype(np.float32),
    "heavy-tails": (NORMAL * np.exp(2 * RNG.standard_normal(8000))).astype(np.float32),
    "half": (NORMAL * 1e-3).astype(np.float16),
    "subnormal-half": (NORMAL * 1e-6).astype(np.float16),
    "double": NORMAL * 0.1,
    "sparse": np.where(NORMAL > 2, NORMAL, 0).astype(np.float32),
    "one": np.array([0.3], np.float32),
}


def errors_of_scales(x: Array, name: str) -> dict[int, float]:
    """Mean squared error of conversion and back, NaN where something overflows."""
    wide = x.astype(np.float64)
    return {
        s: float(np.mean((np.ldexp(values(name)[nearest(np.ldexp(wide, s), name)], -s) - wide) ** 2))
        for s in range(-31, 32)
    }


@pytest.mark.parametrize("name", FLOAT8)
@pytest.mark.parametrize("data", DATA)
def test_the_scale_is_nearly_the_best(data: str, name: str) -> None:
    """The expected error is the conversion's, within a sample's variation, and no scale is much better."""
    x = DATA[data]
    metric, scale = fp8_utils.host_fp8_mse_scale(unchecked(x), dtype(name))
    found = errors_of_scales(unchecked(x), name)
    best = np.nanmin(list(found.values()))
    assert -31 <= scale <= 31
    assert not np.isnan(found[scale]), "no finite value overflows"
    if data == "one":
        return
    assert found[scale] <= 1.05 * best
    assert 0.7 * found[scale] < metric < 1.5 * found[scale]
    assert fp8_utils.host_fp8_mse_scale_pb(unchecked(x), dtype(name)) == scale


@pytest.mark.parametrize("name", FLOAT8)
def test_of_equal_scales_the_one_nearest_to_zero(name: str) -> None:
    assert fp8_utils.host_fp8_mse_scale(np.array([1.0, 1.5, 2.0], np.float32), dtype(name))[1] == 0


def test_values_that_do_not_count() -> None:
    x = np.concatenate([NORMAL, [0.0, np.inf, -np.inf, np.nan]]).astype(np.float32)
    assert fp8_utils.host_fp8_mse_scale(x)[1] == fp8_utils.host_fp8_mse_scale(NORMAL.astype(np.float32))[1]
    for empty in (np.zeros(3), np.zeros(0), np.full(2, np.nan)):
        assert fp8_utils.host_fp8_mse_scale(empty) == (0.0, 0)


def test_data_that_overflows_at_every_scale() -> None:
    assert fp8_utils.host_fp8_mse_scale(np.array([1e38, -3e38], np.float32))[1] == -31


@pytest.mark.parametrize(
    ("definition", "expected"),
    [
        (fp8_utils.ieee_fp32_no_denorms, (-126, 127)),
        (fp8_utils.ieee_fp16_denorms, (-24, 15)),
        (fp8_utils.float8_143_def, (-10, 7)),
        (fp8_utils.float8_152_def, (-17, 15)),
    ],
)
def test_exponential_ranges(definition: FpDef, expected: tuple[int, int]) -> None:
    assert fp8_utils.find_exponential_range(definition) == expected


def test_histogram_counts_binades() -> None:
    x = np.array([0, 1, -1.99, 2, 3, 1e-9, 1e9, np.inf, np.nan, 2.0**-24], np.float32)
    counts, limits = fp8_utils.log_histogram(x, fp8_utils.ieee_fp16_denorms)
    found = {int(e): int(n) for e, n in zip(limits, counts, strict=True) if n}
    assert found == {-24: 2, 0: 2, 1: 2, 15: 1}
    assert limits.tolist() == list(range(-24, 16))


def test_metric_of_one_binade() -> None:
    """Numbers in [1, 2) as float8_143 at scale 0: neighbours are 1/8 apart."""
    candidate = fp8_utils.CandidateConfig(
        popsr.float8_143, fp8_utils.ieee_fp16_denorms, fp8_utils.float8_143_def, np.float16
    )
    limits = np.arange(-24, 16)
    metric, scales = fp8_utils.calculate_candidate_metric(np.where(limits == 0, 1.0, 0.0), limits, candidate)
    by_scale = dict(zip(scales.tolist(), metric.tolist(), strict=True))
    assert list(by_scale) == list(range(-31, 32))
    assert by_scale[0] == pytest.approx(2.0**-6 / 12)
    assert by_scale[-11] == pytest.approx(4 / 12), "the least float8 is 2 at this scale: 2^-10 by 2^11"
    assert by_scale[-20] == pytest.approx(7 / 3), "all is lost: the mean of x^2"
    assert by_scale[20] == pytest.approx(7 / 3, rel=1e-3), "all saturates at nearly nothing"
    again = fp8_utils.calculate_metric_mse(
        np.where(limits == 0, 1.0, 0.0), limits, candidate.starting_indices(), candidate
    )
    assert np.array_equal(again, metric)


def test_other_metrics_are_refused() -> None:
    candidate = fp8_utils.CandidateConfig(
        popsr.float8_152, fp8_utils.ieee_fp16_denorms, fp8_utils.float8_152_def, np.float16
    )
    with pytest.raises(
        errors.AttributeValueError, match=r"unknown metric_type, got 'kl', expected one of None, 'mse'"
    ):
        fp8_utils.calculate_candidate_metric(np.ones(40), np.arange(-24, 16), candidate, "kl")
