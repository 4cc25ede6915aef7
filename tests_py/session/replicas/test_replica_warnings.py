"""Sessions warn where replicas drift: at the line of the op, once a program, by Python's means."""

from __future__ import annotations

import linecache
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import addons, errors, io, ops
from popsr.io import PyWeightsIO
from popsr.ops import collectives, var_updates
from tests_py.support.programs.source import build
from tests_py.support.unchecked import unchecked

F32 = popsr.float32
DRIFT = """\
x = popsr.h2d_stream((66,), F32, 'x')
w = popsr.variable(np.zeros(66, np.float32), name='w')
ops.add_(w, ops.host_load(x))
"""
PARTED = """\
own = ops.greater(ops.sum(ops.host_load(popsr.h2d_stream((66,), F32, 'own')), 0), popsr.constant(0.0))
w = popsr.variable(np.zeros(66, np.float32), name='w')
reduce = ir.create_graph(lambda a: collectives.replicated_all_reduce(a), w)
same = ir.create_graph(lambda a: ops.relu(a), w)
ops.conditional(own, reduce, same, [w], [w])
"""

Caught = Callable[[], list[warnings.WarningMessage]]


@pytest.fixture
def caught() -> Iterator[Caught]:
    """The warnings since the last call."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")

        def new() -> list[warnings.WarningMessage]:
            result = found[:]
            found.clear()
            return result

        yield new


def texts(found: list[warnings.WarningMessage]) -> list[str]:
    return [str(each.message) for each in found]


def data(session: popsr.Session) -> dict[Any, Any]:
    """Another row for each of four replicas."""
    return {stream: np.arange(264, dtype=np.float32).reshape(4, 66) for stream in session.expected_inputs()}


# Texts and their lines


def test_a_session_warns_at_the_line_of_the_op(caught: Caught) -> None:
    ir, _ = build(4, DRIFT)
    popsr.Session(ir)
    (found,) = caught()
    assert found.category is popsr.ReplicaWarning
    assert issubclass(found.category, UserWarning)
    assert (found.filename, found.lineno) == ("program.py", 3)
    assert str(found.message) == (
        "L2: 'w' drifts: declared {0,1,2,3}, but a run leaves {0}{1}{2}{3} since add_ here: stream 'x' gives each "
        "replica data of its own at program.py:3; replicated_all_reduce('x_load', 'mean' or 'add', "
        "ir.replica_grouping(stride=1, group_size=4)) before program.py:3; an error with Session(strict={'L2'}), "
        "silent with warnings.filterwarnings('ignore', category=popsr.ReplicaWarning); more: python -m popsr help L2"
    )


def test_a_collective_that_some_may_skip_warns_at_its_line(caught: Caught) -> None:
    ir, _ = build(4, PARTED)
    popsr.Session(ir)
    (found,) = caught()
    assert (found.filename, found.lineno) == ("program.py", 3)
    assert str(found.message).startswith(
        "L1: replicated_all_reduce needs all members of a group, but conditional at program.py:5 parts them"
    )
    assert "an error with Session(strict={'L1'})" in str(found.message)


def test_variables_that_drift_on_one_line_are_one_warning(caught: Caught) -> None:
    for count in (2, 3):
        ir, _ = build(
            4,
            "x = ops.sum(ops.host_load(popsr.h2d_stream((66,), F32)), 0)\n"
            f"vs = [popsr.variable(0.0, name=f'v{{i}}') for i in range({count})]\nfor v in vs: ops.add_(v, x)",
        )
        popsr.Session(ir)
        (text,) = texts(caught())
        assert text.startswith(
            f"L2: 'v0' and {count - 1} more variable{'s' if count == 3 else ''} drift: declared "
        )


def test_texts_are_one_line_of_at_most_500_characters(caught: Caught) -> None:
    name = "layer" * 100
    ir, _ = build(
        300,
        f"x = popsr.h2d_stream((), F32, '{name}x')\nw = popsr.variable(0.0, name='{name}w')\n"
        f"ops.add_(w, ops.relu(ops.host_load(x)))\n",
    )
    with popsr.Session(ir) as session:
        session.run({stream: np.arange(300, dtype=np.float32) for stream in session.expected_inputs()})
        session.weights_to_host()
    unkept, unseen = texts(caught())
    for text in (unkept, unseen):
        assert len(text) <= 500
        assert "\n" not in text
        assert " … " in text
        assert text.endswith(f"category=popsr.ReplicaWarning); more: python -m popsr help {text[:2]}")
    assert unkept.startswith("L2: 'layerlayer")
    assert unseen.startswith("L3: weights_to_host: one value per group")


def test_reading_unequal_replicas_warns_at_the_last_write(caught: Caught) -> None:
    ir, scope = build(4, DRIFT)
    with popsr.Session(ir) as session:
        session.run(data(session))
        caught()
        session.get_tensor_data(scope["w"])
    (found,) = caught()
    assert (found.filename, found.lineno) == ("program.py", 3)
    assert str(found.message).startswith(
        "L3: get_tensor_data: one value per group is read back, but replicas 0 and 1 of one group of 'w' differ at "
        "element 0; the value of replica 0 stands for its group and 3 of 4 replicas are not seen: "
    )


def test_a_cell_of_a_notebook_is_the_place(caught: Caught, monkeypatch: pytest.MonkeyPatch) -> None:
    cell = f"{os.sep}tmp{os.sep}ipykernel_7{os.sep}123.py"
    source = DRIFT.replace("ops.add_(w, ops.host_load(x))", "ops.add_(w, ops.host_load(x))  # in a cell")
    monkeypatch.setitem(linecache.cache, cell, (len(source), None, source.splitlines(keepends=True), cell))
    ir = popsr.Ir(replication=4)
    with ir.main_graph, popsr.in_sequence():
        exec(compile(source, cell, "exec"), {"popsr": popsr, "ops": ops, "np": np, "F32": F32})
    popsr.Session(ir)
    (found,) = caught()
    shown = warnings.formatwarning(found.message, found.category, found.filename, found.lineno)
    assert shown.startswith(f"{cell}:3: ReplicaWarning: L2: 'w' drifts")
    assert shown.endswith("\n  ops.add_(w, ops.host_load(x))  # in a cell\n")


def test_code_of_no_module_warns_too(caught: Caught) -> None:
    """Python drops warnings of the module None."""
    ir = popsr.Ir(replication=4)
    with ir.main_graph, popsr.in_sequence():
        exec(DRIFT, {"popsr": popsr, "ops": ops, "np": np, "F32": F32, "__name__": None})
        exec("made = popsr.Session(ir)", {"popsr": popsr, "ir": ir, "__name__": None})
    assert len(caught()) == 1


# Frequency


def test_a_program_warns_once_for_each_lint_and_line(caught: Caught) -> None:
    ir, scope = build(4, DRIFT)
    for _ in range(2):
        with popsr.Session(ir) as session:
            session.run(data(session))
            session.get_tensor_data(scope["w"])
    assert [text[:2] for text in texts(caught())] == ["L2", "L3"]
    other, _ = build(4, DRIFT)
    popsr.Session(other)
    assert [text[:2] for text in texts(caught())] == ["L2"]


def test_a_program_that_changed_warns_of_new_lines_only(caught: Caught) -> None:
    ir, _ = build(4, DRIFT)
    popsr.Session(ir)
    assert len(caught()) == 1
    with ir.main_graph, popsr.in_sequence():
        v = popsr.variable(np.zeros(66, np.float32), name="v")
        var_updates.accumulate_(v, ops.host_load(popsr.h2d_stream((66,), F32, "y")))
    popsr.Session(ir)
    (text,) = texts(caught())
    assert text.startswith("L2: 'v' drifts")
    popsr.Session(ir)
    assert caught() == []


def test_programs_that_are_right_are_silent(caught: Caught) -> None:
    ir, _ = build(4, DRIFT.replace("ops.host_load(x)", "collectives.replicated_all_reduce(ops.host_load(x))"))
    with popsr.Session(ir) as session:
        session.run(data(session))
    assert caught() == []


# Python's filters


def drift_here() -> popsr.Ir:
    """A program of this module."""
    ir = popsr.Ir(replication=4)
    with ir.main_graph, popsr.in_sequence():
        w = popsr.variable(np.zeros(66, np.float32), name="w")
        ops.add_(w, ops.host_load(popsr.h2d_stream((66,), F32, "x")))
    return ir


FILTERS: dict[str, Callable[[], Any]] = {
    "category": lambda: warnings.filterwarnings("ignore", category=popsr.ReplicaWarning),
    "message": lambda: warnings.filterwarnings("ignore", message="L2: 'w'"),
    "module": lambda: warnings.filterwarnings("ignore", module=f"{__name__}$"),
    "line": lambda: warnings.filterwarnings("ignore", lineno=_last_line()),
}


def _last_line() -> int:
    return drift_here.__code__.co_firstlineno + 5


@pytest.mark.parametrize("name", FILTERS)
def test_filters_find_it(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(popsr.ReplicaWarning):
            popsr.Session(drift_here())
        FILTERS[name]()
        popsr.Session(drift_here())


def test_by_default_a_line_is_shown_once_whatever_the_number_of_programs() -> None:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("default")
        for _ in range(3):
            popsr.Session(drift_here())
    assert len(found) == 1


PROGRAM = f"""\
import numpy as np
import popsr
from popsr import ops
F32 = popsr.float32
ir = popsr.Ir(replication=2)
with ir.main_graph, popsr.in_sequence():
    {DRIFT.strip().replace(chr(10), chr(10) + "    ")}
