"""Tensors joined along an axis."""

from __future__ import annotations

from collections.abc import Iterable

from popsr._program.building.emit import emit
from popsr._program.building.operands import read_tensor_list
from popsr._program.building.transaction import transactional
from popsr._program.tensor import Tensor
from popsr.ops._facts import public_op

__all__ = ["concat", "concat_"]


@public_op
@transactional
def concat(ts: Iterable[Tensor], axis: int = 0) -> Tensor:
    """Several tensors side by side.

    Args:
        ts: tensors of one dtype, whose shapes agree but along ``axis``.
        axis: along which they follow each other.
    Returns:
        Tensor of their dtype.
    Raises:
        ShapeError: the other extents differ.
        DTypeError: the dtypes differ.
        GraphError: the list of operands is empty.
    Example:
        >>> evaluate(ops.concat, ([[1.0], [2.0]], [[3.0], [4.0]]), axis=1)
        array([[1., 3.],
               [2., 4.]], dtype=float32)
    """
    return emit("concat", {"ts": read_tensor_list("concat", "ts", ts)}, axis=axis)


@public_op
@transactional
def concat_(ts: Iterable[Tensor], axis: int = 0) -> Tensor:
    """A view of several tensors side by side. One that holds an element twice can be read, not written.

    Args:
        ts: tensors of one dtype, whose shapes agree but along ``axis``.
        axis: along which they follow each other.
    Returns:
        Tensor of their dtype.
    Raises:
        ShapeError: the other extents differ.
        DTypeError: the dtypes differ.
        GraphError: the list of operands is empty.
    Example:
        >>> evaluate(ops.concat_, ([[1.0], [2.0]], [[3.0], [4.0]]), axis=1)
        array([[1., 3.],
               [2., 4.]], dtype=float32)
    """
    return emit("concat_", {"ts": read_tensor_list("concat_", "ts", ts)}, axis=axis)
