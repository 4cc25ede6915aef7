"""Pipelines mean their steps one after the other: values, facts, order, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import addons, errors, ops
from popsr._program.streams import StreamMode
from popsr.addons.transforms.pipelining import (
    PipelineBoundGraph,
    Pipelining,
    Restore,
    StageContext,
    Stash,
    get_op_pipeline_stage,
    pipelined_execution,
)
from popsr.addons.transforms.repeat_graph import repeat_graph
from tests_py.support.helpers import Array, Streams, assert_same_bits, make_variable

STEPS, RUNS, RATE = 6, 3, 0.1
RNG = np.random.default_rng(7)
X = RNG.standard_normal((STEPS, 8, 4)).astype(np.float32)
TARGETS = RNG.standard_normal((STEPS, 8, 2)).astype(np.float32)
WEIGHTS = [RNG.standard_normal(shape).astype(np.float32) for shape in ((4, 3), (3, 2))]


class Layer(addons.Module):
    """``tanh(x @ w)``."""

    def __init__(self, weights: Array) -> None:
        super().__init__()
        self.weights = weights

    def build(self, x: popsr.Tensor) -> popsr.Tensor:
        return ops.tanh(x @ self.add_variable_input("w", lambda: self.weights, popsr.float32))


class NoStages:
    """Stand-in for the pipeline of a program without one."""

    @contextmanager
    def stage(self, i: int) -> Iterator[None]:
        yield

    def stash_and_restore_activations(self, call: Any, info: Any) -> dict[popsr.Tensor, popsr.Tensor]:
        return dict(info.inputs_dict(call))


class Trainer:
    """Two layers, a squared error, and gradients accumulated over steps, with weights updated once a run."""

    def __init__(self, replication: int) -> None:
        self.ir = popsr.Ir(replication=replication)
        self.ir.num_host_transfers = STEPS
        mode: StreamMode = "broadcast" if replication > 1 else "replicate"
        with self.ir.main_graph:
            self.streams = [
                popsr.h2d_stream(a.shape[1:], popsr.float32, "in", replicated_stream_mode=mode)
                for a in (X, TARGETS)
            ]
            self.losses = popsr.d2h_stream((), popsr.float32, "loss")
            made = [self.layer(i) for i in range(2)]
        self.forward, self.backward, self.state, self.accum = zip(*made, strict=True)

    def layer(self, i: int) -> tuple[Any, ...]:
        spec = popsr.TensorSpec((8, WEIGHTS[i].shape[0]), popsr.float32)
        factories, graph = Layer(WEIGHTS[i]).create_graph(spec)
        inputs = [graph.graph.inputs[0]] if i else []
        of_gradient, gradient = addons.autodiff_with_accumulation(
            graph, graph.args.tensors, [graph.graph.outputs[0]], inputs
        )
        return graph, gradient, factories.init(f"layer{i}"), of_gradient.init(f"gradient{i}")

    def step(self, pipeline: Any) -> None:
        """One micro batch."""
        with pipeline.stage(0):
            first = self.forward[0].bind(self.state[0]).call_with_info(ops.host_load(self.streams[0]))
        with pipeline.stage(1):
            labels = ops.host_load(self.streams[1])
            second = self.forward[1].bind(self.state[1]).call_with_info(first.outputs[0])
            error = second.outputs[0] - labels
            ops.host_store(self.losses, ops.sum(error * error))
            (gradient,) = self.differentiate(pipeline, 1, second, error * 2.0)
        with pipeline.stage(2):
            self.differentiate(pipeline, 0, first, gradient)

    def differentiate(
        self, pipeline: Any, i: int, call: Any, gradient: popsr.Tensor
    ) -> tuple[popsr.Tensor, ...]:
        activations = pipeline.stash_and_restore_activations(call, self.backward[i].grad_graph_info)
        return self.backward[i].bind(self.accum[i]).call(gradient, args=activations)

    def update(self) -> None:
        for variables, accumulators in zip(self.state, self.accum, strict=True):
            ops.collectives.replicated_all_reduce_(accumulators.accum.w, "mean")
            ops.scaled_add_(variables.w, accumulators.accum.w, b=-RATE)
            ops.var_updates.accumulator_zero_(accumulators.mean_accum_counter)

    def run(self, **options: Any) -> list[Array]:
        """Losses of each run, then the weights."""
        inputs = dict(zip(self.streams, (X, TARGETS), strict=True))
        with popsr.Session(self.ir, **options) as session:
            losses = [session.run(inputs)[self.losses] for _ in range(RUNS)]
        return losses + [session.get_tensor_data(variables.w) for variables in self.state]


def train(pipelined: bool, replication: int, **options: Any) -> list[Array]:
    trainer = Trainer(replication)
    with trainer.ir.main_graph, popsr.in_sequence():
        if pipelined:
            with pipelined_execution(STEPS) as pipeline:
                trainer.step(pipeline)
        else:
            for _ in range(STEPS):
                trainer.step(NoStages())
        trainer.update()
    kinds = [op.kind for op in trainer.ir.main_graph.ops]
    assert kinds.count("repeat") == pipelined
    assert kinds.count("call") == (0 if pipelined else 4 * STEPS)
    return trainer.run(**options)


@pytest.mark.parametrize("options", [{}, {"check": True}, {"dedup": False}], ids=str)
@pytest.mark.parametrize("replication", [1, 3])
def test_training_in_stages_is_training_step_by_step(replication: int, options: dict[str, Any]) -> None:
    for got, expect in zip(train(True, replication, **options), train(False, replication), strict=True):
        assert_same_bits(got, expect)


def test_training_in_stages_matches_numpy() -> None:
    """The same program by hand in float64."""
    weights = [w.astype(np.float64) for w in WEIGHTS]
    losses = np.zeros((RUNS, STEPS))
    for run in range(RUNS):
        gradients = [np.zeros_like(w) for w in weights]
        for step, (x, targets) in enumerate(zip(X, TARGETS, strict=True)):
            hidden = np.tanh(x @ weights[0])
            out = np.tanh(hidden @ weights[1])
            losses[run, step] = ((out - targets) ** 2).sum()
            of_out = 2 * (out - targets) * (1 - out**2)
            of_hidden = of_out @ weights[1].T * (1 - hidden**2)
            gradients[0] += x.T @ of_hidden / STEPS
            gradients[1] += hidden.T @ of_out / STEPS
        weights = [w - RATE * g for w, g in zip(weights, gradients, strict=True)]
    got = train(True, 1)
    np.testing.assert_allclose(np.stack(got[:RUNS]), losses, rtol=1e-5)
    for w, expect in zip(got[RUNS:], weights, strict=True):
        np.testing.assert_allclose(w, expect, rtol=1e-4, atol=1e-6)


# Stages


def test_a_restored_tensor_keeps_the_value_of_its_stage() -> None:
    """Writes of a later stage to the tensor do not reach the copy."""
    ir = popsr.Ir()
    io = Streams()
    with ir.main_graph, popsr.in_sequence(), pipelined_execution(4) as pipeline:
        with pipeline.stage(0):
            t = ops.init((3,), popsr.float32, "t")
            assert pipeline.stash_and_restore_tensor(t) is t
        with pipeline.stage(1):
            kept = pipeline.stash_and_restore_tensor(t)
            ops.add_(t, popsr.constant(np.ones(3, np.float32)))
            io.fetch(kept)
            io.fetch(t)
    ir.num_host_transfers = 4
    with popsr.Session(ir) as session:
        restored, written = io.run(session)
    assert_same_bits(restored, np.zeros((4, 3), np.float32))
    assert_same_bits(written, np.ones((4, 3), np.float32))


def test_variables_are_restored_from_a_stage_that_is_said() -> None:
    ir = popsr.Ir()
    with ir.main_graph, popsr.in_sequence(), pipelined_execution(4) as pipeline:
        w = make_variable(np.ones(3, np.float32))
        with pipeline.stage(1):
            copy = pipeline.stash_and_restore_tensor(w, from_stage=0)
            ops.scaled_add_(w, copy, b=1.0)
    with popsr.Session(ir) as session:
        session.run()
    assert copy is not w
    assert ir.main_graph.ops[0].inputs == (w,)
    assert_same_bits(session.get_tensor_data(w), np.full(3, 2.0**4, np.float32))


def test_stages_are_recorded_by_op() -> None:
    ir = popsr.Ir()
    with ir.main_graph, pipelined_execution(6) as pipeline, pipeline.stage(0):
        a = ops.init((2,), popsr.float32)
        with pipeline.stage(2):
            b = ops.add(a, a)
        c = ops.add(a, a)
    first, second, third = a._graph.ops
    assert pipeline.op_dict == {0: [first, third], 2: [second]}
    assert [get_op_pipeline_stage(op, pipeline.op_dict) for op in (first, second, third)] == [0, 2, 0]
    assert b._graph is c._graph is not ir.main_graph


def test_a_pipeline_inside_a_stage_is_a_loop_in_a_loop() -> None:
    ir = popsr.Ir()
    with ir.main_graph, popsr.in_sequence(), pipelined_execution(2) as outer, outer.stage(0):
        w = make_variable(np.zeros((), np.float32))
        ops.add_(w, popsr.constant(0.25, popsr.float32))
        with pipelined_execution(3) as inner, inner.stage(0):
            ops.add_(w, popsr.constant(1.0, popsr.float32))
    with popsr.Session(ir, check=True) as session:
        session.run()
    assert float(session.get_tensor_data(w)) == 2 * (0.25 + 3)


def test_ops_before_and_after_stay_outside_in_their_order() -> None:
    ir = popsr.Ir()
    io = Streams()
    with ir.main_graph, popsr.in_sequence():
        w = make_variable(np.full(2, 1.0, np.float32))
        ops.scaled_add_(w, w, b=1.0)
        with pipelined_execution(2) as pipeline, pipeline.stage(0):
            ops.scaled_add_(w, w, b=2.0)
        ops.scaled_add_(w, w, b=0.5)
        io.fetch(w)
    assert [op.kind for op in ir.main_graph.ops] == ["scaled_add_", "repeat", "scaled_add_", "host_store"]
    with popsr.Session(ir) as session:
        assert_same_bits(io.run(session)[0], np.full(2, 2 * 3 * 3 * 1.5, np.float32))


def test_an_empty_pipeline_changes_nothing_and_a_body_that_raises_neither() -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        with pipelined_execution(1):
            pass
        with pytest.raises(KeyError, match="mine"):
            in_pipeline(2, raise_after_an_op)
        ops.init((2,), popsr.float32)
    assert [op.kind for op in ir.main_graph.ops] == ["init", "init"]


def test_the_transform_takes_stages_of_devices_by_default() -> None:
    ir = popsr.Ir()
    with ir.main_graph, popsr.in_sequence():
        w = make_variable(np.zeros((), np.float32))
        ops.add_(w, popsr.constant(1.0, popsr.float32))
        with popsr.ipu(1):
            ops.init((2,), popsr.float32)
    with pytest.raises(errors.AttributeValueError, match="too few steps for 2 stages, got 3"):
        Pipelining(ir.main_graph, 3).apply()
    transform = Pipelining(ir.main_graph, 5)
    transform.apply()
    assert transform.repeat_graph().called_graphs == ()
    assert ir.main_graph.called_graphs == (transform.repeat_graph(),)
    with popsr.Session(ir) as session:
        session.run()
    assert float(session.get_tensor_data(w)) == 5.0


def test_only_loads_are_required_for_loads() -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        Streams().feed(np.zeros(2, np.float32))
        ops.init((2,), popsr.float32)
    required = Pipelining(ir.main_graph, 1).required_for_host_load
    assert [required(op) for op in ir.main_graph.ops] == [True, False]


# Buffers


@pytest.mark.parametrize("size", [1, 3])
def test_restore_gives_values_in_the_order_of_stash(size: int) -> None:
    data = np.arange(14, dtype=np.float32).reshape(7, 2)
    ir = popsr.Ir()
    ir.num_host_transfers = len(data)
    io = Streams()
    with ir.main_graph, popsr.in_sequence():
        loaded = io.feed(data, transfers=True)
        factories, stash = Stash().create_graph(loaded, size)
        variables = factories.init("stash")
        of_restore, restore = Restore().create_graph(variables.stash)
        stash.bind(variables).call(loaded)
        (back,) = restore.bind(of_restore.init("restore")).call(variables.stash)
        io.fetch(back)
        repeat_graph(ir.main_graph, len(data))
    assert variables.stash.shape == (size, 2)
    assert back.dtype == popsr.float32
    with popsr.Session(ir) as session:
        assert_same_bits(io.run(session)[0], data)


def test_bound_graphs_grow_by_tensors_of_their_caller() -> None:
    ir = popsr.Ir()
    with ir.main_graph, popsr.in_sequence():
        w = make_variable(np.full(2, 3.0, np.float32), "w")
        v = make_variable(np.full(2, 5.0, np.float32), "v")
        grown = PipelineBoundGraph(ir.create_empty_graph("stage"))
        inner = grown.add_variable_input(w)
        assert grown.add_variable_input(w) is inner
        with grown.graph:
            out = ops.add_(inner, inner)
        grown.add_output_tensor(out, "sum")
        assert grown.original_output_ids == ["sum"]
        assert w in grown
        assert "sum" in grown
        assert inner in grown
        assert v not in grown
        (doubled,) = grown.call()
        grown.reconnect_input(w.id, v)
        assert v in grown
        assert w not in grown
        grown.call()
        with pytest.raises(errors.GraphError, match="there is an output for 'sum'"):
            grown.add_output_tensor(out, "sum")
        with pytest.raises(errors.UnknownNameError, match="no input for that id, got 'w'"):
            grown.reconnect_input("w", v)
    with popsr.Session(ir) as session:
        session.run()
    assert doubled.shape == (2,)
    assert session.get_tensor_data(w)[0] == 6.0
    assert session.get_tensor_data(v)[0] == 10.0


# Refusals


def in_pipeline(steps: Any, body: Callable[[StageContext], Any]) -> None:
    with pipelined_execution(steps) as pipeline:
        body(pipeline)


def raise_after_an_op(pipeline: StageContext) -> None:
    one_op(pipeline, 0)
    raise KeyError("mine")


def one_op(pipeline: StageContext, stage: int | None = None) -> popsr.Tensor:
    if stage is None:
        return ops.init((2,), popsr.float32, "loose")
    with pipeline.stage(stage):
        return ops.init((2,), popsr.float32)


def restore(pipeline: StageContext, made: int | None, stage: int | None, from_stage: Any = None) -> None:
    t = ops.init((2,), popsr.float32) if made is None else one_op(pipeline, made)
    if stage is None:
        pipeline.stash_and_restore_tensor(t, from_stage)
    else:
        with pipeline.stage(stage):
            pipeline.stash_and_restore_tensor(t, from_stage)


def made_output(pipeline: StageContext) -> None:
    popsr.graph_output(one_op(pipeline, 0))


LOOSE = (
    rf"init at {re.escape(__file__)}:\d+ is in no stage, got 'loose', expected `with pipeline.stage\(i\):`"
)


@pytest.mark.parametrize(
    ("steps", "body", "error", "match"),
    [
        (2, one_op, RuntimeError, LOOSE),
        (1, partial(one_op, stage=0), ValueError, "too few steps for 1 stages, got 1, expected 2 or more"),
        (5, partial(one_op, stage=2), ValueError, "too few steps for 3 stages, got 5, expected 6 or more"),
        (0, one_op, ValueError, "steps: got 0, expected an int from 1"),
        (2.0, one_op, TypeError, r"steps is not an int, got 2\.0"),
        (True, one_op, TypeError, "steps is not an int, got True"),
        (2, partial(one_op, stage=-1), ValueError, "stage: i: got -1, expected an int from 0"),
        (4, made_output, errors.GraphError, "is made in the loop, got output 0 of graph"),
        (4, partial(restore, made=0, stage=None), RuntimeError, "no stage is entered"),
        (
            4,
            partial(restore, made=None, stage=1),
            errors.GraphError,
            "is made in no stage, .* expected from_stage",
        ),
        (
            4,
            partial(restore, made=1, stage=0),
            ValueError,
            "is of a later stage, got stage 1, expected at most 0",
        ),
        (4, partial(restore, made=0, stage=1, from_stage=2), ValueError, "got stage 2, expected at most 1"),
        (
            4,
            partial(restore, made=0, stage=1, from_stage="0"),
            TypeError,
            "from_stage is not an int, got '0'",
        ),
    ],
)
def test_wrong_pipelines_are_refused_and_leave_the_program(
    steps: Any, body: Callable[[StageContext], Any], error: type[Exception], match: str
) -> None:
    ir = popsr.Ir()
    with ir.create_empty_graph() as graph:
        with pytest.raises(error, match=match) as caught:
            in_pipeline(steps, body)
        assert "repeat" not in [op.kind for op in graph.ops]
        assert not graph._op_hooks.hooks
    assert isinstance(caught.value, popsr.Error)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (
            lambda p: p.cycle(0, 1),
            NotImplementedError,
            "got cycle of an overlapping schedule, expected apply",
        ),
        (lambda p: p.main_cycle(), NotImplementedError, "got main_cycle of"),
        (lambda p: p.load(0, 1), NotImplementedError, "got load of"),
        (lambda p: p.compute(0, 1), NotImplementedError, "got compute of"),
        (lambda p: p.store(0, 1), NotImplementedError, "got store of"),
        (lambda p: p.copy(), NotImplementedError, "got copy of"),
        (lambda p: p.remap_tensors([], []), NotImplementedError, "got remap_tensors of"),
        (lambda p: p.move_op_into_graph(None, None), NotImplementedError, "got move_op_into_graph of"),
        (
            lambda p: p.move_copied_tensor_out_of_nested_repeat_graph(0, "", None),
            NotImplementedError,
            "got move_copied_tensor_out_of_nested_repeat_graph of",
        ),
        (lambda p: p.build(), RuntimeError, "stages are not known, got build first"),
        (lambda p: p.repeat_graph(), RuntimeError, "no graph of a step"),
        (lambda p: (p.apply(), p.apply()), RuntimeError, "applied already"),
        (lambda p: Pipelining("graph", 2), TypeError, "graph is not a Graph, got 'graph'"),  # type: ignore[arg-type]
        (lambda p: p.apply({0: p.graph.ops[:1]}), RuntimeError, "add at .* is in no stage"),
    ],
)
def test_arguments_that_only_schedule_hardware_are_refused(
    call: Callable[[Pipelining], Any], error: type[Exception], match: str
) -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        t = ops.init((2,), popsr.float32)
        ops.add(t, t)
        transform = Pipelining(ir.main_graph, 2)
        with pytest.raises(error, match=match) as caught:
            call(transform)
    assert isinstance(caught.value, popsr.Error)
    assert "\n" not in str(caught.value)
