"""Sums and their relatives: ``add``, ``sub``, ``axpy``, ``lerp``; the exact value is rounded once."""

from __future__ import annotations

from typing import Any, Unpack, overload

import numpy as np

from popsr import _core
from popsr._support.host.arguments import read_number
from popsr._support.text.entry_points import public
from popsr.sr._call import REQUIRED, Key, Options, elementwise, read_options
from popsr.sr._types import (
    AnyArray,
    D,
    LibraryArray,
    M,
    Mode,
    Operand,
    OtherArray,
    Out,
    Overflow,
    R,
    RoundingOptions,
    W,
)

__all__ = ["add", "add_", "axpy", "axpy_", "lerp", "lerp_", "sub", "sub_"]

_fast_add = _core.sr.fast_add
# The defaults. Compared by identity, which costs nothing and has no surprises: what is equal but not the same object
# takes the general way, with the same result.
_SR: Mode = "sr"
_IEEE: Overflow = "ieee"
_FIRST, _ONE = 0, 1.0


@overload
def add(x: Operand, y: Operand, *, out: Out, **options: Unpack[RoundingOptions]) -> Out: ...
@overload
def add(
    x: np.ndarray[Any, D], y: Operand, *, out: None = None, **options: Unpack[RoundingOptions]
) -> AnyArray[D]: ...
@overload
def add(x: LibraryArray[R], y: Operand, *, out: None = None, **options: Unpack[RoundingOptions]) -> R: ...
@overload
def add(x: float, y: Operand, *, out: None = None, **options: Unpack[RoundingOptions]) -> np.float64: ...
@overload
def add(x: OtherArray, y: Operand, *, out: None = None, **options: Unpack[RoundingOptions]) -> Any: ...
@public
def add(
    x: Any,
    y: Any,
    *,
    key: Key = REQUIRED,
    dtype: Any = None,
    out: Any = None,
    mode: Mode = _SR,
    overflow: Overflow = _IEEE,
    offset: int = _FIRST,
    num_threads: int | None = None,
) -> Any:
    """``x + y``, rounded once, stochastically.

    The exact sum is returned where it is representable. Otherwise the result is one of the two values next to it:
    the one away from zero iff ``U / 2**64 < p``, where p is the distance from the other over the distance of the two,
    and U is the element's number in ``uniform_bits(key, n, offset)``.

    Args:
        x: array ``[...]`` of a supported format: float64, float32, float16, bfloat16, float8_e4m3fn, float8_e5m2,
            float8_e4m3fnuz, float8_e5m2fnuz. Arrays of NumPy and ml_dtypes, torch tensors on the CPU, jax arrays on the
            CPU, numbers (float64), or integers of 16 or 8 bits that hold the bits of a format.
        y: the same, of any of the formats; widened exactly. ``x`` and ``y`` broadcast.
        key: says which numbers are drawn; the same key, shapes and offset draw the same.
        dtype: format of integer buffers.
        out: memory for the result, in the format of ``x``; may be ``x`` or ``y`` itself, or disjoint from them.
        mode: "sr"; "sr_equal": either neighbour with equal chance; "rn", "ru", "rd", "rz": to nearest even, up, down,
            towards zero; "sr_bits=r", r from 1 to 32: compares the first r bits of U and p only, for studies.
        overflow: "ieee": between the largest finite value and the value that would follow it, one or the other,
            with infinity (NaN in formats without) in the latter's place; beyond, infinity. "saturate": the largest
            finite value, for infinite operands too.
        offset: number of the first element, for a part of a larger array.
        num_threads: default: ``popsr.num_threads()``. No result depends on it.
    Returns:
        ``out``, or a new array of the kind and format of ``x``.
    Raises:
        TypeError: ``key`` is missing; an operand is not an array of a supported format; ``out`` has another format, is
            read-only or immutable.
        ValueError: shapes do not broadcast, ``out`` has another shape or overlaps an operand partly, or an unknown
            ``mode`` or ``overflow``, or a negative ``offset``. Nothing has been written then.
    The chance is exact to 2**-64 for any operands.
    Source:
        Croci et al., Stochastic rounding: implementation, error analysis and applications, 2022, R. Soc. Open Sci.
        9.
    Example:
        >>> sr.add(np.array([1.0, 1.0, 1.0, 1.0], np.float16), 0.0005, key=sr.Key(0))
        array([1.   , 1.001, 1.   , 1.   ], dtype=float16)
    """
    if dtype is None and mode is _SR and overflow is _IEEE and offset is _FIRST and num_threads is None:
        result = _fast_add(x, y, key, out)
        if result is not NotImplemented:
            return result
    options = read_options("add", key, mode, overflow, offset, num_threads)
    return elementwise("add", (("x", x), ("y", y)), (), options, dtype=dtype, out=out)


