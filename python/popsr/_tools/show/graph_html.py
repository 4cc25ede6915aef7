"""A graph as HTML: its ops by name scope, folded up, and a picture of what flows between them."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from popsr._program.graph import Graph
from popsr._support.text.html import Colours, Row, page, table
from popsr._support.text.replica_sets import agreements_text
from popsr._support.text.summary import MAX_HTML
from popsr._tools.show.graph_picture import graph_picture
from popsr._tools.show.graph_tree import Called, Group, Leaf, graph_tree
from popsr._tools.show.summaries import html_of

__all__ = ["graph_html", "graph_repr_html"]

_MAX_ROWS = 2000  # of all scopes together
_ROWS_OF_A_SCOPE = range(200, 0, -5)  # the first that keeps to it
_MAX_GROUPS = 1000
_MAX_TITLE = 200


def graph_html(graph: Graph) -> str:
    """The ops by name scope, coloured by which replicas agree; with a picture where fast-sugiyama is installed.

    A row an op, with what the replicas agree on after it; name scopes and called graphs open on a click.

    Of long scopes the first ops are shown, of a graph that is called several times its first call.
    """
    notes: list[str] = []
    tree = graph_tree(graph, notes)
    colours = Colours()
    picture = graph_picture(graph, tree, colours, notes)
    body = _Body(tree, colours).html()
    return page(_title(graph), picture + body, colours, notes)


def graph_repr_html(graph: Graph) -> str:
    """``graph_html``, or the first ops as a table where that is too long for the output of a cell."""
    html = graph_html(graph)
    return html if len(html.encode()) <= MAX_HTML else html_of(graph)


def _title(graph: Graph) -> str:
    inputs = ", ".join(t.name for t in graph.inputs)
    if len(inputs) > _MAX_TITLE:
        inputs = f"{inputs[:_MAX_TITLE]} …"
    name = f"graph '{graph.name}'({inputs})" if graph.name else "main graph"
    return f"{name} of {_count(len(graph.ops), 'op')}"


class _Body:
    """The tree as HTML, within the limits."""

    def __init__(self, tree: Group, colours: Colours) -> None:
        self._tree, self._colours = tree, colours
        sizes = [sum(isinstance(item, Leaf) for item in group.items) for group in tree.groups()]
        fitting = (n for n in _ROWS_OF_A_SCOPE if sum(min(size, n) for size in sizes) <= _MAX_ROWS)
        self._rows = next(fitting, _ROWS_OF_A_SCOPE[-1])
        self._groups_left = _MAX_GROUPS

    def html(self) -> str:
        return "".join(self._parts(self._tree, head=True))

    def _parts(self, group: Group, *, head: bool = False) -> Iterator[str]:
        """Tables of ops that follow each other, and what folds up between them."""
        rows: list[Row] = []
        shown = left_out = 0
        for item in group.items:
            if isinstance(item, Leaf) and shown == self._rows:
                left_out += 1
            elif isinstance(item, Leaf):
                rows.append(item.row)
                shown += 1
                if item.called:
                    yield self._table(rows, head)
                    rows, head = [], False
                    yield from map(self._called, item.called)
            elif self._groups_left == 0:
                left_out += sum(1 for _ in item.leaves())
            else:
                yield self._table(rows, head)
                rows, head = [], False
                yield self._group(item)
        yield self._table(rows, head)
        if left_out:
            yield f"<p>{_count(left_out, 'op')} more</p>"

    def _table(self, rows: list[Row], head: bool) -> str:
        return table(rows, self._colours, head=head) if rows else ""

    def _group(self, group: Group) -> str:
        return self._folded(f"{group.name}/", group)

    def _called(self, called: Called) -> str:
        name = f"↳ {called.what} '{called.graph.name}'"
        body = called.body if self._groups_left else "left out"
        if isinstance(body, Group):
            return self._folded(name, body)
        size = _count(len(called.graph.ops), "op")
        return f"<p>{escape(f'{name} of {size}: {body}')}</p>"

    def _folded(self, name: str, group: Group) -> str:
        self._groups_left -= 1
        partitions = group.partitions()
        text = _count(sum(1 for _ in group.leaves()), "op")
        if partitions:
            text += f", replicas that agree: {agreements_text(partitions)}"
        head = f"<b>{escape(name)}</b> {escape(text)}"
        return (
            f'<details><summary class="{self._colours.of_all(partitions)}">{head}</summary>'
            f"<div>{''.join(self._parts(group))}</div></details>"
        )


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"
