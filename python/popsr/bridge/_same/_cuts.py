"""Places of replicas' parts in arrays of one device: as the user says, as of their owner, or by initial values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from popsr._support.text.shown import shown
from popsr.bridge._same._by_value import places_by_value
from popsr.bridge._same._parts import key_of, part_of, positions_of
from popsr.bridge._step.arguments import (
    Argument,
    Array,
    Cut,
    Part,
    Placement,
    Result,
    Whole,
    groups_of_holders,
)
from popsr.errors import ArgumentTypeError, AttributeValueError, ShapeError

__all__ = ["Places", "Share", "covered_positions", "declared"]


@dataclass(frozen=True, slots=True)
class _Lines:
    """Indices along the one dimension in which replicas' parts are shorter.

    Attributes:
        path: of the state.
        whole: length of the array.
        part: length of what a replica has.
        of_replicas: the indices that each has, -1 for padding; none of replicas without it.
    """

    path: str
    whole: int
    part: int
    of_replicas: tuple[tuple[int, ...], ...]

    def blocks(self) -> tuple[int, ...] | None:
        """The number of the block that each replica has; None where parts are no blocks of their length."""
        if self.whole % self.part:
            return None
        found = [each[0] // self.part if each else -1 for each in self.of_replicas]
        fit = zip(found, self.of_replicas, strict=True)
        return tuple(found) if all(n < 0 or its == _block(n, self.part) for n, its in fit) else None

    def scaled(self, whole: int, part: int) -> tuple[tuple[int, ...], ...] | None:
        """Indices of another array that is cut alike; None where that is not known."""
        if (whole, part) == (self.whole, self.part):
            return self.of_replicas
        blocks = self.blocks()
        if blocks is None or whole % part or whole // part != self.whole // self.part:
            return None
        return tuple(_block(number, part) if number >= 0 else () for number in blocks)


@dataclass(frozen=True, slots=True)
class Share:
    """A value of a step on the replicas that hold it, or on some of them.

    Attributes:
        argument: the value.
        groups: the replicas, those that are given equal values together.
    """

    argument: Argument
    groups: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, argument: Argument, replicas: Sequence[int] | None = None) -> Share:
        """A value on some replicas; on all that hold it without."""
        held = argument.held if replicas is None else replicas
        return cls(argument, tuple(groups_of_holders(argument.grouping, held)))

    @classmethod
    def of_result(cls, result: Result, held: Sequence[int]) -> Share:
        """A result, which groups return parts of as the user says."""
        assert result.parts is not None
        placement = Placement(cut=result.cut)
        return cls.of(
            Argument(
                result.path,
                "data",
                result.shape,
                result.dtype,
                result.parts,
                None,
                placement=placement,
                held=(*held,),
            )
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape on one replica."""
        return self.argument.shape

    @property
    def name(self) -> str:
        """The path as the replicas call it."""
        return self.argument.placement.name or self.argument.path

    @property
    def replicas(self) -> tuple[int, ...]:
        """The replicas, in order."""
        return tuple(sorted(each for members in self.groups for each in members))

    @property
    def rows(self) -> list[Array] | None:
        """The array that each group was read with; None of a shape alone."""
        if self.argument.example is None:
            return None
        rows, numbers = self.argument.example.reshape(-1, *self.shape), self.argument.grouping.assignment
        return [rows[numbers[members[0]]] for members in self.groups]

    def of_replicas(self, of_groups: Sequence[Any]) -> list[Any]:
        """The values of groups, one for each of their replicas, in order."""
        own = {each: part for members, part in zip(self.groups, of_groups, strict=True) for each in members}
        return [own[replica] for replica in self.replicas]

    def whole(self, shape: tuple[int, ...], places: Sequence[Part]) -> Whole:
        """An array of which replicas hold these parts."""
        own = dict(zip(self.replicas, places, strict=True))
        return Whole(shape, lambda replica: own[replica])

    def filled(self, whole: Whole) -> Whole:
        """Places with those of other replicas: others have the place of their group, or of the first one."""
        numbers, own, first = self.argument.grouping.assignment, {*self.replicas}, self.groups[0][0]
        of_group = {numbers[members[0]]: members[0] for members in self.groups}
        like = [each if each in own else of_group.get(number, first) for each, number in enumerate(numbers)]
        return Whole(whole.shape, lambda replica: whole.part(like[replica]))

    def by_group(self) -> list[Share]:
        """The share of each group."""
        return [Share(self.argument, (members,)) for members in self.groups]


