"""Explanations through remote memory, views and memory that nothing was written to."""

import numpy as np

import popsr
from popsr import ops
from popsr.ops import var_updates

F32 = popsr.float32


def through_remote_memory() -> popsr.Tensor:
    # replicas 0 and 1 of 4: 'add_out' is not proved equal on replicas 0 and 1; it is equal nowhere
    buffer = popsr.remote_buffer((4,), F32, 3)
    # step 4: 'x_load' = host_load(): differs between replicas 0 and 1; equal nowhere
    # root stream: stream 'x' gives each replica data of its own
    x = ops.host_load(popsr.h2d_stream((4,), F32, "x"))
    # step 3: 'remote_buffer_1/1' is stored by remote_store('x_load'): differs between replicas 0 and 1; equal nowhere
    # suggestion: replicated_all_reduce('x_load', 'mean' or 'add', ir.replica_grouping(stride=1, group_size=4)) before
    #     @here
    ops.remote_store(buffer, 1, x)
    # step 2: 'remote_load_out' = remote_load('remote_buffer_1/1'): differs between replicas 0 and 1; equal nowhere
    y = ops.remote_load(buffer, 1)
    # step 1: 'add_out' = add('remote_load_out', 'remote_load_out__t0'): differs between replicas 0 and 1; equal nowhere
    return ops.add(y, ops.remote_load(buffer, 2))


def memory_that_nothing_was_written_to() -> popsr.Tensor:
    # replicas 0 and 1 of 2: 'add_out' is not proved equal on replicas 0 and 1; it is equal nowhere
    w = popsr.variable(np.zeros(4, np.float32), name="w")
    # step 2: 'init_out' = init(): differs between replicas 0 and 1; equal nowhere
    # root uninitialised: nothing was written to 'init_out'
    # suggestion: write to it, or init it with 'zero', at @here
    u = ops.init((4,), F32, init_type="undef")
    # step 1: 'add_out' = add('w', 'init_out'): differs between replicas 0 and 1; equal nowhere
    return ops.add(w, u)


def view_of_what_differs_beside_a_part_that_was_cleared() -> popsr.Tensor:
    # replicas 0 and 1 of 4: 'relu_out' is not proved equal on replicas 0 and 1; it is equal nowhere
    w = popsr.variable(np.zeros(4, np.float32), name="w")
    # step 5: 'y_load' = host_load(): differs between replicas 0 and 1; equal nowhere
    # root stream: stream 'y' gives each replica data of its own
    x, y = [ops.host_load(popsr.h2d_stream((2,), F32, name)) for name in "xy"]
    a, b = ops.slice_(w, 0, 2), ops.slice_(w, 2, 4)
    # step 4: 'w' is written by copy_var_update_('slice__out__t0', 'y_load'): differs between replicas 0 and 1; equal
    #     nowhere
    # suggestion: replicated_all_reduce('y_load', 'mean' or 'add', ir.replica_grouping(stride=1, group_size=4)) before
    #     @here
    var_updates.copy_var_update_(b, y)
    var_updates.copy_var_update_(a, x)
    # step 3: 'w' is left alone in part by accumulator_zero_('slice__out'): differs between replicas 0 and 1; equal
    #     nowhere
    var_updates.accumulator_zero_(a)
    # step 1: 'relu_out' = relu('reshape__out'): differs between replicas 0 and 1; equal nowhere
    # step 2: 'reshape__out' = reshape_('w'): differs between replicas 0 and 1; equal nowhere
    return ops.relu(ops.reshape_(w, (2, 2)))
