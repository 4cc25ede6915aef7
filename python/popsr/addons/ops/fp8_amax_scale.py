"""The power of two that brings the greatest magnitude of a tensor just below float8's."""

from __future__ import annotations

from popsr import dtypes, ops
from popsr._program.building.transaction import transactional
from popsr._program.tensor import Tensor, constant
from popsr._support.host.float8 import FLOAT8
from popsr._support.text.entry_points import public
from popsr.addons.ops._fp8 import MAX_SCALE, MIN_SCALE, finite_magnitudes, read_float8, read_source

__all__ = ["fp8_amax_scale"]


@public
@transactional
def fp8_amax_scale(src: Tensor, dtype: dtypes.dtype = dtypes.float8_143) -> Tensor:
    """The greatest ``log2_scale`` with which no element overflows: none is beyond the greatest float8.

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
    where = "fp8_amax_scale"
    to = read_float8(where, dtype)
    greatest = ops.max(finite_magnitudes(read_source(where, src)))
    wide = greatest.dtype
    exponent = ops.floor(ops.log2(constant(FLOAT8[to].greatest, wide) / greatest))
    exponent = ops.clip(exponent, MIN_SCALE, MAX_SCALE)
    zero = constant(0, wide)
    return ops.cast(ops.where(ops.greater(greatest, zero), exponent, zero), dtypes.int32)
