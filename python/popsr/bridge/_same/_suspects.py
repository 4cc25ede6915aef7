"""Ops that may make a step differ from one device."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple

from popsr.bridge._same._forms import size_of
from popsr.bridge._same._pairs.matched import Matched, is_equal
from popsr.ops._kinds import POINTWISE, REDUCTIONS

__all__ = ["Partial", "Suspect", "Suspects", "suspects_of"]

_MOST_BEFORE = 40
"""Ops before the place that are suspected."""


class Suspect(NamedTuple):
    """An op that may be wrong, and how many times larger than of one device its result is beside its operands."""

    op: int
    scale: Fraction


class Partial(NamedTuple):
    """An operand of which each replica has a part.

    Attributes:
        op: the op that takes it.
        tensor: the operand.
        axes: names of the axes that it is a sum over.
        scale: how many times larger than of one device the sum is.
    """

    op: int
    tensor: int
    axes: tuple[str, ...]
    scale: Fraction


class Suspects(NamedTuple):
    """Ops and operands that may be wrong.

    Attributes:
        ops: ops, the likeliest first.
        partial: operands whose sum may be missing.
        idle: ops whose result is their operand on one device, and is not here.
    """

    ops: tuple[Suspect, ...]
    partial: tuple[Partial, ...]
    idle: tuple[int, ...] = ()


def suspects_of(values: Matched, ends: Sequence[int], place: int | None) -> Suspects:
    """Ops that may be wrong, that of the place first, and operands whose sum may be missing."""
    return _Suspected(values).all(ends, place)


class _Suspected:
    """Ops of a run that may be wrong."""

    def __init__(self, values: Matched) -> None:
        """Before the search."""
        self._values = values

    def all(self, ends: Sequence[int], place: int | None) -> Suspects:
        """Ops that may be wrong, that of the place first, and operands whose sum may be missing."""
        events = sorted(self._apart(ends))
        before = [] if place is None else sorted(self._before_all(place), reverse=True)
        order = [
            *([] if place is None else [place]),
            *filter(self._is_suspect, events),
            *filter(self._is_suspect, before[:_MOST_BEFORE]),
        ]
        ops: dict[int, Suspect] = {}
        for event in order:
            op = self._values.run.events[event].op
            ops.setdefault(op, Suspect(op, self._gain(event)))
        found = [*ops.values()]
        if place is not None and (scale := self._scale(place)) not in (None, found[0].scale):
            found.insert(1, Suspect(found[0].op, scale))
        last = (number for number, event in enumerate(self._values.run.events) if {*event.operands} & {*ends})
        taken = itertools.chain(
            self._values.departures(ends, lambda value, _: self._values.fits(value)), last
        )
        partial = (each for event in taken for each in self._partial(event))
        idle = dict.fromkeys(self._values.run.events[event].op for event in events if self._is_idle(event))
        return Suspects(tuple(found), tuple(dict.fromkeys(partial)), tuple(idle))

    def _is_idle(self, event: int) -> bool:
        """True for an op that moves elements, and does nothing on one device."""
        rows, (_, origin, operands, results) = self._values.run.rows, self._values.run.events[event]
        if origin[0] in POINTWISE | REDUCTIONS or not operands or operands[0] is None or len(results) != 1:
            return False
        if not all(map(self._values.is_float, (operands[0], results[0]))):
            return False
        pairs = [*zip(rows[operands[0]], rows[results[0]], strict=True)]
        moves = all(a.shape == b.shape for a, b in pairs) and not all(itertools.starmap(is_equal, pairs))
        return moves and self._values.alone.is_idle(origin)

    def _apart(self, ends: Iterable[int]) -> set[int]:
        """Events that ends follow from and whose results are not what one device has."""
        seen, left = set[int](), [*ends]
        while left:
            value = left.pop()
            event = self._values.run.maker.get(value)
            if event is None or event in seen or not self._values.is_float(value):
                continue
            form = self._values.form(value)
            if form is None or not form.is_whole:
                seen.add(event)
                left += self._values.operands(event)
        return seen

    def _before_all(self, event: int) -> set[int]:
        """Events that one follows from, as long as their results are multiples of values of one device.

        A result that is right by chance, as the sum of halves where a mean of wholes belongs, hides none of them.
        """
        seen, left = set[int](), [event]
        while left:
            for value in self._values.operands(left.pop()):
                maker = self._values.run.maker.get(value)
                if maker is not None and maker not in seen and self._values.form_of(value) is not None:
                    seen.add(maker)
                    left.append(maker)
                if len(seen) > _MOST_BEFORE:
                    return seen
        return seen

    def _is_suspect(self, event: int) -> bool:
        """True for reductions over replicas, for ops that results leave at, and for those that make multiples."""
        if self._values.kind(event) in REDUCTIONS or self._gain(event) != 1:
            return True
        return all(map(self._values.fits, self._values.operands(event))) and not all(
            map(self._values.fits, self._values.run.events[event].results)
        )

    def _gain(self, event: int) -> Fraction:
        """The factor between a result and that of one device, beside the operands'."""
        scale = self._scale(event)
        if scale is None:
            return Fraction(1)
        scales = {form.scale for each in self._values.operands(event) if (form := self._values.form_of(each))}
        return Fraction(1) if scale in scales else scale / max(scales, key=size_of, default=Fraction(1))

    def _scale(self, event: int) -> Fraction | None:
        """The factor between the result of an op and the value of one device; None of another value."""
        results = self._values.run.events[event].results
        return next((form.scale for each in results if (form := self._values.form_of(each))), None)

    def _partial(self, event: int) -> Iterator[Partial]:
        """Operands of an op of which each replica has a part."""
        at = self._values.run.events[event]
        for tensor, value in zip(self._values.run.core.op_inputs(at.op), at.operands, strict=True):
            form = None if value is None else self._values.form_of(value)
            if tensor is not None and form is not None and "sum" in form.axes:
                yield Partial(at.op, tensor, self._values.grid.summed(form), form.scale)
