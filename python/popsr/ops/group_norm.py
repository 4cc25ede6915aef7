"""Normalisation over groups of channels. Dimension 1 holds the channels.

In the compute type: ``mean = sum(x) / n``, ``variance = sum((x - mean)**2) / n`` and
``(x - mean) * (1 / sqrt(variance + eps)) * weight + bias``; narrow floats are rounded once.
"""

from __future__ import annotations

from popsr._emit import emit
from popsr.tensor import Tensor

__all__ = ["group_norm", "layer_norm"]


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
    """
    return emit("group_norm", {"t": t, "weight": weight, "bias": bias}, num_groups=num_groups, eps=eps)


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
    """
    return emit("layer_norm", {"t": t, "weight": weight, "bias": bias}, eps=eps)
