"""Recordings of several ranks; see ``recordings.py``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests_py.mpi import worlds


@pytest.mark.parametrize(
    ("size", "library"),
    [
        (3, "mpich"),
        (2, "openmpi"),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in ((2, "mpich"), (3, "openmpi"))),
    ],
)
def test_one_file_has_the_values_of_one_process(size: int, library: str, tmp_path: Path) -> None:
    assert worlds.check(library, size, "tests_py.mpi.recordings", str(tmp_path)) == "recordings\n"
