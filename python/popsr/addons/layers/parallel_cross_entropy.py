"""Cross entropy whose classes lie on the replicas of a group, with labels of the whole."""

from __future__ import annotations

from popsr import ops
from popsr._program.building.operands import read_shape_of
from popsr._program.tensor import Tensor, constant
from popsr._program.variables.variables import read_group
from popsr._support.host.arguments import read_choice, read_int
from popsr._support.text.entry_points import public
from popsr.addons.layers._parallel import own_numbers, read_features, read_integers
from popsr.addons.module import Module
from popsr.addons.ops.cross_entropy_sharded_loss import cross_entropy_sharded_loss
from popsr.ops.nn.losses import REDUCTION_TYPE
from popsr.replicas import ReplicaGrouping

__all__ = ["ParallelCrossEntropy"]

_WHERE = "ParallelCrossEntropy"


@public
class ParallelCrossEntropy(Module):
    """Softmax cross entropy of logits whose classes are shared out over the replicas of a group; it has no variables.

    ``ColumnParallelLinear`` without ``gather_output`` makes such logits; no replica holds all of them. Labels are
    classes of the whole; ``popsr.addons.ops.cross_entropy_sharded_loss`` takes labels shifted for each replica.

    Args:
        group: the replicas that share out the classes. Default: all replicas.
        reduction: "mean" over the labels that count (0 if none does), "sum", or "none".
        ignore_index: the label that does not count. None: all count.
    Raises:
        AttributeValueError: another reduction.
    """

    def __init__(
        self,
        group: ReplicaGrouping | None = None,
        reduction: REDUCTION_TYPE = "mean",
        ignore_index: int | None = None,
    ) -> None:
        """No state yet."""
        super().__init__()
        self.group = group
        self.reduction: REDUCTION_TYPE = read_choice(_WHERE, "reduction", reduction, ("mean", "sum", "none"))
        self.ignore_index = (
            None if ignore_index is None else read_int(f"{_WHERE}: ignore_index", ignore_index)
        )

    def build(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The layer in the current graph.

        Args:
            logits: floats ``[..., classes / group size]``.
            labels: integers of the shape of ``logits`` without its last axis: classes of the whole, equal on the group.
        Returns:
            Scalar of the dtype of ``logits``, of the shape of ``labels`` for reduction "none"; equal on the group.
        Raises:
            ShapeError: ``logits`` are a scalar, or ``labels`` have another shape.
            DTypeError: ``logits`` are not of floats, or ``labels`` not integers.
            ReplicaError: ``group`` is of another number of replicas.
        """
        group = read_group(_WHERE, self.group)
        classes = read_features(_WHERE, logits, "logits").shape[-1]
        numbers = read_shape_of(_WHERE, "labels", read_integers(_WHERE, "labels", labels), logits.shape[:-1])
        ignored = None
        if self.ignore_index is not None:
            ignored = own_numbers(constant(self.ignore_index, numbers.dtype), classes, group)
        loss = cross_entropy_sharded_loss(
            ops.reshape(logits, (-1, classes)),
            own_numbers(ops.flatten(numbers), classes, group),
            ignored,
            group,
            self.reduction,
        )
        return ops.reshape(loss, labels.shape) if self.reduction == "none" else loss
