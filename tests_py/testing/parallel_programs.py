"""A training step in data and tensor parallel, right or with one mistake, for checks of its gradients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

import popsr
from popsr import ops, transforms
from popsr.ops import collectives

Fault = Literal["", "fork", "mean", "group", "twice", "missing"]
BATCH, WIDTH, HIDDEN = 3, 4, 12


@dataclass
class Program:
    """A training step, and the arguments of ``check_gradients``."""

    ir: popsr.Ir
    losses: list[popsr.Tensor]
    gradients: dict[popsr.Variable, popsr.Tensor]
    inputs: dict[popsr.HostToDeviceStream, Any]


def program(
    tp: int,
    dp: int,
    fault: Fault = "",
    *,
    dtype: popsr.dtype = popsr.float64,
    reduce: Literal["add", "mean"] = "add",
    residual: bool = False,
    shared: bool = False,
    penalty: bool = False,
    neighbours: bool = True,
    depth: int = 1,
    at: int = 0,
    activation: Callable[[popsr.Tensor], popsr.Tensor] = ops.gelu,
    seed: int = 0,
) -> Program:
    """``x @ first``, blocks of ``gelu(x @ columns) @ rows``, the loss against targets, and an update of all weights.

    Args:
        tp: parts of ``columns`` and ``rows``.
        dp: copies of each part, with samples of their own.
        fault: "fork": no identity with a summed gradient before the split layers; else the reduction of the gradient
            of ``columns`` over copies: "mean" for a sum, over the wrong "group", done "twice", or "missing".
        dtype: of everything.
        reduce: how gradients are reduced over copies.
        residual: the input of each block is also added to its result.
        shared: the last result is also multiplied by ``first``.
        penalty: a second loss, of which all replicas hold the same value.
        neighbours: replicas of one model are neighbours; else replicas that hold copies of one part are.
        depth: number of blocks.
        at: the block of the fault.
        activation: of the hidden units.
        seed: of all data.
    """
    ir = popsr.Ir(replication=tp * dp)
    copies = ir.replica_grouping(stride=tp) if neighbours else ir.replica_grouping(group_size=dp)
    model = copies.transpose()
    rng = np.random.default_rng(seed)
    with ir.main_graph, popsr.in_sequence():
        streams = [
            popsr.h2d_stream((BATCH, WIDTH), dtype, name, replicated_stream_mode=model) for name in "xy"
        ]
        first = popsr.variable(rng.normal(size=(WIDTH, WIDTH)) / 2, dtype, "first")
        weights = [first]
        for i in range(depth):
            for name, shape in {"columns": (WIDTH, HIDDEN // tp), "rows": (HIDDEN // tp, WIDTH)}.items():
                data = _by_group(rng, tp, shape)
                weights.append(popsr.variable(data, dtype, f"{name}{i}", replica_grouping=copies))

        def forward(x: popsr.Tensor, first: popsr.Tensor, blocks: list[popsr.Tensor]) -> popsr.Tensor:
            h = x @ first
            for i, (columns, rows) in enumerate(zip(blocks[::2], blocks[1::2], strict=True)):
                whole = h
                if fault != "fork" or i != at:
                    whole = collectives.replicated_all_reduce_identical_inputs(h, group=model)
                y = activation(whole @ columns) @ rows
                y = collectives.replicated_all_reduce_identical_grad_inputs(y, group=model)
                h = y + h if residual else y
            return h @ first if shared else h

        graph = ir.create_graph(forward, streams[0].spec, first, weights[1:])
        backward = transforms.autodiff(graph, grads_required=graph.inputs[1:])
        call = ops.call_with_info(graph, ops.host_load(streams[0]), *weights)
        error = call.outputs[0] - ops.host_load(streams[1])
        losses = [ops.mean(error * error)]
        shares = ops.call(backward.graph, error * (2 / error.nelms), inputs_dict=backward.inputs_dict(call))
        gradients = {
            w: _reduced(share, reduce, fault if w is weights[1 + 2 * at] else "", copies, model)
            for w, share in zip(weights, shares, strict=True)
        }
        if penalty:
            losses.append(ops.sum(first * first))
            gradients[first] = gradients[first] + first * 2.0
        for w, gradient in gradients.items():
            ops.scaled_add_(w, gradient, b=-0.5)
    size = (dp, BATCH, WIDTH) if dp > 1 else (BATCH, WIDTH)
    return Program(
        ir, losses, gradients, {s: rng.normal(size=size).astype(dtype.as_numpy()) for s in streams}
    )


def _by_group(rng: np.random.Generator, groups: int, shape: tuple[int, ...]) -> Any:
    return rng.normal(size=(groups, *shape) if groups > 1 else shape) / 3


def _reduced(
    share: popsr.Tensor,
    reduce: Literal["add", "mean"],
    fault: Fault,
    copies: popsr.ReplicaGrouping,
    model: popsr.ReplicaGrouping,
) -> popsr.Tensor:
    if fault == "missing":
        return share
    if fault == "mean":
        return collectives.replicated_all_reduce(share, "mean", group=copies)
    result = collectives.replicated_all_reduce(share, reduce, group=model if fault == "group" else copies)
    return collectives.replicated_all_reduce(result, reduce, group=copies) if fault == "twice" else result
