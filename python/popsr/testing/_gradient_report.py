"""Gradients beside finite differences: the comparison, its table, and likely causes of a mismatch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr._support.text.summary import Judged, Summary, line
from popsr.errors import GradientError

__all__ = ["GradientCheck", "GradientRow", "GroupSamples", "Sample", "fit_scale", "report"]

_WHERE = "check_gradients"
_SLACK = 0.05  # of a ratio: neighbouring sizes of groups are further apart


@public
@dataclass(frozen=True, slots=True)
class GradientRow:
    """The gradient of a variable in one group of replicas: the direction of the largest error. True where it is ``ok``.

    Attributes:
        name: the variable.
        members: replicas of the group.
        expected: the derivative by finite differences, times the scale.
        got: the product of the gradient and the direction.
        error: their difference relative to the larger of them, the gradient's norm and the resolution of the loss.
        ok: True if the error is within the tolerance and all members have the same gradient.
        note: the likely cause where it is wrong.
    """

    name: str
    members: tuple[int, ...]
    expected: float
    got: float
    error: float
    ok: bool
    note: str = ""

    def __bool__(self) -> bool:
        return self.ok

    @property
    def group(self) -> str:
        """The members as a block of a partition."""
        return _block(self.members)


@public
@dataclass(frozen=True, repr=False)
class GradientCheck(Judged):
    """The result of ``check_gradients``; ``print`` shows a table with wrong gradients first.

    It is true where it is ``ok``.

    Attributes:
        rows: one for each variable and group of replicas, in the order of ``gradients``.
        scale: the factor between the summed loss and what the gradients are derivatives of, given or fitted.
        rtol: the tolerance of the least exact variable.
    """

    rows: tuple[GradientRow, ...]
    scale: float
    rtol: float

    @property
    def ok(self) -> bool:
        """True if all rows are."""
        return all(row.ok for row in self.rows)

    @property
    def worst(self) -> GradientRow:
        """The row with the largest error: a wrong one if there is one."""
        return max(self.rows, key=lambda row: (not row.ok, row.error))

    def __repr__(self) -> str:
        wrong = sum(not row.ok for row in self.rows)
        state = f"{wrong} of {len(self.rows)} rows wrong" if wrong else f"ok rows={len(self.rows)}"
        return line(f"GradientCheck[{state} scale={self.scale:.6g} largest error={self.worst.error:.2g}]")

    def _summary(self) -> Summary:
        rows = sorted(self.rows, key=lambda row: (row.ok, 0.0 if row.ok else -row.error))
        cells = (
            (
                row.name,
                row.group,
                f"{row.expected:.6g}",
                f"{row.got:.6g}",
                f"{row.error:.1e}",
                "yes" if row.ok else "no",
                row.note,
            )
            for row in rows
        )
        header = ("variable", "replicas", "expected", "got", "error", "ok", "note")
        return Summary(repr(self), header, cells, len(rows))


@dataclass(frozen=True, slots=True)
class Sample:
    """One direction: the derivative of the summed loss, and what each member's gradient says about it.

    Attributes:
        derivative: by finite differences.
        gradients: of each member of the group.
        norm: the gradient's: its product with a random direction is about as large.
        noise: derivatives that the rounding of the loss can make.
    """

    derivative: float
    gradients: tuple[float, ...]
    norm: float
    noise: float

    def error(self, got: float, scale: float, rtol: float) -> float:
        """The relative error of a claim about the derivative."""
        expected = scale * self.derivative
        difference = abs(got - expected)
        largest = max(abs(got), abs(expected), self.norm, abs(scale) * self.noise / rtol)
        if not math.isfinite(difference):
            return math.inf
        return difference / largest if difference else 0.0


@dataclass(frozen=True, slots=True)
class GroupSamples:
    """A variable in one group of replicas.

    Attributes:
        name: the variable.
        members: replicas of the group.
        samples: one for each direction.
        spread: the largest difference between elements of two members' gradients, relative to the gradient's norm.
        rtol: the tolerance.
    """

    name: str
    members: tuple[int, ...]
    samples: tuple[Sample, ...]
    spread: float
    rtol: float

    @property
    def differs(self) -> bool:
        """True if members of the group have different gradients."""
        return not self.spread <= self.rtol

    def worst(self, scale: float) -> tuple[Sample, float]:
        """The direction of the largest error, and the error."""
        errors = [each.error(each.gradients[0], scale, self.rtol) for each in self.samples]
        at = int(np.argmax(errors))
        return self.samples[at], errors[at]

    def nearest(self, again: GroupSamples, scale: float) -> GroupSamples:
        """Of each direction the measurement that agrees best."""

        def error(sample: Sample) -> float:
            return sample.error(sample.gradients[0], scale, self.rtol)

        pairs = zip(self.samples, again.samples, strict=True)
        return replace(self, samples=tuple(min(pair, key=error) for pair in pairs))

    def is_wrong(self, scale: float) -> bool:
        """True if a direction is out of tolerance, or the members differ."""
        return self.differs or self.worst(scale)[1] > self.rtol

    def fits(self, scale: float, got: Sequence[float]) -> bool:
        """True if claims about all directions are right."""
        slack = max(self.rtol, min(20 * self.rtol, _SLACK))
        return all(
            each.error(claim, scale, self.rtol) <= slack
            for each, claim in zip(self.samples, got, strict=True)
        )


def fit_scale(groups: Sequence[GroupSamples]) -> float:
    """The factor between derivatives and gradients by least squares, each variable relative to its gradient.

    Gradients that are small beside the resolution of the loss count as little as it lets them.
    """
    sizes = [(sample, max(sample.norm, sample.noise / g.rtol)) for g in groups for sample in g.samples]
    rows = [(s.derivative / size, s.gradients[0] / size) for s, size in sizes if s.norm]
    if not rows:
        return 1.0
    derivatives, gradients = np.array(rows).T
    square = float(derivatives @ derivatives)
    scale = float(derivatives @ gradients) / square if square else 1.0
    return scale if math.isfinite(scale) and scale else 1.0


def report(groups: Sequence[GroupSamples], scale: float, replicas: int) -> GradientCheck:
    """The check of all groups.

    Args:
        groups: what was measured.
        scale: the factor between the summed loss and what the gradients are derivatives of.
        replicas: their number, of which sizes of groups are divisors.
    Raises:
        GradientError: a gradient is wrong; its ``check`` has all rows, its notes the table.
    """
    common = _common_scale(groups, scale)
    rows = tuple(_row(group, scale, replicas, common) for group in groups)
    check = GradientCheck(rows, scale, max(group.rtol for group in groups))
    if check.ok:
        return check
    error = GradientError(_text(groups[rows.index(check.worst)], check.worst))
    error.check = check
    for text in str(check).split("\n"):
        error.add_note(text)
    raise error


def _text(group: GroupSamples, row: GradientRow) -> str:
    """The first line of the error about a row."""
    cause = f": {row.note}" if row.note else ""
    if not group.differs:
        return (
            f"{_WHERE}: the gradient of {shown(row.name)} on replicas {row.group} is wrong, got {row.got:.6g}, "
            f"expected {row.expected:.6g}{cause}"
        )
    gots = max((each.gradients for each in group.samples), key=np.ptp)
    other = int(np.argmax(np.abs(np.array(gots) - gots[0])))
    cause = f", {row.note.partition(': ')[2]}" if ": " in row.note else ""
    return (
        f"{_WHERE}: the gradient of {shown(row.name)} differs inside group {row.group}, got {gots[0]:.6g} on replica "
        f"{row.members[0]} and {gots[other]:.6g} on replica {row.members[other]}, expected the same on both{cause}"
    )


def _row(group: GroupSamples, scale: float, replicas: int, common: float | None) -> GradientRow:
    sample, error = group.worst(scale)
    wrong = group.is_wrong(scale)
    note = _cause(group, scale, replicas, common) if wrong else ""
    return GradientRow(
        group.name,
        group.members,
        scale * sample.derivative,
        sample.gradients[0],
        max(error, group.spread) if group.differs else error,
        not wrong,
        note,
    )


def _cause(group: GroupSamples, scale: float, replicas: int, common: float | None) -> str:
    """The likely cause, in words; empty if the numbers suggest none."""
    values = [value for s in group.samples for value in (s.derivative, *s.gradients)]
    if not np.isfinite(values).all():
        return "not finite"
    if group.differs:
        return f"differs inside the group{_completed(group, scale)}"
    if not any(value for s in group.samples for value in s.gradients):
        return "zero: overwritten after its use, or not connected to the loss?"
    if common is not None:
        return f"the same factor for all variables: scale={common:.6g}?"
    factor = _factor(group, scale, replicas)
    if factor is None:
        return ""
    if factor > 1:
        return f"{factor:.0f} times the derivative: summed twice?"
    return f"1/{1 / factor:.0f} of the derivative: averaged where a sum belongs?"


def _completed(group: GroupSamples, scale: float) -> str:
    """The collective that makes the members' gradients the derivative."""
    members = len(group.members)
    sums = [math.fsum(each.gradients) for each in group.samples]
    for copies in (n for n in range(1, members + 1) if members % n == 0):
        if group.fits(scale, [each / copies for each in sums]):
            if copies == 1:
                return ": their sum is the derivative, is an all-reduce missing?"
            if copies == members:
                return ": their mean is the derivative, is an all-reduce missing?"
            return f": the sum over {members // copies} of them is the derivative, is an all-reduce missing?"
    return ""


def _factor(group: GroupSamples, scale: float, replicas: int) -> float | None:
    """A size of a group, or its reciprocal, that the gradient is too large by in all directions."""
    sizes = [n for n in range(2, replicas + 1) if replicas % n == 0]
    for factor in [*map(float, sizes), *(1 / n for n in sizes)]:
        if group.fits(scale * factor, [each.gradients[0] for each in group.samples]):
            return factor
    return None


def _common_scale(groups: Sequence[GroupSamples], scale: float) -> float | None:
    """The scale with which all gradients are right, if all are wrong with the given one."""
    if len(groups) < 2 or any(group.differs or not group.is_wrong(scale) for group in groups):
        return None
    fitted = fit_scale(groups)
    fits = all(group.fits(fitted, [each.gradients[0] for each in group.samples]) for group in groups)
    return fitted if fits else None


def _block(members: Sequence[int]) -> str:
    return f"{{{','.join(map(str, members))}}}"
