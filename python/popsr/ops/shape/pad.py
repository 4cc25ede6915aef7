"""Values around the elements of a tensor and between them."""

from __future__ import annotations

from collections.abc import Iterable

from popsr._program.building.emit import emit
from popsr._program.building.transaction import transactional
from popsr._program.tensor import Tensor, TensorLike
from popsr._program.variables.constants import as_operand
from popsr._support.host.arguments import is_a, read_ints
from popsr.ops._facts import public_op

__all__ = ["pad"]


@public_op
@transactional
def pad(
    t: Tensor,
    low: Iterable[int],
    high: Iterable[int],
    interior: Iterable[int] | None = None,
    *,
    value: TensorLike = 0,
) -> Tensor:
    """Put a value before, after and between the elements of each axis. An addition of popsr.

    Args:
        t: the operand.
        low: how many values come before the elements, for each axis; negative numbers cut elements off.
        high: how many come after them, likewise.
        interior: how many come between two elements, for each axis. Default: none. They are put in before negative
            numbers cut.
        value: the value: a number, or a scalar tensor of the dtype of ``t``.
    Returns:
        Tensor of the dtype of ``t``.
    Raises:
        ValueError: a list has a wrong length, or interior is negative.
        ShapeError: more is cut off than there is, or the value is not a scalar.
        DTypeError: the value has another dtype.
    Source:
        The pad of XLA's operation semantics.
    Example:
        >>> evaluate(ops.pad, [1.0, 2.0], low=(1,), high=(0,), interior=(2,))
        array([0., 1., 0., 0., 2.], dtype=float32)
    """
    attrs = {"low": read_ints("pad", "low", low), "high": read_ints("pad", "high", high)}
    between = None if interior is None else read_ints("pad", "interior", interior)
    if is_a(t, Tensor) and not isinstance(value, Tensor):
        value = as_operand(value, t.dtype)
    return emit("pad", {"t": t, "value": value}, interior=between, **attrs)
