"""Groups of a file onto groups of a program: which rows each group may take.

Of as many replicas, a group takes the value that its replicas had when they were saved: it may lie inside one group of
the file (refining), or in several whose rows are bitwise equal (coarsening). Of another number of replicas, one group
fits any, and as many groups fit where both are consecutive, or both are interleaved with the stride of their number.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from popsr._session.rows import Array
from popsr._support.host.files import shown_name
from popsr.errors import ReplicaError
from popsr.replicas import ReplicaGrouping

__all__ = ["Rows", "rows_of_groups", "shown_groups", "take_rows"]

Rows = list[tuple[int, ...]]
"""For each group of the program the rows of the file that its replicas had: all of them must be bitwise equal."""

_GROUPS = 72  # characters


def shown_groups(grouping: ReplicaGrouping) -> str:
    """``{0,1}{2,3}``; of many replicas the first of them, and the numbers of groups and replicas."""
    text = str(grouping.partition)
    if len(text) <= _GROUPS:
        return text
    head = text[:_GROUPS]
    head = head[: max(head.rfind("}") + 1, head.rfind(","))]
    return f"{head}... ({grouping.num_groups} groups of {grouping.num_replicas} replicas)"


def rows_of_groups(saved: ReplicaGrouping, target: ReplicaGrouping, by_order: bool) -> Rows | None:
    """Rows of the file for each group of the program; None if no rule says which."""
    count = target.num_groups
    if by_order:
        return [(i,) for i in range(count)] if saved.num_groups == count else None
    if saved.num_replicas == target.num_replicas:
        labels = saved.assignment
        return [tuple(sorted({labels[replica] for replica in group})) for group in target.groups]
    if saved.num_groups == 1:
        return [(0,)] * count
    if count == 1:
        return [tuple(range(saved.num_groups))]
    if saved.num_groups == count and _kinds(saved) & _kinds(target):
        return [(i,) for i in range(count)]
    return None


def _kinds(grouping: ReplicaGrouping) -> set[str]:
    labels, count = np.asarray(grouping.assignment), grouping.num_groups
    kinds = set()
    if bool(np.all(np.diff(labels) >= 0)):
        kinds.add("consecutive")
    if np.array_equal(labels, np.arange(len(labels)) % count):
        kinds.add("interleaved")
    return kinds


def take_rows(
    where: str, name: str, array: Array, rows: Rows, saved: ReplicaGrouping, target: ReplicaGrouping
) -> Array:
    """A row for each group of the program, without the dimension where there is one group.

    Raises:
        ReplicaError: the rows that would become one differ in their bits.
    """
    whole = array if saved.num_groups > 1 else array[np.newaxis]
    for taken in rows:
        for other in taken[1:]:
            element = _first_difference(whole[taken[0]], whole[other])
            if element is not None:
                raise ReplicaError(
                    f"{where}: groups of {shown_name(name)} cannot be mapped, got {shown_groups(saved)} in the file, "
                    f"whose rows {taken[0]} and {other} differ at element {element}, expected "
                    f"{shown_groups(target)}, or rows of equal bits"
                )
    if len(rows) == 1:
        return whole[rows[0][0], ...]
    firsts = [taken[0] for taken in rows]
    return array if firsts == list(range(len(whole))) else whole[firsts]


def _first_difference(a: Any, b: Any) -> int | None:
    x, y = (np.ascontiguousarray(each).reshape(-1).view(np.uint8) for each in (a, b))
    if np.array_equal(x, y):
        return None
    return int(np.flatnonzero(x != y)[0]) // np.asarray(a).itemsize
