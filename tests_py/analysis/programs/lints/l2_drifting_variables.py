"""L2: variables that drift: a run leaves them less equal than they are declared.

Programs without a comment ``lint`` are near misses.
"""

import numpy as np

import popsr
from popsr import ops
from popsr.ops import collectives, var_updates

F32 = popsr.float32


def _rows(ir: popsr.Ir) -> popsr.Variable:
    """A variable with a value for each pair of replicas."""
    return popsr.variable(
        np.zeros((2, 4), np.float32), name="rows", replica_grouping=ir.replica_grouping(1, 2)
    )


def update_that_differs(x: popsr.Tensor, w: popsr.Variable) -> None:
    # lint L2, 48 bytes: 'w' is declared equal on all replicas, but a run leaves it equal nowhere: stream 'x' gives each
    #     replica data of its own; replicated_all_reduce('x_load'
    var_updates.accumulate_(w, x)


def update_that_is_undone(x: popsr.Tensor, w: popsr.Variable) -> None:
    var_updates.accumulate_(w, x)
    var_updates.accumulator_zero_(w)


def groups_that_are_kept_partly(ir: popsr.Ir, w: popsr.Variable) -> None:
    # lint L2, 16 bytes: 'w' is declared equal on all replicas, but a run leaves it equal inside {0,1},{2,3}: 'rows' is
    #     declared
    var_updates.accumulate_(w, _rows(ir))


def groups_that_are_kept(ir: popsr.Ir, x: popsr.Tensor) -> None:
    rows = _rows(ir)
    var_updates.accumulate_(rows, collectives.replicated_all_reduce(x, "add", ir.replica_grouping(1, 2)))


def shard_that_differs_across_its_groups(x: popsr.Tensor) -> None:
    _whole, shard = popsr.replica_sharded_variable(np.zeros(4, np.float32), name="s", shard_over=2)
    # lint L2, 16 bytes: 's' is declared equal inside {0,2},{1,3}, but a run leaves it equal nowhere
    var_updates.accumulate_(shard, ops.slice(x, 0, 2))


def shard_updated_with_its_own_value() -> None:
    _whole, shard = popsr.replica_sharded_variable(np.zeros(4, np.float32), name="s", shard_over=2)
    var_updates.copy_var_update_(shard, ops.relu(shard))


def part_that_is_written_through_a_view(x: popsr.Tensor, w: popsr.Variable) -> None:
    # lint L2, 48 bytes: 'w' is declared equal on all replicas, but a run leaves it equal nowhere: stream 'x' gives each
    #     replica
    var_updates.copy_var_update_(ops.slice_(w, 0, 2), ops.slice(x, 0, 2))


def part_written_through_a_view_and_cleared(x: popsr.Tensor, w: popsr.Variable) -> None:
    part = ops.slice_(w, 0, 2)
    var_updates.copy_var_update_(part, ops.slice(x, 0, 2))
    var_updates.accumulator_zero_(part)
