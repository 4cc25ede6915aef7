"""Parallel layers of ``popsr.addons``: values, gradients and proofs, beside plain ops on one replica."""

from __future__ import annotations

import math

import numpy as np
import pytest

import popsr
from popsr import ops
from popsr.addons import layers
from tests_py.addons.parallel_cases import CASES, Case
from tests_py.support.helpers import Array, Streams, as_list, dtype

RATE = 0.5
TOLERANCE = 1e-12

# The tensor-parallel group of each replica: sizes 1, 2 and 4, one or two copies; consecutive, of stride two, by hand.
GROUPS = ["0", "01", "00", "0000", "0011", "0101", "0110", "00001111", "01010101"]


class Problem:
    """Whole operands of each data-parallel copy, and whole weights."""

    def __init__(self, case: Case, copies: int) -> None:
        rng = np.random.default_rng(19)
        self.weights = {key: rng.standard_normal(shape) for key, (shape, _) in case.weights.items()}
        self.inputs = []
        for i, shape in enumerate(case.inputs):
            whole = (copies, *shape)
            is_last = case.classes and i == len(case.inputs) - 1
            data = (
                rng.integers(0, case.classes, whole).astype(np.int32)
                if is_last
                else rng.standard_normal(whole)
            )
            self.inputs.append(data)
        if len(case.inputs) == 2:
            self.inputs[-1][:, 0, 0] = 3  # the label that some cases ignore
        self.copies = copies

    def seed(self, shape: tuple[int, ...]) -> Array:
        """A gradient of the result of each copy."""
        count = self.copies * math.prod(shape)
        return np.asarray(np.cos(np.arange(count, dtype=np.float64)).reshape((self.copies, *shape)))


def of_plain_ops(case: Case, problem: Problem, copy: int) -> tuple[Array, list[Array], dict[str, Array]]:
    """Result, gradients of operands and of weights on one replica."""
    ir = popsr.Ir()
    io = Streams()
    inputs = [data[copy] for data in problem.inputs]
    with ir.main_graph, popsr.in_sequence():
        tensors = [io.feed(data) for data in inputs]
        weights = {key: io.feed(data) for key, data in problem.weights.items()}

        def build(*args: popsr.Tensor) -> popsr.Tensor:
            return case.plain(list(args[: len(inputs)]), dict(zip(weights, args[len(inputs) :], strict=True)))

        operands = [*tensors, *weights.values()]
        graph = ir.create_graph(build, *operands)
        wanted = [t for t in graph.inputs if t.dtype == popsr.float64]
        info = popsr.transforms.autodiff(graph, grads_provided=graph.outputs, grads_required=wanted)
        call = ops.call_with_info(graph, *operands)
        y = call.outputs[0]
        io.fetch(y)
        gradients = ops.call(
            info.graph, io.feed(problem.seed(y.shape)[copy]), inputs_dict=info.inputs_dict(call)
        )
        for gradient in as_list(gradients):
            io.fetch(gradient)
    with popsr.Session(ir) as session:
        y_data, *found = io.run(session)
    count = len(found) - len(weights)
    return y_data, found[:count], dict(zip(weights, found[count:], strict=True))


