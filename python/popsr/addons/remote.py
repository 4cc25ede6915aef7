"""Trees of remote buffers, and graphs that load and store them."""

from __future__ import annotations

import math
from collections.abc import Mapping

from popsr import dtypes, ops
from popsr._program.building.transaction import transactional
from popsr._program.context import gir, in_sequence
from popsr._program.create_graph import graph_input, graph_output
from popsr._program.tensor import Tensor
from popsr._program.tensor_spec import TensorSpec
from popsr._program.variables.remote_buffer import RemoteBuffer
from popsr._program.variables.remote_variables import replica_sharded_buffer
from popsr._support.host.arguments import read_a, read_flag, read_int
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr.addons._tiles import tiles
from popsr.addons.dot_tree import DotTree
from popsr.addons.graph import GraphWithNamedArgs
from popsr.addons.named_tensors import NamedTensors
from popsr.addons.rts import specs_of
from popsr.addons.variable_factory import NamedVariableFactories
from popsr.errors import ReplicaError, ShapeError
from popsr.replicas import ReplicaGrouping

__all__ = [
    "NamedRemoteBuffers",
    "create_remote_buffer",
    "load_remote",
    "load_remote_graph",
    "named_buffers",
    "named_variable_buffers",
    "store_remote",
    "store_remote_graph",
]


class NamedRemoteBuffers(DotTree[RemoteBuffer]):
    """A tree of remote buffers."""


@public
@transactional
def create_remote_buffer(
    spec: TensorSpec | Tensor,
    entries: int = 1,
    replica_group: ReplicaGrouping | None = None,
    shard_over: int | None = None,
) -> RemoteBuffer:
    """A remote buffer for tensors of one kind.

    Args:
        spec: shape and dtype of an entry. A shard, with a meta shape, is kept as it is.
        entries: how many entries.
        replica_group: groups of replicas with the same value. Default: one group of all.
        shard_over: each of so many members of a group keeps a part. Default: all members, of a group without a stride
            those of its parts of constant stride; 1: each keeps all.
    Returns:
        A buffer of the spec's shape, or of ``(elements / shard_over,)`` with the spec's shape as meta shape.
    Raises:
        ShapeError: the parts are not equally long.
        ReplicaError: ``shard_over`` does not divide the group size.
    """
    where = "create_remote_buffer"
    read_a(f"{where}: spec", spec, (Tensor, TensorSpec))
    if spec.meta_shape:
        buffer = RemoteBuffer(spec.shape, spec.dtype, entries)
        buffer.meta_shape = spec.meta_shape
        return buffer
    group = gir().replica_grouping() if replica_group is None else replica_group
    read_a(f"{where}: replica_group", group, ReplicaGrouping)
    size = group.const_rg.group_size
    shards = size if shard_over is None else read_int(f"{where}: shard_over", shard_over, 1)
    if size % shards != 0:
        raise ReplicaError(
            f"{where}: shards do not tile the groups, got shard_over {shards}, expected a divisor of {size}"
        )
    if shards == 1:
        return RemoteBuffer(spec.shape, spec.dtype, entries)
    if math.prod(spec.shape) % shards != 0:
        raise ShapeError(
            f"{where}: parts of different lengths, got shape {spec.shape} over {shards} replicas, "
            "expected a multiple of them in elements"
        )
    rows = (group.num_groups,) if group.num_groups > 1 else ()
    return replica_sharded_buffer((*rows, *spec.shape), spec.dtype, group, shards, entries)


@public
@transactional
def named_variable_buffers(
    factories: NamedVariableFactories,
    entries: int = 1,
    shard_over_dict: Mapping[str, int] | int | bool = True,
) -> NamedRemoteBuffers:
    """A buffer for the variables of each factory.

    Args:
        factories: the factories.
        entries: entries of each buffer.
        shard_over_dict: over how many members of its groups each value is sharded: a number for all, or by key, where
            a key that is not there means all members. True: so for all; False: none is sharded. A factory of shards
            keeps its shards whatever this says.
    Raises:
        ValueError: a number that is not from 1 to the group size, or does not divide it; as for
            ``create_remote_buffer``.
    """
    read_a("named_variable_buffers: factories", factories, NamedVariableFactories)
    buffers = {}
    for key, factory in factories._factories().items():
        group = factory.replica_grouping
        shards = _shards(key, group.const_rg.group_size, shard_over_dict)
        if factory.meta_shape:
            shards = factory.shard_over
        whole = factory.meta_shape or factory.shape
        buffers[key] = create_remote_buffer(TensorSpec(whole, factory.dtype), entries, group, shards)
    return NamedRemoteBuffers.from_dict(buffers)


def _shards(key: str, size: int, given: Mapping[str, int] | int | bool) -> int | None:
    if isinstance(given, bool):
        return None if given else 1
    shards = given.get(key) if isinstance(given, Mapping) else given
    if shards is None:
        return None
    shards = read_int(f"named_variable_buffers: shard_over_dict of {key!r}", shards, 1)
    if shards > size:
        raise ReplicaError(
            f"named_variable_buffers: more shards than members of a group, got {shards} for {shown(key)}, "
            "expected at most "
            f"{size}"
        )
    return shards


