"""Findings of an audit, and the report that prints them."""

from __future__ import annotations

from dataclasses import dataclass, field

from popsr._support.text.differences import difference_text
from popsr._support.text.entry_points import public
from popsr._support.text.one_line import one_line
from popsr._support.text.summary import Judged, Summary, line

__all__ = ["AuditReport", "Drift"]


@public
@dataclass(frozen=True, slots=True)
class Drift:
    """One parameter at one step, whose ranks of a declared group do not hold equal bits.

    Attributes:
        step: of the job; None where the files have none.
        name: of the parameter.
        declared: ranks that should be equal, in set notation, as ``{0,1}{2,3}``.
        found: ranks that are, likewise.
        ranks: two of a group that differ.
        element: index of the first element in which they differ; None where only hashes are known, or a shape differs.
        values: both, as ``0x3f800000 (1.0)``; of hashes the hashes.
    """

    step: int | None
    name: str
    declared: str
    found: str
    ranks: tuple[int, int]
    element: tuple[int, ...] | None
    values: tuple[str, str]

    def __str__(self) -> str:
        step = "" if self.step is None else f"step {self.step}: "
        differ = difference_text(self.ranks, self.element, self.values)
        return one_line(
            f"{step}'{self.name}' is declared equal on {self.declared} and is on {self.found}: {differ}", 400
        )


@public
@dataclass(frozen=True, repr=False)
class AuditReport(Judged):
    """Findings of an audit; ``print`` shows the first drift, then a table.

    It is true where it is ``ok``.

    Attributes:
        steps: that were compared, in order; ``(None,)`` for files without a step.
        ranks: number of ranks.
        parameters: number of names that were compared.
        nbytes: bytes of tensors that were read.
        drifts: of each parameter the first step at which it differs, in the order of steps.
        notes: ranks without a file, steps that some ranks lack, parameters that some lack, and names without groups.
    """

    steps: tuple[int | None, ...]
    ranks: int
    parameters: int
    nbytes: int
    drifts: tuple[Drift, ...]
    notes: tuple[str, ...] = field(default=())

    @property
    def ok(self) -> bool:
        """True if nothing differs that should not, and nothing was missing."""
        return not self.drifts and not self.notes

    @property
    def first(self) -> Drift | None:
        """The first drift."""
        return self.drifts[0] if self.drifts else None

    def __repr__(self) -> str:
        return line(f"AuditReport[{self._verdict()}]")

    def _verdict(self) -> str:
        count = len(self.drifts)
        found = f"{count} parameter{' drifts' if count == 1 else 's drift'}" if count else "no drift"
        return (
            f"{found}: {self.parameters} parameters of {self.ranks} ranks at {len(self.steps)} "
            f"step{'' if len(self.steps) == 1 else 's'}{f', {len(self.notes)} notes' if self.notes else ''}"
        )

    def _summary(self) -> Summary:
        rows = ((*_places(each), *each.values) for each in self.drifts)
        header = ("step", "parameter", "declared", "equal", "ranks", "element", "first", "other")
        first = [] if self.first is None else [f"first: {self.first}"]
        above = (*first, *(f"note: {each}" for each in self.notes))
        return Summary(self._verdict(), header, rows, len(self.drifts), sentences=above)


def _places(drift: Drift) -> tuple[object, ...]:
    step = "" if drift.step is None else drift.step
    element = "" if drift.element is None else list(drift.element)
    return step, drift.name, drift.declared, drift.found, "{} and {}".format(*drift.ranks), element
