"""Collectives of popxl_addons: flat shapes, gradients, what replicas agree on; layer norm over replicas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import addons, errors, ops, transforms
from popsr.addons.ops import replicated_all_reduce_TP as tp
from popsr.addons.ops import replicated_strided_collectives as strided
from popsr.addons.ops.layer_norm_distributed import layer_norm_distributed
from tests_py.addons.gradients import GROUPS, assert_derivative, members_of, run
from tests_py.support.helpers import Array, Streams, assert_refused, assert_same_bits, np_dtype
from tests_py.support.unchecked import unchecked

Reduce = Callable[..., popsr.Tensor]

IDENTICAL_INPUTS: dict[str, Reduce] = {
    "tp": tp.replicated_all_reduce_identical_inputs,
    "strided": strided.replicated_all_reduce_strided_identical_inputs,
}
IDENTICAL_GRADS: dict[str, Reduce] = {
    "tp": tp.replicated_all_reduce_identical_grad_inputs,
    "strided": strided.replicated_all_reduce_strided_identical_grad_inputs,
}
BOTH: dict[str, Reduce] = {"tp": tp.replicated_all_reduce, "strided": strided.replicated_all_reduce_strided}


def integers(rng: np.random.Generator, *shape: int, name: str = "float64") -> Array:
    """Small multiples of 8: sums and means of 8 are exact."""
    return (8 * rng.integers(-8, 9, shape)).astype(np_dtype(name))


def reduced(x: Array, group: popsr.ReplicaGrouping, op: str) -> Array:
    result = np.empty_like(x)
    for members in members_of(group):
        total = x[members].sum(0)
        result[members] = total / x.dtype.type(len(members)) if op == "mean" else total
    return result


def ops_of(kind: str) -> list[str]:
    return ["add"] if kind == "tp" else ["add", "mean"]


CASES = [(kind, op, group) for kind in ("tp", "strided") for op in ops_of(kind) for group in GROUPS]


@pytest.mark.parametrize(("kind", "op", "name"), CASES)
def test_all_reduce(kind: str, op: str, name: str) -> None:
    """Forward all-reduce; the gradient is all-reduced, or is the result's gradient times the share of a mean."""
    rng = np.random.default_rng(0)
    x, seed = integers(rng, 8, 3), integers(rng, 8, 3)
    ir = popsr.Ir(replication=8)
    group = GROUPS[name](ir)
    both = run(ir, lambda t: BOTH[kind](t, op, group), [x], seeds=[seed])
    assert_same_bits(both.values[0], reduced(x, group, op))
    assert_same_bits(both.gradients[0], reduced(seed, group, op))
    assert both.partitions[0].blocks == group.partition.blocks
    ir = popsr.Ir(replication=8)
    group = GROUPS[name](ir)
    shared = run(ir, lambda t: IDENTICAL_GRADS[kind](t, op, group), [x], seeds=[seed])
    assert_same_bits(shared.values[0], reduced(x, group, op))
    assert_same_bits(shared.gradients[0], seed / (group.group_size if op == "mean" else 1))
    assert shared.partitions[0].blocks == group.partition.blocks


@pytest.mark.parametrize(("kind", "op", "name"), CASES)
def test_identity_with_a_reduced_gradient(kind: str, op: str, name: str) -> None:
    """Forward the very bits, of special values too; backward an all-reduce."""
    rng = np.random.default_rng(0)
    seed = integers(rng, 8, 6)
    x = np.array([-0.0, 0.0, np.inf, -np.inf, np.nan, 1e-310]) * np.ones((8, 1))
    ir = popsr.Ir(replication=8)
    group = GROUPS[name](ir)
    outcome = run(ir, lambda t: IDENTICAL_INPUTS[kind](t, op, group), [x], seeds=[seed])
    assert_same_bits(outcome.values[0], x)
    finite = np.isfinite(x) if op == "mean" else np.ones_like(x, bool)
    assert_same_bits(outcome.gradients[0][finite], reduced(seed, group, op)[finite])


