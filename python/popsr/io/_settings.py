"""Replication of a program and its variables as text in a file's metadata, and back.

``__replicationFactor`` is PopART's key. Beside it each tensor has the type and size of its CommGroup and its retrieval
mode; groupings that no CommGroup expresses have a key of popsr's own instead: stride and group size, or the group of
each replica.
"""

from __future__ import annotations

import functools
import re
from array import array
from collections.abc import Callable, Mapping
from functools import cached_property

from popsr import _core
from popsr._core import MAX_REPLICAS
from popsr._program.tensor import Variable
from popsr._support.host.files import shown_name, shown_shape
from popsr._support.text.replica_sets import groups_text
from popsr.errors import CheckpointError, ReplicaError
from popsr.io._budget import Budget
from popsr.io._open_file import OpenFile
from popsr.replicas import (
    CommGroup,
    CommGroupType,
    ReplicaGrouping,
    VariableRetrievalMode,
    VariableSettings,
)

__all__ = [
    "NO_SETTINGS",
    "SETTINGS_PLACES",
    "VERSION",
    "SettingsReader",
    "SettingsTexts",
    "StoredSettings",
    "check_version",
    "factor_of",
    "grouping_of",
    "groups_text_of",
    "program_text",
    "read_program",
    "refuse_later",
    "settings_from",
    "settings_text",
    "settings_text_of",
    "write_factor",
]

VERSION = "popsr.version"

_FACTOR, _STEP = "__replicationFactor", "popsr.step"
_TYPE, _SIZE, _MODE = "__commGroupType", "__commGroupSize", "__variableRetrievalMode"
_STRIDE, _ASSIGNMENT = "popsr.strideAndGroupSize", "popsr.assignment"
_KEYS = (_TYPE, _SIZE, _MODE, _STRIDE, _ASSIGNMENT)
_SETTINGS_BYTES = 1 << 10  # of the objects that stand for the settings of tensors

SettingsTexts = tuple[str | None, ...]
"""The texts that a file has for a tensor under each key of settings; ``SETTINGS_PLACES`` has their order."""
NO_SETTINGS: SettingsTexts = (None,) * len(_KEYS)
SETTINGS_PLACES = {key: i for i, key in enumerate(_KEYS)}


def write_factor(replication: int) -> dict[str, str]:
    """Metadata of a file that has this number of replicas."""
    return {_FACTOR: str(replication)}


def factor_of(texts: Mapping[str, str]) -> int | None:
    """The number of replicas in metadata.

    Raises:
        CheckpointError: it is not such a number.
    """
    text = texts.get(_FACTOR)
    if text is None:
        return None
    if not re.fullmatch("[1-9][0-9]{0,5}", text) or int(text) > MAX_REPLICAS:
        raise CheckpointError(
            f"model: wrong {_FACTOR}, got {shown_name(text, 40)}, expected 1 to {MAX_REPLICAS}"
        )
    return int(text)


def settings_text_of(settings: VariableSettings) -> dict[str, str]:
    """Metadata of a tensor whose number of replicas is not decided."""
    mode = {_MODE: settings.retrieval_mode.name}
    group = settings.comm_group
    if group is not None:
        return {_TYPE: group.type.name, _SIZE: str(group.size), **mode}
    first, *rest = settings.__reduce__()[1]
    if isinstance(first, ReplicaGrouping):
        return {**_grouping_text(first), **mode}
    return {_STRIDE: f"{first},{rest[0]}", **mode}


def settings_from(texts: Mapping[str, str]) -> VariableSettings:
    """Settings of metadata; one group where it has none.

    Raises:
        CheckpointError: the metadata contradicts itself.
    """
    try:
        mode = VariableRetrievalMode[texts.get(_MODE, "OnePerGroup")]
        if _ASSIGNMENT in texts:
            labels = [int(each) for each in texts[_ASSIGNMENT].split(",")]
            return VariableSettings(ReplicaGrouping.from_assignment(labels), mode)
        if _STRIDE in texts:
            stride, size = texts[_STRIDE].split(",")
            return VariableSettings(int(stride), int(size), mode)
        group = CommGroup(CommGroupType[texts.get(_TYPE, "All")], int(texts.get(_SIZE, "0")))
        return VariableSettings(group, mode)
    except (KeyError, ValueError, ReplicaError) as error:
        raise CheckpointError(
            f"model: wrong groups of an initializer, got {shown_name(str(dict(texts)))}, expected groups: {error!s:.80}"
        ) from None


def program_text(replication: int | None, step: int | None) -> dict[str, str]:
    """Metadata of a file."""
    factor = {} if replication is None else {_FACTOR: str(replication)}
    return factor if step is None else {**factor, _STEP: str(step)}


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


def check_version(file: OpenFile, text: str) -> None:
    """Refuse a file that a later popsr wrote, whose format may be another one.

    Raises:
        CheckpointError: its major version is greater than this one's, or it is not a version.
    """
    found = _version(text)
    if found is None:
        raise file.bad(
            f"has a wrong version of popsr, got {shown_name(text, 40)}, expected one such as '1.2.3'"
        )
    refuse_later(file, text)


