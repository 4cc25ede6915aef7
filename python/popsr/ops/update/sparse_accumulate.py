"""Sums of the rows that an index tensor names, in place."""

from __future__ import annotations

from popsr._program.building.emit import emit, number, tensor
from popsr._program.tensor import Tensor
from popsr._support.text.shown import shown
from popsr.errors import ArgumentTypeError
from popsr.ops._facts import public_op

__all__ = ["sparse_accumulate_"]


@public_op
def sparse_accumulate_(
    t: Tensor,
    X: Tensor,
    indices: Tensor,
    axis: int = 0,
    f: float | Tensor | None = None,
    W: Tensor | None = None,
) -> Tensor:
    """Add ``f * X`` to the elements of an axis that ``indices`` name, as the gradient of a ``gather`` does.

    What meets at one element is added in ascending order of its position in ``indices``, in the type that ``t``
    computes in; the result is rounded once. All other elements keep their bits. The number 0 as factor leaves ``t``
    alone.

    Args:
        t: what is modified, shape ``[..., n, ...]``.
        X: what is added: the shape of ``gather(t, indices, axis)``, or that with the indices flattened.
        indices: integers of any shape.
        axis: the axis of ``t`` that they address.
        f: a number or a tensor of one element. Default: 1.
        W: a weight whose layout ``t`` is to have: accepted for PopXL programs; its value has no effect.
    Returns:
        An alias of ``t``.
    Raises:
        OutOfRangeError: when the program runs: an index is not one of 0 to n - 1; nothing is written.
        AttributeValueError: the axis is out of range.
        ShapeError: the shapes do not fit, or the factor has not one element.
        DTypeError: the indices are not integers.
        GraphError: ``t`` is a constant.
    Example:
        >>> evaluate(ops.var_updates.sparse_accumulate_, [[0.0], [0.0], [0.0]], [[1.0], [2.0], [4.0]], [2, 0, 2])
        array([[2.],
               [0.],
               [5.]], dtype=float32)
    """
    if W is not None and not isinstance(W, Tensor):
        raise ArgumentTypeError(
            f"sparse_accumulate_: W is not a Tensor, got {type(W).__name__} {shown(W)}, expected a Tensor"
        )
    inputs = {"t": t, "X": X, "indices": indices, "f": tensor(f), "W": tensor(W)}
    return emit("sparse_accumulate_", inputs, axis=axis, f=number(f))
