"""Operators that programs have in C++: functions of popsr ops stand for them, gradient included."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import ops
from popsr._program.context import get_current_context
from popsr.addons.ops import rotary_pos_embed
from popsr.compat import custom_op, rotary_ops
from popsr.compat.popart._internal import ir as _ir
from popsr.errors import (
    ArgumentTypeError,
    AttributeAccessError,
    AttributeValueError,
    GraphError,
    StateError,
    UnknownNameError,
    UnsupportedError,
)
from popsr.transforms import autodiff
from tests_py.compat.custom_op_programs import BINDING, MAIN, PACKAGE, WRAPPER
from tests_py.support.unchecked import unchecked


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries of a test are its own."""
    from popsr.compat._objects import custom_ops

    monkeypatch.setattr(custom_ops, "_entries", dict(custom_ops._entries))


SCALE = _ir.OperatorIdentifier("test.ops", "ScaleAndShift", 1)


def scale_and_shift(x: popsr.Tensor, y: popsr.Tensor, factor: float, shift: float = 0.0) -> popsr.Tensor:
    return x * factor * y + shift


def make(graph: popsr.Graph, inputs: dict[Any, Any], *args: Any, outputs: Any = None, **kwargs: Any) -> Any:
    """An operator by ``createConnectedOp_…``."""
    settings = unchecked(get_current_context())._get_op_settings("scale")
    names = {0: unchecked(graph)._create_tensor_id("out")} if outputs is None else outputs
    return unchecked(graph)._pb_graph.createConnectedOp_ScaleAndShift(
        inputs, names, SCALE, *args, settings, **kwargs
    )


# End to end


def _write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def _run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "popsr", "run", *options, "main.py"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=300,
        check=False,
    )


def test_a_program_with_an_operator_in_cpp_runs_with_its_gradient_on_two_replicas(tmp_path: Path) -> None:
    _write(tmp_path, PACKAGE)
    result = _run(tmp_path)
    assert result.stderr == ""
    line = MAIN[: MAIN.index("lambda x, sin, cos")].count("\n") + 1
    assert result.stdout == f"TurnPairs turn_pairs_out main.py:{line}\n"


def test_functions_of_operators_in_a_file_beside_the_program(tmp_path: Path) -> None:
    """``--with`` leaves the program as it was published."""
    _write(tmp_path, {**PACKAGE, "main.py": MAIN.replace("import entry\n", "")})
    (tmp_path / "entry.py").rename(tmp_path / "my entries.py")
    result = _run(tmp_path, "--with", "my entries.py")
    assert (result.stderr, result.returncode) == ("", 0)


def test_a_file_of_functions_that_is_missing_is_refused_before_anything_runs(tmp_path: Path) -> None:
    _write(tmp_path, {"main.py": "print('ran')"})
    result = _run(tmp_path, "--with", "no.py")
    assert (result.stdout, result.returncode) == ("", 2)
    assert result.stderr == "popsr: run: no such file for --with, got 'no.py', expected a Python file\n"


def test_without_an_entry_the_error_shows_the_lines_to_add(tmp_path: Path) -> None:
    _write(tmp_path, {**PACKAGE, "entry.py": ""})
    result = _run(tmp_path)
    assert result.returncode == 1
    last = result.stderr[result.stderr.index("popsr.errors.UnknownNameError: ") :]
    for text in (
        "'custom.ops.TurnPairs:1' has no function",
        "@popsr.compat.custom_op('custom.ops', 'TurnPairs', 1); def turn_pairs(x0, x1, x2):",
        "at main.py:",
    ):
        assert text in last
    assert len(last.splitlines()[0]) < 520


def test_a_binding_beside_a_module_that_is_not_in_a_package(tmp_path: Path) -> None:
    _write(
        tmp_path,
        {
            **{name: PACKAGE[name] for name in ("entry.py", "main.py")},
            "main.py": MAIN.replace("kernels.turn", "turn"),
            "turn.py": WRAPPER.replace("from . import", "import"),
            "turn_pairs_binding.cpp": BINDING,
        },
    )
    result = _run(tmp_path)
    assert (result.stderr, result.returncode) == ("", 0)


# Making operators


