"""The line at which a step departs from one device."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence

from popsr._program.building.location import short_place
from popsr._support.text.frames import file_and_line, source_line
from popsr.bridge._same._exact import Value, given_of_many, given_of_one, ran
from popsr.bridge._same._forms import Form, Grid, axes_of, size_of
from popsr.bridge._same._pairs.matched import Alone, Matched
from popsr.bridge._same._pairs.pair import Pair
from popsr.bridge._same._suspects import Suspects, suspects_of
from popsr.bridge._same._unrolled import Recorder, Seen, Unrolled
from popsr.bridge._same._values import Place, called_at
from popsr.bridge._step.arguments import Argument, Result, Step
from popsr.ops._kinds import ADDITIVE

__all__ = ["callers_of", "place_of", "place_shown"]


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
    matched = Matched(run, grid, Alone.of(alone, grid, inputs.values()))
    both = {each.path: each for each in pair.compared}
    ends = (tensor for path in paths if (tensor := _new_value(both[path].many)) is not None)
    values = [run.main[tensor] for tensor in ends]
    found = _Search(matched, functools.partial(place_shown, pair.many)).place(values)
    suspects = suspects_of(matched, values, None if found is None else found[0])
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
    return f"{short_place(step.ir._core.location_of(op))}{called_at(callers_of(step, op))}"


def _calls_all(step: Step, line: str) -> bool:
    """True for a line that all ops were called from: that of the step itself."""
    return all(
        line in step.callers.get(op, ())
        for op in range(step.ir._core.num_ops)
        if file_and_line(step.ir._core.location_of(op))[1]
    )


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
    """The place in a run of a step.

    Args:
        values: values of the run.
        shown: the line of an op, in words.
    """

    def __init__(self, values: Matched, shown: Callable[[int], str]) -> None:
        """Before the search."""
        self._values, self._shown = values, shown

    def place(self, ends: Sequence[int]) -> Found | None:
        """The first op that makes the ends differ.

        It is one whose operands fit and whose result does not, or from which an end is a multiple of the value of one
        device.
        """
        apart = [*self._values.departures(ends, self._values.fits_on)]
        first = min([each for each in apart if not self._values.is_of_part(each)] or apart, default=None)
        found = [] if first is None else [self._before(first)]
        found += [
            self._of_form(end) for end in ends if (form := self._values.form(end)) and not form.is_whole
        ]
        known = [each for each in found if each is not None and self._values.line(each[0])]
        return min(known, default=None)

    def _before(self, op: int) -> Found | None:
        """The place of an op, or of an operand whose form it does not take."""
        forms = {
            each: form
            for each in self._values.operands(op)
            if (form := self._values.form_of(each)) is not None
        }
        summed = [tensor for tensor, form in forms.items() if "sum" in form.axes]
        if summed:
            return self._of_sum(summed[0], self._shown(self._values.run.events[op].op))
        if len({form.scale for form in forms.values()}) > 1 and self._values.kind(op) in ADDITIVE:
            return self._where_scaled(max(forms, key=lambda tensor: size_of(forms[tensor].scale)))
        maker = self._values.number_before(op)
        text = "another result than on one device, of the same operands"
        return (op, text) if maker == op else (maker, "another integer than on one device")

    def _of_form(self, tensor: int) -> Found | None:
        """The place at which a value became a multiple, or a part of a sum, of that of one device."""
        form = self._values.form(tensor)
        assert form is not None
        return self._of_sum(tensor, "") if "sum" in form.axes else self._where_scaled(tensor)

    def _of_sum(self, tensor: int, used: str) -> Found | None:
        form = self._values.form(tensor)
        assert form is not None
        names = ", ".join(self._values.grid.summed(form))
        before = f", before {used}" if used else ""
        multiple = "" if form.scale == 1 else f"{form.scale} times "
        op = self._first_of(tensor, lambda each: "sum" in each.axes)
        text = f"each replica has a part of {multiple}the value of one device: the sum over {names} is missing{before}"
        return None if op is None else (op, text)

    def _where_scaled(self, tensor: int) -> Found | None:
        """The op from which a value is a multiple of that of one device."""
        form = self._values.form(tensor)
        assert form is not None
        op = self._first_of(tensor, lambda each: each.scale == form.scale and "sum" not in each.axes)
        return None if op is None else (op, f"{form.scale} times the value of one device")

    def _first_of(self, tensor: int, is_such: Callable[[Form], bool]) -> int | None:
        """The op with which values of a form begin, of those that a tensor follows from."""
        op = self._values.run.maker.get(tensor)
        while op is not None:
            like = [
                each
                for each in self._values.operands(op)
                if each in self._values.run.maker and self._is(each, is_such)
            ]
            if not like:
                return op
            op = self._values.run.maker[like[0]]
        return None

    def _is(self, tensor: int, is_such: Callable[[Form], bool]) -> bool:
        form = self._values.form_of(tensor)
        return form is not None and is_such(form)
