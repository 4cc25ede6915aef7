"""Host data: from what users have to C-contiguous NumPy arrays."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

import numpy as np

from popsr import dtypes
from popsr._support.host.arguments import read_dtype, read_flag, read_scale, require_memory
from popsr._support.host.carriers import CARRIERS, FLOAT4, decode_carrier, encode_carrier, unpack
from popsr._support.host.dlpack import read_dlpack
from popsr._support.host.float8 import FLOAT8, encode, float8_of, has_values
from popsr._support.host.float_environment import in_default_environment
from popsr._support.host.interface import interface_bits, is_plain_dlpack
from popsr._support.host.tables import table_to_string
from popsr._support.lazy import names_only
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown, type_name
from popsr._support.text.suggestions import unknown_attribute
from popsr.errors import (
    ArgumentTypeError,
    AttributeValueError,
    DTypeError,
    OutOfMemoryError,
    ShapeError,
    StateError,
)

__all__ = [
    "HW_DEVICE_CONNECTION_TIMEOUT",
    "HostScalarTensor",
    "downcast_np_dtypes",
    "table_to_string",
    "to_numpy",
    "torch_imported",
]

HW_DEVICE_CONNECTION_TIMEOUT = 10_000
"""PopXL's patience with hardware, in milliseconds; the simulator is always there."""

torch_imported: bool
"""True if torch's tensors can be handed over. Looked up at first use: popsr does not import torch."""

Array = np.ndarray[Any, Any]
HostScalarTensor = Any
"""Numbers, nested sequences, NumPy arrays and torch tensors."""

_NARROWER = {"int64": "int32", "uint64": "uint32", "float64": "float32"}

downcast_np_dtypes: dict[np.dtype[Any], np.dtype[Any]] = {
    np.dtype(wide): np.dtype(narrow) for wide, narrow in _NARROWER.items()
}
"""Result types of ``downcast`` for 64-bit types."""


def __getattr__(name: str) -> object:
    """``torch_imported``."""
    if name == "torch_imported":
        return importlib.util.find_spec("torch") is not None
    return unknown_attribute(__name__, __all__)(name)


@public
def to_numpy(
    x: HostScalarTensor,
    dtype: dtypes.dtype | None = None,
    downcast: bool = True,
    copy: bool = True,
    log2_scale: int | None = None,
    nan_on_overflow: bool | None = None,
) -> Array:
    """A C-contiguous array of the data.

    Args:
        x: numbers, nested sequences, arrays or torch tensors.
        dtype: type of the result, by NumPy's cast (truncates, wraps); float8 takes floats, rounded to nearest, or
            float8 data, kept as it is; carriers take float32 and numbers, float32 takes carriers. Default: inferred.
        downcast: without ``dtype``, narrow 64-bit types to 32 bits; integers must fit.
        copy: never share memory with ``x``.
        log2_scale: of floats that become float8: they are multiplied by ``2**log2_scale``. Default: 0.
        nan_on_overflow: of floats that become float8: what is too large becomes NaN, or infinite where the type has
            infinity (default); else the largest float8.
    Returns:
        The data, float8 as structured array; a memory-mapped array itself, which is never converted.
    Raises:
        TypeError: the data is not numeric, or complex, or not to be had as float8.
        RuntimeError: ``log2_scale`` or ``nan_on_overflow`` for another type than float8.
        ValueError: a memory-mapped array would have to be converted, or an integer that is narrowed does not fit.
    """
    if is_mapped(x):
        return mapped_data(x, dtype, downcast)
    return host_data("to_numpy", x, dtype, downcast, copy, log2_scale, nan_on_overflow)


