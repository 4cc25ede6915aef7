"""Explanations along ops, variables, runs and gradients."""

import numpy as np

import popsr
from popsr import ops, transforms
from popsr.ops import var_updates

F32 = popsr.float32


def update_that_nobody_reduced() -> popsr.Tensor:
    # replicas 0 and 2 of 4: 'relu_out' is not proved equal on replicas 0 and 2; it is equal nowhere
    w = popsr.variable(np.zeros((4, 4), np.float32), name="w")
    # step 4: 'x_load' = host_load(): differs between replicas 0 and 2; equal nowhere
    # root stream: stream 'x' gives each replica data of its own
    x = ops.host_load(popsr.h2d_stream((4, 4), F32, "x"))
    # step 3: 'matmul_out' = matmul('transpose_out', 'x_load'): differs between replicas 0 and 2; equal nowhere
    g = ops.matmul(ops.transpose(x), x)
    # step 2: 'w' is written by accumulate_('w', 'matmul_out'): differs between replicas 0 and 2; equal nowhere
    # suggestion: replicated_all_reduce('matmul_out', 'mean' or 'add', ir.replica_grouping(stride=1, group_size=4))
    #     before @here
    var_updates.accumulate_(w, g, 0.1)
    # step 1: 'relu_out' = relu('w'): differs between replicas 0 and 2; equal nowhere
    return ops.relu(w)


def groups_of_a_variable(ir: popsr.Ir) -> popsr.Tensor:
    # replicas 1 and 2 of 4: 'add_out' is not proved equal on replicas 1 and 2; it is equal inside {0,1},{2,3}
    # step 2: 'v' starts so: differs between replicas 1 and 2; equal inside {0,1},{2,3}
    # root variable: 'v' is declared equal inside {0,1},{2,3}
    v = popsr.variable(np.zeros((2, 4), np.float32), name="v", replica_grouping=ir.replica_grouping(1, 2))
    w = popsr.variable(np.zeros(4, np.float32), name="w")
    # step 1: 'add_out' = add('w', 'v'): differs between replicas 1 and 2; equal inside {0,1},{2,3}
    # suggestion: replicated_all_reduce('add_out', 'mean' or 'add', ir.replica_grouping(stride=2, group_size=2)) after
    #     @here
    return ops.add(w, v)


def what_the_run_before_left() -> popsr.Tensor:
    # replicas 0 and 1 of 4: 'relu_out' is not proved equal on replicas 0 and 1; it is equal nowhere
    # step 2: 'a' is what the run before left: differs between replicas 0 and 1; equal nowhere
    a = popsr.variable(np.zeros(4, np.float32), name="a")
    # step 4: 'b' is what the run before left: differs between replicas 0 and 1; equal nowhere
    b = popsr.variable(np.zeros(4, np.float32), name="b")
    # step 1: 'relu_out' = relu('a'): differs between replicas 0 and 1; equal nowhere
    t = ops.relu(a)
    # step 3: 'a' is written by copy_var_update_('a', 'b'): differs between replicas 0 and 1; equal nowhere
    var_updates.copy_var_update_(a, b)
    # step 5: 'b' is written by copy_var_update_('b', 'x_load'): differs between replicas 0 and 1; equal nowhere
    # step 6: 'x_load' = host_load(): differs between replicas 0 and 1; equal nowhere
    # root stream: stream 'x' gives each replica data of its own
    # suggestion: replicated_all_reduce('x_load', 'mean' or 'add', ir.replica_grouping(stride=1, group_size=4)) before
    #     @here
    var_updates.copy_var_update_(b, ops.host_load(popsr.h2d_stream((4,), F32, "x")))
    return t


def gradients_carry_the_lines_of_their_forward_ops(ir: popsr.Ir) -> popsr.Tensor:
    # replicas 2 and 3 of 4: 'call_out__t1' is not proved equal on replicas 2 and 3; it is equal nowhere
    # step 4: 'x_load' = host_load(): differs between replicas 2 and 3; equal nowhere
    # root stream: stream 'x' gives each replica data of its own
    x = ops.host_load(popsr.h2d_stream((4, 4), F32, "x"))
    w = popsr.variable(np.zeros((4, 4), np.float32), name="w")

    def loss(x: popsr.Tensor, w: popsr.Tensor) -> popsr.Tensor:
        # step 2: 'loss_subgraph(0)_bwd/Gradient___w' = matmul('loss_subgraph(0)_bwd/x',
        #     'loss_subgraph(0)_bwd/Gradient___matmul_out') (a part of the sum over {0,1,2,3}): differs between replicas
        #     2 and 3; equal nowhere
        h = ops.matmul(x, w)
        h = ops.tanh(h)
        return ops.sum(h)

    graph = ir.create_graph(loss, x, w)
    gradient = transforms.autodiff(graph, grads_required=[graph.inputs[1]])
    forward = ops.call_with_info(graph, x, w)
    # step 1: 'call_out__t1' is returned by call of graph 'loss_subgraph(0)_bwd' (a part of the sum over {0,1,2,3}):
    #     differs between replicas 2 and 3; equal nowhere
    # step 3: 'loss_subgraph(0)_bwd/x' is given 'x_load' by call of graph 'loss_subgraph(0)_bwd': differs between
    #     replicas 2 and 3; equal nowhere
    # suggestion: replicated_all_reduce('call_out__t1', 'mean' or 'add', ir.replica_grouping(stride=1, group_size=4))
    #     after @here
    (t,) = ops.call(gradient.graph, 1.0, inputs_dict=gradient.inputs_dict(forward))
    return t


def seeds_that_differ_where_values_are_equal(ir: popsr.Ir) -> popsr.Tensor:
    # replicas 0 and 1 of 4: 'relu_out' is not proved equal on replicas 0 and 1; it is equal nowhere
    ir.options.enable_stochastic_rounding = True
    ir.options.stochastic_rounding_mode = "popart"
    x = ops.host_load(popsr.h2d_stream((4,), popsr.bfloat16, "x"))
    w = popsr.variable(np.zeros(4, np.float32), popsr.bfloat16, name="w")
    # step 2: 'w' is written by accumulate_('w', 'x_load'): differs between replicas 0 and 1; equal nowhere
    # root seeds: accumulate_ rounds with other random numbers on replicas 0 and 1
    # suggestion: let stochastic rounding follow the partitions: mode 'partition'
    var_updates.accumulate_(w, x, 0.0)
    # step 1: 'relu_out' = relu('w'): differs between replicas 0 and 1; equal nowhere
    t = ops.relu(w)
    transforms.stochastic_rounding(ir)
    return t


def sharded_variable() -> popsr.Tensor:
    # replicas 2 and 3 of 4: 'relu_out' is not proved equal on replicas 2 and 3; it is equal nowhere
    # step 2: 'w_shard' starts so: differs between replicas 2 and 3; equal nowhere
    # root variable: 'w_shard' is declared equal nowhere
    # suggestion: put the parts together: replicated_all_gather('w_shard') after @here
    _whole, shard = popsr.replica_sharded_variable(np.zeros(8, np.float32), name="w")
    # step 1: 'relu_out' = relu('w_shard'): differs between replicas 2 and 3; equal nowhere
    return ops.relu(shard)
