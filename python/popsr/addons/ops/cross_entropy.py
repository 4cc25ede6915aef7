"""Cross entropy of unnormalised scores."""

from __future__ import annotations

from typing import Any, get_args

from popsr import ops
from popsr._program.building.operands import read_floats, read_labels, read_scalar
from popsr._program.building.transaction import transactional
from popsr._program.tensor import Tensor
from popsr._support.host.arguments import read_choice, read_int
from popsr._support.text.entry_points import public
from popsr.ops.nn.losses import REDUCTION_TYPE

__all__ = ["cross_entropy", "cross_entropy_with_grad"]


@public
@transactional
def cross_entropy(
    x: Tensor, labels: Tensor, ignore_index: int | None = None, reduction: REDUCTION_TYPE = "mean"
) -> Tensor:
    """Negative log-likelihood of the labels under the softmax of the scores.

    Args:
        x: scores; the last axis is the class.
        labels: class of each sample, int32 or uint32: the shape of ``x`` without the last axis; of others see
            ``ops.nll_loss``.
        ignore_index: samples of this class do not count.
        reduction: "mean" over samples that count, "sum", or "none".
    Returns:
        Scalar of the dtype of ``x``; of the shape of ``labels`` for reduction "none".
    Raises:
        ShapeError: ``labels`` has not that shape.
        DTypeError: ``x`` is not floating or ``labels`` not integer.
    """
    _check("cross_entropy", x, labels, ignore_index, reduction)
    return ops.nll_loss(ops.softmax(x, axis=-1), labels, ignore_index, reduction)


@public
@transactional
def cross_entropy_with_grad(
    x: Tensor,
    labels: Tensor,
    loss_scaling: float | Tensor = 1,
    ignore_index: int | None = None,
    reduction: REDUCTION_TYPE = "mean",
) -> tuple[Tensor, Tensor]:
    """``cross_entropy`` together with its gradient with respect to the scores.

    Args:
        x: as for ``cross_entropy``.
        labels: as for ``cross_entropy``, but of any shape with as many elements as ``x`` has rows, in C order.
        loss_scaling: factor of the gradient, not of the loss: a number or a scalar tensor.
        ignore_index: as for ``cross_entropy``.
        reduction: as for ``cross_entropy``.
    Returns:
        The loss, and the gradient in the shape and dtype of ``x``.
    Raises:
        ShapeError: ``labels`` has another number of elements.
        DTypeError: ``x`` is not floating or ``labels`` not integer.
    """
    _check("cross_entropy_with_grad", x, labels, ignore_index, reduction, any_shape=True)
    loss_scaling = read_scalar("cross_entropy_with_grad", "loss_scaling", loss_scaling)
    return ops.nll_loss_with_softmax_grad(
        ops.softmax(x, axis=-1), labels, loss_scaling, ignore_index, reduction
    )


def _check(
    where: str, x: Any, labels: Any, ignore_index: Any, reduction: Any, *, any_shape: bool = False
) -> None:
    """Before the softmax is added."""
    shape = read_floats(where, "x", x).shape
    read_labels(where, "labels", labels, shape[:-1], any_shape=any_shape)
    read_choice(where, "reduction", reduction, get_args(REDUCTION_TYPE))
    if ignore_index is not None:
        read_int(f"{where}: ignore_index", ignore_index, -(2**63))
