"""Normalisation of channels with statistics that are known."""

from __future__ import annotations

from popsr._emit import emit
from popsr.tensor import Tensor

__all__ = ["batch_norm_inference"]


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
    """
    return emit(
        "batch_norm_inference",
        {"t": t, "scale": scale, "bias": bias, "mean": mean, "var": var},
        epsilon=epsilon,
        momentum=momentum,
    )
