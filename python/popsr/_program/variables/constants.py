"""Constants, for the operators of tensors too."""

from __future__ import annotations

from typing import Any

from popsr import dtypes
from popsr._program.state import _context
from popsr._program.tensor_handle import TensorHandle
from popsr._support.host.arguments import read_name
from popsr._support.text.shown import shown
from popsr.errors import DTypeError, ShapeError
from popsr.utils import HostScalarTensor, host_data, is_mapped, mapped_data

__all__ = ["add_constant", "as_operand"]


def add_constant(
    data: HostScalarTensor,
    dtype: dtypes.dtype | None = None,
    name: str | None = None,
    downcast: bool = True,
    log2_scale: int | None = None,
    nan_on_overflow: bool | None = None,
) -> Any:
    """See :func:`popsr.constant`."""
    graph = _context.graph_of("constant")
    ir = graph._ir
    name = read_name("constant", name)
    if dtype is None and getattr(getattr(data, "dtype", None), "names", None) is not None:
        raise DTypeError(
            f"constant {shown(name)}: structured data without dtype, got {data.dtype}, expected a dtype"
        )
    if is_mapped(data):
        array = mapped_data(data, dtype, downcast)
    else:
        array = host_data(f"constant {name!r}", data, dtype, downcast, False, log2_scale, nan_on_overflow)
    scoped = _context.scoped(name)
    dtype_name = dtypes.dtype.as_dtype(array.dtype).name
    return ir._tensor(ir._core.add_constant(graph._id, scoped, dtype_name, list(array.shape), array))


def as_operand(value: Any, dtype: dtypes.dtype) -> Any:
    """A tensor as it is; numbers and arrays as a constant of a dtype."""
    if isinstance(value, TensorHandle):
        return value
    _context.graph_of("operand")
    data = host_data("operand", value, dtype)
    if data.size == 0:
        raise ShapeError(f"operand: it is empty, got shape {data.shape}, expected at least one element")
    return add_constant(data, dtype)
