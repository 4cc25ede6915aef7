"""Making variables whose values live in remote buffers, or in parts on the members of their groups."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from popsr import dtypes
from popsr._program.building.transaction import transactional
from popsr._program.context import _context
from popsr._program.tensor import Tensor, Variable
from popsr._program.variables.remote_buffer import RemoteBuffer
from popsr._program.variables.variables import RetrievalMode, VariablePlan, plan_variable, read_groups
from popsr._support.host.arguments import read_dtype, read_int, read_shape
from popsr._support.text.entry_points import public_call
from popsr._support.text.shown import shown
from popsr.errors import ArgumentTypeError, GraphError, OutOfRangeError, ReplicaError, ShapeError
from popsr.replicas import ReplicaGrouping
from popsr.utils import HostScalarTensor

__all__ = [
    "remote_replica_sharded_variable",
    "remote_variable",
    "replica_sharded_buffer",
    "replica_sharded_variable",
]


@public_call
@transactional
def remote_variable(
    data: HostScalarTensor,
    remote_buffer: RemoteBuffer,
    offset: int = 0,
    dtype: dtypes.dtype | None = None,
    name: str | None = None,
    downcast: bool = True,
    replica_grouping: ReplicaGrouping | None = None,
    retrieval_mode: RetrievalMode | None = "one_per_group",
    log2_scale: int | None = None,
    nan_on_overflow: bool | None = None,
) -> Variable:
    """A variable whose value lives in an entry of a remote buffer; ops load and store it there.

    Args:
        data: as for ``variable``; also ``(1, *shape)`` when there is one group, if that is the buffer's shape.
        remote_buffer: buffer of entries of the variable's shape, without a dimension for groups.
        offset: number of the entry.
        dtype: as for ``variable``.
        name: as for ``variable``.
        downcast: as for ``variable``.
        replica_grouping: as for ``variable``.
        retrieval_mode: as for ``variable``.
        log2_scale: as for ``variable``.
        nan_on_overflow: as for ``variable``.
    Raises:
        ShapeError: the buffer is of another shape or dtype; otherwise as for ``variable``.
        OutOfRangeError: no such entry.
        GraphError: the entry is another variable's, or the buffer another Ir's.
    """
    where = "remote_variable"
    groups = read_groups(where, replica_grouping, retrieval_mode)
    plan = plan_variable(where, data, dtype, name, downcast, groups, log2_scale, nan_on_overflow)
    _check_entry(where, plan, remote_buffer, offset)
    plan = _without_row(plan, remote_buffer.tensor_shape)
    if (plan.shape, plan.dtype) != (remote_buffer.tensor_shape, remote_buffer.tensor_dtype):
        raise _mismatch(where, plan, remote_buffer, plan.shape)
    if remote_buffer.meta_shape:
        raise ShapeError(
            f"{where}: buffer for '{plan.name}' keeps shards, got meta_shape {remote_buffer.meta_shape}, expected a "
            "buffer of whole values"
        )
    return _place(plan.make(), remote_buffer, offset, 1)


@public_call
@transactional
def remote_replica_sharded_variable(
    data: HostScalarTensor,
    remote_buffer: RemoteBuffer,
    offset: int = 0,
    dtype: dtypes.dtype | None = None,
    name: str | None = None,
    downcast: bool = True,
    replica_grouping: ReplicaGrouping | None = None,
    retrieval_mode: RetrievalMode | None = "one_per_group",
    log2_scale: int | None = None,
    nan_on_overflow: bool | None = None,
) -> Variable:
    """A remote variable of which each member of a group stores a part only.

    The flattened value is padded with zeros to a multiple of the number of shards; the k-th of so many consecutive
    members of a group has the k-th part.

    Args:
        data: the unsharded value, as for ``variable``; also ``(1, *shape)`` when there is one group and the buffer has
            that ``meta_shape``.
        remote_buffer: buffer of shards, see ``replica_sharded_buffer``; gets the variable's ``meta_shape``.
        offset: number of the entry.
        dtype: as for ``variable``.
        name: as for ``variable``.
        downcast: as for ``variable``.
        replica_grouping: as for ``variable``.
        retrieval_mode: as for ``variable``.
        log2_scale: as for ``variable``.
        nan_on_overflow: as for ``variable``.
    Raises:
        ReplicaError: there is one replica only.
        ShapeError: the buffer's dtype, shape or ``meta_shape`` does not fit; otherwise as for ``variable``.
        OutOfRangeError: no such entry.
        GraphError: the entry is another variable's, or the buffer another Ir's.
    """
    where = "remote_replica_sharded_variable"
    groups = read_groups(where, replica_grouping, retrieval_mode)
    _check_replicated(where)
    plan = plan_variable(where, data, dtype, name, downcast, groups, log2_scale, nan_on_overflow)
    _check_entry(where, plan, remote_buffer, offset)
    if remote_buffer.meta_shape:
        plan = _without_row(plan, remote_buffer.meta_shape)
    shards = _shards_of(where, plan, remote_buffer)
    if remote_buffer.meta_shape not in ((), plan.shape):
        raise ShapeError(
            f"{where}: buffer keeps shards of another shape than {shown(plan.name)}, got meta_shape "
            f"{remote_buffer.meta_shape}, expected {plan.shape}"
        )
    remote_buffer.meta_shape = plan.shape
    return _place(plan.make(), remote_buffer, offset, shards)


@public_call
@transactional
def replica_sharded_buffer(
    shape: Iterable[int],
    dtype: dtypes.dtype,
    replica_grouping: ReplicaGrouping | None = None,
    shard_over: int | None = None,
    entries: int = 1,
) -> RemoteBuffer:
    """A remote buffer for shards of variables.

    Args:
        shape: shape of the variables' data: ``(num_groups, *shape)`` when there are several groups.
        dtype: element type.
        replica_grouping: the variables' groups. Default: one group of all replicas.
        shard_over: shards of a value. Default: the group size, or for groups of no constant stride the size of the
            parts of constant stride that they consist of.
        entries: how many entries.
    Returns:
        Buffer of shape ``(ceil(elements / shard_over),)`` whose ``meta_shape`` is the shape on one replica.
    Raises:
        ShapeError: the leading dimension is not the number of groups.
        ReplicaError: ``shard_over`` does not divide the group size.
        AttributeValueError: ``entries`` is not a positive integer.
    """
    where = "replica_sharded_buffer"
    grouping = read_groups(where, replica_grouping, None).grouping
    extents = read_shape(where, shape)
    if grouping.num_groups > 1:
        if extents[:1] != (grouping.num_groups,):
            raise ShapeError(
                f"{where}: no row per group, got shape {extents}, expected ({grouping.num_groups}, ...)"
            )
        extents = extents[1:]
    shards = _read_shard_over(where, grouping, shard_over)
    buffer = RemoteBuffer((-(-math.prod(extents) // shards),), read_dtype(where, dtype), entries)
    buffer.meta_shape = extents
    buffer._ir._shard_over[buffer._id] = shards  # dropped with the buffer
    return buffer


@public_call
@transactional
def replica_sharded_variable(
    data: HostScalarTensor,
    dtype: dtypes.dtype | None = None,
    name: str | None = None,
    downcast: bool = True,
    replica_grouping: ReplicaGrouping | None = None,
    shard_over: int | None = None,
    retrieval_mode: RetrievalMode | None = "one_per_group",
    log2_scale: int | None = None,
    nan_on_overflow: bool | None = None,
) -> tuple[Variable, Tensor]:
    """A variable of which each member of a group holds a part, and that part.

    Args:
        data: the unsharded value, as for ``variable``.
        dtype: as for ``variable``.
        name: as for ``variable``; the shard's name has ``_shard`` appended.
        downcast: as for ``variable``.
        replica_grouping: as for ``variable``.
        shard_over: as for ``replica_sharded_buffer``.
        retrieval_mode: as for ``variable``.
        log2_scale: as for ``variable``.
        nan_on_overflow: as for ``variable``.
    Returns:
        The variable, for reading and writing by the host, and the tensor of its shards for ops: of shape
        ``(ceil(elements / shard_over),)``, padded with zeros, with the variable's shape as ``meta_shape`` (of a
        scalar there is none: it is gathered to ``(shard_over,)``).
    Raises:
        ReplicaError: there is one replica only, or ``shard_over`` does not divide the group size; otherwise as for
            ``variable``.
    """
    where = "replica_sharded_variable"
    groups = read_groups(where, replica_grouping, retrieval_mode)
    _check_replicated(where)
    shards = _read_shard_over(where, groups.grouping, shard_over)
    plan = plan_variable(where, data, dtype, name, downcast, groups, log2_scale, nan_on_overflow)
    whole = plan.make()
    shard = plan.ir._core.add_shard(whole._id, shards, _context.scoped(f"{plan.name}_shard"))
    return whole, plan.ir._tensor(shard)


def _check_replicated(where: str) -> None:
    if _context.graph_of(where).ir.replication_factor < 2:
        raise ReplicaError(f"{where}: there is nothing to shard over, got 1 replica, expected 2 or more")


def _read_shard_over(where: str, grouping: ReplicaGrouping, shard_over: int | None) -> int:
    size = grouping.const_rg.group_size
    if shard_over is None:
        return size
    shards = read_int(f"{where}: shard_over", shard_over, 1)
    if size % shards != 0:
        raise ReplicaError(
            f"{where}: shards do not tile the groups, got shard_over {shards}, expected a divisor of {size}"
        )
    return shards


def _shards_of(where: str, plan: VariablePlan, buffer: RemoteBuffer) -> int:
    """Into how many shards of the buffer's shape a value is split; the most if there is a choice."""
    grouping, elements = plan.groups.grouping, math.prod(plan.shape)
    size = grouping.const_rg.group_size
    known = plan.ir._shard_over.get(buffer._id)
    if known is None:
        choices = [count for count in range(size, 0, -1) if size % count == 0]
    else:
        choices = [_read_shard_over(where, grouping, known)]
    for count in choices:
        if (-(-elements // count),) == buffer.tensor_shape and buffer.tensor_dtype is plan.dtype:
            return count
    raise _mismatch(where, plan, buffer, (-(-elements // choices[0]),))


def _without_row(plan: VariablePlan, shape: tuple[int, ...]) -> VariablePlan:
    """The plan for data of ``shape``, where it is the row of the only group."""
    if plan.groups.grouping.num_groups == 1 and plan.data.shape == (1, *shape):
        return replace(plan, data=plan.data[0, ...])
    return plan


def _mismatch(where: str, plan: VariablePlan, buffer: RemoteBuffer, shape: tuple[int, ...]) -> ShapeError:
    return ShapeError(
        f"{where}: '{plan.name}' does not match its buffer, got {plan.dtype.name}{list(shape)}, "
        f"expected {buffer.tensor_dtype.name}{list(buffer.tensor_shape)}"
    )


def _check_entry(where: str, plan: VariablePlan, buffer: RemoteBuffer, offset: int) -> None:
    if not isinstance(buffer, RemoteBuffer):
        raise ArgumentTypeError(f"{where}: remote_buffer is not a RemoteBuffer, got {shown(buffer)}")
    if buffer._ir is not plan.ir:
        raise GraphError(
            f"{where}: remote buffer of another Ir, got {shown(buffer)}, expected one of the current Ir"
        )
    entry = read_int(f"{where}: offset", offset, -(2**63))
    if not 0 <= entry < buffer.entries:
        raise OutOfRangeError(
            f"{where}: no such entry for '{plan.name}', got offset {entry}, expected 0 to {buffer.entries - 1}"
        )
    resident = plan.ir._residents.get((buffer._id, entry))
    if resident is not None:
        raise GraphError(
            f"{where}: entry is taken, got offset {entry} for '{plan.name}', which holds '{resident.id}', "
            "expected a free entry"
        )


def _place(variable: Variable, buffer: RemoteBuffer, offset: int, shards: int) -> Variable:
    variable._ir._core.place_variable(variable._id, buffer._id, int(offset), shards)
    variable._ir._residents[buffer._id, int(offset)] = variable
    return variable
