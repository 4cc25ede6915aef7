"""Other shapes and parts of tensors."""

from __future__ import annotations

import builtins
from collections.abc import Sequence

from popsr._emit import emit
from popsr.errors import ArgumentTypeError, AttributeValueError
from popsr.tensor import Tensor
from popsr.utils import read_ints

__all__ = ["flatten", "reshape", "slice", "squeeze", "transpose"]

_FIRST, _LAST = -(2**63), 2**63 - 1  # bounds that are left out: clamped by the op


def transpose(t: Tensor, permutation: tuple[int, ...] | None = None) -> Tensor:
    """Permute the axes.

    Args:
        t: the operand.
        permutation: for each axis of the result, the axis of ``t``. Default: reversed.
    Returns:
        Tensor of the dtype of ``t``.
    Raises:
        ValueError: not each axis once.
    """
    axes = None if permutation is None else read_ints("transpose", "permutation", permutation)
    return emit("transpose", {"t": t}, permutation=axes)


def reshape(t: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The same elements in another shape.

    Args:
        t: the operand.
        shape: shape of the result; one extent may be -1 and is worked out.
    Returns:
        Tensor of the dtype of ``t``.
    Raises:
        ValueError: an extent is 0 or below -1, or the numbers of elements differ.
    """
    return emit("reshape", {"t": t}, shape=read_ints("reshape", "shape", shape))


def flatten(t: Tensor) -> Tensor:
    """The same elements in one dimension.

    Args:
        t: the operand.
    Returns:
        Tensor of shape ``(nelms,)`` and the dtype of ``t``.
    """
    return emit("flatten", {"t": t})


def squeeze(t: Tensor, axes: list[int] | None = None) -> Tensor:
    """Remove axes of extent 1.

    Args:
        t: the operand.
        axes: the axes. Default: all of extent 1.
    Returns:
        Tensor of the dtype of ``t``.
    Raises:
        ValueError: an axis is given twice, is out of range or has another extent than 1.
    """
    return emit("squeeze", {"t": t}, axes=None if axes is None else read_ints("squeeze", "axes", axes))


def slice(
    t: Tensor,
    start: int | Sequence[int | None] | None = None,
    stop: int | Sequence[int | None] | None = None,
    step: int | Sequence[int | None] | None = None,
    axis: int | Sequence[int] | None = None,
) -> Tensor:
    """A range along some axes. Bounds count and are clamped as in NumPy.

    Args:
        t: the operand.
        start: first position along each axis. Default: the whole axis.
        stop: position after the last.
        step: 1 or -1.
        axis: the axes. Default: the first ones.
    Returns:
        The part; ``t`` itself when nothing is given.
    Raises:
        ValueError: lists of different lengths, an inverted range, or another step.
    """
    given = [_as_list(each) for each in (start, stop, step, axis)]
    sizes = {len(each) for each in given if each is not None}
    if not sizes:
        return t
    if len(sizes) > 1:
        raise AttributeValueError(
            f"slice: lists differ in length, got start={start}, stop={stop}, step={step}, axis={axis}"
        )
    size = sizes.pop()
    steps = [1 if each is None else each for each in given[2] or [None] * size]
    down = [each < 0 for each in steps]
    starts = _bounds(given[0], [_LAST if d else _FIRST for d in down])
    stops = _bounds(given[1], [_FIRST if d else _LAST for d in down])
    axes = builtins.list(range(size)) if given[3] is None else given[3]
    return emit("slice", {"t": t}, start=starts, stop=stops, step=steps, axis=axes)


def _as_list(value: int | Sequence[int | None] | None) -> list[int | None] | None:
    if value is None:
        return None
    if isinstance(value, (list, tuple)):
        return builtins.list(value)
    if hasattr(value, "__index__"):
        return [int(value)]
    raise ArgumentTypeError(f"slice: bound is not an int or list of ints, got {value!r}")


def _bounds(given: list[int | None] | None, default: list[int]) -> list[int]:
    if given is None:
        return default
    return [d if each is None else each for each, d in zip(given, default, strict=True)]
