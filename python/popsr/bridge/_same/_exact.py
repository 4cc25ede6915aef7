"""The exact engine: a step and its reference at random points, where equal functions are equal."""

from __future__ import annotations

import functools
import math
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from popsr._program.building.location import short_place
from popsr._support.fields import TOP, Numbers, same
from popsr.bridge._exact import ExactRun, first_unknown, run_exact
from popsr.bridge._same._draws import is_float, kept
from popsr.bridge._same._pairs.pair import STEPS, Both, Pair, UnknownError, sources_of
from popsr.bridge._same._parts import key_of, part_of
from popsr.bridge._same._values import AS_MEAN, SameValue, Verdict, first_few
from popsr.bridge._step.arguments import Argument, Result, Step
from popsr.errors import UnsupportedError
from popsr.ops._exact import DRAWN, TAKEN_FALSE, TAKEN_TRUE

__all__ = ["UNSURE", "Exactly", "Value", "agrees", "given_of_many", "given_of_one", "inputs_of", "ran"]

_DRAWS, _MOST_DRAWS = 2, 8
_FIELDS = (1, 4, TOP + 1)
"""Fields of numbers, one for each exp inside of another and one more: few first, as each costs the same."""
UNSURE = (
    f"exps inside of {TOP} others are random functions, for which it differs; float64 finds no difference"
)
Value = Any
"""Exact numbers of floats, arrays of others."""


class Exactly:
    """A step and its reference in exact arithmetic, draw by draw.

    Args:
        pair: the two.
    """

    def __init__(self, pair: Pair) -> None:
        """Before the first draw."""
        self.pair = pair
        self._begin(0)

    def _begin(self, low: int) -> None:
        """Forget all draws, and draw numbers of the fields from ``low`` on."""
        self._low, self._beyond = low, False
        self._found = {each.path: _Found(each) for each in self.pair.compared}
        self._means = {each.path: _Found(each, AS_MEAN) for each in self.pair.results if each.may_be_mean}
        self._sides = (Sides(self.pair.one), Sides(self.pair.many))
        self.witness: tuple[int, dict[str, Value]] | None = None
        """Number of the first draw on which a value differs, and global values before that step."""

    def compare(self) -> list[SameValue]:
        """The verdict of each state and result.

        Draws go on until both sides of all comparisons that depend on floats were taken. One field comes first, in
        which exps are random functions. What is equal there is equal; where something differs more fields decide.

        Raises:
            UnknownError: a loop does not end.
        """
        for fields in _FIELDS:
            self._begin(TOP + 1 - fields)
            if self._decided():
                break
        return [each.value() for each in self._outcomes]

    @property
    def is_unsure(self) -> bool:
        """True if something differs, and so it may for want of fields alone."""
        return self._beyond and self.witness is not None

    def _decided(self) -> bool:
        """True of draws in which all is the same, or something differs that no random function stands for."""
        for draw in range(_MOST_DRAWS):
            if draw >= _DRAWS and (not self._unseen or all(each.differs for each in self._outcomes)):
                break
            self._draw(draw)
            if self.is_unsure and self._low:
                return False
        return True

    @property
    def _outcomes(self) -> Iterator[_Found]:
        """Values as replicas have them, or as their mean where only that is the same."""
        for path, found in self._found.items():
            mean = self._means.get(path, found)
            yield mean if found.differs and not mean.differs else found

    @property
    def notes(self) -> Iterator[str]:
        """Comparisons of which one side was never taken."""
        unseen = self._unseen
        if unseen:
            yield f"one side only of comparisons was drawn at {first_few(map(short_place, unseen))}"

    @property
    def _unseen(self) -> list[str]:
        return [place for each in self._sides for place in each.unseen]

    def _runs(self, inputs: Mapping[str, Value], draw: int, step: int) -> tuple[ExactRun, ExactRun]:
        """The reference and the step, run once from the same values."""
        del step
        one = ran(self.pair.one, given_of_one(self.pair, inputs), draw)
        return one, ran(self.pair.many, given_of_many(self.pair, inputs), draw)

    def _draw(self, draw: int) -> None:
        carried: dict[str, Value] = {}
        for step in range(STEPS):
            inputs = inputs_of(self.pair, draw, step, self._low) | carried
            one, many = self._runs(inputs, draw, step)
            for sides, run in zip(self._sides, (one, many), strict=True):
                sides.add(run)
                self._beyond |= run.beyond
            for each in self._found.values():
                each.add(step, value_of(many, each.both.many), value_of(one, each.both.one)[0])
            for each in self._means.values():
                rows = _means(each.both, value_of(many, each.both.many))
                each.add(step, rows, value_of(one, each.both.one)[0])
            if self.witness is None and any(each.differs for each in self._outcomes):
                self.witness = draw, inputs
            carried = {
                each.key: value_of(one, each.one)[0] for each in self.pair.states if not is_float(each)
            }