class Parallel:
    """One run of the layer, with a step of each variable against its mean gradient."""

    def __init__(self, case: Case, problem: Problem, assignment: list[int]) -> None:
        self.case = case
        self.ir = ir = popsr.Ir(replication=len(assignment))
        self.group = popsr.ReplicaGrouping.from_assignment(assignment)
        self.rank = self.group.transpose().assignment
        io = Streams()
        with ir.main_graph, popsr.in_sequence():
            gradients = self._call(io, problem)
            for key, gradient in zip(self.keys, gradients, strict=True):
                io.fetch(gradient)
                if key is not None:
                    v = self.variables[key]
                    over = v.replica_grouping if assignment == [0, 1, 1, 0] else self.group.transpose()
                    mean = ops.collectives.replicated_all_reduce(gradient, "mean", over)
                    ops.scaled_add_(v, mean, b=-RATE)
        self.facts = popsr.analysis.analyze(ir)
        with popsr.Session(ir, check=True) as session:
            self.before = {key: session.get_tensor_data(v).copy() for key, v in self.variables.items()}
            results = [each if ir.replication_factor > 1 else each[None] for each in io.run(session)]
            self.after = {key: session.get_tensor_data(v) for key, v in self.variables.items()}
        self.results, self.gradients = results[0], results[1:]

    def _call(self, io: Streams, problem: Problem) -> tuple[popsr.Tensor, ...]:
        """Call the layer, and its gradient graph: gradients of operands, then of variables."""
        case = self.case
        axes = [case.input_axis, *[None] * (len(problem.inputs) - 1)]
        tensors = [self.feed(io, data, axis) for data, axis in zip(problem.inputs, axes, strict=True)]
        factories, graph = case.layer(self.group, problem.weights).create_graph(*tensors)
        names = {t: key for key, t in graph.args.to_dict().items()}
        wanted = [t for t in graph.graph.inputs if t.dtype == popsr.float64]
        self.keys = [names.get(t) for t in wanted]
        info = graph.autodiff(grads_provided=graph.graph.outputs, grads_required=wanted)
        variables = factories.init()
        self.variables = variables.to_dict()
        call = graph.bind(variables).call_with_info(*tensors)
        self.y = call.outputs[0]
        io.fetch(self.y)
        whole = list(self.y.shape)
        if case.output_axis is not None:
            whole[case.output_axis] *= self.group.group_size
        seed = self.feed(io, problem.seed(tuple(whole)), case.output_axis)
        return info.call(seed, args=info.grad_graph_info.inputs_dict(call))

    def feed(self, io: Streams, data: Array, axis: int | None) -> popsr.Tensor:
        """Whole data of each copy: equal on its group, or cut for its replicas."""
        group = self.group
        if axis is None:
            shape = data.shape[1:]
            stream = popsr.h2d_stream(shape, dtype(data.dtype.name), "in", replicated_stream_mode=group)
            io.inputs[stream] = data if group.num_groups > 1 else data[0]
            return ops.host_load(stream)
        parts = [
            np.split(data[copy], group.group_size, axis)[rank]
            for copy, rank in zip(group.assignment, self.rank, strict=True)
        ]
        return io.feed(np.stack(parts) if len(parts) > 1 else parts[0], replicated=True)

    def whole(self, rows: Array, copy: int, axis: int | None) -> Array:
        """The value of a copy, of its parts; equal values are compared."""
        mine = [rows[r] for r, each in enumerate(self.group.assignment) if each == copy]
        if axis is not None:
            return np.concatenate(mine, axis)
        assert all(np.array_equal(mine[0], each) for each in mine)
        return mine[0]

    def weight(self, data: Array, key: str) -> Array:
        """Host data of a variable, its parts put together."""
        axis = self.case.weights[key][1]
        if axis is None or self.group.group_size == 1:
            return data
        return np.concatenate(list(data), axis)


