"""Reports of several ranks; see ``reports.py``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests_py.mpi import worlds


@pytest.mark.parametrize("library", worlds.LIBRARIES)
def test_rank_0_writes_the_report(library: str, tmp_path: Path) -> None:
    assert worlds.check(library, 2, "tests_py.mpi.reports", str(tmp_path)) == "reports\n"
