"""Asking for facts: at any time, on any call path; and every question that has no answer."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import errors, ops
from popsr.analysis import PartitionAnalysis, analyze
from tests_py.support.programs.source import build

TOP, PAIRS, BOTTOM = "{0,1,2,3}", "{0,1}{2,3}", "{0}{1}{2}{3}"

SOURCE = """\
w = popsr.variable(np.zeros(4, np.float32), name="w")
x = ops.host_load(popsr.h2d_stream((4,), F32, "x"))
p = collectives.replicated_all_reduce(x, "add", ir.replica_grouping(1, 2))
ops.add_(w, p)
y = ops.relu(w)
ops.add_(w, x)
var_updates.accumulator_zero_(w)

def inner(a):
    return ops.tanh(a)

def outer(a, b):
    return ops.add(ops.call(leaf, a)[0], ops.call(leaf, b)[0])

leaf = ir.create_graph(inner, x)
node = ir.create_graph(outer, x, x)
first = ops.call_with_info(node, p, x)
second = ops.call_with_info(node, popsr.constant(np.zeros(4, np.float32)), p)
third = ops.call_with_info(node, p, x)
"""


@pytest.fixture(name="program")
def program_fixture() -> tuple[popsr.Ir, dict[str, Any]]:
    return build(4, SOURCE)


def op_of(graph: popsr.Graph, kind: str, number: int = 0) -> Any:
    return [op for op in graph.ops if op.kind == kind][number]


def test_facts_at_any_time(program: tuple[popsr.Ir, dict[str, Any]]) -> None:
    ir, scope = program
    facts, w, graph = analyze(ir), scope["w"], ir.main_graph
    relu = op_of(graph, "relu")
    add, add_again = op_of(graph, "add_"), op_of(graph, "add_", 1)
    asked = {
        "last": facts.partition(w),
        "initial": facts.partition(w, time=-1),
        "before add_": facts.partition(w, before=add),
        "after add_": facts.partition(w, after=add),
        "before relu": facts.partition(w, before=relu),
        "after relu": facts.partition(w, after=relu),
        "after the second add_": facts.partition(w, after=add_again),
    }
    expect = dict.fromkeys(asked, TOP)
    expect |= {"after add_": PAIRS, "before relu": PAIRS, "after relu": PAIRS}
    expect["after the second add_"] = BOTTOM
    assert {name: str(partition) for name, partition in asked.items()} == expect


def test_times_are_those_of_values(program: tuple[popsr.Ir, dict[str, Any]]) -> None:
    ir, scope = program
    facts = analyze(ir)
    for t in (scope["w"], scope["p"], scope["leaf"].inputs[0]):
        for time, op, partition in facts.values(t):
            assert facts.partition(t, time=time) == partition
            if op is not None:
                assert facts.partition(t, after=op) == partition
    ops_of_main = ir.main_graph.ops
    for time, op in enumerate(ops_of_main):
        assert facts.partition(scope["w"], time=time) == facts.partition(scope["w"], after=op)


def test_the_initial_value_of_a_variable_is_that_of_every_run() -> None:
    ir, scope = build(
        4,
        "w = popsr.variable(np.zeros(4, np.float32))\nops.add_(w, ops.host_load("
        "popsr.h2d_stream((4,), F32)))",
    )
    assert str(analyze(ir).partition(scope["w"], time=-1)) == BOTTOM


def test_contexts(program: tuple[popsr.Ir, dict[str, Any]]) -> None:
    ir, scope = program
    facts, leaf, node = analyze(ir), scope["leaf"], scope["node"]
    (main,) = facts.contexts(ir.main_graph)
    assert (main.graph, main.calls, str(main.execution)) == (ir.main_graph, (), TOP)
    contexts = facts.contexts(node)
    assert [[str(p) for p in c.inputs] for c in contexts] == [[PAIRS, BOTTOM], [TOP, PAIRS]]
    calls = [op_of(ir.main_graph, "call", k) for k in range(3)]
    assert [c.calls for c in contexts] == [(calls[0],), (calls[1],)]
    assert {str(c.inputs[0]) for c in facts.contexts(leaf)} == {TOP, PAIRS, BOTTOM}
    for context in facts.contexts(leaf):
        assert [call.kind for call in context.calls] == ["call", "call"]
        assert str(facts.partition(leaf.outputs[0], context=context)) == str(context.inputs[0])
        assert facts.partition(leaf.outputs[0], context=context.calls) == context.inputs[0]
    assert str(facts.partition(leaf.outputs[0])) == BOTTOM  # what holds in all of them


def test_any_call_path_leads_to_a_context(program: tuple[popsr.Ir, dict[str, Any]]) -> None:
    ir, scope = program
    facts, result = analyze(ir), scope["leaf"].outputs[0]
    for call, expect in ((0, [PAIRS, BOTTOM]), (1, [TOP, PAIRS]), (2, [PAIRS, BOTTOM])):
        outer = op_of(ir.main_graph, "call", call)
        for k, partition in enumerate(expect):
            path = [outer, op_of(scope["node"], "call", k)]
            assert str(facts.partition(result, context=path)) == partition


BRANCHES = """\
c = ops.cast(ops.slice(popsr.variable(np.zeros((2, 1), np.float32), replica_grouping=ir.replica_grouping(1, 2)), 0, 1),
             popsr.bool)
