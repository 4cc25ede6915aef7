"""The first section: the program, the session, and a sentence of each other section that matters."""

from __future__ import annotations

from popsr._program.building.location import short_place
from popsr._support.text.amounts import bytes_text, plural, time_text
from popsr._tools.report.lints import drift_causes
from popsr._tools.report.model import Cell, Section, Table
from popsr._tools.report.source import Source
from popsr._tools.report.variables import saved_bytes

__all__ = ["summary_section"]


def summary_section(source: Source, ops: int) -> Section:
    """A row for each thing that is worth knowing first."""
    ir, facts = source.ir, source.facts
    variables = len(ir.main_graph.variables)
    lints = len(facts.warnings)
    total = sum(source.memory[kind] for kind in ("variables", "constants", "activations"))
    saved = saved_bytes(source)
    rows: list[tuple[Cell | str, ...]] = [
        ("replicas", _replicas(source)),
        ("program", f"{plural(ops, 'op')}, {plural(variables, 'variable')}"),
        ("lints", Cell(plural(lints, "lint"), is_root=True) if lints else "none"),
        ("drift", *_drift(source)),
        (
            "memory",
            f"{bytes_text(total)} at the peak" + (f"; sharing saved {bytes_text(saved)}" if saved else ""),
        ),
        ("exchanges", f"{sum(each.executions for each in source.communication):,} in a run"),
        ("runs", f"{source.runs:,}" if source.runs else "none: all of this is known before a run"),
    ]
    if source.profile is not None and source.profile[0].runs:
        profile = source.profile[0]
        rows.append(("time", f"{time_text(profile.seconds / profile.runs)} a run"))
    rows.append(("session", ", ".join(source.settings) or "default settings"))
    return Section("summary", "Summary", tables=[Table(("", ""), rows)])


def _drift(source: Source) -> tuple[Cell | str, ...]:
    """The number of variables that drift, and the cause of most."""
    causes = drift_causes(source.facts)
    if not causes:
        return ("none: every variable stays equal in its groups",)
    count, first = sum(map(len, causes)), causes[0][0]
    variables = plural(len(source.ir.main_graph.variables), "variable")
    text = f"{count:,} of {variables} {'drifts' if count == 1 else 'drift'}"
    most = "" if len(causes) == 1 else f", {len(causes[0])} of them"
    cause = f"{text}{most} since {short_place(first.cause_location)}: {source.in_words(first.cause)}"
    return (Cell(cause, is_root=True),)


def _replicas(source: Source) -> str:
    text = f"{source.ir.replication_factor:,}"
    if source.rank is None:
        return text
    rank, ranks = source.rank
    own = source.replicas
    return f"{text} on {ranks} ranks; this is rank {rank} with replicas {own.start} to {own.stop - 1}"
