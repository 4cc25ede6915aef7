"""Tensors of random numbers, by seeds that are tensors.

A value is a function of the seed, of the op and of the element's index in the shape alone: replicas with one seed
draw the same, and nothing is advanced. Numbers are computed in float64 and rounded once to nearest, also while
stochastic rounding is on.
"""

from __future__ import annotations

from popsr import dtypes
from popsr._program.building.emit import emit
from popsr._program.tensor import Tensor
from popsr._support.host.arguments import read_dtype, read_shape
from popsr.ops._facts import public_op

__all__ = ["random_normal", "random_uniform"]


@public_op
def random_uniform(
    seed_tensor: Tensor,
    shape: tuple[int, ...],
    low: float = 0.0,
    high: float = 1.0,
    dtype: dtypes.dtype = dtypes.float32,
) -> Tensor:
    """Numbers of equal chance in ``low <= x < high``; bounds that the dtype lacks are kept as well.

    Args:
        seed_tensor: the seed, uint32 ``[2]``.
        shape: shape of the result.
        low: lower bound, which may be drawn.
        high: upper bound, which is never drawn.
        dtype: a floating dtype.
    Returns:
        Tensor of that shape and dtype.
    Raises:
        ShapeError: the seed is not ``[2]``, or an extent is negative.
        DTypeError: ``dtype`` is not floating or the seed not uint32.
        AttributeValueError: the bounds are not finite in the dtype, or it has no number between them.
    Source:
        Random words: ARS-7 of Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, SC 2011.
    Example:
        >>> evaluate(ops.random_uniform, np.array([1, 2], np.uint32), shape=(3,))
        array([0.6045346 , 0.8950344 , 0.06469072], dtype=float32)
    """
    return emit(
        "random_uniform",
        {"seed_tensor": seed_tensor},
        shape=read_shape("random_uniform", shape),
        low=low,
        high=high,
        dtype=read_dtype("random_uniform", dtype).name,
    )


@public_op
def random_normal(
    seed_tensor: Tensor,
    shape: tuple[int, ...],
    mean: float = 0.0,
    std: float = 1.0,
    dtype: dtypes.dtype = dtypes.float32,
) -> Tensor:
    """Normal numbers, by the method of Box and Muller; magnitudes up to 9.4 deviations occur.

    Args:
        seed_tensor: the seed, uint32 ``[2]``.
        shape: shape of the result.
        mean: their mean.
        std: their standard deviation, 0 or more.
        dtype: a floating dtype.
    Returns:
        Tensor of that shape and dtype.
    Raises:
        ShapeError: the seed is not ``[2]``, or an extent is negative.
        DTypeError: ``dtype`` is not floating or the seed not uint32.
        AttributeValueError: ``mean`` or ``std`` is not finite, or ``std`` is negative.
    Source:
        Random words: ARS-7 of Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, SC 2011.
    Example:
        >>> evaluate(ops.random_normal, np.array([1, 2], np.uint32), shape=(3,))
        array([-0.9905545, -0.6566496, -0.7514674], dtype=float32)
    """
    return emit(
        "random_normal",
        {"seed_tensor": seed_tensor},
        shape=read_shape("random_normal", shape),
        mean=mean,
        std=std,
        dtype=read_dtype("random_normal", dtype).name,
    )
