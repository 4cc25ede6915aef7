"""Collectives with a declared gradient, and reductions of several tensors of one replica.

They come in pairs, for the two ends of a tensor-parallel region: where a value enters it that is the same on all
members, the forward pass keeps it and the backward pass reduces; where partial results leave it, the reverse.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from popsr._program.building.emit import emit, emit_op
from popsr._program.building.operands import read_tensor_list
from popsr._program.building.placement import find_place
from popsr._program.building.transaction import transactional
from popsr._program.tensor import Tensor
from popsr._support.host.arguments import is_a, read_items
from popsr._support.text.shown import shown
from popsr.errors import ArgumentTypeError, GraphError
from popsr.ops._facts import public_op
from popsr.replicas import ReplicaGrouping

__all__ = [
    "all_reduce",
    "all_reduce_identical_grad_inputs",
    "all_reduce_identical_inputs",
    "replicated_all_reduce_identical_grad_inputs",
    "replicated_all_reduce_identical_inputs",
]

CollectiveOps = Literal["add", "mean", "mul", "min", "max", "and", "or", "square_add"]


@public_op
def replicated_all_reduce_identical_inputs(
    t: Tensor, op: CollectiveOps = "add", group: ReplicaGrouping | None = None
) -> Tensor:
    """A copy of ``t``, whose gradient is all-reduced: for values that are the same on all members of a group.

    Args:
        t: the operand, identical within each group.
        op: "add".
        group: the groups. Default: one of all replicas.
    Returns:
        Tensor of the shape and dtype of ``t``.
    Raises:
        ValueError: another ``op``.
        ReplicaError: the group is of another number of replicas.
    Source:
        The operators f and g of Shoeybi et al., Megatron-LM, 2019, arXiv:1909.08053.
    Example:
        >>> evaluate(ops.collectives.replicated_all_reduce_identical_inputs, [[1.0], [2.0]], replicas=2)
        array([[1.],
               [2.]], dtype=float32)
    """
    return emit("replicated_all_reduce_identical_inputs", {"t": t}, op=op, group=group)


@public_op
def replicated_all_reduce_identical_grad_inputs(
    t: Tensor, op: CollectiveOps = "add", group: ReplicaGrouping | None = None
) -> Tensor:
    """``replicated_all_reduce``, whose gradient is its result's: for gradients that are the same on all members.

    Args:
        t: the operand.
        op: "add".
        group: the groups. Default: one of all replicas.
    Returns:
        Tensor of the shape and dtype of ``t``; equal within each group.
    Raises:
        ValueError: another ``op``.
        ReplicaError: the group is of another number of replicas.
    Source:
        The operators f and g of Shoeybi et al., Megatron-LM, 2019, arXiv:1909.08053.
    Example:
        >>> evaluate(ops.collectives.replicated_all_reduce_identical_grad_inputs, [[1.0], [2.0]], replicas=2)
        array([[3.],
               [3.]], dtype=float32)
    """
    return emit("replicated_all_reduce_identical_grad_inputs", {"t": t}, op=op, group=group)


@public_op
def all_reduce(
    ts: Iterable[Tensor], ipus: Sequence[int] | None = None, op: CollectiveOps = "add"
) -> list[Tensor]:
    """Reduce tensors on several IPUs of one replica.

    Args:
        ts: tensors of one shape and dtype; they are reduced in this order.
        ipus: the IPU of each tensor. Default: where they are.
        op: the reduction.
    Returns:
        The result once for each tensor, on its IPU. Each gradient is the sum of theirs, for "add"; other reductions
        refuse to be differentiated.
    Raises:
        ValueError: no tensors, unequal shapes, unknown ``op``, another number of ``ipus``, or none
            and it is unknown where a tensor is.
        TypeError: unequal dtypes.
    Example:
        >>> evaluate(ops.collectives.all_reduce, ([1.0], [2.0]), ipus=[0, 1])
        [array([3.], dtype=float32), array([3.], dtype=float32)]
    """
    return _of_tensors("all_reduce", ts, ipus, op)


@public_op
def all_reduce_identical_inputs(
    ts: Iterable[Tensor], ipus: Sequence[int] | None = None, op: CollectiveOps = "add"
) -> list[Tensor]:
    """Copies of tensors of one replica that are all the same, each of whose gradients is the sum of theirs.

    Args:
        ts: identical tensors.
        ipus: the IPU of each tensor. Default: where they are.
        op: "add".
    Returns:
        A copy of each tensor, on its IPU.
    Raises:
        ValueError: no tensors, unequal shapes, another ``op``, another number of ``ipus``, or none
            and it is unknown where a tensor is.
        TypeError: unequal dtypes.
    Source:
        The operators f and g of Shoeybi et al., Megatron-LM, 2019, arXiv:1909.08053.
    Example:
        >>> evaluate(ops.collectives.all_reduce_identical_inputs, ([1.0], [2.0]), ipus=[0, 1])
        [array([1.], dtype=float32), array([2.], dtype=float32)]
    """
    return _of_tensors("all_reduce_identical_inputs", ts, ipus, op)


@public_op
def all_reduce_identical_grad_inputs(
    ts: Iterable[Tensor], ipus: Sequence[int] | None = None, op: CollectiveOps = "add"
) -> list[Tensor]:
    """``all_reduce``, where the gradient of a tensor is its own result's: for gradients that are all the same.

    Args:
        ts: tensors of one shape and dtype; they are reduced in this order.
        ipus: the IPU of each tensor. Default: where they are.
        op: "add".
    Returns:
        The result once for each tensor, on its IPU.
    Raises:
        ValueError: no tensors, unequal shapes, another ``op``, another number of ``ipus``, or none
            and it is unknown where a tensor is.
        TypeError: unequal dtypes.
    Source:
        The operators f and g of Shoeybi et al., Megatron-LM, 2019, arXiv:1909.08053.
    Example:
        >>> evaluate(ops.collectives.all_reduce_identical_grad_inputs, ([1.0], [2.0]), ipus=[0, 1])
        [array([3.], dtype=float32), array([3.], dtype=float32)]
    """
    return _of_tensors("all_reduce_identical_grad_inputs", ts, ipus, op)


@transactional
def _of_tensors(
    name: str, ts: Iterable[Tensor], ipus: Sequence[int] | None, op: CollectiveOps
) -> list[Tensor]:
    tensors = read_tensor_list(name, "ts", ts)
    if ipus is None:
        ipus = _places_of(name, tensors)
    elif not is_a(ipus, Iterable):
        raise ArgumentTypeError(
            f"{name}: ipus is not a list, got {shown(ipus)}, expected an int for each tensor"
        )
    return emit_op(
        name,
        {"ts": tensors},
        {"op": op, "ipus": list(read_items(name, "ipus", ipus, kind="ints"))},
        outputs=len(tensors),
    )[1]


def _places_of(name: str, tensors: Iterable[Tensor]) -> list[int]:
    ipus = []
    for tensor in tensors:
        if not is_a(tensor, Tensor):  # the op says so
            continue
        place = find_place(tensor)
        if place is None:
            raise GraphError(
                f"{name}: the IPU of a tensor is unknown, got {shown(tensor)} that no op makes or takes, expected ipus"
            )
        ipus.append(place[0])
    return ipus
