"""Small programs with a question each: is a tensor equal on two replicas, and what is the whole answer?

Programs are run as files named program.py, so line 1 is the first line after the opening quotes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import popsr
from popsr import ops, transforms
from popsr.ops import collectives, var_updates

NAMES = {
    "np": np,
    "popsr": popsr,
    "ops": ops,
    "transforms": transforms,
    "collectives": collectives,
    "var_updates": var_updates,
    "F32": popsr.float32,
}


GOLDEN: dict[str, str] = dict(
    section.strip().split("\n", 1)
    for section in (Path(__file__).parent / "explain_golden.txt").read_text().split("== ")[1:]
)


@dataclass(frozen=True)
class ExplainCase:
    name: str
    replicas: int
    source: str
    """Inside the main graph and in_sequence; sees ``ir`` and NAMES, and defines ``t``."""
    pair: tuple[int, int]
    root: str | None

    @property
    def expect(self) -> str:
        """The answer, from explain_golden.txt."""
        return GOLDEN[self.name]


def build(replicas: int, source: str) -> tuple[popsr.Ir, dict[str, Any]]:
    """The program of a source, and what it defined."""
    ir = popsr.Ir(replication=replicas)
    scope: dict[str, Any] = {**NAMES, "ir": ir}
    with ir.main_graph, popsr.in_sequence():
        exec(compile(source, "program.py", "exec"), scope)
    return ir, scope


CASES = (
    ExplainCase(
        "an update that nobody reduced",
        4,
        """\
w = popsr.variable(np.zeros((4, 4), np.float32), name="w")
x = ops.host_load(popsr.h2d_stream((4, 4), F32, "x"))
g = ops.matmul(ops.transpose(x), x)
var_updates.accumulate_(w, g, 0.1)
t = ops.relu(w)
""",
        (0, 2),
        "stream",
    ),
    ExplainCase(
        "the pair moves through collectives",
        8,
        """\
x = ops.host_load(popsr.h2d_stream((4,), F32, "x"))
pairs = collectives.replicated_all_reduce(x, "add", ir.replica_grouping(1, 2))
t = collectives.replicated_all_reduce(pairs, "mean", ir.replica_grouping(2, 2))
""",
        (1, 6),
        "stream",
    ),
    ExplainCase(
        "groups of a variable",
        4,
        """\
v = popsr.variable(np.zeros((2, 4), np.float32), name="v", replica_grouping=ir.replica_grouping(1, 2))
w = popsr.variable(np.zeros(4, np.float32), name="w")
t = ops.add(w, v)
""",
        (1, 2),
        "variable",
    ),
    ExplainCase(
        "into a called graph and out of it",
        4,
        """\
x = ops.host_load(popsr.h2d_stream((4,), F32, "x"))
w = popsr.variable(np.zeros(4, np.float32), name="w")

def layer(a, b):
    return ops.tanh(ops.mul(a, b))

def block(a, b):
    return ops.call(inner, b, a)

inner = ir.create_graph(layer, x, w)
outer = ir.create_graph(block, w, x)
t, = ops.call(outer, w, x)
""",
        (0, 3),
        "stream",
    ),
    ExplainCase(
        "a carried value that falls in a later iteration",
        4,
        """\
def shift(a, b, c):
    return b, c, c

zero = popsr.constant(np.zeros(4, np.float32), name="zero")
x = ops.host_load(popsr.h2d_stream((4,), F32, "x"))
t, _, _ = ops.repeat(ir.create_graph(shift, zero, zero, zero), 3, zero, zero, x)
""",
        (1, 2),
        "stream",
    ),
    ExplainCase(
        "what the run before left",
        4,
        """\
a = popsr.variable(np.zeros(4, np.float32), name="a")
b = popsr.variable(np.zeros(4, np.float32), name="b")
t = ops.relu(a)
var_updates.copy_var_update_(a, b)
var_updates.copy_var_update_(b, ops.host_load(popsr.h2d_stream((4,), F32, "x")))
""",
        (0, 1),
        "stream",
    ),
    ExplainCase(
        "through remote memory",
        4,
        """\