x = ops.host_load(popsr.h2d_stream((4,), F32, "x", replicated_stream_mode="broadcast"))
leaf = ir.create_graph(lambda a: ops.tanh(a), x)
node = ir.create_graph(lambda a: ops.call(leaf, a)[0], x)
other = ir.create_graph(lambda a: ops.relu(a), x)
ops.conditional(c, node, other, [x], [x])
ops.conditional(c, other, other, [x], [x])
"""


def test_contexts_of_branches() -> None:
    ir, scope = build(4, BRANCHES)
    facts = analyze(ir)
    first, second = (op_of(ir.main_graph, "conditional", k) for k in range(2))
    for name in ("node", "leaf", "other"):
        contexts = facts.contexts(scope[name])
        assert {str(context.execution) for context in contexts} == {PAIRS}
        for context in contexts:
            assert str(facts.partition(scope[name].outputs[0], context=context)) == PAIRS
    (leaf,) = facts.contexts(scope["leaf"])
    assert [call.kind for call in leaf.calls] == ["conditional", "call"]
    result = scope["leaf"].outputs[0]
    assert str(facts.partition(result, context=[first, op_of(scope["node"], "call")])) == PAIRS
    assert str(facts.partition(scope["other"].outputs[0], context=[first])) == PAIRS
    with pytest.raises(errors.GraphError, match=r"context: conditional runs graph '.*' in 2 of its branches"):
        facts.partition(scope["other"].outputs[0], context=[second])
    with pytest.raises(errors.GraphError, match=r"context: conditional runs graph '.*' in 0 of its branches"):
        facts.partition(result, context=[first])


def test_a_graph_that_nothing_runs_has_no_context() -> None:
    ir, scope = build(
        2, "x = ops.init((2,), F32)\nf = ir.create_graph(lambda a: ops.relu(a), x)\nops.repeat(f, 0, x)"
    )
    assert analyze(ir).contexts(scope["f"]) == ()


def test_seed_partitions_of_op_views() -> None:
    ir = popsr.Ir(replication=4)
    ir.options.enable_stochastic_rounding = True
    with ir.main_graph:
        x = ops.host_load(popsr.h2d_stream((4,), popsr.bfloat16))
        w = popsr.variable(np.zeros(4, np.float32), popsr.bfloat16)
        graph = ir.create_graph(lambda a: ops.mul(a, a), x)
        (y,) = ops.call(graph, w)
        ops.add(y, x)
    popsr.transforms.stochastic_rounding(ir)
    add, mul = op_of(ir.main_graph, "add"), op_of(graph, "mul")
    assert (str(add.seed_partition), str(mul.seed_partition)) == (BOTTOM, TOP)
    assert op_of(ir.main_graph, "call").seed_partition is None


Ask = Callable[[PartitionAnalysis, popsr.Ir, dict[str, Any]], object]
BAD: dict[str, tuple[Ask, type[Exception], str]] = {
    "no tensor": (lambda f, ir, s: f.partition(1), TypeError, "partition: t is not a Tensor, got 1"),  # type: ignore[arg-type]
    "two times": (
        lambda f, ir, s: f.partition(s["w"], time=1, after=ir.main_graph.ops[0]),
        ValueError,
        "partition: more than one time, got after and time, expected one",
    ),
    "no op": (
        lambda f, ir, s: f.partition(s["w"], before=3),  # type: ignore[arg-type]
        TypeError,
        "partition: before is not an op, got 3",
    ),
    "an op of another graph": (
        lambda f, ir, s: f.partition(s["w"], before=s["leaf"].ops[0]),
        errors.GraphError,
        "partition: op of another graph, got tanh of graph 'inner_subgraph(0)' for 'w', expected main graph",
    ),
    "an op of another Ir": (
        lambda f, ir, s: f.partition(s["w"], before=build(4, SOURCE)[0].main_graph.ops[0]),
        errors.GraphError,
        "partition: op of another Ir",
    ),
    "before its value": (
        lambda f, ir, s: f.partition(s["y"], time=0),
        errors.GraphError,
        "partition: 'relu_out' has no value yet, got time 0",
    ),
    "initial value of a result": (
        lambda f, ir, s: f.partition(s["y"], time=-1),
        errors.GraphError,
        "partition: 'relu_out' has no value yet, got time -1",
    ),
    "a late time": (
        lambda f, ir, s: f.partition(s["w"], time=len(ir.main_graph.ops)),
        IndexError,
        "partition: no such time, got 9, expected -1 to 8 in main graph",
    ),
    "a far too late time": (
        lambda f, ir, s: f.partition(s["w"], time=2**63 - 1),
        IndexError,
        "partition: no such time",
    ),
    "an early time": (lambda f, ir, s: f.partition(s["w"], time=-2), ValueError, "time: got -2"),
    "no context": (
        lambda f, ir, s: f.partition(s["w"], context="main"),  # type: ignore[arg-type]
        TypeError,
        "context: no calls, got 'main', expected one of facts.contexts(graph) or a sequence of ops",
    ),
    "a context of other facts": (
        lambda f, ir, s: f.partition(s["w"], context=analyze(ir).contexts(ir.main_graph)[0]),
        errors.GraphError,
        "context: of another analysis",
    ),
    "a context of another graph": (
        lambda f, ir, s: f.partition(s["w"], context=f.contexts(s["leaf"])[0]),
        errors.GraphError,
        "partition: context of another graph, got one of graph 'inner_subgraph(0)' for 'w', expected main graph",
    ),
    "a path that is none": (
        lambda f, ir, s: f.partition(s["w"], context=[ir.main_graph.ops[0]]),
        errors.GraphError,
        "context: no call of main graph that runs, got host_load",
    ),
    "a path that starts inside": (
        lambda f, ir, s: f.partition(s["w"], context=[op_of(s["node"], "call")]),
        errors.GraphError,
        "context: no call of main graph that runs, got call",
    ),
    "no graph": (
        lambda f, ir, s: f.contexts("main"),  # type: ignore[arg-type]
        TypeError,
        "contexts: graph is not a Graph, got 'main'",
    ),
    "a graph of another Ir": (
        lambda f, ir, s: f.contexts(build(4, SOURCE)[0].main_graph),
        errors.GraphError,
        "contexts: graph of another Ir",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_questions_without_an_answer(name: str, program: tuple[popsr.Ir, dict[str, Any]]) -> None:
    ask, error, text = BAD[name]
    ir, scope = program
    facts = analyze(ir)
    with pytest.raises(error, match=re.escape(text)) as info:
        ask(facts, ir, scope)
    assert "\n" not in str(info.value)
    assert str(facts.partition(scope["w"])) == TOP  # still of use


STALE: dict[str, Ask] = {
    "partition": lambda f, ir, s: f.partition(s["w"]),
    "partition at a time": lambda f, ir, s: f.partition(s["w"], time=0),
    "partition at an op": lambda f, ir, s: f.partition(s["w"], before=ir.main_graph.ops[0]),
    "partition on a path": lambda f, ir, s: f.partition(s["w"], context=[]),
    "values": lambda f, ir, s: f.values(s["w"]),
    "is_equal": lambda f, ir, s: f.is_equal(s["w"]),
    "is_equal in groups": lambda f, ir, s: f.is_equal(s["w"], ir.replica_grouping()),
    "contexts": lambda f, ir, s: f.contexts(ir.main_graph),
    "explain": lambda f, ir, s: f.explain(s["w"], 0, 1),
    "warnings": lambda f, ir, s: f.warnings,
}


@pytest.mark.parametrize("name", STALE)
def test_stale_facts_are_refused(name: str, program: tuple[popsr.Ir, dict[str, Any]]) -> None:
    ir, scope = program
    facts = analyze(ir)
    with ir.main_graph:
        ops.relu(scope["x"])
    with pytest.raises(errors.GraphError, match="the program changed since these facts were computed"):
        STALE[name](facts, ir, scope)
