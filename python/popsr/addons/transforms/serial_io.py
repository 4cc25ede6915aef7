"""Loads and stores of the steps of a serialised batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from popsr import dtypes, ops
from popsr._program.building.transaction import transactional
from popsr._program.streams import DeviceToHostStream, HostToDeviceStream
from popsr._program.tensor import Tensor
from popsr._program.variables.remote_buffer import RemoteBuffer
from popsr._support.host.arguments import integer_of, is_a, read_a, read_int, read_mapping
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr.addons._tiles import tiles
from popsr.addons.remote import create_remote_buffer
from popsr.addons.rts import gather_replica_sharded_tensor, replica_sharded_spec
from popsr.errors import ArgumentTypeError, DTypeError, GraphError, ShapeError
from popsr.replicas import ReplicaGrouping

__all__ = [
    "RemoteBufferWithOffset",
    "RemoteHandle",
    "RowOffset",
    "StepPlace",
    "batch_serial_buffer",
    "grow",
    "load",
    "read_loads",
    "read_remote",
    "read_streams",
    "store",
]

RowOffset = int | None | Callable[[Tensor], Tensor | int]
RemoteBufferWithOffset = tuple[RemoteBuffer, RowOffset]


@public
@dataclass(frozen=True)
class RemoteHandle:
    """Entries of a remote buffer: with ``steps`` steps, step i of row n has number ``(n + row_offset) * steps + i``.

    Args:
        buffer: the buffer.
        row_offset: added to the row; a function makes another row of it; None: the rows have their entries in common.
        shard_group: members of a group keep a part of each value, which are put together where it is loaded. Values
            whose elements are not a multiple of the group size are kept whole. Default: all replicas where the buffer
            keeps a part on each of them, else none.
    """

    buffer: RemoteBuffer
    row_offset: RowOffset = 0
    shard_group: ReplicaGrouping | None = None


@public
@dataclass(frozen=True)
class StepPlace:
    """The current step: numbers of row and step, int32 scalars of its graph; and where it loads and stores."""

    row: Tensor
    step: Tensor
    steps: int
    use_io_tiles: bool


@public
@transactional
def batch_serial_buffer(
    t: Tensor, steps: int = 1, rows: int = 1, shard_group: ReplicaGrouping | None = None
) -> RemoteBuffer:
    """A remote buffer for the values of a tensor in each step of a serialised batch.

    Args:
        t: the tensor.
        steps: steps of a batch.
        rows: how many batches.
        shard_group: groups of replicas that keep a part of each value. Default: each replica keeps all.
    Returns:
        A buffer of ``rows * steps`` entries, of the shape of ``t``, or of ``(elements / group_size,)`` with that shape
        as meta shape.
    Raises:
        ArgumentTypeError: ``t`` is not a Tensor.
        AttributeValueError: ``steps`` or ``rows`` is not an int from 1 on.
    """
    if shard_group is not None:
        read_a("batch_serial_buffer: shard_group", shard_group, ReplicaGrouping)
    if not is_a(t, Tensor):
        raise ArgumentTypeError(f"batch_serial_buffer: t is not a Tensor, got {shown(t)}")
    entries = read_int("batch_serial_buffer: steps", steps, 1) * read_int(
        "batch_serial_buffer: rows", rows, 1
    )
    spec = t.spec if shard_group is None else replica_sharded_spec(t, shard_group)
    with t.ir.main_graph:
        return create_remote_buffer(spec, entries, shard_over=1)


def _is_sharded(t: Tensor, group: ReplicaGrouping | None) -> bool:
    return group is not None and replica_sharded_spec(t, group).meta_shape != t.meta_shape


@public
def read_remote(where: str, t: Tensor, value: Any) -> RemoteHandle:
    """A handle for the values of a tensor; a buffer, alone or with its row offset, is one too."""
    read_a(f"{where}: a key", t, Tensor)
    handle = value
    if is_a(value, RemoteBuffer):
        handle = RemoteHandle(value)
    elif is_a(value, tuple) and len(value) == 2:
        handle = RemoteHandle(*value)
    if not isinstance(handle, RemoteHandle) or not is_a(handle.buffer, RemoteBuffer):
        raise ArgumentTypeError(
            f"{where}: no handle for {shown(t.id)}, got {shown(value)}, expected a RemoteHandle or (buffer, row_offset)"
        )
    offset = handle.row_offset
    if offset is not None and not callable(offset):
        read_int(f"{where}: row_offset for {t.id!r}", offset, -(2**31), 2**31 - 1)
    if handle.buffer._ir is not t.ir:
        raise GraphError(
            f"{where}: the buffer for {shown(t.id)} is of another Ir, got {shown(handle.buffer)}, "
            "expected one of the current Ir"
        )
    buffer, group = handle.buffer, handle.shard_group
    has_parts = buffer.meta_shape == t.shape != buffer.tensor_shape
    if group is None and has_parts:
        everyone = t.ir.replica_grouping()
        group = everyone if replica_sharded_spec(t, everyone).shape == buffer.tensor_shape else None
    spec = t.spec if group is None else replica_sharded_spec(t, group)
    hint = ", or shard_group=..., the groups whose members have its parts" if has_parts else ""
    _check_like(where, t, buffer.tensor_shape, buffer.tensor_dtype, spec.shape, hint)
    return replace(handle, shard_group=group)


def _check_like(
    where: str, t: Tensor, shape: Any, dtype: dtypes.dtype, expected: tuple[int, ...], hint: str = ""
) -> None:
    if dtype != t.dtype:
        raise DTypeError(
            f"{where}: the handle for {shown(t.id)} is of another dtype, got {dtype.name}, expected {t.dtype.name}"
        )
    if tuple(shape) != tuple(expected):
        raise ShapeError(
            f"{where}: the handle for {shown(t.id)} is of another shape, got {shape}, expected {expected}{hint}"
        )


@public
def read_streams(where: str, name: str, kind: type[Any], streams: Any) -> dict[Tensor, Any]:
    """Streams by tensor, each of the tensor's shape and dtype."""
    found = dict(read_mapping(where, name, streams))
    for t, stream in found.items():
        if not is_a(t, Tensor) or not is_a(stream, kind):
            raise ArgumentTypeError(
                f"{where}: {name} has no tensor and {kind.__name__}, got {shown(t)}: {shown(stream)}, "
                f"expected Tensors as keys and {kind.__name__} as values"
            )
        _check_like(where, t, stream.shape, stream.dtype, t.shape)
    return found


