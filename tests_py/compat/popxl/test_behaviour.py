"""Corners of PopXL's behaviour in tables: names, order of ops, arguments of graphs and calls, tensors."""

from __future__ import annotations

import contextlib
import copy
import importlib
import inspect
import operator
import pickle
import pydoc
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import errors, ops
from popsr._program.context import get_current_context
from popsr.ops import collectives, var_updates
from tests_py.support.helpers import assert_same_bits
from tests_py.support.unchecked import unchecked

F32, BF16 = popsr.float32, popsr.bfloat16
Argument, Attr, DType, Graph = (
    errors.ArgumentTypeError,
    errors.AttributeValueError,
    errors.DTypeError,
    errors.GraphError,
)
Shape = errors.ShapeError


def _variable(data: Any = (1.0, 2.0, 3.0), name: str = "x", dtype: Any = F32) -> popsr.Variable:
    return popsr.variable(np.asarray(data), dtype, name)


def _value(fn: Callable[[popsr.Tensor], popsr.Tensor], data: Any, dtype: Any) -> Any:
    """Value of ``fn`` of one tensor."""
    ir = popsr.Ir()
    with ir.main_graph, popsr.in_sequence():
        result = fn(_variable(data, dtype=dtype))
        out = popsr.d2h_stream(result.shape, result.dtype)
        ops.host_store(out, result)
    with popsr.Session(ir) as session:
        return session.run()[out]


# Modules and docstrings

MODULES = {
    "popsr._program.context": "Context get_current_context gcg gmg ipu in_sequence io_tiles name_scope",
    "popsr.dtypes": "dtype half float double bool float32 bfloat16",
    "popsr.errors": "UndefinedValue Error",
    "popsr._program.graph": "Graph",
    "popsr._program.ir": "Ir",
    "popsr._program.module": "Module",
    "popsr.ops": "CallSiteInfo call repeat add add_ print_tensor collectives var_updates",
    "popsr.ops.program.conditional": "ConditionalSiteInfo conditional conditional_with_info",
    "popsr.ops.collectives": "CollectiveOps replicated_all_reduce replicated_all_reduce_ replicated_all_gather",
    "popsr.ops.var_updates": "accumulate_ accumulate_mean_ accumulator_scale_ accumulator_zero_ copy_var_update_ "
    "accumulate_square_ accumulate_moving_average_ accumulate_moving_average_square_ sparse_accumulate_ adam_updater "
    "lamb_updater adamax_updater create_adamupdater weight_decay_is_required adam_var_update handle_optimizer_value",
    "popsr._session.session": "Session d2hStreamBufferMaps h2dStreamBufferMaps StreamBufferMaps",
    "popsr._program.streams": "Stream HostToDeviceStream DeviceToHostStream h2d_stream d2h_stream",
    "popsr._program.tensors": "Tensor TensorSpec Variable Constant variable constant graph_input TensorByRef "
    "TensorLike",
    "popsr.transforms.autodiff": "ExpectedConnection ExpectedConnectionType GradGraphInfo autodiff",
    "popsr.utils": "to_numpy",
}


@pytest.mark.parametrize("module", MODULES)
def test_modules_have_popxls_names(module: str) -> None:
    found = importlib.import_module(module)
    missing = [name for name in MODULES[module].split() if not hasattr(found, name)]
    # `popsr.transforms.autodiff` as attribute is the function, as in PopXL; the module is in sys.modules.
    assert not missing or module == "popsr.transforms.autodiff"
    if missing:
        exec(f"from {module} import {', '.join(MODULES[module].split())}", {})


def _public() -> Iterable[tuple[str, Any]]:
    for module in (
        popsr,
        ops,
        collectives,
        var_updates,
        popsr.transforms,
        popsr.analysis,
        popsr.replicas,
        errors,
    ):
        for name in module.__all__:
            found = getattr(module, name)
            if inspect.isclass(found) or inspect.isfunction(found):
                yield f"{module.__name__}.{name}", found


