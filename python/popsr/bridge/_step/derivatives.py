"""Gradients of an imported step: which ops make them, and which of them still are sums over replicas."""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from popsr._program.op import Op
from popsr._program.tensor import Tensor
from popsr.analysis import Explanation, PartitionAnalysis
from popsr.ops._kinds import FACTORS, LINEAR, PASSING
from popsr.replicas import Partition

__all__ = ["Derivatives", "PendingSum", "pending_on_path", "pending_sum", "producer_of", "scope_of"]

_SCOPE = re.compile(r"(.+)/\w+_out(__t\d+)?$")
"""The name of the result of an op in a scope."""


@dataclass(frozen=True, slots=True)
class PendingSum:
    """A gradient of which each replica of a group has the part of its own data: a sum that is still to be taken.

    Attributes:
        made: ``file:line`` of the backward pass that makes it.
        used: ``file:line`` that uses it as if it were whole.
        groups: replicas over which the sum is missing.
        shape: shape of the gradient.
        scope: scope of the op that makes it, as in names of ops; empty without one.
        nonlinear: ``file:line`` of a function of it that is not linear, after which a sum comes too late; empty when
            the value depends on it linearly.
    """

    made: str
    used: str
    groups: Partition
    shape: tuple[int, ...]
    scope: str
    nonlinear: str

    @property
    def mended(self) -> str:
        """``file:line`` at or before which the sum is to be taken."""
        return self.nonlinear or self.used


class Derivatives:
    """The ops of backward passes, by number."""

    def __init__(self, ranges: Sequence[range]) -> None:
        """Of ascending ranges."""
        self._ranges = ranges
        self._starts = [each.start for each in ranges]

    def __bool__(self) -> bool:
        """True if any is known."""
        return bool(self._ranges)

    def __iter__(self) -> Iterator[int]:
        """The ops, in order."""
        return itertools.chain.from_iterable(self._ranges)

    def __contains__(self, op: int) -> bool:
        """True for an op of a backward pass."""
        place = bisect.bisect_right(self._starts, op) - 1
        return place >= 0 and op in self._ranges[place]


def pending_sum(
    facts: PartitionAnalysis, derivatives: Derivatives, value: Tensor, declared: Partition
) -> PendingSum | None:
    """The gradient through which a difference enters a value; None when it does not enter through one.

    Args:
        facts: of the step.
        derivatives: its backward passes.
        value: the value.
        declared: the groups that should agree.
    """
    before: dict[Tensor, Op | None] = {value: None}  # by tensor the op that uses it
    left = [value]
    while left:
        t = left.pop(0)
        op = producer_of(t)
        if op is None:
            continue
        if op.id in derivatives:
            return _found(facts, op, t, before, declared)
        if op.called_graphs:
            return None
        for operand in op.inputs:
            if operand is not None and operand not in before and not _agrees(facts, operand, declared):
                before[operand] = op
                left.append(operand)
    return None


def producer_of(t: Tensor) -> Op | None:
    """The op that makes a tensor."""
    producer = t.ir._core.tensor(t._id).producer
    return None if producer is None else Op(t.ir, producer)


def scope_of(op: Op) -> str:
    """Module or named scope that an op is of, as in its name: ``layers/0/attn``; empty outside of all."""
    found = _SCOPE.match(op.outputs[0].name) if op.outputs else None
    return "" if found is None else found[1]


def pending_on_path(
    facts: PartitionAnalysis, derivatives: Derivatives, why: Explanation, declared: Partition
) -> PendingSum | None:
    """``pending_sum`` along an explanation, which enters loops and branches."""
    before: list[Op] = []
    for step in why.steps:
        if step.op is None:
            continue
        if step.kind == "op" and step.op.id in derivatives:
            return _sum_of(facts, step.op, step.tensor, before, declared)
        before.append(step.op)
    return None


def _found(
    facts: PartitionAnalysis, op: Op, t: Tensor, before: Mapping[Tensor, Op | None], declared: Partition
) -> PendingSum:
    users: list[Op] = []
    at = t
    while (user := before[at]) is not None:
        users.insert(0, user)
        at = next(out for out in user.outputs if out in before)
    return _sum_of(facts, op, t, users, declared)


def _sum_of(
    facts: PartitionAnalysis, op: Op, t: Tensor, users: Sequence[Op], declared: Partition
) -> PendingSum:
    """The gradient of an op, and what is made of it: the last of the users takes it."""
    late = next((each for each in reversed(users) if not _is_linear(facts, each, declared)), None)
    used = users[-1].location if users else op.location
    nonlinear = "" if late is None else late.location
    return PendingSum(op.location, used, declared, t.shape, scope_of(op), nonlinear)


def _is_linear(facts: PartitionAnalysis, op: Op, declared: Partition) -> bool:
    """True if the result of an op is linear in the operands that differ."""
    kind = op.kind
    if kind not in FACTORS:
        return kind in LINEAR or kind in PASSING
    varying = [n for n, t in enumerate(op.inputs) if t is not None and not _agrees(facts, t, declared)]
    if kind == "where":  # operands: the condition, and what it chooses from
        return 0 not in varying
    return len(varying) <= 1 and (kind != "div" or varying != [1])


def _agrees(facts: PartitionAnalysis, t: Tensor, declared: Partition) -> bool:
    return declared.refines(facts.partition(t))
