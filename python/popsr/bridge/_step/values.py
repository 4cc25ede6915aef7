"""Proved facts about a state or result: the replicas that hold it equal, and the cause of differences."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

from popsr._program.building.location import short_place
from popsr._program.op import Op
from popsr._program.tensor import Tensor
from popsr._support.text.entry_points import public
from popsr._support.text.one_line import one_line
from popsr.analysis import Explanation, Lint, PartitionAnalysis
from popsr.analysis._axes import ReplicaAxes, shown_groups
from popsr.bridge._step.arguments import Argument, Result, Step
from popsr.bridge._step.names import producer_of
from popsr.bridge._step.pending import PendingSum
from popsr.dtypes import dtype
from popsr.replicas import Partition

__all__ = ["Cause", "ProvedValue", "SourceLine", "proved_result", "proved_state"]


@public
@dataclass(frozen=True)
class ProvedValue:
    """A state, or a result with declared groups; ``str`` is a line about it.

    Explanations are made when they are first asked for, and refused once the program has changed.

    Attributes:
        path: its name for the user.
        shape: shape on one replica.
        dtype: element type.
        nbytes: bytes on one replica.
        declared: replicas that are declared to hold equal values.
        proved: replicas that are proved to, after any number of runs with any data.
        undeclared: True for a state whose declared groups are of nothing but initial values that differ.
        sharded: True for a part of an array that is cut over replicas.
        held: replicas that hold it; None if all do. Groups are of these alone.
    """

    path: str
    shape: tuple[int, ...]
    dtype: dtype
    nbytes: int
    declared: Partition
    proved: Partition
    _source: _Source = field(repr=False, compare=False)
    undeclared: bool = False
    sharded: bool = False
    held: tuple[int, ...] | None = None

    @property
    def axes(self) -> ReplicaAxes | None:
        """Names of the axes that replicas lie along."""
        return self._source.step.axes

    @property
    def shown_declared(self) -> str:
        """Declared groups in words: ``equal over data, model``, ``sharded over model {0,2}{1,3}``."""
        return self._shown(self.declared, self.sharded)

    @property
    def shown_proved(self) -> str:
        """Proved groups in words: ``equal over data, model``, ``differs over model {0,2}{1,3}``."""
        return self._shown(self.proved, self.sharded and self.proved == self.declared)

    def _shown(self, partition: Partition, sharded: bool) -> str:
        if self.held is None:
            return shown_groups(partition, self.axes, sharded=sharded)
        own = [block for block in partition.blocks if block[0] in self.held]
        groups = "".join("{" + ",".join(map(str, block)) + "}" for block in own)
        if len(own) > 1:
            return f"differs on replicas {groups}"
        return f"equal on replicas {groups}" if len(self.held) > 1 else f"on replica {self.held[0]}"

    @property
    def equal(self) -> bool:
        """True if it is proved equal in its declared groups."""
        return self.declared.refines(self.proved)

    @property
    def drifting(self) -> bool:
        """True if it is not."""
        return not self.equal

    @functools.cached_property
    def explanation(self) -> Explanation | None:
        """Why two replicas of a declared group are not proved equal; None when all are."""
        if self.equal:
            return None
        return self._source.explanation(self.declared, self.proved)

    @functools.cached_property
    def written(self) -> str:
        """``file:line`` of the op that makes its last value; empty for a state that no run changes.

        Also empty for variables of an ``Ir`` that are proved equal.
        """
        return self._source.written(self.equal)

    @functools.cached_property
    def scope(self) -> str:
        """Module or named scope of the op that makes the gradient whose sum is missing, else the last value."""
        return self._source.scope(self.equal) if self.pending is None else self.pending.scope

    @property
    def result(self) -> Tensor | None:
        """The value written into a state, where the importer says it; of a result the value."""
        return self._source.result

    @functools.cached_property
    def pending(self) -> PendingSum | None:
        """The gradient through which the difference enters, whose sum over replicas is missing; None without one."""
        if self.equal or not self._source.step.derivatives:
            return None
        facts, declared, result = self._source.facts, self.declared, self._source.result
        found = None if result is None else facts._missing_sum(result, declared)
        if found is None and self.explanation is not None:
            found = self.explanation._missing_sum(declared)
        return PendingSum.of(self._source.step, found, declared)

    @functools.cached_property
    def pending_lint(self) -> Lint | None:
        """Lint L11 of the missing sum; None without one."""
        found = self.pending
        if found is None:
            return None
        t = self._source.tensor
        apart = self.declared.num_replicas - self.declared.num_blocks
        text = f"'{self.path}' depends on a part of a sum: {_part_of_sum(found, self)}"
        return Lint("L11", producer_of(t), t, found.used, apart, "replicas", text)

    @property
    def cause(self) -> Cause | None:
        """The cause of the difference; None when it is proved equal."""
        why = self.explanation
        if why is None or why.root is None:
            return None
        return Cause(
            self._source.cause(why),
            why.root.location,
            self.written,
            _suggestion(why) if self.pending is None else _part_of_sum(self.pending, self),
            why.root.kind,
            "" if self.pending is None else self.pending.mended,
            self.scope and f"'{self.scope}'",
        )

    def __str__(self) -> str:
        head = f"{self.path} {self.dtype.name}{list(self.shape)}: declared {self.shown_declared}, "
        cause = "" if self.cause is None else f": {self.cause}"
        return f"{head}proved {self.shown_proved}{cause}"


@dataclass(frozen=True, slots=True)
class _Source:
    """Sources of a value, to explain it.

    Attributes:
        facts: the analysis.
        tensor: the value, of a state the variable.
        result: what is written into a state, where the importer says it; of a result the value.
        step: the step that it is of.
    """

    facts: PartitionAnalysis
    tensor: Tensor
    result: Tensor | None
    step: Step

    def cause(self, why: Explanation) -> str:
        """The cause in words: of a stand-in for an op that popsr lacks the op, of a state the axes it is cut over."""
        root = why.root
        assert root is not None
        if root.kind == "own_value":
            for gap in self.step.gaps:
                if gap.location == root.location:
                    return f"{gap.op}, which popsr lacks, may give each replica a value of its own"
        axes = self.step.axes
        if root.kind == "variable" and axes is not None:
            begin = why.steps[-1].tensor
            state = next((each for each in self.step.states if each.tensor is begin), None)
            if state is not None and axes.split_axes(state.grouping.partition):
                groups = shown_groups(state.grouping.partition, axes, sharded=state.sharded)
                return f"'{state.path}' {'is ' if state.sharded else ''}{groups}"
        return root.text

    def explanation(self, declared: Partition, proved: Partition) -> Explanation | None:
        """Of the first two replicas of a declared group that are not proved equal."""
        for block in declared.blocks:
            for other in block[1:]:
                if proved.labels[other] != proved.labels[block[0]]:
                    found = self.facts.explain(self.tensor, block[0], other)
                    return found._in(self.step.names)
        return None

    def written(self, equal: bool) -> str:
        """The line of the op that makes the value."""
        writer = self._writer(equal)
        return "" if writer is None else writer.location

    def scope(self, equal: bool) -> str:
        """The scope of the op that makes the value."""
        writer = self._writer(equal)
        return "" if writer is None else self.step.names.scope(writer)

    def _writer(self, equal: bool) -> Op | None:
        if self.result is not None:
            return producer_of(self.result)
        return None if equal else self.facts.values(self.tensor)[-1][1]


@public
@dataclass(frozen=True, slots=True)
class Cause:
    """Why replicas differ in a value, at the user's lines.

    Attributes:
        text: the cause in words.
        location: ``file:line`` of it.
        written: ``file:line`` where the value is made that differs.
        suggestion: the gradient that is used before it is whole, or what a read that comes too early has to wait for;
            empty for other causes. ``Proof.advice`` has changes that were tried.
        kind: kind of the cause, as of ``ExplanationRoot``.
        mended: ``file:line`` at which to take the sum over replicas of a gradient that is missing, whatever the cause
            is; empty without one.
        scope: modules or named scopes of the op that makes the gradient, else the value, in quotes; empty outside of
            all.
    """

    text: str
    location: str
    written: str
    suggestion: str
    kind: str = ""
    mended: str = ""
    scope: str = ""

    def __str__(self) -> str:
        place = short_place(self.location)
        if self.mended:
            within = f"in {self.scope} " if self.scope else ""
            return (
                f"{within}{self.suggestion}; replicas differ as {one_line(self.text, 160)}, at {place}; "
                f"made at {short_place(self.written)}"
            )
        note = f"; {self.suggestion}" if self.suggestion else ""
        within = f" in {self.scope}" if self.scope else ""
        return f"{one_line(self.text, 160)}, at {place}; made at {short_place(self.written)}{within}{note}"


@public
@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of the user's program.

    Attributes:
        location: ``file:line``.
        text: the line, where the file can be read.
    """

    location: str
    text: str

    def __str__(self) -> str:
        return f"{short_place(self.location)}: {self.text}"


