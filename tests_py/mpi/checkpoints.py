"""Checkpoints of ranks beside those of one process: bytes, errors, memory, and loading on other numbers of ranks.

``python -m mpi4py -m tests_py.mpi.checkpoints FOLDER``, on four ranks.
"""

from __future__ import annotations

import errno
import os
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from mpi4py import MPI

import popsr
import popsr.io
from popsr import ops
from popsr._support.host import message_sizes
from popsr.io import _new_file
from popsr.io._onnx import write as _onnx_write
from tests_py.support.programs.bit_judge import quiet

COMM = MPI.COMM_WORLD
REPLICAS, WIDTH = 8, 12
FORMATS = ("safetensors", "onnx")
CHUNKS = (40, 100, 1 << 24)


class Program:
    """Variables of all groupings and element sizes, a sharded one, and one whose groups come to differ."""

    def __init__(self, *, embeds: bool = False) -> None:
        self.ir = ir = popsr.Ir(replication=REPLICAS)
        alone, two = ir.replica_grouping(group_size=1), ir.replica_grouping(stride=4, group_size=2)
        with ir.main_graph, popsr.in_sequence():
            self.x = popsr.h2d_stream((WIDTH,), popsr.float32, "x")
            value = ops.host_load(self.x)

            def variable(groups: int, name: str, dtype: Any = np.float32, **options: Any) -> Any:
                shape = (WIDTH,) if groups == 1 else (groups, WIDTH)
                data = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
                return popsr.variable(data, name=name, **options)

            own = variable(8, "own", replica_grouping=alone)
            half = variable(8, "half", np.float16, replica_grouping=alone)
            pairs = variable(4, "pairs", replica_grouping=two)
            whole = variable(1, "whole")
            drifts = variable(1, "drifts")
            untouched = variable(8, "untouched", np.int8, replica_grouping=alone)
            ops.add_(own, value)
            ops.add_(half, ops.cast(value, popsr.float16))
            ops.add_(pairs, ops.collectives.replicated_all_reduce(value, group=two))
            ops.add_(whole, ops.collectives.replicated_all_reduce(value))
            ops.add_(drifts, value)
        self.variables = [own, half, pairs, whole, drifts, untouched]
        if embeds:
            ir.embed_replication_factor()

    def session(self, comm: Any, **options: Any) -> popsr.Session:
        return popsr.Session(self.ir, comm=comm, **options)

    def run(self, session: popsr.Session) -> None:
        rows = np.arange(REPLICAS * WIDTH, dtype=np.float32).reshape(REPLICAS, WIDTH)[session.local_replicas]
        session.run({self.x: rows if len(rows) > 1 else rows[0]})


def save(session: popsr.Session, path: Path) -> None:
    (popsr.io.save_safetensors if path.suffix == ".safetensors" else popsr.io.save_onnx)(session, path)


def steps(program: Program, comm: Any, folder: Path) -> list[Path]:
    """Files before, inside, between and after runs, and after the host wrote."""
    files: list[Path] = []

    def keep(session: popsr.Session) -> None:
        for suffix in FORMATS:
            files.append(folder / f"{len(files)}.{suffix}")
            save(session, files[-1])

    session = program.session(comm)
    keep(session)
    with session:
        keep(session)
        program.run(session)
        keep(session)
        program.run(session)
        keep(session)
        session.write_variable_data(program.variables[0], np.full((8, WIDTH), 7, np.float32))
        keep(session)
        program.run(session)
    keep(session)
    return files


def folders(folder: Path, name: str) -> tuple[Path, Path]:
    """For the files of one process, and of all ranks."""
    found = folder / f"{name}-alone{COMM.rank}", folder / f"{name}-shared"
    for each in found:
        each.mkdir(exist_ok=True)
    COMM.Barrier()
    return found


def check_bytes(folder: Path) -> None:
    for chunk in CHUNKS:
        for embeds in (False, True):
            one, all_ = folders(folder, f"bytes{chunk}{embeds}")
            with mock.patch.object(message_sizes, "MESSAGE_BYTES", chunk):
                files = steps(Program(embeds=embeds), COMM, all_)
            alone = steps(Program(embeds=embeds), None, one)
            for mine, theirs in zip(alone, files, strict=True):
                assert mine.read_bytes() == theirs.read_bytes(), theirs
            assert len(files) == len(os.listdir(all_)), os.listdir(all_)


def check_data_files(folder: Path) -> None:
    """Large models with their data beside them: two saves, after which the first one's data is removed."""
    data = []
    for comm, place in zip((None, COMM), folders(folder, "data"), strict=True):
        program = Program()
        with (
            mock.patch.object(_onnx_write, "_MAX_FILE", 100),
            mock.patch.object(_onnx_write, "_MIN_EXTERNAL", 1),
        ):
            session = program.session(comm)
            for _ in range(2):
                save(session, place / "model.onnx")
        COMM.Barrier()
        [file] = place.glob("*.data")
        data.append(file.read_bytes())
        found = popsr.io.load_onnx(place / "model.onnx")
        for variable in program.variables:
            np.testing.assert_array_equal(found[variable.id], session.get_tensor_data(variable))
        COMM.Barrier()
    assert data[0] == data[1]


