"""Tables as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["markdown_table", "table_to_string"]


def table_to_string(rows: Sequence[Sequence[Any]], delimiter: str = " | ", header: bool = True) -> str:
    """Rows as lines whose columns are aligned.

    Args:
        rows: cells of each row; short rows are filled up with empty cells.
        delimiter: what stands between columns.
        header: underline the first row.
    Returns:
        The lines, without spaces at their ends and without a newline after the last.
    """
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
    cells = [[str(cell) for cell in row] for row in rows]
    columns = max(map(len, cells), default=0)
    return [row + [""] * (columns - len(row)) for row in cells]
