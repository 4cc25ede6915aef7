"""Lints with their explanations: causes of drift first, each with the variables that drift from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from popsr._program.building.location import short_place
from popsr._support.text.amounts import plural
from popsr._tools.report.model import Cell, Section, Table
from popsr._tools.report.source import Source
from popsr.analysis import Explanation, Lint, PartitionAnalysis
from popsr.analysis._drift import DriftingVariable
from popsr.replicas import Partition

__all__ = ["drift_causes", "lints_section"]

_ENDS = 6  # steps of a path that are shown at each of its ends
_MAX_CAUSES = 50
_MAX_LINTS = 500
_MAX_OPEN = 10


def lints_section(source: Source) -> Section:
    """Causes of L2 with their paths, then the other lints."""
    facts = source.facts
    warnings = facts.warnings
    causes = drift_causes(facts)
    sentences = [_sentence(warnings, len(causes))]
    tables = [_cause_table(source, drifts) for drifts in causes[:_MAX_CAUSES]]
    if len(causes) > _MAX_CAUSES:
        sentences.append(f"The first {_MAX_CAUSES} causes are shown.")
    others = [lint for lint in warnings if not (lint.code == "L2" and causes)]
    if len(others) > _MAX_LINTS:
        sentences.append(f"Of the other lints the first {_MAX_LINTS} are shown.")
    tables += _lint_tables([replace(each, text=source.in_words(each.text)) for each in others[:_MAX_LINTS]])
    return Section("lints", "Lints", sentences, tables)


def _lint_tables(lints: Sequence[Lint]) -> list[Table]:
    """A table for each code; closed where all together would push the rest of the page off the screen."""
    by_code: dict[str, list[Lint]] = {}
    for lint in lints:
        by_code.setdefault(lint.code, []).append(lint)
    return [
        Table(
            ("lint", "line", "op", "text", "help"),
            list(map(_lint_row, found)),
            f"{code}: {plural(len(found), 'lint')}",
            is_open=len(lints) <= _MAX_OPEN,
        )
        for code, found in by_code.items()
    ]


def _sentence(warnings: Sequence[Lint], causes: int) -> str:
    if not warnings:
        return "No lints: nothing is proved to go wrong, and every variable stays equal in its groups."
    counts: dict[str, int] = {}
    for lint in warnings:
        counts[lint.code] = counts.get(lint.code, 0) + 1
    codes = ", ".join(f"{count} × {code}" for code, count in counts.items())
    text = f"{plural(len(warnings), 'lint')}: {codes}."
    return f"{text} Drift of variables has {plural(causes, 'cause')}." if causes else text


def drift_causes(facts: PartitionAnalysis) -> list[list[DriftingVariable]]:
    """Variables that drift by their cause, the cause of most first."""
    groups: dict[tuple[str, str], list[DriftingVariable]] = {}
    for drift in facts.drifting():
        groups.setdefault((drift.cause_location, drift.cause), []).append(drift)
    return sorted(groups.values(), key=len, reverse=True)


def _cause_table(source: Source, drifts: Sequence[DriftingVariable]) -> Table:
    """The cause, the path from it to the first variable, and the variables."""
    first = drifts[0]
    place = short_place(first.cause_location)
    rows: list[tuple[Cell | str, ...]] = [
        (
            "cause",
            Cell(place, is_root=True, more=first.cause_location),
            Cell(source.in_words(first.cause), is_root=True),
            "",
        )
    ]
    pair = _pair_apart(first.declared, first.partition)
    if pair is not None:
        why = source.facts.explain(first.variable, *pair)
        rows += _path(why if source.words is None else why._in(source.words))
    helps = _short(source.in_words(first.suggestion), first.location, first.cause_location)
    rows.append(("helps", "", helps, ""))
    for drift in drifts:
        written = Cell(short_place(drift.location), more=drift.location)
        text = source.in_words(f"'{drift.variable.name}' drifts")
        text += "" if source.words else f": written last by {drift.op.kind}"
        rows.append(("drifts", written, Cell(text, op=drift.op.id), _agree(drift.partition)))
    title = f"{plural(len(drifts), 'variable')} {'drifts' if len(drifts) == 1 else 'drift'}, from {place} on"
    return Table(("", "line", "step", "replicas that agree"), rows, f"L2: {title}")


def _path(why: Explanation) -> list[tuple[Cell | str, ...]]:
    """Steps from the cause on; of long paths both ends."""
    steps = why.steps[::-1]
    rows: list[tuple[Cell | str, ...]] = []
    for i, step in enumerate(steps):
        if _ENDS <= i < len(steps) - _ENDS:
            if i == _ENDS:
                rows.append(("", "", f"… {plural(len(steps) - 2 * _ENDS, 'step')} …", ""))
            continue
        op = None if step.op is None else step.op.id
        place = Cell(short_place(step.location), more=step.location)
        rows.append(("then", place, Cell(step.text, op=op), _agree(step.partition)))
    return rows


def _lint_row(lint: Lint) -> tuple[Cell | str, ...]:
    op = Cell("") if lint.op is None else Cell(lint.op.kind, op=lint.op.id)
    place = Cell(short_place(lint.location), more=lint.location)
    return Cell(lint.code, is_root=True), place, op, _short(lint.text, lint.location), lint.help


def _short(text: str, *locations: str) -> str:
    """The text with these places without their folders."""
    for location in filter(None, locations):
        text = text.replace(location, short_place(location))
    return text


def _agree(partition: Partition) -> Cell:
    return Cell("", groups=partition)


def _pair_apart(declared: Partition, kept: Partition) -> tuple[int, int] | None:
    """The first two replicas of a declared group that a run does not keep equal."""
    labels = kept.labels
    for block in declared.blocks:
        for replica in block[1:]:
            if labels[replica] != labels[block[0]]:
                return block[0], replica
    return None
