"""Runs programs on all ranks of a world and compares with one process, bit by bit.

``python -m mpi4py -m tests_py.mpi.same_bits GOLDEN FIRST LAST``: each GOLDEN-th golden program (0: none), and the
random programs FIRST to LAST - 1 of ``rank_programs``. Rank k is the one process for each k-th program, and tells the
others what it saw.
With a further argument rank 1 receives other values than it was sent, which must be found.
"""

from __future__ import annotations

import contextlib
import io
import operator
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal
from unittest import mock

import numpy as np
from mpi4py import MPI

import popsr
from popsr._program.op import Op
from popsr._session.host_data import StreamPlan
from popsr._session.ranks import ranks
from popsr._support.host import launcher, message_sizes
from popsr.analysis import Traffic
from tests_py.golden.digest import RUNS, SEED, exact, start_data
from tests_py.golden.sources import IRS, RANDOM, ExactProgram, of_random
from tests_py.mpi.rank_programs import of_number
from tests_py.support.helpers import FLOATS, Array, bits, np_dtype
from tests_py.support.programs.bit_judge import quiet

COMM = MPI.COMM_WORLD
CONFIGURATIONS: tuple[dict[str, Any], ...] = (
    {"num_threads": 1},
    {"num_threads": 2, "dedup": False},
    {"num_threads": 2, "optimise": False},
    {"num_threads": 2},
    {"num_threads": 1, "check": True},
    {"num_threads": 2, "check": 0.5},
)
SMALL: dict[int, tuple[int, tuple[int, int]]] = {3: (5000, (0, 3000)), 4: (1 << 20, (0, 1 << 20))}
TINY: dict[int, tuple[int, tuple[int, int]]] = {3: (40, (0, 5)), 4: (1 << 20, (0, 300))}
"""By ranks: bytes of messages; bytes of values from which on ranks reduce in chains, and elements of chunks."""
EXCHANGE = ranks.Ranks._exchange
MOVED: list[int] = []
"""Bytes that ops of this rank sent, as planned."""
COMPARED: list[str] = []
Which = Literal["group", "all"]
Draw = Callable[[popsr.Session, int, np.random.Generator], dict[Any, Array]]


@dataclass
class Expected:
    """Data that one process was given and that it gave, by number of stream and of variable."""

    inputs: list[dict[int, Array]] = field(default_factory=list)
    writes: list[dict[int, Array]] = field(default_factory=list)
    outputs: list[dict[int, Array]] = field(default_factory=list)
    variables: list[dict[int, Array]] = field(default_factory=list)
    error: str = ""


def text_of(error: popsr.Error) -> str:
    return f"{type(error).__name__}: {error}"


def by_number(data: dict[Any, Any], key: str = "_id") -> dict[int, Array]:
    return {getattr(each, key): np.asarray(array) for each, array in data.items()}


def read_all(session: popsr.Session, replicas: Which) -> dict[int, Array]:
    """All variables, by number."""
    return by_number(session.get_tensors_data(list(session._access.variables), replicas=replicas))


def expected_of(ir: popsr.Ir, inputs: Draw, writes: Draw, replicas: Which) -> Expected:
    """Two runs in one process."""
    found, rng = Expected(), np.random.default_rng(SEED)
    with popsr.Session(ir, seed=SEED, num_threads=1) as session:
        for run in range(RUNS):
            given = writes(session, run, rng)
            session.write_variables_data(given)
            data = inputs(session, run, rng)
            found.writes.append(by_number(given))
            found.inputs.append(by_number(data))
            try:
                results = session.run(data, downcast_inputs=False)
            except popsr.Error as error:
                found.error = text_of(error)
                return found
            found.outputs.append(by_number(results))
            found.variables.append(read_all(session, replicas))
    return found


