"""Lints: for each code a program where it fires, a near miss where it does not, and its cost."""

from __future__ import annotations

import re

import numpy as np
import pytest

import popsr
from popsr import errors, ops
from popsr.analysis import Lint, analyze
from tests_py.analysis.explain_cases import build
from tests_py.analysis.lint_cases import BRANCHES, CASES, HEAD, LintCase

LARGE = HEAD.replace("4", "65")  # a stream whose rows sessions do not compare


def lints(source: str, code: str) -> list[Lint]:
    ir, _ = build(4, HEAD + source)
    return [lint for lint in analyze(ir).warnings if lint.code == code]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.code}: {case.name}")
def test_lint_fires_and_misses(case: LintCase) -> None:
    (lint,) = lints(case.fires, case.code)
    assert (lint.cost, lint.unit, lint.location) == (case.cost, case.unit, f"program.py:{case.line}")
    assert case.text in lint.text
    assert str(lint) == f"{case.code} program.py:{case.line}: {lint.text}"
    assert "\n" not in lint.text
    assert lint.tensor is not None
    assert lint.op is not None
    assert lint.op.location == lint.location
    assert lints(case.misses, case.code) == []


def test_a_clean_program_has_no_lints() -> None:
    """Data parallel: gradients are averaged before the update."""
    ir, _ = build(
        4,
        HEAD
        + "g = collectives.replicated_all_reduce(ops.mul(x, w), 'mean')\nvar_updates.accumulate_(w, g, -0.1)",
    )
    assert analyze(ir).warnings == ()


def test_lints_come_by_code_and_then_in_program_order() -> None:
    ir, _ = build(
        4,
        HEAD + "c = popsr.constant(np.zeros(4, np.float32))\ncollectives.replicated_all_gather(c)\n"
        "collectives.replicated_all_reduce(c)\nops.add_(w, x)",
    )
    found = [(lint.code, lint.location) for lint in analyze(ir).warnings]
    assert found == [
        ("L2", "program.py:6"),
        ("L3", "program.py:6"),
        ("L6", "program.py:4"),
        ("L6", "program.py:5"),
    ]


@pytest.mark.filterwarnings("ignore::popsr.ReplicaWarning")  # the lint is what the test is about
def test_the_cost_of_an_unkept_group_is_what_the_session_stores() -> None:
    stored = {}
    for name, source in (("kept", "ops.add_(w, w)"), ("split", "ops.add_(w, x)")):
        ir, _ = build(4, LARGE + source)
        stored[name] = popsr.Session(ir).memory()["variables"]
    (lint,) = (each for each in analyze(ir).warnings if each.code == "L2")
    assert stored["split"] - stored["kept"] == lint.cost


def test_what_a_redundant_sum_costs_is_its_error() -> None:
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
    ir, scope = build(4, HEAD)
    facts = analyze(ir)
    assert facts.warnings == ()
    assert facts.warnings is facts.warnings
    with ir.main_graph:
        ops.relu(scope["x"])
    with pytest.raises(errors.GraphError, match="the program changed"):
        _ = facts.warnings


# --- what sessions do with them -------------------------------------------------------------------------------------

DRIFT = LARGE + "ops.add_(w, x)"


@pytest.mark.parametrize("strict", [True, ["L2"], {"L1", "L2", "L3"}])
def test_strict_sessions_refuse_unkept_groups(strict: object) -> None:
    ir, _ = build(4, DRIFT)
    text = r"^Session: lint L2 is an error with strict, got program.py:3: 'w' is declared equal on all replicas, .*"
    with pytest.raises(errors.ReplicaError, match=text) as info:
        popsr.Session(ir, strict=strict)  # type: ignore[arg-type]
    assert "\n" not in str(info.value)


@pytest.mark.parametrize("strict", [True, ["L1"]])
@pytest.mark.filterwarnings("ignore::popsr.ReplicaWarning")  # the lint is what the test is about
def test_strict_sessions_refuse_exchanges_that_members_may_skip(strict: object) -> None:
    """Whatever the condition really is if its rows are not compared; without, it counts what it is."""
    text = (
        r"^Session: lint L1 is an error with strict, got program\.py:3: replicated_all_reduce needs all members of a "
        r"group, but conditional at program\.py:\d+ parts them by its condition '\w+', .*"
    )
    source = f"{HEAD}{BRANCHES}ops.conditional(own, reduce, same, [w], [w])"
    large = source.replace(
        "ops.conditional(own",
        "many = ops.host_load(popsr.h2d_stream((65,), popsr.bool))\nops.conditional(many[0]",
    )
    ir, _ = build(4, large)
    with pytest.raises(errors.ReplicaError, match=text) as info:
        popsr.Session(ir, strict=strict)  # type: ignore[arg-type]
    assert "\n" not in str(info.value)
    for taken in (True, False):
        with popsr.Session(build(4, source)[0]) as session:
            shape = {"replicate": (4,), "broadcast": ()}
            session.run(
                {
                    stream: np.full(
                        (*shape[stream.replicated_stream_mode], *stream.shape), taken, stream.dtype.as_numpy()
                    )
                    for stream in session.expected_inputs()
                }
            )
    equal, _ = build(4, source.replace("(own, reduce", "(shared, reduce"))
    popsr.Session(equal, strict=strict)  # type: ignore[arg-type]


@pytest.mark.parametrize("strict", [False, (), ["L1"], ["L3"]])
def test_sessions_without_that_lint_accept_them(strict: object) -> None:
    ir, _ = build(4, DRIFT)
    with pytest.warns(popsr.ReplicaWarning, match=r"^L2: 'w' drifts"):
        popsr.Session(ir, strict=strict)  # type: ignore[arg-type]


def test_strict_sessions_run_clean_programs() -> None:
    ir, _ = build(4, HEAD + "ops.add_(w, collectives.replicated_all_reduce(x))")
    with popsr.Session(ir, strict=True) as session:
        session.run({stream: np.ones((4, 4), np.float32) for stream in session.expected_inputs()})


BAD_STRICT: dict[str, tuple[object, type[Exception], str]] = {
    "a code": ("L2", TypeError, "strict is no bool, got 'L2'"),
    "unknown": (["L4"], ValueError, "strict is not about these lints, got ['L4'], expected some of"),
    "a number": (3, TypeError, "strict is no bool, got 3"),
}


@pytest.mark.parametrize("name", BAD_STRICT)
def test_bad_strict(name: str) -> None:
    value, error, text = BAD_STRICT[name]
    ir, _ = build(4, HEAD)
    with pytest.raises(error, match=re.escape(text)):
        popsr.Session(ir, strict=value)  # type: ignore[arg-type]


def test_static_and_dynamic_read_back_say_the_same() -> None:
    """But for what is known: not proved equal, or different at an element."""
    ir, _ = build(4, DRIFT)
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
