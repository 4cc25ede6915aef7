"""A traced step as a program: states, data and results around the ops of its graph."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from popsr import dtypes, ops
from popsr._program.tensor import Tensor, Variable, constant
from popsr._support.host.arguments import read_items, read_mapping, read_text
from popsr._support.host.patterns import Patterns
from popsr._support.text.shown import shown
from popsr.bridge._step.arguments import Step
from popsr.bridge._step.builder import StepBuilder
from popsr.bridge.torch._dtypes import Scalar
from popsr.bridge.torch._ranks.job import (
    grouping_of_labels,
    grouping_of_ranks,
    grouping_of_values,
    is_running,
)
from popsr.bridge.torch._tracing.generators import Drawn
from popsr.errors import ReplicaError
from popsr.replicas import ReplicaGrouping

__all__ = ["RANDOM_SEED", "Groups", "RandomSeeds", "Values", "add_results"]

RANDOM_SEED = "random seed"
"""Path of the state that random ops draw from."""


class Groups(Patterns[ReplicaGrouping]):
    """The replicas that are given equal values, by patterns of paths.

    Args:
        declared: groupings by pattern, as the user says them.
        equal: patterns of what all replicas share.
        world: number of replicas.
        where: the call, for messages.
    """

    def __init__(
        self, declared: Mapping[str, Any] | None, equal: Iterable[str], world: int, where: str
    ) -> None:
        """The patterns in their order; the first that fits counts."""
        given = read_mapping(where, "groups", declared)
        shared = [equal] if isinstance(equal, str) else read_items(where, "equal", equal, kind="patterns")
        everyone = grouping_of_labels([0] * world)
        super().__init__(
            [
                *(
                    (read_text(f"{where}: a pattern of groups", each), grouping_of_ranks(value, world, where))
                    for each, value in given.items()
                ),
                *((read_text(f"{where}: a pattern of equal", each), everyone) for each in shared),
            ]
        )
        self._where = where

    def require_used_in(self, step: Step) -> None:
        """Refuse patterns that fit no argument and no result of a step; it need not draw random numbers.

        Raises:
            UnknownNameError: there is one.
        """
        paths = [*(each.path for each in step.arguments), *(each.path for each in step.results), RANDOM_SEED]
        self.require_used(paths, f"{self._where}: groups or equal")


class Values:
    """The values of one tensor on all replicas."""

    def __init__(self, rows: Sequence[np.ndarray[Any, Any]], world: int) -> None:
        """A row for each replica, or one for all."""
        self._rows = list(rows) if len(rows) == world else [rows[0]] * world

    def labels(self) -> list[Hashable]:
        """Equal labels where replicas have the same bits."""
        seen: dict[bytes, int] = {}
        return [seen.setdefault(row.tobytes(), len(seen)) for row in self._rows]

    def of_groups(self, grouping: ReplicaGrouping) -> np.ndarray[Any, Any]:
        """A row for each group; of one group as it is."""
        firsts = [members[0] for members in grouping.groups]
        return self._rows[0] if len(firsts) == 1 else np.stack([self._rows[first] for first in firsts])

    def filled(self, grouping: ReplicaGrouping, held: Sequence[int]) -> Values:
        """With a value for replicas that hold none, by which their groups stay equal."""
        rows = list(self._rows)
        for members in grouping.groups:
            own = [member for member in members if member in held]
            for member in members:
                if own and member not in held:
                    rows[member] = rows[own[0]]
        return Values(rows, len(rows))

    def equal_in(self, grouping: ReplicaGrouping) -> bool:
        """True if the members of each group have the same bits."""
        labels = self.labels()
        return all(len({labels[m] for m in members}) == 1 for members in grouping.groups)


class RandomSeeds:
    """Seeds of random ops, made of one state that each run replaces; made when the first op asks.

    Args:
        builder: the program.
        groups: has the replicas that draw the same numbers, under the path ``random seed``; default none.
        world: number of replicas.
        drawn: draws of each rank from generators that ops are given; of one rank if the others do as it.
    """

    def __init__(
        self, builder: StepBuilder, groups: Groups, world: int, drawn: Sequence[Drawn | None] = ()
    ) -> None:
        """No seed yet."""
        self._builder, self._groups, self._world, self._drawn = builder, groups, world, drawn
        self._generators: dict[tuple[str, ...], tuple[str, Variable]] = {}
        self._lasting: dict[str, Variable] = {}
        self._state: Variable | None = None
        self._count = 0

    def __call__(self) -> Tensor:
        """A seed that no other op has."""
        if self._state is None:
            grouping = self._groups.of(RANDOM_SEED) or self._builder.each()
            rows = [np.array([rank, 0], np.uint32) for rank in range(self._world)]
            self._state = self._builder.state(
                RANDOM_SEED, Values(rows, self._world).of_groups(grouping), grouping
            )
        self._count += 1
        return ops.create_random_seed(self._state, constant(np.asarray(self._count), dtypes.uint32))

    def of_generator(self, op: int, number: int) -> Tensor:
        """The seed of an op that is given a generator: equal on ranks whose generators have the same state.

        Args:
            op: number of the op in the trace.
            number: of its draw, from 1 on.
        """
        found = [each for each in self._drawn if each is not None]
        of_ranks = [each.labels[op] for each in found]
        labels = tuple(of_ranks * (self._world // len(of_ranks)))
        if any(op in each.of_torch for each in found):
            own = (self._groups.of(RANDOM_SEED) or self._builder.each()).partition.labels
            labels = tuple(
                hashlib.sha256(f"{label} {group}".encode()).hexdigest()
                for label, group in zip(labels, own, strict=True)
            )
        if labels not in self._generators:
            path = f"generator {len(self._generators) + 1}"
            unknown = is_running() and len(of_ranks) < self._world
            alone = grouping_of_labels(range(self._world))
            grouping = (self._groups.of(path) or alone) if unknown else grouping_of_values(labels)
            rows = [np.frombuffer(bytes.fromhex(label)[:8], np.uint32) for label in labels]
            state = self._builder.state(path, Values(rows, self._world).of_groups(grouping), grouping)
            self._generators[labels] = path, state
        path, state = self._generators[labels]
        if any(op in each.lasting for each in found):
            self._lasting[path] = state
        return ops.create_random_seed(state, constant(np.asarray(number), dtypes.uint32))

    def lose_count(self, op: str, place: str) -> None:
        """Say that an op draws as many numbers as its operands say: generators need not go on together.

        Raises:
            ReplicaError: replicas are declared to draw the same numbers.
        """
        grouping = self._groups.of(RANDOM_SEED)
        if grouping is not None and grouping.group_size > 1:
            raise ReplicaError(
                f"bridge.torch: {op} at {place} draws as many numbers as its operands say, got replicas that share "
                f"{shown(RANDOM_SEED)}, expected replicas that draw numbers of their own"
            )

    def finish(self) -> None:
        """Let the next run draw other numbers."""
        states = self._lasting if self._state is None else {RANDOM_SEED: self._state, **self._lasting}
        for path, state in states.items():
            zero = constant(np.asarray(0), dtypes.uint32)
            self._builder.update(path, ops.create_random_seed(state, zero))


def add_results(
    builder: StepBuilder, returned: Mapping[str, Mapping[str, Any]], values: Sequence[Any]
) -> None:
    """Return the tensors of a step, by path with what is known of them beside one device."""
    for (path, known), value in zip(returned.items(), values, strict=True):
        if isinstance(value, Scalar):
            value = value.tensor
        if isinstance(value, Tensor):
            builder.result(path, ops.identity(value) if isinstance(value, Variable) else value, **known)