def _values(build: Callable[[popsr.Graph, popsr.Tensor, popsr.Tensor], popsr.Tensor]) -> list[Any]:
    """Result and gradients of both inputs, of an operator of x and y."""
    ir = popsr.Ir()
    x, y = (np.random.default_rng(seed).normal(size=(2, 3)).astype(np.float32) for seed in (0, 1))
    with ir.main_graph, popsr.in_sequence():
        a, b = popsr.variable(x, name="x"), popsr.variable(y, name="y")

        def fn(a: popsr.Tensor, b: popsr.Tensor) -> popsr.Tensor:
            return build(popsr.get_current_graph(), a, b)

        graph = ir.create_graph(fn, a, b)
        grad = autodiff(graph)
        call = ops.call_with_info(graph, a, b)
        one = popsr.constant(np.ones((2, 3), np.float32))
        gradients = ops.call(grad.graph, one, inputs_dict=grad.inputs_dict(call))
        streams = []
        for t in (*call.outputs, *gradients):
            streams.append(popsr.d2h_stream(t.shape, t.dtype))
            ops.host_store(streams[-1], t)
    with popsr.Session(ir) as session:
        results = session.run()
    return [results[stream] for stream in streams]


def _connected(graph: popsr.Graph, x: popsr.Tensor, y: popsr.Tensor) -> popsr.Tensor:
    return unchecked(popsr.Tensor)._from_pb_tensor(
        make(graph, {0: x.id, 1: y.id}, 3.0, shift=1.0).outTensor(0)
    )


def _by_class(graph: popsr.Graph, x: popsr.Tensor, y: popsr.Tensor) -> popsr.Tensor:
    op = unchecked(graph)._pb_graph.createOp_ScaleAndShift(
        SCALE, 3.0, unchecked(get_current_context())._get_op_settings("s"), shift=1.0
    )
    op.connectInTensor(1, y.id)
    op.connectInTensor(0, x.id)
    op.createAndConnectOutTensor(0, unchecked(graph)._create_tensor_id("out"))
    op.setup()
    return unchecked(popsr.Tensor)._from_pb_tensor(op.outTensor(0))


@pytest.mark.parametrize("build", [_connected, _by_class])
def test_programs_make_operators_in_each_way(build: Any) -> None:
    custom_op("test.ops", "ScaleAndShift", 1)(scale_and_shift)
    for value, expected in zip(
        _values(build), _values(lambda _graph, x, y: scale_and_shift(x, y, 3.0, 1.0)), strict=True
    ):
        np.testing.assert_array_equal(value, expected)


def test_an_operator_by_the_constructor_of_op() -> None:
    custom_op("test.ops", "Twice", 1)(lambda x: x + x)
    with popsr.Ir().main_graph as graph:
        x = popsr.variable(1.0, name="x")
        op = unchecked(_ir.Op)(
            _ir.OperatorIdentifier("test.ops", "Twice", 1), _ir.Settings(unchecked(graph)._pb_graph, "twice")
        )
        op.connectInTensor(0, x.id)
        op.createAndConnectOutTensor(0, "twice_out")
        with pytest.raises(StateError, match=r"expected setup\(\) before"):
            op.outTensor(0)
        op.setup()
    assert op.outTensor(0).id == "twice_out"
    assert isinstance(op, _ir.Op)
    with pytest.raises(StateError, match="the operator is made"):
        op.setup()


def test_custom_operators_are_ops_of_the_program() -> None:
    """One op: a call, by its own name where PopART's names are asked for."""
    custom_op("test.ops", "ScaleAndShift", 1)(scale_and_shift)
    made: list[Any] = []
    with popsr.Ir().main_graph as graph, popsr.name_scope("layer"):
        x = popsr.variable(np.ones(3, np.float32), name="x")
        graph.register_op_created_hook(made.append)
        op = make(graph, {0: x.id, 1: x.id}, 3.0)
        unchecked(get_current_context())._op_created(op)
    (found,) = unchecked(graph)._pb_graph.getOps()
    assert found == op
    assert type(found) is type(op)
    assert (found.opType, found.opid, found.outId(0)) == ("ScaleAndShift", SCALE, "layer/out")
    assert isinstance(found, unchecked(_ir.op).CallOp)
    assert [each.id for each in made] == [op.id]  # once
    assert graph.ops[0].kind == "call"
    assert [each.kind for each in graph.ops[0].called_graphs[0].ops] == ["mul", "mul", "add"]