@overload
def add_(w: W, u: Operand, *, alpha: float = 1.0, **options: Unpack[RoundingOptions]) -> W: ...
@overload
def add_(w: M, u: Operand, *, alpha: float = 1.0, **options: Unpack[RoundingOptions]) -> M: ...
@public
def add_(
    w: Any,
    u: Any,
    *,
    key: Key = REQUIRED,
    alpha: float = _ONE,
    dtype: Any = None,
    mode: Mode = _SR,
    overflow: Overflow = _IEEE,
    offset: int = _FIRST,
    num_threads: int | None = None,
) -> Any:
    """``w <- w + alpha * u``, rounded once; the exact product is never rounded.

    Args:
        w: writable array ``[...]``; see ``add``.
        u: array of any format that broadcasts to the shape of ``w``.
        key: see ``add``, as for the other arguments.
        alpha: factor, as double.
        dtype: format of integer buffers.
        mode: how to round.
        overflow: what becomes of sums that are too large.
        offset: number of the first element.
        num_threads: default: ``popsr.num_threads()``.
    Returns:
        ``w``.
    Raises:
        TypeError: as ``add``, with ``w`` in the place of ``out``.
        ValueError: as ``add``.
    Example:
        >>> w = np.array([1.0, 1.0, 1.0, 1.0], np.float16)
        >>> sr.add_(w, 0.0005, key=sr.Key(0).at(1)) is w
        True
        >>> w
        array([1.001, 1.001, 1.   , 1.001], dtype=float16)
    """
    plain = dtype is None and mode is _SR and overflow is _IEEE and offset is _FIRST and num_threads is None
    if plain and alpha is _ONE and _fast_add(w, u, key, w) is w:
        return w
    options = read_options("add_", key, mode, overflow, offset, num_threads)
    return _add_scaled("add_", w, u, read_number("add_: alpha", alpha), dtype, options)


def _add_scaled(op: str, w: Any, u: Any, alpha: float, dtype: Any, options: Options) -> Any:
    """``w <- w + alpha * u``."""
    if alpha == 1.0:
        return elementwise(op, (("w", w), ("u", u)), (), options, dtype=dtype, target=0, kernel="add")
    if alpha == -1.0:
        return elementwise(op, (("w", w), ("u", u)), (), options, dtype=dtype, target=0, kernel="sub")
    return elementwise(op, (("u", u), ("w", w)), (alpha,), options, dtype=dtype, target=1, kernel="axpy")


@overload
def sub(x: Operand, y: Operand, *, out: Out, **options: Unpack[RoundingOptions]) -> Out: ...
@overload
def sub(
    x: np.ndarray[Any, D], y: Operand, *, out: None = None, **options: Unpack[RoundingOptions]
) -> AnyArray[D]: ...
@overload
def sub(x: LibraryArray[R], y: Operand, *, out: None = None, **options: Unpack[RoundingOptions]) -> R: ...
@overload
def sub(x: float, y: Operand, *, out: None = None, **options: Unpack[RoundingOptions]) -> np.float64: ...
@overload
def sub(x: OtherArray, y: Operand, *, out: None = None, **options: Unpack[RoundingOptions]) -> Any: ...
@public
def sub(
    x: Any,
    y: Any,
    *,
    key: Key = REQUIRED,
    dtype: Any = None,
    out: Any = None,
    mode: Mode = _SR,
    overflow: Overflow = _IEEE,
    offset: int = _FIRST,
    num_threads: int | None = None,
) -> Any:
    """``x - y``, rounded once; see :func:`add`.

    Args:
        x: array ``[...]``, subtracted from; the result has its format.
        y: array of any format.
        key: this and all that follows, the result and the errors are as in :func:`add`.
        dtype: format of integer buffers.
        out: memory for the result.
        mode: how to round.
        overflow: what becomes of results that are too large.
        offset: number of the first element.
        num_threads: default: ``popsr.num_threads()``.
    The chance is exact to 2**-64 for any operands.
    Example:
        >>> sr.sub(np.array([1.0, 1.0, 1.0, 1.0], np.float16), 0.0002, key=sr.Key(0))
        array([0.9995, 1.    , 0.9995, 0.9995], dtype=float16)
    """
    options = read_options("sub", key, mode, overflow, offset, num_threads)
    return elementwise("sub", (("x", x), ("y", y)), (), options, dtype=dtype, out=out)


