"""Explanations: whole texts, their typed form, HTML, and bad questions."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import errors, ops
from popsr.analysis import Explanation, analyze
from tests_py.analysis.annotated import Program, programs_of
from tests_py.analysis.programs import explanations
from tests_py.analysis.programs.explanations import calls
from tests_py.support.programs.source import build

F32 = popsr.float32


PROGRAMS = programs_of(explanations)


def explanation(program: Program) -> Explanation:
    """The answer to the question of the program's comment ``replicas``."""
    r, s, replicas = _question(program)
    ir, t = program.build(replicas)
    return analyze(ir).explain(t, r, s)


def _question(program: Program) -> list[int]:
    [question] = program.of("replicas")
    return [int(number) for number in re.findall(r"\d+", question.argument)]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_the_text_is_made_of_the_comments(program: Program) -> None:
    found = explanation(program)
    steps = {int(step.argument): step for step in program.of("step")}
    expect = [
        *(each.text for each in program.of("replicas")),
        *(f"  {program.file}:{steps[k].line}: {steps[k].text}" for k in range(1, len(steps) + 1)),
        *(f"root: {program.file}:{root.line}: {root.text}" for root in program.of("root")),
        *(f"suggestion: {each.text}" for each in program.of("suggestion")),
    ]
    assert program.plain(str(found)).splitlines() == expect
    assert ([found.root.kind] if found.root else []) == [root.argument for root in program.of("root")]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_steps_have_the_parts_of_the_text(program: Program) -> None:
    found = explanation(program)
    lines = str(found).splitlines()
    assert [*found.replicas] == [*found.steps[0].replicas] == _question(program)[:2]
    assert found.steps[0].partition == found.partition
    assert found.equal == (not program.of("root"))
    for step, line in zip(found.steps, lines[1:], strict=False):
        assert line.startswith(f"  {step.location}: {step.text}")
        r, s = step.replicas
        assert (step.partition.labels[r] == step.partition.labels[s]) == found.equal
        if not found.equal:
            assert f"differs between replicas {r} and {s}" in line
    if found.root is None:
        assert found.suggestion == ""
        assert len(lines) == 2
    else:
        assert lines[-2:] == [
            f"root: {found.root.location}: {found.root.text}",
            f"suggestion: {found.suggestion}",
        ]


def test_lines_are_those_of_the_ops() -> None:
    """A line names the location of the op that computes or passes the value."""
    for program in PROGRAMS:
        for step in explanation(program).steps:
            if step.op is not None:
                assert step.op.location == step.location
            else:
                assert step.kind in ("run", "start")


def chain(length: int) -> tuple[popsr.Ir, popsr.Tensor]:
    ir = popsr.Ir(replication=2)
    with ir.main_graph:
        t = ops.host_load(popsr.h2d_stream((2,), F32))
        for _ in range(length):
            t = ops.tanh(t)
    return ir, t


def test_long_paths_are_printed_without_their_middle() -> None:
    ir, t = chain(100)
    found = analyze(ir).explain(t, 0, 1)
    lines = str(found).splitlines()
    assert len(found.steps) == 101
    assert len(lines) == 1 + 12 + 1 + 12 + 2
    assert lines[13] == "  ... 77 more steps ..."
    assert "host_load" in lines[-3]


def test_the_path_is_a_shortest_one() -> None:
    ir = popsr.Ir(replication=2)
    with ir.main_graph:
        x, y = (ops.host_load(popsr.h2d_stream((2,), F32, name)) for name in "xy")
        far, near = x, y
        for _ in range(5):
            far = ops.tanh(far)
        for _ in range(3):
            near = ops.relu(near)
        t = ops.add(far, near)
    kinds = [step.op.kind for step in analyze(ir).explain(t, 0, 1).steps if step.op]
    assert kinds == ["add", "relu", "relu", "relu", "host_load"]


def test_only_inputs_that_influence_a_value_are_named() -> None:
    """A factor of 0 makes an update ignore its operand; a target that is overwritten does not count."""
    ir, scope = build(
        2,
        """\
x = ops.host_load(popsr.h2d_stream((2,), F32, "x"))
v = popsr.variable(np.zeros(2, np.float32), name="v")
w = popsr.variable(np.zeros((2, 2), np.float32), name="w", replica_grouping=ir.replica_grouping(1, 1))
var_updates.accumulate_(v, x, 0.0)
var_updates.copy_var_update_(w, ops.add(x, v))
""",
    )
    facts = analyze(ir)
    assert facts.is_equal(scope["v"])
    assert [step.kind for step in facts.explain(scope["w"], 0, 1).steps] == ["write", "op", "op"]
    assert facts.explain(scope["w"], 0, 1).steps[1].text.startswith("'add_out'")


