"""Variables that no op writes stay where the program has them, until the host writes one: nobody can tell."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import ops
from popsr.io import save_safetensors
from popsr.ops import var_updates
from tests_py.support.helpers import Array, assert_same_bits

pytestmark = pytest.mark.filterwarnings("ignore::popsr.ReplicaWarning")
N = 4096  # 16 KiB: large enough to be shared


class Program:
    """Stores ``3 * frozen + trained``, and adds one to ``trained``, which an op writes."""

    def __init__(self, replicas: int = 1, group_size: int | None = None, data: Array | None = None) -> None:
        self.ir = popsr.Ir(replication=replicas)
        grouping = self.ir.replica_grouping(1, group_size or replicas)
        rows = grouping.num_groups
        shape = (rows, N) if rows > 1 else (N,)
        self.frozen_data = (
            np.random.default_rng(0).standard_normal(shape).astype(np.float32) if data is None else data
        )
        with self.ir.main_graph, popsr.in_sequence():
            self.frozen = popsr.variable(self.frozen_data, popsr.float32, "frozen", replica_grouping=grouping)
            self.trained = popsr.variable(np.zeros(N, np.float32), popsr.float32, "trained")
            self.out = popsr.d2h_stream((N,), popsr.float32, "out")
            self.ones = popsr.constant(np.ones(N, np.float32))
            ops.host_store(self.out, self.frozen * 3.0 + self.trained)
            var_updates.accumulate_(self.trained, self.ones)
        self.replicas, self.grouping = replicas, grouping

    def expected(self, frozen: Array, runs: int) -> Array:
        """The result of the last of so many runs."""
        rows = frozen.reshape(-1, N)
        groups = list(self.grouping.assignment) if len(rows) > 1 else [0] * self.replicas
        stored = np.stack([rows[g] * np.float32(3) + np.float32(runs - 1) for g in groups])
        return stored if self.replicas > 1 else stored[0]


PROGRAMS: dict[str, Callable[[], Program]] = {
    "one replica": Program,
    "equal replicas": lambda: Program(4),
    "groups": lambda: Program(4, 2),
    "a row each": lambda: Program(4, 1),
    "zeros": lambda: Program(2, data=np.zeros(N, np.float32)),
    "large zeros": lambda: Program(1, data=np.zeros(N, np.float32)),
    "minus zeros": lambda: Program(1, data=np.full(N, -0.0, np.float32)),
    "of the caller": lambda: Program(1, data=np.arange(N, dtype=np.float32)),
    "strided": lambda: Program(1, data=np.arange(2 * N, dtype=np.float32)[::2]),
    "float64": lambda: Program(1, data=np.arange(N, dtype=np.float64)),
}


def write_variable(session: popsr.Session, p: Program, value: Array, path: Path) -> None:
    session.write_variable_data(p.frozen, value)


def write_weights(session: popsr.Session, p: Program, value: Array, path: Path) -> None:
    session.write_variables_data({p.frozen: value, p.trained: session.get_tensor_data(p.trained)})


def load(session: popsr.Session, p: Program, value: Array, path: Path) -> None:
    """From a checkpoint of another session."""
    with popsr.Session(p.ir) as other:
        other.write_variables_data({p.frozen: value, p.trained: session.get_tensor_data(p.trained)})
        save_safetensors(other, path)
    session.reset_host_weights(path)


WRITES: dict[str, Callable[[popsr.Session, Program, Array, Path], None]] = {
    "write_variable_data": write_variable,
    "write_variables_data": write_weights,
    "a checkpoint": load,
}
OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"num_threads": 3},
    {"dedup": False},
    {"check": True},
    {"optimise": False},
    {"profile": True},
)


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_the_host_writes_is_read(name: str, write: str, tmp_path: Path) -> None:
    p = PROGRAMS[name]()
    start = np.asarray(p.frozen_data, np.float32)
    new = np.random.default_rng(1).standard_normal(start.shape).astype(np.float32)
    for options in OPTIONS:
        with popsr.Session(p.ir, **options) as session, popsr.Session(p.ir) as untouched:
            assert_same_bits(session.run()[p.out], p.expected(start, 1))
            assert_same_bits(session.get_tensor_data(p.frozen), start)
            WRITES[write](session, p, new, tmp_path / "weights.safetensors")
            assert_same_bits(session.get_tensor_data(p.frozen), new)
            assert_same_bits(session.run()[p.out], p.expected(new, 2))
            assert_same_bits(session.run()[p.out], p.expected(new, 3))
            assert session.stats["kernel_calls"]["host_store"] == 3
            WRITES[write](session, p, start, tmp_path / "weights.safetensors")
            assert_same_bits(session.run()[p.out], p.expected(start, 4))
            # Others see nothing of it.
            assert_same_bits(untouched.get_tensor_data(p.frozen), start)
            assert_same_bits(untouched.run()[p.out], p.expected(start, 1))
        with popsr.Session(p.ir) as later:
            assert_same_bits(later.get_tensor_data(p.frozen), start)
            assert_same_bits(later.run()[p.out], p.expected(start, 1))


@pytest.mark.parametrize("name", PROGRAMS)
def test_writing_the_same_changes_nothing(name: str) -> None:
    p = PROGRAMS[name]()
    start = np.asarray(p.frozen_data, np.float32)
    with popsr.Session(p.ir) as session:
        session.write_variable_data(p.frozen, start)
        assert_same_bits(session.run()[p.out], p.expected(start, 1))
        session.weights_to_host()
        session.weights_from_host()
        assert_same_bits(session.run()[p.out], p.expected(start, 2))
        assert_same_bits(session.get_tensor_data(p.frozen), start)


def test_the_callers_array_is_copied() -> None:
    """Neither the program nor a session sees later writes to it, and nobody writes to it."""
    data = np.arange(N, dtype=np.float32)
    before = data.copy()
    p = Program(data=data)
    data[:] = -1
    with popsr.Session(p.ir) as session:
        assert_same_bits(session.run()[p.out], p.expected(before, 1))
        data[:] = -2
        assert_same_bits(session.run()[p.out], p.expected(before, 2))
        session.write_variable_data(p.frozen, data)
        data[:] = -3
        assert_same_bits(session.run()[p.out], p.expected(np.full(N, -2, np.float32), 3))
    assert (data == -3).all()


def test_a_file_that_changes_does_not_change_a_session(tmp_path: Path) -> None:
    np.save(tmp_path / "weights.npy", np.arange(N, dtype=np.float32))
    data = np.load(tmp_path / "weights.npy", mmap_mode="r+")
    before = np.array(data)
    p = Program(data=data)
    with popsr.Session(p.ir) as session:
        assert_same_bits(session.run()[p.out], p.expected(before, 1))
        data[:] = -1
        assert_same_bits(session.run()[p.out], p.expected(before, 2))


def test_data_that_was_read_stays_as_it_was() -> None:
    p = Program()
    with popsr.Session(p.ir) as session:
        first = session.get_tensor_data(p.frozen)
        kept = first.copy()
        session.write_variable_data(p.frozen, np.zeros(N, np.float32))
        assert_same_bits(first, kept)
        first[:] = 7
        assert_same_bits(session.run()[p.out], p.expected(np.zeros(N, np.float32), 1))
    with popsr.Session(p.ir) as session:
        assert_same_bits(session.get_tensor_data(p.frozen), p.frozen_data)


def test_a_run_that_the_host_writes_after_an_edit_is_refused() -> None:
    """Values can be written, and read, after the program changed; it does not run."""
    p = Program()
    with popsr.Session(p.ir) as session:
        with p.ir.main_graph, popsr.in_sequence():
            ops.exp(p.frozen)
        session.write_variable_data(p.frozen, np.ones(N, np.float32))
        assert_same_bits(session.get_tensor_data(p.frozen), np.ones(N, np.float32))
        with pytest.raises(popsr.errors.GraphError, match="the program changed"):
            session.run()


def test_rows_that_differ_after_a_write_get_another_plan() -> None:
    """Replicas of a group hold one value; of groups whose rows were equal each takes its own."""
    p = Program(4, 2, data=np.broadcast_to(np.arange(N, dtype=np.float32), (2, N)))
    start = np.asarray(p.frozen_data)
    new = np.stack([start[0], start[0] + 1])
    with popsr.Session(p.ir) as session:
        assert_same_bits(session.run()[p.out], p.expected(start, 1))
        for runs, value in enumerate((new, start, new, new[::-1].copy(), start), 2):
            session.write_variable_data(p.frozen, value)
            assert_same_bits(session.run()[p.out], p.expected(value, runs))
            assert_same_bits(session.get_tensor_data(p.frozen), value)


def test_sessions_of_one_program_in_threads() -> None:
    p = Program(2)
    new = {i: np.full(N, i, np.float32) for i in range(1, 4)}
    found: dict[int, list[Array]] = {}
    sessions = {i: popsr.Session(p.ir) for i in range(4)}

    def use(i: int) -> None:
        with sessions[i] as session:
            found[i] = [session.run()[p.out]]
            if i > 0:
                session.write_variable_data(p.frozen, new[i])
            found[i] += [session.run()[p.out] for _ in range(3)]

    threads = [threading.Thread(target=use, args=(i,)) for i in sessions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, results in found.items():
        for run, result in enumerate(results, 1):
            frozen = p.frozen_data if i == 0 or run == 1 else new[i]
            assert_same_bits(result, p.expected(frozen, run))
