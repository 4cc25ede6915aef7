"""Data of an ONNX model in files beside it."""

from __future__ import annotations

import hashlib
import sys
from typing import NamedTuple

from popsr._support.host.files import shown_name, shown_path
from popsr.io._budget import Budget
from popsr.io._open_file import OpenFile, open_beneath
from popsr.io._stored import Make, Seal, StoredTensor, read_tensors

__all__ = ["DataFile", "ExternalData"]

_LOCATION_BYTES = 400  # of what is kept of a data file besides its name


class DataFile(NamedTuple):
    """The data file that popsr wrote for a model, as the model describes it."""

    location: str
    nbytes: int
    digest: str


class ExternalData:
    """The data files of a model. They are opened only when tensors in them are read, beneath the model's folder."""

    def __init__(self, model: OpenFile, own: DataFile | None) -> None:
        self._model, self._own = model, own
        self._locations: dict[str, str] = {}
        self._inside: dict[str, list[StoredTensor]] = {}
        self._checksums: dict[str, set[str]] = {}

    def location(self, name: str, budget: Budget) -> str:
        """The name of a data file; equal names are one object."""
        found = self._locations.get(name)
        if found is None:
            budget.take_memory(_LOCATION_BYTES + sys.getsizeof(name))
            found = self._locations[name] = name
        return found

    def add(self, tensor: StoredTensor, checksum: str | None) -> None:
        """Note a tensor that lies in another file, and what the file's SHA-1 is said to be."""
        location = tensor.location
        assert location is not None
        if self._own is not None and location != self._own.location:
            raise self._model.bad(
                f"has external data in another file than it says, got {shown_name(location)} for "
                f"{shown_name(tensor.name)}, "
                f"expected {shown_name(self._own.location)}"
            )
        self._inside.setdefault(location, []).append(tensor)
        if checksum is not None:
            self._checksums.setdefault(location, set()).add(checksum)

    def read(self, tensors: list[StoredTensor], make: Make) -> None:
        """Read the data of tensors, each file in one pass.

        Raises:
            CheckpointError: a file is damaged, or lies elsewhere than beneath the model's folder.
            FileError: it cannot be read.
        """
        wanted: dict[str, list[StoredTensor]] = {}
        for tensor in tensors:
            assert tensor.location is not None
            wanted.setdefault(tensor.location, []).append(tensor)
        seen = {self._model.identity: self._model.path.name}
        for location in sorted(wanted):
            with open_beneath(self._model.where, self._model.path.parent, location) as file:
                if file.identity in seen:
                    raise file.bad(
                        f"is the same file as {shown_name(seen[file.identity])}, expected a data file of its own"
                    )
                seen[file.identity] = location
                self._check(file, location)
                self._read(file, location, wanted[location], make)

    def _check(self, file: OpenFile, location: str) -> None:
        end, before = 0, ""
        for tensor in sorted(self._inside[location], key=lambda tensor: (tensor.begin, tensor.length)):
            if tensor.begin < end and tensor.length:
                raise file.bad(
                    f"has tensors that overlap, got {shown_name(before)} and {shown_name(tensor.name)} at byte "
                    f"{tensor.begin}"
                )
            end, before = max(end, tensor.begin + tensor.length), tensor.name
            if end > file.size:
                raise file.bad(
                    f"is cut off, got {file.size} bytes, expected at least {end} for {shown_name(tensor.name)} of "
                    f"{shown_path(self._model.path.name)}"
                )
        if self._own is not None and file.size != self._own.nbytes:
            raise file.bad(f"has the wrong size, got {file.size} bytes, expected {self._own.nbytes}")
        if file.links > 1 and self._own is None and location not in self._checksums:
            raise file.bad(
                f"may be a file from elsewhere, got {file.links} hard links and no checksum in the model, expected a "
                "file with one name"
            )

    def _read(self, file: OpenFile, location: str, tensors: list[StoredTensor], make: Make) -> None:
        seal = None
        if self._own is not None:
            expected = self._own.digest
            advice = ": its digest is not the one that its model has"
            seal = Seal(0, file.size, lambda digest: digest == expected, advice)
        checksums = self._checksums.get(location, set())
        sha1 = hashlib.sha1(usedforsecurity=False)
        read_tensors(file, tensors, make, seal, [sha1] if checksums else [])
        if checksums and checksums != {sha1.hexdigest()}:
            raise file.bad("is damaged: its SHA-1 is not the checksum that its model has")