@overload
def sub_(w: W, u: Operand, *, alpha: float = 1.0, **options: Unpack[RoundingOptions]) -> W: ...
@overload
def sub_(w: M, u: Operand, *, alpha: float = 1.0, **options: Unpack[RoundingOptions]) -> M: ...
@public
def sub_(
    w: Any,
    u: Any,
    *,
    key: Key = REQUIRED,
    alpha: float = _ONE,
    dtype: Any = None,
    mode: Mode = _SR,
    overflow: Overflow = _IEEE,
    offset: int = _FIRST,
    num_threads: int | None = None,
) -> Any:
    """``w <- w - alpha * u``, rounded once; the exact product is never rounded.

    Args:
        w: writable array ``[...]``.
        u: array of any format that broadcasts to the shape of ``w``.
        key: this, all that follows and the errors are as in :func:`add`, with ``w`` in the place of ``out``.
        alpha: factor, as double.
        dtype: format of integer buffers.
        mode: how to round.
        overflow: what becomes of results that are too large.
        offset: number of the first element.
        num_threads: default: ``popsr.num_threads()``.
    Returns:
        ``w``.
    The chance is exact to 2**-64 for any operands.
    Example:
        >>> w = np.array([1.0, 1.0, 1.0, 1.0], np.float16)
        >>> sr.sub_(w, 0.0002, key=sr.Key(0))
        array([0.9995, 1.    , 0.9995, 0.9995], dtype=float16)
    """
    options = read_options("sub_", key, mode, overflow, offset, num_threads)
    return _add_scaled("sub_", w, u, -read_number("sub_: alpha", alpha), dtype, options)


@overload
def axpy(alpha: float, x: Operand, y: Operand, *, out: Out, **options: Unpack[RoundingOptions]) -> Out: ...
@overload
def axpy(
    alpha: float, x: np.ndarray[Any, D], y: Operand, *, out: None = None, **options: Unpack[RoundingOptions]
) -> AnyArray[D]: ...
@overload
def axpy(
    alpha: float, x: LibraryArray[R], y: Operand, *, out: None = None, **options: Unpack[RoundingOptions]
) -> R: ...
@overload
def axpy(
    alpha: float, x: float, y: Operand, *, out: None = None, **options: Unpack[RoundingOptions]
) -> np.float64: ...
@overload
def axpy(
    alpha: float, x: OtherArray, y: Operand, *, out: None = None, **options: Unpack[RoundingOptions]
) -> Any: ...
@public
def axpy(
    alpha: float,
    x: Any,
    y: Any,
    *,
    key: Key = REQUIRED,
    dtype: Any = None,
    out: Any = None,
    mode: Mode = _SR,
    overflow: Overflow = _IEEE,
    offset: int = _FIRST,
    num_threads: int | None = None,
) -> Any:
    """``alpha * x + y``, rounded once; the exact product is never rounded.

    Args:
        alpha: factor, as double.
        x: array ``[...]``; the result has its format.
        y: array of any format.
        key: this and all that follows, the result and the errors are as in :func:`add`.
        dtype: format of integer buffers.
        out: memory for the result.
        mode: how to round.
        overflow: what becomes of results that are too large.
        offset: number of the first element.
        num_threads: default: ``popsr.num_threads()``.
    The chance is exact to 2**-64 for any operands.
    Example:
        >>> sr.axpy(0.5, np.array([0.001], np.float16), np.array([1.0, 1.0, 1.0, 1.0], np.float16), key=sr.Key(0))
        array([1.   , 1.001, 1.   , 1.   ], dtype=float16)
    """
    options = read_options("axpy", key, mode, overflow, offset, num_threads)
    alpha = read_number("axpy: alpha", alpha)
    return elementwise("axpy", (("x", x), ("y", y)), (alpha,), options, dtype=dtype, out=out)


@overload
def axpy_(alpha: float, x: Operand, y: W, **options: Unpack[RoundingOptions]) -> W: ...
@overload
def axpy_(alpha: float, x: Operand, y: M, **options: Unpack[RoundingOptions]) -> M: ...
@public
def axpy_(
    alpha: float,
    x: Any,
    y: Any,
    *,
    key: Key = REQUIRED,
    dtype: Any = None,
    mode: Mode = _SR,
    overflow: Overflow = _IEEE,
    offset: int = _FIRST,
    num_threads: int | None = None,
) -> Any:
    """``y <- alpha * x + y``, rounded once to the format of ``y``, as BLAS has it.

    Args:
        alpha: factor, as double.
        x: array of any format that broadcasts to the shape of ``y``.
        y: writable array ``[...]``.
        key: this, all that follows and the errors are as in :func:`add`, with ``y`` in the place of ``out``.
        dtype: format of integer buffers.
        mode: how to round.
        overflow: what becomes of results that are too large.
        offset: number of the first element.
        num_threads: default: ``popsr.num_threads()``.
    Returns:
        ``y``.
    The chance is exact to 2**-64 for any operands.
    Example:
        >>> y = np.array([1.0, 1.0, 1.0, 1.0], np.float16)
        >>> sr.axpy_(0.5, np.array([0.001], np.float16), y, key=sr.Key(0))
        array([1.   , 1.001, 1.   , 1.   ], dtype=float16)
    """
    options = read_options("axpy_", key, mode, overflow, offset, num_threads)
    alpha = read_number("axpy_: alpha", alpha)
    return elementwise("axpy_", (("x", x), ("y", y)), (alpha,), options, dtype=dtype, target=1)


