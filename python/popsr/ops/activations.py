"""Activations with kernels of their own. More of them: elementwise.py.

Names that end in ``_`` write the result into their argument and return an alias of it.
"""

from __future__ import annotations

from popsr._emit import emit
from popsr.tensor import Tensor

__all__ = [
    "geluerf",
    "geluerf_",
    "sigmoid",
    "swish",
    "swish_",
]


def geluerf(t: Tensor) -> Tensor:
    """Gaussian error linear unit, in its form with the error function: ``t / 2 * (1 + erf(t / sqrt(2)))``.

    Args:
        t: the operand.
    Returns:
        Tensor of the shape and dtype of ``t``.
    Raises:
        DTypeError: ``t`` is not floating.
    """
    return emit("geluerf", {"t": t})


def geluerf_(t: Tensor) -> Tensor:
    """``geluerf`` in place.

    Args:
        t: what is modified.
    Returns:
        An alias of ``t``.
    Raises:
        GraphError: ``t`` is a constant.
        DTypeError: ``t`` is not floating.
    """
    return emit("geluerf_", {"t": t})


def sigmoid(t: Tensor) -> Tensor:
    """Logistic function: ``1 / (1 + exp(-t))``. An addition of popsr.

    Args:
        t: the operand.
    Returns:
        Tensor of the shape and dtype of ``t``.
    Raises:
        DTypeError: ``t`` is not floating.
    """
    return emit("sigmoid", {"t": t})


def swish(t: Tensor) -> Tensor:
    """``t * sigmoid(t)``.

    Args:
        t: the operand.
    Returns:
        Tensor of the shape and dtype of ``t``.
    Raises:
        DTypeError: ``t`` is not floating.
    """
    return emit("swish", {"t": t})


def swish_(t: Tensor) -> Tensor:
    """``swish`` in place.

    Args:
        t: what is modified.
    Returns:
        An alias of ``t``.
    Raises:
        GraphError: ``t`` is a constant.
        DTypeError: ``t`` is not floating.
    """
    return emit("swish_", {"t": t})
