"""Starts worlds of MPI: a module of the tests on several ranks, with either library.

Both libraries are wheels that share a folder; their launchers are called by the names that they do not share.
"""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests_py import ROOT

LIBRARIES = ("mpich", "openmpi")
# Libraries for tests to which they make no difference: the nightly tests have the second.
FIRST = ("mpich", pytest.param("openmpi", marks=pytest.mark.slow))
RUNNER = ("-m", "mpi4py")  # aborts all ranks after an exception on one
_FILES = {"mpich": "libmpi.so.12", "openmpi": "libmpi.so.40"}
_LAUNCHERS = {"mpich": ["mpiexec.hydra"], "openmpi": ["prterun", "--map-by", ":OVERSUBSCRIBE"]}


def require(library: str) -> None:
    """Skip where mpi4py or the library is not installed; `nox -s tests` fails then."""
    pytest.importorskip("mpi4py", reason="mpi4py is not installed: pip install popsr[mpi]")
    try:
        importlib.metadata.distribution(library)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"{library} is not installed: pip install {library}")


def _bin() -> Path:
    return Path(sys.executable).parent


def environment(library: str) -> dict[str, str]:
    """For the launcher and the ranks; wheels do not know where they are installed."""
    prefix = str(_bin().parent)
    own = {
        "MPI4PY_LIBMPI": f"{prefix}/lib/{_FILES[library]}",
        "OMP_NUM_THREADS": "1",
        "MPIR_CVAR_POLLS_BEFORE_YIELD": "1",  # MPICH's ranks, which wait in loops, are more than the cores
        "PYTHONPATH": os.pathsep.join([str(ROOT), *(path for path in sys.path if path)]),
    }
    if library == "openmpi":
        own |= dict.fromkeys(("OPAL_PREFIX", "PRTE_PREFIX", "PMIX_PREFIX"), prefix)
        own |= {"PRTE_ALLOW_RUN_AS_ROOT": "1", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return os.environ | own


def _launcher(library: str, ranks: int) -> list[str]:
    return [str(_bin() / _LAUNCHERS[library][0]), *_LAUNCHERS[library][1:], "-n", str(ranks)]


def command(library: str, ranks: int, module: str, *args: str, runner: tuple[str, ...] = RUNNER) -> list[str]:
    """Starts a module or file on that many ranks."""
    started = [module] if module.endswith(".py") else ["-m", module]
    return [*_launcher(library, ranks), sys.executable, *runner, *started, *args]


def run(library: str, ranks: int, module: str, *args: str, **more: str) -> subprocess.CompletedProcess[str]:
    """The result of a module or file on that many ranks. An exception on one of them ends all."""
    started = [module] if module.endswith(".py") else ["-m", module]
    return start(library, ranks, *RUNNER, *started, *args, env=more)


def start(
    library: str, ranks: int, *args: str, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """The result of Python with these arguments, and more variables, on that many ranks."""
    return subprocess.run(
        [*_launcher(library, ranks), sys.executable, *args],
        env=environment(library) | dict(env or {}),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def check(library: str, ranks: int, module: str, *args: str, **more: str) -> str:
    """The output; fails with all that was written when a rank fails."""
    require(library)
    result = run(library, ranks, module, *args, **more)
    assert result.returncode == 0, f"{result.stdout[-4000:]}\n{result.stderr[-6000:]}"
    return result.stdout
