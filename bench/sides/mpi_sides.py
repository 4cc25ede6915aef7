"""Sides of bench_mpi.py: worlds of MPI whose rank 0 is told when a turn begins and takes its time.

``python -m bench.sides.mpi_sides function arguments`` on each rank; as ``bench.sides.processes`` otherwise.
"""

import json
import sys
import time
from collections.abc import Callable

import numpy as np

import popsr
from bench.programs import basic, forms
from bench.programs.gpt_step import gpt_step
from bench.sides import processes
from bench.sides.compared_models import Gpt
from popsr import ops

Turn = Callable[[], object]


def _communicator() -> object:
    """The world's, if there is one; sides of one process have none."""
    if "mpi4py.MPI" not in sys.modules:
        return None
    from mpi4py import MPI

    return MPI.COMM_WORLD


def _rows(session: popsr.Session, plan: object, data: np.ndarray) -> np.ndarray:
    """The rows of this rank of data of all replicas, ``(transfers, replicas, *shape)``."""
    return data[:, session.local_replicas.start : session.local_replicas.stop].reshape(plan.shape)


def _turn(ir: popsr.Ir, inputs: dict, threads: int, runs: int, losses: popsr.DeviceToHostStream) -> Turn:
    """Some runs; the losses of the first turn. ``inputs``: by stream, of all replicas, before transfers."""
    session = popsr.Session(ir, num_threads=threads, comm=_communicator()).__enter__()
    plans = {plan.stream: plan for plan in session._runner.inputs}
    given = [
        {stream: _rows(session, plans[stream], each[run]) for stream, each in inputs.items()}
        for run in range(runs)
    ]

    def turn() -> object:
        found = [session.run(each)[losses] for each in given]
        return [float(np.mean(each)) for each in found]

    return turn


def mlp(replicas: int, threads: int) -> Turn:
    """Steps of the network of basic.py: ``accumulate_`` in a loop."""
    program = forms.FORMS["looped, `accumulate_`"](replicas)
    runs = forms.SAMPLES // forms.samples_of(replicas)
    data = basic.batches(replicas, forms.MICRO_BATCH, forms.ACCUMULATION, runs)
    shaped = [
        each.reshape(runs, forms.ACCUMULATION, replicas, *each.shape[each.ndim - rest :])
        for each, rest in zip(data, (2, 1), strict=True)
    ]
    return _turn(program.ir, dict(zip(program.inputs, shaped, strict=True)), threads, runs, program.losses)


def gpt(replicas: int, threads: int) -> Turn:
    """Steps of the model of bench_compilers.py in float32, attention as an op."""
    model = Gpt()
    program = gpt_step(model, replicas, popsr.float32, "op")
    tokens, labels = (
        np.stack([each.reshape(1, replicas, -1)] * 2).reshape(2, 1, replicas, *stream.shape)
        for each, stream in zip(model.batch(), (program.tokens, program.labels), strict=True)
    )
    inputs = {program.tokens: tokens, program.labels: labels}
    return _turn(program.ir, inputs, threads, 2, program.losses)


def all_reduce(nbytes: int, calls: int) -> Turn:
    """Sums of float32 of all ranks, in a loop of the program."""
    ranks = _communicator().size
    ir = popsr.Ir(replication=ranks)
    alone = ir.replica_grouping(group_size=1)
    with ir.main_graph, popsr.in_sequence():
        data = np.arange(ranks, dtype=np.float32)[:, None] + np.zeros(nbytes // 4, np.float32)
        value = popsr.variable(data, name="value", replica_grouping=alone)

        def body(value: popsr.TensorByRef) -> None:
            ops.collectives.replicated_all_reduce_(value)

        ops.repeat(ir.create_graph(body, value), calls, value)
    session = popsr.Session(
        ir, num_threads=1, comm=_communicator(), weights_to_host_on_exit=False
    ).__enter__()
    return lambda: session.run() and None


def library_all_reduce(nbytes: int, calls: int) -> Turn:
    """The same by the library's own Allreduce."""
    from mpi4py import MPI

    data, out = np.zeros(nbytes // 4, np.float32), np.empty(nbytes // 4, np.float32)

    def turn() -> None:
        for _ in range(calls):
            MPI.COMM_WORLD.Allreduce(data, out, MPI.SUM)

    return turn


def memory(replicas: int) -> Turn:
    """Bytes that a session of so many replicas and a run of it add to a process, and those that are planned.

    Each replica has 256 KiB of weights and makes values of as much; sums of all replicas have as much once.
    """
    ir, stream = basic.echo()
    with popsr.Session(ir, num_threads=1, comm=None) as session:  # what popsr itself needs once
        session.run({stream: [0.0] * 4})
    processes.forget_peak()
    before = processes.resident_memory()
    ir = popsr.Ir(replication=replicas)
    alone = ir.replica_grouping(group_size=1)
    with ir.main_graph, popsr.in_sequence():
        factors = popsr.h2d_stream((1,), popsr.float32, "factors")
        weight = popsr.variable(
            np.zeros((replicas, 1 << 16), np.float32), name="weight", replica_grouping=alone
        )
        value = ops.exp(weight * ops.host_load(factors))
        total = ops.collectives.replicated_all_reduce(value)
        ops.add_(weight, value * total)
    options = {"num_threads": 1, "comm": _communicator(), "weights_to_host_on_exit": False}
    session = popsr.Session(ir, **options).__enter__()
    rows = np.arange(len(session.local_replicas), dtype=np.float32)[:, None]

    def turn() -> list[int]:
        session.run({factors: rows})
        return [processes.peak() - before, sum(session.memory().values())]

    return turn


def _is_asked(comm: object) -> bool:
    """True when rank 0 is told to make a turn. The others sleep meanwhile: another side is being timed."""
    asked = np.zeros(1, np.int32)
    if comm.rank == 0:
        asked[0] = sys.stdin.readline() == "\n"  # launchers do not all pass the end of a file on
    request = comm.Ibcast(asked)
    while not request.Test():
        time.sleep(1e-3)
    return bool(asked[0])


def main(function: str, arguments: str) -> None:
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    turn = globals()[function](**json.loads(arguments))
    while _is_asked(comm):
        comm.Barrier()
        start = time.perf_counter()
        results = turn()
        seconds = comm.reduce(time.perf_counter() - start, MPI.MAX)
        if comm.rank == 0:
            print(json.dumps({"seconds": seconds, "results": results}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
