"""More functions, element by element: trigonometric ones, rounding to integers, remainders, clipping, integer powers.

Narrow floats are computed in float32 and rounded once. Names that end in ``_`` write the result into their first
argument and return an alias of it.
"""

from __future__ import annotations

from typing import Literal

from popsr._program.building.emit import emit, emit_op
from popsr._program.tensor import Tensor
from popsr._support.host.arguments import read_int, read_name
from popsr.ops._facts import public_op

__all__ = [
    "ceil",
    "clamp",
    "clip",
    "copysign",
    "cos",
    "erf",
    "floor",
    "fmod",
    "identity",
    "increment_mod",
    "increment_mod_",
    "integer_pow",
    "log2",
    "reciprocal",
    "rename",
    "round",
    "rsqrt",
    "sign",
    "sin",
    "square",
    "trunc",
]


@public_op
def ceil(t: Tensor) -> Tensor:
    """Least integer that is not less; integers keep their value. The gradient is zero.

    Args:
        t: the operand.
    Returns:
        Tensor of the shape and dtype of ``t``.
    Raises:
        DTypeError: ``t`` is bool.
    Example:
        >>> evaluate(ops.ceil, [1.2, -1.2])
        array([ 2., -1.], dtype=float32)
    """
    return emit("ceil", {"t": t})


@public_op
def clip(t: Tensor, min: float = float("-inf"), max: float = float("inf")) -> Tensor:
    """The nearest value between two bounds; NaN stays NaN. Also called ``clamp``.

    The gradient is 0 where the result equals a bound, also where the operand lay exactly there.

    Args:
        t: the operand.
        min: lower bound, rounded to the dtype of ``t``; truncated for integers.
        max: upper bound, likewise; it counts where it is less than ``min``.
    Returns:
        Tensor of the shape and dtype of ``t``.
    Raises:
        DTypeError: ``t`` is bool.
        AttributeValueError: a bound is NaN.
    Example:
        >>> evaluate(ops.clip, [-2.0, 0.5, 2.0], min=-1.0, max=1.0)
        array([-1. ,  0.5,  1. ], dtype=float32)
    """
    return emit("clip", {"t": t}, min=min, max=max)


clamp = clip


@public_op
def copysign(t: Tensor, sign: Tensor) -> Tensor:
    """``t`` with the signs of another tensor. An addition of popsr.

    Only ``t`` has a gradient, which is 0 at 0.

    Args:
        t: the magnitudes.
        sign: the signs, of zeros and NaN too.
    Returns:
        Tensor of the broadcast shape and the operands' dtype.
    Raises:
        ShapeError: the shapes do not broadcast.
        DTypeError: the dtypes differ or are not floating.
    Example:
        >>> evaluate(ops.copysign, [1.0, -2.0], [-0.0, 3.0])
        array([-1.,  2.], dtype=float32)
    """
    return emit("copysign", {"t": t, "sign": sign})


@public_op
def cos(t: Tensor) -> Tensor:
    """Cosine, of any magnitude of the operand.

    Args:
        t: the operand.
    Returns:
        Tensor of the shape and dtype of ``t``.
    Raises:
        DTypeError: ``t`` is not floating.
    Example:
        >>> evaluate(ops.cos, [0.0, 1.0])
        array([1.       , 0.5403023], dtype=float32)
    """
    return emit("cos", {"t": t})


@public_op
def erf(t: Tensor) -> Tensor:
    """Error function: the integral of 2 / sqrt(pi) * e^(-x^2) from 0 to ``t``.

    Args:
        t: the operand.
    Returns:
        Tensor of the shape and dtype of ``t``; between -1 and 1, and odd: -0 for -0.
    Raises:
        DTypeError: ``t`` is not floating.
    Example:
        >>> evaluate(ops.erf, [0.0, 1.0])
        array([0.        , 0.84270084], dtype=float32)
    """
    return emit("erf", {"t": t})


