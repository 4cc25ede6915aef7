"""Explanations through collectives."""

import numpy as np

import popsr
from popsr import ops, transforms
from popsr.ops import collectives

F32 = popsr.float32


def pair_moves_through_collectives(ir: popsr.Ir) -> popsr.Tensor:
    # replicas 1 and 6 of 8: 'replicated_all_reduce_out__t0' is not proved equal on replicas 1 and 6; it is equal inside
    #     {0,1,2,3},{4,5,6,7}
    # step 3: 'x_load' = host_load(): differs between replicas 0 and 4; equal nowhere
    # root stream: stream 'x' gives each replica data of its own
    x = ops.host_load(popsr.h2d_stream((4,), F32, "x"))
    # step 2: 'replicated_all_reduce_out' = replicated_all_reduce('x_load'): differs between replicas 1 and 4; equal
    #     inside {0,1},{2,3},{4,5},{6,7}
    pairs = collectives.replicated_all_reduce(x, "add", ir.replica_grouping(1, 2))
    # step 1: 'replicated_all_reduce_out__t0' = replicated_all_reduce('replicated_all_reduce_out'): differs between
    #     replicas 1 and 6; equal inside {0,1,2,3},{4,5,6,7}
    # suggestion: replicated_all_reduce('replicated_all_reduce_out__t0', 'mean' or 'add', ir.replica_grouping(stride=4,
    #     group_size=2)) after @here
    return collectives.replicated_all_reduce(pairs, "mean", ir.replica_grouping(2, 2))


def parts_of_a_reduce_scatter() -> popsr.Tensor:
    # replicas 0 and 1 of 4: 'replicated_reduce_scatter_out' is not proved equal on replicas 0 and 1; it is equal
    #     nowhere
    w = popsr.variable(np.zeros(4, np.float32), name="w")
    # step 1: 'replicated_reduce_scatter_out' = replicated_reduce_scatter('w'): differs between replicas 0 and 1; equal
    #     nowhere
    # root part: replicated_reduce_scatter gives each member of a group a part of its own
    # suggestion: put the parts together: replicated_all_gather('replicated_reduce_scatter_out') after @here
    return collectives.replicated_reduce_scatter(w, "mean")


def part_of_merged_collectives(ir: popsr.Ir) -> popsr.Tensor:
    # replicas 0 and 3 of 4: 'tanh_out' is not proved equal on replicas 0 and 3; it is equal inside {0,1},{2,3}
    x = ops.host_load(popsr.h2d_stream((4,), F32, "x"))
    # step 4: 'y_load' = host_load(): differs between replicas 0 and 2; equal nowhere
    # root stream: stream 'y' gives each replica data of its own
    y = ops.host_load(popsr.h2d_stream((4,), F32, "y"))
    pairs = ir.replica_grouping(1, 2)
    collectives.replicated_all_reduce(x, "add", pairs)
    # step 2: 'replicated_all_reduce_out__t0' = replicated_all_reduce('relu_out'): differs between replicas 0 and 3;
    #     equal inside {0,1},{2,3}
    # step 3: 'relu_out' = relu('y_load'): differs between replicas 0 and 2; equal nowhere
    b = collectives.replicated_all_reduce(ops.relu(y), "add", pairs)
    # step 1: 'tanh_out' = tanh('replicated_all_reduce_out__t0'): differs between replicas 0 and 3; equal inside
    #     {0,1},{2,3}
    # suggestion: replicated_all_reduce('tanh_out', 'mean' or 'add', ir.replica_grouping(stride=2, group_size=2)) after
    #     @here
    t = ops.tanh(b)
    transforms.merge_collectives(ir)
    return t


def pair_moves_to_those_who_sent(ir: popsr.Ir) -> popsr.Tensor:
    # replicas 0 and 2 of 4: 'replicated_permute_out' is not proved equal on replicas 0 and 2; it is equal inside
    #     {0,1},{2,3}
    # step 3: 'x_load' = host_load(): differs between replicas 3 and 1; equal nowhere
    # root stream: stream 'x' gives each replica data of its own
    x = ops.host_load(popsr.h2d_stream((4,), F32, "x"))
    # step 2: 'replicated_broadcast_out' = replicated_broadcast('x_load'): differs between replicas 2 and 0; equal
    #     inside {0,1},{2,3}
    b = collectives.replicated_broadcast(x, 1, ir.replica_grouping(1, 2))
    # step 1: 'replicated_permute_out' = replicated_permute('replicated_broadcast_out'): differs between replicas 0 and
    #     2; equal inside {0,1},{2,3}
    # suggestion: replicated_all_reduce('replicated_permute_out', 'mean' or 'add', ir.replica_grouping(stride=2,
    #     group_size=2)) after @here
    return collectives.replicated_permute(b, [(0, 2), (1, 3), (2, 0), (3, 1)])


def replicas_that_nobody_sends_to() -> popsr.Tensor:
    # replicas 0 and 2 of 4: 'relu_out' is not proved equal on replicas 0 and 2; it is equal inside {1,2,3}
    w = popsr.variable(np.zeros(4, np.float32), name="w")
    # step 1: 'relu_out' = relu('replicated_permute_out'): differs between replicas 0 and 2; equal inside {1,2,3}
    # step 2: 'replicated_permute_out' = replicated_permute('w'): differs between replicas 0 and 2; equal inside {1,2,3}
    # root zeros: replicated_permute sends nothing to replica 0 or to replica 2, which holds zeros
    # suggestion: send to all replicas at @here
    return ops.relu(collectives.replicated_permute(w, [(0, 1), (1, 2), (2, 3)]))


def index_of_a_replica(ir: popsr.Ir) -> popsr.Tensor:
    # replicas 2 and 3 of 4: 'cast_out' is not proved equal on replicas 2 and 3; it is equal inside {0,2},{1,3}
    # step 2: 'replica_index_out' = replica_index(): differs between replicas 2 and 3; equal inside {0,2},{1,3}
    # root own_value: replica_index gives replicas 2 and 3 values of their own
    i = ops.replica_index(ir.replica_grouping(1, 2))
    # step 1: 'cast_out' = cast('replica_index_out'): differs between replicas 2 and 3; equal inside {0,2},{1,3}
    # suggestion: replicated_all_reduce('cast_out', 'mean' or 'add', ir.replica_grouping(stride=1, group_size=2)) after
    #     @here
    return ops.cast(i, F32)


def replicas_that_are_equal(ir: popsr.Ir) -> popsr.Tensor:
    # replicas 2 and 3 of 4: 'replicated_all_reduce_out' is proved equal on replicas 2 and 3; it is equal inside
    #     {0,1},{2,3}
    x = ops.host_load(popsr.h2d_stream((4,), F32, "x"))
    # step 1: 'replicated_all_reduce_out' = replicated_all_reduce('x_load'), groups {0,1}{2,3}: 'x_load' equal nowhere
    return collectives.replicated_all_reduce(x, "add", ir.replica_grouping(1, 2))
