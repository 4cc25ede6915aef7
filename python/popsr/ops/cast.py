"""Conversion between element types."""

from __future__ import annotations

from popsr import dtypes
from popsr._emit import emit
from popsr.tensor import Tensor
from popsr.utils import read_dtype

__all__ = ["cast"]


def cast(t: Tensor, data_type: dtypes.dtype) -> Tensor:
    """Convert to another element type.

    Floats become integers by truncation; values out of range saturate and NaN becomes 0.

    Args:
        t: the operand.
        data_type: type of the result.
    Returns:
        Tensor of the shape of ``t``.
    Raises:
        DTypeError: there is no such type.
    """
    return emit("cast", {"t": t}, data_type=read_dtype("cast", data_type).name)