@public_op
def floor(t: Tensor) -> Tensor:
    """Greatest integer that is not greater; integers keep their value. The gradient is zero.

    Args:
        t: the operand.
    Returns:
        Tensor of the shape and dtype of ``t``.
    Raises:
        DTypeError: ``t`` is bool.
    Example:
        >>> evaluate(ops.floor, [1.2, -1.2])
        array([ 1., -2.], dtype=float32)
    """
    return emit("floor", {"t": t})


@public_op
def fmod(lhs: Tensor, rhs: Tensor) -> Tensor:
    """Remainder of the division that truncates, as in C: exact, with the sign of ``lhs``.

    A float divided by 0 gives NaN. An integer divided by 0 gives itself, so that
    ``lhs == lhs / rhs * rhs + fmod(lhs, rhs)`` always. Only ``lhs`` has a gradient.

    Args:
        lhs: what is divided.
        rhs: what it is divided by.
    Returns:
        Tensor of the broadcast shape and the operands' dtype.
    Raises:
        ShapeError: the shapes do not broadcast.
        DTypeError: the dtypes differ or are bool.
    Example:
        >>> evaluate(ops.fmod, [7.0, -7.0], [4.0, 4.0])
        array([ 3., -3.], dtype=float32)
    """
    return emit("fmod", {"lhs": lhs, "rhs": rhs})


@public_op
def identity(t: Tensor, output_name: str | None = None) -> Tensor:
    """A copy. Also called ``rename``.

    Args:
        t: the operand.
        output_name: name of the result. Default: the op's stem.
    Returns:
        Tensor of the shape and dtype of ``t``.
    Example:
        >>> evaluate(ops.identity, [1.0, 2.0])
        array([1., 2.], dtype=float32)
    """
    name = None if output_name is None else read_name("identity", output_name)
    return emit_op("identity", {"t": t}, {}, name=name)[1][0]


rename = identity


@public_op
def increment_mod(t: Tensor, increment: float, modulus: float) -> Tensor:
    """``fmod(t + increment, modulus)``. It has no gradient.

    Args:
        t: the operand.
        increment: what is added; truncated for integers, which wrap.
        modulus: what the sum is divided by; truncated for integers.
    Returns:
        Tensor of the shape and dtype of ``t``; elements have the sign of the sum.
    Raises:
        DTypeError: ``t`` is bool.
        AttributeValueError: the increment is not finite, or the modulus is zero in the dtype of ``t``.
    Example:
        >>> evaluate(ops.increment_mod, [1.0, 2.0], increment=1.0, modulus=3.0)
        array([2., 0.], dtype=float32)
    """
    return emit("increment_mod", {"t": t}, increment=increment, modulus=modulus)


@public_op
def increment_mod_(t: Tensor, increment: float, modulus: float) -> Tensor:
    """``increment_mod`` in place.

    Args:
        t: what is modified.
        increment: what is added; truncated for integers, which wrap.
        modulus: what the sum is divided by; truncated for integers.
    Returns:
        An alias of ``t``.
    Raises:
        GraphError: ``t`` is a constant.
        DTypeError: ``t`` is bool.
        AttributeValueError: the increment is not finite, or the modulus is zero in the dtype of ``t``.
    Example:
        >>> evaluate(ops.increment_mod_, [1.0, 2.0], increment=1.0, modulus=3.0)
        array([2., 0.], dtype=float32)
    """
    return emit("increment_mod_", {"t": t}, increment=increment, modulus=modulus)


@public_op
def integer_pow(t: Tensor, exponent: int) -> Tensor:
    """Raise to an integer power by repeated squaring. An addition of popsr.

    Args:
        t: the base; integers wrap.
        exponent: the power; negative ones, of floats alone, give reciprocals. The power 0 is 1.
    Returns:
        Tensor of the shape and dtype of ``t``.
    Raises:
        DTypeError: ``t`` is bool.
        AttributeValueError: the exponent is negative for integers, or is 2^31 or more.
    Example:
        >>> evaluate(ops.integer_pow, [2.0, -3.0], exponent=3)
        array([  8., -27.], dtype=float32)
    """
    return emit("integer_pow", {"t": t}, exponent=read_int("integer_pow: exponent", exponent))


