"""Reading one initializer of an ONNX model: what it says, and where its data is."""

from __future__ import annotations

from typing import Any

import numpy as np

from popsr._support.host.files import shown_name
from popsr.errors import CheckpointError
from popsr.io._budget import Budget
from popsr.io._hashes import HASH_BYTES, HASH_OF_KEY, read_hash
from popsr.io._onnx.external import ExternalData
from popsr.io._onnx.format import ONNX_TYPES, field_names, type_names
from popsr.io._onnx.wire import DELIMITED, VARINT, Cursor, read_varint
from popsr.io._open_file import OpenFile
from popsr.io._settings import NO_SETTINGS, SETTINGS_PLACES, SettingsReader
from popsr.io._stored import StoredTensor

__all__ = ["Entries", "TensorReader", "read_utf8"]

_EXTERNAL_KEYS = ("location", "offset", "length", "checksum", "basepath")  # of which onnx ignores the last
_MAX_EXTERNAL = 1 << 13  # bytes of an entry of external data: a path, mostly
_MAX_DIM = 10  # bytes of a dimension
_MAX_DIMS = 100  # dimensions that are read before the rank is checked
_ENTRY_BYTES = 400  # of an entry that is remembered
_FIELD_OF = {
    "float32": "float_data",
    "float64": "double_data",
    "int64": "int64_data",
    "uint32": "uint64_data",
    "uint64": "uint64_data",
}
"""The field of numbers of a dtype; int32_data for all others."""
_ITEM_BYTES = {"float_data": 4, "double_data": 8}
"""Size of the numbers that are not packed as varints: their field holds the array's bytes."""
_DATA_FIELDS = {"raw_data", "string_data", "int32_data", "int64_data", "uint64_data", *_ITEM_BYTES}


class _Message:
    """The fields of a TensorProto that were read so far."""

    __slots__ = ("code", "data", "dims", "hashes", "is_external", "keys", "name", "places", "settings")

    def __init__(self) -> None:
        self.name: str | None = None
        self.code: int | None = None
        self.is_external: bool | None = None
        self.dims: list[int] = []
        self.data: tuple[str, int, int] | None = None  # field, where it begins, and its length
        self.places: dict[str, str] = {}
        self.settings = NO_SETTINGS
        self.hashes: dict[str, str] = {}
        self.keys: set[str] | None = None  # of other metadata


