"""Quantised numbers: whole numbers that stand for ``(number - zero point) * scale``."""

from __future__ import annotations

from popsr import dtypes
from popsr._program.building.emit import emit, optional_tensor
from popsr._program.tensor import Tensor
from popsr._support.host.arguments import read_dtype
from popsr.ops._facts import public_op

__all__ = ["dequantize_linear", "quantize_linear"]


@public_op
def quantize_linear(
    t: Tensor,
    scale: Tensor,
    zero_point: Tensor | None = None,
    data_type: dtypes.dtype = dtypes.uint8,
    axis: int = 1,
    block_size: int = 0,
) -> Tensor:
    """``t / scale`` rounded to even, moved by the zero point, saturated. An addition of popsr.

    Quotients are computed in the type of ``scale``, as float32 where that is narrow. NaN becomes 0, as by ``cast``. No
    gradient flows back: the result is a whole number.

    Args:
        t: the operand.
        scale: one number; or one for each place of ``axis``; or, with a block size, of the shape of ``t`` but for
            ``axis``, which has one number for each block of its places.
        zero_point: of the shape of ``scale`` and of ``data_type``. Default: 0.
        data_type: int8, uint8, int16 or uint16.
        axis: the axis of scales that are not one number.
        block_size: places of a block; the last one may be shorter. 0: no blocks.
    Returns:
        Tensor of ``data_type`` and the shape of ``t``.
    Raises:
        ShapeError: the scales or the zero points do not match.
        DTypeError: a dtype does not fit.
        AttributeValueError: the axis is out of range, or the block size is below 0.
    Source:
        ONNX: operator QuantizeLinear.
    Example:
        >>> evaluate(ops.quantize_linear, [-1.0, 0.25, 0.75, 99.0], np.float32(0.5))
        array([  0,   0,   2, 198], dtype=uint8)
    """
    where = "quantize_linear"
    inputs = {"t": t, "scale": scale, "zero_point": optional_tensor(where, "zero_point", zero_point)}
    kind = read_dtype(where, data_type).name
    return emit(where, inputs, data_type=kind, axis=axis, block_size=block_size)


@public_op
def dequantize_linear(
    t: Tensor, scale: Tensor, zero_point: Tensor | None = None, axis: int = 1, block_size: int = 0
) -> Tensor:
    """``(t - zero_point) * scale``. An addition of popsr.

    It is computed in the type of ``scale``; as float32 where that is narrow, and rounded once. No gradient flows back.

    Args:
        t: the operand: whole numbers of 8 or 16 bits, or int32.
        scale: as for ``quantize_linear``.
        zero_point: of the shape of ``scale`` and the dtype of ``t``. Default: 0.
        axis: the axis of scales that are not one number.
        block_size: places of a block; the last one may be shorter. 0: no blocks.
    Returns:
        Tensor of the dtype of ``scale`` and the shape of ``t``.
    Raises:
        ShapeError: the scales or the zero points do not match.
        DTypeError: a dtype does not fit.
        AttributeValueError: the axis is out of range, or the block size is below 0.
    Source:
        ONNX: operator DequantizeLinear.
    Example:
        >>> codes, scale, zero = np.uint8([0, 128, 255]), np.float32(0.5), np.uint8(128)
        >>> evaluate(ops.dequantize_linear, codes, scale, zero)
        array([-64. ,   0. ,  63.5], dtype=float32)
    """
    inputs = {
        "t": t,
        "scale": scale,
        "zero_point": optional_tensor("dequantize_linear", "zero_point", zero_point),
    }
    return emit("dequantize_linear", inputs, axis=axis, block_size=block_size)
