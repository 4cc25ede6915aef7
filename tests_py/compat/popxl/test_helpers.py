"""PopXL's helper functions, aliases and small classes: what they return and what they refuse."""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import popsr
from popsr import errors, ops
from popsr._program.typing_ import NewAliasAnnotation
from popsr._support.host.types import host_tensor_types
from popsr.ops import collectives, utils
from popsr.ops.shape.shape import INT_MAX, INT_MIN, process_args
from popsr.utils import table_to_string
from tests_py.support.helpers import assert_same_bits, evaluate
from tests_py.support.unchecked import unchecked

F32 = popsr.float32
Argument, Attr, Graph, Shape = (
    errors.ArgumentTypeError,
    errors.AttributeValueError,
    errors.GraphError,
    errors.ShapeError,
)
reshape_handle_negative_axis = importlib.import_module("popsr.ops.shape.shape").reshape_handle_negative_axis


def _input(*shape: int, dtype: Any = F32) -> popsr.Tensor:
    return popsr.graph_input(shape, dtype)


# Conversions


@pytest.mark.parametrize(
    ("function", "value", "result"),
    [
        (utils.convert_optional_float, 2, 2.0),
        (utils.convert_optional_float, np.float32(0.5), 0.5),
        (utils.convert_optional_int, np.int64(3), 3),
        (utils.convert_optional_dtype, np.float16, popsr.float16),
        (utils.convert_optional_int64_list, (np.int32(1), -(2**63)), [1, -(2**63)]),
        (utils.convert_optional_int64_list, iter([4]), [4]),
        (utils.convert_optional_int64_list, (), []),
        (collectives.to_collective_op, "square_add", collectives.CollectiveOperator.SquareAdd),
        (importlib.import_module("popsr.ops.program.remote").multiply_tuple, (2, 3, 4), 24),
        (importlib.import_module("popsr.ops.program.remote").multiply_tuple, (), 1),
    ],
)
def test_conversions(function: Callable[[Any], Any], value: Any, result: Any) -> None:
    got = function(value)
    assert got == result
    assert type(got) is type(result)


def test_none_stays_none() -> None:
    for function in (
        utils.convert_optional_float,
        utils.convert_optional_int,
        utils.convert_optional_dtype,
        utils.convert_optional_int64_list,
    ):
        assert function(None) is None


def test_every_collective_has_an_operator() -> None:
    names = unchecked(collectives.CollectiveOps).__args__
    assert [collectives.to_collective_op(name).value for name in names] == list(names)


@given(st.lists(st.integers(0, 4), max_size=4), st.data())
def test_worked_out_shapes_are_numpys(shape: list[int], data: st.DataObject) -> None:
    extents = [each or 1 for each in shape]
    wanted = data.draw(st.permutations(extents))
    if wanted and data.draw(unchecked(st.booleans())):
        wanted[data.draw(st.integers(0, len(wanted) - 1))] = -1
    with popsr.Ir().create_empty_graph():
        t = _input(*extents)
        expect = np.empty(extents).reshape(wanted).shape
        assert reshape_handle_negative_axis(t, tuple(wanted)) == expect
        assert ops.reshape(t, tuple(wanted)).shape == expect


@given(st.integers(1, 4), st.data())
def test_axes_count_from_the_front(rank: int, data: st.DataObject) -> None:
    axis = data.draw(st.integers(-rank, rank - 1))
    with popsr.Ir().create_empty_graph():
        assert utils.handle_negative_axis(_input(*[2] * rank), axis) == range(rank)[axis]


@pytest.mark.parametrize(
    ("args", "lists"),
    [
        ((), ([], [], [], [])),
        ((1,), ([1], [INT_MAX], [1], [0])),
        ((None, 3), ([INT_MIN], [3], [1], [0])),
        ((None, None, -1), ([INT_MAX], [INT_MIN], [-1], [0])),
        (([1, None], [None, 4], [1, -1], [2, 0]), ([1, INT_MAX], [INT_MAX, 4], [1, -1], [2, 0])),
    ],
)
def test_arguments_of_slices(args: tuple[Any, ...], lists: Any) -> None:
    assert process_args(*args) == lists


