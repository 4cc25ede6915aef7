"""autodiff(replicas="sum"): gradients that are whole, beside finite differences and programs with their own sums."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import popsr
from popsr import errors, ops, transforms
from popsr._program.op import Op
from popsr.ops import collectives
from popsr.testing import check_gradients
from tests_py.analysis.parallel_steps import ParallelStep, Step

F64 = popsr.float64
BY_HAND = [seed for seed in range(40) if "classes" not in ParallelStep(seed, wrong=False).layers]
"""Steps whose loss is the same function with ``replicas="sum"``."""
Layer = Callable[[popsr.Tensor, popsr.Tensor], popsr.Tensor]


def gradients_of(step: Step) -> list[np.ndarray]:
    """Of the first run, by variable: a row for each replica."""
    with step.ir.main_graph:
        streams = [popsr.d2h_stream(g.shape, g.dtype) for g in step.gradients.values()]
        for stream, gradient in zip(streams, step.gradients.values(), strict=True):
            ops.host_store(stream, gradient)
    with popsr.Session(step.ir, check=True) as session:
        found = session.run(step.inputs)
    return [found[stream] for stream in streams]


@pytest.mark.parametrize("seed", range(60))
def test_random_steps_have_the_gradients_of_finite_differences(seed: int) -> None:
    """Without a collective that is there for gradients, all variables are proved, and none of their sums is pending."""
    step = ParallelStep(seed, wrong=False, sums=True).make()
    assert check_gradients(step.ir, step.losses, step.gradients, step.inputs).ok
    facts = popsr.analysis.analyze(step.ir)
    assert [lint for lint in facts.warnings if lint.code in ("L2", "L3", "L10", "L11")] == []
    assert {facts.pending(gradient) for gradient in step.gradients.values()} == {None}


@pytest.mark.filterwarnings("ignore::popsr.errors.ReplicaWarning")  # sums of groups by hand add in any order
@pytest.mark.parametrize("seed", BY_HAND)
def test_gradients_are_those_of_hand_written_sums(seed: int) -> None:
    drawn = ParallelStep(seed, wrong=False)
    by_hand, summed = (
        gradients_of(drawn.make()),
        gradients_of(ParallelStep(seed, wrong=False, sums=True).make()),
    )
    models = drawn.rows if drawn.mean else 1
    for one, other in zip(by_hand, summed, strict=True):
        np.testing.assert_allclose(one * models, other, rtol=1e-11, atol=1e-12)


def program(layer: Layer, replicas: int = 4, called: bool = True) -> tuple[popsr.Graph, popsr.Ir]:
    """A graph of samples that differ and a weight that all replicas share."""
    ir = popsr.Ir(replication=replicas)
    with ir.main_graph, popsr.in_sequence():
        x = ops.host_load(popsr.h2d_stream((4, 4), F64, "x"))
        w = popsr.variable(np.eye(4), F64, "w")
        graph = ir.create_graph(layer, x, w)
        if called:
            ops.call(graph, x, w)
    return graph, ir


def all_reduces(graph: popsr.Graph) -> list[Op]:
    """Sums over replicas in a graph."""
    return [op for op in graph.ops if op.kind == "replicated_all_reduce"]


def test_contributions_of_one_kind_are_summed_once() -> None:
    graph, _ = program(lambda x, w: ops.sum(ops.tanh(x @ w) @ w + x @ w))
    gradients = transforms.autodiff(graph, grads_required=graph.inputs[1:], replicas="sum")
    assert len(all_reduces(gradients.graph)) == 1


def test_by_default_gradients_are_what_each_replica_contributes() -> None:
    graph, _ = program(lambda x, w: ops.sum(x @ w))
    assert all_reduces(transforms.autodiff(graph).graph) == []


def test_gradients_of_what_each_replica_has_alone_are_not_summed() -> None:
    graph, _ = program(lambda x, w: ops.sum(x @ w))
    gradients = transforms.autodiff(graph, grads_required=graph.inputs[:1], replicas="sum")
    assert all_reduces(gradients.graph) == []


def test_gradients_stop_at_reductions_other_than_sums() -> None:
    graph, _ = program(lambda x, w: ops.sum(x @ w) + ops.sum(collectives.replicated_all_reduce(x @ w, "max")))
    gradients = transforms.autodiff(graph, grads_required=graph.inputs[1:], replicas="sum")
    assert len(all_reduces(gradients.graph)) == 1


def nested(again: Layer | None) -> tuple[popsr.Ir, popsr.Graph, popsr.HostToDeviceStream, popsr.Variable]:
    """A graph that calls another one with its samples and weight; and ``again`` with what it gives."""
    ir = popsr.Ir(replication=2)
    with ir.main_graph, popsr.in_sequence():
        stream = popsr.h2d_stream((4, 4), F64, "x")
        x = ops.host_load(stream)
        w = popsr.variable(np.eye(4) / 2, F64, "w")
        inner = ir.create_graph(lambda x, w: ops.tanh(x @ w), x, w)

        def outer(x: popsr.Tensor, w: popsr.Tensor) -> popsr.Tensor:
            y = ops.call(inner, x, w)[0]
            y = ops.call(inner, again(y, w), w)[0] if again else y
            return ops.sum(y * y)

        graph = ir.create_graph(outer, x, w)
    return ir, graph, stream, w


@pytest.mark.parametrize("again", [None, lambda y, w: y + y], ids=["one call", "two calls"])
def test_called_graphs_are_summed(again: Layer | None) -> None:
    ir, graph, stream, w = nested(again)
    with ir.main_graph, popsr.in_sequence():
        call = ops.call_with_info(graph, ops.host_load(stream), w)
        backward = transforms.autodiff(graph, grads_required=graph.inputs[1:], replicas="sum")
        (dw,) = ops.call(backward.graph, popsr.constant(1.0, F64), inputs_dict=backward.inputs_dict(call))
    data = np.random.default_rng(0).normal(size=(2, 4, 4))
    assert check_gradients(ir, call.outputs[0], {w: dw}, {stream: data}).ok


def test_calls_that_disagree_are_refused() -> None:
    """One gets the samples of each replica, the other what all replicas share."""
    ir, graph, stream, w = nested(lambda y, w: w)
    with ir.main_graph, popsr.in_sequence():
        ops.call(graph, ops.host_load(stream), w)
        with pytest.raises(
            errors.GraphError, match=r"needs calls of graph .*, got \{0\}\{1\} and \{0,1\} for"
        ):
            transforms.autodiff(graph, grads_required=graph.inputs[1:], replicas="sum")


REFUSED: dict[str, tuple[Layer, str]] = {
    "broadcast": (
        lambda x, w: ops.sum(collectives.replicated_broadcast(x @ w)),
        "autodiff: replicated_broadcast has no transpose with replicas='sum', got",
    ),
    "slice": (
        lambda x, w: ops.sum(collectives.replicated_slice(x @ w)),
        "autodiff: replicated_slice has no transpose with replicas='sum', got",
    ),
    "all to all": (
        lambda x, w: ops.sum(collectives.replicated_all_to_all(x @ w)),
        "autodiff: replicated_all_to_all has no transpose with replicas='sum', got",
    ),
    "permute": (
        lambda x, w: ops.sum(collectives.replicated_permute(x @ w, [1, 0, 3, 2])),
        "autodiff: replicated_permute has no transpose with replicas='sum', got",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_exchanges_without_a_transpose_are_refused(name: str) -> None:
    layer, text = REFUSED[name]
    graph, ir = program(layer)
    before = str(ir)
    with pytest.raises(errors.GraphError) as caught:
        transforms.autodiff(graph, grads_required=graph.inputs[1:], replicas="sum")
    assert str(caught.value).startswith(text)
    assert "test_summed_gradients.py:" in str(caught.value)
    assert str(ir) == before


def test_a_graph_that_nothing_calls_is_refused() -> None:
    graph, _ = program(lambda x, w: ops.sum(x @ w), called=False)
    with pytest.raises(errors.GraphError) as caught:
        transforms.autodiff(graph, replicas="sum")
    assert str(caught.value) == (
        "autodiff: replicas='sum' needs a call of the graph, which tells which replicas share its inputs, got graph "
        "'program.<lambda>_subgraph(0)' that nothing calls, expected call_with_info before autodiff"
    ).replace("program.<lambda>", graph.name.partition("_subgraph")[0])


def test_parts_of_uneven_blocks_are_refused() -> None:
    """Replicas 0 and 2 hold zeros, replica 1 samples: no groups of equal size take one of each kind."""
    ir = popsr.Ir(replication=3)
    with ir.main_graph, popsr.in_sequence():
        samples = ops.host_load(popsr.h2d_stream((4, 4), F64, "x"))
        x = collectives.replicated_permute(samples, [1, -1, -1])
        w = popsr.variable(np.eye(4), F64, "w")
        graph = ir.create_graph(lambda x, w: ops.sum(x @ w), x, w)
        ops.call(graph, x, w)
        with pytest.raises(
            errors.GraphError, match=r"no groups of equal size whose sum is the gradient of .*w', got"
        ):
            transforms.autodiff(graph, grads_required=graph.inputs[1:], replicas="sum")


def test_another_word_is_refused() -> None:
    graph, _ = program(lambda x, w: ops.sum(x @ w))
    with pytest.raises(ValueError, match=r"^autodiff: replicas is 'mean', expected|unknown replicas"):
        transforms.autodiff(graph, replicas="mean")  # type: ignore[call-overload]
