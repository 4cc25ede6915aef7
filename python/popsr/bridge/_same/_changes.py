"""Changes of a step that may make it the same as one device, the likeliest first."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, Literal, NamedTuple

from popsr._program.building.location import short_place
from popsr.analysis._axes import ReplicaAxes, shown_axes
from popsr.bridge._advice._edited import Change, Insertion
from popsr.bridge._same._forms import axes_of
from popsr.bridge._same._place import place_shown
from popsr.bridge._same._suspects import Partial, Suspect, Suspects
from popsr.bridge._same._values import called_at
from popsr.bridge._step.arguments import Step
from popsr.bridge._step.names import WORDS
from popsr.ops._kinds import REDUCTIONS, SCALES
from popsr.replicas import ReplicaGrouping

__all__ = ["Changes", "Tried"]

_OTHER = {"add": "mean", "mean": "add"}
"""Reductions that are tried in the place of others."""


class Tried(NamedTuple):
    """A change, in words.

    Attributes:
        text: the words.
        op: an op of its line.
        changes: ops in another form.
        insertions: reductions that are put in.
    """

    text: str
    op: int
    changes: Mapping[int, Change] = {}
    insertions: tuple[Insertion, ...] = ()


class Changes:
    """Changes of a step at suspected ops.

    Args:
        many: the step.
        one: the reference.
        suspects: the ops.
    """

    def __init__(self, many: Step, one: Step, suspects: Suspects) -> None:
        """Without any change made."""
        self._many, self._one, self._suspects = many, one, suspects
        self._core, self._axes = many.ir._core, axes_of(many)
        self._derivatives = many.derivatives
        self._sites, self._their_sites = _Sites(many), _Sites(one)

    def all(self) -> Iterator[Tried]:
        """Numbers that a user wrote, reductions, what does nothing on one device, then other numbers and factors."""
        every = self._suspects.ops
        first = [each for each in every if each.op == every[0].op]
        scaled = [each for each in every if each.scale != 1]
        ordered = itertools.chain(
            self._of(every, self._numbers),
            self._of(first, self._reductions),
            self._insertions(),
            self._of(scaled, self._reductions),
            self._of(every, self._reductions),
            self._idle(),
            self._of(every, self._counts),
            self._of([*first, *scaled], self._factors),
            self._of(every, self._means_of_derivatives),
            self._of(every, self._numbers_of_derivatives),
        )
        seen = set[tuple[str, str]]()
        for tried in ordered:
            key = tried.text, self._line(tried.op)
            if key not in seen:
                seen.add(key)
                yield tried

    def _of(self, suspects: Iterable[Suspect], kind: Callable[[Suspect], Iterable[Tried]]) -> Iterator[Tried]:
        return (tried for suspect in suspects for tried in kind(suspect))

    def _idle(self) -> Iterator[Tried]:
        """Without an op that does nothing on one device, as one that turns a list of one part around."""
        for op in self._suspects.idle:
            for called, ops in self._sites.scopes(op):
                alike = [each for each in ops if each in self._suspects.idle]
                yield self._changed(
                    op, alike, Change(left_out=True), "nothing done", f"{called}, as on one device"
                )

    def _line(self, op: int) -> str:
        return str(self._core.location_of(op))

    def _reductions(self, suspect: Suspect) -> Iterator[Tried]:
        """Another kind of reduction, none, or over other axes.

        Backward passes of a framework have no means: these come later.
        """
        return (each for each in self._all_reductions(suspect) if not self._is_mean_of_derivatives(each))

    def _means_of_derivatives(self, suspect: Suspect) -> Iterator[Tried]:
        return filter(self._is_mean_of_derivatives, self._all_reductions(suspect))

    def _is_mean_of_derivatives(self, tried: Tried) -> bool:
        becomes = {change.attributes.get("op") for change in tried.changes.values()}
        return "mean" in becomes and not self._is_own(tried)

    def _all_reductions(self, suspect: Suspect) -> Iterator[Tried]:
        kind = self._core.op_kind(suspect.op)
        own = self._core.op_attributes(suspect.op)
        if kind not in REDUCTIONS or own["op"] not in _OTHER:
            return
        word, other = WORDS[own["op"]], _OTHER[own["op"]]
        group = own["group"] or self._many.ir.replica_grouping()
        over = self._over(group)
        changes = {} if kind != "replicated_all_reduce" else {f"no {word} over {over}": Change(left_out=True)}
        if not self._is_divided(suspect.op, group.group_size):
            changes[f"a {WORDS[other]} for the {word} over {over}"] = Change({"op": other})
        if kind == "replicated_all_reduce":
            for each in _groupings(self._axes):
                if each.partition != group.partition:
                    text = f"the {word} over {self._over(each)} instead of {over}"
                    changes[text] = Change({"group": each})
        for which, ops in self._scopes(suspect.op):
            alike = [op for op in ops if self._is_alike(op, kind, own)]
            for text, change in changes.items():
                if alike:
                    yield self._changed(suspect.op, alike, change, text, which)

    def _is_divided(self, op: int, size: int) -> bool:
        """True for a sum that its line divides by the number of replicas: it is a mean already."""
        line = self._line(op)
        numbers = (
            _constant(self._many, self._core.op_inputs(user)[1])
            for user in self._sites.users(self._core.op_outputs(op)[0])
            if self._core.op_kind(user) in SCALES and self._line(user) == line
        )
        return any(number is not None and _is_count(number, {float(size)}) for number in numbers)

    def _over(self, group: ReplicaGrouping) -> str:
        names = None if self._many.axes is None else self._many.axes.along(group.partition)
        return " and ".join(names) if names else shown_axes(group.partition, self._many.axes)

    def _is_alike(self, op: int, kind: str, own: Mapping[str, Any]) -> bool:
        attributes = self._core.op_attributes(op) if self._core.op_kind(op) == kind else None
        return attributes is not None and all(attributes[name] == own[name] for name in ("op", "group"))

    def _changed(self, op: int, ops: Iterable[int], change: Change, text: str, which: str) -> Tried:
        return Tried(f"{text} at {short_place(self._line(op))}{which}", op, dict.fromkeys(ops, change))

    def _scopes(self, op: int) -> Iterator[tuple[str, list[int]]]:
        """Ops of a line, then those of one of its calls; each time of both passes, then of one."""
        for called, ops in self._sites.scopes(op):
            backward = [each for each in ops if each in self._derivatives]
            forward = [each for each in ops if each not in self._derivatives]
            yield called, ops
            if backward and forward:
                yield f" in the backward pass{called}", backward
                yield f" in the forward pass{called}", forward

    def _numbers(self, suspect: Suspect) -> Iterator[Tried]:
        """The numbers of one device for those at a line, but for numbers of elements of which a mean is taken."""
        return (each for each, is_count in self._all_numbers(suspect) if not is_count and self._is_own(each))

    def _counts(self, suspect: Suspect) -> Iterator[Tried]:
        """Means over as many elements as on one device: parts have fewer in right steps as well."""
        return (each for each, is_count in self._all_numbers(suspect) if is_count and self._is_own(each))

    def _numbers_of_derivatives(self, suspect: Suspect) -> Iterator[Tried]:
        """Numbers that the framework put in, as of the derivative of a mean: a line does not show them."""
        return (each for each, _ in self._all_numbers(suspect) if not self._is_own(each))

    def _is_own(self, tried: Tried) -> bool:
        return not {*tried.changes} <= self._derivatives

    def _all_numbers(self, suspect: Suspect) -> Iterator[tuple[Tried, bool]]:
        """Numbers of one device at a line, and whether all are numbers of elements."""
        theirs = self._one.ir._core
        for called, ops in self._sites.scopes(suspect.op):
            changes: dict[int, Change] = {}
            words, is_count = "", True
            others = self._their_sites.like(ops, self._sites)
            counts = _counted(self._core, ops), _counted(theirs, others)
            for op, other in _paired(self._core, ops, theirs, others):
                constants = {}
                for at, pair in enumerate(
                    zip(self._core.op_inputs(op), theirs.op_inputs(other), strict=True)
                ):
                    old, new = _constant(self._many, pair[0]), _constant(self._one, pair[1])
                    if old is None or new is None or old.shape != new.shape or old.tobytes() == new.tobytes():
                        continue
                    constants[at] = new
                    is_count &= all(map(_is_count, (old, new), counts))
                    words = words or (f"{_number(new)} for {_number(old)}" if old.size == 1 else "")
                if constants:
                    changes[op] = Change(constants=constants)
            if changes:
                where = f"at {short_place(self._line(suspect.op))}{called}"
                mean = self._mean_of(ops, words)
                text = f"{mean} {where}" if mean else f"{words or 'other numbers'} {where}, as on one device"
                yield Tried(text, suspect.op, changes), is_count

    def _mean_of(self, ops: Iterable[int], words: str) -> str:
        """The change, if the number is by how many replicas a sum of a line is divided."""
        for op in ops:
            if self._core.op_kind(op) in REDUCTIONS:
                group = self._core.op_attributes(op)["group"] or self._many.ir.replica_grouping()
                if words == f"1 for {group.group_size}":
                    return f"a sum for the mean over {self._over(group)}"
        return ""

    def _factors(self, suspect: Suspect) -> Iterator[Tried]:
        """All that a line makes, divided by how many times the value of one device it is.

        Where a backward pass makes it, the line is the first one that takes its results: a user writes a factor there.
        """
        factor = 1 / suspect.scale
        op = self._after_derivatives(suspect.op)
        for which, ops in self._scopes(op) if factor != 1 else ():
            exits = self._sites.exits(ops)
            change = Change(factor=float(factor))
            yield self._changed(op, exits, change, f"{factor} times what is made", which)

    def _after_derivatives(self, op: int) -> int:
        """The first op outside of backward passes that results of an op lead to; itself without one."""
        seen, left = {op}, [op] if op in self._derivatives else []
        while left:
            at = heapq.heappop(left)
            if at not in self._derivatives:
                return at
            users = (user for t in self._core.op_outputs(at) for user in self._sites.users(t))
            for user in users:
                if user not in seen:
                    seen.add(user)
                    heapq.heappush(left, user)
        return op

    def _insertions(self) -> Iterator[Tried]:
        """The sum of parts where it is missing."""
        by_line: dict[tuple[str, tuple[str, ...], Fraction], list[Partial]] = {}
        for each in self._suspects.partial:
            by_line.setdefault((self._line(each.op), each.axes, each.scale), []).append(each)
        for (location, axes, scale), parts in by_line.items():
            maker = self._core.tensor(parts[0].tensor).producer
            made = location if maker is None else self._line(maker)
            used = place_shown(self._many, parts[0].op)
            where = f"used at {used}" if made == location else f"made at {short_place(made)}, before {used}"
            for kind, group in self._sums(axes, scale):
                what = f"the {WORDS[kind]} over {self._over(group)} of what is {where}"
                insertions = (
                    Insertion(each.tensor, frozenset([each.op]), kind, group, location) for each in parts
                )
                yield Tried(what, parts[0].op if maker is None else maker, {}, tuple(insertions))

    def _sums(
        self, axes: Sequence[str], scale: Fraction
    ) -> Iterator[tuple[Literal["mean", "add"], ReplicaGrouping]]:
        """Reductions of parts of a multiple of a sum: over all axes, then over some."""
        for count in range(len(axes), 0, -1):
            for some in itertools.combinations(axes, count):
                group = _grouping(self._axes, some)
                means = scale == group.group_size
                yield "mean" if means else "add", group
                yield "add" if means else "mean", group


class _Sites:
    """Ops of a program by their line, and by the lines that it was called from."""

    def __init__(self, step: Step) -> None:
        """Read the program."""
        self._core, self._callers = step.ir._core, step.callers
        self._ops: dict[str, dict[tuple[str, ...], list[int]]] = {}
        self._users: dict[int, list[int]] = {}
        for op in range(self._core.num_ops):
            calls = self._ops.setdefault(self._core.location_of(op), {})
            calls.setdefault(self._callers.get(op, ()), []).append(op)
            for tensor in self._core.op_inputs(op):
                if tensor is not None:
                    self._users.setdefault(tensor, []).append(op)

    def scopes(self, op: int) -> Iterator[tuple[str, list[int]]]:
        """All ops of the line of an op, and if it is called several times those of its call."""
        calls, callers = self._ops[self._core.location_of(op)], self._callers.get(op, ())
        yield "", sorted(itertools.chain.from_iterable(calls.values()))
        if len(calls) > 1 and callers:
            yield called_at(callers), calls[callers]

    def like(self, ops: Iterable[int], theirs: _Sites) -> list[int]:
        """Ops of the lines and calls of ops of another program."""
        keys = dict.fromkeys((theirs._core.location_of(op), theirs._callers.get(op, ())) for op in ops)
        return [op for line, callers in keys for op in self._ops.get(line, {}).get(callers, ())]

    def users(self, tensor: int) -> Sequence[int]:
        """Ops that take a tensor."""
        return self._users.get(tensor, ())

    def exits(self, ops: Iterable[int]) -> list[int]:
        """Ops that make floats for others than these."""
        inside = {*ops}
        return [op for op in sorted(inside) if self._leaves(op, inside)]

    def _leaves(self, op: int, inside: set[int]) -> bool:
        made = self._core.op_outputs(op)
        if not made or "float" not in self._core.tensor(made[0]).dtype:
            return False
        users = [user for tensor in made for user in self.users(tensor)]
        return not users or any(user not in inside or not self._core.op_outputs(user) for user in users)


def _paired(ours: Any, mine: Sequence[int], theirs: Any, its: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Ops of two programs at one line: of each kind the first with the first."""
    left: dict[str, list[int]] = {}
    for op in its:
        left.setdefault(theirs.op_kind(op), []).append(op)
    for op in mine:
        found = left.get(ours.op_kind(op))
        if found and len(theirs.op_inputs(found[0])) == len(ours.op_inputs(op)):
            yield op, found.pop(0)