buffer = popsr.remote_buffer((4,), F32, 3)
x = ops.host_load(popsr.h2d_stream((4,), F32, "x"))
ops.remote_store(buffer, 1, x)
y = ops.remote_load(buffer, 1)
t = ops.add(y, ops.remote_load(buffer, 2))
""",
        (0, 1),
        "stream",
    ),
    ExplainCase(
        "writes in place, by reference",
        2,
        """\
x = ops.host_load(popsr.h2d_stream((4,), F32, "x"))
w = popsr.variable(np.zeros(4, np.float32), name="w")

def update(total: popsr.TensorByRef, a: popsr.Tensor):
    ops.add_(total, ops.relu(a))

ops.call(ir.create_graph(update, w, x), w, x)
t = ops.tanh(w)
""",
        (0, 1),
        "stream",
    ),
    ExplainCase(
        "memory that nothing was written to",
        2,
        """\
w = popsr.variable(np.zeros(4, np.float32), name="w")
u = ops.init((4,), F32, init_type="undef")
t = ops.add(w, u)
""",
        (0, 1),
        "uninitialised",
    ),
    ExplainCase(
        "gradients carry the lines of their forward ops",
        4,
        """\
x = ops.host_load(popsr.h2d_stream((4, 4), F32, "x"))
w = popsr.variable(np.zeros((4, 4), np.float32), name="w")

def loss(x, w):
    h = ops.matmul(x, w)
    h = ops.tanh(h)
    return ops.sum(h)

graph = ir.create_graph(loss, x, w)
gradient = transforms.autodiff(graph, grads_required=[graph.inputs[1]])
forward = ops.call_with_info(graph, x, w)
t, = ops.call(gradient.graph, 1.0, inputs_dict=gradient.inputs_dict(forward))
""",
        (2, 3),
        "stream",
    ),
    ExplainCase(
        "ops of a module",
        4,
        """\
class Linear(popsr.Module):
    def build(self, x, w):
        return ops.matmul(x, w)

x = ops.host_load(popsr.h2d_stream((4, 4), F32, "x"))
w = popsr.variable(np.zeros((4, 4), np.float32), name="w")
t, = ops.call(ir.create_graph(Linear(), x, w), x, w)
""",
        (0, 1),
        "stream",
    ),
    ExplainCase(
        "parts of a reduce-scatter",
        4,
        """\
w = popsr.variable(np.zeros(4, np.float32), name="w")
t = collectives.replicated_reduce_scatter(w, "mean")
""",
        (0, 1),
        "part",
    ),
    ExplainCase(
        "a sharded variable",
        4,
        """\
whole, shard = popsr.replica_sharded_variable(np.zeros(8, np.float32), name="w")
t = ops.relu(shard)
""",
        (2, 3),
        "variable",
    ),
    ExplainCase(
        "a part of merged collectives",
        4,
        """\
x = ops.host_load(popsr.h2d_stream((4,), F32, "x"))
y = ops.host_load(popsr.h2d_stream((4,), F32, "y"))
pairs = ir.replica_grouping(1, 2)
a = collectives.replicated_all_reduce(x, "add", pairs)
b = collectives.replicated_all_reduce(ops.relu(y), "add", pairs)
t = ops.tanh(b)
transforms.merge_collectives(ir)
""",
        (0, 3),
        "stream",
    ),
    ExplainCase(
        "the pair moves to those who sent",
        4,
        """\
x = ops.host_load(popsr.h2d_stream((4,), F32, "x"))
b = collectives.replicated_broadcast(x, 1, ir.replica_grouping(1, 2))
t = collectives.replicated_permute(b, [(0, 2), (1, 3), (2, 0), (3, 1)])
""",
        (0, 2),
        "stream",
    ),
    ExplainCase(
        "replicas that nobody sends to",
        4,
        """\
w = popsr.variable(np.zeros(4, np.float32), name="w")
t = ops.relu(collectives.replicated_permute(w, [(0, 1), (1, 2), (2, 3)]))
""",
        (0, 2),
        "zeros",
    ),
    ExplainCase(
        "the index of a replica",
        4,
        """\
