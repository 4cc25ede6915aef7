"""A step and its reference on one device: what of both is the same value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from popsr._text.nearest import nearest
from popsr._text.shown import shown
from popsr.bridge._arguments import Argument, Array, Result, Step, Whole
from popsr.bridge._same._cuts import Cuts
from popsr.bridge._same._parts import put
from popsr.errors import AttributeValueError, ReplicaError, ShapeError, UnknownNameError

__all__ = ["STEPS", "Both", "Pair", "UnknownError", "groups_of", "pair_of", "whole_example"]


STEPS = 2
"""Steps on each draw: of the second, counts are one more."""


class UnknownError(Exception):
    """Two steps cannot be compared; the text says why. Never seen by users."""


@dataclass(frozen=True, slots=True)
class Both:
    """A value of both steps.

    Attributes:
        path: its name for the user.
        role: what it is of the step.
        many: the value of the step.
        one: the value of the reference.
        whole: what of the reference's value each replica has.
    """

    path: str
    role: Literal["state", "data", "result"]
    many: Argument | Result
    one: Argument | Result
    whole: Whole

    @property
    def may_be_mean(self) -> bool:
        """True for a result of floats of which nothing is declared: replicas may return parts of a mean."""
        many = self.many
        is_free = isinstance(many, Result) and many.grouping is None and many.whole is None
        return is_free and many.shape == self.one.shape and bool(self.one.dtype.is_floating_point)


@dataclass(frozen=True, slots=True)
class Pair:
    """A step beside its reference.

    Attributes:
        many: the step.
        one: the reference, of one replica.
        arguments: states and data.
        results: what both return.
        unmatched: results of the step with why there is nothing to compare them with.
    """

    many: Step
    one: Step
    arguments: tuple[Both, ...]
    results: tuple[Both, ...]
    unmatched: Mapping[str, str]

    @property
    def states(self) -> tuple[Both, ...]:
        """The states of both."""
        return tuple(each for each in self.arguments if each.role == "state")

    @property
    def compared(self) -> tuple[Both, ...]:
        """States and results."""
        return (*self.states, *self.results)


def pair_of(many: Step, one: Step) -> Pair:
    """Match the values of two steps by their paths.

    Raises:
        ReplicaError: the reference is one for several replicas.
        UnknownNameError: one of them has a state or data that the other lacks.
        AttributeValueError: a state of one is data of the other.
        ShapeError: a value of another shape.
        UnknownError: it is not known what replicas have of a value.
    """
    if one.ir.replication_factor != 1:
        raise ReplicaError(
            f"prove: like is a step of several replicas, got {one.ir.replication_factor}, expected a step for one "
            "device"
        )
    own = next((each.path for each in many.arguments if each.held is not None), None)
    if own is not None:
        raise UnknownError(
            f"only some replicas hold {shown(own)}: pipelines are not compared with one device yet"
        )
    ours, theirs = (
        {each.path: each for each in step.arguments if _is_compared(each)} for step in (many, one)
    )
    for here, there, whose in ((theirs, ours, "the step"), (ours, theirs, "like")):
        for path, each in here.items():
            if path not in there:
                close = nearest(path, there)
                raise UnknownNameError(
                    f"prove: {whose} has no {each.role} of that path, got {shown(path)}, expected "
                    f"{close or 'one of ' + shown(list(there))}"
                )
    cuts = Cuts(many.ir.replication_factor)
    arguments = tuple(_argument(each, theirs[path], cuts) for path, each in ours.items())
    results, unmatched = [], {}
    returned = {each.path: each for each in one.results}
    for result in many.results:
        found = returned.get(result.path)
        whole = None if found is None else _whole_of(result, found, many.ir.replication_factor)
        if found is None:
            unmatched[result.path] = f"the reference returns no {result.path}"
        elif whole is None:
            shape = result.shape if result.whole is None else result.whole.shape
            unmatched[result.path] = (
                f"{result.path} is {list(shape)} where one device returns {list(found.shape)}"
            )
        else:
            results.append(Both(result.path, "result", result, found, whole))
    return Pair(many, one, arguments, tuple(results), unmatched)


def _is_compared(argument: Argument) -> bool:
    return argument.role != "constant" and argument.placement.start != "own"


def _argument(many: Argument, one: Argument, cuts: Cuts) -> Both:
    if many.role != one.role:
        raise AttributeValueError(
            f"prove: {shown(many.path)} is {many.role} of the step, got {one.role} of like, expected the same"
        )
    whole = cuts.whole_of(many, one)
    if whole is None:
        raise UnknownError(
            f"it is not known which parts of {many.role} {shown(many.path)} replicas have, {list(many.shape)} of "
            f"{list(one.shape)}: cuts={{{shown(many.path)}: a dimension, or a function of the whole and the replica}}"
        )
    if whole.shape != one.shape:
        raise ShapeError(
            f"prove: {many.role} {shown(many.path)} has another shape in like, got {list(one.shape)}, expected "
            f"{list(whole.shape)}"
        )
    assert many.role != "constant"
    return Both(many.path, many.role, many, one, whole)


def _whole_of(many: Result, one: Result, replicas: int) -> Whole | None:
    """The place of replicas' results in the reference's: as declared, all of it, or parts along the first axis."""
    shape, part = one.shape, many.shape
    if many.whole is not None:
        return many.whole if many.whole.shape == shape else None
    if part == shape:
        return Whole(shape, lambda _: ())
    if part and shape == (replicas * part[0], *part[1:]):
        return Whole(shape, lambda r: (slice(r * part[0], (r + 1) * part[0]),))
    return None


def groups_of(argument: Argument) -> Iterator[int]:
    """The first replica of each group that is given equal values."""
    return (members[0] for members in argument.grouping.groups)


def whole_example(both: Both) -> Array | None:
    """The array that the step was read with; None of a shape alone."""
    many = both.many
    assert isinstance(many, Argument)
    if many.example is None:
        return None
    rows = many.example.reshape(-1, *many.shape)
    whole = np.zeros(both.whole.shape, rows.dtype)
    for row, replica in zip(rows, groups_of(many), strict=True):
        put(whole, both.whole.part(replica), row)
    return whole