def test_processed_arguments_slice_as_the_arguments_do() -> None:
    data = np.arange(24, dtype=np.float32).reshape(4, 6)
    for args in ((1, 3), (None, 2, None, 1), ([None, 4], [None, 1], [-1, -1], [0, 1])):
        direct, processed = evaluate(
            lambda t, args=args: [ops.slice(t, *args), ops.slice(t, *process_args(*args))], [data]
        )
        assert_same_bits(processed, direct)


# Checks


def test_casts_where_needed() -> None:
    ir = popsr.Ir()
    with ir.create_empty_graph() as graph:
        del graph
        t = _input(2)
        assert utils.cast_if_needed(t, F32) is t
        assert utils.cast_if_needed(t, popsr.int32).dtype is popsr.int32
    assert ir.num_host_transfers == 1


def test_tensors_of_the_graph_pass_the_check() -> None:
    graph = popsr.Ir().create_empty_graph()
    with graph:
        a, b = _input(2), _input(3)
    utils.check_in_graph(graph, a, b=b)
    utils.check_in_graph(graph)


def test_tensors_of_one_place_pass_the_check() -> None:
    with popsr.Ir().main_graph:
        unknown = popsr.variable(1.0)  # nobody uses it
        with popsr.ipu(1):
            a, b = ops.init((2,), F32), ops.init((2,), F32)
        with popsr.io_tiles():
            c = ops.init((2,), F32)
        utils.check_tensor_ipu_and_tile_set(a, b=b, unknown=unknown)
        with pytest.raises(Graph, match=r"tensors are apart, got ipu \{'a': 1, 'c': 0\}, expected one ipu"):
            utils.check_tensor_ipu_and_tile_set(a=a, c=c)
        with pytest.raises(Graph, match=r"got tile_set \{'c': 'io', 'd': 'compute'\}"):
            utils.check_tensor_ipu_and_tile_set(c=c, d=ops.init((2,), F32))


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda t: utils.cast_if_needed(unchecked(3), F32), Argument, r"cast_if_needed: t is not a Tensor, got 3"),
        (lambda t: utils.cast_if_needed(t(2), unchecked("float31")), errors.DTypeError, r"cast_if_needed: .*float31"),
        (lambda t: utils.check_in_graph(unchecked(3), t(2)), Argument, r"check_in_graph: graph is not a Graph, got 3"),
        (lambda t: utils.check_in_graph(popsr.gcg(), x=unchecked(3)), Argument, r"x is not a Tensor, got 3"),
        (lambda t: utils.check_in_graph(popsr.gmg(), t(2)), Graph, r"tensor 0 is of another graph, got Tensor"),
        (lambda t: utils.check_tensor_ipu_and_tile_set(x=unchecked(None)), Argument, r"x is not a Tensor, got None"),
        (lambda t: utils.handle_negative_axis(t(2), 1), Attr, r"axis is out of range, got 1"),
        (lambda t: utils.handle_negative_axis(t(2), -2), Attr, r"axis is out of range, got -2"),
        (lambda t: utils.handle_negative_axis(t(), 0), Attr, r"axis is out of range, got 0"),
        (lambda t: utils.handle_negative_axis(t(2), unchecked(None)), Attr, r"axis is out of range, got None"),
        (lambda t: utils.handle_negative_axis(t(2), unchecked(0.5)), Argument, r"v is not an int, got 0.5"),
        (lambda t: utils.convert_optional_float(unchecked("x")), Argument, r"v is not a number, got str 'x'"),
        (lambda t: utils.convert_optional_int(unchecked(1.5)), Argument, r"v is not an int, got 1.5"),
        (lambda t: utils.convert_optional_dtype(unchecked("x")), errors.DTypeError, r"convert_optional_dtype: .*'x'"),
        (lambda t: utils.convert_optional_int64_list(unchecked(3)), Argument, r"l is not a sequence of ints, got 3"),
        (lambda t: utils.convert_optional_int64_list([2**63]), Attr, r"l: got 9223372036854775808, expected"),
        (lambda t: reshape_handle_negative_axis(3, (1,)), Argument, r"t is not a Tensor, got int 3"),
        (lambda t: reshape_handle_negative_axis(t(4), (0, 4)), Attr, r"bad shape, got \[0, 4\]"),
        (lambda t: reshape_handle_negative_axis(t(4), (-2,)), Attr, r"bad shape, got \[-2\]"),
        (lambda t: reshape_handle_negative_axis(t(4), (-1, -1)), Attr, r"and -1 at most once"),
        (lambda t: reshape_handle_negative_axis(t(4), (3,)), Shape, r"got \(3,\), expected 4 elements"),
        (lambda t: reshape_handle_negative_axis(t(4), (3, -1)), Shape, r"got \(3, -1\), expected 4"),
        (lambda t: process_args([1], [1, 2]), Attr, r"process_args: lists differ in length"),
        (lambda t: process_args(unchecked("a")), Argument, r"process_args: bound is not an int"),
        (
            lambda t: collectives.to_collective_op(unchecked("local")),
            Attr,
            r"to_collective_op: unknown op, got 'local'",
        ),
        (
            lambda t: importlib.import_module("popsr.ops.indexing.onehot").check_increment([2, 1]),
            Attr,
            r"levels do not ascend, got \[2.0, 1.0\]",
        ),
        (lambda t: t(2).diag(), Shape, r"diag: no matrix, got .*expected 2 dimensions"),
        (lambda t: ops.CallSiteInfo(unchecked(3)), Argument, r"CallSiteInfo: not a call or repeat op, got 3"),
        (lambda t: ops.CallSiteInfo(_last_op(ops.relu(t(2)))), Argument, r"not a call or repeat op, got %"),
        (lambda t: popsr.transforms.GradGraphInfo(), Argument, r"GradGraphInfo: cannot be constructed"),
        (lambda t: popsr.transforms.ExpectedConnection(), Argument, r"cannot be constructed, use autodiff"),
        (lambda t: popsr.HostToDeviceStream(), errors.UnsupportedError, r"cannot be constructed"),
        (lambda t: popsr.Tensor(), Argument, r"Tensor: cannot be constructed"),
    ],
)  # fmt: skip
def test_refused_arguments(call: Callable[..., Any], error: type[Exception], match: str) -> None:
    ir = popsr.Ir()
    with ir.main_graph, ir.create_empty_graph(), pytest.raises(error, match=match) as caught:
        call(_input)
    assert isinstance(caught.value, popsr.Error)
    assert "\n" not in str(caught.value)


