"""Time and FLOPs by kind of instruction, name scope and line of the program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from popsr._program.op import Op
from popsr._session.profile import Profile, ProfileRow
from popsr._support.text.amounts import bytes_text, count_text, plural, time_text
from popsr._tools.report.model import Cell, Section, Table
from popsr._tools.report.source import Source
from popsr._tools.show.graph_tree import scope_of

__all__ = ["costs_section"]

_MAX_ROWS = 60
_HEADER = ("time", "share", "calls", "bytes", "FLOPs", "GFLOP/s")


def costs_section(source: Source) -> Section:
    """Tables of the slowest first; without a profile, how to get one."""
    if source.profile is None:
        text = "Not measured: Session(..., profile=True) times each instruction, the bits are the same."
        return Section("time", "Time", [text])
    profile, recorded = source.profile
    sentences = [
        f"{plural(profile.runs, 'run')} took {time_text(profile.seconds)}, of which {time_text(profile.between)} lie "
        "between instructions."
    ]
    scopes: dict[str, _Sums] = {}
    for each, row in zip(recorded, profile.instructions, strict=True):
        op = next((op for op, _ in each.ops if op is not None), None)
        name = "copies" if op is None else "/".join(scope_of(Op(source.ir, op).name)) or "no scope"
        scopes[name] = scopes.get(name, _Sums()).plus(_Sums.of(row))
    tables = [
        _table("kind of instruction", profile, [(row.name, "", _Sums.of(row)) for row in profile.kinds]),
        _table("line", profile, [(row.name, row.location, _Sums.of(row)) for row in profile.lines]),
        _table("scope", profile, [(name, "", sums) for name, sums in scopes.items()]),
    ]
    return Section("time", "Time", sentences, tables)


class _Sums(NamedTuple):
    seconds: float = 0.0
    calls: int = 0
    bytes: int = 0
    flops: int = 0

    @classmethod
    def of(cls, row: ProfileRow) -> _Sums:
        return cls(row.seconds, row.executions, row.bytes, row.flops)

    def plus(self, other: _Sums) -> _Sums:
        return _Sums(
            self.seconds + other.seconds,
            self.calls + other.calls,
            self.bytes + other.bytes,
            self.flops + other.flops,
        )


def _table(by: str, profile: Profile, rows: Sequence[tuple[str, str, _Sums]]) -> Table:
    ordered = sorted(rows, key=lambda row: -row[2].seconds)
    cells = [_cells(profile, *row) for row in ordered[:_MAX_ROWS]]
    more = f", the slowest {_MAX_ROWS} of {len(ordered):,}" if len(ordered) > _MAX_ROWS else ""
    return Table((by, *_HEADER), cells, f"by {by}{more}", numbers=frozenset(range(1, 7)))


def _cells(profile: Profile, name: str, more: str, sums: _Sums) -> tuple[Cell | str, ...]:
    seconds, calls, count, flops = sums
    return (
        Cell(name, more=more),
        time_text(seconds),
        f"{seconds / profile.seconds:.1%}" if profile.seconds else "",
        f"{calls:,}",
        bytes_text(count),
        count_text(flops) if flops else "",
        f"{flops / seconds * 1e-9:.1f}" if flops and seconds else "",
    )
