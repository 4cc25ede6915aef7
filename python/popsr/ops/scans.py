"""Running sums along an axis."""

from __future__ import annotations

from popsr._lazy import names_only
from popsr._program.emit import emit
from popsr.tensor import Tensor

__all__ = ["cumsum"]


def cumsum(t: Tensor, dim: int | None = 0) -> Tensor:
    """Sums of every element and those before it along an axis, in one chain of additions.

    Args:
        t: the operand, of rank >= 1.
        dim: the axis; negative ones count from the end.
    Returns:
        Tensor of the shape and dtype of ``t``; integers wrap.
    Facts:
        dtypes: numbers
        gradient: yes
        replicas: meet of inputs
        rounding: stochastic where stochastic rounding is on
    Raises:
        ValueError: the axis is out of range.
        DTypeError: ``t`` is bool.
    Example:
        >>> evaluate(ops.cumsum, [1.0, 2.0, 3.0])
        array([1., 3., 6.], dtype=float32)
    """
    return emit("cumsum", {"t": t}, dim=dim)


__dir__ = names_only(__all__)
