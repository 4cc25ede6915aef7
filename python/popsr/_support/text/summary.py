"""Summaries of objects: one line, a table as text, a table as HTML, and treescope's protocol.

An object's class gives a ``Summary``; the forms are made of it here, within limits that hold for any program.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from popsr._support.text.entry_points import public
from popsr._support.text.one_line import one_line
from popsr._support.text.replica_sets import strip_text
from popsr._support.text.strip import strip_svg

if TYPE_CHECKING:
    from popsr._core import Partition

__all__ = [
    "MAX_HTML",
    "MAX_LINE",
    "MAX_ROWS",
    "Groups",
    "Judged",
    "Summarised",
    "Summary",
    "line",
    "line_of_items",
]

MAX_LINE = 200  # characters of a repr
MAX_ROWS = 40  # of a table as text
MAX_HTML = 20_000  # bytes
MAX_LINES = 12  # sentences above a table
MAX_SENTENCE = 500  # characters
_MAX_CELL = 60
_STYLE = (
    ".popsr{font:13px/1.5 ui-monospace,monospace;color:inherit}"
    ".popsr table{border-collapse:collapse;margin:2px 0;font:inherit;color:inherit}"
    ".popsr table td,.popsr table th{text-align:left;padding:1px 12px 1px 0;border:0;color:inherit}"
    ".popsr table th{font-weight:600;border-bottom:1px solid rgba(128,128,128,.5)}"
    ".popsr p{margin:2px 0}"
)


def line(text: str) -> str:
    """A text as one line of at most ``MAX_LINE`` characters: of a longer one the middle is left out."""
    return one_line(text, MAX_LINE)


def line_of_items(start: str, items: Iterable[str], total: int, end: str) -> str:
    """``start``, the items and ``end`` as one line of at most ``MAX_LINE`` characters.

    Of many items the first are shown, each whole, and the number of the others; ``items`` may be lazy.
    """
    text, shown = start, 0
    for item in items:
        longer = f"{text}, {item}" if shown else f"{text}{item}"
        others = total - shown - 1
        if len(longer) + len(f", … {others} more" if others else "") + len(end) > MAX_LINE:
            break
        text, shown = longer, shown + 1
    if shown == total:
        return line(text + end)
    return line(f"{text}{', ' if shown else ''}… {total - shown} more{end}")


@public
@dataclass(frozen=True, slots=True)
class Groups:
    """A cell of replicas that agree: a strip before the text where there is HTML."""

    text: str
    partition: Partition

    def __str__(self) -> str:
        return self.text


@public
@dataclass(frozen=True)
class Summary:
    """A title, sentences, and a row for each part of the object.

    ``rows`` may be long or lazy; as much of it is read as is shown. ``total`` is the number of rows.
    ``strip`` is drawn below the title. ``sentences`` say what is wrong, and stand above the table.
    """

    title: str
    header: Sequence[str] = ()
    rows: Iterable[Sequence[object]] = ()
    total: int = 0
    strip: Partition | None = None
    sentences: Sequence[str] = ()

    def text(self) -> str:
        """Lines of a table with aligned columns; after ``MAX_ROWS`` rows the number of the others."""
        above = [self.title, *(f"  {each}" for each in self._sentences())]
        rows = self._cells(MAX_ROWS)
        if not rows:
            return "\n".join(above)
        widths = [max(map(len, column)) for column in zip(self.header, *rows, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in (tuple(self.header), *rows)]
        more = [f"… {self.total - len(rows)} more"] if self.total > len(rows) else []
        return "\n".join([*above, *(f"  {each}" for each in [*lines, *more])])

    def html(self) -> str:
        """A table that stands alone, of at most ``MAX_HTML`` bytes."""
        head = "".join(f"<th>{escape(name)}</th>" for name in self.header)
        start = f'<div class="popsr"><style>{_STYLE}</style><p><b>{escape(line(self.title))}</b></p>'
        if self.strip is not None:
            start += f"<p>{strip_svg(self.strip)} {escape(strip_text(self.strip))}</p>"
        start += "".join(f"<p>{escape(each)}</p>" for each in self._sentences())
        if not self.header:
            return f"{start}</div>"
        left = MAX_HTML - len(start.encode()) - len(head.encode()) - 200
        shown: list[str] = []
        for cells in self.rows:
            row = "<tr>" + "".join(f"<td>{_cell_html(cell)}</td>" for cell in cells) + "</tr>"
            left -= len(row.encode())
            if left < 0:
                break
            shown.append(row)
        more = f"<p>… {self.total - len(shown)} more</p>" if self.total > len(shown) else ""
        return (
            f"{start}<table><thead><tr>{head}</tr></thead><tbody>{''.join(shown)}</tbody></table>{more}</div>"
        )

    def treescope(self, value: object, path: str | None, render: Any) -> Any:
        """Rendering for ``__treescope_repr__``: a dictionary that folds, with an entry for each row."""
        from treescope import repr_lib

        fields = {f"({n})": each for n, each in enumerate(self._sentences(), 1)}
        shown = self._cells(MAX_ROWS)
        fields |= {cells[0]: " ".join(cells[1:]).strip() for cells in shown}
        if self.total > len(shown):
            fields["…"] = f"{self.total - len(shown)} more"
        return repr_lib.render_dictionary_wrapper(
            object_type=type(value),
            wrapped_dict={"": line(self.title), **fields},
            path=path,
            subtree_renderer=render,
        )

    def _sentences(self) -> list[str]:
        """The sentences that are shown, and the number of the others."""
        more = len(self.sentences) - MAX_LINES
        shown = [one_line(each, MAX_SENTENCE) for each in self.sentences[:MAX_LINES]]
        return [*shown, f"… {more} more"] if more > 0 else shown

    def _rows(self) -> Iterator[tuple[str, ...]]:
        for row in self.rows:
            yield tuple(map(_cell, row))

    def _cells(self, limit: int) -> list[tuple[str, ...]]:
        return list(itertools.islice(self._rows(), limit))


def _cell(cell: object) -> str:
    return one_line(str(cell), _MAX_CELL)


def _cell_html(cell: object) -> str:
    text = escape(_cell(cell))
    if not isinstance(cell, Groups) or cell.partition.num_replicas == 1:
        return text
    return f"{strip_svg(cell.partition, width=96)} {text}"


@public
class Summarised:
    """A class whose objects have a summary: tables for ``print`` and notebooks, treescope's protocol."""

    __slots__ = ()

    def _summary(self) -> Summary:
        raise NotImplementedError

    def __str__(self) -> str:
        return self._summary().text()

    def _repr_html_(self) -> str:
        return self._summary().html()

    def __treescope_repr__(self, path: str | None, subtree_renderer: Any) -> Any:
        return self._summary().treescope(self, path, subtree_renderer)


@public
class Judged(Summarised):
    """A summary with a verdict: ``bool`` of it is ``ok``."""

    __slots__ = ()

    @property
    def ok(self) -> bool:
        """The verdict."""
        raise NotImplementedError

    def __bool__(self) -> bool:
        return self.ok
