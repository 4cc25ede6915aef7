"""Negative log likelihood of class labels.

A label outside the classes counts as a class of probability 0; one that is ignored does not count. A probability is at
least a small constant.
"""

from __future__ import annotations

import numpy as np

from popsr._support.fields import Array, Numbers, select
from popsr.ops._exact.elementwise import larger
from popsr.ops._exact.functions import log
from popsr.ops._exact.registry import Exact, Value, exact, numbers

__all__: list[str] = []


class Labels:
    """Labels of rows of classes."""

    def __init__(self, op: Exact, probs: Numbers, labels: Array) -> None:
        """Sort out which labels are classes."""
        flat = labels.reshape(-1).astype(np.int64)
        self.classes = probs.shape[-1]
        self.ignored = (
            flat == op["ignore_index"] if op["ignore_index"] is not None else np.zeros(len(flat), bool)
        )
        self.known = (flat >= 0) & (flat < self.classes) & ~self.ignored
        self.flat = np.where(self.known, flat, 0)
        self.least = op.number(6.104e-5 if op.outputs[0].dtype == "float16" else 1e-7)
        self.count = max(int((~self.ignored).sum()), 1) if op["reduction"] == "mean" else 1

    def picked(self, probs: Numbers) -> Numbers:
        """The probability of each row's class; not meaningful where it is unknown."""
        return probs.reshape((probs.size,)).at(np.arange(len(self.flat)) * self.classes + self.flat)

    def on(self) -> Array:
        """True for the classes of the labels."""
        hit: Array = self.known[:, None] & (np.arange(self.classes) == self.flat[:, None])
        return hit


def _loss(op: Exact, of: Labels, probs: Numbers, shape: tuple[int, ...]) -> Numbers:
    picked, zero = of.picked(probs), op.number(0)
    logs = picked if op["log_prob"] else log(larger(op, select(of.known, picked, zero), of.least))
    losses = select(of.ignored, zero, select(of.known, -logs, -log(of.least)))
    if op["reduction"] == "none":
        return losses.reshape(shape)
    return losses.sum([0]) / op.number(of.count)


@exact("nll_loss")
def nll_loss(op: Exact, probs: Numbers, labels: Array) -> Numbers:
    return _loss(op, Labels(op, probs, labels), probs, labels.shape)


def _per_row(op: Exact, of: Labels, gradient: Numbers) -> Numbers:
    """The incoming gradient of each row, as a column."""
    whole = gradient.reshape((gradient.size, 1)) / op.number(of.count)
    return whole.broadcast_to((len(of.flat), 1))


@exact("nll_loss_grad")
def nll_loss_grad(op: Exact, probs: Numbers, labels: Array, dloss: Numbers) -> Numbers:
    of = Labels(op, probs, labels)
    slope = -_per_row(op, of, dloss)
    if not op["log_prob"]:
        slope = slope / larger(op, of.picked(probs), of.least).reshape((len(of.flat), 1))
    return select(of.on(), slope, op.number(0)).reshape(probs.shape)


@exact("nll_loss_with_softmax_grad")
def nll_loss_with_softmax_grad(op: Exact, probs: Numbers, labels: Array, loss_grad: Value) -> list[Numbers]:
    of = Labels(op, probs, labels)
    rows = probs.reshape((len(of.flat), of.classes))
    away = (rows - Numbers.of(of.on(), op.low)) * _per_row(op, of, numbers(op, loss_grad))
    gradient = select(of.ignored[:, None], op.number(0), away).reshape(probs.shape)
    return [_loss(op, of, probs, labels.shape), gradient]
