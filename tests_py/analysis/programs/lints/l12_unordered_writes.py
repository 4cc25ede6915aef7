"""L12: writes that nothing orders.

Programs without a comment ``lint`` are near misses.
"""

import popsr
from popsr import ops

F32 = popsr.float32


def two_writes_that_nothing_orders(w: popsr.Variable) -> None:
    with popsr.in_sequence("pass"):
        # line: add_
        ops.add_(w, w)
        # lint L12, 1 pairs: relu_ modifies 'w', which add_ at @add_ modifies too: neither data nor popsr.in_sequence()
        #     orders
        ops.relu_(w)


def write_that_takes_what_the_other_returns(w: popsr.Variable) -> None:
    with popsr.in_sequence("pass"):
        ops.relu_(ops.add_(w, w))


def reads_beside_a_write(w: popsr.Variable) -> None:
    with popsr.in_sequence(False):
        # line: relu
        ops.relu(w)
        # lint L12, 2 pairs: relu_ modifies 'w', which relu at @relu reads: neither data
        ops.relu_(w)
        ops.tanh(w)


def reads_and_write_in_sequence(w: popsr.Variable) -> None:
    ops.relu(w)
    ops.relu_(w)
    ops.tanh(w)


def two_calls_that_modify_what_they_are_given_by_reference(ir: popsr.Ir, w: popsr.Variable) -> None:
    def f(a: popsr.TensorByRef) -> None:
        ops.relu_(a)

    g = ir.create_graph(f, w)
    with popsr.in_sequence("pass"):
        # line: call
        ops.call(g, w)
        # lint L12, 1 pairs: call modifies 'w', which call at @call modifies too
        ops.call(g, w)


def one_call_that_modifies_what_it_is_given(ir: popsr.Ir, w: popsr.Variable) -> None:
    def f(a: popsr.TensorByRef) -> None:
        ops.relu_(a)

    g = ir.create_graph(f, w)
    with popsr.in_sequence("pass"):
        ops.call(g, w)


def writes_of_views_that_share_elements(w: popsr.Variable) -> None:
    with popsr.in_sequence("pass"):
        # line: relu_
        ops.relu_(ops.slice_(w, 0, 4, 3))
        # lint L12, 1 pairs: relu_ at @relu_ modifies too
        ops.relu_(ops.slice_(w, 1, 4, 2))


def writes_of_views_that_share_no_elements(w: popsr.Variable) -> None:
    with popsr.in_sequence("pass"):
        ops.relu_(ops.slice_(w, 0, 4, 2))
        ops.relu_(ops.slice_(w, 1, 4, 2))


def writes_in_a_graph_that_is_called(ir: popsr.Ir, w: popsr.Variable) -> None:
    def f(a: popsr.Tensor) -> None:
        with popsr.in_sequence("pass"):
            b = ops.relu(a)
            # lint L12, 1 pairs: tanh at @tanh reads
            ops.relu_(b)
            # line: tanh
            ops.tanh(b)

    g = ir.create_graph(f, w)
    ops.call(g, w)


def writes_in_a_graph_that_is_not_called(ir: popsr.Ir, w: popsr.Variable) -> None:
    def f(a: popsr.Tensor) -> None:
        with popsr.in_sequence("pass"):
            b = ops.relu(a)
            ops.relu_(b)
            ops.tanh(b)

    ir.create_graph(f, w)
