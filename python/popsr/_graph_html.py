"""A graph as an HTML table."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from popsr._html import Row, render
from popsr.errors import GraphError

if TYPE_CHECKING:
    from popsr.analysis import PartitionAnalysis
    from popsr.graph import Graph
    from popsr.op import Op

__all__ = ["graph_html"]

_MAX_ROWS = 200


def graph_html(graph: Graph) -> str:
    """A row an op, with what the replicas agree on after it; the first ones of long graphs."""
    from popsr.analysis import analyze

    ops, notes = graph.ops, []
    facts: PartitionAnalysis | None = None
    try:
        facts = analyze(graph.ir)
    except GraphError as error:
        notes.append(str(error))
    if facts is not None and not facts.contexts(graph):
        facts = None
        notes.append("nothing calls this graph")
    if len(ops) > _MAX_ROWS:
        notes.append(f"{len(ops) - _MAX_ROWS} ops more")
    rows = [_row(facts, op) for op in ops[:_MAX_ROWS]]
    inputs = ", ".join(t.name for t in graph.inputs)
    return render(f"graph '{graph.name}'({inputs}) of {len(ops)} ops", rows, notes)


def _row(facts: PartitionAnalysis | None, op: Op) -> Row:
    directory, _, place = op.location.rpartition(os.sep)
    del directory
    text = repr(op).partition("  # ")[0]
    if facts is None or not op.outputs:
        return Row(place, text, None)
    partition = facts.partition(op.outputs[0], after=op)
    for output in op.outputs[1:]:
        partition &= facts.partition(output, after=op)
    seeds = op.seed_partition
    return Row(place, text, partition, "" if seeds is None else f"seeds {seeds}")
