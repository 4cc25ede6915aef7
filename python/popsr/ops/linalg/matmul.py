"""Matrix products."""

from __future__ import annotations

from popsr import dtypes
from popsr._program.building.emit import emit, optional_tensor
from popsr._program.tensor import Tensor
from popsr._support.host.arguments import read_dtype
from popsr.ops._facts import public_op

__all__ = ["matmul", "matmul_integer", "matmul_pow2scaled"]


@public_op
def matmul(
    lhs: Tensor,
    rhs: Tensor,
    available_memory_proportion: float | None = None,
    output_type: dtypes.dtype | None = None,
    partials_type: dtypes.dtype | None = None,
) -> Tensor:
    """Matrix product as NumPy's: leading axes are batches and broadcast.

    Each element is one chain of fused multiply-adds over the contracted axis in a fixed order, so a row of the result
    does not depend on the other rows.

    Args:
        lhs: left operand.
        rhs: right operand.
        available_memory_proportion: accepted for PopXL programs; has no effect.
        output_type: type of the result. Default: the operands' dtype.
        partials_type: accepted for PopXL programs, float16 or float32; sums are kept in float32 or wider.
    Returns:
        Tensor of ``output_type`` and the shape that ``numpy.matmul`` gives.
    Raises:
        ShapeError: inner extents differ, batches do not broadcast, or an operand is a scalar.
        DTypeError: the dtypes differ or are not floating.
    Example:
        >>> evaluate(ops.matmul, [[1.0, 2.0], [3.0, 4.0]], [[10.0], [1.0]])
        array([[12.],
               [34.]], dtype=float32)
    """
    return emit(
        "matmul",
        {"lhs": lhs, "rhs": rhs},
        available_memory_proportion=available_memory_proportion,
        output_type=None if output_type is None else read_dtype("matmul", output_type).name,
        partials_type=None if partials_type is None else read_dtype("matmul", partials_type).name,
    )


@public_op
def matmul_pow2scaled(
    lhs: Tensor, rhs: Tensor, log2_scale: Tensor, available_memory_proportion: float | None = None
) -> Tensor:
    """Matrix product of float8 operands, times ``2**log2_scale``.

    The product is :func:`matmul`'s on the operands in float32, which is what sums are kept in; it is scaled and
    rounded once. It has no gradient: autodiff refuses.

    Args:
        lhs: left operand, of a float8 type.
        rhs: right operand, of either type.
        log2_scale: int32 of rank 0, from -32 to 31 when the program runs.
        available_memory_proportion: accepted for PopXL programs; has no effect.
    Returns:
        Tensor of float16 and the shape that ``numpy.matmul`` gives.
    Raises:
        ShapeError: inner extents differ, batches do not broadcast, an operand is a scalar, or ``log2_scale`` is none.
        DTypeError: other dtypes than these.
        AttributeValueError: when the program runs: ``log2_scale`` is out of range, unless
            ``ir.options.throw_if_log2_scale_tensor_not_in_range`` is False: then it is clamped.
    Source:
        Noune et al., 8-bit Numerical Formats for Deep Neural Networks, 2022, arXiv:2206.02915.
    Example:
        >>> def product(lhs, rhs):
        ...     zero = popsr.constant(0)
        ...     lhs, rhs = (ops.pow2scale_cast_to_fp8(t, zero, popsr.float8_143) for t in (lhs, rhs))
        ...     return ops.matmul_pow2scaled(lhs, rhs, popsr.constant(1))
        >>> evaluate(product, np.array([[1.0, 2.0]], np.float16), np.array([[10.0], [1.0]], np.float16))
        array([[24.]], dtype=float16)
    """
    return emit(
        "matmul_pow2scaled",
        {"lhs": lhs, "rhs": rhs, "log2_scale": log2_scale},
        available_memory_proportion=available_memory_proportion,
    )


@public_op
def matmul_integer(
    lhs: Tensor, rhs: Tensor, lhs_zero: Tensor | None = None, rhs_zero: Tensor | None = None
) -> Tensor:
    """Exact matrix product of bytes, each less its zero point, modulo 2^32. An addition of popsr.

    Sums do not overflow while the contracted axis has up to 33,025 places. No gradient flows back.

    Args:
        lhs: left operand, int8 or uint8.
        rhs: right operand, int8 or uint8.
        lhs_zero: one number of the dtype of ``lhs``. Default: 0.
        rhs_zero: one number of the dtype of ``rhs``, or one of each of its columns. Default: 0.
    Returns:
        Tensor of int32 and the shape that ``numpy.matmul`` gives.
    Raises:
        ShapeError: inner extents differ, batches do not broadcast, an operand is a scalar, or zero points do not match.
        DTypeError: other dtypes than these, or a zero point of another dtype than its operand.
    Source:
        ONNX: operator MatMulInteger.
    Example:
        >>> evaluate(ops.matmul_integer, np.uint8([[130, 128]]), np.int8([[10], [1]]), np.uint8(128))
        array([[20]], dtype=int32)
    """
    zeros = {"lhs_zero": lhs_zero, "rhs_zero": rhs_zero}
    given = {name: optional_tensor("matmul_integer", name, zero) for name, zero in zeros.items()}
    return emit("matmul_integer", {"lhs": lhs, "rhs": rhs, **given})
