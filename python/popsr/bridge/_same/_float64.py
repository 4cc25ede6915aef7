"""The engine of float64: a step and its reference on random inputs, and a bound of rounding that is measured."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from popsr._program.streams import HostToDeviceStream
from popsr._program.tensor import Variable
from popsr._session.session import Session
from popsr.bridge._advice._edited import can_copy, redeclared
from popsr.bridge._same._draws import is_float, kept, moved, numbers
from popsr.bridge._same._pairs.pair import STEPS, Both, Pair, UnknownError, sources_of
from popsr.bridge._same._parts import part_of
from popsr.bridge._same._values import AS_MEAN, SameValue, Verdict
from popsr.bridge._step.arguments import Argument, Array, Step
from popsr.errors import ReplicaWarning
from popsr.replicas import ReplicaGrouping

__all__ = ["compared_in_float64"]

_DRAWS, _MOST_DRAWS = 3, 6
_ROUNDING = 1000.0
"""Multiple of what moving all inputs by a unit in the last place changes that counts as rounding."""
_COARSE = 1e-6
"""Part of an update from which rounding could hide a mistake."""

Values = Mapping[str, Array]


def compared_in_float64(pair: Pair) -> list[SameValue]:
    """The verdict of each state and result, whose floats are all float64.

    Raises:
        UnknownError: integers are known by their shape alone.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ReplicaWarning)  # what drifts is in the proof
        return _compared(pair)


def _compared(pair: Pair) -> list[SameValue]:
    many, one = _Runs(_with_parts(pair)), _Runs(pair.one)
    found = {each.path: _Found(each) for each in pair.compared}
    means = {each.path: _Found(each, AS_MEAN) for each in pair.results if each.may_be_mean}
    for draw in range(_MOST_DRAWS):
        if all(each.is_decided for each in (*found.values(), *means.values())):
            break
        seen = {path: (_Draw(), _Draw()) for path in found}
        carried: dict[str, Array] = {}
        for step in range(STEPS):
            inputs = _drawn(pair, draw, step) | carried
            near = {path: moved(a, path, draw, step) for path, a in inputs.items() if a.dtype.kind == "f"}
            replicas, reference = many.step(pair, inputs, cut=True), one.step(pair, inputs)
            nearby = one.step(pair, inputs | near)
            for path, each in found.items():
                start = inputs[each.both.key] if each.both.role == "state" else None
                rows = replicas[path]
                seen[path][0].add(each.both, rows, reference[path][0], nearby[path][0], start)
                if path in means:
                    rows = np.broadcast_to(rows[[*each.both.replicas]].mean(0), rows.shape)
                    seen[path][1].add(each.both, rows, reference[path][0], nearby[path][0], start)
            carried = {each.key: reference[each.path][0] for each in pair.states if not is_float(each)}
        for path, each in found.items():
            each.add(seen[path][0])
        for path, each in means.items():
            each.add(seen[path][1])
    return [each.value(means.get(path)) for path, each in found.items()]


def _drawn(pair: Pair, draw: int, step: int) -> dict[str, Array]:
    """Global values of states and data before a step."""
    return {each.key: numbers(each, draw, step) if is_float(each) else kept(each) for each in pair.arguments}


class _Runs:
    """Runs of a program on simulated replicas from given states."""

    def __init__(self, step: Step) -> None:
        """Compile it."""
        self._step, self._session = step, Session(step.ir)

    def step(self, pair: Pair, values: Values, *, cut: bool = False) -> dict[str, Array]:
        """The rows of all replicas by path after a step; ``cut``: what it is given is cut as replicas hold it."""
        step, session = self._step, self._session
        if cut:
            sources = sources_of(pair)
            given = [each for each in step.arguments if each.path in sources]
            rows = {each.path: _rows(each, sources[each.path], values) for each in given}
        else:
            rows = {each.key: values[each.key] for each in pair.arguments}
            given = [each for each in step.arguments if each.path in rows]
        session._access.set_rows({_variable(each): rows[each.path] for each in given if each.role == "state"})
        data = {each.source: rows[each.path] for each in given if each.role == "data"}
        with session:
            stored = session.run(
                {each: a for each, a in data.items() if isinstance(each, HostToDeviceStream)}
            )
        made = {each.path: stored[each.stream] for each in step.results if each.stream}
        made |= {
            each.path: session.get_tensor_data(_variable(each)) for each in step.states if each.path in rows
        }
        found = {each.path: each.many if cut else each.one for each in pair.compared}
        count = step.ir.replication_factor
        return {path: np.asarray(made[each.path]).reshape(count, *each.shape) for path, each in found.items()}


def _variable(state: Argument) -> Variable:
    assert isinstance(state.source, Variable)
    return state.source


def _with_parts(pair: Pair) -> Step:
    """The step, in which replicas are given equal values only where they have the same part of one.

    A bias that begins with zeros is equal on all ranks, also where each has its own part of it.

    Raises:
        UnknownError: the program cannot be copied.
    """
    step, groups = pair.many, dict[str, ReplicaGrouping]()
    for path, sources in sources_of(pair).items():
        places = [_place(each, replica) for replica, each in enumerate(sources)]
        members = _argument(sources[0]).grouping.groups
        if any(places[each] != places[first] for first, *others in members for each in others):
            groups[path] = step.ir.replica_grouping(stride=1, group_size=1)
    if groups and not can_copy(step.ir):
        path = next(iter(groups))
        raise UnknownError(f"replicas that are declared equal in '{path}' have other parts of it")
    return redeclared(step, groups) if groups else step


