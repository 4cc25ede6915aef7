"""Recordings of several ranks; see ``recordings.py``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests_py.mpi import worlds


@pytest.mark.parametrize("library", worlds.LIBRARIES)
@pytest.mark.parametrize("size", [2, 3])
def test_one_file_has_the_values_of_one_process(size: int, library: str, tmp_path: Path) -> None:
    assert worlds.check(library, size, "tests_py.mpi.recordings", str(tmp_path)) == "recordings\n"
