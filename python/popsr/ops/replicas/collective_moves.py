"""Collectives that move values between replicas, or keep a part of each, and compute nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from popsr._program.building.emit import emit
from popsr._program.context import _context
from popsr._program.tensor import Tensor
from popsr._support.host.arguments import read_int, read_items
from popsr._support.text.shown import shown
from popsr.errors import ArgumentTypeError, OutOfRangeError, ReplicaError
from popsr.ops._facts import public_op
from popsr.replicas import ReplicaGrouping

__all__ = [
    "replica_sharded_slice",
    "replicated_all_to_all",
    "replicated_broadcast",
    "replicated_permute",
    "replicated_slice",
]

Destinations = Iterable[int | None] | Iterable[tuple[int, int]] | Mapping[int, int]
"""The destination of each replica (None: nowhere), or (source, destination) pairs, or a mapping of them."""


@public_op
def replicated_broadcast(t: Tensor, root: int = 0, group: ReplicaGrouping | None = None) -> Tensor:
    """Give all members of each group the value of one of them.

    The gradient arrives at the root as the sum of its group's gradients, and as zeros elsewhere.

    Args:
        t: the operand.
        root: index in its group of the member whose value all receive.
        group: the groups. Default: one of all replicas.
    Returns:
        Tensor of the shape and dtype of ``t``; equal within each group.
    Raises:
        IndexError: no such member.
        ReplicaError: the group is of another number of replicas.
    Source:
        MPI: MPI_Bcast.
    Example:
        >>> evaluate(ops.collectives.replicated_broadcast, [[1.0], [2.0]], root=1, replicas=2)
        array([[2.],
               [2.]], dtype=float32)
    """
    return emit("replicated_broadcast", {"t": t}, root=root, group=group)


@public_op
def replicated_all_to_all(t: Tensor, axis: int = 0, group: ReplicaGrouping | None = None) -> Tensor:
    """Cut ``t`` into a part for each member of a group and exchange: member k receives part k of all members.

    The parts received lie side by side along ``axis``, in ascending replica order. It is its own inverse, and its
    own gradient.

    Args:
        t: the operand, not a scalar.
        axis: where it is cut and put together; its extent is a multiple of the group size.
        group: the groups. Default: one of all replicas.
    Returns:
        Tensor of the shape and dtype of ``t``.
    Raises:
        ShapeError: the axis does not divide.
        ValueError: the axis is out of range.
        ReplicaError: the group is of another number of replicas.
    Source:
        MPI: MPI_Alltoall.
    Example:
        >>> evaluate(ops.collectives.replicated_all_to_all, [[1.0, 2.0], [3.0, 4.0]], replicas=2)
        array([[1., 3.],
               [2., 4.]], dtype=float32)
    """
    return emit("replicated_all_to_all", {"t": t}, axis=axis, group=group)


@public_op
def replicated_permute(t: Tensor, mapping: Destinations) -> Tensor:
    """Send the values of replicas to other replicas; those that receive nothing get zeros.

    Gradients go back the same ways.

    Args:
        t: the operand.
        mapping: the destination of each replica in order, None or -1 where its value is sent nowhere; or pairs
            (source, destination); or a mapping from sources to destinations.
    Returns:
        Tensor of the shape and dtype of ``t``.
    Raises:
        ReplicaError: two sources or two destinations of one value, or not one destination for each replica.
        IndexError: no such replica.
        TypeError: something else than replicas.
    Example:
        >>> evaluate(ops.collectives.replicated_permute, [[1.0], [2.0], [3.0]], mapping=[1, 2, 0], replicas=3)
        array([[3.],
               [1.],
               [2.]], dtype=float32)
    """
    return emit("replicated_permute", {"t": t}, mapping=_read_destinations(mapping))


@public_op
def replicated_slice(t: Tensor, axis: int = 0, group: ReplicaGrouping | None = None) -> Tensor:
    """This replica's part of its own tensor: member k keeps the k-th of as many parts as its group has members.

    Unlike PopXL's, the axis stays when a part has one row of it, and may be negative. The gradient is the gradients
    of all members put together (``replicated_all_gather``), right when downstream gradients are equal on all members.

    Args:
        t: the operand, not a scalar.
        axis: where it is cut; its extent is a multiple of the group size.
        group: the groups. Default: one of all replicas.
    Returns:
        Tensor of the dtype of ``t``, of its shape with the axis divided by the group size.
    Raises:
        ShapeError: the axis does not divide.
        ValueError: the axis is out of range.
        ReplicaError: the group is of another number of replicas.
    Example:
        >>> evaluate(ops.collectives.replicated_slice, [[1.0, 2.0], [3.0, 4.0]], replicas=2)
        array([[1.],
               [4.]], dtype=float32)
    """
    return emit("replicated_slice", {"t": t}, axis=axis, group=group)


@public_op
def replica_sharded_slice(t: Tensor, group: ReplicaGrouping | None = None) -> Tensor:
    """This replica's shard of its own tensor: member k keeps the k-th chunk of the flattened tensor.

    The gradients of all members are put together, as for ``replicated_slice``.

    Args:
        t: the operand.
        group: the groups. Default: one of all replicas.
    Returns:
        One-dimensional tensor of ceil(elements / group size) elements with the shape of ``t`` as its meta shape; the
        last chunk is filled up with zeros.
    Raises:
        ReplicaError: the group is of another number of replicas.
    Example:
        >>> evaluate(ops.collectives.replica_sharded_slice, [[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]], replicas=2)
        array([[1., 2.],
               [3., 0.]], dtype=float32)
    """
    return emit("replica_sharded_slice", {"t": t}, group=group)


def _read_destinations(mapping: Destinations) -> list[int]:
    """The destination of each replica, -1 for none. The core checks destinations."""
    pairs_of = mapping.items() if isinstance(mapping, Mapping) else mapping
    items = read_items("replicated_permute", "mapping", pairs_of, kind="replicas or pairs of replicas")
    pairs = (
        not items or isinstance(mapping, Mapping) or any(isinstance(item, (tuple, list)) for item in items)
    )
    if not pairs:
        return [-1 if item is None else _read_replica(item) for item in items]
    replicas = _context.ir.replication_factor
    destinations = [-1] * replicas
    seen: set[int] = set()
    for item in items:
        if not isinstance(item, (tuple, list)) or len(item) != 2:
            raise _not_replicas(item)
        source = _read_replica(item[0])
        if not 0 <= source < replicas:
            raise OutOfRangeError(
                f"replicated_permute: no such source, got {source}, expected 0 to {replicas - 1}"
            )
        if source in seen:
            raise ReplicaError(
                f"replicated_permute: two destinations of one replica, got {source} twice, expected distinct sources"
            )
        seen.add(source)
        destinations[source] = _read_replica(item[1])
    return destinations


def _read_replica(value: Any) -> int:
    return read_int("replicated_permute: an item of mapping", value)


def _not_replicas(value: object) -> ArgumentTypeError:
    return ArgumentTypeError(
        f"replicated_permute: mapping is not a list of destinations, got {shown(value)}, expected replicas or pairs"
    )
