"""A rank that fails at any point ends all ranks, with the first cause once; files are the old or the new ones."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests_py import ROOT
from tests_py.mpi import worlds

RANKS = 3
HANGS = 60  # seconds after which a world counts as hanging
OLD = b"the old file"
FILES = ("model.safetensors", "model.onnx")
NOISE = r"(?m)^(\[warn\] Epoll.*|.*leaked .* objects.*)\n"
# With `python -m mpi4py`, which aborts all ranks, and without it.
RUNNERS = {"plain": (), "mpi4py": worlds.RUNNER}
# Kind, runner, and how many points of the slow tests.
FAULTS = [
    ("kill", "plain", 50),
    ("error", "plain", 50),
    ("error", "mpi4py", 50),
    ("interrupt", "plain", 50),
    ("never", "plain", 25),
]
# Points of the normal tests: in building, the first comparison, a chain, an exchange, a checkpoint, the end.
SHORT = [
    ("mpich", "kill", "plain", 0, 0.6),
    ("mpich", "error", "plain", 1, 0.2),
    ("mpich", "error", "mpi4py", 2, 0.0),
    ("mpich", "error", "plain", 0, 0.9),
    ("mpich", "interrupt", "plain", 2, 0.5),
    ("mpich", "never", "plain", 1, 0.35),
    ("openmpi", "kill", "plain", 1, 0.4),
    ("openmpi", "error", "plain", 0, 0.7),
    ("openmpi", "never", "plain", 2, 0.0),
]


@cache
def whole(library: str) -> tuple[list[int], dict[str, bytes]]:
    """The number of points of each rank, and the files of a world without faults."""
    with TemporaryDirectory() as folder:
        result = world(library, "count", "mpi4py", 0, 0, Path(folder))
        assert result.returncode == 0, result.stderr
        return [*map(int, result.stdout.split())], {
            name: (Path(folder) / name).read_bytes() for name in FILES
        }


def world(
    library: str, kind: str, runner: str, rank: int, point: int, folder: Path
) -> subprocess.CompletedProcess[str]:
    worlds.require(library)
    pytest.importorskip("onnx")
    args = (kind, str(rank), str(point), str(folder))
    command = worlds.command(library, RANKS, "tests_py.mpi.faults", *args, runner=RUNNERS[runner])
    return subprocess.run(
        command,
        env=worlds.environment(library),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=HANGS,
        check=False,
    )


def check(library: str, kind: str, runner: str, rank: int, at: float, folder: Path) -> None:
    """A fault at a share of the points of a rank."""
    counts, new = whole(library)
    first = (
        1 if runner == "mpi4py" or kind in ("never", "kill") else 2
    )  # before that ranks do not know each other
    last = counts[rank] - 2 * (kind == "never")  # after the last exchange nobody waits for a call
    point = first + int(at * (last - first))
    for name in FILES:
        (folder / name).write_bytes(OLD)
    result = world(library, kind, runner, rank, point, folder)
    text = re.sub(NOISE, "", result.stderr)
    assert result.returncode != 0
    causes = {
        "kill": r"KILLED BY SIGNAL: 9|signal 9",
        "error": r"(?m)^(\w+\.)*Fault: of this rank$",
        "interrupt": r"(?m)^KeyboardInterrupt",
        "never": rf"RankError: \w+: a rank did not come, got no call of ranks? ([\d, ]*, )?{rank}\b[\d, ]* within 4 s",
    }
    said = f"{result.stdout}\n{text}" if kind == "kill" else text
    assert len(re.findall(causes[kind], said)) == 1, said
    assert text.count("Traceback (most recent call last)") == (kind != "kill"), text
    assert "ended it" not in text, text
    for name in FILES:
        assert (folder / name).read_bytes() in (OLD, new[name])


@pytest.mark.share(2)
@pytest.mark.parametrize(("library", "kind", "runner", "rank", "at"), SHORT)
def test_all_ranks_end(library: str, kind: str, runner: str, rank: int, at: float, tmp_path: Path) -> None:
    check(library, kind, runner, rank, at, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("library", worlds.LIBRARIES)
@pytest.mark.parametrize(("kind", "runner", "points"), FAULTS)
def test_all_ranks_end_at_any_point(
    library: str, kind: str, runner: str, points: int, tmp_path: Path
) -> None:
    for i in range(points):
        check(library, kind, runner, i % RANKS, i / (points - 1), tmp_path)
