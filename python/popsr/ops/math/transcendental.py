"""Transcendental functions that PopXL lacks: powers and logarithms near 0, trigonometric and hyperbolic ones, erfc.

Narrow floats are computed in float32 and rounded once.
"""

from __future__ import annotations

from popsr._program.building.emit import emit
from popsr._program.tensor import Tensor
from popsr.ops._facts import public_op

__all__ = [
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "cbrt",
    "cosh",
    "erf_inv",
    "erfc",
    "exp2",
    "expm1",
    "log1p",
    "sinh",
    "tan",
]


@public_op
def acos(t: Tensor) -> Tensor:
    """Arc cosine, from 0 to pi. An addition of popsr.

    Args:
        t: the operand; NaN beyond -1 and 1.
    Returns:
        Tensor of the shape and dtype of ``t``.
    Raises:
        DTypeError: ``t`` is not floating.
    Example:
        >>> evaluate(ops.acos, [1.0, 0.0])
        array([0.       , 1.5707964], dtype=float32)
    """
    return emit("acos", {"t": t})


@public_op
def acosh(t: Tensor) -> Tensor:
    """Inverse hyperbolic cosine, from 0 on. An addition of popsr.

    Args:
        t: the operand; NaN below 1.
    Returns:
        Tensor of the shape and dtype of ``t``.
    Raises:
        DTypeError: ``t`` is not floating.
    Example:
        >>> evaluate(ops.acosh, [1.0, 2.0])
        array([0.      , 1.316958], dtype=float32)
    """
    return emit("acosh", {"t": t})


@public_op
def asin(t: Tensor) -> Tensor:
    """Arc sine, from -pi / 2 to pi / 2. An addition of popsr.

    Args:
        t: the operand; NaN beyond -1 and 1.
    Returns:
        Tensor of the shape and dtype of ``t``.
    Raises:
        DTypeError: ``t`` is not floating.
    Example:
        >>> evaluate(ops.asin, [0.0, 1.0])
        array([0.       , 1.5707964], dtype=float32)
    """
    return emit("asin", {"t": t})


@public_op
def asinh(t: Tensor) -> Tensor:
    """Inverse hyperbolic sine. An addition of popsr.

    Args:
        t: the operand.
    Returns:
        Tensor of the shape and dtype of ``t``.
    Raises:
        DTypeError: ``t`` is not floating.
    Example:
        >>> evaluate(ops.asinh, [0.0, 1.0])
        array([0.       , 0.8813736], dtype=float32)
    """
    return emit("asinh", {"t": t})


@public_op
def atan(t: Tensor) -> Tensor:
    """Arc tangent, from -pi / 2 to pi / 2. An addition of popsr.

    Args:
        t: the operand.
    Returns:
        Tensor of the shape and dtype of ``t``.
    Raises:
        DTypeError: ``t`` is not floating.
    Example:
        >>> evaluate(ops.atan, [0.0, 1.0])
        array([0.       , 0.7853982], dtype=float32)
    """
    return emit("atan", {"t": t})


@public_op
def atan2(y: Tensor, x: Tensor) -> Tensor:
    """Angle of the point ``(x, y)``, from -pi to pi. An addition of popsr.

    Args:
        y: second coordinates.
        x: first coordinates.
    Returns:
        Tensor of the broadcast shape and the operands' dtype; signs of zeros count, as in IEEE 754.
    Raises:
        ShapeError: the shapes do not broadcast.
        DTypeError: the dtypes differ or are not floating.
    Example:
        >>> evaluate(ops.atan2, [1.0, -1.0], [0.0, -1.0])
        array([ 1.5707964, -2.3561945], dtype=float32)
    """
    return emit("atan2", {"y": y, "x": x})


@public_op
def atanh(t: Tensor) -> Tensor:
    """Inverse hyperbolic tangent. An addition of popsr.

    Args:
        t: the operand; infinite at -1 and 1, NaN beyond.
    Returns:
        Tensor of the shape and dtype of ``t``.
    Raises:
        DTypeError: ``t`` is not floating.
    Example:
        >>> evaluate(ops.atanh, [0.0, 0.5])
        array([0.        , 0.54930615], dtype=float32)
    """
    return emit("atanh", {"t": t})


