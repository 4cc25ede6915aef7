"""Sums and means that do not fit together: gradients of one backward pass, and products that are parts of a sum."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import NamedTuple

import numpy as np

from popsr._program.building.location import short_place
from popsr._program.ir import Ir
from popsr._program.op import Op
from popsr.analysis import Lint
from popsr.analysis._drift import short_partition
from popsr.bridge._step.arguments import Step
from popsr.ops._kinds import MOVES, POINTWISE, SCALES
from popsr.replicas import Partition

__all__ = ["GradientReductions", "Program", "Reduction", "multiples"]

_THROUGH = MOVES | {"negate"}


class Reduction(NamedTuple):
    """An all-reduce of a gradient, or of parts of a sum.

    Attributes:
        op: the all-reduce.
        group: its groups.
        mean: whether it is divided by their size; None after a factor of 1/size, which may be a rate.
        operand: the value that it reduces, before moves and scales.
        result: its result, after moves and the division.
    """

    op: int
    group: Partition
    mean: bool | None
    operand: int
    result: int


def multiples(step: Step) -> tuple[Lint, ...]:
    """Lints L11 about gradients that are reduced by another multiple than the others, and means in place of sums."""
    derivatives = step.derivatives
    if not derivatives and not step.partial:
        return ()
    program = Program(step.ir)
    found = [each for each in program.reductions() if each.op not in derivatives]
    lints = [
        _lint(step.ir, each, _of_parts(step.ir, each, step.partial[each.operand]))
        for each in found
        if each.mean and step.partial.get(each.operand) == each.group
    ]
    gradients = [each for each in found if _is_of_gradient(each, program, step)]
    for same in _passes(program, derivatives, gradients).values():
        both = {each.operand for each in same if each.mean} & {
            each.operand for each in same if each.mean is False
        }
        compared = [each for each in same if each.operand not in both]  # a step may want both of a gradient
        sums, means = ([each for each in compared if each.mean is mean] for mean in (False, True))
        if sums and means:
            fewer, kind = (sums, "times") if len(sums) <= len(means) else (means, "of")
            others = means if fewer is sums else sums
            lints += [_lint(step.ir, each, _unlike(step, program, each, others[0], kind)) for each in fewer]
        elif sums:
            seed = _reduced_loss(program, derivatives, sums[0])
            lints += [
                _lint(step.ir, each, _of_mean_loss(step, program, each, seed))
                for each in sums
                if seed is not None
            ]
    return tuple(lints)


class Program:
    """The ops of a program by what they make and use."""

    def __init__(self, ir: Ir) -> None:
        """The ops of all graphs."""
        self.ir = ir
        self.core = ir._core
        self._states: dict[int, str] = {}
        self._constants: dict[int, bool] = {}
        self.kinds = [self.core.op_kind(op) for op in range(self.core.num_ops)]

    def producer(self, tensor: int) -> int:
        """The op that makes a tensor; -1 without one."""
        found = self.core.tensor(tensor).producer
        return -1 if found is None else found

    @functools.cached_property
    def users(self) -> Mapping[int, list[int]]:
        """The ops that use a tensor."""
        found: dict[int, list[int]] = {}
        for op in range(len(self.kinds)):
            for tensor in self.core.op_inputs(op):
                if tensor is not None:
                    found.setdefault(tensor, []).append(op)
        return found

    def reductions(self) -> Iterator[Reduction]:
        """All sums and means over groups of several replicas."""
        for op, kind in enumerate(self.kinds):
            if kind != "replicated_all_reduce":
                continue
            attributes = self.core.op_attributes(op)
            grouping = attributes["group"] or self.ir.replica_grouping()
            if attributes["op"] not in ("add", "mean") or grouping.group_size == 1:
                continue
            reduced = self.core.op_inputs(op)[0]
            assert reduced is not None
            operand, before = self._source(reduced, grouping.group_size)
            result, after = self._scaled(self.core.op_outputs(op)[0], grouping.group_size)
            if result not in self.users:
                continue
            kinds = {before, after, "div" if attributes["op"] == "mean" else ""}
            mean = True if "div" in kinds else None if "mul" in kinds else False
            yield Reduction(op, grouping.partition, mean, operand, result)

    def _source(self, tensor: int, size: int) -> tuple[int, str]:
        """The tensor that moves and scales lead back to, and the kind of the op that divides by a size."""
        divides = ""
        while True:
            op = self.producer(tensor)
            kind = self.kinds[op] if op >= 0 else ""
            if kind not in _THROUGH and kind not in SCALES:
                return tensor, divides
            inputs = [each for each in self.core.op_inputs(op) if each is not None]
            if kind in SCALES:
                factor = self._factor(op)
                if factor is None:
                    return tensor, divides
                divides = kind if factor == 1 / size else divides
                inputs = [each for each in inputs if self._constant(each) is None]
            if not inputs:
                return tensor, divides
            tensor = inputs[0]

    def _scaled(self, tensor: int, size: int) -> tuple[int, str]:
        """The tensor that moves and a division by a size lead to, and the kind of the op that divides."""
        while True:
            users = self.users.get(tensor, [])
            kind = self.kinds[users[0]] if len(users) == 1 else ""
            if kind not in _THROUGH and kind not in SCALES:
                return tensor, ""
            op = users[0]
            if kind in SCALES:
                divides = self._factor(op) == 1 / size
                return (self.core.op_outputs(op)[0], kind) if divides else (tensor, "")
            tensor = self.core.op_outputs(op)[0]

    def _factor(self, op: int) -> float | None:
        """The number that an op multiplies by; None without one."""
        first, second = self.core.op_inputs(op)[:2]
        assert first is not None
        assert second is not None
        right = self._constant(second)
        if self.kinds[op] == "div":
            return None if not right else 1 / right
        return self._constant(first) if right is None else right

    def _constant(self, tensor: int) -> float | None:
        """The value of a constant of one element."""
        info = self.core.tensor(tensor)
        if info.kind != "constant" or int(np.prod(info.shape)) != 1:
            return None
        data = self.core.tensor_data(tensor)
        return None if data is None else float(data.view(self.ir._tensor(tensor).dtype.as_numpy())[0])

    def is_constant(self, tensor: int) -> bool:
        """True for constants, and for what is computed of them alone."""
        found, left = self._constants, [tensor]
        while left:
            op = self.producer(left[-1])
            inputs = [] if op < 0 else [each for each in self.core.op_inputs(op) if each is not None]
            unknown = [each for each in inputs if each not in found]
            if unknown:
                left += unknown
                continue
            each = left.pop()
            is_one = op < 0 and self.core.tensor(each).kind == "constant"
            found[each] = is_one or (bool(inputs) and all(found[operand] for operand in inputs))
        return found[tensor]

    def states(self, step: Step, reduction: Reduction) -> list[str]:
        """Paths of the states that are updated with a reduced gradient, element by element."""
        if not self._states:
            self._states = {each.result._id: each.path for each in step.states if each.result is not None}
        shape = self.core.tensor(reduction.result).shape
        found, seen, left = [], {reduction.result}, [reduction.result]
        while left:
            tensor = left.pop()
            if tensor in self._states:
                found.append(self._states[tensor])
            for op in self.users.get(tensor, []):
                for out in self.core.op_outputs(op) if self.kinds[op] in POINTWISE else []:
                    if out not in seen and self.core.tensor(out).shape == shape:
                        seen.add(out)
                        left.append(out)
        return found


class _Passes:
    """Backward passes: ops of derivatives that values connect.

    Args:
        program: the program.
        derivatives: the ops.
    """

    def __init__(self, program: Program, derivatives: Iterable[int]) -> None:
        """Join ops by their operands."""
        self._parents: dict[int, int] = {}
        for op in derivatives:
            self._parents[op] = op
            for tensor in program.core.op_inputs(op):
                maker = -1 if tensor is None else program.producer(tensor)
                if maker in self._parents:
                    self._parents[self.of(maker)] = self.of(op)

    def of(self, op: int) -> int:
        """The op that stands for the backward pass of an op."""
        parents = self._parents
        while parents[op] != op:
            parents[op] = parents[parents[op]]
            op = parents[op]
        return op


def _passes(
    program: Program, derivatives: Set[int], gradients: list[Reduction]
) -> dict[tuple[int, Partition], list[Reduction]]:
    """Reductions over the same groups of gradients of the same backward pass."""
    passes = _Passes(program, derivatives) if len(gradients) > 1 else None
    found: dict[tuple[int, Partition], list[Reduction]] = {}
    for each in gradients:
        first = 0 if passes is None else passes.of(program.producer(each.operand))
        found.setdefault((first, each.group), []).append(each)
    return found


def _is_of_gradient(each: Reduction, program: Program, step: Step) -> bool:
    """True for a reduction of a gradient that states are updated with."""
    return program.producer(each.operand) in step.derivatives and bool(program.states(step, each))


class GradientReductions:
    """Means or sums over replicas that a step makes of its gradients.

    Args:
        step: the step.
    """

    def __init__(self, step: Step) -> None:
        """Reductions of all gradients that states are updated with."""
        self._program = program = Program(step.ir)
        self._passes = _Passes(program, step.derivatives)
        self._found = [
            each
            for each in program.reductions()
            if each.op not in step.derivatives and _is_of_gradient(each, program, step)
        ]

    def like(self, gradient: int, groups: Partition) -> list[bool | None]:
        """Reductions of gradients of the same backward pass over the same groups: True for means, False for sums.

        Args:
            gradient: number of a tensor that a backward pass makes.
            groups: the groups.
        """
        own = self._passes.of(self._program.producer(gradient))
        return [
            each.mean
            for each in self._found
            if each.group == groups and self._passes.of(self._program.producer(each.operand)) == own
        ]


def _reduced_loss(program: Program, derivatives: Set[int], reduction: Reduction) -> int | None:
    """The all-reduce that a backward pass begins with, as its loss is reduced over the same groups; else None."""
    seen, left = set(), [program.producer(reduction.operand)]
    while left:
        op = left.pop()
        if op in seen or op not in derivatives:
            continue
        seen.add(op)
        operands = [each for each in program.core.op_inputs(op) if each is not None]
        if program.kinds[op] == "replicated_all_reduce" and not program.core.tensor(operands[0]).shape:
            grouping = program.core.op_attributes(op)["group"] or program.ir.replica_grouping()
            if grouping.partition == reduction.group and program.is_constant(operands[0]):
                return op
        left += [program.producer(each) for each in operands]
    return None


def _lint(ir: Ir, each: Reduction, text: str) -> Lint:
    op = Op(ir, each.op)
    size = max(len(block) for block in each.group.blocks)
    return Lint("L11", op, op.outputs[0], op.location, size, "replicas", text)


def _whose(step: Step, program: Program, each: Reduction) -> str:
    paths = program.states(step, each)
    return f"'{paths[0]}'" if paths else f"'{Op(step.ir, each.op).outputs[0].name}'"


def _unlike(step: Step, program: Program, each: Reduction, other: Reduction, kind: str) -> str:
    size = max(len(block) for block in each.group.blocks)
    much = f"{size} times" if kind == "times" else f"1/{size} of"
    here, there = ("sum", "mean") if kind == "times" else ("mean", "sum")
    place = short_place(Op(step.ir, other.op).location)
    return (
        f"{_whose(step, program, each)} is updated with {much} the gradient that others of the backward pass get: a "
        f"{here} over {short_partition(each.group)}, theirs is a {there}, as of {_whose(step, program, other)} at "
        f"{place}"
    )


def _of_mean_loss(step: Step, program: Program, each: Reduction, seed: int) -> str:
    size = max(len(block) for block in each.group.blocks)
    return (
        f"{_whose(step, program, each)} is updated with {size} times the gradient of the loss, which is reduced over "
        f"{short_partition(each.group)} already, at {short_place(Op(step.ir, seed).location)}; take the mean"
    )


def _of_parts(ir: Ir, each: Reduction, group: Partition) -> str:
    size = max(len(block) for block in group.blocks)
    made = ir._core.tensor(each.operand).producer
    place = "" if made is None else f" at {short_place(ir._core.location_of(made))}"
    return (
        f"a mean over {short_partition(group)} of products{place}, whose weights are cut over these replicas: each has "
        f"a part of the sum, and the mean is 1/{size} of it; take the sum"
    )