@in_default_environment
def host_data(
    where: str,
    x: HostScalarTensor,
    dtype: dtypes.dtype | None = None,
    downcast: bool = True,
    copy: bool = True,
    log2_scale: int | None = None,
    nan_on_overflow: bool | None = None,
) -> Array:
    """``to_numpy`` for the caller named ``where`` in messages."""
    array = as_array(where, x, dtype)
    own = dtypes.dtype._of_numpy(array.dtype)
    target = own if dtype is None else read_dtype(where, dtype)
    downcast = downcast is True or read_flag(f"{where}: downcast", downcast)
    if dtype is None and downcast and own is not None and own.name in _NARROWER:
        target = dtypes.dtype._all[_NARROWER[own.name]]
        check_range(where, array, target, ", or downcast=False")
    if (log2_scale is not None or nan_on_overflow is not None) and target not in FLOAT8:
        raise StateError(
            f"{where}: log2_scale and nan_on_overflow are for float8 types only, got {shown(log2_scale)} and "
            f"{shown(nan_on_overflow)}, expected None"
        )
    if target is None or own is None or own.is_complex:
        raise DTypeError(
            f"{where}: data of no supported dtype, got {array.dtype} from {type(x).__name__}, "
            f"expected one of {', '.join(dtypes.dtype._all)}"
        )
    if target in CARRIERS or own in CARRIERS:
        return _carrier_data(where, array, own, target, copy, untyped=not hasattr(x, "dtype"))
    if target in FLOAT8:
        return _float8_data(where, array, target, copy, log2_scale, nan_on_overflow)
    if own in FLOAT8:
        raise DTypeError(
            f"{where}: float8 data has no plain conversion, got {own.name}, expected it as it is or "
            f"fp8_utils.host_pow2scale_cast_from_fp8"
        )
    numpy_type = target.as_numpy()  # in the machine's byte order
    if copy or array.dtype != numpy_type or not array.flags.c_contiguous:
        require_memory(where, array.size * numpy_type.itemsize)
        with np.errstate(invalid="ignore", over="ignore"):  # the cast truncates and wraps
            return np.array(array, dtype=numpy_type, order="C", copy=True)
    return array


def check_range(where: str, array: Array, target: dtypes.dtype, hint: str = "") -> None:
    """Check that integers are numbers of a narrower type of integers.

    Args:
        where: the call, for messages.
        array: the data.
        target: the type that it is converted to.
        hint: what else to do about it, for messages.
    Raises:
        AttributeValueError: a number is not one of that type.
    """
    if array.dtype.kind not in "iu" or not target.is_int or array.size == 0:
        return
    limits = np.iinfo(target.as_numpy())
    distinct = array[
        tuple(slice(1 if stride == 0 else None) for stride in array.strides)
    ]  # of broadcast axes one
    for value in (distinct.min(), distinct.max()):
        if not limits.min <= int(value) <= limits.max:
            raise AttributeValueError(
                f"{where}: a number does not fit into {target.name}, got {value} of {array.dtype}, expected "
                f"{limits.min} to {limits.max}{hint}"
            )


def _float8_data(
    where: str,
    array: Array,
    target: dtypes.dtype,
    copy: bool,
    log2_scale: int | None,
    nan_on_overflow: bool | None,
) -> Array:
    """Float8 data as it is, whatever the scale, and wider floats converted."""
    require_memory(where, 8 * array.size)
    if float8_of(array) is target:
        bits = np.array(array, order="C", copy=True) if copy else np.ascontiguousarray(array)
        return bits.reshape(array.shape).view(target.as_numpy())
    if not has_values(array):
        raise DTypeError(
            f"{where}: {target.name} of other data than floats, got {array.dtype}, expected float16, bfloat16, "
            f"float32, float64 or {target.name}"
        )
    scale = 0 if log2_scale is None else read_scale(where, log2_scale)
    return encode(
        array,
        target,
        scale,
        nan_on_overflow is None or read_flag(f"{where}: nan_on_overflow", nan_on_overflow),
    )


def _carrier_data(
    where: str, array: Array, own: dtypes.dtype, target: dtypes.dtype, copy: bool, *, untyped: bool
) -> Array:
    """Carriers as they are, or from and to float32; numbers of Python are read as float32."""
    if own is target:
        return np.array(array, order="C", copy=True) if copy or not array.flags.c_contiguous else array
    if untyped and own not in CARRIERS and own.name != "bool":
        array, own = array.astype(np.float32), dtypes.float32
    if dtypes.float32 not in (own, target):
        carrier = own if own in CARRIERS else target
        raise DTypeError(
            f"{where}: {carrier.name} is cast to and from float32 alone, got {own.name} as {target.name}, expected "
            f"float32 or {carrier.name}"
        )
    return np.ascontiguousarray(decode_carrier(array) if own in CARRIERS else encode_carrier(array, target))


