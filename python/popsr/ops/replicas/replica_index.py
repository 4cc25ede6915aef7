"""The index of the replica that runs."""

from __future__ import annotations

from typing import Literal

from popsr import dtypes
from popsr._program.building.emit import emit
from popsr._program.tensor import Tensor
from popsr._support.host.arguments import read_dtype
from popsr.ops._facts import public_op
from popsr.replicas import ReplicaGrouping

__all__ = ["replica_index"]


@public_op
def replica_index(
    group: ReplicaGrouping | None = None,
    *,
    what: Literal["index", "group"] = "index",
    dtype: dtypes.dtype = dtypes.uint32,
) -> Tensor:
    """The number of the replica that runs, or the number of its group.

    Args:
        group: the groups. Default: one of all replicas, in which a replica's index is its number.
        what: "index": the replica's index in its group; "group": the number of its group.
        dtype: int32 or uint32.
    Returns:
        Scalar of that dtype.
    Raises:
        ValueError: unknown ``what``.
        TypeError: another dtype.
        ReplicaError: the group is of another number of replicas.
    Example:
        >>> evaluate(ops.replica_index, replicas=2)
        array([0, 1], dtype=uint32)
    """
    return emit("replica_index", {}, group=group, what=what, dtype=read_dtype("replica_index", dtype).name)