def test_facts_and_explanations_lead_through_an_operator() -> None:
    custom_op("test.ops", "ScaleAndShift", 1)(scale_and_shift)
    ir = popsr.Ir(replication=2)
    with ir.main_graph as graph, popsr.in_sequence():
        w = popsr.variable(np.ones(3, np.float32), name="w")
        x = ops.host_load(popsr.h2d_stream((3,), popsr.float32, "x"))
        equal, unequal = (
            unchecked(popsr.Tensor)._from_pb_tensor(make(graph, {0: w.id, 1: each.id}, 3.0).outTensor(0))
            for each in (w, x)
        )
    facts = popsr.analysis.analyze(ir)
    assert [str(facts.partition(each)) for each in (equal, unequal)] == ["{0,1}", "{0}{1}"]
    text = str(facts.explain(unequal, 0, 1))
    for word in ("mul", "host_load", "test_custom_ops.py:"):
        assert word in text


def test_several_outputs_get_their_ids() -> None:
    custom_op("test.ops", "ScaleAndShift", 1)(lambda x: (x + 1, x + 2))
    ir = popsr.Ir()
    with ir.main_graph:
        x = popsr.variable(1.0, name="x")
        sub = ir.create_empty_graph("sub")
    with sub:
        t = popsr.graph_input((), popsr.float32, "t")
        op = make(
            sub,
            {0: t.id},
            outputs={1: unchecked(sub)._create_tensor_id("b"), 0: unchecked(sub)._create_tensor_id("a")},
        )
    assert [t.id for t in op.getOutputs()] == [f"{sub.id}/a", f"{sub.id}/b"]
    assert x.id == "x"


def test_a_failed_operator_leaves_the_program_as_it_was() -> None:
    custom_op("test.ops", "ScaleAndShift", 1)(lambda x: [x + x, 3])
    ir = popsr.Ir()
    with ir.main_graph as graph:
        x = popsr.variable(1.0, name="x")
        before = ir._core.print_state()
        with pytest.raises(AttributeValueError, match="returned"):
            make(graph, {0: x.id})
    assert ir._core.print_state() == before
    assert ir._custom_ops == {}


def test_a_rolled_back_operator_is_forgotten() -> None:
    custom_op("test.ops", "ScaleAndShift", 1)(lambda x: x + x)
    ir = popsr.Ir()

    def fail(x: popsr.Tensor) -> popsr.Tensor:
        make(popsr.get_current_graph(), {0: x.id})
        raise ValueError("too late")

    with ir.main_graph, pytest.raises(ValueError, match="too late"):
        ir.create_graph(fail, popsr.TensorSpec((2,), popsr.float32))
    assert ir._custom_ops == {}


# Operators that models publish


def turned_by_hand(x: Any, angles: Any, pairs: str) -> Any:
    """Each pair of the first 4 of 6 features as a complex number."""
    first, second = ([0, 2], [1, 3]) if pairs == "neighbours" else ([0, 1], [2, 3])
    number = (x[..., first] + 1j * x[..., second]) * np.exp(1j * angles)[:, None]
    made = x.copy()
    made[..., first], made[..., second] = number.real, number.imag
    return made


@pytest.mark.parametrize("pairs", ["neighbours", "halves"])
def test_the_published_rotary_embedding_and_its_gradient(pairs: Any) -> None:
    """Both rotations exist in each domain that asks for one; the gradient operator turns back."""
    for _ in range(2):  # a cell of a notebook that runs again
        rotary_ops(f"{pairs}.domain", pairs)
    ir = popsr.Ir()
    rng = np.random.default_rng(0)
    data, angles = (
        rng.normal(size=(2, 4, 4, 6)).astype(np.float32),
        rng.normal(size=(4, 2)).astype(np.float32),
    )
    with ir.main_graph, popsr.in_sequence():
        g = ir.main_graph
        x = popsr.variable(data, name="x")
        sin, cos = popsr.variable(np.sin(angles), name="sin"), popsr.variable(np.cos(angles), name="cos")

        def create(name: str, x: popsr.Tensor) -> popsr.Tensor:
            settings = unchecked(get_current_context())._get_op_settings(name)
            identifier = _ir.OperatorIdentifier(f"{pairs}.domain", name, 1)
            outputs = {0: unchecked(g)._create_tensor_id(name)}
            op = unchecked(g)._pb_graph.createConnectedOp_Rotary(
                {0: x.id, 1: sin.id, 2: cos.id}, outputs, identifier, 4, settings
            )
            return unchecked(popsr.Tensor)._from_pb_tensor(op.outTensor(0))

        turned = create("RotaryPosEmbed", x)
        wanted = rotary_pos_embed(x, sin, cos, 4, pairs=pairs)
        back = create("RotaryPosEmbedGrad", turned)
        streams = [popsr.d2h_stream(t.shape, t.dtype) for t in (turned, wanted, back)]
        for stream, t in zip(streams, (turned, wanted, back), strict=True):
            ops.host_store(stream, t)
    with popsr.Session(ir) as session:
        results = session.run()
    np.testing.assert_array_equal(results[streams[0]], results[streams[1]])
    np.testing.assert_allclose(results[streams[0]], turned_by_hand(data, angles, pairs), atol=1e-6)
    np.testing.assert_allclose(results[streams[2]], data, atol=1e-6)


