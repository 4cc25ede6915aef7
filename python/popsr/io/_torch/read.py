"""Reading files of ``torch.save``, ours or another writer's, with weights only: nothing in them is called."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from popsr import dtypes
from popsr._session.protocol import Only, Rename
from popsr._session.rows import Array
from popsr._support.host.arguments import read_path
from popsr._support.host.files import bytes_of, shown_name, shown_path
from popsr._support.host.frameworks import framework
from popsr._support.text.entry_points import public
from popsr.errors import CheckpointError, UnsupportedError
from popsr.io._budget import Budget
from popsr.io._checkpoint import Checkpoint
from popsr.io._hashes import HASH_OF_KEY, read_hash
from popsr.io._load.options import loaded_names
from popsr.io._open_file import OpenFile
from popsr.io._settings import (
    NO_SETTINGS,
    SETTINGS_PLACES,
    VERSION,
    SettingsReader,
    check_version,
    read_program,
)
from popsr.io._stored import StoredFile, StoredTensor
from popsr.io._torch.weights import load_weights

__all__ = [
    "TORCH_SUFFIXES",
    "TorchFile",
    "array_of_tensor",
    "dtype_of_name",
    "load_torch",
    "named_tensors",
    "open_torch",
]

TORCH_SUFFIXES = (".pt", ".pth")
METADATA = "popsr"
"""The key of popsr's texts in the ``_metadata`` of a state dict, which ``load_state_dict`` ignores."""

_MAX_DEPTH = 32
_FEW_VALUES, _MAX_VALUES = 1 << 20, 1 << 24
_TEXTS = (str, bytes, bytearray)
_END: tuple[Any, Any] = (object(), None)


@public
def load_torch(path: str | os.PathLike[str], *, only: Only = None, rename: Rename = None) -> Checkpoint:
    """All tensors of a file of ``torch.save``, and what it says of replicas.

    The file is read with ``weights_only=True``, so nothing in it runs, and mapped where it is a zip archive, so only
    what is wanted is read. Names of nested mappings and sequences are joined by dots, as ``optimizer.state.0.exp_avg``;
    what is not a tensor is left out. Hashes that ``save_torch(hashes=...)`` wrote are checked.

    Args:
        path: the file, popsr's or another writer's.
        only: names to load, as they are after ``rename``: a pattern of ``fnmatch``, several, or a predicate.
        rename: new names by the file's: a mapping, or a function that returns None for tensors to leave out.
    Returns:
        Arrays by name, with ``replication_factor``, ``settings`` and ``step`` where popsr wrote the file.
    Raises:
        CheckpointError: the file is damaged, holds more than weights, or is not a file of PyTorch.
        OSError: it cannot be read.
        ImportError: torch is not installed.
        NotImplementedError: a tensor that is not a dense array, such as a sparse or quantised one.
    """
    where = "load_torch"
    with open_torch(where, read_path(where, path)) as stored:
        return Checkpoint(stored, loaded_names(where, only, rename, stored.tensors))


@dataclass
class TorchFile(StoredFile):
    """A file of ``torch.save``; tensors are mapped, and become arrays when they are asked for."""

    torch: Any = None
    found: dict[str, Any] = field(default_factory=dict)

    def arrays(self, names: Iterable[str]) -> dict[str, Array]:
        """The data of tensors; nothing is returned unless all hashes are right."""
        result: dict[str, Array] = {}
        for name in names:
            self.known_dtype(self.tensors[name])
            array = array_of_tensor(self.torch, self.found[name])
            self._check_hash(name, array)
            # Pages of the file that it is mapped to would change with it.
            is_mapped = self.found[name].is_contiguous()
            result[name] = np.array(array, order="C", copy=True) if is_mapped else array
        self.file.check_unchanged()
        return result

    def _check_hash(self, name: str, array: Array) -> None:
        for algorithm, text in self.hashes.get(name, {}).items():
            if hashlib.new(algorithm, bytes_of(array)).hexdigest() != text:
                raise self.file.bad(
                    f"is damaged, got data of {shown_name(name)} whose {algorithm} is another one"
                )


@contextmanager
def open_torch(where: str, path: Path) -> Iterator[TorchFile]:
    """The checked contents of a file, for reading inside the block."""
    torch = framework(where, "torch")
    with OpenFile(where, path) as file:
        stored = TorchFile(file, Budget(file.bad, file.size), torch=torch)
        loaded = load_weights(torch, file)
        for name, tensor in named_tensors(torch, loaded, file.size):
            stored.add(_stored_tensor(torch, stored, name, tensor))
            stored.found[name] = tensor
        _take_shared(stored)
        _add_texts(stored, getattr(loaded, "_metadata", None))
        yield stored


