"""L6: collectives of values that are equal already.

Programs without a comment ``lint`` are near misses.
"""

import numpy as np

import popsr
from popsr import ops, transforms
from popsr.ops import collectives

F32 = popsr.float32


def _rows(ir: popsr.Ir) -> popsr.Variable:
    """A variable with a value for each pair of replicas."""
    return popsr.variable(
        np.zeros((2, 4), np.float32), name="rows", replica_grouping=ir.replica_grouping(1, 2)
    )


def sum_of_equal_values(w: popsr.Variable) -> None:
    # lint L6, 4 times: replicated_all_reduce 'add' over groups of 4 takes each value of 'w' 4 times
    collectives.replicated_all_reduce(w, "add")


def sum_of_values_that_differ(x: popsr.Tensor) -> None:
    collectives.replicated_all_reduce(x, "add")


def sum_that_counts_pairs_twice(ir: popsr.Ir, x: popsr.Tensor) -> None:
    p = collectives.replicated_all_reduce(x, "add", ir.replica_grouping(1, 2))
    # lint L6, 2 times: takes each value of 'replicated_all_reduce_out' 2 times
    collectives.replicated_all_reduce(p, "add")


def sum_across_the_pairs(ir: popsr.Ir, x: popsr.Tensor) -> None:
    p = collectives.replicated_all_reduce(x, "add", ir.replica_grouping(1, 2))
    collectives.replicated_all_reduce(p, "add", ir.replica_grouping(1, 2).transpose())


def gather_of_equal_values(w: popsr.Variable) -> None:
    # lint L6, 48 bytes: replicated_all_gather 'gather' over groups of 4 exchanges 'w', 1 distinct value in a group: 48
    #     bytes
    collectives.replicated_all_gather(w)


def gather_across_groups(ir: popsr.Ir) -> None:
    collectives.replicated_all_gather(_rows(ir), 0, ir.replica_grouping(1, 2).transpose())


def mean_of_values_that_are_equal_in_pairs(ir: popsr.Ir) -> None:
    # lint L6, 32 bytes: exchanges 'rows', 2 distinct values in a group: 32 bytes
    collectives.replicated_all_reduce(_rows(ir), "mean")


def mean_of_values_that_differ(x: popsr.Tensor) -> None:
    collectives.replicated_all_reduce(x, "mean")


def broadcast_of_equal_values(w: popsr.Variable) -> None:
    # lint L6, 16 bytes: replicated_broadcast over groups of 4 sends 'w' to replicas that hold it: 16 bytes for each
    #     replica in vain
    collectives.replicated_broadcast(w)


def broadcast_of_values_that_are_equal_in_pairs(ir: popsr.Ir) -> None:
    collectives.replicated_broadcast(_rows(ir))


def part_of_merged_sums_that_is_of_equal_values(ir: popsr.Ir, x: popsr.Tensor, w: popsr.Variable) -> None:
    ops.relu(x)
    collectives.replicated_all_reduce(x)
    # lint L6, 4 times: replicated_all_reduce 'add' over groups of 4 takes each value of 'w' 4 times
    collectives.replicated_all_reduce(w)
    transforms.merge_collectives(ir)


def merged_sums_of_values_that_differ(ir: popsr.Ir, x: popsr.Tensor) -> None:
    y = ops.relu(x)
    collectives.replicated_all_reduce(x)
    collectives.replicated_all_reduce(y)
    transforms.merge_collectives(ir)


def sum_in_parallel_layers_of_equal_values(w: popsr.Variable) -> None:
    # lint L6, 4 times: takes each value of 'w' 4 times
    collectives.replicated_all_reduce_identical_grad_inputs(w)


def sum_in_parallel_layers_of_parts_of_a_product(x: popsr.Tensor, w: popsr.Variable) -> None:
    collectives.replicated_all_reduce_identical_grad_inputs(ops.mul(w, x))
