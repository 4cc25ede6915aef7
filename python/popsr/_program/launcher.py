"""Instances of a program that a launcher started, by the environment variables that it sets.

All replicas of a program are simulated in one process, so a program runs as one instance.
"""

from __future__ import annotations

import os

from popsr._text.shown import shown
from popsr.errors import AttributeValueError, UnsupportedError

__all__ = ["ipus_per_replica", "is_popdist", "local_replicas", "total_replicas"]

_TOTAL, _LOCAL = "POPDIST_NUM_TOTAL_REPLICAS", "POPDIST_NUM_LOCAL_REPLICAS"
_IPUS = "POPDIST_NUM_IPUS_PER_REPLICA"
# Each is the number of processes that a launcher started: by popdist, MPI or Slurm.
_INSTANCES = (
    "POPDIST_NUM_INSTANCES",
    "OMPI_COMM_WORLD_SIZE",
    "PMI_SIZE",
    "MV2_COMM_WORLD_SIZE",
    "SLURM_STEP_NUM_TASKS",
)


def is_popdist(where: str) -> bool:
    """True if popdist's launcher started this process, with one instance.

    Args:
        where: the call, for messages.
    Raises:
        UnsupportedError: a launcher started more than one instance.
        AttributeValueError: one of its variables is not a positive int.
    """
    for name in _INSTANCES:
        _require_one(where, _count(where, name), name)
    _require_one(where, -(-_count(where, _TOTAL) // _count(where, _LOCAL, _count(where, _TOTAL))), _TOTAL)
    return _TOTAL in os.environ


def total_replicas(where: str) -> int:
    """Number of all replicas: what the launcher says, 1 without one.

    Raises:
        UnsupportedError, AttributeValueError: as ``is_popdist``.
    """
    is_popdist(where)
    return _count(where, _TOTAL)


def local_replicas(where: str) -> int:
    """Number of replicas of this instance: all of them.

    Raises:
        UnsupportedError, AttributeValueError: as ``is_popdist``.
    """
    return total_replicas(where)


def ipus_per_replica(where: str) -> int:
    """Number of IPUs of a replica: what the launcher says, 1 without one.

    Raises:
        UnsupportedError, AttributeValueError: as ``is_popdist``.
    """
    is_popdist(where)
    return _count(where, _IPUS)


def _count(where: str, name: str, default: int = 1) -> int:
    text = os.environ.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and 0 < int(text[:20]) < 2**31):
        raise AttributeValueError(
            f"{where}: environment variable {name} is not a number, got {shown(text)}, expected a positive int"
        )
    return int(text)


def _require_one(where: str, instances: int, name: str) -> None:
    if instances != 1:
        raise UnsupportedError(
            f"{where}: all replicas run in one process, got {instances} instances of a launcher (by {name}), expected "
            "1: start the program once, without the launcher"
        )
