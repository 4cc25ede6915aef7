"""Sorting along an axis.

Sorts are stable: of equal keys the first comes first. NaN is the largest, and -0 equals +0.
"""

from __future__ import annotations

import numpy as np

from popsr import dtypes
from popsr._program.building.emit import emit_op
from popsr._program.building.operands import read_axis
from popsr._program.building.transaction import transactional
from popsr._program.tensor import Tensor
from popsr._program.variables.constants import as_operand
from popsr._support.host.arguments import read_a, read_flag
from popsr._support.text.entry_points import public_call
from popsr.ops._facts import public_op
from popsr.ops.shape.shape import expand

__all__ = ["argsort", "sort"]


@public_op
def sort(*ts: Tensor, axis: int = -1, num_keys: int = 1, descending: bool = False) -> tuple[Tensor, ...]:
    """Sort tensors together along an axis, by the first of them. An addition of popsr.

    Args:
        *ts: tensors of one shape, which are moved alike; the first ones are the keys.
        axis: the axis; negative ones count from the end.
        num_keys: how many of them are keys; a later key decides where the earlier ones are equal.
        descending: the largest come first; equal ones keep their order.
    Returns:
        A tensor for each operand, of its shape and dtype.
    Raises:
        ValueError: the axis or ``num_keys`` is out of range.
        ShapeError: the shapes differ.
        DTypeError: an operand is of float8.
        GraphError: the list of operands is empty.
    Example:
        >>> evaluate(ops.sort, [2.0, 1.0, 3.0], np.array([7, 8, 9]))
        [array([1., 2., 3.], dtype=float32), array([8, 7, 9], dtype=int32)]
    """
    attrs = {"axis": axis, "num_keys": num_keys, "descending": descending}
    return tuple(emit_op("sort", {"ts": ts}, attrs, outputs=len(ts))[1])


@public_call
@transactional
def argsort(t: Tensor, axis: int = -1, *, descending: bool = False) -> Tensor:
    """Indices that sort a tensor along an axis, stably. An addition of popsr.

    Args:
        t: the operand, of rank >= 1.
        axis: the axis; negative ones count from the end.
        descending: the index of the largest comes first; equal ones keep their order.
    Returns:
        int32 tensor of the shape of ``t``.
    Raises:
        ValueError: the axis is out of range.
        DTypeError: ``t`` is of float8.
    Example:
        >>> evaluate(ops.argsort, [2.0, 1.0, 3.0])
        array([1, 0, 2], dtype=int32)
    """
    read_a("argsort: t", t, Tensor)
    along = read_axis("argsort", axis, t.shape)
    read_flag("argsort: descending", descending)
    numbers = np.arange(t.shape[along], dtype=np.int32).reshape([-1] + [1] * (t.rank - 1 - along))
    places = expand(as_operand(numbers, dtypes.int32), t.shape)
    return sort(t, places, axis=along, descending=descending)[1]
