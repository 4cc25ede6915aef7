"""Scores of classes and labels, as models of ``ai.onnx.ml`` give them."""

from __future__ import annotations

import functools

import numpy as np

from popsr import dtypes, ops
from popsr._program.tensor import Tensor
from popsr.bridge.onnx._node import Node
from popsr.bridge.onnx._rules import NotSupportedError, rule
from popsr.bridge.onnx._types import Array

__all__ = ["DOMAIN", "classic", "labels_of", "named", "of_two", "transformed", "transformed_targets"]

DOMAIN = "ai.onnx.ml"
classic = functools.partial(rule, domain=DOMAIN)

_TINY = 1e-7
"""Greatest magnitude of the scores that ``SOFTMAX_ZERO`` leaves out."""


def transformed(node: Node, scores: Tensor, how: str) -> Tensor:
    """Scores as ``post_transform`` gives them."""
    if how == "NONE":
        return scores
    if how == "LOGISTIC":
        return ops.sigmoid(scores)
    if how == "SOFTMAX":
        return ops.softmax(scores, scores.rank - 1)
    if how == "SOFTMAX_ZERO":
        return _softmax_of_others(node, scores)
    raise NotSupportedError(f"post_transform {how}")


def transformed_targets(node: Node, made: Tensor, how: str) -> Tensor:
    """Results of a regression as ``post_transform`` gives them."""
    if how != "NONE" and made.shape[1] == 1:
        raise NotSupportedError(f"post_transform {how} of one target, which some readers pass over")
    return transformed(node, made, how)


def _softmax_of_others(node: Node, scores: Tensor) -> Tensor:
    """The softmax of scores that are not 0; those that are stay."""
    last = [scores.rank - 1]
    most = ops.max(scores, last, True)
    some = ops.greater(ops.abs(scores), node.like(_TINY, scores))
    powers = ops.where(some, ops.exp(ops.sub(scores, most)), node.like(0, scores))
    total = ops.sum(powers, last, True)
    rest = ops.mul(scores, ops.exp(ops.negate(most)))
    return ops.div(ops.where(some, powers, rest), total)


def labels_of(node: Node, name: str) -> Array:
    """Labels of classes, which are numbers."""
    if node.has("classlabels_strings") and node.texts("classlabels_strings"):
        raise NotSupportedError("labels that are strings")
    return np.asarray(node.ints(name, ()), np.int64)


def named(node: Node, labels: Array, number: Tensor) -> Tensor:
    """Labels of numbers of classes."""
    return ops.gather(node.constant(labels, dtypes.int64), number, 0)


def of_two(node: Node, own: Tensor, are_shares: bool, how: str) -> Tensor:
    """Scores of two classes from that of the second: the first has the rest, or the opposite."""
    if how == "LOGISTIC":
        return ops.concat([ops.sigmoid(ops.negate(own)), ops.sigmoid(own)], 1)
    if how not in ("NONE", "SOFTMAX", "SOFTMAX_ZERO"):
        raise NotSupportedError(f"post_transform {how}")
    return ops.concat([ops.sub(node.like(1, own), own) if are_shares else ops.negate(own), own], 1)
