"""Products and their sums: ``mul``, ``fma``, ``addcmul``, ``addcdiv``; the exact value is rounded once."""

from __future__ import annotations

from typing import Any, Unpack, overload

import numpy as np

from popsr._support.host.arguments import read_number
from popsr._support.text.entry_points import public
from popsr.sr._call import REQUIRED, Key, elementwise, read_options
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

__all__ = ["addcdiv", "addcdiv_", "addcmul", "addcmul_", "fma", "fma_", "mul", "mul_"]


@overload
def mul(x: Operand, y: Operand, *, out: Out, **options: Unpack[RoundingOptions]) -> Out: ...
@overload
def mul(
    x: np.ndarray[Any, D], y: Operand, *, out: None = None, **options: Unpack[RoundingOptions]
) -> AnyArray[D]: ...
@overload
def mul(x: LibraryArray[R], y: Operand, *, out: None = None, **options: Unpack[RoundingOptions]) -> R: ...
@overload
def mul(x: float, y: Operand, *, out: None = None, **options: Unpack[RoundingOptions]) -> np.float64: ...
@overload
def mul(x: OtherArray, y: Operand, *, out: None = None, **options: Unpack[RoundingOptions]) -> Any: ...
@public
def mul(
    x: Any,
    y: Any,
    *,
    key: Key = REQUIRED,
    dtype: Any = None,
    out: Any = None,
    mode: Mode = "sr",
    overflow: Overflow = "ieee",
    offset: int = 0,
    num_threads: int | None = None,
) -> Any:
    """``x * y``, the exact product rounded once.

    Args:
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
        >>> sr.mul(np.array([1.0, 1.0, 1.0, 1.0], np.float16), 1.0005, key=sr.Key(0))
        array([1.   , 1.001, 1.   , 1.   ], dtype=float16)
    """
    options = read_options("mul", key, mode, overflow, offset, num_threads)
    return elementwise("mul", (("x", x), ("y", y)), (), options, dtype=dtype, out=out)


@overload
def mul_(w: W, y: Operand, **options: Unpack[RoundingOptions]) -> W: ...
@overload
def mul_(w: M, y: Operand, **options: Unpack[RoundingOptions]) -> M: ...
@public
def mul_(
    w: Any,
    y: Any,
    *,
    key: Key = REQUIRED,
    dtype: Any = None,
    mode: Mode = "sr",
    overflow: Overflow = "ieee",
    offset: int = 0,
    num_threads: int | None = None,
) -> Any:
    """``w <- w * y``, the exact product rounded once.

    Args:
        w: writable array ``[...]``.
        y: array of any format that broadcasts to the shape of ``w``.
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
        >>> sr.mul_(w, 1.0005, key=sr.Key(0))
        array([1.   , 1.001, 1.   , 1.   ], dtype=float16)
    """
    options = read_options("mul_", key, mode, overflow, offset, num_threads)
    return elementwise("mul_", (("w", w), ("y", y)), (), options, dtype=dtype, target=0)


@overload
def fma(x: Operand, y: Operand, z: Operand, *, out: Out, **options: Unpack[RoundingOptions]) -> Out: ...
@overload
def fma(
    x: np.ndarray[Any, D], y: Operand, z: Operand, *, out: None = None, **options: Unpack[RoundingOptions]
) -> AnyArray[D]: ...
@overload
def fma(
    x: LibraryArray[R], y: Operand, z: Operand, *, out: None = None, **options: Unpack[RoundingOptions]
) -> R: ...
@overload
def fma(
    x: float, y: Operand, z: Operand, *, out: None = None, **options: Unpack[RoundingOptions]
) -> np.float64: ...
@overload
def fma(
    x: OtherArray, y: Operand, z: Operand, *, out: None = None, **options: Unpack[RoundingOptions]
) -> Any: ...
@public
def fma(
    x: Any,
    y: Any,
    z: Any,
    *,
    key: Key = REQUIRED,
    dtype: Any = None,
    out: Any = None,
    mode: Mode = "sr",
    overflow: Overflow = "ieee",
    offset: int = 0,
    num_threads: int | None = None,
) -> Any:
    """``x * y + z``, the exact value rounded once.

    Args:
        x: array ``[...]``; the result has its format.
        y: array of any format.
        z: array of any format.
        key: this and all that follows, the result and the errors are as in :func:`add`.
        dtype: format of integer buffers.
        out: memory for the result.
        mode: how to round.
        overflow: what becomes of results that are too large.
        offset: number of the first element.
        num_threads: default: ``popsr.num_threads()``.
    The chance is exact to 2**-64 for any operands.
    Example:
        >>> sr.fma(np.array([1.0, 1.0, 1.0, 1.0], np.float16), 2.0, 0.0005, key=sr.Key(0))
        array([2.   , 2.002, 2.   , 2.   ], dtype=float16)
    """
    options = read_options("fma", key, mode, overflow, offset, num_threads)
    return elementwise("fma", (("x", x), ("y", y), ("z", z)), (), options, dtype=dtype, out=out)