def _last_op(t: popsr.Tensor) -> Any:
    return popsr.gcg().ops[-1]


# Tensors


@pytest.mark.parametrize("shape", [(3, 3), (2, 5), (5, 2), (1, 4), (4, 1), (0, 3), (3, 0)])
def test_diagonals_are_numpys(shape: tuple[int, int]) -> None:
    data = np.arange(math.prod(shape), dtype=np.float32).reshape(shape)
    (diagonal,) = evaluate(lambda t: t.diag(), [data])
    assert_same_bits(diagonal, np.array(np.diag(data)))


@pytest.mark.parametrize("dtype", [F32, popsr.bfloat16, popsr.bool, popsr.int64])
def test_strides_are_numpys(dtype: Any) -> None:
    with popsr.Ir().create_empty_graph():
        t = _input(2, 3, 4, dtype=dtype)
    assert t.strides() == np.empty((2, 3, 4), dtype.as_numpy()).strides
    assert t.strides((5, 6)) == np.empty((5, 6), dtype.as_numpy()).strides
    assert t.strides(()) == ()


def test_specs_are_mappings() -> None:
    spec = popsr.TensorSpec([2, 3], F32)
    assert dict(spec) == spec.to_dict() == {"shape": (2, 3), "dtype": F32, "meta_shape": ()}
    assert spec.to_tuple() == ((2, 3), F32, ())
    assert popsr.TensorSpec(**spec) == spec
    assert hash(popsr.TensorSpec(**spec)) == hash(spec)
    assert spec != popsr.TensorSpec((2, 3), F32, (6,))
    assert spec != dict(spec)
    assert len(spec) == 3
    with popsr.Ir().create_empty_graph():
        assert popsr.graph_input(**spec).spec == spec
    assert repr(spec) == "TensorSpec(shape=(2, 3), dtype=popsr.dtypes.float32, meta_shape=())"


