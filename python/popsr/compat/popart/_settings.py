"""Settings of inputs and variables."""

from __future__ import annotations

from typing import Any

from popsr import replicas
from popsr._support.host.arguments import is_a, read_a, read_text
from popsr._support.host.choices import Choices
from popsr._support.text.shown import shown
from popsr.compat._objects.data_flow import ExchangeStrategy
from popsr.compat._objects.types import TensorInfo
from popsr.errors import ArgumentTypeError, UnknownNameError
from popsr.replicas import CommGroupType, ReplicaGrouping
from popsr.tensorlocation import TileSet

__all__ = [
    "InputSettings",
    "InputShapeInfo",
    "ReplicatedStreamMode",
    "VariableSettings",
]


STREAM_MODE = "__replicatedStreamMode"
"""Key of an input's mode in a model."""


class ReplicatedStreamMode(Choices):
    """Data of an input: a row for each replica, or one for all."""

    Replicate = 0
    Broadcast = 1


class InputSettings:
    """Settings of an input: a mode, or tiles and a strategy, which are recorded nowhere.

    Args:
        *settings: a ``ReplicatedStreamMode``, or a ``TileSet`` and an ``ExchangeStrategy``.
    """

    def __init__(self, *settings: Any) -> None:
        """Settings.

        Raises:
            ArgumentTypeError: another value.
        """
        self.mode: ReplicatedStreamMode | None = None
        for each in settings:
            if not is_a(each, (ReplicatedStreamMode, TileSet, ExchangeStrategy)):
                raise ArgumentTypeError(
                    f"InputSettings: no such setting, got {shown(each)}, expected a ReplicatedStreamMode, or a TileSet "
                    "and an ExchangeStrategy"
                )
            if isinstance(each, ReplicatedStreamMode):
                self.mode = each

    def replicatedStreamMode(self) -> ReplicatedStreamMode:
        """The mode; Replicate unless one was given."""
        return self.mode or ReplicatedStreamMode.Replicate


class VariableSettings(replicas.VariableSettings):
    """popsr's settings, with the queries that PopART has beside them.

    Args:
        *args: as of ``popsr.VariableSettings``: a CommGroup, or stride and size of groups; then a retrieval mode.
        **kwargs: the same by popsr's names or by PopART's, ``commGroup``, ``groupSize`` and ``retrievalMode``.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Settings; errors as of ``popsr.VariableSettings``."""
        names = {"commGroup": "comm_group", "groupSize": "size", "retrievalMode": "retrieval_mode"}
        super().__init__(*args, **{names.get(name, name): value for name, value in kwargs.items()})

    def isUsingCommGroup(self) -> bool:
        """True unless the groups were given by stride and size."""
        return self.comm_group is not None

    def getCommGroupType(self) -> CommGroupType:
        """Kind of the groups; Ungrouped where they were given by stride and size."""
        return CommGroupType.Ungrouped if self.comm_group is None else self.comm_group.type

    def getGroupSize(self) -> int:
        """Size of the groups as it was given; 0 where one says nothing."""
        if self.comm_group is not None:
            return int(self.comm_group.size)
        parts = self.__reduce__()[1]
        return int(parts[0].group_size if isinstance(parts[0], ReplicaGrouping) else parts[1])

    def getStride(self, replicas: Any = None) -> int:
        """Distance between members of a group: as it was given, or on so many replicas."""
        if replicas is not None:
            return int(super().getStride(replicas))
        if self.comm_group is not None:
            return 1
        first = self.__reduce__()[1][0]
        return int(first.stride if isinstance(first, ReplicaGrouping) else first)

    def shapeOnReplica(self, *args: Any, **kwargs: Any) -> list[int]:  # type: ignore[override] # PopART's is a list
        """Shape of the variable on a replica, of its whole shape, the number of replicas and a name."""
        return list(super().shapeOnReplica(*args, **kwargs))

    def shapeOnHost(self, *args: Any, **kwargs: Any) -> list[int]:  # type: ignore[override] # PopART's is a list
        """Whole shape of the variable, of that on a replica and the number of replicas."""
        return list(super().shapeOnHost(*args, **kwargs))

    def verify(self) -> None:
        """Nothing: settings that are wrong cannot be made."""


class InputShapeInfo:
    """Types and shapes of inputs that a model leaves open."""

    def __init__(self) -> None:
        """None."""
        self._infos: dict[str, TensorInfo] = {}

    def add(self, id: str, info: TensorInfo) -> None:
        """The type and shape of an input."""
        self._infos[read_text("InputShapeInfo.add: id", id)] = read_a(
            "InputShapeInfo.add: info", info, TensorInfo
        )

    def has(self, id: str) -> bool:
        """True if an input was added."""
        return read_text("InputShapeInfo.has: id", id) in self._infos

    def get(self, id: str) -> TensorInfo:
        """The type and shape that was added.

        Raises:
            UnknownNameError: none was.
        """
        if read_text("InputShapeInfo.get: id", id) not in self._infos:
            raise UnknownNameError(
                f"InputShapeInfo.get: no such input, got {shown(id)}, expected {shown(self.getAllTensorIds())}"
            )
        return self._infos[id]

    def getAllTensorIds(self) -> list[str]:
        """Ids of all inputs that were added."""
        return list(self._infos)
