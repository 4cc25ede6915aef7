"""Opening of files that another wrote: regular ones only, so that no pipe waits for ever and no device is endless."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from popsr._support.host.files import file_errors, shown_path
from popsr.errors import Error, FileError

__all__ = ["check_regular", "open_regular", "read_regular"]

_KINDS = (
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISDIR, "a folder"),
)


def open_regular(path: str | os.PathLike[str], where: str, error: type[Error] = FileError) -> BinaryIO:
    """Open a regular file for reading bytes; links are followed.

    Args:
        path: the file.
        where: the call, for messages.
        error: class of the error for what is not a regular file.

    Raises:
        Error: of the class ``error``, at once: a FIFO, a device, a socket or a folder.
        FileError: the system refuses.
    """
    found = Path(path)
    with file_errors(where, "read", found):
        check_regular(where, found, os.stat(found), error=error)  # opening a device may already change it
        # A FIFO that took the file's place opens at once, and is refused below.
        descriptor = os.open(found, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            check_regular(where, found, os.fstat(descriptor), error=error)
            return os.fdopen(descriptor, "rb")
        except BaseException:
            os.close(descriptor)
            raise


def read_regular(
    path: str | os.PathLike[str], where: str, limit: int, error: type[Error] = FileError
) -> bytes:
    """All bytes of a regular file of at most ``limit`` bytes.

    Raises:
        Error: of the class ``error``: not a regular file, or a longer one.
        FileError: the system refuses.
    """
    with open_regular(path, where, error) as file, file_errors(where, "read", path):
        data = file.read(limit + 1)
        size = max(len(data), os.fstat(file.fileno()).st_size)
    if size > limit:
        raise error(f"{where}: {shown_path(path)} is too long, got {size} bytes, expected at most {limit}")
    return data


def check_regular(
    where: str, path: Path, found: os.stat_result, advice: str = "", error: type[Error] = FileError
) -> None:
    """Refuse what is not a regular file, by its status.

    Raises:
        Error: of the class ``error``; the message ends with ``advice``.
    """
    if stat.S_ISREG(found.st_mode):
        return
    kind = next((name for is_kind, name in _KINDS if is_kind(found.st_mode)), "something else")
    raise error(f"{where}: cannot read {shown_path(path)}, got {kind}, expected a file{advice}")
