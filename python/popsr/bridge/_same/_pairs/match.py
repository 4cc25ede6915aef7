"""States and data of a step matched with those of its reference: by name, by initial values, or by their neighbours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from popsr._support.text.nearest import nearest
from popsr._support.text.shown import shown
from popsr.bridge._same._by_value import places_by_value
from popsr.bridge._same._cuts import Places, Share, covered_positions
from popsr.bridge._step.arguments import Argument, Array, Whole
from popsr.errors import AttributeValueError, ShapeError, UnknownNameError

__all__ = ["Match", "UnknownError", "matched", "require_all"]


class UnknownError(Exception):
    """Two steps cannot be compared; the text says why. Never seen by users."""


class Match(NamedTuple):
    """A value of a step on some replicas, and the reference's value that these have, or have parts of."""

    share: Share
    one: Argument
    whole: Whole


def matched(many: Sequence[Argument], one: Sequence[Argument]) -> list[Match]:
    """The reference's value for each state and data of a step, on all replicas that hold it.

    A state is looked for under its name, then by its initial values, as stages of a pipeline may number their layers
    from 0; values that stand for nothing, as zeros, are found beside their neighbours. A state of the optimiser goes
    with its parameter.

    Raises:
        UnknownNameError: one of both has a value that the other lacks.
        AttributeValueError: a state of one is data of the other, or ``cuts`` of the user leave something out.
        ShapeError: a value of another shape.
        UnknownError: it is not known what replicas hold.
    """
    matching = _Matching(one, _in_place(many, one))
    for each in many:
        if not _is_owned(each):
            matching.add(Share.of(each))
    matching.settle()
    for each in many:
        if _is_owned(each):
            matching.follow(Share.of(each))
    order = {id(each): i for i, each in enumerate(many)}
    found = sorted(matching.found, key=lambda match: order[id(match.share.argument)])
    _check_all(many, one, found)
    return found


def _is_owned(each: Argument) -> bool:
    """True for states of an optimiser and the like."""
    return each.placement.owner not in ("", each.placement.name or each.path)


def _in_place(many: Sequence[Argument], one: Sequence[Argument]) -> dict[str, str]:
    """Names of data of the reference by those of the step: as many arguments, which are called otherwise."""
    ours, theirs = ([each.path for each in step if each.role == "data"] for step in (many, one))
    is_renamed = len(ours) == len(theirs) and not {*ours} & {*theirs}
    return dict(zip(ours, theirs, strict=True)) if is_renamed else {}


def _is_constant(share: Share) -> bool:
    rows = share.rows
    return rows is not None and all((row == row.flat[0]).all() for row in rows if row.size)