class Places:
    """Places of states and data of a step in those of its reference, each found with those before."""

    def __init__(self) -> None:
        """Without any place."""
        self._known: list[tuple[Share, Whole]] = []
        self._lines: list[_Lines] = []

    def whole_of(self, many: Share, one: Argument) -> Whole | None:
        """The place of what replicas hold in the reference's array; None where it is not known.

        A place that is found holds the initial values, so that what is proved from there is so for these.

        Raises:
            AttributeValueError: ``cuts`` of the user do not fit.
            ShapeError: a function of the user gives parts of another shape.
            ArgumentTypeError: it gives no positions.
        """
        placement = many.argument.placement
        found = placement.whole
        if found is None and placement.cut is not None:
            found = declared(many, one.shape, placement.cut)
        if found is None and many.shape == one.shape and len(many.groups) == 1:
            found = Whole(one.shape, lambda _: ())
        if found is None:
            ways = (self._as_owner, _by_value, self._as_neighbours, _in_order)
            tried = (places for way in ways if (places := way(many, one)) is not None)
            found = next((made for made in (_fitting(many, one, each) for each in tried) if made), None)
        if found is not None:
            found = many.filled(found)
            self._known.append((many, found))
            self._learn(many, found)
        return found

    def _as_owner(self, many: Share, one: Argument) -> list[Part] | None:
        """Places of the parameter that a state of the optimiser belongs to."""
        owner = many.argument.placement.owner
        if owner in ("", many.name):
            return None
        found: dict[int, Part] = {}
        for share, whole in self._known:
            if owner == share.name and (share.shape, whole.shape) == (many.shape, one.shape):
                found |= {replica: whole.part(replica) for replica in share.replicas}
        return [found[replica] for replica in many.replicas] if {*many.replicas} <= {*found} else None

    def _as_neighbours(self, many: Share, one: Argument) -> list[Part] | None:
        """Places of the states of the same module that are cut into as many parts, where these agree."""
        dim = _shorter(many, one)
        if many.argument.role != "state" or dim is None:
            return None
        nearest: list[tuple[tuple[int, ...], ...]] = []
        depth = -1
        for each in self._lines:
            near, found = _common(each.path, many.name), each.scaled(one.shape[dim], many.shape[dim])
            own = () if found is None else tuple(found[replica] for replica in many.replicas)
            if own and all(own) and near >= depth:
                nearest = [*(nearest if near == depth else []), own]
                depth = near
        return [_along(one.shape, dim, own) for own in nearest[0]] if len({*nearest}) == 1 else None

    def _learn(self, many: Share, whole: Whole) -> None:
        dim = _shorter(many, whole)
        if many.argument.role != "state" or dim is None:
            return
        of_replicas: list[tuple[int, ...]] = []
        own = {*many.replicas}
        for replica in range(many.argument.grouping.num_replicas):
            if replica not in own:
                of_replicas.append(())
                continue
            positions = np.moveaxis(positions_of(whole.shape, whole.part(replica)), dim, 0)
            if positions.ndim != len(whole.shape) or not positions.size:
                return
            firsts = positions.reshape(len(positions), -1)[:, 0]
            indices = np.where(firsts < 0, -1, np.unravel_index(np.maximum(firsts, 0), whole.shape)[dim])
            of_replicas.append(tuple(indices.tolist()))
        self._lines.append(_Lines(many.name, whole.shape[dim], many.shape[dim], tuple(of_replicas)))


def _fitting(many: Share, one: Argument, places: Sequence[Part]) -> Whole | None:
    """An array with these places, if they hold the initial values; integers and floats of data move."""
    whole, rows = one.example, many.rows
    if many.argument.role == "state" and whole is not None and rows is not None:
        for place, row in zip(places, many.of_replicas(rows), strict=True):
            if part_of(whole, place).tobytes() != row.tobytes():
                return None
    return many.whole(one.shape, places)