@public
def read_loads(where: str, handles: Any) -> dict[Tensor, HostToDeviceStream | RemoteHandle]:
    """Streams and handles by tensor."""
    given: Mapping[Any, Any] = read_mapping(where, "load_handles", handles)
    found: dict[Tensor, HostToDeviceStream | RemoteHandle] = {}
    for t, value in given.items():
        if not is_a(t, Tensor):
            raise ArgumentTypeError(
                f"{where}: load_handles has no tensor as key, got {shown(t)}, expected Tensors"
            )
        if is_a(value, HostToDeviceStream):
            found.update(read_streams(where, "load_handles", HostToDeviceStream, {t: value}))
        else:
            found[t] = read_remote(where, t, value)
    return found


@public
def grow(handle: RemoteHandle, steps: int, rows: int) -> None:
    """Let the buffer have an entry for each step of each row; of rows that a function makes, as many."""
    read_a("grow: handle", handle, RemoteHandle)
    steps, rows = read_int("grow: steps", steps, 1), read_int("grow: rows", rows, 1)
    offset = handle.row_offset
    last = 1 if offset is None else rows + (integer_of(offset) or 0)
    handle.buffer.entries = max(handle.buffer.entries, steps * last)


def _entry(handle: RemoteHandle, place: StepPlace) -> Tensor:
    """Number of the entry, int32, where loads and stores are."""
    entry, offset = place.step, handle.row_offset
    if callable(offset):
        entry = entry + offset(place.row) * place.steps
    elif offset is not None:
        entry = entry + (place.row if offset == 0 else place.row + offset) * place.steps
    return ops.io_tile_copy(entry) if place.use_io_tiles else entry


@public
def load(t: Tensor, source: HostToDeviceStream | RemoteHandle, place: StepPlace) -> Tensor:
    """The value of a tensor of another graph for a step, in the current graph."""
    read_a("load: t", t, Tensor)
    read_a("load: source", source, (HostToDeviceStream, RemoteHandle))
    read_a("load: place", place, StepPlace)
    if isinstance(source, RemoteHandle):
        entry = _entry(source, place)
        with tiles(place.use_io_tiles):
            loaded = ops.remote_load(source.buffer, entry, t.name)
    else:
        with tiles(place.use_io_tiles):
            loaded = ops.host_load(source, t.name)
    loaded = ops.io_tile_copy(loaded) if place.use_io_tiles else loaded
    if isinstance(source, RemoteHandle) and _is_sharded(t, source.shard_group):
        return gather_replica_sharded_tensor(loaded, replica_group=source.shard_group)
    return loaded


@public
def store(t: Tensor, target: DeviceToHostStream | RemoteHandle, place: StepPlace) -> None:
    """Store the value of a tensor for a step."""
    read_a("store: t", t, Tensor)
    read_a("store: target", target, (DeviceToHostStream, RemoteHandle))
    read_a("store: place", place, StepPlace)
    if isinstance(target, RemoteHandle) and _is_sharded(t, target.shard_group):
        assert target.shard_group is not None
        t = ops.collectives.replica_sharded_slice(t, target.shard_group.const_rg)
    stored = ops.io_tile_copy(t) if place.use_io_tiles else t
    if isinstance(target, RemoteHandle):
        entry = _entry(target, place)
        with tiles(place.use_io_tiles):
            ops.remote_store(target.buffer, entry, stored)
    else:
        with tiles(place.use_io_tiles):
            ops.host_store(target, stored)
