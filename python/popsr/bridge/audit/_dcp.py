"""Tensors of checkpoints of torch.distributed.checkpoint, assembled from their chunks when they are asked for."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from popsr._support.host.files import shown_name, shown_path
from popsr._support.text.one_line import one_line
from popsr.bridge.audit._dcp_metadata import Chunk, Entry, Range, read_metadata
from popsr.bridge.audit._held import Array, Contents, Held
from popsr.errors import CheckpointError, UnsupportedError
from popsr.io._open_file import OpenFile
from popsr.io._torch.read import array_of_tensor, dtype_of_name
from popsr.io._torch.weights import load_weights_of_bytes

__all__ = ["read_distributed"]

_NEIGHBOURS = 1 << 12  # chunks of one tensor that a chunk is compared with, on the average
_MAX_OBJECT = 1 << 16  # bytes of an entry that may be a number: torch.save writes about 1,300 for one


def read_distributed(torch: Any, where: str, path: Path) -> Contents:
    """The tensors and numbers of a checkpoint by name; ``path`` is that of its metadata.

    Objects that are not numbers are left out, and counted.

    Raises:
        CheckpointError: a file is damaged, or the metadata holds more than that.
        FileError: a file cannot be read.
    """
    with OpenFile(where, path) as file:
        entries = read_metadata(torch, file)
        reader = _Reader(torch, file)
        found = {name: reader.entry(name, each) for name, each in entries.items()}
    tensors = {name: each for name, each in found.items() if each is not None}
    others = len(found) - len(tensors)
    return Contents(tensors, {"object": others} if others else {})


class _Reader:
    """The files of ranges beside the metadata."""

    def __init__(self, torch: Any, metadata: OpenFile) -> None:
        self._torch, self._metadata = torch, metadata
        self._sizes: dict[str, int] = {}
        self._claimed: dict[str, int] = {}

    def entry(self, name: str, entry: Entry) -> Held | None:
        for chunk in entry.chunks:
            self._check_range(name, chunk.stored)
        if entry.dtype is None:
            return self._number(entry.chunks[0].stored)
        itemsize = getattr(self._torch, entry.dtype).itemsize
        nbytes = math.prod(entry.shape) * itemsize
        _check_chunks(self._metadata, name, entry)
        stored = sum(chunk.stored.length for chunk in entry.chunks)
        if nbytes > stored:
            raise self._metadata.bad(
                f"claims more than it has, got {nbytes} bytes of {shown_name(name)}, expected at most the {stored} of "
                "its ranges"
            )
        dtype = dtype_of_name(entry.dtype)
        return Held(entry.dtype, entry.shape, partial(self._whole, name, entry), nbytes, itemsize, dtype)

    def _open(self, name: str) -> OpenFile:
        return OpenFile(self._metadata.where, self._metadata.path.parent / name)

    def _check_range(self, name: str, stored: Range) -> None:
        if stored.file not in self._sizes:
            with self._open(stored.file) as file:
                self._sizes[stored.file] = file.size
        size, end = self._sizes[stored.file], stored.offset + stored.length
        if end > size:
            path = self._metadata.path.parent / stored.file
            raise CheckpointError(
                f"{self._metadata.where}: {shown_path(path)} is cut off, got {size} bytes, expected at least {end} for "
                f"{shown_name(name)}"
            )
        claimed = self._claimed[stored.file] = self._claimed.get(stored.file, 0) + stored.length
        if claimed > size:
            raise self._metadata.bad(
                f"has ranges that overlap, got {claimed} bytes of {shown_name(stored.file)} up to {shown_name(name)}, "
                f"expected at most its {size}"
            )

    def _load(self, stored: Range) -> Any:
        with self._open(stored.file) as file:
            data = file.read(stored.offset, stored.length)
        return load_weights_of_bytes(self._torch, data)

    def _number(self, stored: Range) -> Held | None:
        """A number of Python; None for any other object, which weights only may refuse to read."""
        if stored.length > _MAX_OBJECT:
            return None
        try:
            value = self._load(stored)
            types: dict[type, Any] = {bool: np.bool_, int: np.int64, float: np.float64}
            array: Array = np.array(value, types[type(value)])
        except (CheckpointError, OSError):
            raise
        except Exception:  # of its own kinds: the object is not plain
            return None
        data = array.reshape(1).view(np.uint8)
        return Held(str(array.dtype), (), lambda: data, array.nbytes, array.itemsize, array.dtype)

    def _whole(self, name: str, entry: Entry) -> Array:
        """The bytes of a tensor."""
        if len(entry.chunks) == 1:
            return self._part(name, entry, entry.chunks[0]).reshape(-1).view(np.uint8)
        bits = np.dtype(f"V{getattr(self._torch, entry.dtype or '').itemsize}")
        whole = np.empty(entry.shape, bits)  # copies of dtypes might change the bits of a NaN
        for chunk in entry.chunks:
            place = tuple(slice(a, a + n) for a, n in zip(chunk.offsets, chunk.sizes, strict=True))
            whole[place] = self._part(name, entry, chunk).view(bits)
        return whole.reshape(-1).view(np.uint8)

    def _part(self, name: str, entry: Entry, chunk: Chunk) -> Array:
        where = f"{self._metadata.where}: {shown_path(self._metadata.path.parent / chunk.stored.file)}"
        try:
            tensor = self._load(chunk.stored)
        except (CheckpointError, OSError):
            raise
        except Exception as error:  # of its own kinds, and whatever damage leads to
            text = one_line(str(error).partition("\n")[0], 160)
            raise CheckpointError(
                f"{where} is damaged at {shown_name(name)}, got {chunk.stored.length} bytes at {chunk.stored.offset}, "
                f"expected a tensor of torch.save; torch.load says: {text}"
            ) from None
        if not isinstance(tensor, self._torch.Tensor):
            raise CheckpointError(
                f"{where} has no tensor at {shown_name(name)}, got {type(tensor).__name__}, expected a tensor"
            )
        if tensor.layout != self._torch.strided or tensor.is_quantized:
            raise UnsupportedError(
                f"{where} has {shown_name(name)}, which is not a dense array, got layout {tensor.layout}, expected a "
                "strided tensor"
            )
        got = (str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))
        if got != (entry.dtype, chunk.sizes):
            raise CheckpointError(
                f"{where} has another tensor at {shown_name(name)}, got {got[0]}{list(got[1])}, expected "
                f"{entry.dtype}{list(chunk.sizes)}"
            )
        return array_of_tensor(self._torch, tensor)


def _check_chunks(file: OpenFile, name: str, entry: Entry) -> None:
    """Refuse chunks that leave the tensor, overlap, or do not cover it."""
    rank = len(entry.shape)
    for chunk in entry.chunks:
        if not len(chunk.offsets) == len(chunk.sizes) == rank or any(
            a + n > extent for a, n, extent in zip(chunk.offsets, chunk.sizes, entry.shape, strict=True)
        ):
            raise file.bad(
                f"has a wrong chunk of {shown_name(name)}, got {list(chunk.sizes)} at {list(chunk.offsets)}, expected "
                f"one inside of {list(entry.shape)}"
            )
    filled = [chunk for chunk in entry.chunks if math.prod(chunk.sizes)]
    covered = sum(math.prod(chunk.sizes) for chunk in filled)
    begins = np.array([chunk.offsets for chunk in filled], np.int64).reshape(len(filled), rank)
    ends = begins + np.array([chunk.sizes for chunk in filled], np.int64).reshape(len(filled), rank)
    overlap = _overlap(file, name, begins, ends)
    if overlap or covered != math.prod(entry.shape):
        raise file.bad(
            f"has wrong chunks of {shown_name(name)}, got {'overlapping ones' if overlap else f'{covered} elements'}, "
            f"expected all {math.prod(entry.shape)} elements once"
        )


def _overlap(file: OpenFile, name: str, begins: Array, ends: Array) -> bool:
    """True if two boxes have an element in common; a box is compared with those that begin beside it on one axis."""
    count, rank = begins.shape
    if count < 2 or rank == 0:
        return bool(count > 1)
    axis = max(range(rank), key=lambda i: len(np.unique(begins[:, i])))
    order = np.argsort(begins[:, axis], kind="stable")
    begins, ends = begins[order], ends[order]
    stops = np.searchsorted(begins[:, axis], ends[:, axis])
    neighbours = int(np.sum(stops - np.arange(count)))
    if neighbours > _NEIGHBOURS * count:
        raise file.bad(
            f"has too many chunks of {shown_name(name)} side by side, got {neighbours // count}, expected at most "
            f"{_NEIGHBOURS} on the axis that has most"
        )
    return any(
        bool(((begins[i + 1 : stop] < ends[i]) & (begins[i] < ends[i + 1 : stop])).all(axis=1).any())
        for i, stop in enumerate(stops.tolist())
    )
