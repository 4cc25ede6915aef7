"""The one HTML renderer: tables of what a program does, a row an op, coloured by which replicas agree.

What it makes stands alone: its style sheet is part of it, and there is no script and nothing to fetch. Colours are
translucent and text has the colour of its surroundings, for dark pages as well as light ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from popsr._support.text.replica_sets import agreement_text
from popsr._support.text.strip import strip_svg

if TYPE_CHECKING:
    from popsr._core import Partition

__all__ = ["Colours", "Row", "page", "render", "table"]

_COLUMNS = ("line", "op", "replicas that agree")
_EQUAL, _NOWHERE = "46,160,67", "128,128,128"  # differing is normal: red is for lints
_GROUPS = (
    "210,153,34",
    "56,139,253",
    "163,113,247",
    "27,170,170",
    "219,97,162",
    "125,133,40",
    "188,110,60",
    "90,110,200",
)
_OTHERS = "70,140,160"
_STYLE = (
    ".popsr{font:13px/1.5 ui-monospace,monospace;color:inherit}"
    ".popsr table{border-collapse:collapse;margin:2px 0;border:0;font:inherit;color:inherit;"
    "table-layout:fixed;width:100%}"
    ".popsr table td,.popsr table th{text-align:left;padding:1px 8px;border:0;color:inherit;"
    "vertical-align:top;white-space:normal;overflow-wrap:anywhere}"
    ".popsr table :is(td,th):first-child{width:13em}"
    ".popsr table :is(td,th):last-child{width:16em}"
    ".popsr p{margin:2px 8px}"
    ".popsr .root{margin:4px 8px;padding:2px 0;border-left:3px solid rgba(128,128,128,.7)}"
    ".popsr code{font:inherit;opacity:.75}"
    ".popsr summary{cursor:pointer;padding:1px 8px}"
    ".popsr details>div{margin-left:1.2em;padding-left:.4em;border-left:1px solid rgba(128,128,128,.4)}"
    ".popsr .key{display:inline-block;padding:0 8px;margin:2px 4px 2px 0}"
    ".popsr .mixed{outline:1px dashed rgba(128,128,128,.7);outline-offset:-1px}"
    ".popsr .picture{overflow:auto;max-height:40em}"  # wide ones are scrolled: smaller letters could not be read
    ".popsr .picture svg{display:block}"
    ".popsr .picture svg text{fill:currentColor;font:12px ui-monospace,monospace;text-anchor:middle}"
    # Without specificity: the style sheet of a later output in a notebook does not undo an earlier one's colours.
    ":where(.popsr svg .box){stroke:currentColor;stroke-opacity:.5;fill:none}"
    ".popsr svg .box.mixed{stroke-dasharray:4 3}"
    ".popsr svg .edge{stroke:currentColor;stroke-opacity:.45;fill:none}"
)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table; ``partition`` gives its colour, and with ``strip`` is drawn.

    ``place`` is the whole of a location that is shown without its folder.
    """

    location: str
    text: str
    partition: Partition | None
    note: str = ""
    place: str = ""
    strip: bool = False


class Colours:
    """A class of the style sheet for each partition, and the key to them."""

    def __init__(self) -> None:
        """Of a page that has none yet."""
        self._classes: dict[Partition, str] = {}

    def of(self, partition: Partition | None) -> str:
        """The class; groups have a colour of their own in the order in which they come up, as far as these go."""
        if partition is None:
            return "plain"
        found = self._classes.get(partition)
        if found is None:
            found = self._classes[partition] = self._new(partition)
        return found

    def of_all(self, partitions: Sequence[Partition]) -> str:
        """The class of what several ops do, which have these partitions."""
        return "mixed" if len(partitions) > 1 else self.of(partitions[0] if partitions else None)

    def _new(self, partition: Partition) -> str:
        if partition.num_blocks == 1:
            return "equal"
        if partition.num_blocks == partition.num_replicas:
            return "nowhere"
        number = sum(name.startswith("group") for name in self._classes.values())
        return f"group{number}" if number < len(_GROUPS) else "groups"

    def style(self) -> str:
        """The rules of the classes in use."""
        colours = {"equal": _EQUAL, "nowhere": _NOWHERE, "groups": _OTHERS}
        colours |= {f"group{i}": colour for i, colour in enumerate(_GROUPS)}
        return "".join(
            f".popsr .{name}:not(tr,g),.popsr tr.{name}>td{{background:rgba({colours[name]},.22)}}"
            f".popsr svg .{name}{{fill:rgba({colours[name]},.3)}}"
            for name in dict.fromkeys(self._classes.values())
        )

    def legend(self) -> str:
        """The partitions in use, each in its colour."""
        keys = "".join(
            f'<span class="key {name}">{_strip(partition)}{escape(agreement_text(partition))}</span>'
            for partition, name in self._classes.items()
        )
        return f'<p class="legend">replicas that agree: {keys}</p>' if keys else ""


def _strip(partition: Partition) -> str:
    """A small one and a space; a single replica has nothing to draw."""
    return f"{strip_svg(partition, width=96)} " if partition.num_replicas > 1 else ""


def render(title: str, rows: Sequence[Row], notes: Iterable[str] = ()) -> str:
    """A page of one table: a caption, the rows and, below it, a paragraph for each note."""
    colours = Colours()
    return page(title, table(rows, colours, head=True), colours, notes)


def page(title: str, body: str, colours: Colours, notes: Iterable[str] = ()) -> str:
    """The title, the key to the colours, ``body`` (HTML) and a paragraph for each note."""
    below = "".join(f"<p>{escape(note)}</p>" for note in notes)
    return (
        f'<div class="popsr"><style>{_STYLE}{colours.style()}</style>'
        f"<p><b>{escape(title)}</b></p>{colours.legend()}{body}{below}</div>"
    )


def table(rows: Sequence[Row], colours: Colours, *, head: bool = False) -> str:
    """The rows, with the names of the columns above them if asked for."""
    names = "".join(f"<th>{escape(name)}</th>" for name in _COLUMNS)
    above = f"<thead><tr>{names}</tr></thead>" if head and rows else ""
    body = "".join(_row(row, colours) for row in rows)
    return f"<table>{above}<tbody>{body}</tbody></table>"


def _row(row: Row, colours: Colours) -> str:
    agree = row.note if row.partition is None else f"{agreement_text(row.partition)} {row.note}".strip()
    drawn = _strip(row.partition) if row.strip and row.partition is not None else ""
    place = f' title="{escape(row.place)}"' if row.place else ""
    return (
        f'<tr class="{colours.of(row.partition)}"><td{place}>{escape(row.location)}</td>'
        f"<td>{escape(row.text)}</td><td>{drawn}{escape(agree)}</td></tr>"
    )
