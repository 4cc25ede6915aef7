"""Fresh values: what a step and its reference have found equal is drawn anew, so exps lie inside of fewer others.

Programs that are equal up to some values, and from any such values on, are equal. So "the same" with fresh values is
the same; "differs" may be a relation between fresh values and others, which is lost, and says nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from popsr._program.building.location import short_place
from popsr._program.op import Op
from popsr._support.fields import TOP, Numbers
from popsr.bridge._exact import ExactRun
from popsr.bridge._same._exact import Exactly, Value, given_of_many, given_of_one, inputs_of, ran
from popsr.bridge._same._forms import digest_of, top
from popsr.bridge._same._pairs.pair import Pair
from popsr.bridge._same._parts import blocks_of
from popsr.bridge._same._unrolled import Origin, Recorder, Seen, Unrolled
from popsr.bridge._same._values import first_few
from popsr.bridge._step.arguments import Step

__all__ = ["Afresh"]

_MOST_ROUNDS = 24
"""Values that are drawn anew: each allows for some ten exps more inside of each other."""

Rows = Sequence[Any]
Name = tuple[Origin, int]
"""The op of the reference that makes a value, and which of its results it is."""


class Afresh(Exactly):
    """A step and its reference in exact arithmetic, with fresh values in place of some that are equal.

    Args:
        pair: the two.
    """

    def __init__(self, pair: Pair) -> None:
        """Find the values that are drawn anew."""
        super().__init__(pair)
        self._names = _Choice(pair).names

    @property
    def notes_of_fresh(self) -> Iterator[str]:
        """Lines of the reference whose values are drawn anew."""
        if self._names:
            places = first_few(short_place(origin[1]) for origin, _ in self._names)
            yield f"values that are equal are drawn anew, for exps inside of others, at {places}"

    def same(self) -> set[str]:
        """Paths of states and results that are the same with fresh values."""
        if not self._names:
            return set()
        self._decided()
        return {each.both.path for each in self._outcomes if each.value().ok}

    def _runs(self, inputs: Mapping[str, Value], draw: int, step: int) -> tuple[ExactRun, ExactRun]:
        return _runs(self.pair, self._names, inputs, (draw, step))[:2]


Draw = tuple[int, int]
"""Number of a draw, and of the step."""


def _runs(
    pair: Pair, names: Sequence[Name], inputs: Mapping[str, Value], draw: Draw
) -> tuple[ExactRun, ExactRun, _Watch, _Watch]:
    """Both programs, with fresh values for those of some names."""
    fresh = _Fresh(pair.many.ir.replication_factor)
    of_one = _Watch(pair.one, fresh, draw, names)
    one = ran(pair.one, given_of_one(pair, inputs), draw[0], of_one)
    of_many = _Watch(pair.many, fresh, draw)
    return one, ran(pair.many, given_of_many(pair, inputs), draw[0], of_many), of_one, of_many


class _Fresh:
    """Values of one device with the fresh ones that stand for them, and for their parts on replicas.

    Wherever a value is made that is equal to one of them, or to a block of one, the fresh one takes its place: so equal
    values stay equal, in both programs.
    """

    def __init__(self, replicas: int) -> None:
        """Without any value."""
        self._replicas = replicas
        self._pairs: list[tuple[Numbers, Numbers]] = []
        self._blocks: dict[tuple[int, ...], dict[bytes, Numbers | None]] = {}

    def add(self, value: Numbers, fresh: Numbers) -> None:
        """One more value."""
        self._pairs.append((top(value), fresh))
        self._blocks.clear()

    def of(self, value: Any) -> Any:
        """The fresh value for a value; itself if there is none."""
        if not self._pairs or not isinstance(value, Numbers) or not value.low:
            return value
        known = self._known(value.shape)
        found = known.get(digest_of(value)) if known else None
        return value if found is None else found

    def _known(self, shape: tuple[int, ...]) -> Mapping[bytes, Numbers | None]:
        """Fresh values of a shape by what they stand for; None for what is at several places of one value."""
        if shape not in self._blocks:
            found: dict[bytes, Numbers | None] = {}
            for value, fresh in self._pairs:
                for block in blocks_of(value.shape, shape, self._replicas):
                    digest = digest_of(value[block])
                    found[digest] = None if digest in found else fresh[block]
            self._blocks[shape] = found
        return self._blocks[shape]


@dataclass(frozen=True, slots=True)
class _Level:
    """A value of a run: how deep exps of it are, and itself in the last field."""

    depth: int
    value: Numbers


class _Watch(Recorder):
    """Ops of a run, in which fresh values take the place of others.

    Args:
        step: the program.
        fresh: the values.
        draw: number of the draw, and of the step.
        names: values of this run that are drawn anew.
    """

    def __init__(self, step: Step, fresh: _Fresh, draw: Draw, names: Sequence[Name] = ()) -> None:
        """Without any op."""
        super().__init__(step.ir._core)
        self._fresh, self._draw, self._names = fresh, draw, frozenset(names)

    def __call__(self, op: Op, outputs: Sequence[Rows]) -> list[list[Any]]:
        origin = self.origin(op)
        for number, rows in enumerate(outputs):
            if (origin, number) in self._names and _can_stand(rows[0]):
                draw, step = self._draw
                self._fresh.add(rows[0], Numbers.draw(rows[0].shape, f"{origin} {number} {step}", draw))
        known: dict[int, Any] = {}
        made = [[known.setdefault(id(row), self._fresh.of(row)) for row in rows] for rows in outputs]
        levels: dict[int, Any] = {}
        seen = [[levels.setdefault(id(row), _level(row)) for row in rows] for rows in made]
        self.seen.append(Seen(op.id, origin, seen))
        return made


def _level(value: Any) -> Any:
    return _Level(value.low, top(value)) if isinstance(value, Numbers) else None


def _can_stand(value: Any) -> bool:
    """True for numbers that are all finite and inside of exps."""
    return isinstance(value, Numbers) and value.huge is None and value.low > 0


class _Choice:
    """Values through which alone later exps follow from those before, until no exp is too deep.

    They are found on the first draw.

    Args:
        pair: the two programs.
    """

    def __init__(self, pair: Pair) -> None:
        """Choose them, one after the other."""
        self._pair = pair
        self._inputs = inputs_of(pair, 0, 0, 0)
        self.names: list[Name] = []
        for _ in range(_MOST_ROUNDS):
            one, _, of_one, of_many = _runs(pair, self.names, self._inputs, (0, 0))
            if not one.beyond:
                break
            run = Unrolled.of(pair.one.ir._core, of_one.seen, given_of_one(pair, self._inputs))
            values = [*_Depths(run, self.names).bottlenecks()]
            found = self._known_of(of_many.seen, [run.rows[value][0].value for value in values])
            if found is None:
                break
            event = run.events[run.maker[values[found]]]
            self.names.append((event.origin, event.results.index(values[found])))

    def _known_of(self, seen: Iterable[Seen], values: Sequence[Numbers]) -> int | None:
        """The first of some values that replicas have, in whole or in parts."""
        known: dict[tuple[int, ...], dict[bytes, set[int]]] = {}
        found: set[int] = set()
        replicas = self._pair.many.ir.replication_factor
        for rows in (rows for each in seen for rows in each.made):
            levels = {id(row): row for row in rows}.values()
            if not all(isinstance(each, _Level) and each.depth for each in levels):
                continue
            shape = rows[0].value.shape
            if shape not in known:
                known[shape] = {}
                for number, value in enumerate(values):
                    for block in blocks_of(value.shape, shape, replicas):
                        known[shape].setdefault(digest_of(value[block]), set()).add(number)
            if known[shape]:
                found |= set.intersection(
                    *(known[shape].get(digest_of(each.value), set()) for each in levels)
                )
        return min(found, default=None)


class _Depths:
    """Values of the reference by the number of exps in each other.

    Args:
        run: the reference, whose rows are levels.
        names: values that are drawn anew already: what lies before the last of them is passed over.
    """

    def __init__(self, run: Unrolled, names: Sequence[Name]) -> None:
        """Read the depth of each value."""
        self._run = run
        last = {origin for origin, _ in names}
        self._first = max((i + 1 for i, each in enumerate(run.events) if each.origin in last), default=0)
        self._depth = [each[0].depth if isinstance(each[0], _Level) else 0 for each in run.rows]
        deep = (i for i in range(self._first, len(run.events)) if self._raised(i) == TOP)
        self._end = next(deep, len(run.events))

    def _raised(self, event: int) -> int:
        """The depth that an exp leads to; 0 of other ops."""
        most = max((self._depth[each] for each in self._run.events[event].results), default=0)
        return most if most > max(map(self._depth.__getitem__, self._operands(event)), default=0) else 0

    def _operands(self, event: int) -> set[int]:
        return {each for each in self._run.events[event].operands if each is not None}

    def bottlenecks(self) -> Iterator[int]:
        """Values that all ways from exps of one depth to those of the next lead through: the deepest and last first."""
        for depth in range(TOP - 1, 0, -1):
            yield from reversed([*self._through(depth)])

    def _through(self, depth: int) -> Iterator[int]:
        """Bottlenecks of one depth: as many ways lead to and from them as there are."""
        events = range(self._first, min(self._end + 1, len(self._run.events)))
        into: dict[int, int] = {}
        for event in events:
            ways = sum(into.get(each, 1) for each in self._operands(event) if self._depth[each] == depth)
            into.update(
                (each, ways or 1) for each in self._run.events[event].results if self._depth[each] == depth
            )
        out: dict[int, int] = {}
        for event in reversed(events):
            ends = int(self._raised(event) == depth + 1)
            ways = ends + sum(out.get(each, 0) for each in self._run.events[event].results)
            for each in self._operands(event):
                if ways and self._depth[each] == depth:
                    out[each] = out.get(each, 0) + ways
        sources = (
            ways
            for each, ways in out.items()
            if each not in into
            or not any(self._depth[o] == depth for o in self._operands(self._run.maker[each]))
        )
        total = sum(sources)
        for each, ways in into.items():
            if total and ways * out.get(each, 0) == total and self._run.rows[each][0].value.huge is None:
                yield each
