"""Replicated tensor sharding: members of a group that would hold the same value hold a part of it each.

A shard is a tensor of one dimension with the shape of the whole value as meta shape; the member of rank k in its group
has the k-th part of the flattened value. The groups are the value's own: replicas that hold the same. Groups without a
stride are taken in their constant-stride form, ``const_rg``, whose groups hold a whole value each.
"""

from __future__ import annotations

import math

from popsr import ops
from popsr._program.building.transaction import transactional
from popsr._program.context import gir, in_sequence
from popsr._program.create_graph import graph_input, graph_output
from popsr._program.tensor import Tensor
from popsr._program.tensor_spec import TensorSpec
from popsr._support.host.arguments import read_a, read_flag
from popsr._support.text.entry_points import public
from popsr.addons._tiles import tiles
from popsr.addons.graph import GraphWithNamedArgs
from popsr.addons.named_replica_grouping import NamedReplicaGrouping, fill_none_group, group_of
from popsr.addons.named_tensors import NamedTensors
from popsr.addons.variable_factory import NamedVariableFactories, VariableFactory
from popsr.ops.collectives import CollectiveOps
from popsr.replicas import ReplicaGrouping

__all__ = [
    "all_gather_replica_sharded_graph",
    "gather_replica_sharded_tensor",
    "reduce_replica_sharded_graph",
    "reduce_replica_sharded_tensor",
    "replica_sharded_spec",
]


