"""Views of the ops of a graph, for looking at programs."""

from __future__ import annotations

import functools
import operator
from typing import TYPE_CHECKING, Any, Literal

from popsr._program.handles import Handle, refuse_undone
from popsr._support.extensions import member
from popsr._support.host.choices import Choices
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr.errors import ArgumentTypeError

if TYPE_CHECKING:
    from popsr._program.graph import Graph
    from popsr._program.ir import Ir
    from popsr._program.tensor import Tensor
    from popsr.replicas import Partition

__all__ = ["Op", "StochasticRoundingMethod"]


class StochasticRoundingMethod(Choices):
    """Choice of random numbers of an op that rounds stochastically."""

    DifferingSeeds = "differing_seeds"
    IdenticalSeeds = "identical_seeds"


@public
class Op(Handle):
    """One op of a graph. Views compare by the op that they show."""

    __slots__ = ("_calls", "_id", "_program")

    _program: Ir
    opType = property(member("compat", "Op.opType"))  # noqa: N815 - PopART's name

    def __init__(self, ir: Ir, id_: int) -> None:
        """A view; see ``Graph.ops``."""
        self._program = ir
        self._id = id_
        try:
            self._calls = ir._undone.calls
        except AttributeError:
            raise ArgumentTypeError(f"Op: ir is not an Ir, got {shown(ir)}, expected an Ir") from None

    @property
    def _ir(self) -> Ir:
        if self._is_undone:
            refuse_undone(self)
        return self._program

    @property
    def _is_undone(self) -> bool:
        """True if the call that made the op failed."""
        undone = self._program._undone
        return self._calls != undone.calls and undone.covers(self._id, self._calls)

    @property
    def id(self) -> int:
        """Number of the op in the Ir."""
        return self._id

    @property
    def kind(self) -> str:
        """Name of its definition, as in ``popsr.ops``."""
        return self._ir._core.op_kind(self._id)

    @property
    def name(self) -> str:
        """Name of its first output, else its kind."""
        outputs = self.outputs
        return outputs[0].name if outputs else self.kind

    @property
    def inputs(self) -> tuple[Tensor | None, ...]:
        """Inputs; None where an optional one is absent."""
        ir = self._ir
        return tuple(None if id_ is None else ir._tensor(id_) for id_ in ir._core.op_inputs(self._id))

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """Outputs."""
        return self._ir._tensors_of(self._ir._core.op_outputs(self._id))

    @property
    def attributes(self) -> dict[str, Any]:
        """Attributes by name."""
        return self._ir._core.op_attributes(self._id)

    @property
    def called_graphs(self) -> tuple[Graph, ...]:
        """Graphs that it runs: of a call or loop one, of a conditional its branches."""
        attributes = self._ir._core.op_attributes(self._id)
        return tuple(
            self._ir._graph(attributes[name])
            for name in ("graph", "then_branch", "else_branch")
            if name in attributes
        )

    @property
    def parts(self) -> tuple[Op, ...]:
        """The ops that a merged op does at once; they are in no graph's list. Empty for other ops."""
        return tuple(Op(self._ir, id_) for id_ in self._ir._core.op_parts(self._id))

    @property
    def location(self) -> str:
        """``file:line`` in the user's program; a gradient op carries its forward op's."""
        return self._ir._core.location_of(self._id)

    @property
    def ipu(self) -> int:
        """Device of the replica that it was placed on; a gradient op carries its forward op's."""
        return self._ir._core.op_place(self._id).ipu

    @property
    def tile_set(self) -> Literal["compute", "io"]:
        """Tiles of the device that it was placed on."""
        return self._ir._core.op_place(self._id).tile_set

    @property
    def seed_partition(self) -> Partition | None:
        """Replicas that round with the same random numbers; None when it does not round stochastically.

        As ``analyze(ir)`` proves them, which assumes nothing of what streams are fed. A session whose streams are fed
        equal rows may choose coarser ones.

        Parts of a merged op round each with its own; of the merged op it is what they have in common.
        """
        of_parts = [seeds for part in self.parts if (seeds := part.seed_partition) is not None]
        if of_parts:
            return functools.reduce(operator.and_, of_parts)
        if self._seed_rule() is None:
            return None
        return self._ir._facts().seeds(self._id)

    @property
    def stochastic_rounding_method(self) -> StochasticRoundingMethod | None:
        """IdenticalSeeds when all replicas round with the same random numbers; None when it does not round so.

        In modes "popart" and "identical" it is what the mode says, also with one replica; in mode "partition"
        IdenticalSeeds when the seed partition is one block. Of a merged op: when all its parts have it.
        """
        of_parts = {method for part in self.parts if (method := part.stochastic_rounding_method) is not None}
        if len(of_parts) == 1:
            return of_parts.pop()
        if of_parts:
            return StochasticRoundingMethod.DifferingSeeds
        rule = self._seed_rule()
        if rule == "partition":
            rule = "identical" if self._ir._facts().seeds(self._id).num_blocks == 1 else "differing"
        return None if rule is None else StochasticRoundingMethod(f"{rule}_seeds")

    def _seed_rule(self) -> str | None:
        """The rule that the options or the transform give it: "partition", "identical" or "differing"."""
        return self._ir._seed_rules().rule(self._ir._core, self._id)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Op)
            and other._program is self._program
            and other._id == self._id
            and other._is_undone == self._is_undone
        )

    def __hash__(self) -> int:
        return hash((self._program.id, self._id))

    def __repr__(self) -> str:
        return f"Op[{self._id}]" if self._is_undone else self._ir._core.print_op(self._id)
