"""Graphs and tensors: names, context, calls by value and by reference, repeat, order of in-place ops."""

from __future__ import annotations

import functools
import re
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import TensorByRef, TensorSpec, errors, ops
from popsr.ops import var_updates
from tests_py.support.helpers import evaluate, make_variable, random_array
from tests_py.support.unchecked import unchecked

F32 = popsr.float32


def spec(*shape: int) -> TensorSpec:
    return TensorSpec(shape, F32)


def double(x: popsr.Tensor) -> popsr.Tensor:
    return ops.add(x, x)


class Doubler(popsr.Module):
    def build(self, x: popsr.Tensor) -> popsr.Tensor:
        return double(x)


# Names


def test_graph_ids() -> None:
    ir = popsr.Ir()

    def inner(x: popsr.Tensor) -> popsr.Tensor:
        return x

    with ir.main_graph:
        assert ir.create_graph(double, spec(2)).id == "double_subgraph(0)"
        assert ir.create_graph(inner, spec(2)).id == "test_graph_ids.inner_subgraph(1)"
        assert ir.create_graph(Doubler(), spec(2)).id == "Doubler_subgraph(2)"
        assert ir.create_empty_graph("mine").id == "mine_subgraph(3)"
        assert ir.create_empty_graph().id == "graph_subgraph(4)"
    assert ir.main_graph.id == ir.main_graph.name == ""
    assert repr(ir.main_graph) == "Graph[main inputs=0 ops=0]"
    graph = ir.create_empty_graph()
    assert (
        repr(graph)
        == f"Graph[id={graph.id} name={graph.name} inputs={len(graph.inputs)} ops={len(graph.ops)}]"
    )


def test_tensor_ids() -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        a = popsr.variable(1.0, F32, "bob")
        assert (a.id, a.name, a.scope) == ("bob", "bob", "")
        b = ops.add(a, a)
        assert b.name == "add_out"
        again = ops.add(a, a)
        assert re.fullmatch(r"add_out__t\d+", again.name)
        assert popsr.constant(1.0).name == "t"
        with popsr.name_scope("outer"), popsr.name_scope("inner"):
            assert ops.mul(a, a).name == "outer/inner/mul_out"
            assert popsr.variable(1.0, F32, "v").id == "outer/inner/v"
        assert ops.mul(a, a).name == "mul_out"
        graph = ir.create_graph(double, spec(3))
    x, y = graph.inputs[0], graph.outputs[0]
    assert (x.id, x.name, x.scope) == (f"{graph.id}/x", "x", graph.id)
    assert y.id == f"{graph.id}/add_out"
    assert graph.get_tensor(x.id) is x
    assert graph.inputs_by_name == {"x": x}
    assert x in graph
    assert a not in graph


def test_reprs() -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        variable = popsr.variable(np.zeros(1, np.int32), name="bob")
        constant = popsr.constant([1.0, 2.0])
    assert repr(variable) == "Variable[bob popsr.dtypes.int32 (1,)]"
    assert repr(constant) == "Constant[t popsr.dtypes.float32 (2,)]"
    assert repr(ir).startswith(f"Ir[id={ir.id} replicas=")
    assert ir.id != popsr.Ir().id


def test_dtype_and_spec() -> None:
    assert repr(F32) == "popsr.dtypes.float32"
    assert popsr.half is popsr.float16
    assert popsr.dtype.as_dtype("bfloat16") is popsr.bfloat16
    assert popsr.dtype.as_dtype(np.int8) is popsr.int8
    assert popsr.dtype.as_dtype(float) is popsr.float32  # as in PopXL
    assert popsr.dtype.as_dtype(np.float64) is popsr.float64
    assert popsr.dtypes._NP_TO_POPXL[np.dtype(np.float16)] is popsr.float16
    assert popsr.dtypes._PT_TO_POPXL["torch.bfloat16"] is popsr.bfloat16
    assert all(popsr.dtype.as_dtype(key) is value for key, value in popsr.dtypes._NP_TO_POPXL.items())
    assert popsr.bfloat16.is_floating_point
    assert not popsr.uint8.is_signed
    with pytest.raises(TypeError):
        popsr.dtype()
    with pytest.raises(ValueError, match="no such dtype"):
        popsr.dtype.as_dtype(object)
    s = TensorSpec((2, 3), F32)
    assert dict(**s) == {"shape": (2, 3), "dtype": F32, "meta_shape": ()}
    assert s == TensorSpec([2, 3], F32)


