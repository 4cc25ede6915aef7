"""Cross entropy whose classes lie on several IPUs of one replica."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate

from popsr import dtypes, ops
from popsr._program.building.operands import read_floats, read_labels, read_tensor_list
from popsr._program.building.placement import find_place
from popsr._program.building.transaction import transactional
from popsr._program.context import ipu
from popsr._program.tensor import Tensor, constant
from popsr._support.host.arguments import is_a, read_ipu, read_items
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr.addons.ops._operands import check_labels, widened
from popsr.errors import ArgumentTypeError, AttributeValueError, DTypeError, GraphError, ShapeError
from popsr.ops import collectives
from popsr.ops.utils import cast_if_needed

__all__ = ["cross_entropy_sharded_wr_loss", "handle_ipus"]

_WHERE = "cross_entropy_sharded_wr_loss"


@public
def handle_ipus(ts: list[Tensor], ipus: Iterable[int] | None) -> list[int]:
    """The IPU of each tensor.

    Args:
        ts: the tensors.
        ipus: one IPU for each, or None: where they are.
    Returns:
        As many ints as tensors.
    Raises:
        TypeError: ``ts`` are not tensors or ``ipus`` no ints.
        ValueError: another number of IPUs, or none and it is unknown where a tensor is.
    """
    tensors = read_tensor_list("handle_ipus", "ts", ts)
    if ipus is None:
        return [_place_of(t) for t in tensors]
    if not is_a(ipus, Iterable):
        raise ArgumentTypeError(
            f"handle_ipus: ipus is not a list, got {shown(ipus)}, expected an int for each tensor"
        )
    given = read_items("handle_ipus", "ipus", ipus, kind="ints")
    places = [read_ipu("handle_ipus", "an entry of ipus", each) for each in given]
    if len(places) != len(tensors):
        raise AttributeValueError(
            f"handle_ipus: another number of ipus, got {len(places)}, expected {len(tensors)}: one for each tensor"
        )
    return places


@public
@transactional
def cross_entropy_sharded_wr_loss(
    logits: list[Tensor], indices: list[Tensor], ipus: Iterable[int] | None = None
) -> Tensor:
    """Softmax cross entropy of each sample, of logits whose classes are shared out over IPUs of one replica.

    As ``cross_entropy_sharded_loss``, but for what is between IPUs and not between replicas: all classes are there, so
    labels are classes of the whole, not shifted, and the result is not reduced.

    Args:
        logits: floats, ``[n, classes of this IPU]`` each, of one dtype: the classes in order.
        indices: integers ``[n]`` each: the same labels on each IPU. What is not a class counts as a logit equal to the
            greatest, which sessions log (logger ``popsr``), or refuse with ``strict={"labels"}``.
        ipus: the IPU of each pair. Default: where logits are.
    Returns:
        ``[n]`` of the dtype of the logits, on the first IPU. Differentiable to all logits.
    Raises:
        TypeError: no lists of tensors, or tensors of other kinds.
        ValueError: no or another number of tensors, shapes that do not fit, another number of ``ipus``, or a tensor of
            another graph.
    """
    shards, labels = read_tensor_list(_WHERE, "logits", logits), read_tensor_list(_WHERE, "indices", indices)
    _check(shards, labels)
    places = handle_ipus(shards, ipus)
    starts = [0, *accumulate(t.shape[1] for t in shards)]
    with ipu(places[0]):
        check_labels(labels[0], starts[-1])
    peaks = []
    for t, place in zip(shards, places, strict=True):
        with ipu(place):
            peaks.append(ops.max(widened(t.detach()), 1, keepdims=True))
    peaks = collectives.all_reduce(peaks, places, "max")
    parts = []
    for t, label, peak, start, place in zip(shards, labels, peaks, starts, places, strict=False):
        with ipu(place):
            parts.append(_part(t, label, peak.detach(), start))
    both = collectives.all_reduce(parts, places)[0]
    with ipu(places[0]):
        total, picked = ops.split(both, 2)
        return cast_if_needed(ops.log(total) - picked, shards[0].dtype)


def _part(t: Tensor, label: Tensor, peak: Tensor, start: int) -> Tensor:
    """The sums of exponentials of one IPU's classes, and the logits of the labels that are among them, else 0."""
    below = widened(t) - peak
    index = ops.reshape(ops.cast(label, dtypes.int32) - constant(start, dtypes.int32), (-1, 1))
    own = ops.groupedgather(below, index, 1, t.shape[0], zero_OOR=True)
    return ops.concat([ops.sum(ops.exp(below), 1), ops.flatten(own)])


def _check(shards: list[Tensor], labels: list[Tensor]) -> None:
    if not shards or len(shards) != len(labels):
        raise AttributeValueError(
            f"{_WHERE}: logits and indices differ in number, got {len(shards)} and {len(labels)}, expected one of each "
            f"for each IPU"
        )
    for i, (t, label) in enumerate(zip(shards, labels, strict=True)):
        read_floats(_WHERE, f"logits[{i}]", t, rank=2)
        if t.shape[0] != shards[0].shape[0]:
            raise ShapeError(
                f"{_WHERE}: logits[{i}] is of another number of samples, got {t.shape[0]}, "
                f"expected {shards[0].shape[0]}"
            )
        if t.dtype != shards[0].dtype:
            raise DTypeError(
                f"{_WHERE}: logits[{i}] is of another dtype, got {t.dtype.name}, expected {shards[0].dtype.name}"
            )
        read_labels(_WHERE, f"indices[{i}]", label, t.shape[:1])


def _place_of(t: Tensor) -> int:
    place = find_place(t)
    if place is None:
        raise GraphError(
            f"handle_ipus: the IPU of a tensor is unknown, got {shown(t)} that no op makes or takes, expected ipus"
        )
    return place[0]