def test_values_before_and_after_an_op() -> None:
    ir, scope = build(
        2,
        """\
w = popsr.variable(np.zeros(2, np.float32), name="w")
x = ops.host_load(popsr.h2d_stream((2,), F32, "x"))
var_updates.copy_var_update_(w, x)
ops.relu(w)
var_updates.accumulator_zero_(w)
""",
    )
    facts, w = analyze(ir), scope["w"]
    relu = next(op for op in ir.main_graph.ops if op.kind == "relu")
    assert facts.explain(w, 0, 1).equal
    assert facts.explain(w, 0, 1, time=-1).equal
    assert not facts.explain(w, 0, 1, before=relu).equal
    assert facts.explain(w, 0, 1, before=relu).steps[-1].tensor == scope["x"]


def test_the_context_in_which_they_differ_is_explained() -> None:
    ir, scope = build(
        2,
        """\
w = popsr.variable(np.zeros(2, np.float32), name="w")
x = ops.host_load(popsr.h2d_stream((2,), F32, "x"))
f = ir.create_graph(lambda a: ops.relu(a), w)
ops.call(f, w)
ops.call(f, x)
""",
    )
    facts, f = analyze(ir), scope["f"]
    t = f.outputs[0]
    found = facts.explain(t, 0, 1)
    assert [step.location for step in found.steps] == ["program.py:3", "program.py:5", "program.py:2"]
    first, second = facts.contexts(f)
    assert facts.explain(t, 0, 1, context=first).equal
    assert str(facts.explain(t, 0, 1, context=second)) == str(found)


BRANCH = """\
c = ops.host_load(popsr.h2d_stream((), popsr.bool, "c"))
w = popsr.variable(np.zeros(2, np.float32), name="w")
inner = ir.create_graph(lambda a: ops.relu(a), w)
f = ir.create_graph(lambda a: ops.call(inner, a)[0], w)
g = ir.create_graph(lambda a: ops.tanh(a), w)
t = ops.conditional(c, f, g, [w], [w])[0]
"""


def test_values_inside_branches_part_at_the_conditional() -> None:
    """Wherever the value is, the line is the conditional's, and so is the suggestion."""
    ir, scope = build(4, BRANCH)
    facts = analyze(ir)
    for graph in (ir.main_graph, scope["f"], scope["inner"], scope["g"]):
        t = scope["t"] if graph is ir.main_graph else graph.outputs[0]
        found = facts.explain(t, 1, 3)
        assert found.root is not None
        assert (found.root.kind, found.root.location) == ("divergence", "program.py:6")
        assert found.root.text == (
            "replicas 1 and 3 may take different branches of conditional: its condition 'c_load' differs"
        )
        assert found.suggestion == (
            "make its condition equal: replicated_broadcast('c_load', 0, "
            "ir.replica_grouping(stride=1, group_size=4)) before program.py:6"
        )
    fixed = BRANCH.replace("(c, f", "(collectives.replicated_broadcast(c, 0), f")
    ir, scope = build(4, fixed)
    assert analyze(ir).is_equal(scope["t"])


def test_equal_results_of_branches_say_why() -> None:
    ir, scope = build(4, BRANCH.replace('"c")', '"c", replicated_stream_mode="broadcast")'))
    (step,) = analyze(ir).explain(scope["t"], 0, 1).steps
    assert step.text == (
        "'conditional_out' is returned by conditional of graphs '<lambda>_subgraph(1)' and '<lambda>_subgraph(2)': "
        "'c_load' equal on all replicas, '<lambda>_subgraph(1)/call_out' equal on all replicas, "
        "'<lambda>_subgraph(2)/tanh_out' equal on all replicas"
    )


REASONS = {
    "a constant": ('popsr.constant(1.0, name="c")', "'c' is a constant"),
    "zeros": ("ops.init((2,), F32)", "'init_out' = init(), which needs no input"),
    "a broadcast": (
        'ops.host_load(popsr.h2d_stream((2,), F32, "b", replicated_stream_mode="broadcast"))',
        "'b_load' = host_load(), which needs no input",
    ),
    "a variable": (
        'popsr.variable(np.zeros(2, np.float32), name="w")',
        "'w' starts equal on all replicas and is never written",
    ),
    "operands": (
        'ops.add(popsr.constant(1.0, name="c"), popsr.constant(2.0, name="d"))',
        "'add_out' = add('c', 'd'): 'c' equal on all replicas, 'd' equal on all replicas",
    ),
}


@pytest.mark.parametrize("name", REASONS)
def test_reasons_of_equal_replicas(name: str) -> None:
    source, expect = REASONS[name]
    ir, scope = build(2, f"t = {source}\nops.init((1,), F32)")
    found = analyze(ir).explain(scope["t"], 0, 1)
    assert (found.equal, found.root, found.suggestion) == (True, None, "")
    assert [step.text for step in found.steps] == [expect]


def test_suggestions_make_replicas_equal() -> None:
    """``update_that_nobody_reduced``, with what is suggested for it, has no lint left."""
    ir = popsr.Ir(replication=4)
    with ir.main_graph, popsr.in_sequence():
        w = popsr.variable(np.zeros((4, 4), np.float32), name="w")
        x = ops.host_load(popsr.h2d_stream((4, 4), F32, "x"))
        g = ops.matmul(ops.transpose(x), x)
        g = ops.collectives.replicated_all_reduce(g, "mean", ir.replica_grouping(stride=1, group_size=4))
        ops.var_updates.accumulate_(w, g, 0.1)
        t = ops.relu(w)
    assert analyze(ir).is_equal(t)
    assert analyze(ir).warnings == ()


