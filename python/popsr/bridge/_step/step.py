"""A training step of another framework as a program."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from popsr._program.building.gaps import Gap
from popsr._program.ir import Ir
from popsr._support.text.entry_points import public
from popsr._support.text.summary import Summarised, Summary, line
from popsr.analysis._axes import ReplicaAxes, shown_groups
from popsr.bridge._advice import Variant
from popsr.bridge._proof.proof import Proof, proof_of
from popsr.bridge._proof.runs import StepRuns
from popsr.bridge._step.arguments import Argument, Loss, Reading, Result, Smaller
from popsr.bridge._step.names import Names
from popsr.replicas import Partition

__all__ = ["BridgedStep"]


@public
@dataclass(frozen=True, repr=False, eq=False)
class BridgedStep(Summarised):
    """A training step as a program of popsr; made by the importers and by ``StepBuilder.finish``.

    ``print`` shows a table of arguments and results.

    Attributes:
        ir: the program. States are its variables, which it writes at its end.
        arguments: what the step takes, in order.
        results: what it returns, in order.
        gaps: ops that popsr lacks, for which stand-ins are analysed; a step that has some does not run.
        source: the call that made it.
        partial: products of weights that are cut along the dimension that is summed, by number of the tensor: of such
            a sum each replica of a group has a part.
        axes: names of the axes that replicas lie along: of the mesh that the step is written for; None without one.
        hints: lines beside the causes of a proof that is not ``ok``.
        notes: lines about what a proof rests on beside the program, such as contracts that the user declares.
        expected: values inside that the step takes for equal in groups.
        variants: changes of the step beside reductions of gradients, which are tried as advice.
        loss: what is known of the losses that the step differentiates.
        again: reads the step in another way; None where the importer cannot.
        smaller: looks for smaller sizes at which a step of large shapes is the same program, beside a reference, or
            says why there are none; its result is None for a step that is not large.
        callers: lines of the user from which the line of an op was called, the innermost first, by number of the op,
            where they are kept.
    """

    ir: Ir
    arguments: tuple[Argument, ...]
    results: tuple[Result, ...]
    gaps: tuple[Gap, ...] = ()
    source: str = "bridge"
    partial: Mapping[int, Partition] = field(default_factory=dict, repr=False)
    axes: ReplicaAxes | None = field(default=None, repr=False)
    hints: tuple[str, ...] = field(default=(), repr=False)
    notes: tuple[str, ...] = ()
    expected: tuple[Result, ...] = field(default=(), repr=False)
    variants: tuple[Variant, ...] = field(default=(), repr=False)
    loss: Loss = field(default="of constants", repr=False)
    again: Callable[[Reading], BridgedStep] | None = field(default=None, repr=False)
    smaller: Callable[[Any], Sequence[Smaller] | str | None] | None = field(default=None, repr=False)
    callers: Mapping[int, tuple[str, ...]] = field(default_factory=dict, repr=False)
    _runs: StepRuns = field(default_factory=StepRuns, init=False)

    @functools.cached_property
    def derivatives(self) -> frozenset[int]:
        """Numbers of the ops that are part of a backward pass, where the importer knows them."""
        return frozenset(self.ir._core.derivatives())

    @functools.cached_property
    def names(self) -> Names:
        """Names of its values, in the words of the user's program."""
        return Names(self)

    @property
    def states(self) -> tuple[Argument, ...]:
        """The arguments that are states."""
        return tuple(each for each in self.arguments if each.role == "state")

    def argument(self, path: str) -> Argument:
        """The argument of a path.

        Raises:
            UnknownNameError: there is none.
        """
        return self._runs.argument(self.arguments, path)

    def prove(self, *, stochastic_rounding: bool = False, like: Any = None, exact: bool = True) -> Proof:
        """Prove which states stay equal on which replicas, over any number of runs and for all data.

        Args:
            stochastic_rounding: with the seeds of a program whose narrow floats are rounded stochastically.
            like: "one device", or a step for one device: whether the step trains as that does; see ``popsr.prove``.
            exact: with ``like``, whether it is compared by exact arithmetic; else in float64.
        """
        return proof_of(self, stochastic_rounding, like, exact)

    def run(self, inputs: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Run the step once on the simulated replicas, from the states that the run before left.

        Args:
            inputs: data by path. Default, also of paths that are left out: the examples that the step was read with.
        Returns:
            Results by path, then the new values of states by path: a row for each replica, or what the importer makes
            of these.
        Raises:
            UnsupportedOpsError: the step has ops that popsr lacks.
            UnknownNameError: a path that is not of data.
            SessionError: data that is not given and has no example.
        """
        return self._runs.run(self, {} if inputs is None else inputs)

    def restart(self, **options: Any) -> None:
        """Let the next run start from the initial states.

        Args:
            options: of the ``Session`` that runs it, such as ``check=True`` or ``dedup=False``.
        """
        self._runs.restart(self.ir, options)

    def __repr__(self) -> str:
        roles = {role: sum(each.role == role for each in self.arguments) for role in ("state", "data")}
        gaps = f" {len(self.gaps)} gaps" if self.gaps else ""
        return line(
            f"BridgedStep[{self.source}: {self.ir.replication_factor} replicas {self.ir._core.num_ops} ops "
            f"{roles['state']} states {roles['data']} data {len(self.results)} results{gaps}]"
        )

    def _summary(self) -> Summary:
        rows: list[tuple[object, ...]] = [
            (each.path, each.role, each.dtype.name, list(each.shape), self._groups(each))
            for each in self.arguments
        ]
        rows += [
            (each.path, "result", each.tensor.dtype.name, list(each.tensor.shape), self._groups(each))
            for each in self.results
        ]
        groups = "equal in" if self.axes is None else "groups"
        return Summary(repr(self), ("path", "role", "dtype", "shape", groups), rows, len(rows))

    def _groups(self, each: Argument | Result) -> object:
        """The cell of declared groups: a partition, or its axes."""
        if each.grouping is None:
            return ""
        partition = each.grouping.partition
        return partition if self.axes is None else shown_groups(partition, self.axes, sharded=each.sharded)
