"""Gradients of an imported step: which ops make them, and which of them still are sums over replicas."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass

from popsr.analysis import Explanation, ExplanationStep, PartitionAnalysis
from popsr.replicas import Partition
from popsr.tensor import Tensor

__all__ = ["LINEAR", "Derivatives", "PendingSum", "pending_sum"]

_LINEAR_TEXT = (
    "identity cast reshape transpose expand squeeze flatten slice concat pad negate scale add sub scaled_add sum mean "
    "matmul conv where mul div replicated_all_reduce"
)
LINEAR = frozenset(_LINEAR_TEXT.split())
"""Ops whose results are linear in an operand, of ``_FACTORS`` if the replicas agree on the other one."""

_FACTORS = frozenset(["mul", "div", "matmul", "conv", "where"])
_MOVES = frozenset(["copy_var_update_", "call", "repeat"])


@dataclass(frozen=True, slots=True)
class PendingSum:
    """A gradient of which each replica of a group has the part of its own data: a sum that is still to be taken.

    Attributes:
        made: ``file:line`` of the backward pass that makes it.
        used: ``file:line`` that uses it as if it were whole.
        groups: replicas over which the sum is missing.
        shape: shape of the gradient.
        nonlinear: ``file:line`` of a function of it that is not linear, after which a sum comes too late; empty when
            the value depends on it linearly.
    """

    made: str
    used: str
    groups: Partition
    shape: tuple[int, ...]
    nonlinear: str


class Derivatives:
    """The ops of backward passes, by number."""

    def __init__(self, ranges: Sequence[range]) -> None:
        """Of ascending ranges."""
        self._ranges = ranges
        self._starts = [each.start for each in ranges]

    def __bool__(self) -> bool:
        """True if any is known."""
        return bool(self._ranges)

    def __contains__(self, op: int) -> bool:
        """True for an op of a backward pass."""
        place = bisect.bisect_right(self._starts, op) - 1
        return place >= 0 and op in self._ranges[place]


def pending_sum(
    facts: PartitionAnalysis, derivatives: Derivatives, why: Explanation, declared: Partition
) -> PendingSum | None:
    """The gradient through which a difference enters a value; None when it does not enter through one.

    Args:
        facts: of the step.
        derivatives: its backward passes.
        why: the path of the difference, from the value to the cause.
        declared: the groups that should agree.
    """
    before: list[ExplanationStep] = []
    for step in why.steps:
        if step.kind == "op" and step.op is not None and step.op.id in derivatives:
            late = next((each for each in reversed(before) if not _is_linear(facts, each, declared)), None)
            used = before[-1].location if before else step.location
            return PendingSum(
                step.location, used, declared, step.tensor.shape, "" if late is None else late.location
            )
        before.append(step)
    return None


def _is_linear(facts: PartitionAnalysis, step: ExplanationStep, declared: Partition) -> bool:
    """True if the value of a step is linear in the one of the next step."""
    if step.op is None or step.kind != "op":
        return True
    kind = step.op.kind
    if kind in _MOVES or kind not in _FACTORS:
        return kind in LINEAR or kind in _MOVES
    varying = [n for n, t in enumerate(step.op.inputs) if t is not None and not _agrees(facts, t, declared)]
    if kind == "where":  # operands: the condition, and what it chooses from
        return 0 not in varying
    return len(varying) <= 1 and (kind != "div" or varying != [1])


def _agrees(facts: PartitionAnalysis, t: Tensor, declared: Partition) -> bool:
    return declared.refines(facts.partition(t))
