"""The data files that popsr writes beside large ONNX models, and how they go when their model is replaced."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from popsr.errors import Error, FileError
from popsr.io._budget import Budget
from popsr.io._files import file_errors, shown_path
from popsr.io._new_file import leftovers, sibling_name
from popsr.io._onnx_format import DATA_FILE, OLD_DATA, PRODUCER
from popsr.io._onnx_read import read_model
from popsr.io._open_file import OpenFile

__all__ = ["OldData", "data_file", "remove_data"]

_SHOWN = 3
_logger = logging.getLogger("popsr")


def data_file(model: Path) -> Path:
    """A new name for the data file of a model."""
    return model.with_name(f"{sibling_name(model)}.{secrets.token_hex(4)}.data")


def remove_data(where: str, path: Path) -> None:
    """Remove a data file that is not needed any more; all that matters is saved, so a failure is logged."""
    try:
        path.unlink()
    except OSError as error:
        _logger.warning(
            "%s: cannot remove the data file %s, got %s: it is not needed any more",
            where,
            shown_path(path),
            error.strerror,
        )


@dataclass(frozen=True)
class OldData:
    """The data files of a model that is about to be replaced.

    The new model has their names, so that the next save finds them when this one is killed before it removed them.
    """

    files: tuple[Path, ...] = ()

    @staticmethod
    def of(where: str, onnx: Any, model: Path) -> OldData:
        """Those of the model of that name. The data files of models that killed saves left are removed.

        Raises:
            FileError: the folder cannot be read.
        """
        own, old = _read(where, onnx, model, model)
        with file_errors(where, "write", model):
            for temporary in leftovers(model):
                unfinished, _ = _read(where, onnx, temporary, model)
                for file in unfinished:
                    if file not in own and os.path.exists(file):
                        remove_data(where, file)
        return OldData((*own, *(file for file in old if os.path.exists(file))))

    def with_newest(self, where: str, onnx: Any, model: Path) -> OldData:
        """These files, and the data file of a model that another process has put there since."""
        own, _ = _read(where, onnx, model, model)
        return OldData(tuple(dict.fromkeys((*self.files, *own))))

    def like(self, model: Path) -> Path:
        """The file whose attributes a new data file takes over."""
        return next((file for file in self.files if os.path.exists(file)), model)

    def text(self) -> dict[str, str]:
        """Metadata of the new model."""
        return {OLD_DATA: "/".join(file.name for file in self.files)} if self.files else {}

    def remove(self, where: str) -> None:
        """Remove the files."""
        for file in self.files:
            remove_data(where, file)


def _read(where: str, onnx: Any, path: Path, owner: Path) -> tuple[list[Path], list[Path]]:
    """The data file that popsr wrote for the model at ``path``, and the data files of models before it."""
    pattern = re.compile(rf"{re.escape(sibling_name(owner))}\.[0-9a-f]{{8}}\.data")
    try:
        with OpenFile(where, path) as file:
            model = read_model(onnx, file, Budget(file.bad, file.size))
    except Error as error:
        if path == owner and not (isinstance(error, FileError) and error.errno == 2):
            _warn_of_strays(where, owner, pattern, error)
        return [], []
    if model.producer_name != PRODUCER:
        return [], []

    def named(key: str) -> list[Path]:
        names = model.texts.get(key, "").split("/")
        return [owner.with_name(name) for name in names if pattern.fullmatch(name)]

    return named(DATA_FILE), named(OLD_DATA)


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
