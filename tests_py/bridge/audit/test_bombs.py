"""Whatever small files and names say, an audit takes little memory and processor time."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests_py.bridge.audit.bombs import ROWS
from tests_py.support.helpers import run_python
from tests_py.support.limits import check_row

pytest.importorskip("torch")
pytest.importorskip("yaml")


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Time and memory of each row, in one process that forks: the import of torch takes longer than all of them."""
    code = (
        "from pathlib import Path; import popsr.bridge.audit, popsr.io, torch, yaml; "
        "from tests_py.support.limits import print_rows; from tests_py.bridge.audit.bombs import ROWS; "
        f"print_rows(ROWS, Path({str(tmp_path_factory.mktemp('bombs'))!r}))"
    )
    lines = map(json.loads, run_python(code, MALLOC_MMAP_THRESHOLD_="65536").splitlines())
    return {line["name"]: line for line in lines}


@pytest.mark.parametrize("name", ROWS)
def test_memory_and_time_are_bounded(name: str, measured: dict[str, Any]) -> None:
    check_row(ROWS[name], measured[name])