@pytest.mark.parametrize("name", ["pairs", "transpose"])
@pytest.mark.parametrize("op", ["add", "mean"])
def test_all_reduces_have_their_derivative(op: str, name: str) -> None:
    rng = np.random.default_rng(0)
    x, seed, step = rng.standard_normal((3, 8, 4))

    def made(function: Reduce) -> Callable[[], tuple[popsr.Ir, Callable[..., Any]]]:
        def make() -> tuple[popsr.Ir, Callable[..., Any]]:
            ir = popsr.Ir(replication=8)
            group = GROUPS[name](ir)
            return ir, lambda t: function(t, op, group)

        return make

    assert_derivative(made(BOTH["strided"]), [x], seeds=[seed], steps=[step])
    group = GROUPS[name](popsr.Ir(replication=8))
    equal, together = reduced(seed, group, "mean"), reduced(step, group, "mean")
    size = group.group_size
    assert_derivative(
        made(IDENTICAL_GRADS["strided"]), [x], seeds=[equal], steps=[step], outputs_shared_by=size
    )
    if op == "add":  # a value that all members share, and that is used on each in its own way
        x = reduced(x, group, "mean")
        assert_derivative(
            made(IDENTICAL_INPUTS["strided"]), [x], seeds=[seed], steps=[together], inputs_shared_by=size
        )


def test_means_of_narrow_floats_are_rounded_once() -> None:
    x = np.array([[60000, 1], [60000, 2], [2**-24, 4], [60000, 3]], np.float16)
    (mean,) = run(popsr.Ir(replication=4), lambda t: BOTH["strided"](t, "mean"), [x]).values
    expect = (x.astype(np.float32).sum(0) / np.float32(4)).astype(np.float16)
    for r in range(4):
        assert_same_bits(mean[r], expect)


