"""Casts of a file's values to a variable's dtype, which lose bits of floats only, and no range."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from popsr._session.rows import Array
from popsr._support.host.files import shown_name
from popsr._support.host.float_environment import in_default_environment
from popsr.errors import DTypeError

__all__ = ["cast_values"]


@in_default_environment
def cast_values(where: str, name: str, array: Array, target: np.dtype[Any]) -> Array:
    """Values in another dtype: floats are rounded once, to nearest even; all other casts are exact.

    Raises:
        DTypeError: a value has no counterpart, such as one that would become infinite, or a fraction of an int.
    """
    with np.errstate(all="ignore"):
        result = _rounded(array, target)
        is_rounding = _is_float(array.dtype) and _is_float(target)
        wrong = _leaves_range(array, result) if is_rounding else _changes(array, result)
    if wrong.any():
        element = int(np.flatnonzero(wrong.reshape(-1))[0])
        raise DTypeError(
            f"{where}: a value of {shown_name(name)} has no counterpart in {target.name}, got "
            f"{array.reshape(-1)[element]} at element {element}, expected "
            f"{'values in its range' if is_rounding else 'values that it has exactly'}"
        )
    return result


def _is_float(kind: np.dtype[Any]) -> bool:
    return kind.kind == "f" or (kind.kind == "V" and hasattr(ml_dtypes, kind.name) and "int" not in kind.name)


def _rounded(array: Array, target: np.dtype[Any]) -> Array:
    if array.dtype == np.float64 and _is_float(target) and target.itemsize < 4:
        array = _to_odd(array)  # ml_dtypes goes through float32, which would round twice
    return array.astype(target)


def _to_odd(array: Array) -> Array:
    """float32 rounded to odd: what is rounded to a narrower type after that has been rounded once."""
    near = np.asarray(array.astype(np.float32))
    exact = near.astype(np.float64)
    bits = near.view(np.uint32)
    is_inexact = (exact != array) & ~np.isnan(array)
    bits = bits - (is_inexact & (np.abs(exact) > np.abs(array)))
    return np.asarray(bits | is_inexact).astype(np.uint32).view(np.float32)


def _leaves_range(array: Array, result: Array) -> Array:
    before, after = (each if each.dtype.kind == "f" else each.astype(np.float32) for each in (array, result))
    # A type without infinities makes them NaN or its largest number.
    return np.asarray((np.isfinite(before) != np.isfinite(after)) | (np.isnan(before) != np.isnan(after)))


def _changes(array: Array, result: Array) -> Array:
    back = result.astype(array.dtype)
    is_wrong = np.asarray(back != array)
    if array.dtype.kind in "iu" and result.dtype.kind in "iu":
        is_wrong = is_wrong | ((array < 0) != (result < 0))
    if array.dtype.kind in "iu" and result.dtype.kind not in "iub":
        # 2**63 - 1 becomes 2**63 as a float and saturates on the way back.
        is_wrong = is_wrong | (np.asarray(result).astype(np.float64) >= 2.0**63) & (array.dtype.kind == "i")
        is_wrong = is_wrong | (np.asarray(result).astype(np.float64) >= 2.0**64)
    return is_wrong
