"""Sums and their relatives: ``add``, ``sub``, ``axpy``, ``lerp``; the exact value is rounded once."""

from __future__ import annotations

from typing import Any, Unpack, overload

import numpy as np

from popsr import _core
from popsr._support.host.arguments import read_number
from popsr._support.text.entry_points import public
from popsr.sr._call import REQUIRED, Key, compute, elementwise, read_options, update
from popsr.sr._keywords import like, takes_keywords_of
from popsr.sr._types import (
    AnyArray,
    D,
    LibraryArray,
    M,
    Mode,
    NewArrayOptions,
    Operand,
    OtherArray,
    Out,
    Overflow,
    R,
    RoundingOptions,
    W,
)
from popsr.sr._watch import is_watched

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
def add(x: np.ndarray[Any, D], y: Operand, **options: Unpack[NewArrayOptions]) -> AnyArray[D]: ...
@overload
def add(x: LibraryArray[R], y: Operand, **options: Unpack[NewArrayOptions]) -> R: ...
@overload
def add(x: float, y: Operand, **options: Unpack[NewArrayOptions]) -> np.float64: ...
@overload
def add(x: OtherArray, y: Operand, **options: Unpack[NewArrayOptions]) -> Any: ...
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
    if (
        dtype is None
        and mode is _SR
        and overflow is _IEEE
        and offset is _FIRST
        and num_threads is None
        and not is_watched()
    ):
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
    options: Any = {
        "key": key,
        "mode": mode,
        "overflow": overflow,
        "offset": offset,
        "num_threads": num_threads,
    }
    return update("add_", *_scaled(w, u, read_number("add_: alpha", alpha)), dtype=dtype, **options)


def _scaled(w: Any, u: Any, alpha: float) -> tuple[Any, ...]:
    """Operands, factors, target and kernel of ``w <- w + alpha * u``."""
    if abs(alpha) == 1.0:
        return (("w", w), ("u", u)), (), 0, "add" if alpha > 0 else "sub"
    return (("u", u), ("w", w)), (("alpha", alpha),), 1, "axpy"


@public
@like(add)
@takes_keywords_of(compute)
def sub(x: Any, y: Any, **options: Any) -> Any:
    """``x - y``, rounded once; see :func:`add`.

    Args:
        x: array ``[...]``, subtracted from; the result has its format.
        y: array of any format.
        **options: ``key`` and the other keywords of :func:`add`.
    Example:
        >>> sr.sub(np.array([1.0, 1.0, 1.0, 1.0], np.float16), 0.0002, key=sr.Key(0))
        array([0.9995, 1.    , 0.9995, 0.9995], dtype=float16)
    """
    return compute("sub", (("x", x), ("y", y)), **options)


@public
@like(add_)
@takes_keywords_of(update, target="w")
def sub_(w: Any, u: Any, *, alpha: float = _ONE, **options: Any) -> Any:
    """``w <- w - alpha * u``, rounded once; the exact product is never rounded.

    Args:
        w: writable array ``[...]``.
        u: array of any format that broadcasts to the shape of ``w``.
        alpha: factor, as double.
        **options: ``key`` and the other keywords of :func:`add` but ``out``.
    Example:
        >>> w = np.array([1.0, 1.0, 1.0, 1.0], np.float16)
        >>> sr.sub_(w, 0.0002, key=sr.Key(0))
        array([0.9995, 1.    , 0.9995, 0.9995], dtype=float16)
    """
    return update("sub_", *_scaled(w, u, -read_number("sub_: alpha", alpha)), **options)


@overload
def axpy(alpha: float, x: Operand, y: Operand, *, out: Out, **options: Unpack[RoundingOptions]) -> Out: ...
@overload
def axpy(
    alpha: float, x: np.ndarray[Any, D], y: Operand, **options: Unpack[NewArrayOptions]
) -> AnyArray[D]: ...
@overload
def axpy(alpha: float, x: LibraryArray[R], y: Operand, **options: Unpack[NewArrayOptions]) -> R: ...
@overload
def axpy(alpha: float, x: float, y: Operand, **options: Unpack[NewArrayOptions]) -> np.float64: ...
@overload
def axpy(alpha: float, x: OtherArray, y: Operand, **options: Unpack[NewArrayOptions]) -> Any: ...
@public
@takes_keywords_of(compute)
def axpy(alpha: float, x: Any, y: Any, **options: Any) -> Any:
    """``alpha * x + y``, rounded once; the exact product is never rounded.

    Args:
        alpha: factor, as double.
        x: array ``[...]``; the result has its format.
        y: array of any format.
        **options: ``key`` and the other keywords of :func:`add`.
    Example:
        >>> sr.axpy(0.5, np.array([0.001], np.float16), np.array([1.0, 1.0, 1.0, 1.0], np.float16), key=sr.Key(0))
        array([1.   , 1.001, 1.   , 1.   ], dtype=float16)
    """
    return compute("axpy", (("x", x), ("y", y)), (("alpha", alpha),), **options)