def test_operators_of_one_name_are_not_taken_for_one_another() -> None:
    """The name does not say which features are turned: a domain that nobody spoke of is refused."""
    rotary_ops("one.domain", "halves")
    with popsr.Ir().main_graph as g:
        x = popsr.variable(1.0, name="x")
        identifier = _ir.OperatorIdentifier("another.domain", "RotaryPosEmbed", 1)
        match = "RotaryPosEmbed:1' has no function.*rotary_ops.'another.domain', 'neighbours'.*'halves'"
        with pytest.raises(UnknownNameError, match=match):
            unchecked(g)._pb_graph.createConnectedOp_R({0: x.id, 1: x.id, 2: x.id}, {0: "y"}, identifier, 4)
    with pytest.raises(StateError, match="has another function"):
        rotary_ops("one.domain", "neighbours")
    with pytest.raises(AttributeValueError, match="rotary_ops: unknown pairs, got 'pairs'"):
        rotary_ops("a.domain", "pairs")  # type: ignore[arg-type]


def test_a_program_has_its_own_function() -> None:
    custom_op("its.own", "RotaryPosEmbed", 1)(lambda x, _sin, _cos, _rotary_dim: x + x)
    with popsr.Ir().main_graph as g:
        x = popsr.variable(1.0, name="x")
        identifier = _ir.OperatorIdentifier("its.own", "RotaryPosEmbed", 1)
        op = unchecked(g)._pb_graph.createConnectedOp_R({0: x.id, 1: x.id, 2: x.id}, {0: "y"}, identifier, 4)
    assert [each.kind for each in op.getCalledGraphs()[0]._graph.ops] == ["add"]


# Bad input


@pytest.fixture
def graph() -> Iterator[popsr.Graph]:
    with popsr.Ir().main_graph as main:
        popsr.variable(np.ones(3, np.float32), name="x")
        yield main


def annotated(x: popsr.Tensor, factor: float) -> popsr.Tensor:
    return x * factor


