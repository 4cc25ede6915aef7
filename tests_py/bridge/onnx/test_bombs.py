"""Whatever numbers a small model has, reading it takes little memory and processor time."""

from __future__ import annotations

from typing import Any

import pytest

from tests_py.bridge.onnx.bombs import ROWS
from tests_py.support.limits import check_row, measured_rows

pytest.importorskip("onnx")


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return measured_rows(
        "tests_py.bridge.onnx.bombs",
        "popsr.bridge.onnx, onnx, onnx.reference",
        tmp_path_factory.mktemp("bombs"),
    )


@pytest.mark.parametrize("name", ROWS)
def test_memory_and_time_are_bounded(name: str, measured: dict[str, Any]) -> None:
    check_row(ROWS[name], measured[name])
