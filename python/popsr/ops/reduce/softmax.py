"""Softmax and its logarithm along an axis."""

from __future__ import annotations

from popsr._program.building.emit import emit
from popsr._program.tensor import Tensor
from popsr.ops._facts import public_op

__all__ = ["log_softmax", "softmax"]


@public_op
def softmax(t: Tensor, axis: int) -> Tensor:
    """Exponentials along an axis, scaled to sum 1.

    Args:
        t: the operand.
        axis: the axis; negative ones count from the end.
    Returns:
        Tensor of the shape and dtype of ``t``.
    Raises:
        ValueError: the axis is out of range.
        DTypeError: ``t`` is not floating.
    Example:
        >>> evaluate(ops.softmax, [0.0, np.log(3.0)], axis=0)
        array([0.25      , 0.75000006], dtype=float32)
    """
    return emit("softmax", {"t": t}, axis=axis)


@public_op
def log_softmax(t: Tensor, axis: int) -> Tensor:
    """Logarithm of ``softmax``, precise where probabilities are small. An addition of popsr to PopXL.

    Args:
        t: the operand.
        axis: the axis; negative ones count from the end.
    Returns:
        Tensor of the shape and dtype of ``t``.
    Raises:
        ValueError: the axis is out of range.
        DTypeError: ``t`` is not floating.
    Example:
        >>> evaluate(ops.log_softmax, [0.0, np.log(3.0)], axis=0)
        array([-1.3862944, -0.287682 ], dtype=float32)
    """
    return emit("log_softmax", {"t": t}, axis=axis)
