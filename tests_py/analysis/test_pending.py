"""Pending sums of gradients: by the route on which a gradient goes from autodiff's graph to its update."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import popsr
from popsr import ops, transforms
from popsr._program.op import Op
from popsr.ops import collectives, var_updates

F64 = popsr.float64
ALL = "{0,1,2,3}"


class Step:
    """Gradients of ``sum(tanh(x @ w))`` for samples that differ between four replicas, which share ``w``."""

    def __init__(self) -> None:
        """The program up to the call of the gradient graph."""
        self.ir = popsr.Ir(replication=4)
        with self.ir.main_graph, popsr.in_sequence():
            self.x = ops.host_load(popsr.h2d_stream((3, 4), F64, "x"))
            self.w = popsr.variable(np.eye(4) / 2, F64, "w")
            self.graph = self.ir.create_graph(lambda x, w: ops.sum(ops.tanh(x @ w)), self.x, self.w)
            self.backward = transforms.autodiff(self.graph, grads_required=self.graph.inputs[1:])

    def gradient(self, factor: float = 1.0) -> popsr.Tensor:
        """Of ``w``, by a call in the current graph of the main graph's samples."""
        call = ops.call_with_info(self.graph, self.x, self.w)
        one = popsr.constant(factor, F64)
        return ops.call(self.backward.graph, one, inputs_dict=self.backward.inputs_dict(call))[0]

    def zeros(self, name: str) -> popsr.Variable:
        """An accumulator."""
        return popsr.variable(np.zeros((4, 4)), F64, name)


Route = Callable[[Step], popsr.Tensor]


def by_a_call(step: Step) -> popsr.Tensor:
    d = step.gradient()
    return ops.call(step.ir.create_graph(lambda d: d * 2.0 + d, d), d)[0]


def by_calls_in_calls(step: Step) -> popsr.Tensor:
    d = step.gradient()
    inner = step.ir.create_graph(lambda d: d + d, d)
    return ops.call(step.ir.create_graph(lambda d: ops.call(inner, d)[0], d), d)[0]


def by_a_loop(step: Step) -> popsr.Tensor:
    d = step.gradient()
    return ops.repeat(step.ir.create_graph(lambda d: d * 0.5, d), 3, d)[0]


def by_a_loop_that_adds(step: Step) -> popsr.Tensor:
    """A micro batch an iteration, into an accumulator that the loop modifies."""
    total = step.zeros("total")

    def body(x: popsr.Tensor, w: popsr.Tensor, total: popsr.TensorByRef) -> None:
        call = ops.call_with_info(step.graph, x, w)
        (d,) = ops.call(
            step.backward.graph, popsr.constant(1.0, F64), inputs_dict=step.backward.inputs_dict(call)
        )
        var_updates.accumulate_(total, d)

    graph = step.ir.create_graph(body, step.x, step.w, total)
    ops.repeat(graph, 2, step.x, step.w, total)
    return total


def by_both_branches(step: Step) -> popsr.Tensor:
    d = step.gradient()
    double, half = (step.ir.create_graph(lambda d, k=k: d * k, d) for k in (2.0, 0.5))
    flag = popsr.constant(True, popsr.bool)
    return ops.conditional(flag, double, half, [d], [d])[0]


def by_views(step: Step) -> popsr.Tensor:
    d = step.gradient()
    return ops.concat([d[:2], ops.transpose(d[2:].T)], axis=0).reshape((16,))


def by_writes_of_parts(step: Step) -> popsr.Tensor:
    d = step.gradient()
    total = step.zeros("total")
    ops.add_(ops.slice_(total, 0, 2), d[:2])
    ops.add_(ops.slice_(total, 2, 4), d[2:])
    return total


def by_an_accumulator(step: Step) -> popsr.Tensor:
    """Of two micro batches, zeroed at the end of a run."""
    total = step.zeros("total")
    for _ in range(2):
        ops.add_(total, step.gradient())
    return total


def by_an_accumulator_between_runs(step: Step) -> popsr.Tensor:
    """The value that the run before left is a part as well."""
    total = step.zeros("total")
    before = total * 1.0
    ops.add_(total, step.gradient())
    return before


def by_remote_memory(step: Step) -> popsr.Tensor:
    d = step.gradient()
    buffer = popsr.remote_buffer((4, 4), F64, entries=2)
    ops.remote_store(buffer, 1, d)
    return ops.remote_load(buffer, 1)


def by_a_cast(step: Step) -> popsr.Tensor:
    return ops.cast(step.gradient(), popsr.float32)


ROUTES: dict[str, Route] = {name: route for name, route in list(globals().items()) if name.startswith("by_")}


@pytest.mark.parametrize("name", ROUTES)
def test_a_sum_stays_pending(name: str) -> None:
    step = Step()
    with step.ir.main_graph, popsr.in_sequence():
        t = ROUTES[name](step)
        whole = collectives.replicated_all_reduce(t)
        half = collectives.replicated_all_reduce(t, group=step.ir.replica_grouping(group_size=2))
    facts = popsr.analysis.analyze(step.ir)
    assert str(facts.pending(t)) == ALL
    assert str(facts.pending(half)) == ALL
    assert facts.pending(whole) is None


