"""``popsr.prove`` of steps and programs: tables, causes, pages, ``assert_in_step``."""

from __future__ import annotations

import importlib
import itertools
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import errors, ops
from popsr.bridge import Proof, StepBuilder
from popsr.replicas import Partition
from popsr.testing import assert_in_step
from tests_py.bridge.steps import F32, momentum, tensor_parallel


def keep(t: popsr.Tensor) -> popsr.Tensor:
    return t


def in_pairs(t: popsr.Tensor) -> popsr.Tensor:
    return ops.collectives.replicated_all_reduce(t, "mean", t.ir.replica_grouping(group_size=2))


def twice(t: popsr.Tensor) -> popsr.Tensor:
    once = ops.collectives.replicated_all_reduce(t, "add")
    with popsr.location("model.py", 44):
        return ops.collectives.replicated_all_reduce(once, "add")


def test_a_right_step_is_ok() -> None:
    proof = popsr.prove(momentum())
    assert proof.ok
    assert repr(proof) == "Proof[ok: 2 states on 4 replicas, none drifts]"
    assert [each.path for each in proof.states] == ["params['w']", "opt['m']"]
    assert all(each.equal and each.explanation is None and each.cause is None for each in proof.states)
    assert proof.explain("loss") is None
    assert [*proof.drifting, *proof.unequal, *proof.pending, *proof.redundant, *proof.hanging] == []
    assert proof.problems == ()


def test_a_forgotten_collective_names_what_drifts_and_its_lines() -> None:
    proof = popsr.prove(momentum(keep))
    assert not proof.ok
    assert [each.path for each in proof.drifting] == ["params['w']", "opt['m']"]
    assert proof.unequal == ()
    w = proof.value("params['w']")
    assert (w.declared.num_blocks, w.proved.num_blocks, w.written) == (1, 4, "model.py:6")
    assert w.cause is not None
    assert (w.cause.text, w.cause.location) == (
        "stream 'batch' gives each replica data of its own",
        "model.py:2",
    )
    why = proof.explain("params['w']")
    assert why is not None
    assert {"model.py:6", "model.py:5", "model.py:4"} <= {step.location for step in why.steps}
    assert len(proof.problems) == 1
    assert "'params['w']', 'opt['m']' differ inside groups" in proof.problems[0]
    assert repr(proof) == "Proof[not ok: 2 states on 4 replicas, 2 drift]"


