"""The place at which a step computes something else than one device."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from popsr._fields import Numbers
from popsr._program.location import short_place
from popsr._text.frames import file_and_line, source_line
from popsr.bridge._arguments import Argument, Result, Step
from popsr.bridge._same._exact import Value, given_of_many, given_of_one, ran
from popsr.bridge._same._forms import ANY, Form, Grid, Known, axes_of, digest_of, size_of
from popsr.bridge._same._pair import Pair
from popsr.bridge._same._regions import Integers, Lines, Region, region_of
from popsr.bridge._same._unrolled import Origin, Recorder, Seen, Unrolled
from popsr.bridge._same._values import Place
from popsr.ops._kinds import ADDITIVE, MOVES, POINTWISE, REDUCTIONS

__all__ = ["Partial", "Suspect", "Suspects", "callers_of", "place_of", "place_shown"]


_MOST_BEFORE = 40
"""Ops before the place that are suspected."""
_EXCHANGED = frozenset(
    ["replicated_permute", "replicated_all_to_all", "replicated_all_gather", "replicated_broadcast"]
)
"""Ops whose results are parts of what other replicas have."""
_ELEMENTWISE = frozenset(
    "add sub mul div where exp maximum minimum negate tanh sqrt rsqrt square".split()  # noqa: SIM905
)
"""Ops whose result is at the place of their operand, where all have the shape of one."""


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
    """What may be wrong.

    Attributes:
        ops: ops, the likeliest first.
        partial: operands whose sum may be missing.
        idle: ops whose result is their operand on one device, and is not here.
    """

    ops: tuple[Suspect, ...]
    partial: tuple[Partial, ...]
    idle: tuple[int, ...] = ()


def place_of(
    pair: Pair, paths: Iterable[str], draw: int, inputs: Mapping[str, Value]
) -> tuple[Place | None, Suspects]:
    """The place where values of a step leave those of its reference, None where that is not found; what may be wrong.

    Args:
        pair: the two.
        paths: of the values that differ.
        draw: number of a draw on which they differ.
        inputs: global values before the step.
    """
    grid = Grid.of(axes_of(pair.many), draw)
    given = given_of_one(pair, inputs)
    alone = Unrolled.of(pair.one.ir._core, _seen(pair.one, given, draw), given)
    given = given_of_many(pair, inputs)
    run = Unrolled.of(pair.many.ir._core, _seen(pair.many, given, draw), given)
    search = _Search(
        run, grid, _Alone.of(alone, grid, inputs.values()), functools.partial(place_shown, pair.many)
    )
    both = {each.path: each for each in pair.compared}
    ends = (tensor for path in paths if (tensor := _new_value(both[path].many)) is not None)
    values = [run.main[tensor] for tensor in ends]
    found = search.place(values)
    suspects = search.suspects(values, None if found is None else found[0])
    if found is None:
        return None, suspects
    event, text = found
    op, (_, location, _) = run.events[event][:2]
    return Place(location, source_line(location), text, callers_of(pair.many, op)), suspects


def callers_of(step: Step, op: int) -> tuple[str, ...]:
    """Lines from which the line of an op was called; of a function that lies elsewhere, or is called at several lines.

    Others say nothing new: the line is in the user's step itself.
    """
    core, callers = step.ir._core, step.callers.get(op, ())
    location = core.location_of(op)
    file = file_and_line(location)[0]
    elsewhere = [*itertools.dropwhile(lambda each: file_and_line(each)[0] == file, callers)]
    while elsewhere and _calls_all(step, elsewhere[-1]):
        elsewhere.pop()
    if elsewhere or not callers:
        return tuple(elsewhere)
    calls = (step.callers.get(other) for other in range(core.num_ops) if core.location_of(other) == location)
    return callers if any(each not in (None, callers) for each in calls) else ()


def place_shown(step: Step, op: int) -> str:
    """The line of an op, and the one that calls it where it says more."""
    callers = callers_of(step, op)
    called = f", called at {short_place(callers[0])}" if callers else ""
    return f"{short_place(step.ir._core.location_of(op))}{called}"


def _calls_all(step: Step, line: str) -> bool:
    """True for a line that all ops were called from: that of the step itself."""
    return all(
        line in step.callers.get(op, ())
        for op in range(step.ir._core.num_ops)
        if file_and_line(step.ir._core.location_of(op))[1]
    )


def _is_equal(a: Any, b: Any) -> bool:
    return a is b or (a.shape == b.shape and digest_of(a) == digest_of(b))


def _is_zero(value: Any) -> bool:
    return value.huge is None and not value.residues[-1].any()


def _seen(step: Step, given: Mapping[int, list[Value]], draw: int) -> list[Seen]:
    recorder = Recorder(step.ir._core)
    ran(step, given, draw, recorder)
    return recorder.seen


def _new_value(each: Argument | Result) -> int | None:
    tensor = each.result if isinstance(each, Argument) else each.tensor
    return None if tensor is None else tensor._id


class _Alone(NamedTuple):
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
    def of(cls, run: Unrolled, grid: Grid, inputs: Iterable[Value]) -> _Alone:
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
        return len(values) == 2 and _is_equal(*values)


Found = tuple[int, str]
"""The number of an op that ran, and what is wrong there."""


class _Search:
    """Values of a step with what they are of those of one device."""

    def __init__(self, run: Unrolled, grid: Grid, alone: _Alone, shown: Callable[[int], str]) -> None:
        """Without any form known."""
        self._run, self._grid, self._alone, self._shown = run, grid, alone, shown
        self._forms: dict[int, Form | None] = {}
        self._parts: dict[tuple[int, int], bool] = {}

    def _form(self, value: int) -> Form | None:
        if value not in self._forms:
            origin, known = self._origin(value), self._alone.known
            if not self._is_float(value):
                origin = origin if origin in (None, ANY) else origin[:2]
                found = self._grid.form(self._run.rows[value], self._alone.integers, origin)
            else:
                found = self._grid.form(self._run.rows[value], known, origin)
            if found is not None and "largest" in found.axes and not self._is_of_known(value):
                found = None
            self._forms[value] = found
        return self._forms[value]

    def _is_of_known(self, value: int) -> bool:
        """True if all floats that a value is made of are known: the largest of others is so by chance."""
        event = self._run.maker.get(value)
        return event is None or all(self._fits(each) for each in self._operands(event))

    def _origin(self, value: int) -> Any:
        if value not in self._run.maker:
            return None
        origin = self._run.events[self._run.maker[value]].origin
        return ANY if origin[0].startswith("replicated_") else origin

    def _is_float(self, value: int) -> bool:
        return isinstance(self._run.rows[value][0], Numbers)

    def _fits(self, value: int) -> bool:
        """True for values that are known of one device, in any form, and for integers."""
        return not self._is_float(value) or self._form(value) is not None

    def _operands(self, event: int) -> list[int]:
        return [value for value in self._run.events[event].operands if value is not None]

    def _kind(self, event: int) -> str:
        return self._run.events[event].origin[0]

    def _line(self, event: int) -> str:
        return self._run.events[event].origin[1]

    def place(self, ends: Sequence[int]) -> Found | None:
        """The first op that makes the ends differ.

        It is one whose operands fit and whose result does not, or from which an end is a multiple of the value of one
        device.
        """
        apart = [*self._departures(ends, self._fits_on)]
        first = min([each for each in apart if not self._is_of_part(each)] or apart, default=None)
        found = [] if first is None else [self._before(first)]
        found += [self._of_form(end) for end in ends if (form := self._form(end)) and not form.is_whole]
        known = [each for each in found if each is not None and self._line(each[0])]
        return min(known, default=None)

    def suspects(self, ends: Sequence[int], place: int | None) -> Suspects:
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
            op = self._run.events[event].op
            ops.setdefault(op, Suspect(op, self._gain(event)))
        last = (number for number, event in enumerate(self._run.events) if {*event.operands} & {*ends})
        taken = itertools.chain(self._departures(ends, lambda value, _: self._fits(value)), last)
        partial = (each for event in taken for each in self._partial(event))
        idle = dict.fromkeys(self._run.events[event].op for event in events if self._is_idle(event))
        return Suspects(tuple(ops.values()), tuple(dict.fromkeys(partial)), tuple(idle))

    def _is_idle(self, event: int) -> bool:
        """True for an op that moves elements, and does nothing on one device."""
        _, origin, operands, results = self._run.events[event]
        if (
            origin[0] in POINTWISE
            or origin[0] in REDUCTIONS
            or len(results) != 1
            or operands[:1] in ((), (None,))
        ):
            return False
        taken, made = (self._run.rows[each] for each in (operands[0], results[0]))  # type: ignore[index]
        pairs = [*zip(taken, made, strict=True)]
        moves = all(a.shape == b.shape for a, b in pairs) and not all(_is_equal(a, b) for a, b in pairs)
        return moves and self._alone.is_idle(origin)

    def _apart(self, ends: Iterable[int]) -> set[int]:
        """Events that ends follow from and whose results are not what one device has."""
        seen, left = set[int](), [*ends]
        while left:
            value = left.pop()
            event = self._run.maker.get(value)
            if event is None or event in seen or not self._is_float(value):
                continue
            form = self._form(value)
            if form is None or not form.is_whole:
                seen.add(event)
                left += self._operands(event)
        return seen

    def _before_all(self, event: int) -> set[int]:
        """Events that one follows from, as long as their results are multiples of values of one device.

        A result that is right by chance, as the sum of halves where a mean of wholes belongs, hides none of them.
        """
        seen, left = set[int](), [event]
        while left:
            for value in self._operands(left.pop()):
                maker = self._run.maker.get(value)
                if maker is not None and maker not in seen and self._form_of(value) is not None:
                    seen.add(maker)
                    left.append(maker)
                if len(seen) > _MOST_BEFORE:
                    return seen
        return seen

    def _is_suspect(self, event: int) -> bool:
        """True for reductions over replicas, for ops that results leave at, and for those that make multiples."""
        if self._kind(event) in REDUCTIONS or self._gain(event) != 1:
            return True
        return all(map(self._fits, self._operands(event))) and not all(
            map(self._fits, self._run.events[event].results)
        )

    def _gain(self, event: int) -> Fraction:
        """The factor between a result and that of one device, beside the operands'."""
        results = [form for each in self._run.events[event].results if (form := self._form_of(each))]
        if not results:
            return Fraction(1)
        scales = {form.scale for each in self._operands(event) if (form := self._form_of(each))}
        scale = results[0].scale
        return Fraction(1) if scale in scales else scale / max(scales, key=size_of, default=Fraction(1))

    def _partial(self, event: int) -> Iterator[Partial]:
        """Operands of an op of which each replica has a part."""
        at = self._run.events[event]
        for tensor, value in zip(self._run.core.op_inputs(at.op), at.operands, strict=True):
            form = None if value is None else self._form_of(value)
            if tensor is not None and form is not None and "sum" in form.axes:
                yield Partial(at.op, tensor, self._grid.summed(form), form.scale)

    def _form_of(self, value: int) -> Form | None:
        return self._form(value) if self._is_float(value) else None

    def _departures(self, ends: Iterable[int], fits: Callable[[int, int], bool]) -> Iterator[int]:
        """Ops that make ends differ, and whose operands fit: on one replica or another."""
        seen, left = set[tuple[int, int]](), [(end, each) for end in ends for each in self._replicas]
        found = set[int]()
        while left:
            value, replica = left.pop()
            event = self._run.maker.get(value)
            if event is None or (value, replica) in seen or self._form(value) is not None:
                continue
            seen.add((value, replica))
            apart = [each for each in self._taken(event, value, replica) if not fits(*each)]
            if not apart and event not in found:
                found.add(event)
                yield event
            left += apart

    @property
    def _replicas(self) -> range:
        return range(self._grid.places.size)

    def _taken(self, event: int, value: int, replica: int) -> list[tuple[int, int]]:
        """Operands of floats of an op, with the replicas that have them; one alone if it is the result."""
        operands = [each for each in self._operands(event) if self._is_float(each)]
        if self._kind(event).startswith("replicated_"):
            return [(each, other) for each in operands for other in self._replicas]
        made = self._run.rows[value][replica]
        same = [each for each in operands if _is_equal(self._run.rows[each][replica], made)]
        return [(each, replica) for each in (same[:1] or operands)]

    def _fits_on(self, value: int, replica: int) -> bool:
        """True for values that are known of one device, in any form, or of which a replica has a part."""
        if self._form(value) is not None:
            return True
        key = value, replica
        if key not in self._parts:
            self._parts[key] = False  # of a value that is asked for while it is looked at
            self._parts[key] = self._is_part(value, replica)
        return self._parts[key]

    def _is_part(self, value: int, replica: int) -> bool:
        """True for what an op of one device of this line has, or what a moved part of it is."""
        event, row = self._run.maker.get(value), self._run.rows[value][replica]
        if event is None:
            return False
        if _is_zero(row):
            return True
        kind, line = self._kind(event), self._line(event)
        operands = self._taken(event, value, replica)
        if kind in _ELEMENTWISE:
            found = (self._region(each, replica) for each, _ in operands)
            parts = (each for each in found if each is not None and not each.is_whole)
            kept = [self._alone.lines.has_at(row, each, kind, line) for each in parts]
            if any(each is not None for each in kept):
                return all(each is not False for each in kept)
        if kind in _EXCHANGED or kind in MOVES or (kind == "where" and len(operands) == 1):
            return bool(operands) and all(itertools.starmap(self._fits_on, operands))
        if self._is_everywhere(value):
            return False  # what all replicas have would be all of it
        if kind == "slice" and operands and not self._is_everywhere(operands[0][0]):
            taken = self._run.rows[operands[0][0]][replica]
            return self._fits_on(*operands[0]) and region_of(row, taken) is not None
        return self._region(value, replica) is not None

    def _is_of_part(self, event: int) -> bool:
        """True for a sum or maximum of a part, as of the keys that a replica has: later ones may complete it."""
        if self._kind(event) not in ("max", "min", "sum"):
            return False
        (value,) = self._operands(event)
        found = (self._region(value, replica) for replica in self._replicas)
        made = self._run.rows[value][0].shape
        return any(each is not None and each.shape != made for each in found)

    def _region(self, value: int, replica: int) -> Region | None:
        """The part of a value of one device, made at this line, that a replica has."""
        event = self._run.maker.get(value)
        if event is None:
            return None
        row = self._run.rows[value][replica]
        return self._alone.lines.region(row, self._kind(event), self._line(event))

    def _is_everywhere(self, value: int) -> bool:
        rows = self._run.rows[value]
        return all(_is_equal(rows[0], row) for row in rows[1:])

    def _number_before(self, event: int) -> int:
        """The op that made a wrong integer that an op takes, as a count or a mask; the op itself without any."""
        found, seen = list[int](), set[int]()
        left = [each for each in self._operands(event) if not self._is_float(each)]
        while left:
            value = left.pop()
            maker = self._run.maker.get(value)
            if maker is None or value in seen or self._is_known_integer(value):
                continue
            seen.add(value)
            operands = self._operands(maker)
            apart = [each for each in operands if not self._is_known_integer(each)]
            if operands and not apart and self._is_comparable(maker):
                found.append(maker)
            left += [each for each in apart if not self._is_float(each)]
        return min(found, default=event)

    def _is_comparable(self, event: int) -> bool:
        """True for an op that runs on one device as well, and takes no number of a replica's own."""
        op, _, operands, _ = self._run.events[event]
        taken = zip(self._run.core.op_inputs(op), operands, strict=True)
        own = (t for t, value in taken if t is not None and value is None)
        is_constant = all(self._run.core.tensor(t).kind == "constant" for t in own)
        return is_constant and self._alone.lines.has(self._kind(event), self._line(event))

    def _is_known_integer(self, value: int) -> bool:
        if self._form(value) is not None:
            return True
        event = self._run.maker.get(value)
        if event is None or self._is_float(value) or self._is_everywhere(value):
            return False
        return all(self._region(value, replica) is not None for replica in self._replicas)

    def _before(self, op: int) -> Found | None:
        """The place of an op, or of an operand whose form it does not take."""
        forms = {each: form for each in self._operands(op) if (form := self._form_of(each)) is not None}
        summed = [tensor for tensor, form in forms.items() if "sum" in form.axes]
        if summed:
            return self._of_sum(summed[0], self._shown(self._run.events[op].op))
        if len({form.scale for form in forms.values()}) > 1 and self._kind(op) in ADDITIVE:
            return self._where_scaled(max(forms, key=lambda tensor: size_of(forms[tensor].scale)))
        number = self._number_before(op)
        text = "another value than one device has, of operands that are its own"
        return (op, text) if number == op else (number, "another number than one device has")

    def _of_form(self, tensor: int) -> Found | None:
        """The place at which a value became a multiple, or a part of a sum, of that of one device."""
        form = self._form(tensor)
        assert form is not None
        return self._of_sum(tensor, "") if "sum" in form.axes else self._where_scaled(tensor)

    def _of_sum(self, tensor: int, used: str) -> Found | None:
        form = self._form(tensor)
        assert form is not None
        names = ", ".join(self._grid.summed(form))
        before = f", before {used}" if used else ""
        multiple = "" if form.scale == 1 else f"{form.scale} times "
        op = self._first_of(tensor, lambda each: "sum" in each.axes)
        text = f"each replica has a part of {multiple}the value of one device: the sum over {names} is missing{before}"
        return None if op is None else (op, text)

    def _where_scaled(self, tensor: int) -> Found | None:
        """The op from which a value is a multiple of that of one device."""
        form = self._form(tensor)
        assert form is not None
        op = self._first_of(tensor, lambda each: each.scale == form.scale and "sum" not in each.axes)
        return None if op is None else (op, f"{form.scale} times the value of one device")

    def _first_of(self, tensor: int, is_such: Callable[[Form], bool]) -> int | None:
        """The op with which values of a form begin, of those that a tensor follows from."""
        op = self._run.maker.get(tensor)
        while op is not None:
            like = [
                each for each in self._operands(op) if each in self._run.maker and self._is(each, is_such)
            ]
            if not like:
                return op
            op = self._run.maker[like[0]]
        return None

    def _is(self, tensor: int, is_such: Callable[[Form], bool]) -> bool:
        form = self._form_of(tensor)
        return form is not None and is_such(form)
