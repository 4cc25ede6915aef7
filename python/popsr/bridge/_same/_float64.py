"""A step beside its reference in float64: random inputs, and a bound of rounding that is measured."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from popsr.bridge._arguments import Argument, Array, Step
from popsr.bridge._same._draws import is_float, kept, moved, numbers
from popsr.bridge._same._pair import STEPS, Both, Pair, groups_of
from popsr.bridge._same._parts import part_of
from popsr.bridge._same._values import AS_MEAN, SameValue, Verdict
from popsr.errors import ReplicaWarning
from popsr.session import Session
from popsr.streams import HostToDeviceStream
from popsr.tensor import Variable

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
    many, one = _Runs(pair.many), _Runs(pair.one)
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
                start = inputs[path] if each.both.role == "state" else None
                rows = replicas[path]
                seen[path][0].add(each.both, rows, reference[path][0], nearby[path][0], start)
                if path in means:
                    rows = np.broadcast_to(rows.mean(0), rows.shape)
                    seen[path][1].add(each.both, rows, reference[path][0], nearby[path][0], start)
            carried = {each.path: reference[each.path][0] for each in pair.states if not is_float(each)}
        for path, each in found.items():
            each.add(seen[path][0])
        for path, each in means.items():
            each.add(seen[path][1])
    return [each.value(means.get(path)) for path, each in found.items()]


def _drawn(pair: Pair, draw: int, step: int) -> dict[str, Array]:
    """Global values of states and data before a step."""
    return {each.path: numbers(each, draw, step) if is_float(each) else kept(each) for each in pair.arguments}


class _Runs:
    """Runs of a program on simulated replicas from given states."""

    def __init__(self, step: Step) -> None:
        """Compile it."""
        self._step, self._session = step, Session(step.ir)

    def step(self, pair: Pair, values: Values, *, cut: bool = False) -> dict[str, Array]:
        """The rows of all replicas by path after a step; ``cut``: what it is given is cut as replicas hold it."""
        step, session = self._step, self._session
        rows = {each.path: _rows(each, values[each.path], cut) for each in pair.arguments}
        given = [each for each in step.arguments if each.path in rows]
        session._set_rows({_variable(each): rows[each.path] for each in given if each.role == "state"})
        data = {each.source: rows[each.path] for each in given if each.role == "data"}
        with session:
            stored = session.run(
                {each: a for each, a in data.items() if isinstance(each, HostToDeviceStream)}
            )
        made = {each.path: stored[each.stream] for each in step.results if each.stream}
        made |= {
            each.path: session.get_tensor_data(_variable(each)) for each in step.states if each.path in rows
        }
        return {each.path: self._of_replicas(each, made[each.path], cut) for each in pair.compared}

    def _of_replicas(self, both: Both, value: Array, cut: bool) -> Array:
        each = both.many if cut else both.one
        return np.asarray(value).reshape(self._step.ir.replication_factor, *each.shape)


def _variable(state: Argument) -> Variable:
    assert isinstance(state.source, Variable)
    return state.source


def _rows(both: Both, whole: Array, cut: bool) -> Array:
    """Rows for the groups of replicas that a value is given to."""
    if not cut:
        return whole
    assert isinstance(both.many, Argument)
    rows = [part_of(whole, both.whole.part(replica)) for replica in groups_of(both.many)]
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
        here = [part_of(one, both.whole.part(replica)) for replica in range(len(rows))]
        if one.dtype.kind != "f":
            apart = {r for r, (mine, its) in enumerate(zip(rows, here, strict=True)) if (mine != its).any()}
            self._note(apart, None if apart else 0.0, "in integers" if apart else "")
            return
        if not np.isfinite(nearby).all() or not np.isfinite(one).all():
            self._unknown("infinite or undefined values of one device")
            return
        lost = {r for r, mine in enumerate(rows) if not np.isfinite(mine).all()}
        if lost:
            self._note(lost, None, "infinite or undefined values")
            return
        size = _largest(one)
        update = size if start is None else _largest(one - start)
        bound = _ROUNDING * max(_largest(nearby - one), np.finfo(np.float64).eps * size)
        gaps = [_largest(mine - its) for mine, its in zip(rows, here, strict=True)]
        apart = {r for r, gap in enumerate(gaps) if gap > bound}
        part = max(gaps) / update if update > 0 else float("inf") if max(gaps) > 0 else 0.0
        if apart:
            what = "of the update" if start is not None else "of the result"
            self._note(
                apart,
                part,
                f"by {part:.2g} {what}" if np.isfinite(part) else "where one device changes nothing",
            )
        elif max(gaps) > 0 and bound > _COARSE * update:
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
