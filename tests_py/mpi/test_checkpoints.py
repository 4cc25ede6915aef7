"""Checkpoints of several ranks are those of one process; see ``checkpoints.py``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests_py.mpi import worlds


@pytest.mark.parametrize("library", worlds.FIRST)
def test_checkpoints_of_ranks_are_those_of_one_process(library: str, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    assert worlds.check(library, 4, "tests_py.mpi.checkpoints", str(tmp_path)) == "checkpoints\n"