class _Matching:
    """Matches that are found one after the other.

    Args:
        one: values of the reference.
        data: names of its data by those of the step, where they have others.
    """

    def __init__(self, one: Sequence[Argument], data: Mapping[str, str]) -> None:
        """Without any match."""
        self._data = data
        self.found: list[Match] = []
        self._theirs = {each.path: each for each in one}
        self._order = [each.path for each in one if each.role == "state" and not _is_owned(each)]
        self._places = Places()
        self._own: list[Share] = []
        self._left: list[Share] = []

    def add(self, share: Share) -> None:
        """Match a value by its name or its initial values, or leave it for ``settle``."""
        argument = share.argument
        if argument.placement.like or argument.role != "state":
            self._require(share, argument.placement.like or self._data.get(share.name, share.name))
            return
        self._own.append(share)
        if _is_constant(share):
            self._left.append(share)
        elif not self._try(share, share.name) and not self._by_value(share):
            self._left += [part for part in share.by_group() if not self._by_value(part)]

    def settle(self) -> None:
        """Match what was left: beside neighbours, that may have other names in the reference, else by name."""
        count = -1
        while self._left and count < len(self.found):
            count, before, self._left = len(self.found), self._left, []
            for share in before:
                self._left += self._beside(share)
        for share in self._left:
            self._require(share, share.name)

    def follow(self, share: Share) -> None:
        """Match a state of the optimiser with that of the parameters that it belongs to."""
        owner = share.argument.placement.owner
        before, _, after = share.name.partition(owner)
        of_owner = [
            (match.share.replicas, match.one.path) for match in self.found if match.share.name == owner
        ]
        names: dict[str, list[int]] = {}
        for replica in share.replicas:
            its = next((path for replicas, path in of_owner if replica in replicas), None)
            name = share.name if its is None or owner not in share.name else before + its + after
            names.setdefault(name, []).append(replica)
        for name, replicas in names.items():
            self._require(Share.of(share.argument, replicas) if len(names) > 1 else share, name)

    @property
    def _is_renamed(self) -> bool:
        """True if a state has another name in the reference."""
        return any(match.share.name != match.one.path for match in self.found if match.one.role == "state")

    def _try(self, share: Share, name: str) -> bool:
        """Match a value with the one of a name, if its place is known there."""
        one = self._theirs.get(name)
        if one is None or one.role != share.argument.role:
            return False
        whole = self._places.whole_of(share, one)
        if whole is None:
            return False
        if whole.shape != one.shape:
            raise ShapeError(
                f"prove: {one.role} {shown(name)} has another shape in like, got {list(one.shape)}, expected "
                f"{list(whole.shape)}"
            )
        self.found.append(Match(share, one, whole))
        return True

    def _by_value(self, share: Share) -> bool:
        """Match a value with the only one of the reference that has its initial values."""
        rows = share.rows
        if rows is None:
            return False
        states = [each for path in self._order if (each := self._theirs[path]).example is not None]
        alike = [each for each in states if each.dtype == share.argument.dtype]
        found = [
            each for each in alike if all(each.shape == row.shape and _has_bits(each, row) for row in rows)
        ]
        if not found:
            larger = (each for each in alike if each.example is not None and each.example.size > rows[0].size)
            found = [each for each in larger if places_by_value(rows, np.asarray(each.example)) is not None]
        return len(found) == 1 and self._try(share, found[0].path)

    def _beside(self, share: Share) -> list[Share]:
        """Match a value by its neighbours, each replica's for itself; returns what is left."""
        names: dict[str | None, list[int]] = {} if self._is_renamed else {share.name: [*share.replicas]}
        for replica in share.replicas if self._is_renamed else ():
            names.setdefault(self._expected(share, replica), []).append(replica)
        if None in names:
            return [share]
        left = []
        for name, replicas in names.items():
            part = share if len(names) == 1 else Share.of(share.argument, replicas)
            if name is None or not self._try(part, name):
                left.append(part)
        return left

    def _expected(self, share: Share, replica: int) -> str | None:
        """The path of the reference that a value has beside its neighbours on a replica; None without neighbours."""
        here = [each for each in self._own if replica in each.replicas]
        at = next(i for i, each in enumerate(here) if each.argument is share.argument)
        on_replica = (match for match in self.found if replica in match.share.replicas)
        its = {id(match.share.argument): match.one.path for match in on_replica}
        for step in (-1, 1):
            near = here[at + step] if 0 <= at + step < len(here) else None
            path = None if near is None else its.get(id(near.argument))
            if near is None or path is None:
                continue
            if path == near.name:
                return share.name
            place = self._order.index(path) - step
            name = self._order[place] if 0 <= place < len(self._order) else ""
            if name.rpartition(".")[2] == share.name.rpartition(".")[2]:
                return name
        return None

    def _require(self, share: Share, name: str) -> None:
        """Match a value with the one of a name.

        Raises:
            UnknownNameError: there is none.
            AttributeValueError: it is of another role.
            UnknownError: it is not known what replicas have of it.
        """
        if self._try(share, name):
            return
        many, one = share.argument, self._theirs.get(name)
        if one is None:
            known = [path for path, each in self._theirs.items() if each.role == many.role]
            rest = sum(each.name not in self._theirs for each in self._left) - 1
            more = f" and {rest} more" if rest > 0 else ""
            said = f", or cuts={{{shown(many.path)}: its path there}}" if many.placement.owner else ""
            raise UnknownNameError(
                f"prove: like has no {many.role} of that path, got {shown(name)}{more}, expected "
                f"{nearest(name, known) or 'one of ' + shown(known)}{said}"
            )
        if many.role != one.role:
            raise AttributeValueError(
                f"prove: {shown(many.path)} is {many.role} of the step, got {one.role} of like, expected the same"
            )
        raise UnknownError(
            f"it is not known which parts of {many.role} {shown(many.path)} replicas have, {list(many.shape)} of "
            f"{list(one.shape)}: cuts={{{shown(many.path)}: a dimension, or a function of the whole and the replica}}"
        )


def _has_bits(each: Argument, row: Array) -> bool:
    return each.example is not None and each.example.tobytes() == row.tobytes()


def _check_all(many: Sequence[Argument], one: Sequence[Argument], found: Sequence[Match]) -> None:
    """Refuse values of the reference that no replica holds, or not all of.

    Raises:
        UnknownNameError: there is no state or data for it.
        AttributeValueError: ``cuts`` of the user leave something out.
        UnknownError: other places do.
    """
    for each in one:
        own = [match for match in found if match.one is each]
        if not own:
            close = nearest(each.path, [other.path for other in many])
            raise UnknownNameError(
                f"prove: the step has no {each.role} of that path, got {shown(each.path)}, expected "
                f"{close or 'one of ' + shown([other.path for other in many])}"
            )
        require_all(each.path, each.shape, [(match.share, match.whole) for match in own])


def require_all(path: str, shape: tuple[int, ...], own: Sequence[tuple[Share, Whole]]) -> None:
    """Refuse places that leave something of an array of the reference out.

    Raises:
        AttributeValueError: the user says them.
        UnknownError: others.
    """
    if np.logical_or.reduce([covered_positions(share, whole) for share, whole in own]).all():
        return
    share = own[0][0]
    parts = f"parts {list(share.shape)} of {list(shape)} on {len(share.replicas)} replicas"
    if share.argument.placement.cut is not None:
        raise AttributeValueError(
            f"prove: cuts of {shown(share.argument.path)} leave something out, got {parts}, expected all elements on "
            "some replica"
        )
    raise UnknownError(f"replicas hold a part alone of {shown(path)} of like: {parts}")
