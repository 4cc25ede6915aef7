"""Common parts of the ops that choose scales of float8."""

from __future__ import annotations

from typing import Any

from popsr import dtypes, ops
from popsr._program.building.operands import read_floats
from popsr._program.tensor import Tensor, constant
from popsr._support.host.arguments import is_a
from popsr._support.host.float8 import FLOAT8, FLOAT8_NAMES
from popsr._support.text.shown import shown
from popsr.addons.ops._operands import widened
from popsr.errors import DTypeError, ShapeError
from popsr.fp8_utils import max_scaling_bias, min_scaling_bias

__all__ = ["MAX_SCALE", "MIN_SCALE", "finite_magnitudes", "read_float8", "read_source"]

MIN_SCALE, MAX_SCALE = min_scaling_bias, max_scaling_bias


def read_float8(where: str, dtype: Any) -> dtypes.dtype:
    """A float8 dtype.

    Raises:
        TypeError: it is none.
    """
    kinds = tuple(FLOAT8)
    if not is_a(dtype, dtypes.dtype) or dtype not in kinds:
        raise DTypeError(f"{where}: wrong dtype, got {shown(dtype)}, expected {FLOAT8_NAMES}")
    return kinds[kinds.index(dtype)]


def read_source(where: str, src: Any) -> Tensor:
    """A tensor of floats with elements.

    Raises:
        TypeError: it is none.
        ValueError: it is empty, or of another graph.
    """
    t = read_floats(where, "src", src)
    if not t.nelms:
        raise ShapeError(f"{where}: src has no elements, got shape {t.shape}, expected some")
    return t


def finite_magnitudes(t: Tensor) -> Tensor:
    """Absolute values as float32 (float64 of float64), infinities and NaN as 0."""
    wide = widened(t)
    return ops.where(ops.isfinite(wide), ops.abs(wide), constant(0, wide.dtype))