def _constant(step: Step, tensor: int | None) -> Any:
    """The array of a constant; None of another tensor."""
    if tensor is None or step.ir._core.tensor(tensor).kind != "constant":
        return None
    info, data = step.ir._core.tensor(tensor), step.ir._core.tensor_data(tensor)
    if data is None:
        return None
    return data.view(step.ir._tensor(tensor).dtype.as_numpy()).reshape(info.shape)


def _counted(core: Any, ops: Iterable[int]) -> set[float]:
    """Elements of an operand for each element of a result, of ops that make fewer elements than they take."""
    found = set[float]()
    for op in ops:
        taken, made = core.op_inputs(op), core.op_outputs(op)
        if taken and made and taken[0] is not None:
            sizes = [math.prod(core.tensor(tensor).shape) for tensor in (taken[0], made[0])]
            if 0 < sizes[1] < sizes[0]:
                found.add(sizes[0] / sizes[1])
    return found


def _is_count(number: Any, counts: set[float]) -> bool:
    """True for a number of elements, or one by it."""
    value = float(number.reshape(-1)[0]) if number.size == 1 else 0.0
    return value in counts or (value != 0.0 and 1.0 / value in counts)


def _number(array: Any) -> str:
    return f"{float(array.reshape(-1)[0]):.4g}"


def _groupings(axes: ReplicaAxes) -> Iterator[ReplicaGrouping]:
    """Groups of the replicas along each set of axes."""
    names = [name for name, size in axes.sizes.items() if size > 1]
    for count in range(1, min(len(names), 3) + 1):
        for some in itertools.combinations(names, count):
            yield _grouping(axes, some)


def _grouping(axes: ReplicaAxes, names: Sequence[str]) -> ReplicaGrouping:
    """Groups of replicas that differ along some axes alone."""
    others = [column for name, column in zip(axes.sizes, axes.coordinates, strict=True) if name not in names]
    replicas = len(axes.coordinates[0])
    keys = [tuple(column[replica] for column in others) for replica in range(replicas)]
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    return ReplicaGrouping.from_assignment([numbers[key] for key in keys])
