"""Whatever numbers a small model has, reading it takes little memory and processor time."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests_py.bridge.onnx.bombs import ROWS
from tests_py.support.helpers import run_python
from tests_py.support.limits import check_row

pytest.importorskip("onnx")


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Time and memory of each row, in one process that forks."""
    code = (
        "from pathlib import Path; import popsr.bridge.onnx, onnx, onnx.reference; "
        "from tests_py.support.limits import print_rows; from tests_py.bridge.onnx.bombs import ROWS; "
        f"print_rows(ROWS, Path({str(tmp_path_factory.mktemp('bombs'))!r}))"
    )
    lines = map(json.loads, run_python(code, MALLOC_MMAP_THRESHOLD_="65536").splitlines())
    return {line["name"]: line for line in lines}


@pytest.mark.parametrize("name", ROWS)
def test_memory_and_time_are_bounded(name: str, measured: dict[str, Any]) -> None:
    check_row(ROWS[name], measured[name])
