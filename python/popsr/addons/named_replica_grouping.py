"""Trees of replica groupings, and groupings inside an instance of a program or a domain of links."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import TypeVar

from popsr._program.context import gir
from popsr._support.host.arguments import read_a, read_items
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr.addons.dot_tree import DotTree, read_key
from popsr.errors import AttributeValueError, ReplicaError
from popsr.replicas import ReplicaGrouping

__all__ = [
    "NamedReplicaGrouping",
    "fill_none_group",
    "get_ild_replica_grouping",
    "get_ild_size_from_popdist",
    "get_instance_replica_grouping",
    "group_of",
    "is_cross_ild",
    "is_cross_instance",
]

Tree = TypeVar("Tree", bound="NamedReplicaGrouping")
_LARGEST_DOMAIN = 64


@public
class NamedReplicaGrouping(DotTree[ReplicaGrouping]):
    """A tree of groupings."""

    _is_named = True

    @classmethod
    def build_groups(cls: type[Tree], names: Iterable[str], value: ReplicaGrouping) -> Tree:
        """The same grouping for each name.

        Args:
            names: dotted keys.
            value: the grouping.
        """
        keys = read_items("build_groups", "names", names, kind="keys")
        read_a("build_groups: value", value, ReplicaGrouping)
        return cls.from_dict(dict.fromkeys((read_key("build_groups", key) for key in keys), value))


@public
def fill_none_group(rg: ReplicaGrouping | None, none_value: ReplicaGrouping) -> ReplicaGrouping:
    """``rg``, or ``none_value`` in the place of None."""
    return none_value if rg is None else rg


@public
def group_of(groups: NamedReplicaGrouping | None, key: str) -> ReplicaGrouping | None:
    """The grouping of a key, or None where there is none.

    Args:
        groups: groupings by key.
        key: the key.
    """
    if groups is None:
        return None
    read_a("group_of: groups", groups, NamedReplicaGrouping)
    found: ReplicaGrouping | None = groups[key] if key in groups else None  # noqa: SIM401 - trees have another get
    return found


@public
def get_instance_replica_grouping(replica_grouping: ReplicaGrouping | None = None) -> ReplicaGrouping:
    """The grouping inside one instance of the program: of the same stride, with smaller groups where they do not fit.

    In a program of one instance it is the same grouping.

    Args:
        replica_grouping: the grouping. Default: one group of all replicas.
    Raises:
        ReplicaError: instances have different numbers of replicas; members are further apart than an instance has
            replicas, or groups have no constant stride.
    """
    replicas, count = gir().replication_factor, gir()._num_instances
    if replicas % count:
        raise ReplicaError(
            f"get_instance_replica_grouping: instances have different numbers of replicas, got {replicas} on {count} "
            f"instances, expected a multiple of {count}"
        )
    return _inside(replica_grouping, replicas // count, "instance")


@public
def is_cross_instance(replica_grouping: ReplicaGrouping) -> bool:
    """True if groups reach over several instances."""
    return get_instance_replica_grouping(replica_grouping) != replica_grouping


@public
def get_ild_size_from_popdist() -> int:
    """Replicas in one domain of IPU links.

    It is ``ipuLinkDomainSize`` of the JSON in the environment variable ``POPLAR_TARGET_OPTIONS``, else 64 or the number
    of replicas, whichever is less.

    Raises:
        ValueError: the variable holds something else.
    """
    text = os.environ.get("POPLAR_TARGET_OPTIONS")
    if text is None:
        return min(gir().replication_factor, _LARGEST_DOMAIN)
    try:
        size = int(json.loads(text)["ipuLinkDomainSize"])
    except (KeyError, TypeError, ValueError):
        size = 0
    if size < 1:
        raise AttributeValueError(
            f"get_ild_size_from_popdist: no domain size in POPLAR_TARGET_OPTIONS, got {shown(text)}, "
            'expected JSON with "ipuLinkDomainSize"'
        )
    return size


@public
def get_ild_replica_grouping(replica_grouping: ReplicaGrouping | None = None) -> ReplicaGrouping:
    """The grouping inside one domain of IPU links: of the same stride, with smaller groups where they do not fit.

    Args:
        replica_grouping: the grouping. Default: one group of all replicas.
    Raises:
        ValueError: members are further apart than a domain is large, or groups have no constant stride.
    """
    return _inside(replica_grouping, get_ild_size_from_popdist(), "domain of IPU links")


@public
def is_cross_ild(replica_grouping: ReplicaGrouping) -> bool:
    """True if groups reach over several domains of IPU links."""
    return get_ild_replica_grouping(replica_grouping) != replica_grouping


def _inside(replica_grouping: ReplicaGrouping | None, size: int, what: str) -> ReplicaGrouping:
    grouping = fill_none_group(replica_grouping, gir().replica_grouping())
    read_a("replica_grouping: replica_grouping", grouping, ReplicaGrouping)
    if grouping.num_replicas <= size:
        return grouping
    stride = grouping.stride
    if stride * grouping.group_size <= size:
        return grouping
    if stride > size:
        raise ReplicaError(
            f"replica_grouping: stride exceeds the {what}, got {stride}, expected at most {size}"
        )
    return gir().replica_grouping(stride=stride, group_size=size // stride)
