"""``sum``: one rounding for each element, in a fixed order."""

from __future__ import annotations

from typing import Any, Unpack, overload

import numpy as np

from popsr import _core
from popsr._support.host.arguments import is_a, read_int64s
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr.errors import AttributeValueError
from popsr.sr._call import REQUIRED, Key, check_numbers, read_options, read_source
from popsr.sr._formats import read_format
from popsr.sr._types import AnyArray, D, FormatLike, LibraryArray, Mode, OtherArray, Overflow, R, Rounding
from popsr.sr._watch import draws

__all__ = ["sum"]

Axis = int | tuple[int, ...] | None


@overload
def sum(
    x: np.ndarray[Any, D], dtype: None = None, *, axis: Axis = None, **options: Unpack[Rounding]
) -> AnyArray[D]: ...
@overload
def sum(
    x: np.ndarray[Any, Any], dtype: FormatLike, *, axis: Axis = None, **options: Unpack[Rounding]
) -> AnyArray[Any]: ...
@overload
def sum(
    x: LibraryArray[R], dtype: FormatLike | None = None, *, axis: Axis = None, **options: Unpack[Rounding]
) -> R: ...
@overload
def sum(
    x: float | OtherArray, dtype: FormatLike | None = None, *, axis: Axis = None, **options: Unpack[Rounding]
) -> Any: ...
@public
def sum(
    x: Any,
    dtype: Any = None,
    *,
    key: Key = REQUIRED,
    axis: Axis = None,
    mode: Mode = "sr",
    overflow: Overflow = "ieee",
    offset: int = 0,
    num_threads: int | None = None,
) -> Any:
    """A running sum that is rounded after each element: ``s = SR(x0)``, ``s = SR(s + x1)``, and so on in C order.

    Args:
        x: array ``[...]`` of any format.
        dtype: format of the running sum and of the result; of a buffer of integers too. Default: the format of ``x``.
        key: as in :func:`add`. The step that adds element i, counted in C order in ``x``, draws number i.
        axis: axes to sum over. Default: all.
        mode: how to round; see :func:`add`, as for what follows.
        overflow: what becomes of results that are too large.
        offset: number of the first element.
        num_threads: default: ``popsr.num_threads()``.
    Returns:
        An array of the other axes, of the kind of ``x``; the sum of nothing is +0.
    Raises:
        TypeError: ``key`` is missing, ``x`` is not an array of a supported format, or ``axis`` no int.
        ValueError: ``axis`` is out of range or repeated, or as in :func:`add`.
    Source:
        Croci et al., Stochastic rounding: implementation, error analysis and applications, 2022, R. Soc. Open Sci.
        9.
    Example:
        >>> sr.sum(np.full(1000, 0.001), np.float16, key=sr.Key(0))
        array(1.003, dtype=float16)
    """
    options = read_options("sum", key, mode, overflow, offset, num_threads)
    named = None if dtype is None else read_format("sum", dtype)
    source = read_source("sum", "x", x, named)
    form = named or source.form
    check_numbers("sum", options.offset, source.array.shape)
    axes = _read_axes(axis, source.array.ndim)
    shape = tuple(extent for k, extent in enumerate(source.array.shape) if k not in axes)
    out = np.empty(shape, form.carrier)
    draws("sum", options.key, options.mode, options.offset, shape)
    _core.sr.sum(
        out,
        form.index,
        source.array,
        source.form.index,
        axes,
        options.key,
        options.mode,
        options.overflow == "saturate",
        options.numbers,
        options.num_threads,
    )
    return source.wrap(out, form)


def _read_axes(axis: Any, rank: int) -> tuple[int, ...]:
    """Ascending and not negative."""
    if axis is None:
        return tuple(range(rank))
    given = read_int64s("sum", "axis", axis if is_a(axis, tuple) else (axis,))
    axes = sorted(k + rank if k < 0 else k for k in given)
    if len(set(axes)) < len(axes) or not all(0 <= k < rank for k in axes):
        raise AttributeValueError(
            f"sum: axis is out of range or repeated, got {shown(axis)}, expected axes of {rank}"
        )
    return tuple(axes)
