"""Element-wise arithmetic and powers. More functions: functions.py; activations: activations.py.

Binary ops broadcast as NumPy does and require equal dtypes; nothing is promoted. Narrow floats are computed in float32
and rounded once. Names that end in ``_`` write the result into their first argument and return an alias of it.
"""

from __future__ import annotations

import contextlib

from popsr._program.building.emit import emit, number, tensor
from popsr._program.building.transaction import transactional
from popsr._program.tensor import Tensor, TensorLike
from popsr._program.variables.constants import as_operand
from popsr._support.host.arguments import is_a
from popsr.errors import DTypeError
from popsr.ops._facts import public_op

__all__ = [
    "abs",
    "add",
    "add_",
    "div",
    "exp",
    "exp_",
    "log",
    "maximum",
    "minimum",
    "mul",
    "negate",
    "pow",
    "scaled_add",
    "scaled_add_",
    "sqrt",
    "sub",
]


@public_op
def add(lhs: Tensor, rhs: Tensor) -> Tensor:
    """Add element by element.

    Args:
        lhs: first operand.
        rhs: second operand.
    Returns:
        Tensor of the broadcast shape and the operands' dtype.
    Raises:
        ShapeError: the shapes do not broadcast.
        DTypeError: the dtypes differ or are bool.
    Example:
        >>> evaluate(ops.add, [1.0, 2.0], [10.0, 20.0])
        array([11., 22.], dtype=float32)
    """
    return emit("add", {"lhs": lhs, "rhs": rhs})


@public_op
def add_(lhs: Tensor, rhs: Tensor) -> Tensor:
    """Add ``rhs`` to ``lhs`` in place.

    Args:
        lhs: what is modified.
        rhs: what is added; must broadcast to the shape of ``lhs``.
    Returns:
        An alias of ``lhs``.
    Raises:
        GraphError: ``lhs`` is a constant.
        ShapeError: the result has not the shape of ``lhs``.
        DTypeError: the dtypes differ.
    Example:
        >>> evaluate(ops.add_, [1.0, 2.0], [10.0, 20.0])
        array([11., 22.], dtype=float32)
    """
    return emit("add_", {"lhs": lhs, "rhs": rhs})


@public_op
def sub(lhs: Tensor, rhs: Tensor) -> Tensor:
    """Subtract ``rhs`` from ``lhs`` element by element.

    Args:
        lhs: first operand.
        rhs: second operand.
    Returns:
        Tensor of the broadcast shape and the operands' dtype.
    Raises:
        ShapeError: the shapes do not broadcast.
        DTypeError: the dtypes differ or are bool.
    Example:
        >>> evaluate(ops.sub, [1.0, 2.0], [10.0, 20.0])
        array([ -9., -18.], dtype=float32)
    """
    return emit("sub", {"lhs": lhs, "rhs": rhs})


@public_op
def mul(lhs: Tensor, rhs: Tensor) -> Tensor:
    """Multiply element by element.

    Args:
        lhs: first operand.
        rhs: second operand.
    Returns:
        Tensor of the broadcast shape and the operands' dtype.
    Raises:
        ShapeError: the shapes do not broadcast.
        DTypeError: the dtypes differ or are bool.
    Example:
        >>> evaluate(ops.mul, [1.0, 2.0], [10.0, 20.0])
        array([10., 40.], dtype=float32)
    """
    return emit("mul", {"lhs": lhs, "rhs": rhs})


@public_op
def div(lhs: Tensor, rhs: Tensor) -> Tensor:
    """Divide ``lhs`` by ``rhs`` element by element.

    Args:
        lhs: first operand.
        rhs: second operand.
    Returns:
        Tensor of the broadcast shape and the operands' dtype.
    Raises:
        ShapeError: the shapes do not broadcast.
        DTypeError: the dtypes differ or are bool.
    Example:
        >>> evaluate(ops.div, [1.0, 2.0], [4.0, 8.0])
        array([0.25, 0.25], dtype=float32)
    """
    return emit("div", {"lhs": lhs, "rhs": rhs})


@public_op
@transactional
def pow(t: Tensor, e: TensorLike) -> Tensor:
    """Raise to a power.

    Args:
        t: the base.
        e: the exponent; numbers and arrays become constants of the dtype of ``t``.
    Returns:
        Tensor of the broadcast shape and the dtype of ``t``.
    Raises:
        ShapeError: the shapes do not broadcast.
        DTypeError: the dtypes differ or are not floating.
    Example:
        >>> evaluate(ops.pow, [2.0, 3.0], 2.0)
        array([4., 9.], dtype=float32)
    """
    if is_a(t, Tensor) and not isinstance(e, Tensor):
        with contextlib.suppress(DTypeError):  # emit() reports other values than numbers
            e = as_operand(e, t.dtype)
    return emit("pow", {"t": t, "e": e})


@public_op
def maximum(*ts: Tensor) -> Tensor:
    """The greatest of several tensors, element by element.

    Args:
        *ts: tensors of one dtype.
    Returns:
        Tensor of the broadcast shape and the operands' dtype.
    Raises:
        ShapeError: the shapes do not broadcast.
        DTypeError: the dtypes differ.
        GraphError: the list of operands is empty.
    Example:
        >>> evaluate(ops.maximum, [1.0, 5.0], [2.0, 4.0], [0.0, 6.0])
        array([2., 6.], dtype=float32)
    """
    return emit("maximum", {"ts": ts})


