"""Lints: for each code a program where it fires, a near miss where it does not, and its cost."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal

import numpy as np
import pytest

import popsr
from popsr import errors, ops
from popsr.analysis import analyze
from popsr.ops import collectives, var_updates
from tests_py.analysis.annotated import Program, programs_of
from tests_py.analysis.programs import lints

F32 = popsr.float32
LARGE = 65  # elements of a stream whose rows sessions do not compare
PROGRAMS = programs_of(lints)


def given(ir: popsr.Ir, elements: int = 4) -> dict[str, popsr.Tensor]:
    """A stream of one element for each replica, and a variable that is declared equal on all replicas."""
    x = ops.host_load(popsr.h2d_stream((elements,), F32, "x"))
    return {"x": x, "w": popsr.variable(np.zeros(elements, np.float32), name="w")}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: f"{program.room}: {program.name}")
def test_lints_fire_where_comments_say_so(program: Program) -> None:
    """All lints of the code that the file is about, and no other of that code."""
    code = program.room.partition("_")[0].upper()
    ir, _ = program.build(4, given)
    found = [lint for lint in analyze(ir).warnings if lint.code == code]
    expect = program.of("lint")
    assert [f"{lint.code}, {lint.cost} {lint.unit}" for lint in found] == [each.argument for each in expect]
    for lint, each in zip(found, expect, strict=True):
        assert lint.location == f"{program.file}:{each.line}"
        assert each.text in program.plain(lint.text)
        assert str(lint) == f"{code} {lint.location}: {lint.text}"
        assert "\n" not in lint.text
        assert lint.tensor is not None
        assert lint.op is not None
        assert lint.op.location == lint.location


def test_each_lint_has_programs_with_and_without_it() -> None:
    fires = {program.room for program in PROGRAMS if program.of("lint")}
    misses = {program.room for program in PROGRAMS if not program.of("lint")}
    assert fires == misses
    assert len(fires) == 11


Steps = Callable[..., object]  # of x and w


def made(steps: Steps, elements: int = 4) -> popsr.Ir:
    """A program on four replicas that takes these steps with what is given."""
    ir = popsr.Ir(replication=4)
    with ir.main_graph, popsr.in_sequence():
        steps(**given(ir, elements))
    return ir


def test_a_clean_program_has_no_lints() -> None:
    """Data parallel: gradients are averaged before the update."""

    def train(x: popsr.Tensor, w: popsr.Tensor) -> None:
        var_updates.accumulate_(w, collectives.replicated_all_reduce(ops.mul(x, w), "mean"), -0.1)

    assert analyze(made(train)).warnings == ()


def test_lints_come_by_code_and_then_in_program_order() -> None:

    def steps(x: popsr.Tensor, w: popsr.Tensor) -> None:
        c = popsr.constant(np.zeros(4, np.float32))
        collectives.replicated_all_gather(c)
        collectives.replicated_all_reduce(c)
        ops.add_(w, x)

    found = [
        (lint.code, lint.op.kind if lint.op else None, lint.location)
        for lint in analyze(made(steps)).warnings
    ]
    gather = steps.__code__.co_firstlineno + 2
    assert found == [
        ("L2", "add_", f"{__file__}:{gather + 2}"),
        ("L3", "add_", f"{__file__}:{gather + 2}"),
        ("L6", "replicated_all_gather", f"{__file__}:{gather}"),
        ("L6", "replicated_all_reduce", f"{__file__}:{gather + 1}"),
    ]


@pytest.mark.filterwarnings("ignore::popsr.ReplicaWarning")  # the lint is what the test is about
def test_the_cost_of_an_unkept_group_is_what_the_session_stores() -> None:
    stored = {}
    steps: dict[str, Steps] = {"kept": lambda x, w: ops.add_(w, w), "split": lambda x, w: ops.add_(w, x)}
    for name in steps:
        ir = made(steps[name], LARGE)
        stored[name] = popsr.Session(ir).memory()["variables"]
    (lint,) = (each for each in analyze(ir).warnings if each.code == "L2")
    assert stored["split"] - stored["kept"] == lint.cost


def test_cost_of_a_redundant_sum_is_the_factor_of_its_error() -> None:
    ir = popsr.Ir(replication=4)
    with ir.main_graph, popsr.in_sequence():
        w = popsr.variable(np.ones(2, np.float32), name="w")
        var = popsr.variable(np.zeros(2, np.float32), name="v")
        popsr.ops.var_updates.copy_var_update_(var, ops.collectives.replicated_all_reduce(w, "add"))
    (lint,) = analyze(ir).warnings
    with popsr.Session(ir) as session:
        session.run()
        assert session.get_tensor_data(var).tolist() == [lint.cost] * 2


def test_warnings_are_of_one_version() -> None:
    ir = made(lambda x, w: None)
    facts = analyze(ir)
    assert facts.warnings == ()
    assert facts.warnings is facts.warnings
    with ir.main_graph:
        ops.relu(ir.main_graph.variables[0])
    with pytest.raises(errors.GraphError, match="the program changed"):
        _ = facts.warnings


# Use in sessions


def drift(x: popsr.Tensor, w: popsr.Tensor) -> None:
    ops.add_(w, x)


@pytest.mark.parametrize("strict", [True, ["L2"], {"L1", "L2", "L3"}])
def test_strict_sessions_refuse_unkept_groups(strict: object) -> None:
    ir = made(drift, LARGE)
    text = r"^Session: lint L2 is an error with strict, got .*\.py:\d+: 'w' is declared equal on all replicas, .*"
    with pytest.raises(errors.ReplicaError, match=text) as info:
        popsr.Session(ir, strict=strict)  # type: ignore[arg-type]
    assert "\n" not in str(info.value)


@pytest.mark.parametrize("strict", [True, ["L1"]])
@pytest.mark.filterwarnings("ignore::popsr.ReplicaWarning")  # the lint is what the test is about
def test_strict_sessions_refuse_exchanges_that_members_may_skip(strict: object) -> None:
    """Whatever the condition really is if its rows are not compared; without, it counts what it is."""
    text = (
        r"^Session: lint L1 is an error with strict, got .*\.py:\d+: replicated_all_reduce needs all members of a "
        r"group, but conditional at .*test_lints\.py:\d+ parts them by its condition '\w+', .*"
    )

    def branch(mode: Literal["replicate", "broadcast"], elements: int | None = None) -> popsr.Ir:
        """A collective in a branch; of a condition with elements, only the first counts."""

        def steps(x: popsr.Tensor, w: popsr.Tensor) -> None:
            graph = popsr.gcg()
            reduce = graph.ir.create_graph(lambda a: collectives.replicated_all_reduce(a, "max"), w)
            same = graph.ir.create_graph(lambda a: ops.relu(a), w)
            shape = () if elements is None else (elements,)
            c = ops.host_load(popsr.h2d_stream(shape, popsr.bool, "c", replicated_stream_mode=mode))
            ops.conditional(c if elements is None else c[0], reduce, same, [w], [w])

        return made(steps)

    with pytest.raises(errors.ReplicaError, match=text) as info:
        popsr.Session(branch("replicate", 65), strict=strict)  # type: ignore[arg-type]
    assert "\n" not in str(info.value)
    for taken in (True, False):
        with popsr.Session(branch("replicate")) as session:
            session.run(
                {
                    stream: np.full((4, *stream.shape), taken, stream.dtype.as_numpy())
                    for stream in session.expected_inputs()
                }
            )
    popsr.Session(branch("broadcast"), strict=strict)  # type: ignore[arg-type]


@pytest.mark.parametrize("strict", [False, (), ["L1"], ["L3"]])
def test_sessions_without_that_lint_accept_them(strict: object) -> None:
    ir = made(drift, LARGE)
    with pytest.warns(popsr.ReplicaWarning, match=r"^L2: 'w' drifts"):
        popsr.Session(ir, strict=strict)  # type: ignore[arg-type]


def test_strict_sessions_run_clean_programs() -> None:
    ir = made(lambda x, w: ops.add_(w, collectives.replicated_all_reduce(x)))
    with popsr.Session(ir, strict=True) as session:
        session.run({stream: np.ones((4, 4), np.float32) for stream in session.expected_inputs()})


BAD_STRICT: dict[str, tuple[object, type[Exception], str]] = {
    "a code": ("L2", TypeError, "strict is not a bool, got 'L2'"),
    "unknown": (["L4"], ValueError, "strict is not about these lints, got ['L4'], expected some of"),
    "a number": (3, TypeError, "strict is not a bool, got 3"),
}


@pytest.mark.parametrize("name", BAD_STRICT)
def test_bad_strict(name: str) -> None:
    value, error, text = BAD_STRICT[name]
    ir = made(lambda x, w: None)
    with pytest.raises(error, match=re.escape(text)):
        popsr.Session(ir, strict=value)  # type: ignore[arg-type]


def test_static_and_dynamic_read_back_say_the_same() -> None:
    """But for what is known: not proved equal, or different at an element."""
    ir = made(drift, LARGE)
    (static,) = (lint for lint in analyze(ir).warnings if lint.code == "L3")
    with pytest.warns(popsr.ReplicaWarning, match="^L2: 'w' drifts"):
        session = popsr.Session(ir)
    with session:
        session.run(dict.fromkeys(session.expected_inputs(), np.arange(260, dtype=np.float32).reshape(4, 65)))
        with pytest.warns(popsr.ReplicaWarning) as caught:
            session.weights_to_host()
    (warning,) = caught
    dynamic = str(warning.message).removeprefix("L3: weights_to_host: ").partition("; an error with")[0]
    assert static.text == dynamic.replace("differ at element 0", "are not proved equal")
