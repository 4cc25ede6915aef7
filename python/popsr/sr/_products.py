"""Products and their sums: ``mul``, ``fma``, ``addcmul``, ``addcdiv``; the exact value is rounded once."""

from __future__ import annotations

from typing import Any, Unpack, overload

import numpy as np

from popsr._support.text.entry_points import public
from popsr.sr._call import compute, update
from popsr.sr._keywords import like, takes_keywords_of
from popsr.sr._sums import add
from popsr.sr._types import (
    AnyArray,
    D,
    LibraryArray,
    M,
    NewArrayOptions,
    Operand,
    OtherArray,
    Out,
    R,
    RoundingOptions,
    W,
)

__all__ = ["addcdiv", "addcdiv_", "addcmul", "addcmul_", "fma", "fma_", "mul", "mul_"]


@public
@like(add)
@takes_keywords_of(compute)
def mul(x: Any, y: Any, **options: Any) -> Any:
    """``x * y``, the exact product rounded once.

    Args:
        x: array ``[...]``; the result has its format.
        y: array of any format.
        **options: ``key`` and the other keywords of :func:`add`.
    Example:
        >>> sr.mul(np.array([1.0, 1.0, 1.0, 1.0], np.float16), 1.0005, key=sr.Key(0))
        array([1.   , 1.001, 1.   , 1.   ], dtype=float16)
    """
    return compute("mul", (("x", x), ("y", y)), **options)


@overload
def mul_(w: W, y: Operand, **options: Unpack[RoundingOptions]) -> W: ...
@overload
def mul_(w: M, y: Operand, **options: Unpack[RoundingOptions]) -> M: ...
@public
@takes_keywords_of(update, target="w")
def mul_(w: Any, y: Any, **options: Any) -> Any:
    """``w <- w * y``, the exact product rounded once.

    Args:
        w: writable array ``[...]``.
        y: array of any format that broadcasts to the shape of ``w``.
        **options: ``key`` and the other keywords of :func:`add` but ``out``.
    Example:
        >>> w = np.array([1.0, 1.0, 1.0, 1.0], np.float16)
        >>> sr.mul_(w, 1.0005, key=sr.Key(0))
        array([1.   , 1.001, 1.   , 1.   ], dtype=float16)
    """
    return update("mul_", (("w", w), ("y", y)), **options)


@overload
def fma(x: Operand, y: Operand, z: Operand, *, out: Out, **options: Unpack[RoundingOptions]) -> Out: ...
@overload
def fma(x: np.ndarray[Any, D], y: Operand, z: Operand, **options: Unpack[NewArrayOptions]) -> AnyArray[D]: ...
@overload
def fma(x: LibraryArray[R], y: Operand, z: Operand, **options: Unpack[NewArrayOptions]) -> R: ...
@overload
def fma(x: float, y: Operand, z: Operand, **options: Unpack[NewArrayOptions]) -> np.float64: ...
@overload
def fma(x: OtherArray, y: Operand, z: Operand, **options: Unpack[NewArrayOptions]) -> Any: ...
@public
@takes_keywords_of(compute)
def fma(x: Any, y: Any, z: Any, **options: Any) -> Any:
    """``x * y + z``, the exact value rounded once.

    Args:
        x: array ``[...]``; the result has its format.
        y: array of any format.
        z: array of any format.
        **options: ``key`` and the other keywords of :func:`add`.
    Example:
        >>> sr.fma(np.array([1.0, 1.0, 1.0, 1.0], np.float16), 2.0, 0.0005, key=sr.Key(0))
        array([2.   , 2.002, 2.   , 2.   ], dtype=float16)
    """
    return compute("fma", (("x", x), ("y", y), ("z", z)), **options)


@overload
def fma_(w: W, y: Operand, z: Operand, **options: Unpack[RoundingOptions]) -> W: ...
@overload
def fma_(w: M, y: Operand, z: Operand, **options: Unpack[RoundingOptions]) -> M: ...
@public
@takes_keywords_of(update, target="w")
def fma_(w: Any, y: Any, z: Any, **options: Any) -> Any:
    """``w <- w * y + z``, the exact value rounded once.

    Args:
        w: writable array ``[...]``.
        y: array of any format that broadcasts to the shape of ``w``.
        z: the same.
        **options: ``key`` and the other keywords of :func:`add` but ``out``.
    Example:
        >>> w = np.array([1.0, 1.0, 1.0, 1.0], np.float16)
        >>> sr.fma_(w, 2.0, 0.0005, key=sr.Key(0))
        array([2.   , 2.002, 2.   , 2.   ], dtype=float16)
    """
    return update("fma_", (("w", w), ("y", y), ("z", z)), **options)


