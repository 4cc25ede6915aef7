"""The power of two with which conversion to float8 loses least."""

from __future__ import annotations

import functools

import numpy as np

from popsr import dtypes, ops
from popsr._program.building.transaction import transactional
from popsr._program.tensor import Tensor, constant
from popsr._support.host.float8 import FLOAT8
from popsr._support.host.float_environment import in_default_environment
from popsr._support.text.entry_points import public
from popsr.addons.ops._fp8 import MAX_SCALE, MIN_SCALE, finite_magnitudes, read_float8, read_source
from popsr.fp8_utils import (
    _DEFS,
    CandidateConfig,
    FpDef,
    calculate_metric_mse,
    find_exponential_range,
    ieee_fp16_denorms,
    ieee_fp32_no_denorms,
)

__all__ = ["CandidateConfig", "fp8_mse_scale"]

# By preference among equally good ones.
_SCALES = np.array(sorted(range(MIN_SCALE, MAX_SCALE + 1), key=lambda scale: (abs(scale), scale)))


@public
@transactional
@in_default_environment
def fp8_mse_scale(src: Tensor, dtype: dtypes.dtype = dtypes.float8_143) -> Tensor:
    """The ``log2_scale`` with the least mean squared error: ``fp8_utils.host_fp8_mse_scale`` as part of a program.

    The error of each scale is expected from a histogram of binades. No finite element overflows at the scale, unless
    some do at every scale: then it is -31. Of equally good ones it is that nearest to 0.

    Args:
        src: what is to become float8: float16, bfloat16, float32 or float64, any shape but an empty one. Infinities and
            NaN are left out.
        dtype: a float8 type.
    Returns:
        int32 scalar from -31 to 31; 0 where no element is other than 0. For ``ops.pow2scale_cast_to_fp8``; its negative
        undoes it.
    Raises:
        TypeError: ``src`` is not a tensor of floats, or another ``dtype``.
        ValueError: ``src`` is empty, or of another graph.
    """
    where = "fp8_mse_scale"
    to = read_float8(where, dtype)
    magnitudes = finite_magnitudes(read_source(where, src))
    src_ftype = ieee_fp16_denorms if src.dtype == dtypes.float16 else ieee_fp32_no_denorms
    least, most = find_exponential_range(src_ftype)
    # The first bin is of zeros; the first binade also has what is below it, the last what is above.
    levels = [float(np.finfo(np.float32).smallest_subnormal), *np.exp2(np.arange(least + 1.0, most + 1))]
    counts = ops.cast(ops.histogram(magnitudes, levels, absolute_of_input=False), dtypes.float64)
    errors = ops.matmul(_constant(_errors(to, src_ftype)), counts)
    greatest = ops.cast(ops.max(magnitudes), dtypes.float64)
    fits = ops.greater(_constant(np.ldexp(_first_overflow(FLOAT8[to]), -_SCALES)), greatest)
    best = ops.argmin(ops.where(fits, errors, _constant(_error_of_overflow())), 0)
    return ops.gather(constant(_SCALES, dtypes.int32), best)


@functools.cache
def _errors(to: dtypes.dtype, src_ftype: FpDef) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """The expected squared error of one element: a row a scale, a column a bin of the histogram."""
    least, most = find_exponential_range(src_ftype)
    candidate = CandidateConfig(to, src_ftype, _DEFS[to], None)
    first = find_exponential_range(candidate.dest_ftype)[0]
    one = np.ones(1)
    columns = [
        calculate_metric_mse(one, np.array([binade]), first - binade - _SCALES, candidate)
        for binade in range(least, most + 1)
    ]
    return np.stack([np.zeros(len(_SCALES)), *columns], axis=1)


def _first_overflow(to: dtypes.FloatFormat) -> float:
    """The least float64 that rounds to more than the greatest float8: half a step above it, where a tie goes up."""
    step = np.ldexp(1.0, int(np.frexp(to.greatest)[1]) - 1 - to.mantissa_bits)
    tie = to.greatest + step / 2
    return float(tie if to.max_code % 2 else np.nextafter(tie, np.inf))


def _error_of_overflow() -> object:
    """Worse than everything, and worst but at the least scale."""
    return np.where(_SCALES == MIN_SCALE, np.finfo(np.float64).max, np.inf)


def _constant(data: object) -> Tensor:
    return constant(data, dtypes.float64, "fp8_mse_scale")
