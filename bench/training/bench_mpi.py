"""Sessions on ranks of MPI beside one process, and their all-reduce beside the library's own."""

import json

import pytest

from bench.sides.compare import Times
from bench.sides.processes import Side, times_of
from tests_py.mpi import worlds

TURNS = 9
MIB = 1 << 20


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


def _text(times: dict[str, Times], goal: str) -> str:
    """Ratios of the first side's time to the others': more than 1 means that another is faster."""
    (first, own), *others = times.items()
    rows = [f"{first}: {own.best * 1e3:.4g} ms"]
    rows += [
        f"{name}: {other.best * 1e3:.4g} ms, ratio {own.best / other.best:.2f}, "
        f"of medians {own.median / other.median:.2f}"
        for name, other in others
    ]
    return f"\n{'; '.join(rows)} (goal: {goal})"


@pytest.mark.parametrize("step", ["mlp", "gpt"])
@pytest.mark.parametrize("library", worlds.LIBRARIES)
def test_two_ranks_beside_two_threads(benchmark, library, step):
    replicas = {"mlp": 8, "gpt": 2}[step]
    sides = {
        "two threads": Side(f"bench.sides.mpi_sides:{step}", replicas=replicas, threads=2),
        f"two ranks, {library}": World(library, 2, step, replicas=replicas, threads=1),
    }
    times = times_of(benchmark, sides, TURNS)
    own, ranks = sides.values()
    print(f"\n{step}, R = {replicas}{_text(times, 'at least 0.9')}")
    # Rank 0 has the losses of its own replicas.
    assert len(own.results) == len(ranks.results)


@pytest.mark.parametrize(
    ("nbytes", "ranks", "calls", "goal"),
    [
        (64 * MIB, 2, 2, "at least 0.7"),
        (64 * MIB, 4, 2, "at least 0.7"),
        (1024, 2, 1000, "at least 0.33"),
        (1024, 4, 1000, "at least 0.33"),
    ],
)
@pytest.mark.parametrize("library", worlds.LIBRARIES)
def test_all_reduce_beside_the_library(benchmark, library, nbytes, ranks, calls, goal):
    what = {"nbytes": nbytes, "calls": calls}
    sides = {
        "the library": World(library, ranks, "library_all_reduce", **what),
        "popsr": World(library, ranks, "all_reduce", **what),
    }
    times = times_of(benchmark, sides, TURNS)
    size = f"{nbytes // MIB} MiB" if nbytes >= MIB else f"{nbytes} B"
    print(f"\n{library}, all-reduce of {size} on {ranks} ranks, {calls} calls{_text(times, goal)}")


@pytest.mark.parametrize("library", worlds.LIBRARIES)
def test_memory_of_a_rank(benchmark, library):
    sides = {
        "256 replicas": Side("bench.sides.mpi_sides:memory", replicas=256),
        "1,024 replicas on 4 ranks": World(library, 4, "memory", replicas=1024),
    }
    times_of(benchmark, sides, 2)
    (alone, planned), (rank, of_rank) = (side.results for side in sides.values())
    print(
        f"\n{library}: one process {alone / MIB:.1f} MiB (planned: {planned / MIB:.1f}), rank 0 {rank / MIB:.1f} MiB "
        f"(planned: {of_rank / MIB:.1f}), ratio {rank / alone:.3f} (goal: at most 1.1)"
    )
