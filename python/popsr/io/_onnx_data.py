"""Where the data of an initializer is: as bytes, as numbers, or in another file."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from popsr._host_rows import Array
from popsr._shown import shown
from popsr.io._checkpoint import bytes_of
from popsr.io._external import ExternalData, Place
from popsr.io._files import OpenFile
from popsr.io._wire import Field

__all__ = ["data_of"]

_NUMBER_FIELDS = ("float_data", "int32_data", "string_data", "int64_data", "double_data", "uint64_data")
_FIELD_OF = {
    "float32": "float_data",
    "float64": "double_data",
    "int64": "int64_data",
    "uint32": "uint64_data",
    "uint64": "uint64_data",
}
"""The field of numbers of a dtype; int32_data for all others."""


def data_of(
    file: OpenFile,
    onnx: Any,
    message: Any,
    shape: tuple[int, ...],
    dtype: np.dtype[Any] | None,
    raws: list[Field],
    external: ExternalData,
) -> Callable[[Array], None]:
    """What fills an array with the data of a tensor.

    Args:
        file: the model.
        onnx: the onnx package.
        message: the TensorProto without ``raw_data``.
        shape: its shape, checked.
        dtype: its NumPy type; None when there is none, then it is never filled.
        raws: fields ``raw_data`` of the tensor.
        external: where the place of data in other files is noted.
    Raises:
        CheckpointError: there is no data, or more than one kind of it, or its size is wrong.
    """
    name, count = message.name, math.prod(shape)
    numbers = [field for field in _NUMBER_FIELDS if len(getattr(message, field))]
    is_external = message.data_location == onnx.TensorProto.EXTERNAL
    if message.HasField("segment") or len(raws) + len(numbers) + is_external > 1:
        raise file.bad(f"has more than one piece of data for {shown(name)}, expected one")
    if dtype is None:
        return _nothing
    nbytes = count * dtype.itemsize
    if is_external:
        external.add(name, _place(file, message, nbytes))
        return lambda array: external.fill(name, array)
    if raws:
        start, length = raws[0].body, raws[0].end - raws[0].body
        if length != nbytes:
            raise file.bad(
                f"has data of the wrong size for {shown(name)}, got {length} bytes, expected {nbytes}"
            )
        return lambda array: file.read_into(start, bytes_of(array))
    values = _numbers_of(file, message, numbers, dtype, count)
    return lambda array: _fill_numbers(file, name, values, array)


def _nothing(_: Array) -> None:
    """Without a dtype there is no array to fill."""


def _numbers_of(file: OpenFile, message: Any, given: list[str], dtype: np.dtype[Any], count: int) -> Any:
    """The field of numbers, which is the dtype's and has a number per element."""
    expected = _FIELD_OF.get(dtype.name, "int32_data")
    found = given[0] if given else expected
    values = getattr(message, found)
    if found != expected or len(values) != count:
        raise file.bad(
            f"has data of the wrong size for {shown(message.name)}, got {len(values)} of {found}, "
            f"expected {count} of {expected}"
        )
    return values


def _fill_numbers(file: OpenFile, name: str, values: Any, array: Array) -> None:
    if array.dtype.name in _FIELD_OF:
        kind = np.uint64 if array.dtype.name == "uint32" else array.dtype
        given = np.fromiter(values, kind, len(values))
        target = array.reshape(-1)
    else:
        given = np.fromiter(values, np.int32, len(values))
        # Floats of up to 16 bits come as their bits.
        is_int = array.dtype.kind in "iu"
        target = array.reshape(-1).view(array.dtype if is_int else f"u{array.dtype.itemsize}")
    narrow = given.astype(target.dtype)
    if target.dtype.kind in "iu" and not np.array_equal(narrow, given):
        raise file.bad(f"has a number out of range for {shown(name)}, expected {array.dtype.name}")
    target[...] = narrow


def _place(file: OpenFile, message: Any, nbytes: int) -> Place:
    entries: dict[str, str] = {}
    for entry in message.external_data:
        if entry.key in entries or not isinstance(entry.value, str):
            raise file.bad(
                f"has a wrong entry of external data for {shown(message.name)}, got {shown(entry.key[:40])}"
            )
        entries[entry.key] = entry.value
    offset = file.number("offset", entries.get("offset", "0"), 0, 2**63 - 1)
    length = file.number("length", entries.get("length", str(nbytes)), 0, 2**63 - 1)
    if length != nbytes:
        raise file.bad(
            f"has data of the wrong size for {shown(message.name)}, got {length} bytes, expected {nbytes}"
        )
    return Place(entries.get("location", ""), offset, nbytes, entries.get("checksum"))
