"""L10: contributions to one gradient that are sums over different replicas.

Programs without a comment ``lint`` are near misses.
"""

from collections.abc import Callable

import numpy as np

import popsr
from popsr import ops, transforms
from popsr.ops import collectives

F32 = popsr.float32


def _train(ir: popsr.Ir, layer: Callable[..., popsr.Tensor]) -> None:
    """Update a weight of all replicas, and one split over pairs, by the gradients of a layer."""
    pairs = ir.replica_grouping(group_size=2)
    x = collectives.replicated_broadcast(ops.host_load(popsr.h2d_stream((2, 4), F32, "rows")), group=pairs)
    scale = popsr.variable(np.ones(4, np.float32), name="scale")
    parts = np.arange(32, dtype=np.float32).reshape(2, 4, 4)
    w = popsr.variable(parts, name="parts", replica_grouping=pairs.transpose())
    graph = ir.create_graph(layer, x, scale, w)
    call = ops.call_with_info(graph, x, scale, w)
    backward = transforms.autodiff(graph, grads_required=graph.inputs[1:])
    gradients = ops.call(backward.graph, 1.0, inputs_dict=backward.inputs_dict(call))
    for weight, gradient in zip((scale, w), gradients, strict=True):
        mean = collectives.replicated_all_reduce(gradient, "mean", pairs.transpose())
        ops.scaled_add_(weight, mean, b=-0.1)


def residual_connection_without_a_sum_at_its_fork(ir: popsr.Ir) -> None:
    pairs = ir.replica_grouping(group_size=2)

    def layer(x: popsr.Tensor, scale: popsr.Tensor, w: popsr.Tensor) -> popsr.Tensor:
        h = x * scale
        # lint L10, 2 replicas: each replica's own part, to
        split = ops.gelu(h @ w)
        y = collectives.replicated_all_reduce_identical_grad_inputs(split, group=pairs)
        return ops.sum(y + h)

    _train(ir, layer)


def residual_connection_with_a_sum_at_its_fork(ir: popsr.Ir) -> None:
    pairs = ir.replica_grouping(group_size=2)

    def layer(x: popsr.Tensor, scale: popsr.Tensor, w: popsr.Tensor) -> popsr.Tensor:
        h = x * scale
        split = collectives.replicated_all_reduce_identical_inputs(h, group=pairs)
        y = collectives.replicated_all_reduce_identical_grad_inputs(ops.gelu(split @ w), group=pairs)
        return ops.sum(y + h)

    _train(ir, layer)


def fork_that_sums_twice(ir: popsr.Ir) -> None:
    pairs = ir.replica_grouping(group_size=2)

    def layer(x: popsr.Tensor, scale: popsr.Tensor, w: popsr.Tensor) -> popsr.Tensor:
        h = x * scale
        # lint L10, 2 replicas: which count the same derivative differently often
        split = collectives.replicated_all_reduce_identical_inputs(h, group=pairs)
        split = collectives.replicated_all_reduce_identical_inputs(split, group=pairs)
        y = collectives.replicated_all_reduce_identical_grad_inputs(ops.gelu(split @ w), group=pairs)
        return ops.sum(y + h)

    _train(ir, layer)


def fork_that_sums_over_other_replicas(ir: popsr.Ir) -> None:
    pairs = ir.replica_grouping(group_size=2)

    def layer(x: popsr.Tensor, scale: popsr.Tensor, w: popsr.Tensor) -> popsr.Tensor:
        h = x * scale
        # lint L10, 2 replicas: a sum over {0,2}{1,3}, to
        split = collectives.replicated_all_reduce_identical_inputs(h, group=pairs.transpose())
        y = collectives.replicated_all_reduce_identical_grad_inputs(ops.gelu(split @ w), group=pairs)
        return ops.sum(y + h)

    _train(ir, layer)


def second_split_layer_without_a_sum_before_it(ir: popsr.Ir) -> None:
    pairs = ir.replica_grouping(group_size=2)

    def layer(x: popsr.Tensor, scale: popsr.Tensor, w: popsr.Tensor) -> popsr.Tensor:
        split = collectives.replicated_all_reduce_identical_inputs(x * scale, group=pairs)
        # lint L10, 2 replicas: takes it for the same on the replicas of its groups
        y = collectives.replicated_all_reduce_identical_grad_inputs(ops.gelu(split @ w), group=pairs)
        return ops.sum(collectives.replicated_all_reduce_identical_grad_inputs(y @ w, group=pairs))

    _train(ir, layer)


def split_layers_that_follow_each_other(ir: popsr.Ir) -> None:
    pairs = ir.replica_grouping(group_size=2)

    def layer(x: popsr.Tensor, scale: popsr.Tensor, w: popsr.Tensor) -> popsr.Tensor:
        y = x * scale
        for _ in range(3):
            split = collectives.replicated_all_reduce_identical_inputs(y, group=pairs)
            y = collectives.replicated_all_reduce_identical_grad_inputs(ops.gelu(split @ w), group=pairs)
        return ops.sum(y)

    _train(ir, layer)


def each_replica_with_a_loss_of_its_own(ir: popsr.Ir) -> None:
    """Gradients of all replicas are added: as if each loss counted."""

    def layer(x: popsr.Tensor, scale: popsr.Tensor, w: popsr.Tensor) -> popsr.Tensor:
        h = x * scale
        return ops.sum(ops.gelu(h) + h) + 0.0 * ops.sum(w)

    _train(ir, layer)
