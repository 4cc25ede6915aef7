"""Changes of a step that are tried on its traced program: the one with which it is the same as one device."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, Literal, NamedTuple

from popsr._exact import ExactRun
from popsr._program.location import short_place
from popsr._text.frames import source_line
from popsr.analysis._axes import ReplicaAxes, shown_axes
from popsr.bridge._advice._edited import Change, Insertion, can_copy, edited
from popsr.bridge._arguments import Step
from popsr.bridge._derivatives import Derivatives
from popsr.bridge._same._exact import Exactly, agrees, given_of_one, ran
from popsr.bridge._same._forms import axes_of
from popsr.bridge._same._pair import UnknownError, pair_of
from popsr.bridge._same._place import ANOTHER, Partial, Suspect, Suspects, callers_of, place_of
from popsr.bridge._same._values import Place, Repair, SameValue
from popsr.bridge._suspicion import WORDS
from popsr.errors import Error
from popsr.ops._kinds import REDUCTIONS
from popsr.replicas import ReplicaGrouping

__all__ = ["cause_of"]

_MOST_TRIED, _MOST_OPS = 48, 20_000
"""Changes that are tried, fewer of large programs: and ops that are run in all."""
_OTHER = {"add": "mean", "mean": "add"}
"""Reductions that are tried in the place of others."""


class _Tried(NamedTuple):
    """A change, in words."""

    text: str
    location: str
    changes: Mapping[int, Change] = {}
    insertions: tuple[Insertion, ...] = ()


def cause_of(exactly: Exactly, values: Iterable[SameValue]) -> tuple[Place | None, Repair | None]:
    """The place where values leave those of one device, and the change that makes them the same.

    Both are found on the first draw on which a value differs. The place is that of the change, where there is one.

    Args:
        exactly: the comparison.
        values: what it found.
    """
    if exactly.witness is None:
        return None, None
    paths = [each.path for each in values if each.verdict == "differs"]
    place, suspects = place_of(exactly.pair, paths, *exactly.witness)
    repair = _repaired(exactly, suspects)
    if repair is None and place is not None and place.text == ANOTHER and _has_stages(exactly.pair.many):
        return None, None
    if place is not None and repair is not None and short_place(repair.location) not in str(place):
        place = Place(repair.location, repair.source, place.text)
    return place, repair


def _has_stages(step: Step) -> bool:
    """True if stages run different ops: replicas have values of the ops of other stages that nobody reads."""
    return any(each.held is not None for each in step.arguments)


def _repaired(exactly: Exactly, suspects: Suspects) -> Repair | None:
    """The first change with which all values are the same, of a few that are tried; None without one."""
    many = exactly.pair.many
    most = min(_MOST_TRIED, _MOST_OPS // max(1, many.ir._core.num_ops))
    if not most or exactly.pair.unmatched or not can_copy(many.ir):
        return None
    assert exactly.witness is not None
    draw, inputs = exactly.witness
    one = ran(exactly.pair.one, given_of_one(exactly.pair, inputs), draw)
    for tried in itertools.islice(_Changes(many, exactly.pair.one, suspects).all(), most):
        if _is_right(exactly, one, tried):
            return Repair(tried.location, source_line(tried.location), tried.text)
    return None


def _is_right(exactly: Exactly, one: ExactRun, tried: _Tried) -> bool:
    """True if all values are the same with a change: on the draw that shows the difference, then on all."""
    assert exactly.witness is not None
    try:
        step = edited(exactly.pair.many, tried.insertions, tried.changes)
        pair = pair_of(step, exactly.pair.one)
        return agrees(pair, one, *exactly.witness) and all(each.ok for each in Exactly(pair).compare())
    except (Error, UnknownError):  # such a program cannot be made, or does not run
        return False


class _Changes:
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
        self._derivatives = {*Derivatives(many.derivatives)}
        self._sites, self._their_sites = _Sites(many), _Sites(one)

    def all(self) -> Iterator[_Tried]:
        """Changes at the likeliest op, then reductions, then numbers."""
        seen = set[tuple[str, str]]()
        first = self._suspects.ops[:1]
        scaled = [each for each in self._suspects.ops if each.scale != 1]
        makers = (
            (first, (self._reductions, self._numbers, self._factors)),
            (scaled, (self._reductions, self._numbers)),
            (self._suspects.ops, (self._reductions, self._numbers)),
            (self._suspects.ops, (self._numbers_of_derivatives,)),
            (scaled, (self._factors,)),
        )
        for ops, kinds in makers:
            for suspect in ops:
                for kind in kinds:
                    for tried in kind(suspect):
                        key = tried.text, tried.location
                        if key not in seen:
                            seen.add(key)
                            yield tried
            if ops is first:
                yield from self._insertions()

    def _line(self, op: int) -> str:
        return str(self._core.location_of(op))

    def _reductions(self, suspect: Suspect) -> Iterator[_Tried]:
        """Another kind of reduction, none, or over other axes."""
        kind = self._core.op_kind(suspect.op)
        own = self._core.op_attributes(suspect.op) if kind in REDUCTIONS else {"op": None}
        reduction = str(own["op"])
        other = _OTHER.get(reduction)
        if other is None:
            return
        word = WORDS[reduction]
        group = own["group"] or self._many.ir.replica_grouping()
        over = self._over(group)
        changes = {} if kind != "replicated_all_reduce" else {f"no {word} over {over}": Change(left_out=True)}
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
                    yield self._changed(suspect, alike, change, text, which)

    def _over(self, group: ReplicaGrouping) -> str:
        names = None if self._many.axes is None else self._many.axes.along(group.partition)
        return " and ".join(names) if names else shown_axes(group.partition, self._many.axes)

    def _is_alike(self, op: int, kind: str, own: Mapping[str, Any]) -> bool:
        attributes = self._core.op_attributes(op) if self._core.op_kind(op) == kind else None
        return attributes is not None and all(attributes[name] == own[name] for name in ("op", "group"))

    def _changed(self, suspect: Suspect, ops: Iterable[int], change: Change, text: str, which: str) -> _Tried:
        location = self._line(suspect.op)
        return _Tried(f"{text} at {short_place(location)}{which}", location, dict.fromkeys(ops, change))

    def _scopes(self, op: int) -> Iterator[tuple[str, list[int]]]:
        """Ops of a line, then those of one of its calls; each time of both passes, then of one."""
        for called, ops in self._sites.scopes(op):
            backward = [each for each in ops if each in self._derivatives]
            forward = [each for each in ops if each not in self._derivatives]
            yield called, ops
            if backward and forward:
                yield f" in the backward pass{called}", backward
                yield f" in the forward pass{called}", forward

    def _numbers(self, suspect: Suspect) -> Iterator[_Tried]:
        """The numbers of one device for those at a line."""
        return (each for each in self._all_numbers(suspect) if not {*each.changes} <= self._derivatives)

    def _numbers_of_derivatives(self, suspect: Suspect) -> Iterator[_Tried]:
        """Numbers that the framework put in, as of the derivative of a mean: a line does not show them."""
        return (each for each in self._all_numbers(suspect) if {*each.changes} <= self._derivatives)

    def _all_numbers(self, suspect: Suspect) -> Iterator[_Tried]:
        location, theirs = self._line(suspect.op), self._one.ir._core
        for called, ops in self._sites.scopes(suspect.op):
            changes: dict[int, Change] = {}
            words = ""
            for op, other in _paired(self._core, ops, theirs, self._their_sites.like(ops, self._sites)):
                constants = {}
                for at, pair in enumerate(
                    zip(self._core.op_inputs(op), theirs.op_inputs(other), strict=True)
                ):
                    old, new = _constant(self._many, pair[0]), _constant(self._one, pair[1])
                    if old is None or new is None or old.shape != new.shape or old.tobytes() == new.tobytes():
                        continue
                    constants[at] = new
                    words = words or (f"{_number(new)} for {_number(old)}" if old.size == 1 else "")
                if constants:
                    changes[op] = Change(constants=constants)
            if changes:
                where = f"at {short_place(location)}{called}"
                mean = self._mean_of(ops, words)
                text = f"{mean} {where}" if mean else f"{words or 'other numbers'} {where}, as on one device"
                yield _Tried(text, location, changes)

    def _mean_of(self, ops: Iterable[int], words: str) -> str:
        """The change, if the number is by how many replicas a sum of a line is divided."""
        for op in ops:
            if self._core.op_kind(op) in REDUCTIONS:
                group = self._core.op_attributes(op)["group"] or self._many.ir.replica_grouping()
                if words == f"1 for {group.group_size}":
                    return f"a sum for the mean over {self._over(group)}"
        return ""

    def _factors(self, suspect: Suspect) -> Iterator[_Tried]:
        """All that a line makes, divided by how many times the value of one device it is."""
        factor = 1 / suspect.scale
        for which, ops in self._scopes(suspect.op) if factor != 1 else ():
            exits = self._sites.exits(ops)
            yield self._changed(
                suspect, exits, Change(factor=float(factor)), f"{factor} times what is made", which
            )

    def _insertions(self) -> Iterator[_Tried]:
        """The sum of parts where it is missing."""
        by_line: dict[tuple[str, tuple[str, ...], Fraction], list[Partial]] = {}
        for each in self._suspects.partial:
            by_line.setdefault((self._line(each.op), each.axes, each.scale), []).append(each)
        for (location, axes, scale), parts in by_line.items():
            maker = self._core.tensor(parts[0].tensor).producer
            made = location if maker is None else self._line(maker)
            callers = callers_of(self._many, parts[0].op)
            used = short_place(location) + (f", called at {short_place(callers[0])}" if callers else "")
            where = f"used at {used}" if made == location else f"made at {short_place(made)}, before {used}"
            for kind, group in self._sums(axes, scale):
                what = f"the {WORDS[kind]} over {self._over(group)} of what is {where}"
                insertions = (
                    Insertion(each.tensor, frozenset([each.op]), kind, group, location) for each in parts
                )
                yield _Tried(what, made, {}, tuple(insertions))

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
            yield f", called at {short_place(callers[0])}", calls[callers]

    def like(self, ops: Iterable[int], theirs: _Sites) -> list[int]:
        """Ops of the lines and calls of ops of another program."""
        keys = dict.fromkeys((theirs._core.location_of(op), theirs._callers.get(op, ())) for op in ops)
        return [op for line, callers in keys for op in self._ops.get(line, {}).get(callers, ())]

    def exits(self, ops: Iterable[int]) -> list[int]:
        """Ops that make floats for others than these."""
        inside = {*ops}
        return [op for op in sorted(inside) if self._leaves(op, inside)]

    def _leaves(self, op: int, inside: set[int]) -> bool:
        made = self._core.op_outputs(op)
        if not made or "float" not in self._core.tensor(made[0]).dtype:
            return False
        users = [user for tensor in made for user in self._users.get(tensor, ())]
        return not users or any(user not in inside for user in users)


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
