"""A step and its reference on one device: what of both is the same value."""

from __future__ import annotations

import collections
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from popsr._support.text.shown import shown
from popsr.bridge._same._cuts import Share, declared
from popsr.bridge._same._pairs.match import Match, UnknownError, matched, require_all
from popsr.bridge._same._parts import put
from popsr.bridge._step.arguments import Argument, Array, Result, Step, Whole
from popsr.errors import ReplicaError

__all__ = ["STEPS", "Both", "Pair", "UnknownError", "example_rows", "pair_of", "sources_of", "whole_example"]


STEPS = 2
"""Steps on each draw: of the second, counts are one more."""


@dataclass(frozen=True, slots=True)
class Both:
    """A value of both steps.

    Attributes:
        path: its name for the user.
        role: what it is of the step.
        many: the value of the step.
        one: the value of the reference.
        whole: what of the reference's value each replica has.
        replicas: those that hold it; others have values that nobody reads.
    """

    path: str
    role: Literal["state", "data", "result"]
    many: Argument | Result
    one: Argument | Result
    whole: Whole
    replicas: tuple[int, ...]

    @property
    def key(self) -> str:
        """The path of the reference's value, which several values of the step may share."""
        return self.one.path

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
    ours, theirs = ([each for each in step.arguments if _is_compared(each)] for step in (many, one))
    matches = matched(ours, theirs)
    counts = collections.Counter(match.share.argument.path for match in matches)
    arguments = tuple(_argument(match, counts[match.share.argument.path] == 1) for match in matches)
    results, unmatched = [], {}
    returned = {each.path: each for each in one.results}
    for result in many.results:
        found = returned.get(result.path)
        held = (*range(many.ir.replication_factor),) if result.held is None else result.held
        whole = None if found is None else _whole_of(result, found, held)
        if found is None:
            unmatched[result.path] = f"the reference returns no {result.path}"
        elif whole is None:
            shape = result.shape if result.whole is None else result.whole.shape
            unmatched[result.path] = (
                f"{result.path} is {list(shape)} where one device returns {list(found.shape)}{_advice(result)}"
            )
        else:
            results.append(Both(result.path, "result", result, found, whole, held))
    return Pair(many, one, arguments, tuple(results), unmatched)


def _is_compared(argument: Argument) -> bool:
    return argument.role != "constant" and argument.placement.start != "own"


def _argument(match: Match, is_alone: bool) -> Both:
    """A state or data; one that is several values of the reference on some replicas each is named with these."""
    many, replicas = match.share.argument, match.share.replicas
    own = f"replica{'s' if len(replicas) > 1 else ''} {', '.join(map(str, replicas))}"
    path = many.path if is_alone else f"{many.path} ({own})"
    assert many.role != "constant"
    return Both(path, many.role, many, match.one, match.whole, replicas)


def _whole_of(many: Result, one: Result, held: tuple[int, ...]) -> Whole | None:
    """The place of replicas' results in the reference's: as declared, all of it, or parts along the first axis."""
    shape, part = one.shape, many.shape
    if many.cut is not None:
        share = Share.of_result(many, held)
        said = declared(share, shape, many.cut)
        require_all(many.path, shape, [(share, said)])
        return share.filled(said)
    if many.whole is not None:
        return many.whole if many.whole.shape == shape else None
    if part == shape:
        return Whole(shape, lambda _: ())
    if part and shape == (len(held) * part[0], *part[1:]):
        rows = {replica: slice(i * part[0], (i + 1) * part[0]) for i, replica in enumerate(held)}
        return Whole(shape, lambda replica: (rows.get(replica, rows[held[0]]),))
    return None


def _advice(result: Result) -> str:
    """Advice to say which parts replicas return, where the importer takes it."""
    if result.parts is None:
        return ""
    return f": cuts={{{shown(result.path)}: a dimension, or a function of the whole and the replica}}"


def sources_of(pair: Pair) -> dict[str, list[Both]]:
    """For each argument of the step what each replica has; others have what the first one has."""
    found: dict[str, list[Both]] = {}
    for each in pair.arguments:
        sources = found.setdefault(each.many.path, [each] * pair.many.ir.replication_factor)
        for replica in each.replicas:
            sources[replica] = each
    return found


def example_rows(both: Both) -> list[tuple[int, Array]]:
    """The arrays of groups that the step was read with, beside the first replica of each; none of a shape alone."""
    share = Share.of(both.many, both.replicas) if isinstance(both.many, Argument) else None
    rows = None if share is None else share.rows
    if share is None or rows is None:
        return []
    return [(members[0], row) for members, row in zip(share.groups, rows, strict=True)]


def whole_example(both: Both) -> Array | None:
    """The array that the step was read with; None of a shape alone. What others hold is the reference's."""
    rows = example_rows(both)
    if not rows:
        return None
    example = both.one.example if isinstance(both.one, Argument) else None
    whole = np.zeros(both.whole.shape, rows[0][1].dtype)
    if example is not None and example.shape == both.whole.shape:
        whole[...] = example
    for replica, row in rows:
        put(whole, both.whole.part(replica), row)
    return whole
