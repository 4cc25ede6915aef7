"""Comparisons, classes of floats, logic and selection, element by element.

Operands broadcast as NumPy does. All but ``where`` give bool.
"""

from __future__ import annotations

from popsr._program.building.emit import emit
from popsr._program.tensor import Tensor
from popsr.ops._facts import public_op

__all__ = [
    "equal",
    "greater",
    "greater_equal",
    "isfinite",
    "isinf",
    "isnan",
    "less",
    "less_equal",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "not_equal",
    "where",
]


@public_op
def equal(lhs: Tensor, rhs: Tensor) -> Tensor:
    """True where the elements are equal. NaN equals nothing; -0 equals +0.

    Args:
        lhs: first operand.
        rhs: second operand, of any dtype: values are compared.
    Returns:
        Bool tensor of the broadcast shape. It has no gradient: asking for one is an error.
    Raises:
        ShapeError: the shapes do not broadcast.
        DTypeError: no dtype holds the values of both operands, as of int64 and float32.
    Example:
        >>> evaluate(ops.equal, [1.0, 2.0], [1.0, 3.0])
        array([ True, False])
    """
    return emit("equal", {"lhs": lhs, "rhs": rhs})


@public_op
def greater(input: Tensor, other: Tensor) -> Tensor:
    """True where ``input`` is greater than ``other``; False where either is NaN.

    Args:
        input: first operand.
        other: second operand, of any dtype: values are compared.
    Returns:
        Bool tensor of the broadcast shape. It has no gradient: asking for one is an error.
    Raises:
        ShapeError: the shapes do not broadcast.
        DTypeError: no dtype holds the values of both operands, as of int64 and float32.
    Example:
        >>> evaluate(ops.greater, [1.0, 4.0], [1.0, 3.0])
        array([False,  True])
    """
    return emit("greater", {"input": input, "other": other})


@public_op
def greater_equal(lhs: Tensor, rhs: Tensor) -> Tensor:
    """True where ``lhs`` is not less than ``rhs``; False where either is NaN. An addition of popsr.

    Args:
        lhs: first operand.
        rhs: second operand, of any dtype: values are compared.
    Returns:
        Bool tensor of the broadcast shape. It has no gradient: asking for one is an error.
    Raises:
        ShapeError: the shapes do not broadcast.
        DTypeError: no dtype holds the values of both operands, as of int64 and float32.
    Example:
        >>> evaluate(ops.greater_equal, [1.0, 2.0, 3.0], [2.0, 2.0, 2.0])
        array([False,  True,  True])
    """
    return emit("greater_equal", {"lhs": lhs, "rhs": rhs})


@public_op
def isfinite(t: Tensor) -> Tensor:
    """True where the element is neither infinite nor NaN.

    Args:
        t: the operand; integers are finite.
    Returns:
        Bool tensor of the shape of ``t``.
    Raises:
        DTypeError: ``t`` is bool.
    Example:
        >>> evaluate(ops.isfinite, [1.0, float("inf"), float("nan")])
        array([ True, False, False])
    """
    return emit("isfinite", {"t": t})


@public_op
def isinf(t: Tensor) -> Tensor:
    """True where the element is infinite.

    Args:
        t: the operand.
    Returns:
        Bool tensor of the shape of ``t``.
    Raises:
        DTypeError: ``t`` is bool.
    Example:
        >>> evaluate(ops.isinf, [1.0, float("inf"), float("nan")])
        array([False,  True, False])
    """
    return emit("isinf", {"t": t})


@public_op
def isnan(t: Tensor) -> Tensor:
    """True where the element is NaN.

    Args:
        t: the operand.
    Returns:
        Bool tensor of the shape of ``t``.
    Raises:
        DTypeError: ``t`` is bool.
    Example:
        >>> evaluate(ops.isnan, [1.0, float("inf"), float("nan")])
        array([False, False,  True])
    """
    return emit("isnan", {"t": t})


@public_op
def less(lhs: Tensor, rhs: Tensor) -> Tensor:
    """True where ``lhs`` is less than ``rhs``; False where either is NaN. An addition of popsr.

    Args:
        lhs: first operand.
        rhs: second operand, of any dtype: values are compared.
    Returns:
        Bool tensor of the broadcast shape. It has no gradient: asking for one is an error.
    Raises:
        ShapeError: the shapes do not broadcast.
        DTypeError: no dtype holds the values of both operands, as of int64 and float32.
    Example:
        >>> evaluate(ops.less, [1.0, 2.0, 3.0], [2.0, 2.0, 2.0])
        array([ True, False, False])
    """
    return emit("less", {"lhs": lhs, "rhs": rhs})


