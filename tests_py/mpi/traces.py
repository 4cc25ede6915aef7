"""Traces of several ranks: one file with the threads of all; run by ``test_traces.py``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

import popsr
from popsr.errors import FileError, RankError, SessionError
from tests_py.support.recorded_program import step
from tests_py.trace.test_beside_recordings import Run, assert_as_alone
from tests_py.trace.test_trace import complete, read


def beside_recordings(folder: Path, comm: MPI.Intracomm) -> None:
    """Files of ranks that record and trace at once are those of each alone."""
    ir, stream = step()
    data = np.random.default_rng(0).normal(size=(5, 4, 8, 16)).astype(np.float32)

    def made() -> tuple[popsr.Session, Run]:
        session = popsr.Session(ir, comm=comm, num_threads=2)
        own = list(session.local_replicas)

        def run(session: popsr.Session, number: int) -> None:
            rows = data[number, own]
            session.run({stream: rows[0] if len(own) == 1 else rows})

        return session, run

    for order in ("RT.rt", "TR.rt", "R.T.r.t", "T.R.t.r", "T.R.r.R.r.t"):
        assert_as_alone(order, folder, made, comm=comm)


def disagreements(folder: Path, comm: MPI.Intracomm) -> None:
    """Ranks that begin or end different ones are told at that call, and go on."""
    ir, _ = step()
    is_first = comm.rank == 0
    with popsr.Session(ir, comm=comm) as session:
        record, trace = folder / "R", folder / "T"
        for _ in range(2):
            with pytest.raises(
                RankError, match="ranks make other calls, got record on rank 0 and trace on rank 1"
            ):
                popsr.record(session, record) if is_first else session.trace(trace)
            assert not session._access.watchers
        recording, tracing = popsr.record(session, record), session.trace(trace)
        with pytest.raises(
            RankError, match="ranks make other calls, got record on rank 0 and trace on rank 1"
        ):
            (recording if is_first else tracing).close()
        with pytest.raises(
            SessionError, match=r"^trace: the session is watched already, got a trace in progress"
        ):
            session.trace(trace)
        left: Any = tracing if is_first else recording
        left._end()
        if is_first:
            session._access.watchers.add("record")  # as after an error that one rank alone has caught
        with pytest.raises(
            RankError,
            match=r"^trace: ranks differ in what is in progress, got 'record, trace' on rank 0 and 'trace' on rank 1",
        ):
            session.trace(trace)
        session._access.watchers.clear()
        with pytest.raises(FileError, match=r"^trace: cannot write"):
            session.trace(folder / "no" / "T")
        with (
            pytest.raises(SessionError, match=r"^trace: the session is watched already"),
            session.trace(trace),
        ):
            session.trace(trace)
        with popsr.record(session, record), session.trace(trace):
            pass
    comm.Barrier()
    assert {path.name for path in folder.iterdir() if path.is_file()} == {"R", "T"}


def main(folder: str) -> None:
    comm = MPI.COMM_WORLD
    for part in (beside_recordings, disagreements):
        inside = Path(folder) / part.__name__
        inside.mkdir(exist_ok=True)
        part(inside, comm)
    ir, stream = step()
    data = np.random.default_rng(0).normal(size=(4, 8, 16)).astype(np.float32)
    path = Path(folder) / "run.json.gz"
    with popsr.Session(ir, comm=comm, num_threads=2) as session:
        own = data[list(session.local_replicas)]
        data = own[0] if len(own) == 1 else own
        with session.trace(path):
            for _ in range(2):
                session.run({stream: data})
        comm.Barrier()
        found = complete(read(path))
        for rank in range(comm.size):
            names = [e["name"] for e in found if e["pid"] == rank and e["cat"] == "run"]
            assert names == ["run 0", "run 1"]
        begins = [min(e["ts"] for e in found if e["pid"] == rank) for rank in range(comm.size)]
        assert min(begins) == 0
        failed = Path(folder) / "failed.json"
        try:
            with session.trace(failed):
                raise KeyError("x")
        except KeyError:
            assert not failed.exists()
        session.run({stream: data})
    if comm.rank == 0:
        print("traces")


if __name__ == "__main__":
    main(sys.argv[1])
