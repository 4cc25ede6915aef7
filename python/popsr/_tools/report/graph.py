"""Every op of every graph by name scope, as data for the page, and a table of the scopes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from popsr._program.building.location import short_place
from popsr._program.graph import Graph
from popsr._program.op import Op
from popsr._support.text.amounts import plural
from popsr._support.text.replica_sets import short_groups_text
from popsr._tools.report.model import Section, Table
from popsr._tools.report.source import Source
from popsr._tools.report.strips import Strips
from popsr._tools.show.graph_tree import scopes_of_ops
from popsr.replicas import Partition

__all__ = ["graph_section"]

_MAX_TEXT = 200
_MAX_SCOPES = 200  # of the table


def graph_section(source: Source, strips: Strips) -> Section:
    """Data of all ops; scopes as a table, with what their ops agree on."""
    builder = _Builder(source, strips)
    graphs = builder.build()
    ops = len(builder.ops["id"])
    sentence = f"{plural(ops, 'op')} in {plural(graphs, 'graph')}, by name scope."
    rows = builder.scope_rows()
    more = f", the first {_MAX_SCOPES} of {len(rows):,}" if len(rows) > _MAX_SCOPES else ""
    table = Table(
        ("scope", "ops", "replicas that agree"), rows[:_MAX_SCOPES], f"scopes{more}", False, frozenset({1})
    )
    return Section("graph", "Graph", [sentence], [table], data=builder.data())


class _Builder:
    """Columns of ops, and a tree of scopes: an item is an op's row, or a scope as ``-1 - its number``."""

    def __init__(self, source: Source, strips: Strips) -> None:
        self._source, self._strips = source, strips
        self.ops: dict[str, list[int] | list[str]] = {
            name: [] for name in ("id", "text", "scope", "place", "agree", "lint")
        }
        self._scopes: list[tuple[str, int, list[int]]] = []  # name, parent, items
        self._places: dict[str, int] = {}
        self._agree: dict[str, list[Any]] = {}
        self._numbers: dict[str, int] = {}
        self._called: dict[int, list[int]] = {}  # scopes of graphs by op
        self._graphs: dict[Graph, int] = {}
        self._lints: dict[int, list[str]] = {}
        for lint in source.facts.warnings:
            if lint.op is not None:
                self._lints.setdefault(lint.op.id, []).append(f"{lint.code}: {lint.text}")

    def build(self) -> int:
        """All graphs that the main graph leads to; returns their number."""
        todo = [self._source.ir.main_graph]
        self._root(todo[0])
        for graph in todo:
            for op, called in self._graph(graph):
                if called not in self._graphs:
                    self._root(called)
                    todo.append(called)
                self._called.setdefault(op.id, []).append(self._graphs[called])
        return len(todo)

    def data(self) -> dict[str, Any]:
        """For the page."""
        return {
            "ops": self.ops,
            "scopes": [list(each) for each in self._scopes],
            "places": list(self._places),
            "agree": list(self._agree.values()),
            "called": self._called,
            "lints": self._lints,
        }

    def scope_rows(self) -> list[tuple[str, str, str]]:
        """Path, number of ops and what they agree on, of each scope, calls of one name together."""
        found: dict[str, tuple[int, set[int]]] = {}
        agree = self.ops["agree"]
        for name, parent, items in self._scopes:
            path = [name]
            while parent >= 0:
                name, parent, _ = self._scopes[parent]
                path.append(name)
            own = [item for item in items if item >= 0]
            count, kinds = found.get("/".join(reversed(path)), (0, set()))
            kinds = kinds | {int(agree[item]) for item in own}
            found["/".join(reversed(path))] = count + len(own), kinds
        texts = [str(text) for text, _ in self._agree.values()]
        return [
            (path, f"{count:,}", ", ".join(dict.fromkeys(texts[i] for i in sorted(kinds) if i >= 0)))
            for path, (count, kinds) in found.items()
            if count
        ]

    def _root(self, graph: Graph) -> None:
        self._graphs[graph] = len(self._scopes)
        self._scopes.append((f"graph '{graph.name}'" if graph.name else "main graph", -1, []))

    def _graph(self, graph: Graph) -> list[tuple[Op, Graph]]:
        ops, root = graph.ops, self._graphs[graph]
        known = bool(self._source.facts.contexts(graph))
        path: list[str] = []
        numbers = [root]
        called: list[tuple[Op, Graph]] = []
        for op, scope in zip(ops, scopes_of_ops(ops), strict=True):
            same = 0
            while same < min(len(path), len(scope)) and path[same] == scope[same]:
                same += 1
            path, numbers = scope, numbers[: same + 1]
            for name in scope[same:]:
                self._scopes.append((name, numbers[-1], []))
                self._scopes[numbers[-1]][2].append(-len(self._scopes))
                numbers.append(len(self._scopes) - 1)
            self._add(op, scope, numbers[-1], known)
            called += ((op, each) for each in op.called_graphs)
        return called

    def _add(self, op: Op, path: Sequence[str], scope: int, known: bool) -> None:
        columns: Any = self.ops
        self._scopes[scope][2].append(len(columns["id"]))
        text = repr(op).partition("  # ")[0]
        if path:  # stands above already
            text = text.replace(f"%{'/'.join(path)}/", "%")
        columns["id"].append(op.id)
        columns["text"].append(text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]} …")
        columns["scope"].append(scope)
        columns["place"].append(self._places.setdefault(short_place(op.location), len(self._places)))
        columns["agree"].append(self._agreement(op) if known and op.outputs else -1)
        columns["lint"].append(int(op.id in self._lints))

    def _agreement(self, op: Op) -> int:
        facts = self._source.facts
        found = _meet([facts.partition(output, after=op) for output in op.outputs])
        key = str(found.labels) if found.num_replicas <= 64 else str(found)
        if key not in self._agree:
            self._agree[key] = [short_groups_text(found), self._strips.number(found)]
            self._numbers[key] = len(self._numbers)
        return self._numbers[key]


def _meet(partitions: Sequence[Partition]) -> Partition:
    found = partitions[0]
    for partition in partitions[1:]:
        found &= partition
    return found