def test_every_public_name_has_a_docstring() -> None:
    missing = []
    for name, found in _public():
        if not inspect.getdoc(found):
            missing.append(name)
        if (
            inspect.isclass(found)
            and found.__module__.startswith("popsr.")
            and "_core" not in found.__module__
        ):
            members = [(key, item) for key, item in vars(found).items() if not key.startswith("_")]
            missing += [
                f"{name}.{key}"
                for key, item in members
                if (callable(item) or isinstance(item, property)) and not inspect.getdoc(item)
            ]
        assert pydoc.plain(pydoc.render_doc(found))
    assert not missing


# Context managers


def _chain(*middle: Any) -> Callable[[popsr.Tensor], Any]:
    """Read x, enter and leave contexts, write x."""

    def build(x: popsr.Tensor) -> None:
        with popsr.in_sequence():
            ops.relu(x)
            for mode in middle:
                try:
                    with popsr.in_sequence(mode):
                        raise KeyError
                except KeyError:
                    pass
            ops.relu_(x)

    return build


def _siblings(x: popsr.Tensor) -> None:
    with popsr.in_sequence(), popsr.in_sequence(False):
        ops.exp(x)
        ops.relu_(x)


def _two_blocks(x: popsr.Tensor) -> None:
    with popsr.in_sequence():
        ops.relu(x)
    with popsr.in_sequence():
        ops.relu_(x)


def _around_a_graph(x: popsr.Tensor) -> None:
    with popsr.in_sequence():
        ops.relu(x)
        popsr.gir().create_graph(lambda t: ops.exp(t), x)
        ops.relu_(x)


def _false_between(x: popsr.Tensor) -> None:
    with popsr.in_sequence():
        ops.relu(x)
        with popsr.in_sequence(False):
            ops.exp(x)
            ops.abs(x)
        ops.relu_(x)


@popsr.in_sequence()
def _decorated(x: popsr.Tensor) -> None:
    ops.relu(x)
    ops.relu_(x)


@pytest.mark.parametrize(
    ("build", "ordered"),
    [
        (_chain(), True),
        (_chain(True), True),
        (_chain(False), True),
        (_chain("pass"), False),  # the chain does not continue across it
        (_siblings, False),
        (_false_between, True),
        (_two_blocks, False),
        (_around_a_graph, True),
        (_decorated, True),  # a decorator works more than once
    ],
)
def test_in_sequence_orders_ops_or_the_session_refuses(
    build: Callable[[popsr.Tensor], Any], ordered: bool
) -> None:
    ir = popsr.Ir()
    ir.options.enable_inplace_ambiguity_checking = True
    with ir.main_graph:
        build(_variable())
    if ordered:
        popsr.Session(ir)
    else:
        with pytest.raises(Graph, match=r"^Inplacing ambiguity detected\."):
            popsr.Session(ir)


def test_contexts_nest_and_restore() -> None:
    context = get_current_context()
    with popsr.in_sequence(False), popsr.name_scope("a"), popsr.name_scope("b"):
        assert context.in_sequence is False
        assert context.name_scopes == ["a", "b"]
        with contextlib.suppress(KeyError), popsr.in_sequence("pass"), popsr.ipu(1), popsr.io_tiles():
            assert unchecked((context.in_sequence, context.ipu_id, context.io_tile_set)) == ("pass", 1, True)
            raise KeyError
        assert (context.in_sequence, context.ipu_id, context.io_tile_set) == (False, None, False)
    assert unchecked((context.in_sequence, context.name_scopes)) == ("pass", [])


# create_graph and calls


def _everything(a: Any, b: Any = 2, *rest: Any, k: Any, **more: Any) -> Any:
    return [a, k]


