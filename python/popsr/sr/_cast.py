"""``cast``: to another format, rounded once."""

from __future__ import annotations

from typing import Any, Unpack, overload

import numpy as np

from popsr._support.text.entry_points import public
from popsr.sr._call import REQUIRED, Key, elementwise, read_options, read_source
from popsr.sr._carriers import cast_carrier, may_be_carrier
from popsr.sr._formats import read_format
from popsr.sr._types import (
    AnyArray,
    D,
    FormatLike,
    G,
    LibraryArray,
    Mode,
    Operand,
    OtherArray,
    Out,
    Overflow,
    R,
    Rounding,
)

__all__ = ["cast"]


@overload
def cast(x: Operand, dtype: FormatLike, *, out: Out, **options: Unpack[Rounding]) -> Out: ...
@overload
def cast(
    x: float | np.generic, dtype: FormatLike, *, out: None = None, **options: Unpack[Rounding]
) -> np.generic: ...
@overload
def cast(
    x: np.ndarray[Any, Any], dtype: D, *, out: None = None, **options: Unpack[Rounding]
) -> AnyArray[D]: ...
@overload
def cast(
    x: np.ndarray[Any, Any], dtype: type[G], *, out: None = None, **options: Unpack[Rounding]
) -> AnyArray[np.dtype[G]]: ...
@overload
def cast(
    x: np.ndarray[Any, Any], dtype: FormatLike, *, out: None = None, **options: Unpack[Rounding]
) -> AnyArray[Any]: ...
@overload
def cast(x: LibraryArray[R], dtype: FormatLike, *, out: None = None, **options: Unpack[Rounding]) -> R: ...
@overload
def cast(x: OtherArray, dtype: FormatLike, *, out: None = None, **options: Unpack[Rounding]) -> Any: ...
@public
def cast(
    x: Any,
    dtype: Any,
    *,
    key: Key = REQUIRED,
    out: Any = None,
    mode: Mode = "sr",
    overflow: Overflow = "ieee",
    offset: int = 0,
    num_threads: int | None = None,
) -> Any:
    """``x`` in another format: exact to wider formats, rounded once to narrower ones.

    The carriers ``float8_e8m0fnu`` and ``float4_e2m1fn`` are cast to float32, exactly, and from float32 with
    ``mode="rn"``, as ml_dtypes does: powers of two halfway up and NaN for what is not positive; 4-bit floats to nearest
    even, at most 6. torch has 4-bit floats in pairs. With scales of blocks, and stochastically: :func:`cast_blocks`.

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
    Source:
        Croci et al., Stochastic rounding: implementation, error analysis and applications, 2022, R. Soc. Open Sci.
        9.
    Example:
        >>> sr.cast(np.full(4, 1.0005), np.float16, key=sr.Key(0))
        array([1.   , 1.001, 1.   , 1.   ], dtype=float16)
    """
    options = read_options("cast", key, mode, overflow, offset, num_threads)
    to = read_format("cast", dtype, carriers=True)
    if to.is_carrier or may_be_carrier(x):
        source = read_source("cast", "x", x, None, carriers=True)
        if to.is_carrier or source.form.is_carrier:
            return cast_carrier(source, to, options.mode, out)
        x = source.plain()
    return elementwise("cast", (("x", x),), (), options, to=to, out=out)
