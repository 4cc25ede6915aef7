"""Random zeros, by a seed that is a tensor."""

from __future__ import annotations

from popsr._emit import emit
from popsr.tensor import Tensor

__all__ = ["dropout"]


def dropout(t: Tensor, seed_tensor: Tensor, p: float) -> Tensor:
    """Zeros with chance ``p``, other elements times ``1 / (1 - p)``.

    Which elements are zero is a function of the seed, the shape and ``p`` alone; the gradient has the same zeros.

    Args:
        t: floating tensor.
        seed_tensor: the seed, uint32 ``[2]``.
        p: the chance, 0 <= p < 1. With 0 the result is ``t``.
    Returns:
        Tensor of the shape and dtype of ``t``.
    Raises:
        ShapeError: the seed is not ``[2]``.
        DTypeError: ``t`` is not floating or the seed not uint32.
        AttributeValueError: ``p`` is out of range.
    """
    return emit("dropout", {"t": t, "seed_tensor": seed_tensor}, p=p)
