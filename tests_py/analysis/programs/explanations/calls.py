"""Explanations into and out of graphs, loops and modules."""

import numpy as np

import popsr
from popsr import ops

F32 = popsr.float32


def into_a_called_graph_and_out_of_it(ir: popsr.Ir) -> popsr.Tensor:
    # replicas 0 and 3 of 4: 'call_out' is not proved equal on replicas 0 and 3; it is equal nowhere
    # step 7: 'x_load' = host_load(): differs between replicas 0 and 3; equal nowhere
    # root stream: stream 'x' gives each replica data of its own
    x = ops.host_load(popsr.h2d_stream((4,), F32, "x"))
    w = popsr.variable(np.zeros(4, np.float32), name="w")

    def layer(a: popsr.Tensor, b: popsr.Tensor) -> popsr.Tensor:
        # step 3: 'layer_subgraph(0)/tanh_out' = tanh('layer_subgraph(0)/mul_out'): differs between replicas 0 and 3;
        #     equal nowhere
        # step 4: 'layer_subgraph(0)/mul_out' = mul('layer_subgraph(0)/a', 'layer_subgraph(0)/b'): differs between
        #     replicas 0 and 3; equal nowhere
        return ops.tanh(ops.mul(a, b))

    def block(a: popsr.Tensor, b: popsr.Tensor) -> popsr.Tensor:
        # step 2: 'block_subgraph(1)/call_out' is returned by call of graph 'layer_subgraph(0)': differs between
        #     replicas 0 and 3; equal nowhere
        # step 5: 'layer_subgraph(0)/a' is given 'block_subgraph(1)/b' by call of graph 'layer_subgraph(0)': differs
        #     between replicas 0 and 3; equal nowhere
        return ops.call(inner, b, a)[0]

    inner = ir.create_graph(layer, x, w)
    outer = ir.create_graph(block, w, x)
    # step 1: 'call_out' is returned by call of graph 'block_subgraph(1)': differs between replicas 0 and 3; equal
    #     nowhere
    # step 6: 'block_subgraph(1)/b' is given 'x_load' by call of graph 'block_subgraph(1)': differs between replicas 0
    #     and 3; equal nowhere
    # suggestion: replicated_all_reduce('call_out', 'mean' or 'add', ir.replica_grouping(stride=1, group_size=4)) after
    #     @here
    (t,) = ops.call(outer, w, x)
    return t


def carried_value_that_falls_in_a_later_iteration(ir: popsr.Ir) -> popsr.Tensor:
    # replicas 1 and 2 of 4: 'repeat_out' is not proved equal on replicas 1 and 2; it is equal nowhere
    def shift(a: popsr.Tensor, b: popsr.Tensor, c: popsr.Tensor) -> tuple[popsr.Tensor, ...]:
        return b, c, c

    zero = popsr.constant(np.zeros(4, np.float32), name="zero")
    # step 4: 'x_load' = host_load(): differs between replicas 1 and 2; equal nowhere
    # root stream: stream 'x' gives each replica data of its own
    x = ops.host_load(popsr.h2d_stream((4,), F32, "x"))
    # step 1: 'repeat_out' is returned by repeat of graph 'shift_subgraph(0)': differs between replicas 1 and 2; equal
    #     nowhere
    # step 2: 'shift_subgraph(0)/b' is 'shift_subgraph(0)/c' of the iteration before, repeat of graph
    #     'shift_subgraph(0)': differs between replicas 1 and 2; equal nowhere
    # step 3: 'shift_subgraph(0)/c' is given 'x_load' by repeat of graph 'shift_subgraph(0)': differs between replicas 1
    #     and 2; equal nowhere
    # suggestion: replicated_all_reduce('repeat_out', 'mean' or 'add', ir.replica_grouping(stride=1, group_size=4))
    #     after @here
    t, _, _ = ops.repeat(ir.create_graph(shift, zero, zero, zero), 3, zero, zero, x)
    return t


def writes_in_place_by_reference(ir: popsr.Ir) -> popsr.Tensor:
    # replicas 0 and 1 of 2: 'tanh_out' is not proved equal on replicas 0 and 1; it is equal nowhere
    # step 6: 'x_load' = host_load(): differs between replicas 0 and 1; equal nowhere
    # root stream: stream 'x' gives each replica data of its own
    x = ops.host_load(popsr.h2d_stream((4,), F32, "x"))
    w = popsr.variable(np.zeros(4, np.float32), name="w")

    def update(total: popsr.TensorByRef, a: popsr.Tensor) -> None:
        # step 3: 'update_subgraph(0)/total' is written by add_('update_subgraph(0)/total',
        #     'update_subgraph(0)/relu_out'): differs between replicas 0 and 1; equal nowhere
        # step 4: 'update_subgraph(0)/relu_out' = relu('update_subgraph(0)/a'): differs between replicas 0 and 1; equal
        #     nowhere
        # suggestion: replicated_all_reduce('update_subgraph(0)/relu_out', 'mean' or 'add',
        #     ir.replica_grouping(stride=1, group_size=2)) before @here
        ops.add_(total, ops.relu(a))

    # step 2: 'w' is written in call of graph 'update_subgraph(0)': differs between replicas 0 and 1; equal nowhere
    # step 5: 'update_subgraph(0)/a' is given 'x_load' by call of graph 'update_subgraph(0)': differs between replicas 0
    #     and 1; equal nowhere
    ops.call(ir.create_graph(update, w, x), w, x)
    # step 1: 'tanh_out' = tanh('w'): differs between replicas 0 and 1; equal nowhere
    return ops.tanh(w)


def ops_of_a_module(ir: popsr.Ir) -> popsr.Tensor:
    # replicas 0 and 1 of 4: 'call_out' is not proved equal on replicas 0 and 1; it is equal nowhere
    class Linear(popsr.Module):
        def build(self, x: popsr.Tensor, w: popsr.Tensor) -> popsr.Tensor:
            # step 2: 'Linear_subgraph(0)/matmul_out' = matmul('Linear_subgraph(0)/x', 'Linear_subgraph(0)/w'): differs
            #     between replicas 0 and 1; equal nowhere
            return ops.matmul(x, w)

    # step 4: 'x_load' = host_load(): differs between replicas 0 and 1; equal nowhere
    # root stream: stream 'x' gives each replica data of its own
    x = ops.host_load(popsr.h2d_stream((4, 4), F32, "x"))
    w = popsr.variable(np.zeros((4, 4), np.float32), name="w")
    # step 1: 'call_out' is returned by call of graph 'Linear_subgraph(0)': differs between replicas 0 and 1; equal
    #     nowhere
    # step 3: 'Linear_subgraph(0)/x' is given 'x_load' by call of graph 'Linear_subgraph(0)': differs between replicas 0
    #     and 1; equal nowhere
    # suggestion: replicated_all_reduce('call_out', 'mean' or 'add', ir.replica_grouping(stride=1, group_size=4)) after
    #     @here
    (t,) = ops.call(ir.create_graph(Linear(), x, w), x, w)
    return t
