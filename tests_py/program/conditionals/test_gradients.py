"""Gradients through ``conditional``: derivatives of what each replica ran, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import TensorSpec, errors, ops
from popsr.analysis import analyze
from popsr.ops import collectives
from popsr.transforms import autodiff
from tests_py.support.helpers import Array, Streams, assert_same_bits, make_variable

F64, BOOL = popsr.float64, popsr.bool
T = popsr.Tensor
MODES: list[dict[str, Any]] = [{}, {"dedup": False}, {"check": True}, {"num_threads": 2}]
TAKEN = np.array([True, False, False, True])
SHAPE = (3, 3)


def _graph(fn: Callable[..., Any], *like: T) -> popsr.Graph:
    return popsr.gir().create_graph(fn, *like)


def _scaled(a: T, b: T) -> T:
    return ops.tanh(ops.mul(ops.exp(a), b))


def _other(b: T) -> T:
    return ops.exp(ops.negate(b))


def _product(a: T) -> T:
    return ops.matmul(ops.tanh(a), popsr.constant(np.arange(9.0).reshape(SHAPE) / 8, F64))


def _sign(a: T) -> T:
    return ops.sign(a)


def _stopped(a: T) -> T:
    """Without gradient, and flat."""
    return ops.add(ops.detach(ops.sign(a)), popsr.constant(np.ones(SHAPE), F64))


# Programs: functions of two float64 matrices and a condition


def one_input_of_each(x: T, y: T, c: T) -> Any:
    """Intermediate values of the first branch are computed again."""
    return ops.conditional(c, _graph(_scaled, x, y), _graph(_other, y), [x, y], [y])[0]


def only_one_branch(x: T, y: T, c: T) -> Any:
    """Each input is used by one branch alone."""
    return ops.conditional(c, _graph(_other, x), _graph(_product, y), [x], [y])[0]


def one_tensor_several_times(x: T, y: T, c: T) -> Any:
    """In both branches, and twice in one; and beside the conditional."""
    (made,) = ops.conditional(c, _graph(_scaled, x, x), _graph(_scaled, x, y), [x, x], [y, x])
    return ops.add(ops.mul(made, x), y)


def one_graph_for_both(x: T, y: T, c: T) -> Any:
    """Both branches are one graph, which is called as well."""
    graph = _graph(_scaled, x, y)
    (made,) = ops.conditional(c, graph, graph, [x, y], [y, x])
    return ops.call(graph, made, x)[0]


def branch_without_gradient(x: T, y: T, c: T) -> Any:
    """Zeros from a branch that lets nothing through, or takes nothing."""

    def constant() -> T:
        return popsr.constant(np.ones(SHAPE), F64)

    (first,) = ops.conditional(c, _graph(_stopped, x), _graph(_other, x), [x], [x])
    (second,) = ops.conditional(c, _graph(_product, y), _graph(constant), [y])
    return ops.mul(first, second)


def several_outputs(x: T, y: T, c: T) -> Any:
    """One is returned twice by a branch, one is not used, one carries no gradient, one is what was passed."""

    def then_branch(a: T, b: T) -> Any:
        product = ops.mul(a, b)
        return product, product, ops.cast(a, popsr.int32), b

    def else_branch(b: T, a: T) -> Any:
        return ops.exp(b), ops.tanh(a), ops.cast(b, popsr.int32), ops.add(a, b)

    first, second, _, third = ops.conditional(
        c, _graph(then_branch, x, y), _graph(else_branch, y, x), [x, y], [y, x]
    )
    return ops.add(first, ops.mul(second, second)), third


def forward_value_of_a_result(x: T, y: T, c: T) -> Any:
    """The gradient of exp needs its result, which is an output of the branch and of the conditional."""
    (made,) = ops.conditional(c, _graph(_other, x), _graph(_other, y), [x], [y])
    return ops.tanh(made)


def nested(x: T, y: T, c: T) -> Any:
    """A conditional in a branch, whose result the branch uses."""

    def inner(a: T, b: T, condition: T) -> T:
        positive = ops.logical_not(condition)
        (made,) = ops.conditional(positive, _graph(_scaled, a, b), _graph(_product, b), [a, b], [b])
        return ops.mul(made, ops.tanh(made))

    def both(a: T, b: T, condition: T) -> T:
        (made,) = ops.conditional(
            condition, _graph(inner, a, b, condition), _graph(_other, b), [a, b, condition], [b]
        )
        return made

    (made,) = ops.conditional(c, _graph(both, x, y, c), _graph(inner, y, x, c), [x, y, c], [y, x, c])
    return made


def calls_around_and_inside(x: T, y: T, c: T) -> Any:
    """A call of a conditional whose branches call: one graph by both, and by the caller."""

    def then_branch(a: T, b: T) -> T:
        return ops.mul(ops.call(shared, a, b)[0], a)

    def else_branch(b: T) -> T:
        return ops.tanh(ops.call(shared, b, b)[0])

    def choose(a: T, b: T, condition: T) -> T:
        graphs = _graph(then_branch, a, b), _graph(else_branch, b)
        return ops.exp(ops.conditional(condition, *graphs, [a, b], [b])[0])

    shared = _graph(_scaled, x, y)
    chooser = _graph(choose, x, y, c)
    first = ops.call(chooser, x, y, c)[0]
    second = ops.call(chooser, ops.call(shared, x, y)[0], x, c)[0]
    return ops.add(first, second)


def condition_from_the_data(x: T, y: T, c: T) -> Any:
    """The condition is an intermediate value."""
    chosen = ops.greater(ops.sum(ops.where(c, x, y)), popsr.constant(0.0, F64))
    (made,) = ops.conditional(chosen, _graph(_scaled, x, y), _graph(_product, y), [x, y], [y])
    return ops.mul(made, x)


def loop_in_a_branch(x: T, y: T, c: T) -> Any:
    """Gradients stop at a loop, not beside it."""

    def then_branch(a: T, b: T) -> T:
        (looped,) = ops.repeat(_graph(_sign, b), 3, b)
        return ops.add(looped, ops.mul(a, b))

    return ops.conditional(c, _graph(then_branch, x, y), _graph(_scaled, x, y), [x, y], [x, y])[0]


PROGRAMS = (
    one_input_of_each,
    only_one_branch,
    one_tensor_several_times,
    one_graph_for_both,
    branch_without_gradient,
    several_outputs,
    forward_value_of_a_result,
    nested,
    calls_around_and_inside,
    condition_from_the_data,
    loop_in_a_branch,
)


class Differentiated:
    """A program of four replicas, its gradient graph, and calls of both."""

    def __init__(self, program: Callable[..., Any], taken: Array = TAKEN) -> None:
        """``taken``: the condition on each replica."""
        rng = np.random.default_rng(5)
        self.ir, self.io = popsr.Ir(replication=4), Streams()
        self.x, self.y = rng.standard_normal((2, 4, *SHAPE))
        with self.ir.main_graph, popsr.in_sequence():
            tensors = [self.io.feed(each, replicated=True) for each in (self.x, self.y, taken)]
            self.graph = self.ir.create_graph(program, *tensors)
            given = [t for t in self.graph.outputs if t.dtype == F64]
            inputs = self.graph.inputs[:2]
            self.info = autodiff(self.graph, grads_provided=given, grads_required=inputs)
            call = ops.call_with_info(self.graph, *tensors)
            self.seeds = rng.standard_normal((len(given), 4, *SHAPE))
            fed = [self.io.feed(seed, replicated=True) for seed in self.seeds]
            results = [call.outputs[self.graph.outputs.index(t)] for t in given]
            for t in (*results, *ops.call(self.info.graph, *fed, inputs_dict=self.info.inputs_dict(call))):
                self.io.fetch(t)

    def run(self, session: popsr.Session, x: Array, y: Array) -> tuple[Array, list[Array]]:
        """The loss of each replica, and the gradients."""
        for stream, array in zip(list(self.io.inputs)[:2], (x, y), strict=True):
            self.io.inputs[stream] = np.ascontiguousarray(array)
        made = self.io.run(session)
        results, gradients = made[: len(self.seeds)], made[len(self.seeds) :]
        loss = sum(
            np.sum(seed * result, axis=(1, 2)) for seed, result in zip(self.seeds, results, strict=True)
        )
        return np.asarray(loss), gradients


@pytest.mark.parametrize(
    "taken", [TAKEN, ~TAKEN, np.ones(4, bool), np.zeros(4, bool)], ids=["some", "others", "all", "none"]
)
@pytest.mark.parametrize("program", PROGRAMS)
def test_gradients_by_finite_differences(program: Callable[..., Any], taken: Array) -> None:
    """On each replica by itself: replicas that take different branches have different derivatives."""
    built = Differentiated(program, taken)
    rng = np.random.default_rng(1)
    directions = rng.standard_normal((2, 4, *SHAPE))
    step = 1e-6
    with popsr.Session(built.ir) as session:
        _, gradients = built.run(session, built.x, built.y)
        losses = [
            built.run(session, built.x + sign * step * directions[0], built.y + sign * step * directions[1])[
                0
            ]
            for sign in (1, -1)
        ]
    products = [np.sum(g * d, axis=(1, 2)) for g, d in zip(gradients, directions, strict=True)]
    slopes = (losses[0] - losses[1]) / (2 * step)
    scale = 1 + np.sum(np.abs(gradients), axis=(0, 2, 3))
    assert np.all(np.abs(products[0] + products[1] - slopes) < 1e-6 * scale)
    assert np.any(gradients[0] != 0) or np.any(gradients[1] != 0)


@pytest.mark.parametrize("program", PROGRAMS)
def test_gradients_do_not_depend_on_how_they_run(program: Callable[..., Any]) -> None:
    results = []
    for mode in MODES:
        built = Differentiated(program)
        with popsr.Session(built.ir, **mode) as session:
            loss, gradients = built.run(session, built.x, built.y)
        results.append([loss, *gradients])
    for result in results:
        for got, expect in zip(result, results[0], strict=True):
            assert_same_bits(got, expect)


def test_inputs_of_the_branch_not_taken_get_zero_gradients() -> None:
    built = Differentiated(only_one_branch)
    with popsr.Session(built.ir) as session:
        _, (dx, dy) = built.run(session, built.x, built.y)
    for r, taken in enumerate(TAKEN):
        assert_same_bits((dy if taken else dx)[r], np.zeros(SHAPE))
        assert np.all((dx if taken else dy)[r] != 0)


def test_replicas_that_agree_share_gradients() -> None:
    ir, io = popsr.Ir(replication=4), Streams()
    with ir.main_graph, popsr.in_sequence():
        x, y = (io.feed(np.full(SHAPE, value)) for value in (0.5, 2.0))
        pairs = ir.replica_grouping(1, 2)
        conditions = io.feed(np.array(True)), make_variable(np.array([True, False]), replica_grouping=pairs)
        gradients: list[Any] = []
        for c in conditions:
            graph = ir.create_graph(one_input_of_each, x, y, c)
            info = autodiff(graph, grads_required=graph.inputs[:2])
            call = ops.call_with_info(graph, x, y, c)
            gradients += ops.call(info.graph, io.feed(np.ones(SHAPE)), inputs_dict=info.inputs_dict(call))
        for gradient in gradients:
            io.fetch(gradient)
    facts = analyze(ir)
    assert [str(facts.partition(g)) for g in gradients] == ["{0,1,2,3}"] * 2 + ["{0,1}{2,3}"] * 2
    with popsr.Session(ir, check=True) as session:
        io.run(session)


@pytest.mark.filterwarnings(
    "ignore::popsr.ReplicaWarning"
)  # the collective in a branch is what the test is about
def test_collectives_in_the_gradient_of_a_branch() -> None:
    """Members of a group take one branch together, forward and back."""

    def then_branch(a: T) -> T:
        return collectives.replicated_all_reduce_identical_inputs(a, group=popsr.gir().replica_grouping(1, 2))

    built = Differentiated(
        lambda x, y, c: ops.conditional(c, _graph(then_branch, x), _graph(_scaled, x, y), [x], [x, y])[0],
        np.array([True, True, False, False]),
    )
    with popsr.Session(built.ir, check=True) as session:
        _, (dx, _) = built.run(session, built.x, built.y)
    assert_same_bits(dx[0], built.seeds[0][0] + built.seeds[0][1])
    assert_same_bits(dx[1], dx[0])


# Graphs


def _program(fn: Callable[..., Any]) -> tuple[popsr.Ir, popsr.Graph]:
    ir = popsr.Ir()
    matrix = TensorSpec(SHAPE, F64)
    return ir, ir.create_graph(fn, matrix, matrix, TensorSpec((), BOOL))


def test_graphs_of_a_gradient() -> None:
    _, graph = _program(one_input_of_each)
    scaled, other = graph.called_graphs
    infos = autodiff(graph, grads_required=graph.inputs[:2], return_all_grad_graphs=True)
    assert set(infos) == {graph, scaled, other}
    assert [len(each.outputs) for each in (graph, scaled, other)] == [1, 1, 1], "branches gain no outputs"
    (op,) = [op for op in infos[graph].graph.ops if op.kind == "conditional"]
    assert op.location == graph.ops[-1].location
    branches = infos[graph].graph.called_graphs
    assert [branch.called_graphs for branch in branches] == [(infos[scaled].graph,), (infos[other].graph,)]
    assert [branch.name for branch in branches] == [f"{each.name}_bwd_branch" for each in (scaled, other)]
    assert [len(branch.outputs) for branch in branches] == [2, 2]


def test_given_gradients_of_branches_are_used() -> None:
    _, graph = _program(only_one_branch)
    given = {branch: autodiff(branch) for branch in graph.called_graphs}
    info = autodiff(graph, grads_required=graph.inputs[:2], called_graphs_grad_info=given)
    used = [inner for branch in info.graph.called_graphs for inner in branch.called_graphs]
    assert used == [each.graph for each in given.values()]


def test_a_graph_that_is_a_branch_somewhere_is_differentiated_by_itself() -> None:
    ir, graph = _program(one_input_of_each)
    scaled = graph.called_graphs[0]
    info = autodiff(scaled)
    assert len(scaled.outputs) == 1
    assert info.outputs == tuple(scaled.inputs)
    assert str(ir).count("conditional(") == 1


def test_only_what_is_asked_for() -> None:
    """Gradients beside a conditional need none of it."""

    def beside(x: T, y: T, c: T) -> Any:
        return ops.mul(x, x), one_input_of_each(x, y, c)

    _, graph = _program(beside)
    info = autodiff(graph, grads_provided=graph.outputs[:1], grads_required=graph.inputs[:1])
    assert not info.graph.called_graphs


# Refused


def _of_branch(branch: Callable[[T], Any]) -> Callable[..., Any]:
    return lambda x, y, c: ops.conditional(c, _graph(branch, x), _graph(_other, y), [x], [y])[0]


def _loads(a: T) -> T:
    stream = popsr.h2d_stream(SHAPE, F64)
    return ops.mul(a, ops.host_load(stream))


def _modifies(a: T) -> T:
    b = ops.exp(a)
    ops.add_(b, a)
    return b


def _throws(a: T) -> T:
    return ops.reshape(collectives.replicated_reduce_scatter(a), SHAPE)


REFUSED: dict[str, tuple[Callable[..., Any], str]] = {
    "a stream in a branch": (
        _of_branch(_loads),
        r"^autodiff: '.*' cannot be recomputed, got host_load at .*, expected it to be an output of graph '_loads",
    ),
    "a branch that modifies": (
        _of_branch(_modifies),
        r"^The graph _modifies_subgraph\(\d+\) contains a modifying op, got add_ at",
    ),
    "an op that throws": (
        _of_branch(_throws),
        r"^autodiff: replicated_reduce_scatter has no gradient, got '.*' made at .*py",
    ),
    "nothing flows": (
        lambda x, y, c: ops.add(y, ops.conditional(c, _graph(_stopped, x), _graph(_stopped, x), [x], [x])[0]),
        r"^autodiff: unable to provide required gradient of '.*/x' f64\[3, 3\]",
    ),
    "the condition": (
        lambda x, y, c: ops.conditional(
            ops.cast(ops.sum(x), BOOL), _graph(_other, y), _graph(_product, y), [y], [y]
        )[0],
        r"^autodiff: unable to provide required gradient of '.*/x' f64\[3, 3\]",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    program, match = REFUSED[name]
    _, graph = _program(program)
    with pytest.raises(errors.GraphError, match=match):
        autodiff(graph, grads_required=graph.inputs[:2])
