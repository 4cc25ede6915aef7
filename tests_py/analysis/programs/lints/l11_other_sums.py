"""L11: updates with another sum of gradients than the replicas of the variable share.

Programs without a comment ``lint`` are near misses.
"""

import numpy as np

import popsr
from popsr import ops, transforms
from popsr.ops import collectives, var_updates

F32 = popsr.float32


def _gradients(ir: popsr.Ir, count: int) -> list[tuple[popsr.Variable, popsr.Tensor]]:
    """Variables of all replicas, each with the gradient that this replica contributes."""
    x = ops.host_load(popsr.h2d_stream((2, 4), F32, "rows"))
    weights = [popsr.variable(np.eye(4, dtype=np.float32), name=f"w{i}") for i in range(count)]

    def loss(x: popsr.Tensor, *weights: popsr.Tensor) -> popsr.Tensor:
        for w in weights:
            x = ops.tanh(x @ w)
        return ops.sum(x)

    graph = ir.create_graph(loss, x, *weights)
    call = ops.call_with_info(graph, x, *weights)
    backward = transforms.autodiff(graph, grads_required=graph.inputs[1:])
    return list(
        zip(weights, ops.call(backward.graph, 1.0, inputs_dict=backward.inputs_dict(call)), strict=True)
    )


def gradient_that_is_not_summed(ir: popsr.Ir) -> None:
    for w, gradient in _gradients(ir, 1):
        # lint L11, 3 replicas: is declared equal on all replicas, but is updated with each replica's own part of its
        #     gradient: the rest of the sum is missing
        ops.scaled_add_(w, gradient, b=-0.1)


def gradients_that_are_summed(ir: popsr.Ir) -> None:
    for w, gradient in _gradients(ir, 3):
        ops.scaled_add_(w, collectives.replicated_all_reduce(gradient), b=-0.1)


def gradients_that_are_averaged_and_clipped(ir: popsr.Ir) -> None:
    pairs = [(w, collectives.replicated_all_reduce(g, "mean")) for w, g in _gradients(ir, 3)]
    first, second, third = (ops.sum(g * g) for _, g in pairs)
    norm = ops.sqrt(first + second + third)
    for w, gradient in pairs:
        ops.scaled_add_(w, gradient / norm, b=-0.1)


def sum_over_pairs_alone(ir: popsr.Ir) -> None:
    for w, gradient in _gradients(ir, 1):
        pairs = collectives.replicated_all_reduce(gradient, group=ir.replica_grouping(group_size=2))
        # lint L11, 3 replicas: is updated with a sum over {0,1}{2,3} of its gradient: the rest of the sum is missing
        var_updates.copy_var_update_(w, w - pairs)


def sum_over_pairs_and_then_over_their_halves(ir: popsr.Ir) -> None:
    pairs = ir.replica_grouping(group_size=2)
    for w, gradient in _gradients(ir, 1):
        total = collectives.replicated_all_reduce(gradient, group=pairs)
        var_updates.copy_var_update_(w, w - collectives.replicated_all_reduce(total, group=pairs.transpose()))


def mean_where_the_others_have_a_sum(ir: popsr.Ir) -> None:
    for i, (w, gradient) in enumerate(_gradients(ir, 3)):
        total = collectives.replicated_all_reduce(gradient, "mean" if i == 1 else "add")
        if i == 1:
            # lint L11, 3 replicas: is updated with 1/4 of the gradient that other variables of the step get
            ops.scaled_add_(w, total, b=-0.1)
        else:
            ops.scaled_add_(w, total, b=-0.1)


def sum_that_is_summed_again(ir: popsr.Ir) -> None:
    for i, (w, gradient) in enumerate(_gradients(ir, 3)):
        total = collectives.replicated_all_reduce(gradient)
        if i == 0:
            total = collectives.replicated_all_reduce(total)
            # lint L11, 3 replicas: is updated with 4 times the gradient that other variables of the step get
            ops.scaled_add_(w, total, b=-0.1)
        else:
            ops.scaled_add_(w, total, b=-0.1)


def sum_of_accumulated_gradients_in_a_loop(ir: popsr.Ir) -> None:
    (w, gradient) = _gradients(ir, 1)[0]
    own = ir.replica_grouping(group_size=1)
    total = popsr.variable(np.zeros((4, 4, 4), np.float32), name="total", replica_grouping=own)

    def step(total: popsr.TensorByRef, gradient: popsr.Tensor) -> None:
        var_updates.accumulate_(total, gradient)

    ops.repeat(ir.create_graph(step, total, gradient), 3, total, gradient)
    ops.scaled_add_(w, collectives.replicated_all_reduce(total), b=-0.1)
    var_updates.accumulator_zero_(total)


def accumulated_gradients_that_are_not_summed(ir: popsr.Ir) -> None:
    (w, gradient) = _gradients(ir, 1)[0]
    own = ir.replica_grouping(group_size=1)
    total = popsr.variable(np.zeros((4, 4, 4), np.float32), name="total", replica_grouping=own)

    def step(total: popsr.TensorByRef, gradient: popsr.Tensor) -> None:
        var_updates.accumulate_(total, gradient)

    ops.repeat(ir.create_graph(step, total, gradient), 3, total, gradient)
    # lint L11, 3 replicas: is updated with each replica's own part of its gradient: the rest of the sum is missing
    ops.scaled_add_(w, total, b=-0.1)
    var_updates.accumulator_zero_(total)
