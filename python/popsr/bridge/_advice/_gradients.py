"""Gradients that enter states before they are equal, and the all-reduces that would make them so."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

from popsr._program.op import Op
from popsr.bridge._advice._edited import Insertion, writes_operand
from popsr.bridge._advice._seeds import is_mean_loss
from popsr.bridge._step.multiples import GradientReductions, Program
from popsr.replicas import Partition, ReplicaGrouping

if TYPE_CHECKING:
    from popsr.analysis import Lint, PartitionAnalysis
    from popsr.bridge._step.arguments import Step
    from popsr.bridge._step.values import ProvedValue

__all__ = ["Entry", "Proved", "data_rows", "gradient_insertions", "partial_insertions"]


class Proved(Protocol):
    """A proof as advice sees it: a ``Proof``."""

    @property
    def step(self) -> Step:
        """The step."""

    @property
    def facts(self) -> PartitionAnalysis:
        """The analysis."""

    @property
    def lints(self) -> tuple[Lint, ...]:
        """All that is suspicious."""

    @property
    def ok(self) -> bool:
        """True if it is right."""

    @property
    def drifting(self) -> tuple[ProvedValue, ...]:
        """States that are not equal in their declared groups."""

    @property
    def unequal(self) -> tuple[ProvedValue, ...]:
        """Results that are not."""

    @property
    def undeclared(self) -> tuple[ProvedValue, ...]:
        """States of which a proof says nothing."""


@dataclass(slots=True)
class Entry:
    """A gradient that leaves its backward pass on the way to a value that drifts.

    Attributes:
        tensor: its number.
        users: the ops that take it on that way.
        declared: the replicas on which the values that it enters are to be equal.
        paths: names of these values.
    """

    tensor: int
    users: set[int] = field(default_factory=set)
    declared: list[Partition] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)


def gradient_insertions(proof: Proved) -> list[tuple[Insertion, Sequence[str]]]:
    """All-reduces of all gradients that enter drifting values too early; none if one of them is not decided.

    A mean or sum over groups is right where all states are replicas of each other in these groups, so that it is their
    data that differ. What the reduction is, the other gradients of the backward pass say, else the scale of the loss.
    """
    step = proof.step
    derivatives = step.derivatives
    entries = _entries(proof, derivatives)
    if not entries:
        return []
    trained = _trained(proof, derivatives)
    reductions = GradientReductions(step)
    found: list[tuple[Insertion, Sequence[str]]] = []
    for each in entries.values():
        group = _groups_of(proof, each)
        if group is None or not all(group.partition.refines(declared) for declared in trained):
            return []
        kind = _reduction(
            proof, derivatives, reductions.like(each.tensor, group.partition), each, group.group_size
        )
        if kind is None:
            return []
        users = frozenset(each.users)
        if any(writes_operand(step.ir, user) for user in users):
            return []
        place = Op(step.ir, min(users)).location
        found.append((Insertion(each.tensor, users, kind, group, place), each.paths))
    return found


def partial_insertions(proof: Proved) -> list[tuple[Insertion, Sequence[str]]]:
    """Sums of products of which each replica has a part, where a drifting value depends on them.

    Only of steps whose author wrote the backward pass: a framework would differentiate a sum that is put in as well.
    """
    step, facts = proof.step, proof.facts
    if step.derivatives or not step.partial:
        return []
    core, users = step.ir._core, Program(step.ir).users
    summed = {
        core.op_inputs(op)[0] for op in range(core.num_ops) if core.op_kind(op) == "replicated_all_reduce"
    }
    found: list[tuple[Insertion, Sequence[str]]] = []
    for t, groups in step.partial.items():
        if t in summed or groups.refines(facts.partition(step.ir._tensor(t))) or not users.get(t):
            continue
        if any(writes_operand(step.ir, user) for user in users[t]):
            return []
        group = _grouping(groups)
        if group is None:
            return []
        place = Op(step.ir, min(users[t])).location
        found.append((Insertion(t, frozenset(users[t]), "add", group, place), ()))
    return found


def _entries(proof: Proved, derivatives: Set[int]) -> dict[int, Entry]:
    """Gradients by number; none if a drifting value differs for another reason too."""
    found: dict[int, Entry] = {}
    differs = _Differs(proof)
    for value in (*proof.drifting, *proof.unequal):
        made = value.result
        if made is None or not _follow(differs, derivatives, value, made._id, found):
            return {}
    return found


class _Differs:
    """Whether tensors differ inside groups; asked often of the same tensors.

    Args:
        proof: of the step.
    """

    def __init__(self, proof: Proved) -> None:
        """Without any answer."""
        self.ir, self._facts = proof.step.ir, proof.facts
        self._found: dict[tuple[int, Partition], bool] = {}

    def inside(self, tensor: int, declared: Partition) -> bool:
        """True if it is not proved equal in the groups."""
        key = tensor, declared
        if key not in self._found:
            self._found[key] = not declared.refines(self._facts.partition(self.ir._tensor(tensor)))
        return self._found[key]


def _follow(
    differs: _Differs,
    derivatives: Set[int],
    value: ProvedValue,
    made: int,
    found: dict[int, Entry],
) -> bool:
    """Collect the gradients that make a value differ; False if something else does."""
    ir, core = differs.ir, differs.ir._core
    seen, left = {made}, [made]
    while left:
        t = left.pop()
        op = core.tensor(t).producer
        if op is None:
            if core.tensor(t).kind != "variable":
                return False
            continue  # a state, which the proof of the edited step is about
        if op in derivatives:
            return False  # stored as it is: no op is there to take another
        if Op(ir, op).called_graphs:
            return False
        operands = [each for each in core.op_inputs(op) if each is not None]
        differing = [each for each in operands if differs.inside(each, value.declared)]
        if not differing:
            return False
        for each in differing:
            maker = core.tensor(each).producer
            if maker is not None and maker in derivatives:
                entry = found.setdefault(each, Entry(each))
                entry.users.add(op)
                if value.declared not in entry.declared:
                    entry.declared.append(value.declared)
                if value.path not in entry.paths:
                    entry.paths.append(value.path)
            elif each not in seen:
                seen.add(each)
                left.append(each)
    return True


def _groups_of(proof: Proved, entry: Entry) -> ReplicaGrouping | None:
    """The smallest groups that have one replica of each set in which a gradient is equal already."""
    declared = entry.declared[0]
    for each in entry.declared[1:]:
        declared = declared.join(each)
    t = proof.step.ir._tensor(entry.tensor)
    labels = proof.facts.partition(t).labels
    groups = [-1] * declared.num_replicas
    count = 0
    for block in declared.blocks:
        equal: dict[int, list[int]] = {}
        for replica in block:
            equal.setdefault(labels[replica], []).append(replica)
        sizes = {len(each) for each in equal.values()}
        if len(sizes) != 1:
            return None
        for members in zip(*equal.values(), strict=True):
            for replica in members:
                groups[replica] = count
            count += 1
    return _grouping(Partition.from_labels(groups))


def _grouping(partition: Partition) -> ReplicaGrouping | None:
    """A partition as groups of one size; None for others."""
    if len({len(block) for block in partition.blocks}) != 1 or partition.num_blocks == partition.num_replicas:
        return None
    first: dict[int, int] = {}
    return ReplicaGrouping.from_assignment([first.setdefault(each, len(first)) for each in partition.labels])


def _reduction(
    proof: Proved, derivatives: Set[int], others: Sequence[bool | None], entry: Entry, size: int
) -> Literal["mean", "add"] | None:
    """Mean or sum, if the program decides it."""
    if others:
        return "mean" if all(others) else "add" if all(each is False for each in others) else None
    step = proof.step
    whole = step.loss == "mean" or (
        step.loss == "of constants"
        and is_mean_loss(step.ir, proof.facts, derivatives, [entry.tensor], data_rows(step), size)
    )
    return "mean" if whole else None


def data_rows(step: Step) -> set[int]:
    """Rows on a replica of data that differ; 0, of which nothing is a multiple, of those without rows."""
    data = (each for each in step.arguments if each.role == "data" and each.grouping.num_groups > 1)
    return {each.shape[0] if each.shape else 0 for each in data}


def _trained(proof: Proved, derivatives: Set[int]) -> set[Partition]:
    """Declared groups of the states that depend on a backward pass."""
    core = proof.step.ir._core
    made: set[int] = set()
    for op in core.graph_ops(0):
        inside = op in derivatives or any(t in made for t in core.op_inputs(op))
        if inside or Op(proof.step.ir, op).called_graphs:
            made.update(core.op_outputs(op))
    return {
        each.grouping.partition
        for each in proof.step.states
        if each.result is not None and each.result._id in made
    }
