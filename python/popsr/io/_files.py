"""Files that are replaced completely or not at all, and files that are read within their bounds."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from popsr._shown import shown
from popsr.errors import CheckpointError, FileError
from popsr.io._digest import Digest

__all__ = ["NewFile", "OpenFile", "file_errors", "open_beneath"]

_BLOCK = 64 << 10
_STEP = 4 << 20  # of one system call: what the digest has read is still in the cache when it is written
_WRITE_BACK = 64 << 20


@contextlib.contextmanager
def file_errors(where: str, what: str, path: object) -> Iterator[None]:
    """Turn what the system refuses into a FileError."""
    try:
        yield
    except FileError:
        raise
    except OSError as error:
        found = FileError(f"{where}: cannot {what} '{path}', got {error.strerror or error}")
        found.errno, found.filename = error.errno, str(path)
        raise found from None


class NewFile:
    """A file that gets its name when it is complete.

    It is written under a hidden name in the same folder; ``commit`` synchronises it, gives it the old file's mode,
    renames it and synchronises the folder. A block that is left without ``commit`` leaves nothing behind; what a
    killed process left is removed by the next writer for the same ``owner`` (its lock is gone then).
    """

    def __init__(self, where: str, path: Path, *, owner: Path | None = None) -> None:
        self._where, self.path, self.digest, self.size = where, path, Digest(), 0
        self.is_committed = False
        self._advised = 0
        self._owner = path if owner is None else owner
        self._file = -1

    def __enter__(self) -> NewFile:
        with file_errors(self._where, "write", self.path):
            self._mode = _mode_of(self._where, self.path)
            _remove_leftovers(self._owner)
            self._temporary, self._file = _create(self._owner, 0o666 if self._mode is None else self._mode)
        return self

    def __exit__(self, *_: object) -> None:
        if self._file >= 0:
            with contextlib.suppress(OSError):
                os.unlink(self._temporary)
            os.close(self._file)

    def write(self, data: bytes | memoryview) -> None:
        """Append bytes, to the digest too."""
        rest = memoryview(data)
        with file_errors(self._where, "write", self.path):
            while rest:
                self.digest.update(rest[:_STEP])
                self.write_at(self.size, rest[:_STEP])
                self.size += len(rest[:_STEP])
                rest = rest[_STEP:]
                self._write_back()

    def write_at(self, offset: int, data: bytes | memoryview) -> None:
        """Write bytes at a place, not to the digest."""
        rest = memoryview(data)
        with file_errors(self._where, "write", self.path):
            while rest:
                written = os.pwrite(self._file, rest, offset)
                offset += written
                rest = rest[written:]

    def _write_back(self) -> None:
        """Let the disk begin now and not when it is told to synchronise: it works while we hash."""
        length = self.size - self._advised
        if length >= _WRITE_BACK and hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._file, self._advised, length, os.POSIX_FADV_DONTNEED)
            self._advised = self.size

    def commit(self) -> None:
        """Replace the file of that name."""
        with file_errors(self._where, "write", self.path):
            if self._mode is not None:
                os.fchmod(self._file, self._mode)
            os.fsync(self._file)
            os.replace(self._temporary, self.path)
            self.is_committed = True
            file, self._file = self._file, -1
            os.close(file)
            _sync_folder(self.path.parent)


def _mode_of(where: str, path: Path) -> int | None:
    """Permissions of the file that will be replaced; only plain files are."""
    try:
        found = path.stat().st_mode
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found):
        raise FileError(f"{where}: cannot write '{path}', got something else than a file under that name")
    return stat.S_IMODE(found)


def _create(owner: Path, mode: int) -> tuple[str, int]:
    while True:
        name = str(owner.parent / f".{owner.name}.{secrets.token_hex(4)}.tmp")
        file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with contextlib.suppress(OSError):  # file systems without locks: then leftovers stay
            fcntl.flock(file, fcntl.LOCK_EX)
        if os.fstat(file).st_nlink:
            return name, file
        os.close(file)  # another writer took it for a leftover before it was locked


def _remove_leftovers(owner: Path) -> None:
    pattern = re.compile(rf"\.{re.escape(owner.name)}\.[0-9a-f]{{8}}\.tmp")
    for name in filter(pattern.fullmatch, os.listdir(owner.parent)):
        with contextlib.suppress(OSError):
            file = os.open(owner.parent / name, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(owner.parent / name)
            finally:
                os.close(file)


def _sync_folder(folder: Path) -> None:
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


class OpenFile:
    """A file that is read at given places; reading past its end is a CheckpointError. Never memory-mapped."""

    def __init__(self, where: str, path: Path, file: int | None = None) -> None:
        """Opens ``path``, or takes over an open file descriptor."""
        self.where, self.path = where, path
        with file_errors(where, "read", path):
            self._file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC) if file is None else file
            found = os.fstat(self._file)
        self.size = found.st_size
        self._block, self._start = b"", 0
        if not stat.S_ISREG(found.st_mode):
            self.close()
            raise FileError(f"{where}: cannot read '{path}', got something else than a file")

    def __enter__(self) -> OpenFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def bad(self, text: str) -> CheckpointError:
        """The error for contents that are not as they must be."""
        return CheckpointError(f"{self.where}: '{self.path}' {text}")

    def number(self, key: str, text: str, least: int, most: int) -> int:
        """A decimal number of the file's metadata."""
        # Not all that int() takes: no spaces, signs, underscores or other scripts' digits.
        if text.isascii() and text.isdigit() and len(text) <= 20 and least <= int(text) <= most:
            return int(text)
        raise self.bad(f"has a wrong {key}, got {shown(text[:40])}, expected a number from {least} to {most}")

    def read(self, offset: int, count: int) -> bytes:
        """Exactly ``count`` bytes."""
        if offset + count > self.size:
            raise self.bad(f"is cut off, got {self.size} bytes, expected at least {offset + count}")
        at = offset - self._start
        if at >= 0 and at + count <= len(self._block):
            return self._block[at : at + count]
        if count < _BLOCK:
            with file_errors(self.where, "read", self.path):
                self._block, self._start = os.pread(self._file, _BLOCK, offset), offset
            if len(self._block) < count:
                raise self.bad("became shorter while it was read")
            return self._block[:count]
        data = bytearray(count)
        self.read_into(offset, memoryview(data))
        return bytes(data)

    def read_into(self, offset: int, target: memoryview) -> None:
        """Fill a writable buffer of bytes."""
        with file_errors(self.where, "read", self.path):
            while target:
                count = os.preadv(self._file, [target[:_STEP]], offset)
                if count == 0:
                    raise self.bad("became shorter while it was read")
                offset, target = offset + count, target[count:]

    def digest(self, start: int, end: int, prefix: bytes = b"") -> str:
        """The digest of ``prefix`` and the bytes from ``start`` to ``end``."""
        result = Digest()
        result.update(prefix)
        block = np.empty(_STEP, np.uint8).data
        for offset in range(start, end, _STEP):
            piece = block[: end - offset]
            self.read_into(offset, piece)
            result.update(piece)
        return result.text()


def open_beneath(where: str, folder: Path, name: str) -> OpenFile:
    """Open a file that another file names; nothing outside of ``folder`` can be reached, not by links either.

    Raises:
        CheckpointError: the name leads out of the folder.
        FileError: there is no such file, or a link is on the way.
    """
    parts = name.split("/")
    if not name or name.startswith("/") or "\\" in name or "\0" in name or {"", ".", ".."} & set(parts):
        raise CheckpointError(
            f"{where}: name of external data {shown(name)} leads out of the model's folder, expected a file beneath it"
        )
    path = folder / name
    at = -1
    try:
        with file_errors(where, "read", path):
            at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            for i, part in enumerate(parts):
                last = os.O_NONBLOCK if i + 1 == len(parts) else os.O_DIRECTORY
                file = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | last, dir_fd=at)
                os.close(at)
                at = file
        file, at = at, -1
        return OpenFile(where, path, file)
    finally:
        if at >= 0:
            os.close(at)
