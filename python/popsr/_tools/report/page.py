"""A report: its text, its page, and the file that it is written to."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from popsr._support.host.arguments import read_path
from popsr._tools.report.costs import costs_section
from popsr._tools.report.exchanges import exchanges_section
from popsr._tools.report.graph import graph_section
from popsr._tools.report.lints import lints_section
from popsr._tools.report.memory import memory_section
from popsr._tools.report.model import Cell, Section, Table
from popsr._tools.report.source import Source
from popsr._tools.report.strips import Strips
from popsr._tools.report.summary import summary_section
from popsr._tools.report.text import section_text
from popsr._tools.report.variables import variables_section
from popsr.io._new_file import NewFile

if TYPE_CHECKING:
    from popsr._session.session import Session

__all__ = ["Report", "report_of", "session_report", "write_report"]

_HERE = Path(__file__).parent


class Report:
    """A program and its runs, as far as they are known; see ``Session.report``.

    ``str`` is the whole as text; long tables lack their end there.

    Attributes:
        title: name of the program.
        html: one page that needs nothing else: no server, no network. Its graph needs JavaScript.
    """

    def __init__(self, title: str, sections: Sequence[Section], strips: Strips) -> None:
        """Of its sections."""
        self.title, self._sections = title, tuple(sections)
        self.html = _page(title, self._sections, strips)

    def __str__(self) -> str:
        return "\n\n".join([self.title, *map(section_text, self._sections)]) + "\n"

    def __repr__(self) -> str:
        return f"Report[{self.title!r} {len(self.html.encode())} bytes]"


def report_of(source: Source, first: Sequence[Section] = ()) -> Report:
    """The report of a session, below sections that come first."""
    strips = Strips()
    graph = graph_section(source, strips)
    sections = [
        *first,
        summary_section(source, len(graph.data["ops"]["id"])),
        lints_section(source),
        variables_section(source),
        memory_section(source),
        exchanges_section(source),
        costs_section(source),
        graph,
    ]
    return Report(source.title, sections, strips)


def session_report(session: Session, path: str | os.PathLike[str] | None) -> Report:
    """See :meth:`popsr.Session.report`."""
    access = session._access
    where = None if path is None else read_path("report: path", path)
    with access.hold("report"):
        report = report_of(Source.of_session(session))
    if where is not None:
        with access.one_writer("report", where) as is_writer:
            if is_writer:
                write_report(report, where)
    return report


def write_report(report: Report, path: Path) -> None:
    """Write the text to a file that ends in ``.txt``, else the page. The file is replaced completely or not at all."""
    text = str(report) if path.suffix == ".txt" else report.html
    with NewFile("report", path) as file:
        file.write(text.encode("utf-8", "backslashreplace"))
        file.commit()


def _page(title: str, sections: Sequence[Section], strips: Strips) -> str:
    body = "".join(map(lambda each: _section(each, strips), sections))  # noqa: C417 - one expression
    links = "".join(f'<a href="#{each.name}">{escape(each.title)}</a>' for each in sections)
    data = {key: value for each in sections for key, value in each.data.items()}
    style, script = ((_HERE / f"page.{kind}").read_text() for kind in ("css", "js"))
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}: popsr report</title><style>{style}</style></head><body>"
        f'<header><h1>{escape(title)}</h1><nav>{links}</nav><button id="theme" hidden></button></header>'
        f"{strips.definitions()}<main>{body}</main>"
        f'<script type="application/json" id="data">{_json(data)}</script><script>{script}</script></body></html>\n'
    )


def _json(data: object) -> str:
    """Data inside of a script element, which nothing in it ends."""
    text = json.dumps(data, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _section(section: Section, strips: Strips) -> str:
    parts = [f"<p>{escape(each)}</p>" for each in section.sentences]
    parts.append(section.drawing)
    if section.data:
        parts.append((_HERE / "graph.html").read_text())
    parts += _tables(section.tables, strips)
    return f'<section id="{section.name}"><h2>{escape(section.title)}</h2>{"".join(parts)}</section>'


def _tables(tables: Sequence[Table], strips: Strips) -> Iterator[str]:
    for table in tables:
        html = _table(table, strips)
        if not table.title:
            yield html
        else:
            is_open = " open" if table.is_open else ""
            inner = "".join(_tables(table.inner, strips))
            yield f"<details{is_open}><summary>{escape(table.title)}</summary>{html}{inner}</details>"


def _table(table: Table, strips: Strips) -> str:
    if not table.rows:
        return ""
    names = "".join(f"<th{_number(table, i)}>{escape(name)}</th>" for i, name in enumerate(table.header))
    head = f"<thead><tr>{names}</tr></thead>" if any(table.header) else ""
    rows = "".join(
        "<tr>" + "".join(_cell(cell, _number(table, i), strips) for i, cell in enumerate(row)) + "</tr>"
        for row in table.rows
    )
    return f'<div class="wide"><table>{head}<tbody>{rows}</tbody></table></div>'


def _number(table: Table, column: int) -> str:
    return ' class="number"' if column in table.numbers else ""


def _cell(cell: Cell | str, attributes: str, strips: Strips) -> str:
    if isinstance(cell, str):
        return f"<td{attributes}>{escape(cell)}</td>"
    if cell.is_root:
        attributes = ' class="root"'
    if cell.more and cell.more != cell.text:
        attributes += f' title="{escape(cell.more)}"'
    text = escape(cell.text)
    if cell.op is not None:
        text = f'{text} <a href="#op-{cell.op}">op-{cell.op}</a>'
    strip = "" if cell.groups is None else f"{strips.use(cell.groups)} "
    return f"<td{attributes}>{strip}{text}</td>"
