"""Losses."""

from __future__ import annotations

from typing import Literal

from popsr import dtypes
from popsr._program.building.emit import emit, emit_op
from popsr._program.building.transaction import transactional
from popsr._program.tensor import Tensor
from popsr._program.variables.constants import as_operand
from popsr.ops._facts import public_op

__all__ = ["nll_loss", "nll_loss_with_softmax_grad"]

REDUCTION_TYPE = Literal["mean", "sum", "none"]


@public_op
def nll_loss(
    probs: Tensor,
    labels: Tensor,
    ignore_index: int | None = None,
    reduction: REDUCTION_TYPE = "mean",
    log_prob: bool = False,
) -> Tensor:
    """Negative log-likelihood of the labels.

    Args:
        probs: probabilities; the last axis is the class.
        labels: integer class of each sample: the shape of ``probs`` without the last axis. A label that is none of the
            classes counts as one of probability 0; sessions log it (logger ``popsr``), or refuse it with
            ``strict={"labels"}``.
        ignore_index: samples of this class do not count.
        reduction: "mean" over samples that count, "sum", or "none".
        log_prob: ``probs`` are logarithms already.
    Returns:
        Scalar of the dtype of ``probs``; of the shape of ``labels`` for reduction "none".
    Raises:
        ShapeError: ``labels`` has not that shape.
        DTypeError: ``probs`` is not floating or ``labels`` not integer.
    Example:
        >>> evaluate(ops.nll_loss, [[0.25, 0.75], [0.5, 0.5]], [1, 0])
        array(0.49041462, dtype=float32)
    """
    return emit(
        "nll_loss",
        {"probs": probs, "labels": labels},
        ignore_index=ignore_index,
        reduction=reduction,
        log_prob=log_prob,
    )


@public_op
@transactional
def nll_loss_with_softmax_grad(
    probs: Tensor,
    labels: Tensor,
    loss_grad: float | Tensor = 1,
    ignore_index: int | None = None,
    reduction: REDUCTION_TYPE = "mean",
) -> tuple[Tensor, Tensor]:
    """Negative log-likelihood together with its gradient with respect to the input of the softmax.

    Args:
        probs: result of a softmax; the last axis is the class.
        labels: integer class of each sample, of any shape with as many elements as ``probs`` has rows, in C order.
        loss_grad: gradient of the loss: a number or a tensor.
        ignore_index: samples of this class do not count.
        reduction: "mean" over samples that count, "sum", or "none".
    Returns:
        The loss, a scalar, or of the shape of ``labels`` for reduction "none"; and the gradient, of the shape of
        ``probs``.
    Raises:
        ShapeError: ``labels`` has another number of elements, or ``loss_grad`` is neither one element nor of the shape
            of the loss.
        DTypeError: ``probs`` is not floating or ``labels`` not integer.
    Example:
        >>> evaluate(ops.nll_loss_with_softmax_grad, [[0.25, 0.75], [0.5, 0.5]], [1, 0], loss_grad=1.0)
        [array(0.49041462, dtype=float32), array([[ 0.125, -0.125],
               [-0.25 ,  0.25 ]], dtype=float32)]
    """
    if not isinstance(loss_grad, Tensor) and isinstance(probs, Tensor):
        wide = probs.dtype == dtypes.float64
        given: Tensor = as_operand(loss_grad, dtypes.float64 if wide else dtypes.float32)
        loss_grad = given
    loss, gradient = emit_op(
        "nll_loss_with_softmax_grad",
        {"probs": probs, "labels": labels, "loss_grad": loss_grad},
        {"ignore_index": ignore_index, "reduction": reduction},
        outputs=2,
    )[1]
    return loss, gradient
