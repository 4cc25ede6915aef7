"""Arrays of checkpoints of Orbax, read by a process of their own whose memory is limited."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import stat
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from popsr._support.host.files import file_errors, shown_name, shown_path
from popsr._support.host.frameworks import not_installed
from popsr._support.host.regular_files import check_regular
from popsr._support.text.one_line import one_line
from popsr._support.text.shown import shown
from popsr.bridge.audit._held import Array, Contents, Held
from popsr.bridge.audit._orbax_reader import Reader
from popsr.errors import CheckpointError, UnsupportedError
from popsr.io._budget import Budget
from popsr.io._torch.read import dtype_of_name

__all__ = ["has_items", "has_tree", "is_orbax", "is_root", "is_trace", "read_orbax", "refuse_unfinished"]

_METADATA, _ROOT = "_METADATA", "_CHECKPOINT_METADATA"
_TRACES = ("manifest.ocdbt", "_sharding")
_TEMPORARY = ".orbax-checkpoint-tmp"
_AGGREGATE = "checkpoint"  # small values in MessagePack, by versions up to 2023
_ROOM = 64 << 20
_PER_ARRAY, _PER_CHECKPOINT = 4, 32  # bytes of arrays for each byte of the files: zeros compress well
_BYTES_PER_CHUNK = 8  # less than any takes
_NODES = 512 << 20  # bytes of a database, at most, that nodes of its tree take
_SECONDS = 30  # of processor time for an answer, and more by what is asked
_BYTES_PER_SECOND = 10 << 20  # a slow decoder
_TEXT_PER_SECOND = 20_000  # of the metadata: an entry takes about 200 bytes, and its array a few milliseconds
_DEFAULT = "default"


def is_orbax(path: Path) -> bool:
    """True for the metadata of a tree, which stand for its folder."""
    return path.name == _METADATA


def is_trace(path: Path) -> bool:
    """True for files that a tree has beside its metadata."""
    return path.name in _TRACES and not path.parent.name.startswith("ocdbt.process_")


def has_tree(folder: Path) -> bool:
    """True for a folder with the metadata of a tree."""
    return (folder / _METADATA).exists()


def is_root(path: Path) -> bool:
    """True for the file that the folder of a step or a tree has."""
    return path.name == _ROOT


def has_items(folder: Path) -> bool:
    """True for a folder that is a tree or a part of one, or has trees as items."""
    names = (_METADATA, *_TRACES, f"*/{_METADATA}", *(f"*/{name}" for name in _TRACES))
    return any(next(folder.glob(name), None) is not None for name in names)


def refuse_unfinished(where: str, path: Path) -> Contents:
    """The error for a folder without metadata.

    Raises:
        CheckpointError: always.
    """
    raise CheckpointError(
        f"{where}: {shown_path(path.parent)} has no {_METADATA}, got {shown_name(path.name)}, expected a whole "
        "checkpoint of a tree by Orbax"
    )


def read_orbax(where: str, path: Path) -> Contents:
    """The arrays of a checkpoint by name; ``path`` is that of its metadata.

    Items of a step, which are folders of their own, go before names, but the one that Orbax calls default. Objects
    that are no arrays are left out, and counted.

    Raises:
        CheckpointError: it is damaged or unfinished, or claims more than its files allow.
        FileError: a file cannot be read.
        MissingPackageError: tensorstore is not installed.
        UnsupportedError: it holds values in another form.
    """
    folder = path.parent
    if any(_TEMPORARY in part for part in folder.parts):
        raise CheckpointError(f"{where}: {shown_path(folder)} is a save by Orbax that did not finish")
    if (folder / _AGGREGATE).is_file():
        raise UnsupportedError(
            f"{where}: {shown_path(folder)} is of an old version of Orbax, got values in {shown(_AGGREGATE)}, expected "
            "all in arrays"
        )
    if importlib.util.find_spec("tensorstore") is None:
        raise not_installed(where, "tensorstore")
    checkpoint = _Checkpoint(where, folder, _stored_bytes(where, folder))
    found = checkpoint.describe()
    prefix = ""
    if not (folder / _ROOT).exists() and (folder.parent / _ROOT).exists() and folder.name != _DEFAULT:
        prefix = f"{folder.name}."
    tensors = {f"{prefix}{name}": each for name, each in found.tensors.items()}
    return Contents(tensors, found.left_out)


def _stored_bytes(where: str, folder: Path) -> int:
    """Bytes of the files of a folder, all of them regular ones: the process that reads them would wait for a FIFO."""
    total = 0
    with file_errors(where, "read", folder):
        for at, folders, names in os.walk(folder):
            for name in names:
                status = os.stat(os.path.join(at, name))
                check_regular(where, Path(at, name), status)
                total += status.st_size
            for name in folders:
                if stat.S_ISLNK(os.lstat(os.path.join(at, name)).st_mode):
                    raise CheckpointError(
                        f"{where}: {shown_path(folder)} leads out of its folder, got the link {shown_name(name)}, "
                        "expected folders"
                    )
    return total


class _Checkpoint:
    """The arrays of a folder, which a process reads that is started when it is needed."""

    def __init__(self, where: str, folder: Path, stored: int) -> None:
        self._where, self._folder, self._stored = where, folder, stored
        self._stores_zeros, self._driver, self._chunks = True, "", 0
        self._nodes = min(stored, _NODES)
        self._reader = Reader(folder)

    def _bad(self, text: str) -> CheckpointError:
        return CheckpointError(f"{self._where}: {shown_path(self._folder)} {text}")

    def describe(self) -> Contents:
        """The arrays; no data are read."""
        with file_errors(self._where, "read", self._folder):
            size = (self._folder / _METADATA).stat().st_size
        facts = self._ask({"room": self._nodes, "seconds": _SECONDS + size // _TEXT_PER_SECOND})
        self._stores_zeros, self._driver = facts["stores_zeros"], facts["driver"]
        budget = Budget(self._bad, self._stored)
        tensors = {name: self._held(budget, name, each) for name, each in facts["arrays"].items()}
        total, most = sum(each.nbytes for each in tensors.values()), self._allowed(_PER_CHECKPOINT)
        if total > most:
            raise self._bad(f"claims more than it has, got {total} bytes of arrays, expected at most {most}")
        return Contents(tensors, facts["left_out"])

    def _allowed(self, per_byte: int) -> int:
        return _ROOM + per_byte * self._stored

    def _held(self, budget: Budget, name: str, facts: dict[str, Any]) -> Held:
        shape = budget.add_tensor(name, facts["shape"])
        itemsize = facts["itemsize"]
        if itemsize == 0:
            raise UnsupportedError(
                f"{self._where}: {shown_path(self._folder)} has {shown_name(name)}, which is not an array of numbers, "
                f"got {facts['dtype']}, expected a dtype of JAX"
            )
        nbytes = math.prod(shape) * itemsize
        written = max(math.prod(facts[key]) for key in ("chunk", "written")) * itemsize
        most = self._allowed(_PER_ARRAY)
        if max(nbytes, written) > most:
            raise self._bad(
                f"claims more than it has, got {nbytes} bytes of {shown_name(name)} in chunks of {written}, expected "
                f"at most {most}, {_PER_ARRAY} for each byte of its files"
            )
        chunk = tuple(facts["chunk"])
        chunks = math.prod(-(-n // step) for n, step in zip(shape, chunk, strict=True))
        self._chunks += chunks
        if self._chunks > self._stored // _BYTES_PER_CHUNK:
            raise self._bad(
                f"claims more than it has, got {chunks} chunks of {shown_name(name)}, expected at most one for each "
                f"{_BYTES_PER_CHUNK} bytes of its files"
            )
        read = partial(self._whole, name, shape, chunk, itemsize, written)
        return Held(facts["dtype"], shape, read, nbytes, itemsize, dtype_of_name(facts["dtype"]))

    def _whole(
        self, name: str, shape: tuple[int, ...], chunk: tuple[int, ...], itemsize: int, written: int
    ) -> Array:
        """The bytes of an array."""
        bits = np.dtype(f"V{itemsize}")
        whole = np.empty(shape, bits)
        counts = [-(-n // step) for n, step in zip(shape, chunk, strict=True)]
        for number in range(math.prod(counts)):
            index = np.unravel_index(number, counts)
            at = [int(i) * step for i, step in zip(index, chunk, strict=True)]
            sizes = [min(step, n - a) for a, n, step in zip(at, shape, chunk, strict=True)]
            part = np.empty(sizes, bits)
            target = part.reshape(-1).view(np.uint8)
            room = self._nodes + written
            limits = {"room": room, "seconds": _SECONDS + room // _BYTES_PER_SECOND}
            self._ask({"name": name, "at": at, "sizes": sizes, **limits}, target)
            if part.shape == shape:
                whole = part
            else:
                whole[tuple(slice(a, a + n) for a, n in zip(at, sizes, strict=True))] = part
        return whole.reshape(-1).view(np.uint8)

    def _ask(self, request: dict[str, Any], target: Array | None = None) -> dict[str, Any]:
        """The answer to a request; the bytes after it go to ``target``."""
        line = self._reader.ask(request | {"driver": self._driver})
        if not line.endswith(b"\n"):
            raise self._died()
        found: dict[str, Any] = json.loads(line)
        if "error" in found:
            raise self._bad(self._explained(request, one_line(found["error"], 360)))
        if target is not None:
            if found["length"] != target.nbytes:
                raise self._bad(
                    f"changed while it was read, got {found['length']} bytes, expected {target.nbytes}"
                )
            if not self._reader.fill(target):
                raise self._died()
        return found

    def _explained(self, request: dict[str, Any], text: str) -> str:
        if "name" not in request:
            return text
        zeros = (
            "" if self._stores_zeros else " (or zeros that its writer left out, which cannot be told apart)"
        )
        at = f"{shown_name(request['name'])} at {request['at']}"
        return f"cannot be read: {at} {text}, expected each chunk of it{zeros}"

    def _died(self) -> CheckpointError:
        return self._bad(
            "needs more memory or time than its sizes allow, or crashes what reads it: its reader ended with status "
            f"{self._reader.end()}, expected chunks of the sizes that its metadata say"
        )
