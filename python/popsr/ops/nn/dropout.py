"""Random zeros, of single elements or of whole slices, by a seed that is a tensor."""

from __future__ import annotations

from collections.abc import Iterable

from popsr._program.building.emit import emit
from popsr._program.tensor import Tensor
from popsr._support.host.arguments import read_shape
from popsr.ops._facts import public_op

__all__ = ["dropout", "shaped_dropout"]


@public_op
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
    Source:
        Srivastava et al., Dropout: A Simple Way to Prevent Neural Networks from Overfitting, JMLR 15, 2014.
    Example:
        >>> evaluate(ops.dropout, np.ones(8), np.array([1, 2], np.uint32), p=0.5)
        array([0., 0., 0., 0., 2., 2., 2., 0.], dtype=float32)
    """
    return emit("dropout", {"t": t, "seed_tensor": seed_tensor}, p=p)


@public_op
def shaped_dropout(t: Tensor, seed_tensor: Tensor, shape: Iterable[int], ratio: float) -> Tensor:
    """``dropout`` with a mask of another shape, which is broadcast to the shape of ``t``.

    With the shape of ``t`` it is ``dropout``.

    Args:
        t: floating tensor.
        seed_tensor: the seed, uint32 ``[2]``.
        shape: shape of the mask.
        ratio: chance of a zero in the mask, 0 <= ratio < 1. With 0 the result is ``t``.
    Returns:
        Tensor of the shape and dtype of ``t``.
    Raises:
        ShapeError: the mask does not broadcast to ``t``, or the seed is not ``[2]``.
        DTypeError: ``t`` is not floating or the seed not uint32.
        AttributeValueError: ``ratio`` is out of range.
    Source:
        Srivastava et al., Dropout: A Simple Way to Prevent Neural Networks from Overfitting, JMLR 15, 2014.
    Example:
        >>> evaluate(ops.shaped_dropout, np.ones((2, 4)), np.array([1, 3], np.uint32), shape=(1, 4), ratio=0.5)
        array([[0., 2., 2., 2.],
               [0., 2., 2., 2.]], dtype=float32)
    """
    mask = read_shape("shaped_dropout", shape)
    return emit("shaped_dropout", {"t": t, "seed_tensor": seed_tensor}, shape=mask, ratio=ratio)
