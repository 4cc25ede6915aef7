"""The data files that popsr writes beside large ONNX models, and how they go when their model is replaced."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from popsr._support.host.files import file_errors, shown_path
from popsr.errors import Error, FileError
from popsr.io._budget import Budget
from popsr.io._new_file import NewFile, leftovers, remove, sibling_name
from popsr.io._onnx.format import DATA_FILE, OLD_DATA, PRODUCER, metadata
from popsr.io._onnx.read import read_model
from popsr.io._open_file import OpenFile

__all__ = ["OldData", "data_file", "remove_data"]

_SHOWN = 3
_logger = logging.getLogger("popsr")


def data_file(model: Path) -> Path:
    """A new name for the data file of a model."""
    return model.with_name(f"{sibling_name(model)}.{secrets.token_hex(4)}.data")


def remove_data(where: str, path: Path) -> None:
    """Remove a data file that is not needed any more; a failure is logged, for all that matters is saved."""
    remove(where, path, "data file", "it is not needed any more")


@dataclass(frozen=True)
class OldData:
    """The data files that are not needed any more when a model is replaced.

    A note beside the model has their names until they are removed: a save that is killed before that leaves it, and
    the next save finds it among the temporary files.
    """

    files: tuple[Path, ...] = ()

    @staticmethod
    def of(where: str, onnx: Any, model: Path) -> OldData:
        """The data file of the model of that name. What killed saves left is removed.

        Raises:
            FileError: the folder cannot be read.
        """
        own = _named(where, onnx, model, model)
        files = list(own)
        with file_errors(where, "write", model):
            for temporary in leftovers(model):
                for file in _named(where, onnx, temporary, model):
                    if file not in own:
                        with contextlib.suppress(OSError):
                            os.unlink(file)
                        if os.path.exists(file):
                            files.append(file)
        return OldData(tuple(files))

    def with_newest(self, where: str, onnx: Any, model: Path) -> OldData:
        """These files, and the data file of a model that another process has put there since."""
        newest = _named(where, onnx, model, model, warn=False)
        return OldData(tuple(dict.fromkeys((*self.files, *newest))))

    def like(self, model: Path) -> Path:
        """The file whose attributes a new data file takes over."""
        return next((file for file in self.files if os.path.exists(file)), model)

    @contextlib.contextmanager
    def replaced(self, where: str, onnx: Any, new: NewFile) -> Iterator[None]:
        """The block gives the model its new file; then the old data files are removed.

        So they are also where the folder of the new file cannot be synchronised: file systems keep the order of both.
        """
        if not self.files:
            yield
            return
        with NewFile(where, new.path) as note:
            note.write_at(0, self._note(onnx))
            try:
                yield
            finally:
                if new.is_committed:
                    self._remove(where, note)

    def _remove(self, where: str, note: NewFile) -> None:
        try:
            for file in self.files:
                remove_data(where, file)
        finally:
            if any(map(os.path.exists, self.files)):
                note.keep()

    def _note(self, onnx: Any) -> bytes:
        """A model without tensors that has the names."""
        names = "/".join(file.name for file in self.files)
        note = onnx.ModelProto(
            ir_version=1,
            producer_name=PRODUCER,
            graph=onnx.GraphProto(name="note"),
            metadata_props=metadata(onnx, {OLD_DATA: names}),
        )
        return bytes(note.SerializeToString())


def _named(where: str, onnx: Any, path: Path, owner: Path, *, warn: bool = True) -> list[Path]:
    """The data files of ``owner`` that the model or note at ``path`` names, if popsr wrote it."""
    pattern = re.compile(rf"{re.escape(sibling_name(owner))}\.[0-9a-f]{{8}}\.data")
    try:
        with OpenFile(where, path) as file:
            model = read_model(onnx, file, Budget(file.bad, file.size))
    except Error as error:
        if warn and path == owner and not (isinstance(error, FileError) and error.errno == errno.ENOENT):
            _warn_of_strays(where, owner, pattern, error)
        return []
    if model.producer_name != PRODUCER:
        return []
    names = [model.texts.get(DATA_FILE, ""), *model.texts.get(OLD_DATA, "").split("/")]
    return [owner.with_name(name) for name in names if pattern.fullmatch(name)]


def _warn_of_strays(where: str, model: Path, pattern: re.Pattern[str], error: Error) -> None:
    strays: list[str] = []
    with contextlib.suppress(OSError):
        strays = sorted(filter(pattern.fullmatch, os.listdir(model.parent)))
    if strays:
        more = f" and {len(strays) - _SHOWN} more" if len(strays) > _SHOWN else ""
        _logger.warning(
            "%s: cannot tell which data file belongs to the old %s, so these stay: %s%s (%s)",
            where,
            shown_path(model),
            ", ".join(strays[:_SHOWN]),
            more,
            error,
        )
