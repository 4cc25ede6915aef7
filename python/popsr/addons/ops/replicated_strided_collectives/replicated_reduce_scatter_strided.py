"""Reduce and scatter between the replicas of each group."""

from __future__ import annotations

from popsr._program.building.operands import read_tensor
from popsr._program.tensor import Tensor
from popsr._program.variables.variables import read_group
from popsr._support.host.arguments import read_choice
from popsr._support.text.entry_points import public
from popsr.ops import collectives
from popsr.ops.collectives import CollectiveOps
from popsr.replicas import ReplicaGrouping

__all__ = ["replicated_reduce_scatter_strided"]


@public
def replicated_reduce_scatter_strided(
    t: Tensor,
    op: CollectiveOps = "add",
    group: ReplicaGrouping | None = None,
    configure_output_for_replicated_tensor_sharding: bool = False,
) -> Tensor:
    """Reduce over the replicas of each group; the member of rank k receives chunk k of the flattened result.

    Ranks ascend with replicas: with a stride, replica r has rank ``(r % (stride * size)) // stride``.

    Args:
        t: the operand, of n elements.
        op: "add" or "mean".
        group: the groups. Default: one of all replicas.
        configure_output_for_replicated_tensor_sharding: give the result the shape of ``t`` as its meta shape.
    Returns:
        ``[ceil(n / size)]`` of the dtype of ``t``; the last chunk is filled up with zeros. There is no gradient:
        autodiff refuses.
    Raises:
        TypeError: ``t`` is not a tensor.
        ValueError: another ``op``, ``t`` is of another graph, or the group is of another number of replicas.
    """
    where = "replicated_reduce_scatter_strided"
    read_choice(where, "op", op, ("add", "mean"))
    group = read_group(where, group)
    return collectives.replicated_reduce_scatter(
        read_tensor(where, "t", t), op, group, configure_output_for_replicated_tensor_sharding
    )