@pytest.mark.parametrize("name", ROUTES)
def test_updates_by_a_pending_sum_have_a_lint(name: str) -> None:
    for reduced in (False, True):
        step = Step()
        with step.ir.main_graph, popsr.in_sequence():
            t = ROUTES[name](step)
            t = collectives.replicated_all_reduce(t) if reduced else t
            ops.scaled_add_(step.w, ops.cast(t, F64).reshape((4, 4)), b=-0.1)
        found = [
            lint.code for lint in popsr.analysis.analyze(step.ir).warnings if lint.code in ("L10", "L11")
        ]
        assert found == ([] if reduced else ["L11"])


def test_values_at_times() -> None:
    """An accumulator is not a gradient before the first one is added, and whole once it is reduced in place."""
    step = Step()
    with step.ir.main_graph, popsr.in_sequence():
        total = step.zeros("total")
        ops.add_(total, step.gradient())
        add = step.ir.main_graph.ops[-1]
        collectives.replicated_all_reduce_(total)
        reduce = step.ir.main_graph.ops[-1]
        var_updates.accumulator_zero_(total)
    facts = popsr.analysis.analyze(step.ir)
    assert facts.pending(total, before=add) is None
    assert str(facts.pending(total, after=add)) == ALL
    assert str(facts.pending(total, before=reduce)) == ALL
    assert facts.pending(total, after=reduce) is None
    assert facts.pending(total) is None
    time = step.ir.main_graph.ops.index(add)
    assert str(facts.pending(total, time=time)) == ALL
    with pytest.raises(ValueError, match="more than one time"):
        facts.pending(total, before=add, time=time)


def contexts_of_a_gradient_graph(drifts: bool) -> tuple[popsr.Ir, popsr.Graph, list[Op]]:
    """The gradient of ``w``, for samples that differ everywhere, and for ones that are equal in pairs."""
    step = Step()
    with step.ir.main_graph, popsr.in_sequence():
        mode = step.ir.replica_grouping(group_size=2)
        y = ops.host_load(popsr.h2d_stream((3, 4), F64, "y", replicated_stream_mode=mode))
        calls = []
        for x in (step.x, y):
            call = ops.call_with_info(step.graph, x, step.w)
            one = popsr.constant(1.0, F64)
            (d,) = ops.call(step.backward.graph, one, inputs_dict=step.backward.inputs_dict(call))
            calls.append(step.ir.main_graph.ops[-1])
        if drifts:
            ops.scaled_add_(step.w, d, b=-0.1)
    return step.ir, step.backward.graph, calls


@pytest.mark.parametrize("drifts", [False, True])
def test_contexts(drifts: bool) -> None:
    """Equal samples have equal gradients, each of them counted once: their sum is pending over the pairs."""
    ir, graph, calls = contexts_of_a_gradient_graph(drifts)
    d = graph.outputs[0]
    facts = popsr.analysis.analyze(ir)
    found = {str(facts.pending(d, context=[call])) for call in calls}
    assert found == {ALL}
    assert {str(facts.pending(d, context=each)) for each in facts.contexts(graph)} == {ALL}
    assert str(facts.pending(d)) == ALL


def test_a_gradient_of_values_of_other_programs_is_refused() -> None:
    facts = popsr.analysis.analyze(Step().ir)
    with pytest.raises(popsr.errors.GraphError, match="another Ir"):
        facts.pending(Step().w)


def test_what_is_not_a_gradient_has_none_pending() -> None:
    step = Step()
    facts = popsr.analysis.analyze(step.ir)
    assert facts.pending(step.x) is None
    assert facts.pending(step.w) is None


def test_mode_popart_has_no_pending_sums() -> None:
    assert not hasattr(popsr.analysis.analyze(Step().ir, mode="popart"), "pending")


def test_a_branch_or_an_iteration_that_differs_has_no_known_share() -> None:
    """One branch sums over replicas and the other does not: nothing is claimed."""
    step = Step()
    with step.ir.main_graph, popsr.in_sequence():
        d = step.gradient()
        sums = step.ir.create_graph(lambda d: collectives.replicated_all_reduce(d), d)
        keeps = step.ir.create_graph(lambda d: d * 1.0, d)
        t = ops.conditional(popsr.constant(True, popsr.bool), sums, keeps, [d], [d])[0]
    assert popsr.analysis.analyze(step.ir).pending(t) is None


def test_pictures_and_explanations_show_pending_sums() -> None:
    step = Step()
    with step.ir.main_graph, popsr.in_sequence():
        d = step.gradient()
        ops.scaled_add_(step.w, d, b=-0.1)
    facts = popsr.analysis.analyze(step.ir)
    assert "a part of the sum over {0,1,2,3}" in str(facts.explain(d, 0, 1))
    assert "a part of the sum over {0,1,2,3}" in facts.explain(step.w, 0, 1).to_html()
    assert "pending all" in step.ir.main_graph._repr_html_()
