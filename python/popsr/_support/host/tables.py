"""Tables as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from popsr._support.host.arguments import read_flag, read_items, read_text
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown

__all__ = ["markdown_table", "table_to_string"]


@public
def table_to_string(rows: Sequence[Sequence[Any]], delimiter: str = " | ", header: bool = True) -> str:
    """Rows as lines whose columns are aligned.

    Args:
        rows: cells of each row; short rows are filled up with empty cells.
        delimiter: what stands between columns.
        header: underline the first row.
    Returns:
        The lines, without spaces at their ends and without a newline after the last.
    """
    delimiter = read_text("table_to_string: delimiter", delimiter)
    header = read_flag("table_to_string: header", header)
    cells = _cells(rows)
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [delimiter.join(map(str.ljust, row, widths)).rstrip() for row in cells]
    if header and lines:
        lines.insert(1, "-" * (sum(widths) + len(delimiter) * (len(widths) - 1)))
    return "\n".join(lines)


def markdown_table(rows: Sequence[Sequence[Any]]) -> str:
    """Rows, the first of which is the header, as a table of Markdown."""
    head, *others = _cells(rows)
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *others))


def _cells(rows: Sequence[Sequence[Any]]) -> list[list[str]]:
    where = "table_to_string"
    cells = [
        [_text(cell) for cell in read_items(where, "a row", row, kind="cells")]
        for row in read_items(where, "rows", rows, kind="rows")
    ]
    columns = max(map(len, cells), default=0)
    return [row + [""] * (columns - len(row)) for row in cells]


def _text(cell: object) -> str:
    try:
        return str(cell)
    except Exception:  # of its own __str__
        return shown(cell)
