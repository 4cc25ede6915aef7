"""Host data: from what users have to C-contiguous NumPy arrays."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from popsr import dtypes
from popsr.errors import ArgumentTypeError, AttributeValueError, DTypeError, ShapeError, StateError

__all__ = ["HostScalarTensor", "to_numpy"]

HostScalarTensor = Any
"""Numbers, nested sequences, NumPy arrays and torch tensors."""

_NARROWER: dict[str, type[np.generic]] = {"int64": np.int32, "uint64": np.uint32, "float64": np.float32}


def to_numpy(
    x: HostScalarTensor,
    dtype: dtypes.dtype | None = None,
    downcast: bool = True,
    copy: bool = True,
    log2_scale: int | None = None,
    nan_on_overflow: bool | None = None,
) -> np.ndarray[Any, Any]:
    """A C-contiguous array of the data.

    Args:
        x: numbers, nested sequences, arrays or torch tensors.
        dtype: type of the result, by NumPy's cast (truncates, wraps). Default: inferred.
        downcast: without ``dtype``, narrow 64-bit types to 32 bits.
        copy: never share memory with ``x``.
        log2_scale: for float8 types only.
        nan_on_overflow: for float8 types only.
    Raises:
        TypeError: the data is not numeric.
    """
    if log2_scale is not None or nan_on_overflow is not None:
        raise StateError("to_numpy: log2_scale and nan_on_overflow are for float8 types only")
    array = _as_array(x)
    if dtype is not None:
        target = dtypes.dtype.as_dtype(dtype).as_numpy()
    elif downcast and array.dtype.name in _NARROWER:
        target = np.dtype(_NARROWER[array.dtype.name])
    else:
        target = array.dtype
    if target.name not in dtypes.dtype._all or array.dtype.kind not in "biufV":
        raise DTypeError(f"to_numpy: data of no supported dtype, got {array.dtype} from {type(x).__name__}")
    if copy or array.dtype != target or not array.flags.c_contiguous:
        return np.array(array, dtype=target, order="C", copy=True)
    return array


def _as_array(x: Any) -> np.ndarray[Any, Any]:
    if isinstance(x, np.ndarray):
        return x
    if type(x).__module__.startswith("popsr.") and hasattr(x, "shape"):
        raise ArgumentTypeError(f"to_numpy: a tensor of a program has no data, got {x!r}, expected host data")
    if type(x).__module__.partition(".")[0] == "torch":
        return _from_torch(x)
    try:
        return np.asarray(x)
    except ValueError as error:
        raise ShapeError(f"to_numpy: not an array, got {type(x).__name__}: {error}") from None


def _from_torch(x: Any) -> np.ndarray[Any, Any]:
    torch = sys.modules["torch"]
    x = x.detach().cpu()
    if x.dtype == torch.bfloat16:
        array: np.ndarray[Any, Any] = x.contiguous().view(torch.int16).numpy()
        return array.view(dtypes.bfloat16.as_numpy())
    plain: np.ndarray[Any, Any] = x.numpy()
    return plain


def is_a(value: object, cls: type) -> bool:
    """``isinstance`` for arguments that may contradict their annotations; narrows nothing."""
    return isinstance(value, cls)


def read_shape(where: str, shape: Iterable[int]) -> tuple[int, ...]:
    """A shape as tuple of ints.

    Raises:
        TypeError: not an iterable of integers.
        ValueError: a negative extent.
    """
    try:
        extents = tuple(int(extent.__index__()) for extent in shape)
    except (TypeError, AttributeError):
        raise ArgumentTypeError(f"{where}: shape is not a sequence of ints, got {shape!r}") from None
    if any(extent < 0 for extent in extents):
        raise ShapeError(f"{where}: negative extent, got {extents}, expected 0 or more")
    return extents


def read_dtype(where: str, value: Any) -> dtypes.dtype:
    """A dtype, or what stands for one.

    Raises:
        TypeError: it stands for none.
    """
    try:
        return dtypes.dtype.as_dtype(value)
    except ValueError as error:
        raise DTypeError(f"{where}: {error}") from None


def read_choice(where: str, name: str, value: Any, choices: Sequence[Any]) -> Any:
    """``value`` if it is one of ``choices``.

    Raises:
        ValueError: it is none of them.
    """
    if value not in choices:
        expected = ", ".join(repr(choice) for choice in choices)
        raise AttributeValueError(f"{where}: unknown {name}, got {value!r}, expected one of {expected}")
    return value


def read_int(where: str, value: Any, least: int, most: int = 2**63 - 1) -> int:
    """``value`` if it is an int between the bounds.

    Raises:
        ValueError: it is not.
    """
    if isinstance(value, bool) or not hasattr(value, "__index__") or not least <= value <= most:
        raise AttributeValueError(f"{where}: got {value!r}, expected an int from {least} to {most}")
    return int(value)
