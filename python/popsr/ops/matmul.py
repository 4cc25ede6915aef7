"""Matrix products."""

from __future__ import annotations

from popsr import dtypes
from popsr._emit import emit
from popsr.tensor import Tensor
from popsr.utils import read_dtype

__all__ = ["matmul"]


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
        output_type: type of the result. Default: that of the operands.
        partials_type: accepted for PopXL programs, float16 or float32; sums are kept in float32 or wider.
    Returns:
        Tensor of ``output_type`` and the shape that ``numpy.matmul`` gives.
    Raises:
        ShapeError: inner extents differ, batches do not broadcast, or an operand is a scalar.
        DTypeError: the dtypes differ or are not floating.
    """
    return emit(
        "matmul",
        {"lhs": lhs, "rhs": rhs},
        available_memory_proportion=available_memory_proportion,
        output_type=None if output_type is None else read_dtype("matmul", output_type).name,
        partials_type=None if partials_type is None else read_dtype("matmul", partials_type).name,
    )