def local(plan: StreamPlan, data: Array) -> Array:
    """The rows of this rank."""
    transfers = data.shape[0] if plan.transfers > 1 else 1
    rest = data.shape[(plan.transfers > 1) + (plan.stream.num_rows > 1) :]
    rows = data.reshape(transfers, plan.stream.num_rows, *rest)[:, plan.rows]
    prefix = ([transfers] if plan.transfers > 1 else []) + ([len(plan.rows)] if len(plan.rows) > 1 else [])
    return rows.reshape((*prefix, *rest))


def differences(
    name: str, ir: popsr.Ir, expected: Expected, options: dict[str, Any], replicas: Which
) -> Iterator[str]:
    """Values of this rank that are not those of one process."""
    where = f"{name} {options} on {COMM.size} ranks, rank {COMM.rank}"
    with popsr.Session(ir, seed=SEED, comm=COMM, **options) as session:
        variables = {v._id: v for v in session._access.variables}
        for run, data in enumerate(expected.inputs):
            session.write_variables_data({variables[k]: each for k, each in expected.writes[run].items()})
            plans = {plan.stream._id: plan for plan in (*session._runner.inputs, *session._runner.outputs)}
            inputs = {plans[k].stream: local(plans[k], each) for k, each in data.items()}
            before = session.traffic()
            try:
                results = by_number(session.run(inputs, downcast_inputs=False))
            except popsr.Error as error:
                if text_of(error) != expected.error:
                    yield f"{where}: error {text_of(error)!r}, expected {expected.error!r}"
                return
            if run >= len(expected.outputs):
                yield f"{where}: no error, expected {expected.error!r}"
                return
            if text := unplanned(session, before):
                yield f"{where}: run {run} {text}"
            for k, array in expected.outputs[run].items():
                if not np.array_equal(bits(local(plans[k], array)), bits(results[k])):
                    yield f"{where}: run {run} stream {plans[k].name} differs"
            found = read_all(session, replicas)
            for k, array in expected.variables[run].items():
                if not np.array_equal(bits(array), bits(found[k])):
                    yield f"{where}: run {run} variable {variables[k].name} differs"


def unplanned(session: popsr.Session, before: dict[Op, Traffic]) -> str:
    """Messages that a run did not move as its plan says."""
    communication = session.plan.communication()
    planned = communication.traffic(COMM.rank)
    bound = {each.op for each in communication if each.is_bound}
    none = Traffic(0, 0, 0, 0)
    for op, total in session.traffic().items():
        moved = Traffic(*map(operator.sub, total, before.get(op, none)))
        most = planned.pop(op, none)
        if moved != most and not (op in bound and all(map(operator.le, moved, most))):
            return f"{op.kind} moved {moved}, planned {most}"
        MOVED.append(moved.sent_bytes)
    missed = [op for op in planned if op not in bound]
    return f"{missed[0].kind} moved nothing, planned {planned[missed[0]]}" if missed else ""


def set_sizes(message_bytes: int, chains: tuple[int, int] | None) -> None:
    message_sizes.MESSAGE_BYTES, message_sizes.CHAINS = message_bytes, chains


def compare(
    number: int, name: str, build: Callable[[], popsr.Ir], inputs: Draw, writes: Draw
) -> Iterator[str]:
    ir = build()
    if ir.replication_factor < COMM.size:
        return
    COMPARED.append(name)
    replicas: Which = "group" if number % 3 else "all"
    is_mine = number % COMM.size == COMM.rank
    expected = expected_of(ir, inputs, writes, replicas) if is_mine else None
    expected = COMM.bcast(expected, root=number % COMM.size)
    for options in CONFIGURATIONS if number % 8 == 0 else CONFIGURATIONS[number % 6 :][:1]:
        yield from differences(name, ir, expected, options, replicas)


@contextlib.contextmanager
def seeded() -> Iterator[None]:
    """Programs that draw other data in each process draw the same on all ranks, and in one process."""
    rng = np.random.default_rng
    with mock.patch.object(np.random, "default_rng", lambda seed=0: rng(0 if seed is None else seed)):
        np.random.seed(0)  # noqa: NPY002 - some draw in the old way
        yield


