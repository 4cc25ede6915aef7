"""Element types and tensor descriptions by PopART's names."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from popsr import dtypes
from popsr._support.host.arguments import read_index, read_shape
from popsr._support.host.choices import Choices
from popsr._support.text.nearest import nearest
from popsr._support.text.shown import shown
from popsr.errors import DTypeError

__all__ = ["DataType", "TensorInfo"]


class DataType(Choices):
    """Element types. ``STRING`` and ``UNDEFINED`` are names only: no tensor has them."""

    UINT8 = 0
    INT8 = 1
    UINT16 = 2
    INT16 = 3
    INT32 = 4
    INT64 = 5
    UINT32 = 6
    UINT64 = 7
    BOOL = 8
    FLOAT = 9
    FLOAT16 = 10
    BFLOAT16 = 11
    DOUBLE = 12
    COMPLEX64 = 13
    COMPLEX128 = 14
    STRING = 15
    FLOAT8_143 = 16
    FLOAT8_152 = 17
    UNDEFINED = 18

    @classmethod
    def of(cls, dtype: dtypes.dtype) -> DataType:
        """The member for a dtype of popsr.

        Raises:
            DTypeError: PopART has no such type (the OCP float8 types).
        """
        name = _NAMES.get(dtype.name, dtype.name.upper())
        if name not in cls.__members__:
            raise DTypeError(
                f"DataType: PopART does not have this type, got {dtype.name}, expected a type of PopART"
            )
        return cls[name]

    @property
    def dtype(self) -> dtypes.dtype:
        """The dtype of popsr.

        Raises:
            DTypeError: STRING and UNDEFINED have none.
        """
        name = _DTYPES.get(self.name, self.name.lower())
        if self in (DataType.STRING, DataType.UNDEFINED):
            raise DTypeError(
                f"DataType: no tensor has it, got {self.name}, expected a type of numbers or BOOL"
            )
        return dtypes.dtype.from_name(name)


# PopART's names that are not the dtype's in capitals.
_DTYPES = {"FLOAT": "float32", "DOUBLE": "float64"}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


def read_data_type(where: str, value: Any) -> DataType:
    """A DataType, or what stands for one: PopART's name in any case, a dtype of popsr or NumPy.

    Raises:
        DTypeError: it stands for none.
    """
    if isinstance(value, DataType):
        return value
    if isinstance(value, str) and value.upper() in DataType.__members__:
        return DataType[value.upper()]
    try:
        dtype = dtypes.dtype.as_dtype(value)
    except (ValueError, TypeError):
        close = nearest(value, DataType.__members__) if isinstance(value, str) else ""
        expected = close or "a DataType, its name, or a dtype"
        raise DTypeError(f"{where}: unknown data type, got {shown(value)}, expected {expected}") from None
    return DataType.of(dtype)


class TensorInfo:
    """Element type and shape of a tensor. Compares by both.

    Args:
        dtype: a DataType, its name ("FLOAT", "FLOAT16", …) or a dtype; or a NumPy array that has both.
        shape: the shape.
    """

    __slots__ = ("_data_type", "_shape")

    def __init__(self, dtype: Any, shape: Sequence[int] | None = None) -> None:
        """A description.

        Raises:
            DTypeError: the element type is unknown.
            ShapeError: the shape cannot be.
        """
        if shape is None and isinstance(dtype, np.ndarray):
            dtype, shape = dtype.dtype, dtype.shape
        self._data_type = read_data_type("TensorInfo", dtype)
        self._shape = read_shape("TensorInfo", shape)

    def shape(self) -> list[int]:
        """The shape."""
        return list(self._shape)

    def dataType(self) -> DataType:  # noqa: N802
        """The element type."""
        return self._data_type

    def data_type(self) -> str:
        """Name of the element type: "FLOAT"."""
        return self._data_type.name

    def data_type_lcase(self) -> str:
        """Name of the element type as NumPy spells it: "float32"."""
        return _DTYPES.get(self._data_type.name, self._data_type.name.lower())

    def rank(self) -> int:
        """Number of dimensions."""
        return len(self._shape)

    def nelms(self) -> int:
        """Number of elements."""
        return math.prod(self._shape)

    def nbytes(self) -> int:
        """Size of the data.

        Raises:
            DTypeError: the type is STRING or UNDEFINED.
        """
        return self.nelms() * self._data_type.dtype.as_numpy().itemsize

    def dim(self, i: int) -> int:
        """Extent of dimension ``i``.

        Raises:
            OutOfRangeError: there is no such dimension.
        """
        return self._shape[read_index("TensorInfo.dim: i", i, len(self._shape))]

    def set(self, dtype: Any, shape: Sequence[int]) -> None:
        """Describe another tensor.

        Raises:
            DTypeError, ShapeError: as the constructor; then nothing changes.
        """
        data_type = read_data_type("TensorInfo.set", dtype)
        self._shape = read_shape("TensorInfo.set", shape)
        self._data_type = data_type

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TensorInfo):
            return NotImplemented
        return (self._data_type, self._shape) == (other._data_type, other._shape)

    def __hash__(self) -> int:
        return hash((self._data_type, self._shape))

    def __repr__(self) -> str:
        return f"TensorInfo({self._data_type.name}, {list(self._shape)})"
