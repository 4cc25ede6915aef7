"""popdist for one instance: all replicas of a program run in this process."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from popsr._host.arguments import read_call, read_int, read_items
from popsr._program import launcher
from popsr._text.suggestions import unknown_attribute

__all__ = [
    "execute_on_instances",
    "getInstanceIndex",
    "getNumInstances",
    "getNumIpusPerReplica",
    "getNumLocalReplicas",
    "getNumTotalReplicas",
    "getReplicaIndexOffset",
    "init",
    "isPopdistEnvSet",
]

R = TypeVar("R")

# Every function raises UnsupportedError under a launcher of several instances, see popsr._program.launcher.


def init() -> None:
    """Nothing to connect: there is one instance.

    Raises:
        UnsupportedError: a launcher started more than one instance.
    """
    launcher.is_popdist("popdist.init")


def isPopdistEnvSet() -> bool:  # noqa: N802
    """True if popdist's launcher started this process.

    Raises:
        UnsupportedError: it started more than one instance.
    """
    return launcher.is_popdist("popdist.isPopdistEnvSet")


def getInstanceIndex() -> int:  # noqa: N802
    """0.

    Raises:
        UnsupportedError: a launcher started more than one instance.
    """
    launcher.is_popdist("popdist.getInstanceIndex")
    return 0


def getNumInstances() -> int:  # noqa: N802
    """1.

    Raises:
        UnsupportedError: a launcher started more than one instance.
    """
    launcher.is_popdist("popdist.getNumInstances")
    return 1


def getNumTotalReplicas() -> int:  # noqa: N802
    """Number of all replicas: what the launcher says, 1 without one.

    Raises:
        UnsupportedError: a launcher started more than one instance.
    """
    return launcher.total_replicas("popdist.getNumTotalReplicas")


def getNumLocalReplicas() -> int:  # noqa: N802
    """Number of replicas of this instance: all of them.

    Raises:
        UnsupportedError: a launcher started more than one instance.
    """
    return launcher.local_replicas("popdist.getNumLocalReplicas")


def getReplicaIndexOffset() -> int:  # noqa: N802
    """Number of this instance's first replica: 0.

    Raises:
        UnsupportedError: a launcher started more than one instance.
    """
    return getInstanceIndex()


def getNumIpusPerReplica() -> int:  # noqa: N802
    """Number of IPUs of a replica: what the launcher says, 1 without one.

    Raises:
        UnsupportedError: a launcher started more than one instance.
    """
    return launcher.ipus_per_replica("popdist.getNumIpusPerReplica")


def execute_on_instances(
    instances: Iterable[int], *args: Any, **kwargs: Any
) -> Callable[[Callable[..., R]], Callable[..., R | None]]:
    """Decorator: the function runs on these instances and returns None on others, of which there are none but 0.

    Args:
        instances: their numbers.
        *args: how instances wait for each other: ignored, there is one.
        **kwargs: likewise.
    Raises:
        ArgumentTypeError: not numbers.
        AttributeValueError: a negative number.
        UnsupportedError: a launcher started more than one instance.
    """
    del args, kwargs
    where = "popdist.execute_on_instances"
    numbers = {
        read_int(f"{where}: instances", each, 0)
        for each in read_items(where, "instances", instances, kind="ints")
    }
    index = getInstanceIndex()

    def decorate(fn: Callable[..., R]) -> Callable[..., R | None]:
        read_call(f"{where}: fn", fn)

        @functools.wraps(fn)
        def call(*args: Any, **kwargs: Any) -> R | None:
            return fn(*args, **kwargs) if index in numbers else None

        return call

    return decorate


if not TYPE_CHECKING:
    __getattr__ = unknown_attribute("popdist", __all__)