def _by_ref(
    a: popsr.TensorByRef,
    b: list[popsr.TensorByRef],
    c: popsr.Tensor,
    *d: popsr.TensorByRef,
) -> None:
    var_updates.accumulate_(a, c)
    var_updates.accumulate_(b[0], c)
    var_updates.accumulate_(d[1], c)


def test_order_of_mapped_arguments() -> None:
    ir = popsr.Ir()
    spec = popsr.TensorSpec((2,), BF16, (4,))
    with ir.main_graph:
        x = _variable()
    graph = ir.create_graph(_everything, x, x, spec, x, k=x, z=x, y=spec)
    assert list(graph.inputs_by_name) == ["a", "b", "rest_0", "rest_1", "k", "z", "y"]
    assert graph.inputs[2].spec == spec
    assert list(graph.inputs_by_name.values()) == list(graph.inputs)
    assert [t.name for t in graph.outputs] == ["a", "k"]  # inputs may be outputs


def test_by_reference_through_annotations() -> None:
    """Also under `from __future__ import annotations`, as in this file."""
    ir = popsr.Ir()
    with ir.main_graph, popsr.in_sequence():
        v = [_variable([0.0], f"v{i}") for i in range(5)]
        graph = ir.create_graph(_by_ref, v[0], [v[1]], v[2], v[3], v[4])
        ops.call(graph, v[0], v[1], popsr.constant([1.0]), v[3], v[4])
    with popsr.Session(ir) as session:
        session.run()
    assert [float(session.get_tensor_data(t)[0]) for t in v] == [1, 1, 0, 0, 1]


class _Callable:
    def __call__(self, t: popsr.Tensor) -> popsr.Tensor:
        return t


@pytest.mark.parametrize(
    ("build", "error", "match"),
    [
        (lambda ir, x: ir.create_graph(_Callable(), x), Argument, r"fn is not a function or Module"),
        (lambda ir, x: ir.create_graph(max, x), Argument, r"fn has no signature"),
        (lambda ir, x: ir.create_graph(lambda *t: None, x, 1), Argument, r"t mixes tensors and other values"),
        (lambda ir, x: ir.create_graph(lambda **t: None, a=x, b=1), Argument, r"t mixes tensors"),
        (lambda ir, x: ir.create_graph(lambda t: t, x, x), Attr, r"arguments do not fit <lambda>"),
        (lambda ir, x: ir.create_graph(lambda t: [t, 3], x), Attr, r"returned 3, expected None, a Tensor"),
        (lambda ir, x: ir.create_graph(lambda t: x, x), Graph, r"graph_output: tensor of another graph"),
        (lambda ir, x: ir.create_graph(lambda t: t + x, x), Graph, r"add: rhs is of another graph, got 'x'"),
        (lambda ir, x: ir.create_graph(lambda t: _variable(), x), Graph, r"variable: made in graph '.*'"),
        (lambda ir, x: ir.create_empty_graph(3), Argument, r"create_empty_graph: name is not a str"),
        (lambda ir, x: ir.main_graph.get_tensor(3), Argument, r"get_tensor: tensor_id is not a str"),
        (lambda ir, x: popsr.variable(1, name=unchecked(3)), Argument, r"variable: name is not a str, got 3"),
        (lambda ir, x: popsr.constant(1, name=unchecked(3)), Argument, r"constant: name is not a str"),
        (lambda ir, x: popsr.h2d_stream((), F32, unchecked(3)), Argument, r"h2d_stream: name is not a str"),
        (lambda ir, x: ops.init((), F32, unchecked(3)), Argument, r"init: name is not a str"),
        (lambda ir, x: popsr.variable("a", name="w"), DType, r"variable 'w': data .* got <U1 from str"),
        (lambda ir, x: popsr.variable([x]), Argument, r"variable 't': not an array, got list"),
        (lambda ir, x: popsr.variable(1, unchecked("float31")), DType, r"variable 't': .*float31"),
        (lambda ir, x: popsr.variable(1, log2_scale=1), errors.StateError, r"float8 types only, got 1"),
        (lambda ir, x: x + "a", DType, r"operand: data of no supported dtype"),
        (lambda ir, x: operator.add([], x), Shape, r"operand: it is empty, got shape \(0,\)"),
        (
            lambda ir, x: ops.reshape(x, unchecked(3)),
            Argument,
            r"reshape: shape is not a sequence of ints, got 3",
        ),
        (lambda ir, x: x.transpose(0), Argument, r"transpose: permutation is not a sequence"),
        (lambda ir, x: ops.squeeze(x, unchecked(0)), Argument, r"squeeze: axes is not a sequence"),
        (
            lambda ir, x: popsr.in_sequence(unchecked([])).__enter__(),
            Attr,
            r"in_sequence: unknown mode, got \[\]",
        ),
        (
            lambda ir, x: ops.call(ir.create_empty_graph(), inputs_dict=unchecked(3)),
            Argument,
            r"inputs_dict is not",
        ),
    ],
)
def test_refused_arguments(build: Callable[..., Any], error: type[Exception], match: str) -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        x = _variable()
        with pytest.raises(error, match=match) as caught:
            build(ir, x)
        assert isinstance(caught.value, popsr.Error)
        assert "\n" not in str(caught.value)
        assert popsr.gcg() is ir.main_graph  # nothing stays entered
        ops.relu(x)
    popsr.Session(ir)  # what was left half-built does no harm


