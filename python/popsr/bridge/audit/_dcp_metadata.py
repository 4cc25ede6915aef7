"""Metadata of torch.distributed.checkpoint: a pickle, of which only inert records are made.

No class that the pickle names is imported or called: each allowed name becomes a record of what was passed to it.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from popsr._host.files import shown_name
from popsr._text.one_line import one_line
from popsr.errors import CheckpointError, UnsupportedError
from popsr.io._budget import Budget
from popsr.io._open_file import OpenFile

__all__ = ["Chunk", "Entry", "Range", "is_metadata", "read_metadata"]

_SUFFIX = ".metadata"
_DCP = "torch.distributed.checkpoint"
_RECORDS = {
    (f"{_DCP}.metadata", name)
    for name in (
        "BytesStorageMetadata",
        "ChunkStorageMetadata",
        "Metadata",
        "MetadataIndex",
        "StorageMeta",
        "TensorProperties",
        "TensorStorageMetadata",
        "_MEM_FORMAT_ENCODING",
    )
} | {
    (f"{_DCP}.filesystem", "_StorageInfo"),
    (f"{_DCP}.filesystem", "_StoragePrefix"),
    ("torch", "Size"),
    ("torch.serialization", "_get_layout"),
    ("pathlib", "Path"),
    ("pathlib", "PosixPath"),
    ("pathlib", "PurePosixPath"),
    ("pathlib", "WindowsPath"),
    ("pathlib._local", "PosixPath"),
    ("pathlib._local", "WindowsPath"),
}
_CONTAINERS = {
    ("collections", "OrderedDict"): dict,
    ("builtins", "set"): set,
    ("builtins", "frozenset"): frozenset,
}


@dataclass(frozen=True, slots=True)
class Range:
    """The bytes of one item: a file beside the metadata, and a part of it."""

    file: str
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of a tensor and its bytes."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    stored: Range


@dataclass(frozen=True, slots=True)
class Entry:
    """A tensor of a dtype; or, with the dtype None, another object, whose bytes are one chunk."""

    dtype: str | None
    shape: tuple[int, ...]
    chunks: tuple[Chunk, ...]


class _Record:
    """An object of a pickle: the arguments and the state that it would have been made of."""

    arguments: tuple[Any, ...] = ()
    state: Any = None

    def __new__(cls, *arguments: Any) -> _Record:
        self = object.__new__(cls)
        self.arguments = arguments
        return self

    def __setstate__(self, state: Any) -> None:
        self.state = state


def is_metadata(path: Path) -> bool:
    """True for ``.metadata`` and for ``__3.metadata``, which rank 3 writes without collectives."""
    return path.name == _SUFFIX or (path.name.startswith("__") and path.name.endswith(_SUFFIX))


def read_metadata(torch: Any, file: OpenFile) -> dict[str, Entry]:
    """The entries of a checkpoint by name.

    Raises:
        CheckpointError: the file is damaged, or holds more than metadata.
        UnsupportedError: ranges are stored transformed, as by compression.
    """
    whole = _Parser(torch, file).unpickle()
    if not _is(whole, "Metadata"):
        raise file.bad(f"is not of {_DCP}, got {type(whole).__name__}, expected Metadata")
    try:
        return _entries(file, whole.state)
    except CheckpointError:
        raise
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise file.bad(
            f"has wrong metadata, got {type(error).__name__}: {one_line(str(error), 120)}"
        ) from None


class _Parser:
    """One reading of a pickle, with classes of its own that nothing else sees."""

    def __init__(self, torch: Any, file: OpenFile) -> None:
        self._torch, self._file = torch, file
        self._classes: dict[tuple[str, str], Any] = {}

    def unpickle(self) -> Any:
        if self._file.size == 0:
            raise self._file.bad("is empty, expected a checkpoint")
        data = self._file.read(0, self._file.size)
        parser = self

        class Restricted(pickle.Unpickler):
            def find_class(self, module: str, name: str) -> Any:
                return parser.find(module, name)

        try:
            # An index of the memo beyond the file would take memory that the file does not have.
            for opcode, argument, _ in pickletools.genops(data):
                if opcode.name.endswith("PUT") and (argument or 0) > len(data):
                    raise pickle.UnpicklingError(f"index {argument}")
            return Restricted(io.BytesIO(data)).load()
        except CheckpointError:
            raise
        except Exception as error:  # of pickle, and whatever damage leads to
            text = one_line(f"{type(error).__name__}: {error}", 120)
            raise self._file.bad(f"is damaged, got {text}, expected a pickle of Metadata") from None

    def find(self, module: str, name: str) -> Any:
        key = (module, name)
        if key in _CONTAINERS:
            return _CONTAINERS[key]
        if module == "torch" and isinstance(vars(self._torch).get(name), self._torch.dtype):
            return name
        if key not in _RECORDS:
            raise self._file.bad(
                f"holds more than metadata, got the class {shown_name(f'{module}.{name}', 120)}, expected those of "
                f"{_DCP}; nothing of it was run"
            )
        return self._classes.setdefault(key, type(name, (_Record,), {}))


def _is(value: Any, name: str) -> bool:
    return isinstance(value, _Record) and type(value).__name__ == name


def _entries(file: OpenFile, state: Any) -> dict[str, Entry]:
    stored: dict[tuple[str, tuple[int, ...] | None], Range] = {}
    if not isinstance(state["storage_data"], Mapping):
        raise file.bad("does not say where data are, expected a mapping as storage_data")
    for index, info in state["storage_data"].items():
        offset = index.state.get("offset")
        stored[index.state["fqn"], None if offset is None else _extents(offset)] = _range(file, info)
    budget, found = Budget(file.bad, file.size), {}
    for name, each in state["state_dict_metadata"].items():
        if not isinstance(name, str):
            raise file.bad(f"has a wrong name, got {type(name).__name__}, expected a text")
        if _is(each, "TensorStorageMetadata"):
            shape = budget.add_tensor(name, _extents(each.state["size"]))
            dtype = each.state["properties"].state[0]
            if type(dtype) is not str:
                raise file.bad(f"has a wrong dtype of {shown_name(name)}, got {type(dtype).__name__}")
            chunks = [
                (_extents(c.state["offsets"]), _extents(c.state["sizes"])) for c in each.state["chunks"]
            ]
            parts = tuple(Chunk(at, size, _stored(file, stored, name, at)) for at, size in chunks)
            found[name] = Entry(dtype, shape, parts)
        elif _is(each, "BytesStorageMetadata"):
            budget.add_tensor(name, ())
            found[name] = Entry(None, (), (Chunk((), (), _stored(file, stored, name, None)),))
        else:
            raise file.bad(
                f"has a wrong entry {shown_name(name)}, got {type(each).__name__}, expected a tensor or bytes"
            )
    return found


def _stored(file: OpenFile, stored: Mapping[Any, Range], name: str, offsets: tuple[int, ...] | None) -> Range:
    if (name, offsets) not in stored:
        at = "" if offsets is None else f" at {list(offsets)}"
        raise file.bad(f"does not say where {shown_name(name)}{at} is, expected a range of a file")
    return stored[name, offsets]


def _range(file: OpenFile, info: Any) -> Range:
    state = info.state
    if state.get("transform_descriptors"):
        raise UnsupportedError(
            f"{file.where}: {shown_name(str(file.path))} has transformed data, got "
            f"{shown_name(str(state['transform_descriptors']))}, expected plain files of torch.save"
        )
    name = state["relative_path"]
    if not isinstance(name, str) or Path(name).name != name or "\\" in name or "\0" in name:
        raise file.bad(f"names a file outside of its folder, got {shown_name(str(name))}")
    offset, length = _extents((state["offset"], state["length"]))
    return Range(name, offset, length)


def _extents(value: Any) -> tuple[int, ...]:
    """The numbers of a Size."""
    found = value.arguments[0] if _is(value, "Size") else value
    if not isinstance(found, tuple) or not all(type(each) is int and 0 <= each < 1 << 62 for each in found):
        raise ValueError(f"{type(found).__name__} as a size, expected numbers from 0 to 2**62")
    return found
