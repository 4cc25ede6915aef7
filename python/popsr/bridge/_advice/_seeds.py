"""Scale of a loss, read off the constants that its backward pass begins with."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Set

import numpy as np

from popsr._program.ir import Ir
from popsr.analysis import PartitionAnalysis
from popsr.ops._kinds import MOVES
from popsr.replicas import Partition

__all__ = ["Uniform", "is_mean_loss", "loss_groups"]

_MOST = 1 << 20
"""Elements of a constant that is read."""


class Uniform:
    """Tensors that hold one number in all elements, known while the step is read.

    A number that is computed in the program and equal on all replicas, such as a scale of the loss, counts as 1.

    Args:
        ir: the program.
        facts: its analysis.
        derivatives: its backward passes.
    """

    def __init__(self, ir: Ir, facts: PartitionAnalysis, derivatives: Set[int]) -> None:
        """Without any tensor read."""
        self._facts, self._derivatives = facts, derivatives
        self._ir, self._core = ir, ir._core
        self._found: dict[int, float | None] = {}

    def value(self, tensor: int) -> float | None:
        """The number; None for other tensors."""
        left = [tensor]
        while left:
            t = left[-1]
            if t in self._found:
                left.pop()
                continue
            producer = self._core.tensor(t).producer
            operands = [] if producer is None or self._is_scale(t) else self._operands(producer)
            missing = [each for each in operands if each not in self._found]
            if missing:
                left += missing
                continue
            if self._is_scale(t):
                self._found[t] = 1.0
            else:
                self._found[t] = self._constant(t) if producer is None else self._result(producer, operands)
            left.pop()
        return self._found[tensor]

    def _is_scale(self, tensor: int) -> bool:
        """True for one number that forward ops make, equal on all replicas."""
        info = self._core.tensor(tensor)
        if math.prod(info.shape) != 1 or info.kind == "constant":
            return False
        if info.producer is not None and info.producer in self._derivatives:
            return False
        return self._facts.partition(self._ir._tensor(tensor)).num_blocks == 1

    def _operands(self, op: int) -> list[int]:
        """Operands that the value is computed of; none of ops that are not followed."""
        if self._core.op_kind(op) not in MOVES | _RULES.keys() | {"replicated_all_reduce"}:
            return []
        return [t for t in self._core.op_inputs(op) if t is not None]

    def _result(self, op: int, operands: list[int]) -> float | None:
        values = [found for t in operands if (found := self._found[t]) is not None]
        if not operands or len(values) != len(operands):
            return None
        kind = self._core.op_kind(op)
        if kind in MOVES:
            return values[0]
        if kind != "replicated_all_reduce":
            return _RULES[kind](*values)
        attributes = self._core.op_attributes(op)
        size = (attributes["group"] or self._ir.replica_grouping()).group_size
        return {"add": values[0] * size, "mean": values[0]}.get(attributes["op"])

    def _constant(self, tensor: int) -> float | None:
        info = self._core.tensor(tensor)
        data = self._core.tensor_data(tensor) if info.kind == "constant" else None
        if data is None or math.prod(info.shape) > _MOST or not info.dtype.startswith(("float", "bfloat")):
            return None
        kind = self._ir._tensor(tensor).dtype.as_numpy()
        elements = data.reshape(-1, kind.itemsize)
        if not elements.size or np.any(elements ^ elements[0]):
            return None
        return float(data.view(kind)[0])


_RULES: dict[str, Callable[..., float | None]] = {
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b if b else None,
    "negate": lambda a: -a,
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
}


def is_mean_loss(
    ir: Ir,
    facts: PartitionAnalysis,
    derivatives: Set[int],
    gradients: Iterable[int],
    rows: Collection[int],
    size: int,
) -> bool:
    """True if gradients are of a loss that is a mean over the rows of a replica: a mean over replicas is whole.

    The backward pass of such a loss begins with one number in all elements, which times the extents that it is a mean
    over is 1. Sums, other factors, and losses with another beginning too are not decided: False.

    Args:
        ir: the program.
        facts: its analysis.
        derivatives: its backward passes.
        gradients: numbers of tensors that backward passes make.
        rows: rows of data on a replica.
        size: replicas that have different data: where the loss may as well be a sum of what a row has, over the rows of
            all replicas, it is not decided.
    """
    uniform = Uniform(ir, facts, derivatives)
    seeds = [*_seeds(ir, derivatives, gradients, uniform)]
    return bool(seeds) and all(_is_mean(abs(value), shape, rows, size) for value, shape in seeds)


def loss_groups(ir: Ir, facts: PartitionAnalysis, derivatives: Set[int]) -> Partition | None:
    """Replicas over which losses are reduced: backward passes begin with all-reduces of a number; None without one."""
    uniform, core = Uniform(ir, facts, derivatives), ir._core
    found: Partition | None = None
    for op in derivatives:
        if core.op_kind(op) != "replicated_all_reduce":
            continue
        reduced = core.op_inputs(op)[0]
        if reduced is not None and uniform.value(reduced) is not None:
            groups = (core.op_attributes(op)["group"] or ir.replica_grouping()).partition
            found = groups if found is None else found.join(groups)
    return found


def _seeds(
    ir: Ir, derivatives: Set[int], gradients: Iterable[int], uniform: Uniform
) -> Iterator[tuple[float, tuple[int, ...]]]:
    """Numbers that backward passes begin with, and the shape in which they meet a value of the forward pass."""
    core = ir._core
    seen: set[int] = set()
    left = [*gradients]
    while left:
        t = left.pop()
        op = core.tensor(t).producer
        if t in seen or op is None or op not in derivatives:
            continue
        seen.add(t)
        if uniform.value(t) is not None:
            continue
        operands = [each for each in core.op_inputs(op) if each is not None]
        made = {each: core.tensor(each).producer for each in operands}
        inside = {each for each, maker in made.items() if maker is not None and maker in derivatives}
        varying = [each for each in operands if uniform.value(each) is None]
        starts = not any(each in inside for each in varying)
        for each in operands:
            value, shape = uniform.value(each), core.tensor(each).shape
            if value is None or value == 0:
                continue
            if each in inside or starts or math.prod(shape) > 1:
                yield value, shape
        left += varying


def _is_mean(value: float, shape: tuple[int, ...], rows: Collection[int], size: int) -> bool:
    """True if a number is 1 / extents of which the first is one, however these are chosen."""
    if not shape or shape[0] == 1 or len(shape) > 6 or value == 0:
        return False
    rest = [n for n in range(1, len(shape)) if shape[n] > 1]
    choices = [each for count in range(len(rest) + 1) for each in itertools.combinations(rest, count)]
    counts = [first * math.prod(shape[n] for n in each) for first in (1, shape[0]) for each in choices]
    total = round(1 / value)
    if not math.isclose(value * total, 1, rel_tol=4e-3) or total not in counts[len(choices) :]:
        return False
    if total in counts[: len(choices)]:
        return False
    return bool(rows) and all(
        each and total % each == 0 and (size == 1 or (total // each) % size != 0) for each in rows
    )
