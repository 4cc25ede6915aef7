"""Dense layer whose rows lie on the replicas of a group."""

from __future__ import annotations

from popsr import ops
from popsr._program.tensor import Tensor
from popsr._program.variables.variables import read_group
from popsr._support.host.arguments import read_flag, read_int
from popsr._support.text.entry_points import public
from popsr.addons.layers._parallel import (
    Initial,
    add_parts,
    divided,
    drawn_or,
    leave_region,
    read_bias,
    read_features,
    read_sequence_axis,
    zeros_or,
)
from popsr.addons.module import Module
from popsr.ops import collectives
from popsr.replicas import ReplicaGrouping

__all__ = ["RowParallelLinear"]


@public
class RowParallelLinear(Module):
    """``x @ weight + bias`` with a part of the rows, and these features of ``x``, on each replica of a group.

    Forwards the products are summed over the group, and the bias is added once; backwards nothing is exchanged. With
    ``sequence_axis`` (sequence parallelism) the sum is reduce-scattered forwards and its gradient all-gathered
    backwards; the gradient of the bias is summed over the group.

    Variables, of the dtype of ``x``: ``weight`` ``[features / group size, out_features]``, by default parts of a normal
    weight with standard deviation 0.02 cut off at 2 of them, whose groups are the transpose of ``group`` (replicas of
    equal rank hold the same part); ``bias`` ``[out_features]``, equal on all replicas, by default zeros.

    Args:
        out_features: extent of the last axis of the result.
        bias: true if there is one.
        group: the replicas that share one layer. Default: all replicas.
        input_is_parallel: ``x`` has the features of this replica. False: it has all, equal on the group, and each
            replica takes its own; the gradient is put together.
        sequence_axis: the axis of the result that the replicas of a group share out; not the last one. None: each
            replica has the whole result.
        initial_weight: the whole initial weight ``[features, out_features]``, or a function that returns one.
        initial_bias: the initial bias, or a function that returns one.

    Attributes:
        weight: the variable in the graph that ``build`` ran in last, for layers that share it.
    Raises:
        AttributeValueError: ``out_features`` is not an int of at least 1, or ``initial_bias`` without a bias.
    Source:
        Shoeybi et al., Megatron-LM, 2019, arXiv:1909.08053; sequence parallelism: Korthikanti et al., Reducing
        activation recomputation in large transformer models, 2022, arXiv:2205.05198.
    """

    _where = "RowParallelLinear"

    def __init__(
        self,
        out_features: int,
        bias: bool = True,
        group: ReplicaGrouping | None = None,
        input_is_parallel: bool = True,
        sequence_axis: int | None = None,
        *,
        initial_weight: Initial | None = None,
        initial_bias: Initial | None = None,
    ) -> None:
        """No state yet."""
        super().__init__()
        self.out_features = read_int(f"{self._where}: out_features", out_features, 1)
        self.bias = read_bias(self._where, bias, initial_bias)
        self.group = group
        self.input_is_parallel = read_flag(f"{self._where}: input_is_parallel", input_is_parallel)
        self.sequence_axis = sequence_axis
        self._weight_data, self._bias_data = initial_weight, initial_bias

    def build(self, x: Tensor) -> Tensor:
        """The layer in the current graph.

        Args:
            x: floats ``[..., features / group size]``; ``[..., features]`` without ``input_is_parallel``.
        Returns:
            Tensor ``[..., out_features]`` of the dtype of ``x``, equal on the group; with ``sequence_axis`` this
            replica's part of it.
        Raises:
            ShapeError: ``x`` is a scalar, the group size does not divide the features or the sequence, or an initial
                value has another shape.
            AttributeValueError: ``x`` has no axis ``sequence_axis``, or it is the last one.
            DTypeError: ``x`` is not of floats.
            ReplicaError: ``group`` is of another number of replicas.
        """
        group = read_group(self._where, self.group)
        sequence_axis = read_sequence_axis(
            self._where, self.sequence_axis, read_features(self._where, x).shape
        )
        if not self.input_is_parallel:
            divided(self._where, "features of x", x.shape[-1], group)
            x = collectives.replicated_slice(x, -1, group)
        shape = (x.shape[-1] * group.group_size, self.out_features)
        whole = drawn_or(self._weight_data, shape)
        self.weight = add_parts(self, self._where, "weight", whole, shape, x.dtype, group, 0)
        y = leave_region(self._where, ops.matmul(x, self.weight), group, sequence_axis)
        if not self.bias:
            return y
        whole = zeros_or(self._bias_data, self.out_features)
        bias = add_parts(self, self._where, "bias", whole, (self.out_features,), x.dtype, group, None)
        if sequence_axis is not None:  # its gradient on each replica is the sum over a part of the sequence
            bias = collectives.replicated_all_reduce_identical_inputs(bias, group=group)
        return y + bias