@public_op
def cbrt(t: Tensor) -> Tensor:
    """Cube root, of negative numbers too. An addition of popsr.

    Args:
        t: the operand.
    Returns:
        Tensor of the shape and dtype of ``t``.
    Raises:
        DTypeError: ``t`` is not floating.
    Example:
        >>> evaluate(ops.cbrt, [8.0, -27.0])
        array([ 2., -3.], dtype=float32)
    """
    return emit("cbrt", {"t": t})


@public_op
def cosh(t: Tensor) -> Tensor:
    """Hyperbolic cosine. An addition of popsr.

    Args:
        t: the operand.
    Returns:
        Tensor of the shape and dtype of ``t``.
    Raises:
        DTypeError: ``t`` is not floating.
    Example:
        >>> evaluate(ops.cosh, [0.0, 1.0])
        array([1.       , 1.5430807], dtype=float32)
    """
    return emit("cosh", {"t": t})


@public_op
def erf_inv(t: Tensor) -> Tensor:
    """Inverse of the error function. An addition of popsr.

    Args:
        t: the operand; infinite at -1 and 1, NaN beyond.
    Returns:
        Tensor of the shape and dtype of ``t``.
    Raises:
        DTypeError: ``t`` is not floating.
    Example:
        >>> evaluate(ops.erf_inv, [0.0, 0.5])
        array([0.        , 0.47693628], dtype=float32)
    """
    return emit("erf_inv", {"t": t})


@public_op
def erfc(t: Tensor) -> Tensor:
    """Complement of the error function, ``1 - erf(t)`` without cancellation. An addition of popsr.

    Args:
        t: the operand.
    Returns:
        Tensor of the shape and dtype of ``t``.
    Raises:
        DTypeError: ``t`` is not floating.
    Example:
        >>> evaluate(ops.erfc, [0.0, 3.0])
        array([1.0000000e+00, 2.2090497e-05], dtype=float32)
    """
    return emit("erfc", {"t": t})


@public_op
def exp2(t: Tensor) -> Tensor:
    """Powers of two; exact for integers. An addition of popsr.

    Args:
        t: the operand.
    Returns:
        Tensor of the shape and dtype of ``t``.
    Raises:
        DTypeError: ``t`` is not floating.
    Example:
        >>> evaluate(ops.exp2, [3.0, 0.5])
        array([8.       , 1.4142135], dtype=float32)
    """
    return emit("exp2", {"t": t})


@public_op
def expm1(t: Tensor) -> Tensor:
    """``exp(t) - 1`` without cancellation near 0. An addition of popsr.

    Args:
        t: the operand.
    Returns:
        Tensor of the shape and dtype of ``t``.
    Raises:
        DTypeError: ``t`` is not floating.
    Example:
        >>> evaluate(ops.expm1, [1e-10, 1.0])
        array([1.0000000e-10, 1.7182819e+00], dtype=float32)
    """
    return emit("expm1", {"t": t})


@public_op
def log1p(t: Tensor) -> Tensor:
    """``log(1 + t)`` without cancellation near 0. An addition of popsr.

    Args:
        t: the operand; -infinity at -1, NaN below.
    Returns:
        Tensor of the shape and dtype of ``t``.
    Raises:
        DTypeError: ``t`` is not floating.
    Example:
        >>> evaluate(ops.log1p, [1e-10, 1.0])
        array([1.000000e-10, 6.931472e-01], dtype=float32)
    """
    return emit("log1p", {"t": t})


@public_op
def sinh(t: Tensor) -> Tensor:
    """Hyperbolic sine. An addition of popsr.

    Args:
        t: the operand.
    Returns:
        Tensor of the shape and dtype of ``t``.
    Raises:
        DTypeError: ``t`` is not floating.
    Example:
        >>> evaluate(ops.sinh, [0.0, 1.0])
        array([0.       , 1.1752012], dtype=float32)
    """
    return emit("sinh", {"t": t})


@public_op
def tan(t: Tensor) -> Tensor:
    """Tangent, of any magnitude of the operand. An addition of popsr.

    Args:
        t: the operand.
    Returns:
        Tensor of the shape and dtype of ``t``.
    Raises:
        DTypeError: ``t`` is not floating.
    Example:
        >>> evaluate(ops.tan, [0.0, 1.0])
        array([0.       , 1.5574077], dtype=float32)
    """
    return emit("tan", {"t": t})