@public
def replica_sharded_spec(t: Tensor | TensorSpec, shard_over: ReplicaGrouping) -> TensorSpec:
    """The type of a member's part of a tensor.

    Args:
        t: the tensor, or its spec.
        shard_over: the groups.
    Returns:
        Spec of shape ``(elements / group_size,)`` with the shape of ``t`` as meta shape; of ``t`` itself when it is a
        shard already, or its elements are not a multiple of the group size.
    """
    read_a("replica_sharded_spec: t", t, (Tensor, TensorSpec))
    shards = read_a("replica_sharded_spec: shard_over", shard_over, ReplicaGrouping).const_rg
    if not _can_shard(t, shards):
        return TensorSpec(t.shape, t.dtype, t.meta_shape)
    return TensorSpec((math.prod(t.shape) // shards.group_size,), t.dtype, t.shape)


@public
@transactional
def gather_replica_sharded_tensor(
    t: Tensor, use_io_tiles: bool = False, replica_group: ReplicaGrouping | None = None
) -> Tensor:
    """Put the parts of a tensor together.

    Args:
        t: a shard; other tensors are returned as they are.
        use_io_tiles: gather on io tiles and copy from there.
        replica_group: the groups. Default: one of all replicas.
    Returns:
        Tensor of the meta shape of ``t``.
    """
    read_a("gather_replica_sharded_tensor: t", t, Tensor)
    use_io_tiles = read_flag("gather_replica_sharded_tensor: use_io_tiles", use_io_tiles)
    group = fill_none_group(replica_group, gir().replica_grouping())
    shards = read_a("gather_replica_sharded_tensor: replica_group", group, ReplicaGrouping).const_rg
    if not t.meta_shape:
        return t
    with tiles(use_io_tiles):
        gathered = ops.collectives.replicated_all_gather(
            ops.io_tile_copy(t) if use_io_tiles else t, group=shards
        )
    return ops.io_tile_copy(gathered) if use_io_tiles else gathered


@public
@transactional
def all_gather_replica_sharded_graph(
    tensors: NamedTensors | NamedVariableFactories,
    use_io_tiles: bool = False,
    replica_groups: NamedReplicaGrouping | None = None,
) -> tuple[GraphWithNamedArgs, list[str]]:
    """A graph that gathers tensors, with a named argument and an output for each.

    Args:
        tensors: the tensors, or factories of them; those that are not shards pass through.
        use_io_tiles: gather on io tiles and copy from there.
        replica_groups: the groups by key. Default: one of all replicas, also for keys that are not there.
    Returns:
        The graph, and the keys of its outputs: sorted. ``NamedTensors.pack(names, graph.bind(tensors).call())``.
    """
    where = "all_gather_replica_sharded_graph"
    use_io_tiles = read_flag(f"{where}: use_io_tiles", use_io_tiles)
    with gir().create_empty_graph("all_gather") as graph, in_sequence():
        args = inputs_like(where, tensors)
        names, inputs = args.unpack()
        for name, t in zip(names, inputs, strict=True):
            graph_output(gather_replica_sharded_tensor(t, use_io_tiles, group_of(replica_groups, name)))
    return GraphWithNamedArgs(graph, args), list(names)


@public
@transactional
def reduce_replica_sharded_tensor(
    t: Tensor,
    op: CollectiveOps = "add",
    replica_group: ReplicaGrouping | None = None,
    shard_group: ReplicaGrouping | None = None,
) -> Tensor:
    """Reduce a tensor over replicas, and leave each member of a group its part of the result.

    Args:
        t: the tensor, whole.
        op: how values are put together: "add", "mean", "max", "min" …
        replica_group: groups over which is reduced. Default: one of all replicas.
        shard_group: groups whose members have a part each. Default: ``replica_group``.
    Returns:
        A shard, see ``replica_sharded_spec``; the whole result where the groups have one member, or the elements are no
        multiple of their size.
    """
    where = "reduce_replica_sharded_tensor"
    read_a(f"{where}: t", t, Tensor)
    reduced_over = fill_none_group(replica_group, gir().replica_grouping())
    read_a(f"{where}: replica_group", reduced_over, ReplicaGrouping)
    shards = read_a(
        f"{where}: shard_group", fill_none_group(shard_group, reduced_over), ReplicaGrouping
    ).const_rg
    if not _can_shard(t, shards):
        return ops.collectives.replicated_all_reduce(t, op, reduced_over)
    if shards == reduced_over:
        return ops.collectives.replicated_reduce_scatter(t, op, shards, True)
    if reduced_over.group_size > 1:
        t = ops.collectives.replicated_all_reduce(t, op, reduced_over)
    return ops.collectives.replica_sharded_slice(t, shards)


@public
@transactional
def reduce_replica_sharded_graph(
    tensors: NamedTensors | NamedVariableFactories,
    op: CollectiveOps = "add",
    use_io_tiles: bool = False,
    shard_groups: NamedReplicaGrouping | None = None,
    replica_group: ReplicaGrouping | None = None,
) -> tuple[GraphWithNamedArgs, list[str]]:
    """A graph that reduces tensors, with a named argument and an output for each.

    Args:
        tensors: the tensors, whole, or factories of them.
        op: as for ``reduce_replica_sharded_tensor``.
        use_io_tiles: reduce on io tiles and copy from there.
        shard_groups: groups whose members have a part each, by key. A key that is not there has ``replica_group``;
            groups of one member: that tensor is not sharded.
        replica_group: groups over which is reduced. Default: one of all replicas.
    Returns:
        The graph, and the keys of its outputs: sorted.
    """
    where = "reduce_replica_sharded_graph"
    use_io_tiles = read_flag(f"{where}: use_io_tiles", use_io_tiles)
    with gir().create_empty_graph("reduce") as graph, in_sequence():
        args = inputs_like(where, tensors)
        names, inputs = args.unpack()
        for name, t in zip(names, inputs, strict=True):
            with tiles(use_io_tiles):
                reduced = reduce_replica_sharded_tensor(
                    ops.io_tile_copy(t) if use_io_tiles else t,
                    op,
                    replica_group,
                    group_of(shard_groups, name),
                )
            graph_output(ops.io_tile_copy(reduced) if use_io_tiles else reduced)
    return GraphWithNamedArgs(graph, args), list(names)


def _can_shard(t: Tensor | TensorSpec, group: ReplicaGrouping) -> bool:
    return not t.meta_shape and group.group_size > 1 and math.prod(t.shape) % group.group_size == 0


def specs_of(where: str, tensors: NamedTensors | NamedVariableFactories) -> dict[str, TensorSpec]:
    """Specs of the leaves of a tree, by dotted key.

    Args:
        where: the call, for messages.
        tensors: tensors, or factories, which stand for the tensors that they make.
    Raises:
        ArgumentTypeError: it is no such tree, or has another leaf.
    """
    read_a(f"{where}: tensors", tensors, (NamedTensors, NamedVariableFactories))
    specs = {}
    for key, leaf in tensors.to_dict().items():
        like = read_a(f"{where}: {key!r} of tensors", leaf, (Tensor, VariableFactory))
        specs[key] = TensorSpec(like.shape, like.dtype, like.meta_shape or ())
    return specs


def inputs_like(where: str, tensors: NamedTensors | NamedVariableFactories) -> NamedTensors:
    """Inputs of the current graph like the leaves of a tree, in the order of sorted keys.

    Args:
        where: as for ``specs_of``.
        tensors: as for ``specs_of``.
    """
    specs = dict(sorted(specs_of(where, tensors).items()))
    inputs = [graph_input(each.shape, each.dtype, key, False, each.meta_shape) for key, each in specs.items()]
    return NamedTensors.pack(specs, inputs)
