"""Memory that runs out in any C++ allocation of a call: MemoryError, no abort, and programs as they were.

The calls are in support/allocation_faults.py. They run in a process of their own, with the operators new and delete of
support/allocation_shim.cpp.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import popsr
from tests_py import ROOT

SHIM = ROOT / "tests_py/support/hostile/allocation_shim.cpp"
COMPILER = os.environ.get("CXX") or next(filter(shutil.which, ("c++", "g++", "clang++")), None)


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if sys.platform != "linux":
        pytest.skip("the operators new and delete of a process are replaced by LD_PRELOAD, which is Linux's")
    if COMPILER is None:
        pytest.skip("no C++ compiler: set CXX")
    path = tmp_path_factory.mktemp("shim") / "allocation_shim.so"
    flags = ["-std=c++20", "-O1", "-shared", "-fPIC"]
    source = str(SHIM)
    subprocess.run([*COMPILER.split(), *flags, source, "-o", str(path)], check=True)
    return path


def injections(shim: Path, *args: str) -> dict[str, int]:
    """Number of times that memory ran out, by call."""
    paths = [str(ROOT), str(Path(popsr.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [
            sys.executable,
            "-X",
            "faulthandler",
            "-m",
            "tests_py.support.hostile.allocation_faults",
            str(shim),
            *args,
        ],
        env={**os.environ, "LD_PRELOAD": str(shim), "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    counts: dict[str, int] = json.loads(done.stdout)
    return counts


def test_memory_that_runs_out_is_an_exception_and_leaves_no_trace(shim: Path) -> None:
    counts = injections(shim)
    print(f"{sum(counts.values())} allocation faults in {len(counts)} calls")
    assert min(counts.values()) > 0, counts
    assert sum(counts.values()) >= 5000, counts


@pytest.mark.slow
def test_memory_that_runs_out_in_any_allocation_is_an_exception(shim: Path) -> None:
    counts = injections(shim, "dense")
    print(f"{sum(counts.values())} allocation faults in {len(counts)} calls")
    assert sum(counts.values()) >= 10_000
