"""Groups of replicas made the obvious way, as tuples of replicas."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

import popsr
from popsr.replicas import CommGroup, CommGroupType, ReplicaGrouping

All, Consecutive, Orthogonal, Ungrouped = CommGroupType
Groups = tuple[tuple[int, ...], ...]


def ir_of(assignment: str) -> popsr.Ir:
    """An Ir of as many replicas."""
    return popsr.Ir(replication=len(assignment))


def from_digits(assignment: str) -> ReplicaGrouping:
    """The grouping of an assignment in digits."""
    return ir_of(assignment).replica_grouping_from_assignments([int(digit) for digit in assignment])


def digits(groups: Any) -> str:
    return "".join(map(str, groups))


def strided(n: int, stride: int, size: int) -> Groups:
    """Each group takes the lowest free replica and steps on from there."""
    free, groups = set(range(n)), []
    while free:
        group = tuple(min(free) + stride * k for k in range(size))
        assert free.issuperset(group)
        free -= set(group)
        groups.append(group)
    return tuple(groups)


def by_first_member(groups: Any) -> Groups:
    return tuple(sorted(tuple(sorted(group)) for group in groups))


def comm_groups(group: CommGroup, n: int) -> Groups:
    """The definition of each type."""
    k = group.size
    groups: dict[object, Callable[[], Groups]] = {
        All: lambda: (tuple(range(n)),),
        Consecutive: lambda: tuple(tuple(range(i, i + k)) for i in range(0, n, k)),
        Orthogonal: lambda: tuple(tuple(range(j, n, n // k)) for j in range(n // k)),
        Ungrouped: lambda: tuple((r,) for r in range(n)),
    }
    return groups[group.type]()


def valid_comm_groups(n: int) -> list[CommGroup]:
    sizes = [k for k in range(1, n + 1) if n % k == 0]
    return [CommGroup(All, 1), CommGroup(), CommGroup(Ungrouped)] + [
        CommGroup(kind, k) for kind in (Consecutive, Orthogonal) for k in sizes
    ]


def valid_strides(n: int) -> list[tuple[int, int]]:
    """Strides and sizes that tile n replicas."""
    return [(s, g) for s, g in itertools.product(range(1, n + 1), repeat=2) if n % (s * g) == 0]


@st.composite
def groupings(draw: st.DrawFn) -> ReplicaGrouping:
    """Any grouping of up to 24 replicas."""
    n = draw(st.integers(1, 24))
    size = draw(st.sampled_from([k for k in range(1, n + 1) if n % k == 0]))
    replicas = draw(st.permutations(range(n)))
    groups = by_first_member(replicas[i : i + size] for i in range(0, n, size))
    group_of = {r: g for g, group in enumerate(groups) for r in group}
    return popsr.Ir(replication=n).replica_grouping_from_assignments([group_of[r] for r in range(n)])
