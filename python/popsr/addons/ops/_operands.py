"""Common parts of the ops: checks of labels when a program runs, and arithmetic in wide types."""

from __future__ import annotations

from popsr import dtypes
from popsr._program.building.emit import emit_op, tensor
from popsr._program.context import _context
from popsr._program.tensor import Tensor
from popsr.ops.utils import cast_if_needed
from popsr.replicas import ReplicaGrouping

__all__ = ["check_labels", "widened"]


def check_labels(
    labels: Tensor, classes: int, group: ReplicaGrouping | None = None, ignored: Tensor | None = None
) -> None:
    """Let sessions say so when a label is none of the classes.

    Args:
        labels: integers; of the members of a group each less by the number of classes on the members before it.
        classes: classes of each member.
        group: the replicas that share out the classes. Default: each replica has all of them.
        ignored: a label that does not count.
    """
    group = _context.ir.replica_grouping(group_size=1) if group is None else group
    inputs = {"labels": labels, "ignored": tensor(ignored)}
    emit_op("check_labels", inputs, {"classes": classes, "group": group}, outputs=0)


def widened(t: Tensor) -> Tensor:
    """The tensor in the type that sums are kept in: float64 as it is, everything else as float32."""
    return t if t.dtype == dtypes.float64 else cast_if_needed(t, dtypes.float32)