def named_tensors(torch: Any, value: Any, size: int) -> Iterator[tuple[str, Any]]:
    """Tensors inside of mappings and sequences, with the keys and indices on the way joined by dots.

    Args:
        torch: the package.
        value: what the file holds.
        size: bytes of the file; a value takes two at least.

    Raises:
        CheckpointError: they are nested too deeply, or there are too many values: a list that has another twice, which
            has another twice, is small in a file.
    """
    if isinstance(value, torch.Tensor):
        yield "", value
        return
    waiting: list[Iterator[tuple[Any, Any]]] = [iter([("", value)])]
    count, limit = 0, min(_FEW_VALUES + size // 2, _MAX_VALUES)
    names = [""]
    while waiting:
        key, each = next(waiting[-1], _END)
        if key is _END[0]:
            waiting.pop()
            names.pop()
            continue
        count += 1
        if count > limit:
            raise CheckpointError(f"model: too many values, got more than {limit}, expected fewer")
        is_tensor = isinstance(each, torch.Tensor)
        if not is_tensor and (not isinstance(each, (Mapping, Sequence)) or isinstance(each, _TEXTS)):
            continue
        name = f"{names[-1]}.{key}" if names[-1] else str(key)
        if len(waiting) > _MAX_DEPTH + 1 or len(name) > Budget.NAME:
            raise CheckpointError(
                f"model: nested too deeply, got {shown_name(name)}, expected at most {_MAX_DEPTH} names of together "
                f"{Budget.NAME} characters"
            )
        if is_tensor:
            yield name, each
        else:
            waiting.append(iter(each.items()) if isinstance(each, Mapping) else enumerate(each))
            names.append(name)


def _stored_tensor(torch: Any, stored: TorchFile, name: str, tensor: Any) -> StoredTensor:
    shape = stored.budget.add_tensor(name, tuple(tensor.shape))
    kind = str(tensor.dtype).removeprefix("torch.")
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.device.type != "cpu":
        raise UnsupportedError(
            f"{stored.file.where}: {shown_name(name)} in {shown_path(stored.file.path)} is not a dense array, got "
            f"{kind} of layout {tensor.layout}, expected a strided tensor"
        )
    dtype = dtype_of_name(kind)
    nbytes = tensor.numel() * tensor.element_size()
    return StoredTensor(name, kind, dtype, shape, None, 0, nbytes)


def _take_shared(stored: TorchFile) -> None:
    """Count what tensors have beyond their storages: a tensor may be expanded, and many may share a storage.

    Raises:
        CheckpointError: it is out of proportion to the file.
    """
    storages = {
        each.untyped_storage()._cdata: each.untyped_storage().nbytes() for each in stored.found.values()
    }
    nbytes = sum(tensor.length for tensor in stored.tensors.values())
    stored.budget.take_memory(max(0, nbytes - sum(storages.values())))


def dtype_of_name(kind: str) -> np.dtype[Any] | None:
    """The dtype of PyTorch's name, as ``bfloat16``; None where NumPy has none."""
    known = _popsr_dtype(kind)
    return None if known is None else known.as_ml_dtypes()


def _popsr_dtype(kind: str) -> dtypes.dtype | None:
    found = (each for each in dtypes.dtype._all.values() if each.as_ml_dtypes().name == kind)
    return dtypes.dtype._all.get(kind) or next(found, None)


def array_of_tensor(torch: Any, tensor: Any) -> Array:
    """The data of a dense tensor on the CPU, shared where it is contiguous."""
    kind = str(tensor.dtype).removeprefix("torch.")
    known = _popsr_dtype(kind)
    plain = tensor.detach().contiguous()
    if known is None or known._is_foreign:  # NumPy does not know it: its bits
        bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()]
        array: Array = plain.view(bits).numpy()
        return array if known is None else array.view(known.as_ml_dtypes())
    return np.asarray(plain.numpy())


def _add_texts(stored: TorchFile, metadata: Any) -> None:
    """Add replicas, groups and hashes, where popsr wrote the file."""
    texts = metadata.get(METADATA) if isinstance(metadata, Mapping) else None
    if texts is None:
        return
    if not isinstance(texts, Mapping) or not all(
        isinstance(each, str) for pair in texts.items() for each in pair
    ):
        raise stored.file.bad(f"has wrong metadata under '{METADATA}', expected texts by name")
    check_version(stored.file, texts.get(VERSION, ""))
    stored.replication, stored.step = read_program(stored.file, texts)
    settings: dict[str, list[str | None]] = {}
    for key, text in texts.items():
        name, _, kind = key.rpartition("/")
        if name in stored.tensors and kind in SETTINGS_PLACES:
            settings.setdefault(name, list(NO_SETTINGS))[SETTINGS_PLACES[kind]] = text
        elif name in stored.tensors and kind in HASH_OF_KEY:
            stored.hashes.setdefault(name, {}).update([read_hash(stored.file, kind, text)])
    reader = SettingsReader(stored.file, stored.budget, stored.replication)
    for name, found in settings.items():
        tensor = stored.tensors[name]
        stored.tensors[name] = tensor._replace(settings=reader.read(name, tensor.shape, tuple(found)))
