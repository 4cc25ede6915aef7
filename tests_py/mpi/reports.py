"""Reports of several ranks: each gets its own, and rank 0 writes the file; run by ``test_reports.py``."""

from __future__ import annotations

import sys
from pathlib import Path

from mpi4py import MPI

import popsr
from tests_py.report import programs


def main(folder: str) -> None:
    comm = MPI.COMM_WORLD
    session = popsr.Session(programs.layers(2, replicas=4), comm=comm)
    path = Path(folder) / "run.html"
    report = session.report(path)
    assert f"this is rank {comm.rank} with replicas" in str(report)
    pages = comm.allgather(report.html)
    assert path.read_text() == pages[0] != pages[1]
    if comm.rank == 0:
        print("reports")


if __name__ == "__main__":
    main(sys.argv[1])