# Context


def test_context_stack() -> None:
    ir = popsr.Ir()
    for function in (popsr.gcg, popsr.gmg, popsr.gir):
        with pytest.raises(RuntimeError, match="no graph is current"):
            function()
    graph = ir.create_empty_graph()
    with ir.main_graph:
        assert popsr.gcg() is ir.main_graph
        with graph:
            assert popsr.gcg() is graph
            assert popsr.gmg() is ir.main_graph
            assert popsr.gir() is ir
            with pytest.raises(RuntimeError, match="different Irs"), popsr.Ir().main_graph:
                raise AssertionError("entered")
        assert popsr.gcg() is ir.main_graph


def test_context_is_restored_after_errors() -> None:
    ir = popsr.Ir()
    with pytest.raises(KeyError), ir.main_graph, popsr.name_scope("s"), popsr.in_sequence(True):
        raise KeyError
    with pytest.raises(RuntimeError):
        popsr.gcg()
    with ir.main_graph:
        assert popsr.constant(1.0, name="c").name == "c"


def test_context_managers_decorate() -> None:
    @popsr.name_scope("layer")
    @popsr.in_sequence(True)
    def build() -> popsr.Tensor:
        return ops.add(popsr.constant(1.0), popsr.constant(2.0))

    with popsr.Ir().main_graph:
        assert build().name == "layer/add_out"


def test_hooks() -> None:
    ir = popsr.Ir()
    seen: list[str] = []
    handle = ir.main_graph.register_op_created_hook(lambda op: seen.append(op.kind))
    other = ir.create_empty_graph()
    with ir.main_graph:
        x = ops.init((2,), F32)
        with other:
            ops.init((2,), F32)
        ops.add(x, x)
        ir.main_graph.remove_op_created_hook(handle)
        ops.sub(x, x)
    assert seen == ["init", "add"]
    with pytest.raises(ValueError, match="unknown handle"):
        ir.main_graph.remove_op_created_hook(handle)


def test_ops_know_where_they_were_made() -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        ops.init((2,), F32)
    op = ir.main_graph.ops[0]
    assert "test_graphs.py:" in op.location
    assert op.kind == "init"
    assert op.attributes["shape"] == (2,)


# create_graph


def test_arguments_become_inputs() -> None:
    ir = popsr.Ir()
    seen: dict[str, Any] = {}

    def body(a: Any, pair: Any, scale: float, *rest: Any, table: Any = None, **named: Any) -> Any:
        seen.update(pair=pair, scale=scale, rest=rest, table=table, named=named)
        extra = popsr.graph_input((5,), F32, "extra")
        return a, extra

    given = {"k": spec(9)}
    graph = ir.create_graph(body, spec(1), [spec(2), spec(3)], 2.5, spec(4), table=given, z=spec(6))
    assert list(graph.inputs_by_name) == ["a", "pair_0", "pair_1", "rest_0", "z", "extra"]
    assert [t.shape for t in graph.inputs] == [(1,), (2,), (3,), (4,), (6,), (5,)]
    assert isinstance(seen["pair"], list)
    assert seen["scale"] == 2.5
    assert seen["table"] is given
    assert list(seen["named"]) == ["z"]
    assert graph.outputs == (graph.inputs[0], graph.inputs[5])


