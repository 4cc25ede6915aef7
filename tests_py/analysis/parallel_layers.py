"""Layers of random training steps: whole ones, and ones whose weights the replicas of a row hold parts of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

import popsr
from popsr import addons, ops
from popsr.ops import collectives

F64 = popsr.float64
VOCABULARY = 12  # rows of the embedding, classes of the cross entropy: a multiple of 1, 2, 3 and 4


@dataclass(frozen=True)
class Weight:
    """A variable of a layer: its whole shape, and where the replicas of a row share it out.

    Attributes:
        shape: of the whole.
        split: the axis; None if each replica has the whole.
        private: each row of replicas has one of its own, which no other row shares.
    """

    shape: tuple[int, ...]
    split: int | None = None
    private: bool = False


class Grid(Protocol):
    """What layers use of a step.

    Attributes:
        ir: its program.
        width: features of the activations.
        columns: replicas that share a model.
        model: groups of these.
        tokens: integers below ``VOCABULARY``, equal in a row.
        head: the last weight, which layers may use too.
        sums: ``autodiff`` adds sums over replicas.
    """

    ir: popsr.Ir
    width: int
    columns: int
    model: popsr.ReplicaGrouping
    tokens: popsr.Tensor
    head: popsr.Tensor
    sums: bool

    def fork(self, t: popsr.Tensor, layer: int) -> popsr.Tensor:
        """The identity, whose gradients are summed over a row."""

    def total(self, t: popsr.Tensor, layer: int) -> popsr.Tensor:
        """The sum over a row."""


def weights_of(kind: str, width: int) -> list[Weight]:
    """The variables of a layer."""
    square = (width, width)
    pair = [Weight(square, 1), Weight(square, 0)]
    return {
        "scale": [Weight((width,))],
        "bias": [Weight((width,))],
        "dense": [Weight(square)],
        "private": [Weight((width,), private=True)],
        "tied": [],
        "mlp": pair,
        "called": pair,
        "attention": [Weight(square, 1)] * 3 + [Weight(square, 0)],
        "gathered": [Weight(square, 1)],
        "shared": pair,
        "embedding": [Weight((VOCABULARY, width), 0)],
        "sequence": [Weight((width,))],
        "classes": [Weight((width, VOCABULARY), 1)],
        "loss": [],
    }[kind]


WHOLE = ("scale", "bias", "dense", "private", "tied")
SPLIT = ("mlp", "called", "attention", "gathered", "shared", "embedding", "sequence", "classes")
FORKED = ("mlp", "called", "attention", "gathered", "shared", "classes")
"""Layers that fork what was computed before them; "sequence" forks its own weight."""
TOTALED = ("mlp", "called", "attention", "shared")
"""Layers whose parts are summed."""


def scale(_: Grid, x: popsr.Tensor, w: list[popsr.Tensor], __: int) -> popsr.Tensor:
    """A factor for each feature."""
    return x * w[0]


private = scale


def bias(_: Grid, x: popsr.Tensor, w: list[popsr.Tensor], __: int) -> popsr.Tensor:
    """An activation with a bias."""
    return ops.tanh(x + w[0])


def dense(_: Grid, x: popsr.Tensor, w: list[popsr.Tensor], __: int) -> popsr.Tensor:
    """A layer that each replica has as a whole."""
    return ops.gelu(x @ w[0])


def tied(grid: Grid, x: popsr.Tensor, _: list[popsr.Tensor], __: int) -> popsr.Tensor:
    """The weight of the end once more."""
    return ops.tanh(x @ grid.head)


def mlp(grid: Grid, x: popsr.Tensor, w: list[popsr.Tensor], i: int) -> popsr.Tensor:
    """Columns, then rows."""
    return grid.total(ops.gelu(grid.fork(x, i) @ w[0]) @ w[1], i)


def called(grid: Grid, x: popsr.Tensor, w: list[popsr.Tensor], i: int) -> popsr.Tensor:
    """The same in a graph that is called twice."""
    graph = grid.ir.create_graph(lambda x, a, b: mlp(grid, x, [a, b], i), x, *w)
    for _ in range(2):
        (x,) = ops.call(graph, x, *w)
    return x


def attention(grid: Grid, x: popsr.Tensor, w: list[popsr.Tensor], i: int) -> popsr.Tensor:
    """A head on each replica of a row."""
    x = grid.fork(x, i)
    q, k, v = (x @ each for each in w[:3])
    return grid.total(ops.softmax(q @ k.T, axis=-1) @ v @ w[3], i)


def gathered(grid: Grid, x: popsr.Tensor, w: list[popsr.Tensor], i: int) -> popsr.Tensor:
    """Columns, which are put together."""
    part = ops.tanh(grid.fork(x, i) @ w[0])
    return collectives.replicated_all_gather(part, axis=1, group=grid.model, output_shape="concat")


def shared(grid: Grid, x: popsr.Tensor, w: list[popsr.Tensor], i: int) -> popsr.Tensor:
    """The same weights twice."""
    for _ in range(2):
        x = mlp(grid, x, w, i)
    return x


def embedding(grid: Grid, x: popsr.Tensor, w: list[popsr.Tensor], i: int) -> popsr.Tensor:
    """Rows of a table, of which each replica of a row has some."""
    first = ops.replica_index(grid.model) * (VOCABULARY // grid.columns)
    own = grid.tokens - ops.cast(first, popsr.int32)
    return x + grid.total(ops.gather(w[0], own, axis=0, zero_OOR=True), i)


def sequence(grid: Grid, x: popsr.Tensor, w: list[popsr.Tensor], i: int) -> popsr.Tensor:
    """A factor for each feature, where each replica of a row has some of the samples."""
    if grid.sums:
        return x * w[0]  # slices have no transpose there
    part = collectives.replicated_slice(x, 0, grid.model) * grid.fork(w[0], i)
    return collectives.replicated_all_gather(part, axis=0, group=grid.model, output_shape="concat")


def classes(grid: Grid, x: popsr.Tensor, w: list[popsr.Tensor], i: int) -> popsr.Tensor:
    """The cross entropy of classes that a row shares out."""
    logits = grid.fork(x, i) @ w[0]
    number = VOCABULARY // grid.columns
    if grid.sums:
        total = collectives.replicated_all_reduce(ops.sum(ops.exp(logits), axis=-1), group=grid.model)
        return ops.mean(ops.log(total))
    first = ops.cast(ops.replica_index(grid.model) * number, popsr.int32)
    return addons.ops.cross_entropy_sharded_loss(logits, grid.tokens - first, None, grid.model)


def loss(_: Grid, x: popsr.Tensor, __: list[popsr.Tensor], ___: int) -> popsr.Tensor:
    """Of what there is so far."""
    return ops.mean(x * x)


def parts_of(whole: np.ndarray, split: int, columns: int) -> list[np.ndarray]:
    """Equal parts along an axis."""
    return np.split(whole, columns, axis=split)
