"""PopART's descriptions of tensors and of runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from popsr import dtypes
from popsr._args import read_dtype, read_int, read_mapping, read_shape, read_text
from popsr._choices import Choices
from popsr._shown import shown
from popsr._suggestions import nearest
from popsr.errors import DTypeError

__all__ = ["DataFlow", "DataType", "TensorInfo"]


class DataType(Choices):
    """Element types by PopART's names."""

    FLOAT = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    DOUBLE = "float64"
    FLOAT8_143 = "float8_143"
    FLOAT8_152 = "float8_152"
    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    UINT8 = "uint8"
    UINT16 = "uint16"
    UINT32 = "uint32"
    UINT64 = "uint64"
    BOOL = "bool"


class TensorInfo:
    """Element type and shape of a tensor. Infos compare by these.

    Args:
        dtype: a dtype, a DataType, or its name, as "FLOAT16".
        shape: the shape.
    Raises:
        DTypeError: ``dtype`` stands for none.
        ShapeError: ``shape`` is not a shape.
    """

    __slots__ = ("_dtype", "_shape")

    def __init__(self, dtype: Any, shape: Iterable[int] = ()) -> None:
        """An info."""
        self._dtype = _read_type(dtype)
        self._shape = tuple(read_shape("TensorInfo", shape))

    def shape(self) -> list[int]:
        """The shape."""
        return list(self._shape)

    def dataType(self) -> DataType:  # noqa: N802 - PopART's name
        """The element type."""
        return self._dtype

    def nelms(self) -> int:
        """Number of elements."""
        count = 1
        for extent in self._shape:
            count *= extent
        return count

    def rank(self) -> int:
        """Number of dimensions."""
        return len(self._shape)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorInfo) and (self._dtype, self._shape) == (other._dtype, other._shape)

    def __hash__(self) -> int:
        return hash((self._dtype, self._shape))

    def __repr__(self) -> str:
        return f"TensorInfo({self._dtype.name}, {list(self._shape)})"


def _read_type(value: Any) -> DataType:
    if isinstance(value, DataType):
        return value
    if isinstance(value, str) and value not in dtypes.dtype._all:
        name = read_text("TensorInfo: dtype", value)
        if name not in DataType.__members__:
            expected = nearest(name, DataType.__members__) or f"one of {', '.join(DataType.__members__)}"
            raise DTypeError(f"TensorInfo: no such dtype, got {shown(name)}, expected {expected}")
        return DataType[name]
    return DataType(read_dtype("TensorInfo: dtype", value).name)


class DataFlow:
    """How often streams move in a run, and what is read back: here ``ir.num_host_transfers``.

    Args:
        batches_per_step: how often.
        anchors: what is read back, by tensor.
    Raises:
        ArgumentTypeError: values of other types.
        AttributeValueError: ``batches_per_step`` is less than 1.
    """

    def __init__(self, batches_per_step: int = 1, anchors: Mapping[Any, Any] | None = None) -> None:
        """A description."""
        self._batches = read_int("DataFlow: batchesPerStep", batches_per_step, 1)
        self._anchors = dict(read_mapping("DataFlow", "anchorTensors", anchors))

    def batchesPerStep(self) -> int:  # noqa: N802 - PopART's name
        """How often streams move in a run."""
        return self._batches

    def anchors(self) -> list[Any]:
        """What is read back."""
        return list(self._anchors)