@public_op
def minimum(*ts: Tensor) -> Tensor:
    """The least of several tensors, element by element. An addition of popsr.

    Args:
        *ts: tensors of one dtype.
    Returns:
        Tensor of the broadcast shape and the operands' dtype; NaN where an operand is NaN.
    Raises:
        ShapeError: the shapes do not broadcast.
        DTypeError: the dtypes differ.
        GraphError: the list of operands is empty.
    Example:
        >>> evaluate(ops.minimum, [1.0, 5.0], [2.0, 4.0], [0.0, 6.0])
        array([0., 4.], dtype=float32)
    """
    return emit("minimum", {"ts": ts})


@public_op
def negate(t: Tensor) -> Tensor:
    """``-t``.

    Args:
        t: the operand.
    Returns:
        Tensor of the shape and dtype of ``t``.
    Raises:
        DTypeError: ``t`` is bool.
    Example:
        >>> evaluate(ops.negate, [1.0, -2.0])
        array([-1.,  2.], dtype=float32)
    """
    return emit("negate", {"t": t})


@public_op
def abs(t: Tensor) -> Tensor:
    """Absolute value.

    Args:
        t: the operand.
    Returns:
        Tensor of the shape and dtype of ``t``.
    Raises:
        DTypeError: ``t`` is bool.
    Example:
        >>> evaluate(ops.abs, [1.0, -2.0])
        array([1., 2.], dtype=float32)
    """
    return emit("abs", {"t": t})


@public_op
def exp(t: Tensor) -> Tensor:
    """Exponential function.

    Args:
        t: the operand.
    Returns:
        Tensor of the shape and dtype of ``t``.
    Raises:
        DTypeError: ``t`` is not floating.
    Example:
        >>> evaluate(ops.exp, [0.0, 1.0])
        array([1.       , 2.7182817], dtype=float32)
    """
    return emit("exp", {"t": t})


@public_op
def exp_(t: Tensor) -> Tensor:
    """Exponential function in place.

    Args:
        t: what is modified.
    Returns:
        An alias of ``t``.
    Raises:
        GraphError: ``t`` is a constant.
        DTypeError: ``t`` is not of a fitting dtype.
    Example:
        >>> evaluate(ops.exp_, [0.0, 1.0])
        array([1.       , 2.7182817], dtype=float32)
    """
    return emit("exp_", {"t": t})


@public_op
def log(t: Tensor) -> Tensor:
    """Natural logarithm.

    Args:
        t: the operand.
    Returns:
        Tensor of the shape and dtype of ``t``.
    Raises:
        DTypeError: ``t`` is not floating.
    Example:
        >>> evaluate(ops.log, [1.0, 10.0])
        array([0.       , 2.3025851], dtype=float32)
    """
    return emit("log", {"t": t})


@public_op
def sqrt(t: Tensor) -> Tensor:
    """Square root.

    Args:
        t: the operand.
    Returns:
        Tensor of the shape and dtype of ``t``.
    Raises:
        DTypeError: ``t`` is not floating.
    Example:
        >>> evaluate(ops.sqrt, [4.0, 2.0])
        array([2.       , 1.4142135], dtype=float32)
    """
    return emit("sqrt", {"t": t})


@public_op
def scaled_add(X: Tensor, Y: Tensor, a: float | Tensor = 1.0, b: float | Tensor = 1.0) -> Tensor:
    """``a * X + b * Y``, rounded once.

    Args:
        X: first operand; gives shape and dtype of the result.
        Y: second operand, of the same shape.
        a: factor of X: a number or a tensor of one element.
        b: factor of Y: a number or a tensor of one element.
    Returns:
        Tensor of the shape and dtype of ``X``.
    Raises:
        ShapeError: the shapes differ, or a factor has not one element.
    Example:
        >>> evaluate(ops.scaled_add, [1.0, 2.0], [10.0, 20.0], a=2.0, b=0.5)
        array([ 7., 14.], dtype=float32)
    """
    return emit("scaled_add", {"X": X, "Y": Y, "a": tensor(a), "b": tensor(b)}, a=number(a), b=number(b))


@public_op
def scaled_add_(X: Tensor, Y: Tensor, a: float | Tensor = 1.0, b: float | Tensor = 1.0) -> Tensor:
    """``scaled_add`` into X.

    Args:
        X: what is modified.
        Y: second operand, of the same shape.
        a: factor of X: a number or a tensor of one element.
        b: factor of Y: a number or a tensor of one element.
    Returns:
        An alias of ``X``.
    Raises:
        GraphError: ``X`` is a constant.
        ShapeError: the shapes differ, or a factor has not one element.
    Example:
        >>> evaluate(ops.scaled_add_, [1.0, 2.0], [10.0, 20.0], a=2.0, b=0.5)
        array([ 7., 14.], dtype=float32)
    """
    return emit("scaled_add_", {"X": X, "Y": Y, "a": tensor(a), "b": tensor(b)}, a=number(a), b=number(b))
