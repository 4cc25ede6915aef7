"""float8 on the host: conversions, and the power of two that suits given data.

``float8_143`` and ``float8_152`` are ``float8_e4m3fnuz`` and ``float8_e5m2fnuz`` of ml_dtypes: no infinities, one NaN
(0x80), no negative zero. Host data of these types are structured arrays; ``data.view(dtype.as_ml_dtypes())`` are
numbers, and arrays of ml_dtypes are accepted wherever structured ones are.

``float8_e4m3fn`` and ``float8_e5m2`` are OCP's types, with the names and the host data of ml_dtypes: the former has a
NaN of each sign and no infinity, the latter is an IEEE 754 format.
"""

from __future__ import annotations

import contextlib
import importlib.util
from collections import namedtuple
from collections.abc import Container
from typing import Any

import numpy as np

from popsr import dtypes
from popsr._support.host.arguments import (
    read_a,
    read_choice,
    read_dtype,
    read_flag,
    read_int,
    read_scale,
    require_memory,
)
from popsr._support.host.float8 import FLOAT8, FLOAT8_NAMES, decode, encode, float8_of, has_values
from popsr._support.host.float_environment import in_default_environment
from popsr._support.lazy import names_only
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr.errors import DTypeError, ShapeError, StateError
from popsr.utils import as_array

__all__ = [
    "CandidateConfig",
    "FpDef",
    "calculate_candidate_metric",
    "calculate_metric_mse",
    "find_exponential_range",
    "float8_143_def",
    "float8_152_def",
    "host_fp8_mse_scale",
    "host_fp8_mse_scale_pb",
    "host_pow2scale_cast_from_fp8",
    "host_pow2scale_cast_to_fp8",
    "ieee_fp16_denorms",
    "ieee_fp32_no_denorms",
    "log_histogram",
    "max_scaling_bias",
    "min_scaling_bias",
    "torch_imported",
]

Array = np.ndarray[Any, Any]

torch_imported = importlib.util.find_spec("torch") is not None
"""True if torch is installed; its tensors are accepted as data either way."""

max_scaling_bias = 31
min_scaling_bias = -31
"""Bounds of the scales that :func:`host_fp8_mse_scale` looks at."""

FpDef = namedtuple(
    "FpDef", ["num_exp_bits", "num_mantissa_bits", "fix_exponent_bias", "include_denorm", "has_nans"]
)
"""A float format. ``has_nans``: the largest exponent stands for NaN and infinity."""

ieee_fp32_no_denorms = FpDef(8, 23, 127, False, True)
ieee_fp16_denorms = FpDef(5, 10, 15, True, True)
_DEFS = {
    kind: FpDef(form.exponent_bits, form.mantissa_bits, form.bias, True, form.inf_code != form.nan_code)
    for kind, form in FLOAT8.items()
}
float8_143_def = _DEFS[dtypes.float8_143]
float8_152_def = _DEFS[dtypes.float8_152]

_WIDE = (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64)
_WIDE_NAMES = "float16, bfloat16, float32 or float64"


# Conversions


@public
def host_pow2scale_cast_to_fp8(
    src: Array, dtype: dtypes.dtype | None = None, log2_scale: int = 0, nan_on_overflow: bool = True
) -> Array:
    """``src * 2**log2_scale`` as float8, rounded once to nearest even.

    Args:
        src: float16, bfloat16, float32 or float64, any shape.
        dtype: a float8 type. Default: ``float8_143``.
        log2_scale: the exponent of the scale, any int.
        nan_on_overflow: what is too large becomes infinite, or NaN where the type has no infinity; else the largest
            float8 of its sign. Infinite data becomes so either way.
    Returns:
        Structured array of ``dtype.as_numpy()`` and the shape of ``src``.
    Raises:
        RuntimeError: data or ``dtype`` of another kind.
        ValueError: ``log2_scale`` is not an int.
    """
    where = "host_pow2scale_cast_to_fp8"
    to = _read_float8(where, dtype)
    array = as_array(where, src)
    if not has_values(array):
        raise StateError(f"{where}: wrong data, got {array.dtype}, expected {_WIDE_NAMES}")
    return encode(
        array, to, read_scale(where, log2_scale), read_flag(f"{where}: nan_on_overflow", nan_on_overflow)
    )


@public
def host_pow2scale_cast_from_fp8(src: Array, dtype: dtypes.dtype | None = None, log2_scale: int = 0) -> Array:
    """``src * 2**log2_scale`` as a wider float, rounded once.

    The scale is the negative of the conversion's to float8.

    Args:
        src: float8 data, structured or of ml_dtypes, any shape.
        dtype: ``float16``, ``bfloat16``, ``float32`` (default) or ``float64``.
        log2_scale: the exponent of the scale, any int.
    Returns:
        Array of ``dtype`` and the shape of ``src``.
    Raises:
        RuntimeError: data or ``dtype`` of another kind.
        ValueError: ``log2_scale`` is not an int.
    """
    where = "host_pow2scale_cast_from_fp8"
    to = _read_dtype(where, dtypes.float32 if dtype is None else dtype, _WIDE, _WIDE_NAMES)
    array = as_array(where, src)
    if float8_of(array) is None:
        raise StateError(f"{where}: wrong data, got {array.dtype}, expected {FLOAT8_NAMES}")
    return decode(array, to, read_scale(where, log2_scale))


