"""Declared groups: which ranks should hold a parameter with equal bits."""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import Any

from popsr._host.arguments import is_a
from popsr._host.files import file_errors, shown_path
from popsr._text.one_line import one_line
from popsr._text.shown import shown
from popsr.analysis import PartitionAnalysis
from popsr.bridge._proof import Proof
from popsr.errors import ArgumentTypeError, AttributeValueError, Error, MissingPackageError, ReplicaError
from popsr.replicas import Partition, ReplicaGrouping

__all__ = ["DeclaredGroups", "lacking_ranks", "shown_partition"]

_SHOWN = 80
_SETS = re.compile(r"(\{\s*\d+\s*(,\s*\d+\s*)*\})+")


def shown_partition(partition: Partition) -> str:
    """``{0,1}{2,3}``; of many ranks the first of them and the number of blocks."""
    text = str(partition)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({partition.num_blocks} blocks)"


def lacking_ranks(declared: Partition, held: Container[int], present: Container[int]) -> list[int]:
    """Ranks of those present that do not hold what others of their group hold."""
    return [
        rank
        for block in declared.blocks
        if any(each in held for each in block)
        for rank in block
        if rank in present and rank not in held
    ]


class DeclaredGroups:
    """Groups by pattern of parameters' names; the first pattern of ``fnmatch`` that a name matches counts.

    A group is ``"all"``, ``"none"``, sets as ``"{0,1}{2,3}"``, or a mapping with ``stride`` and ``size`` as of
    ``Ir.replica_grouping``. A name that matches nothing is not compared, and a note says so.

    Args:
        groups: the mapping; a path of a JSON or YAML file with one; ``"all"`` and the like for all names; a
            ``PartitionAnalysis`` or a ``Proof``, whose proved groups count.
    """

    def __init__(self, groups: Any = "all") -> None:
        """Checks the groups, as far as that is possible without the number of ranks."""
        self._partition: Callable[[str, int], Partition | None]
        if isinstance(groups, Proof):
            proved = {each.path: each.proved for each in groups.states}
            self._partition = lambda name, ranks: _proved(proved, name, ranks)
        elif isinstance(groups, PartitionAnalysis):
            known = {v.id: groups.partition(v) for v in groups._ir.main_graph.variables}
            self._partition = lambda name, ranks: _proved(known, name, ranks)
        else:
            table = _table(groups)
            self._partition = lambda name, ranks: _declared(table, name, ranks)

    def partition(self, name: str, ranks: int) -> Partition | None:
        """Ranks that should hold a parameter equal; None if nothing is said of it.

        Raises:
            ReplicaError: the groups are of another number of ranks.
        """
        return self._partition(name, ranks)


def _table(groups: Any) -> dict[str, Any]:
    if is_a(groups, Path) or (is_a(groups, str) and Path(groups).suffix in (".json", ".yaml", ".yml")):
        groups = _read(Path(groups))
    if is_a(groups, str):
        groups = {"*": groups}
    if not isinstance(groups, Mapping):
        raise ArgumentTypeError(
            f"audit: groups is neither a mapping nor a file, a proof or a word, got {shown(groups)}"
        )
    for pattern, group in groups.items():
        if not is_a(pattern, str):
            raise ArgumentTypeError(f"audit: groups has no pattern, got {shown(pattern)}, expected a str")
        is_text = is_a(group, str) and (group in ("all", "none") or _SETS.fullmatch(group.replace(" ", "")))
        is_stride = isinstance(group, Mapping) and set(group) <= {"stride", "size"} and bool(group)
        if not is_text and not is_stride:
            raise AttributeValueError(
                f"audit: not a group, got {shown(group)} for {shown(pattern)}, expected 'all', 'none', sets as "
                "'{0,1}{2,3}', or a mapping of stride and size"
            )
    return dict(groups)


def _read(path: Path) -> Any:
    with file_errors("audit", "read", path):
        text = path.read_text(errors="replace")
    try:
        if path.suffix == ".json":
            return json.loads(text)
        import yaml

        return yaml.safe_load(text)
    except ImportError:
        raise MissingPackageError(
            "audit: YAML files need PyYAML, expected `pip install pyyaml`, or JSON"
        ) from None
    except Exception as error:  # of YAML's or JSON's own kinds
        raise AttributeValueError(
            f"audit: {shown_path(path)} cannot be read, got {one_line(str(error), 120)}, expected patterns and groups"
        ) from None


def _declared(table: Mapping[str, Any], name: str, ranks: int) -> Partition | None:
    for pattern, group in table.items():
        if fnmatch.fnmatchcase(name, pattern):
            return _partition_of(group, ranks)
    return None


def _partition_of(group: Any, ranks: int) -> Partition:
    if group == "all":
        return Partition.from_labels([0] * ranks)
    if group == "none":
        return Partition.from_labels(range(ranks))
    if isinstance(group, str):
        sets = [[int(each) for each in part.split(",")] for part in group.replace(" ", "")[1:-1].split("}{")]
        members = [each for part in sets for each in part]
        if sorted(members) != list(range(ranks)):
            raise ReplicaError(
                f"audit: sets do not cover the ranks once, got {shown(group)}, expected 0 to {ranks - 1}"
            )
        labels = {each: i for i, part in enumerate(sets) for each in part}
        return Partition.from_labels([labels[rank] for rank in range(ranks)])
    try:
        return ReplicaGrouping.from_stride(ranks, group.get("stride", 1), group.get("size")).partition
    except Error as error:
        raise ReplicaError(
            f"audit: wrong groups, got {shown(dict(group))}: {error}, expected others"
        ) from None


def _proved(known: Mapping[str, Partition], name: str, ranks: int) -> Partition | None:
    found = known.get(name)
    if found is not None and found.num_replicas != ranks:
        raise ReplicaError(
            f"audit: the proof is of another number of replicas, got {found.num_replicas}, expected {ranks} as there "
            "are ranks"
        )
    return found
