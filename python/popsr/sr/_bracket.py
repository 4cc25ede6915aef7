"""The neighbours of an exact sum, and the chance of the upper one as a fraction."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, overload

import ml_dtypes
import numpy as np

from popsr._support.host.float_environment import in_default_environment
from popsr._support.text.entry_points import public
from popsr.sr._call import (
    Key,
    Source,
    broadcast,
    broadcast_view,
    check_format,
    read_options,
    read_source,
    run,
)
from popsr.sr._formats import Format, read_format
from popsr.sr._kinds import Array
from popsr.sr._types import AnyArray, D, FormatLike, LibraryArray, Mode, Operand, OtherArray, R

__all__ = ["bracket"]


@overload
def bracket(
    x: np.ndarray[Any, D], y: Operand, *, dtype: FormatLike | None = None
) -> tuple[AnyArray[D], AnyArray[D], Any]: ...
@overload
def bracket(x: LibraryArray[R], y: Operand, *, dtype: FormatLike | None = None) -> tuple[R, R, Any]: ...
@overload
def bracket(
    x: float, y: Operand, *, dtype: FormatLike | None = None
) -> tuple[np.float64, np.float64, Any]: ...
@overload
def bracket(x: OtherArray, y: Operand, *, dtype: FormatLike | None = None) -> tuple[Any, Any, Any]: ...
@public
@in_default_environment
def bracket(x: Any, y: Any, *, dtype: Any = None) -> tuple[Any, Any, Any]:
    """The two values next to ``x + y`` in the format of ``x``, and the chance that ``add`` gives the upper one.

    Args:
        x: a number or an array ``[...]``, as in :func:`add`.
        y: the same, of any format.
        dtype: format of integer buffers.
    Returns:
        ``(lo, hi, p)``: the neighbours, of the kind and format of ``x``, and p = (S - lo) / (hi - lo), exactly: a
        Fraction for numbers and 0-d arrays, otherwise float64 ``[...]``, to nearest. A sum S that is exact, not finite,
        or beyond the value that would follow the largest finite one gives ``(S, S, 0)``, S as ``add`` returns it.
        Between the two, ``hi`` is infinity (NaN in formats without), or ``lo`` its negative. It takes microseconds an
        element.
    Raises:
        TypeError: an operand is not an array of a supported format.
        ValueError: shapes do not broadcast.
    Example:
        >>> sr.bracket(np.array([1.0], np.float16), 0.000244140625)
        (array([1.], dtype=float16), array([1.001], dtype=float16), array([0.25]))
    """
    named = None if dtype is None else read_format("bracket", dtype)
    a, b = sources = tuple(read_source("bracket", name, value, named) for name, value in (("x", x), ("y", y)))
    if named is not None and a.form is not named and not (a.is_raw or b.is_raw):
        check_format("bracket", a, named)
    shape = broadcast("bracket", sources)
    down, up, nearest = (_rounded(sources, mode, shape) for mode in ("rd", "ru", "rn"))
    chances = [Fraction(0)] * down.size
    columns = zip(*(_widened(s.array, s.form, shape) for s in sources), strict=True)
    neighbours = zip(_widened(down, a.form, shape), _widened(up, a.form, shape), strict=True)
    limit, after = _limits(a.form)
    low, high, middle = (side.reshape(-1) for side in (down, up, nearest))
    for i, ((s, t), (lo, hi)) in enumerate(zip(columns, neighbours, strict=True)):
        if not (math.isfinite(s) and math.isfinite(t)):
            continue
        total = Fraction(s) + Fraction(t)
        if abs(total) >= after:
            low[i] = high[i] = middle[i]
        elif lo != hi:
            below = Fraction(lo) if total >= -limit else -after
            above = Fraction(hi) if total <= limit else after
            chances[i] = (total - below) / (above - below)
    lo, hi = a.wrap(down, a.form), a.wrap(up, a.form)
    return (lo, hi, chances[0]) if shape == () else (lo, hi, np.array(chances, np.float64).reshape(shape))


def _rounded(sources: tuple[Source, ...], mode: Mode, shape: tuple[int, ...]) -> Array:
    """The sum in the first operand's carrier, C-contiguous."""
    form = sources[0].form
    out = np.empty(shape, form.carrier)
    options = read_options("bracket", Key(0), mode, "ieee", 0, None)
    run("add", out, form, sources, (1.0,), options)
    return out


def _widened(array: Array, form: Format, shape: tuple[int, ...]) -> list[float]:
    """The elements as Python floats, exactly."""
    with np.errstate(invalid="ignore"):  # a signalling NaN becomes quiet
        wide: list[float] = broadcast_view(array.view(form.numpy), shape).astype(np.float64).ravel().tolist()
    return wide


def _limits(form: Format) -> tuple[Fraction, Fraction]:
    """The largest finite value, and the one that would follow it."""
    limits: Any = ml_dtypes
    largest = np.asarray(limits.finfo(form.numpy).max, form.numpy)
    before = (largest.view(form.raw) - np.asarray(1, form.raw)).view(form.numpy)
    limit = Fraction(float(largest))
    return limit, 2 * limit - Fraction(float(before))
