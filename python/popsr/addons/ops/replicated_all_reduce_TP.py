"""The reductions at the ends of a tensor-parallel region, which differ in what happens forward and backward."""  # noqa: N999

from __future__ import annotations

from popsr._program.building.operands import read_tensor
from popsr._program.building.transaction import transactional
from popsr._program.tensor import Tensor
from popsr._program.variables.variables import read_group
from popsr._support.host.arguments import read_choice
from popsr._support.text.entry_points import public
from popsr.ops.collectives import (
    CollectiveOps,
    replicated_all_reduce_identical_grad_inputs,
    replicated_all_reduce_identical_inputs,
)
from popsr.replicas import ReplicaGrouping

__all__ = [
    "replicated_all_reduce",
    "replicated_all_reduce_identical_grad_inputs",
    "replicated_all_reduce_identical_inputs",
]


@public
@transactional
def replicated_all_reduce(
    t: Tensor, op: CollectiveOps = "add", group: ReplicaGrouping | None = None
) -> Tensor:
    """The sum over each group, whose gradient is summed over it too: where each member goes on in its own way.

    Args:
        t: the operand.
        op: "add".
        group: the groups. Default: one of all replicas.
    Returns:
        Tensor of the shape and dtype of ``t``; equal within each group.
    Raises:
        TypeError: ``t`` is not a tensor.
        ValueError: another ``op``, a tensor of another graph, or a group of another number of replicas.
    """
    where = "replicated_all_reduce"
    read_choice(where, "op", op, ("add",))
    group = read_group(where, group)
    summed = replicated_all_reduce_identical_grad_inputs(read_tensor(where, "t", t), group=group)
    return replicated_all_reduce_identical_inputs(summed, group=group)
