"""A session on ranks whose MPI was started for one thread: each rank prints what it is told."""

from __future__ import annotations

import re

import numpy as np
from mpi4py import MPI

import popsr
from popsr import ops

ir = popsr.Ir(replication=2)
with ir.main_graph:
    ops.relu(popsr.variable(np.zeros(2, np.float32), name="x"))
try:
    popsr.Session(ir, comm=MPI.COMM_WORLD)
except popsr.errors.StateError as error:
    [got] = re.findall(r"got [\w.]+", str(error))
    print(f"StateError: {got}", flush=True)
