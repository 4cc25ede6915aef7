"""Calls that ranks must refuse: rows of what they do and of the error that all of them get.

``python -m mpi4py -m tests_py.mpi.refusals``, on three ranks.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
from mpi4py import MPI

import popsr
import popsr.io
from popsr import _core, ops
from popsr._session.ranks import ranks
from tests_py.support.programs.bit_judge import kernels, quiet

COMM = MPI.COMM_WORLD
RANK = COMM.rank
PATIENCE = 3  # seconds; on a busy machine a rank that comes may be late by more than one
Row = tuple[str, Callable[[], Any], str, str]


class Sums:
    """Six replicas add up what they load, and read a table at what they load."""

    def __init__(
        self, *, replicas: int = 6, start: float = 0, extra: str = "", mode: Any = "replicate"
    ) -> None:
        self.ir = popsr.Ir(replication=replicas)
        with self.ir.main_graph, popsr.in_sequence():
            self.x = popsr.h2d_stream((2,), popsr.float32, name="x", replicated_stream_mode=mode)
            self.at = popsr.h2d_stream((), popsr.int32, name="at")
            self.y = popsr.d2h_stream((2,), popsr.float32, name="y")
            self.w = popsr.variable(np.full(2, start, np.float32), name="w")
            value = ops.host_load(self.x, "value")
            if extra:
                value = getattr(ops, extra)(value)
            table = popsr.constant(np.arange(8, dtype=np.float32).reshape(4, 2), name="table")
            value = value + ops.gather(table, ops.host_load(self.at, "index"))
            ops.add_(self.w, ops.collectives.replicated_all_reduce(value))
            ops.host_store(self.y, self.w)

    def session(self, **options: Any) -> popsr.Session:
        return popsr.Session(self.ir, comm=COMM, **options)

    def inputs(self, index: int = 1, shape: tuple[int, ...] = (2, 2)) -> dict[Any, Any]:
        return {self.x: np.ones(shape, np.float32), self.at: np.full(2, index, np.int32)}


def on(rank: int, value: Any, other: Any) -> Any:
    return value if rank == RANK else other


def world_of(replicas: int) -> None:
    Sums(replicas=replicas).session()


def intercommunicator() -> None:
    half = COMM.Split(min(RANK, 1))
    popsr.Session(Sums().ir, comm=half.Create_intercomm(0, COMM, on(0, 1, 0)))


def patched(target: Any, name: str, value: Any) -> None:
    with mock.patch.object(target, name, value) if RANK == 1 else contextlib.nullcontext():
        Sums().session()


def lowest_level() -> None:
    with kernels("v2") if RANK == 1 else contextlib.nullcontext():
        Sums().session()


def option_of_one_rank() -> None:
    program = Sums()
    if RANK == 2:
        program.ir.options.enable_stochastic_rounding = True
    program.session()


def after(runs: int, last: Callable[[Sums, popsr.Session], Any]) -> None:
    program = Sums()
    with program.session() as session:
        for run in range(1, runs + 1):
            assert session.run(program.inputs())[program.y].tolist() == [[18 * run, 24 * run]] * 2
        last(program, session)


def other_step(program: Sums, session: popsr.Session) -> None:
    if RANK == 1:
        session.step = 7
    session.run(program.inputs())


def other_call(program: Sums, session: popsr.Session) -> None:
    session.get_tensor_data(program.w) if RANK == 2 else session.run(program.inputs())


def other_data(program: Sums, session: popsr.Session) -> None:
    session.write_variable_data(program.w, np.full(2, on(1, 3, 4), np.float32))


def other_shape(program: Sums, session: popsr.Session) -> None:
    session.run(program.inputs(shape=on(2, (3, 2), (2, 2))))


def no_array(program: Sums, session: popsr.Session) -> None:
    session.write_variable_data(program.w, on(1, np.zeros(3, np.float32), np.zeros(2, np.float32)))


def own_error(program: Sums, session: popsr.Session) -> None:
    if RANK == 1:
        raise KeyError("a key of the user's")
    session.run(program.inputs())


def index_out_of_range(program: Sums, session: popsr.Session) -> None:
    session.run(program.inputs(index=on(1, 9, 2)))


def changed_program(program: Sums, session: popsr.Session) -> None:
    if RANK == 0:
        with program.ir.main_graph:
            popsr.constant(np.zeros(2, np.float32)) + program.w
    session.run(program.inputs())


def unequal_rows() -> None:
    program = Sums(mode="equal")
    with program.session() as session:
        session.run({**program.inputs(), program.x: np.full((2, 2), on(2, 3, 1), np.float32)})


def error_of_printing() -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError("no room")

    ir = popsr.Ir(replication=3)
    with ir.main_graph, popsr.in_sequence():
        x = popsr.variable(np.zeros(2, np.float32), name="x")
        ops.print_tensor(x)
        ops.collectives.replicated_all_reduce_(x)
    with popsr.Session(ir, comm=COMM) as session, contextlib.redirect_stderr(Full()):
        session.run()


def value_that_arrives_wrongly() -> None:
    """One bit of what rank 1 gets from another for a sum, which all replicas are proved to have the same of."""
    ir = popsr.Ir(replication=6)
    with ir.main_graph, popsr.in_sequence():
        x = popsr.h2d_stream((2000,), popsr.float32, name="x")
        ops.host_store(
            popsr.d2h_stream((2000,), popsr.float32),
            ops.collectives.replicated_all_reduce(ops.host_load(x, "value")),
        )
    exchange, turned = ranks.Ranks._exchange, list[bool]()

    def turning(self: ranks.Ranks, sends: ranks.Messages, receives: ranks.Messages) -> None:
        exchange(self, sends, receives)
        if RANK == 1 and receives and not turned:
            turned.append(True)
            receives[0][1][2] ^= 1

    with (
        mock.patch.object(ranks.Ranks, "_exchange", turning),
        popsr.Session(ir, comm=COMM, check=True) as session,
    ):
        session.run({x: np.full((2, 2000), 1 + RANK, np.float32)})


def timeout_of_environment() -> None:
    with mock.patch.dict("os.environ", POPSR_TIMEOUT=on(2, "soon", "5")):
        Sums().session()


def run_without(missing: int) -> None:
    """A session whose last run one rank did not make: when the others gave up, it makes it, too."""
    program = Sums()
    with program.session(timeout=PATIENCE) as session:
        session.run(program.inputs())
        COMM.Barrier()
        if missing == RANK:
            COMM.Barrier()
        try:
            session.run(program.inputs())
        finally:
            if missing != RANK:
                COMM.Barrier()


def call_after_the_end() -> None:
    program = Sums()
    with program.session(timeout=PATIENCE) as session:
        session.run(program.inputs())
        COMM.Barrier()
        if RANK == 1:
            COMM.Barrier()
        with contextlib.suppress(popsr.errors.RankError):
            session.run(program.inputs())
        if RANK != 1:
            COMM.Barrier()
        session.run(program.inputs())


def other_path() -> None:
    popsr.io.save_safetensors(Sums().session(), f"{RANK}.safetensors")


SAME = "expected the same on all ranks$"
ROWS: list[Row] = [
    ("no ranks", lambda: popsr.Session(Sums().ir, comm=MPI.COMM_NULL), "ArgumentTypeError", "has no ranks"),
    (
        "a name",
        lambda: popsr.Session(Sums().ir, comm="world"),
        "ArgumentTypeError",
        "not a communicator, got 'world'",
    ),
    ("a group", lambda: popsr.Session(Sums().ir, comm=COMM.group), "ArgumentTypeError", "not a communicator"),
    ("two groups", intercommunicator, "ArgumentTypeError", "got an intercommunicator"),
    ("more ranks than replicas", lambda: world_of(2), "ReplicaError", "got 3 ranks, expected 1 to 2$"),
    (
        "replicas",
        lambda: world_of(on(1, 3, 4)),
        "RankError",
        f"the number of replicas, got 4 on rank 0 and 3 on rank 1, {SAME}",
    ),
    (
        "the kind of a program",
        lambda: popsr.Session(on(0, None, Sums().ir), comm=COMM),
        "ArgumentTypeError",
        "ir is not an Ir",
    ),
    (
        "an op",
        lambda: Sums(extra=on(1, "relu", "tanh")).session(),
        "RankError",
        f"in the program, got .*tanh.* on rank 0 and .*relu.* on rank 1, {SAME}",
    ),
    (
        "one op more",
        lambda: Sums(extra=on(2, "relu", "")).session(),
        "RankError",
        "in the program, got .* on rank 0 and .*relu",
    ),
    (
        "initial data",
        lambda: Sums(start=on(2, 1, 2)).session(),
        "RankError",
        f"in the data of 'w', got digest .* on rank 2, {SAME}",
    ),
    (
        "seed",
        lambda: Sums().session(seed=RANK),
        "RankError",
        f"in seed, got 0 on rank 0 and 1 on rank 1, {SAME}",
    ),
    (
        "dedup",
        lambda: Sums().session(dedup=on(2, False, True)),
        "RankError",
        "in dedup, got True on rank 0 and False on rank 2",
    ),
    (
        "optimise",
        lambda: Sums().session(optimise=on(0, False, True)),
        "RankError",
        "in optimise, got False on rank 0 and True on rank 1",
    ),
    (
        "an argument of the wrong type",
        lambda: Sums().session(seed=on(1, "a", 1)),
        "ArgumentTypeError",
        "Session: seed",
    ),
    (
        "a timeout of no time",
        lambda: Sums().session(timeout=on(1, 0, 5)),
        "AttributeValueError",
        "timeout is not a time, got 0,",
    ),
    (
        "an endless timeout",
        lambda: Sums().session(timeout=float("inf")),
        "AttributeValueError",
        "got inf, expected a pos",
    ),
    (
        "a timeout by name",
        lambda: Sums().session(timeout="5 s"),
        "ArgumentTypeError",
        "timeout is not a number, got '5 s'",
    ),
    (
        "a timeout that no float is near",
        lambda: Sums().session(timeout=10**400),
        "ArgumentTypeError",
        "timeout is not a number, got 1000",
    ),
    (
        "a timeout as a flag",
        lambda: Sums().session(timeout=True),
        "ArgumentTypeError",
        "timeout is not a number, got True",
    ),
    (
        "a timeout of the environment",
        timeout_of_environment,
        "AttributeValueError",
        "POPSR_TIMEOUT is not a time, got 'soon', expected a positive number of seconds$",
    ),
    (
        "a rank that does not come",
        lambda: run_without(2),
        "RankError",
        r"run: a rank did not come, got no call of (rank 2|ranks [01], 2) within 3 s, expected the same call",
    ),
    (
        "a session that has ended",
        call_after_the_end,
        "StateError",
        "the session of these ranks has ended, got run: a rank did not come",
    ),
    (
        "a path of a checkpoint",
        other_path,
        "RankError",
        f"save_safetensors: ranks differ in the path, got .*0.safetensors' .*{SAME}|path",
    ),
    ("an option", option_of_one_rank, "RankError", "in the options that are set, got .* on rank 2"),
    (
        "versions",
        lambda: patched(_core, "__version__", "0.0.9"),
        "RankError",
        "in the version of popsr, got .* on rank 0 and 0.0.9 on rank 1",
    ),
    (
        "levels",
        lowest_level,
        "RankError",
        "in the instruction-set level, got v3 or v4 on rank 0 and v2 on rank 1",
    ),
    (
        "the mode of a stream",
        lambda: Sums(mode=on(1, "broadcast", "replicate")).session(),
        "RankError",
        "in the .*program, got",
    ),
    (
        "steps",
        lambda: after(99, other_step),
        "RankError",
        f"run: ranks differ in step, got 99 on rank 0 and 7 on rank 1, {SAME}",
    ),
    (
        "calls",
        lambda: after(2, other_call),
        "RankError",
        "ranks make other calls, got run on rank 0 and read variable w on rank 2",
    ),
    ("written data", lambda: after(2, other_data), "RankError", "in the data of variable 'w', got digest"),
    (
        "the shape of a row",
        lambda: after(2, other_shape),
        "ShapeError",
        r"shapes differ for stream 'x', got \(3, 2\), expected \(2, 2\)",
    ),
    ("the shape of a variable", lambda: after(2, no_array), "ShapeError", "write_variable_data"),
    (
        "an error of the user's",
        lambda: after(2, own_error),
        "StoppedError|KeyError",
        "rank 1 ended it, got 'a key of the user's'|a key",
    ),
    ("an index of one rank", lambda: after(2, index_out_of_range), "OutOfRangeError", "gather.*got 9"),
    (
        "a program that one rank changed",
        lambda: after(2, changed_program),
        "GraphError",
        "the program changed",
    ),
    (
        "rows that are declared equal",
        unequal_rows,
        "ReplicaError",
        "'x' is declared equal, rows of replicas 0 and 4 differ",
    ),
    (
        "a value that arrives wrongly",
        value_that_arrives_wrongly,
        "ReplicaError",
        r"^check: 'replicated_all_reduce_out' differs between replicas 0 and 2 of ranks 0 and 1 after "
        r"replicated_all_reduce at .*refusals.py:\d+, got bits 0x41400000 and 0x41[0-9a-f]+ at element 0, expected",
    ),
    (
        "an error while printing",
        error_of_printing,
        "StoppedError|OSError",
        "rank 0 ended it, got .*no room|no room",
    ),
]


def outcome(call: Callable[[], Any]) -> tuple[str, str]:
    try:
        call()
    except Exception as error:
        return type(error).__name__, str(error)
    return "no error", ""


def main() -> None:
    found = []
    with quiet(), contextlib.redirect_stderr(io.StringIO()):
        for name, call, kind, text in ROWS:
            results = COMM.allgather(outcome(call))
            is_own = "|" in kind  # the rank itself has the exception that it raised
            if not is_own and len(set(results)) > 1:
                found.append(f"{name}: ranks got {results}")
            for result in results:
                if not re.fullmatch(kind, result[0]) or not re.search(text, result[1]):
                    found.append(f"{name}: got {result}, expected {kind}: {text}")
                    break
    if RANK == 0:
        print("\n".join(found) or f"{len(ROWS)} rows")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
