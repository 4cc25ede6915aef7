"""Accumulators that every run overwrites before it reads them, in many spellings, and near misses, which drift."""

import numpy as np

import popsr
from popsr import ops
from popsr.ops import var_updates

F32 = popsr.float32


def _mean(total: popsr.TensorByRef, count: popsr.TensorByRef, g: popsr.Tensor) -> None:
    var_updates.accumulate_mean_(total, g, count)
    ops.add_(count, popsr.constant(1.0))


def _start(total: popsr.TensorByRef) -> None:
    var_updates.accumulator_zero_(total)


def _keep(total: popsr.TensorByRef) -> None:
    ops.relu(total)


def _grow(total: popsr.TensorByRef, g: popsr.Tensor) -> None:
    var_updates.accumulate_(total, g)


def zeroed_first(x: popsr.Tensor, a: popsr.Variable) -> None:
    var_updates.accumulator_zero_(a)
    var_updates.accumulate_(a, x)


def scaled_by_the_number_0(x: popsr.Tensor, a: popsr.Variable) -> None:
    var_updates.accumulator_scale_(a, 0.0)
    var_updates.accumulate_(a, x)


def zeros_copied(x: popsr.Tensor, a: popsr.Variable, zeros: popsr.Tensor) -> None:
    var_updates.copy_var_update_(a, zeros)
    var_updates.accumulate_(a, x)


def overwritten(x: popsr.Tensor, a: popsr.Variable) -> None:
    var_updates.copy_var_update_(a, x)


def overwritten_in_parts(x: popsr.Tensor, a: popsr.Variable) -> None:
    var_updates.copy_var_update_(ops.slice_(a, 0, 1), ops.slice(x, 0, 1))
    var_updates.copy_var_update_(ops.slice_(a, 1, 4), ops.slice(x, 1, 4))


def zeroed_through_a_view(x: popsr.Tensor, a: popsr.Variable) -> None:
    var_updates.accumulator_zero_(ops.reshape_(a, (2, 2)))
    var_updates.accumulate_(a, x)


def running_mean_at_step_0(x: popsr.Tensor, a: popsr.Variable) -> None:
    var_updates.accumulate_mean_(a, x, 0.0)


def running_mean_whose_counter_is_zeroed_last(
    x: popsr.Tensor, a: popsr.Variable, counter: popsr.Variable, one: popsr.Tensor
) -> None:
    var_updates.accumulate_mean_(a, x, counter)
    ops.add_(counter, one)
    var_updates.accumulate_mean_(a, x, counter)
    var_updates.accumulator_zero_(counter)


def running_mean_whose_counter_is_zeroed_first(
    x: popsr.Tensor, a: popsr.Variable, counter: popsr.Variable, one: popsr.Tensor
) -> None:
    var_updates.copy_var_update_(counter, ops.cast(popsr.constant(0, popsr.int32), F32))
    var_updates.accumulate_mean_(a, x, counter)
    ops.add_(counter, one)


def running_mean_in_a_graph_that_is_called_twice(
    ir: popsr.Ir, x: popsr.Tensor, a: popsr.Variable, counter: popsr.Variable
) -> None:
    f = ir.create_graph(_mean, a, counter, x)
    ops.call(f, a, counter, x)
    ops.call(f, a, counter, x)
    var_updates.accumulator_scale_(counter, 0)


def running_mean_in_a_loop(ir: popsr.Ir, x: popsr.Tensor, a: popsr.Variable, counter: popsr.Variable) -> None:
    f = ir.create_graph(_mean, a, counter, x)
    ops.repeat(f, 3, a, counter, x)
    var_updates.accumulator_zero_(counter)


def zeroed_by_a_graph(ir: popsr.Ir, x: popsr.Tensor, a: popsr.Variable) -> None:
    ops.call(ir.create_graph(_start, a), a)
    ops.call(ir.create_graph(_grow, a, x), a, x)


def zeroed_in_a_loop(ir: popsr.Ir, x: popsr.Tensor, a: popsr.Variable) -> None:
    ops.repeat(ir.create_graph(_start, a), 2, a)
    var_updates.accumulate_(a, x)


def zeroed_by_both_branches(ir: popsr.Ir, x: popsr.Tensor, a: popsr.Variable) -> None:
    f = ir.create_graph(_start, a)
    ops.conditional(popsr.constant(True, popsr.bool), f, f, [a], [a])
    var_updates.accumulate_(a, x)


