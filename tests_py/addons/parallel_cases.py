"""Parallel layers of ``popsr.addons`` and the same computations with plain ops."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import popsr
from popsr import addons, ops
from popsr.addons import layers
from tests_py.support.helpers import Array

Group = popsr.ReplicaGrouping
Tensors = Mapping[str, popsr.Tensor]


@dataclasses.dataclass(frozen=True)
class Case:
    """A parallel layer and the same computation with plain ops."""

    layer: Callable[[Group, Mapping[str, Array]], addons.Module]
    plain: Callable[[list[popsr.Tensor], Tensors], popsr.Tensor]
    inputs: tuple[tuple[int, ...], ...]  # shapes of whole operands
    weights: Mapping[str, tuple[tuple[int, ...], int | None]]  # whole shapes, and where they are cut
    input_axis: int | None = None  # where the first operand is cut
    output_axis: int | None = None  # where the result is cut
    classes: int = 0  # integers of the last operand


def linear(x: popsr.Tensor, weights: Tensors, name: str = "") -> popsr.Tensor:
    y = x @ weights[f"{name}weight"]
    return y + weights[f"{name}bias"] if f"{name}bias" in weights else y


def columns(axis: int | None = None, gather: bool = False, bias: bool = True) -> Case:
    cut: dict[str, Any] = {"weight": ((6, 8), 1), "bias": ((8,), 0)}
    return Case(
        layer=lambda group, w: layers.ColumnParallelLinear(
            8, bias, group, gather, axis, initial_weight=w["weight"], initial_bias=w.get("bias")
        ),
        plain=lambda x, w: linear(x[0], w),
        inputs=((2, 4, 6),),
        weights=cut if bias else {"weight": cut["weight"]},
        input_axis=axis,
        output_axis=None if gather else 2,
    )


def row_split(axis: int | None = None, parallel: bool = True, bias: bool = True) -> Case:
    cut: dict[str, Any] = {"weight": ((8, 6), 0), "bias": ((6,), None)}
    return Case(
        layer=lambda group, w: layers.RowParallelLinear(
            6, bias, group, parallel, axis, initial_weight=w["weight"], initial_bias=w.get("bias")
        ),
        plain=lambda x, w: linear(x[0], w),
        inputs=((4, 4, 8),),
        weights=cut if bias else {"weight": cut["weight"]},
        input_axis=2 if parallel else None,
        output_axis=axis,
    )


def embedding(axis: int | None = None, shape: tuple[int, ...] = (2, 4)) -> Case:
    return Case(
        layer=lambda group, w: layers.ParallelEmbedding(
            popsr.float64, 12, 5, group, axis, initial_weight=w["weight"]
        ),
        plain=lambda x, w: ops.gather(w["weight"], x[0], zero_OOR=True),
        inputs=(shape,),
        weights={"weight": ((12, 5), 0)},
        output_axis=axis,
        classes=14,  # 12 and 13 are outside the table
    )


def cross_entropy(reduction: Any, ignore_index: int | None = None) -> Case:
    return Case(
        layer=lambda group, _: layers.ParallelCrossEntropy(group, reduction, ignore_index),
        plain=lambda x, _: plain_cross_entropy(x[0], x[1], reduction, ignore_index),
        inputs=((2, 3, 8), (2, 3)),
        weights={},
        input_axis=2,
        classes=8,
    )


def plain_cross_entropy(
    x: popsr.Tensor, labels: popsr.Tensor, reduction: Any, ignore_index: int | None
) -> popsr.Tensor:
    """By logarithms of softmax, without ``ops.nll_loss``."""
    flat = ops.flatten(labels)
    one_hot = ops.onehot(flat, popsr.constant(8, popsr.int32), popsr.constant([0.0, 1.0], x.dtype), 1)
    losses = -ops.sum(ops.log(ops.softmax(x.reshape((-1, 8)), 1)) * one_hot, 1)
    kept: popsr.Tensor = popsr.constant(np.ones(flat.shape), x.dtype)
    if ignore_index is not None:
        ignored = ops.equal(flat, popsr.constant(ignore_index, flat.dtype))
        kept = kept - ops.cast(ignored, x.dtype)
    losses = losses * kept
    if reduction == "none":
        return losses.reshape(labels.shape)
    return ops.sum(losses) if reduction == "sum" else ops.sum(losses) / ops.sum(kept)


def attention(causal: bool, axis: int | None = None, bias: bool = True, store_scores: bool = True) -> Case:
    cut: dict[str, Any] = {}
    for name, where in (("q", 1), ("k", 1), ("v", 1), ("out", 0)):
        cut[f"{name}.weight"] = ((12, 6) if name == "out" else (6, 12), where)
        if bias:
            cut[f"{name}.bias"] = ((6,), None) if name == "out" else ((12,), 0)
    return Case(
        layer=lambda group, w: layers.ParallelAttention(
            4, 3, group, causal, axis, bias=bias, store_scores=store_scores, initial=w
        ),
        plain=lambda x, w: plain_attention(x[0], w, causal),
        inputs=((2, 4, 6),),
        weights=cut,
        input_axis=axis,
        output_axis=axis,
    )


def plain_attention(x: popsr.Tensor, w: Tensors, causal: bool) -> popsr.Tensor:
    """One head after the other; positions that are not seen get a weight of zero."""
    q, k, v = (linear(x, w, f"{name}.") for name in ("q", "k", "v"))
    heads = []
    for first in range(0, 12, 3):
        part = [t[:, :, first : first + 3] for t in (q, k, v)]
        chances = ops.exp(part[0] @ part[1].transpose((0, 2, 1)) / 3**0.5)
        if causal:
            chances = chances * popsr.constant(np.tri(4), x.dtype)
        heads.append((chances / ops.sum(chances, 2, keepdims=True)) @ part[2])
    return linear(ops.concat(heads, 2), w, "out.")


CASES: dict[str, Case] = {
    "columns": columns(),
    "columns without bias": columns(bias=False),
    "columns gathered": columns(gather=True),
    "columns of a sequence": columns(axis=1),
    "columns of a sequence gathered": columns(axis=-2, gather=True),
    "rows": row_split(),
    "rows without bias": row_split(bias=False),
    "rows of whole features": row_split(parallel=False),
    "rows to a sequence": row_split(axis=1),
    "rows to a first axis": row_split(axis=0),
    "rows of whole features to a sequence": row_split(axis=-2, parallel=False),
    "embedding": embedding(),
    "embedding of a vector": embedding(shape=(5,)),
    "embedding to a sequence": embedding(axis=1),
    "cross entropy": cross_entropy("mean"),
    "cross entropy of a sum": cross_entropy("sum"),
    "cross entropy of each": cross_entropy("none"),
    "cross entropy without a label": cross_entropy("mean", 3),
    "cross entropy without a label of no class": cross_entropy("sum", -100),
    "attention": attention(causal=True),
    "attention to all": attention(causal=False),
    "attention without bias": attention(causal=True, bias=False),
    "attention of a sequence": attention(causal=True, axis=1),
    "attention without scores": attention(causal=True, store_scores=False),
    "attention to all without scores": attention(causal=False, axis=1, store_scores=False),
}
