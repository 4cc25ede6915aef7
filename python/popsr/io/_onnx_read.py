"""Reading the initializers of an ONNX model, ours or another writer's.

The file is walked field by field. Messages without their data go to the library; ``raw_data`` is read straight into
arrays when a tensor is asked for. Nodes and the rest of a model are skipped.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from popsr._args import read_path
from popsr._shown import shown
from popsr.errors import Error, UnsupportedError
from popsr.io._checkpoint import Checkpoint, StoredFile, StoredTensor
from popsr.io._digest import Digest
from popsr.io._external import DataFile, ExternalData
from popsr.io._files import OpenFile
from popsr.io._onnx_data import data_of
from popsr.io._onnx_format import (
    DATA_BYTES,
    DATA_DIGEST,
    DATA_FILE,
    DIGEST,
    ONNX_TYPES,
    PRODUCER,
    digest_record,
    message_error,
    require_onnx,
)
from popsr.io._settings import read_program, read_settings
from popsr.io._wire import Field, fields

__all__ = ["load_onnx", "open_onnx", "own_data_file"]

_MAX_MESSAGES = 1 << 30  # bytes of messages that go to the library


def load_onnx(path: str | os.PathLike[str]) -> Checkpoint:
    """All initializers of an ONNX model, and what it says of replicas.

    Everything is checked before memory is allocated: the structure, sizes, duplicates and, in files that popsr wrote,
    digests. Data in other files is read only from beneath the model's folder.

    Args:
        path: the file, popsr's or another writer's.
    Returns:
        Arrays by name, with ``replication_factor``, ``settings`` and ``step`` where the file has them; ``unknown`` says
        what cannot be known without.
    Raises:
        CheckpointError: the file is damaged, contradicts itself, or is no ONNX model.
        OSError: it cannot be read.
        ImportError: onnx is not installed.
        NotImplementedError: a tensor of a dtype without arrays, as strings, or a sparse one.
    """
    with open_onnx("load_onnx", read_path("load_onnx", path)) as stored:
        return Checkpoint(stored)


@contextmanager
def open_onnx(where: str, path: Path) -> Iterator[StoredFile]:
    """The checked contents of a file, for reading inside the block."""
    onnx = require_onnx(where)
    with OpenFile(where, path) as file:
        reader = _Reader(onnx, file)
        model, graph = reader.model()
        reader.check_digest(model)
        yield reader.tensors(model, graph)


def own_data_file(path: Path) -> Path | None:
    """The data file that popsr wrote for the model of that name; None when there is none."""
    pattern = re.compile(rf"{re.escape(path.name)}\.[0-9a-f]{{8}}\.data")
    try:
        with OpenFile("save_onnx", path) as file:
            reader = _Reader(require_onnx("save_onnx"), file)
            model, _ = reader.model()
            name = reader.texts(model).get(DATA_FILE, "")
    except Error:  # no file, or none of ours
        return None
    return path.with_name(name) if model.producer_name == PRODUCER and pattern.fullmatch(name) else None


class _Reader:
    """The messages of one file."""

    def __init__(self, onnx: Any, file: OpenFile) -> None:
        self._onnx, self._file = onnx, file
        self._room = _MAX_MESSAGES
        self._decode_error = message_error()

    def model(self) -> tuple[Any, Field]:
        """The model without its graph, and where the graph is."""
        numbers = self._onnx.ModelProto
        once = {
            numbers.IR_VERSION_FIELD_NUMBER,
            numbers.PRODUCER_NAME_FIELD_NUMBER,
            numbers.GRAPH_FIELD_NUMBER,
        }
        wanted = {*once, numbers.METADATA_PROPS_FIELD_NUMBER}
        parts: list[Field] = []
        graph = None
        if self._file.size == 0:
            raise self._file.bad("is empty, expected a checkpoint")
        for field in fields(self._file, 0, self._file.size):
            if field.number not in wanted:
                continue
            # Readers let the last of two win and skip a field of another wire type: here damage would hide there.
            is_new = field.number not in once or not any(field.number == part.number for part in parts)
            if not is_new or field.is_delimited == (field.number == numbers.IR_VERSION_FIELD_NUMBER):
                raise self._file.bad(f"is no ONNX model, got field {field.number} twice or of a wrong type")
            parts.append(field)
            if field.number == numbers.GRAPH_FIELD_NUMBER:
                graph = field
        model = self._message(numbers, [self._bytes(part) for part in parts if part is not graph])
        if graph is None or model.ir_version <= 0:
            raise self._file.bad("is no ONNX model or cut off, got no graph or no ir_version")
        return model, graph

    def texts(self, message: Any) -> dict[str, str]:
        """Metadata of a message."""
        result: dict[str, str] = {}
        for entry in message.metadata_props:
            key, value = self._text(entry.key), self._text(entry.value)
            if key in result:
                raise self._file.bad(f"has metadata of one key, got {shown(key[:80])} twice")
            result[key] = value
        return result

    def check_digest(self, model: Any) -> None:
        """Files of popsr end with a digest: what changed one of the two marks left the other."""
        file = self._file
        if model.producer_name != PRODUCER and DIGEST not in self.texts(model):
            return
        end = file.size - len(digest_record(self._onnx, "0" * Digest.LENGTH))
        if end < 0 or file.read(end, file.size - end) != digest_record(self._onnx, file.digest(0, end)):
            raise file.bad(
                "is damaged, or was changed after popsr wrote it, got another digest than that of its contents "
                f"(a file that was changed on purpose must have neither producer_name '{PRODUCER}' nor '{DIGEST}')"
            )

    def tensors(self, model: Any, graph: Field) -> StoredFile:
        """The initializers."""
        texts = self.texts(model)
        stored = StoredFile(self._file, *read_program(self._file, texts))
        external = ExternalData(self._file, self._own_data(texts))
        stored.prepare = external.prepare
        numbers = self._onnx.GraphProto
        for field in fields(self._file, graph.body, graph.end):
            if field.number == numbers.SPARSE_INITIALIZER_FIELD_NUMBER:
                raise UnsupportedError(f"{self._file.where}: '{self._file.path}' has sparse initializers")
            if field.number == numbers.INITIALIZER_FIELD_NUMBER and field.is_delimited:
                stored.add(self._tensor(stored, external, field))
        return stored

    def _own_data(self, texts: dict[str, str]) -> DataFile | None:
        if DATA_FILE not in texts:
            return None
        nbytes = self._file.number(DATA_BYTES, texts.get(DATA_BYTES, ""), 0, 2**63 - 1)
        return DataFile(texts[DATA_FILE], nbytes, texts.get(DATA_DIGEST, ""))

    def _tensor(self, stored: StoredFile, external: ExternalData, field: Field) -> StoredTensor:
        raw_number = self._onnx.TensorProto.RAW_DATA_FIELD_NUMBER
        parts, raws = [], []
        for part in fields(self._file, field.body, field.end):
            if part.number == raw_number and part.is_delimited:
                raws.append(part)
            else:
                parts.append(self._bytes(part))
        message = self._message(self._onnx.TensorProto, parts)
        name = self._text(message.name)
        if not name:
            raise self._file.bad("has a tensor without a name")
        shape = stored.check_shape(name, message.dims)
        settings = read_settings(self._file, stored.replication, name, shape, self.texts(message))
        code = message.data_type
        known = code in self._onnx.TensorProto.DataType.values()
        kind = self._onnx.TensorProto.DataType.Name(code) if known else f"data_type {code}"
        dtype = ONNX_TYPES.get(kind)
        fill = data_of(self._file, self._onnx, message, shape, dtype, raws, external)
        return StoredTensor(name, kind, dtype, shape, settings, fill)

    def _text(self, value: Any) -> str:
        if not isinstance(value, str):
            raise self._file.bad(f"has a text that is none, got {shown(value[:40])}, expected UTF-8")
        return value

    def _bytes(self, field: Field) -> bytes:
        self._room -= field.end - field.start
        if self._room < 0:
            raise self._file.bad(
                f"has messages of absurd size, expected at most {_MAX_MESSAGES} bytes without data"
            )
        return self._file.read(field.start, field.end - field.start)

    def _message(self, kind: Any, parts: list[bytes]) -> Any:
        try:
            return kind.FromString(b"".join(parts))
        except self._decode_error as error:
            raise self._file.bad(f"is no ONNX file, got a wrong {kind.DESCRIPTOR.name}: {error}") from None
