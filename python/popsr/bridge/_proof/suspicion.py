"""Lints of steps that are in step: those that make a proof suspicious, and those that are right or harmless."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence

from popsr._program.op import Op
from popsr.analysis import Lint
from popsr.analysis._drift import short_partition
from popsr.bridge._step.arguments import Step
from popsr.bridge._step.multiples import Program, Reduction
from popsr.bridge._step.names import WORDS
from popsr.ops._kinds import LINEAR, REDUCTIONS

__all__ = ["SUSPICIOUS", "Redundancy"]

SUSPICIOUS = ("L6", "L7", "L10", "L11")
"""Codes of lints with which replicas may stay equal and still compute the wrong thing."""

_WORDS_OF_SUMS = frozenset(["sum", "sum of squares", "product"])
_SUMS = frozenset(["add", "mul", "square_add"])


class Redundancy:
    """Collectives of values that are equal already (lints L6): which of them change what a step computes.

    Args:
        step: the step.
    """

    def __init__(self, step: Step) -> None:
        """Nothing is looked at before the first question."""
        self._step, self._derivatives = step, step.derivatives

    def is_of_backward(self, lint: Lint) -> bool:
        """True for a sum that a framework's backward pass takes, and that is right with what the step makes of it.

        A sum inside of a loss becomes a sum of its derivative, which is equal on the replicas that share the loss.
        It is the derivative of the sum of their losses: right as soon as gradients are averaged over these replicas.
        Where the loss is not linear in a sum of one element, as a contrastive one is not, it may be each replica's
        own, and a sum of gradients is right too. A mean in a loss becomes a mean of its derivative, which changes
        nothing.
        """
        op = lint.op
        if op is None or lint.code != "L6" or op.id not in self._derivatives or op.kind not in REDUCTIONS:
            return False
        if self._is_mean(op.id):
            return True
        operand = op.inputs[0]
        assert operand is not None
        may_be_summed = not operand.shape and not self._program.is_constant(operand._id)
        return not self._reaches_states(op.id, self._covers(op.id, only_means=not may_be_summed))

    def is_harmless(self, lint: Lint) -> bool:
        """True for a collective that leaves values as they are and tells of no mistake: its bytes are in vain.

        A mean of equal values is their value. Of a gradient that was reduced before, it is a sign that one of the two
        was not meant. A sum of constants is a count, outside of a backward pass.
        """
        op = lint.op
        if op is None or op.kind == "replicated_broadcast":
            return op is not None
        reduction = op.attributes.get("op")
        if reduction in _SUMS and not self._is_mean(op.id):
            operand = self._program.core.op_inputs(op.id)[0]
            assert operand is not None
            return op.id not in self._derivatives and self._program.is_constant(operand)
        if not self._reaches_states(op.id, lambda _: False):
            return True
        return op.kind in REDUCTIONS and (not self._is_mean(op.id) or not self._is_of_reduced_gradient(op.id))

    def in_words(self, lint: Lint) -> Lint:
        """A lint L6 about a reduction in words that fit programs of every framework; of a program of popsr as it is."""
        op = lint.op
        if op is None or lint.code != "L6" or op.kind not in REDUCTIONS or not self._states:
            return lint
        grouping = op.attributes["group"] or self._step.ir.replica_grouping()
        what = "mean" if self._is_mean(op.id) else WORDS[op.attributes["op"]]
        copies = f"{lint.cost} replicas of a group" if lint.unit == "times" else "replicas of a group"
        text = f"{what} over {short_partition(grouping.partition)} of values that {copies} hold equal already"
        if what not in _WORDS_OF_SUMS:
            harmless = what != "mean" or self.is_harmless(lint)
            again = ", as their gradient was reduced before: a sum stays a sum; one of the two is too much"
            text += ": one over fewer replicas is the same" if harmless else again
        elif op.id in self._derivatives:
            text += f": the backward pass takes it, and gradients are {lint.cost} times too large where no mean follows"
        else:
            text += f": each counts {lint.cost} times; take the mean, or leave it out"
        return dataclasses.replace(lint, text=text)

    @functools.cached_property
    def _program(self) -> Program:
        return Program(self._step.ir)

    @functools.cached_property
    def _reductions(self) -> Mapping[int, Reduction]:
        return {each.op: each for each in self._program.reductions()}

    def _is_mean(self, op: int) -> bool:
        """True for a mean, also for a sum that is divided by the number of its values."""
        found = self._reductions.get(op)
        if found is not None:
            return found.mean is True
        return self._program.core.op_attributes(op).get("op") == "mean"

    def _covers(self, op: int, *, only_means: bool) -> Callable[[int], bool]:
        """Whether an op is a reduction, or a mean, over all replicas that this one reduces over."""
        mine = self._reductions.get(op)

        def covers(other: int) -> bool:
            found = self._reductions.get(other)
            if mine is None or found is None or not mine.group.refines(found.group):
                return False
            return not only_means or self._is_mean(other)

        return covers

    @functools.cached_property
    def _states(self) -> frozenset[int]:
        """New values of states; none where the importer does not say."""
        return frozenset(each.result._id for each in self._step.states if each.result is not None)

    # Ways of values

    @functools.cached_property
    def _callers(self) -> Mapping[int, Sequence[int]]:
        """The ops that run a graph, by each tensor that the graph returns."""
        found: dict[int, list[int]] = {}
        for op in self._program.core.ops_with_graphs():
            for graph in Op(self._step.ir, op).called_graphs:
                for tensor in graph.outputs:
                    found.setdefault(tensor._id, []).append(op)
        return found

    def _reaches_states(self, op: int, ends: Callable[[int], bool]) -> bool:
        """True if a new value of a state may depend on an op's result by a way without an op that ``ends`` it."""
        core, program = self._program.core, self._program
        if not self._states:
            return True
        seen, left = set[int](), list(core.op_outputs(op))
        while left:
            tensor = left.pop()
            if tensor in seen:
                continue
            seen.add(tensor)
            if tensor in self._states:
                return True
            users = (*program.users.get(tensor, ()), *self._callers.get(tensor, ()))
            left += [out for user in users if not ends(user) for out in core.op_outputs(user)]
        return False

    def _is_of_reduced_gradient(self, op: int) -> bool:
        """True if an op's operand is linear in a gradient that was reduced, or where that cannot be told."""
        core = self._program.core
        if core.op_graph(op) != 0:
            return True
        with_graphs = set(core.ops_with_graphs())
        seen, left = set[int](), _producers(self._program, op)
        while left:
            each = left.pop()
            if each in with_graphs:
                return True
            if each not in seen:
                seen.add(each)
                left += _producers(self._program, each) if self._program.kinds[each] in LINEAR else []
        is_gradient = not self._derivatives or any(each in self._derivatives for each in seen)
        return is_gradient and any(self._program.kinds[each] in REDUCTIONS for each in seen)


def _producers(program: Program, op: int) -> list[int]:
    """The ops that make the operands of one."""
    operands: Iterable[int | None] = program.core.op_inputs(op)
    found = (program.producer(each) for each in operands if each is not None)
    return [each for each in found if each >= 0]
