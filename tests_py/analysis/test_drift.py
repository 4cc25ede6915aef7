"""Variables that drift: which they are, and the table of them."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import errors, ops
from popsr.analysis import DriftingVariable, analyze
from popsr.ops import collectives, var_updates
from tests_py.analysis.annotated import Program, programs
from tests_py.analysis.programs import resets
from tests_py.support.helpers import assert_same_bits
from tests_py.support.programs.source import build

F32 = popsr.float32


# Accumulators


PROGRAMS = programs(resets)


def given(ir: popsr.Ir) -> dict[str, popsr.Tensor]:
    """A stream of one element for each replica, and an accumulator with a counter."""
    return {
        "x": ops.host_load(popsr.h2d_stream((4,), F32, "x")),
        "a": popsr.variable(np.zeros(4, np.float32), name="a"),
        "zeros": popsr.constant(np.zeros(4, np.float32)),
        "counter": popsr.variable(0.0, name="counter"),
        "one": popsr.constant(1.0),
    }


def accumulator(ir: popsr.Ir) -> popsr.Variable:
    [a] = [variable for variable in ir.main_graph.variables if variable.name == "a"]
    assert isinstance(a, popsr.Variable)
    return a


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_accumulators_that_every_run_overwrites_do_not_drift(program: Program) -> None:
    ir, _ = program.build(4, given)
    facts = analyze(ir)
    expect = [(each.text, f"{program.file}:{each.line}") for each in program.of("drifts")]
    assert [(found.variable.name, found.location) for found in facts.drifting()] == expect
    assert {lint.code for lint in facts.warnings} & {"L2", "L3"} == ({"L2", "L3"} if expect else set())
    partition = next((each.text for each in program.of("expect")), "{0}{1}{2}{3}")
    assert str(facts.partition(accumulator(ir))) == partition


def test_programs_drift_and_do_not() -> None:
    assert len(PROGRAMS) == 30
    assert sum(bool(program.of("drifts")) for program in PROGRAMS) == 15


@pytest.mark.filterwarnings("ignore::popsr.ReplicaWarning")  # half of the programs drift on purpose
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_runs_do_not_depend_on_an_overwritten_accumulator(program: Program) -> None:
    """Of an accumulator that is said not to be read: another value, and NaN, make no difference to a run."""
    ir, _ = program.build(4, given)
    a, data = accumulator(ir), np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32)
    results = []
    for before in (1.0, np.nan):
        with popsr.Session(ir) as session:
            session.write_variable_data(a, np.full(4, before, np.float32))
            session.run(dict.fromkeys(session.expected_inputs(), data))
            variables = ir.main_graph.variables
            results.append([session.get_tensor_data(v, replicas="all") for v in variables])
    if not program.of("drifts"):
        for one, other in zip(*results, strict=True):
            assert_same_bits(one, other)


def test_a_program_that_drifts_and_resets_says_both() -> None:
    ir = popsr.Ir(replication=4)
    with ir.main_graph, popsr.in_sequence():
        offered = given(ir)
        var_updates.copy_var_update_(offered["a"], offered["x"])
        w = popsr.variable(np.zeros(4, np.float32), name="w")
        var_updates.accumulate_(w, offered["a"])
    facts = analyze(ir)
    title, *_ = str(facts).splitlines()
    assert title == (
        "1 of 3 variables on 4 replicas drifts; 1 more would, but every run overwrites them before it reads them"
    )
    assert [drift.variable.name for drift in facts.drifting()] == ["w"]


# The table


def drifting(variables: int, replicas: int = 4, group_size: int | None = None) -> popsr.Ir:
    """So many variables that take what each replica loads, and one that does not."""
    ir = popsr.Ir(replication=replicas)
    with ir.main_graph, popsr.in_sequence():
        x = ops.host_load(popsr.h2d_stream((2,), F32, "x"))
        same = popsr.variable(np.zeros(2, np.float32), name="same")
        ops.add_(same, collectives.replicated_all_reduce(x))
        groups = ir.replica_grouping(group_size=group_size)
        for i in range(variables):
            data = np.zeros((groups.num_groups, 2) if groups.num_groups > 1 else 2, np.float32)
            w = popsr.variable(data, name=f"w{i}", replica_grouping=groups)
            var_updates.accumulate_(w, x)
    return ir


def test_a_drifting_variable_says_why_and_where() -> None:
    ir, scope = build(
        4,
        "w = popsr.variable(np.zeros((2, 4), np.float32), name='w', replica_grouping="
        "ir.replica_grouping(group_size=2))\n"
        "x = ops.host_load(popsr.h2d_stream((4,), F32, 'x'))\nops.add_(w, x)",
    )
    (found,) = analyze(ir).drifting()
    assert isinstance(found, DriftingVariable)
    assert found.variable is scope["w"]
    assert (str(found.declared), str(found.partition)) == ("{0,1}{2,3}", "{0}{1}{2}{3}")
    assert (found.op.kind, found.location, found.cause_location) == ("add_", "program.py:3", "program.py:2")
    assert found.cause == "stream 'x' gives each replica data of its own"
    assert found.suggestion == (
        "replicated_all_reduce('x_load', 'mean' or 'add', ir.replica_grouping(stride=1, group_size=2)) "
        "before program.py:3"
    )
    assert str(found) == (
        "w | {0,1}{2,3} | {0}{1}{2}{3} | stream 'x' gives each replica data of its own at program.py:2 | "
        "program.py:3 | "
        "replicated_all_reduce('x_load', 'mean' or 'add', ir.replica_grouping(stride=1, group_size=2)) "
        "before program.py:3"
    )
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.cause = ""  # type: ignore[misc]


@pytest.mark.parametrize("variables", [0, 1, 20])
def test_the_table_has_a_row_for_each_variable(variables: int) -> None:
    facts = analyze(drifting(variables))
    title, *table = str(facts).splitlines()
    if not variables:
        assert (title, table) == ("no variable drifts, of 1 variable on 4 replicas", [])
        return
    assert (
        title
        == f"{variables} of {variables + 1} variables on 4 replicas drift{'s' if variables == 1 else ''}"
    )
    head, line, *rows = table
    assert head.split(" | ")[0].strip() == "variable"
    assert set(line) == {"-"}
    assert [row.split(" | ")[0].strip() for row in rows] == [f"w{i}" for i in range(variables)]
    assert len({row.index("stream 'x'") for row in rows}) == 1, "columns are aligned"
    assert [" | ".join(cell.strip() for cell in row.split(" | ")) for row in rows] == [
        str(each) for each in facts.drifting()
    ]
    assert str(Path(__file__).parent) not in str(facts), "folders are left out"


@pytest.mark.parametrize(
    ("group_size", "declared", "kept"),
    [
        (None, "{0,1,2,3,4,5,6,7,8,9,10,11,12 … 1 block", "{0}{1}{2}{3}{4}{5}{6}{7} … 4096 blocks"),
        (2, "{0,1}{2,3}{4,5}{6,7}{8,9} … 2048 blocks", "{0}{1}{2}{3}{4}{5}{6}{7} … 4096 blocks"),
    ],
)
def test_partitions_of_many_replicas_are_cut(group_size: int | None, declared: str, kept: str) -> None:
    (found,) = analyze(drifting(1, 4096, group_size)).drifting()
    cells = str(found).split(" | ")
    assert cells[1:3] == [declared, kept]
    assert max(map(len, cells[1:3])) <= 40


def test_the_table_as_html() -> None:
    html = analyze(drifting(2))._repr_html_()
    assert "2 of 3 variables on 4 replicas drift" in html
    assert html.count("<tr") == 3
    assert "<script" not in html
    assert "no variable drifts, of 1 variable on 4 replicas" in analyze(drifting(0))._repr_html_()


def test_facts_of_an_older_program_have_no_table() -> None:
    ir = drifting(1)
    facts = analyze(ir)
    assert facts.drifting() is facts.drifting()
    with ir.main_graph:
        popsr.variable(0.0)
        ops.add_(popsr.variable(0.0), popsr.constant(1.0))
    for call in (facts.drifting, facts.__str__, facts._repr_html_):
        with pytest.raises(errors.GraphError, match="the program changed"):
            call()


@pytest.mark.parametrize("where", ["remote", "sharded"])
def test_variables_that_live_elsewhere_drift_under_their_own_name(where: str) -> None:
    ir = popsr.Ir(replication=4)
    with ir.main_graph, popsr.in_sequence():
        x = ops.host_load(popsr.h2d_stream((2,), F32, "x"))
        made: Any
        if where == "remote":
            buffer = popsr.remote_buffer((2,), F32, 1)
            made = popsr.remote_variable(np.zeros(2, np.float32), buffer, name="v")
            ops.remote_store(buffer, 0, ops.add(ops.remote_load(buffer, 0), x))
        else:
            made, shard = popsr.replica_sharded_variable(np.zeros(4, np.float32), name="v", shard_over=2)
            ops.add_(shard, x)
    (found,) = analyze(ir).drifting()
    assert found.variable is made
    assert str(found.declared) == ("{0,1,2,3}" if where == "remote" else "{0,2}{1,3}")