@public_op
def log2(t: Tensor) -> Tensor:
    """Logarithm to base 2; exact for powers of two.

    Args:
        t: the operand.
    Returns:
        Tensor of the shape and dtype of ``t``.
    Raises:
        DTypeError: ``t`` is not floating.
    Example:
        >>> evaluate(ops.log2, [1.0, 8.0])
        array([0., 3.], dtype=float32)
    """
    return emit("log2", {"t": t})


@public_op
def reciprocal(t: Tensor) -> Tensor:
    """``1 / t``. An addition of popsr.

    Args:
        t: the operand.
    Returns:
        Tensor of the shape and dtype of ``t``.
    Raises:
        DTypeError: ``t`` is not floating.
    Example:
        >>> evaluate(ops.reciprocal, [1.0, 4.0])
        array([1.  , 0.25], dtype=float32)
    """
    return emit("reciprocal", {"t": t})


@public_op
def round(t: Tensor, *, half: Literal["even", "away"] = "even") -> Tensor:
    """Nearest integer; integers keep their value. The gradient is zero. An addition of popsr.

    Args:
        t: the operand.
        half: "even": ties go to the even one, as in Python and NumPy; "away": away from 0, as in C.
    Returns:
        Tensor of the shape and dtype of ``t``.
    Raises:
        DTypeError: ``t`` is bool.
        AttributeValueError: unknown ``half``.
    Example:
        >>> evaluate(ops.round, [0.5, 1.5, -2.5])
        array([ 0.,  2., -2.], dtype=float32)
    """
    return emit("round", {"t": t}, half=half)


@public_op
def rsqrt(t: Tensor) -> Tensor:
    """``1 / sqrt(t)``. An addition of popsr.

    Args:
        t: the operand.
    Returns:
        Tensor of the shape and dtype of ``t``.
    Raises:
        DTypeError: ``t`` is not floating.
    Example:
        >>> evaluate(ops.rsqrt, [1.0, 4.0])
        array([1. , 0.5], dtype=float32)
    """
    return emit("rsqrt", {"t": t})


@public_op
def sign(t: Tensor) -> Tensor:
    """1, -1, or 0 for zeros and NaN. The gradient is zero.

    Args:
        t: the operand.
    Returns:
        Tensor of the shape and dtype of ``t``.
    Raises:
        DTypeError: ``t`` is bool.
    Example:
        >>> evaluate(ops.sign, [-3.0, 0.0, 2.0])
        array([-1.,  0.,  1.], dtype=float32)
    """
    return emit("sign", {"t": t})


@public_op
def sin(t: Tensor) -> Tensor:
    """Sine, of any magnitude of the operand.

    Args:
        t: the operand.
    Returns:
        Tensor of the shape and dtype of ``t``.
    Raises:
        DTypeError: ``t`` is not floating.
    Example:
        >>> evaluate(ops.sin, [0.0, 1.0])
        array([0.        , 0.84147096], dtype=float32)
    """
    return emit("sin", {"t": t})


@public_op
def square(t: Tensor) -> Tensor:
    """``t * t``, rounded once. An addition of popsr.

    Args:
        t: the operand.
    Returns:
        Tensor of the shape and dtype of ``t``.
    Raises:
        DTypeError: ``t`` is bool.
    Example:
        >>> evaluate(ops.square, [2.0, -3.0])
        array([4., 9.], dtype=float32)
    """
    return emit("square", {"t": t})


@public_op
def trunc(t: Tensor) -> Tensor:
    """Integer part, towards 0; integers keep their value. The gradient is zero. An addition of popsr.

    Args:
        t: the operand.
    Returns:
        Tensor of the shape and dtype of ``t``.
    Raises:
        DTypeError: ``t`` is bool.
    Example:
        >>> evaluate(ops.trunc, [1.7, -1.7])
        array([ 1., -1.], dtype=float32)
    """
    return emit("trunc", {"t": t})
