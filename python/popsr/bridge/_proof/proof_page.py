"""Proofs as one HTML file: tables, one below the other, with nothing to fetch."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple
from urllib.parse import quote

from popsr._support.host.arguments import read_path
from popsr.io._new_file import NewFile

__all__ = ["Link", "Section", "page_of", "write_page"]

_STYLE = (
    ":root{color-scheme:light dark}"
    "body{font:14px/1.5 system-ui,sans-serif;margin:2em;color:#1b1f24;background:#fff}"
    "h1{font-size:1.5em;line-height:1.3}h2{font-size:1.15em;margin:1.6em 0 .3em}div{overflow-x:auto}"
    "table{border-collapse:collapse;font:13px/1.5 ui-monospace,monospace}"
    "td,th{text-align:left;padding:1px 12px 1px 0;vertical-align:top;white-space:pre}"
    "td.long{white-space:pre-wrap;overflow-wrap:anywhere;min-width:18em}"
    "th{border-bottom:1px solid #888}tr.yes td{background:rgba(218,54,51,.18)}"
    "@media (prefers-color-scheme:dark){body{color:#e6edf3;background:#0d1117}}"
    "@media (max-width:600px){body{margin:1em}}"
)
_LONG = 60
"""Characters of a cell from which it has several lines."""


_STANDING_OUT = ("yes", "undeclared", "differs", "unknown", "suspicious", "not ok", "not read")


class Section(NamedTuple):
    """A heading and a table below it; rows whose last cell says what is wrong stand out."""

    title: str
    header: Sequence[str]
    rows: Iterable[Sequence[object]]


class Link(NamedTuple):
    """A cell that leads to another file."""

    text: str
    file: str


def page_of(title: str, sections: Iterable[Section]) -> str:
    """The page."""
    body = "".join(map(_section, sections))
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width,initial-scale=1"><title>{escape(title)}</title>'
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
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return f"<h2>{escape(section.title)}</h2><div>{table}</div>"


def _row(row: Sequence[object]) -> str:
    mark = ' class="yes"' if row and row[-1] in _STANDING_OUT else ""
    return f"<tr{mark}>{''.join(map(_cell, row))}</tr>"


def _cell(cell: object) -> str:
    if isinstance(cell, Link):
        return f'<td><a href="{escape(quote(cell.file))}">{escape(cell.text)}</a></td>'
    text = str(cell)
    kind = ' class="long"' if len(text) > _LONG else ""
    return f"<td{kind}>{escape(text)}</td>"
