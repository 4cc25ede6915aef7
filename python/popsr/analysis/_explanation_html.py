"""Explanations as HTML: the cause first, then the path from the tensor to it, long ones without their middle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from html import escape

from popsr._program.building.location import short_place
from popsr._support.text.frames import source_line
from popsr._support.text.html import Colours, Row, page, table

__all__ = ["explanation_html"]

_ENDS = 12  # steps shown of each end, as in the text
_MOST_IN_CELLS = 100  # steps of a path that the output of a notebook's cell holds


def explanation_html(
    title: str, root: tuple[str, str] | None, suggestion: str, rows: Sequence[Row], *, whole: bool
) -> str:
    """The page; ``root`` is the place and the text of the cause.

    Unless ``whole``, the middle of a path of hundreds of steps is left out.
    """
    colours = Colours()
    rows = [replace(row, location=short_place(row.location), place=row.location) for row in rows]
    if len(rows) <= 2 * _ENDS + 1:
        body = table([replace(row, strip=True) for row in rows], colours, head=True)
    else:
        first, middle, last = rows[:_ENDS], rows[_ENDS:-_ENDS], rows[-_ENDS:]
        body = (
            table([replace(row, strip=True) for row in first], colours, head=True)
            + _middle(middle, colours, whole or len(rows) <= _MOST_IN_CELLS)
            + table([replace(row, strip=True) for row in last], colours)
        )
    cause = "" if root is None else _cause(*root, suggestion)
    return page(title, cause + body, colours)


def _cause(place: str, text: str, suggestion: str) -> str:
    source = source_line(place)
    code = f"<p><code>{escape(source)}</code></p>" if source else ""
    where = f'<span title="{escape(place)}">{escape(short_place(place))}</span>'
    return (
        f'<div class="root"><p><b>root:</b> {where}: {escape(text)}</p>{code}'
        f"<p><b>suggestion:</b> {escape(suggestion)}</p></div>"
    )


def _middle(rows: Sequence[Row], colours: Colours, shown: bool) -> str:
    """Rows without strips and whole paths, which would make most of a long page."""
    if not shown:
        return f"<p>… {len(rows)} more steps, all in explanation.to_html() and explanation.steps</p>"
    short = [replace(row, place="") for row in rows]
    return f"<details><summary>{len(rows)} more steps</summary>{table(short, colours)}</details>"
