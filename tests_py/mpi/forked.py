"""Ranks whose children by ``fork`` use the session: each call there is refused, and the ranks go on.

``python -m mpi4py -m tests_py.mpi.forked``, on three ranks.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

import popsr
import popsr.io
from popsr import ops
from popsr.errors import StateError

COMM = MPI.COMM_WORLD
REFUSED = "the ranks of a session are the processes of MPI, got a child that one of them forked"


def program() -> tuple[popsr.Ir, Any, Any]:
    ir = popsr.Ir(replication=COMM.size)
    with ir.main_graph, popsr.in_sequence():
        w = popsr.variable(np.zeros(5, np.float32), name="w")
        y = popsr.d2h_stream((5,), popsr.float32, name="y")
        ops.add_(w, ops.collectives.replicated_all_reduce(popsr.constant(np.ones(5, np.float32))))
        ops.host_store(y, w)
    return ir, w, y


def calls(session: popsr.Session, w: Any, folder: Path) -> dict[str, Callable[[], Any]]:
    """Calls that need other ranks."""

    def leave() -> None:
        with session:
            session.run()

    def record() -> None:
        with popsr.record(session, folder / "a.rec"):
            session.run()

    return {
        "run": session.run,
        "get_tensor_data": lambda: session.get_tensor_data(w),
        "write_variable_data": lambda: session.write_variable_data(w, np.ones(5, np.float32)),
        "save": lambda: popsr.io.save_safetensors(session, folder / "w.safetensors"),
        "reset": lambda: session.reset_host_weights(folder / "w.safetensors"),
        "new session": lambda: popsr.Session(program()[0], comm=COMM),
        "with": leave,
        "record": record,
    }


def child(session: popsr.Session, w: Any, folder: Path) -> int:
    """The number of calls that a child of a rank is not refused."""
    wrong = 0
    for name, call in calls(session, w, folder).items():
        try:
            call()
        except StateError as error:
            if REFUSED in str(error):
                continue
            traceback.print_exc()
        except BaseException:
            traceback.print_exc()
        print(f"rank {COMM.rank}: {name} in the child is not refused", file=sys.stderr, flush=True)
        wrong += 1
    ir, _, y = own_program()
    with popsr.Session(ir) as alone:  # of its own process
        wrong += int(not np.array_equal(alone.run()[y], np.ones(5, np.float32)))
    sys.excepthook(StateError, StateError(REFUSED), None)  # as of one that nobody catches
    return wrong


def own_program() -> tuple[popsr.Ir, None, Any]:
    ir = popsr.Ir()
    with ir.main_graph, popsr.in_sequence():
        y = popsr.d2h_stream((5,), popsr.float32, name="y")
        ops.host_store(y, popsr.constant(np.ones(5, np.float32)))
    return ir, None, y


def main() -> None:
    ir, w, y = program()
    with tempfile.TemporaryDirectory() as name, popsr.Session(ir, comm=COMM) as session:
        assert session.run()[y].ravel()[0] == COMM.size
        if COMM.rank == 1:
            pid = os.fork()
            if pid == 0:
                status = 99
                with contextlib.suppress(BaseException):
                    status = child(session, w, Path(name))
                os._exit(status)
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            assert status == 0, status
        assert session.run()[y].ravel()[0] == 2 * COMM.size
        assert session.get_tensor_data(w).ravel()[0] == 2 * COMM.size
    print(f"rank {COMM.rank} went on")


if __name__ == "__main__":
    main()
