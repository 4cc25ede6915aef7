"""DLPack capsules made by hand, from the public specification, with ctypes: what a producer may hand over."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from tests_py.support.helpers import Array

__all__ = ["Producer", "Unversioned", "Versioned", "facts", "used"]


class Tensor(ctypes.Structure):
    """DLTensor."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_Deleter = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)


class Unversioned(ctypes.Structure):
    """DLManagedTensor."""

    _fields_ = (("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", _Deleter))
    NAME = b"dltensor"


class Versioned(ctypes.Structure):
    """DLManagedTensorVersioned."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", _Deleter),
        ("flags", ctypes.c_uint64),
        ("tensor", Tensor),
    )
    NAME = b"dltensor_versioned"


_new = ctypes.pythonapi.PyCapsule_New
_new.restype, _new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.c_char_p)
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)


def used(capsule: Any) -> bool:
    """True if the capsule was consumed."""
    return any(_is_valid(capsule, b"used_" + kind.NAME) for kind in (Versioned, Unversioned))


def facts(capsule: Any) -> dict[str, Any]:
    """The contents of a capsule, read apart from popsr."""
    kind: Any = Versioned if _is_valid(capsule, Versioned.NAME) else Unversioned
    managed = kind.from_address(_pointer(capsule, kind.NAME))
    tensor = managed.tensor
    return {
        "version": (managed.major, managed.minor) if kind is Versioned else None,
        "flags": managed.flags if kind is Versioned else None,
        "device": (tensor.device_type, tensor.device_id),
        "dtype": (tensor.code, tensor.bits, tensor.lanes),
        "shape": tuple(tensor.shape[: tensor.ndim]),
        "strides": tuple(tensor.strides[: tensor.ndim]),
        "address": tensor.data + tensor.byte_offset,
    }


class Producer:
    """An object with ``__dlpack__`` on an array of bytes, whose struct says what the test wants.

    Args:
        data: memory; None: a null pointer.
        dtype: code, bits and lanes.
        shape: extents.
        strides: in elements; None: a null pointer.
        offset: bytes.
        versioned: which struct.
        fields: of the struct or its tensor, set at the end.
    """

    def __init__(
        self,
        data: Array | None,
        dtype: tuple[int, int, int],
        shape: Sequence[int],
        strides: Sequence[int] | None = None,
        *,
        offset: int = 0,
        versioned: bool = True,
        **fields: Any,
    ) -> None:
        self.deleted = 0
        self.data = None if data is None else np.ascontiguousarray(data).view(np.uint8)
        kind: Any = Versioned if versioned else Unversioned
        self.managed = kind()
        tensor = self.managed.tensor
        tensor.data = None if self.data is None else self.data.ctypes.data
        tensor.device_type = 1
        tensor.ndim = len(shape)
        tensor.code, tensor.bits, tensor.lanes = dtype
        self._shape = (ctypes.c_int64 * max(len(shape), 1))(*shape)
        if not fields.pop("null_shape", False):
            tensor.shape = ctypes.cast(self._shape, ctypes.POINTER(ctypes.c_int64))
        if strides is not None:
            self._strides = (ctypes.c_int64 * max(len(strides), 1))(*strides)
            tensor.strides = ctypes.cast(self._strides, ctypes.POINTER(ctypes.c_int64))
        tensor.byte_offset = offset
        if versioned:
            self.managed.major, self.managed.minor = 1, 1
        self._deleter = _Deleter(self._delete)
        self.managed.deleter = self._deleter
        for name, value in fields.items():
            setattr(self.managed if name in ("major", "minor", "flags", "deleter") else tensor, name, value)

    def _delete(self, _: int) -> None:
        self.deleted += 1

    def capsule(self) -> Any:
        """A capsule without a destructor: one that is refused must not be freed by its reader."""
        return _new(ctypes.addressof(self.managed), self.managed.NAME, None)

    def __dlpack__(self, **_: Any) -> Any:
        return self.capsule()

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)