def _suggestion(why: Explanation) -> str:
    """The one cure of a read that comes too early; the proof advises other changes once they were tried."""
    if why.root is None or why.root.kind != "uninitialised":
        return ""
    waits = "before wait()" in why.root.text
    return "wait for it before it is read" if waits else "write all of it before it is read"


def _part_of_sum(pending: PendingSum, value: ProvedValue) -> str:
    """The gradient of which each replica has a part, and where it is used as if it were whole."""
    whose = "its gradient" if pending.shape == value.shape else "a gradient"
    used, nonlinear = short_place(pending.used), pending.nonlinear and short_place(pending.nonlinear)
    late = ""
    if nonlinear:
        subject = ", which" if nonlinear == used else f"; {nonlinear}"
        late = f"{subject} is not linear in it: a later sum is wrong"
    return f"each replica has a part of {whose}, made at {short_place(pending.made)}, used at {used}{late}"


def proved_state(facts: PartitionAnalysis, step: Step, each: Argument) -> ProvedValue:
    """A state."""
    assert each.tensor is not None
    source = _Source(facts, each.tensor, each.result, step)
    proved, declared = (
        _of_held(p, each.held) for p in (facts.partition(each.tensor), each.grouping.partition)
    )
    return ProvedValue(
        each.path,
        each.shape,
        each.dtype,
        each.nbytes,
        declared,
        proved,
        source,
        each.undeclared,
        each.sharded,
        each.held,
    )


def _of_held(partition: Partition, held: tuple[int, ...] | None) -> Partition:
    """The groups of the replicas that hold a state; others are by themselves."""
    if held is None:
        return partition
    count = partition.num_replicas
    return Partition.from_labels(
        [label if rank in held else count + rank for rank, label in enumerate(partition.labels)]
    )


def proved_result(facts: PartitionAnalysis, step: Step, each: Result, declared: Partition) -> ProvedValue:
    """A result with declared groups."""
    t = each.tensor
    nbytes = t.nelms * t.dtype.as_numpy().itemsize
    source = _Source(facts, t, t, step)
    proved = facts.partition(t)
    return ProvedValue(each.path, t.shape, t.dtype, nbytes, declared, proved, source, sharded=each.sharded)