def near(got: Array, expect: Array) -> None:
    np.testing.assert_allclose(got, expect, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("groups", GROUPS)
@pytest.mark.parametrize("name", CASES)
def test_equals_plain_ops(name: str, groups: str) -> None:
    """Results, gradients and steps of the parts put together; variables and results are proved as declared."""
    case = CASES[name]
    assignment = [int(digit) for digit in groups]
    copies = max(assignment) + 1
    problem = Problem(case, copies)
    run = Parallel(case, problem, assignment)
    plain = [of_plain_ops(case, problem, copy) for copy in range(copies)]
    for copy, (y, inputs, weights) in enumerate(plain):
        near(run.whole(run.results, copy, case.output_axis), y)
        others = iter(inputs)
        for key, gradient in zip(run.keys, run.gradients, strict=True):
            if key is None:
                near(run.whole(gradient, copy, case.input_axis), next(others))
            else:
                near(run.whole(gradient, copy, case.weights[key][1]), weights[key])
        assert next(others, None) is None
    for key, whole in problem.weights.items():
        assert np.array_equal(run.weight(run.before[key], key), whole)
        mean = np.mean([weights[key] for _, _, weights in plain], 0)
        near(run.weight(run.after[key], key), whole - RATE * mean)
        variable = run.variables[key]
        cut = case.weights[key][1] is not None
        same = run.group.transpose() if cut else run.ir.replica_grouping()
        assert variable.replica_grouping == same
        assert run.facts.partition(variable) == same.partition
    if case.output_axis is None:
        assert run.facts.partition(run.y) == run.group.partition
    # Groups by hand: sums over copies in another order round otherwise, so what all hold is reduced over all, a detour.
    detours = {"L6"} if groups == "0110" else set()
    assert {lint.code for lint in run.facts.warnings} <= detours


# Initial values


@pytest.mark.parametrize("size", [1, 2, 4])
def test_initial_values_are_parts_of_one_whole(size: int) -> None:
    """Drawn whole, in the order of the variables, for any number of parts; a second set is drawn anew."""
    np.random.seed(5)  # noqa: NPY002 - what layers draw from
    first = layers._common.truncated_normal((6, 8))
    second = layers._common.truncated_normal((6, 8))
    ir = popsr.Ir(replication=size)
    x = popsr.TensorSpec((2, 6), popsr.float32)
    np.random.seed(5)  # noqa: NPY002
    with ir.main_graph:
        factories, _ = layers.ColumnParallelLinear(8).create_graph(x)
        made = [factories.init(name) for name in ("a", "b")]
    with popsr.Session(ir) as session:
        for variables, whole in zip(made, (first, second), strict=True):
            data = session.get_tensor_data(variables.weight)
            assert np.array_equal(np.concatenate(list(data), 1) if size > 1 else data, whole)
            assert not session.get_tensor_data(variables.bias).any()


def test_initial_values_by_functions() -> None:
    ir = popsr.Ir(replication=2)
    x = popsr.TensorSpec((2, 3), popsr.float32)
    with ir.main_graph:
        layer = layers.RowParallelLinear(
            2, initial_weight=lambda: np.arange(12.0).reshape(6, 2), initial_bias=lambda: [1.0, 2.0]
        )
        variables = layer.create_graph(x)[0].init()
    with popsr.Session(ir) as session:
        assert session.get_tensor_data(variables.weight).tolist() == np.arange(12).reshape(2, 3, 2).tolist()
        assert session.get_tensor_data(variables.bias).tolist() == [1, 2]


def test_layers_make_the_same_graph_again() -> None:
    """Of an operand of another width, too."""
    layer = layers.ParallelAttention(2, 3)
    with popsr.Ir(replication=2).main_graph:
        for width in (4, 4, 6):
            factories, graph = layer.create_graph(popsr.TensorSpec((1, 2, width), popsr.float32))
            names = [f"{part}.{name}" for part in ("q", "k", "v", "out") for name in ("weight", "bias")]
            assert sorted(factories.keys_flat()) == sorted(names)
            assert factories.out.weight.shape == (3, width)
            assert len(graph.graph.inputs) == 1 + len(names)


# Integers and narrow floats


@pytest.mark.parametrize("name", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
def test_integers_of_each_dtype(name: str) -> None:
    """The first number of a part may be out of the range of a narrow dtype."""
    table = np.arange(400.0).reshape(400, 1)
    numbers = np.array([0, 3, 99, 101, 120], np.int64).astype(name)
    logits = np.cos(np.arange(5 * 400.0)).reshape(5, 400)
    ir = popsr.Ir(replication=4)
    io = Streams()
    with ir.main_graph, popsr.in_sequence():
        indices = io.feed(numbers)
        embedding = layers.ParallelEmbedding(popsr.float64, 400, 1, initial_weight=table)
        factories, graph = embedding.create_graph(indices)
        io.fetch(graph.bind(factories.init()).call(indices)[0])
        x = io.feed(np.stack(np.split(logits, 4, 1)), replicated=True)
        io.fetch(layers.ParallelCrossEntropy(reduction="none").build(x, indices))
    with popsr.Session(ir, strict={"labels"}) as session:
        rows, losses = io.run(session)
    chosen = numbers.astype(np.int64)
    expect = np.log(np.exp(logits).sum(1)) - logits[np.arange(5), chosen]
    for replica in range(4):
        assert rows[replica][:, 0].tolist() == chosen.tolist()
        near(losses[replica], expect)


@pytest.mark.parametrize("store_scores", [True, False])
@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32"])
def test_causal_attention_of_narrow_floats(name: str, store_scores: bool) -> None:
    """Scores that are not seen are minus infinity, which no row has alone."""
    ir = popsr.Ir(replication=2)
    io = Streams()
    x = np.linspace(-4, 4, 2 * 4 * 6).reshape(2, 4, 6)
    with ir.main_graph, popsr.in_sequence():
        t = ops.cast(io.feed(x.astype(np.float32)), dtype(name))
        factories, graph = layers.ParallelAttention(2, 3, store_scores=store_scores).create_graph(t)
        info = graph.autodiff(grads_provided=graph.graph.outputs)
        call = graph.bind(factories.init()).call_with_info(t)
        gradients = info.call(call.outputs[0], args=info.grad_graph_info.inputs_dict(call))
        for each in (call.outputs[0], *gradients):
            assert each.dtype == dtype(name)
            io.fetch(ops.cast(each, popsr.float32))
    with popsr.Session(ir) as session:
        for data in io.run(session):
            assert np.isfinite(data).all()
