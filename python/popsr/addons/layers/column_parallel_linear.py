"""Dense layer whose columns lie on the replicas of a group."""

from __future__ import annotations

from popsr._program.tensor import Tensor
from popsr._program.variables.variables import read_group
from popsr._support.host.arguments import read_flag
from popsr._support.text.entry_points import public
from popsr.addons.layers._parallel import (
    ColumnPart,
    Initial,
    enter_region,
    read_features,
    read_sequence_axis,
)
from popsr.ops import collectives
from popsr.replicas import ReplicaGrouping

__all__ = ["ColumnParallelLinear"]

_WHERE = "ColumnParallelLinear"


@public
class ColumnParallelLinear(ColumnPart):
    """``x @ weight + bias`` with a part of the columns on each replica of a group.

    Forwards nothing is exchanged; backwards the gradient of ``x`` is summed over the group. With ``sequence_axis``
    (sequence parallelism) ``x`` is all-gathered forwards and its gradient reduce-scattered backwards.

    Variables, of the dtype of ``x``, whose groups are the transpose of ``group`` (replicas of equal rank hold the same
    part): ``weight`` ``[features of x, out_features / group size]``, by default parts of a normal weight with standard
    deviation 0.02 cut off at 2 of them; ``bias`` ``[out_features / group size]``, by default zeros.

    Args:
        out_features: columns of the whole weight, a multiple of the group size.
        bias: true if there is one.
        group: the replicas that share one layer. Default: all replicas.
        gather_output: all-gather the columns, so that each replica has the whole result; the gradient of the result
            must be equal on the group then.
        sequence_axis: the axis of ``x`` that the replicas of a group share out; not the last one. None: ``x`` is whole,
            and equal on the group.
        initial_weight: the whole initial weight ``[features of x, out_features]``, or a function that returns one.
        initial_bias: the whole initial bias ``[out_features]``, or a function that returns one.

    Attributes:
        weight: the variable in the graph that ``build`` ran in last, for layers that share it.
    Raises:
        AttributeValueError: ``out_features`` is not an int of at least 1, or ``initial_bias`` without a bias.
    Source:
        Shoeybi et al., Megatron-LM, 2019, arXiv:1909.08053; sequence parallelism: Korthikanti et al., Reducing
        activation recomputation in large transformer models, 2022, arXiv:2205.05198.
    """

    def __init__(
        self,
        out_features: int,
        bias: bool = True,
        group: ReplicaGrouping | None = None,
        gather_output: bool = False,
        sequence_axis: int | None = None,
        *,
        initial_weight: Initial | None = None,
        initial_bias: Initial | None = None,
    ) -> None:
        """No state yet."""
        super().__init__(_WHERE, out_features, bias, group, initial_weight, initial_bias)
        self.gather_output = read_flag(f"{_WHERE}: gather_output", gather_output)
        self.sequence_axis = sequence_axis

    def build(self, x: Tensor) -> Tensor:
        """The layer in the current graph.

        Args:
            x: floats ``[..., features]``.
        Returns:
            Tensor ``[..., out_features / group size]`` of the dtype of ``x``, of the whole sequence; with
            ``gather_output`` ``[..., out_features]``, equal on the group.
        Raises:
            ShapeError: ``x`` is a scalar, the group size does not divide ``out_features``, or an initial value has
                another shape.
            AttributeValueError: ``x`` has no axis ``sequence_axis``, or it is the last one.
            DTypeError: ``x`` is not of floats.
            ReplicaError: ``group`` is of another number of replicas.
        """
        group = read_group(_WHERE, self.group)
        sequence_axis = read_sequence_axis(_WHERE, self.sequence_axis, read_features(_WHERE, x).shape)
        y = super().build(enter_region(x, group, sequence_axis))
        return collectives.replicated_all_gather(y, -1, group, "concat") if self.gather_output else y
