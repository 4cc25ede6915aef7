"""A report as data: sections of sentences, tables and drawings, of which page and text are made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from popsr.replicas import Partition

__all__ = ["Cell", "Section", "Table"]


@dataclass(frozen=True)
class Cell:
    """A text of a table.

    Attributes:
        text: the text.
        op: id of an op that it leads to.
        groups: replicas that are drawn as a strip before the text.
        is_root: the cause of a lint: red.
        more: a longer text, of which ``text`` is the short form.
    """

    text: str
    op: int | None = None
    groups: Partition | None = None
    is_root: bool = False
    more: str = ""


@dataclass(frozen=True)
class Table:
    """Rows below a header.

    Attributes:
        header: names of the columns.
        rows: cells of each row: texts, or a ``Cell``.
        title: stands above it; a table with a title that is not ``is_open`` opens on a click.
        is_open: shown at first.
        numbers: columns that are aligned to the right.
        inner: tables below the same title.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[Cell | str]]
    title: str = ""
    is_open: bool = True
    numbers: frozenset[int] = frozenset()
    inner: Sequence[Table] = ()


@dataclass(frozen=True)
class Section:
    """A part of the report with a heading; ``drawing`` is HTML whose content its sentences and tables tell too."""

    name: str
    title: str
    sentences: Sequence[str] = ()
    tables: Sequence[Table] = ()
    drawing: str = ""
    data: dict[str, Any] = field(default_factory=dict)
