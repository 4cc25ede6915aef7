"""Recordings: a hash of each value that runs of a session compute."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import struct
from typing import Any

from popsr._session.protocol import SessionProtocol
from popsr._session.ranks.ranks import Ranks
from popsr._session.ranks.rows import one_writer
from popsr._support.host.arguments import is_a, read_path
from popsr._support.host.launcher import share
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr._tools.observation import Observation
from popsr._tools.record.file_format import MAGIC, TRAILER, VERSION
from popsr._tools.record.merging import merged
from popsr._tools.record.program_table import program_table
from popsr.errors import ArgumentTypeError
from popsr.io._new_file import NewFile, NoFile
from popsr.replicas import ReplicaGrouping

__all__ = ["Recording", "record"]


class Recording(Observation):
    """A recording in progress; ``close``, or the end of ``with``, writes the file.

    An error that leaves ``with`` is recorded up to where it came: the file is written, too; of several ranks there is
    none.
    """

    _kind = "record"

    def __init__(self, session: Any, path: str | os.PathLike[str]) -> None:
        """See :func:`popsr.record`."""
        if not is_a(session, SessionProtocol):
            raise ArgumentTypeError(f"record: not a session, got {shown(session)}, expected a popsr.Session")
        self._path = read_path("record", path)
        self._ir = session.ir
        self._digest = hashlib.blake2b(digest_size=16)
        self._records = bytearray()  # of this rank, if there are others
        self._file: NewFile = NoFile("record", self._path)
        super().__init__(session)

    def _start(self) -> None:
        with self._one_writer() as is_writer:
            if is_writer:
                self._file = NewFile("record", self._path).__enter__()
            header = json.dumps(program_table(self._ir, self._access.core.facts.seed_rules)).encode()
            self._write(MAGIC + struct.pack("<II", VERSION, len(header)) + header)
        self._access.core.record(self._write if self._ranks is None else self._keep)

    def _one_writer(self) -> contextlib.AbstractContextManager[bool]:
        return one_writer(self._ranks, "record", self._path, self._access.core.step)

    def _write(self, data: bytes) -> None:
        self._digest.update(data)
        self._file.write(data)

    def _keep(self, data: bytes) -> None:
        self._records += data

    def _finish(self) -> None:
        with self._one_writer() as is_writer:
            if self._ranks is not None:
                self._collect(self._ranks)
            if is_writer:
                self._file.write(TRAILER + self._digest.digest())
                self._file.commit()

    def _stop(self) -> None:
        self._access.core.end_recording()

    def _collect(self, ranks: Ranks) -> None:
        """Write the records of all ranks, on the rank that has the file."""
        texts = ranks.collect(bytes(self._records))
        if texts:
            shares = [share(self._ir.replication_factor, ranks.size, rank) for rank in range(ranks.size)]
            for records in merged(texts, shares, self._row_of):
                self._write(records)

    def _row_of(self, stream: int, replica: int) -> int:
        """The row of the host's data that a replica loads."""
        mode = self._ir._stream_cache[stream].replicated_stream_mode
        if isinstance(mode, ReplicaGrouping):
            return mode.assignment[replica]
        return 0 if mode == "broadcast" else replica


@public
def record(session: Any, path: str | os.PathLike[str]) -> Recording:
    """Record a hash of every value that the runs of a session compute, for ``popsr.diff``.

    For each op, iteration and block of equal replicas the file has a hash of 64 bits of the output, and for each run
    hashes of the variables and inputs when it began, and the seed. They depend on the values alone: not on the sharing
    of blocks, threads, instruction sets or ``optimise``. Values that fused ops never store are left out. A trace may be
    in progress, too, and begin and end before or after: the file is the same. The file gets its name when the recording
    ends::

        with popsr.record(session, "a.rec"):
            session.run(inputs)

    Args:
        session: the session. On several ranks of MPI all make the call, and end the recording together. Each rank keeps
            its records in memory until then; rank 0 writes the values of all replicas.
        path: the file, which is replaced.
    Raises:
        TypeError: not a session, or not a path.
        SessionError: the session is running, or is recorded already.
        FileError: the file cannot be written.
        RankError: ranks make other calls, record in other files, or differ in whether they trace.
    """
    return Recording(session, path)