def test_lines_of_a_difference_have_their_text(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text("\n".join(f"line {i}" for i in range(1, 9)))
    b = StepBuilder(2)
    with b:
        with popsr.location(str(file), 2):
            w = b.state("w", np.float32(0), b.all())
            x = b.data("x", (), F32, b.each())
        with popsr.location(str(file), 4):
            y = x * 2.0
            z = y * y
        with popsr.location("other.py", 5):
            b.update("w", w + z)
        proof = b.finish().prove()
    assert [(line.location.removeprefix(f"{tmp_path}/"), line.text) for line in proof.lines("w")] == [
        ("other.py:5", ""),
        ("model.py:4", "line 4"),
        ("model.py:2", "line 2"),
    ]
    assert str(proof.lines("w")[1]) == "model.py:4: line 4"
    assert popsr.prove(momentum()).lines("loss") == ()


def test_a_smaller_group_leaves_smaller_blocks() -> None:
    proof = popsr.prove(momentum(in_pairs))
    assert str(proof.value("opt['m']").proved) == "{0,1}{2,3}"


def test_a_result_that_is_declared_equal_and_is_not() -> None:
    proof = popsr.prove(momentum(loss_reduce=keep))
    assert not proof.ok
    assert [each.path for each in proof.unequal] == ["loss"]
    assert proof.drifting == ()
    assert repr(proof) == "Proof[not ok: 2 states on 4 replicas, none drifts, 1 unequal result]"


@pytest.mark.parametrize(
    ("data", "fork", "drifting"),
    [
        ("model", True, []),
        ("all", True, []),  # equal, though the mean over all is the wrong one: nothing drifts
        ("forgotten", True, ["w1", "w2", "bias"]),
        ("model", False, ["bias"]),
    ],
)
def test_groups_of_tensor_parallelism(data: str, fork: bool, drifting: list[str]) -> None:
    proof = popsr.prove(tensor_parallel(data, fork=fork))  # type: ignore[arg-type]
    assert [each.path for each in proof.drifting] == drifting
    assert proof.verdict == ("not ok" if drifting else "ok" if data == "model" else "suspicious")
    if not drifting:
        assert {lint.code for lint in proof.suspicious} == ({"L6", "L7"} if data == "all" else set())
    if drifting == ["bias"]:
        assert str(proof.value("bias").proved) == "{0,2}{1,3}"


def test_drift_appears_over_runs_too() -> None:
    """A state that only a later run makes different: its new value is another state, which drifts."""
    b = StepBuilder(2)
    with b:
        late = b.state("late", np.float32(0), b.all())
        early = b.state("early", np.float32(0), b.all())
        x = b.data("x", (), F32, b.each(), example=np.array([1, 2], np.float32))
        b.update("late", late + early)
        b.update("early", early + x)
        step = b.finish()
    assert [each.path for each in step.prove().drifting] == ["late", "early"]
    with pytest.warns(popsr.ReplicaWarning):
        assert len(set(step.run()["late"].tolist())) == 1
    assert len(set(step.run()["late"].tolist())) == 2


def test_a_sum_of_what_is_equal_is_redundant() -> None:
    proof = popsr.prove(momentum(twice))
    assert [lint.location for lint in proof.redundant] == ["model.py:44"]
    assert proof.suspicious == proof.redundant
    assert repr(proof) == "Proof[suspicious: 2 states on 4 replicas, none drifts, 1 redundant collective]"
    with pytest.raises(
        errors.OutOfStepError, match=r"L6 model\.py:44: sum over {0,1,2,3} of values that 4 replicas"
    ) as caught:
        assert_in_step(momentum(twice))
    assert caught.value.__notes__[-1].endswith("error.proof.save_html('proof.html')")
    assert assert_in_step(momentum(twice), allow=["L6"]).verdict == "suspicious"
    with pytest.raises(errors.OutOfStepError):
        assert_in_step(momentum(twice), allow=["L7", "L10", "L11"])


def test_hints_do_not_fail_a_step_whose_lints_are_allowed() -> None:
    step = replace(momentum(twice), hints=("x may be shared",))
    assert step.prove().problems[0] == "x may be shared"
    with pytest.raises(errors.OutOfStepError, match="assert_in_step: x may be shared"):
        assert_in_step(step)
    assert assert_in_step(step, allow=["L6"]).problems
    assert assert_in_step(step, allow=["L6", "L7", "L10", "L11"]).verdict == "suspicious"
    assert not replace(momentum(), hints=("x may be shared",)).prove().problems


def test_gradients_of_popsr_that_are_pending() -> None:
    ir = popsr.Ir(replication=2)
    with ir.main_graph, popsr.in_sequence():
        w = popsr.variable(np.ones(3, np.float32), name="w")
        x = ops.host_load(popsr.h2d_stream((3,), F32, "x"))
        forward = ir.create_graph(lambda w, x: ops.sum(w * x * w), w, x)
        backward = popsr.transforms.autodiff(forward, grads_required=forward.inputs[:1])
        call = ops.call_with_info(forward, w, x)
        (dw,) = ops.call(backward.graph, 1.0, inputs_dict=backward.inputs_dict(call))
        ops.var_updates.accumulate_(w, dw, -0.1)
    proof = popsr.prove(ir)
    assert [lint.code for lint in proof.pending] == ["L11"]
    assert proof.verdict == "not ok"
    assert any(text.startswith("L11") for text in proof.problems)


def test_seeds_of_stochastic_rounding() -> None:
    b = StepBuilder(2)
    with b:
        across = b.each()
        half = popsr.bfloat16
        w = b.state("w", np.ones(3, np.float32), b.all(), dtype=half)
        v = b.state("v", np.ones((2, 3), np.float32), across, dtype=half)
        x = b.data("x", (3,), half, b.each())
        b.update("w", w + ops.collectives.replicated_all_reduce(x, "mean"))
        b.update("v", v + x)
        step = b.finish()
    assert step.prove().seeds == {}
    proof = popsr.prove(step, stochastic_rounding=True)
    assert {path: str(each) for path, each in proof.seeds.items()} == {"w": "{0,1}", "v": "{0}{1}"}
    assert proof.ok


def test_forms_keep_their_limits(tmp_path: Path) -> None:
    b = StepBuilder(4)
    with b:
        x = b.data("x", (), F32, b.each())
        for i in range(400):
            w = b.state(f"layers[{i}]['<kernel>']", np.float32(0), b.all())
            b.update(f"layers[{i}]['<kernel>']", w + x)
        proof = b.finish().prove()
    assert len(repr(proof)) <= 200
    assert len(proof._repr_html_().encode()) <= 20_000
    assert len(str(proof).splitlines()) < 60
    file = tmp_path / "proof.html"
    proof.save_html(file)
    text = file.read_text()
    assert "layers[399][&#x27;&lt;kernel&gt;&#x27;]" in text
    assert "<script" not in text
    assert "http" not in text
    with pytest.raises(errors.FileError):
        proof.save_html(tmp_path / "none" / "proof.html")


def test_the_page_fits_small_screens(tmp_path: Path) -> None:
    """Tables scroll, long texts have several lines, and lines have their source."""
    source = tmp_path / "model.py"
    source.write_text("\n".join(f"line {i} <of> model" for i in range(1, 9)))
    b = StepBuilder(2)
    with b, popsr.location(str(source), 4):
        w = b.state("w", np.float32(0), b.all())
        b.update("w", w + b.data("x", (), F32, b.each()))
        proof = b.finish().prove()
    proof.save_html(tmp_path / "proof.html")
    text = (tmp_path / "proof.html").read_text()
    assert 'name="viewport"' in text
    assert text.count("<div><table>") == text.count("</table></div>") == text.count("<h2>") == 4
    assert text.index("Problems") < text.index("States") < text.index("Why w differs") < text.index("Lints")
    assert '<td class="long">' in text
    assert "<td>line 4 &lt;of&gt; model</td>" in text


def test_a_report_has_the_proof_first(tmp_path: Path) -> None:
    """A stream of 1 element too: a session would take its rows as equal until it is fed."""
    b = StepBuilder(2)
    with b:
        w = b.state("w", np.float32(0), b.all())
        b.update("w", w + b.data("x", (), F32, b.each()))
        proof = b.finish().prove()
    report = proof.report(tmp_path / "proof.html")
    assert (tmp_path / "proof.html").read_text() == report.html
    text = str(report)
    headings = [
        line for line, below in itertools.pairwise(text.splitlines()) if below and set(below) == {"="}
    ]
    assert headings[:3] == ["Proof", "Summary", "Lints"]
    assert "not ok: 1 state on 2 replicas, 1 drifts" in text
    assert "1 of 1 variable drifts" in text
    assert "L2: 1 variable drifts" in text
    with pytest.raises(errors.FileError):
        proof.report(tmp_path / "none" / "proof.html")


def test_many_that_drift_are_not_all_explained() -> None:
    b = StepBuilder(2)
    with b:
        x = b.data("x", (), F32, b.each())
        for i in range(40):
            b.update(f"w{i}", b.state(f"w{i}", np.float32(0), b.all()) + x)
        proof = b.finish().prove()
    assert len(proof.problems) == 2
    assert "gives each replica data of its own" in proof.problems[0]
    assert "and 20 more differ inside groups" in proof.problems[1]
    assert proof.problems[1].endswith("explain(path) says why")
    assert proof.value("w39").cause is not None


def test_assert_in_step() -> None:
    assert isinstance(assert_in_step(momentum()), Proof)
    with pytest.raises(AssertionError) as caught:
        assert_in_step(momentum(keep, keep))
    error = caught.value
    assert isinstance(error, errors.OutOfStepError)
    assert str(error).startswith("assert_in_step: 'params['w']', 'opt['m']', 'loss' differ inside groups")
    assert "model.py:2" in str(error)
    assert len(str(error).splitlines()) == 1
    assert [each.path for each in error.proof.drifting] == ["params['w']", "opt['m']"]
    assert [note.strip() for note in error.__notes__[:4]] == [
        "model.py:6:",
        "model.py:5:",
        "model.py:4:",
        "model.py:2:",
    ]


def test_a_program_is_a_step() -> None:
    ir = popsr.Ir(replication=2)
    with ir.main_graph, popsr.in_sequence():
        w = popsr.variable(
            np.ones((2, 3), np.float32), name="w", replica_grouping=ir.replica_grouping(group_size=1)
        )
        x = ops.host_load(popsr.h2d_stream((3,), F32, "x", replicated_stream_mode="broadcast"))
        ops.var_updates.accumulate_(w, x)
    proof = popsr.prove(ir)
    assert proof.ok
    assert proof.states[0].declared == Partition.from_labels([0, 1])
    assert proof.run({"x": np.full(3, 2, np.float32)})["w"].tolist() == [[3, 3, 3], [3, 3, 3]]


def test_other_things_are_refused() -> None:
    with pytest.raises(errors.ArgumentTypeError, match="prove: step cannot be read, got 3, expected"):
        popsr.prove(3)  # type: ignore[call-overload]
    with pytest.raises(errors.ArgumentTypeError, match="arguments beside a step that is read already"):
        popsr.prove(momentum(), 4)  # type: ignore[call-overload]
    with pytest.raises(errors.UnknownNameError):
        popsr.prove(momentum()).explain("nothing")
    with pytest.raises(errors.UnknownNameError, match="nothing is declared of 'batch'"):
        popsr.prove(momentum()).explain("batch")


def test_objects_with_a_verdict_are_true_where_it_is_ok() -> None:
    """``assert popsr.prove(...)`` is the assertion that it looks like, and so for all others."""
    importlib.import_module("popsr.bridge.audit")
    found = {
        each
        for name, module in list(sys.modules.items())
        if name.partition(".")[0] == "popsr"
        for each in vars(module).values()
        if isinstance(each, type) and each.__module__.startswith("popsr") and hasattr(each, "ok")
        if not getattr(each, "_is_protocol", False)  # describes an object, and has no verdict
    }
    names = {each.__name__ for each in found}
    assert names >= {"Proof", "AuditReport", "LoadDiff", "GradientCheck", "GradientRow"}
    assert [each for each in found if not hasattr(each, "__bool__")] == []
    assert popsr.prove(momentum())
    assert not popsr.prove(momentum(keep))


def test_a_notebook_shows_causes_above_the_table() -> None:
    proof = popsr.prove(momentum(keep, keep))
    for text in (proof._repr_html_().replace("&#x27;", "'"), str(proof)):
        assert text.index("not ok: 2 states") < text.index("differ inside groups") < text.index("dtype")


@pytest.mark.parametrize(
    ("reduction", "verdict", "text"),
    [
        (
            "add",
            "suspicious",
            "sum over {0,1}{2,3} of values that 2 replicas of a group hold equal already: each counts 2",
        ),
        (
            "mean",
            "ok",
            "mean over {0,1}{2,3} of values that replicas of a group hold equal already: one over fewer",
        ),
        (
            "max",
            "ok",
            "maximum over {0,1}{2,3} of values that replicas of a group hold equal already: one over fewer",
        ),
    ],
)
def test_reductions_of_equal_values_are_named_in_words(reduction: Any, verdict: str, text: str) -> None:
    b = StepBuilder(4)
    with b:
        pairs = b.groups([0, 0, 1, 1])
        w = b.state("w", np.zeros((2, 2), np.float32), pairs)
        b.update("w", ops.collectives.replicated_all_reduce(w, reduction, pairs) + 1)
        proof = b.finish().prove()
    assert proof.verdict == verdict
    [lint] = proof.redundant
    assert lint.text.startswith(text)
    assert repr(proof).startswith(
        f"Proof[{verdict}: 1 state on 4 replicas, none drifts, 1 redundant collective"
    )
