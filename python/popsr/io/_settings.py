"""How a program and its variables were replicated, as text in a file's metadata, and back.

``__replicationFactor`` is PopART's key. Beside it each tensor has the type and size of its CommGroup and its retrieval
mode; groupings that no CommGroup expresses have a key of popsr's own instead: stride and group size, or the group of
each replica.
"""

from __future__ import annotations

from collections.abc import Mapping

from popsr._shown import shown
from popsr.errors import ReplicaError
from popsr.io._checkpoint import Program
from popsr.io._files import OpenFile
from popsr.replicas import (
    CommGroup,
    CommGroupType,
    ReplicaGrouping,
    VariableRetrievalMode,
    VariableSettings,
)
from popsr.tensor import Variable

__all__ = ["program_text", "read_program", "read_settings", "settings_text"]

_FACTOR, _STEP = "__replicationFactor", "popsr.step"
_TYPE, _SIZE, _MODE = "__commGroupType", "__commGroupSize", "__variableRetrievalMode"
_STRIDE, _ASSIGNMENT = "popsr.strideAndGroupSize", "popsr.assignment"
_KEYS = (_TYPE, _SIZE, _MODE, _STRIDE, _ASSIGNMENT)
_MAX_REPLICAS = 1 << 20  # a grouping costs memory per replica


def program_text(program: Program, *, with_factor: bool) -> dict[str, str]:
    """Metadata of a file."""
    factor = {_FACTOR: str(program.replication)} if with_factor else {}
    return factor if program.step is None else {**factor, _STEP: str(program.step)}


def settings_text(variable: Variable) -> dict[str, str]:
    """Metadata of a tensor."""
    all_replicas = variable.retrieval_mode == "all_replicas"
    mode = VariableRetrievalMode.AllReplicas if all_replicas else VariableRetrievalMode.OnePerGroup
    return {**_grouping_text(variable.replica_grouping), _MODE: mode.name}


def _grouping_text(grouping: ReplicaGrouping) -> dict[str, str]:
    if not grouping.is_const:
        return {_ASSIGNMENT: ",".join(map(str, grouping.assignment))}
    try:
        comm_group = CommGroup.from_replica_grouping(grouping)
    except ReplicaError:
        return {_STRIDE: f"{grouping.stride},{grouping.group_size}"}
    return {_TYPE: comm_group.type.name, _SIZE: str(comm_group.size)}


def read_program(file: OpenFile, texts: Mapping[str, str]) -> tuple[int | None, int | None]:
    """Replication factor and step of a file's metadata; None where it has none.

    Raises:
        CheckpointError: they are no such numbers.
    """
    factor = file.number(_FACTOR, texts[_FACTOR], 1, _MAX_REPLICAS) if _FACTOR in texts else None
    return factor, file.number(_STEP, texts[_STEP], 0, 2**64 - 1) if _STEP in texts else None


def read_settings(
    file: OpenFile,
    replication: int | None,
    name: str,
    shape: tuple[int, ...],
    texts: Mapping[str, str],
    prefix: str = "",
) -> VariableSettings | None:
    """Settings of a tensor's metadata; None when it has none, or no replication factor to understand them with.

    Args:
        file: where they come from.
        replication: replication factor of the file.
        name: the tensor.
        shape: its shape in the file.
        texts: the metadata.
        prefix: what the tensor's keys begin with.
    Raises:
        CheckpointError: they contradict the replication factor, the tensor's shape or themselves.
    """
    found = {key: texts[prefix + key] for key in _KEYS if prefix + key in texts}
    if replication is None or not found:
        return None
    try:
        settings = _read(file, replication, found)
        groups = settings.group_count(replication)
    except ReplicaError as error:
        raise file.bad(f"has wrong groups for {shown(name)}: {error}") from None
    if groups > 1 and shape[:1] != (groups,):
        raise file.bad(f"has no row per group for {shown(name)}, got {shape}, expected ({groups}, ...)")
    return settings


def _read(file: OpenFile, replication: int, found: Mapping[str, str]) -> VariableSettings:
    mode = VariableRetrievalMode[_name(file, _MODE, found, VariableRetrievalMode.__members__)]
    if _ASSIGNMENT in found:
        assignment = _numbers(file, _ASSIGNMENT, found, replication)
        return VariableSettings(ReplicaGrouping.from_assignment(assignment), mode)
    if _STRIDE in found:
        stride, size = _numbers(file, _STRIDE, found, 2)
        return VariableSettings(ReplicaGrouping.from_stride(replication, stride, size), mode)
    kind = CommGroupType[_name(file, _TYPE, found, CommGroupType.__members__)]
    size = file.number(_SIZE, found.get(_SIZE, ""), 0, _MAX_REPLICAS)
    return VariableSettings(CommGroup(kind, size), mode)


def _name(file: OpenFile, key: str, found: Mapping[str, str], names: Mapping[str, object]) -> str:
    if found.get(key) not in names:
        raise file.bad(
            f"has a wrong {key}, got {shown(found.get(key, '')[:40])}, expected one of {', '.join(names)}"
        )
    return found[key]


def _numbers(file: OpenFile, key: str, found: Mapping[str, str], count: int) -> list[int]:
    texts = found[key].split(",")
    if len(texts) != count:
        raise file.bad(f"has a wrong {key}, got {shown(found[key][:40])}, expected {count} numbers")
    return [file.number(key, text, 0, _MAX_REPLICAS) for text in texts]