def _read_float8(where: str, dtype: dtypes.dtype | None) -> dtypes.dtype:
    return _read_dtype(where, dtypes.float8_143 if dtype is None else dtype, FLOAT8, FLOAT8_NAMES)


def _read_dtype(where: str, dtype: Any, kinds: Container[dtypes.dtype], names: str) -> dtypes.dtype:
    """One of some dtypes, or what stands for one, as everywhere."""
    with contextlib.suppress(DTypeError):
        found = read_dtype(where, dtype)
        if found in kinds:
            return found
    raise StateError(f"{where}: wrong dtype, got {shown(dtype)}, expected {names}")


# Choosing a scale


def _numbers(what: str, data: Any, rank: int | None = None) -> Array:
    """Data as float64, of some rank and with elements."""
    array = as_array(what, data)
    if array.dtype.kind not in "biuf" and not has_values(array):
        raise DTypeError(f"{what}: not of numbers, got {array.dtype}, expected ints or floats")
    if rank is not None and (array.ndim != rank or not array.size):
        raise ShapeError(f"{what}: wrong shape, got {array.shape}, expected {rank} axes with elements")
    require_memory(what, 8 * array.size)
    return array.astype(np.float64)


@public
def find_exponential_range(fp_def: FpDef) -> tuple[int, int]:
    """The exponents of the least and the largest binade of a format, subnormals included where it has them."""
    where = "find_exponential_range"
    read_a(f"{where}: fp_def", fp_def, FpDef)
    exponent_bits = read_int(f"{where}: num_exp_bits", fp_def.num_exp_bits, 1, 16)
    mantissa_bits = read_int(f"{where}: num_mantissa_bits", fp_def.num_mantissa_bits, 0, 64)
    bias = read_int(f"{where}: fix_exponent_bias", fp_def.fix_exponent_bias, 0, 2**16)
    least = 1 - bias - (mantissa_bits if read_flag(f"{where}: include_denorm", fp_def.include_denorm) else 0)
    most = (1 << exponent_bits) - 1 - bias - read_flag(f"{where}: has_nans", fp_def.has_nans)
    return least, most


@public
@in_default_environment
def log_histogram(src: Array, ftype: FpDef) -> tuple[Array, Array]:
    """Number of values in each binade.

    Args:
        src: floats. Zeros, infinities and NaN are left out.
        ftype: the format whose binades count; what is below or above them counts as the first or the last.
    Returns:
        Counts, and ascending exponents: count i is of ``2**limits[i] <= |x| < 2**(limits[i] + 1)``.
    """
    values = _numbers("log_histogram: src", src)
    least, most = find_exponential_range(ftype)
    values = np.abs(values.reshape(-1))
    exponents = np.frexp(values[np.isfinite(values) & (values > 0)])[1] - 1
    counts = np.bincount(np.clip(exponents, least, most) - least, minlength=most - least + 1)
    return counts, np.arange(least, most + 1)


@public
class CandidateConfig:
    """A float8 format that data may be converted to.

    Attributes:
        format: the dtype.
        src_ftype: format of the data.
        dest_ftype: format of the result.
        src_type: NumPy type of the data.
        scales: the exponents of the scales to choose from.
    """

    def __init__(self, format: dtypes.dtype, src_ftype: FpDef, dest_ftype: FpDef, src_type: Any) -> None:
        """Plain data."""
        read_a("CandidateConfig: src_ftype", src_ftype, FpDef)
        read_a("CandidateConfig: dest_ftype", dest_ftype, FpDef)
        self.format = format
        self.src_ftype = src_ftype
        self.dest_ftype = dest_ftype
        self.src_type = src_type
        self.scales = np.arange(min_scaling_bias, max_scaling_bias + 1)

    def starting_indices(self) -> Array:
        """For each scale, the binade of the data that becomes the first one of the result; may be out of range."""
        first = find_exponential_range(self.dest_ftype)[0] - find_exponential_range(self.src_ftype)[0]
        return np.asarray(first - self.scales)


