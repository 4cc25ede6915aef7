"""Rows of the table of ops for copies between places, which move bits and nothing else."""

from __future__ import annotations

from typing import Any

from tests_py.ops.rows.inputs import Case, Row, normal, special
from tests_py.support.helpers import ALL_DTYPES, Array


def _copied(t: Array, **_: Any) -> Array:
    return t


def _row(attrs: dict[str, Any]) -> Row:
    cases = (
        Case(normal((2, 3)), _copied, attrs, dtypes=ALL_DTYPES),
        Case(normal(()), _copied, attrs, "scalar", ("float32",)),
        Case(normal((0, 3)), _copied, attrs, "empty", ("float32",)),
        Case(special(1), _copied, attrs, "special"),
    )
    return Row(cases, "stops")


def place_rows() -> dict[str, Row]:
    """Rows by op."""
    return {"ipu_copy": _row({"destination": 1, "source": 0}), "io_tile_copy": _row({})}
