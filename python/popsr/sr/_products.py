"""Products and their sums: ``mul``, ``fma``, ``addcmul``, ``addcdiv``; the exact value is rounded once."""

from __future__ import annotations

from typing import Any

from popsr._host.arguments import read_number
from popsr.sr._call import REQUIRED, Key, elementwise, read_options

__all__ = ["addcdiv", "addcdiv_", "addcmul", "addcmul_", "fma", "fma_", "mul", "mul_"]


def mul(
    x: Any,
    y: Any,
    *,
    key: Key = REQUIRED,
    dtype: Any = None,
    out: Any = None,
    mode: str = "sr",
    overflow: str = "ieee",
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
    """
    options = read_options("mul", key, mode, overflow, offset, num_threads)
    return elementwise("mul", (("x", x), ("y", y)), (), options, dtype=dtype, out=out)


def mul_(
    w: Any,
    y: Any,
    *,
    key: Key = REQUIRED,
    dtype: Any = None,
    mode: str = "sr",
    overflow: str = "ieee",
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
    """
    options = read_options("mul_", key, mode, overflow, offset, num_threads)
    return elementwise("mul_", (("w", w), ("y", y)), (), options, dtype=dtype, target=0)


def fma(
    x: Any,
    y: Any,
    z: Any,
    *,
    key: Key = REQUIRED,
    dtype: Any = None,
    out: Any = None,
    mode: str = "sr",
    overflow: str = "ieee",
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
    """
    options = read_options("fma", key, mode, overflow, offset, num_threads)
    return elementwise("fma", (("x", x), ("y", y), ("z", z)), (), options, dtype=dtype, out=out)


def fma_(
    w: Any,
    y: Any,
    z: Any,
    *,
    key: Key = REQUIRED,
    dtype: Any = None,
    mode: str = "sr",
    overflow: str = "ieee",
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
    """
    options = read_options("fma_", key, mode, overflow, offset, num_threads)
    return elementwise("fma_", (("w", w), ("y", y), ("z", z)), (), options, dtype=dtype, target=0)


def addcmul(
    x: Any,
    t1: Any,
    t2: Any,
    alpha: float = 1.0,
    *,
    key: Key = REQUIRED,
    dtype: Any = None,
    out: Any = None,
    mode: str = "sr",
    overflow: str = "ieee",
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
    """
    options = read_options("addcmul", key, mode, overflow, offset, num_threads)
    alpha = read_number("addcmul: alpha", alpha)
    return elementwise("addcmul", (("x", x), ("t1", t1), ("t2", t2)), (alpha,), options, dtype=dtype, out=out)


def addcmul_(
    w: Any,
    t1: Any,
    t2: Any,
    alpha: float = 1.0,
    *,
    key: Key = REQUIRED,
    dtype: Any = None,
    mode: str = "sr",
    overflow: str = "ieee",
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
    """
    options = read_options("addcmul_", key, mode, overflow, offset, num_threads)
    alpha = read_number("addcmul_: alpha", alpha)
    return elementwise(
        "addcmul_", (("w", w), ("t1", t1), ("t2", t2)), (alpha,), options, dtype=dtype, target=0
    )


def addcdiv(
    x: Any,
    t1: Any,
    t2: Any,
    alpha: float = 1.0,
    *,
    key: Key = REQUIRED,
    dtype: Any = None,
    out: Any = None,
    mode: str = "sr",
    overflow: str = "ieee",
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
    """
    options = read_options("addcdiv", key, mode, overflow, offset, num_threads)
    alpha = read_number("addcdiv: alpha", alpha)
    return elementwise("addcdiv", (("x", x), ("t1", t1), ("t2", t2)), (alpha,), options, dtype=dtype, out=out)


def addcdiv_(
    w: Any,
    t1: Any,
    t2: Any,
    alpha: float = 1.0,
    *,
    key: Key = REQUIRED,
    dtype: Any = None,
    mode: str = "sr",
    overflow: str = "ieee",
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
    """
    options = read_options("addcdiv_", key, mode, overflow, offset, num_threads)
    alpha = read_number("addcdiv_: alpha", alpha)
    return elementwise(
        "addcdiv_", (("w", w), ("t1", t1), ("t2", t2)), (alpha,), options, dtype=dtype, target=0
    )
