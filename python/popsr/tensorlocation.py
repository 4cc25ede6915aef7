"""PopART's words for where tensors are and when ops run.

``Tensor.location_info`` and ``Tensor.tile_set`` speak of them; nothing here changes a value.
"""

from __future__ import annotations

from popsr._support.host.arguments import is_a
from popsr._support.host.choices import Choices
from popsr._support.lazy import names_only
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr.errors import ArgumentTypeError

__all__ = ["ExecutionContext", "ReplicatedTensorSharding", "TensorLocation", "TensorStorage", "TileSet"]


class TensorStorage(Choices):
    """The memory that keeps a tensor between its uses."""

    OnChip = 0
    OffChip = 1


class ReplicatedTensorSharding(Choices):
    """True if each replica keeps a part of the tensor only."""

    Off = 0
    On = 1


class TileSet(Choices):
    """The tiles of a device: those that compute, and those set aside for exchange."""

    Compute = 0
    IO = 1


class ExecutionContext(Choices):
    """Phase in which the ops of the main graph run. Programs of PopXL are all of context Normal."""

    Normal = 0
    AccumulateOuterFragment = 1
    WeightsFromHostFragment = 2
    WeightsToHostFragment = 3
    OptimizerFromHostFragment = 4
    Subgraph = 5


@public
class TensorLocation:
    """Location of a tensor. Locations are equal if all their members are."""

    __slots__ = ("_sharding", "_storage")

    def __init__(
        self,
        storage: TensorStorage = TensorStorage.OnChip,
        replicated_tensor_sharding: ReplicatedTensorSharding = ReplicatedTensorSharding.Off,
    ) -> None:
        """A location.

        Args:
            storage: the memory.
            replicated_tensor_sharding: whether each replica keeps a part only.
        Raises:
            TypeError: a value of another type.
        """
        if not is_a(storage, TensorStorage):
            raise ArgumentTypeError(f"TensorLocation: storage is not a TensorStorage, got {shown(storage)}")
        if not is_a(replicated_tensor_sharding, ReplicatedTensorSharding):
            raise ArgumentTypeError(
                "TensorLocation: replicated_tensor_sharding is not a ReplicatedTensorSharding, got "
                f"{shown(replicated_tensor_sharding)}"
            )
        self._storage = storage
        self._sharding = replicated_tensor_sharding

    @property
    def storage(self) -> TensorStorage:
        """The memory."""
        return self._storage

    @property
    def replicated_tensor_sharding(self) -> ReplicatedTensorSharding:
        """True if each replica keeps a part only."""
        return self._sharding

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TensorLocation):
            return NotImplemented
        return (self._storage, self._sharding) == (other._storage, other._sharding)

    def __hash__(self) -> int:
        return hash((self._storage, self._sharding))

    def __repr__(self) -> str:
        return (
            f"TensorLocation(storage={self._storage.name}, replicated_tensor_sharding={self._sharding.name})"
        )


__dir__ = names_only(__all__)