def test_inputs_of_calls() -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        x = _variable()
        graph = ir.create_graph(lambda a, b: a + b, x, x)
        for inputs in ((x, x), ([x, x],), ((t for t in (x, x)),), (x, np.ones(3)), ([[1, 2, 3], (1, 2, 3)],)):
            assert len(ops.call(graph, *inputs)) == 1
        info = ops.repeat_with_info(
            graph, unchecked(np.int64(2)), x, inputs_dict={graph.inputs[1]: [1, 2, 3]}
        )
        assert info.called_graph is graph
        assert info.parent_input(1).dtype is F32  # host data takes the dtype of the graph's input
        for call in (lambda: info.parent_input(2), lambda: info.parent_output(-1)):
            with pytest.raises(
                errors.OutOfRangeError, match=r"index out of range, got .*, expected 0 <= index"
            ):
                call()
        with pytest.raises(Argument, match="parent_input: index is not an int"):
            info.parent_input(unchecked("0"))


def test_constants_are_not_modified_by_reference() -> None:
    ir = popsr.Ir()

    def add_to(t: popsr.TensorByRef, x: popsr.Tensor) -> popsr.Tensor:
        return ops.add_(t, x)

    with ir.main_graph, popsr.in_sequence():
        x, c = _variable(), popsr.constant([1.0, 1.0, 1.0], name="c")
        graph = ir.create_graph(add_to, x, x)
        by_value = ir.create_graph(lambda t, y: ops.add_(t, y), x, x)
        for call in (ops.call, lambda g, *ts: ops.repeat(g, 1, *ts)):
            with pytest.raises(Graph, match=r"a constant would be modified, got Constant\[c"):
                call(graph, c, x)
        info = ops.call_with_info(by_value, c, x)
        with pytest.raises(Graph, match=r"set_parent_input_modified: a constant would be modified"):
            info.set_parent_input_modified(c)
        (y,) = ops.call(graph, [[1.0, 1.0, 1.0]], x)  # nobody sees what becomes of host data
        out = popsr.d2h_stream((3,), F32)
        ops.host_store(out, y)
    with popsr.Session(ir) as session:
        assert [session.run()[out].tolist() for _ in range(3)] == [[2, 3, 4]] * 3


# Tensors

X = np.arange(12.0, dtype=np.float32).reshape(3, 4)


