"""Tensors of the files of jobs: no data is read until it is compared."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from popsr._support.host.files import file_errors
from popsr._support.host.frameworks import framework
from popsr.bridge.audit._dcp import read_distributed
from popsr.bridge.audit._dcp_metadata import is_metadata
from popsr.bridge.audit._held import Array, Held
from popsr.io._safetensors.read import open_safetensors
from popsr.io._torch.read import array_of_tensor, open_torch

__all__ = ["hold"]


@contextmanager
def hold(where: str, path: Path) -> Iterator[dict[str, Held]]:
    """The tensors of a file by name; valid inside the block.

    Raises:
        CheckpointError: the file is damaged, or holds more than weights.
        FileError: it cannot be read.
    """
    if path.suffix == ".safetensors":
        yield _of_safetensors(where, path)
        return
    torch = framework(where, "torch")
    if is_metadata(path):
        yield read_distributed(torch, where, path)
        return
    with open_torch(where, path) as stored:
        found = {}
        for name, tensor in stored.tensors.items():
            whole = stored.found[name]
            found[name] = Held(
                tensor.type_name,
                tensor.shape,
                partial(_bytes_of_tensor, torch, whole),
                tensor.length,
                whole.element_size(),
                tensor.dtype,
            )
        yield found


def _bytes_of_tensor(torch: Any, tensor: Any) -> Array:
    """Mapped, but where the elements are not in their order: those are copied when they are compared."""
    return array_of_tensor(torch, tensor).reshape(-1).view(np.uint8)


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
