"""Proofs as one HTML file: tables, one below the other, with nothing to fetch."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

from popsr._host.arguments import read_path
from popsr.io._new_file import NewFile

__all__ = ["Section", "page_of", "write_page"]

_STYLE = (
    "body{font:14px/1.5 system-ui,sans-serif;margin:2em;color:#1b1f24;background:#fff}"
    "table{border-collapse:collapse;font:13px/1.5 ui-monospace,monospace}"
    "td,th{text-align:left;padding:1px 12px 1px 0;vertical-align:top;white-space:pre-wrap}"
    "th{border-bottom:1px solid #888}tr.yes td{background:rgba(218,54,51,.18)}h2{margin:1.2em 0 .2em}"
    "@media (prefers-color-scheme:dark){body{color:#e6edf3;background:#0d1117}}"
)


class Section(NamedTuple):
    """A heading and a table below it; rows whose last cell is "yes" stand out."""

    title: str
    header: Sequence[str]
    rows: Iterable[Sequence[object]]


def page_of(title: str, sections: Iterable[Section]) -> str:
    """The page."""
    body = "".join(map(_section, sections))
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{_STYLE}</style></head><body><h1>{escape(title)}</h1>{body}</body></html>\n"
    )


def write_page(path: str | os.PathLike[str], text: str) -> None:
    """Write a page, completely or not at all.

    Raises:
        FileError: it cannot be written.
    """
    with NewFile("save_html", read_path("save_html", path)) as new:
        new.write(text.encode())
        new.commit()


def _section(section: Section) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in section.header)
    rows = "".join(map(_row, section.rows))
    return (
        f"<h2>{escape(section.title)}</h2><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    )


def _row(row: Sequence[object]) -> str:
    mark = ' class="yes"' if row and row[-1] == "yes" else ""
    return f"<tr{mark}>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>"
