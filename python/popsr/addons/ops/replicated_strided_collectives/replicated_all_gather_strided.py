"""Gather between the replicas of each group, flat."""

from __future__ import annotations

from popsr import ops
from popsr._program.building.operands import read_tensor
from popsr._program.building.transaction import transactional
from popsr._program.tensor import Tensor
from popsr._program.variables.variables import read_group
from popsr._support.text.entry_points import public
from popsr.ops import collectives
from popsr.replicas import ReplicaGrouping

__all__ = ["replicated_all_gather_strided"]


@public
@transactional
def replicated_all_gather_strided(t: Tensor, group: ReplicaGrouping | None = None) -> Tensor:
    """Put the values of the members of each group together, in ascending replica order; every member receives them.

    Args:
        t: the operand, any dtype.
        group: the groups. Default: one of all replicas.
    Returns:
        Tensor of the dtype of ``t``: of its meta shape where it is a shard, without what fills up the last shard; else
        ``[group size * elements]``. The gradient is this replica's part of the result's, right when downstream
        gradients are equal on all members.
    Raises:
        TypeError: ``t`` is not a tensor.
        ValueError: ``t`` is of another graph, a shard that is no such part of its meta shape, or the group is of
            another number of replicas.
    """
    where = "replicated_all_gather_strided"
    group = read_group(where, group)
    if read_tensor(where, "t", t).meta_shape:
        return collectives.replicated_all_gather(t, 0, group, "meta_shape")
    return collectives.replicated_all_gather(ops.flatten(t), 0, group, "concat")
