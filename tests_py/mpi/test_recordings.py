"""Recordings of several ranks; see ``recordings.py``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests_py.mpi import worlds


def check(library: str, size: int, folder: Path, count: int) -> None:
    assert worlds.check(library, size, "tests_py.mpi.recordings", str(folder), str(count)) == "recordings\n"


@pytest.mark.share(2)
@pytest.mark.parametrize(("size", "library"), [(3, "mpich"), (2, "openmpi")])
def test_one_file_has_the_values_of_one_process(size: int, library: str, tmp_path: Path) -> None:
    check(library, size, tmp_path, 5)


@pytest.mark.slow
@pytest.mark.parametrize("library", worlds.LIBRARIES)
@pytest.mark.parametrize("size", [2, 3])
def test_one_file_has_the_values_of_many_programs(size: int, library: str, tmp_path: Path) -> None:
    check(library, size, tmp_path, 16)
