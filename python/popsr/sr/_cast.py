"""``cast``: to another format, rounded once."""

from __future__ import annotations

from typing import Any

from popsr.sr._call import REQUIRED, Key, elementwise, read_options
from popsr.sr._formats import read_format

__all__ = ["cast"]


def cast(
    x: Any,
    dtype: Any,
    *,
    key: Key = REQUIRED,
    out: Any = None,
    mode: str = "sr",
    overflow: str = "ieee",
    offset: int = 0,
    num_threads: int | None = None,
) -> Any:
    """``x`` in another format: exact to wider formats, rounded once to narrower ones.

    Args:
        x: array ``[...]`` of any format, not a buffer of integers.
        dtype: format of the result; see :func:`add`.
        key: this and all that follows, the result and the errors are as in :func:`add`.
        out: memory for the result, in that format, or integers of its size.
        mode: how to round.
        overflow: what becomes of values that are too large.
        offset: number of the first element.
        num_threads: default: ``popsr.num_threads()``.
    The chance is exact to 2**-64.
    """
    options = read_options("cast", key, mode, overflow, offset, num_threads)
    return elementwise("cast", (("x", x),), (), options, to=read_format("cast", dtype), out=out)
