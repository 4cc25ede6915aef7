"""For each lint programs where it fires and near misses where it must not, with what it costs."""

from __future__ import annotations

from dataclasses import dataclass

HEAD = """\
x = ops.host_load(popsr.h2d_stream((4,), F32, "x"))
w = popsr.variable(np.zeros(4, np.float32), name="w")
"""
PAIRS = "ir.replica_grouping(1, 2)"
ROWS = f'popsr.variable(np.zeros((2, 4), np.float32), name="rows", replica_grouping={PAIRS})'

BY_REFERENCE = "def f(a: popsr.TensorByRef):\n    ops.relu_(a)\ng = ir.create_graph(f, w)\n"
UNORDERED_GRAPH = """\
def f(a):
    with popsr.in_sequence('pass'):
        b = ops.relu(a)
        ops.relu_(b)
        ops.tanh(b)
g = ir.create_graph(f, w)
"""

BRANCHES = """\
reduce = ir.create_graph(lambda a: collectives.replicated_all_reduce(a, 'max'), w)
same = ir.create_graph(lambda a: ops.relu(a), w)
own, shared = [
    ops.host_load(popsr.h2d_stream((), popsr.bool, name, replicated_stream_mode=mode))
    for name, mode in (('own', 'replicate'), ('shared', 'broadcast'))]
"""
FILLED = """\
c = popsr.constant(True, popsr.bool)
u = ops.init((4,), F32, init_type='undef')
def filling(a: popsr.TensorByRef):
    var_updates.accumulator_zero_(a)
fill = ir.create_graph(filling, u)
keep = ir.create_empty_graph('keep')
"""
PAIRED = f"""\
inner = ir.create_graph(lambda a: collectives.replicated_all_reduce(a, 'max', pairs), w)
outer = ir.create_graph(lambda a: ops.call(inner, a)[0], w)
c = ops.cast(ops.slice({ROWS}, 0, 1), popsr.bool)
ops.conditional(c, outer, ir.create_graph(lambda a: ops.relu(a), w), [w], [w])
"""


@dataclass(frozen=True)
class LintCase:
    """Sources follow HEAD on four replicas; the lint that fires has this cost, unit, line and text."""

    code: str
    name: str
    fires: str
    misses: str
    cost: int
    unit: str
    line: int
    text: str