def test_create_graph_errors() -> None:
    ir = popsr.Ir()
    with pytest.raises(TypeError, match="not a function or Module"):
        ir.create_graph(functools.partial(double), spec(1))
    with pytest.raises(ValueError, match="do not fit double"):
        ir.create_graph(double)
    with pytest.raises(ValueError, match="returned 3"):
        ir.create_graph(_returns_int, spec(1))
    with pytest.raises(TypeError, match="mixes tensors"):
        ir.create_graph(_takes_list, [spec(1), 2.0])
    with ir.main_graph:
        x = popsr.constant([1.0])

    def captures(y: popsr.Tensor) -> popsr.Tensor:
        return ops.add(x, y)

    with pytest.raises(ValueError, match=r"add: lhs is of another graph.*'t'"):
        ir.create_graph(captures, spec(1))
    with ir.create_empty_graph(), pytest.raises(ValueError, match="variable: made in graph"):
        popsr.variable(1.0)


def _returns_int(x: Any) -> Any:
    return 3


def _takes_list(xs: Any) -> Any:
    return xs[0]


def test_unknown_names_have_close_matches() -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        popsr.variable(1.0, F32, "weight")
    with pytest.raises(KeyError, match=r"get_tensor: unknown tensor, got 'weigth'.*weight"):
        ir.main_graph.get_tensor("weigth")


# Calls


def _increment(x: popsr.Tensor) -> None:
    ops.add_(x, popsr.constant(1.0, F32))


def _increment_by_ref(x: TensorByRef) -> None:
    ops.add_(x, popsr.constant(1.0, F32))


def _after_call(mark: Any, function: Any = _increment) -> float:
    ir = popsr.Ir()
    with ir.main_graph, popsr.in_sequence():
        x = popsr.variable(1.0, F32, "x")
        info = ops.call_with_info(ir.create_graph(function, x), x)
        mark(info, x)
    with popsr.Session(ir) as session:
        session.run()
        return float(session.get_tensor_data(x))


def test_modified_call() -> None:
    """By value unless marked modified: 1 without, 2 with."""
    assert _after_call(lambda info, x: None) == 1.0
    assert _after_call(lambda info, x: info.set_parent_input_modified(x)) == 2.0
    assert _after_call(lambda info, x: info.set_parent_input_modified(x, infer_modified_regions=True)) == 2.0
    assert _after_call(lambda info, x: None, _increment_by_ref) == 2.0


def test_one_tensor_by_value_and_by_reference() -> None:
    """The by-value parameter keeps what it was passed while the other is modified."""

    def body(total: TensorByRef, x: popsr.Tensor) -> popsr.Tensor:
        ops.add_(total, popsr.constant(1.0, F32))
        return ops.mul(x, popsr.constant(10.0, F32))

    ir = popsr.Ir()
    with ir.main_graph, popsr.in_sequence():
        v = popsr.variable(1.0, F32)
        out = popsr.d2h_stream((), F32)
        ops.host_store(out, ops.call(ir.create_graph(body, v, v), v, v)[0])
    with popsr.Session(ir) as session:
        assert float(session.run()[out]) == 10.0
        assert float(session.get_tensor_data(v)) == 2.0


