"""Checkpoints as folders: a file for each variable, what else a session knows, and the state of a data loader.

``model/<name>.npz`` has the array of a variable under its name, and ``model/<name>.npy``, for one whose data is a
memory-mapped file, its bytes alone; of several groups of replicas a row each. ``session_info.json`` is an object, and
``dataloader.bin`` what a data loader wrote.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from popsr._program.tensor import Variable
from popsr._support.host.arguments import read_path
from popsr._support.host.files import bytes_of, file_errors
from popsr._support.text.shown import shown
from popsr.errors import CheckpointError, DTypeError, FileError, ShapeError, UnsupportedError

__all__ = [
    "DATALOADER",
    "MODEL",
    "check_type",
    "names_in",
    "new_folder",
    "read_array",
    "read_folder",
    "read_info",
    "remove",
    "write_array",
]

Array = np.ndarray[Any, Any]

MODEL, INFO, DATALOADER = "model", "session_info.json", "dataloader.bin"
_MAX_INFO = 1 << 20  # bytes of its JSON
_PIECE = 1 << 20  # of one call that reads


def read_folder(where: str, path: Any) -> Path:
    """``path`` as absolute path of a folder that may not exist yet.

    Raises:
        ArgumentTypeError: it is not a path.
        UnsupportedError: it is on Weights & Biases.
    """
    if isinstance(path, str) and path.startswith("wandb://"):
        raise UnsupportedError(
            f"{where}: Weights & Biases is not supported, got {shown(path)}, expected a folder"
        )
    found = read_path(where, path)
    with file_errors(where, "find", found):  # the folder of the process may be gone
        return found.absolute()


@contextlib.contextmanager
def new_folder(where: str, folder: Path, info: Mapping[str, Any]) -> Iterator[Path]:
    """A folder to write a checkpoint to; its parts take the place of those in ``folder`` when the block ends well.

    Args:
        where: the caller, for messages.
        folder: the folder of the checkpoint.
        info: what ``session_info.json`` says.
    Raises:
        FileError: it cannot be written; what was in ``folder`` is still there.
    """
    with file_errors(where, "write a checkpoint to", folder):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".new-", dir=folder) as name:
            new, old = Path(name, "new"), Path(name, "old")
            (new / MODEL).mkdir(parents=True)
            old.mkdir()
            (new / INFO).write_text(json.dumps(info, indent=2) + "\n")
            yield new
            for part in (MODEL, INFO, DATALOADER):
                if (folder / part).exists():
                    (folder / part).rename(old / part)
                if (new / part).exists():
                    (new / part).rename(folder / part)


def remove(where: str, folder: Path) -> None:
    """Delete a checkpoint, and its folder unless something else is in it."""
    with file_errors(where, "remove the checkpoint in", folder):
        shutil.rmtree(folder / MODEL, ignore_errors=True)
        for part in (INFO, DATALOADER):
            (folder / part).unlink(missing_ok=True)
        if folder.exists() and not any(folder.iterdir()):
            folder.rmdir()


def write_array(folder: Path, name: str, array: Array, *, raw: bool) -> None:
    """Write the data of a variable, as bytes alone if ``raw``."""
    if raw:
        array.tofile(folder / MODEL / f"{name}.npy")
    else:
        if array.dtype.str == "<f1":  # ml_dtypes' name, which NumPy writes and does not read
            array = array.view("V1")
        # np.savez takes some names for parameters of its own.
        path = folder / MODEL / f"{name}.npz"
        with zipfile.ZipFile(path, "w") as stored, stored.open(f"{name}.npy", "w", force_zip64=True) as file:
            np.lib.format.write_array(file, array, allow_pickle=False)


def names_in(where: str, folder: Path) -> Iterable[str]:
    """Names of the variables of a checkpoint.

    Raises:
        FileError: there is none.
    """
    if not (folder / MODEL).is_dir():
        raise FileError(
            f"{where}: no checkpoint, got {shown(str(folder))}, expected a folder that has a folder {shown(MODEL)}"
        )
    return {file.stem for file in (folder / MODEL).iterdir() if file.suffix in (".npz", ".npy")}


def read_array(where: str, folder: Path, name: str, variable: Variable) -> Array:
    """The data of a variable.

    Raises:
        CheckpointError: the file is damaged.
        FileError: it cannot be read.
        ShapeError, DTypeError: it is the data of another variable.
    """
    path, kind = folder / MODEL / f"{name}.npz", variable.dtype.as_numpy()
    if not path.exists():
        return _read_raw(where, path.with_suffix("").with_name(f"{name}.npy"), variable)
    try:
        with (
            file_errors(where, "read", path),
            zipfile.ZipFile(path) as stored,
            stored.open(f"{name}.npy") as file,
        ):
            shape, is_transposed, dtype = _read_header(file)
            if dtype.kind == "V" and dtype.names is None and dtype.itemsize == kind.itemsize:
                dtype = kind  # NumPy's files do not know the names of ml_dtypes' types
            check_type(where, name, dtype, shape, variable)
            return _read_data(file, shape, is_transposed, dtype)
    except (FileError, DTypeError, ShapeError):
        raise
    except (ValueError, KeyError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise CheckpointError(
            f"{where}: {shown(str(path))} is damaged, got {_line(error)}, expected {shown(name)}"
        ) from None


def _read_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether the order is Fortran's, and dtype of an array that follows; no more than they need is read."""
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(file)
    if version == (2, 0):
        return np.lib.format.read_array_header_2_0(file)
    raise ValueError(f"version {version} of the npy format")


