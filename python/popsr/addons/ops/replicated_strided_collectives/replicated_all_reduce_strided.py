"""Reductions between the replicas of each group, with the gradients that tensor parallelism wants."""

from __future__ import annotations

from popsr import ops
from popsr._program.building.operands import check_floats, read_tensor
from popsr._program.building.transaction import transactional
from popsr._program.context import gir, in_sequence
from popsr._program.create_graph import graph_output
from popsr._program.tensor import Tensor, constant
from popsr._program.variables.variables import read_group
from popsr._support.host.arguments import read_choice, read_flag
from popsr._support.text.entry_points import public
from popsr.addons._tiles import tiles
from popsr.addons.graph import GraphWithNamedArgs
from popsr.addons.named_tensors import NamedTensors
from popsr.addons.ops._operands import widened
from popsr.addons.rts import inputs_like
from popsr.addons.variable_factory import NamedVariableFactories
from popsr.ops import collectives
from popsr.ops.collectives import CollectiveOps
from popsr.ops.utils import cast_if_needed
from popsr.replicas import ReplicaGrouping

__all__ = [
    "replicated_all_reduce_strided",
    "replicated_all_reduce_strided_graph",
    "replicated_all_reduce_strided_identical_grad_inputs",
    "replicated_all_reduce_strided_identical_inputs",
]


@public
@transactional
def replicated_all_reduce_strided(
    t: Tensor, op: CollectiveOps = "add", group: ReplicaGrouping | None = None
) -> Tensor:
    """Reduce over each group; the gradient is reduced likewise, for members that go on in different ways.

    Args:
        t: the operand; of floats for "mean".
        op: "add" or "mean".
        group: the groups. Default: one of all replicas.
    Returns:
        Tensor of the shape and dtype of ``t``; equal within each group. A mean of narrow floats is rounded once.
    Raises:
        TypeError: ``t`` is not a tensor, or a mean of integers.
        ValueError: another ``op``, a tensor of another graph, or a group of another number of replicas.
    """
    where = "replicated_all_reduce_strided"
    group = _check(where, t, op, group)
    reduced = _reduce(t, op, group)
    return collectives.replicated_all_reduce_identical_inputs(reduced, group=group)


@public
@transactional
def replicated_all_reduce_strided_identical_inputs(
    t: Tensor, op: CollectiveOps = "add", group: ReplicaGrouping | None = None
) -> Tensor:
    """A copy of ``t``, whose gradient is reduced over each group: for values that are the same on all members.

    Args:
        t: the operand, identical within each group; of floats for "mean".
        op: "add" or "mean": what reduces the gradient.
        group: the groups. Default: one of all replicas.
    Returns:
        Tensor of the shape and dtype of ``t``.
    Raises:
        TypeError: ``t`` is not a tensor, or a mean of integers.
        ValueError: another ``op``, a tensor of another graph, or a group of another number of replicas.
    """
    group = _check("replicated_all_reduce_strided_identical_inputs", t, op, group)
    if op == "add":
        return collectives.replicated_all_reduce_identical_inputs(t, group=group)
    # The value of t, bit for bit: nothing is subtracted. The gradient is part's, which is finite where t is not.
    finite = ops.where(ops.isfinite(t), t, constant(0, t.dtype))
    part = collectives.replicated_all_reduce_identical_inputs(finite, group=group) * (1 / group.group_size)
    return t.detach() - (part.detach() - part)


@public
@transactional
def replicated_all_reduce_strided_identical_grad_inputs(
    t: Tensor, op: CollectiveOps = "add", group: ReplicaGrouping | None = None
) -> Tensor:
    """Reduce over each group, for gradients of the result that are the same on all members: nothing is exchanged then.

    Args:
        t: the operand; of floats for "mean".
        op: "add" or "mean". The gradient is the result's, for "mean" divided by the size of the group.
        group: the groups. Default: one of all replicas.
    Returns:
        Tensor of the shape and dtype of ``t``; equal within each group. A mean of narrow floats is rounded once.
    Raises:
        TypeError: ``t`` is not a tensor, or a mean of integers.
        ValueError: another ``op``, a tensor of another graph, or a group of another number of replicas.
    """
    group = _check("replicated_all_reduce_strided_identical_grad_inputs", t, op, group)
    return _reduce(t, op, group)


@public
@transactional
def replicated_all_reduce_strided_graph(
    tensors: NamedTensors | NamedVariableFactories,
    op: CollectiveOps = "add",
    group: ReplicaGrouping | None = None,
    use_io_tiles: bool = False,
) -> tuple[GraphWithNamedArgs, list[str]]:
    """A graph that reduces each of some tensors over each group.

    Args:
        tensors: what is reduced, or factories of it: shapes, dtypes and names of the graph's arguments.
        op: "add" or "mean".
        group: the groups. Default: one of all replicas.
        use_io_tiles: reduce on io tiles and copy from there.
    Returns:
        The graph, with an argument and an output for each tensor in the order of their sorted keys, and these keys: so
        ``NamedTensors.pack(names, graph.bind(tensors).call())``.
    Raises:
        TypeError: no tree of tensors, or a mean of integers.
        ValueError: another ``op``, or a group of another number of replicas.
    """
    where = "replicated_all_reduce_strided_graph"
    read_choice(where, "op", op, ("add", "mean"))
    group = read_group(where, group)
    on_io_tiles = read_flag(f"{where}: use_io_tiles", use_io_tiles)
    with gir().create_empty_graph("all_reduce") as graph, in_sequence():
        args = inputs_like(where, tensors)
        keys, inputs = args.unpack()
        for key, t in zip(keys, inputs, strict=True):
            if op == "mean":
                check_floats(where, key, t.dtype)
            with tiles(on_io_tiles):
                reduced = replicated_all_reduce_strided(ops.io_tile_copy(t) if on_io_tiles else t, op, group)
            graph_output(ops.io_tile_copy(reduced) if on_io_tiles else reduced)
    return GraphWithNamedArgs(graph, args), list(keys)


def _check(where: str, t: Tensor, op: CollectiveOps, group: ReplicaGrouping | None) -> ReplicaGrouping:
    read_choice(where, "op", op, ("add", "mean"))
    read_tensor(where, "t", t)
    if op == "mean":
        check_floats(where, "t", t.dtype)
    return read_group(where, group)


def _reduce(t: Tensor, op: CollectiveOps, group: ReplicaGrouping) -> Tensor:
    """The reduction, whose gradient exchanges nothing."""
    if op == "add":
        return collectives.replicated_all_reduce_identical_grad_inputs(t, group=group)
    total = collectives.replicated_all_reduce_identical_grad_inputs(widened(t), group=group)
    return cast_if_needed(total / group.group_size, t.dtype)
