"""The one HTML renderer: tables of what a program does, a row an op, coloured by which replicas agree."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from popsr.replicas import Partition

__all__ = ["Row", "describe", "render"]

_COLUMNS = ("where", "what", "replicas that agree")
_CELL = "text-align:left;padding:2px 8px;font-family:monospace"
_EQUAL, _GROUPS, _NOWHERE = "#e3f4e3", "#fff3d6", "#fbe3e3"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table; ``partition`` gives its colour."""

    location: str
    text: str
    partition: Partition | None
    note: str = ""


def describe(partition: Partition) -> str:
    """A partition in a few words: all blocks, or how many there are."""
    if partition.num_blocks == 1:
        return "all"
    if partition.num_blocks == partition.num_replicas:
        return "none"
    text = str(partition)
    return text if len(text) <= 80 else f"{partition.num_blocks} blocks"


def render(title: str, rows: Sequence[Row], notes: Iterable[str] = ()) -> str:
    """An HTML table with a caption and, below it, a paragraph for each note."""
    head = "".join(f'<th style="{_CELL}">{escape(name)}</th>' for name in _COLUMNS)
    body = "".join(map(_row, rows))
    below = "".join(f'<p style="margin:2px 8px">{escape(note)}</p>' for note in notes)
    return (
        f'<div class="popsr"><table style="border-collapse:collapse">'
        f'<caption style="text-align:left"><b>{escape(title)}</b></caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{below}</div>"
    )


def _row(row: Row) -> str:
    agree = row.note if row.partition is None else f"{describe(row.partition)} {row.note}".strip()
    cells = "".join(f'<td style="{_CELL}">{escape(cell)}</td>' for cell in (row.location, row.text, agree))
    return f'<tr style="background:{_colour(row.partition)}">{cells}</tr>'


def _colour(partition: Partition | None) -> str:
    if partition is None:
        return "transparent"
    if partition.num_blocks == 1:
        return _EQUAL
    return _NOWHERE if partition.num_blocks == partition.num_replicas else _GROUPS
