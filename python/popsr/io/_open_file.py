"""Files that are read within their bounds, and never memory-mapped."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol

import numpy as np

from popsr._support.host.files import file_errors, shown_name, shown_path
from popsr._support.host.regular_files import check_regular
from popsr.errors import CheckpointError

__all__ = ["Hash", "OpenFile", "Pass", "open_beneath"]

_BLOCK = 64 << 10
_STEP = 1 << 20  # of one system call: what was read is still in the cache when it is hashed


class Hash(Protocol):
    """A hash that bytes are appended to."""

    def update(self, data: memoryview, /) -> object:
        """Append bytes."""


class OpenFile:
    """A file that is read at given places; reading past its end is a CheckpointError."""

    def __init__(self, where: str, path: Path, file: int | None = None) -> None:
        """Opens ``path``, or takes over an open file descriptor."""
        self.where, self.path = where, path
        self._file = -1
        with file_errors(where, "read", path):
            self._file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC) if file is None else file
            try:
                self._found = os.fstat(self._file)
            except BaseException:
                self.close()
                raise
        self.size = self._found.st_size
        self._block, self._start = b"", 0
        if not stat.S_ISREG(self._found.st_mode):
            self.close()
            check_regular(where, path, self._found, _advice(path))

    def __enter__(self) -> OpenFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. It was only read, so an error of closing it has no consequence."""
        file, self._file = self._file, -1
        with contextlib.suppress(OSError):
            os.close(file)

    @property
    def identity(self) -> tuple[int, int]:
        """Equal for two names of one file."""
        return self._found.st_dev, self._found.st_ino

    @property
    def links(self) -> int:
        """Names of the file."""
        return self._found.st_nlink

    def bad(self, text: str) -> CheckpointError:
        """The error for contents that are not as they must be."""
        return CheckpointError(f"{self.where}: {shown_path(self.path)} {text}")

    def number(self, key: str, text: str, least: int, most: int) -> int:
        """A decimal number of the file's metadata."""
        # Not all that int() takes: no spaces, signs, underscores or other scripts' digits.
        if text.isascii() and text.isdigit() and len(text) <= 20 and least <= int(text) <= most:
            return int(text)
        raise self.bad(
            f"has a wrong {key}, got {shown_name(text, 40)}, expected a number from {least} to {most}"
        )

    def read(self, offset: int, count: int) -> bytes:
        """Exactly ``count`` bytes."""
        if offset + count > self.size:
            raise self.bad(f"is cut off, got {self.size} bytes, expected at least {offset + count}")
        at = offset - self._start
        if at >= 0 and at + count <= len(self._block):
            return self._block[at : at + count]
        if count < _BLOCK:
            self._block, self._start = self._read(offset, count, _BLOCK), offset
            return self._block[:count]
        return self._read(offset, count, count)

    def _read(self, offset: int, least: int, most: int) -> bytes:
        parts, found = [], 0
        with file_errors(self.where, "read", self.path):
            while found < least:
                parts.append(os.pread(self._file, most - found, offset + found))
                if not parts[-1]:
                    raise self.bad("became shorter while it was read")
                found += len(parts[-1])
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def read_into(self, offset: int, target: memoryview) -> None:
        """Fill a writable buffer of bytes."""
        with file_errors(self.where, "read", self.path):
            while target:
                count = os.preadv(self._file, [target[:_STEP]], offset)
                if count == 0:
                    raise self.bad("became shorter while it was read")
                offset, target = offset + count, target[count:]

    def check_unchanged(self) -> None:
        """Refuse a file that was written to since it was opened, as far as its size and time of change tell."""
        with file_errors(self.where, "read", self.path):
            now = os.fstat(self._file)
        if (now.st_size, now.st_mtime_ns) != (self._found.st_size, self._found.st_mtime_ns):
            raise self.bad("was changed while it was read")


def _advice(path: Path) -> str:
    is_distributed = (path / ".metadata").is_file()
    return (
        " (dcp_to_torch_save of torch.distributed.checkpoint.format_utils writes one)"
        if is_distributed
        else ""
    )