class TensorReader:
    """Reads the initializers of one model.

    Args:
        onnx: the onnx package.
        file: the model.
        budget: counts what they take.
        entries: reads their metadata.
        settings: understands it.
        external: where the place of data in other files is noted.
        hashes: where those of tensors are noted.
    """

    def __init__(
        self,
        onnx: Any,
        file: OpenFile,
        budget: Budget,
        entries: Entries,
        settings: SettingsReader,
        external: ExternalData,
        hashes: dict[str, dict[str, str]],
    ) -> None:
        self._file, self._budget, self._entries, self._hashes = file, budget, entries, hashes
        self._settings, self._external = settings, external
        self._fields = field_names(onnx.TensorProto)
        self._types = type_names(onnx)
        self._is_external = onnx.TensorProto.EXTERNAL

    def read(self, cursor: Cursor, end: int) -> StoredTensor:
        """The tensor whose message ends at ``end``.

        Raises:
            CheckpointError: it contradicts itself or exceeds a limit.
        """
        message = _Message()
        for number, kind, value in cursor.fields(end):
            field = self._fields.get(number)
            if field == "dims":
                self._add_dims(message, cursor, kind, value)
            elif field in _DATA_FIELDS:
                self._add_data(message, cursor, field, kind, value)
            elif field == "metadata_props":
                self._add_entry(message, cursor, kind, value)
            elif field is not None:
                self._add_other(message, cursor, field, kind, value)
        return self._tensor(message)

    def _add_dims(self, message: _Message, cursor: Cursor, kind: int, value: int) -> None:
        if kind == VARINT:
            message.dims.append(value)
        elif kind == DELIMITED and value <= self._budget.RANK * _MAX_DIM:
            data, at = cursor.take(value), 0
            try:
                while at < len(data):
                    dim, at = read_varint(data, at)
                    message.dims.append(dim)
            except IndexError:
                raise self._bad_field("dims") from None
        else:
            raise self._bad_field("dims")
        if len(message.dims) > _MAX_DIMS:
            raise self._file.bad(f"has a tensor of absurd size, got a rank of {len(message.dims)} or more")

    def _add_data(self, message: _Message, cursor: Cursor, field: str, kind: int, length: int) -> None:
        if kind != DELIMITED:
            raise self._bad_field(field)  # numbers one by one: no writer does it
        if length == 0 and field != "raw_data":
            return
        if message.data is not None and not field == message.data[0] == "string_data":
            raise self._bad_pieces(message)
        message.data = field, cursor.at, length

    def _add_entry(self, message: _Message, cursor: Cursor, kind: int, length: int) -> None:
        key, value = self._entries.read(cursor, kind, length)
        place = SETTINGS_PLACES.get(key)
        if place is not None:
            if message.settings[place] is not None:
                raise self._entries.twice(key)
            message.settings = (*message.settings[:place], value, *message.settings[place + 1 :])
            return
        if key in HASH_OF_KEY:
            name, digits = read_hash(self._file, key, value)
            if name in message.hashes:
                raise self._entries.twice(key)
            message.hashes[name] = digits
            return
        if message.keys is None:
            message.keys = set()
        if key in message.keys:
            raise self._entries.twice(key)
        message.keys.add(key)

    def _add_other(self, message: _Message, cursor: Cursor, field: str, kind: int, value: int) -> None:
        if field == "name" and kind == DELIMITED and message.name is None:
            if value > self._budget.NAME:
                raise self._file.bad(
                    f"has a tensor whose name is too long, got {value} bytes, expected at most {self._budget.NAME}"
                )
            message.name = read_utf8(self._file, cursor.take(value))
        elif field == "data_type" and kind == VARINT and message.code is None:
            message.code = value
        elif field == "data_location" and kind == VARINT and message.is_external is None:
            message.is_external = value == self._is_external
        elif field == "external_data" and kind == DELIMITED:
            self._add_place(message, cursor, value)
        elif field == "segment":
            raise self._bad_pieces(message)
        elif field != "doc_string":
            raise self._bad_field(field)

    def _add_place(self, message: _Message, cursor: Cursor, length: int) -> None:
        key, value = "", ""
        if length <= _MAX_EXTERNAL:
            key, value = self._entries.parse(cursor.take(length))
        if key not in _EXTERNAL_KEYS or key in message.places:
            raise self._file.bad(
                f"has a wrong entry of external data for {shown_name(message.name or '')}, got "
                f"{shown_name(key, 40)}, expected "
                f"each of {', '.join(_EXTERNAL_KEYS)} at most once"
            )
        message.places[key] = value

    def _tensor(self, message: _Message) -> StoredTensor:
        name = message.name
        if not name:
            raise self._file.bad("has a tensor without a name")
        dims = message.dims
        signed = (dim - (1 << 64) if dim >> 63 else dim for dim in dims)
        shape = self._budget.add_tensor(name, signed)
        settings = self._settings.read(name, shape, message.settings)
        if message.hashes:
            self._hashes[name] = message.hashes
        type_name = self._types.get(message.code or 0, f"data_type {message.code}")
        dtype = ONNX_TYPES.get(type_name)
        if message.is_external and message.data is not None:
            raise self._bad_pieces(message)
        if dtype is None:
            return StoredTensor(name, type_name, None, shape, settings, 0, 0)
        tensor = StoredTensor(name, type_name, dtype, shape, settings, 0, 0)
        if message.is_external:
            return self._external_tensor(message, tensor._replace(length=tensor.nbytes))
        begin, length, are_varints = self._data(message, dtype, tensor.nbytes)
        return StoredTensor(name, type_name, dtype, shape, settings, begin, length, are_varints)

    def _data(self, message: _Message, dtype: np.dtype[Any], nbytes: int) -> tuple[int, int, bool]:
        """Begin and length of the data in the model, and True if it is varints."""
        field, begin, length = message.data or (None, 0, 0)
        if field == "raw_data":
            if length != nbytes:
                raise self._bad_size(message, f"{length} bytes", str(nbytes))
            return begin, length, False
        expected, count = _FIELD_OF.get(dtype.name, "int32_data"), nbytes // dtype.itemsize
        if field is None:
            field, length = expected, 0
        if field != expected:
            raise self._bad_size(message, f"{length} bytes of {field}", f"{count} of {expected}")
        item = _ITEM_BYTES.get(field)
        if item is not None:
            if length != count * item:
                raise self._bad_size(message, f"{length / item:g} of {field}", f"{count} of {expected}")
            return begin, length, False
        if length < count:  # a number has a byte at least
            raise self._bad_size(message, f"at most {length} of {field}", f"{count} of {expected}")
        return begin, length, True

    def _external_tensor(self, message: _Message, tensor: StoredTensor) -> StoredTensor:
        places, file = message.places, self._file
        offset = file.number("offset", places.get("offset", "0"), 0, 2**63 - 1)
        length = file.number("length", places.get("length", str(tensor.length)), 0, 2**63 - 1)
        if length != tensor.length:
            raise self._bad_size(message, f"{length} bytes", str(tensor.length))
        location = self._external.location(places.get("location", ""), self._budget)
        tensor = tensor._replace(begin=offset, location=location)
        self._external.add(tensor, places.get("checksum"))
        return tensor

    def _bad_field(self, field: str) -> CheckpointError:
        return self._file.bad(f"is not an ONNX model or damaged, got field {field} twice or of a wrong type")

    def _bad_pieces(self, message: _Message) -> CheckpointError:
        return self._file.bad(
            f"has more than one piece of data for {shown_name(message.name or '')}, expected one"
        )

    def _bad_size(self, message: _Message, got: str, expected: str) -> CheckpointError:
        return self._file.bad(
            f"has data of the wrong size for {shown_name(message.name or '')}, got {got}, expected {expected}"
        )


