"""Metadata of torch.distributed.checkpoint: a pickle, of which only inert records are made.

No class that the pickle names is imported or called: each allowed name becomes a record of what was passed to it, and
no key is hashed that is not a text.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from popsr._support.host.files import shown_name
from popsr._support.text.one_line import one_line
from popsr.errors import CheckpointError, UnsupportedError
from popsr.io._budget import Budget
from popsr.io._open_file import OpenFile
from popsr.io._pickle import Named, Pairs, Record, kind_of, read_pickle

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
# Metadata of newer versions of Megatron are of a class of their own, with shapes from before tensors were flattened.
_MEGATRON, _MEGATRONS = "megatron.core.dist_checkpointing.", "MCoreMetadata"
# Python 3.11.0 to 3.11.3 write a member of an enumeration as a call of getattr, which is read as a record.
_ALLOWED = _RECORDS | {
    ("collections", "OrderedDict"),
    ("builtins", "set"),
    ("builtins", "frozenset"),
    ("builtins", "getattr"),
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


def is_metadata(path: Path) -> bool:
    """True for ``.metadata`` and for ``__3.metadata``, which rank 3 writes without collectives."""
    return path.name == _SUFFIX or (path.name.startswith("__") and path.name.endswith(_SUFFIX))


def read_metadata(torch: Any, file: OpenFile) -> dict[str, Entry]:
    """The entries of a checkpoint by name.

    Raises:
        CheckpointError: the file is damaged, or holds more than metadata.
        UnsupportedError: ranges are stored transformed, as by compression.
    """
    whole = _unpickle(torch, file)
    if not _is(whole, "Metadata"):
        raise file.bad(f"is not of {_DCP}, got {kind_of(whole)}, expected Metadata")
    try:
        return _entries(file, _fields(whole))
    except CheckpointError:
        raise
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise file.bad(
            f"has wrong metadata, got {type(error).__name__}: {one_line(str(error), 120)}"
        ) from None


def _unpickle(torch: Any, file: OpenFile) -> Any:
    if file.size == 0:
        raise file.bad("is empty, expected a checkpoint")

    def allow(module: str, name: str) -> object:
        if module == "torch" and isinstance(vars(torch).get(name), torch.dtype):
            return name
        if name == _MEGATRONS and module.startswith(_MEGATRON):
            return Named(f"{_DCP}.metadata", "Metadata")
        if (module, name) not in _ALLOWED:
            raise file.bad(
                f"holds more than metadata, got the class {shown_name(f'{module}.{name}', 120)}, expected those of "
                f"{_DCP}; nothing of it was run"
            )
        return Named(module, name)

    try:
        return read_pickle(io.BytesIO(file.read(0, file.size)), file.size, allow)
    except CheckpointError:
        raise
    except Exception as error:  # of pickle, and whatever damage leads to
        text = one_line(f"{type(error).__name__}: {error}", 120)
        raise file.bad(f"is damaged, got {text}, expected a pickle of Metadata") from None


def _is(value: Any, name: str) -> bool:
    return isinstance(value, Record) and value.made_by.name == name


def _fields(value: Any) -> dict[str, Any]:
    """The attributes of a record."""
    return {key: each for key, each in _pairs(value.state) if type(key) is str}


def _pairs(value: Any) -> Pairs:
    """The items of a dict, of whatever class."""
    found = value.pairs if isinstance(value, Record) else value
    if not isinstance(found, Pairs):
        raise TypeError(f"{kind_of(value)} as a mapping")
    return found


def _entries(file: OpenFile, state: dict[str, Any]) -> dict[str, Entry]:
    stored: dict[tuple[str, str], Range] = {}
    if not isinstance(state["storage_data"], (Pairs, Record)):
        raise file.bad("does not say where data are, expected a mapping as storage_data")
    for index, info in _pairs(state["storage_data"]):
        of = _fields(index)
        offset = of.get("offset")
        stored[_text(of["fqn"]), _place(None if offset is None else _extents(offset))] = _range(file, info)
    budget, found = Budget(file.bad, file.size), {}
    for name, each in _pairs(state["state_dict_metadata"]):
        if type(name) is not str:
            raise file.bad(f"has a wrong name, got {kind_of(name)}, expected a text")
        if _is(each, "TensorStorageMetadata"):
            fields = _fields(each)
            shape = budget.add_tensor(name, _extents(fields["size"]))
            dtype = fields["properties"].state[0]
            if type(dtype) is not str:
                raise file.bad(f"has a wrong dtype of {shown_name(name)}, got {kind_of(dtype)}")
            chunks = [(_extents(c["offsets"]), _extents(c["sizes"])) for c in map(_fields, fields["chunks"])]
            parts = tuple(Chunk(at, size, _stored(file, stored, name, at)) for at, size in chunks)
            found[name] = Entry(dtype, shape, parts)
        elif _is(each, "BytesStorageMetadata"):
            budget.add_tensor(name, ())
            found[name] = Entry(None, (), (Chunk((), (), _stored(file, stored, name, None)),))
        else:
            raise file.bad(
                f"has a wrong entry {shown_name(name)}, got {kind_of(each)}, expected a tensor or bytes"
            )
    return found


def _place(offsets: tuple[int, ...] | None) -> str:
    """Offsets as a text: hashes of numbers collide where a file wants it, those of texts do not."""
    return "" if offsets is None else str(list(offsets))


def _stored(file: OpenFile, stored: Mapping[Any, Range], name: str, offsets: tuple[int, ...] | None) -> Range:
    at = _place(offsets)
    if (name, at) not in stored:
        raise file.bad(
            f"does not say where {shown_name(name)}{at and f' at {at}'} is, expected a range of a file"
        )
    return stored[name, at]


def _range(file: OpenFile, info: Any) -> Range:
    fields = _fields(info)
    transforms = fields.get("transform_descriptors")
    if transforms is not None and transforms != []:
        raise UnsupportedError(
            f"{file.where}: {shown_name(str(file.path))} has transformed data, got a {kind_of(transforms)} of "
            "transform_descriptors, expected plain files of torch.save"
        )
    name = _text(fields["relative_path"])
    if Path(name).name != name or "\\" in name or "\0" in name:
        raise file.bad(f"names a file outside of its folder, got {shown_name(name)}")
    offset, length = _extents((fields["offset"], fields["length"]))
    return Range(name, offset, length)


def _text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError(f"{kind_of(value)} as a text")
    return value


def _extents(value: Any) -> tuple[int, ...]:
    """The numbers of a Size."""
    found = value.arguments[0] if _is(value, "Size") else value
    if type(found) is not tuple or len(found) > Budget.RANK:
        raise ValueError(f"{kind_of(found)} as a size, expected at most {Budget.RANK} numbers")
    if not all(type(each) is int and 0 <= each < 1 << 62 for each in found):
        raise ValueError("a wrong size, expected numbers from 0 to 2**62")
    return found
