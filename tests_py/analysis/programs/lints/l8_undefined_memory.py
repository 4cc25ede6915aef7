"""L8: reads of memory that nothing was written to.

Programs without a comment ``lint`` are near misses.
"""

import numpy as np

import popsr
from popsr import ops
from popsr.ops import var_updates

F32 = popsr.float32


def memory_that_is_read(w: popsr.Variable) -> None:
    # line: init
    u = ops.init((4,), F32, init_type="undef")
    # lint L8, 16 bytes: add reads 'init_out', which init at @init leaves undefined
    ops.add(w, u)


def memory_that_is_overwritten_first(w: popsr.Variable) -> None:
    u = ops.init((4,), F32, init_type="undef")
    var_updates.copy_var_update_(u, w)
    ops.add(w, u)


def memory_that_a_graph_reads(ir: popsr.Ir, x: popsr.Tensor) -> None:
    # lint L8, 16 bytes: relu reads 'init_out', which init at @init leaves undefined
    f = ir.create_graph(lambda a: ops.relu(a), x)
    # line: init
    u = ops.init((4,), F32, init_type="undef")
    ops.call(f, u)


def memory_that_a_graph_fills(ir: popsr.Ir, w: popsr.Variable) -> None:
    buffer = popsr.remote_buffer((4,), F32, 1)
    ops.remote_store(buffer, 0, w)

    def fill(a: popsr.TensorByRef) -> None:
        ops.remote_load_(buffer, 0, a)

    u = ops.init((4,), F32, init_type="undef")
    ops.call(ir.create_graph(fill, u), u)
    ops.relu(u)


def loop_whose_state_starts_undefined(ir: popsr.Ir, x: popsr.Tensor) -> None:
    # lint L8, 16 bytes: relu reads 'init_out'
    f = ir.create_graph(lambda a: ops.relu(a), x)
    u = ops.init((4,), F32, init_type="undef")
    ops.repeat(f, 2, u)


def loop_without_passes_whose_state_starts_undefined(ir: popsr.Ir, x: popsr.Tensor) -> None:
    f = ir.create_graph(lambda a: ops.relu(a), x)
    u = ops.init((4,), F32, init_type="undef")
    ops.repeat(f, 0, u)


def view_of_memory_that_nothing_was_written_to() -> None:
    # line: init
    u = ops.init((4,), F32, init_type="undef")
    # lint L8, 16 bytes: relu reads 'init_out', which init at @init leaves undefined
    ops.relu(ops.transpose_(ops.reshape_(u, (2, 2))))


def view_of_memory_that_another_view_fills() -> None:
    u = ops.init((4,), F32, init_type="undef")
    v = ops.reshape_(u, (2, 2))
    var_updates.accumulator_zero_(v)
    ops.relu(u)


def memory_that_one_branch_fills(ir: popsr.Ir) -> None:
    c = popsr.constant(True, popsr.bool)
    # line: init
    u = ops.init((4,), F32, init_type="undef")

    def filling(a: popsr.TensorByRef) -> None:
        var_updates.accumulator_zero_(a)

    fill = ir.create_graph(filling, u)
    keep = ir.create_empty_graph("keep")
    ops.conditional(c, fill, keep, [u])
    # lint L8, 16 bytes: relu reads 'init_out', which init at @init leaves undefined
    ops.relu(u)


def memory_that_both_branches_fill(ir: popsr.Ir) -> None:
    c = popsr.constant(True, popsr.bool)
    u = ops.init((4,), F32, init_type="undef")

    def filling(a: popsr.TensorByRef) -> None:
        var_updates.accumulator_zero_(a)

    fill = ir.create_graph(filling, u)
    ir.create_empty_graph("keep")
    ops.conditional(c, fill, fill, [u], [u])
    ops.relu(u)


def result_that_one_branch_makes_of_nothing(ir: popsr.Ir, w: popsr.Variable) -> None:
    c = popsr.constant(True, popsr.bool)
    u = ops.init((4,), F32, init_type="undef")

    def filling(a: popsr.TensorByRef) -> None:
        var_updates.accumulator_zero_(a)

    ir.create_graph(filling, u)
    ir.create_empty_graph("keep")
    same = ir.create_graph(lambda a: a, w)
    # lint L8, 16 bytes: relu reads 'init_out'
    ops.relu(ops.conditional(c, same, same, [w], [u])[0])


def result_of_branches_that_are_given_data(ir: popsr.Ir, x: popsr.Tensor, w: popsr.Variable) -> None:
    c = popsr.constant(True, popsr.bool)
    u = ops.init((4,), F32, init_type="undef")

    def filling(a: popsr.TensorByRef) -> None:
        var_updates.accumulator_zero_(a)

    ir.create_graph(filling, u)
    ir.create_empty_graph("keep")
    same = ir.create_graph(lambda a: a, w)
    ops.relu(ops.conditional(c, same, same, [w], [x])[0])


def entry_that_is_loaded_before_it_is_stored(w: popsr.Variable) -> None:
    buffer = popsr.remote_buffer((4,), F32, 2)
    # lint L8, 16 bytes: remote_load reads 'remote_buffer_1/1' before anything is stored there
    ops.remote_load(buffer, 1)
    ops.remote_store(buffer, 1, w)


def entry_that_is_stored_before_it_is_loaded(w: popsr.Variable) -> None:
    buffer = popsr.remote_buffer((4,), F32, 2)
    ops.remote_store(buffer, 1, w)
    ops.remote_load(buffer, 1)


def entry_that_a_graph_loads(ir: popsr.Ir) -> None:
    buffer = popsr.remote_buffer((4,), F32, 1)
    # lint L8, 16 bytes: remote_load reads 'remote_buffer_1/0'
    f = ir.create_graph(lambda: ops.remote_load(buffer, 0))
    ops.call(f)


def entry_that_holds_a_variable(ir: popsr.Ir) -> None:
    buffer = popsr.remote_buffer((4,), F32, 1)
    popsr.remote_variable(np.zeros(4, np.float32), buffer)
    f = ir.create_graph(lambda: ops.remote_load(buffer, 0))
    ops.call(f)
