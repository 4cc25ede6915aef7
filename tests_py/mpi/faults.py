"""A program on ranks in which one of them fails at a numbered point: before, in or after any exchange, or in a file.

``python -m tests_py.mpi.faults KIND RANK POINT FOLDER``. Points are counted on each rank: one before each session, run
and save, one before and one after each exchange of messages, one before each write to a file and each read of one.
KIND is "kill" (SIGKILL), "interrupt" (SIGINT), "error" (an exception that is not popsr's), "never" (the rank makes no
further step), or "count": then rank 0 prints the numbers of points of all ranks.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from mpi4py import MPI

import popsr
import popsr.io
from popsr import ops
from popsr._session.ranks import ranks
from popsr._support.host import message_sizes
from popsr.io import _new_file, _open_file

COMM = MPI.COMM_WORLD
KIND, AT_RANK, AT_POINT, FOLDER = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
message_sizes.CHAINS = (0, 5)
message_sizes.MESSAGE_BYTES = 40


class Fault(Exception):
    """The exception of the rank that fails."""


class Points:
    """Counts points, and fails at one of them."""

    def __init__(self) -> None:
        self.count = 0

    def next(self) -> None:
        self.count += 1
        if COMM.rank == AT_RANK and self.count == AT_POINT:
            self.fail()

    @staticmethod
    def fail() -> None:
        if KIND == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif KIND == "interrupt":
            signal.raise_signal(signal.SIGINT)
        elif KIND == "error":
            raise Fault("of this rank")
        elif KIND == "never":
            threading.Event().wait()

    def around(self, owner: Any, name: str, *, after: bool) -> None:
        """Points before, and after, each call of a function."""
        function: Callable[..., Any] = getattr(owner, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            self.next()
            result = function(*args, **kwargs)
            if after:
                self.next()
            return result

        mock.patch.object(owner, name, call).start()


def program() -> tuple[popsr.Ir, Any, Any]:
    """Sums in chains, an odd grouping, and variables that single ranks hold."""
    ir = popsr.Ir(replication=4)
    with ir.main_graph, popsr.in_sequence():
        x = popsr.h2d_stream((11,), popsr.float32, name="x")
        y = popsr.d2h_stream((11,), popsr.float32, name="y")
        w = popsr.variable(np.zeros(11, np.float32), name="w")
        alone = ir.replica_grouping(group_size=1)
        own = popsr.variable(np.zeros((4, 11), np.float32), name="own", replica_grouping=alone)
        value = ops.host_load(x)
        ops.add_(own, value)
        ops.add_(own, ops.collectives.replicated_all_reduce(value, group=ir.replica_grouping(stride=2)))
        ops.add_(w, ops.collectives.replicated_all_reduce(own))
        ops.host_store(y, w)
    return ir, x, (w, own)


def main() -> None:
    points = Points()
    points.around(ranks.Ranks, "_exchange", after=True)
    points.around(ranks.Ranks, "_gather", after=True)
    points.around(_new_file.NewFile, "write_at", after=False)
    points.around(_new_file.NewFile, "commit", after=True)
    points.around(_open_file.OpenFile, "read_into", after=False)
    COMM.Barrier()  # ranks that are slow to start have come
    points.next()
    ir, x, variables = program()
    timeout = 4 if KIND == "never" else None
    with popsr.Session(ir, comm=COMM, timeout=timeout) as session:
        rows = np.arange(11 * len(session.local_replicas), dtype=np.float32).reshape(-1, 11)
        for _ in range(2):
            points.next()
            session.run({x: rows[0] if len(rows) == 1 else rows})
        session.get_tensors_data(variables)
        for name in ("model.safetensors", "model.onnx"):
            points.next()
            popsr.io.save_safetensors(session, FOLDER / name) if "safe" in name else popsr.io.save_onnx(
                session, FOLDER / name
            )
            points.next()
            session.reset_host_weights(FOLDER / name)
        session.run({x: rows[0] if len(rows) == 1 else rows})
    points.next()
    if KIND == "count":
        counts = COMM.gather(points.count)
        if counts is not None:
            print(*counts)


if __name__ == "__main__":
    main()
