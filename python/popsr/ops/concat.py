"""Tensors joined along an axis."""

from __future__ import annotations

import builtins
from collections.abc import Iterable

from popsr._host.arguments import is_a, read_items
from popsr._lazy import names_only
from popsr._program.emit import emit
from popsr._program.transaction import transactional
from popsr._text.shown import shown
from popsr.errors import ArgumentTypeError
from popsr.tensor import Tensor

__all__ = ["concat", "concat_"]


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
        GraphError: there is no operand.
    """
    return emit("concat", {"ts": read_tensors("concat", ts)}, axis=axis)


def read_tensors(op: str, ts: Iterable[Tensor]) -> list[Tensor]:
    """The operands of an op that takes a list of tensors."""
    if is_a(ts, Tensor) or not is_a(ts, Iterable):
        raise ArgumentTypeError(f"{op}: ts is not a Tensor list, got {shown(ts)}, expected a list of Tensors")
    return builtins.list(read_items(op, "ts", ts, kind="Tensors"))


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
        GraphError: there is no operand.
    """
    return emit("concat_", {"ts": read_tensors("concat_", ts)}, axis=axis)


__dir__ = names_only(__all__)