def test_subclasses_say_which_tensors_are_theirs() -> None:
    before = dict(popsr.Tensor._by_type)

    class Mine(popsr.Tensor):
        __slots__ = ()

    assert before == popsr.Tensor._by_type == {"Variable": popsr.Variable, "Const": popsr.Constant}
    with pytest.raises(Argument, match="Mine: cannot be constructed"):
        Mine()
    with popsr.Ir().main_graph:
        assert type(popsr.variable(1)) is popsr.Variable
        assert type(popsr.constant(1)) is popsr.Constant
        assert type(ops.init((), F32)) is popsr.Tensor


def test_aliases_of_types() -> None:
    from popsr._support.host.types import HostTensor, ScalarType, host_tensor_types

    assert ScalarType == int | float | bool
    assert isinstance(np.zeros(2), host_tensor_types)
    assert not isinstance([1], host_tensor_types)
    assert np.ndarray in {getattr(each, "__origin__", each) for each in HostTensor.__args__}
    mine = NewAliasAnnotation("Mine", popsr.Tensor)
    assert mine == NewAliasAnnotation("Mine", popsr.Tensor)
    assert mine not in (popsr.Tensor, popsr.TensorByRef)
    assert unchecked(mine).__origin__ is popsr.Tensor
    assert popsr.TensorByRef == NewAliasAnnotation("TensorByRef", popsr.Tensor)


def test_torchs_tensors_are_host_tensors() -> None:
    torch = pytest.importorskip("torch")
    assert isinstance(torch.zeros(2), host_tensor_types)


def test_torch_is_known_without_being_imported() -> None:
    assert popsr.utils.torch_imported is (importlib.util.find_spec("torch") is not None)
    with pytest.raises(AttributeError, match="no attribute 'jax_imported'"):
        _ = popsr.utils.jax_imported


# Text


def test_tables() -> None:
    rows = [("name", "n"), ("a", 1), ("long name", 20), ("short",)]
    assert (
        table_to_string(rows) == "name      | n\n--------------\na         | 1\nlong name | 20\nshort     |"
    )
    assert table_to_string([[1, 22], [333, 4]], ", ", header=False) == "1  , 22\n333, 4"
    assert table_to_string([]) == ""


def test_streams_as_text() -> None:
    with popsr.Ir().main_graph:
        load, store = popsr.h2d_stream((2,), F32, "in"), popsr.d2h_stream((), popsr.int32, "out")
    assert (str(load), str(store)) == (
        "in: float32[2] from host to device",
        "out: int32[] from device to host",
    )
    assert repr(load) == "HostToDeviceStream[in popsr.dtypes.float32 (2,)]"
    assert load.spec == popsr.TensorSpec((2,), F32)
    assert load in {load}
    assert load != store


# Calls


def test_call_sites_are_found_in_graphs() -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        x = popsr.variable([1.0, 2.0], F32, "x")
        graph = ir.create_graph(lambda t: ops.exp(t), x)
        (y,) = ops.repeat(graph, 2, x)
        info = ops.CallSiteInfo(ir.main_graph.ops[-1])
    assert info.called_graph is graph
    assert (info.inputs, info.outputs) == ((x,), (y,))
    assert (info.graph_to_parent_input_index(0), info.parent_to_graph_output_index(0)) == (0, 0)
    assert info.graph_to_parent(graph.outputs[0]) is y
    assert info.parent_to_graph(x) is graph.inputs[0]


def test_gradient_graphs_print_their_connections() -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        graph = ir.create_graph(lambda a, b: a * b, *[popsr.variable([1.0], F32, n) for n in "ab"])
    info = popsr.transforms.autodiff(graph, grads_required=[graph.inputs[0]])
    scope = re.escape(graph.id)
    assert re.fullmatch(
        rf"GradGraphInfo\[graph=Graph\[id={scope}_bwd .*\] forward_graph=Graph\[id={scope} .*\]\n"
        rf"  inputs:\n    0: ExpectedConnection\(FwdGrad, Tensor\[{scope}/mul_out .*\]\)\n"
        rf"    1: ExpectedConnection\(Fwd, Tensor\[{scope}/b .*\]\)\n"
        rf"  outputs:\n    0: ExpectedConnection\(FwdGrad, Tensor\[{scope}/a .*\]\)\]",
        repr(info),
    )
    assert info.expected_inputs[1].connection_type is popsr.transforms.ExpectedConnectionType.Fwd
    assert info.inputs == (graph.outputs[0], graph.inputs[1])
    assert info.outputs == (graph.inputs[0],)
