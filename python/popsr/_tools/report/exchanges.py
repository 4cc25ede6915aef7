"""Collectives: kind, groups, bytes and count, known before a run."""

from __future__ import annotations

from popsr._program.building.location import short_place
from popsr._support.text.amounts import bytes_text, plural
from popsr._support.text.replica_sets import short_groups_text
from popsr._tools.report.model import Cell, Section, Table
from popsr._tools.report.source import Source
from popsr.analysis import Exchange

__all__ = ["exchanges_section"]

_MAX_ROWS = 1000


def exchanges_section(source: Source) -> Section:
    """A row for exchanges of one line, kind, group and size, and what this rank moved."""
    found, replicas = source.communication, source.ir.replication_factor
    lines = found.lines()
    count = sum(each.executions for each in found)
    text = "No values move between replicas."
    if lines:
        kinds, between = plural(len(lines), "kind"), plural(replicas, "replica")
        text = (
            f"In one run {plural(count, 'exchange')} of {kinds} between {between}; bytes are those that a replica "
            "would send and receive if each were a process of its own, from the plan alone."
        )
    tables = []
    if lines:
        header = ("op", "group", "value", "by", "times", "sent", "received", "messages", "line")
        rows = [_row(line) for line in lines[:_MAX_ROWS]]
        tables.append(Table(header, rows, numbers=frozenset({2, 4, 5, 6, 7})))
    if source.rank is not None:
        tables.append(_moved(source))
    return Section("collectives", "Collectives", [text], tables)


def _row(line: list[Exchange]) -> tuple[Cell | str, ...]:
    first = line[0]
    times = sum(each.executions for each in line)
    sent, messages, received = (sum(each.executions * each.most[i] for each in line) for i in (0, 1, 2))
    bound = "≤ " if any(each.is_bound for each in line) else ""
    groups = None if first.group is None else first.group.partition
    return (
        Cell(first.op.kind, op=first.op.id),
        Cell("by rows or conditions" if groups is None else short_groups_text(groups), groups=groups),
        bytes_text(first.value_bytes),
        first.algorithm,
        f"{bound}{times:,}",
        bytes_text(sent),
        bytes_text(received),
        f"{messages:,}",
        Cell(short_place(first.location), more=first.location),
    )


def _moved(source: Source) -> Table:
    assert source.rank is not None
    rows = [
        (
            Cell(op.kind, op=op.id),
            bytes_text(t.sent_bytes),
            bytes_text(t.received_bytes),
            f"{t.sent_messages:,}",
        )
        for op, t in list(source.traffic.items())[:_MAX_ROWS]
    ]
    title = f"moved by rank {source.rank[0]} of {source.rank[1]} so far"
    return Table(("op", "sent", "received", "messages"), rows, title, numbers=frozenset({1, 2, 3}))