i = ops.replica_index(ir.replica_grouping(1, 2))
t = ops.cast(i, F32)
""",
        (2, 3),
        "own_value",
    ),
    ExplainCase(
        "branches that replicas do not take together",
        4,
        """\
c = ops.host_load(popsr.h2d_stream((), popsr.bool, "c"))
w = popsr.variable(np.zeros(4, np.float32), name="w")

def update(total: popsr.TensorByRef):
    ops.add_(total, ops.tanh(total))

def keep():
    pass

ops.conditional(c, ir.create_graph(update, w), ir.create_graph(keep), [w])
t = ops.relu(w)
""",
        (0, 3),
        "divergence",
    ),
    ExplainCase(
        "through a branch that all take or none",
        4,
        """\
c = ops.host_load(popsr.h2d_stream((), popsr.bool, "c", replicated_stream_mode="broadcast"))
x = ops.host_load(popsr.h2d_stream((4,), F32, "x"))
w = popsr.variable(np.zeros(4, np.float32), name="w")

def twice(a):
    return ops.add(a, a)

def same(a):
    return a

t, = ops.conditional(c, ir.create_graph(same, w), ir.create_graph(twice, x), [w], [x])
""",
        (1, 2),
        "stream",
    ),
    ExplainCase(
        "a branch that leaves it alone, in a loop",
        4,
        """\
c = ops.host_load(popsr.h2d_stream((), popsr.bool, "c", replicated_stream_mode="broadcast"))
x = ops.host_load(popsr.h2d_stream((4,), F32, "x"))
w = popsr.variable(np.zeros(4, np.float32), name="w")

def clear(total: popsr.TensorByRef):
    var_updates.accumulator_zero_(total)

def keep():
    pass

def step(total: popsr.TensorByRef, a: popsr.Tensor, c: popsr.Tensor):
    ops.add_(total, a)
    ops.conditional(c, ir.create_graph(clear, w), ir.create_graph(keep), [total])

ops.repeat(ir.create_graph(step, w, x, c), 2, w, x, c)
t = ops.relu(w)
""",
        (0, 1),
        "stream",
    ),
    ExplainCase(
        "loads that some replicas skip",
        4,
        """\
c = ops.host_load(popsr.h2d_stream((), popsr.bool, "c"))
b = popsr.h2d_stream((4,), F32, "b", replicated_stream_mode="broadcast")
take = ir.create_graph(lambda: ops.host_load(b))
zero = ir.create_graph(lambda: ops.init((4,), F32))
ops.conditional(c, take, zero)
t = ops.relu(ops.host_load(b))
""",
        (0, 1),
        "position",
    ),
    ExplainCase(
        "seeds that differ where values are equal",
        4,
        """\
ir.options.enable_stochastic_rounding = True
ir.options.stochastic_rounding_mode = "popart"
x = ops.host_load(popsr.h2d_stream((4,), popsr.bfloat16, "x"))
w = popsr.variable(np.zeros(4, np.float32), popsr.bfloat16, name="w")
var_updates.accumulate_(w, x, 0.0)
t = ops.relu(w)
transforms.stochastic_rounding(ir)
""",
        (0, 1),
        "seeds",
    ),
    ExplainCase(
        "a view of what differs, beside a part that was cleared",
        4,
        """\
w = popsr.variable(np.zeros(4, np.float32), name="w")
x, y = [ops.host_load(popsr.h2d_stream((2,), F32, name)) for name in "xy"]
a, b = ops.slice_(w, 0, 2), ops.slice_(w, 2, 4)
var_updates.copy_var_update_(b, y)
var_updates.copy_var_update_(a, x)
var_updates.accumulator_zero_(a)
t = ops.relu(ops.reshape_(w, (2, 2)))
""",
        (0, 1),
        "stream",
    ),
    ExplainCase(
        "replicas that are equal",
        4,
        """\
x = ops.host_load(popsr.h2d_stream((4,), F32, "x"))
t = collectives.replicated_all_reduce(x, "add", ir.replica_grouping(1, 2))
""",
        (2, 3),
        None,
    ),
)
