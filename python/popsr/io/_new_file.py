"""Files that are replaced completely or not at all: each save of a checkpoint goes through ``NewFile``."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path

from popsr._support.host.files import file_errors, shown_path
from popsr.io._attributes import Attributes
from popsr.io._digest import Digest

__all__ = ["NewFile", "NoFile", "leftovers", "remove", "remove_leftovers", "sibling_name"]

_STEP = 4 << 20  # of one system call: what the digest has read is still in the cache when it is written
_SMALL = 64 << 10
_WRITE_BACK = 64 << 20
_MAX_NAME = 255  # bytes of the name of a file, on all usual file systems
_AROUND = 14  # bytes around it in the names of its temporary and data files
_TRIES = 100
_logger = logging.getLogger("popsr")


class NewFile:
    """A file that gets its name when it is complete.

    It is written under a hidden name in the same folder; ``commit`` synchronises it, gives it the old file's
    attributes, renames it and synchronises the folder. A block that is left without ``commit`` leaves nothing behind;
    what a killed process left is found by ``leftovers`` (its lock is gone then).

    Args:
        where: the caller, for messages.
        path: the name.
        owner: the file that this one belongs to. Default: itself.
        like: the file whose attributes it gets. Default: the one that it replaces.
    """

    def __init__(
        self, where: str, path: Path, *, owner: Path | None = None, like: Path | None = None
    ) -> None:
        self._where, self.path, self.size = where, path, 0
        self._digest = Digest()
        self._pending = bytearray()  # small pieces are hashed and written together
        self.is_committed = self._is_kept = False
        self._advised = 0
        self._owner = path if owner is None else owner
        self._like = path if like is None else like
        self._file = -1

    def __enter__(self) -> NewFile:
        with file_errors(self._where, "write", self.path):
            self._attributes = Attributes.of(self._where, self._like)
            mode = 0o666 if self._attributes is None else self._attributes.mode
            self._temporary, self._file = _create(self._owner, mode)
        return self

    def __exit__(self, *_: object) -> None:
        if self._file >= 0:
            try:
                if not self._is_kept:
                    remove(self._where, self._temporary, "temporary file", "the next save removes it")
            finally:
                self._close()

    def keep(self) -> None:
        """Leave the file under its hidden name, for ``leftovers`` of a later writer."""
        self._is_kept = True

    @property
    def digest(self) -> Digest:
        """The digest of all that was appended."""
        self._flush()
        return self._digest

    def write(self, data: bytes | memoryview) -> None:
        """Append bytes, to the digest too."""
        self.size += len(data)
        if len(data) < _SMALL:
            self._pending += data
            if len(self._pending) >= _SMALL:
                self._flush()
            return
        self._flush(len(data))
        rest = memoryview(data)
        while rest:
            self._append(self.size - len(rest), rest[:_STEP])
            rest = rest[_STEP:]

    def _flush(self, after: int = 0) -> None:
        """Write the small pieces, which stand ``after`` bytes before the end."""
        if self._pending:
            with memoryview(self._pending) as piece:
                self._append(self.size - after - len(piece), piece)
            self._pending = bytearray()

    def _append(self, offset: int, piece: memoryview) -> None:
        self._digest.update(piece)
        self.write_at(offset, piece)
        self._write_back(offset + len(piece))

    def write_at(self, offset: int, data: bytes | memoryview) -> None:
        """Write bytes at a place, not to the digest."""
        rest = memoryview(data)
        with file_errors(self._where, "write", self.path):
            while rest:
                written = os.pwrite(self._file, rest, offset)
                offset += written
                rest = rest[written:]

    def _write_back(self, end: int) -> None:
        """Let the disk begin now and not when it is told to synchronise: it works while we hash."""
        length = end - self._advised
        if length >= _WRITE_BACK and hasattr(os, "posix_fadvise"):
            with contextlib.suppress(OSError):  # it was only advice
                os.posix_fadvise(self._file, self._advised, length, os.POSIX_FADV_DONTNEED)
            self._advised = end

    def commit(self, *, is_kept: bool = True) -> None:
        """Replace the file of that name.

        Args:
            is_kept: the new file stays also when the folder cannot be synchronised.
        Raises:
            FileError: it was not replaced; or, if ``is_committed``, it was, and the folder cannot be synchronised.
        """
        self._flush()
        with file_errors(self._where, "write", self.path):
            if self._attributes is not None:
                self._attributes.give(self._file)
            os.fsync(self._file)
            os.replace(self._temporary, self.path)
        self.is_committed = True
        self._close()  # all of it is on the disk
        failed = "synchronise the folder after the new file took its place as" if is_kept else "write"
        with file_errors(self._where, failed, self.path):
            _sync_folder(self.path.parent)

    def _close(self) -> None:
        file, self._file = self._file, -1
        try:
            os.close(file)
        except OSError as error:
            if self.is_committed:
                _logger.warning(
                    "%s: cannot close %s, got %s: it was complete and synchronised before",
                    self._where,
                    shown_path(self.path),
                    error.strerror,
                )


class NoFile(NewFile):
    """Stands for a file that another rank writes."""

    def __enter__(self) -> NoFile:
        return self

    def write(self, data: bytes | memoryview) -> None:
        """Count bytes."""
        self.size += len(data)

    def write_at(self, offset: int, data: bytes | memoryview) -> None:
        """Do nothing."""

    def commit(self, *, is_kept: bool = True) -> None:  # noqa: ARG002 - no file stays
        """Do nothing."""
        self.is_committed = True


def remove(where: str, path: str | Path, what: str, consequence: str) -> None:
    """Remove a file that is of no use; a failure is logged."""
    try:
        os.unlink(path)
    except OSError as error:
        _logger.warning(
            "%s: cannot remove the %s %s, got %s: %s",
            where,
            what,
            shown_path(path),
            error.strerror,
            consequence,
        )


def remove_leftovers(where: str, owner: Path) -> None:
    """Remove the files that killed writers left.

    Raises:
        FileError: the folder cannot be read.
    """
    with file_errors(where, "write", owner):
        for _ in leftovers(owner):
            pass


def leftovers(owner: Path) -> Iterator[Path]:
    """Files that killed writers left, locked and one at a time; each is removed when the next one is asked for."""
    pattern = re.compile(rf"\.{re.escape(sibling_name(owner))}\.[0-9a-f]{{8}}\.tmp")
    for name in filter(pattern.fullmatch, os.listdir(owner.parent)):
        path = owner.parent / name
        try:
            file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            with contextlib.suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                yield path
                os.unlink(path)
        finally:
            with contextlib.suppress(OSError):
                os.close(file)


def sibling_name(path: Path) -> str:
    """The name of a file, as the names of those have it that belong to it; a long one is cut and has a digest."""
    name = path.name
    if len(os.fsencode(name)) <= _MAX_NAME - _AROUND:
        return name
    end = f"~{hashlib.sha256(os.fsencode(name)).hexdigest()[:16]}"
    while len(os.fsencode(name)) > _MAX_NAME - _AROUND - len(end):
        name = name[:-1]
    return f"{name}{end}"


def _create(owner: Path, mode: int) -> tuple[str, int]:
    for _ in range(_TRIES):
        name = str(owner.parent / f".{sibling_name(owner)}.{secrets.token_hex(4)}.tmp")
        file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            with contextlib.suppress(OSError):  # file systems without locks: then leftovers stay
                fcntl.flock(file, fcntl.LOCK_EX)
            if os.fstat(file).st_nlink:
                return name, file
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            _close_quietly(file)
            raise
        _close_quietly(file)  # another writer took it for a leftover before it was locked
    raise FileExistsError(f"other writers removed {_TRIES} temporary files")


def _close_quietly(file: int) -> None:
    with contextlib.suppress(OSError):
        os.close(file)


def _sync_folder(folder: Path) -> None:
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        _close_quietly(file)
