"""PopXL programs with popdist's names run on ranks as they are, with the results of one process."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests_py import ROOT
from tests_py.mpi import worlds
from tests_py.support.helpers import Array
from tests_py.support.programs import PUBLISHED
from tests_py.support.programs.start_published import CONFIGS

PROGRAMS = PUBLISHED / "instances"
WORLDS = [("mpich", 2), ("openmpi", 3), ("mpich", 4)]
# Program, replicas, more variables.
RUNS: list[tuple[str, int, dict[str, str]]] = [
    ("mnist", 8, {}),
    ("mnist", 5, {}),
    ("download", 8, {}),
    ("groups", 8, {"POPLAR_TARGET_OPTIONS": '{"ipuLinkDomainSize": 4}'}),
    ("groups", 6, {"POPLAR_TARGET_OPTIONS": '{"ipuLinkDomainSize": 3}'}),
    ("by_options", 6, {}),
]
# The place at which an error is raised, and its text, which is printed once.
ERRORS = [
    ("one", "ValueError: of the program"),
    ("late", "ValueError: after the session"),
    ("rows", "ShapeError: run: shapes differ for stream 'x', got (3,), expected (2,)"),
    ("function", "KeyError: 'of a function'"),
    ("function of a step", "KeyError: 'of a function'"),
    ("collective", "RankError: session: ranks make other calls, got read variable w on rank 0 and "),
]


def rows(folder: Path, ranks: int) -> Array:
    """The rows that instances wrote, one after the other."""
    files = [folder / f"{rank}.npy" for rank in range(ranks)]
    assert sorted(folder.glob("*.npy")) == files
    return np.concatenate([np.load(file) for file in files])


def started() -> Iterator[Any]:
    """Each program in one of the worlds, the first in all; the others are the nightly tests'."""
    for (i, world), (j, run) in itertools.product(enumerate(WORLDS), enumerate(RUNS)):
        yield pytest.param(
            *world, *run, marks=[] if j in (0, *range(i + 1, len(RUNS), 3)) else pytest.mark.slow
        )


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int], tuple[Array, str]]:
    """Rows and prints of one process without a launcher, by program and number of replicas."""
    found = {}
    for name, replicas, variables in RUNS:
        folder = tmp_path_factory.mktemp(name)
        result = subprocess.run(
            [sys.executable, "-m", "popsr", "run", str(PROGRAMS / f"{name}.py"), str(folder)],
            env={
                **os.environ,
                "PYTHONPATH": worlds.environment("mpich")["PYTHONPATH"],
                "POPDIST_NUM_TOTAL_REPLICAS": str(replicas),
                **variables,
            },
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert result.returncode == 0, result.stderr
        found[name, replicas] = rows(folder, 1), result.stdout
    return found


@pytest.mark.share(2)
@pytest.mark.parametrize(("library", "ranks", "name", "replicas", "variables"), list(started()))
def test_programs_give_the_bits_of_one_process(
    library: str,
    ranks: int,
    name: str,
    replicas: int,
    variables: dict[str, str],
    alone: dict[tuple[str, int], tuple[Array, str]],
    tmp_path: Path,
) -> None:
    worlds.require(library)
    result = worlds.start(
        *(library, ranks, "-m", "popsr", "run", str(PROGRAMS / f"{name}.py"), str(tmp_path)),
        env={"POPDIST_NUM_TOTAL_REPLICAS": str(replicas), **variables},
    )
    assert result.returncode == 0, f"{result.stdout[-2000:]}\n{result.stderr[-4000:]}"
    expected, prints = alone[name, replicas]
    np.testing.assert_array_equal(rows(tmp_path, ranks), expected, strict=True)
    assert result.stdout == prints  # of the first instance


@pytest.mark.parametrize("library", worlds.FIRST)
def test_the_example_prints_the_same_on_one_and_on_three_ranks(library: str) -> None:
    pytest.importorskip("sklearn")
    worlds.require(library)
    program = str(ROOT / "examples/popxl/mnist.py")
    options = ("--epochs", "1", "--hidden", "32", "--gradient-accumulation", "2")
    results = [
        worlds.start(
            *(library, ranks, "-m", "popsr", "run", program, *options),
            env={"POPDIST_NUM_TOTAL_REPLICAS": "4"},
        )
        for ranks in (1, 3)
    ]
    assert [result.returncode for result in results] == [0, 0], results[1].stderr
    assert results[0].stdout == results[1].stdout
    assert re.search(r"= 64 .*\nepoch 1: loss \d\.\d+\ntest accuracy: ", results[0].stdout)


# Library, ranks, names and configurations; the nightly tests run all on all.
PUBLISHED_PROGRAMS = [
    ("mpich", 2, ["bert", "half", "llama", "quantised", "t5", "translation"]),
    ("openmpi", 3, ["gpt phased", "half"]),
]


@pytest.mark.share(2)
@pytest.mark.parametrize(("library", "ranks", "names"), PUBLISHED_PROGRAMS)
def test_model_programs_give_the_bits_of_one_process(library: str, ranks: int, names: list[str]) -> None:
    assert worlds.check(library, ranks, "tests_py.mpi.published", *names) == "the same bits\n"


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
@pytest.mark.parametrize("library", worlds.LIBRARIES)
def test_all_model_programs_give_the_bits_of_one_process(library: str, ranks: int) -> None:
    fitting = [each for each in CONFIGS if ranks == 2 or each[0].startswith("gpt")]
    names = [word for each in fitting for word in each]
    assert worlds.check(library, ranks, "tests_py.mpi.published", *names) == "the same bits\n"


@pytest.mark.parametrize("library", worlds.LIBRARIES)
def test_a_replica_for_each_rank(library: str, tmp_path: Path) -> None:
    worlds.require(library)
    result = worlds.start(library, 3, "-m", "popsr", "run", str(PROGRAMS / "mnist.py"), str(tmp_path))
    assert result.returncode == 0, result.stderr
    assert rows(tmp_path, 3).shape == (3, 5)


@pytest.mark.parametrize("library", worlds.FIRST)
@pytest.mark.parametrize(("what", "text"), ERRORS)
def test_an_error_of_one_rank_ends_all_and_is_printed_once(library: str, what: str, text: str) -> None:
    worlds.require(library)
    result = worlds.start(library, 3, "-m", "popsr", "run", str(PROGRAMS / "fails.py"), what)
    assert result.returncode != 0
    assert result.stderr.count(text) == 1, result.stderr
    assert result.stderr.count("Traceback") == 1, result.stderr


@pytest.mark.parametrize("library", worlds.LIBRARIES)
def test_an_exit_status_ends_all(library: str) -> None:
    worlds.require(library)
    result = worlds.start(library, 3, "-m", "popsr", "run", str(PROGRAMS / "fails.py"), "exit")
    assert result.returncode == 5
    assert "Traceback" not in result.stderr


def test_mpi_of_another_launcher_is_refused() -> None:
    for library in worlds.LIBRARIES:
        worlds.require(library)
    other = worlds.environment("openmpi")
    names = ("MPI4PY_LIBMPI", "OPAL_PREFIX", "PRTE_PREFIX", "PMIX_PREFIX")
    result = worlds.start(
        "mpich", 2, "-c", "import popsr; popsr.Ir('popdist')", env={name: other[name] for name in names}
    )
    text = "mpi4py's MPI is not the launcher's, got 1 rank, expected 2 (by PMI_SIZE): start the program with mpiexec"
    assert result.returncode != 0
    assert text in result.stderr
