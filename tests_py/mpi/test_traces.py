"""Traces of several ranks; see ``traces.py``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests_py.mpi import worlds


@pytest.mark.parametrize("library", worlds.LIBRARIES)
@pytest.mark.parametrize("size", [2, 3])
def test_one_file_has_all_ranks(size: int, library: str, tmp_path: Path) -> None:
    assert worlds.check(library, size, "tests_py.mpi.traces", str(tmp_path)) == "traces\n"
