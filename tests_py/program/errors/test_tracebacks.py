"""Tracebacks of errors end at the user's line; all frames are there on request, and for what is not a typed error."""

from __future__ import annotations

import contextlib
import copy
import importlib
import inspect
import pickle
import subprocess
import sys
import traceback
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import addons, errors, ops, transforms
from popsr._program.building import append
from popsr._program.context import get_current_context
from popsr._support.text import entry_points
from tests_py import ROOT
from tests_py.support.helpers import run_python
from tests_py.support.typed_errors import codes, frames_of_popsr
from tests_py.support.unchecked import unchecked

FULL = "POPSR_FULL_TRACEBACK"
WRONG: Any = 3
UNTYPED: Any = popsr


@pytest.fixture(autouse=True)
def users_tracebacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FULL, raising=False)


class Net(addons.Module):
    """A module whose ``build`` makes an op that cannot be."""

    def build(self, x: popsr.Tensor) -> popsr.Tensor:
        return ops.reshape(x, (7,))


def build(x: popsr.Tensor) -> Any:
    return ops.reshape(x, (7,))


class World:
    """A program, and a session of it."""

    def __init__(self) -> None:
        self.ir = popsr.Ir(replication=2)
        with self.ir.main_graph, popsr.in_sequence():
            self.a = popsr.variable(np.ones(2, np.float32), name="a")
            self.stream = popsr.h2d_stream((2,), popsr.float32, "x")
            ops.add_(self.a, ops.host_load(self.stream))
            self.graph = self.ir.create_graph(lambda t: t + 1, self.a)
        self.session = popsr.Session(self.ir)


def _entered(call: Callable[[Any], object]) -> Callable[[Any], object]:
    def inside(w: Any) -> None:
        with w.ir.main_graph:
            call(w)

    return inside


def raised(call: Callable[[Any], object], world: World | None = None) -> Any:
    """The exception of a call."""
    world = world or World()
    try:
        call(world)
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


