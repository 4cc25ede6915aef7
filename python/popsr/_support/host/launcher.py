"""Instances of a program: the processes that a launcher of MPI started, and the replicas of each.

Variables of the environment say that there are several; mpi4py says how many, and which of them this is. A process that
no launcher started does not import mpi4py.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from popsr import _core
from popsr._support.host.frameworks import framework
from popsr._support.text.shown import shown
from popsr.errors import AttributeValueError, MissingPackageError, ReplicaError, StateError

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["Instances", "instances", "ipus_per_replica", "share", "world"]

_TOTAL, _LOCAL = "POPDIST_NUM_TOTAL_REPLICAS", "POPDIST_NUM_LOCAL_REPLICAS"
_IPUS, _INSTANCES = "POPDIST_NUM_IPUS_PER_REPLICA", "POPDIST_NUM_INSTANCES"
# Numbers of processes that launchers of MPI started.
_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE")
# PMIx connects processes, and tells each its rank alone. Slurm counts the tasks of each step, also of programs without
# MPI: its number is that of ranks only where PMIx is.
_PMIX, _SLURM = "PMIX_RANK", "SLURM_STEP_NUM_TASKS"
_UNKNOWN = 0


@dataclass(frozen=True)
class Instances:
    """The processes, seen from one of them.

    Attributes:
        index: of this one.
        count: of all.
        replicas: of all of them.
        local: the replicas of this one.
        is_launched: there are several, or popdist's variables are set.
    """

    index: int
    count: int
    replicas: int
    local: range
    is_launched: bool


def instances(where: str) -> Instances:
    """The processes and their replicas.

    There are as many replicas as ``POPDIST_NUM_TOTAL_REPLICAS`` says, else ``POPDIST_NUM_LOCAL_REPLICAS`` for each
    process, else one for each.

    Args:
        where: the call, for messages.
    Raises:
        AttributeValueError: a variable is not a positive int.
        ReplicaError: variables contradict the processes.
        MissingPackageError, StateError: as ``world``.
    """
    given = {name: _number(where, name) for name in (_TOTAL, _LOCAL, _INSTANCES) if name in os.environ}
    comm = world(where)
    count, index = (1, 0) if comm is None else (comm.size, comm.rank)
    _require(where, given, _INSTANCES, count, count)
    replicas = given.get(_TOTAL, given.get(_LOCAL, 1) * count)
    if replicas < count:
        raise ReplicaError(
            f"{where}: fewer replicas than processes, got {_TOTAL} {replicas}, expected {count} or more"
        )
    local = share(replicas, count, index)
    _require(where, given, _LOCAL, len(local), count)
    is_launched = count > 1 or _TOTAL in given or _LOCAL in given
    return Instances(index, count, replicas, local, is_launched)


def share(replicas: int, ranks: int, rank: int) -> range:
    """The replicas of a rank: consecutive ones, and one more on the first ranks where they do not come out even."""
    return range(*_core.rank_share(replicas, ranks, rank))


def ipus_per_replica(where: str) -> int:
    """Number of IPUs of a replica: what the launcher says, 1 without one.

    Raises:
        As ``instances``.
    """
    instances(where)
    return _number(where, _IPUS)


def world(where: str) -> MPI.Intracomm | None:
    """All ranks of MPI, if there are several. MPI is started where a launcher's variables say so.

    Args:
        where: the call, for messages.
    Raises:
        MissingPackageError: mpi4py is not installed, or finds no MPI, and a launcher started the process.
        StateError: mpi4py's MPI is another one than the launcher's.
        AttributeValueError: a variable is not a number.
    """
    counts = _counts(where)
    mpi: Any = sys.modules.get("mpi4py.MPI")
    if mpi is None:
        several = [name for name, count in counts.items() if count != 1]
        if not several:
            return None
        mpi = _loaded(where, several[0])
    if not mpi.Is_initialized():
        mpi.Init_thread()
    comm: MPI.Intracomm = mpi.COMM_WORLD
    _check_size(where, comm, counts)
    return comm if comm.size > 1 else None


def _counts(where: str) -> dict[str, int]:
    """Numbers of processes by the variables that tell them."""
    counts = {name: _number(where, name) for name in _SIZES if name in os.environ}
    if counts or _PMIX not in os.environ:
        return counts
    return {_SLURM: _number(where, _SLURM)} if _SLURM in os.environ else {_PMIX: _UNKNOWN}


def _loaded(where: str, name: str) -> Any:
    try:
        framework(where, "mpi4py")
        from mpi4py import MPI
    except MissingPackageError as error:
        raise MissingPackageError(f"{error} for the processes of a launcher (by {name})") from error
    except (ImportError, RuntimeError) as error:  # RuntimeError: no library where it looks for one
        raise MissingPackageError(
            f"{where}: mpi4py does not start, got {shown(str(error))}, expected the MPI of the launcher (by {name})"
        ) from error
    return MPI


def _check_size(where: str, comm: MPI.Intracomm, counts: dict[str, int]) -> None:
    if not counts or comm.size in counts.values():
        return
    name, count = max(counts.items(), key=lambda item: item[1])
    if count == _UNKNOWN:
        count = 1 + _number(where, _PMIX, 0)
        if comm.size >= count:
            return
        expected = f"{count} or more"
    else:
        expected = str(count)
    raise StateError(
        f"{where}: mpi4py's MPI is not the launcher's, got {comm.size} rank{'s' * (comm.size > 1)}, expected "
        f"{expected} (by {name}): start the program with mpiexec of the MPI that `python -m mpi4py --mpi-lib-version` "
        "names"
    )


def _require(where: str, given: dict[str, int], name: str, expected: int, count: int) -> None:
    if given.get(name, expected) != expected:
        raise ReplicaError(
            f"{where}: {name} contradicts the processes, got {given[name]}, expected {expected} in {count} process"
            f"{'es' * (count > 1)} of MPI: start all instances with mpiexec"
        )


def _number(where: str, name: str, least: int = 1) -> int:
    text = os.environ.get(name, "1")
    if not (text.isascii() and text.isdigit() and least <= int(text[:20]) < 2**31):
        raise AttributeValueError(
            f"{where}: environment variable {name} is not a number, got {shown(text)}, expected a "
            f"{'positive' if least else 'non-negative'} int"
        )
    return int(text)