def check_one_rank_writes(folder: Path) -> None:
    _, place = folders(folder, "writer")
    made: list[str] = []
    create = _new_file._create

    def noted(owner: Path, mode: int) -> tuple[str, int]:
        made.append(owner.name)
        return create(owner, mode)

    session = Program().session(COMM)
    with mock.patch.object(_new_file, "_create", noted):
        for suffix in FORMATS:
            save(session, place / f"model.{suffix}")
    assert COMM.allgather(made) == [["model.safetensors", "model.onnx"], [], [], []]


def outcome(call: Callable[[], Any]) -> str:
    try:
        call()
    except popsr.Error as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def check_errors(folder: Path) -> None:
    """Errors of the one rank that writes are those of all; the old file stays, and the session goes on."""
    _, place = folders(folder, "errors")
    program = Program()
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with program.session(COMM) as session:
        for suffix in FORMATS:
            path = place / f"model.{suffix}"
            save(session, path)
            old = path.read_bytes()
            program.run(session)
            for name in ("pwrite", "fsync", "replace"):
                with mock.patch.object(os, name, side_effect=full):
                    found = outcome(lambda path=path: save(session, path))  # type: ignore[misc]
                assert "FileError" in found, found
                assert "No space left" in found, found
                every = COMM.allgather(found)
                assert set(every) == {found}, every
                assert path.read_bytes() == old
            COMM.Barrier()
            save(session, path)
            assert path.read_bytes() != old
            missing = outcome(lambda suffix=suffix: save(session, place / "none" / f"model.{suffix}"))  # type: ignore[misc]
            assert set(COMM.allgather(missing)) == {missing}
            assert "FileError" in missing, missing
            other = place / f"{min(COMM.rank, 1)}.{suffix}"
            differs = outcome(lambda other=other: save(session, other))  # type: ignore[misc]
            assert "ranks differ in the path" in differs, differs
            assert set(COMM.allgather(differs)) == {differs}
        assert sorted(os.listdir(place)) == ["model.onnx", "model.safetensors"]
        COMM.Barrier()


def check_loading(folder: Path) -> None:
    """Files of four ranks go on one, two and three ranks as in one process."""
    one, all_ = folders(folder, "loading")
    with Program().session(COMM) as session:
        program = Program()
    program = Program()
    with program.session(COMM) as session:
        program.run(session)
        for suffix in FORMATS:
            save(session, all_ / f"model.{suffix}")
    for size in (1, 2, 3, 4):
        part = COMM.Split(0 if COMM.rank < size else MPI.UNDEFINED, 0)
        for suffix in FORMATS if COMM.rank < size else ():
            results = []
            for comm in (None, part):
                again = Program()
                with again.session(comm) as session:
                    session.reset_host_weights(all_ / f"model.{suffix}")
                    assert session.step == 1
                    again.run(session)
                    results.append(session.get_tensors_data(again.variables, replicas="all"))
            for mine, theirs in zip(*(result.values() for result in results), strict=True):
                np.testing.assert_array_equal(mine, theirs)
        COMM.Barrier()
    check_other_files(one, all_)


def check_other_files(one: Path, all_: Path) -> None:
    program = Program()
    session = program.session(COMM)
    for suffix in FORMATS:
        with program.session(None) as alone:
            program.run(alone)
            program.run(alone)
            save(alone, one / f"model.{suffix}")
        path = one if COMM.rank == 2 else all_
        found = outcome(lambda path=path, suffix=suffix: session.reset_host_weights(path / f"model.{suffix}"))  # type: ignore[misc]
        assert (
            "RankError: reset_host_weights: ranks differ in the step in the file, got 1 on rank 0 and 2"
            in found
        )
        path = one / "none" if COMM.rank == 1 else all_
        found = outcome(lambda path=path, suffix=suffix: session.reset_host_weights(path / f"model.{suffix}"))  # type: ignore[misc]
        assert set(COMM.allgather(found)) == {found}
        assert "FileError" in found, found
        assert session.step == 0


def check_memory(folder: Path) -> None:
    """No rank makes room for more than two chunks while variables of 64 of them are saved."""
    _, place = folders(folder, "memory")
    ir = popsr.Ir(replication=REPLICAS)
    chunk, alone = 1 << 16, ir.replica_grouping(group_size=1)
    with ir.main_graph, popsr.in_sequence():
        for i in range(4):
            data = np.ones((REPLICAS, chunk // 2), np.float32)
            ops.add_(
                popsr.variable(data, name=f"v{i}", replica_grouping=alone), popsr.constant(np.float32(1))
            )
    with mock.patch.object(message_sizes, "MESSAGE_BYTES", chunk), popsr.Session(ir, comm=COMM) as session:
        session.run()
        for suffix in FORMATS:
            save(session, place / f"first.{suffix}")  # modules are imported
            tracemalloc.start()
            save(session, place / f"model.{suffix}")
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert peak < 2 * chunk + (100 << 10), peak


def main() -> None:
    folder = Path(sys.argv[1])
    with quiet():
        check_bytes(folder)
        check_data_files(folder)
        check_one_rank_writes(folder)
        check_errors(folder)
        check_loading(folder)
        check_memory(folder)
    COMM.Barrier()
    if COMM.rank == 0:
        print("checkpoints")


if __name__ == "__main__":
    main()
