"""The tensors of a checkpoint file: what is known of them before their data is read, and how it is read."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from popsr._session.rows import Array
from popsr._support.host.carriers import FLOAT4, packed_bytes, unpack
from popsr._support.host.files import bytes_of, shown_name, shown_path
from popsr.errors import Error, UnsupportedError
from popsr.io._budget import Budget
from popsr.io._digest import Digest
from popsr.io._onnx.varints import Varints
from popsr.io._open_file import Hash, OpenFile, Pass
from popsr.io._settings import StoredSettings

__all__ = ["Make", "Seal", "StoredFile", "StoredTensor", "read_tensors"]


class StoredTensor(NamedTuple):
    """A tensor of a file whose size was checked. Its data is at ``begin`` of the file, or of that at ``location``."""

    name: str
    type_name: str
    dtype: np.dtype[Any] | None
    shape: tuple[int, ...]
    settings: StoredSettings | None
    begin: int
    length: int
    are_varints: bool = False
    location: str | None = None

    @property
    def nbytes(self) -> int:
        """Size of its data in the file; 0 of a dtype without arrays."""
        return 0 if self.dtype is None else self.data_size * self.dtype.itemsize

    @property
    def data_size(self) -> int:
        """Elements of its data: bytes, where a byte holds two."""
        count = math.prod(self.shape)
        return packed_bytes(count) if self.dtype == FLOAT4 else count

    def empty(self) -> Array:
        """An array for its data."""
        if self.dtype == FLOAT4:
            return np.empty(self.data_size, np.uint8)
        return np.empty(self.shape, self.dtype)

    def array(self, data: Array) -> Array:
        """Its data as its array."""
        return unpack(data, self.shape) if self.dtype == FLOAT4 else data


Make = Callable[[StoredTensor], Array | None]
"""A new array for a tensor; None for one that is only checked."""


@dataclass(frozen=True)
class Seal:
    """popsr's digest of a file.

    Args:
        start: where the rest of the digested bytes begins.
        end: where they end.
        is_right: compares a digest with the file's.
        advice: continues the error "is damaged".
        begun: the digest of what comes before ``start``.
        known: bytes that were read before, by their offset: they are digested, and not what is there now.
    """

    start: int
    end: int
    is_right: Callable[[str], bool]
    advice: str = ""
    begun: Digest = field(default_factory=Digest)
    known: Callable[[], Iterator[tuple[int, memoryview]]] = lambda: iter(())

    def check(self, file: OpenFile, digest: Digest) -> None:
        """Compare.

        Raises:
            CheckpointError: the file is not what popsr wrote.
        """
        if not self.is_right(digest.text()):
            raise file.bad(f"is damaged{self.advice}")


def read_tensors(
    file: OpenFile,
    tensors: Iterable[StoredTensor],
    make: Make,
    seal: Seal | None,
    others: Iterable[Hash] = (),
) -> None:
    """Read the data of tensors of one file in one pass, and check its digest.

    Args:
        file: the file.
        tensors: those that are wanted.
        make: makes their arrays.
        seal: the file's digest; without one, or another hash, only what is wanted is read.
        others: what all of the file goes to as well.
    Raises:
        CheckpointError: the digest is another one, or what is read does not fit.
    """
    digest = None if seal is None else seal.begun.copy()
    hashes = [*others] if digest is None else [digest, *others]
    start, end = (0, file.size) if seal is None else (seal.start, seal.end)
    way = Pass(file, hashes, start, () if seal is None else seal.known())
    for tensor in sorted(tensors, key=lambda tensor: tensor.begin):
        array = make(tensor)
        if tensor.are_varints:
            _read_varints(file, way, tensor, array)
        elif array is not None:
            way.read_into(tensor.begin, bytes_of(array))
    way.finish(end)
    if seal is not None and digest is not None:
        seal.check(file, digest)


def _read_varints(file: OpenFile, way: Pass, tensor: StoredTensor, array: Array | None) -> None:
    numbers = Varints(file, tensor.name, tensor.data_size, array)
    for block in way.blocks(tensor.begin, tensor.begin + tensor.length):
        numbers.append(block)
    numbers.finish()


@dataclass
class StoredFile:
    """A file whose structure was checked: its tensors, and how to read their data."""

    file: OpenFile
    budget: Budget
    replication: int | None = None
    step: int | None = None
    seal: Seal | None = None
    read_external: Callable[[list[StoredTensor], Make], None] | None = None
    tensors: dict[str, StoredTensor] = field(default_factory=dict)
    hashes: dict[str, dict[str, str]] = field(default_factory=dict)
    """By name, hexadecimal digits by the name of the hash."""

    def add(self, tensor: StoredTensor) -> None:
        """Append a tensor.

        Raises:
            CheckpointError: one of that name is there.
        """
        if self.tensors.setdefault(tensor.name, tensor) is not tensor:
            raise self.file.bad(
                f"has two tensors of one name, got {shown_name(tensor.name)} twice, expected each name once"
            )

    @contextlib.contextmanager
    def unless_damaged(self) -> Iterator[None]:
        """Check the digest when the block fails: what a damaged file seems to say is not what is wrong with it.

        Raises:
            CheckpointError: the digest is another one.
        """
        try:
            yield
        except Error:
            if self.seal is not None:
                digest = self.seal.begun.copy()
                Pass(self.file, [digest], self.seal.start).finish(self.seal.end)
                self.seal.check(self.file, digest)
            raise

    def known_dtype(self, tensor: StoredTensor) -> np.dtype[Any]:
        """The NumPy type of a tensor.

        Raises:
            UnsupportedError: there is none.
        """
        if tensor.dtype is None:
            raise UnsupportedError(
                f"{self.file.where}: {shown_name(tensor.name)} has a dtype without arrays, got {tensor.type_name} in "
                f"{shown_path(self.file.path)}, expected a dtype of NumPy or ml_dtypes"
            )
        return tensor.dtype

    def arrays(self, names: Iterable[str]) -> dict[str, Array]:
        """The data of tensors, read in one pass; nothing is returned unless all digests are right."""
        wanted = {name: self.tensors[name] for name in names}
        for tensor in wanted.values():
            self.known_dtype(tensor)
        arrays: dict[str, Array] = {}

        def make(tensor: StoredTensor) -> Array | None:
            if tensor.name not in wanted:
                return None
            try:
                array = tensor.empty()
            except MemoryError:
                raise self.file.bad(
                    f"does not fit into memory, got {tensor.nbytes} bytes for {shown_name(tensor.name)}"
                ) from None
            arrays[tensor.name] = array
            return array

        inside = [
            tensor
            for tensor in self.tensors.values()
            if tensor.location is None and (tensor.name in wanted or tensor.are_varints)
        ]
        read_tensors(self.file, inside, make, self.seal)
        if self.read_external is not None:
            self.read_external([tensor for tensor in wanted.values() if tensor.location is not None], make)
        for name, array in arrays.items():
            if array.dtype.kind == "b" and array.size and array.view(np.uint8).max() > 1:
                raise self.file.bad(f"has a bool that is neither 0 nor 1 in {shown_name(name)}")
        return {name: tensor.array(arrays[name]) for name, tensor in wanted.items()}
