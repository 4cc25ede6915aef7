"""Traces of several ranks; see ``traces.py``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests_py.mpi import worlds

SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("size", "library"),
    [
        (3, "mpich"),
        (2, "openmpi"),
        pytest.param(2, "mpich", marks=SLOW),
        pytest.param(3, "openmpi", marks=SLOW),
    ],
)
def test_one_file_has_all_ranks(size: int, library: str, tmp_path: Path) -> None:
    assert worlds.check(library, size, "tests_py.mpi.traces", str(tmp_path)) == "traces\n"