# HTML


def test_html_has_a_row_for_each_step() -> None:
    for program in PROGRAMS:
        found = explanation(program)
        html = found.to_html()
        assert html == found._repr_html_()
        assert html.count("<tr class") == len(found.steps)
        assert ("suggestion:" in html) == (not found.equal)
        assert html.find("root:") < html.find("<table")
        assert html.count('class="strip"') > len(found.steps)
        assert "<script" not in html


def test_long_paths_open_on_a_click_and_all_rows_can_be_reached() -> None:
    ir, t = chain(750)
    found = analyze(ir).explain(t, 0, 1)
    html = found.to_html()
    assert html.count("<tr class") == 751
    assert "<details><summary>727 more steps</summary>" in html
    cell = found._repr_html_()
    assert len(cell.encode()) < 20_000
    assert "… 727 more steps, all in explanation.to_html() and explanation.steps" in cell


def test_html_shows_the_line_of_the_cause_and_paths_on_hover() -> None:
    ir, t = chain(3)
    html = analyze(ir).explain(t, 0, 1).to_html()
    assert "<code>t = ops.host_load(popsr.h2d_stream((2,), F32))</code>" in html
    assert f'<td title="{__file__}:' in html
    assert ">test_explain.py:" in html


def test_html_escapes_names() -> None:
    ir = popsr.Ir(replication=2)
    with ir.main_graph:
        t = ops.host_load(popsr.h2d_stream((2,), F32, "<i>&"))
    html = analyze(ir).explain(t, 0, 1).to_html()
    assert "&lt;i&gt;&amp;" in html
    assert "<i>&" not in html


def test_graphs_are_shown_as_tables() -> None:
    ir = popsr.Ir(replication=4)
    with ir.main_graph, popsr.in_sequence():
        calls.into_a_called_graph_and_out_of_it(ir)
    html = ir.main_graph.html()
    graphs = [ir._graph(number) for number in range(ir._core.num_graphs)]
    assert html.count("<tr class") == sum(len(graph.ops) for graph in graphs)
    assert "calls.py:40" in html
    assert "host_load" in html
    unused = ir.create_graph(lambda a: ops.relu(a), popsr.TensorSpec((2,), F32))
    assert "nothing calls this graph" in unused._repr_html_()
    long, _ = chain(300)
    assert "101 ops more" in long.main_graph.html()


def test_graphs_of_ambiguous_programs_are_shown_without_facts() -> None:
    ir = popsr.Ir(replication=2)
    ir.options.enable_inplace_ambiguity_checking = True
    with ir.main_graph:
        w = popsr.variable(np.zeros(2, np.float32))
        ops.relu(w)
        ops.add_(w, popsr.constant(1.0))
    html = ir.main_graph.html()
    assert "Inplacing ambiguity" in html
    assert html.count("<tr class") == 2


def test_html_of_seeds() -> None:
    ir = popsr.Ir(replication=2)
    ir.options.enable_stochastic_rounding = True
    with ir.main_graph:
        x = ops.host_load(popsr.h2d_stream((2,), popsr.bfloat16))
        ops.add(x, x)
    popsr.transforms.stochastic_rounding(ir)
    assert "seeds {0}{1}" in ir.main_graph.html()


# Bad questions


def question(**options: Any) -> Any:
    ir, t = chain(1)
    r, s = options.pop("pair", (0, 1))
    return analyze(ir).explain(options.pop("t", t), r, s, **options)


BAD: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "one replica": ({"pair": (1, 1)}, errors.ReplicaError, "explain: no two replicas, got 1 and 1"),
    "too big": ({"pair": (0, 2)}, errors.ReplicaError, "got 0 and 2, expected two of 0 to 1"),
    "far too big": ({"pair": (2**70, 0)}, errors.ReplicaError, "expected two of 0 to 1"),
    "negative": ({"pair": (-1, 1)}, errors.ReplicaError, "got -1 and 1"),
    "no number": ({"pair": ("a", 1)}, TypeError, "explain: r is not an int, got 'a', expected an int"),
    "no tensor": ({"t": 3}, TypeError, "explain: t is not a Tensor, got 3"),
    "two times": ({"time": 0, "before": 3}, ValueError, "explain: more than one time, got before and time"),
    "no context": ({"context": 3}, TypeError, "context: no calls, got 3"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_questions(name: str) -> None:
    options, error, text = BAD[name]
    with pytest.raises(error, match=re.escape(text)) as info:
        question(**options)
    assert "\n" not in str(info.value)


def test_tensors_that_nothing_computes_have_no_explanation() -> None:
    ir, t = chain(1)
    unused = ir.create_graph(lambda a: ops.relu(a), t)
    with pytest.raises(errors.GraphError, match=r"explain: .*relu_out' is never computed"):
        analyze(ir).explain(unused.outputs[0], 0, 1)
