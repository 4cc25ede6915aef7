"""Values that are known while a step is read and that replicas differ in: what follows from their indices."""

from __future__ import annotations

import collections
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from popsr import dtypes, ops
from popsr._program.tensor import Tensor
from popsr.bridge.jax._mesh import numbered
from popsr.replicas import ReplicaGrouping

__all__ = ["MAX_ROWS", "PerReplica", "is_known", "known_rows", "tensor_of"]

MAX_ROWS = 256
"""Different values at most; more of them are left to ops."""


@dataclass(frozen=True, eq=False)
class PerReplica:
    """An array for each replica, as few different ones as there are bit patterns.

    Attributes:
        rows: the different arrays.
        labels: for each replica the number of its array, in order of first appearance.
        index: groups in which the value is the replica's index, where it is.
    """

    rows: tuple[NDArray[Any], ...]
    labels: tuple[int, ...]
    index: ReplicaGrouping | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape on one replica."""
        return self.rows[0].shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type."""
        return self.rows[0].dtype

    @property
    def size(self) -> int:
        """Number of elements on one replica."""
        return self.rows[0].size


def is_known(value: Any) -> bool:
    """True for arrays that are known, on all replicas alike or on each."""
    return isinstance(value, (np.ndarray, PerReplica))


def known_rows(rows: Sequence[NDArray[Any]], labels: Sequence[int]) -> NDArray[Any] | PerReplica:
    """A value by numbered rows, of which equal ones become one: the array itself where all replicas have it."""
    bits = [(row.dtype.str, row.shape, row.tobytes()) for row in rows]
    first: dict[object, int] = {}
    of_row = [first.setdefault(key, len(first)) for key in bits]
    found = numbered([of_row[label] for label in labels])
    kept: dict[int, NDArray[Any]] = {}
    for number, label in zip(found, labels, strict=True):
        kept.setdefault(number, rows[label])
    if len(kept) == 1:
        return kept[0]
    return PerReplica(tuple(kept.values()), tuple(found))


def tensor_of(value: PerReplica, table_of: Callable[[NDArray[Any]], Tensor]) -> Tensor:
    """The value as a tensor: the row of the replica's group in a table, which the function makes a constant of."""
    if value.index is not None:
        return ops.replica_index(value.index, dtype=dtypes.int32)
    groups = _of_one_size(value.labels)
    group = ReplicaGrouping.from_assignment(groups)
    number = ops.reshape(ops.replica_index(group, what="group", dtype=dtypes.int32), (1,))
    rows = [value.rows[value.labels[groups.index(each)]] for each in range(max(groups) + 1)]
    return ops.reshape(ops.gather(table_of(np.stack(rows)), number, 0), value.shape)


def _of_one_size(labels: Sequence[int]) -> list[int]:
    """Labels of groups of one size, the largest in which replicas with other labels do not meet."""
    sizes = collections.Counter(labels)
    size = math.gcd(*sizes.values())
    seen: collections.Counter[int] = collections.Counter()
    parts = []
    for label in labels:
        parts.append((label, seen[label] // size))
        seen[label] += 1
    return numbered(parts)
