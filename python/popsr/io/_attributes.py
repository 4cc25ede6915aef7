"""Permissions, owner and extended attributes that a new file takes over from the one that it replaces."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from popsr._support.host.files import shown_path
from popsr.errors import FileError

__all__ = ["Attributes"]


@dataclass(frozen=True)
class Attributes:
    """Attributes of a plain file. Access control lists are extended attributes."""

    mode: int
    owner: int
    group: int
    extended: dict[str, bytes]

    @staticmethod
    def of(where: str, path: Path) -> Attributes | None:
        """Attributes of the file that ``path`` names; None when there is none.

        Raises:
            FileError: something else than a file has that name.
        """
        try:
            found = path.stat()
        except FileNotFoundError:
            return None
        if not stat.S_ISREG(found.st_mode):
            raise FileError(
                f"{where}: cannot write {shown_path(path)}, got something else under that name, expected a file"
            )
        return Attributes(stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid, dict(_extended(path)))

    def give(self, file: int) -> None:
        """Give them to an open file: the permissions, and of the rest what the system permits.

        Raises:
            OSError: the permissions cannot be set.
        """
        found = os.fstat(file)
        if (found.st_uid, found.st_gid) != (self.owner, self.group):
            try:
                os.fchown(file, self.owner, self.group)
            except OSError:  # only root may give files away
                with contextlib.suppress(OSError):
                    os.fchown(file, -1, self.group)
        os.fchmod(file, self.mode)
        for name, value in self.extended.items():
            with contextlib.suppress(OSError):
                os.setxattr(file, name, value)


def _extended(path: Path) -> Iterator[tuple[str, bytes]]:
    with contextlib.suppress(OSError):  # file systems without them
        for name in os.listxattr(path):
            with contextlib.suppress(OSError):
                yield name, os.getxattr(path, name)
