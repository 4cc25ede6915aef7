"""Tensors of the files of jobs: no data is read until it is compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from popsr._support.host.files import file_errors, shown_name, shown_path
from popsr._support.host.frameworks import framework
from popsr.bridge.audit._dcp import read_distributed
from popsr.bridge.audit._dcp_metadata import is_metadata
from popsr.bridge.audit._held import Array, Contents, Held
from popsr.bridge.audit._orbax import (
    has_items,
    has_tree,
    is_orbax,
    is_root,
    is_trace,
    read_orbax,
    refuse_unfinished,
)
from popsr.bridge.audit._torch_file import read_torch_file
from popsr.errors import CheckpointError
from popsr.io._safetensors.read import open_safetensors

__all__ = ["SUFFIXES", "Reader", "hold", "reader_of"]

SUFFIXES = (".safetensors", ".pt", ".pth", ".bin", ".ckpt")
"""Ends of the names of files that are read."""

_RANGES = ".distcp"  # of torch.distributed.checkpoint, which its metadata name
_RANDOM_STATES = "random_states_"  # of Accelerate, by torch.save


@dataclass(frozen=True)
class Reader:
    """Files of one kind.

    Attributes:
        is_of: true for the path of one.
        read: its contents.
        whole: for a folder that is one checkpoint of all ranks, with one copy of what they hold in common, whose it is;
            the path is that of its metadata.
        is_complete: for a file that matters only where its folder has no metadata, true for a folder that has them.
    """

    is_of: Callable[[Path], bool]
    read: Callable[[str, Path], Contents]
    whole: str = ""
    is_complete: Callable[[Path], bool] | None = None


def reader_of(path: Path) -> Reader | None:
    """The reader of a file; None for one of no checkpoint."""
    return next((each for each in READERS if each.is_of(path)), None)


def hold(where: str, path: Path) -> Contents:
    """The tensors of a file by name.

    Raises:
        CheckpointError: the file is damaged.
        FileError: it cannot be read.
        UnsupportedError: its data are stored in a form that is not read.
    """
    reader = reader_of(path)
    return read_torch_file(where, path) if reader is None else reader.read(where, path)


def _refuse_ranges(where: str, path: Path) -> Contents:
    raise CheckpointError(
        f"{where}: {shown_path(path.parent)} has no .metadata, which is written last, got {shown_name(path.name)}, "
        "expected a whole checkpoint of torch.distributed.checkpoint"
    )


def _read_distributed(where: str, path: Path) -> Contents:
    return read_distributed(framework(where, "torch"), where, path)


def _has_metadata(folder: Path) -> bool:
    return any(map(is_metadata, folder.iterdir()))


def _is_of_torch(path: Path) -> bool:
    return path.suffix in SUFFIXES or path.name.startswith(_RANDOM_STATES)


def _of_safetensors(where: str, path: Path) -> Contents:
    with open_safetensors(where, path) as stored:  # checks the header
        size, tensors = stored.file.size, dict(stored.tensors)
    with file_errors(where, "read", path):
        whole = np.memmap(path, np.uint8, "r", shape=(size,))
    found = {}
    for name, each in tensors.items():
        data = whole[each.begin : each.begin + each.length]
        count = int(np.prod(each.shape, dtype=np.int64))
        itemsize = each.dtype.itemsize if each.dtype is not None else max(1, len(data) // max(1, count))
        found[name] = _mapped(each.type_name, each.shape, data, itemsize, each.dtype)
    return Contents(found)


def _mapped(
    kind: str, shape: tuple[int, ...], data: Array, itemsize: int, dtype: np.dtype[Any] | None
) -> Held:
    return Held(kind, shape, lambda: data, data.nbytes, itemsize, dtype)


READERS = (
    Reader(lambda path: path.suffix == ".safetensors", _of_safetensors),
    Reader(lambda path: path.suffix == _RANGES, _refuse_ranges, is_complete=_has_metadata),
    Reader(is_metadata, _read_distributed, "torch.distributed.checkpoint"),
    Reader(is_trace, refuse_unfinished, is_complete=has_tree),
    Reader(is_root, refuse_unfinished, is_complete=has_items),
    Reader(is_orbax, read_orbax, "Orbax"),
    Reader(_is_of_torch, read_torch_file),
)
"""A row to each kind of files; the first one that a path is of counts."""
