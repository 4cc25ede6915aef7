"""Findings of an audit, and the report that prints them."""

from __future__ import annotations

from dataclasses import dataclass, field

from popsr._support.text.differences import difference_text
from popsr._support.text.entry_points import public
from popsr._support.text.one_line import one_line
from popsr._support.text.summary import Judged, Summary, line

__all__ = ["JOBS", "AuditReport", "Drift"]

JOBS = ("{a,b}", "{a}{b}")
"""Groups of two jobs that should be equal, and of two that are not."""


@public
@dataclass(frozen=True, slots=True)
class Drift:
    """One parameter at one step, whose ranks of a declared group do not hold equal bits.

    Attributes:
        step: of the job; None where the files have none.
        name: of the parameter.
        declared: ranks that should be equal, in set notation, as ``{0,1}{2,3}``.
        found: ranks that are, likewise.
        ranks: two of a group that differ; of two jobs 0 is the first and 1 the second.
        element: index of the first element in which they differ; None where only hashes are known, or a shape differs.
        values: both, as ``0x3f800000 (1.0)``; of hashes the hashes.
        count: the most elements in which a rank differs from the first of its group; None where ``element`` is.
        elements: of the parameter; None likewise.
        largest: the largest difference of two elements; NaN where one of two is NaN, None where they are no numbers.
        places: coordinates of ``ranks`` where a job has several axes, as ``("dp 0, tp 1", "dp 1, tp 1")``; or two jobs.
    """

    step: int | None
    name: str
    declared: str
    found: str
    ranks: tuple[int, int]
    element: tuple[int, ...] | None
    values: tuple[str, str]
    count: int | None = None
    elements: int | None = None
    largest: float | None = None
    places: tuple[str, ...] = ()

    def __str__(self) -> str:
        step = "" if self.step is None else f"step {self.step}: "
        if self.declared == JOBS[0]:
            at = "" if self.element is None else f" at element {list(self.element)}"
            found = f"differs between {self.places[0]} and {self.places[1]}{at}, {self.values[0]} and {self.values[1]}"
        else:
            places = f" ({self.places[0]}; {self.places[1]})" if self.places else ""
            differ = difference_text(self.ranks, self.element, self.values, places)
            found = f"is declared equal on {self.declared} and is on {self.found}: {differ}"
        return one_line(f"{step}'{self.name}' {found}{self._far()}", 600 if self.declared == JOBS[0] else 400)

    def _far(self) -> str:
        """The number of elements that differ, and how far they do."""
        if self.count is None:
            return ""
        far = "" if self.largest is None else f", by at most {self.largest:g}"
        return f"; {self.count} of {self.elements} elements differ{far}"


@public
@dataclass(frozen=True, repr=False)
class AuditReport(Judged):
    """Findings of an audit; ``print`` shows the first drift, then a table.

    It is true where it is ``ok``.

    Attributes:
        steps: that were compared, in order; ``(None,)`` for files without a step.
        ranks: number of ranks; of two jobs 2.
        parameters: number of names that were compared.
        nbytes: bytes of tensors that were read.
        drifts: every parameter at every step at which it differs, in the order of steps.
        notes: ranks without a file, steps that some ranks lack, parameters that some lack, names without groups, and
            files that tell of no drift.
        damaged: files and tensors that could not be read, and why; what they hold was not compared.
        left_out: objects that are no tensors and were not compared, by the names of their classes.
        jobs: two jobs that were compared with each other, instead of ranks.
    """

    steps: tuple[int | None, ...]
    ranks: int
    parameters: int
    nbytes: int
    drifts: tuple[Drift, ...]
    notes: tuple[str, ...] = field(default=())
    damaged: tuple[str, ...] = field(default=())
    left_out: dict[str, int] = field(default_factory=dict)
    jobs: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """True if nothing differs that should not, and nothing was missing or damaged."""
        return not self.drifts and not self.notes and not self.damaged

    @property
    def first(self) -> Drift | None:
        """The first drift."""
        return self.drifts[0] if self.drifts else None

    def __repr__(self) -> str:
        return line(f"AuditReport[{self._verdict()}]")

    def _verdict(self) -> str:
        count = len({each.name for each in self.drifts})
        found = f"{count} parameter{' drifts' if count == 1 else 's drift'}" if count else "no drift"
        more = "".join(
            f", {number} {word}"
            for number, word in ((len(self.notes), "notes"), (len(self.damaged), "damaged"))
            if number
        )
        steps = f"{len(self.steps)} step{'' if len(self.steps) == 1 else 's'}"
        of = f"{self.ranks} {'jobs' if self.jobs else 'ranks'}"
        return f"{found}: {self.parameters} parameters of {of} at {steps}{more}"

    def _summary(self) -> Summary:
        header = (
            *("step", "parameter", "declared", "equal", "ranks", "element"),
            *("first", "other", "differ", "by at most"),
        )
        above = [] if self.first is None else [f"first: {self.first}"]
        above += [_left_out_text(self.left_out)] if self.left_out else []
        above += [f"damaged: {each}" for each in self.damaged]
        above += [f"note: {each}" for each in self.notes]
        rows = map(_row, self.drifts)
        return Summary(self._verdict(), header, rows, len(self.drifts), sentences=above)


def _left_out_text(left_out: dict[str, int]) -> str:
    kinds = ", ".join(f"{count} {kind}" for kind, count in left_out.items())
    return f"left out: {sum(left_out.values())} objects that are no tensors ({kinds})"


def _row(drift: Drift) -> tuple[object, ...]:
    step = "" if drift.step is None else drift.step
    element = "" if drift.element is None else list(drift.element)
    count = "" if drift.count is None else f"{drift.count} of {drift.elements}"
    largest = "" if drift.largest is None else f"{drift.largest:g}"
    ranks = "{} and {}".format(*(drift.places or drift.ranks))
    return step, drift.name, drift.declared, drift.found, ranks, element, *drift.values, count, largest
