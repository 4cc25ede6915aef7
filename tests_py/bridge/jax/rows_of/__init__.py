"""A row or several for each rule: a small function that has the primitive in its jaxpr, and what to call it with."""

from __future__ import annotations

from tests_py.bridge.jax.rows_of import arrays, programs, values
from tests_py.bridge.jax.rows_of.row import Row

__all__ = ["ROWS", "Row"]


def ROWS() -> list[Row]:  # noqa: N802 - a table that needs jax
    """All rows."""
    from tests_py.bridge.jax.bit_rows import bit_rows

    parts = (
        values.elementwise,
        values.bits,
        bit_rows,
        arrays.shape,
        arrays.reductions,
        arrays.linear,
        arrays.indexing,
        programs.collectives,
        programs.control,
        programs.random,
    )
    return [row for part in parts for row in part()]