def moved_to_memory_that_is_zeroed_first(x: popsr.Tensor, a: popsr.Variable, zeros: popsr.Tensor) -> None:
    buffer = popsr.remote_buffer((4,), F32, 1)
    popsr.remote_variable(np.zeros(4, np.float32), buffer, name="b")
    ops.remote_store(buffer, 0, zeros)
    ops.remote_store(buffer, 0, x)
    # expect a: {0,1,2,3}
    var_updates.accumulator_zero_(a)


def never_zeroed(x: popsr.Tensor, a: popsr.Variable) -> None:
    # drifts: a
    var_updates.accumulate_(a, x)


def zeroed_after_it_was_read(x: popsr.Tensor, a: popsr.Variable) -> None:
    ops.relu(a)
    var_updates.accumulator_zero_(a)
    # drifts: a
    var_updates.accumulate_(a, x)


def stored_for_the_host_first(x: popsr.Tensor, a: popsr.Variable) -> None:
    out = popsr.d2h_stream((4,), F32)
    ops.host_store(out, a)
    # drifts: a
    var_updates.copy_var_update_(a, x)


def printed_first(x: popsr.Tensor, a: popsr.Variable) -> None:
    ops.print_tensor(a)
    # drifts: a
    var_updates.copy_var_update_(a, x)


def scaled_by_a_number_that_is_not_0(x: popsr.Tensor, a: popsr.Variable) -> None:
    var_updates.accumulator_scale_(a, 0.5)
    # drifts: a
    var_updates.accumulate_(a, x)


def moving_average(x: popsr.Tensor, a: popsr.Variable) -> None:
    # drifts: a
    var_updates.accumulate_moving_average_(a, x, 0.9)


def running_mean_at_step_1(x: popsr.Tensor, a: popsr.Variable) -> None:
    # drifts: a
    var_updates.accumulate_mean_(a, x, 1.0)


def running_mean_whose_counter_goes_on(
    x: popsr.Tensor, a: popsr.Variable, counter: popsr.Variable, one: popsr.Tensor
) -> None:
    # drifts: a
    var_updates.accumulate_mean_(a, x, counter)
    ops.add_(counter, one)


def running_mean_whose_counter_starts_at_1(x: popsr.Tensor, a: popsr.Variable, one: popsr.Tensor) -> None:
    c = popsr.variable(1.0, name="c")
    # drifts: a
    var_updates.accumulate_mean_(a, x, c)
    var_updates.copy_var_update_(c, one)


def running_mean_whose_counter_is_zeroed_too_early(
    x: popsr.Tensor, a: popsr.Variable, counter: popsr.Variable, one: popsr.Tensor
) -> None:
    var_updates.accumulator_zero_(counter)
    ops.add_(counter, one)
    # drifts: a
    var_updates.accumulate_mean_(a, x, counter)


def zeroed_in_part(x: popsr.Tensor, a: popsr.Variable) -> None:
    var_updates.accumulator_zero_(ops.slice_(a, 0, 3))
    # drifts: a
    var_updates.accumulate_(a, x)


def zeroed_by_one_branch(ir: popsr.Ir, x: popsr.Tensor, a: popsr.Variable) -> None:
    ops.conditional(
        popsr.constant(True, popsr.bool), ir.create_graph(_start, a), ir.create_graph(_keep, a), [a], [a]
    )
    # drifts: a
    var_updates.accumulate_(a, x)


def zeroed_by_a_loop_of_no_passes(ir: popsr.Ir, x: popsr.Tensor, a: popsr.Variable) -> None:
    ops.repeat(ir.create_graph(_start, a), 0, a)
    # drifts: a
    var_updates.accumulate_(a, x)


def zeroed_in_a_copy(x: popsr.Tensor, a: popsr.Variable) -> None:
    var_updates.accumulator_zero_(ops.identity(a))
    # drifts: a
    var_updates.accumulate_(a, x)


def read_by_a_loop_before_it_is_zeroed(ir: popsr.Ir, x: popsr.Tensor, a: popsr.Variable) -> None:
    def both(total: popsr.TensorByRef, g: popsr.Tensor) -> None:
        var_updates.accumulate_(total, g)
        _start(total)

    ops.repeat(ir.create_graph(both, a, x), 2, a, x)
    # drifts: a
    var_updates.accumulate_(a, x)
