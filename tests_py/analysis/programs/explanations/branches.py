"""Explanations of branches."""

import numpy as np

import popsr
from popsr import ops
from popsr.ops import var_updates

F32 = popsr.float32


def branches_that_replicas_do_not_take_together(ir: popsr.Ir) -> popsr.Tensor:
    # replicas 0 and 3 of 4: 'relu_out' is not proved equal on replicas 0 and 3; it is equal nowhere
    c = ops.host_load(popsr.h2d_stream((), popsr.bool, "c"))
    w = popsr.variable(np.zeros(4, np.float32), name="w")

    def update(total: popsr.TensorByRef) -> None:
        ops.add_(total, ops.tanh(total))

    def keep() -> None:
        pass

    # step 2: 'w' is written in conditional of graphs 'update_subgraph(0)' and 'keep_subgraph(1)': differs between
    #     replicas 0 and 3; equal nowhere
    # root divergence: replicas 0 and 3 may take different branches of conditional: its condition 'c_load' differs
    # suggestion: make its condition equal: replicated_broadcast('c_load', 0, ir.replica_grouping(stride=1,
    #     group_size=4)) before @here
    ops.conditional(c, ir.create_graph(update, w), ir.create_graph(keep), [w])
    # step 1: 'relu_out' = relu('w'): differs between replicas 0 and 3; equal nowhere
    return ops.relu(w)


def through_a_branch_that_all_take_or_none(ir: popsr.Ir) -> popsr.Tensor:
    # replicas 1 and 2 of 4: 'conditional_out' is not proved equal on replicas 1 and 2; it is equal nowhere
    c = ops.host_load(popsr.h2d_stream((), popsr.bool, "c", replicated_stream_mode="broadcast"))
    # step 4: 'x_load' = host_load(): differs between replicas 1 and 2; equal nowhere
    # root stream: stream 'x' gives each replica data of its own
    x = ops.host_load(popsr.h2d_stream((4,), F32, "x"))
    w = popsr.variable(np.zeros(4, np.float32), name="w")

    def twice(a: popsr.Tensor) -> popsr.Tensor:
        # step 2: 'twice_subgraph(1)/add_out' = add('twice_subgraph(1)/a', 'twice_subgraph(1)/a'): differs between
        #     replicas 1 and 2; equal nowhere
        return ops.add(a, a)

    def same(a: popsr.Tensor) -> popsr.Tensor:
        return a

    # step 1: 'conditional_out' is returned by conditional of graph 'twice_subgraph(1)': differs between replicas 1 and
    #     2; equal nowhere
    # step 3: 'twice_subgraph(1)/a' is given 'x_load' by conditional of graph 'twice_subgraph(1)': differs between
    #     replicas 1 and 2; equal nowhere
    # suggestion: replicated_all_reduce('conditional_out', 'mean' or 'add', ir.replica_grouping(stride=1, group_size=4))
    #     after @here
    (t,) = ops.conditional(c, ir.create_graph(same, w), ir.create_graph(twice, x), [w], [x])
    return t


def branch_that_leaves_it_alone_in_a_loop(ir: popsr.Ir) -> popsr.Tensor:
    # replicas 0 and 1 of 4: 'relu_out' is not proved equal on replicas 0 and 1; it is equal nowhere
    c = ops.host_load(popsr.h2d_stream((), popsr.bool, "c", replicated_stream_mode="broadcast"))
    # step 6: 'x_load' = host_load(): differs between replicas 0 and 1; equal nowhere
    # root stream: stream 'x' gives each replica data of its own
    x = ops.host_load(popsr.h2d_stream((4,), F32, "x"))
    w = popsr.variable(np.zeros(4, np.float32), name="w")

    def clear(total: popsr.TensorByRef) -> None:
        var_updates.accumulator_zero_(total)

    def keep() -> None:
        pass

    def step(total: popsr.TensorByRef, a: popsr.Tensor, c: popsr.Tensor) -> None:
        # step 4: 'step_subgraph(0)/total' is written by add_('step_subgraph(0)/total', 'step_subgraph(0)/a'): differs
        #     between replicas 0 and 1; equal nowhere
        # suggestion: replicated_all_reduce('step_subgraph(0)/a', 'mean' or 'add', ir.replica_grouping(stride=1,
        #     group_size=4)) before @here
        ops.add_(total, a)
        # step 3: 'step_subgraph(0)/total' is left alone by conditional of graph 'keep_subgraph(2)': differs between
        #     replicas 0 and 1; equal nowhere
        ops.conditional(c, ir.create_graph(clear, w), ir.create_graph(keep), [total])

    # step 2: 'w' is written in repeat of graph 'step_subgraph(0)': differs between replicas 0 and 1; equal nowhere
    # step 5: 'step_subgraph(0)/a' is given 'x_load' by repeat of graph 'step_subgraph(0)': differs between replicas 0
    #     and 1; equal nowhere
    ops.repeat(ir.create_graph(step, w, x, c), 2, w, x, c)
    # step 1: 'relu_out' = relu('w'): differs between replicas 0 and 1; equal nowhere
    return ops.relu(w)


def loads_that_some_replicas_skip(ir: popsr.Ir) -> popsr.Tensor:
    # replicas 0 and 1 of 4: 'relu_out' is not proved equal on replicas 0 and 1; it is equal nowhere
    c = ops.host_load(popsr.h2d_stream((), popsr.bool, "c"))
    b = popsr.h2d_stream((4,), F32, "b", replicated_stream_mode="broadcast")
    take = ir.create_graph(lambda: ops.host_load(b))
    zero = ir.create_graph(lambda: ops.init((4,), F32))
    # line: conditional
    # suggestion: load the stream outside of conditional at @here
    ops.conditional(c, take, zero)
    # step 1: 'relu_out' = relu('b_load'): differs between replicas 0 and 1; equal nowhere
    # step 2: 'b_load' = host_load(): differs between replicas 0 and 1; equal nowhere
    # root position: replicas 0 and 1 may be at different elements of stream 'b', which conditional at @conditional lets
    #     some skip
    return ops.relu(ops.host_load(b))
