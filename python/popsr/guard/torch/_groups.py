"""Ranks that should agree on a value: by declared groups, by placements on a mesh, or all."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from popsr._support.host.arguments import is_a
from popsr._support.host.patterns import Patterns
from popsr._support.host.rank_groups import groups_of, require_group
from popsr._support.text.shown import shown
from popsr.errors import (
    ArgumentTypeError,
    AttributeValueError,
    RankError,
    ReplicaError,
    UnknownNameError,
    UnsupportedError,
)
from popsr.guard.torch._hash import WHERE
from popsr.guard.torch._items import Item
from popsr.guard.torch._ranks import Ranks

__all__ = ["AgreedGroups", "Grouping", "Share"]


@dataclass(frozen=True, slots=True)
class Share:
    """A kind of value on this rank: the ranks that should hold its bits, and where this rank stands among them.

    Attributes:
        members: of this rank's group, ascending.
        place: of this rank by the axes of a mesh, as ``dp 1, tp 0``; empty without one.
        reason: what keeps other ranks from agreeing, if it is worth a word.
    """

    members: tuple[int, ...]
    place: str = ""
    reason: str = ""


class Grouping:
    """Groups as they were declared.

    Args:
        groups: None; patterns with groups; a group for all names; an object with ``states``, as of ``popsr.prove``, or
            with ``partition(name, ranks)``, as ``popsr.bridge.audit.DeclaredGroups``.
        mesh: the mesh whose axes groups may name.
        ranks: the ranks of the job.
        local: names that each rank computes on its own, with the reason.
    """

    def __init__(self, groups: Any, mesh: Any, ranks: Ranks, local: Mapping[str, str]) -> None:
        """Checks the groups."""
        self._ranks, self._mesh, self._local = ranks, mesh, local
        self._known: dict[Any, Share] = {}
        self._partition: Any = None
        self._proved: dict[str, Any] | None = None
        self._named = self._table = Patterns[Any](())
        if groups is None:
            return
        if hasattr(groups, "states"):
            self._proved = {each.path: each.proved for each in groups.states}
        elif hasattr(groups, "partition") and not is_a(groups, str):
            self._partition = groups.partition
            self._named = Patterns((each, None) for each in getattr(groups, "patterns", ()))
        else:
            self._named = self._table = Patterns(self._read(groups))

    def require_used(self, names: Collection[str], later: str | None) -> None:
        """Refuse patterns, and proofs, that are of none of these names.

        Args:
            names: of all values that may be compared.
            later: what names begin with that are not there yet.
        Raises:
            UnknownNameError: there is one.
        """
        self._named.require_used(names, f"{WHERE}: groups", later=later)
        if self._proved and not any(name in self._proved for name in names):
            raise UnknownNameError(
                f"{WHERE}: groups is a proof of another model, got states as {shown(next(iter(self._proved)))}, "
                f"expected names of this one as {shown(next(iter(names), ''))}"
            )

    def _read(self, groups: Any) -> list[tuple[str, Any]]:
        if is_a(groups, str):
            groups = {"*": groups}
        if not isinstance(groups, Mapping):
            raise ArgumentTypeError(
                f"{WHERE}: groups is neither a mapping nor a word, a proof or declared groups, got {shown(groups)}"
            )
        table = []
        for pattern, group in groups.items():
            if not is_a(pattern, str):
                raise ArgumentTypeError(
                    f"{WHERE}: groups has no pattern, got {shown(pattern)}, expected a str"
                )
            table.append((pattern, self._read_group(group, pattern)))
        return table

    def _read_group(self, group: Any, pattern: str) -> Any:
        if isinstance(group, (list, tuple)):
            group = _sets(group)
        axes = self._axes(group)
        if axes is not None:
            return axes
        require_group(WHERE, group, pattern)
        groups_of(WHERE, group, self._ranks.size)
        return group

    def _axes(self, group: Any) -> tuple[str, ...] | None:
        """Axes of the mesh that a group names, as ``dp`` or ``dp,tp``."""
        known = getattr(self._mesh, "mesh_dim_names", None) or ()
        if not is_a(group, str) or group in ("all", "none") or "{" in group:
            return None
        axes = tuple(each.strip() for each in group.split(","))
        if all(each in known for each in axes):
            return axes
        raise AttributeValueError(
            f"{WHERE}: not a group, got {shown(group)}, expected 'all', 'none', sets as '{{0,1}}{{2,3}}', a mapping of "
            f"stride and size, or axes of mesh, which has {shown(list(known))}"
        )

    def share(self, item: Item) -> Share:
        """The ranks that should hold a value as this one does.

        Raises:
            ReplicaError: a proof is of another number of ranks.
            UnsupportedError: the value is a partial sum, and no group is declared for it.
        """
        declared = self._declared(item.name) or (self._declared(item.of) if item.of else None)
        if declared is not None:
            return declared
        if item.name in self._local:
            reason = self._local[item.name]
            return self._keep(("local", reason), lambda: Share((self._ranks.rank,), reason=reason))
        if hasattr(item.value, "placements"):
            return self._placed(item)
        return self._all()

    def _all(self) -> Share:
        return self._keep("all", lambda: Share(tuple(range(self._ranks.size))))

    def _keep(self, key: Any, make: Callable[[], Share]) -> Share:
        """One object for each kind of groups: two kinds may be alike on this rank and differ on another."""
        if key not in self._known:
            self._known[key] = make()
        return self._known[key]

    def _declared(self, name: str) -> Share | None:
        partition = None
        if self._partition is not None:
            partition = self._partition(name, self._ranks.size)
        elif self._proved is not None:
            partition = self._proved.get(name)
        if partition is not None:
            if partition.num_replicas != self._ranks.size:
                raise ReplicaError(
                    f"{WHERE}: the proof is of another number of replicas, got {partition.num_replicas}, expected "
                    f"{self._ranks.size} as there are ranks"
                )
            labels = tuple(partition.labels)
            return self._keep(labels, lambda: self._of_labels(labels))
        group = self._table.of(name)
        return None if group is None else self.of_group(group)

    def _of_labels(self, labels: tuple[int, ...]) -> Share:
        mine = labels[self._ranks.rank]
        return Share(tuple(rank for rank, label in enumerate(labels) if label == mine), reason="as declared")

    def of_group(self, group: Any) -> Share:
        """The ranks of a group that was read."""
        return self._keep(json.dumps(group), lambda: self._made(group))

    def _made(self, group: Any) -> Share:
        if isinstance(group, tuple):
            found = self._on_mesh(self._mesh, [name in group for name in self._mesh.mesh_dim_names])
            return Share(found.members, found.place, "as declared")
        members = groups_of(WHERE, group, self._ranks.size).members(self._ranks.rank)
        return Share(tuple(members), reason="as declared")

    def read(self, group: Any, what: str) -> Share:
        """The ranks of a group that stands alone."""
        return self.of_group(self._read_group(group, what))

    def _placed(self, item: Item) -> Share:
        placements = item.value.placements
        if any(each.is_partial() for each in placements):
            raise UnsupportedError(
                f"{WHERE}: '{item.name}' is a partial sum, got {shown(str(placements))}, expected it replicated or "
                "sharded, or a declared group"
            )
        equal = tuple(each.is_replicate() for each in placements)
        mesh = item.value.device_mesh
        return self._keep((mesh, equal), lambda: self._on_mesh(mesh, equal))

    def _on_mesh(self, mesh: Any, equal: Any) -> Share:
        """The ranks that hold the part of this one, along the axes that are equal and those outside of the mesh."""
        names = mesh.mesh_dim_names or tuple(f"axis {i}" for i in range(mesh.ndim))
        whole = _root(mesh)
        if whole.mesh_dim_names is not None and set(names) <= set(whole.mesh_dim_names):
            # Ranks along the axes that a tensor does not know of have copies, as of tensors that know no mesh.
            known = dict(zip(names, equal, strict=True))
            mesh, names = whole, whole.mesh_dim_names
            equal = [known.get(name, True) for name in names]
        coordinate = mesh.get_coordinate()
        if coordinate is None:
            return Share((self._ranks.rank,), reason="this rank is not in its mesh")
        index = tuple(slice(None) if each else at for each, at in zip(equal, coordinate, strict=True))
        there = {rank: i for i, rank in enumerate(self._ranks.globals)}
        members = sorted(there[each] for each in mesh.mesh[index].reshape(-1).tolist() if each in there)
        place = ", ".join(f"{name} {at}" for name, at in zip(names, coordinate, strict=True))
        return Share(tuple(members), place, "sharded: no other rank of its mesh holds this part")


def _root(mesh: Any) -> Any:
    """The mesh that a mesh is a part of, or itself."""
    if hasattr(mesh, "_get_root_mesh"):
        return mesh._get_root_mesh()
    from torch.distributed import device_mesh

    resources = getattr(device_mesh, "_mesh_resources", None)
    return mesh if resources is None else resources.get_root_mesh(mesh)


class AgreedGroups:
    """The groups of each kind of value, as all ranks told them.

    Attributes:
        kinds: for each kind the group of each rank.
        places: for each kind the place of each rank.
    """

    def __init__(self, ranks: Ranks, shares: list[Share]) -> None:
        """Tell the others, and hear theirs.

        Raises:
            RankError: they contradict each other.
        """
        mine = json.dumps([[each.members, each.place] for each in shares]).encode()
        told = [json.loads(each) for each in ranks.gather_bytes(mine)]
        self.kinds: list[list[tuple[int, ...]]] = []
        self.places: list[list[str]] = []
        for kind in range(len(shares)):
            groups = [tuple(each[kind][0]) for each in told]
            for rank, members in enumerate(groups):
                other = next((each for each in members if groups[each] != members), None)
                if other is not None or rank not in members:
                    second = rank if other is None else other
                    raise RankError(
                        f"{WHERE}: ranks declare other groups, got {list(members)} on rank {ranks.globals[rank]} and "
                        f"{list(groups[second])} on rank {ranks.globals[second]}, expected the same on all of a group"
                    )
            self.kinds.append(groups)
            self.places.append([each[kind][1] for each in told])


def _sets(group: Any) -> str:
    """Lists of ranks as sets."""
    lists = [each if isinstance(each, (list, tuple)) else [each] for each in group]
    return "".join(f"{{{','.join(map(str, each))}}}" for each in lists)