def inputs_of(pair: Pair, draw: int, step: int, low: int) -> dict[str, Value]:
    """Random global values of states and data before a step, of the fields from ``low`` on."""
    return {
        each.key: Numbers.draw(each.whole.shape, f"{each.key} {step}", draw, low)
        if is_float(each)
        else kept(each)
        for each in pair.arguments
    }


def given_of_one(pair: Pair, inputs: Mapping[str, Value]) -> dict[int, list[Value]]:
    """Values by number of the tensor that holds them, for a program of one replica."""
    return {_tensor(each.one): [inputs[each.key]] for each in pair.arguments}


def given_of_many(pair: Pair, inputs: Mapping[str, Value]) -> dict[int, list[Value]]:
    """Values of replicas, cut as they hold them: equal parts are one object."""
    replicas = pair.many.ir.replication_factor
    parts = {each.path: parts_of(each, inputs[each.key], replicas) for each in pair.arguments}
    return {
        _tensor(sources[0].many): [parts[each.path][replica] for replica, each in enumerate(sources)]
        for sources in sources_of(pair).values()
    }


def parts_of(both: Both, whole: Value, replicas: int) -> list[Value]:
    """The part of an array on each replica."""
    known: dict[Hashable, Value] = {}
    found = []
    for replica in range(replicas):
        part = both.whole.part(replica)
        key = key_of(part)
        if key not in known:
            known[key] = part_of(whole, part)
        found.append(known[key])
    return found


def _tensor(argument: Argument | Result) -> int:
    """Number of the variable of a state, or of the tensor that data are loaded into."""
    assert argument.tensor is not None
    return argument.tensor._id


def ran(step: Step, given: Mapping[int, list[Value]], draw: int, observe: Any = None) -> ExactRun:
    """One step.

    Raises:
        UnknownError: a loop does not end.
    """
    try:
        return run_exact(step.ir, given, draw, observe, partly=True)
    except UnsupportedError as error:
        raise UnknownError(_advised(str(error))) from error


def _advised(error: str) -> str:
    return f"{error.removeprefix('run_exact: ')}; exact=False compares in float64"


def value_of(run: ExactRun, each: Argument | Result) -> list[Value]:
    """The new value of a state, or a result, on each replica."""
    if isinstance(each, Argument):
        return run.value(_tensor(each))
    assert each.stream is not None
    return run.stored(each.stream._id)


