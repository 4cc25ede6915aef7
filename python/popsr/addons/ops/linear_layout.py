"""A hint about memory."""

from __future__ import annotations

from popsr import ops
from popsr._program.building.operands import read_tensor
from popsr._program.building.transaction import transactional
from popsr._program.tensor import Tensor
from popsr._support.host.arguments import read_int
from popsr._support.text.entry_points import public

__all__ = ["linear_layout"]


@public
@transactional
def linear_layout(t: Tensor, bs: int = 1) -> Tensor:
    """A copy of ``t``. Elements are in row-major order anyway; PopXL programs ask for it.

    Args:
        t: the operand, any shape and dtype.
        bs: size of the blocks that elements are dealt out in: checked, has no effect.
    Returns:
        Tensor of the shape and dtype of ``t``.
    Raises:
        TypeError: ``t`` is not a tensor.
        ValueError: ``t`` is of another graph, or ``bs`` is not an int of at least 1.
    """
    read_int("linear_layout: bs", bs, 1)
    return ops.identity(read_tensor("linear_layout", "t", t))
