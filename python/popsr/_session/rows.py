"""Rows: the host has one of each group of a variable, or one of each replica."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from popsr import dtypes
from popsr._support.records import Divergence

if TYPE_CHECKING:
    from popsr._program.tensor import Tensor, Variable
    from popsr.replicas import ReplicaGrouping

Array = np.ndarray[Any, Any]
Rows = tuple["Variable", Array, bool]
"""A variable, data of shape ``(rows, *shape)``, and whether there is a row per replica."""


def host_array(data: Array, dtype: str, shape: Iterable[int]) -> Array:
    """Bytes from the core as array."""
    return data.view(dtypes.dtype._all[dtype].as_numpy()).reshape(tuple(shape))


def keeps_all_replicas(variable: Variable) -> bool:
    """True if the host has a row per replica although groups have several members."""
    return variable.retrieval_mode == "all_replicas" and variable.replica_grouping.group_size > 1


def num_rows(grouping: ReplicaGrouping, per_replica: bool) -> int:
    """Rows of the host's data."""
    return grouping.num_replicas if per_replica else grouping.num_groups


def first_members(grouping: ReplicaGrouping) -> list[int]:
    """The lowest replica of each group."""
    return [members[0] for members in grouping.groups]


def as_rows(array: Array, variable: Tensor) -> Array:
    """A view of shape ``(rows, *variable.shape)`` of data in which one row may come without its dimension."""
    return array if array.ndim > variable.rank else array[np.newaxis]


def copy_rows(
    source: Array, per_replica: bool, out: Array, out_per_replica: bool, grouping: ReplicaGrouping
) -> None:
    """Copy rows of one kind to rows of the same or the other kind."""
    if per_replica == out_per_replica:
        out[...] = source
        return
    for i, row in enumerate(first_members(grouping) if per_replica else grouping.assignment):
        out[i] = source[row]


def first_difference(rows: Array, grouping: ReplicaGrouping) -> Divergence | None:
    """The first element in which rows of a group differ in their bits; None if there is none."""
    rows = rows.view(f"u{rows.itemsize}")
    for first, *others in grouping.groups:
        for replica in others:
            differs = rows[first, ...] != rows[replica, ...]
            if np.any(differs):
                return Divergence(first, replica, int(np.flatnonzero(differs)[0]))
    return None