@pytest.mark.parametrize("name", GROUPS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "int32"])
@pytest.mark.parametrize("shape", [(2, 3), (5,), ()])
def test_gather_and_scatter_are_flat(shape: tuple[int, ...], dtype: str, name: str) -> None:
    rng = np.random.default_rng(0)
    x = integers(rng, 8, *shape, name=dtype)
    ir = popsr.Ir(replication=8)
    group = GROUPS[name](ir)
    n = int(np.prod(shape))
    chunk = -(-n // group.group_size)

    def function(t: popsr.Tensor) -> tuple[popsr.Tensor, ...]:
        shard = strided.replicated_reduce_scatter_strided(t, "add", group)
        configured = strided.replicated_reduce_scatter_strided(t, "mean", group, True) if n else t
        assert (shard.shape, shard.meta_shape) == ((chunk,), ())
        assert configured.meta_shape == shape
        again = strided.replicated_all_gather_strided(configured, group)
        assert (again.shape, again.meta_shape) == (shape, ())
        return strided.replicated_all_gather_strided(t, group), shard, again

    if shape == ():  # a shard of a scalar has no meta shape that says so
        with ir.main_graph:
            gathered = strided.replicated_all_gather_strided(popsr.constant(1.0), group)
        assert gathered.shape == (group.group_size,)
        return
    outcome = run(ir, function, [x])
    gathered_, shard, again = outcome.values
    mean = reduced(x, group, "mean" if dtype != "int32" else "add")
    for members in members_of(group):
        whole = np.concatenate([x[r].reshape(-1) for r in members])
        total = np.zeros(chunk * len(members), x.dtype)
        total[:n] = x[members].sum(0).reshape(-1)
        for rank, r in enumerate(members):
            assert_same_bits(gathered_[r], whole)
            assert_same_bits(shard[r], total[rank * chunk : (rank + 1) * chunk])
            if dtype != "int32":
                assert_same_bits(again[r], mean[r])
    assert outcome.partitions[0].blocks == group.partition.blocks
    assert outcome.partitions[2].blocks == group.partition.blocks


def test_ranks_with_a_stride() -> None:
    """Replica r has rank (r % (stride * size)) // stride."""
    ir = popsr.Ir(replication=8)
    group = ir.replica_grouping(2, 2)
    x = np.arange(16.0).reshape(8, 2)
    (shard,) = run(ir, lambda t: strided.replicated_reduce_scatter_strided(t, "add", group), [x]).values
    totals = reduced(x, group, "add")
    assert [float(shard[r, 0]) for r in range(8)] == [totals[r, (r % 4) // 2] for r in range(8)]


@pytest.mark.parametrize("name", ["pairs", "transpose", "all"])
def test_gradient_of_a_gather_is_the_own_part(name: str) -> None:
    rng = np.random.default_rng(0)
    ir = popsr.Ir(replication=8)
    group = GROUPS[name](ir)
    x = integers(rng, 8, 2, 2)
    seed = reduced(integers(rng, 8, 4 * group.group_size), group, "add")  # equal on members
    outcome = run(ir, lambda t: strided.replicated_all_gather_strided(t, group), [x], seeds=[seed])
    for members in members_of(group):
        for rank, r in enumerate(members):
            assert_same_bits(outcome.gradients[0][r], seed[r, 4 * rank : 4 * rank + 4].reshape(2, 2))


@pytest.mark.parametrize("use_io_tiles", [False, True])
@pytest.mark.parametrize("op", ["add", "mean"])
def test_a_graph_that_reduces_a_tree(op: str, use_io_tiles: bool) -> None:
    """An argument and an output for each tensor, in the order of sorted keys; the group is the group, the op the op."""
    rng = np.random.default_rng(0)
    data = {"b": integers(rng, 8, 2), "a": integers(rng, 8, 3, name="float32"), "c.10": integers(rng, 8, 1)}
    ir = popsr.Ir(replication=8)
    group = ir.replica_grouping(2, 2).transpose()
    io = Streams()
    with ir.main_graph, popsr.in_sequence():
        tree = addons.NamedTensors.from_dict(
            {key: io.feed(array, replicated=True) for key, array in data.items()}
        )
        graph, names = strided.replicated_all_reduce_strided_graph(tree, unchecked(op), group, use_io_tiles)
        assert names == ["a", "b", "c.10"]
        assert [t.shape for t in graph.graph.inputs] == [(3,), (2,), (1,)]
        assert sorted(graph.args.keys_flat()) == names
        results = graph.bind(tree).call()
        for t in results:
            io.fetch(t)
    facts = popsr.analysis.analyze(ir)
    with popsr.Session(ir, check=True) as session:
        outputs = io.run(session)
    for name, t, got in zip(names, results, outputs, strict=True):
        assert_same_bits(got, reduced(data[name], group, op))
        assert facts.partition(t).blocks == group.partition.blocks
    kinds = [each.kind for each in graph.graph.ops]
    assert ("io_tile_copy" in kinds) is use_io_tiles


def test_scatters_have_no_gradient() -> None:
    ir = popsr.Ir(replication=2)
    graph = ir.create_graph(strided.replicated_reduce_scatter_strided, popsr.TensorSpec((4,), popsr.float32))
    with pytest.raises(errors.GraphError, match="autodiff: replicated_reduce_scatter"):
        transforms.autodiff(graph)


# Layer norm over replicas


def layer_norm(x: Array, w: Array, b: Array, eps: float) -> Array:
    wide = x.astype(np.float64)
    centred = wide - wide.mean(-1, keepdims=True)
    variance = (centred**2).mean(-1, keepdims=True)
    return np.asarray(centred / np.sqrt(variance + eps) * w.astype(np.float64) + b.astype(np.float64))


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", GROUPS)
def test_layer_norm_over_replicas(name: str, dtype: str) -> None:
    """The result is the whole axis's; narrow operands are rounded once."""
    rng = np.random.default_rng(0)
    ir = popsr.Ir(replication=8)
    group = GROUPS[name](ir)
    x = (10 + rng.standard_normal((8, 2, 4, 3))).astype(np_dtype(dtype))
    w, b = rng.standard_normal((2, 8, 3)).astype(np_dtype(dtype))
    (y,) = run(ir, lambda x, w, b: layer_norm_distributed(x, w, b, 1e-3, group), [x, w, b]).values
    assert y.dtype == x.dtype
    rtol = {"float64": 1e-12, "float32": 1e-5, "float16": 2**-11, "bfloat16": 2**-8}[dtype] * 1.02
    for members in members_of(group):
        parts = [np.concatenate([each[r] for r in members], -1) for each in (x, w, b)]
        whole = unchecked(layer_norm)(*unchecked(parts), 1e-3)
        for r, part in zip(members, np.split(whole, len(members), -1), strict=True):
            np.testing.assert_allclose(y[r].astype(np.float64), part, rtol=rtol, atol=2e-6)


@pytest.mark.parametrize("name", GROUPS)
def test_gradients_of_layer_norm_over_replicas(name: str) -> None:
    rng = np.random.default_rng(0)
    shapes = [(8, 4, 3), (8, 3), (8, 3)]

    def make() -> tuple[popsr.Ir, Callable[..., Any]]:
        ir = popsr.Ir(replication=8)
        group = GROUPS[name](ir)
        return ir, lambda x, w, b: layer_norm_distributed(x, w, b, 1e-3, group)

    inputs = [rng.standard_normal(shape) for shape in shapes]
    steps = [rng.standard_normal(shape) for shape in shapes]
    assert_derivative(make, inputs, seeds=[rng.standard_normal(shapes[0])], steps=steps)


def test_a_layer_norm_of_one_replica_is_that_of_popsr() -> None:
    rng = np.random.default_rng(0)
    x, w, b = rng.standard_normal((1, 4, 5)), rng.standard_normal((1, 5)), rng.standard_normal((1, 5))
    seed = rng.standard_normal((1, 4, 5))
    ours = run(popsr.Ir(), layer_norm_distributed, [x, w, b], seeds=[seed])
    theirs = run(popsr.Ir(), ops.layer_norm, [x, w, b], seeds=[seed])
    for got, expect in zip(ours.values + ours.gradients, theirs.values + theirs.gradients, strict=True):
        np.testing.assert_allclose(got, expect, rtol=1e-10, atol=1e-12)


# Refused

T = popsr.Tensor
VECTOR = ((3,), popsr.float32)


def vector(n: int = 3, dtype: Any = popsr.float32) -> T:
    return popsr.graph_input((n,), dtype)


REFUSED: dict[str, tuple[type[Exception], str, Callable[[T], Any]]] = {
    "max": (
        errors.AttributeValueError,
        "replicated_all_reduce_strided: unknown op, got 'max', expected one of 'add', 'mean'",
        lambda t: strided.replicated_all_reduce_strided(t, "max"),
    ),
    "max, scattered": (
        errors.AttributeValueError,
        "replicated_reduce_scatter_strided: unknown op, got 'max'",
        lambda t: strided.replicated_reduce_scatter_strided(t, "max"),
    ),
    "mean, tensor parallel": (
        errors.AttributeValueError,
        "replicated_all_reduce: unknown op, got 'mean', expected one of 'add'",
        lambda t: tp.replicated_all_reduce(t, "mean"),
    ),
    "mean of inputs, tensor parallel": (
        errors.AttributeValueError,
        "replicated_all_reduce_identical_inputs",
        lambda t: tp.replicated_all_reduce_identical_inputs(t, "mean"),
    ),
    "mean of integers": (
        errors.DTypeError,
        "replicated_all_reduce_strided: t is not of floats, got int32",
        lambda t: strided.replicated_all_reduce_strided(vector(3, popsr.int32), "mean"),
    ),
    "group": (
        errors.ReplicaError,
        "replicated_all_gather_strided: grouping of another replica count, got 2, expected 1",
        lambda t: strided.replicated_all_gather_strided(t, popsr.Ir(2).replica_grouping()),
    ),
    "no tensor": (
        errors.ArgumentTypeError,
        "replicated_all_gather_strided: t is not a Tensor, got float 1.5",
        lambda t: strided.replicated_all_gather_strided(1.5),  # type: ignore[arg-type]
    ),
    "graph, max": (
        errors.AttributeValueError,
        "replicated_all_reduce_strided_graph: unknown op, got 'max'",
        lambda t: strided.replicated_all_reduce_strided_graph(addons.NamedTensors(t=t), "max"),
    ),
    "graph, op and group swapped": (
        errors.AttributeValueError,
        "replicated_all_reduce_strided_graph: unknown op, got ReplicaGrouping",
        lambda t: strided.replicated_all_reduce_strided_graph(
            addons.NamedTensors(t=t),
            popsr.gir().replica_grouping(),  # type: ignore[arg-type]
            "add",  # type: ignore[arg-type]
        ),
    ),
    "graph, mean of integers": (
        errors.DTypeError,
        "replicated_all_reduce_strided_graph: i is not of floats, got int32",
        lambda t: strided.replicated_all_reduce_strided_graph(
            addons.NamedTensors(i=vector(3, popsr.int32)), "mean"
        ),
    ),
    "graph, no tree": (
        errors.ArgumentTypeError,
        "replicated_all_reduce_strided_graph: tensors is not a NamedTensors or NamedVariableFactories, got",
        lambda t: strided.replicated_all_reduce_strided_graph([t]),  # type: ignore[arg-type]
    ),
    "weight": (
        errors.ShapeError,
        r"layer_norm_distributed: w has another shape, got \(4,\), expected \(3,\)",
        lambda t: layer_norm_distributed(t, vector(4), t),
    ),
    "offset": (
        errors.ShapeError,
        r"layer_norm_distributed: b has another shape, got \(1,\), expected \(3,\)",
        lambda t: layer_norm_distributed(t, t, vector(1)),
    ),
    "scalar": (
        errors.AttributeValueError,
        "layer_norm_distributed: t: axis is out of range, got -1",
        lambda t: layer_norm_distributed(popsr.graph_input((), popsr.float32), t, t),
    ),
    "integers": (
        errors.DTypeError,
        "layer_norm_distributed: t is not of floats, got int32",
        lambda t: layer_norm_distributed(vector(3, popsr.int32), t, t),
    ),
}


@pytest.mark.parametrize("row", REFUSED)
def test_refused(row: str) -> None:
    error, match, build = REFUSED[row]
    assert_refused(lambda: build(popsr.graph_input(*VECTOR)), error, match)