@dataclass
class _Found:
    """A value over all draws."""

    both: Both
    form: str = ""
    verdicts: list[Verdict] = field(default_factory=list)
    elements: int = 0
    replicas: set[int] = field(default_factory=set)
    step: int = 0
    reason: str = "undefined values of one device"

    @property
    def differs(self) -> bool:
        """True if it differed once."""
        return "differs" in self.verdicts

    def add(self, step: int, rows: list[Value], one: Value) -> None:
        """Compare the value of all replicas after a step."""
        parts = parts_of(self.both, one, len(rows))
        known: dict[tuple[int, int], tuple[int, bool]] = {}
        verdict: Verdict = "same"
        for replica in self.both.replicas:
            mine, its = rows[replica], parts[replica]
            if unknown := first_unknown(mine, its):
                self.reason = _advised(unknown.reason)
                verdict = "unknown" if verdict == "same" else verdict
                continue
            key = id(mine), id(its)
            if key not in known:
                known[key] = _apart(mine, its)
            apart, undefined = known[key]
            if apart:
                verdict = "differs"
                self._differ(replica, apart, step)
            elif undefined and verdict == "same":
                verdict = "unknown"
        self.verdicts.append(verdict)

    def _differ(self, replica: int, apart: int, step: int) -> None:
        self.replicas.add(replica)
        self.elements = max(self.elements, apart)
        self.step = step + 1 if not self.step else min(self.step, step + 1)

    def value(self) -> SameValue:
        """The verdict: one draw that differs decides, and an undefined value is never the same."""
        role: Any = self.both.role
        draws = len(self.verdicts) // STEPS
        if self.differs:
            size = math.prod(self.both.many.shape)
            reason = f"in {self.elements} of {size} elements"
            return SameValue(
                self.both.path, role, "differs", reason, tuple(sorted(self.replicas)), draws, None, self.step
            )
        if "unknown" in self.verdicts:
            return SameValue(self.both.path, role, "unknown", self.reason, (), draws)
        return SameValue(self.both.path, role, "same", self.form, (), draws)


def _means(both: Both, rows: list[Value]) -> list[Value]:
    """The mean over the replicas that hold a value, on each."""
    total = functools.reduce(lambda a, b: a + b, [rows[replica] for replica in both.replicas])
    return [total / total.constant(float(len(both.replicas)))] * len(rows)


def _apart(mine: Value, its: Value) -> tuple[int, bool]:
    """Number of elements that differ, and whether some are undefined on both sides."""
    equal = same(mine, its)
    if not isinstance(mine, Numbers) or not isinstance(its, Numbers):
        return int(np.sum(~np.broadcast_to(equal, its.shape))), False
    undefined = mine.is_undefined() & its.is_undefined()
    return int(np.sum(~equal & ~undefined)), bool(undefined.any())


def agrees(pair: Pair, one: ExactRun, draw: int, inputs: Mapping[str, Value]) -> bool:
    """True if all values of a step are those of a run of its reference.

    Args:
        pair: the two.
        one: the run.
        draw: number of its draw.
        inputs: global values before the step.
    """
    many = ran(pair.many, given_of_many(pair, inputs), draw)
    return all(_agrees(each, value_of(many, each.many), value_of(one, each.one)[0]) for each in pair.compared)


def _agrees(both: Both, rows: list[Value], whole: Value) -> bool:
    return _is_same(both, rows, whole) or (both.may_be_mean and _is_same(both, _means(both, rows), whole))


def _is_same(both: Both, rows: list[Value], whole: Value) -> bool:
    found = _Found(both)
    found.add(0, rows, whole)
    return found.verdicts == ["same"]


class Sides:
    """Comparisons of floats of a program, and which of their sides were taken.

    Args:
        step: the program.
    """

    def __init__(self, step: Step) -> None:
        """Without any run seen."""
        self._core = step.ir._core
        self._taken: dict[tuple[int, int], Any] = {}

    @property
    def unseen(self) -> list[str]:
        """Places of the comparisons with a side that was not taken."""
        return [self._core.location_of(op) for (op, _), taken in self._taken.items() if _is_one_sided(taken)]

    def add(self, run: ExactRun) -> None:
        """See a run."""
        for op, sides in run.sides.items():
            for number, taken in enumerate(sides):
                self._taken[op, number] = self._taken.get((op, number), np.uint8(0)) | taken


def _is_one_sided(taken: Any) -> bool:
    """True if elements that some draw decided always came to one outcome.

    What a draw decides before counts as well: a ReLU that is zero has decided the comparison of its gradient.
    """
    drawn = taken[(taken & DRAWN) != 0]
    both = TAKEN_FALSE | TAKEN_TRUE
    return bool(drawn.size) and (np.bitwise_or.reduce(drawn) & both) != both
