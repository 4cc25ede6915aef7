"""Norms for the LAMB optimiser."""

from __future__ import annotations

from popsr._program.building.emit import emit
from popsr._program.tensor import Tensor
from popsr.ops._facts import public_op

__all__ = ["lamb_square"]


@public_op
def lamb_square(t: Tensor) -> Tensor:
    """Sum of all squares, computed in float64 and rounded once. It has no gradient.

    Args:
        t: floating tensor of any shape.
    Returns:
        float32 scalar.
    Raises:
        DTypeError: ``t`` is not floating.
    Source:
        You et al., Large Batch Optimization for Deep Learning, 2019, arXiv:1904.00962.
    Example:
        >>> evaluate(ops.lamb_square, [3.0, 4.0])
        array(25., dtype=float32)
    """
    return emit("lamb_square", {"t": t})