@public
@transactional
def named_buffers(tensors: NamedTensors | NamedVariableFactories, entries: int = 1) -> NamedRemoteBuffers:
    """A buffer for each tensor, as it is: shards as shards, others whole.

    Args:
        tensors: the tensors, or factories of them.
        entries: entries of each buffer.
    """
    specs = specs_of("named_buffers", tensors)
    return NamedRemoteBuffers.from_dict(
        {key: create_remote_buffer(spec, entries, shard_over=1) for key, spec in specs.items()}
    )


@public
@transactional
def load_remote_graph(
    buffers: NamedRemoteBuffers, entries: int = 1, use_io_tiles: bool = False
) -> tuple[GraphWithNamedArgs, list[str]]:
    """A graph that loads an entry of each buffer: its input is the number of the entry, an int32 scalar.

    ``NamedTensors.pack(names, graph.call(0))`` are the loaded tensors.

    Args:
        buffers: the buffers.
        entries: buffers that have fewer entries grow to as many.
        use_io_tiles: load on io tiles and copy from there.
    Returns:
        The graph, and the keys of its outputs: sorted.
    """
    _grow("load_remote_graph", buffers, entries)
    names = sorted(buffers.keys_flat())
    with gir().create_empty_graph("load_remote") as graph, in_sequence():
        entry = graph_input((), dtypes.int32, "entry")
        for name in names:
            graph_output(_load(buffers[name], entry, name, use_io_tiles))
    return GraphWithNamedArgs(graph), names


@public
@transactional
def load_remote(
    buffers: NamedRemoteBuffers, entry: int | Tensor = 0, use_io_tiles: bool = False
) -> NamedTensors:
    """Load an entry of each buffer in the current graph.

    What is loaded is a copy: store it again after an update. Loads and stores run in the order in which they are made.

    Args:
        buffers: the buffers.
        entry: number of the entry.
        use_io_tiles: load on io tiles and copy from there.
    Returns:
        A new tensor for each, by the same keys.
    Raises:
        OutOfRangeError: a buffer has no such entry.
    """
    read_a("load_remote: buffers", buffers, NamedRemoteBuffers)
    names, found = buffers.unpack()
    loaded = [_load(buffer, entry, name, use_io_tiles) for name, buffer in zip(names, found, strict=True)]
    return NamedTensors.pack(names, loaded)


@public
@transactional
def store_remote_graph(
    buffers: NamedRemoteBuffers, entries: int = 1, use_io_tiles: bool = False
) -> GraphWithNamedArgs:
    """A graph that stores a tensor into an entry of each buffer: ``graph.bind(tensors).call(entry)``.

    Args:
        buffers: the buffers.
        entries: buffers that have fewer entries grow to as many.
        use_io_tiles: copy to io tiles and store from there.
    Returns:
        The graph: its inputs are the number of the entry, an int32 scalar, and a named one for each buffer.
    """
    _grow("store_remote_graph", buffers, entries)
    args = NamedTensors()
    with gir().create_empty_graph("store_remote") as graph, in_sequence():
        entry = graph_input((), dtypes.int32, "entry")
        for name, buffer in zip(*buffers.unpack(), strict=True):
            tensor = graph_input(buffer.tensor_shape, buffer.tensor_dtype, name, False, buffer.meta_shape)
            args.insert(name, tensor, overwrite=True)
            _store(buffer, entry, tensor, use_io_tiles)
    return GraphWithNamedArgs(graph, args)


@public
@transactional
def store_remote(
    buffers: NamedRemoteBuffers, tensors: NamedTensors, entry: int | Tensor = 0, use_io_tiles: bool = False
) -> None:
    """Store tensors into an entry of the buffers of the same keys, in the current graph.

    Args:
        buffers: the buffers; those without a tensor are left alone.
        tensors: the tensors; those without a buffer are left alone.
        entry: number of the entry.
        use_io_tiles: copy to io tiles and store from there.
    Raises:
        ShapeError: a tensor is of another shape or dtype than its buffer.
        OutOfRangeError: a buffer has no such entry.
    """
    read_a("store_remote: buffers", buffers, NamedRemoteBuffers)
    read_a("store_remote: tensors", tensors, NamedTensors)
    found = tensors.to_dict()
    for name, buffer in zip(*buffers.unpack(), strict=True):
        if name in found:
            _store(buffer, entry, found[name], use_io_tiles)


def _grow(where: str, buffers: NamedRemoteBuffers, entries: int) -> None:
    read_a(f"{where}: buffers", buffers, NamedRemoteBuffers)
    for buffer in buffers.values_flat():
        buffer.entries = max(buffer.entries, read_int(f"{where}: entries", entries, 1))


def _load(buffer: RemoteBuffer, entry: int | Tensor, name: str, use_io_tiles: bool) -> Tensor:
    on_io_tiles = read_flag("load_remote: use_io_tiles", use_io_tiles)
    with tiles(on_io_tiles):
        loaded = ops.remote_load(buffer, entry, name)
    return ops.io_tile_copy(loaded) if on_io_tiles else loaded


def _store(buffer: RemoteBuffer, entry: int | Tensor, tensor: Tensor, use_io_tiles: bool) -> None:
    on_io_tiles = read_flag("store_remote: use_io_tiles", use_io_tiles)
    stored = ops.io_tile_copy(tensor) if on_io_tiles else tensor
    with tiles(on_io_tiles):
        ops.remote_store(buffer, entry, stored)
