"""Conversion between element types."""

from __future__ import annotations

from popsr import dtypes
from popsr._program.building.emit import emit
from popsr._program.tensor import Tensor
from popsr._support.host.arguments import read_dtype
from popsr.ops._facts import public_op

__all__ = ["cast", "pow2scale_cast_from_fp8", "pow2scale_cast_to_fp8"]


@public_op
def cast(t: Tensor, data_type: dtypes.dtype) -> Tensor:
    """Convert to another element type.

    Floats become integers by truncation; values out of range saturate and NaN becomes 0. The carriers
    ``float8_e8m0fnu`` and ``float4_e2m1fn`` are cast to and from float32 alone, as ml_dtypes does, to nearest.

    Args:
        t: the operand, of any type but float8.
        data_type: type of the result. Not float8: see :func:`pow2scale_cast_to_fp8`.
    Returns:
        Tensor of the shape of ``t``.
    Raises:
        DTypeError: the type is unknown, or one of the two is float8.
    Example:
        >>> evaluate(ops.cast, [1.7, -1.7], popsr.int32)
        array([ 1, -1], dtype=int32)
    """
    return emit("cast", {"t": t}, data_type=read_dtype("cast", data_type).name)


@public_op
def pow2scale_cast_to_fp8(t: Tensor, log2_scale: Tensor, data_type: dtypes.dtype) -> Tensor:
    """Convert ``t * 2**log2_scale`` to float8, rounded once.

    What is too large becomes infinite, or NaN where the type has no infinity, as do infinities; the least float8 are
    subnormal, smaller values become 0. The rounding takes part in stochastic rounding. It has no gradient: autodiff
    refuses.

    Args:
        t: float16, bfloat16, float32 or float64, any shape.
        log2_scale: int32 of rank 0, from -32 to 31 when the program runs.
        data_type: a float8 type.
    Returns:
        Tensor of ``data_type`` and the shape of ``t``.
    Raises:
        DTypeError: other dtypes than these.
        ShapeError: ``log2_scale`` is not a scalar.
        AttributeValueError: when the program runs: ``log2_scale`` is out of range, unless
            ``ir.options.throw_if_log2_scale_tensor_not_in_range`` is False: then it is clamped.
    Source:
        Noune et al., 8-bit Numerical Formats for Deep Neural Networks, 2022, arXiv:2206.02915.
    Example:
        >>> evaluate(ops.pow2scale_cast_to_fp8, np.array([1.0, 3.3], np.float16), np.int32(1), popsr.float8_143)
        array([2, 6.5], dtype='float8_e4m3fnuz')
    """
    name = "pow2scale_cast_to_fp8"
    return emit(name, {"t": t, "log2_scale": log2_scale}, data_type=read_dtype(name, data_type).name)


@public_op
def pow2scale_cast_from_fp8(t: Tensor, log2_scale: Tensor, data_type: dtypes.dtype) -> Tensor:
    """Convert float8 to a wider float: ``t * 2**log2_scale``, rounded once.

    To undo a scale, ``log2_scale`` is its negative. The conversion is exact but for float16 beyond its range. There is
    no gradient: autodiff refuses.

    Args:
        t: of a float8 type, any shape.
        log2_scale: int32 of rank 0, from -32 to 31 when the program runs.
        data_type: float16, bfloat16, float32 or float64.
    Returns:
        Tensor of ``data_type`` and the shape of ``t``.
    Raises:
        DTypeError: other dtypes than these.
        ShapeError: ``log2_scale`` is not a scalar.
        AttributeValueError: when the program runs: ``log2_scale`` is out of range, unless
            ``ir.options.throw_if_log2_scale_tensor_not_in_range`` is False: then it is clamped.
    Source:
        Noune et al., 8-bit Numerical Formats for Deep Neural Networks, 2022, arXiv:2206.02915.
    Example:
        >>> def round_trip(t, log2_scale):
        ...     narrow = ops.pow2scale_cast_to_fp8(t, log2_scale, popsr.float8_143)
        ...     return ops.pow2scale_cast_from_fp8(narrow, ops.negate(log2_scale), popsr.float16)
        >>> evaluate(round_trip, np.array([1.0, 3.3], np.float16), np.int32(1))
        array([1.  , 3.25], dtype=float16)
    """
    name = "pow2scale_cast_from_fp8"
    return emit(name, {"t": t, "log2_scale": log2_scale}, data_type=read_dtype(name, data_type).name)
