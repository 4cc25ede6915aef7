"""Reading the initializers of an ONNX model, ours or another writer's.

The file is walked field by field, and everything but the data of tensors is read once. The data is read straight into
arrays when a tensor is asked for. Nodes and the rest of a model are skipped.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from popsr._session.protocol import Only, Rename
from popsr._support.host.arguments import read_path
from popsr._support.host.files import shown_path
from popsr._support.text.entry_points import public
from popsr.errors import UnsupportedError
from popsr.io._budget import Budget
from popsr.io._checkpoint import Checkpoint
from popsr.io._digest import Digest
from popsr.io._load.options import loaded_names
from popsr.io._onnx.external import DataFile, ExternalData
from popsr.io._onnx.format import (
    DATA_BYTES,
    DATA_DIGEST,
    DATA_FILE,
    DIGEST,
    PRODUCER,
    digest_record,
    field_names,
    require_onnx,
)
from popsr.io._onnx.tensor import Entries, TensorReader, read_utf8
from popsr.io._onnx.wire import DELIMITED, VARINT, Cursor
from popsr.io._open_file import OpenFile
from popsr.io._settings import SettingsReader, check_version, read_program
from popsr.io._stored import Seal, StoredFile

__all__ = ["Model", "load_onnx", "open_onnx", "read_model"]

_MAX_NAME = 1 << 10  # bytes of the names of producers

_CHANGED = (
    ", or was changed after popsr wrote it, got a digest that does not match its contents (a file that was changed on "
    f"purpose must have neither producer_name '{PRODUCER}' nor '{DIGEST}')"
)


@public
def load_onnx(path: str | os.PathLike[str], *, only: Only = None, rename: Rename = None) -> Checkpoint:
    """All initializers of an ONNX model, and what it says of replicas.

    The structure, sizes and duplicates are checked before memory is taken for data, and in files that popsr wrote the
    digests before data is returned. Data in other files is read only from beneath the model's folder. A file of ``s``
    bytes, with its data files, takes no more than ``2 * s`` bytes of memory and 48 MiB.

    Args:
        path: the file, popsr's or another writer's.
        only: names to load, as they are after ``rename``: a pattern of ``fnmatch``, several, or a predicate.
        rename: new names by the file's: a mapping, or a function that returns None for tensors to leave out.
    Returns:
        Arrays by name, with ``replication_factor``, ``settings`` and ``step`` where the file has them; ``unknown`` says
        what cannot be known without.
    Raises:
        CheckpointError: the file is damaged, contradicts itself, exceeds a limit, or is not an ONNX model.
        OSError: it cannot be read.
        ImportError: onnx is not installed.
        NotImplementedError: a tensor of a dtype without arrays, as strings, or a sparse one.
    """
    with open_onnx("load_onnx", read_path("load_onnx", path)) as stored:
        return Checkpoint(stored, loaded_names("load_onnx", only, rename, stored.tensors))


@contextmanager
def open_onnx(where: str, path: Path) -> Iterator[StoredFile]:
    """The checked contents of a file, for reading inside the block."""
    onnx = require_onnx(where)
    with OpenFile(where, path) as file:
        stored = StoredFile(file, Budget(file.bad, file.size))
        model = read_model(onnx, file, stored.budget)
        begin, end = model.graph
        graph = Cursor(file, stored.budget, begin, end, keep=model.is_ours)
        if model.is_ours:
            stored.seal = _seal(onnx, file, model, graph)
            if model.producer_name == PRODUCER:
                check_version(file, model.producer_version)
        with stored.unless_damaged():
            stored.replication, stored.step = read_program(file, model.texts)
            external = ExternalData(file, _own_data(file, model.texts))
            stored.read_external = external.read
            _add_tensors(onnx, stored, model, graph, external)
            yield stored


@dataclass
class Model:
    """A model without its graph, and where the graph is."""

    cursor: Cursor
    entries: Entries
    graph: tuple[int, int] = (0, 0)
    ir_version: int = 0
    producer_name: str = ""
    producer_version: str = ""
    texts: dict[str, str] = field(default_factory=dict)

    @property
    def is_ours(self) -> bool:
        """True if it has one of the two marks of popsr's files."""
        return self.producer_name == PRODUCER or DIGEST in self.texts


