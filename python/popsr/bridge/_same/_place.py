"""The place at which a step computes something else than one device."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from popsr._fields import Numbers
from popsr._program.location import short_place
from popsr._text.frames import file_and_line, source_line
from popsr.bridge._arguments import Argument, Result, Step
from popsr.bridge._same._exact import Value, given_of_many, given_of_one, ran
from popsr.bridge._same._forms import ANY, Form, Grid, Known, axes_of, size_of
from popsr.bridge._same._pair import Pair
from popsr.bridge._same._unrolled import Recorder, Seen, Unrolled
from popsr.bridge._same._values import Place
from popsr.ops._kinds import ADDITIVE, REDUCTIONS

__all__ = ["ANOTHER", "Partial", "Suspect", "Suspects", "callers_of", "place_of"]


ANOTHER = "from values of one device another one"
"""Text of a place at which an op makes another value."""
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
    """Ops that may be wrong, the likeliest first, and operands whose sum may be missing."""

    ops: tuple[Suspect, ...]
    partial: tuple[Partial, ...]


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
    known = Known([size for size in grid.sizes if size > 1])
    for value in inputs.values():
        known.add(value, None)
    for seen in _seen(pair.one, given_of_one(pair, inputs), draw):
        for rows in seen.made:
            known.add(rows[0], seen.origin)
    given = given_of_many(pair, inputs)
    run = Unrolled.of(pair.many.ir._core, _seen(pair.many, given, draw), given)
    search = _Search(run, grid, known)
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
    if not callers or file_and_line(callers[0])[0] != file_and_line(location)[0]:
        return callers
    calls = (step.callers.get(other) for other in range(core.num_ops) if core.location_of(other) == location)
    return callers if any(each not in (None, callers) for each in calls) else ()


def _seen(step: Step, given: Mapping[int, list[Value]], draw: int) -> list[Seen]:
    recorder = Recorder(step.ir._core)
    ran(step, given, draw, recorder)
    return recorder.seen


def _new_value(each: Argument | Result) -> int | None:
    tensor = each.result if isinstance(each, Argument) else each.tensor
    return None if tensor is None else tensor._id


Found = tuple[int, str]
"""The number of an op that ran, and what is wrong there."""


class _Search:
    """Values of a step with what they are of those of one device."""

    def __init__(self, run: Unrolled, grid: Grid, known: Known) -> None:
        """Without any form known."""
        self._run, self._grid, self._known = run, grid, known
        self._forms: dict[int, Form | None] = {}

    def _form(self, value: int) -> Form | None:
        if value not in self._forms:
            self._forms[value] = self._grid.form(self._run.rows[value], self._known, self._origin(value))
        return self._forms[value]

    def _origin(self, value: int) -> object:
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
        first = min(self._departures(ends), default=None)
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
        taken = itertools.chain(self._departures(ends), last)
        partial = (each for event in taken for each in self._partial(event))
        return Suspects(tuple(ops.values()), tuple(dict.fromkeys(partial)))

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

    def _departures(self, ends: Iterable[int]) -> Iterator[int]:
        seen, left = set[int](), [*ends]
        while left:
            tensor = left.pop()
            op = self._run.maker.get(tensor)
            if op is None or op in seen or self._fits(tensor):
                continue
            seen.add(op)
            apart = [each for each in self._operands(op) if not self._fits(each)]
            if not apart:
                yield op
            left += apart

    def _before(self, op: int) -> Found | None:
        """The place of an op, or of an operand whose form it does not take."""
        forms = {each: form for each in self._operands(op) if (form := self._form_of(each)) is not None}
        summed = [tensor for tensor, form in forms.items() if "sum" in form.axes]
        if summed:
            return self._of_sum(summed[0], self._line(op))
        if len({form.scale for form in forms.values()}) > 1 and self._kind(op) in ADDITIVE:
            return self._where_scaled(max(forms, key=lambda tensor: size_of(forms[tensor].scale)))
        return op, ANOTHER

    def _of_form(self, tensor: int) -> Found | None:
        """The place at which a value became a multiple, or a part of a sum, of that of one device."""
        form = self._form(tensor)
        assert form is not None
        return self._of_sum(tensor, "") if "sum" in form.axes else self._where_scaled(tensor)

    def _of_sum(self, tensor: int, used: str) -> Found | None:
        form = self._form(tensor)
        assert form is not None
        names = ", ".join(self._grid.summed(form))
        before = f", before {short_place(used)}" if used else ""
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
