"""Tensors of the files of jobs: no data is read until it is compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from popsr._support.host.files import file_errors, shown_name, shown_path
from popsr._support.host.frameworks import framework
from popsr.bridge.audit._dcp import read_distributed
from popsr.bridge.audit._dcp_metadata import is_metadata
from popsr.bridge.audit._held import Array, Contents, Held
from popsr.bridge.audit._torch_file import read_torch_file
from popsr.errors import CheckpointError, UnsupportedError
from popsr.io._safetensors.read import open_safetensors

__all__ = ["ORBAX", "RANGES", "SUFFIXES", "hold"]

SUFFIXES = (".safetensors", ".pt", ".pth", ".bin", ".ckpt")
"""Ends of the names of files that are read."""

RANGES = ".distcp"
"""End of the names of files of torch.distributed.checkpoint that its metadata name."""

ORBAX = "_METADATA"
"""A file of each checkpoint of Orbax."""


def hold(where: str, path: Path) -> Contents:
    """The tensors of a file by name.

    Raises:
        CheckpointError: the file is damaged.
        FileError: it cannot be read.
        UnsupportedError: its data are stored in a form that is not read.
    """
    if path.suffix == ".safetensors":
        return Contents(_of_safetensors(where, path))
    if path.suffix == RANGES:
        raise CheckpointError(
            f"{where}: {shown_path(path.parent)} has no .metadata, which is written last, got {shown_name(path.name)}, "
            "expected a whole checkpoint of torch.distributed.checkpoint"
        )
    if path.name == ORBAX:
        raise UnsupportedError(
            f"{where}: {shown_path(path.parent)} is a checkpoint of Orbax, which is not read, expected its arrays in "
            "files of safetensors, or logs of log_hashes"
        )
    if is_metadata(path):
        return read_distributed(framework(where, "torch"), where, path)
    return read_torch_file(where, path)


def _of_safetensors(where: str, path: Path) -> dict[str, Held]:
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
    return found


def _mapped(
    kind: str, shape: tuple[int, ...], data: Array, itemsize: int, dtype: np.dtype[Any] | None
) -> Held:
    return Held(kind, shape, lambda: data, data.nbytes, itemsize, dtype)
