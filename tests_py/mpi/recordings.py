"""Recordings of several ranks beside those of one process; run by ``test_recordings.py``.

``python -m mpi4py -m tests_py.mpi.recordings FOLDER COUNT``: with so many random programs.
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from mpi4py import MPI

import popsr
from popsr import ops
from popsr._session.ranks import ranks
from popsr._tools.record.reading import Run, open_record
from tests_py.golden.digest import SEED
from tests_py.mpi.rank_programs import of_number
from tests_py.mpi.same_bits import EXCHANGE, local, set_sizes
from tests_py.support.helpers import Array
from tests_py.support.programs.bit_judge import quiet
from tests_py.support.recorded_program import step

COMM = MPI.COMM_WORLD
OPTIONS: tuple[dict[str, Any], ...] = ({}, {"optimise": False}, {"optimise": False, "dedup": False})
Inputs = Callable[[int], dict[Any, Array]]


def record(path: Path, ir: popsr.Ir, inputs: Inputs, **options: Any) -> None:
    """Three runs, of which some programs end in an error."""
    with popsr.Session(ir, seed=SEED, **options) as session, popsr.record(session, path):
        plans = {plan.stream: plan for plan in session._runner.inputs}
        for run in range(3):
            data = inputs(run)
            with contextlib.suppress(popsr.Error):
                session.run({s: local(plans[s], data[s]) for s in plans}, downcast_inputs=False)


def values(runs: list[Run]) -> dict[Any, Any]:
    """By run, op and count the hashes of each replica."""
    return {
        (i, row.op, row.nth, row.iterations, k): hashes
        for i, run in enumerate(runs)
        for row in run.rows
        for k, hashes in row.outputs().items()
    }


def compare(folder: Path, name: str, ir: popsr.Ir, inputs: Inputs) -> None:
    one, all_ = folder / "one.rec", folder / "all.rec"
    for options in OPTIONS:
        record(all_, ir, inputs, comm=COMM, **options)
        if COMM.rank == 0:
            record(one, ir, inputs, **options)
            where = f"{name} {options}"
            assert options.get("optimise", True) or one.read_bytes() == all_.read_bytes(), where
            for found in (popsr.diff(one, all_), popsr.diff(all_, one)):
                assert not found, f"{where}: {found}"
            runs = [list(open_record("diff", path).runs()) for path in (one, all_)]
            a, b = map(values, runs)
            both = a.keys() & b.keys()  # plans of ranks have other fused ops
            assert len(both) * 4 >= len(a) * 3, where
            assert all(a[key] == b[key] for key in both), where
        COMM.Barrier()


def random_inputs(program: Any) -> Inputs:
    return lambda run: {
        stream: np.random.default_rng(run).permuted(data, axis=0) if data.ndim else data
        for stream, data in program.io.inputs.items()
    }


def failure(folder: Path) -> None:
    """In the second run the last replica has an index out of range: its rank stops before the others."""
    ir = popsr.Ir(replication=4)
    with ir.main_graph, popsr.in_sequence():
        stream = popsr.h2d_stream((), popsr.int32, "at")
        table = popsr.constant(np.arange(4, dtype=np.float32))
        value = ops.tanh(ops.gather(table, ops.host_load(stream)))
        ops.collectives.replicated_all_reduce(ops.exp(value))
    compare(folder, "failure", ir, lambda run: {stream: np.array([0, 1, 2, 9 if run == 1 else 3], np.int32)})
    if COMM.rank == 0:
        runs = [len(run.rows) for run in open_record("diff", folder / "all.rec").runs()]
        assert 0 < runs[1] < runs[0] == runs[2]


def programs(folder: Path, count: int) -> None:
    for number in range(count):
        program = of_number(number)
        if program is not None and program.ir.replication_factor >= COMM.size:
            compare(folder, f"random {number}", program.ir, random_inputs(program))


def drift(folder: Path) -> None:
    """A bit of what rank 1 receives for a sum over replicas, in the second run."""
    ir = popsr.Ir(replication=6)
    with ir.main_graph, popsr.in_sequence():
        stream = popsr.h2d_stream((2000,), popsr.float32, "x")
        y = ops.tanh(ops.host_load(stream))
        total = ops.collectives.replicated_all_reduce(y)
        ops.add_(popsr.variable(np.zeros(2000, np.float32), name="w"), total * total)
    (sum_,) = [op for op in ir.main_graph.ops if op.kind == "replicated_all_reduce"]
    data = np.random.default_rng(0).normal(size=(2, 6, 2000)).astype(np.float32)
    one, drifted = folder / "one.rec", folder / "drifted.rec"
    is_wrong = False

    def exchange(self: ranks.Ranks, sends: ranks.Messages, receives: ranks.Messages) -> None:
        EXCHANGE(self, sends, receives)
        for _, view in receives if COMM.rank == 1 and is_wrong else ():
            view[2] ^= 1

    patch = mock.patch.object(ranks.Ranks, "_exchange", exchange)
    with patch, popsr.Session(ir, comm=COMM) as session:
        (plan,) = session._runner.inputs
        with popsr.record(session, drifted):
            session.run({stream: local(plan, data[0])})
            is_wrong = True
            session.run({stream: local(plan, data[1])})
            is_wrong = False
    replicas = COMM.allgather(tuple(session.local_replicas))[1]
    if COMM.rank == 0:
        with popsr.Session(ir) as session, popsr.record(session, one):
            for each in data:
                session.run({stream: each})
        found = popsr.diff(one, drifted)
        seen = (found.kind, found.name, found.line, found.step, found.replicas)
        assert seen == ("op", sum_.kind, sum_.location, 1, replicas), found
    COMM.Barrier()


def refusals(folder: Path, ir: popsr.Ir) -> None:
    with popsr.Session(ir, comm=COMM) as session:
        with pytest.raises(popsr.errors.RankError, match="ranks differ in the path"):
            popsr.record(session, folder / f"{COMM.rank}.rec")
        with pytest.raises(popsr.errors.FileError, match="cannot write"):
            popsr.record(session, folder / "no" / "a.rec")
        with pytest.raises(KeyError), popsr.record(session, folder / "failed.rec"):
            raise KeyError("x")
        with popsr.record(session, folder / "empty.rec"):
            pass
        assert sorted(path.name for path in folder.glob("*.rec")) == [
            "all.rec",
            "drifted.rec",
            "empty.rec",
            "one.rec",
        ]
        assert not list(open_record("diff", folder / "empty.rec").runs())


def main(folder: Path, count: int) -> None:
    ir, stream = step()
    data = np.random.default_rng(0).normal(size=(3, 4, 8, 16)).astype(np.float32)

    def inputs(run: int) -> dict[Any, Array]:
        return {stream: data[run]}

    with quiet(), contextlib.redirect_stderr(io.StringIO()):
        compare(folder, "step", ir, inputs)
        failure(folder)
        drift(folder)
        refusals(folder, ir)
        set_sizes(40, (300, 5))
        programs(folder, count)
    if COMM.rank == 0:
        print("recordings")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