def golden_ir(name: str) -> Callable[[], popsr.Ir]:
    def build() -> popsr.Ir:
        # Programs with popdist's names are built as for one process, with their own number of replicas.
        with mock.patch.object(launcher, "world", return_value=None), seeded():
            ir = IRS[name]()
        if not ir.get_all_d2h_streams():
            with ir.main_graph, popsr.in_sequence():
                result = ir.main_graph.ops[-1].outputs[0]
                popsr.ops.host_store(popsr.d2h_stream(result.shape, result.dtype, "result"), result)
        return ir

    return build


def row_data(session: popsr.Session, rng: np.random.Generator) -> dict[Any, Array]:
    """Numbers for each row; scalars, such as rates, are 1/64."""
    data: dict[Any, Array] = {}
    for plan in sorted(session._runner.inputs, key=lambda plan: str(plan.name)):
        name, is_rate = plan.stream.dtype.name, plan.stream.shape == () and plan.stream.dtype.name in FLOATS
        full = np.full(plan.shape, 1 / 64, np_dtype(name)) if is_rate else exact(rng, plan.shape, name)
        data[plan.stream] = full
    return data


def compare_golden(number: int, name: str) -> Iterator[str]:
    if name in RANDOM:
        return compare_inputs(number, name, of_random(RANDOM[name]))
    return compare(
        number,
        name,
        golden_ir(name),
        lambda session, run, rng: row_data(session, rng),
        lambda session, run, rng: start_data(session, rng) if run == 0 else {},
    )


def compare_random(number: int) -> Iterator[str]:
    program = of_number(number)
    return iter(()) if program is None else compare_inputs(number, f"random {number}", program)


def compare_inputs(number: int, name: str, program: ExactProgram) -> Iterator[str]:
    """The inputs of a random program, and then the same numbers in another order."""

    def inputs(session: popsr.Session, run: int, rng: np.random.Generator) -> dict[Any, Array]:
        used = session.expected_inputs()
        return {
            stream: rng.permuted(data, axis=0) if run and data.ndim else data
            for stream, data in program.io.inputs.items()
            if stream in used
        }

    return compare(number, name, lambda: program.ir, inputs, lambda session, run, rng: {})


def exchange_wrongly(self: ranks.Ranks, sends: ranks.Messages, receives: ranks.Messages) -> None:
    """Turns a bit of each message that rank 1 receives, but for short ones: conditions, and rows of small streams."""
    EXCHANGE(self, sends, receives)
    for _, view in receives if COMM.rank == 1 else ():
        if len(view) > 600:
            view[0] ^= 1


def main() -> None:
    step, first, last = map(int, sys.argv[1:4])
    if len(sys.argv) > 4:
        mock.patch.object(ranks.Ranks, "_exchange", exchange_wrongly).start()
    found: list[str] = []
    silent = io.StringIO()
    with quiet(), contextlib.redirect_stdout(silent), contextlib.redirect_stderr(silent):
        set_sizes(*SMALL.get(COMM.size, (message_sizes.MESSAGE_BYTES, None)))
        for number, name in enumerate([*IRS, *RANDOM]) if step else ():
            if number % step == 0:
                found += compare_golden(number, name)
        set_sizes(*TINY.get(COMM.size, (message_sizes.MESSAGE_BYTES, None)))
        for number in range(first, last):
            found += compare_random(number)
    if COMM.size > 1 and not sum(MOVED):
        found.append("no op moved anything")
    everything, moved = COMM.allgather(found), COMM.allgather(sum(MOVED))
    if COMM.rank == 0:
        same = f"the same bits of {len(COMPARED)} programs, and {sum(moved)} bytes moved as planned"
        print("\n".join(each for part in everything for each in part[:8]) or same)
    sys.exit(any(everything))


if __name__ == "__main__":
    main()
