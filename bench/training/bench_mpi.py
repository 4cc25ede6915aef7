"""Sessions on ranks of MPI beside one process, and their all-reduce beside the library's own."""

import json

import pytest

from bench.record import Recorder, at_least, at_most, mebibytes, ratios
from bench.record import times as cells_of
from bench.sides.compare import Times
from bench.sides.processes import Side, times_of
from tests_py.mpi import worlds

TURNS = 9
MIB = 1 << 20
TABLE = "Ranks of MPI: the other side's time over theirs"


class World(Side):
    """A side on ranks of MPI."""

    def __init__(self, library: str, ranks: int, function: str, **arguments: object) -> None:
        worlds.require(library)
        command = worlds.command(library, ranks, "bench.sides.mpi_sides", function, json.dumps(arguments))
        self._start(command, worlds.environment(library))

    def __exit__(self, *error: object) -> None:
        if self.process.poll() is None:
            self.process.stdin.write("end\n")
        super().__exit__(*error)


def _record(record: Recorder, case: str, times: dict[str, Times], goal: float) -> None:
    """Rows of the other side and of popsr on ranks; above 1 ranks are faster."""
    (name, other), (ranks, own) = times.items()
    record(TABLE, case, name, **cells_of(other))
    record(TABLE, case, ranks, **cells_of(own), **ratios(other, own), **at_least(goal, other.best / own.best))


@pytest.mark.parametrize("step", ["mlp", "gpt"])
@pytest.mark.parametrize("library", worlds.LIBRARIES)
def test_two_ranks_beside_two_threads(benchmark, record, library, step):
    replicas = {"mlp": 8, "gpt": 2}[step]
    sides = {
        "one process, two threads": Side(f"bench.sides.mpi_sides:{step}", replicas=replicas, threads=2),
        "popsr on ranks": World(library, 2, step, replicas=replicas, threads=1),
    }
    times = times_of(benchmark, sides, TURNS)
    own, ranks = sides.values()
    what = {"mlp": "MLP step", "gpt": "GPT-like step"}[step]
    _record(record, f"{what}, R = {replicas}, 2 ranks of one thread, {library}", times, 0.9)
    # Rank 0 has the losses of its own replicas.
    assert len(own.results) == len(ranks.results)


@pytest.mark.parametrize(
    ("nbytes", "ranks", "calls", "goal"),
    [
        (64 * MIB, 2, 2, 0.7),
        (64 * MIB, 4, 2, 0.7),
        (1024, 2, 1000, 0.33),
        (1024, 4, 1000, 0.33),
    ],
)
@pytest.mark.parametrize("library", worlds.LIBRARIES)
def test_all_reduce_beside_the_library(benchmark, record, library, nbytes, ranks, calls, goal):
    what = {"nbytes": nbytes, "calls": calls}
    sides = {
        "the library's `Allreduce`": World(library, ranks, "library_all_reduce", **what),
        "popsr on ranks": World(library, ranks, "all_reduce", **what),
    }
    times = times_of(benchmark, sides, TURNS)
    size = f"{nbytes // MIB} MiB" if nbytes >= MIB else f"{nbytes // 1024} KiB"
    _record(record, f"{calls:,} all-reduces of {size}, {ranks} ranks, {library}", times, goal)


@pytest.mark.parametrize("library", worlds.LIBRARIES)
def test_memory_of_a_rank(benchmark, record, library):
    sides = {
        "256 replicas": Side("bench.sides.mpi_sides:memory", replicas=256),
        "1,024 replicas on 4 ranks": World(library, 4, "memory", replicas=1024),
    }
    times_of(benchmark, sides, 2)
    (alone, planned), (rank, of_rank) = (side.results for side in sides.values())
    sizes = {"one process, 256": f"{mebibytes(alone)} (planned: {mebibytes(planned)})"}
    sizes |= {"rank 0 of 4, 1,024": f"{mebibytes(rank)} (planned: {mebibytes(of_rank)})"}
    record("Memory of a rank", library, **sizes, ratio=f"{rank / alone:.3f}", **at_most(1.1, rank / alone))