def is_mapped(x: object) -> bool:
    """True for an array in a file. Results of operations on such arrays are in memory."""
    return isinstance(x, np.memmap) and getattr(x, "_mmap", None) is not None


def mapped_data(x: Array, dtype: dtypes.dtype | None, downcast: bool) -> Array:
    """A memory-mapped array, which is shared and so must not need a conversion.

    Raises:
        ValueError: it does.
    """
    what = "When passing a memory-mapped NumPy array"
    kind = dtypes.dtype._of_numpy(x.dtype)
    if kind is None or kind.is_complex or x.dtype != kind.as_numpy():
        raise AttributeValueError(
            f"{what}, its dtype has to be one of popsr in the machine's byte order, got {x.dtype.str}, "
            f"expected one of {', '.join(dtypes.dtype._all)}"
        )
    if dtype is not None and read_dtype("variable", dtype) is not kind:
        raise AttributeValueError(
            f"{what}, dtype must be None or the array's, got {shown(dtype)}, expected {shown(kind)}"
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


def as_array(where: str, x: Any, told: dtypes.dtype | None = None) -> Array:
    """Host data as an array of its own type.

    Args:
        where: the call, for messages.
        x: the data.
        told: the type of an object whose ``__array_interface__`` has no name for it, and of 8-bit floats in a
            memoryview of bytes.
    """
    if isinstance(x, np.ndarray):
        return x
    if type(x).__module__.startswith("popsr.") and hasattr(x, "shape"):
        raise ArgumentTypeError(
            f"{where}: a tensor of a program has no data, got {shown(x)}, expected host data"
        )
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor):
        return _from_torch(torch, x)
    if is_plain_dlpack(x):
        return read_dlpack(where, "data", x)
    bits = None if told is None else interface_bits(x)
    if isinstance(x, memoryview) and x.format == "B" and (told in FLOAT8 or told in CARRIERS):
        bits = np.asarray(x)
    if told is not None and bits is not None and bits.itemsize == told.as_numpy().itemsize:
        return bits.view(told.as_numpy())
    if isinstance(x, range):
        require_memory(where, 8 * _length(x))
        return np.arange(x.start, x.stop, x.step)
    try:
        return np.asarray(x)
    except MemoryError as error:
        raise OutOfMemoryError(
            f"{where}: data does not fit into memory, got {type_name(x)}: {error}"
        ) from None
    except ValueError as error:
        raise ShapeError(f"{where}: not an array, got {type_name(x)}: {error}") from None
    except Exception as error:  # also of its own __array__ or __len__, and of lists in lists without end
        raise ArgumentTypeError(f"{where}: not an array, got {type_name(x)}: {error}") from None


def _length(x: range) -> int:
    """``len`` of a range of any length."""
    return max(0, (x.stop - x.start + x.step - (1 if x.step > 0 else -1)) // x.step)


TORCH_BITS = {
    f"torch.{kind.as_ml_dtypes().name}": name for name, kind in dtypes.dtype._all.items() if kind._is_foreign
}
"""Types of torch that NumPy itself does not have, and popsr's names of them."""


TORCH_PAIRS = f"torch.{FLOAT4.name}_x2"
"""torch's 4-bit floats, two an element."""


def _from_torch(torch: Any, x: Any) -> Array:
    x = x.detach().cpu()
    if str(x.dtype) == TORCH_PAIRS:
        pairs: Array = x.contiguous().view(torch.uint8).numpy()
        return unpack(pairs, (*pairs.shape[:-1], 2 * pairs.shape[-1]) if pairs.ndim else (2,))
    kind = dtypes.dtype._named.get(TORCH_BITS.get(str(x.dtype), ""))
    if kind is not None:  # NumPy does not know it: its bits
        bits = torch.int16 if kind is dtypes.bfloat16 else torch.int8
        array: Array = x.contiguous().view(bits).numpy()
        return array.view(kind.as_numpy())
    plain: Array = x.numpy()
    return plain


__dir__ = names_only(__all__)
