"""Normalisation over groups of channels, or with statistics that are given. Dimension 1 holds the channels.

In the compute type: ``mean = sum(x) / n``, ``variance = sum((x - mean)**2) / n`` and
``(x - mean) * (1 / sqrt(variance + eps)) * weight + bias``; narrow floats are rounded once.
"""

from __future__ import annotations

from popsr._program.building.emit import emit
from popsr._program.tensor import Tensor
from popsr.ops._facts import public_op

__all__ = ["batch_norm_inference", "group_norm", "layer_norm"]


@public_op
def group_norm(t: Tensor, weight: Tensor, bias: Tensor, num_groups: int, eps: float = 1e-05) -> Tensor:
    """Normalise each group of channels of each sample over its channels and all later dimensions.

    Args:
        t: floating tensor ``[samples, channels, ...]``.
        weight: factor of each channel, ``[channels]``, of the dtype of ``t``.
        bias: summand of each channel, likewise.
        num_groups: number of groups of adjacent channels.
        eps: added to the variance.
    Returns:
        Tensor of the shape and dtype of ``t``.
    Raises:
        ShapeError: ``t`` has no dimension 1, or ``weight`` or ``bias`` is not ``[channels]``.
        DTypeError: the dtypes differ or are not floating.
        AttributeValueError: ``num_groups`` does not divide the channels, or ``eps`` is negative or not finite.
    Source:
        Wu and He, Group Normalization, 2018, arXiv:1803.08494.
    Example:
        >>> evaluate(ops.group_norm, [[1.0, 3.0, 5.0, 9.0]], np.ones(4), np.zeros(4), num_groups=2)
        array([[-0.999995 ,  0.999995 , -0.9999988,  0.9999988]], dtype=float32)
    """
    return emit("group_norm", {"t": t, "weight": weight, "bias": bias}, num_groups=num_groups, eps=eps)


@public_op
def layer_norm(t: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-05) -> Tensor:
    """``group_norm`` with one group: each sample over all its elements, with a factor for each of dimension 1.

    Reshape a tensor of three dimensions to ``[-1, channels]`` to normalise its last one.

    Args:
        t: floating tensor ``[samples, channels, ...]``.
        weight: factor of each channel, ``[channels]``, of the dtype of ``t``.
        bias: summand of each channel, likewise.
        eps: added to the variance.
    Returns:
        Tensor of the shape and dtype of ``t``.
    Raises:
        ShapeError: ``t`` has no dimension 1, or ``weight`` or ``bias`` is not ``[channels]``.
        DTypeError: the dtypes differ or are not floating.
        AttributeValueError: ``eps`` is negative or not finite.
    Source:
        Ba, Kiros and Hinton, Layer Normalization, 2016, arXiv:1607.06450.
    Example:
        >>> evaluate(ops.layer_norm, [[1.0, 3.0]], np.ones(2), np.zeros(2))
        array([[-0.999995,  0.999995]], dtype=float32)
    """
    return emit("layer_norm", {"t": t, "weight": weight, "bias": bias}, eps=eps)


@public_op
def batch_norm_inference(
    t: Tensor,
    scale: Tensor,
    bias: Tensor,
    mean: Tensor,
    var: Tensor,
    epsilon: float = 1e-05,
    momentum: float = 0.9,
) -> Tensor:
    """``(t - mean) * (1 / sqrt(var + epsilon)) * scale + bias``, channel by channel. It has no gradient.

    Args:
        t: floating tensor ``[samples, channels, ...]`` of 3 or more dimensions.
        scale: factor of each channel, ``[channels]``, of the dtype of ``t``.
        bias: summand of each channel, likewise.
        mean: mean of each channel, likewise.
        var: variance of each channel, likewise.
        epsilon: added to the variance.
        momentum: accepted for PopXL programs; has no effect.
    Returns:
        Tensor of the shape and dtype of ``t``.
    Raises:
        ShapeError: ``t`` has less than 3 dimensions, or another operand is not ``[channels]``.
        DTypeError: the dtypes differ or are not floating.
        AttributeValueError: ``epsilon`` is negative or not finite.
    Source:
        Ioffe and Szegedy, Batch Normalization, 2015, arXiv:1502.03167.
    Example:
        >>> evaluate(ops.batch_norm_inference, [[[1.0, 3.0]]], [2.0], [0.5], [1.0], [4.0])
        array([[[0.5      , 2.4999976]]], dtype=float32)
    """
    return emit(
        "batch_norm_inference",
        {"t": t, "scale": scale, "bias": bias, "mean": mean, "var": var},
        epsilon=epsilon,
        momentum=momentum,
    )