class Entries:
    """Reads entries of ``metadata_props``; many tensors have equal settings, so these entries are remembered."""

    def __init__(self, file: OpenFile, budget: Budget) -> None:
        self._file, self._budget = file, budget
        self._known: dict[bytes, tuple[str, str]] = {}

    def read(self, cursor: Cursor, kind: int, length: int) -> tuple[str, str]:
        """Key and value of the entry with that length."""
        if kind != DELIMITED:
            raise self._bad()
        if length > self._budget.METADATA:
            self._budget.take_metadata(length)
        data = cursor.take(length)
        entry = self._known.get(data)
        if entry is None:
            key, value = entry = self.parse(data)
            if key in HASH_OF_KEY:  # each tensor has its own, so they do not count as texts do
                self._budget.take_memory(HASH_BYTES)
            elif key in SETTINGS_PLACES:
                entry = key, self._budget.add_text(value)
                self._budget.take_memory(_ENTRY_BYTES)
                self._known[data] = entry
            else:
                self._budget.add_entry(key, value)
        return entry

    def parse(self, data: bytes) -> tuple[str, str]:
        """Key and value of the message."""
        at, found = 0, {0x0A: b"", 0x12: b""}  # the tags of the two fields
        unread = set(found)
        try:
            while at < len(data):
                tag, at = read_varint(data, at)
                length, at = read_varint(data, at)
                unread.remove(tag)
                found[tag] = data[at : at + length]
                at += length
        except (IndexError, KeyError):
            raise self._bad() from None
        if at > len(data):
            raise self._bad()
        return read_utf8(self._file, found[0x0A]), read_utf8(self._file, found[0x12])

    def twice(self, key: str) -> CheckpointError:
        """The error for two entries of one key."""
        return self._file.bad(f"has metadata of one key, got {shown_name(key)} twice")

    def _bad(self) -> CheckpointError:
        return self._file.bad("is not an ONNX model or damaged, got metadata that is not a key and a value")


def read_utf8(file: OpenFile, data: bytes) -> str:
    """A string of a message.

    Raises:
        CheckpointError: it is not UTF-8.
    """
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise file.bad(f"has a text that is not UTF-8, got {str(data[:40])[1:]}") from None