@public
@in_default_environment
def calculate_metric_mse(
    histogram: Array, limits: Array, src_bias_starting_indices: Array, candidate: CandidateConfig
) -> Array:
    """The mean squared error that conversion and back would have at each scale.

    Values are taken as evenly spread in their binade: one whose float8 neighbours are q apart has the expected squared
    error q**2 / 12; below the least float8 it is lost, above the largest it becomes that.

    Args:
        histogram: shares of the values by binade.
        limits: exponents of the binades.
        src_bias_starting_indices: the scales, as ``candidate.starting_indices()``.
        candidate: the formats.
    Returns:
        The error for each starting index, float64.
    """
    where = "calculate_metric_mse"
    read_a(f"{where}: candidate", candidate, CandidateConfig)
    histogram, limits = _numbers(f"{where}: histogram", histogram), _numbers(f"{where}: limits", limits, 1)
    starts = _numbers(f"{where}: src_bias_starting_indices", src_bias_starting_indices, 1)
    if histogram.shape != limits.shape:
        raise ShapeError(
            f"{where}: shapes differ, got {histogram.shape} and {limits.shape}, expected equal ones"
        )
    least, most = find_exponential_range(candidate.dest_ftype)
    mantissa = candidate.dest_ftype.num_mantissa_bits
    indices = starts[:, np.newaxis]
    scales = least - limits[0] - indices  # log2
    binade = limits[np.newaxis, :] + scales  # of the scaled values
    normal = np.maximum(binade, least + mantissa if candidate.dest_ftype.include_denorm else least)
    rounding = np.exp2(2.0 * (normal - mantissa)) / 12
    low, top = np.exp2(binade.astype(np.float64)), np.exp2(float(most + 1)) * (1 - 2.0 ** -(mantissa + 1))
    vanishing = low * low * 7 / 3  # the mean of x^2 between low and 2 low
    saturating = ((2 * low - top) ** 3 - (low - top) ** 3) / (3 * low)
    error = np.where(binade < least - 1, vanishing, rounding)
    error = np.where(binade > most, saturating, error)
    return np.asarray((error * np.exp2(-2.0 * scales) * histogram).sum(axis=1))


@public
def calculate_candidate_metric(
    hist_norm: Array, limits: Array, candidate: CandidateConfig, metric_type: str | None = None
) -> tuple[Array, Array]:
    """The metric of a candidate at each of its scales.

    Args:
        hist_norm: shares of the values by binade.
        limits: exponents of the binades.
        candidate: the formats and scales.
        metric_type: "mse" (default).
    Returns:
        Metrics and the scales that they belong to.
    Raises:
        ValueError: another metric.
    """
    read_a("calculate_candidate_metric: candidate", candidate, CandidateConfig)
    read_choice("calculate_candidate_metric", "metric_type", metric_type, (None, "mse"))
    metric = calculate_metric_mse(hist_norm, limits, candidate.starting_indices(), candidate)
    return metric, candidate.scales


@public
@in_default_environment
def host_fp8_mse_scale(src: Array, dtype: dtypes.dtype | None = None) -> tuple[float, int]:
    """The ``log2_scale`` with which :func:`host_pow2scale_cast_to_fp8` loses least.

    The error is expected from the histogram of binades, see :func:`calculate_metric_mse`. No finite value overflows at
    the scale, unless some do at every scale: then it is -31. Of equally good ones it is that nearest to 0.

    Args:
        src: float16, bfloat16, float32 or float64. Infinities and NaN are left out.
        dtype: a float8 type. Default: ``float8_143``.
    Returns:
        The expected mean squared error relative to ``src`` itself, and the scale, from -31 to 31.
    Raises:
        RuntimeError: data or ``dtype`` of another kind.
    """
    where = "host_fp8_mse_scale"
    to = _read_float8(where, dtype)
    array = as_array(where, src)
    if not has_values(array):
        raise StateError(f"{where}: wrong data, got {array.dtype}, expected {_WIDE_NAMES}")
    src_ftype = ieee_fp16_denorms if array.dtype == np.float16 else ieee_fp32_no_denorms
    candidate = CandidateConfig(to, src_ftype, _DEFS[to], array.dtype)
    counts, limits = log_histogram(array, src_ftype)
    if counts.sum() == 0:
        return 0.0, 0
    shares = counts / np.isfinite(array).sum()  # zeros have no error
    metric, scales = calculate_candidate_metric(shares, limits, candidate)
    usable = np.flatnonzero(_fits(array, to, scales))
    # If there is none: the smallest scale.
    best = min(usable, key=lambda i: (metric[i], abs(scales[i]))) if len(usable) else 0
    return float(metric[best]), int(scales[best])


def _fits(array: Array, to: dtypes.dtype, scales: Array) -> Array:
    """True for each scale at which no finite value overflows."""
    magnitude = np.abs(array.astype(np.float64))
    peak = np.max(magnitude, initial=0.0, where=np.isfinite(magnitude))
    codes = [encode(np.array([peak]), to, int(scale), True).view(np.uint8)[0] for scale in scales]
    return np.asarray(np.array(codes) <= FLOAT8[to].max_code)


@public
def host_fp8_mse_scale_pb(src: Array, dtype: dtypes.dtype | None = None) -> int:
    """The scale of :func:`host_fp8_mse_scale` alone."""
    return host_fp8_mse_scale(src, dtype)[1]


__dir__ = names_only(__all__)
