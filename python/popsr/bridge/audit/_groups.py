"""Declared groups: which ranks should hold a parameter with equal bits."""

from __future__ import annotations

import fnmatch
import functools
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from popsr._core import MAX_REPLICAS
from popsr._support.host.arguments import is_a, read_int
from popsr._support.host.files import shown_path
from popsr._support.host.regular_files import read_regular
from popsr._support.text.entry_points import public
from popsr._support.text.one_line import one_line
from popsr._support.text.shown import shown
from popsr.analysis import PartitionAnalysis
from popsr.bridge._proof.proof import Proof
from popsr.bridge.audit._rank_groups import RankGroups
from popsr.errors import ArgumentTypeError, AttributeValueError, Error, MissingPackageError, ReplicaError
from popsr.replicas import Partition, VariableSettings

__all__ = ["DeclaredGroups"]

_SETS = re.compile(r"(\{[0-9]{1,7}(,[0-9]{1,7})*\})+")
_MAX_MERGED = 1 << 10
_MAX_FILE = {".json": 1 << 20, ".yaml": 1 << 16, ".yml": 1 << 16}  # bytes; PyYAML takes 30 us for each


@public
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
        self._find: Callable[[str, int], RankGroups | None]
        if isinstance(groups, Proof):
            proved = {each.path: each.proved for each in groups.states}
            self._find = lambda name, ranks: _proved(proved, name, ranks)
        elif isinstance(groups, PartitionAnalysis):
            known = {v.id: groups.partition(v) for v in groups._ir.main_graph.variables}
            self._find = lambda name, ranks: _proved(known, name, ranks)
        else:
            table = _table(groups)
            made = functools.cache(lambda pattern, ranks: _groups_of(table[pattern], ranks))
            self._find = lambda name, ranks: next(
                (made(each, ranks) for each in table if fnmatch.fnmatchcase(name, each)), None
            )

    def partition(self, name: str, ranks: int) -> Partition | None:
        """Ranks that should hold a parameter equal; None if nothing is said of it.

        Raises:
            ReplicaError: the groups are of another number of ranks.
        """
        found = self._find(name, read_int("DeclaredGroups.partition: ranks", ranks, 1, MAX_REPLICAS))
        return None if found is None else found.partition()


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
        is_text = is_a(group, str) and (group in ("all", "none") or _SETS.fullmatch(_compact(group)))
        is_stride = isinstance(group, Mapping) and set(group) <= {"stride", "size"} and bool(group)
        if not is_text and not is_stride:
            raise AttributeValueError(
                f"audit: not a group, got {shown(group)} for {shown(pattern)}, expected 'all', 'none', sets as "
                "'{0,1}{2,3}', or a mapping of stride and size"
            )
    return dict(groups)


def _read(path: Path) -> Any:
    text = read_regular(path, "audit", _MAX_FILE.get(path.suffix, 1 << 20)).decode(errors="replace")
    try:
        if path.suffix == ".json":
            return json.loads(text)
        return _yaml(text)
    except ImportError:
        raise MissingPackageError(
            "audit: YAML files need PyYAML, expected `pip install pyyaml`, or JSON"
        ) from None
    except Exception as error:  # of YAML's or JSON's own kinds
        raise AttributeValueError(
            f"audit: {shown_path(path)} cannot be read, got {one_line(str(error), 120)}, expected patterns and groups"
        ) from None


def _yaml(text: str) -> Any:
    import yaml

    class Plain(yaml.SafeLoader):  # type: ignore[misc]  # PyYAML has no types
        """An alias is the object that was read before, but merged mappings are copied: twice as many at each level."""

        def flatten_mapping(self, node: Any) -> None:
            before = len(node.value)
            super().flatten_mapping(node)
            if len(node.value) > before + _MAX_MERGED:
                raise yaml.YAMLError(f"more than {_MAX_MERGED} merged keys")

    return yaml.load(text, Plain)


def _groups_of(group: Any, ranks: int) -> RankGroups:
    if group == "all":
        return RankGroups.of_one(ranks)
    if group == "none":
        return RankGroups.of_singletons(ranks)
    if isinstance(group, str):
        sets = [[int(each) for each in part.split(",")] for part in _compact(group)[1:-1].split("}{")]
        members = [each for part in sets for each in part]
        if len(members) != ranks or sorted(members) != list(range(ranks)):
            raise ReplicaError(
                f"audit: sets do not cover the ranks once, got {shown(group)}, expected 0 to {ranks - 1}"
            )
        return RankGroups.of_sets(sets)
    try:
        stride = read_int("stride", group.get("stride", 1), 1, ranks)
        size = ranks // stride if group.get("size") is None else read_int("size", group["size"], 1, ranks)
        VariableSettings(stride, size).group_count(ranks)  # raises unless they tile the ranks
        return RankGroups.of_stride(ranks, stride, size)
    except Error as error:
        raise ReplicaError(
            f"audit: wrong groups, got {shown(dict(group))}: {error}, expected others"
        ) from None


def _compact(sets: str) -> str:
    """Sets without spaces."""
    return "".join(sets.split())


def _proved(known: Mapping[str, Partition], name: str, ranks: int) -> RankGroups | None:
    found = known.get(name)
    if found is None:
        return None
    if found.num_replicas != ranks:
        raise ReplicaError(
            f"audit: the proof is of another number of replicas, got {found.num_replicas}, expected {ranks} as there "
            "are ranks"
        )
    return RankGroups.of_partition(found)
