"""Shares of ranks: rows of streams, memory, files, prints and synthetic data, beside those of one process.

``python -m mpi4py -m tests_py.mpi.shares FOLDER``, on three ranks.
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

import popsr
import popsr.io
from popsr import ops
from popsr._program.options.enums import SyntheticDataMode
from tests_py.support.programs.bit_judge import quiet

COMM = MPI.COMM_WORLD
REPLICAS, LOCAL = 8, (range(3), range(3, 6), range(6, 8))[COMM.rank]


def rows(array: Any, numbers: Iterable[int]) -> Any:
    """These rows; of one row without the dimension."""
    found = array[list(numbers)]
    return found[0] if len(found) == 1 else found


class Shared:
    """Variables of all groupings, and streams of all modes."""

    def __init__(self, *, prints: bool = False) -> None:
        self.ir = ir = popsr.Ir(replication=REPLICAS)
        pairs = ir.replica_grouping(group_size=2)
        with ir.main_graph, popsr.in_sequence():
            self.each = popsr.h2d_stream((3,), popsr.float32, "each")
            self.paired = popsr.h2d_stream((3,), popsr.float32, "paired", replicated_stream_mode=pairs)
            self.one = popsr.h2d_stream((3,), popsr.float32, "one", replicated_stream_mode="broadcast")
            self.out = popsr.d2h_stream((3,), popsr.float32, "out")
            self.pair = popsr.d2h_stream((3,), popsr.float32, "pair", replicated_stream_mode=pairs)
            self.first = popsr.d2h_stream(
                (3,), popsr.float32, "first", replicated_stream_mode=ir.replica_grouping()
            )
            value = ops.host_load(self.each) + ops.host_load(self.paired) * ops.host_load(self.one)
            alone, two = ir.replica_grouping(group_size=1), ir.replica_grouping(stride=4, group_size=2)
            self.own = popsr.variable(np.zeros((8, 3), np.float32), name="own", replica_grouping=alone)
            self.two = popsr.variable(np.zeros((4, 3), np.float32), name="two", replica_grouping=two)
            self.all = popsr.variable(np.zeros(3, np.float32), name="all")
            ops.add_(self.own, value)
            ops.add_(self.two, ops.collectives.replicated_all_reduce(value, group=two))
            ops.add_(self.all, ops.collectives.replicated_all_reduce(value))
            ops.host_store(self.out, self.own)
            for stream in (self.pair, self.first):
                ops.host_store(stream, value)
            if prints:
                ops.print_tensor(value, title="value")

    @property
    def variables(self) -> list[Any]:
        return [self.own, self.two, self.all]

    def inputs(self, replicas: range) -> dict[Any, Any]:
        numbers = np.arange(24, dtype=np.float32).reshape(8, 3)
        groups = sorted({r // 2 for r in replicas})
        return {
            self.each: rows(numbers, replicas),
            self.paired: rows(numbers, groups),
            self.one: numbers[7],
        }


def run(comm: Any, file: Path) -> dict[str, Any]:
    """Results of two runs, saved and loaded between."""
    program = Shared()
    with popsr.Session(program.ir, comm=comm) as session:
        assert session.local_replicas == (range(8) if comm is None else LOCAL)
        inputs = program.inputs(session.local_replicas)
        session.run(inputs)
        popsr.io.save_safetensors(session, file)
        data = session.get_tensors_data(program.variables)
        session.write_variables_data({variable: data[variable] + 1 for variable in program.variables})
        session.reset_host_weights(file)
        session.weights_from_host()
        out = session.run(inputs)
        rows = session.get_tensors_data(program.variables, replicas="all")
        results: dict[str, Any] = {stream.tensor_id: array for stream, array in out.items()}
        results |= {f"{v.name} of all": array for v, array in rows.items()}
        results["memory"] = session.memory()
        return results


def check_rows_files_and_memory(folder: Path) -> None:
    one, all_ = folder / f"alone{COMM.rank}.safetensors", folder / "shared.safetensors"
    alone, shared = run(None, one), run(COMM, all_)
    assert one.read_bytes() == all_.read_bytes()
    pairs = sorted({r // 2 for r in LOCAL})
    np.testing.assert_array_equal(shared["out"], rows(alone["out"], LOCAL))
    np.testing.assert_array_equal(shared["pair"], rows(alone["pair"], pairs))
    np.testing.assert_array_equal(shared["first"], alone["first"])
    for name in ("own of all", "two of all", "all of all"):
        np.testing.assert_array_equal(shared[name], alone[name])
    row, two = 12, len({r % 4 for r in LOCAL})  # bytes; groups of `two` on this rank
    assert alone["memory"]["variables"] == row * (8 + 4 + 1)
    assert shared["memory"]["variables"] == row * (len(LOCAL) + two + 1)
    assert shared["memory"]["streams"] == row * (2 * len(LOCAL) + 2 * len(pairs) + 2)


def printed(comm: Any) -> str:
    program = Shared(prints=True)
    with contextlib.redirect_stderr(io.StringIO()) as text, popsr.Session(program.ir, comm=comm) as session:
        session.run(program.inputs(session.local_replicas))
    return text.getvalue()


def check_prints() -> None:
    assert printed(COMM) == (printed(None) if COMM.rank == 0 else "")


def synthetic(comm: Any) -> Any:
    program = Shared()
    program.ir.options.syntheticDataMode = SyntheticDataMode.RandomNormal
    with popsr.Session(program.ir, comm=comm) as session:
        session.run()
        return session.get_tensors_data(program.variables)


def check_synthetic_data() -> None:
    for shared, alone in zip(synthetic(COMM).values(), synthetic(None).values(), strict=True):
        np.testing.assert_array_equal(shared, alone)


def check_floating_point_checks() -> None:
    texts = []
    for comm in (None, COMM):
        program = Shared()
        program.ir.options.enable_floating_point_checks = True
        with popsr.Session(program.ir, comm=comm) as session:
            inputs = program.inputs(session.local_replicas)
            inputs[program.each] = np.where(inputs[program.each] > 15, np.float32(3e38), inputs[program.each])
            try:
                session.run(inputs)
            except popsr.errors.FloatingPointError as error:
                texts.append(str(error))
    assert len(texts) == 2
    assert texts[0] == texts[1]


def main() -> None:
    with quiet():
        check_rows_files_and_memory(Path(sys.argv[1]))
        check_prints()
        check_synthetic_data()
        check_floating_point_checks()
    COMM.Barrier()
    if COMM.rank == 0:
        print("shares")


if __name__ == "__main__":
    main()
