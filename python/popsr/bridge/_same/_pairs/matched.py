"""Values of a step with what they are of those of one device."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from popsr._support.fields import Numbers
from popsr.bridge._exact import Unknown
from popsr.bridge._same._exact import Value
from popsr.bridge._same._forms import ANY, Form, Grid, Known, digest_of
from popsr.bridge._same._regions import Integers, Lines, Region, region_of
from popsr.bridge._same._unrolled import Origin, Unrolled
from popsr.ops._kinds import ELEMENTWISE, EXCHANGES, FOLDS, MOVES

__all__ = ["Alone", "Matched", "is_equal"]


def is_equal(a: Any, b: Any) -> bool:
    """True for equal values; of unknown ones that is not known."""
    if isinstance(a, Unknown) or isinstance(b, Unknown):
        return False
    return a is b or (a.shape == b.shape and digest_of(a) == digest_of(b))


def _is_zero(value: Any) -> bool:
    return value.huge is None and not value.residues[-1].any()


class Alone(NamedTuple):
    """Values of one device.

    Attributes:
        run: the run that made them.
        known: floats, by value.
        integers: integers and truth values.
        lines: all, by line.
        events: numbers of ops by kind, line and number.
    """

    run: Unrolled
    known: Known
    integers: Integers
    lines: Lines
    events: Mapping[Origin, int]

    @classmethod
    def of(cls, run: Unrolled, grid: Grid, inputs: Iterable[Value]) -> Alone:
        """All values of a run."""
        known = Known([size for size in grid.sizes if size > 1])
        events = {event.origin: number for number, event in enumerate(run.events)}
        made = cls(run, known, Integers(), Lines(), events)
        for value in inputs:
            known.add(value, None)
            made.integers.add(value, None)
        for event in run.events:
            kind, line, _ = event.origin
            for result in event.results:
                value = run.rows[result][0]
                if isinstance(value, Unknown):
                    continue
                known.add(value, event.origin)
                made.integers.add(value, (kind, line))
                made.lines.add(value, kind, line)
        return made

    def is_idle(self, origin: Origin) -> bool:
        """True for an op whose result is its operand, and for a collective that does not run."""
        event = self.events.get(origin)
        if event is None:
            return origin[0].startswith("replicated_")
        _, _, operands, results = self.run.events[event]
        values = [self.run.rows[each][0] for each in (*operands[:1], *results) if each is not None]
        return len(values) == 2 and is_equal(*values)


class Matched:
    """Values of a step, and in which form replicas have a value of one device.

    Args:
        run: the step.
        grid: its replicas.
        alone: values of one device.
    """

    def __init__(self, run: Unrolled, grid: Grid, alone: Alone) -> None:
        """Without any form known."""
        self.run, self.grid, self.alone = run, grid, alone
        self._forms: dict[int, Form | None] = {}
        self._parts: dict[tuple[int, int], bool] = {}

    def form(self, value: int) -> Form | None:
        """The form in which replicas have a value of one device; None of other values and of unknown ones."""
        if value not in self._forms:
            origin, rows = self._origin(value), self.run.rows[value]
            found = None
            if self.is_float(value):
                found = self.grid.form(rows, self.alone.known, origin)
                if found is not None and "largest" in found.axes and not self._is_of_known(value):
                    found = None
            elif self._is_integer(value):
                origin = origin if origin in (None, ANY) else origin[:2]
                found = self.grid.form(rows, self.alone.integers, origin)
            self._forms[value] = found
        return self._forms[value]

    def _is_integer(self, value: int) -> bool:
        return all(isinstance(row, np.ndarray) for row in self.run.rows[value])

    def _is_of_known(self, value: int) -> bool:
        """True if all floats that a value is made of are known: the largest of others is so by chance."""
        event = self.run.maker.get(value)
        return event is None or all(self.fits(each) for each in self.operands(event))

    def _origin(self, value: int) -> Any:
        if value not in self.run.maker:
            return None
        origin = self.run.events[self.run.maker[value]].origin
        return ANY if origin[0].startswith("replicated_") else origin

    def is_float(self, value: int) -> bool:
        """True for floats, as far as they are known."""
        return all(isinstance(row, Numbers) for row in self.run.rows[value])

    def fits(self, value: int) -> bool:
        """True for values that are known of one device, in any form, and for integers."""
        return not self.is_float(value) or self.form(value) is not None

    def operands(self, event: int) -> list[int]:
        return [value for value in self.run.events[event].operands if value is not None]

    def kind(self, event: int) -> str:
        return self.run.events[event].origin[0]

    def line(self, event: int) -> str:
        return self.run.events[event].origin[1]

    def form_of(self, value: int) -> Form | None:
        return self.form(value) if self.is_float(value) else None

    def departures(self, ends: Iterable[int], fits: Callable[[int, int], bool]) -> Iterator[int]:
        """Ops that make ends differ, and whose operands fit: on one replica or another."""
        seen, left = set[tuple[int, int]](), [(end, each) for end in ends for each in self._replicas]
        found = set[int]()
        while left:
            value, replica = left.pop()
            event = self.run.maker.get(value)
            if event is None or (value, replica) in seen or self.form(value) is not None:
                continue
            seen.add((value, replica))
            apart = [each for each in self._taken(event, value, replica) if not fits(*each)]
            if not apart and event not in found:
                found.add(event)
                yield event
            left += apart

    @property
    def _replicas(self) -> range:
        return range(self.grid.places.size)

    def _taken(self, event: int, value: int, replica: int) -> list[tuple[int, int]]:
        """Operands of floats of an op, with the replicas that have them; one alone if it is the result."""
        operands = [each for each in self.operands(event) if self.is_float(each)]
        if self.kind(event).startswith("replicated_"):
            return [(each, other) for each in operands for other in self._replicas]
        made = self.run.rows[value][replica]
        same = [each for each in operands if is_equal(self.run.rows[each][replica], made)]
        return [(each, replica) for each in (same[:1] or operands)]

    def fits_on(self, value: int, replica: int) -> bool:
        """True for values that are known of one device, in any form, or of which a replica has a part."""
        if self.form(value) is not None:
            return True
        key = value, replica
        if key not in self._parts:
            self._parts[key] = False  # of a value that is asked for while it is looked at
            self._parts[key] = self._is_part(value, replica)
        return self._parts[key]

    def _is_part(self, value: int, replica: int) -> bool:
        """True for what an op of one device of this line has, or what a moved part of it is."""
        event, row = self.run.maker.get(value), self.run.rows[value][replica]
        if event is None:
            return False
        if _is_zero(row):
            return True
        kind, line = self.kind(event), self.line(event)
        operands = self._taken(event, value, replica)
        if kind in ELEMENTWISE:
            found = (self._region(each, replica) for each, _ in operands)
            parts = (each for each in found if each is not None and not each.is_whole)
            kept = [self.alone.lines.has_at(row, each, kind, line) for each in parts]
            if any(each is not None for each in kept):
                return all(each is not False for each in kept)
        if kind in EXCHANGES or kind in MOVES or (kind == "where" and len(operands) == 1):
            return bool(operands) and all(itertools.starmap(self.fits_on, operands))
        if self._is_everywhere(value):
            return False  # what all replicas have would be all of it
        if kind == "slice" and operands and not self._is_everywhere(operands[0][0]):
            taken = self.run.rows[operands[0][0]][replica]
            return self.fits_on(*operands[0]) and region_of(row, taken) is not None
        return self._region(value, replica) is not None

    def is_of_part(self, event: int) -> bool:
        """True for a sum or maximum of a part, as of the keys that a replica has: later ones may complete it."""
        if self.kind(event) not in FOLDS:
            return False
        (value,) = self.operands(event)
        found = (self._region(value, replica) for replica in self._replicas)
        made = self.run.rows[value][0].shape
        return any(each is not None and each.shape != made for each in found)

    def _region(self, value: int, replica: int) -> Region | None:
        """The part of a value of one device, made at this line, that a replica has."""
        event = self.run.maker.get(value)
        if event is None:
            return None
        row = self.run.rows[value][replica]
        return self.alone.lines.region(row, self.kind(event), self.line(event))

    def _is_everywhere(self, value: int) -> bool:
        rows = self.run.rows[value]
        return all(is_equal(rows[0], row) for row in rows[1:])

    def number_before(self, event: int) -> int:
        """The op that made a wrong integer that an op takes, as a count or a mask; the op itself without any."""
        found, seen = list[int](), set[int]()
        left = [each for each in self.operands(event) if self._is_integer(each)]
        while left:
            value = left.pop()
            maker = self.run.maker.get(value)
            if maker is None or value in seen or self._is_known_integer(value):
                continue
            seen.add(value)
            operands = self.operands(maker)
            apart = [each for each in operands if not self._is_known_integer(each)]
            if operands and not apart and self._is_comparable(maker):
                found.append(maker)
            left += filter(self._is_integer, apart)
        return min(found, default=event)

    def _is_comparable(self, event: int) -> bool:
        """True for an op that runs on one device as well, and takes no number of a replica's own."""
        op, _, operands, _ = self.run.events[event]
        taken = zip(self.run.core.op_inputs(op), operands, strict=True)
        own = (t for t, value in taken if t is not None and value is None)
        is_constant = all(self.run.core.tensor(t).kind == "constant" for t in own)
        return is_constant and self.alone.lines.has(self.kind(event), self.line(event))

    def _is_known_integer(self, value: int) -> bool:
        if self.form(value) is not None:
            return True
        event = self.run.maker.get(value)
        if event is None or self.is_float(value) or self._is_everywhere(value):
            return False
        return all(self._region(value, replica) is not None for replica in self._replicas)