class Pass:
    """One way through a file from front to back, in which each byte is read once: what is kept is what is hashed.

    Args:
        file: the file.
        hashes: all that is passed goes to them. Without any, what is not wanted is not read.
        start: where the way begins.
        known: bytes that were read before, by their offset in ascending order. They are hashed as they were then.
    """

    def __init__(
        self,
        file: OpenFile,
        hashes: Iterable[Hash],
        start: int = 0,
        known: Iterable[tuple[int, memoryview]] = (),
    ) -> None:
        self._file, self._hashes, self._at = file, tuple(hashes), start
        self._known = iter(known)
        self._next = next(self._known, None)
        self._pending = bytearray()  # small pieces are hashed together
        self._scratch: memoryview | None = None

    def read_into(self, offset: int, target: memoryview) -> None:
        """Fill a writable buffer from ``offset`` on, which is not before the end of the bytes that were read last."""
        if not target:
            return  # it may be anywhere in what is known
        self._advance(offset)
        self._at += len(target)
        if len(target) < _BLOCK:
            target[:] = self._file.read(offset, len(target))
            self._hash(target)
            return
        while target:
            piece, target = target[:_STEP], target[_STEP:]
            self._file.read_into(offset, piece)
            self._hash(piece)
            offset += len(piece)

    def blocks(self, begin: int, end: int) -> Iterator[memoryview]:
        """The bytes between two places, in pieces that are valid until the next one is asked for."""
        if begin == end:
            return
        self._advance(begin)
        if self._scratch is None:
            self._scratch = np.empty(_STEP, np.uint8).data
        while self._at < end:
            piece = self._scratch[: end - self._at]
            self._file.read_into(self._at, piece)
            self._at += len(piece)
            self._hash(piece)
            yield piece

    def finish(self, end: int) -> None:
        """Go on to ``end``; the hashes are complete then. A file without any must not have changed meanwhile."""
        self._advance(end)
        self._flush()
        if not self._hashes:
            self._file.check_unchanged()

    def _advance(self, offset: int) -> None:
        if not self._hashes:
            self._at = offset
        while self._at < offset:
            if self._next is not None and self._next[0] == self._at:
                self._hash(self._next[1])
                self._at += len(self._next[1])
                self._next = next(self._known, None)
                continue
            stop = offset if self._next is None else min(offset, self._next[0])
            for _ in self.blocks(self._at, stop):
                pass
        assert self._at == offset, (self._at, offset)

    def _hash(self, piece: memoryview) -> None:
        if not self._hashes:
            return
        if len(piece) < _BLOCK:
            self._pending += piece
            if len(self._pending) < _BLOCK:
                return
            self._flush()
            return
        self._flush()
        for each in self._hashes:
            each.update(piece)

    def _flush(self) -> None:
        with memoryview(self._pending) as piece:
            for each in self._hashes:
                each.update(piece)
        self._pending = bytearray()


def open_beneath(where: str, folder: Path, name: str) -> OpenFile:
    """Open a file that another file names; nothing outside of ``folder`` can be reached, not by links either.

    Raises:
        CheckpointError: the name leads out of the folder.
        FileError: there is no such file, or a link is on the way.
    """
    parts = name.split("/")
    if not name or name.startswith("/") or "\\" in name or "\0" in name or {"", ".", ".."} & set(parts):
        raise CheckpointError(
            f"{where}: name of external data {shown_name(name)} leads out of the model's folder, expected a file "
            f"beneath it"
        )
    path = folder / name
    with file_errors(where, "read", path):
        at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        for i, part in enumerate(parts):
            last = os.O_NONBLOCK if i + 1 == len(parts) else os.O_DIRECTORY
            try:
                file = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | last, dir_fd=at)
            finally:
                with contextlib.suppress(OSError):
                    os.close(at)  # never twice: the number may be another thread's by then
            at = file
    return OpenFile(where, path, at)
