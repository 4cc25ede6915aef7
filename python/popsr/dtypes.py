"""Element types, under PopXL's names.

This module defines ``bool`` and ``float``: import the module, not its names.
"""

from __future__ import annotations

import builtins
from typing import Any, ClassVar

import ml_dtypes
import numpy as np

from popsr.errors import ArgumentTypeError, AttributeValueError, DTypeError

__all__ = [
    "bfloat16",
    "bool",
    "double",
    "dtype",
    "float",
    "float16",
    "float32",
    "float64",
    "half",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
]


class dtype:  # noqa: N801 - PopXL's spelling
    """An element type. Not constructible: use the instances of this module."""

    __slots__ = ("_is_floating_point", "_is_int", "_is_signed", "_name", "_numpy")

    _all: ClassVar[dict[str, dtype]] = {}

    _name: str
    _numpy: np.dtype[Any]
    _is_int: builtins.bool
    _is_floating_point: builtins.bool
    _is_signed: builtins.bool

    def __init__(self) -> None:
        raise ArgumentTypeError(
            "dtype: cannot be constructed, use the instances of popsr.dtypes or dtype.as_dtype()"
        )

    @classmethod
    def _make(cls, numpy_type: Any) -> dtype:
        self = cls.__new__(cls)
        self._numpy = np.dtype(numpy_type)
        self._name = self._numpy.name
        self._is_int = self._numpy.kind in "iu"
        self._is_floating_point = self._numpy.kind == "f" or self._name == "bfloat16"
        self._is_signed = self._numpy.kind == "i" or self._is_floating_point
        cls._all[self._name] = self
        return self

    @property
    def name(self) -> str:
        """Name, as PopXL and NumPy spell it."""
        return self._name

    @property
    def is_complex(self) -> builtins.bool:
        """False: there are no complex types."""
        return False

    @property
    def is_int(self) -> builtins.bool:
        """True for signed and unsigned integers."""
        return self._is_int

    @property
    def is_floating_point(self) -> builtins.bool:
        """True for floats of any width."""
        return self._is_floating_point

    @property
    def is_signed(self) -> builtins.bool:
        """True for signed integers and floats."""
        return self._is_signed

    @classmethod
    def from_name(cls, name: str) -> dtype:
        """The type of that name.

        Raises:
            ValueError: there is none.
        """
        found = cls._all.get(_ALIASES.get(str(name), str(name)))
        if found is None:
            raise AttributeValueError(
                f"from_name: unknown dtype, got {name!r}, expected one of {', '.join(cls._all)}"
            )
        return found

    @classmethod
    def as_dtype(cls, type_value: Any) -> dtype:
        """The type that a name, a Python, NumPy or torch type, or an object with a ``dtype`` stands for.

        Raises:
            ValueError: it stands for no type of popsr.
        """
        if isinstance(type_value, dtype):
            return type_value
        if isinstance(type_value, str):
            return cls.from_name(type_value)
        if type(type_value).__module__ == "torch" and type(type_value).__name__ == "dtype":
            return cls.from_name(str(type_value).removeprefix("torch."))
        if not isinstance(type_value, (type, np.dtype)) and hasattr(type_value, "dtype"):
            return cls.as_dtype(type_value.dtype)
        try:
            name = np.dtype(type_value).name
        except TypeError:
            name = repr(type_value)
        if type_value is None or name not in cls._all:
            raise AttributeValueError(
                f"as_dtype: no such dtype, got {type_value!r}, expected one of {', '.join(cls._all)}"
            )
        return cls._all[name]

    def as_numpy(self) -> np.dtype[Any]:
        """The NumPy type (bfloat16: that of ml_dtypes)."""
        return self._numpy

    def as_torch(self) -> Any:
        """The torch type; imports torch.

        Raises:
            TypeError: torch has none.
        """
        import torch

        found = getattr(torch, self._name, None)
        if found is None:
            raise DTypeError(f"as_torch: torch has no such dtype, got {self!r}")
        return found

    def __repr__(self) -> str:
        return f"popsr.dtypes.{self._name}"

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return (dtype.from_name, (self._name,))


_ALIASES = {"half": "float16", "float": "float32", "double": "float64", "bool_": "bool"}

bool = dtype._make(np.bool_)
int8 = dtype._make(np.int8)
int16 = dtype._make(np.int16)
int32 = dtype._make(np.int32)
int64 = dtype._make(np.int64)
uint8 = dtype._make(np.uint8)
uint16 = dtype._make(np.uint16)
uint32 = dtype._make(np.uint32)
uint64 = dtype._make(np.uint64)
float16 = dtype._make(np.float16)
bfloat16 = dtype._make(ml_dtypes.bfloat16)
float32 = dtype._make(np.float32)
float64 = dtype._make(np.float64)
half = float16
float = float32
double = float64
