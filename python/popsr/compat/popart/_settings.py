"""Settings of inputs and variables: objects of programs, and metadata of a model."""

from __future__ import annotations

from typing import Any

from popsr import replicas
from popsr._host.arguments import is_a
from popsr._host.choices import Choices
from popsr._text.shown import shown
from popsr.errors import ArgumentTypeError
from popsr.io._settings import factor_of, settings_from, settings_text_of, write_factor
from popsr.replicas import CommGroupType, ReplicaGrouping
from popsr.tensorlocation import TileSet

__all__ = [
    "ExchangeStrategy",
    "InputSettings",
    "ReplicatedStreamMode",
    "VariableSettings",
    "replication_of",
    "settings_of",
    "write_replication",
    "write_settings",
]


class ReplicatedStreamMode(Choices):
    """Data of an input: a row for each replica, or one for all."""

    Replicate = 0
    Broadcast = 1


class ExchangeStrategy(Choices):
    """Time at which an input is loaded; without effect on a simulator."""

    JustInTime = 0
    OverlapInnerLoop = 1
    OverlapLoops = 2
    OverlapStep = 3


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
    """popsr's settings, with the queries that PopART has beside them."""

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

    def verify(self) -> None:
        """Nothing: settings that are wrong cannot be made."""


def write_settings(initializer: Any, settings: replicas.VariableSettings) -> None:
    """Groups and retrieval mode as metadata of an initializer."""
    for key, value in settings_text_of(settings).items():
        initializer.metadata_props.add(key=key, value=value)


def settings_of(initializer: Any) -> replicas.VariableSettings:
    """Groups and retrieval mode of an initializer; one group of all without metadata."""
    return settings_from({each.key: each.value for each in initializer.metadata_props})


def write_replication(model: Any, number: int) -> None:
    """The number of replicas as metadata of a model."""
    kept = [each for each in model.metadata_props if each.key not in write_factor(1)]
    del model.metadata_props[:]
    model.metadata_props.extend(kept)
    for key, value in write_factor(number).items():
        model.metadata_props.add(key=key, value=value)


def replication_of(model: Any) -> int | None:
    """The number of replicas that a model was made for, if it says so."""
    return factor_of({each.key: each.value for each in model.metadata_props})