def covered_positions(many: Share, whole: Whole) -> Array:
    """True for each element of an array that some replica holds, flat."""
    seen = np.zeros(int(np.prod(whole.shape, dtype=np.int64)), bool)
    places = {key_of(part): part for part in map(whole.part, many.replicas)}
    for part in places.values():
        positions = positions_of(whole.shape, part)
        seen[positions[positions >= 0]] = True
    return seen


def _by_value(many: Share, one: Argument) -> list[Part] | None:
    found = None if many.rows is None or one.example is None else places_by_value(many.rows, one.example)
    return None if found is None else many.of_replicas(found)


def _in_order(many: Share, one: Argument) -> list[Part] | None:
    """Parts of data in the order of groups, along the one dimension that is cut."""
    dim, count = _shorter(many, one), len(many.groups)
    if many.argument.role != "data" or dim is None or one.shape[dim] != count * many.shape[dim]:
        return None
    return many.of_replicas([_along(one.shape, dim, _block(i, many.shape[dim])) for i in range(count)])


def declared(many: Share, shape: tuple[int, ...], cut: Cut) -> Whole:
    """The place in an array of this shape that the user says."""
    where = f"prove: cuts of {shown(many.argument.path)}"
    if isinstance(cut, int):
        return many.whole(shape, _along_declared(many, shape, cut, where))
    return many.whole(shape, [_moved(many, shape, cut, replica, where) for replica in many.replicas])


def _along_declared(many: Share, shape: tuple[int, ...], dim: int, where: str) -> list[Part]:
    rank, groups = len(shape), len(many.groups)
    fits = len(many.shape) == rank and -rank <= dim < rank
    if fits:
        dim %= rank
        whole = [n * groups if i == dim else n for i, n in enumerate(many.shape)]
    if not fits or tuple(whole) != shape:
        raise AttributeValueError(
            f"{where} do not fit, got dimension {dim} for parts {list(many.shape)} of {list(shape)} in {groups} "
            "groups of replicas, expected a dimension with one part for each group (groups=), or a function"
        )
    return many.of_replicas([_along(shape, dim, _block(i, many.shape[dim])) for i in range(groups)])


def _moved(
    many: Share, shape: tuple[int, ...], cut: Callable[[Array, int], object], replica: int, where: str
) -> Part:
    """The place that a function of the array and the replica takes."""
    size = int(np.prod(shape, dtype=np.int64))
    found = np.asarray(cut(np.arange(1, size + 1).reshape(shape), replica))
    if found.shape != many.shape:
        raise ShapeError(
            f"{where}: another shape on replica {replica}, got {list(found.shape)}, expected {list(many.shape)}"
        )
    if found.dtype.kind not in "iu" or (found < 0).any() or (found > size).any():
        raise ArgumentTypeError(
            f"{where}: a function that computes, got {shown(found.reshape(-1)[:1].tolist())} on replica {replica}, "
            "expected one that only moves elements, and fills with zeros"
        )
    return found.astype(np.int64) - 1


def _shorter(many: Share, one: Argument | Whole) -> int | None:
    """The one dimension in which a part has another length than the array."""
    if len(many.shape) != len(one.shape):
        return None
    dims = [dim for dim, (n, m) in enumerate(zip(many.shape, one.shape, strict=True)) if n != m]
    return dims[0] if len(dims) == 1 else None


def _along(shape: tuple[int, ...], dim: int, indices: Sequence[int]) -> Part:
    """The place of some indices along a dimension."""
    first = indices[0] if len(indices) else 0
    if first >= 0 and tuple(indices) == tuple(range(first, first + len(indices))):
        return (*[slice(None)] * dim, slice(first, first + len(indices)))
    positions = positions_of(shape, ())
    picked = np.take(positions, np.maximum(indices, 0), dim)
    kept = np.asarray(indices).reshape([-1 if d == dim else 1 for d in range(len(shape))]) >= 0
    return np.where(kept, picked, -1)


def _block(number: int, length: int) -> tuple[int, ...]:
    return tuple(range(number * length, (number + 1) * length))


def _common(a: str, b: str) -> int:
    """Number of modules that two paths share."""
    return sum(1 for _ in _shared(a.split(".")[:-1], b.split(".")[:-1]))


def _shared(a: Sequence[str], b: Sequence[str]) -> Iterator[str]:
    for name, other in zip(a, b, strict=False):
        if name != other:
            return
        yield name
