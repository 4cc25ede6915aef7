"""popdist: the instances of a program, which are the ranks that a launcher of MPI started.

``mpiexec -n 4 python -m popsr run train.py`` starts four. Without a launcher there is one, and mpi4py is not imported.
Replicas are consecutive numbers in each instance; where instances do not divide them the first ones have one more.
There are as many as the environment variable ``POPDIST_NUM_TOTAL_REPLICAS`` says, else ``POPDIST_NUM_LOCAL_REPLICAS``
in each instance, else one in each.

Raises:
    MissingPackageError: a launcher started the process, and mpi4py is not installed or finds no MPI.
    StateError: mpi4py's MPI is another one than the launcher's.
    ReplicaError: variables contradict the processes.
    AttributeValueError: a variable is not a number.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from popsr._session.ranks.ranks import meet
from popsr._support.host import launcher
from popsr._support.host.arguments import read_call, read_int, read_items
from popsr._support.text.suggestions import unknown_attribute

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


def init() -> None:
    """Start MPI, if a launcher started several processes."""
    launcher.instances("popdist.init")


def isPopdistEnvSet() -> bool:  # noqa: N802
    """True if a launcher started several instances, or popdist's variables say how many replicas there are."""
    return launcher.instances("popdist.isPopdistEnvSet").is_launched


def getInstanceIndex() -> int:  # noqa: N802
    """Number of this instance: its rank."""
    return launcher.instances("popdist.getInstanceIndex").index


def getNumInstances() -> int:  # noqa: N802
    """Number of instances: of ranks."""
    return launcher.instances("popdist.getNumInstances").count


def getNumTotalReplicas() -> int:  # noqa: N802
    """Number of the replicas of all instances."""
    return launcher.instances("popdist.getNumTotalReplicas").replicas


def getNumLocalReplicas() -> int:  # noqa: N802
    """Number of the replicas of this instance."""
    return len(launcher.instances("popdist.getNumLocalReplicas").local)


def getReplicaIndexOffset() -> int:  # noqa: N802
    """Number of this instance's first replica."""
    return launcher.instances("popdist.getReplicaIndexOffset").local.start


def getNumIpusPerReplica() -> int:  # noqa: N802
    """Number of IPUs of a replica: what ``POPDIST_NUM_IPUS_PER_REPLICA`` says, else 1."""
    return launcher.ipus_per_replica("popdist.getNumIpusPerReplica")


def execute_on_instances(
    instances: Iterable[int], *args: Any, **kwargs: Any
) -> Callable[[Callable[..., R]], Callable[..., R | None]]:
    """Decorator: the function runs on these instances, and returns None on others.

    All instances call it, and all go on when those that run it are done, as after a download. An exception on one of
    them ends the call of all. What is called inside such a function does not wait for others.

    Args:
        instances: their numbers.
        *args: other ways to wait: ignored.
        **kwargs: likewise.
    Raises:
        ArgumentTypeError: not numbers.
        AttributeValueError: a negative number.
    """
    del args, kwargs
    where = "popdist.execute_on_instances"
    numbers = {
        read_int(f"{where}: instances", each, 0)
        for each in read_items(where, "instances", instances, kind="ints")
    }

    def decorate(fn: Callable[..., R]) -> Callable[..., R | None]:
        read_call(f"{where}: fn", fn)

        @functools.wraps(fn)
        def call(*args: Any, **kwargs: Any) -> R | None:
            return _run_on(numbers, functools.partial(fn, *args, **kwargs), fn)

        return call

    return decorate


_running = 0  # functions of execute_on_instances that are running on this instance


def _run_on(numbers: set[int], call: Callable[[], R], fn: Callable[..., R]) -> R | None:
    global _running
    where = "popdist.execute_on_instances"
    comm = launcher.world(where)
    is_one = (0 if comm is None else comm.rank) in numbers
    if comm is None or _running:
        return call() if is_one else None
    result, problem = None, None
    _running += 1
    try:
        result = call() if is_one else None
    except BaseException as error:
        problem = error
    finally:
        _running -= 1
    meet(comm, f"{where} of {getattr(fn, '__qualname__', 'a function')}", problem)
    return result


if not TYPE_CHECKING:
    __getattr__ = unknown_attribute("popdist", __all__)
