"""Element types of ONNX, and arrays of its tensors."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from popsr import dtypes
from popsr.bridge.onnx._rules import NotSupportedError
from popsr.io._onnx.format import ONNX_TYPES, require_onnx

__all__ = [
    "Array",
    "array_of",
    "code_named",
    "code_of",
    "dtype_of",
    "element_code",
    "numpy_type",
    "type_text",
]

Array = NDArray[Any]

_HAS_NO_TENSORS = ("FLOAT8E4M3FNUZ", "FLOAT8E5M2FNUZ")  # types of checkpoints that no op computes with


@functools.cache
def _names() -> dict[int, str]:
    onnx = require_onnx("bridge.onnx")
    return {code: name for name, code in onnx.TensorProto.DataType.items()}


@functools.cache
def dtype_of(code: int) -> dtypes.dtype:
    """The element type of tensors for a number of ``TensorProto.DataType``.

    Raises:
        NotSupportedError: tensors cannot have it, such as strings and integers of 4 bits.
    """
    name = _names().get(code, f"number {code}")
    if name not in ONNX_TYPES or name in _HAS_NO_TENSORS:
        raise NotSupportedError(f"element type {name.lower()}")
    return dtypes.dtype.as_dtype(ONNX_TYPES[name])


def code_named(name: str) -> int:
    """The number of ``TensorProto.DataType`` that has this name."""
    for code, known in _names().items():
        if known == name.upper():
            return code
    raise NotSupportedError(f"element type {name.lower()}")


@functools.cache
def numpy_type(code: int) -> np.dtype[Any]:
    """NumPy's type for a number of ``TensorProto.DataType``."""
    return dtype_of(code).as_numpy()


@functools.cache
def code_of(dtype: dtypes.dtype) -> int:
    """The number of ``TensorProto.DataType`` for an element type."""
    onnx = require_onnx("bridge.onnx")
    for name, kind in ONNX_TYPES.items():
        if name not in _HAS_NO_TENSORS and dtypes.dtype.as_dtype(kind) == dtype:
            return int(getattr(onnx.TensorProto, name))
    raise NotSupportedError(f"element type {dtype.name}")


@functools.cache
def element_code(kind: dtypes.dtype | np.dtype[Any]) -> int:
    """The number of ``TensorProto.DataType`` for an element type of a tensor or an array."""
    return code_of(dtypes.dtype.as_dtype(kind))


@functools.cache
def type_text(code: int) -> str:
    """An element type as ONNX's schemas write it."""
    return _names().get(code, f"number {code}").lower()


def array_of(tensor: Any) -> Array:
    """The elements of a ``TensorProto`` that holds its data.

    Raises:
        NotSupportedError: it has an element type that tensors cannot have, or its data is in another file.
        ValueError: its data does not fit its shape.
    """
    onnx = require_onnx("bridge.onnx")
    kind = numpy_type(tensor.data_type)
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        raise NotSupportedError("data in another file, of a model that was not given as a path")
    if any(extent < 0 for extent in tensor.dims):
        raise ValueError(f"shape {list(tensor.dims)}")
    return np.asarray(onnx.numpy_helper.to_array(tensor)).astype(kind, copy=False)
