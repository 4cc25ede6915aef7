"""Self-attention whose heads lie on the replicas of a group."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from popsr import dtypes, ops
from popsr._program.tensor import Tensor, constant
from popsr._program.variables.variables import read_group
from popsr._support.host.arguments import read_a, read_flag, read_int
from popsr._support.text.entry_points import public
from popsr._support.text.shown import shown
from popsr.addons.layers._parallel import (
    ColumnPart,
    Initial,
    divided,
    enter_region,
    read_features,
    read_sequence_axis,
)
from popsr.addons.layers.row_parallel_linear import RowParallelLinear
from popsr.addons.module import Module
from popsr.errors import AttributeValueError, ShapeError
from popsr.replicas import ReplicaGrouping

__all__ = ["ParallelAttention"]

_WHERE = "ParallelAttention"


class _Output(RowParallelLinear):
    _where = f"{_WHERE}: out"


@public
class ParallelAttention(Module):
    """Multi-head self-attention with a part of the heads on each replica of a group.

    ``softmax(q k^T / sqrt(head_size)) v`` of each head, with queries, keys and values split by columns and the output
    by rows: one sum over the group forwards, one backwards. With ``sequence_axis`` (sequence parallelism) they are an
    all-gather and a reduce-scatter, as in ``ColumnParallelLinear`` and ``RowParallelLinear``.

    Variables: ``weight`` and ``bias`` of ``q``, ``k`` and ``v``, as ``ColumnParallelLinear`` has them with
    ``heads * head_size`` columns, and of ``out``, as ``RowParallelLinear`` has them with the width of ``x``.

    Args:
        heads: number of heads, a multiple of the group size.
        head_size: features of each head.
        group: the replicas that share one layer. Default: all replicas.
        causal: each position attends to itself and those before it. False: to all.
        sequence_axis: the axis of ``x`` and of the result that the replicas of a group share out; not the last one.
            None: ``x`` is whole, and equal on the group.
        bias: true if the layers have biases.
        store_scores: true: scores and weights are tensors, rounded to the dtype of ``x``. False: ``ops.attention``,
            which keeps neither and rounds only the result; other bits, less memory.
        initial: whole initial values, or functions that return them, by the name of the variable, as ``"q.weight"``.
            Default: the layers'.
    Raises:
        AttributeValueError: a number out of range, or ``initial`` names no such variable.
    Source:
        Vaswani et al., Attention is all you need, 2017, arXiv:1706.03762; Shoeybi et al., Megatron-LM, 2019,
        arXiv:1909.08053.
    """

    def __init__(
        self,
        heads: int,
        head_size: int,
        group: ReplicaGrouping | None = None,
        causal: bool = True,
        sequence_axis: int | None = None,
        *,
        bias: bool = True,
        store_scores: bool = True,
        initial: Mapping[str, Initial] | None = None,
    ) -> None:
        """No state yet."""
        super().__init__()
        self.heads = read_int(f"{_WHERE}: heads", heads, 1)
        self.head_size = read_int(f"{_WHERE}: head_size", head_size, 1)
        self.group = group
        self.causal = read_flag(f"{_WHERE}: causal", causal)
        self.sequence_axis = sequence_axis
        self.bias = read_flag(f"{_WHERE}: bias", bias)
        self.store_scores = read_flag(f"{_WHERE}: store_scores", store_scores)
        self._initial = self._read_initial({} if initial is None else initial)
        self.q, self.k, self.v = (self._column_part(name) for name in ("q", "k", "v"))

    def _read_initial(self, initial: Mapping[str, Initial]) -> dict[str, Initial]:
        given = dict(read_a(f"{_WHERE}: initial", initial, Mapping))
        kinds = ("weight", "bias") if self.bias else ("weight",)
        known = [f"{layer}.{kind}" for layer in ("q", "k", "v", "out") for kind in kinds]
        for name in given:
            if name not in known:
                raise AttributeValueError(
                    f"{_WHERE}: initial names an unknown variable, got {shown(name)}, expected one of "
                    f"{', '.join(known)}"
                )
        return given

    def _column_part(self, name: str) -> ColumnPart:
        weight, bias = (self._initial.get(f"{name}.{kind}") for kind in ("weight", "bias"))
        columns = self.heads * self.head_size
        return ColumnPart(f"{_WHERE}: {name}", columns, self.bias, self.group, weight, bias)

    def build(self, x: Tensor) -> Tensor:
        """The layer in the current graph.

        Args:
            x: floats ``[batch, sequence, width]``.
        Returns:
            Tensor of the shape and dtype of ``x``; equal on the group without ``sequence_axis``.
        Raises:
            ShapeError: ``x`` has not three axes, the group size does not divide the heads, or an initial value has
                another shape.
            AttributeValueError: ``x`` has no axis ``sequence_axis``, or it is the last one.
            DTypeError: ``x`` is not of floats.
            ReplicaError: ``group`` is of another number of replicas.
        """
        group = read_group(_WHERE, self.group)
        if read_features(_WHERE, x).rank != 3:
            raise ShapeError(f"{_WHERE}: x has another rank, got shape {x.shape}, expected three axes")
        heads = divided(_WHERE, "heads", self.heads, group)
        sequence_axis = read_sequence_axis(_WHERE, self.sequence_axis, x.shape)
        self.out = _Output(
            x.shape[-1],
            self.bias,
            group,
            sequence_axis=sequence_axis,
            initial_weight=self._initial.get("out.weight"),
            initial_bias=self._initial.get("out.bias"),
        )
        y = enter_region(x, group, sequence_axis)
        q, k, v = (self._by_head(layer(y), heads) for layer in (self.q, self.k, self.v))
        joined = ops.transpose(self._attend(q, k, v), (0, 2, 1, 3))
        return self.out(ops.reshape(joined, (*y.shape[:2], heads * self.head_size)))

    def _by_head(self, t: Tensor, heads: int) -> Tensor:
        """From ``[batch, sequence, features]`` to ``[batch, head, sequence, feature of the head]``."""
        split = ops.reshape(t, (*t.shape[:2], heads, self.head_size))
        return ops.transpose(split, (0, 2, 1, 3))

    def _attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if not self.store_scores:
            return ops.attention(q, k, v, is_causal=self.causal, scale=self.head_size**-0.5)
        scores = ops.matmul(q, ops.transpose(k, (0, 1, 3, 2))) * self.head_size**-0.5
        if self.causal:
            seen = constant(np.tri(q.shape[2], dtype=np.bool_), dtypes.bool)
            scores = ops.where(seen, scores, constant(-np.inf, scores.dtype))
        return ops.matmul(ops.softmax(scores, -1), v)