CASES = (
    LintCase(
        "L1",
        "a collective that some members may skip, and one that all take or none",
        f"{BRANCHES}ops.conditional(own, reduce, same, [w], [w])",
        f"{BRANCHES}ops.conditional(shared, reduce, same, [w], [w])",
        1,
        "groups",
        3,
        "replicated_all_reduce needs all members of a group, but conditional at program.py:8 parts them by its "
        "condition 'own_load', so that only {0}{1}{2}{3} certainly run it together: 1 of 1 groups may not meet; take "
        "it out of there",
    ),
    LintCase(
        "L1",
        "groups that may part inside a call in a branch, and groups that stay together",
        f"pairs = {PAIRS}.transpose()\n{PAIRED}",
        f"pairs = {PAIRS}\n{PAIRED}",
        2,
        "groups",
        4,
        "conditional at program.py:7 parts them by its condition 'cast_out', so that only {0,1}{2,3} certainly run "
        "it together: 2 of 2 groups may not meet",
    ),
    LintCase(
        "L1",
        "a part of a merged collective, and parts that need nobody",
        f"{BRANCHES}both = ir.create_graph(lambda a: ops.add(collectives.replicated_all_reduce(a), "
        "collectives.replicated_all_reduce(ops.relu(a), 'add', ir.replica_grouping(1, 1))), w)\n"
        "ops.conditional(own, both, same, [w], [w])\ntransforms.merge_collectives(ir)",
        f"{BRANCHES}part = ir.create_graph(lambda a: ops.add(a, collectives.replicated_slice(a)), w)\n"
        "ops.conditional(own, part, same, [w], [w])",
        1,
        "groups",
        8,
        "replicated_all_reduce needs all members of a group, but conditional at program.py:9 parts them",
    ),
    LintCase(
        "L1",
        "a stream that some replicas may skip, and one in a branch that all take or none",
        f"{BRANCHES}load = ir.create_graph(lambda a: ops.host_load(popsr.h2d_stream((4,), F32, 'y')), w)\n"
        "ops.conditional(own, load, same, [w], [w])",
        f"{BRANCHES}load = ir.create_graph(lambda a: ops.host_load(popsr.h2d_stream((4,), F32, 'y')), w)\n"
        "ops.conditional(shared, load, same, [w], [w])",
        1,
        "groups",
        8,
        "host_load moves on in its stream, but conditional at program.py:9 parts them by its condition 'own_load', so "
        "that only {0}{1}{2}{3} certainly run it together: replicas that skip it stay behind the others",
    ),
    LintCase(
        "L2",
        "an update that differs, and one that is undone",
        "var_updates.accumulate_(w, x)",
        "var_updates.accumulate_(w, x)\nvar_updates.accumulator_zero_(w)",
        3 * 16,  # three more copies of four floats
        "bytes",
        3,
        "'w' is declared equal on all replicas, but a run leaves it equal nowhere: stream 'x' gives each replica "
        "data of its own; replicated_all_reduce('x_load'",
    ),
    LintCase(
        "L2",
        "groups that are kept partly, and groups that are kept",
        f"var_updates.accumulate_(w, {ROWS})",
        f"rows = {ROWS}\nvar_updates.accumulate_(rows, collectives.replicated_all_reduce(x, 'add', {PAIRS}))",
        16,
        "bytes",
        3,
        "'w' is declared equal on all replicas, but a run leaves it equal inside {0,1},{2,3}: 'rows' is declared",
    ),
    LintCase(
        "L2",
        "a shard that differs across its groups, and one of its own value",
        "whole, shard = popsr.replica_sharded_variable(np.zeros(4, np.float32), name='s', shard_over=2)\n"
        "var_updates.accumulate_(shard, ops.slice(x, 0, 2))",
        "whole, shard = popsr.replica_sharded_variable(np.zeros(4, np.float32), name='s', shard_over=2)\n"
        "var_updates.copy_var_update_(shard, ops.relu(shard))",
        2 * 8,
        "bytes",
        4,
        "'s' is declared equal inside {0,2},{1,3}, but a run leaves it equal nowhere",
    ),
    LintCase(
        "L2",
        "a part that is written through a view, and one that is cleared after that",
        "var_updates.copy_var_update_(ops.slice_(w, 0, 2), ops.slice(x, 0, 2))",
        "part = ops.slice_(w, 0, 2)\nvar_updates.copy_var_update_(part, ops.slice(x, 0, 2))\n"
        "var_updates.accumulator_zero_(part)",
        3 * 16,
        "bytes",
        3,
        "'w' is declared equal on all replicas, but a run leaves it equal nowhere: stream 'x' gives each replica",
    ),
    LintCase(
        "L3",
        "one of a group is read, and all of it",
        "var_updates.accumulate_(w, x)",
        "v = popsr.variable(np.zeros(4, np.float32), name='v', retrieval_mode='all_replicas')\n"
        "var_updates.accumulate_(v, x)",
        3,
        "replicas",
        3,
        "one value per group is read back, but replicas 0 and 1 of one group of 'w' are not proved equal; the "
        "value of replica 0 stands for its group and 3 of 4 replicas are not seen",
    ),
    LintCase(
        "L4",
        "calls that disagree, and calls that agree",
        "f = ir.create_graph(lambda a: ops.tanh(ops.relu(a)), w)\nops.call(f, w)\nops.call(f, x)",
        "f = ir.create_graph(lambda a: ops.tanh(ops.relu(a)), w)\nops.call(f, w)\nops.call(f, ops.relu(w))",
        2,
        "values",
        5,
        "call sites of graph '<lambda>_subgraph(0)' disagree: '<lambda>_subgraph(0)/a' equal nowhere against equal "
        "on all replicas at program.py:4; 2 values of it",
    ),
    LintCase(
        "L4",
        "calls that disagree, and one call in contexts that differ for another reason",
        "f = ir.create_graph(lambda a: ops.relu(a), w)\nops.call(f, x)\nops.repeat(f, 2, w)",
        # Only the outer graph's call sites disagree.
        "f = ir.create_graph(lambda a: ops.relu(a), w)\n"
        "g = ir.create_graph(lambda a: ops.call(f, a)[0], w)\nops.call(g, ops.add(x, x))",
        1,
        "values",
        5,
        "disagree: '<lambda>_subgraph(0)/a' equal on all replicas against equal nowhere at program.py:4",
    ),
    LintCase(
        "L4",
        "branches that run one graph on values that differ, and on equal ones",
        "c = popsr.constant(True, popsr.bool)\nf = ir.create_graph(lambda a: ops.relu(a), w)\n"
        "ops.conditional(c, f, f, [w], [x])",
        "c = popsr.constant(True, popsr.bool)\nf = ir.create_graph(lambda a: ops.relu(a), w)\n"
        "ops.conditional(c, f, f, [w], [ops.tanh(w)])",
        1,
        "values",
        5,
        "call sites of graph '<lambda>_subgraph(0)' disagree: '<lambda>_subgraph(0)/a' equal nowhere against equal on "
        "all replicas at program.py:5",
    ),
    LintCase(
        "L5",
        "one seed for values that differ, and for values that are equal",
        "ir.options.enable_stochastic_rounding = True\nir.options.stochastic_rounding_mode = 'identical'\n"
        "ops.cast(x, popsr.bfloat16)\ntransforms.stochastic_rounding(ir)",
        "ir.options.enable_stochastic_rounding = True\nir.options.stochastic_rounding_mode = 'identical'\n"
        "ops.cast(w, popsr.bfloat16)\ntransforms.stochastic_rounding(ir)",
        3,
        "seeds",
        5,
        "cast rounds 'cast_out' with 1 seed, but 4 could differ",
    ),
    LintCase(
        "L6",
        "a sum of equal values, and of values that differ",
        "collectives.replicated_all_reduce(w, 'add')",
        "collectives.replicated_all_reduce(x, 'add')",
        4,
        "times",
        3,
        "replicated_all_reduce 'add' over groups of 4 takes each value of 'w' 4 times",
    ),
    LintCase(
        "L6",
        "a sum that counts pairs twice, and the sum across the pairs",
        f"p = collectives.replicated_all_reduce(x, 'add', {PAIRS})\ncollectives.replicated_all_reduce(p, 'add')",
        f"p = collectives.replicated_all_reduce(x, 'add', {PAIRS})\n"
        f"collectives.replicated_all_reduce(p, 'add', {PAIRS}.transpose())",
        2,
        "times",
        4,
        "takes each value of 'replicated_all_reduce_out' 2 times",
    ),
    LintCase(
        "L6",
        "a gather of equal values, and of grouped ones across their groups",
        "collectives.replicated_all_gather(w)",
        f"collectives.replicated_all_gather({ROWS}, 0, {PAIRS}.transpose())",
        3 * 16,
        "bytes",
        3,
        "replicated_all_gather 'gather' over groups of 4 exchanges 'w', 1 distinct value in a group: 48 bytes",
    ),
    LintCase(
        "L6",
        "a mean of values that are equal in pairs, and a mean of values that differ",
        f"collectives.replicated_all_reduce({ROWS}, 'mean')",
        "collectives.replicated_all_reduce(x, 'mean')",
        2 * 16,
        "bytes",
        3,
        "exchanges 'rows', 2 distinct values in a group: 32 bytes",
    ),
    LintCase(
        "L6",
        "a broadcast of equal values, and one of values that are equal in pairs",
        "collectives.replicated_broadcast(w)",
        f"collectives.replicated_broadcast({ROWS})",
        16,
        "bytes",
        3,
        "replicated_broadcast over groups of 4 sends 'w' to replicas that hold it: 16 bytes for each replica in vain",
    ),
    LintCase(
        "L6",
        "a part of merged sums that is of equal values, and parts that are not",
        "y = ops.relu(x)\ncollectives.replicated_all_reduce(x)\ncollectives.replicated_all_reduce(w)\n"
        "transforms.merge_collectives(ir)",
        "y = ops.relu(x)\ncollectives.replicated_all_reduce(x)\ncollectives.replicated_all_reduce(y)\n"
        "transforms.merge_collectives(ir)",
        4,
        "times",
        5,
        "replicated_all_reduce 'add' over groups of 4 takes each value of 'w' 4 times",
    ),
    LintCase(
        "L6",
        "a sum in parallel layers of equal values, and of parts of a product",
        "collectives.replicated_all_reduce_identical_grad_inputs(w)",
        "collectives.replicated_all_reduce_identical_grad_inputs(ops.mul(w, x))",
        4,
        "times",
        3,
        "takes each value of 'w' 4 times",
    ),
    LintCase(
        "L7",
        "an update of pairs that is reduced over all, and over the pairs",
        f"rows = {ROWS}\n"
        "g = ops.mul(collectives.replicated_all_reduce(ops.mul(x, x), 'add'), popsr.constant(0.1))\n"
        "var_updates.accumulate_(rows, g)",
        f"rows = {ROWS}\n"
        f"g = ops.mul(collectives.replicated_all_reduce(ops.mul(x, x), 'add', {PAIRS}), popsr.constant(0.1))\n"
        "var_updates.accumulate_(rows, g)",
        2,
        "replicas",
        4,
        "'rows' is updated with a value that replicated_all_reduce reduces over groups {0,1,2,3}, but its own groups "
        "are {0,1}{2,3}: 2 replicas too many",
    ),
    LintCase(
        "L7",
        "an update inside a graph that is reduced over too few, and in two steps over all",
        f"g = collectives.replicated_all_reduce(x, 'add', {PAIRS})\n"
        "def step(total: popsr.TensorByRef, a: popsr.Tensor):\n    ops.add_(total, a)\n"
        "ops.call(ir.create_graph(step, w, g), w, g)",
        f"g = collectives.replicated_all_reduce(x, 'add', {PAIRS})\n"
        f"g = collectives.replicated_all_reduce(g, 'add', {PAIRS}.transpose())\n"
        "def step(total: popsr.TensorByRef, a: popsr.Tensor):\n    ops.add_(total, a)\n"
        "ops.call(ir.create_graph(step, w, g), w, g)",
        2,
        "replicas",
        3,
        "'w' is updated with a value that replicated_all_reduce reduces over groups {0,1}{2,3}, but its own groups "
        "are {0,1,2,3}: 2 replicas too few",
    ),
    LintCase(
        "L7",
        "a reduction over too few, and one over few of what the others hold too",
        f"var_updates.accumulate_(w, collectives.replicated_all_reduce(x, 'add', {PAIRS}))",
        f"var_updates.accumulate_(w, collectives.replicated_all_reduce({ROWS}, 'add', {PAIRS}.transpose()))",
        2,
        "replicas",
        3,
        "2 replicas too few",
    ),
    LintCase(
        "L7",
        "a part of merged reductions over too few, and one over all",
        f"a, b = [collectives.replicated_all_reduce(v, 'add', {PAIRS}) for v in (x, ops.relu(x))]\n"
        "transforms.merge_collectives(ir)\nvar_updates.accumulate_(w, b)",
        "a, b = [collectives.replicated_all_reduce(v, 'add') for v in (x, ops.relu(x))]\n"
        "transforms.merge_collectives(ir)\nvar_updates.accumulate_(w, b)",
        2,
        "replicas",
        3,
        "'w' is updated with a value that replicated_all_reduce reduces over groups {0,1}{2,3}",
    ),
    LintCase(
        "L7",
        "a count that a sum over too few is added to, and one that counts steps of moments in pairs",
        f"g = collectives.replicated_all_reduce(ops.max(x), 'add', {PAIRS})\n"
        "steps = popsr.variable(0.0, name='steps')\nvar_updates.accumulate_(steps, g)",
        f"g = collectives.replicated_all_reduce(ops.max(x), 'add', {PAIRS})\n"
        "steps = popsr.variable(0.0, name='steps')\n"
        "var_updates.adam_updater(g, g * g, time_step=steps, beta1=0.9, beta2=0.9)",
        2,
        "replicas",
        3,
        "'steps' is updated with a value that replicated_all_reduce reduces over groups {0,1}{2,3}, but its own groups "
        "are {0,1,2,3}: 2 replicas too few",
    ),
    LintCase(
        "L8",
        "memory that is read, and memory that is overwritten first",
        "u = ops.init((4,), F32, init_type='undef')\nops.add(w, u)",
        "u = ops.init((4,), F32, init_type='undef')\nvar_updates.copy_var_update_(u, w)\nops.add(w, u)",
        16,
        "bytes",
        4,
        "add reads 'init_out', which init at program.py:3 leaves undefined",
    ),
    LintCase(
        "L8",
        "memory that a graph reads, and memory that it fills",
        "f = ir.create_graph(lambda a: ops.relu(a), x)\n"
        "u = ops.init((4,), F32, init_type='undef')\nops.call(f, u)",
        "buffer = popsr.remote_buffer((4,), F32, 1)\nops.remote_store(buffer, 0, w)\n"
        "def fill(a: popsr.TensorByRef):\n    ops.remote_load_(buffer, 0, a)\n"
        "u = ops.init((4,), F32, init_type='undef')\nops.call(ir.create_graph(fill, u), u)\nops.relu(u)",
        16,
        "bytes",
        3,
        "relu reads 'init_out', which init at program.py:4 leaves undefined",
    ),
    LintCase(
        "L8",
        "a loop whose state starts undefined, and one whose count is 0",
        "f = ir.create_graph(lambda a: ops.relu(a), x)\n"
        "u = ops.init((4,), F32, init_type='undef')\nops.repeat(f, 2, u)",
        "f = ir.create_graph(lambda a: ops.relu(a), x)\n"
        "u = ops.init((4,), F32, init_type='undef')\nops.repeat(f, 0, u)",
        16,
        "bytes",
        3,
        "relu reads 'init_out'",
    ),
    LintCase(
        "L8",
        "a view of memory that nothing was written to, and of memory that a view fills",
        "u = ops.init((4,), F32, init_type='undef')\nops.relu(ops.transpose_(ops.reshape_(u, (2, 2))))",
        "u = ops.init((4,), F32, init_type='undef')\nv = ops.reshape_(u, (2, 2))\n"
        "var_updates.accumulator_zero_(v)\nops.relu(u)",
        16,
        "bytes",
        4,
        "relu reads 'init_out', which init at program.py:3 leaves undefined",
    ),
    LintCase(
        "L8",
        "memory that one branch fills, and memory that both fill",
        f"{FILLED}ops.conditional(c, fill, keep, [u])\nops.relu(u)",
        f"{FILLED}ops.conditional(c, fill, fill, [u], [u])\nops.relu(u)",
        16,
        "bytes",
        10,
        "relu reads 'init_out', which init at program.py:4 leaves undefined",
    ),
    LintCase(
        "L8",
        "a result that one branch makes of nothing, and a branch that is given data",
        f"{FILLED}same = ir.create_graph(lambda a: a, w)\nops.relu(ops.conditional(c, same, same, [w], [u])[0])",
        f"{FILLED}same = ir.create_graph(lambda a: a, w)\nops.relu(ops.conditional(c, same, same, [w], [x])[0])",
        16,
        "bytes",
        10,
        "relu reads 'init_out'",
    ),
    LintCase(
        "L8",
        "an entry that is loaded before it is stored, and after",
        "buffer = popsr.remote_buffer((4,), F32, 2)\nops.remote_load(buffer, 1)\nops.remote_store(buffer, 1, w)",
        "buffer = popsr.remote_buffer((4,), F32, 2)\nops.remote_store(buffer, 1, w)\nops.remote_load(buffer, 1)",
        16,
        "bytes",
        4,
        "remote_load reads 'remote_buffer_1/1' before anything is stored there",
    ),
    LintCase(
        "L8",
        "an entry that a graph loads, and one that holds a variable",
        "buffer = popsr.remote_buffer((4,), F32, 1)\n"
        "f = ir.create_graph(lambda: ops.remote_load(buffer, 0))\nops.call(f)",
        "buffer = popsr.remote_buffer((4,), F32, 1)\npopsr.remote_variable(np.zeros(4, np.float32), buffer)\n"
        "f = ir.create_graph(lambda: ops.remote_load(buffer, 0))\nops.call(f)",
        16,
        "bytes",
        4,
        "remote_load reads 'remote_buffer_1/0'",
    ),
    LintCase(
        "L12",
        "two writes that nothing orders, and two of which the second takes what the first returns",
        "with popsr.in_sequence('pass'):\n    ops.add_(w, w)\n    ops.relu_(w)",
        "with popsr.in_sequence('pass'):\n    ops.relu_(ops.add_(w, w))",
        1,
        "pairs",
        5,
        "relu_ modifies 'w', which add_ at program.py:4 modifies too: neither data nor popsr.in_sequence() orders",
    ),
    LintCase(
        "L12",
        "reads beside a write, and the same in sequence",
        "with popsr.in_sequence(False):\n    ops.relu(w)\n    ops.relu_(w)\n    ops.tanh(w)",
        "ops.relu(w)\nops.relu_(w)\nops.tanh(w)",
        2,
        "pairs",
        5,
        "relu_ modifies 'w', which relu at program.py:4 reads: neither data",
    ),
    LintCase(
        "L12",
        "two calls that modify what they are given by reference, and one call",
        f"{BY_REFERENCE}with popsr.in_sequence('pass'):\n    ops.call(g, w)\n    ops.call(g, w)",
        f"{BY_REFERENCE}with popsr.in_sequence('pass'):\n    ops.call(g, w)",
        1,
        "pairs",
        8,
        "call modifies 'w', which call at program.py:7 modifies too",
    ),
    LintCase(
        "L12",
        "writes of views that share elements, and of views that share none",
        "with popsr.in_sequence('pass'):\n    ops.relu_(ops.slice_(w, 0, 4, 3))\n    ops.relu_(ops.slice_(w, 1, 4, 2))",
        "with popsr.in_sequence('pass'):\n    ops.relu_(ops.slice_(w, 0, 4, 2))\n    ops.relu_(ops.slice_(w, 1, 4, 2))",
        1,
        "pairs",
        5,
        "relu_ at program.py:4 modifies too",
    ),
    LintCase(
        "L12",
        "writes in a graph that is called, and in one that is not",
        f"{UNORDERED_GRAPH}ops.call(g, w)",
        UNORDERED_GRAPH,
        1,
        "pairs",
        6,
        "tanh at program.py:7 reads",
    ),
)