def read_model(onnx: Any, file: OpenFile, budget: Budget) -> Model:
    """Read all of a model but its graph.

    Raises:
        CheckpointError: it is not a model.
    """
    if file.size == 0:
        raise file.bad("is empty, expected a checkpoint")
    cursor = Cursor(file, budget, 0, file.size, keep=True)
    model = Model(cursor, Entries(file, budget))
    names = field_names(onnx.ModelProto)
    unread = {"ir_version", "producer_name", "producer_version", "graph"}
    for number, kind, value in cursor.fields(file.size):
        name = names.get(number)
        if name == "metadata_props":
            key, text = model.entries.read(cursor, kind, value)
            if key in model.texts:
                raise model.entries.twice(key)
            model.texts[key] = text
        elif name in unread:
            # Readers let the last of two win and skip a field of another wire type: here damage would hide there.
            unread.remove(name)
            if kind != (VARINT if name == "ir_version" else DELIMITED):
                raise _bad_field(file, number)
            if name == "ir_version":
                model.ir_version = value
            elif name == "graph":
                model.graph = cursor.at, cursor.at + value
            else:
                setattr(model, name, _short_text(file, cursor, name, value))
        elif name in ("ir_version", "producer_name", "producer_version", "graph"):
            raise _bad_field(file, number)
    if model.graph == (0, 0) or not 0 < model.ir_version < 1 << 63:
        raise file.bad("is not an ONNX model or cut off, got no graph or no ir_version")
    return model


def _short_text(file: OpenFile, cursor: Cursor, name: str, length: int) -> str:
    if length > _MAX_NAME:
        raise file.bad(f"has a {name} that is too long, got {length} bytes, expected at most {_MAX_NAME}")
    return read_utf8(file, cursor.take(length))


def _bad_field(file: OpenFile, number: int) -> Exception:
    return file.bad(f"is not an ONNX model, got field {number} twice or of a wrong type")


def _seal(onnx: Any, file: OpenFile, model: Model, graph: Cursor) -> Seal:
    """The digest, with which files of popsr end: what changed one of their two marks left the other."""
    end = file.size - len(digest_record(onnx, "0" * Digest.LENGTH))
    if end < model.graph[1]:
        raise file.bad(f"is damaged{_CHANGED}")
    record = file.read(end, file.size - end)

    def known() -> Iterator[tuple[int, memoryview]]:
        for offset, piece in heapq.merge(model.cursor.known(), graph.known(), key=lambda item: item[0]):
            if offset < end:
                yield offset, piece[: end - offset]

    return Seal(0, end, lambda digest: digest_record(onnx, digest) == record, advice=_CHANGED, known=known)


def _own_data(file: OpenFile, texts: dict[str, str]) -> DataFile | None:
    if DATA_FILE not in texts:
        return None
    nbytes = file.number(DATA_BYTES, texts.get(DATA_BYTES, ""), 0, 2**63 - 1)
    return DataFile(texts[DATA_FILE], nbytes, texts.get(DATA_DIGEST, ""))


def _add_tensors(onnx: Any, stored: StoredFile, model: Model, graph: Cursor, external: ExternalData) -> None:
    """The initializers."""
    file, budget = stored.file, stored.budget
    settings = SettingsReader(file, budget, stored.replication)
    reader = TensorReader(onnx, file, budget, model.entries, settings, external, stored.hashes)
    numbers = onnx.GraphProto
    for number, kind, length in graph.fields(model.graph[1]):
        if number == numbers.SPARSE_INITIALIZER_FIELD_NUMBER:
            raise UnsupportedError(f"{file.where}: {shown_path(file.path)} has sparse initializers")
        if number == numbers.INITIALIZER_FIELD_NUMBER:
            if kind != DELIMITED:
                raise _bad_field(file, number)
            stored.add(reader.read(graph, graph.at + length))
