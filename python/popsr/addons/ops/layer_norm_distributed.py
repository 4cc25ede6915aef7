"""Layer norm whose hidden axis lies on the replicas of a group."""

from __future__ import annotations

from popsr import ops
from popsr._program.building.operands import read_axis, read_floats, read_shape_of
from popsr._program.building.transaction import transactional
from popsr._program.tensor import Tensor
from popsr._program.variables.variables import read_group
from popsr._support.text.entry_points import public
from popsr.addons.ops._operands import widened
from popsr.addons.ops.replicated_all_reduce_TP import replicated_all_reduce
from popsr.ops.utils import cast_if_needed
from popsr.replicas import ReplicaGrouping

__all__ = ["layer_norm_distributed"]


@public
@transactional
def layer_norm_distributed(
    t: Tensor, w: Tensor, b: Tensor, epsilon: float = 1e-05, group: ReplicaGrouping | None = None
) -> Tensor:
    """Layer norm over a last axis that is shared out over the replicas of each group.

    ``(t - mean) / sqrt(variance + epsilon) * w + b`` with mean and variance over the whole axis: the mean is exchanged
    first, then the mean square distance from it, a number for each row each time. The arithmetic is in float32 (float64
    where ``t`` is), rounded once at the end.

    Args:
        t: floats ``[..., hidden / group size]``: this replica's part of the axis.
        w: floats ``[hidden / group size]``: this replica's part of the scale.
        b: this replica's part of the offset, of the shape of ``w``.
        epsilon: added to the variance.
        group: the replicas that share out the axis. Default: all replicas.
    Returns:
        Tensor of the shape and dtype of ``t``. Differentiable to ``t``, ``w`` and ``b`` of each replica, for a loss
        that is one value on the whole group.
    Raises:
        TypeError: an operand is not a tensor of floats.
        ValueError: shapes do not fit, a tensor is of another graph, or a grouping of another number of replicas.
    """
    where = "layer_norm_distributed"
    group = read_group(where, group)
    read_floats(where, "t", t)
    read_axis(f"{where}: t", -1, t.shape)
    for name, each in (("w", w), ("b", b)):
        read_shape_of(where, name, read_floats(where, name, each), t.shape[-1:])
    hidden = t.shape[-1] * group.group_size
    wide = widened(t)
    mean = replicated_all_reduce(ops.sum(wide, -1, keepdims=True), group=group) / hidden
    centred = wide - mean
    variance = replicated_all_reduce(ops.sum(centred * centred, -1, keepdims=True), group=group) / hidden
    normed = centred * ops.rsqrt(variance + epsilon)
    result = normed * cast_if_needed(w, wide.dtype) + cast_if_needed(b, wide.dtype)
    return cast_if_needed(result, t.dtype)
