"""Paths, and errors about files and what is in them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from popsr._host_rows import Array
from popsr.errors import ArgumentTypeError, FileError

__all__ = ["bytes_of", "file_errors", "read_path", "shown", "shown_path", "shown_shape"]

_MAX_PATH = 160
_MAX_RANK = 8


def read_path(where: str, path: Any) -> Path:
    """``path`` as Path.

    Raises:
        TypeError: it is not a path.
    """
    if isinstance(path, (str, os.PathLike)):
        name = os.fspath(path)
        if isinstance(name, str) and name and "\0" not in name:
            return Path(name)
    raise ArgumentTypeError(f"{where}: not the path of a file, got {path!r}, expected a str or os.PathLike")


@contextlib.contextmanager
def file_errors(where: str, what: str, path: object) -> Iterator[None]:
    """Turn what the system refuses into a FileError."""
    try:
        yield
    except FileError:
        raise
    except OSError as error:
        found = FileError(f"{where}: cannot {what} {shown_path(path)}, got {error.strerror or error}")
        found.errno, found.filename = error.errno, str(path)
        raise found from None


def shown(text: str, limit: int = 60) -> str:
    """``text`` quoted for a message of one line: control characters escaped, long texts cut."""
    quoted = repr(text[:limit])
    if len(text) <= limit and len(quoted) <= 2 * limit:
        return quoted
    return f"{quoted[:limit].rstrip(quoted[0])}...{quoted[0]} ({len(text)} characters)"


def shown_path(path: object) -> str:
    """The end of a path, quoted for a message of one line."""
    quoted = repr(str(path))
    if len(quoted) <= _MAX_PATH + 2:
        return quoted
    return f"{quoted[0]}...{quoted[-_MAX_PATH:]}"


def shown_shape(shape: tuple[int, ...]) -> str:
    """A shape for a message: its first extents, and none of thousands of digits."""
    extents = [str(extent) if abs(extent) < 1 << 64 else "2**64 or more" for extent in shape[:_MAX_RANK]]
    if len(shape) > _MAX_RANK:
        return f"({', '.join(extents)}, ...)"
    return f"({', '.join(extents)}{',' * (len(shape) == 1)})"


def bytes_of(array: Array) -> memoryview:
    """The bytes of an array; a C-contiguous one is not copied."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