def test_call_inputs() -> None:
    def body(a: Any, b: Any, c: Any) -> Any:
        return ops.sub(ops.add(a, b), c)

    ir = popsr.Ir()
    graph = ir.create_graph(body, spec(2), spec(2), spec(2))
    _, b, c = graph.inputs
    with ir.main_graph:
        x = popsr.constant([1.0, 2.0])
        assert len(ops.call(graph, x, [x, x])) == 1
        ops.call(graph, x, inputs_dict={b: x, c: x})
        with_numbers = ops.call_with_info(graph, x, np.ones(2), inputs_dict={c: [1, 2]})
        assert with_numbers.inputs[1].dtype == F32
        for args, named, match in (
            ((x, x, x, x), {}, "Too many inputs have been provided"),
            ((x, x), {}, "Not enough inputs have been provided"),
            ((x, x, x), {c: x}, "Graph input tensor is specified twice"),
            ((x, x), {graph.outputs[0]: x}, "not in the called graph"),
        ):
            with pytest.raises(ValueError, match=match):
                ops.call(graph, *args, inputs_dict=named)
        with pytest.raises(TypeError, match="no tensor for"):
            ops.call(graph, x, x, "text")
        with pytest.raises(TypeError, match="not a Graph"):
            ops.call(unchecked(body), x)
        with pytest.raises(errors.ShapeError, match=r"^call: shape of input .*/a.* differs, got f32\[3\]"):
            ops.call(graph, popsr.constant(np.ones(3, np.float32)), x, x)
        with pytest.raises(errors.DTypeError, match=r"^call: dtype of input .*/a.* differs, got i32\[2\]"):
            ops.call(graph, popsr.constant([1, 2]), x, x)


def test_call_site_info() -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        x, y = popsr.constant([1.0]), popsr.constant([2.0])
        graph = ir.create_graph(lambda_pair, x, y)
        info = ops.call_with_info(graph, x, y)
        assert info.called_graph is graph
        assert info.inputs == (x, y)
        assert info.parent_input(1) is y
        assert info.parent_output(0) is info.outputs[0]
        assert info.graph_to_parent(graph.inputs[0]) is x
        assert info.graph_to_parent(graph.outputs[1]) is info.outputs[1]
        assert info.parent_to_graph(y) is graph.inputs[1]
        assert info.graph_to_parent_input_index(1) == info.parent_to_graph_output_index(1) == 1
        for call in (lambda: info.parent_input(2), lambda: info.parent_output(-1)):
            with pytest.raises(IndexError):
                call()
        stranger = popsr.constant(3.0)
        for bad in (lambda: info.graph_to_parent(stranger), lambda: info.parent_to_graph(stranger)):
            with pytest.raises(ValueError, match="got Constant"):
                bad()
        with pytest.raises(ValueError, match="set_parent_input_modified"):
            info.set_parent_input_modified(stranger)
        assert ir.main_graph.called_graphs == (graph,)


def lambda_pair(a: popsr.Tensor, b: popsr.Tensor) -> Any:
    return ops.add(a, b), ops.sub(a, b)


# Repeat


@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_repeat_carries_outputs(count: int) -> None:
    def body(a: popsr.Tensor, b: popsr.Tensor, step: popsr.Tensor) -> Any:
        return b, ops.add(a, step)

    def program(a: popsr.Tensor, b: popsr.Tensor, step: popsr.Tensor) -> Any:
        return ops.repeat(popsr.gir().create_graph(body, a, b, step), count, a, b, step)

    one = [np.array([1, 2], np.float32), np.array([10, 20], np.float32), np.array([0.5, 0.5], np.float32)]
    a, b, step = one
    for _ in range(count):
        a, b = b, a + step
    got = evaluate(program, one)
    assert np.array_equal(got[0], a)
    assert np.array_equal(got[1], b)


def test_repeat_modifies_by_reference_only() -> None:
    def body(total: TensorByRef, kept: popsr.Tensor) -> None:
        ops.add_(total, kept)
        ops.add_(kept, popsr.constant(1.0, F32))

    ir = popsr.Ir()
    with ir.main_graph, popsr.in_sequence():
        total, kept = popsr.variable(0.0, F32, "total"), popsr.variable(2.0, F32, "kept")
        ops.repeat(ir.create_graph(body, total, kept), 4, total, kept)
    with popsr.Session(ir) as session:
        session.run()
        assert float(session.get_tensor_data(total)) == 8.0
        assert float(session.get_tensor_data(kept)) == 2.0