def _weighted(
    op: str, operands: tuple[tuple[str, Any], ...], t: Any
) -> tuple[tuple[tuple[str, Any], ...], tuple[float, ...]]:
    """The operands and scalars of ``lerp``."""
    if getattr(t, "shape", ()):
        return (*operands, ("t", t)), ()
    return operands, (read_number(f"{op}: t", t),)


@overload
def lerp(x: Operand, y: Operand, t: Operand, *, out: Out, **options: Unpack[RoundingOptions]) -> Out: ...
@overload
def lerp(
    x: np.ndarray[Any, D], y: Operand, t: Operand, *, out: None = None, **options: Unpack[RoundingOptions]
) -> AnyArray[D]: ...
@overload
def lerp(
    x: LibraryArray[R], y: Operand, t: Operand, *, out: None = None, **options: Unpack[RoundingOptions]
) -> R: ...
@overload
def lerp(
    x: float, y: Operand, t: Operand, *, out: None = None, **options: Unpack[RoundingOptions]
) -> np.float64: ...
@overload
def lerp(
    x: OtherArray, y: Operand, t: Operand, *, out: None = None, **options: Unpack[RoundingOptions]
) -> Any: ...
@public
def lerp(
    x: Any,
    y: Any,
    t: Any,
    *,
    key: Key = REQUIRED,
    dtype: Any = None,
    out: Any = None,
    mode: Mode = _SR,
    overflow: Overflow = _IEEE,
    offset: int = _FIRST,
    num_threads: int | None = None,
) -> Any:
    """``x + t * (y - x)``, the exact value rounded once.

    Args:
        x: array ``[...]``; the result has its format.
        y: array of any format.
        t: weight of ``y``: any number, as double, or an array.
        key: this and all that follows, the result and the errors are as in :func:`add`.
        dtype: format of integer buffers.
        out: memory for the result.
        mode: how to round.
        overflow: what becomes of results that are too large.
        offset: number of the first element.
        num_threads: default: ``popsr.num_threads()``.
    The chance is exact to 2**-64 for any operands.
    Example:
        >>> sr.lerp(np.array([1.0, 1.0, 1.0, 1.0], np.float16), 2.0, 0.0005, key=sr.Key(0))
        array([1.   , 1.001, 1.   , 1.   ], dtype=float16)
    """
    options = read_options("lerp", key, mode, overflow, offset, num_threads)
    operands, scalars = _weighted("lerp", (("x", x), ("y", y)), t)
    return elementwise("lerp", operands, scalars, options, dtype=dtype, out=out)


@overload
def lerp_(w: W, y: Operand, t: Operand, **options: Unpack[RoundingOptions]) -> W: ...
@overload
def lerp_(w: M, y: Operand, t: Operand, **options: Unpack[RoundingOptions]) -> M: ...
@public
def lerp_(
    w: Any,
    y: Any,
    t: Any,
    *,
    key: Key = REQUIRED,
    dtype: Any = None,
    mode: Mode = _SR,
    overflow: Overflow = _IEEE,
    offset: int = _FIRST,
    num_threads: int | None = None,
) -> Any:
    """``w <- w + t * (y - w)``, the exact value rounded once: a moving average that does not stand still.

    Args:
        w: writable array ``[...]``.
        y: array of any format that broadcasts to the shape of ``w``.
        t: weight of ``y``: any number, as double, or an array.
        key: this, all that follows and the errors are as in :func:`add`, with ``w`` in the place of ``out``.
        dtype: format of integer buffers.
        mode: how to round.
        overflow: what becomes of results that are too large.
        offset: number of the first element.
        num_threads: default: ``popsr.num_threads()``.
    Returns:
        ``w``.
    The chance is exact to 2**-64 for any operands.
    Example:
        >>> w = np.array([1.0, 1.0, 1.0, 1.0], np.float16)
        >>> sr.lerp_(w, 2.0, 0.0005, key=sr.Key(0))
        array([1.   , 1.001, 1.   , 1.   ], dtype=float16)
    """
    options = read_options("lerp_", key, mode, overflow, offset, num_threads)
    operands, scalars = _weighted("lerp_", (("w", w), ("y", y)), t)
    return elementwise("lerp_", operands, scalars, options, dtype=dtype, target=0)
