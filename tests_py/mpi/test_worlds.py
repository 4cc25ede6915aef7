"""Programs on several ranks of MPI give the bits of one process; ranks that differ are refused, all alike."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests_py import ROOT
from tests_py.mpi import worlds
from tests_py.support.helpers import run_python

# Library, ranks, each so many-th golden program, random programs. Three ranks send small messages, and three and four
# reduce all values in chains.
SHORT = [
    ("mpich", 2, 2, 0, 24),
    ("mpich", 3, 19, 91, 96),
    ("mpich", 4, 0, 140, 144),
    ("openmpi", 2, 13, 171, 178),
]
MANY = [
    *(
        (library, ranks, int(first == 250), first, first + 200)
        for library in worlds.LIBRARIES
        for ranks in (1, 2, 3, 4)
        for first in range(50, 2850, 200)
        if ranks > 1 or library == "mpich"
    ),
    ("mpich", 8, 48, 250, 254),
]


def check(library: str, ranks: int, golden: int, first: int, last: int) -> None:
    numbers = (golden, first, last)
    out = worlds.check(library, ranks, "tests_py.mpi.same_bits", *map(str, numbers))
    assert out.splitlines()[-1].startswith("the same bits"), out


@pytest.mark.share(2)
@pytest.mark.parametrize(("library", "ranks", "golden", "first", "last"), SHORT)
def test_ranks_give_the_bits_of_one_process(
    library: str, ranks: int, golden: int, first: int, last: int
) -> None:
    check(library, ranks, golden, first, last)


def test_wrong_messages_are_found() -> None:
    worlds.require("mpich")
    result = worlds.run("mpich", 2, "tests_py.mpi.same_bits", "5", "0", "0", "wrongly")
    assert result.returncode != 0
    assert "differs" in result.stdout or "RankError" in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("library", "ranks", "golden", "first", "last"), MANY)
def test_many_programs_give_the_bits_of_one_process(
    library: str, ranks: int, golden: int, first: int, last: int
) -> None:
    check(library, ranks, golden, first, last)


@pytest.mark.parametrize("library", worlds.FIRST)
def test_ranks_that_differ_are_refused(library: str) -> None:
    assert worlds.check(library, 3, "tests_py.mpi.refusals").endswith(" rows\n")


@pytest.mark.parametrize("library", worlds.LIBRARIES)
def test_each_rank_has_its_share(library: str, tmp_path: Path) -> None:
    assert worlds.check(library, 3, "tests_py.mpi.shares", str(tmp_path)) == "shares\n"


@pytest.mark.parametrize("library", worlds.FIRST)
def test_mpi_without_threads_is_refused(library: str) -> None:
    out = worlds.check(library, 2, "tests_py.mpi.single_threaded", MPI4PY_RC_THREAD_LEVEL="single")
    assert out.count("StateError: got MPI.THREAD_SINGLE") == 2


EXAMPLES = {
    "mpi_training.py": ["training loss", "test accuracy", "digest of the weights"],
    "mpi_transformer.py": ["loss", "digest of the weights"],
}


@pytest.mark.parametrize(("library", "example"), list(zip(worlds.LIBRARIES, EXAMPLES, strict=True)))
def test_examples_print_the_same_on_one_and_on_three_ranks(library: str, example: str) -> None:
    if example == "mpi_training.py":
        pytest.importorskip("sklearn")
    outputs = {worlds.check(library, ranks, str(ROOT / "examples" / example)) for ranks in (1, 3)}
    assert len(outputs) == 1
    assert [line.split(":")[0] for line in outputs.pop().splitlines()] == EXAMPLES[example]


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES)
@pytest.mark.parametrize("library", worlds.LIBRARIES)
def test_examples_print_the_same_on_any_number_of_ranks(library: str, example: str) -> None:
    outputs = {worlds.check(library, ranks, str(ROOT / "examples" / example)) for ranks in range(1, 9)}
    assert len(outputs) == 1


def test_popsr_does_not_import_mpi4py() -> None:
    program = """
import sys
import popsr
from popsr import ops
ir = popsr.Ir(replication=2)
with ir.main_graph:
    ops.relu(popsr.variable(0.0))
try:
    popsr.Session(ir, comm=3)
except popsr.errors.ArgumentTypeError as error:
    print(error)
with popsr.Session(ir) as session:
    session.run()
    print(session.local_replicas, "mpi4py" in sys.modules)
"""
    refused = "Session: comm is not a communicator, got 3, expected one of mpi4py, as MPI.COMM_WORLD"
    assert run_python(program) == f"{refused}\nrange(0, 2) False\n"


def test_the_environment_names_a_communicator() -> None:
    program = """
import popsr
from popsr import ops
ir = popsr.Ir(replication=2)
with ir.main_graph:
    ops.relu(popsr.variable(0.0))
try:
    with popsr.Session(ir) as session:
        print(session.local_replicas)
except popsr.Error as error:
    print(error)
"""
    refused = "Session: POPSR_COMM is unknown, got 'everything', expected 'world'"
    assert run_python(program, POPSR_COMM="everything") == f"{refused}\n"
    assert run_python(program, POPSR_COMM="") == "range(0, 2)\n"
    pytest.importorskip("mpi4py")
    assert run_python(program, POPSR_COMM="world") == "range(0, 2)\n"


@pytest.mark.parametrize("library", worlds.FIRST)
def test_calls_in_a_forked_child_are_refused_and_the_ranks_go_on(library: str) -> None:
    out = worlds.check(library, 3, "tests_py.mpi.forked")
    # Launchers may join the lines of ranks.
    assert sorted(re.findall(r"rank \d went on", out)) == [f"rank {rank} went on" for rank in range(3)], out
    assert not re.sub(r"rank \d went on", "", out).strip(), out