def test_repeat_reads_and_stores_an_element_an_iteration() -> None:
    ir = popsr.Ir()
    ir.num_host_transfers = 4

    with ir.main_graph, popsr.in_sequence():
        stream, out = popsr.h2d_stream((2,), F32), popsr.d2h_stream((2,), F32)

        def body(total: popsr.Tensor) -> popsr.Tensor:
            total = ops.add(total, ops.host_load(stream))
            ops.host_store(out, total)
            return total

        ops.repeat(ir.create_graph(body, spec(2)), 4, popsr.constant(np.zeros(2, np.float32)))
    data = np.arange(8, dtype=np.float32).reshape(4, 2)
    with popsr.Session(ir) as session:
        for _ in range(2):  # positions restart in each run
            assert np.array_equal(session.run({stream: data})[out], np.cumsum(data, axis=0))


def test_repeat_errors() -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        x = popsr.constant([1.0])
        graph = ir.create_graph(double, x)
        with pytest.raises(ValueError, match="Repeat count must be >= 0"):
            ops.repeat(graph, -1, x)
        with pytest.raises(ValueError, match="To repeat the subgraph"):
            ops.repeat(ir.create_graph(lambda_two, x), 2, x)
        with pytest.raises(errors.ShapeError, match=r"^repeat: loop-carried shapes differ"):
            ops.repeat(ir.create_graph(_grows, x), 2, x)
        with pytest.raises(TypeError, match="repeat_count is not an int"):
            ops.repeat(graph, unchecked(1.5), x)


def lambda_two(a: popsr.Tensor) -> Any:
    return a, double(a)


def _grows(a: popsr.Tensor) -> Any:
    return ops.reshape(a, (1, 1))


def test_nested_repeats() -> None:
    def inner(x: popsr.Tensor) -> popsr.Tensor:
        return double(x)

    def outer(x: popsr.Tensor) -> popsr.Tensor:
        return ops.add(ops.repeat(popsr.gir().create_graph(inner, x), 2, x)[0], popsr.constant(1.0, F32))

    got = evaluate(
        lambda x: ops.repeat(popsr.gir().create_graph(outer, x), 3, x), [unchecked(np.float32(1.0))]
    )
    assert float(got[0]) == ((1 * 4 + 1) * 4 + 1) * 4 + 1


# Order


def _ambiguous(mode: Any, build: Any) -> popsr.Ir:
    ir = popsr.Ir()
    ir.options.enable_inplace_ambiguity_checking = True
    with ir.main_graph, popsr.in_sequence(mode):
        build(make_variable(random_array(np.random.default_rng(0), (2,), "float32")))
    return ir


def _two_writers(v: popsr.Tensor) -> None:
    ops.add_(v, popsr.constant([1.0, 1.0]))
    var_updates.accumulator_scale_(v, 2.0)


def _reader_and_writer(v: popsr.Tensor) -> None:
    ops.add(ops.relu(v), ops.relu_(v))


@pytest.mark.parametrize("build", [_two_writers, _reader_and_writer])
def test_inplacing_ambiguity(build: Any) -> None:
    for mode in ("pass", False):
        with pytest.raises(errors.GraphError, match=r"^Inplacing ambiguity detected\."):
            popsr.Session(_ambiguous(mode, build))
    popsr.Session(_ambiguous(True, build))


def test_order_by_data_is_not_ambiguous() -> None:
    def chain(v: popsr.Tensor) -> None:
        ops.add_(v, ops.relu(v))

    popsr.Session(_ambiguous("pass", chain))


def test_in_sequence_modes() -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        with pytest.raises(TypeError, match="mode is None"), popsr.in_sequence(unchecked(None)):
            raise AssertionError("entered")
        v = make_variable(np.array([1.0], np.float32))
        with popsr.in_sequence():
            ops.relu(v)
            with popsr.in_sequence(False):
                ops.add_(v, popsr.constant([2.0]))
            var_updates.accumulator_scale_(v, 3.0)
    with popsr.Session(ir) as session:
        session.run()
        assert session.get_tensor_data(v) == 9.0