@overload
def fma_(w: W, y: Operand, z: Operand, **options: Unpack[RoundingOptions]) -> W: ...
@overload
def fma_(w: M, y: Operand, z: Operand, **options: Unpack[RoundingOptions]) -> M: ...
@public
def fma_(
    w: Any,
    y: Any,
    z: Any,
    *,
    key: Key = REQUIRED,
    dtype: Any = None,
    mode: Mode = "sr",
    overflow: Overflow = "ieee",
    offset: int = 0,
    num_threads: int | None = None,
) -> Any:
    """``w <- w * y + z``, the exact value rounded once.

    Args:
        w: writable array ``[...]``.
        y: array of any format that broadcasts to the shape of ``w``.
        z: the same.
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
        >>> sr.fma_(w, 2.0, 0.0005, key=sr.Key(0))
        array([2.   , 2.002, 2.   , 2.   ], dtype=float16)
    """
    options = read_options("fma_", key, mode, overflow, offset, num_threads)
    return elementwise("fma_", (("w", w), ("y", y), ("z", z)), (), options, dtype=dtype, target=0)


@overload
def addcmul(
    x: Operand, t1: Operand, t2: Operand, alpha: float = 1.0, *, out: Out, **options: Unpack[RoundingOptions]
) -> Out: ...
@overload
def addcmul(
    x: np.ndarray[Any, D],
    t1: Operand,
    t2: Operand,
    alpha: float = 1.0,
    *,
    out: None = None,
    **options: Unpack[RoundingOptions],
) -> AnyArray[D]: ...
@overload
def addcmul(
    x: LibraryArray[R],
    t1: Operand,
    t2: Operand,
    alpha: float = 1.0,
    *,
    out: None = None,
    **options: Unpack[RoundingOptions],
) -> R: ...
@overload
def addcmul(
    x: float,
    t1: Operand,
    t2: Operand,
    alpha: float = 1.0,
    *,
    out: None = None,
    **options: Unpack[RoundingOptions],
) -> np.float64: ...
@overload
def addcmul(
    x: OtherArray,
    t1: Operand,
    t2: Operand,
    alpha: float = 1.0,
    *,
    out: None = None,
    **options: Unpack[RoundingOptions],
) -> Any: ...
@public
def addcmul(
    x: Any,
    t1: Any,
    t2: Any,
    alpha: float = 1.0,
    *,
    key: Key = REQUIRED,
    dtype: Any = None,
    out: Any = None,
    mode: Mode = "sr",
    overflow: Overflow = "ieee",
    offset: int = 0,
    num_threads: int | None = None,
) -> Any:
    """``x + alpha * t1 * t2``, the exact value rounded once.

    Args:
        x: array ``[...]``; the result has its format.
        t1: array of any format.
        t2: array of any format.
        alpha: factor, as double.
        key: this and all that follows, the result and the errors are as in :func:`add`.
        dtype: format of integer buffers.
        out: memory for the result.
        mode: how to round.
        overflow: what becomes of results that are too large.
        offset: number of the first element.
        num_threads: default: ``popsr.num_threads()``.
    The chance is exact to 2**-64 for any operands.
    Example:
        >>> sr.addcmul(np.array([1.0, 1.0, 1.0, 1.0], np.float16), 0.001, 0.5, key=sr.Key(0))
        array([1.   , 1.001, 1.   , 1.   ], dtype=float16)
    """
    options = read_options("addcmul", key, mode, overflow, offset, num_threads)
    alpha = read_number("addcmul: alpha", alpha)
    return elementwise("addcmul", (("x", x), ("t1", t1), ("t2", t2)), (alpha,), options, dtype=dtype, out=out)


