"""Whatever small files and names say, an audit takes little memory and processor time."""

from __future__ import annotations

from typing import Any

import pytest

from tests_py.bridge.audit.bombs import ROWS
from tests_py.support.limits import check_row, measured_rows

pytest.importorskip("torch")
pytest.importorskip("yaml")


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return measured_rows(
        "tests_py.bridge.audit.bombs",
        "popsr.bridge.audit, popsr.io, torch, yaml",
        tmp_path_factory.mktemp("bombs"),
    )


@pytest.mark.parametrize("name", ROWS)
def test_memory_and_time_are_bounded(name: str, measured: dict[str, Any]) -> None:
    check_row(ROWS[name], measured[name])
