"""Verdicts of a comparison: each value of a step is the same as in its reference, different or unknown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from popsr._program.building.location import short_place
from popsr._support.text.annotations import Annotation
from popsr._support.text.entry_points import public
from popsr._support.text.one_line import one_line
from popsr._support.text.summary import Judged, Summary, line
from popsr.bridge._step.paths import named_paths

__all__ = ["AS_MEAN", "Place", "Repair", "SameValue", "Sameness", "Verdict", "called_at", "first_few"]

Verdict = Literal["same", "differs", "unknown"]
AS_MEAN = "as the mean over replicas"
"""Why a result is the same of which each replica returns a part of a mean."""
_ORDER: tuple[Verdict, ...] = ("differs", "unknown", "same")


def called_at(callers: Sequence[str]) -> str:
    """Words for the innermost line that calls another one, to be read after it; empty without callers."""
    return f", called at {short_place(callers[0])}" if callers else ""


def first_few(texts: Iterable[str]) -> str:
    """Three texts that are not equal, and how many more there are."""
    found = [*dict.fromkeys(texts)]
    more = f" and {len(found) - 3} more" if len(found) > 3 else ""
    return f"{', '.join(found[:3])}{more}"


@public
@dataclass(frozen=True, slots=True)
class Place:
    """A line of the user's program at which a step departs from one device.

    Attributes:
        location: ``file:line`` of it.
        source: the line.
        text: the difference there.
        callers: lines of the user from which it was called, the innermost first, where they say more: the function lies
            in another file, or is called at several lines.
    """

    location: str
    source: str
    text: str
    callers: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{short_place(self.location)}{called_at(self.callers)}: {self.text}"


@dataclass(frozen=True, slots=True)
class Repair:
    """A single change with which a step is the same as one device: it was made on the traced program, and compared.

    Attributes:
        location: ``file:line`` of it.
        source: the line.
        text: the change.
    """

    location: str
    source: str
    text: str

    def __str__(self) -> str:
        return self.text


@public
@dataclass(frozen=True, slots=True)
class SameValue(Judged):
    """A state or result of a step beside the reference's, after a step from equal states.

    Attributes:
        path: its name.
        role: "state" or "result".
        verdict: "same", "differs", or "unknown", with the reason.
        reason: why it is unknown, or by how much it differs; of a result that is the same as the mean over replicas
            alone, that it is; else empty.
        replicas: those on which it differs.
        draws: random inputs that it was compared on.
        deviation: of floats in float64: the largest difference, as a part of the largest change that the step makes to
            a state, or of the largest result; None of other values and engines.
        steps: the step after which it differs first, 1 or 2; 0 if it does not. Both steps start from equal states, so
            that only what a wrong line reaches in one step differs; integers such as counts go on from the first.
    """

    path: str
    role: Literal["state", "result"]
    verdict: Verdict
    reason: str = ""
    replicas: tuple[int, ...] = ()
    draws: int = 0
    deviation: float | None = None
    steps: int = 0

    @property
    def ok(self) -> bool:
        """True if it is the same."""
        return self.verdict == "same"

    def __repr__(self) -> str:
        return line(f"SameValue[{self.path}: {self.verdict}{': ' if self.reason else ''}{self.reason}]")

    def _summary(self) -> Summary:
        return Summary(repr(self))


@public
@dataclass(frozen=True, repr=False, eq=False)
class Sameness(Judged):
    """Whether a step trains as one device would: each state and result beside that of a reference.

    It is true where all are the same. ``print`` shows those that are not first.

    Attributes:
        like: the reference, in words.
        engine: "exact": arithmetic in finite fields, in which functions that are equal by arithmetic and exps of sums
            are equal, and others differ but for a tiny chance; "float64": up to rounding, which is measured.
        values: states and results, in the order of the step.
        steps: number of steps on each draw.
        notes: what the verdict rests on.
        place: the line at which the step departs from one device, where it is found; by exact arithmetic alone.
        repair: a single change with which all are the same, where one of those that were tried is.
        sizes: of a large step known by shapes alone: its sizes, with the smaller ones that it was compared at.
    """

    like: str
    engine: Literal["exact", "float64"]
    values: tuple[SameValue, ...]
    steps: int
    notes: tuple[str, ...] = ()
    place: Place | None = None
    repair: Repair | None = None
    sizes: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """True if every state and result is the same."""
        return self.verdict == "same"

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of a value: one that differs, else one that is unknown; unknown if there is no value."""
        found = {each.verdict for each in self.values}
        if "differs" in found:
            return "differs"
        return "same" if found == {"same"} else "unknown"

    @property
    def differing(self) -> tuple[SameValue, ...]:
        """Values that differ."""
        return tuple(each for each in self.values if each.verdict == "differs")

    @property
    def unknown(self) -> tuple[SameValue, ...]:
        """Values of which nothing is known, each with its reason."""
        return tuple(each for each in self.values if each.verdict == "unknown")

    @property
    def problems(self) -> tuple[str, ...]:
        """Why the verdict is not "same": a line for what differs, and one for each reason why something is unknown."""
        return tuple(each.text for each in self._findings())

    def _findings(self) -> tuple[Annotation, ...]:
        """``problems`` with the lines at which the step departs and is mended."""
        return (*self._differences(), *self._gaps())

    def _differences(self) -> Iterable[Annotation]:
        differing = self.differing
        if not differing:
            return
        place = "" if self.place is None else self.place.location
        most = max(differing, key=lambda each: each.deviation or 0.0)
        names = named_paths([each.path for each in differing])
        by = f"{most.path} {most.reason}" if len(differing) > 1 else most.reason
        verb = f"differ{'s' if len(differing) == 1 else ''}"
        yield Annotation("same", f"{names} {verb} from {self.like} ({self.engine}): {by}", place)
        if self.place is not None:
            yield Annotation("same", f"departs from {self.like} at {self.place}", place)
        if self.repair is not None:
            yield Annotation("same", f"fix, tried: {self.repair}", self.repair.location)
        elif self.place is not None:
            yield Annotation("same", "fix: no single change of those that were tried", place)

    def _gaps(self) -> Iterable[Annotation]:
        reasons: dict[str, list[str]] = {}
        for each in self.unknown:
            reasons.setdefault(each.reason, []).append(each.path)
        for reason, paths in reasons.items():
            yield Annotation("unknown", f"{named_paths(paths)} unknown, compared with {self.like}: {reason}")
        if not self.values:
            none = f"nothing to compare with {self.like}, got a step without states and results"
            yield Annotation("unknown", none)

    @property
    def headline(self) -> str:
        """The verdict in words."""
        if self.verdict == "same":
            return f"same training as {self.like}{' at smaller sizes' if self.sizes else ''}"
        parts = [(len(self.differing), "differ"), (len(self.unknown), "unknown")]
        counts = ", ".join(
            f"{n} {word}{'s' if word == 'differ' and n == 1 else ''}" for n, word in parts if n
        )
        return f"compared with {self.like}: {counts or 'nothing to compare'}"

    def __repr__(self) -> str:
        return line(f"Sameness[{self.headline}, {self.engine}]")

    def _summary(self) -> Summary:
        rows = sorted(self.values, key=lambda each: (_ORDER.index(each.verdict), each.steps))
        return Summary(
            self.headline,
            HEADER,
            map(cells, rows),
            len(rows),
            sentences=(*self.problems, *self.notes),
        )


HEADER = ("path", "role", "draws", "why", "verdict")
"""Names of the columns of a table of values."""


def cells(value: SameValue) -> tuple[object, ...]:
    """The row of a value."""
    after = " in the second step" if value.steps > 1 else ""
    return value.path, value.role, value.draws, one_line(value.reason + after, 80), value.verdict
