"""Accumulators that every run overwrites before it reads them, in many spellings, and near misses.

Sources follow HEAD on four replicas, and accumulate what each replica loads in ``a``.
"""

from __future__ import annotations

from dataclasses import dataclass

HEAD = """\
x = ops.host_load(popsr.h2d_stream((4,), F32, "x"))
a = popsr.variable(np.zeros(4, np.float32), name="a")
zeros = popsr.constant(np.zeros(4, np.float32))
counter = popsr.variable(0.0, name="counter")
one = popsr.constant(1.0)
def mean(total: popsr.TensorByRef, count: popsr.TensorByRef, g: popsr.Tensor):
    var_updates.accumulate_mean_(total, g, count)
    ops.add_(count, popsr.constant(1.0))
def start(total: popsr.TensorByRef):
    var_updates.accumulator_zero_(total)
def keep(total: popsr.TensorByRef):
    ops.relu(total)
def grow(total: popsr.TensorByRef, g: popsr.Tensor):
    var_updates.accumulate_(total, g)
"""


@dataclass(frozen=True)
class ResetCase:
    """What ``a`` holds when a run ends differs between replicas; ``reads``: the next run reads it."""

    name: str
    source: str
    reads: bool


def _cases(reads: bool, sources: dict[str, str]) -> list[ResetCase]:
    return [ResetCase(name, source, reads) for name, source in sources.items()]


CASES = [
    *_cases(
        False,
        {
            "zeroed first": "var_updates.accumulator_zero_(a)\nvar_updates.accumulate_(a, x)",
            "scaled by the number 0": "var_updates.accumulator_scale_(a, 0.0)\nvar_updates.accumulate_(a, x)",
            "zeros copied": "var_updates.copy_var_update_(a, zeros)\nvar_updates.accumulate_(a, x)",
            "overwritten": "var_updates.copy_var_update_(a, x)",
            "overwritten in parts": "var_updates.copy_var_update_(ops.slice_(a, 0, 1), ops.slice(x, 0, 1))\n"
            "var_updates.copy_var_update_(ops.slice_(a, 1, 4), ops.slice(x, 1, 4))",
            "zeroed through a view": "var_updates.accumulator_zero_(ops.reshape_(a, (2, 2)))\n"
            "var_updates.accumulate_(a, x)",
            "running mean at step 0": "var_updates.accumulate_mean_(a, x, 0.0)",
            "running mean whose counter is zeroed last": "var_updates.accumulate_mean_(a, x, counter)\n"
            "ops.add_(counter, one)\nvar_updates.accumulate_mean_(a, x, counter)\n"
            "var_updates.accumulator_zero_(counter)",
            "running mean whose counter is zeroed first": "var_updates.copy_var_update_(counter, ops.cast("
            "popsr.constant(0, popsr.int32), F32))\nvar_updates.accumulate_mean_(a, x, counter)\n"
            "ops.add_(counter, one)",
            "running mean in a graph that is called twice": "f = ir.create_graph(mean, a, counter, x)\n"
            "ops.call(f, a, counter, x)\nops.call(f, a, counter, x)\nvar_updates.accumulator_scale_(counter, 0)",
            "running mean in a loop": "f = ir.create_graph(mean, a, counter, x)\n"
            "ops.repeat(f, 3, a, counter, x)\nvar_updates.accumulator_zero_(counter)",
            "zeroed by a graph": "ops.call(ir.create_graph(start, a), a)\n"
            "ops.call(ir.create_graph(grow, a, x), a, x)",
            "zeroed in a loop": "ops.repeat(ir.create_graph(start, a), 2, a)\nvar_updates.accumulate_(a, x)",
            "zeroed by both branches": "f = ir.create_graph(start, a)\n"
            "ops.conditional(popsr.constant(True, popsr.bool), f, f, [a], [a])\nvar_updates.accumulate_(a, x)",
            "moved to memory that is zeroed first": "buffer = popsr.remote_buffer((4,), F32, 1)\n"
            "b = popsr.remote_variable(np.zeros(4, np.float32), buffer, name='b')\n"
            "ops.remote_store(buffer, 0, zeros)\nops.remote_store(buffer, 0, x)\nvar_updates.accumulator_zero_(a)",
        },
    ),
    *_cases(
        True,
        {
            "never zeroed": "var_updates.accumulate_(a, x)",
            "zeroed after it was read": "ops.relu(a)\nvar_updates.accumulator_zero_(a)\nvar_updates.accumulate_(a, x)",
            "stored for the host first": "out = popsr.d2h_stream((4,), F32)\nops.host_store(out, a)\n"
            "var_updates.copy_var_update_(a, x)",
            "printed first": "ops.print_tensor(a)\nvar_updates.copy_var_update_(a, x)",
            "scaled by a number that is not 0": "var_updates.accumulator_scale_(a, 0.5)\n"
            "var_updates.accumulate_(a, x)",
            "moving average": "var_updates.accumulate_moving_average_(a, x, 0.9)",
            "running mean at step 1": "var_updates.accumulate_mean_(a, x, 1.0)",
            "running mean whose counter goes on": "var_updates.accumulate_mean_(a, x, counter)\n"
            "ops.add_(counter, one)",
            "running mean whose counter starts at 1": "c = popsr.variable(1.0, name='c')\n"
            "var_updates.accumulate_mean_(a, x, c)\nvar_updates.copy_var_update_(c, one)",
            "running mean whose counter is zeroed too early": "var_updates.accumulator_zero_(counter)\n"
            "ops.add_(counter, one)\nvar_updates.accumulate_mean_(a, x, counter)",
            "zeroed in part": "var_updates.accumulator_zero_(ops.slice_(a, 0, 3))\nvar_updates.accumulate_(a, x)",
            "zeroed by one branch": "ops.conditional(popsr.constant(True, popsr.bool), ir.create_graph(start, a), "
            "ir.create_graph(keep, a), [a], [a])\nvar_updates.accumulate_(a, x)",
            "zeroed by a loop of no passes": "ops.repeat(ir.create_graph(start, a), 0, a)\n"
            "var_updates.accumulate_(a, x)",
            "zeroed in a copy": "var_updates.accumulator_zero_(ops.identity(a))\nvar_updates.accumulate_(a, x)",
            "read by a loop before it is zeroed": "def both(total: popsr.TensorByRef, g: popsr.Tensor):\n"
            "    var_updates.accumulate_(total, g)\n    start(total)\n"
            "ops.repeat(ir.create_graph(both, a, x), 2, a, x)\nvar_updates.accumulate_(a, x)",
        },
    ),
]
