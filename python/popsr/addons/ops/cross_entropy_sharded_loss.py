"""Cross entropy whose classes lie on the replicas of a group."""

from __future__ import annotations

from popsr import dtypes, ops
from popsr._program.building.operands import read_floats, read_labels, read_tensor
from popsr._program.building.transaction import transactional
from popsr._program.tensor import Tensor, constant
from popsr._program.variables.variables import read_group
from popsr._support.host.arguments import read_choice
from popsr._support.text.entry_points import public
from popsr.addons.ops._operands import check_labels, widened
from popsr.errors import DTypeError, ShapeError
from popsr.ops import collectives
from popsr.ops.nn.losses import REDUCTION_TYPE
from popsr.ops.utils import cast_if_needed
from popsr.replicas import ReplicaGrouping

__all__ = ["cross_entropy_sharded_loss"]

_WHERE = "cross_entropy_sharded_loss"


@public
@transactional
def cross_entropy_sharded_loss(
    logits: Tensor,
    indices: Tensor,
    ignore_index: Tensor | None = None,
    replica_grouping: ReplicaGrouping | None = None,
    reduction: REDUCTION_TYPE = "mean",
    available_memory_proportion: float = 0.4,  # noqa: ARG001 - of PopXL programs
) -> Tensor:
    """Softmax cross entropy of logits whose classes are shared out over the replicas of each group.

    No replica ever holds all logits: maxima, sums of exponentials and the logit of the label are reduced over the
    group, ``n`` numbers each. The arithmetic is in float32 (float64 where logits are), rounded once at the end.

    Args:
        logits: floats, ``[n, classes / group size]``: the classes of this replica.
        indices: integers ``[n]``: the class of each sample less the number of classes on the members before this one.
            What is out of range is a class of another member; of no member at all: a logit equal to the greatest,
            which sessions log (logger ``popsr``), or refuse with ``strict={"labels"}``.
        ignore_index: scalar that is compared with this replica's ``indices``, so shifted as they are: such samples do
            not count. A sample that one member ignores is ignored by its group.
        replica_grouping: the replicas that share out the classes. Default: all replicas.
        reduction: "mean" over the samples that count (0 if none does), "sum", or "none".
        available_memory_proportion: accepted for PopXL programs; has no effect.
    Returns:
        Scalar of the dtype of ``logits``, ``[n]`` for reduction "none"; equal within each group. Differentiable to the
        logits of each replica: softmax less one-hot, for a loss that is one value on the whole group.
    Raises:
        TypeError: an operand is not a tensor or of another kind.
        ValueError: shapes do not fit, a tensor is of another graph, another reduction, or a grouping of another number
            of replicas.
    """
    read_choice(_WHERE, "reduction", reduction, ("mean", "sum", "none"))
    group = read_group(_WHERE, replica_grouping)
    read_floats(_WHERE, "logits", logits, rank=2)
    read_labels(_WHERE, "indices", indices, logits.shape[:1])
    if ignore_index is not None:
        _read_ignore_index(ignore_index, indices)
    check_labels(indices, logits.shape[1], group, ignore_index)
    losses = _losses(logits, indices, group)
    return cast_if_needed(_reduced(losses, indices, ignore_index, group, reduction), logits.dtype)


def _read_ignore_index(ignore_index: Tensor, indices: Tensor) -> None:
    read_tensor(_WHERE, "ignore_index", ignore_index)
    if ignore_index.nelms != 1:
        raise ShapeError(
            f"{_WHERE}: ignore_index is not a scalar, got shape {ignore_index.shape}, expected one element"
        )
    if ignore_index.dtype != indices.dtype:
        raise DTypeError(
            f"{_WHERE}: ignore_index and indices differ in dtype, got {ignore_index.dtype.name}, "
            f"expected {indices.dtype.name}"
        )


def _losses(logits: Tensor, indices: Tensor, group: ReplicaGrouping) -> Tensor:
    """The loss of each sample: log(sum(exp(x - m))) - (x[label] - m), with the greatest logit m."""
    wide = widened(logits)
    peak = collectives.replicated_all_reduce(ops.max(wide.detach(), 1, keepdims=True), "max", group)
    below = wide - peak
    own = ops.groupedgather(below, ops.reshape(indices, (-1, 1)), 1, logits.shape[0], zero_OOR=True)
    sums = ops.sum(ops.exp(below), 1)
    both = ops.concat([sums, ops.flatten(own)])  # one exchange of both
    both = collectives.replicated_all_reduce_identical_grad_inputs(both, group=group)
    total, picked = ops.split(both, 2)
    return ops.log(total) - picked


def _reduced(
    losses: Tensor,
    indices: Tensor,
    ignore_index: Tensor | None,
    group: ReplicaGrouping,
    reduction: REDUCTION_TYPE,
) -> Tensor:
    if ignore_index is not None:
        same = ops.equal(indices, ops.reshape(ignore_index, ()))
        # Exchanged, so that members agree however they were told.
        ignored = collectives.replicated_all_reduce(ops.cast(same, losses.dtype), "max", group)
        losses = ops.where(ops.cast(ignored, dtypes.bool), constant(0, losses.dtype), losses)
        if reduction == "mean":
            one = constant(1, losses.dtype)
            return ops.sum(losses) / ops.maximum(ops.sum(one - ignored), one)
    kinds = {"mean": ops.mean, "sum": ops.sum}
    return kinds[reduction](losses) if reduction in kinds else losses
