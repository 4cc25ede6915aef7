"""The place at which a step computes something else than one device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from popsr._fields import Numbers
from popsr._program.location import short_place
from popsr._text.frames import source_line
from popsr.bridge._arguments import Argument, Result
from popsr.bridge._same._exact import Value, given_of_many, given_of_one, ran
from popsr.bridge._same._forms import ANY, Form, Grid, Known, size_of, top
from popsr.bridge._same._pair import Pair
from popsr.bridge._same._values import Place
from popsr.op import Op
from popsr.ops._kinds import ADDITIVE

__all__ = ["place_of"]


def place_of(pair: Pair, paths: Iterable[str], draw: int, inputs: Mapping[str, Value]) -> Place | None:
    """The place where values of a step leave those of its reference; None where that is not found.

    Args:
        pair: the two.
        paths: of the values that differ.
        draw: number of a draw on which they differ.
        inputs: global values before the step.
    """
    grid = Grid.of(pair.many.axes, pair.many.ir.replication_factor, draw)
    known = Known([size for size in grid.sizes if size > 1])
    for value in inputs.values():
        known.add(value, None)
    origins = _Origins(pair.one.ir._core).of

    def see(op: Op, outputs: Sequence[Sequence[Value]]) -> None:
        for rows in outputs:
            known.add(rows[0], origins.get(op.id))

    ran(pair.one, given_of_one(pair, inputs), draw, see)
    search = _Search(pair, grid, known, draw, inputs)
    both = {each.path: each for each in pair.compared}
    ends = (tensor for path in paths if (tensor := _new_value(both[path].many)) is not None)
    return search.place([*ends])


class _Origins:
    """Kind and line of each op of a main graph, and which of those of its kind and line it is.

    A step and the same step on one device have the same ones.
    """

    def __init__(self, core: Any) -> None:
        """Number the ops of the main graph."""
        seen: dict[tuple[str, str], int] = {}
        self.of: dict[int, tuple[str, str, int]] = {}
        for op in core.graph_ops(0):
            key = core.op_kind(op), core.location_of(op)
            seen[key] = seen.get(key, 0) + 1
            self.of[op] = (*key, seen[key])


def _new_value(each: Argument | Result) -> int | None:
    tensor = each.result if isinstance(each, Argument) else each.tensor
    return None if tensor is None else tensor._id


Found = tuple[int, str]
"""An op, and what is wrong there."""


class _Search:
    """Values of a step with what they are of those of one device."""

    def __init__(self, pair: Pair, grid: Grid, known: Known, draw: int, inputs: Mapping[str, Value]) -> None:
        """Run the step, and keep its values."""
        self._core, self._grid, self._known = pair.many.ir._core, grid, known
        self._origins = _Origins(self._core).of
        self._rows: dict[int, Sequence[Value]] = {}
        self._maker: dict[int, int] = {}
        self._forms: dict[int, Form | None] = {}
        given = given_of_many(pair, inputs)
        for tensor, rows in given.items():
            self._rows[tensor] = [top(row) for row in rows]
        ran(pair.many, given, draw, self._see)

    def _see(self, op: Op, outputs: Sequence[Sequence[Value]]) -> None:
        if op.id not in self._origins:
            return
        for tensor, rows in zip(self._core.op_outputs(op.id), outputs, strict=True):
            seen: dict[int, Value] = {}
            self._rows[tensor] = [seen.setdefault(id(row), top(row)) for row in rows]
            self._maker[tensor] = op.id

    def _form(self, tensor: int) -> Form | None:
        if tensor not in self._forms:
            op = self._maker.get(tensor)
            exchanged = op is not None and self._core.op_kind(op).startswith("replicated_")
            origin = ANY if exchanged else self._origins.get(-1 if op is None else op)
            self._forms[tensor] = self._grid.form(self._rows[tensor], self._known, origin)
        return self._forms[tensor]

    def _fits(self, tensor: int) -> bool:
        """True for values that are known of one device, in any form, and for constants and integers."""
        rows = self._rows.get(tensor)
        return rows is None or not isinstance(rows[0], Numbers) or self._form(tensor) is not None

    def _operands(self, op: int) -> list[int]:
        return [tensor for tensor in self._core.op_inputs(op) if tensor is not None]

    def place(self, ends: Sequence[int]) -> Place | None:
        """The first op that makes the ends differ.

        It is one whose operands fit and whose result does not, or from which an end is a multiple of the value of one
        device.
        """
        first = min(self._departures(ends), default=None)
        found = [] if first is None else [self._before(first)]
        found += [self._of_form(end) for end in ends if (form := self._form(end)) and not form.is_whole]
        known = [each for each in found if each is not None and self._core.location_of(each[0])]
        if not known:
            return None
        op, text = min(known)
        location = self._core.location_of(op)
        return Place(location, source_line(location), text)

    def _departures(self, ends: Iterable[int]) -> Iterator[int]:
        seen, left = set[int](), [*ends]
        while left:
            tensor = left.pop()
            op = self._maker.get(tensor)
            if op is None or op in seen or self._fits(tensor):
                continue
            seen.add(op)
            apart = [each for each in self._operands(op) if not self._fits(each)]
            if not apart:
                yield op
            left += apart

    def _before(self, op: int) -> Found | None:
        """The place of an op, or of an operand whose form it does not take."""
        floats = [t for t in self._operands(op) if t in self._rows and isinstance(self._rows[t][0], Numbers)]
        forms = {tensor: form for tensor in floats if (form := self._form(tensor)) is not None}
        summed = [tensor for tensor, form in forms.items() if "sum" in form.axes]
        if summed:
            return self._of_sum(summed[0], self._core.location_of(op))
        if len({form.scale for form in forms.values()}) > 1 and self._core.op_kind(op) in ADDITIVE:
            return self._where_scaled(max(forms, key=lambda tensor: size_of(forms[tensor].scale)))
        return op, "from values of one device another one"

    def _of_form(self, tensor: int) -> Found | None:
        """The place at which a value became a multiple, or a part of a sum, of that of one device."""
        form = self._form(tensor)
        assert form is not None
        return self._of_sum(tensor, "") if "sum" in form.axes else self._where_scaled(tensor)

    def _of_sum(self, tensor: int, used: str) -> Found | None:
        form = self._form(tensor)
        assert form is not None
        names = ", ".join(n for n, kind in zip(self._grid.names, form.axes, strict=True) if kind == "sum")
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
        op = self._maker.get(tensor)
        while op is not None:
            like = [each for each in self._operands(op) if each in self._maker and self._is(each, is_such)]
            if not like:
                return op
            op = self._maker[like[0]]
        return None

    def _is(self, tensor: int, is_such: Callable[[Form], bool]) -> bool:
        form = self._form(tensor) if isinstance(self._rows[tensor][0], Numbers) else None
        return form is not None and is_such(form)