def refuse_later(file: OpenFile, text: str) -> None:
    """Raise if a later popsr wrote the file; of what is not a version nothing is known.

    Raises:
        CheckpointError: its major version is greater than this one's.
    """
    if (_version(text) or 0) > (_version(_core.__version__) or 0):
        raise file.bad(
            f"was written by a later popsr, got version {text}, expected one that popsr {_core.__version__} can read"
        )


def _version(text: str) -> int | None:
    """The major version."""
    found = re.fullmatch(r"([0-9]{1,9})(\.[0-9]{1,9}){0,3}([-+.]?[0-9a-z][-+.0-9A-Za-z]{0,40})?", text)
    return None if found is None else int(found[1])


def read_program(file: OpenFile, texts: Mapping[str, str]) -> tuple[int | None, int | None]:
    """Replication factor and step of a file's metadata; None where it has none.

    Raises:
        CheckpointError: they are not such numbers.
    """
    factor = file.number(_FACTOR, texts[_FACTOR], 1, MAX_REPLICAS) if _FACTOR in texts else None
    return factor, file.number(_STEP, texts[_STEP], 0, 2**64 - 1) if _STEP in texts else None


class StoredSettings:
    """Groups and retrieval mode that a file has for a tensor. They take no memory per replica until they are used."""

    def __init__(self, groups: int, make: Callable[[], VariableSettings]) -> None:
        self.groups = groups
        self._make = make

    @cached_property
    def value(self) -> VariableSettings:
        """The settings."""
        return self._make()


@functools.lru_cache(maxsize=4)
def grouping_of(settings: VariableSettings, replication: int) -> ReplicaGrouping:
    """The groups of settings; many tensors of a file have equal ones, which take time for each replica."""
    return settings.replica_grouping(replication)


@functools.lru_cache(maxsize=64)
def groups_text_of(settings: VariableSettings, replication: int) -> str:
    """The groups of settings as blocks of replicas."""
    return groups_text(grouping_of(settings, replication).partition)


class SettingsReader:
    """Reads the settings of tensors; equal texts become one object.

    Args:
        file: where they come from.
        budget: counts what they take.
        replication: replication factor of the file; without one settings cannot be understood.
    """

    def __init__(self, file: OpenFile, budget: Budget, replication: int | None) -> None:
        self._file, self._budget, self._replication = file, budget, replication
        self._known: dict[SettingsTexts, StoredSettings] = {}

    def read(self, name: str, shape: tuple[int, ...], texts: SettingsTexts) -> StoredSettings | None:
        """Settings of a tensor; None when it has none, or the file has no replication factor.

        Raises:
            CheckpointError: they contradict the replication factor, the tensor's shape or themselves.
        """
        if self._replication is None or texts is NO_SETTINGS:
            return None
        settings = self._known.get(texts)
        if settings is None:
            self._budget.take_memory(_SETTINGS_BYTES)
            try:
                settings = self._read(self._replication, dict(zip(_KEYS, texts, strict=True)))
            except ReplicaError as error:
                raise self._file.bad(f"has wrong groups for {shown_name(name)}: {error}") from None
            self._known[texts] = settings
        groups = settings.groups
        if groups > 1 and shape[:1] != (groups,):
            raise self._file.bad(
                f"has no row per group for {shown_name(name)}, got {shown_shape(shape)}, expected ({groups}, ...)"
            )
        return settings

    def _read(self, replication: int, texts: Mapping[str, str | None]) -> StoredSettings:
        mode = VariableRetrievalMode[self._word(_MODE, texts, VariableRetrievalMode.__members__)]
        assignment, stride_and_size = texts[_ASSIGNMENT], texts[_STRIDE]
        if assignment is not None:
            groups = self._assignment(assignment, replication).num_groups
            return StoredSettings(
                groups, lambda: VariableSettings(self._assignment(assignment, replication), mode)
            )
        if stride_and_size is not None:
            stride, size = self._numbers(_STRIDE, stride_and_size, 2)
            settings = VariableSettings(stride, size, mode)
        else:
            kind = CommGroupType[self._word(_TYPE, texts, CommGroupType.__members__)]
            size = self._file.number(_SIZE, texts[_SIZE] or "", 0, MAX_REPLICAS)
            settings = VariableSettings(CommGroup(kind, size), mode)
        return StoredSettings(settings.group_count(replication), lambda: settings)

    def _assignment(self, text: str, replication: int) -> ReplicaGrouping:
        return ReplicaGrouping.from_assignment(self._numbers(_ASSIGNMENT, text, replication))

    def _word(self, key: str, texts: Mapping[str, str | None], words: Mapping[str, object]) -> str:
        word = texts[key] or ""
        if word not in words:
            raise self._file.bad(
                f"has a wrong {key}, got {shown_name(word, 40)}, expected one of {', '.join(words)}"
            )
        return word

    def _numbers(self, key: str, text: str, count: int) -> array[int]:
        numbers = array("q")
        if text.count(",") + 1 == count:
            items = re.finditer("[^,]+", text)
            numbers.extend(self._file.number(key, item.group(), 0, MAX_REPLICAS) for item in items)
        if len(numbers) != count:
            raise self._file.bad(f"has a wrong {key}, got {shown_name(text, 40)}, expected {count} numbers")
        return numbers
