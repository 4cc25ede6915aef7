"""Discrete Fourier transforms."""

from __future__ import annotations

from popsr._program.building.emit import emit
from popsr._program.tensor import Tensor
from popsr._support.host.arguments import read_flag
from popsr.ops._facts import public_op

__all__ = ["fft"]


@public_op
def fft(t: Tensor, axis: int = -2, inverse: bool = False, real_part: bool = False) -> Tensor:
    """Discrete Fourier transform along an axis (ONNX: DFT). An addition of popsr.

    Element k is the sum of ``x[j] * e^(-2 pi i j k / n)`` over j; the inverse has the other sign and the factor 1 / n.
    Lengths whose prime factors are at most 13 take passes of 2, 3, 4, 5, 7, 11 and 13 (Stockham), others a
    convolution of length 2^m (Bluestein). All is computed as float64 and rounded to float32 (from there to narrow
    floats). The order of sums depends on the length alone. The gradient is the conjugate transform.

    Args:
        t: the operand: real and imaginary parts on the last axis, or real parts alone; shape ``[..., n, ..., 1 or 2]``.
        axis: the axis of the n elements, not the last one.
        inverse: the inverse transform.
        real_part: the imaginary parts of the result are left out.
    Returns:
        Tensor of the dtype of ``t``, and its shape with 2 parts, or 1 with ``real_part``.
    Raises:
        ShapeError: the last axis is not of 1 or 2 parts.
        AttributeValueError: the axis is out of range.
        DTypeError: ``t`` is not floating.
    Source:
        Cooley and Tukey, 1965; Bluestein, A linear filtering approach to the computation of discrete Fourier
        transform, 1970.
    Example:
        >>> evaluate(ops.fft, [[1.0], [2.0], [3.0], [4.0]])
        array([[10.,  0.],
               [-2.,  2.],
               [-2.,  0.],
               [-2., -2.]], dtype=float32)
    """
    return emit(
        "fft",
        {"t": t},
        axis=axis,
        inverse=read_flag("fft: inverse", inverse),
        real_part=read_flag("fft: real_part", real_part),
    )