def _read_data(file: IO[bytes], shape: tuple[int, ...], is_transposed: bool, dtype: np.dtype[Any]) -> Array:
    """The array, of which a file cannot make more than a variable of the program has."""
    array: Array = np.empty(shape[::-1] if is_transposed else shape, dtype)
    rest = bytes_of(array)
    while rest:
        piece = file.read(min(len(rest), _PIECE))
        if not piece:
            raise EOFError(f"{array.nbytes - len(rest)} bytes of {array.nbytes}")
        rest[: len(piece)] = piece
        rest = rest[len(piece) :]
    if file.read(1):  # also compares the file's checksum
        raise EOFError(f"more than {array.nbytes} bytes")
    return array.T if is_transposed else array


def _read_raw(where: str, path: Path, variable: Variable) -> Array:
    kind, shape = variable.dtype.as_numpy(), variable.shape_on_host
    wanted = kind.itemsize * math.prod(shape)
    with file_errors(where, "read", path), path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        data = np.fromfile(file, np.uint8, wanted) if size == wanted else np.empty(0, np.uint8)
    if size != wanted or data.size != wanted:
        raise ShapeError(
            f"{where}: {shown(str(path))} is of another size, got {size} bytes, expected {wanted}"
        )
    array: Array = data.view(kind).reshape(shape)
    return array


def check_type(
    where: str, name: str, dtype: np.dtype[Any], shape: tuple[int, ...], variable: Variable
) -> None:
    """Raise unless a variable can hold an array of that type.

    Raises:
        ShapeError, DTypeError: it cannot.
    """
    if dtype != variable.dtype.as_numpy():
        raise DTypeError(
            f"{where}: {shown(name)} is of another dtype, got {dtype}, expected {variable.dtype.name}"
        )
    if shape != variable.shape_on_host:
        raise ShapeError(
            f"{where}: {shown(name)} is of another shape, got {shape}, expected {variable.shape_on_host}"
        )


def read_info(where: str, folder: Path) -> dict[str, Any]:
    """Contents of ``session_info.json``; without the file, the state before any run.

    Raises:
        CheckpointError: it is damaged.
        FileError: it cannot be read.
    """
    path = folder / INFO
    if not path.exists():
        return {"steps": 0}
    try:
        with file_errors(where, "read", path), path.open("rb") as file:
            text = file.read(_MAX_INFO + 1)
        if len(text) > _MAX_INFO:
            raise CheckpointError(
                f"{where}: {shown(str(path))} is too long, got more than {_MAX_INFO} bytes, expected less"
            )
        info = json.loads(text)
    except CheckpointError:
        raise
    except (ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{where}: {shown(str(path))} is damaged, got {_line(error)}, expected JSON"
        ) from None
    steps = info.get("steps", 0) if isinstance(info, dict) else None
    if not isinstance(steps, int) or isinstance(steps, bool) or steps < 0:
        raise CheckpointError(
            f"{where}: {shown(str(path))} is damaged, got {shown(info)}, expected an object with 'steps'"
        )
    return {"steps": 0, **info}


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
