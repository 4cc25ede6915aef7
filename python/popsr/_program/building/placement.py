"""Placement of tensors: device of a replica, kind of tiles, on-chip or remote memory."""

from __future__ import annotations

from typing import Any

from popsr._program.state import _context
from popsr._program.tensor_handle import TensorHandle
from popsr._support.host.arguments import is_a, read_ipu
from popsr._support.records import DevicePlacement
from popsr._support.text.shown import shown
from popsr.errors import GraphError, UndefinedValue
from popsr.tensorlocation import ReplicatedTensorSharding, TensorLocation, TensorStorage

__all__ = [
    "check_tensor_ipu_and_tile_set",
    "find_place",
    "ipu_copy_attributes",
    "location_of",
    "place_of",
    "shards_of",
]


def find_place(tensor: TensorHandle) -> DevicePlacement | None:
    """Device and tile set of a tensor; None where no op makes or takes it."""
    place: DevicePlacement | None = tensor._ir._core.place_of(tensor._id)
    return place


def place_of(where: str, tensor: TensorHandle) -> DevicePlacement:
    """Device and tile set of a tensor.

    Raises:
        UndefinedValue: no op makes or takes it, and no call passes anything for it.
    """
    place = find_place(tensor)
    if place is None:
        raise UndefinedValue(
            f"{where}: the tensor is nowhere yet, got {shown(tensor)}, expected a tensor that an op makes or takes"
        )
    return place


def check_tensor_ipu_and_tile_set(*args: Any, **tensors: TensorHandle) -> None:
    """Check that tensors of one program, as far as their places are known, are in one place.

    Args:
        *args: tensors; other values are not looked at.
        **tensors: more of them.
    Raises:
        ValueError: two of them are on different IPUs or different tile sets.
    """
    given = [tensor for tensor in (*args, *tensors.values()) if is_a(tensor, TensorHandle)]
    if given:
        given[0]._ir._core.check_places("check_tensor_ipu_and_tile_set", [tensor._id for tensor in given])


def ipu_copy_attributes(t: Any, destination: int | None, source: int | None) -> dict[str, int]:
    """Destination and source of a copy of a tensor: by default the current device, and the tensor's.

    Raises:
        TypeError: they are not ints.
        ValueError: no source is given and ``t`` is nowhere yet; a negative number.
    """
    to = _context.ipu_id or 0 if destination is None else read_ipu("ipu_copy", "destination", destination)
    attributes = {"destination": to}
    if source is not None:
        attributes["source"] = read_ipu("ipu_copy", "source", source)
    elif isinstance(t, TensorHandle):
        place = find_place(t)
        if place is None:
            raise GraphError(
                f"ipu_copy: the IPU of the tensor is unknown, got {shown(t)} that no op makes or takes, expected source"
            )
        attributes["source"] = place.ipu
    return attributes


def location_of(tensor: TensorHandle) -> TensorLocation:
    """Location of a tensor's value: memory, and sharding over replicas."""
    core = tensor._ir._core
    home, _ = core.home(tensor._id) or (tensor._id, 1)
    shards = shards_of(tensor)
    kind = core.tensor(home).kind
    sharded = kind == "shard" or shards > 1 or bool(tensor._meta_shape)
    return TensorLocation(
        TensorStorage.OffChip if kind == "remote" else TensorStorage.OnChip,
        ReplicatedTensorSharding.On if sharded else ReplicatedTensorSharding.Off,
    )


def shards_of(tensor: TensorHandle) -> int:
    """The number of parts of a variable, of which each replica holds one; 1: it holds all of it."""
    home = tensor._ir._core.home(tensor._id)
    return 1 if home is None else home.shard_over
