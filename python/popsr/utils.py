"""Host data: from what users have to C-contiguous NumPy arrays."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from popsr import dtypes
from popsr.errors import ArgumentTypeError, AttributeValueError, DTypeError, ShapeError, StateError

__all__ = ["HostScalarTensor", "to_numpy"]

HostScalarTensor = Any
"""Numbers, nested sequences, NumPy arrays and torch tensors."""

_NARROWER = {"int64": "int32", "uint64": "uint32", "float64": "float32"}


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
    Returns:
        The data; a memory-mapped array itself, which is never converted.
    Raises:
        TypeError: the data is not numeric.
        ValueError: a memory-mapped array would have to be converted.
    """
    if is_mapped(x):
        return mapped_data(x, dtype, downcast)
    return host_data("to_numpy", x, dtype, downcast, copy, log2_scale, nan_on_overflow)


def host_data(
    where: str,
    x: HostScalarTensor,
    dtype: dtypes.dtype | None = None,
    downcast: bool = True,
    copy: bool = True,
    log2_scale: int | None = None,
    nan_on_overflow: bool | None = None,
) -> np.ndarray[Any, Any]:
    """``to_numpy`` for the caller named ``where`` in messages."""
    if log2_scale is not None or nan_on_overflow is not None:
        raise StateError(
            f"{where}: log2_scale and nan_on_overflow are for float8 types only, got {log2_scale!r} and "
            f"{nan_on_overflow!r}, expected None"
        )
    array = _as_array(where, x)
    if dtype is not None:
        name = read_dtype(where, dtype).name
    elif downcast:
        name = _NARROWER.get(array.dtype.name, array.dtype.name)
    else:
        name = array.dtype.name
    # Kinds: numbers, and V for the types of ml_dtypes as opposed to structures.
    target = dtypes.dtype._all.get(name)
    if target is None or not (array.dtype.kind in "biuf" or array.dtype.name in dtypes.dtype._all):
        raise DTypeError(
            f"{where}: data of no supported dtype, got {array.dtype} from {type(x).__name__}, "
            f"expected one of {', '.join(dtypes.dtype._all)}"
        )
    numpy_type = target.as_numpy()  # in the machine's byte order
    if copy or array.dtype != numpy_type or not array.flags.c_contiguous:
        with np.errstate(invalid="ignore", over="ignore"):  # the cast truncates and wraps
            return np.array(array, dtype=numpy_type, order="C", copy=True)
    return array


def is_mapped(x: object) -> bool:
    """Is it an array in a file? Results of operations on such arrays are in memory."""
    return isinstance(x, np.memmap) and getattr(x, "_mmap", None) is not None


def mapped_data(x: np.ndarray[Any, Any], dtype: dtypes.dtype | None, downcast: bool) -> np.ndarray[Any, Any]:
    """A memory-mapped array, which is shared and so must not need a conversion.

    Raises:
        ValueError: it does.
    """
    what = "When passing a memory-mapped NumPy array"
    kind = dtypes.dtype._all.get(x.dtype.name)
    if kind is None or x.dtype != kind.as_numpy():
        raise AttributeValueError(
            f"{what}, its dtype has to be one of popsr in the machine's byte order, got {x.dtype.str}, "
            f"expected one of {', '.join(dtypes.dtype._all)}"
        )
    if dtype is not None and read_dtype("variable", dtype) is not kind:
        raise AttributeValueError(
            f"{what}, dtype must be None or that of the array, got {dtype!r}, expected {kind!r}"
        )
    if dtype is None and downcast and kind.name in _NARROWER:
        raise AttributeValueError(
            f"{what}, it must not need downcasting, got {kind.name}, expected downcast=False or "
            f"{_NARROWER[kind.name]} data"
        )
    if not (x.flags.c_contiguous and x.flags.aligned):
        raise AttributeValueError(
            f"{what}, it must be C-ordered and aligned, got strides {x.strides} for shape {x.shape}"
        )
    return x


def _as_array(where: str, x: Any) -> np.ndarray[Any, Any]:
    if isinstance(x, np.ndarray):
        return x
    if type(x).__module__.startswith("popsr.") and hasattr(x, "shape"):
        raise ArgumentTypeError(f"{where}: a tensor of a program has no data, got {x!r}, expected host data")
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor):
        return _from_torch(torch, x)
    try:
        return np.asarray(x)
    except (TypeError, ValueError) as error:
        kind = ShapeError if isinstance(error, ValueError) else ArgumentTypeError
        raise kind(f"{where}: not an array, got {type(x).__name__}: {error}") from None


def _from_torch(torch: Any, x: Any) -> np.ndarray[Any, Any]:
    x = x.detach().cpu()
    if x.dtype == torch.bfloat16:
        array: np.ndarray[Any, Any] = x.contiguous().view(torch.int16).numpy()
        return array.view(dtypes.bfloat16.as_numpy())
    plain: np.ndarray[Any, Any] = x.numpy()
    return plain


def is_a(value: object, cls: type | tuple[type, ...]) -> bool:
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


def read_ints(where: str, name: str, values: Iterable[Any]) -> tuple[Any, ...]:
    """A sequence as tuple; the core checks its elements.

    Raises:
        TypeError: not an iterable.
    """
    if not isinstance(values, Iterable):
        raise ArgumentTypeError(f"{where}: {name} is not a sequence of ints, got {values!r}")
    return tuple(values)


def read_name(where: str, name: Any, default: str = "t") -> str:
    """``name``, or ``default`` for None.

    Raises:
        TypeError: it is not a str.
    """
    if name is None:
        return default
    if not isinstance(name, str):
        raise ArgumentTypeError(f"{where}: name is not a str, got {name!r}")
    return name


def read_mapping(where: str, name: str, value: Any) -> Mapping[Any, Any]:
    """``value``, or an empty mapping for None.

    Raises:
        TypeError: it is not a mapping.
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ArgumentTypeError(f"{where}: {name} is not a mapping, got {value!r}")
    return value


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


def read_ipu(where: str, name: str, value: Any) -> int:
    """The number of a device.

    Raises:
        TypeError: it is no int.
        ValueError: it is negative, or beyond what a number of a device can be.
    """
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ArgumentTypeError(f"{where}: {name} is not an int, got {value!r}, expected a number of an IPU")
    ipu = int(value.__index__())
    if not 0 <= ipu < 2**31:
        raise AttributeValueError(f"{where}: {name} is no IPU, got {value!r}, expected 0 to {2**31 - 1}")
    return ipu
