"""Parallel layers of ``popsr.addons``: values, gradients and proofs, beside plain ops on one replica."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import addons, ops
from popsr.addons import layers
from tests_py.support.helpers import Array, Streams, as_list, dtype

RATE = 0.5
TOLERANCE = 1e-12

Group = popsr.ReplicaGrouping
Tensors = Mapping[str, popsr.Tensor]


@dataclasses.dataclass(frozen=True)
class Case:
    """A parallel layer and the same computation with plain ops."""

    layer: Callable[[Group, Mapping[str, Array]], addons.Module]
    plain: Callable[[list[popsr.Tensor], Tensors], popsr.Tensor]
    inputs: tuple[tuple[int, ...], ...]  # shapes of whole operands
    weights: Mapping[str, tuple[tuple[int, ...], int | None]]  # whole shapes, and where they are cut
    input_axis: int | None = None  # where the first operand is cut
    output_axis: int | None = None  # where the result is cut
    classes: int = 0  # integers of the last operand


def linear(x: popsr.Tensor, weights: Tensors, name: str = "") -> popsr.Tensor:
    y = x @ weights[f"{name}weight"]
    return y + weights[f"{name}bias"] if f"{name}bias" in weights else y


def columns(axis: int | None = None, gather: bool = False, bias: bool = True) -> Case:
    cut: dict[str, Any] = {"weight": ((6, 8), 1), "bias": ((8,), 0)}
    return Case(
        layer=lambda group, w: layers.ColumnParallelLinear(
            8, bias, group, gather, axis, initial_weight=w["weight"], initial_bias=w.get("bias")
        ),
        plain=lambda x, w: linear(x[0], w),
        inputs=((2, 4, 6),),
        weights=cut if bias else {"weight": cut["weight"]},
        input_axis=axis,
        output_axis=None if gather else 2,
    )


def row_split(axis: int | None = None, parallel: bool = True, bias: bool = True) -> Case:
    cut: dict[str, Any] = {"weight": ((8, 6), 0), "bias": ((6,), None)}
    return Case(
        layer=lambda group, w: layers.RowParallelLinear(
            6, bias, group, parallel, axis, initial_weight=w["weight"], initial_bias=w.get("bias")
        ),
        plain=lambda x, w: linear(x[0], w),
        inputs=((4, 4, 8),),
        weights=cut if bias else {"weight": cut["weight"]},
        input_axis=2 if parallel else None,
        output_axis=axis,
    )


def embedding(axis: int | None = None, shape: tuple[int, ...] = (2, 4)) -> Case:
    return Case(
        layer=lambda group, w: layers.ParallelEmbedding(
            popsr.float64, 12, 5, group, axis, initial_weight=w["weight"]
        ),
        plain=lambda x, w: ops.gather(w["weight"], x[0], zero_OOR=True),
        inputs=(shape,),
        weights={"weight": ((12, 5), 0)},
        output_axis=axis,
        classes=14,  # 12 and 13 are outside the table
    )


def cross_entropy(reduction: Any, ignore_index: int | None = None) -> Case:
    return Case(
        layer=lambda group, _: layers.ParallelCrossEntropy(group, reduction, ignore_index),
        plain=lambda x, _: plain_cross_entropy(x[0], x[1], reduction, ignore_index),
        inputs=((2, 3, 8), (2, 3)),
        weights={},
        input_axis=2,
        classes=8,
    )


def plain_cross_entropy(
    x: popsr.Tensor, labels: popsr.Tensor, reduction: Any, ignore_index: int | None
) -> popsr.Tensor:
    """By logarithms of softmax, without ``ops.nll_loss``."""
    flat = ops.flatten(labels)
    one_hot = ops.onehot(flat, popsr.constant(8, popsr.int32), popsr.constant([0.0, 1.0], x.dtype), 1)
    losses = -ops.sum(ops.log(ops.softmax(x.reshape((-1, 8)), 1)) * one_hot, 1)
    kept: popsr.Tensor = popsr.constant(np.ones(flat.shape), x.dtype)
    if ignore_index is not None:
        ignored = ops.equal(flat, popsr.constant(ignore_index, flat.dtype))
        kept = kept - ops.cast(ignored, x.dtype)
    losses = losses * kept
    if reduction == "none":
        return losses.reshape(labels.shape)
    return ops.sum(losses) if reduction == "sum" else ops.sum(losses) / ops.sum(kept)


def attention(causal: bool, axis: int | None = None, bias: bool = True) -> Case:
    cut: dict[str, Any] = {}
    for name, where in (("q", 1), ("k", 1), ("v", 1), ("out", 0)):
        cut[f"{name}.weight"] = ((12, 6) if name == "out" else (6, 12), where)
        if bias:
            cut[f"{name}.bias"] = ((6,), None) if name == "out" else ((12,), 0)
    return Case(
        layer=lambda group, w: layers.ParallelAttention(4, 3, group, causal, axis, bias=bias, initial=w),
        plain=lambda x, w: plain_attention(x[0], w, causal),
        inputs=((2, 4, 6),),
        weights=cut,
        input_axis=axis,
        output_axis=axis,
    )


def plain_attention(x: popsr.Tensor, w: Tensors, causal: bool) -> popsr.Tensor:
    """One head after the other; positions that are not seen get a weight of zero."""
    q, k, v = (linear(x, w, f"{name}.") for name in ("q", "k", "v"))
    heads = []
    for first in range(0, 12, 3):
        part = [t[:, :, first : first + 3] for t in (q, k, v)]
        chances = ops.exp(part[0] @ part[1].transpose((0, 2, 1)) / 3**0.5)
        if causal:
            chances = chances * popsr.constant(np.tri(4), x.dtype)
        heads.append((chances / ops.sum(chances, 2, keepdims=True)) @ part[2])
    return linear(ops.concat(heads, 2), w, "out.")


CASES: dict[str, Case] = {
    "columns": columns(),
    "columns without bias": columns(bias=False),
    "columns gathered": columns(gather=True),
    "columns of a sequence": columns(axis=1),
    "columns of a sequence gathered": columns(axis=-2, gather=True),
    "rows": row_split(),
    "rows without bias": row_split(bias=False),
    "rows of whole features": row_split(parallel=False),
    "rows to a sequence": row_split(axis=1),
    "rows to a first axis": row_split(axis=0),
    "rows of whole features to a sequence": row_split(axis=-2, parallel=False),
    "embedding": embedding(),
    "embedding of a vector": embedding(shape=(5,)),
    "embedding to a sequence": embedding(axis=1),
    "cross entropy": cross_entropy("mean"),
    "cross entropy of a sum": cross_entropy("sum"),
    "cross entropy of each": cross_entropy("none"),
    "cross entropy without a label": cross_entropy("mean", 3),
    "cross entropy without a label of no class": cross_entropy("sum", -100),
    "attention": attention(causal=True),
    "attention to all": attention(causal=False),
    "attention without bias": attention(causal=True, bias=False),
    "attention of a sequence": attention(causal=True, axis=1),
}

# tensor-parallel size, data-parallel size, stride of the tensor-parallel group
GROUPS = [(1, 1, 1), (1, 2, 1), (2, 1, 1), (4, 1, 1), (2, 2, 1), (2, 2, 2), (4, 2, 1), (4, 2, 2)]


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

    def __init__(self, case: Case, problem: Problem, size: int, copies: int, stride: int) -> None:
        self.case = case
        self.ir = ir = popsr.Ir(replication=size * copies)
        self.group = ir.replica_grouping(stride=stride if size > 1 else 1, group_size=size)
        self.rank = self.group.transpose().assignment
        copies_of_a_part = self.group.transpose()
        io = Streams()
        with ir.main_graph, popsr.in_sequence():
            tensors = [
                self.feed(io, data, case.input_axis if i == 0 else None)
                for i, data in enumerate(problem.inputs)
            ]
            layer = case.layer(self.group, problem.weights)
            factories, graph = layer.create_graph(*tensors)
            names = {t: key for key, t in graph.args.to_dict().items()}
            wanted = [t for t in graph.graph.inputs if t.dtype == popsr.float64]
            info = graph.autodiff(grads_provided=graph.graph.outputs, grads_required=wanted)
            self.variables = factories.init().to_dict()
            call = graph.bind(addons.NamedTensors.from_dict(dict(self.variables))).call_with_info(*tensors)
            self.y = call.outputs[0]
            io.fetch(self.y)
            whole = list(self.y.shape)
            if case.output_axis is not None:
                whole[case.output_axis] *= size
            seed = self.feed(io, problem.seed(tuple(whole)), case.output_axis)
            gradients = info.call(seed, args=info.grad_graph_info.inputs_dict(call))
            self.keys = [names.get(t) for t in wanted]
            for key, gradient in zip(self.keys, gradients, strict=True):
                io.fetch(gradient)
                if key is not None:
                    v = self.variables[key]
                    mean = ops.collectives.replicated_all_reduce(gradient, "mean", copies_of_a_part)
                    ops.scaled_add_(v, mean, b=-RATE)
        self.facts = popsr.analysis.analyze(ir)
        with popsr.Session(ir, check=True) as session:
            self.before = {key: session.get_tensor_data(v).copy() for key, v in self.variables.items()}
            results = [each if ir.replication_factor > 1 else each[None] for each in io.run(session)]
            self.after = {key: session.get_tensor_data(v) for key, v in self.variables.items()}
        self.results, self.gradients = results[0], results[1:]

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


@pytest.mark.parametrize(("size", "copies", "stride"), GROUPS)
@pytest.mark.parametrize("name", CASES)
def test_equals_plain_ops(name: str, size: int, copies: int, stride: int) -> None:
    """Results, gradients and steps of the parts put together; variables and results are proved as declared."""
    case = CASES[name]
    problem = Problem(case, copies)
    run = Parallel(case, problem, size, copies, stride)
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
        groups = run.group.transpose() if cut else run.ir.replica_grouping()
        assert variable.replica_grouping == groups
        assert run.facts.partition(variable) == groups.partition
    if case.output_axis is None:
        assert run.facts.partition(run.y) == run.group.partition
    assert not run.facts.warnings


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


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32"])
def test_causal_attention_of_narrow_floats(name: str) -> None:
    """Scores that are not seen are minus infinity, which no row has alone."""
    ir = popsr.Ir(replication=2)
    io = Streams()
    x = np.linspace(-4, 4, 2 * 4 * 6).reshape(2, 4, 6)
    with ir.main_graph, popsr.in_sequence():
        t = ops.cast(io.feed(x.astype(np.float32)), dtype(name))
        factories, graph = layers.ParallelAttention(2, 3, sequence_axis=None).create_graph(t)
        info = graph.autodiff(grads_provided=graph.graph.outputs)
        call = graph.bind(factories.init()).call_with_info(t)
        gradients = info.call(call.outputs[0], args=info.grad_graph_info.inputs_dict(call))
        for each in (call.outputs[0], *gradients):
            assert each.dtype == dtype(name)
            io.fetch(ops.cast(each, popsr.float32))
    with popsr.Session(ir) as session:
        for data in io.run(session):
            assert np.isfinite(data).all()
