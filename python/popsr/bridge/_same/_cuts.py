"""Places of replicas' parts in arrays of one device: as the user says, as of their owner, or by initial values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from popsr._text.shown import shown
from popsr.bridge._arguments import Argument, Array, Part, Whole
from popsr.bridge._same._by_value import places_by_value
from popsr.bridge._same._parts import part_of, positions_of
from popsr.errors import ArgumentTypeError, AttributeValueError, ShapeError

__all__ = ["Cuts"]


@dataclass(frozen=True, slots=True)
class _Lines:
    """Indices along the one dimension in which replicas' parts are shorter.

    Attributes:
        path: of the state.
        whole: length of the array.
        part: length of what a replica has.
        of_replicas: the indices that each has, -1 for padding.
    """

    path: str
    whole: int
    part: int
    of_replicas: tuple[tuple[int, ...], ...]

    def blocks(self) -> tuple[int, ...] | None:
        """The number of the block that each replica has; None where parts are no blocks of their length."""
        if self.whole % self.part:
            return None
        found = [each[0] // self.part for each in self.of_replicas]
        fit = zip(found, self.of_replicas, strict=True)
        return tuple(found) if all(its == _block(n, self.part) for n, its in fit) else None

    def scaled(self, whole: int, part: int) -> tuple[tuple[int, ...], ...] | None:
        """Indices of another array that is cut alike; None where that is not known."""
        if (whole, part) == (self.whole, self.part):
            return self.of_replicas
        blocks = self.blocks()
        if blocks is None or whole % part or whole // part != self.whole // self.part:
            return None
        return tuple(_block(number, part) for number in blocks)


class Cuts:
    """Places of states and data of a step in those of its reference, each found with those before.

    Args:
        replicas: number of replicas of the step.
    """

    def __init__(self, replicas: int) -> None:
        """Without any place."""
        self._replicas = replicas
        self._known: dict[str, tuple[Argument, Whole]] = {}
        self._lines: list[_Lines] = []

    def whole_of(self, many: Argument, one: Argument) -> Whole | None:
        """The place of what replicas hold in the reference's array; None where it is not known.

        A place that is found holds the initial values, so that what is proved from there is so for these.

        Raises:
            AttributeValueError: ``cuts`` of the user do not fit.
            ShapeError: a function of the user gives parts of another shape.
            ArgumentTypeError: it gives no positions.
        """
        found = many.placement.whole
        if found is None and many.placement.cut is not None:
            found = _declared(many, one)
        if found is None and many.shape == one.shape and many.grouping.num_groups == 1:
            found = Whole(one.shape, lambda _: ())
        if found is None:
            ways = (self._as_owner, _by_value, self._as_neighbours, _in_order)
            tried = (places for way in ways if (places := way(many, one)) is not None)
            found = next((made for made in (_fitting(many, one, each) for each in tried) if made), None)
        if found is not None:
            self._known[many.path] = many, found
            self._learn(many, found)
        return found

    def _as_owner(self, many: Argument, one: Argument) -> list[Part] | None:
        """Places of the parameter that a state of the optimiser belongs to."""
        if many.placement.owner in ("", many.path) or many.placement.owner not in self._known:
            return None
        owner, whole = self._known[many.placement.owner]
        if (owner.shape, whole.shape) != (many.shape, one.shape):
            return None
        return [whole.part(replica) for replica in range(self._replicas)]

    def _as_neighbours(self, many: Argument, one: Argument) -> list[Part] | None:
        """Places of the states of the same module that are cut into as many parts, where these agree."""
        dim = _shorter(many, one)
        if many.role != "state" or dim is None:
            return None
        nearest: list[tuple[tuple[int, ...], ...]] = []
        depth = -1
        for each in self._lines:
            near, found = _common(each.path, many.path), each.scaled(one.shape[dim], many.shape[dim])
            if found is not None and near >= depth:
                nearest = [*(nearest if near == depth else []), found]
                depth = near
        if len({*nearest}) != 1:
            return None
        return [_along(one.shape, dim, indices) for indices in nearest[0]]

    def _learn(self, many: Argument, whole: Whole) -> None:
        dim = _shorter(many, whole)
        if many.role != "state" or dim is None:
            return
        of_replicas = []
        for replica in range(self._replicas):
            positions = np.moveaxis(positions_of(whole.shape, whole.part(replica)), dim, 0)
            if positions.ndim != len(whole.shape) or not positions.size:
                return
            firsts = positions.reshape(len(positions), -1)[:, 0]
            indices = np.where(firsts < 0, -1, np.unravel_index(np.maximum(firsts, 0), whole.shape)[dim])
            of_replicas.append(tuple(indices.tolist()))
        self._lines.append(_Lines(many.path, whole.shape[dim], many.shape[dim], tuple(of_replicas)))


def _fitting(many: Argument, one: Argument, places: Sequence[Part]) -> Whole | None:
    """An array with these places, if they hold the initial values and all of them; integers and floats of data move."""
    whole, rows = one.example, _rows_of(many)
    if many.role == "state" and whole is not None and rows is not None:
        for replica, row in enumerate(rows):
            if part_of(whole, places[replica]).tobytes() != row.tobytes():
                return None
    return Whole(one.shape, lambda r: places[r]) if _holds_all(one.shape, places) else None


def _holds_all(shape: tuple[int, ...], places: Sequence[Part]) -> bool:
    """True if every element of an array is in some place."""
    seen = np.zeros(int(np.prod(shape, dtype=np.int64)), bool)
    for each in {id(place): place for place in places}.values():
        positions = positions_of(shape, each)
        seen[positions[positions >= 0]] = True
    return bool(seen.all())


def _rows_of(many: Argument) -> list[Array] | None:
    """The array that each replica was read with; None of a shape alone."""
    if many.example is None:
        return None
    groups = many.example.reshape(-1, *many.shape)
    return [groups[number] for number in many.grouping.assignment]


def _by_value(many: Argument, one: Argument) -> list[Part] | None:
    if many.example is None or one.example is None:
        return None
    found = places_by_value([*many.example.reshape(-1, *many.shape)], one.example)
    return None if found is None else [found[number] for number in many.grouping.assignment]


def _in_order(many: Argument, one: Argument) -> list[Part] | None:
    """Parts of data in the order of groups, along the one dimension that is cut."""
    dim = _shorter(many, one)
    if many.role != "data" or dim is None or one.shape[dim] != many.grouping.num_groups * many.shape[dim]:
        return None
    return [_along(one.shape, dim, _block(number, many.shape[dim])) for number in many.grouping.assignment]


def _declared(many: Argument, one: Argument) -> Whole:
    """The place that the user says."""
    where = f"prove: cuts of {shown(many.path)}"
    if isinstance(many.placement.cut, int):
        places = _along_declared(many, one, many.placement.cut, where)
    else:
        assert many.placement.cut is not None
        places = [_moved(many, one, many.placement.cut, r, where) for r in range(many.grouping.num_replicas)]
    if not _holds_all(one.shape, places):
        raise AttributeValueError(
            f"{where} leave something out, got parts {list(many.shape)} of {list(one.shape)} on "
            f"{many.grouping.num_replicas} replicas, expected all elements on some replica"
        )
    return Whole(one.shape, lambda replica: places[replica])


def _along_declared(many: Argument, one: Argument, dim: int, where: str) -> list[Part]:
    rank, groups = len(one.shape), many.grouping.num_groups
    fits = len(many.shape) == rank and -rank <= dim < rank
    if fits:
        dim %= rank
        whole = [n * groups if i == dim else n for i, n in enumerate(many.shape)]
    if not fits or tuple(whole) != one.shape:
        raise AttributeValueError(
            f"{where} do not fit, got dimension {dim} for parts {list(many.shape)} of {list(one.shape)} in {groups} "
            "groups of replicas, expected a dimension with one part for each group (groups=), or a function"
        )
    return [_along(one.shape, dim, _block(number, many.shape[dim])) for number in many.grouping.assignment]


def _moved(
    many: Argument, one: Argument, cut: Callable[[Array, int], object], replica: int, where: str
) -> Part:
    """The place that a function of the array and the replica takes."""
    size = int(np.prod(one.shape, dtype=np.int64))
    found = np.asarray(cut(np.arange(1, size + 1).reshape(one.shape), replica))
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


def _shorter(many: Argument, one: Argument | Whole) -> int | None:
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
