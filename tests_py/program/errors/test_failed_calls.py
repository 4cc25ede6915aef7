"""A call that fails leaves no trace: programs, names and numbers, contexts, and what popsr remembers beside them.

Every ``pytest.raises`` of the suite compares all of these before and after; see conftest.py.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import addons, errors, ops, transforms
from popsr._program.building import transaction
from popsr._program.context import get_current_context
from popsr._program.handles import is_retired
from popsr._program.op import Op
from popsr.addons import layers
from popsr.addons.transforms import pipelining
from popsr.addons.transforms.pipeline_bound_graph import PipelineBoundGraph
from tests_py.support.unchanged import state_of
from tests_py.support.unchecked import unchecked

F32 = popsr.float32


class CustomError(Exception):
    """An error of the program that uses popsr."""


@pytest.fixture
def ir() -> Iterator[popsr.Ir]:
    """Its main graph is current."""
    ir = popsr.Ir(replication=4)
    with ir.main_graph:
        yield ir


def vector(name: str = "x") -> popsr.Variable:
    return popsr.variable(np.ones(3, np.float32), name=name)


def doubled(t: popsr.Tensor) -> popsr.Tensor:
    return ops.tanh(t) * 2.0


def probe() -> list[Any]:
    """Names and numbers of what is made next."""
    x = popsr.variable(1.0)
    graph, stream, buffer = (
        popsr.gir().create_graph(doubled, x),
        popsr.h2d_stream((), F32),
        popsr.remote_buffer((), F32),
    )
    y = ops.relu(x)
    (op,) = (op for op in popsr.gcg().ops if op.outputs == (y,))
    return [
        x.id,
        x._id,
        graph.id,
        graph._id,
        stream.tensor_id,
        stream._id,
        buffer.remote_buffer_id,
        y.id,
        op.id,
    ]


# Names and numbers


class Rows:
    """Arguments of failing calls, made before them."""

    def __init__(self) -> None:
        self.x, self.matrix = vector(), popsr.variable(np.ones((2, 3), np.float32), name="matrix")
        self.graph = popsr.gir().create_graph(doubled, self.x)
        self.flag, self.labels = popsr.constant(True), popsr.constant([1, 2], popsr.int32)
        self.buffer = popsr.remote_buffer((3,), F32)
        self.net = layers.Linear(2).create_graph(self.matrix.spec)[1]


def several_steps(t: popsr.Tensor) -> popsr.Tensor:
    """Makes a constant, a graph, a call and a stream before it fails."""
    inner = popsr.gir().create_graph(doubled, t)
    made = ops.call(inner, t)[0] + 1.0
    popsr.h2d_stream((2,), F32)
    return ops.reshape(made, (7,))


FAILING: dict[str, Callable[[Rows], Any]] = {
    "operator": lambda r: r.x @ 0,
    "right operator": lambda r: np.ones(2, np.float32) - r.x,
    "operator in place": lambda r: r.x.__iadd__(np.ones((2, 2), np.float32)),
    "getitem": lambda r: r.x[np.array([True, False])],
    "call": lambda r: ops.call(r.graph, 1.0),
    "loop": lambda r: ops.repeat(r.graph, 2, 1.0),
    "conditional": lambda r: ops.conditional(r.flag, r.graph, r.graph, [[1.0, 2.0, 3.0]], [2.0]),
    "pow": lambda r: ops.pow(r.x, [1.0, 2.0]),
    "histogram": lambda r: ops.histogram(r.labels, [0.5], False),
    "loss": lambda r: ops.nll_loss_with_softmax_grad(r.x, r.x, 2.0),
    "split": lambda r: ops.split(r.x, [1, 1, 1], axis=3),
    "graph": lambda r: popsr.gir().create_graph(several_steps, r.x),
    "graph of too many arguments": lambda r: popsr.gir().create_graph(several_steps, r.x, r.x),
    "graph of another Ir": lambda r: popsr.Ir().create_graph(several_steps, r.x),
    "autodiff": lambda r: transforms.autodiff(r.graph, grads_required=[r.x]),
    "sharded variable": lambda r: popsr.replica_sharded_variable(np.ones(4), shard_over=3),
    "remote variable": lambda r: popsr.remote_variable(np.ones(2), r.buffer),
    "buffer": lambda r: popsr.replica_sharded_buffer((2,), F32, entries=0),
    "module": lambda r: layers.Linear(2).create_graph(r.labels),
    "bound graph": lambda r: r.net.bind().call(2.0, 3.0, 4.0),
    "cross entropy": lambda r: addons.cross_entropy_with_grad(r.matrix, r.labels, unchecked("much")),
    "streams": lambda r: addons.InputStreams(good=((2,), F32), bad=((-1,), F32)),
    "session": lambda r: popsr.Session(popsr.gir(), num_threads=0),
}


@pytest.mark.parametrize("name", FAILING)
def test_names_and_numbers_go_on_as_if_the_call_had_not_been(name: str) -> None:
    probed = []
    for is_failing in (False, True):
        with popsr.Ir(replication=4).main_graph, popsr.in_sequence():
            rows = Rows()
            if is_failing:
                with pytest.raises(errors.Error):
                    FAILING[name](rows)
            probed.append(probe())
    assert probed[0] == probed[1]


def test_a_failed_cell_does_not_rename_the_variables_of_the_next(ir: popsr.Ir) -> None:
    x = popsr.variable(np.ones(3, np.float32))
    with pytest.raises(errors.ShapeError):
        x @ 0
    assert popsr.variable(1.0).id == "t__t0"
    assert [c.id for c in ir.main_graph.constants] == []


@pytest.mark.parametrize("error", [CustomError, KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError])
def test_graphs_whose_function_raises_are_gone(ir: popsr.Ir, error: type[BaseException]) -> None:
    def build(t: popsr.Tensor) -> popsr.Tensor:
        with popsr.name_scope("scope"), popsr.in_sequence(), popsr.ipu(1), popsr.stochastic_rounding(False):
            ir.create_graph(doubled, t)
            _ = t + 1.0
            raise error

    x, text = vector(), str(ir)
    with pytest.raises(error):
        ir.create_graph(build, x)
    assert str(ir) == text


def test_contexts_that_a_failed_call_entered_are_left(ir: popsr.Ir) -> None:
    left: list[Any] = []

    def build(t: popsr.Tensor) -> popsr.Tensor:
        stack = contextlib.ExitStack()
        for context in (
            popsr.name_scope("s"),
            popsr.in_sequence(),
            popsr.ipu(3),
            popsr.stochastic_rounding(False),
        ):
            stack.enter_context(context)
        left.append(stack)
        get_current_context().push_graph(ir.create_empty_graph())
        get_current_context().register_op_created_hook(left.append)
        ops.relu(popsr.graph_input((), F32))
        raise CustomError

    with popsr.name_scope("outer"):
        with pytest.raises(CustomError):
            ir.create_graph(build, vector())
        del left[:]
        gc.collect()  # contexts that are freed do nothing
        assert popsr.variable(1.0).id == "outer/t"
        assert (ops.relu(vector()).ipu, popsr.gcg()) == (0, ir.main_graph)


def test_functions_may_catch_what_a_call_inside_raises_and_go_on(ir: popsr.Ir) -> None:
    def build(t: popsr.Tensor) -> popsr.Tensor:
        kept = t * 3.0
        inside = state_of(ir)
        with contextlib.suppress(errors.Error):
            ir.create_graph(several_steps, t)
        with contextlib.suppress(errors.Error):
            _ = kept @ np.ones((5, 5), np.float32)
        assert state_of(ir) == inside
        return kept + 1.0

    def without(t: popsr.Tensor) -> popsr.Tensor:
        return t * 3.0 + 1.0

    graph, plain = ir.create_graph(build, vector()), ir.create_graph(without, vector())
    assert [op.kind for op in graph.ops] == [op.kind for op in plain.ops] == ["mul", "add"]
    assert [t.name.partition("__")[0] for t in graph.tensors] == ["t", "t", "mul_out", "t", "add_out"]


def test_calls_that_succeed_inside_one_that_fails_are_undone(ir: popsr.Ir) -> None:
    outside = vector("outside")

    def build(t: popsr.Tensor) -> popsr.Tensor:
        ops.tanh(t)
        ir.num_host_transfers = 7
        ir.main_graph.register_op_created_hook(print)
        popsr.gcg().register_op_created_hook(print)
        ir.embed_replication_factor()
        transforms.stochastic_rounding(ir, "identical")
        raise CustomError

    ir.options.enable_stochastic_rounding = True
    with pytest.raises(CustomError):
        ir.create_graph(build, outside)
    assert ir.num_host_transfers == 1
    assert ir._rules_by_hand is None
    assert not ir._embeds_replication
    assert not ir._op_hooks
    assert ir.options.stochastic_rounding_mode == "partition"
    ops.tanh(outside)  # prints nothing


def test_all_programs_that_a_failed_call_changed_are_as_they_were(ir: popsr.Ir) -> None:
    other = popsr.Ir()

    def build(t: popsr.Tensor) -> popsr.Tensor:
        other.create_empty_graph("other")
        raise CustomError

    with pytest.raises(CustomError):
        ir.create_graph(build, vector())
    assert other._core.num_graphs == 1
    other.create_empty_graph("kept")
    assert other._core.num_graphs == 2


def test_hooks_that_raise_take_the_op_along(ir: popsr.Ir) -> None:
    x, seen = vector(), list[Op]()

    def hook(op: Op) -> None:
        seen.append(op)
        if op.kind == "relu":
            raise CustomError

    ir.main_graph.register_op_created_hook(hook)
    with pytest.raises(CustomError):
        ops.relu(x)
    ops.tanh(x)
    assert [op.kind for op in ir.main_graph.ops] == ["tanh"]
    with pytest.raises(errors.GraphError, match="not in the program"):
        _ = seen[0].kind
    assert seen[1].kind == "tanh"


def test_order_that_was_recorded_stays(ir: popsr.Ir) -> None:
    x = vector()
    with popsr.in_sequence():
        ops.add_(x, x)
        with pytest.raises(errors.ShapeError):
            ops.reshape(x, (7,))
        with pytest.raises(errors.ShapeError):
            ir.create_graph(several_steps, x)
        ops.mul(x, x)
    popsr.Session(ir)  # the order of both is fixed
    assert ir._core.op_after(1) == [0]


def test_exchanges_that_cannot_be_merged_stay_as_they_were(ir: popsr.Ir) -> None:
    stream = popsr.h2d_stream((3,), F32)

    def exchange() -> None:
        with transforms.io_tile_exchange():
            ops.relu(ops.host_load(stream) + ops.host_load(stream))

    with pytest.raises(errors.StateError, match="do not become one exchange"):
        exchange()
    assert [op.kind for op in ir.main_graph.ops] == ["host_load", "host_load", "add", "relu"]


def test_facts_and_sessions_of_before_stay_valid(ir: popsr.Ir) -> None:
    x = vector()
    y = ops.tanh(x)
    facts, session = popsr.analysis.analyze(ir), popsr.Session(ir)
    with pytest.raises(errors.ShapeError):
        ir.create_graph(several_steps, x)
    assert str(facts.partition(y)) == "{0,1,2,3}"
    with session:
        session.run()
    ops.relu(y)
    with pytest.raises(errors.GraphError, match="changed"):
        facts.partition(y)


def test_facts_of_what_was_undone_are_never_fresh(ir: popsr.Ir) -> None:
    x, made = vector(), list[Any]()

    def build(t: popsr.Tensor) -> popsr.Tensor:
        ops.tanh(t)
        made.append(popsr.analysis.analyze(ir))
        raise CustomError

    with pytest.raises(CustomError):
        ir.create_graph(build, x)
    ir.create_graph(doubled, x)
    with pytest.raises(errors.GraphError, match="changed"):
        made[0].partition(x)


def test_settings_are_put_back_by_any_call_that_fails(ir: popsr.Ir) -> None:
    x = popsr.variable(np.ones(3), popsr.bfloat16)
    ir.options.enable_stochastic_rounding = True
    x * x

    def set_rules(op: Op) -> None:
        if op.kind == "tanh":
            transforms.stochastic_rounding(ir, "popart")
            ir.num_host_transfers = 3
            raise CustomError

    handle = ir.main_graph.register_op_created_hook(set_rules)
    with pytest.raises(CustomError):
        ops.tanh(x)
    ir.main_graph.remove_op_created_hook(handle)
    assert (ir.num_host_transfers, ir._rules_by_hand) == (1, None)
    (op,) = ir.main_graph.ops
    assert str(op.seed_partition) == "{0,1,2,3}"


def test_seeds_that_a_failed_call_decided_are_decided_again(ir: popsr.Ir) -> None:
    narrow = popsr.variable(np.ones(3), popsr.bfloat16)
    ir.options.enable_stochastic_rounding = True
    narrow * narrow
    (op,) = ir.main_graph.ops

    def look() -> None:
        assert op.seed_partition is not None
        raise CustomError

    with pytest.raises(CustomError):
        transaction.run(look)
    assert str(op.seed_partition) == "{0,1,2,3}"


# Handles that a failed call made


class Kept:
    """One handle of every kind, made by a call that fails, beside one of each that is made afterwards."""

    def __init__(self, ir: popsr.Ir) -> None:
        self.handles: dict[str, Any] = {}

        def build(t: popsr.Tensor) -> popsr.Tensor:
            inner = ir.create_graph(doubled, t)
            info = ops.call_with_info(inner, t)
            self.handles |= {
                "input": t,
                "tensor": ops.relu(t),
                "constant": popsr.constant(1.0),
                "graph": inner,
                "current graph": popsr.gcg(),
                "op": popsr.gcg().ops[0],
                "call": info,
                "stream": popsr.h2d_stream((), F32),
                "buffer": popsr.remote_buffer((3,), F32),
            }
            with ir.main_graph:
                self.handles["variable"] = vector("inside")
            raise CustomError

        with contextlib.suppress(CustomError):
            ir.create_graph(build, vector())


@pytest.mark.parametrize(
    ("kind", "use"),
    [
        ("input", lambda t: t.name),
        ("tensor", lambda t: ops.tanh(t)),
        ("tensor", lambda t: t + 1),
        ("tensor", lambda t: t.shape),
        ("tensor", lambda t: popsr.graph_output(t)),
        ("constant", lambda t: t.reshape((1,))),
        ("variable", lambda t: popsr.analysis.analyze(popsr.gir()).partition(t)),
        ("variable", lambda t: popsr.Session(popsr.gir()).get_tensor_data(t)),
        ("graph", lambda g: ops.call(g, 1.0)),
        ("graph", lambda g: g.ops),
        ("graph", lambda g: transforms.autodiff(g)),
        ("current graph", lambda g: g.__enter__()),
        ("op", lambda op: op.kind),
        ("op", lambda op: op.outputs),
        ("call", lambda info: info.outputs),
        ("call", lambda info: info.set_parent_input_modified(info)),
        ("stream", lambda s: ops.host_load(s)),
        ("stream", lambda s: s.shape),
        ("buffer", lambda b: ops.remote_load(b, 0)),
        ("buffer", lambda b: b.entries),
    ],
)
@pytest.mark.parametrize("others", [False, True], ids=["alone", "others have their numbers"])
def test_handles_of_a_failed_call_are_refused(
    ir: popsr.Ir, kind: str, use: Callable[[Any], Any], others: bool
) -> None:
    ops.relu(vector("before"))
    kept = Kept(ir)
    if others:  # as many of everything
        ir.create_graph(doubled, vector())
        ops.call(ir.create_graph(doubled, vector()), vector())
        popsr.h2d_stream((), F32)
        popsr.remote_buffer((3,), F32)
    with pytest.raises(
        errors.GraphError, match=r"it is not in the program, got something that a failed call had made"
    ):
        use(kept.handles[kind])


def test_handles_of_a_failed_call_can_be_printed_and_kept(ir: popsr.Ir) -> None:
    kept = Kept(ir).handles
    assert repr(kept["tensor"]).startswith("Tensor[")
    assert isinstance(kept["variable"], popsr.Variable)
    assert len({*kept.values()}) == len(kept)
    assert {**{value: key for key, value in kept.items()}}[kept["graph"]] == "graph"
    assert kept["tensor"] not in ir.main_graph.tensors


def test_ops_made_before_a_failed_call_are_still_ops(ir: popsr.Ir) -> None:
    x = vector()
    ops.relu(x)
    (before,) = ir.main_graph.ops
    for _ in range(3):
        with pytest.raises(errors.ShapeError):
            ir.create_graph(several_steps, x)
        assert before.kind == "relu"
    ops.tanh(x)
    assert [op.kind for op in ir.main_graph.ops] == ["relu", "tanh"]
    assert before in ir.main_graph.ops


# Remembered values


class Scaled(addons.Module):
    """w * x, and fails when it is told to."""

    fail = False

    def build(self, x: popsr.Tensor) -> popsr.Tensor:
        w = self.add_variable_input("w", functools.partial(np.ones, x.shape, np.float32), x.dtype)
        y = w * x
        if self.fail:
            raise CustomError
        return y


def test_caches_forget_graphs_of_failed_calls(ir: popsr.Ir) -> None:
    x, cache, module = vector(), addons.GraphCache(), Scaled(cache=True)

    def build(t: popsr.Tensor) -> popsr.Tensor:
        cache.create_graph(doubled, t)
        module.create_graph(t)
        raise CustomError

    with pytest.raises(CustomError):
        ir.create_graph(build, x)
    assert ops.call(cache.create_graph(doubled, x), x)[0].shape == (3,)
    factories, graph = module.create_graph(x)
    assert graph.bind(factories.init()).call(x)[0].shape == (3,)


def test_modules_forget_the_state_of_parts_that_failed(ir: popsr.Ir) -> None:
    class Outer(addons.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = Scaled(), Scaled()
            self.first.fail = True

        def build(self, x: popsr.Tensor) -> popsr.Tensor:
            for part in (self.first, self.second):
                with contextlib.suppress(CustomError):
                    x = part(x)
            with contextlib.suppress(errors.Error):
                self.call_module(Scaled(), "third")(x, x)
            return x

    factories, graph = Outer().create_graph(vector())
    assert factories.keys_flat() == graph.args.keys_flat() == ["second.w"]
    assert len(graph.graph.inputs) == 2


def test_modules_forget_inputs_that_a_failed_graph_added(ir: popsr.Ir) -> None:
    class Adds(addons.Module):
        def build(self, x: popsr.Tensor) -> popsr.Tensor:
            def fails(t: popsr.Tensor) -> popsr.Tensor:
                self.add_variable_input("w", functools.partial(np.ones, 3, np.float32))
                self.add_variable_input("other", functools.partial(np.ones, 3, np.float32))
                raise CustomError

            with contextlib.suppress(CustomError):
                ir.create_graph(fails, x)
            return x + self.add_variable_input("w", functools.partial(np.ones, 3, np.float32))

    factories, graph = Adds().create_graph(vector())
    assert factories.keys_flat() == graph.args.keys_flat() == ["w"]
    assert graph.bind(factories.init()).call(vector())[0].shape == (3,)


def test_bound_graphs_forget_inputs_and_outputs_of_failed_calls(ir: popsr.Ir) -> None:
    x, y = vector(), vector()
    graph = ir.create_graph(doubled, x)
    bound = PipelineBoundGraph(graph, {graph.inputs[0]: x})

    def build(t: popsr.Tensor) -> None:
        bound.add_variable_input(y)
        bound.add_output_tensor(graph.tensors[1], "y")
        raise CustomError

    with pytest.raises(CustomError):
        ir.create_graph(build, x)
    assert (bound.original_output_ids, y in bound) == ([], False)
    bound.add_output_tensor(graph.tensors[1], "y")
    assert len(bound.call()) == 2


def test_items_that_a_failed_init_took_are_the_next_again(ir: popsr.Ir) -> None:
    def build(x: popsr.Tensor) -> popsr.Tensor:
        a, factories["a"] = addons.add_variable_input("a", iter(np.arange(5, dtype=np.float32)))
        b, factories["b"] = addons.add_variable_input("b", iter(np.array([7], np.float32)))
        return a + b + x

    factories: dict[str, Any] = {}
    ir.create_graph(build, popsr.TensorSpec((), F32))
    named = addons.NamedVariableFactories.from_dict(factories)
    first = named.init()
    with pytest.raises(StopIteration):
        named.init()
    named.pop("b")
    second = named.init()
    values = popsr.Session(_with_an_op(ir)).get_tensors_data([first.a, second.a])
    assert [float(value) for value in values.values()] == [0, 1]


def _with_an_op(ir: popsr.Ir) -> popsr.Ir:
    ops.relu(vector())
    return ir


def test_graphs_can_be_differentiated_after_an_attempt_failed(ir: popsr.Ir) -> None:
    _, net = Scaled().create_graph(vector())

    def build(t: popsr.Tensor) -> popsr.Tensor:
        net.autodiff()
        raise CustomError

    with pytest.raises(CustomError):
        ir.create_graph(build, vector())
    assert net.autodiff().graph.outputs


def test_pipelines_forget_ops_of_failed_calls(ir: popsr.Ir) -> None:
    x = vector()
    with addons.pipelined_execution(4) as pipeline:
        with pipeline.stage(0):
            with pytest.raises(errors.ShapeError):
                _ = x @ np.ones((5, 5), np.float32)
            y = ops.relu(x)
        with pipeline.stage(1):
            ops.tanh(y)
    (loop,) = ir.main_graph.ops
    assert [op.kind for op in loop.called_graphs[0].ops] == ["relu", "tanh"]


def test_a_pipeline_that_cannot_be_is_not_begun(ir: popsr.Ir) -> None:
    pipeline = pipelining.Pipelining(ir.main_graph, 2)
    ops.relu(vector())
    ops.tanh(vector())
    with pytest.raises(errors.AttributeValueError, match="too few steps"):
        pipeline.apply({0: ir.main_graph.ops[:1], 1: ir.main_graph.ops[1:]})
    pipeline.apply({0: ir.main_graph.ops})
    assert [op.kind for op in ir.main_graph.ops] == ["repeat"]


def test_tensors_that_moved_into_a_loop_move_back(ir: popsr.Ir) -> None:
    x = vector()
    y = ops.relu(x)

    def build(t: popsr.Tensor) -> popsr.Tensor:
        addons.transforms.repeat_graph.repeat_graph(ir.main_graph, 3)
        assert y.id == "repeat_subgraph(1)/relu_out"
        raise CustomError

    with pytest.raises(CustomError):
        ir.create_graph(build, x)
    assert (y.id, y in ir.main_graph, ops.tanh(y).shape) == ("relu_out", True, (3,))


def test_programs_do_not_keep_what_failed_calls_made(ir: popsr.Ir) -> None:
    x = vector()
    for _ in range(3):
        with pytest.raises(errors.ShapeError):
            ir.create_graph(several_steps, x)
    assert not [*filter(is_retired, [*ir._graph_cache.values(), *ir._tensor_cache.values()])]
    assert len(ir._undone._first) <= 1


# The decorator


def test_decorated_functions_keep_signature_and_docstring() -> None:
    assert list(inspect.signature(popsr.variable).parameters)[:3] == ["data", "dtype", "name"]
    assert popsr.variable.__name__ == "variable"
    assert (popsr.variable.__doc__ or "").startswith("A variable of the main graph.")
    assert inspect.isfunction(popsr.Ir.create_graph)


def test_memory_that_runs_out_names_the_call(ir: popsr.Ir) -> None:
    def build(t: popsr.Tensor) -> popsr.Tensor:
        raise MemoryError

    with pytest.raises(MemoryError, match=r"^create_graph: not enough memory, nothing was changed$"):
        ir.create_graph(build, vector())
