"""Paths, and errors about files and what is in them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from popsr._support.text.shown import shown_text
from popsr.errors import FileError

__all__ = ["bytes_of", "file_errors", "shown_name", "shown_path", "shown_shape"]

_MAX_PATH = 160
_MAX_RANK = 8


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


def shown_name(text: str, limit: int = 60) -> str:
    """A text of a file, quoted for a message of one line; the beginning of a long one."""
    return shown_text(text, limit)


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


def bytes_of(array: np.ndarray[Any, Any]) -> memoryview:
    """The bytes of an array; a C-contiguous one is not copied."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