@overload
def addcmul(
    x: Operand, t1: Operand, t2: Operand, alpha: float = 1.0, *, out: Out, **options: Unpack[RoundingOptions]
) -> Out: ...
@overload
def addcmul(
    x: np.ndarray[Any, D], t1: Operand, t2: Operand, alpha: float = 1.0, **options: Unpack[NewArrayOptions]
) -> AnyArray[D]: ...
@overload
def addcmul(
    x: LibraryArray[R], t1: Operand, t2: Operand, alpha: float = 1.0, **options: Unpack[NewArrayOptions]
) -> R: ...
@overload
def addcmul(
    x: float, t1: Operand, t2: Operand, alpha: float = 1.0, **options: Unpack[NewArrayOptions]
) -> np.float64: ...
@overload
def addcmul(
    x: OtherArray, t1: Operand, t2: Operand, alpha: float = 1.0, **options: Unpack[NewArrayOptions]
) -> Any: ...
@public
@takes_keywords_of(compute)
def addcmul(x: Any, t1: Any, t2: Any, alpha: float = 1.0, **options: Any) -> Any:
    """``x + alpha * t1 * t2``, the exact value rounded once.

    Args:
        x: array ``[...]``; the result has its format.
        t1: array of any format.
        t2: array of any format.
        alpha: factor, as double.
        **options: ``key`` and the other keywords of :func:`add`.
    Example:
        >>> sr.addcmul(np.array([1.0, 1.0, 1.0, 1.0], np.float16), 0.001, 0.5, key=sr.Key(0))
        array([1.   , 1.001, 1.   , 1.   ], dtype=float16)
    """
    return compute("addcmul", (("x", x), ("t1", t1), ("t2", t2)), (("alpha", alpha),), **options)


@overload
def addcmul_(w: W, t1: Operand, t2: Operand, alpha: float = 1.0, **options: Unpack[RoundingOptions]) -> W: ...
@overload
def addcmul_(w: M, t1: Operand, t2: Operand, alpha: float = 1.0, **options: Unpack[RoundingOptions]) -> M: ...
@public
@takes_keywords_of(update, target="w")
def addcmul_(w: Any, t1: Any, t2: Any, alpha: float = 1.0, **options: Any) -> Any:
    """``w <- w + alpha * t1 * t2``, the exact value rounded once.

    Args:
        w: writable array ``[...]``.
        t1: array of any format that broadcasts to the shape of ``w``.
        t2: the same.
        alpha: factor, as double.
        **options: ``key`` and the other keywords of :func:`add` but ``out``.
    Example:
        >>> w = np.array([1.0, 1.0, 1.0, 1.0], np.float16)
        >>> sr.addcmul_(w, 0.001, 0.5, key=sr.Key(0))
        array([1.   , 1.001, 1.   , 1.   ], dtype=float16)
    """
    return update("addcmul_", (("w", w), ("t1", t1), ("t2", t2)), (("alpha", alpha),), **options)


@public
@like(addcmul)
@takes_keywords_of(compute)
def addcdiv(x: Any, t1: Any, t2: Any, alpha: float = 1.0, **options: Any) -> Any:
    """``x + alpha * t1 / t2``, the exact value rounded once.

    Args:
        x: array ``[...]``; the result has its format.
        t1: array of any format.
        t2: array of any format.
        alpha: factor, as double.
        **options: ``key`` and the other keywords of :func:`add`.
    Example:
        >>> sr.addcdiv(np.array([1.0, 1.0, 1.0, 1.0], np.float16), 0.001, 2.0, key=sr.Key(0))
        array([1.   , 1.001, 1.   , 1.   ], dtype=float16)
    """
    return compute("addcdiv", (("x", x), ("t1", t1), ("t2", t2)), (("alpha", alpha),), **options)


@public
@like(addcmul_)
@takes_keywords_of(update, target="w")
def addcdiv_(w: Any, t1: Any, t2: Any, alpha: float = 1.0, **options: Any) -> Any:
    """``w <- w + alpha * t1 / t2``, the exact value rounded once.

    Args:
        w: writable array ``[...]``.
        t1: array of any format that broadcasts to the shape of ``w``.
        t2: the same.
        alpha: factor, as double.
        **options: ``key`` and the other keywords of :func:`add` but ``out``.
    Example:
        >>> w = np.array([1.0, 1.0, 1.0, 1.0], np.float16)
        >>> sr.addcdiv_(w, 0.001, 2.0, key=sr.Key(0))
        array([1.   , 1.001, 1.   , 1.   ], dtype=float16)
    """
    return update("addcdiv_", (("w", w), ("t1", t1), ("t2", t2)), (("alpha", alpha),), **options)
