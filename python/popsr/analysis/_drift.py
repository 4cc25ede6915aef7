"""Variables that drift: the groups that they are declared with do not stay equal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from popsr._program.building.location import short_place
from popsr._program.op import Op
from popsr._program.tensor import Variable
from popsr._support.host.tables import table_to_string
from popsr._support.text.entry_points import public
from popsr._support.text.html import Row, render
from popsr._support.text.one_line import one_line

if TYPE_CHECKING:
    from popsr import _core
    from popsr._program.ir import Ir
    from popsr.replicas import Partition

__all__ = [
    "DriftingVariable",
    "drift_html",
    "drift_table",
    "drift_text",
    "drifting_variable",
    "short_partition",
]

_HEAD = ("variable", "declared", "a run leaves", "cause", "last write", "suggestion")
_GROUPS = 40  # characters of a partition in a row


@public
@dataclass(frozen=True, slots=True)
class DriftingVariable:
    """A variable whose declared groups a run does not keep equal: lint L2. ``str`` is a row of the table.

    Attributes:
        variable: the variable.
        declared: replicas that start with the same value.
        partition: replicas that are proved to hold the same value after each run.
        op: the last op of a run that writes it; maybe a call.
        location: ``file:line`` of that op in the user's program.
        cause: what tells replicas of one declared group apart, in words.
        cause_location: ``file:line`` of the cause.
        suggestion: what would keep them equal.
    """

    variable: Variable
    declared: Partition
    partition: Partition
    op: Op
    location: str
    cause: str
    cause_location: str
    suggestion: str

    def __str__(self) -> str:
        return " | ".join(_cells(self))


def drifting_variable(ir: Ir, drift: _core.Drift) -> DriftingVariable:
    """Of what the core found, with its explanation."""
    variable, why = ir._tensor(drift.variable), drift.explain()
    assert isinstance(variable, Variable)
    return DriftingVariable(
        variable,
        drift.declared,
        drift.kept,
        Op(ir, drift.op),
        drift.location,
        why.root_text,
        why.root_location,
        why.suggestion,
    )


def short_partition(partition: Partition, limit: int = _GROUPS) -> str:
    """``{0,1}{2,3}``; of many replicas the first of them and the number of blocks."""
    text = str(partition)
    if len(text) <= limit:
        return text
    blocks = f" … {partition.num_blocks} block{'' if partition.num_blocks == 1 else 's'}"
    head = text[: limit - len(blocks)]
    return head[: max(head.rfind("}") + 1, head.rfind(","))] + blocks


def drift_table(drifts: Sequence[DriftingVariable]) -> str:
    """A row for each, below the names of the columns."""
    return table_to_string([_HEAD, *map(_cells, drifts)])


def drift_html(title: str, drifts: Sequence[DriftingVariable]) -> str:
    """The table as a page that stands alone."""
    rows = [
        Row(
            each.location,
            f"'{each.variable.id}' is declared {short_partition(each.declared)}: {each.cause} at "
            f"{each.cause_location or '?'}; suggestion: {each.suggestion}",
            each.partition,
        )
        for each in drifts
    ]
    return render(title, rows)


def drift_text(ir: Ir, drifts: Sequence[_core.Drift]) -> str:
    """Text of a warning about variables that are written last on one line of the program."""
    first = drifting_variable(ir, drifts[0])
    more = f" and {len(drifts) - 1} more variable{'' if len(drifts) == 2 else 's'}" if len(drifts) > 1 else ""
    return (
        f"'{one_line(first.variable.id, 60)}'{more} drift{'' if more else 's'}: "
        f"declared {short_partition(first.declared)}, "
        f"but a run leaves {short_partition(first.partition)} since {first.op.kind} here: {_cause(first, 120)}; "
        f"{_suggestion(first)}"
    )


def _cells(drift: DriftingVariable) -> tuple[str, ...]:
    return (
        drift.variable.id,
        short_partition(drift.declared),
        short_partition(drift.partition),
        _cause(drift, 100),
        short_place(drift.location),
        _suggestion(drift),
    )


def _cause(drift: DriftingVariable, limit: int) -> str:
    return f"{one_line(drift.cause, limit)} at {short_place(drift.cause_location)}"


def _suggestion(drift: DriftingVariable) -> str:
    """Without the folders of files."""
    text = drift.suggestion
    for location in (drift.location, drift.cause_location):
        folder = location.removesuffix(short_place(location))
        text = text.replace(folder, "") if len(folder) > 1 else text
    return text
