"""The ops of a graph by name scope, with what the replicas agree on after each and the graphs that they run."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from popsr._program.graph import Graph
from popsr._program.ir import Ir
from popsr._program.op import Op
from popsr._program.tensor import Tensor
from popsr._support.text.html import Row
from popsr._support.text.replica_sets import agreement_text
from popsr.analysis import PartitionAnalysis, analyze
from popsr.errors import Error
from popsr.replicas import Partition

__all__ = ["Called", "Group", "Leaf", "graph_tree", "graphs_run_by", "scope_of", "scopes_of_ops"]

_MAX_SCOPES = 8  # deeper ones are one group
_MAX_CALLS = 8  # graphs inside graphs; deeper ones are named only
_MAX_TEXT = 400


@dataclass(frozen=True, slots=True)
class Called:
    """A graph that an op runs: its ops, or why they are not shown here."""

    what: str
    graph: Graph
    body: Group | str


@dataclass(frozen=True, slots=True)
class Leaf:
    """One op."""

    op: Op
    row: Row
    called: tuple[Called, ...]


@dataclass(slots=True)
class Group:
    """Ops that stand one after the other in one name scope, or a whole graph."""

    name: str
    items: list[Leaf | Group] = field(default_factory=list)

    def leaves(self) -> Iterator[Leaf]:
        """The ops in their order, with inner scopes and without called graphs."""
        for item in self.items:
            if isinstance(item, Leaf):
                yield item
            else:
                yield from item.leaves()

    def groups(self) -> Iterator[Group]:
        """This one and all inside it, called graphs too."""
        yield self
        for item in self.items:
            if isinstance(item, Group):
                yield from item.groups()
            else:
                for called in item.called:
                    if isinstance(called.body, Group):
                        yield from called.body.groups()

    def partitions(self) -> tuple[Partition, ...]:
        """The different ones of its ops, in the order in which they come up."""
        found = (leaf.row.partition for leaf in self.leaves())
        return tuple(dict.fromkeys(partition for partition in found if partition is not None))


def graph_tree(graph: Graph, notes: list[str]) -> Group:
    """The graph by scope; what is not known of it, and why, goes to ``notes``."""
    facts = _facts_of(graph.ir, notes)
    if facts is not None and not facts.contexts(graph):
        notes.append("nothing calls this graph")
    return _Builder(facts).build(graph, 0)


def graphs_run_by(op: Op) -> tuple[tuple[str, Graph], ...]:
    """The graphs that a call, repeat or conditional runs, by the names of the attributes that hold them."""
    attributes = op.attributes
    names = ("graph", "then_branch", "else_branch")
    return tuple((name, op._ir._graph(attributes[name])) for name in names if name in attributes)


def _facts_of(ir: Ir, notes: list[str]) -> PartitionAnalysis | None:
    try:
        return analyze(ir)
    except Error as error:  # a program that is wrong is shown all the same
        notes.append(str(error))
        return None


class _Builder:
    def __init__(self, facts: PartitionAnalysis | None) -> None:
        self._facts = facts
        self._seen: set[Graph] = set()

    def build(self, graph: Graph, depth: int) -> Group:
        self._seen.add(graph)
        known = self._facts is not None and bool(self._facts.contexts(graph))
        ops = graph.ops
        root = Group("")
        open_groups = [root]
        for op, scope in zip(ops, scopes_of_ops(ops), strict=True):
            path = [group.name for group in open_groups[1:]]
            same = _common(path, scope)
            del open_groups[same + 1 :]
            for name in scope[same:]:
                inner = Group(name)
                open_groups[-1].items.append(inner)
                open_groups.append(inner)
            open_groups[-1].items.append(self._leaf(op, known, depth))
        return root

    def _leaf(self, op: Op, known: bool, depth: int) -> Leaf:
        called = []
        for what, graph in graphs_run_by(op):
            body: Group | str = "shown at another call"
            if graph not in self._seen:
                body = self.build(graph, depth + 1) if depth < _MAX_CALLS else "too deep to be shown"
            called.append(Called(what, graph, body))
        return Leaf(op, self._row(op, known), tuple(called))

    def _row(self, op: Op, known: bool) -> Row:
        place = op.location.rpartition(os.sep)[2]
        text = repr(op).partition("  # ")[0]
        if len(text) > _MAX_TEXT:
            text = f"{text[:_MAX_TEXT]} …"
        outputs = op.outputs
        if self._facts is None or not known or not outputs:
            return Row(place, text, None)
        partition = self._facts.partition(outputs[0], after=op)
        for output in outputs[1:]:
            partition &= self._facts.partition(output, after=op)
        seeds = op.seed_partition
        notes = [] if seeds is None else [f"seeds {seeds}"]
        notes += [f"pending {agreement_text(each)}" for each in self._pending(outputs)]
        return Row(place, text, partition, ", ".join(notes))

    def _pending(self, outputs: Sequence[Tensor]) -> list[Partition]:
        """The sums that gradients among the outputs are parts of."""
        assert self._facts is not None
        found = (self._facts.pending(output) for output in outputs)
        return list(dict.fromkeys(each for each in found if each is not None))


def scopes_of_ops(ops: Sequence[Op]) -> list[list[str]]:
    """Name scopes of each op, outermost first: those that its first output was named in.

    An op without outputs has no name. It stands in the scopes that the ops around it have in common.
    """
    own = [scope_of(op.name) if op.outputs else None for op in ops]
    after: list[list[str]] = [[] for _ in ops]
    following: list[str] = []
    for i in range(len(ops) - 1, -1, -1):
        after[i] = following
        following = following if own[i] is None else own[i] or []
    result: list[list[str]] = []
    before: list[str] = []
    for scope, then in zip(own, after, strict=True):
        before = before[: _common(before, then)] if scope is None else scope
        result.append(before)
    return result


def _common(a: Sequence[str], b: Sequence[str]) -> int:
    """Number of scopes that they share from the outermost on."""
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))


def scope_of(name: str) -> list[str]:
    """Name scopes of a tensor's name, outermost first."""
    path = [part for part in name.split("/")[:-1] if part]
    if len(path) > _MAX_SCOPES:
        path[_MAX_SCOPES - 1 :] = ["/".join(path[_MAX_SCOPES - 1 :])]
    return path
