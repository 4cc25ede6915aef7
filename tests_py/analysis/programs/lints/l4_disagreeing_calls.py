"""L4: call sites of a graph disagree about its inputs.

Programs without a comment ``lint`` are near misses.
"""

import popsr
from popsr import ops

F32 = popsr.float32


def calls_that_disagree(ir: popsr.Ir, x: popsr.Tensor, w: popsr.Variable) -> None:
    f = ir.create_graph(lambda a: ops.tanh(ops.relu(a)), w)
    # line: call
    ops.call(f, w)
    # lint L4, 2 values: call sites of graph '<lambda>_subgraph(0)' disagree: '<lambda>_subgraph(0)/a' equal nowhere
    #     against equal on all replicas at @call; 2 values of it
    ops.call(f, x)


def calls_that_agree(ir: popsr.Ir, w: popsr.Variable) -> None:
    f = ir.create_graph(lambda a: ops.tanh(ops.relu(a)), w)
    ops.call(f, w)
    ops.call(f, ops.relu(w))


def call_and_loop_that_disagree(ir: popsr.Ir, x: popsr.Tensor, w: popsr.Variable) -> None:
    f = ir.create_graph(lambda a: ops.relu(a), w)
    # line: call
    ops.call(f, x)
    # lint L4, 1 values: disagree: '<lambda>_subgraph(0)/a' equal on all replicas against equal nowhere at @call
    ops.repeat(f, 2, w)


def one_call_in_contexts_that_differ_for_another_reason(
    ir: popsr.Ir, x: popsr.Tensor, w: popsr.Variable
) -> None:
    f = ir.create_graph(lambda a: ops.relu(a), w)
    g = ir.create_graph(lambda a: ops.call(f, a)[0], w)
    ops.call(g, ops.add(x, x))


def branches_that_run_one_graph_on_values_that_differ(
    ir: popsr.Ir, x: popsr.Tensor, w: popsr.Variable
) -> None:
    c = popsr.constant(True, popsr.bool)
    f = ir.create_graph(lambda a: ops.relu(a), w)
    # lint L4, 1 values: call sites of graph '<lambda>_subgraph(0)' disagree: '<lambda>_subgraph(0)/a' equal nowhere
    #     against equal on all replicas at @here
    ops.conditional(c, f, f, [w], [x])


def branches_that_run_one_graph_on_equal_values(ir: popsr.Ir, w: popsr.Variable) -> None:
    c = popsr.constant(True, popsr.bool)
    f = ir.create_graph(lambda a: ops.relu(a), w)
    ops.conditional(c, f, f, [w], [ops.tanh(w)])
