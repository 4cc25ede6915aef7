"""Activations.

Names that end in ``_`` write the result into their argument and return an alias of it.
"""

from __future__ import annotations

from popsr._program.building.emit import emit
from popsr._program.tensor import Tensor
from popsr.ops._facts import public_op

__all__ = [
    "gelu",
    "gelu_",
    "geluerf",
    "geluerf_",
    "relu",
    "relu_",
    "sigmoid",
    "swish",
    "swish_",
    "tanh",
]


@public_op
def geluerf(t: Tensor) -> Tensor:
    """Gaussian error linear unit, in its form with the error function: ``t / 2 * (1 + erf(t / sqrt(2)))``.

    Args:
        t: the operand.
    Returns:
        Tensor of the shape and dtype of ``t``.
    Raises:
        DTypeError: ``t`` is not floating.
    Source:
        Hendrycks and Gimpel, Gaussian Error Linear Units, 2016, arXiv:1606.08415.
    Example:
        >>> evaluate(ops.geluerf, [-1.0, 0.0, 1.0])
        array([-0.15865524,  0.        ,  0.8413448 ], dtype=float32)
    """
    return emit("geluerf", {"t": t})


@public_op
def geluerf_(t: Tensor) -> Tensor:
    """``geluerf`` in place.

    Args:
        t: what is modified.
    Returns:
        An alias of ``t``.
    Raises:
        GraphError: ``t`` is a constant.
        DTypeError: ``t`` is not floating.
    Source:
        Hendrycks and Gimpel, Gaussian Error Linear Units, 2016, arXiv:1606.08415.
    Example:
        >>> evaluate(ops.geluerf_, [-1.0, 0.0, 1.0])
        array([-0.15865524,  0.        ,  0.8413448 ], dtype=float32)
    """
    return emit("geluerf_", {"t": t})


@public_op
def sigmoid(t: Tensor) -> Tensor:
    """Logistic function: ``1 / (1 + exp(-t))``. An addition of popsr.

    Args:
        t: the operand.
    Returns:
        Tensor of the shape and dtype of ``t``.
    Raises:
        DTypeError: ``t`` is not floating.
    Example:
        >>> evaluate(ops.sigmoid, [-1.0, 0.0, 1.0])
        array([0.26894143, 0.5       , 0.7310586 ], dtype=float32)
    """
    return emit("sigmoid", {"t": t})


@public_op
def swish(t: Tensor) -> Tensor:
    """``t * sigmoid(t)``.

    Args:
        t: the operand.
    Returns:
        Tensor of the shape and dtype of ``t``.
    Raises:
        DTypeError: ``t`` is not floating.
    Source:
        Ramachandran, Zoph and Le, Searching for Activation Functions, 2017, arXiv:1710.05941.
    Example:
        >>> evaluate(ops.swish, [-1.0, 0.0, 1.0])
        array([-0.26894143,  0.        ,  0.7310586 ], dtype=float32)
    """
    return emit("swish", {"t": t})


@public_op
def swish_(t: Tensor) -> Tensor:
    """``swish`` in place.

    Args:
        t: what is modified.
    Returns:
        An alias of ``t``.
    Raises:
        GraphError: ``t`` is a constant.
        DTypeError: ``t`` is not floating.
    Source:
        Ramachandran, Zoph and Le, Searching for Activation Functions, 2017, arXiv:1710.05941.
    Example:
        >>> evaluate(ops.swish_, [-1.0, 0.0, 1.0])
        array([-0.26894143,  0.        ,  0.7310586 ], dtype=float32)
    """
    return emit("swish_", {"t": t})


@public_op
def tanh(t: Tensor) -> Tensor:
    """Hyperbolic tangent.

    Args:
        t: the operand.
    Returns:
        Tensor of the shape and dtype of ``t``.
    Raises:
        DTypeError: ``t`` is not floating.
    Example:
        >>> evaluate(ops.tanh, [-1.0, 0.0, 1.0])
        array([-0.7615942,  0.       ,  0.7615942], dtype=float32)
    """
    return emit("tanh", {"t": t})


@public_op
def relu(t: Tensor) -> Tensor:
    """The operand where it is positive, else 0.

    Args:
        t: the operand.
    Returns:
        Tensor of the shape and dtype of ``t``.
    Raises:
        DTypeError: ``t`` is bool.
    Example:
        >>> evaluate(ops.relu, [-1.0, 0.0, 2.0])
        array([0., 0., 2.], dtype=float32)
    """
    return emit("relu", {"t": t})


@public_op
def relu_(t: Tensor) -> Tensor:
    """``relu`` in place.

    Args:
        t: what is modified.
    Returns:
        An alias of ``t``.
    Raises:
        GraphError: ``t`` is a constant.
        DTypeError: ``t`` is not of a fitting dtype.
    Example:
        >>> evaluate(ops.relu_, [-1.0, 0.0, 2.0])
        array([0., 0., 2.], dtype=float32)
    """
    return emit("relu_", {"t": t})


@public_op
def gelu(t: Tensor) -> Tensor:
    """Gaussian error linear unit, in its form with tanh.

    Args:
        t: the operand.
    Returns:
        Tensor of the shape and dtype of ``t``.
    Raises:
        DTypeError: ``t`` is not floating.
    Source:
        Hendrycks and Gimpel, Gaussian Error Linear Units, 2016, arXiv:1606.08415.
    Example:
        >>> evaluate(ops.gelu, [-1.0, 0.0, 1.0])
        array([-0.15880801,  0.        ,  0.841192  ], dtype=float32)
    """
    return emit("gelu", {"t": t})


@public_op
def gelu_(t: Tensor) -> Tensor:
    """``gelu`` in place.

    Args:
        t: what is modified.
    Returns:
        An alias of ``t``.
    Raises:
        GraphError: ``t`` is a constant.
        DTypeError: ``t`` is not of a fitting dtype.
    Source:
        Hendrycks and Gimpel, Gaussian Error Linear Units, 2016, arXiv:1606.08415.
    Example:
        >>> evaluate(ops.gelu_, [-1.0, 0.0, 1.0])
        array([-0.15880801,  0.        ,  0.841192  ], dtype=float32)
    """
    return emit("gelu_", {"t": t})
