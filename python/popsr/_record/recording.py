"""Recordings: a hash of each value that runs of a session compute."""

from __future__ import annotations

import hashlib
import json
import os
import struct
from types import TracebackType
from typing import Any, Self

from popsr._host.arguments import is_a, read_path
from popsr._record.program_table import program_table
from popsr._session.state import HostState
from popsr._text.entry_points import entry_point
from popsr._text.shown import shown
from popsr.errors import ArgumentTypeError, UnsupportedError
from popsr.io._new_file import NewFile

__all__ = ["MAGIC", "TRAILER", "VERSION", "Recording", "record"]

MAGIC, TRAILER, VERSION = b"popsrREC", b"popsrEND", 1


class Recording:
    """A recording in progress; ``close``, or the end of ``with``, writes the file.

    An error that leaves ``with`` is recorded up to where it came: the file is written, too.
    """

    def __init__(self, session: Any, path: str | os.PathLike[str]) -> None:
        """See :func:`popsr.record`."""
        if not is_a(session, HostState):
            raise ArgumentTypeError(f"record: not a session, got {shown(session)}, expected a popsr.Session")
        target = read_path("record", path)
        if session._ranks is not None:
            raise UnsupportedError(
                "record: the session has several ranks, got a communicator, expected a session of one process"
            )
        state = session._state
        state.require_idle("record")
        state.require_unobserved("record")
        header = json.dumps(program_table(session.ir)).encode()
        self._state, self._digest = state, hashlib.blake2b(digest_size=16)
        self._file: NewFile | None = NewFile("record", target).__enter__()
        try:
            self._write(MAGIC + struct.pack("<II", VERSION, len(header)) + header)
            state.core.record(self._write)
        except BaseException:
            self._file.__exit__()
            raise
        state.observer = "record"

    def _write(self, data: bytes) -> None:
        if self._file is not None:
            self._digest.update(data)
            self._file.write(data)

    def close(self) -> None:
        """Write the file; a second call does nothing.

        Raises:
            SessionError: inside a run.
            FileError: the file cannot be written.
        """
        if self._file is None:
            return
        self._state.require_idle("record")
        self._end()
        file, self._file = self._file, None
        try:
            file.write(TRAILER + self._digest.digest())
            file.commit()
        finally:
            file.__exit__()

    def _end(self) -> None:
        self._state.core.end_observation()
        self._state.observer = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@entry_point
def record(session: Any, path: str | os.PathLike[str]) -> Recording:
    """Record a hash of every value that the runs of a session compute, for ``popsr.diff``.

    For each op, iteration and block of equal replicas the file has 64 bits of the output, and for each run those of the
    variables and of the inputs when it began, and the seed. They depend on the values alone: not on the sharing of
    blocks, threads, instruction sets or ``optimise``. Values that fused ops never store are left out. The file gets its
    name when the recording ends::

        with popsr.record(session, "a.rec"):
            session.run(inputs)

    Args:
        session: the session, with one process.
        path: the file, which is replaced.
    Raises:
        TypeError: not a session, or not a path.
        SessionError: the session is running, or is recorded or traced already.
        FileError: the file cannot be written.
        UnsupportedError: the session has several ranks.
    """
    return Recording(session, path)
