"""L7: updates reduced over other groups than the variable has.

Programs without a comment ``lint`` are near misses.
"""

import numpy as np

import popsr
from popsr import ops, transforms
from popsr.ops import collectives, var_updates

F32 = popsr.float32


def _rows(ir: popsr.Ir) -> popsr.Variable:
    """A variable with a value for each pair of replicas."""
    return popsr.variable(
        np.zeros((2, 4), np.float32), name="rows", replica_grouping=ir.replica_grouping(1, 2)
    )


def update_of_pairs_that_is_reduced_over_all(ir: popsr.Ir, x: popsr.Tensor) -> None:
    rows = _rows(ir)
    # lint L7, 2 replicas: 'rows' is updated with a value that replicated_all_reduce reduces over groups {0,1,2,3}, but
    #     its own groups are {0,1}{2,3}: 2 replicas too many
    g = ops.mul(collectives.replicated_all_reduce(ops.mul(x, x), "add"), popsr.constant(0.1))
    var_updates.accumulate_(rows, g)


def update_of_pairs_that_is_reduced_over_the_pairs(ir: popsr.Ir, x: popsr.Tensor) -> None:
    rows = _rows(ir)
    g = ops.mul(
        collectives.replicated_all_reduce(ops.mul(x, x), "add", ir.replica_grouping(1, 2)),
        popsr.constant(0.1),
    )
    var_updates.accumulate_(rows, g)


def shards_of_pairs_that_both_pairs_share(ir: popsr.Ir, x: popsr.Tensor) -> None:
    halves = popsr.variable(
        np.zeros((2, 2), np.float32), name="halves", replica_grouping=ir.replica_grouping(2, 2)
    )
    half = collectives.replicated_reduce_scatter(ops.mul(x, x), "add", ir.replica_grouping(1, 2))
    g = collectives.replicated_all_reduce(half, "add", ir.replica_grouping(2, 2))
    var_updates.accumulate_(halves, g)


def shards_of_pairs_that_are_reduced_over_all(ir: popsr.Ir, x: popsr.Tensor) -> None:
    halves = popsr.variable(
        np.zeros((2, 2), np.float32), name="halves", replica_grouping=ir.replica_grouping(2, 2)
    )
    half = collectives.replicated_reduce_scatter(ops.mul(x, x), "add", ir.replica_grouping(1, 2))
    # lint L7, 2 replicas: 'halves' is updated with a value that replicated_all_reduce reduces over groups {0,1,2,3},
    #     but its own groups are {0,2}{1,3}: 2 replicas too many
    g = collectives.replicated_all_reduce(half, "add")
    var_updates.accumulate_(halves, g)


def update_inside_a_graph_that_is_reduced_over_too_few(
    ir: popsr.Ir, x: popsr.Tensor, w: popsr.Variable
) -> None:
    # lint L7, 2 replicas: 'w' is updated with a value that replicated_all_reduce reduces over groups {0,1}{2,3}, but
    #     its own groups are {0,1,2,3}: 2 replicas too few
    g = collectives.replicated_all_reduce(x, "add", ir.replica_grouping(1, 2))

    def step(total: popsr.TensorByRef, a: popsr.Tensor) -> None:
        ops.add_(total, a)

    ops.call(ir.create_graph(step, w, g), w, g)


def update_that_is_reduced_in_two_steps_over_all(ir: popsr.Ir, x: popsr.Tensor, w: popsr.Variable) -> None:
    g = collectives.replicated_all_reduce(x, "add", ir.replica_grouping(1, 2))
    g = collectives.replicated_all_reduce(g, "add", ir.replica_grouping(1, 2).transpose())

    def step(total: popsr.TensorByRef, a: popsr.Tensor) -> None:
        ops.add_(total, a)

    ops.call(ir.create_graph(step, w, g), w, g)


def reduction_over_too_few(ir: popsr.Ir, x: popsr.Tensor, w: popsr.Variable) -> None:
    # lint L7, 2 replicas: 2 replicas too few
    var_updates.accumulate_(w, collectives.replicated_all_reduce(x, "add", ir.replica_grouping(1, 2)))


def reduction_over_few_of_values_that_the_others_hold_too(ir: popsr.Ir, w: popsr.Variable) -> None:
    var_updates.accumulate_(
        w, collectives.replicated_all_reduce(_rows(ir), "add", ir.replica_grouping(1, 2).transpose())
    )


def part_of_merged_reductions_over_too_few(ir: popsr.Ir, x: popsr.Tensor, w: popsr.Variable) -> None:
    # lint L7, 2 replicas: 'w' is updated with a value that replicated_all_reduce reduces over groups {0,1}{2,3}
    _a, b = [collectives.replicated_all_reduce(v, "add", ir.replica_grouping(1, 2)) for v in (x, ops.relu(x))]
    transforms.merge_collectives(ir)
    var_updates.accumulate_(w, b)


def part_of_merged_reductions_over_all(ir: popsr.Ir, x: popsr.Tensor, w: popsr.Variable) -> None:
    _a, b = [collectives.replicated_all_reduce(v, "add") for v in (x, ops.relu(x))]
    transforms.merge_collectives(ir)
    var_updates.accumulate_(w, b)


def count_that_a_sum_over_too_few_is_added_to(ir: popsr.Ir, x: popsr.Tensor) -> None:
    # lint L7, 2 replicas: 'steps' is updated with a value that replicated_all_reduce reduces over groups {0,1}{2,3},
    #     but its own groups are {0,1,2,3}: 2 replicas too few
    g = collectives.replicated_all_reduce(ops.max(x), "add", ir.replica_grouping(1, 2))
    steps = popsr.variable(0.0, name="steps")
    var_updates.accumulate_(steps, g)


def count_of_steps_of_moments_in_pairs(ir: popsr.Ir, x: popsr.Tensor) -> None:
    g = collectives.replicated_all_reduce(ops.max(x), "add", ir.replica_grouping(1, 2))
    steps = popsr.variable(0.0, name="steps")
    var_updates.adam_updater(g, g * g, time_step=steps, beta1=0.9, beta2=0.9)


def product_with_a_reduced_activation_of_the_size_of_the_variable(ir: popsr.Ir, x: popsr.Tensor) -> None:
    rows = popsr.variable(
        np.zeros((2, 2, 3), np.float32), name="rows", replica_grouping=ir.replica_grouping(1, 2)
    )
    whole = collectives.replicated_all_reduce(
        ops.matmul(ops.reshape(x, (2, 2)), popsr.constant(np.ones((2, 3), np.float32)))
    )
    var_updates.accumulate_(rows, ops.matmul(ops.reshape(x, (2, 2)), whole))
