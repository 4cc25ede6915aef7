"""Sessions release the GIL."""

from __future__ import annotations

import sys
import threading

import numpy as np

import popsr

_MANY_WRITES = 2000


def test_other_threads_run_while_variables_are_written() -> None:
    """Nothing but the core gives up the GIL here: the interpreter would ask for it after an hour."""
    ir = popsr.Ir(replication=2)
    with ir.main_graph:
        w = popsr.variable(np.zeros(1 << 19, np.float32), name="w")
        _ = w + 1
    session = popsr.Session(ir)
    rows = np.ones((1, 1 << 19), np.float32)
    before, gate, ran = sys.getswitchinterval(), threading.Lock(), []
    gate.acquire()

    def wait_and_run() -> None:
        with gate:
            ran.append(True)

    thread = threading.Thread(target=wait_and_run)
    thread.start()
    sys.setswitchinterval(3600)
    try:
        gate.release()
        writes = 0
        while not ran and writes < _MANY_WRITES:
            session._core.write_variables([(w._id, rows, False)])
            writes += 1
        has_run = bool(ran)
    finally:
        sys.setswitchinterval(before)
    thread.join()
    assert has_run
