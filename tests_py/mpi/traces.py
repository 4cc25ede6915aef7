"""Traces of several ranks: one file with the threads of all; run by ``test_traces.py``."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

import popsr
from tests_py.support.recorded_program import step
from tests_py.trace.test_trace import complete, read


def main(folder: str) -> None:
    comm = MPI.COMM_WORLD
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