@public_op
def less_equal(lhs: Tensor, rhs: Tensor) -> Tensor:
    """True where ``lhs`` is not greater than ``rhs``; False where either is NaN. An addition of popsr.

    Args:
        lhs: first operand.
        rhs: second operand, of any dtype: values are compared.
    Returns:
        Bool tensor of the broadcast shape. It has no gradient: asking for one is an error.
    Raises:
        ShapeError: the shapes do not broadcast.
        DTypeError: no dtype holds the values of both operands, as of int64 and float32.
    Example:
        >>> evaluate(ops.less_equal, [1.0, 2.0, 3.0], [2.0, 2.0, 2.0])
        array([ True,  True, False])
    """
    return emit("less_equal", {"lhs": lhs, "rhs": rhs})


@public_op
def logical_and(lhs: Tensor, rhs: Tensor) -> Tensor:
    """True where both elements are true, that is not zero. NaN is true.

    Args:
        lhs: first operand, of any dtype.
        rhs: second operand, of any dtype.
    Returns:
        Bool tensor of the broadcast shape. It has no gradient: asking for one is an error.
    Raises:
        ShapeError: the shapes do not broadcast.
    Example:
        >>> evaluate(ops.logical_and, [True, True], [True, False])
        array([ True, False])
    """
    return emit("logical_and", {"lhs": lhs, "rhs": rhs})


@public_op
def logical_not(t: Tensor) -> Tensor:
    """True where the element is false, that is zero.

    Args:
        t: the operand, of any dtype.
    Returns:
        Bool tensor of the shape of ``t``. It has no gradient: asking for one is an error.
    Example:
        >>> evaluate(ops.logical_not, [True, False])
        array([False,  True])
    """
    return emit("logical_not", {"t": t})


@public_op
def logical_or(lhs: Tensor, rhs: Tensor) -> Tensor:
    """True where one of the elements is true, that is not zero. NaN is true.

    Args:
        lhs: first operand, of any dtype.
        rhs: second operand, of any dtype.
    Returns:
        Bool tensor of the broadcast shape. It has no gradient: asking for one is an error.
    Raises:
        ShapeError: the shapes do not broadcast.
    Example:
        >>> evaluate(ops.logical_or, [True, False], [False, False])
        array([ True, False])
    """
    return emit("logical_or", {"lhs": lhs, "rhs": rhs})


@public_op
def logical_xor(lhs: Tensor, rhs: Tensor) -> Tensor:
    """True where one element alone is true, that is not zero. NaN is true. An addition of popsr.

    Args:
        lhs: first operand, of any dtype.
        rhs: second operand, of any dtype.
    Returns:
        Bool tensor of the broadcast shape. It has no gradient: asking for one is an error.
    Raises:
        ShapeError: the shapes do not broadcast.
    Example:
        >>> evaluate(ops.logical_xor, [True, True], [True, False])
        array([False,  True])
    """
    return emit("logical_xor", {"lhs": lhs, "rhs": rhs})


@public_op
def not_equal(lhs: Tensor, rhs: Tensor) -> Tensor:
    """True where the elements differ. NaN differs from everything; -0 equals +0. An addition of popsr.

    Args:
        lhs: first operand.
        rhs: second operand, of any dtype: values are compared.
    Returns:
        Bool tensor of the broadcast shape. It has no gradient: asking for one is an error.
    Raises:
        ShapeError: the shapes do not broadcast.
        DTypeError: no dtype holds the values of both operands, as of int64 and float32.
    Example:
        >>> evaluate(ops.not_equal, [1.0, 2.0, 3.0], [2.0, 2.0, 2.0])
        array([ True, False,  True])
    """
    return emit("not_equal", {"lhs": lhs, "rhs": rhs})


@public_op
def where(condition: Tensor, lhs: Tensor, rhs: Tensor) -> Tensor:
    """Elements of ``lhs`` where the condition is true, that is not zero, else of ``rhs``; they keep their bits.

    Args:
        condition: what decides, of any dtype.
        lhs: taken where it is true.
        rhs: taken where it is false.
    Returns:
        Tensor of the broadcast shape of all three and the dtype of ``lhs`` and ``rhs``.
    Raises:
        ShapeError: the shapes do not broadcast.
        DTypeError: ``lhs`` and ``rhs`` differ in dtype.
    Example:
        >>> evaluate(ops.where, [True, False], [1.0, 2.0], [3.0, 4.0])
        array([1., 4.], dtype=float32)
    """
    return emit("where", {"condition": condition, "lhs": lhs, "rhs": rhs})