XY, X = {0: "x", 1: "x"}, {0: "x"}
# The function, how it is made, the error.
BAD: dict[str, tuple[Any, Callable[[popsr.Graph], Any], type[Exception], str]] = {
    "no entry": (
        None,
        lambda g: make(g, XY, 3.0),
        UnknownNameError,
        "'test.ops.ScaleAndShift:1' has no function; add",
    ),
    "too few inputs": (
        scale_and_shift,
        lambda g: make(g, X, 3.0),
        AttributeValueError,
        "missing .*'factor'.*1 inputs",
    ),
    "too many inputs": (
        annotated,
        lambda g: make(g, XY),
        AttributeValueError,
        "an input for the attribute 'factor'",
    ),
    "attributes": (
        scale_and_shift,
        lambda g: make(g, XY, 1, 2, 3),
        AttributeValueError,
        "too many positional",
    ),
    "a name": (scale_and_shift, lambda g: make(g, XY, fctor=3), AttributeValueError, "did you mean 'factor'"),
    "a gap": (
        scale_and_shift,
        lambda g: make(g, {0: "x", 2: "x"}, 3),
        AttributeValueError,
        "inputs .* got .0, 2.",
    ),
    "no numbers": (
        scale_and_shift,
        lambda g: make(g, {"x": "x"}, 3),
        ArgumentTypeError,
        "number of inputs is not",
    ),
    "no mapping": (scale_and_shift, lambda g: make(g, unchecked(["x"]), 3), ArgumentTypeError, "inputs"),
    "no id": (
        scale_and_shift,
        lambda g: make(g, {0: 3, 1: "x"}, 3),
        ArgumentTypeError,
        "id of inputs is not a str",
    ),
    "no such tensor": (
        scale_and_shift,
        lambda g: make(g, {0: "no", 1: "x"}, 3),
        UnknownNameError,
        "got 'no'",
    ),
    "a taken id": (
        annotated,
        lambda g: make(g, X, 3.0, outputs={0: "x"}),
        GraphError,
        "must be new, got .'x'.",
    ),
    "one id twice": (
        annotated,
        lambda g: make(g, X, 3.0, outputs={0: "y", 1: "y"}),
        GraphError,
        "must be new",
    ),
    "outputs": (
        annotated,
        lambda g: make(g, X, 3.0, outputs={0: "y", 1: "z"}),
        GraphError,
        "got 1 of .*expected 2",
    ),
    "no outputs": (annotated, lambda g: make(g, X, 3.0, outputs={}), GraphError, "got 1 of .*expected 0"),
    "returns nothing": (lambda x: None, lambda g: make(g, X), GraphError, "a tensor an output, got 0"),
    "returns a number": (
        lambda x: 3,
        lambda g: make(g, X),
        AttributeValueError,
        "returned 3, expected None, a Tensor",
    ),
    "no signature": (getattr, lambda g: make(g, X), ArgumentTypeError, "has no signature"),
    "an op of PopART": (
        None,
        lambda g: unchecked(g)._pb_graph.createConnectedOp_AddOp({}, {}),
        UnsupportedError,
        "createConnectedOp_AddOp: .*got no OperatorIdentifier",
    ),
    "an op of PopART, not connected": (
        None,
        lambda g: unchecked(g)._pb_graph.createOp_AddOp(
            unchecked(get_current_context())._get_op_settings("add")
        ),
        UnsupportedError,
        "createOp_AddOp: ",
    ),
    "only an identifier": (
        None,
        lambda g: unchecked(g)._pb_graph.createConnectedOp_X(SCALE),
        ArgumentTypeError,
        "got 1 arg",
    ),
    "opid": (
        None,
        lambda g: unchecked(_ir.Op)("x", _ir.Settings(g, "x")),
        ArgumentTypeError,
        "Op: opid is not an Oper",
    ),
    "settings": (
        None,
        lambda g: unchecked(_ir.Op)(SCALE, 3),
        ArgumentTypeError,
        "Op: settings is not an OpSettings",
    ),
    "a name of an op": (
        None,
        lambda g: unchecked(_ir.Op)(SCALE, _ir.Settings(g)).nope,
        AttributeAccessError,
        "got 'nope'",
    ),
    "version": (None, lambda g: _ir.OperatorIdentifier("a", "b", -1), AttributeValueError, "version"),
    "domain": (None, lambda g: custom_op(3, "b"), ArgumentTypeError, "domain is not a str"),  # type: ignore[arg-type]
    "empty": (None, lambda g: custom_op("", "b"), AttributeValueError, "must not be empty"),
    "function": (None, lambda g: custom_op("a", "b")(3), ArgumentTypeError, "custom_op: function"),  # type: ignore[type-var]
    "twice": (
        annotated,
        lambda g: custom_op("test.ops", "ScaleAndShift", 1)(scale_and_shift),
        StateError,
        "has another function, got .*scale_and_shift.* beside .*annotated",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_a_typed_error(name: str, graph: popsr.Graph) -> None:
    function, call, error, match = BAD[name]
    if function is not None:
        custom_op("test.ops", "ScaleAndShift", 1)(function)
    before = graph.ir._core.print_state()
    with pytest.raises(error, match=match) as caught:
        call(graph)
    assert isinstance(caught.value, popsr.Error)
    assert len(str(caught.value)) <= 500
    assert graph.ir._core.print_state() == before


def test_registering_a_function_again_replaces_it() -> None:
    """A notebook's cell that is run again."""
    for factor in (1, 2):

        @custom_op("test.ops", "Again")
        def again(x: popsr.Tensor, factor: int = factor) -> popsr.Tensor:
            return x * factor

    with popsr.Ir().main_graph as g:
        x = popsr.variable(1.0, name="x")
        op = unchecked(g)._pb_graph.createConnectedOp_A(
            {0: x.id}, {0: "y"}, _ir.OperatorIdentifier("test.ops", "Again", 1)
        )
    constant = op.getCalledGraphs()[0]._graph.constants[0]
    assert popsr.Session(g.ir).get_tensor_data(constant) == 2
