"""Moving weights: read-back into the caller's buffers, and saving, beside plain copies and plain writes."""

import os
from pathlib import Path

import numpy as np

import popsr
from bench.record import at_least, at_most, mebibytes, ratios
from bench.sides.compare import by_turns
from popsr import ops
from popsr.io import PyWeightsIO, load_onnx, save_onnx

GIB = 2**30
ROUNDS = 7

SPEEDS = "Speeds, and popsr's over the other side's"
GROWN = "Resident memory that is added"


def resident() -> int:
    """Bytes that this process has resident now."""
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) * 1024


def grouped(replicas: int, groups: int, nbytes: int) -> tuple[popsr.Ir, popsr.Variable]:
    """A program that changes one variable of ``nbytes`` in all its groups."""
    ir = popsr.Ir(replication=replicas)
    rows = iter(np.full(nbytes // groups // 4, group, np.float32) for group in range(groups))
    with ir.main_graph:
        grouping = ir.replica_grouping(group_size=replicas // groups)
        variable = popsr.variable(rows, popsr.float32, "w", replica_grouping=grouping)
        ops.add_(variable, popsr.constant(1.0, popsr.float32))
    return ir, variable


def report(record, what: str, times, nbytes: int, goal: float) -> None:
    """Speeds of all sides, and the first one's over the others'."""
    (_, mine), *_ = times.items()
    for name, t in times.items():
        speeds = {k: f"{nbytes / getattr(t, k) / 1e9:.2f} GB/s" for k in ("best", "median")}
        against = {} if t is mine else ratios(t, mine) | at_least(goal, t.best / mine.best)
        record(SPEEDS, what, name, **speeds, **against)


def test_read_weights(benchmark, record) -> None:
    ir, variable = grouped(64, 8, GIB)
    # Ones, not zeros: pages of zeros are not resident before they are written.
    buffer, copy, source = (np.ones((8, *variable.shape), np.float32) for _ in range(3))
    with popsr.Session(ir) as session:
        session.run()
        io = PyWeightsIO({variable: buffer})
        before = resident()
        session.read_weights(io)
        grown = resident() - before
        expected = np.arange(8, dtype=np.float32) + 1
        assert np.array_equal(
            buffer[:, :: 2**20], np.broadcast_to(expected[:, None], buffer[:, :: 2**20].shape)
        )
        times = by_turns(
            benchmark,
            {
                "read_weights": lambda: session.read_weights(io),
                "numpy.copyto": lambda: np.copyto(copy, source),
            },
            ROUNDS,
        )
    report(record, "read_weights, R = 64, 8 groups, 1 GiB", times, buffer.nbytes, 0.7)
    goal = at_most(64 * 2**20, grown, mebibytes)
    record(GROWN, "the first `read_weights` after a run", memory=mebibytes(grown), **goal)


def test_save_onnx(benchmark, record, tmp_path) -> None:
    ir, variable = grouped(64, 8, GIB)
    ir.embed_replication_factor()
    ours, plain = tmp_path / "ours.onnx", tmp_path / "plain.bin"
    data = np.ones(GIB // 4, np.float32)

    def write(path: Path) -> None:
        with path.open("wb") as file:
            for start in range(0, data.size, data.size // 8):
                file.write(memoryview(data[start : start + data.size // 8]).cast("B"))
            file.flush()
            os.fsync(file.fileno())

    def write_new() -> None:
        write(tmp_path / "new.bin")
        (tmp_path / "new.bin").replace(tmp_path / "old.bin")

    with popsr.Session(ir) as session:
        session.run()
        times = by_turns(
            benchmark,
            {
                "save_onnx": lambda: save_onnx(session, ours),
                "plain writes, one fsync": lambda: write(plain),
                "the same to a new file, renamed": write_new,
            },
            11,
        )
        before = resident()
        save_onnx(session, ours)
        grown = resident() - before
    loaded = load_onnx(ours)
    assert loaded[variable.id].shape == (8, *variable.shape)
    report(record, "save_onnx, R = 64, 8 groups, 1 GiB", times, GIB, 0.7)
    record(GROWN, "a save", memory=mebibytes(grown))


def test_one_copy(benchmark, record) -> None:
    """1,024 replicas with one group store one copy."""
    ir, variable = grouped(1024, 1, 2**26)
    before = resident()
    session = popsr.Session(ir)
    grown = resident() - before
    with session:
        benchmark.pedantic(session.run, rounds=3)
        assert session.memory()["variables"] == 2**26
        assert session.storage(variable).num_blocks == 1
    record(GROWN, "a session of R = 1,024 with one group of 64 MiB", memory=mebibytes(grown))
