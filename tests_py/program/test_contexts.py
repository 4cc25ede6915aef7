"""The context: hooks, locations, names of op functions, order of ops; what is current and what is restored."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable
from typing import Any

import pytest

import popsr
from popsr import errors, ops
from popsr._program.context import (
    Context,
    debug_context_frame_offset,
    get_current_context,
    get_source_location,
    op_debug_context,
)
from tests_py.support.unchecked import unchecked

F32 = popsr.float32


def line() -> int:
    """The line that calls."""
    return sys._getframe(1).f_lineno


def line_of(location: str) -> int:
    file, _, number = location.rpartition(":")
    assert file == __file__
    return int(number)


def variable(name: str = "v") -> popsr.Variable:
    return popsr.variable([1.0, 2.0], F32, name)


# The current graph


def test_members_of_the_context() -> None:
    context = get_current_context()
    assert isinstance(context, Context)
    ir = popsr.Ir()
    graph = ir.create_empty_graph()
    context.push_graph(ir.main_graph)
    with graph:
        assert (context.graph, context.main_graph, context.ir) == (graph, ir.main_graph, ir)
        context.push_name_scope("a")
        assert popsr.graph_input((), F32, "x").name == "a/x"
        assert context.name_scopes == ["a"]
        assert context.pop_name_scope() == "a"
    assert context.pop_graph() is ir.main_graph
    assert (context.ipu_id, context.io_tile_set, context.in_sequence) == (None, False, "pass")
    for get in (popsr.gcg, popsr.gmg, popsr.gir):
        with pytest.raises(RuntimeError, match=r"^get_(current_graph|main_graph|ir): no graph is current"):
            get()


@popsr.ipu(3)
@popsr.io_tiles()
@popsr.name_scope("scope")
@popsr.in_sequence(False)
def decorated(x: popsr.Tensor) -> popsr.Tensor:
    assert get_current_context().in_sequence is False
    return ops.relu(x)


def test_contexts_decorate_functions_more_than_once() -> None:
    with popsr.Ir().main_graph:
        for _ in range(2):
            made = decorated(variable())
            assert (made.ipu, made.tile_set, made.name.partition("/")[0]) == (3, "io", "scope")
        assert ops.relu(made).ipu == 0


@pytest.mark.parametrize(
    "enter",
    [
        lambda: popsr.ipu(1),
        popsr.io_tiles,
        lambda: popsr.name_scope("a"),
        lambda: popsr.in_sequence(),
        lambda: debug_context_frame_offset(1),
        lambda: popsr.Ir().main_graph,
        lambda: popsr.location("model.py", 1),
    ],
)
def test_everything_is_restored_when_a_body_raises(enter: Callable[[], Any]) -> None:
    def state() -> tuple[Any, ...]:
        c = get_current_context()
        return (
            c.ipu_id,
            c.io_tile_set,
            c.name_scopes,
            c.in_sequence,
            c._frame_offset,
            c._location,
            len(c._graphs),
        )

    before = state()
    inside = before
    with contextlib.suppress(KeyError), enter():
        inside = state()
        raise KeyError
    assert inside != before
    assert state() == before


# Hooks


def test_hooks_see_the_ops_of_their_graph_or_of_all() -> None:
    ir = popsr.Ir()
    graph, context = ir.create_empty_graph(), get_current_context()
    seen: dict[str, list[str]] = {"main": [], "graph": [], "all": []}

    def into(name: str) -> Callable[[Any], None]:
        return lambda op: seen[name].append(op.kind)

    handles = [
        ir.main_graph.register_op_created_hook(into("main")),
        graph.register_op_created_hook(into("graph")),
    ]
    everywhere = context.register_op_created_hook(into("all"))
    with ir.main_graph:
        t = ops.init((2,), F32)
        with graph:
            ops.relu(popsr.graph_input((2,), F32))
        ops.call(graph, t)
    assert seen == {"main": ["init", "call"], "graph": ["relu"], "all": ["init", "relu", "call"]}
    ir.main_graph.remove_op_created_hook(handles[0])
    context.remove_op_created_hook(everywhere)
    with graph:
        ops.exp(graph.inputs[0])
    with ir.main_graph:
        ops.exp(t)
    assert seen == {"main": ["init", "call"], "graph": ["relu", "exp"], "all": ["init", "relu", "call"]}
    for owner, handle in ((ir.main_graph, handles[0]), (context, everywhere), (graph, 99)):
        with pytest.raises(errors.AttributeValueError, match=r"^remove_op_created_hook: unknown handle, got"):
            owner.remove_op_created_hook(handle)  # type: ignore[attr-defined]
    for owner in (graph, context):
        with pytest.raises(TypeError, match=r"^register_op_created_hook: fn cannot be called, got 3"):
            owner.register_op_created_hook(unchecked(3))  # type: ignore[attr-defined]


def test_hooks_may_remove_themselves_and_see_finished_ops() -> None:
    ir = popsr.Ir()
    seen: list[Any] = []

    def once(op: Any) -> None:
        seen.append((op, op.outputs[0].shape, ir.main_graph.ops[-1]))
        ir.main_graph.remove_op_created_hook(first)

    first = ir.main_graph.register_op_created_hook(once)
    second = ir.main_graph.register_op_created_hook(seen.append)
    assert first != second
    with ir.main_graph:
        ops.init((3,), F32)
        ops.init((4,), F32)
    made = ir.main_graph.ops
    assert seen == [(made[0], (3,), made[0]), made[0], made[1]]


# Locations


def helper(x: popsr.Tensor) -> popsr.Tensor:
    with debug_context_frame_offset(1):
        return ops.relu(x)


@debug_context_frame_offset(1)
def nested_helper(x: popsr.Tensor) -> popsr.Tensor:
    return helper(x)


@op_debug_context("wide_relu")
def named(x: Any) -> popsr.Tensor:
    """Documented."""
    return ops.add(x, ops.relu(x))


@op_debug_context
def outer(x: Any) -> popsr.Tensor:
    return named(x)


@pytest.mark.parametrize("make", [ops.relu, helper, nested_helper, named, outer])
def test_ops_have_the_line_of_their_user(make: Callable[[popsr.Tensor], popsr.Tensor]) -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        v = variable()
        _, expected = make(v), line()
        _, after = ops.exp(v), line()
    *made, last = ir.main_graph.ops
    assert made
    assert {line_of(op.location) for op in made} == {expected}
    assert line_of(last.location) == after


def test_location_names_the_place_of_ops() -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        v = variable()
        with popsr.location("model.py", 31):
            x = ops.relu(v)
            with popsr.location("layer.py", 7), debug_context_frame_offset(1):
                x = ops.exp(x)
                assert get_source_location(0) == "layer.py:7"
            x = named(x)
        _, expected = ops.relu(x), line()
    places = [op.location for op in ir.main_graph.ops]
    assert places[:-1] == ["model.py:31", "layer.py:7", "model.py:31", "model.py:31"]
    assert line_of(places[-1]) == expected
    assert "layer.py:7" in repr(ir.main_graph.ops[1]) + str(ir)


def test_location_is_in_errors_explanations_and_lints() -> None:
    ir = popsr.Ir(replication=2)
    with ir.main_graph:
        with popsr.location("data.py", 3):
            x = ops.host_load(popsr.h2d_stream((2,), F32, "x"))
        with popsr.location("model.py", 5):
            v = popsr.variable([1.0, 2.0], F32, "v")
            ops.var_updates.accumulate_(v, x)
            with pytest.raises(errors.ShapeError) as refused:
                ops.add(x, popsr.constant([1.0, 2.0, 3.0]))
    assert refused.value.__notes__[0].endswith("at model.py:5")
    partition = popsr.analysis.analyze(ir)
    explained = str(partition.explain(v, 0, 1))
    assert "data.py:3" in explained
    assert "model.py:5" in explained
    assert {lint.location for lint in partition.warnings} == {"model.py:5"}


@pytest.mark.parametrize(
    ("args", "error", "match"),
    [
        ((1, 2), TypeError, r"^location: file is not a str, got 1"),
        (("", 2), ValueError, r"^location: file is empty"),
        (("a.py", 0), ValueError, r"^location: line: got 0"),
        (("a.py", "x"), TypeError, r"^location: line is not an int, got 'x'"),
    ],
)
def test_bad_locations_are_refused(args: tuple[Any, ...], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match), popsr.location(*args):
        pass


def test_offsets_beyond_the_program_end_at_its_outermost_function() -> None:
    with popsr.Ir().main_graph, debug_context_frame_offset(10_000):
        ops.relu(variable())
        (op,) = popsr.gcg().ops
    assert re.fullmatch(r".+:\d+", op.location)
    assert op.location.rpartition(":")[0] != __file__


def test_source_locations() -> None:
    def inner(offset: int) -> tuple[str, int]:
        return get_source_location(offset), line()

    (here, inside), out = inner(0), line()
    assert line_of(here) == inside
    assert line_of(inner(1)[0]) == out + 2
    with debug_context_frame_offset(1):
        assert line_of(inner(0)[0]) == out + 4


def test_errors_name_the_function_that_made_the_op() -> None:
    with popsr.Ir().main_graph:
        c = popsr.constant([True])
        with pytest.raises(errors.DTypeError) as caught:
            outer(c)
    assert caught.value.__notes__[0].startswith("while emitting outer/wide_relu/relu(t=<bool[1] ")
    assert (named.__name__, named.__doc__) == ("named", "Documented.")
    assert get_current_context()._debug_names == ()


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: unchecked(op_debug_context)(3), TypeError, "^op_debug_context: name is not a str or function, got 3"),
        (lambda: get_source_location(unchecked("a")), TypeError, "^get_source_location: offset is not an int, got 'a'"),
        (lambda: debug_context_frame_offset(True).__enter__(), TypeError, "^debug_context_frame_offset: i is not an"),
        (lambda: get_source_location(-1), ValueError, "offset: got -1, expected an int from 0"),
        (
            lambda: popsr.in_sequence(unchecked(None)).__enter__(),
            TypeError,
            "^in_sequence: mode is None, expected True",
        ),
        (lambda: popsr.in_sequence(unchecked("all")).__enter__(), ValueError, "^in_sequence: unknown mode, got 'all'"),
        (lambda: popsr.in_sequence(unchecked(2)).__enter__(), ValueError, "^in_sequence: unknown mode, got 2"),
        (lambda: popsr.name_scope(unchecked(3)).__enter__(), TypeError, "^name_scope: name is not a str, got 3"),
    ],
)  # fmt: skip
def test_errors(call: Callable[[], Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match) as caught:
        call()
    assert isinstance(caught.value, popsr.Error)


# Order

Order = dict[str, set[str]]


def ordered(build: Callable[[], Any]) -> Order:
    """Names of the ops that each op must directly follow through in_sequence."""
    ir = popsr.Ir()
    with ir.main_graph:
        build()
    result = {}
    for graph in [ir.main_graph, *ir.main_graph.called_graphs]:
        for op in graph.ops:
            after = {graph.ops[0]._ir._core.op_outputs(i)[0] for i in op._ir._core.op_after(op.id)}
            result[op.name] = {ir._tensor(i).name for i in after}
    return result


def made(name: str) -> None:
    ops.init((), F32, name)


def _true() -> None:
    with popsr.in_sequence():
        for name in "abc":
            made(name)


def _false() -> None:
    with popsr.in_sequence(False):
        for name in "abc":
            made(name)


def _false_in_true() -> None:
    with popsr.in_sequence():
        made("a")
        with popsr.in_sequence(False):
            made("b")
            made("c")
        made("d")
        made("e")


def _true_in_false() -> None:
    with popsr.in_sequence(False):
        made("a")
        made("b")
        with popsr.in_sequence(True):
            made("c")
        made("d")


def _pass_in_true() -> None:
    with popsr.in_sequence():
        made("a")
        with popsr.in_sequence("pass"):
            made("b")
        made("c")
        made("d")


def _outermost() -> None:
    _true()
    with popsr.in_sequence():
        made("d")


def _nested_in_true() -> None:
    """Leaving an inner level keeps the record."""
    with popsr.in_sequence():
        made("a")
        with popsr.in_sequence():
            made("b")
        made("c")


def _raises() -> None:
    with popsr.in_sequence():
        made("a")
        with contextlib.suppress(KeyError), popsr.in_sequence(False):
            made("b")
            raise KeyError
        made("c")


def _graphs() -> None:
    """Each graph has a record of its own."""
    graph = popsr.gir().create_empty_graph()
    with popsr.in_sequence():
        made("a")
        with graph:
            made("b")
            made("c")
        made("d")
    ops.call(graph)


ORDERS: dict[str, tuple[Callable[[], None], Order]] = {
    "true": (_true, {"a": set(), "b": {"a"}, "c": {"b"}}),
    "false": (_false, {"a": set(), "b": set(), "c": set()}),
    "false in true": (_false_in_true, {"a": set(), "b": {"a"}, "c": {"a"}, "d": {"b", "c"}, "e": {"d"}}),
    "true in false": (_true_in_false, {"a": set(), "b": set(), "c": {"a", "b"}, "d": {"c"}}),
    "pass in true": (_pass_in_true, {"a": set(), "b": set(), "c": set(), "d": {"c"}}),
    "outermost": (_outermost, {"a": set(), "b": {"a"}, "c": {"b"}, "d": set()}),
    "nested in true": (_nested_in_true, {"a": set(), "b": {"a"}, "c": {"b"}}),
    "raises": (_raises, {"a": set(), "b": {"a"}, "c": {"b"}}),
}


@pytest.mark.parametrize("what", ORDERS)
def test_order_of_ops(what: str) -> None:
    build, expected = ORDERS[what]
    assert ordered(build) == expected


def test_each_graph_has_an_order_of_its_own() -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        _graphs()
    (graph,) = ir.main_graph.called_graphs
    for ops_ in (graph.ops, ir.main_graph.ops[:2]):
        assert [op._ir._core.op_after(op.id) for op in ops_] == [[], [ops_[0].id]]


# Ambiguous order of writes in place


def _two_writers(x: popsr.Tensor) -> None:
    ops.relu_(x)
    ops.exp_(x)


def _read_and_write(x: popsr.Tensor) -> None:
    y = ops.relu(x)
    z = ops.relu_(x)
    ops.add(y, z)


def _write_then_read_old_name(x: popsr.Tensor) -> None:
    ops.relu_(x)
    ops.exp(x)


def _chained(x: popsr.Tensor) -> None:
    ops.exp_(ops.relu_(x))


def _reader_before_by_data(x: popsr.Tensor) -> None:
    ops.add_(x, ops.exp(x))


def _only_reads(x: popsr.Tensor) -> None:
    ops.add(ops.relu(x), ops.exp(x))


def _through_a_call(x: popsr.Tensor) -> None:
    def fn(t: popsr.TensorByRef) -> None:
        ops.relu_(t)

    ops.exp(x)
    ops.call(popsr.gir().create_graph(fn, x), x)


@pytest.mark.parametrize(
    ("build", "alone"),
    [
        (_two_writers, False),
        (_read_and_write, False),
        (_write_then_read_old_name, False),
        (_through_a_call, False),
        (_chained, True),
        (_reader_before_by_data, True),
        (_only_reads, True),
    ],
)
@pytest.mark.parametrize("where", ["main graph", "graph"])
def test_writes_in_place_need_an_order(build: Callable[[Any], None], alone: bool, where: str) -> None:
    """Given by data or by in_sequence; unordered siblings and "pass" give none."""
    for mode in (None, True, False, "pass"):
        ir = popsr.Ir()
        ir.options.enable_inplace_ambiguity_checking = True
        with ir.main_graph, contextlib.ExitStack() as stack:
            x = variable()
            if mode is not None:
                stack.enter_context(popsr.in_sequence(mode))  # type: ignore[arg-type]
            if where == "graph":
                ops.call(ir.create_graph(build, x), x)
            else:
                build(x)
        if alone or mode is True:
            popsr.Session(ir)
        else:
            with pytest.raises(errors.GraphError, match=r"^Inplacing ambiguity detected\. ") as caught:
                popsr.Session(ir)
            assert "modified here" in str(caught.value)
