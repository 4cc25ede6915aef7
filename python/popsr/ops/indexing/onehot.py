"""One-hot rows, and how often values fall into bins."""

from __future__ import annotations

import builtins
import itertools
import math
from collections.abc import Sequence

from popsr import dtypes
from popsr._program.building.emit import emit
from popsr._program.building.transaction import transactional
from popsr._program.tensor import Tensor, constant
from popsr._support.host.arguments import is_a, read_ints, read_items, read_number
from popsr._support.text.shown import shown
from popsr.errors import ArgumentTypeError, AttributeValueError
from popsr.ops._facts import public_op

__all__ = ["histogram", "onehot"]


@public_op
def onehot(t: Tensor, num_classes: Tensor, values: Tensor, axis: int) -> Tensor:
    """A new axis of classes that is "on" at the index and "off" elsewhere; all "off" where the index is not a class.

    Args:
        t: integers. Sessions log one that is not a class (logger ``popsr``), or refuse it with ``strict={"labels"}``.
        num_classes: the extent of the new axis: a constant of one element.
        values: what is off and what is on, shape ``[2]``; differentiable.
        axis: the place of the new axis in the result.
    Returns:
        Tensor of the dtype of ``values``.
    Raises:
        GraphError: ``num_classes`` is not constant.
        AttributeValueError: it is not positive, or the axis is out of range.
        ShapeError: it is not one number, or ``values`` has another shape.
        DTypeError: ``t`` is not of integers.
    Example:
        >>> evaluate(lambda t, values: ops.onehot(t, popsr.constant(3), values, axis=1), [2, 0], [0.0, 1.0])
        array([[0., 0., 1.],
               [1., 0., 0.]], dtype=float32)
    """
    return emit("onehot", {"t": t, "num_classes": num_classes, "values": values}, axis=axis)


@public_op
@transactional
def histogram(t: Tensor, levels: builtins.list[float], absolute_of_input: bool) -> Tensor:
    """Count the elements below, between and above levels: bin i counts ``levels[i-1] <= x < levels[i]``.

    Args:
        t: floats. NaN counts as above all levels.
        levels: ascending numbers.
        absolute_of_input: count absolute values.
    Returns:
        uint32 tensor of shape ``[len(levels) + 1]``.
    Raises:
        AttributeValueError: the levels do not ascend.
        DTypeError: ``t`` is not floating.
    Example:
        >>> evaluate(ops.histogram, [0.5, 1.5, 2.5, 9.0], levels=[1.0, 2.0], absolute_of_input=False)
        array([1, 1, 2], dtype=uint32)
    """
    if not is_a(t, Tensor):
        raise ArgumentTypeError(f"histogram: t is not a Tensor, got {shown(t)}, expected a Tensor")
    numbers = read_ints("histogram", "levels", levels)
    numbers = tuple(read_number("histogram: an item of levels", each) for each in numbers)
    check_increment(numbers)
    # Levels are rounded as elements are: levels of narrow floats are compared as float32.
    kind = dtypes.float64 if t.dtype == dtypes.float64 else dtypes.float32
    return emit(
        "histogram",
        {"t": t, "levels": constant(builtins.list(numbers), kind, "levels")},
        absolute_of_input=absolute_of_input,
    )


def check_increment(levels: Sequence[float]) -> None:
    """Check that the levels of a histogram ascend.

    Raises:
        ValueError: they do not.
    """
    numbers = [
        read_number("histogram: an item of levels", x) for x in read_items("histogram", "levels", levels)
    ]
    if not all(a <= b for a, b in itertools.pairwise((*numbers, math.inf))):
        raise AttributeValueError(
            f"histogram: levels do not ascend, got {shown(numbers)}, expected ascending numbers"
        )
