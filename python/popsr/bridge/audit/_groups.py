"""Declared groups: which ranks should hold a parameter with equal bits."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from popsr._core import MAX_REPLICAS
from popsr._support.host.arguments import is_a, read_int
from popsr._support.host.files import shown_path
from popsr._support.host.patterns import Patterns
from popsr._support.host.rank_groups import RankGroups, groups_of, require_group
from popsr._support.host.regular_files import read_regular
from popsr._support.text.entry_points import public
from popsr._support.text.nearest import nearest
from popsr._support.text.one_line import one_line
from popsr._support.text.shown import shown
from popsr.analysis import PartitionAnalysis
from popsr.bridge._proof.proof import Proof
from popsr.bridge.audit._mesh import AXES, RANK, Mesh
from popsr.errors import ArgumentTypeError, AttributeValueError, MissingPackageError, ReplicaError
from popsr.replicas import Partition

__all__ = ["DeclaredGroups"]

_MAX_MERGED = 1 << 10
_MAX_FILE = {".json": 1 << 20, ".yaml": 1 << 16, ".yml": 1 << 16}  # bytes; PyYAML takes 30 us for each


@public
class DeclaredGroups:
    """Groups by pattern of parameters' names; the first pattern of ``fnmatch`` that a name matches counts.

    A group is ``"all"``, ``"none"``, sets as ``"{0,1}{2,3}"``, a mapping with ``stride`` and ``size`` as of
    ``Ir.replica_grouping``, or of files whose names have axes the axes along which ranks are equal: ``"dp"``,
    ``"dp,tp"``. A name that matches nothing is not compared, and a note says so; another says which pattern is of no
    name.

    Args:
        groups: the mapping; a path of a JSON or YAML file with one; ``"all"`` and the like for all names; a
            ``PartitionAnalysis`` or a ``Proof``, whose proved groups count.

    Attributes:
        patterns: of the mapping, in order; empty of a proof.
    """

    def __init__(self, groups: Any = "all") -> None:
        """Checks the groups, as far as that is possible without the number of ranks."""
        self._find: Callable[..., RankGroups | None]
        self._table, self.patterns = Patterns[str](()), tuple[str, ...]()
        if isinstance(groups, Proof):
            proved = {each.path: each.proved for each in groups.states}
            self._find = lambda name, ranks, _=None: _proved(proved, name, ranks)
        elif isinstance(groups, PartitionAnalysis):
            known = {v.id: groups.partition(v) for v in groups._ir.main_graph.variables}
            self._find = lambda name, ranks, _=None: _proved(known, name, ranks)
        else:
            table = _table(groups)
            self._table, self.patterns = Patterns((each, each) for each in table), tuple(table)
            made = functools.cache(lambda pattern, ranks, mesh: _groups(table[pattern], ranks, mesh))

            def find(name: str, ranks: int, mesh: Mesh | None = None) -> RankGroups | None:
                pattern = self._table.of(name)
                return None if pattern is None else made(pattern, ranks, mesh)

            self._find = find

    def partition(self, name: str, ranks: int) -> Partition | None:
        """Ranks that should hold a parameter equal; None if nothing is said of it.

        Raises:
            ReplicaError: the groups are of another number of ranks.
        """
        found = self._find(name, read_int("DeclaredGroups.partition: ranks", ranks, 1, MAX_REPLICAS))
        return None if found is None else found.partition()

    def notes(self, names: Collection[str]) -> Iterator[str]:
        """Findings about patterns that are of none of these names, which say nothing where one is misspelt."""
        for pattern in self._table.unused(names):
            near = nearest(pattern, names)
            yield f"groups has {shown(pattern)}, which no name is like" + (
                f", expected {near}" if near else ""
            )


def _axes(group: Any) -> frozenset[str] | None:
    """Axes of a group such as ``dp,tp``; None of another one."""
    words = frozenset(group.replace(" ", "").split(",")) if is_a(group, str) else frozenset()
    return words if words and words <= {RANK, *AXES} else None


def _groups(group: Any, ranks: int, mesh: Mesh | None) -> RankGroups:
    axes = _axes(group)
    if axes is None:
        return groups_of("audit", group, ranks)
    if mesh is None or mesh.sizes[0][0] == RANK:  # one number for each rank, which is that of its data
        return RankGroups.of_one(ranks) if axes & {RANK, "dp"} else RankGroups.of_singletons(ranks)
    return mesh.groups(axes)


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
        if _axes(group) is None:
            require_group("audit", group, pattern)
    return dict(groups)


def _read(path: Path) -> Any:
    text = read_regular(path, "audit", _MAX_FILE.get(path.suffix, 1 << 20)).decode(errors="replace")
    try:
        if path.suffix == ".json":
            return json.loads(text)
        return _yaml(text)
    except ImportError:
        raise MissingPackageError(
            "audit: YAML files need PyYAML, expected `pip install 'popsr[yaml]'`, or JSON"
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
