"""A section as text: sentences, and tables with aligned columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from popsr._support.text.one_line import one_line
from popsr._support.text.replica_sets import short_groups_text
from popsr._tools.report.model import Cell, Section, Table

__all__ = ["section_text"]

_MAX_ROWS = 60
_MAX_CELL = 160


def section_text(section: Section) -> str:
    """The heading, the sentences and the tables."""
    lines = [section.title, "=" * len(section.title), *section.sentences]
    for table in section.tables:
        lines += ["", *_table(table)] if section.sentences else _table(table)
    return "\n".join(lines)


def _table(table: Table) -> Iterator[str]:
    if table.title:
        yield f"{table.title}:"
    rows = [tuple(map(_cell, row)) for row in table.rows[:_MAX_ROWS]]
    shown = [tuple(table.header), *rows] if any(table.header) else rows
    if rows:
        yield from _aligned(table, shown)
    if len(table.rows) > _MAX_ROWS:
        yield f"  … {len(table.rows) - _MAX_ROWS} more"
    for inner in table.inner:
        yield from (f"  {line}" for line in _table(inner))


def _aligned(table: Table, shown: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    for row in shown:
        cells = [
            cell.rjust(width) if i in table.numbers else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield f"  {'  '.join(cells)}".rstrip()


def _cell(cell: Cell | str) -> str:
    if isinstance(cell, str):
        return one_line(cell, _MAX_CELL)
    text = cell.text
    if cell.groups is not None and not text:
        text = short_groups_text(cell.groups)
    if cell.op is not None:
        text = f"{text} op-{cell.op}"
    return one_line(text, _MAX_CELL)