# One of each kind of entry point.
CALLS: dict[str, Callable[[Any], object]] = {
    "function": lambda w: popsr.variable(1.0),
    "op": lambda w: ops.relu(w.a),
    "collective": lambda w: ops.collectives.replicated_all_reduce(w.a),
    "update": lambda w: ops.var_updates.accumulate_(w.a, w.a),
    "operator": lambda w: w.a + w.a,
    "operator of a number": lambda w: 1 + w.a,
    "in place": lambda w: w.a.__iadd__(1),
    "comparison": lambda w: w.a > 0,
    "index": _entered(lambda w: w.a["x"]),
    "iteration": lambda w: list(w.a),
    "conversion": lambda w: float(w.a),
    "array": lambda w: np.asarray(w.a),
    "NumPy's function": lambda w: np.sum(w.a),
    "constructor": lambda w: popsr.Session(WRONG),
    "no constructor": lambda w: UNTYPED.Tensor((2, 3)),
    "property": lambda w: get_current_context().graph,
    "setter": lambda w: setattr(w.ir, "num_host_transfers", 0),
    "method": lambda w: w.ir.replica_grouping(3),
    "method of the core": lambda w: popsr.ReplicaGrouping.from_stride(2, UNTYPED),
    "late method": lambda w: w.ir.dot_checkpoint(3),
    "context manager": lambda w: popsr.in_sequence(UNTYPED).__enter__(),
    "generator's context manager": lambda w: transforms.io_tile_exchange().__enter__(),
    "attribute": lambda w: UNTYPED.ops.relluu,
    "attribute of the package": lambda w: UNTYPED.Sesion,
    "option": lambda w: setattr(w.ir.options, "sed", 1),
    "run": lambda w: w.session.run({}),
    "data": lambda w: w.session.run({w.stream: np.ones(3, np.float32)}),
    "facts": lambda w: popsr.analysis.analyze(WRONG),
    "explanation": lambda w: popsr.analysis.analyze(w.ir).explain(w.a, 0, 9),
    "transform": lambda w: transforms.autodiff(WRONG),
    "rounding": lambda w: unchecked(popsr.sr.add)(WRONG, "x"),
    "adder": lambda w: popsr.StochasticAdder("x"),
    "file": lambda w: popsr.io.load_safetensors("/no/such/file"),
    "keyword": lambda w: ops.softmax(w.a, axes=0),  # type: ignore[call-arg]
    "missing argument": lambda w: ops.relu(),  # type: ignore[call-arg]
    "missing argument of a method": lambda w: w.session.write_variable_data(),  # type: ignore[call-arg]
    "module": lambda w: addons.Module(grad_inlining_error=UNTYPED),
    "attribute of a module": lambda w: Net().sise,
    "named tensors": lambda w: addons.NamedTensors.from_dict(WRONG),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_last_frame_is_the_users(name: str) -> None:
    error = raised(CALLS[name])
    assert isinstance(error, (errors.Error, TypeError))
    assert frames_of_popsr(error) == []
    assert codes(error)[-1].co_filename == __file__


@pytest.mark.parametrize("name", CALLS)
def test_all_frames_on_request(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FULL, "1")
    error = raised(CALLS[name])
    assert frames_of_popsr(error)
    assert not any(note.startswith("help: ") for note in getattr(error, "__notes__", ()))


@pytest.mark.parametrize("value", ["", "0"])
def test_no_request(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FULL, value)
    assert frames_of_popsr(raised(CALLS["op"])) == []


# Functions of the user that popsr calls

CALLBACKS: dict[str, tuple[Callable[[Any], object], list[str]]] = {
    "graph": (_entered(lambda w: w.ir.create_graph(build, w.a)), ["build"]),
    "module": (_entered(lambda w: Net().create_graph(w.a)), ["build"]),
    "module in a module": (_entered(lambda w: Net()(w.a)), ["build"]),
    "nested": (
        _entered(lambda w: w.ir.create_graph(lambda t: w.ir.create_graph(build, t), w.a)),
        ["<lambda>", "build"],
    ),
}


@pytest.mark.parametrize("name", CALLBACKS)
def test_frames_of_callbacks_stay(name: str) -> None:
    call, inner = CALLBACKS[name]
    error = raised(call)
    assert isinstance(error, errors.ShapeError)
    assert frames_of_popsr(error) == []
    assert [code.co_name for code in codes(error)] == ["raised", "inside", "<lambda>", *inner]
    assert traceback.extract_tb(error.__traceback__)[-1].line == "return ops.reshape(x, (7,))"


def test_a_body_keeps_its_frames() -> None:
    def call(w: World) -> None:
        with w.ir.main_graph, transforms.io_tile_exchange():
            build(w.a)

    assert [code.co_name for code in codes(raised(call))] == ["raised", "call", "build"]


# Full tracebacks


def _fails(error: BaseException) -> Callable[..., Any]:
    def fail(*args: object, **kwargs: object) -> Any:
        raise error

    return fail


KEPT = [KeyboardInterrupt(), RuntimeError("a defect"), TypeError("a defect"), ValueError("a defect")]


@pytest.mark.parametrize("error", [*KEPT, errors.InternalError("a defect")], ids=lambda e: type(e).__name__)
def test_defects_and_interrupts_keep_all_frames(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    monkeypatch.setattr(append, "_input_ids", _fails(error))
    found = raised(_entered(lambda w: ops.relu(w.a)), world)
    assert found is error
    assert len(frames_of_popsr(found)) >= 2


def test_errors_of_the_users_own_keep_all_frames() -> None:
    found = raised(_entered(lambda w: w.ir.create_graph(_fails(ValueError("own")), w.a)))
    assert codes(found)[-1].co_name == "fail"
    assert frames_of_popsr(found)


# Causes


def test_frames_of_causes_are_folded() -> None:
    error = raised(CALLS["file"])
    assert isinstance(error.__cause__ or error.__context__, OSError)
    assert frames_of_popsr(error) == []


def test_what_was_handled_before_stays() -> None:
    """The context of an error is the user's business, also if popsr raised it by a defect."""

    def call(w: World) -> None:
        try:
            raise ValueError("own")
        except ValueError:
            ops.relu(w.a)

    error = raised(call)
    assert isinstance(error.__context__, ValueError)
    assert [code.co_name for code in codes(error.__context__)] == ["call"]
    assert [code.co_name for code in codes(error)] == ["raised", "call"]


# Texts for users


def test_what_python_prints(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        "import popsr\nfrom popsr import ops\n\nir = popsr.Ir()\nwith ir.main_graph:\n"
        "    a = popsr.variable([1.0, 2.0], name='a')\n    ops.reshape(a, (3,))\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.stderr.splitlines() == [
        "Traceback (most recent call last):",
        f'  File "{script}", line 7, in <module>',
        "    ops.reshape(a, (3,))",
        "popsr.errors.ShapeError: reshape: numbers of elements differ, got f32[2] to [3], expected 2 elements",
        f"while emitting reshape(t=<float32[2] 'a'>) at {script}:7",
        "help: python -m popsr help ShapeError",
    ]


# Help


@pytest.mark.parametrize("name", CALLS)
def test_the_last_note_leads_to_the_page(name: str) -> None:
    error = raised(CALLS[name])
    if not isinstance(error, errors.Error):
        return
    assert error.__notes__[-1] == f"help: python -m popsr help {type(error).__name__}"
    assert sum(note.startswith("help: ") for note in error.__notes__) == 1


def test_one_note_however_often_it_is_raised() -> None:
    def call(w: World) -> None:
        first = raised(CALLS["op"], w)
        with w.ir.main_graph:
            w.ir.create_graph(_fails(first), w.a)

    assert [note[:5] for note in raised(call).__notes__] == [f"at {__file__[:2]}", "help:"]


@pytest.mark.parametrize("name", errors.__all__)
def test_each_error_has_a_page(name: str) -> None:
    from popsr._tools.help import page

    kind = getattr(errors, name)
    if issubclass(kind, errors.Error):
        assert kind("text").help == f"python -m popsr help {name}"
        assert type("Mine", (kind,), {})("text").help == f"python -m popsr help {name}"
    assert page(name) is not None


def test_each_lint_has_a_page() -> None:
    from popsr._tools.help import LINTS, page

    for code in LINTS:
        lint = popsr.analysis.Lint(code, None, None, "model.py:3", 0, "", "text")
        assert lint.help == f"python -m popsr help {code}"
        assert page(code) is not None


def test_errors_that_are_copied_keep_their_notes() -> None:
    error = raised(CALLS["op"])
    for other in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert other.__notes__ == error.__notes__
        assert other.help == error.help


# Entry points are the functions that they were


def test_signatures_and_names_stay() -> None:
    for function in (
        ops.relu,
        popsr.Session.run,
        popsr.Ir.create_graph,
        popsr.sr.add,
        addons.Module.__call__,
    ):
        inner = inspect.unwrap(function)
        assert inspect.signature(function) == inspect.signature(inner)
        assert (function.__name__, function.__qualname__, function.__doc__) == (
            inner.__name__,
            inner.__qualname__,
            inner.__doc__,
        )
        assert (function.__module__, function.__annotations__) == (inner.__module__, inner.__annotations__)
    assert typing.get_type_hints(ops.exp)["t"] is popsr.Tensor
    assert list(inspect.signature(popsr.Session).parameters)[:2] == ["ir", "device_desc"]
    assert popsr.Tensor.shape.__doc__
    assert popsr.Session.__init__.__doc__


def test_a_function_is_one_object_everywhere() -> None:
    assert popsr.variable is importlib.import_module("popsr._program.tensors").variable
    assert popsr.analysis.analyze is sys.modules["popsr.analysis"].analyze
    for function in (
        popsr.variable,
        popsr.sr.add,
        popsr.analysis.analyze,
        popsr.io.save_onnx,
        addons.autodiff,
    ):
        assert pickle.loads(pickle.dumps(function)) is function
        assert entry_points.entry_point(function) is function


def test_context_managers_stay_such() -> None:
    manager = transforms.io_tile_exchange()
    assert isinstance(manager, contextlib.AbstractContextManager)

    @transforms.io_tile_exchange()  # type: ignore[misc]
    def function() -> int:
        return 3

    with popsr.Ir().main_graph:
        assert function() == 3


def test_a_first_use_late_in_a_program() -> None:
    """Packages that are imported when they are asked for have entry points, too."""
    run_python(
        "import os, popsr, traceback\n"
        "os.environ.pop('POPSR_FULL_TRACEBACK', None)\n"
        "for call in (lambda: popsr.addons.layers.Linear('x'), lambda: popsr.io.load_onnx(3),\n"
        "             lambda: popsr.addons.optimizers.AdamOptimizerStep(3), lambda: popsr.analysis.analyze(3),\n"
        "             lambda: popsr.fp8_utils.host_pow2scale_cast_to_fp8('x'), lambda: popsr.StochasticAdder(3)):\n"
        "    try:\n"
        "        call()\n"
        "    except (popsr.Error, TypeError) as error:\n"
        "        assert len(traceback.extract_tb(error.__traceback__)) == 2, traceback.format_exc()\n"
    )


def test_public_functions_are_decorated() -> None:
    """A function that a public module lists is decorated where it is defined."""
    assert all((popsr.analysis, popsr.io, popsr.sr, popsr.bridge, popsr.fp8_utils, popsr.Session, ops.add))
    for name, module in list(sys.modules.items()):
        parts = name.split(".")
        if parts[0] == "popsr" and "compat" not in parts and not any(each[0] == "_" for each in parts):
            for each in getattr(module, "__all__", ()):
                value = vars(module).get(each)
                if inspect.isfunction(value) and value.__module__.startswith("popsr."):
                    assert entry_points.entry_point(value) is value, f"{name}.{each}"


def test_the_call_of_the_users_line_is_named() -> None:
    @entry_points.public_call
    def inner() -> None:
        raise errors.ShapeError("wrong")

    @entry_points.public_call
    def outer() -> None:
        inner()

    with popsr.location("model.py", 7):
        assert raised(lambda w: outer()).__notes__[0] == "in outer() at model.py:7"
