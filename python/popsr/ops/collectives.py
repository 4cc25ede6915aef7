"""Exchange between the replicas of each group.

Reductions go in ascending replica order, so results are bitwise reproducible and the same on all members.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from popsr._program.building.emit import emit
from popsr._program.tensor import Tensor
from popsr._support.host.arguments import read_choice
from popsr._support.host.choices import Choices
from popsr._support.text.entry_points import public_call
from popsr._support.text.suggestions import unknown_attribute
from popsr.ops._facts import public_op
from popsr.ops.replicas import collective_moves, collective_pairs
from popsr.ops.replicas.collective_moves import *
from popsr.ops.replicas.collective_pairs import *
from popsr.ops.replicas.collective_pairs import CollectiveOps
from popsr.replicas import CommGroup, CommGroupType, ReplicaGrouping

__all__ = [
    "CollectiveOperator",
    "CollectiveOps",
    "CommGroup",
    "CommGroupType",
    "replicated_all_gather",
    "replicated_all_reduce",
    "replicated_all_reduce_",
    "replicated_reduce_scatter",
    "replicated_scan",
    "to_collective_op",
    *collective_moves.__all__,
    *collective_pairs.__all__,
]


class CollectiveOperator(Choices):
    """Operators that reduce the values of several replicas."""

    Add = "add"
    Mean = "mean"
    Mul = "mul"
    Min = "min"
    Max = "max"
    LogicalAnd = "and"
    LogicalOr = "or"
    SquareAdd = "square_add"


@public_call
def to_collective_op(op: CollectiveOps) -> CollectiveOperator:
    """The operator of that name.

    Raises:
        ValueError: there is none.
    """
    return CollectiveOperator(
        read_choice("to_collective_op", "op", op, [each.value for each in CollectiveOperator])
    )


@public_op
def replicated_all_reduce(
    t: Tensor, op: CollectiveOps = "add", group: ReplicaGrouping | None = None
) -> Tensor:
    """Reduce over the replicas of each group; every member receives the result.

    Args:
        t: the operand.
        op: "add", "mean", "max" or "min".
        group: the groups. Default: one of all replicas.
    Returns:
        Tensor of the shape and dtype of ``t``.
    Source:
        MPI: MPI_Allreduce.
    Example:
        >>> evaluate(ops.collectives.replicated_all_reduce, [[1.0, 2.0], [3.0, 4.0]], replicas=2)
        array([[4., 6.],
               [4., 6.]], dtype=float32)
    """
    return emit("replicated_all_reduce", {"t": t}, op=op, group=group)


@public_op
def replicated_all_reduce_(
    t: Tensor, op: CollectiveOps = "add", group: ReplicaGrouping | None = None
) -> Tensor:
    """``replicated_all_reduce`` in place.

    Args:
        t: what is modified.
        op: "add", "mean", "max" or "min".
        group: the groups. Default: one of all replicas.
    Returns:
        An alias of ``t``.
    Raises:
        GraphError: ``t`` is a constant.
        ValueError: unknown ``op``.
    Source:
        MPI: MPI_Allreduce with MPI_IN_PLACE.
    Example:
        >>> evaluate(ops.collectives.replicated_all_reduce_, [[1.0, 2.0], [3.0, 4.0]], replicas=2)
        array([[4., 6.],
               [4., 6.]], dtype=float32)
    """
    return emit("replicated_all_reduce_", {"t": t}, op=op, group=group)


@public_op
def replicated_all_gather(
    t: Tensor,
    axis: int = 0,
    group: ReplicaGrouping | None = None,
    output_shape: Literal["new_axis", "concat", "meta_shape", "auto"] = "auto",
) -> Tensor:
    """Put the values of the members of each group together; every member receives the result.

    Args:
        t: the operand.
        axis: where members are put together, in ascending replica order.
        group: the groups. Default: one of all replicas.
        output_shape: "concat" joins along ``axis``, "new_axis" stacks, "meta_shape" takes the shape of ``t``, "auto" is
            "meta_shape" where there is one, else "concat".
    Returns:
        Tensor of the dtype of ``t``.
    Raises:
        ValueError: the axis is out of range, or unknown ``output_shape``.
    Source:
        MPI: MPI_Allgather.
    Example:
        >>> evaluate(ops.collectives.replicated_all_gather, [[1.0], [2.0]], replicas=2)
        array([[1., 2.],
               [1., 2.]], dtype=float32)
    """
    return emit("replicated_all_gather", {"t": t}, axis=axis, group=group, output_shape=output_shape)


@public_op
def replicated_reduce_scatter(
    t: Tensor,
    op: CollectiveOps = "add",
    group: ReplicaGrouping | None = None,
    configure_output_for_replicated_tensor_sharding: bool = False,
) -> Tensor:
    """Reduce over the replicas of each group; member k receives the k-th chunk of the flattened result.

    Args:
        t: the operand.
        op: "add", "mean", "max" or "min".
        group: the groups. Default: one of all replicas.
        configure_output_for_replicated_tensor_sharding: give the result the meta shape of ``t``.
    Returns:
        One-dimensional tensor; the last chunk is filled up with zeros.
    Source:
        MPI: MPI_Reduce_scatter_block.
    Example:
        >>> evaluate(ops.collectives.replicated_reduce_scatter, [[1.0, 2.0], [3.0, 4.0]], replicas=2)
        array([[4.],
               [6.]], dtype=float32)
    """
    return emit(
        "replicated_reduce_scatter",
        {"t": t},
        op=op,
        group=group,
        configure_output_for_replicated_tensor_sharding=configure_output_for_replicated_tensor_sharding,
    )


@public_op
def replicated_scan(t: Tensor, op: CollectiveOps = "add", group: ReplicaGrouping | None = None) -> Tensor:
    """Reduce over the replicas of each group up to each member: member k receives the result of members 0 to k.

    With "add" the running sum over replicas, MPI's ``MPI_Scan``: the number of samples on the replicas before this
    one is ``replicated_scan(n) - n``. The gradient of "add" is the scan from the last member down; other reductions
    have none: autodiff refuses.

    Args:
        t: the operand.
        op: "add", "mul", "min", "max", "square_add", or "and" and "or" of bool and integers.
        group: the groups. Default: one of all replicas.
    Returns:
        Tensor of the shape and dtype of ``t``.
    Raises:
        AttributeValueError: "mean", or unknown ``op``.
        DTypeError: ``op`` does not take the dtype.
        ReplicaError: the group is of another number of replicas.
    Source:
        MPI: MPI_Scan.
    Example:
        >>> evaluate(ops.collectives.replicated_scan, [[1.0], [2.0], [3.0]], replicas=3)
        array([[1.],
               [3.],
               [6.]], dtype=float32)
    """
    return emit("replicated_scan", {"t": t}, op=op, group=group)


if not TYPE_CHECKING:
    __getattr__ = unknown_attribute(__name__, __all__)