@overload
def axpy_(alpha: float, x: Operand, y: W, **options: Unpack[RoundingOptions]) -> W: ...
@overload
def axpy_(alpha: float, x: Operand, y: M, **options: Unpack[RoundingOptions]) -> M: ...
@public
@takes_keywords_of(update, target="y")
def axpy_(alpha: float, x: Any, y: Any, **options: Any) -> Any:
    """``y <- alpha * x + y``, rounded once to the format of ``y``, as BLAS has it.

    Args:
        alpha: factor, as double.
        x: array of any format that broadcasts to the shape of ``y``.
        y: writable array ``[...]``.
        **options: ``key`` and the other keywords of :func:`add` but ``out``.
    Example:
        >>> y = np.array([1.0, 1.0, 1.0, 1.0], np.float16)
        >>> sr.axpy_(0.5, np.array([0.001], np.float16), y, key=sr.Key(0))
        array([1.   , 1.001, 1.   , 1.   ], dtype=float16)
    """
    return update("axpy_", (("x", x), ("y", y)), (("alpha", alpha),), 1, **options)


def _weighted(*operands: tuple[str, Any]) -> tuple[Any, Any]:
    """Operands and factors of ``lerp``, whose weight, the last, is a number or an array."""
    is_array = bool(getattr(operands[-1][1], "shape", ()))
    return (operands, ()) if is_array else (operands[:-1], operands[-1:])


@overload
def lerp(x: Operand, y: Operand, t: Operand, *, out: Out, **options: Unpack[RoundingOptions]) -> Out: ...
@overload
def lerp(
    x: np.ndarray[Any, D], y: Operand, t: Operand, **options: Unpack[NewArrayOptions]
) -> AnyArray[D]: ...
@overload
def lerp(x: LibraryArray[R], y: Operand, t: Operand, **options: Unpack[NewArrayOptions]) -> R: ...
@overload
def lerp(x: float, y: Operand, t: Operand, **options: Unpack[NewArrayOptions]) -> np.float64: ...
@overload
def lerp(x: OtherArray, y: Operand, t: Operand, **options: Unpack[NewArrayOptions]) -> Any: ...
@public
@takes_keywords_of(compute)
def lerp(x: Any, y: Any, t: Any, **options: Any) -> Any:
    """``x + t * (y - x)``, the exact value rounded once.

    Args:
        x: array ``[...]``; the result has its format.
        y: array of any format.
        t: weight of ``y``: any number, as double, or an array.
        **options: ``key`` and the other keywords of :func:`add`.
    Example:
        >>> sr.lerp(np.array([1.0, 1.0, 1.0, 1.0], np.float16), 2.0, 0.0005, key=sr.Key(0))
        array([1.   , 1.001, 1.   , 1.   ], dtype=float16)
    """
    return compute("lerp", *_weighted(("x", x), ("y", y), ("t", t)), **options)


@overload
def lerp_(w: W, y: Operand, t: Operand, **options: Unpack[RoundingOptions]) -> W: ...
@overload
def lerp_(w: M, y: Operand, t: Operand, **options: Unpack[RoundingOptions]) -> M: ...
@public
@takes_keywords_of(update, target="w")
def lerp_(w: Any, y: Any, t: Any, **options: Any) -> Any:
    """``w <- w + t * (y - w)``, the exact value rounded once: a moving average that does not stand still.

    Args:
        w: writable array ``[...]``.
        y: array of any format that broadcasts to the shape of ``w``.
        t: weight of ``y``: any number, as double, or an array.
        **options: ``key`` and the other keywords of :func:`add` but ``out``.
    Example:
        >>> w = np.array([1.0, 1.0, 1.0, 1.0], np.float16)
        >>> sr.lerp_(w, 2.0, 0.0005, key=sr.Key(0))
        array([1.   , 1.001, 1.   , 1.   ], dtype=float16)
    """
    return update("lerp_", *_weighted(("w", w), ("y", y), ("t", t)), **options)
