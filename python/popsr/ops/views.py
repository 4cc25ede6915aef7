"""Views: tensors whose elements are elements of their operands.

A view has no memory of its own. Writing it in place, by any op, call or loop that modifies it, changes its operands and
all other views of the same elements; reading it gives what they hold at that time. Making one reads and writes nothing.
Gradients pass ``concat_`` alone: they stop at the others, and at ``slice_`` asking for one is an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from popsr._args import read_ints
from popsr._emit import emit
from popsr._transaction import transactional
from popsr.ops.shape import read_tensors, slice_attributes
from popsr.tensor import Tensor

__all__ = ["concat_", "detach_", "flatten_", "reshape_", "slice_", "transpose_"]


def slice_(
    t: Tensor,
    start: int | Sequence[int | None] | None = None,
    stop: int | Sequence[int | None] | None = None,
    step: int | Sequence[int | None] | None = None,
    axis: int | Sequence[int] | None = None,
) -> Tensor:
    """A view of a range along some axes. Bounds count and are clamped as in NumPy.

    Args:
        t: the operand.
        start: first position along each axis. Default: the whole axis.
        stop: position after the last.
        step: every how many positions, downwards if negative; not 0. Default: 1.
        axis: the axes. Default: the first ones.
    Returns:
        The part; ``t`` itself when nothing is given.
    Raises:
        ValueError: lists of different lengths, an inverted range, or a step 0.
    """
    attributes = slice_attributes("slice_", start, stop, step, axis)
    return t if attributes is None else emit("slice_", {"t": t}, **attributes)


def reshape_(t: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A view of the same elements in another shape.

    Args:
        t: the operand.
        shape: shape of the result; one extent may be -1 and is worked out.
    Returns:
        Tensor of the dtype of ``t``.
    Raises:
        ValueError: an extent is 0 or below -1, or the numbers of elements differ.
    """
    return emit("reshape_", {"t": t}, shape=read_ints("reshape_", "shape", shape))


def flatten_(t: Tensor) -> Tensor:
    """A view of the same elements in one dimension.

    Args:
        t: the operand.
    Returns:
        Tensor of shape ``(nelms,)`` and the dtype of ``t``.
    """
    return emit("flatten_", {"t": t})


def transpose_(t: Tensor, permutation: tuple[int, ...] | None = None) -> Tensor:
    """A view with permuted axes.

    Args:
        t: the operand.
        permutation: for each axis of the result, the axis of ``t``. Default: reversed.
    Returns:
        Tensor of the dtype of ``t``.
    Raises:
        ValueError: not each axis once.
    """
    axes = None if permutation is None else read_ints("transpose_", "permutation", permutation)
    return emit("transpose_", {"t": t}, permutation=axes)


def detach_(t: Tensor) -> Tensor:
    """A view of all of a tensor through which no gradient flows.

    Args:
        t: the operand.
    Returns:
        Tensor of the shape and dtype of ``t``.
    """
    return emit("detach_", {"t": t})


@transactional
def concat_(ts: Iterable[Tensor], axis: int = 0) -> Tensor:
    """A view of several tensors side by side. One that holds an element twice can be read, not written.

    Args:
        ts: tensors of one dtype, whose shapes agree but along ``axis``.
        axis: along which they follow each other.
    Returns:
        Tensor of their dtype.
    Raises:
        ShapeError: the other extents differ.
        DTypeError: the dtypes differ.
        GraphError: there is no operand.
    """
    return emit("concat_", {"ts": read_tensors("concat_", ts)}, axis=axis)
