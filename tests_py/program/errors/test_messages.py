"""Texts of errors about typical mistakes, in full: the call, what is wrong, what was given, what helps."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import addons, errors, ops
from tests_py.support.helpers import FLOAT8
from tests_py.support.unchecked import unchecked

F32, F8 = popsr.float32, popsr.float8_143
Type, Value, Graph, State = (
    errors.ArgumentTypeError,
    errors.AttributeValueError,
    errors.GraphError,
    errors.StateError,
)
Attribute, DType = errors.AttributeAccessError, errors.DTypeError


class Net(addons.Module):
    """One variable."""

    def build(self, x: popsr.Tensor) -> popsr.Tensor:
        return x * self.add_variable_input("w", lambda: np.ones(2, np.float32), F32)


class Uninitialised(addons.Module):
    """Without ``super().__init__()``."""

    def __init__(self) -> None:
        self.size = 3

    def build(self, x: popsr.Tensor) -> popsr.Tensor:
        return x


@pytest.fixture
def p() -> SimpleNamespace:
    """A program with a variable ``a``, one of another program, and a subgraph."""
    ir, other = popsr.Ir(), popsr.Ir()
    with other.main_graph:
        foreign = popsr.variable([1.0, 2.0], name="b")
    with ir.main_graph:
        a = popsr.variable([1.0, 2.0], name="a")
        f8 = popsr.constant(np.ones((4, 4)), F8, name="f8")
        subgraph = ir.create_graph(lambda x: x + 1, a)
        _, net = Net().create_graph(a)
    return SimpleNamespace(
        ir=ir, other=other, a=a, b=foreign, f8=f8, graph=subgraph, inner=subgraph.inputs[0], net=net
    )


def _entered(build: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """``build`` inside the main graph."""

    def inside(p: Any) -> Any:
        with p.ir.main_graph:
            return build(p)

    return inside


NO_GRAPH = "no graph is current, expected a call inside `with ir.main_graph:`"
NO_VALUE = (
    "a tensor has no value while the program is built, got Variable[a popsr.dtypes.float32 (2,)], expected"
)
ON_THE_HOST = "what session.run returns for a d2h_stream, or session.get_tensor_data(variable)"
MAKERS = "expected popsr.variable(data), popsr.constant(data), popsr.graph_input(shape, dtype) or the result of an op"

MESSAGES: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    # Outside a graph
    "op": (lambda p: ops.relu(p.a), State, f"relu: {NO_GRAPH}"),
    "operator": (lambda p: p.a + p.a, State, f"add: {NO_GRAPH}"),
    "operand": (lambda p: p.a + 1, State, f"Tensor.__add__: {NO_GRAPH}"),
    "variable": (lambda p: popsr.variable(1.0), State, f"variable: {NO_GRAPH}"),
    "constant": (lambda p: popsr.constant(1.0), State, f"constant: {NO_GRAPH}"),
    "stream": (lambda p: popsr.h2d_stream((), F32), State, f"h2d_stream: {NO_GRAPH}"),
    "output stream": (lambda p: popsr.d2h_stream((), F32), State, f"d2h_stream: {NO_GRAPH}"),
    "remote buffer": (lambda p: popsr.remote_buffer((), F32), State, f"remote_buffer: {NO_GRAPH}"),
    "input": (lambda p: popsr.graph_input((), F32), State, f"graph_input: {NO_GRAPH}"),
    "call": (lambda p: ops.call(p.graph, p.a), State, f"call: {NO_GRAPH}"),
    "current graph": (lambda p: popsr.gcg(), State, f"get_current_graph: {NO_GRAPH}"),
    # Tensors of other graphs
    "another program": (
        _entered(lambda p: p.a + p.b),
        Graph,
        "add: rhs is of another graph, got 'b' of main graph of Ir {other}, expected a tensor of main graph of Ir {ir}",
    ),
    "another program's graph": (
        _entered(lambda p: ops.call(p.other.create_empty_graph("g"))),
        Graph,
        "call: graph of another Ir, got graph 'g_subgraph(0)' of Ir {other}, expected a graph of Ir {ir}",
    ),
    "output of another program": (
        _entered(lambda p: popsr.graph_output(p.b)),
        Graph,
        "graph_output: tensor of another Ir, got 'b' of main graph of Ir {other}, expected a tensor of main graph of "
        "Ir {ir}",
    ),
    "outer tensor": (
        _entered(lambda p: p.ir.create_graph(lambda x: ops.add(x, p.a), p.a)),
        Graph,
        "add: rhs is of another graph, got 'a' of main graph of Ir {ir}, expected a tensor of graph "
        "'<lambda>.<lambda>_subgraph(2)' of Ir {ir}: pass it to the graph as an input",
    ),
    "inner tensor": (
        _entered(lambda p: ops.add(p.a, p.inner)),
        Graph,
        "add: rhs is of another graph, got '{inner}' of graph '{graph}' of Ir {ir}, expected a tensor of main graph of "
        "Ir {ir}: return it from its graph, and use what the call of that gives",
    ),
    # Values while the program is built
    "if a > 0": (
        _entered(lambda p: p.a > 0),
        Type,
        f">: {NO_VALUE} ops.greater(a, b), and ops.where or ops.conditional",
    ),
    "if 0 > a": (
        _entered(lambda p: p.a < 0),
        Type,
        f"<: {NO_VALUE} ops.greater(b, a), and ops.where or ops.conditional",
    ),
    "if a >= 0": (
        _entered(lambda p: p.a >= 0),
        Type,
        f">=: {NO_VALUE} ops.logical_not(ops.greater(b, a)), and ops.where or ops.conditional",
    ),
    "if a <= 0": (
        _entered(lambda p: p.a <= 0),
        Type,
        f"<=: {NO_VALUE} ops.logical_not(ops.greater(a, b)), and ops.where or ops.conditional",
    ),
    "array < a": (
        _entered(lambda p: np.ones(2) < p.a),
        Type,
        f">: {NO_VALUE} ops.greater(a, b), and ops.where or ops.conditional",
    ),
    "for x in a": (
        _entered(lambda p: [x for x in p.a if x]),
        Type,
        f"iter: {NO_VALUE} parts such as t[0], or ops.split(t, n)",
    ),
    "x, y = a": (
        _entered(lambda p: (lambda x, y: x)(*p.a)),
        Type,
        f"iter: {NO_VALUE} parts such as t[0], or ops.split(t, n)",
    ),
    "x in a": (_entered(lambda p: 3 in p.a), Type, f"in: {NO_VALUE} ops.equal(t, x)"),
    "float": (_entered(lambda p: float(p.a)), Type, f"float: {NO_VALUE} {ON_THE_HOST}"),
    "int": (_entered(lambda p: int(p.a)), Type, f"int: {NO_VALUE} {ON_THE_HOST}"),
    "np.sum": (
        _entered(lambda p: np.sum(p.a)),
        Type,
        f"numpy.sum: {NO_VALUE} popsr.ops.sum, or {ON_THE_HOST}",
    ),
    "np.linalg.norm": (
        _entered(lambda p: np.linalg.norm(p.a)),
        Type,
        f"numpy.norm: {NO_VALUE} {ON_THE_HOST}",
    ),
    "np.add": (
        _entered(lambda p: np.add(p.a, 1)),
        Type,
        f"numpy.add: {NO_VALUE} popsr.ops.add, or {ON_THE_HOST}",
    ),
    "np.add of a number": (
        _entered(lambda p: np.add(1, p.a)),
        Type,
        f"numpy.add: {NO_VALUE} popsr.ops.add, or {ON_THE_HOST}",
    ),
    "np.sqrt": (
        _entered(lambda p: np.sqrt(p.a)),
        Type,
        f"numpy.sqrt: {NO_VALUE} popsr.ops.sqrt, or {ON_THE_HOST}",
    ),
    "np.add.reduce": (
        _entered(lambda p: np.add.reduce(p.a)),
        Type,
        f"numpy.add: {NO_VALUE} popsr.ops.add, or {ON_THE_HOST}",
    ),
    "an array changed by a tensor": (
        _entered(lambda p: np.add(np.ones(2, np.float32), p.a, out=np.ones(2, np.float32))),
        Type,
        f"numpy.add: {NO_VALUE} popsr.ops.add, or {ON_THE_HOST}",
    ),
    "array < tensor": (
        _entered(lambda p: np.ones(2, np.float32) < p.a),
        Type,
        f">: {NO_VALUE} ops.greater(a, b), and ops.where or ops.conditional",
    ),
    "np.asarray": (_entered(lambda p: np.asarray(p.a)), Type, f"numpy.asarray: {NO_VALUE} {ON_THE_HOST}"),
    # Things that are made otherwise
    "Tensor": (
        lambda p: unchecked(popsr.Tensor)((2, 3), F32),
        Type,
        f"Tensor: cannot be constructed, got (2, 3), popsr.dtypes.float32, {MAKERS}",
    ),
    "Variable": (
        lambda p: unchecked(popsr.Variable)(data=1),
        Type,
        f"Variable: cannot be constructed, got 1, {MAKERS}",
    ),
    "no arguments": (lambda p: popsr.Constant(), Type, f"Constant: cannot be constructed, {MAKERS}"),
    "with Ir": (
        lambda p: p.ir.__enter__(),
        Type,
        "with: a program is not entered, got Ir {ir}, expected `with ir.main_graph:`",
    ),
    "no super().__init__()": (
        _entered(lambda p: Uninitialised().create_graph(p.a)),
        Attribute,
        "Uninitialised: the module is not initialised, expected super().__init__() first",
    ),
    "attribute of a module": (lambda p: Net().sise, Attribute, "'Net' object has no attribute 'sise'"),
    # Names
    "function": (
        lambda p: unchecked(ops).relluu,
        Attribute,
        "module 'popsr.ops' has no attribute 'relluu', expected 'relu' or 'relu_'",
    ),
    "dtype": (
        lambda p: unchecked(popsr).float8_e4m3,
        Attribute,
        "module 'popsr' has no attribute 'float8_e4m3', expected 'float8_e4m3fn', 'float8_143' or 'float8_e5m2'",
    ),
    "nothing like it": (
        lambda p: unchecked(ops).zzzz,
        Attribute,
        "module 'popsr.ops' has no attribute 'zzzz'",
    ),
    "PopXL's module": (
        lambda p: unchecked(popsr.ops.collectives).replicated_allreduce,
        Attribute,
        "module 'popsr.ops.collectives' has no attribute 'replicated_allreduce', expected 'replicated_all_reduce' or "
        "'replicated_all_reduce_'",
    ),
    "addons": (
        lambda p: unchecked(addons).ModuleList,
        Attribute,
        "module 'popsr.addons' has no attribute 'ModuleList', expected 'Module' or 'module'",
    ),
    "option": (
        lambda p: setattr(p.ir.options, "enable_stochastic_roundng", True),
        Attribute,
        "options: unknown option, got 'enable_stochastic_roundng', expected 'enable_stochastic_rounding' or "
        "'enableStochasticRounding'",
    ),
    "keyword": (
        _entered(lambda p: unchecked(ops.softmax)(p.a, axes=0)),
        Type,
        "softmax() got an unexpected keyword argument 'axes', expected 'axis'",
    ),
    "keyword of variable": (
        _entered(lambda p: unchecked(popsr.variable)(1.0, replica_groupng=None)),
        Type,
        "variable() got an unexpected keyword argument 'replica_groupng', expected 'replica_grouping'",
    ),
    "keyword of a constructor": (
        lambda p: unchecked(popsr.Ir)(replicatio=2),
        Type,
        "Ir.__init__() got an unexpected keyword argument 'replicatio', expected 'replication'",
    ),
    "keyword of a method": (
        lambda p: p.ir.replica_grouping(strid=1),
        Type,
        "Ir.replica_grouping() got an unexpected keyword argument 'strid', expected 'stride'",
    ),
    "keyword of no parameter": (
        _entered(lambda p: unchecked(ops.relu)(p.a, zzzz=0)),
        Type,
        "relu() got an unexpected keyword argument 'zzzz', expected one of t",
    ),
    # Graphs with state
    "without state": (
        _entered(lambda p: p.net.call(p.a)),
        Graph,
        "call: Not enough inputs have been provided, got 1 of 2 for graph 'Net_subgraph(1)' of Ir {ir}: missing 'w', "
        "expected graph.bind(variables).call(...)",
    ),
    "too few inputs": (
        _entered(lambda p: ops.call(p.graph)),
        Graph,
        "call: Not enough inputs have been provided, got 0 of 1 for graph '{graph}' of Ir {ir}: missing "
        "[Tensor[{inner} popsr.dtypes.float32 (2,)]]",
    ),
    "array as initial value": (
        _entered(lambda p: addons.VariableFactory(np.ones((3, 3), np.float32), name="w")),
        Value,
        "VariableFactory 'w': data_iter is not a function or iterable but an array, got float32[3, 3] array, expected "
        "`lambda: array` for a value, or `iter(array)` for a value a row",
    ),
    # Tensors, streams, graphs and names that stand for another
    "number for a tensor": (
        _entered(lambda p: ops.add(p.a, unchecked(1))),
        Type,
        "add: rhs is not a Tensor, got int 1, expected a Tensor, as popsr.constant makes",
    ),
    "array for a tensor": (
        _entered(lambda p: ops.relu(unchecked(np.ones((2, 3), np.float32)))),
        Type,
        "relu: t is not a Tensor, got ndarray float32[2, 3] array, expected a Tensor, as popsr.constant makes",
    ),
    "None for a tensor": (
        _entered(lambda p: ops.relu(unchecked(None))),
        Type,
        "relu: t is not a Tensor, got NoneType None, expected a Tensor",
    ),
    "tensor for a stream": (
        _entered(lambda p: ops.host_load(p.a)),
        Type,
        "host_load: not a HostToDeviceStream, got Variable[a popsr.dtypes.float32 (2,)], expected what "
        "popsr.h2d_stream(shape, dtype) returns",
    ),
    "tensor before its stream": (
        _entered(lambda p: ops.host_store(p.a, unchecked(popsr.d2h_stream((2,), F32)))),
        Type,
        "host_store: not a DeviceToHostStream, got Variable[a popsr.dtypes.float32 (2,)], expected what "
        "popsr.d2h_stream(shape, dtype) returns",
    ),
    "tensor for a graph": (
        lambda p: popsr.transforms.autodiff(p.a),
        Type,
        "autodiff: graph is not a Graph, got Variable[a popsr.dtypes.float32 (2,)], expected what ir.create_graph "
        "returns",
    ),
    "name for a tensor": (
        lambda p: popsr.analysis.analyze(p.ir).partition(unchecked("a")),
        Type,
        "partition: t is not a Tensor, got 'a', expected a Tensor",
    ),
    "name of no dtype": (
        _entered(lambda p: ops.cast(p.a, unchecked("float31"))),
        DType,
        f"cast: unknown dtype, got 'float31', expected one of {', '.join(popsr.dtypes.dtype._named)}",
    ),
    "two programs at once": (
        _entered(lambda p: p.other.main_graph.__enter__()),
        State,
        "graph: graphs of different Irs are nested, got main graph of Ir {other} inside main graph of Ir {ir}, "
        "expected `with` of one program at a time",
    ),
    # Sessions
    "session of a graph": (
        lambda p: popsr.Session(p.graph),
        Type,
        "Session: ir is not an Ir, got a graph, expected its Ir: graph.ir",
    ),
    # float8
    "product of float8": (
        _entered(lambda p: p.f8 @ p.f8),
        DType,
        "matmul: input lhs has the wrong dtype, got f8_143[4, 4] 'f8', expected one of float16, bfloat16, float32, "
        "float64: see pow2scale_cast_from_fp8, or matmul_pow2scaled",
    ),
    "function of float8": (
        _entered(lambda p: ops.softmax(p.f8, 0)),
        DType,
        "softmax: input t has the wrong dtype, got f8_143[4, 4] 'f8', expected one of float16, bfloat16, float32, "
        "float64: see pow2scale_cast_from_fp8",
    ),
    "cast of float8": (
        _entered(lambda p: ops.cast(p.a, F8)),
        DType,
        "cast: float8 needs a scale, got float8_143, expected another dtype or pow2scale_cast_to_fp8",
    ),
    "scaled product of float32": (
        _entered(lambda p: ops.matmul_pow2scaled(p.a, p.a, popsr.constant(0))),
        DType,
        "matmul_pow2scaled: input lhs has the wrong dtype, got f32[2] 'a', expected one of "
        f"{', '.join(FLOAT8)}: see pow2scale_cast_to_fp8",
    ),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_text(name: str, p: SimpleNamespace) -> None:
    build, error, text = MESSAGES[name]
    with pytest.raises(error) as caught:
        build(p)
    assert type(caught.value) is error
    names = {"{ir}": p.ir.id, "{other}": p.other.id, "{graph}": p.graph.id, "{inner}": p.inner.id}
    for word, value in names.items():
        text = text.replace(word, str(value))
    assert str(caught.value) == text
    assert len(text) <= 300


WITHOUT_LINE = {
    *("Tensor", "Variable", "no arguments", "with Ir", "no super().__init__()", "attribute of a module"),
    *("function", "dtype", "nothing like it", "PopXL's module", "addons", "option"),
    *("keyword", "keyword of variable", "keyword of no parameter", "array as initial value"),
    *("keyword of a constructor", "keyword of a method", "name for a tensor", "session of a graph"),
    "two programs at once",
}


@pytest.mark.parametrize("name", MESSAGES)
def test_errors_of_building_say_where(name: str, p: SimpleNamespace) -> None:
    """A note has the file and line of the user's call; Python's traceback has it for errors of the call itself."""
    with pytest.raises(errors.Error) as caught:
        MESSAGES[name][0](p)
    notes = getattr(caught.value, "__notes__", [])
    if name in WITHOUT_LINE:
        assert notes == []
    else:
        assert re.search(r"test_messages\.py:\d+$", notes[0]), notes


# Unchanged values


def test_tensors_stay_handles(p: SimpleNamespace) -> None:
    """True, equal to themselves alone, with a length, and no Iterables."""
    from collections.abc import Collection, Iterable, Sequence

    assert p.a
    assert p.a == p.a
    assert p.a != p.b
    for array in (np.ones(2, np.float32), np.float32(1)):
        assert (p.a == array) is (array == p.a) is False
        assert p.a != array
        assert array != p.a
    assert len(p.a) == 2
    assert not isinstance(p.a, (Iterable, Collection, Sequence))
    assert (np.shape(p.a), np.ndim(p.a)) == ((2,), 1)
    assert hasattr(p.a, "shape")
    assert not hasattr(p.a, "values")


def test_classes_of_users_are_not_iterable_either() -> None:
    class Mine(popsr.Tensor):
        __slots__ = ()

    with popsr.Ir().main_graph:
        mine = object.__new__(Mine)
        for name in popsr.Tensor.__slots__:
            if name not in ("__weakref__", "_was"):
                setattr(mine, name, getattr(popsr.variable(1.0), name))
    with pytest.raises(Type, match=r"^iter: a tensor has no value"):
        iter(mine)


def test_a_note_stays_the_innermost() -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        a = popsr.variable([1.0])
        with pytest.raises(errors.Error) as caught:
            ops.call(ir.create_graph(lambda x: ops.reshape(x, (3,)), a), a)
    assert len(caught.value.__notes__) == 1
    assert caught.value.__notes__[0].startswith("while emitting reshape(t=<float32[1] ")


def test_functions_keep_their_identity_and_signature() -> None:
    import inspect
    import pickle

    from popsr.ops.math import elementwise

    assert ops.add is elementwise.add
    assert ops.clip is ops.clamp
    assert pickle.loads(pickle.dumps(ops.add)) is ops.add
    assert list(inspect.signature(ops.softmax).parameters) == ["t", "axis"]
    assert ops.softmax.__doc__ is not None