popsr.Session(ir)
print("made")
"""


@pytest.mark.parametrize(
    ("options", "status", "shown"),
    [
        ([], 0, "program.py:9: ReplicaWarning: L2: 'w' drifts"),
        (["-W", "ignore:L2"], 0, ""),
        (["-W", "error::UserWarning:__main__"], 1, "popsr.errors.ReplicaWarning: L2: 'w' drifts"),
        (["-m", "popsr", "run"], 0, "program.py:9: ReplicaWarning: L2: 'w' drifts"),
    ],
    ids=["default", "ignore", "error", "run"],
)
def test_the_command_line_decides(options: list[str], status: int, shown: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    result = subprocess.run(
        [sys.executable, *options, "program.py"], capture_output=True, text=True, cwd=tmp_path, timeout=60
    )
    assert result.returncode == status, result.stderr
    assert result.stdout == ("made\n" if status == 0 else "")
    if not shown:
        assert result.stderr == ""
        return
    assert shown in result.stderr
    assert status or result.stderr.endswith("\n  ops.add_(w, ops.host_load(x))\n"), (
        "the line of the program is shown"
    )


# As errors: everything stays as it was


@pytest.fixture
def as_errors() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.mark.parametrize("source", [DRIFT, PARTED], ids=["L2", "L1"])
def test_a_session_that_is_refused_is_refused_again(as_errors: None, source: str) -> None:
    ir, _ = build(4, source)
    program = str(ir)
    for _ in range(2):
        with pytest.raises(popsr.ReplicaWarning):
            popsr.Session(ir)
    assert str(ir) == program
    warnings.simplefilter("ignore")
    popsr.Session(ir)


def _session(ir: popsr.Ir) -> popsr.Session:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return popsr.Session(ir)


Read = Callable[[popsr.Session, Any, Path], Any]
READS: dict[str, Read] = {
    "get_tensor_data": lambda s, w, _: s.get_tensor_data(w),
    "get_tensors_data": lambda s, w, _: s.get_tensors_data([w]),
    "weights_to_host": lambda s, w, _: s.weights_to_host(),
    "read_weights": lambda s, w, _: s.read_weights(PyWeightsIO({w: np.zeros(66, np.float32)})),
    "save_safetensors": lambda s, w, folder: io.save_safetensors(s, folder / "w.safetensors"),
    "save_onnx": lambda s, w, folder: io.save_onnx(s, folder / "w.onnx"),
}


@pytest.mark.parametrize("name", READS)
def test_a_read_that_is_refused_changes_nothing(as_errors: None, name: str, tmp_path: Path) -> None:
    if name == "save_onnx":
        pytest.importorskip("onnx")
    ir, scope = build(4, DRIFT)
    session, w = _session(ir), scope["w"]
    for file in ("w.safetensors", "w.onnx"):
        (tmp_path / file).write_bytes(b"old")
    with session:
        session.run(data(session))
        for _ in range(2):
            with pytest.raises(popsr.ReplicaWarning, match=r"^L3: "):
                READS[name](session, w, tmp_path)
        assert session.get_tensor_data(w, replicas="all").tolist() == np.arange(264).reshape(4, 66).tolist()
        session.weights_from_host()  # the host copy is what it was
        assert session.get_tensor_data(w).tolist() == [0] * 66
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == {
        "w.safetensors": b"old",
        "w.onnx": b"old",
    }


def test_leaving_a_session_that_is_refused_leaves_the_host_copy(as_errors: None) -> None:
    ir, scope = build(4, DRIFT)
    session, w = _session(ir), scope["w"]
    with pytest.raises(popsr.ReplicaWarning, match=r"^L3: exit: "), session:
        session.run(data(session))
    assert not session.is_attached
    assert session.get_tensor_data(w).tolist() == [0] * 66


# Saved values that no run reads

RESET = DRIFT.replace("ops.add_(w, ", "var_updates.accumulator_zero_(w)\nops.add_(w, ")


@pytest.mark.parametrize("strict", [False, True])
def test_accumulators_that_every_run_overwrites_are_saved_in_silence(
    caught: Caught, strict: bool, tmp_path: Path
) -> None:
    ir, scope = build(4, RESET)
    with popsr.Session(ir, strict=strict) as session:
        session.run(data(session))
        session.weights_to_host()
        io.save_safetensors(session, tmp_path / "w.safetensors")
        session.run(data(session))
    assert caught() == []
    if strict:
        with pytest.raises(errors.ReplicaError, match="one value per group is read back"):
            session.get_tensor_data(scope["w"])
        return
    session.get_tensor_data(scope["w"])
    (text,) = texts(caught())
    assert text.startswith("L3: get_tensor_data: ")


# Sessions of addons


def test_task_sessions_warn(caught: Caught, tmp_path: Path) -> None:
    ir, scope = build(4, DRIFT)
    state = addons.NamedTensors.from_dict({"w": scope["w"]})
    with addons.TaskSession([scope["x"]], [], state, 1, ir) as session:
        session.run(data(session))
        unchecked(session).save_checkpoint(tmp_path / "checkpoint")
    found = caught()
    assert [text[:2] for text in texts(found)] == ["L2", "L3"]
    assert [each.lineno for each in found] == [3, 3]


def test_merged_collectives_and_gradients_keep_their_lines(caught: Caught) -> None:
    """Ops that transforms make have the lines of what they are made of."""
    ir = popsr.Ir(replication=4)
    with ir.main_graph, popsr.in_sequence():
        w = popsr.variable(np.ones(66, np.float32), name="w")
        x = ops.host_load(popsr.h2d_stream((66,), F32, "x"))
        graph = ir.create_graph(lambda a, b: ops.sum(a * b), w, x)
        call = ops.call_with_info(graph, w, x)
        gradient = popsr.transforms.autodiff(graph)
        dw, *_ = ops.call(gradient.graph, 1.0, inputs_dict=gradient.inputs_dict(call))
        pairs = collectives.replicated_all_reduce(dw, "mean", ir.replica_grouping(group_size=2))
        ops.scaled_add_(w, pairs, b=-0.1)
    popsr.Session(ir)
    (found,) = caught()
    line = linecache.getline(found.filename, found.lineno)
    assert line.strip() == "ops.scaled_add_(w, pairs, b=-0.1)"
