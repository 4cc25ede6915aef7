"""Operations on the bits of integers, element by element. None of them is of PopXL, and none has a gradient.

Integers are in two's complement. Operands broadcast as NumPy does and have one dtype.
"""

from __future__ import annotations

from popsr._program.building.emit import emit
from popsr._program.tensor import Tensor
from popsr.ops._facts import public_op

__all__ = [
    "bitwise_and",
    "bitwise_not",
    "bitwise_or",
    "bitwise_xor",
    "count_leading_zeros",
    "population_count",
    "shift_left",
    "shift_right_arithmetic",
    "shift_right_logical",
]


@public_op
def bitwise_and(lhs: Tensor, rhs: Tensor) -> Tensor:
    """Bits that both operands have; of bool, logical and. An addition of popsr.

    Args:
        lhs: first operand.
        rhs: second operand.
    Returns:
        Tensor of the broadcast shape and the operands' dtype.
    Raises:
        ShapeError: the shapes do not broadcast.
        DTypeError: the dtypes differ, or are neither integers nor bool.
    Example:
        >>> evaluate(ops.bitwise_and, np.array([12, 7], np.uint8), np.array([10, 8], np.uint8))
        array([8, 0], dtype=uint8)
    """
    return emit("bitwise_and", {"lhs": lhs, "rhs": rhs})


@public_op
def bitwise_not(t: Tensor) -> Tensor:
    """All bits turned; of bool, logical not. An addition of popsr.

    Args:
        t: the operand.
    Returns:
        Tensor of the shape and dtype of ``t``.
    Raises:
        DTypeError: ``t`` is neither of integers nor of bool.
    Example:
        >>> evaluate(ops.bitwise_not, np.array([0, 5], np.int8))
        array([-1, -6], dtype=int8)
    """
    return emit("bitwise_not", {"t": t})


@public_op
def bitwise_or(lhs: Tensor, rhs: Tensor) -> Tensor:
    """Bits that one of the operands has; of bool, logical or. An addition of popsr.

    Args:
        lhs: first operand.
        rhs: second operand.
    Returns:
        Tensor of the broadcast shape and the operands' dtype.
    Raises:
        ShapeError: the shapes do not broadcast.
        DTypeError: the dtypes differ, or are neither integers nor bool.
    Example:
        >>> evaluate(ops.bitwise_or, np.array([12, 7], np.uint8), np.array([10, 8], np.uint8))
        array([14, 15], dtype=uint8)
    """
    return emit("bitwise_or", {"lhs": lhs, "rhs": rhs})


@public_op
def bitwise_xor(lhs: Tensor, rhs: Tensor) -> Tensor:
    """Bits that one of the operands has alone; of bool, inequality. An addition of popsr.

    Args:
        lhs: first operand.
        rhs: second operand.
    Returns:
        Tensor of the broadcast shape and the operands' dtype.
    Raises:
        ShapeError: the shapes do not broadcast.
        DTypeError: the dtypes differ, or are neither integers nor bool.
    Example:
        >>> evaluate(ops.bitwise_xor, np.array([12, 7], np.uint8), np.array([10, 8], np.uint8))
        array([ 6, 15], dtype=uint8)
    """
    return emit("bitwise_xor", {"lhs": lhs, "rhs": rhs})


@public_op
def count_leading_zeros(t: Tensor) -> Tensor:
    """Number of zeros above the highest bit; the width for 0. An addition of popsr.

    Args:
        t: the operand.
    Returns:
        Tensor of the shape and dtype of ``t``.
    Raises:
        DTypeError: ``t`` is not of integers.
    Example:
        >>> evaluate(ops.count_leading_zeros, np.array([0, 1, 255], np.uint8))
        array([8, 7, 0], dtype=uint8)
    """
    return emit("count_leading_zeros", {"t": t})


@public_op
def population_count(t: Tensor) -> Tensor:
    """Number of bits that are set, in two's complement. An addition of popsr.

    Args:
        t: the operand.
    Returns:
        Tensor of the shape and dtype of ``t``.
    Raises:
        DTypeError: ``t`` is not of integers.
    Example:
        >>> evaluate(ops.population_count, np.array([0, 7, -1], np.int8))
        array([0, 3, 8], dtype=int8)
    """
    return emit("population_count", {"t": t})


@public_op
def shift_left(t: Tensor, amount: Tensor) -> Tensor:
    """Shift bits up; zeros come in. An addition of popsr.

    Args:
        t: what is shifted.
        amount: by how many bits, read without a sign; from the width of the dtype on the result is 0.
    Returns:
        Tensor of the broadcast shape and the operands' dtype.
    Raises:
        ShapeError: the shapes do not broadcast.
        DTypeError: the dtypes differ, or are not integers.
    Example:
        >>> evaluate(ops.shift_left, np.array([1, 3, 1], np.uint8), np.array([2, 7, 8], np.uint8))
        array([  4, 128,   0], dtype=uint8)
    """
    return emit("shift_left", {"t": t, "amount": amount})


@public_op
def shift_right_arithmetic(t: Tensor, amount: Tensor) -> Tensor:
    """Shift bits down; copies of the highest bit come in. An addition of popsr.

    Args:
        t: what is shifted.
        amount: by how many bits, read without a sign; from the width of the dtype on all bits of
            the result are copies.
    Returns:
        Tensor of the broadcast shape and the operands' dtype.
    Raises:
        ShapeError: the shapes do not broadcast.
        DTypeError: the dtypes differ, or are not integers.
    Example:
        >>> evaluate(ops.shift_right_arithmetic, np.array([-8, 8, -8], np.int8), np.array([1, 1, 9], np.int8))
        array([-4,  4, -1], dtype=int8)
    """
    return emit("shift_right_arithmetic", {"t": t, "amount": amount})


@public_op
def shift_right_logical(t: Tensor, amount: Tensor) -> Tensor:
    """Shift bits down; zeros come in. An addition of popsr.

    Args:
        t: what is shifted.
        amount: by how many bits, read without a sign; from the width of the dtype on the result is 0.
    Returns:
        Tensor of the broadcast shape and the operands' dtype.
    Raises:
        ShapeError: the shapes do not broadcast.
        DTypeError: the dtypes differ, or are not integers.
    Example:
        >>> evaluate(ops.shift_right_logical, np.array([-8, 8, -8], np.int8), np.array([1, 1, 9], np.int8))
        array([124,   4,   0], dtype=int8)
    """
    return emit("shift_right_logical", {"t": t, "amount": amount})