def _place(source: Both, replica: int) -> tuple[str, bytes]:
    """Positions of a replica's part in what it is a part of."""
    whole = np.arange(math.prod(source.whole.shape)).reshape(source.whole.shape)
    part = np.asarray(part_of(whole, source.whole.part(replica)))
    return source.key, str(part.shape).encode() + part.tobytes()


def _argument(source: Both) -> Argument:
    assert isinstance(source.many, Argument)
    return source.many


def _rows(given: Argument, sources: Sequence[Both], values: Values) -> Array:
    """Rows for the groups of replicas that a value is given to, each of a replica that holds it."""
    firsts = (
        next((each for each in members if each in sources[each].replicas), members[0])
        for members in given.grouping.groups
    )
    rows = [part_of(values[sources[each].key], sources[each].whole.part(each)) for each in firsts]
    return np.stack(rows) if len(rows) > 1 else rows[0]


@dataclass
class _Draw:
    """A value beside the reference's on one random input, after every step."""

    verdict: Verdict = "same"
    deviation: float = 0.0
    replicas: set[int] = field(default_factory=set)
    reason: str = ""
    steps: int = 0
    """After which step it differs first."""

    def add(self, both: Both, rows: Array, one: Array, nearby: Array, start: Array | None) -> None:
        """Compare after one more step; what differed before is not looked at again."""
        if self.verdict == "differs":
            return
        self.steps += 1
        here = {r: part_of(one, both.whole.part(r)) for r in both.replicas}
        if one.dtype.kind != "f":
            apart = {r for r, its in here.items() if (rows[r] != its).any()}
            self._note(apart, None if apart else 0.0, "in integers" if apart else "")
            return
        if not np.isfinite(nearby).all() or not np.isfinite(one).all():
            self._unknown("infinite or undefined values of one device")
            return
        lost = {r for r in here if not np.isfinite(rows[r]).all()}
        if lost:
            self._note(lost, None, "infinite or undefined values")
            return
        size = _largest(one)
        update = size if start is None else _largest(one - start)
        bound = _ROUNDING * max(_largest(nearby - one), np.finfo(np.float64).eps * size)
        gaps = {r: _largest(rows[r] - its) for r, its in here.items()}
        apart = {r for r, gap in gaps.items() if gap > bound}
        most = max(gaps.values())
        part = most / update if update > 0 else float("inf") if most > 0 else 0.0
        if apart:
            what = "of the update" if start is not None else "of the result"
            self._note(
                apart,
                part,
                f"by {part:.2g} {what}" if np.isfinite(part) else "where one device changes nothing",
            )
        elif most > 0 and bound > _COARSE * update:
            self._unknown(
                f"rounding alone may change it by {bound / update if update else bound:.1g} of the update"
            )
        else:
            self._note(set(), part, "")

    def _note(self, apart: set[int], deviation: float | None, reason: str) -> None:
        if deviation is not None:
            self.deviation = max(self.deviation, deviation)
        if apart:
            self.verdict, self.reason = "differs", reason
            self.replicas |= apart

    def _unknown(self, reason: str) -> None:
        if self.verdict == "same":
            self.verdict, self.reason = "unknown", reason


def _largest(array: Array) -> float:
    return float(np.abs(array).max()) if array.size else 0.0


class _Found:
    """A value over all draws."""

    def __init__(self, both: Both, form: str = "") -> None:
        """Before the first; ``form``: of what it is the same as."""
        self.both, self._form, self._draws = both, form, list[_Draw]()

    @property
    def is_decided(self) -> bool:
        """True if it differs, or was the same often enough."""
        same = sum(each.verdict == "same" for each in self._draws)
        return same >= _DRAWS or any(each.verdict == "differs" for each in self._draws)

    def add(self, draw: _Draw) -> None:
        """One more random input."""
        self._draws.append(draw)

    def value(self, mean: _Found | None = None) -> SameValue:
        """The verdict: a draw that differs decides, but of a mean; a draw without finite values counts for nothing."""
        both, draws = self.both, self._draws
        apart = [each for each in draws if each.verdict == "differs"]
        same = [each for each in draws if each.verdict == "same"]
        if apart and mean is not None and (found := mean.value()).verdict != "differs":
            return found
        known = apart or same
        deviation = max((each.deviation for each in known), default=None) if is_float(both) else None
        role: object = both.role
        assert role == "state" or role == "result"
        if apart:
            worst = max(apart, key=lambda each: each.deviation)
            replicas = tuple(sorted(set().union(*(each.replicas for each in apart))))
            steps = min(each.steps for each in apart)
            return SameValue(both.path, role, "differs", worst.reason, replicas, len(draws), deviation, steps)
        if len(same) >= _DRAWS:
            return SameValue(both.path, role, "same", self._form, (), len(same), deviation)
        reason = next(each.reason for each in draws if each.verdict == "unknown")
        return SameValue(both.path, role, "unknown", reason, (), len(same), deviation)