@overload
def addcmul_(w: W, t1: Operand, t2: Operand, alpha: float = 1.0, **options: Unpack[RoundingOptions]) -> W: ...
@overload
def addcmul_(w: M, t1: Operand, t2: Operand, alpha: float = 1.0, **options: Unpack[RoundingOptions]) -> M: ...
@public
def addcmul_(
    w: Any,
    t1: Any,
    t2: Any,
    alpha: float = 1.0,
    *,
    key: Key = REQUIRED,
    dtype: Any = None,
    mode: Mode = "sr",
    overflow: Overflow = "ieee",
    offset: int = 0,
    num_threads: int | None = None,
) -> Any:
    """``w <- w + alpha * t1 * t2``, the exact value rounded once.

    Args:
        w: writable array ``[...]``.
        t1: array of any format that broadcasts to the shape of ``w``.
        t2: the same.
        alpha: factor, as double.
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
        >>> sr.addcmul_(w, 0.001, 0.5, key=sr.Key(0))
        array([1.   , 1.001, 1.   , 1.   ], dtype=float16)
    """
    options = read_options("addcmul_", key, mode, overflow, offset, num_threads)
    alpha = read_number("addcmul_: alpha", alpha)
    return elementwise(
        "addcmul_", (("w", w), ("t1", t1), ("t2", t2)), (alpha,), options, dtype=dtype, target=0
    )


@overload
def addcdiv(
    x: Operand, t1: Operand, t2: Operand, alpha: float = 1.0, *, out: Out, **options: Unpack[RoundingOptions]
) -> Out: ...
@overload
def addcdiv(
    x: np.ndarray[Any, D],
    t1: Operand,
    t2: Operand,
    alpha: float = 1.0,
    *,
    out: None = None,
    **options: Unpack[RoundingOptions],
) -> AnyArray[D]: ...
@overload
def addcdiv(
    x: LibraryArray[R],
    t1: Operand,
    t2: Operand,
    alpha: float = 1.0,
    *,
    out: None = None,
    **options: Unpack[RoundingOptions],
) -> R: ...
@overload
def addcdiv(
    x: float,
    t1: Operand,
    t2: Operand,
    alpha: float = 1.0,
    *,
    out: None = None,
    **options: Unpack[RoundingOptions],
) -> np.float64: ...
@overload
def addcdiv(
    x: OtherArray,
    t1: Operand,
    t2: Operand,
    alpha: float = 1.0,
    *,
    out: None = None,
    **options: Unpack[RoundingOptions],
) -> Any: ...
@public
def addcdiv(
    x: Any,
    t1: Any,
    t2: Any,
    alpha: float = 1.0,
    *,
    key: Key = REQUIRED,
    dtype: Any = None,
    out: Any = None,
    mode: Mode = "sr",
    overflow: Overflow = "ieee",
    offset: int = 0,
    num_threads: int | None = None,
) -> Any:
    """``x + alpha * t1 / t2``, the exact value rounded once.

    Args:
        x: array ``[...]``; the result has its format.
        t1: array of any format.
        t2: array of any format.
        alpha: factor, as double.
        key: this and all that follows, the result and the errors are as in :func:`add`.
        dtype: format of integer buffers.
        out: memory for the result.
        mode: how to round.
        overflow: what becomes of results that are too large.
        offset: number of the first element.
        num_threads: default: ``popsr.num_threads()``.
    The chance is exact to 2**-64 for any operands.
    Example:
        >>> sr.addcdiv(np.array([1.0, 1.0, 1.0, 1.0], np.float16), 0.001, 2.0, key=sr.Key(0))
        array([1.   , 1.001, 1.   , 1.   ], dtype=float16)
    """
    options = read_options("addcdiv", key, mode, overflow, offset, num_threads)
    alpha = read_number("addcdiv: alpha", alpha)
    return elementwise("addcdiv", (("x", x), ("t1", t1), ("t2", t2)), (alpha,), options, dtype=dtype, out=out)


@overload
def addcdiv_(w: W, t1: Operand, t2: Operand, alpha: float = 1.0, **options: Unpack[RoundingOptions]) -> W: ...
@overload
def addcdiv_(w: M, t1: Operand, t2: Operand, alpha: float = 1.0, **options: Unpack[RoundingOptions]) -> M: ...
@public
def addcdiv_(
    w: Any,
    t1: Any,
    t2: Any,
    alpha: float = 1.0,
    *,
    key: Key = REQUIRED,
    dtype: Any = None,
    mode: Mode = "sr",
    overflow: Overflow = "ieee",
    offset: int = 0,
    num_threads: int | None = None,
) -> Any:
    """``w <- w + alpha * t1 / t2``, the exact value rounded once.

    Args:
        w: writable array ``[...]``.
        t1: array of any format that broadcasts to the shape of ``w``.
        t2: the same.
        alpha: factor, as double.
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
        >>> sr.addcdiv_(w, 0.001, 2.0, key=sr.Key(0))
        array([1.   , 1.001, 1.   , 1.   ], dtype=float16)
    """
    options = read_options("addcdiv_", key, mode, overflow, offset, num_threads)
    alpha = read_number("addcdiv_: alpha", alpha)
    return elementwise(
        "addcdiv_", (("w", w), ("t1", t1), ("t2", t2)), (alpha,), options, dtype=dtype, target=0
    )
