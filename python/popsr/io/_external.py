"""Data of an ONNX model in files beside it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import NamedTuple

from popsr._host_rows import Array
from popsr._shown import shown
from popsr.io._checkpoint import bytes_of
from popsr.io._files import OpenFile, open_beneath

__all__ = ["DataFile", "ExternalData", "Place"]

_STEP = 4 << 20


class DataFile(NamedTuple):
    """What a model says of the data file that popsr wrote for it."""

    location: str
    nbytes: int
    digest: str


@dataclass(frozen=True)
class Place:
    """Where the data of one tensor lies."""

    location: str
    offset: int
    nbytes: int
    checksum: str | None


class ExternalData:
    """The data files of a model. They are opened only when tensors in them are read, beneath the model's folder."""

    def __init__(self, model: OpenFile, own: DataFile | None) -> None:
        self._model, self._own = model, own
        self._places: dict[str, Place] = {}

    def add(self, name: str, place: Place) -> None:
        """Note where a tensor lies."""
        if self._own is not None and place.location != self._own.location:
            raise self._model.bad(
                f"has external data in another file than it says, got {shown(place.location)} for {shown(name)}, "
                f"expected {shown(self._own.location)}"
            )
        self._places[name] = place

    def prepare(self, names: list[str]) -> None:
        """Check the files of these tensors: sizes, overlaps, checksums.

        Raises:
            CheckpointError: they are damaged, or lie elsewhere than beneath the model's folder.
            FileError: they cannot be read.
        """
        needed = {self._places[name].location for name in names if name in self._places}
        for location in sorted(needed):
            with self._open(location) as file:
                self._check(file, location)

    def fill(self, name: str, array: Array) -> None:
        """Read the data of a tensor."""
        place = self._places[name]
        with self._open(place.location) as file:
            file.read_into(place.offset, bytes_of(array))

    def _open(self, location: str) -> OpenFile:
        return open_beneath(self._model.where, self._model.path.parent, location)

    def _check(self, file: OpenFile, location: str) -> None:
        inside = {name: place for name, place in self._places.items() if place.location == location}
        end, before = 0, ""
        for name, place in sorted(inside.items(), key=lambda item: (item[1].offset, item[1].nbytes)):
            if place.offset < end and place.nbytes:
                raise file.bad(
                    f"has tensors that overlap, got {shown(before)} and {shown(name)} at byte {place.offset}"
                )
            end, before = max(end, place.offset + place.nbytes), name
            if end > file.size:
                raise file.bad(
                    f"is cut off, got {file.size} bytes, expected at least {end} for {shown(name)} of "
                    f"'{self._model.path}'"
                )
        if self._own is not None and file.size != self._own.nbytes:
            raise file.bad(f"has the wrong size, got {file.size} bytes, expected {self._own.nbytes}")
        if self._own is not None and file.digest(0, file.size) != self._own.digest:
            raise file.bad("is damaged: its digest is not the one that its model has")
        checksums = {place.checksum for place in inside.values() if place.checksum is not None}
        if checksums and checksums != {_sha1(file)}:
            raise file.bad("is damaged: its SHA-1 is not the checksum that its model has")


def _sha1(file: OpenFile) -> str:
    """What the ONNX format calls the checksum of a data file."""
    result = hashlib.sha1(usedforsecurity=False)
    for offset in range(0, file.size, _STEP):
        result.update(file.read(offset, min(_STEP, file.size - offset)))
    return result.hexdigest()