@pytest.mark.parametrize(
    "key",
    [
        -1, np.int64(1), slice(-3, -1), slice(None, None, -1), slice(2, 0, -1), slice(5, 9), slice(1, 1), (),
        [2, -3, 2], [], np.array([[0, 1], [2, -1]]), slice(None, None, 2), (slice(2, None, -2), slice(1, 4, 2)),
        (1, slice(None, None, 3)), (-1, -2), (slice(None), -1),
        (slice(None, None, -1), slice(-2, None)), (0, slice(3, None, -1)),
    ],
)  # fmt: skip
def test_indexing_is_numpys(key: Any) -> None:
    assert_same_bits(_value(lambda x: x[key], X, F32), np.array(X[key], order="C"), repr(key))


@pytest.mark.parametrize(
    ("key", "error", "builtin"),
    [
        (True, Argument, TypeError),
        (np.True_, Argument, TypeError),
        ("a", Argument, TypeError),
        (1.5, Argument, TypeError),
        (None, Argument, TypeError),
        (..., Argument, TypeError),
        (np.array([1.5, 2]), Argument, TypeError),
        ([[0, 1], [2]], Argument, TypeError),
        ([0, 3], errors.OutOfRangeError, IndexError),
        (np.array([-4]), errors.OutOfRangeError, IndexError),
        (slice("a", None), Argument, TypeError),
        (slice(0.5, None), Argument, TypeError),
        (slice(None, None, 0), Attr, ValueError),
        (slice(2, 1), Attr, ValueError),
        ((0, 0, 0), Shape, ValueError),
        (3, errors.OutOfRangeError, IndexError),
        (-4, errors.OutOfRangeError, IndexError),
    ],
)
def test_refused_indices(key: Any, error: type[Exception], builtin: type[Exception]) -> None:
    assert issubclass(error, builtin)
    with popsr.Ir().main_graph, pytest.raises(error, match=r"^getitem: .*got .*"):
        _variable(X)[key]


@pytest.mark.parametrize("dtype", [F32, popsr.float16, BF16, popsr.float64])
def test_powers_take_the_dtype_of_the_base(dtype: Any) -> None:
    for result, expect in (
        (_value(lambda x: x**2, [1, 2, 3], dtype), [1, 4, 9]),
        (_value(lambda x: x**0.5, [1, 4, 9], dtype), [1, 2, 3]),
        (_value(lambda x: 2**x, [1, 2, 3], dtype), [2, 4, 8]),
        (_value(unchecked(lambda x: np.array([3, 2, 1]) ** x), [1, 2, 3], dtype), [3, 4, 1]),
    ):
        assert result.dtype == dtype.as_numpy()
        assert result.tolist() == expect


def test_tensors_are_handles() -> None:
    with popsr.Ir().main_graph:
        x = _variable(X)
        y: Any = x
        y += 1
        assert y is x  # the original object
        assert x == x
        assert operator.ne(x, x) is False
        assert {x: 1}[x] == 1
        assert (unchecked(x) == 1) is False
        assert (np.ones(4) == x) is False
        assert len(x) == 3
        assert bool(x)
        assert x.T.shape == (4, 3)
        assert x.strides() == (16, 4)
        for operation in (
            lambda: x < 1,
            lambda: unchecked(x) // 2,
            lambda: +unchecked(x),
            lambda: iter(x),
            lambda: 1 in x,
            lambda: float(x),
        ):
            with pytest.raises(TypeError):
                operation()
        with pytest.raises(ValueError, match="scalar has no length"):
            len(_variable(1.0))
        assert isinstance(operator.add([1], x), popsr.Tensor)  # lists are operands


def test_dtypes_are_singletons() -> None:
    for dtype in (F32, BF16, popsr.bool):
        assert pickle.loads(pickle.dumps(dtype)) is dtype
        assert copy.deepcopy(dtype) is dtype
    for wrong in ("float31", None, 3, np.void):
        with pytest.raises(popsr.Error, match=r"_dtype: no such|from_name: unknown") as caught:
            popsr.dtype.as_dtype(wrong)
        assert isinstance(caught.value, ValueError)
