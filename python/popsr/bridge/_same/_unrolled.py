"""A run of a program as one list of ops: bodies of calls and loops stand in it as often as they run."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from popsr import _core
from popsr._program.op import Op
from popsr.bridge._same._forms import top

__all__ = ["Event", "Origin", "Recorder", "Unrolled"]

Rows = Sequence[Any]
"""A value for each replica."""


Origin = tuple[str, str, int]
"""Kind and line of an op, and which it is of those of its kind and line.

A step and the same step on one device have the same ones.
"""


class Event(NamedTuple):
    """An op that ran.

    Attributes:
        op: its number.
        origin: its kind and line, and which of them it is.
        operands: numbers of the values that it took; None of constants.
        results: numbers of the values that it made.
    """

    op: int
    origin: Origin
    operands: tuple[int | None, ...]
    results: tuple[int, ...]


class Seen(NamedTuple):
    """An op that has ended, and what it made."""

    op: int
    origin: Origin
    made: Sequence[Rows]


class Recorder:
    """Ops of a run, in the order in which they end: the ``observe`` of a run.

    Args:
        core: the program.
    """

    def __init__(self, core: Any) -> None:
        """Without any op."""
        self.seen: list[Seen] = []
        self._core = core
        self._counts: dict[tuple[str, str], int] = {}

    def origin(self, op: Op) -> Origin:
        """The origin of an op that has ended: called once for each."""
        key = self._core.op_kind(op.id), self._core.location_of(op.id)
        self._counts[key] = self._counts.get(key, 0) + 1
        return *key, self._counts[key]

    def __call__(self, op: Op, outputs: Sequence[Rows]) -> Any:
        origin = self.origin(op)
        made = []
        for rows in outputs:
            known: dict[int, Any] = {}
            made.append([known.setdefault(id(row), top(row)) for row in rows])
        self.seen.append(Seen(op.id, origin, made))


@functools.cache
def _with_body() -> frozenset[str]:
    """Ops that run one graph: calls and loops."""
    return frozenset(each["name"] for each in _core.op_schemas() if each["control"] in ("call", "repeat"))


@dataclass(frozen=True, eq=False)
class Unrolled:
    """Ops of a run in order, and their values.

    Attributes:
        core: the program.
        events: ops; a call or a loop is none, but what it runs.
        rows: values for each replica, by number.
        maker: number of the event that makes a value.
        main: numbers of the last values of tensors of the main graph.
    """

    core: Any
    events: list[Event]
    rows: list[Rows]
    maker: dict[int, int]
    main: dict[int, int]

    @classmethod
    def of(cls, core: Any, seen: Sequence[Seen], given: Mapping[int, Rows]) -> Unrolled:
        """The run of a program whose values of variables and data are given."""
        made = cls(core, [], [], {}, {})
        for tensor, rows in given.items():
            made.main[tensor] = made._value([top(row) for row in rows])
        _Reader(made, seen).graph(0, made.main)
        return made

    def _value(self, rows: Rows) -> int:
        self.rows.append(rows)
        return len(self.rows) - 1

    def add(self, seen: Seen, operands: Sequence[int | None], made: Sequence[Rows]) -> tuple[int, ...]:
        """One more op, and the numbers of what it makes."""
        results = tuple(self._value(rows) for rows in made)
        self.maker.update((each, len(self.events)) for each in results)
        self.events.append(Event(seen.op, seen.origin, tuple(operands), results))
        return results


class _Reader:
    """Values seen in a run, beside the program that ran."""

    def __init__(self, into: Unrolled, seen: Sequence[Seen]) -> None:
        """Before the first op."""
        self._into, self._core, self._left = into, into.core, iter(seen)
        self._next = next(self._left, None)

    def graph(self, graph: int, values: dict[int, int]) -> None:
        """Read one run of a graph, whose values are added."""
        for op in self._core.graph_ops(graph):
            operands = [None if t is None else values.get(t) for t in self._core.op_inputs(op)]
            inner = self._inside(op, operands)
            end = self._end_of(op)
            if not any(value is not None for value in inner):
                results: Sequence[int] = self._into.add(end, operands, end.made)
            else:
                results = [
                    self._into.add(end, operands, [rows])[0] if value is None else value
                    for value, rows in zip(inner, end.made, strict=True)
                ]
            values.update(zip(self._core.op_outputs(op), results, strict=True))

    def _inside(self, op: int, operands: list[int | None]) -> list[int | None]:
        """The values that the body of a call or loop ends with; empty of other ops and of bodies that do not run."""
        found: list[int | None] = []
        if self._core.op_kind(op) not in _with_body():
            return found
        body = self._core.op_attributes(op)["graph"]
        while self._next is not None and self._next.op != op:
            taken = [*found, *operands[len(found) :]]
            pairs = zip(self._core.graph_inputs(body), taken, strict=True)
            values = {tensor: value for tensor, value in pairs if value is not None}
            self.graph(body, values)
            found = [values.get(tensor) for tensor in self._core.graph_outputs(body)]
        return found

    def _end_of(self, op: int) -> Seen:
        """The end of an op; what ran inside of it and was not read is passed over."""
        while self._next is not None:
            seen, self._next = self._next, next(self._left, None)
            if seen.op == op:
                return seen
        raise AssertionError
