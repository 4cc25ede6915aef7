"""Gradients of collectives: derivatives where they are derived, what the docstrings state where they are declared.

The loss is one value, equal on all replicas: the sum over replicas of each one's seeds times its outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import errors, ops, transforms
from popsr.ops import collectives
from tests_py.analysis.test_soundness import random_grouping
from tests_py.support.helpers import Array, Streams, as_list, assert_same_bits


def differentiate(
    ir: popsr.Ir, function: Callable[..., Any], inputs: list[Array], seeds: list[Array]
) -> tuple[Array, list[Array]]:
    """The loss on each replica and the gradients of the inputs, of data with a row a replica."""
    io = Streams()
    n = ir.replication_factor

    def feed(array: Array) -> popsr.Tensor:
        return io.feed(array if n > 1 else array[0], replicated=True)

    with ir.main_graph, popsr.in_sequence():
        tensors = [feed(array) for array in inputs]
        graph = ir.create_graph(function, *tensors)
        info = transforms.autodiff(graph)
        call = ops.call_with_info(graph, *tensors)
        fed = [feed(seed) for seed in seeds]
        terms = [ops.sum(ops.mul(y, s)) for y, s in zip(call.outputs, fed, strict=False)]
        total = terms[0]
        for term in terms[1:]:
            total = ops.add(total, term)
        io.fetch(collectives.replicated_all_reduce(total))
        for gradient in ops.call(info.graph, *fed, inputs_dict=info.inputs_dict(call)):
            io.fetch(gradient)
    with popsr.Session(ir, check=True) as session:
        loss, *gradients = io.run(session)
    return loss.reshape(n), gradients if n > 1 else [gradient[None] for gradient in gradients]


def integers(rng: np.random.Generator, *shape: int) -> Array:
    """Small integers as float64: sums and products are exact."""
    return rng.integers(-8, 9, shape).astype(np.float64)


def _destinations(t: popsr.Tensor, rng: np.random.Generator) -> list[int | None]:
    return [int(to) if rng.random() < 0.7 else None for to in rng.permutation(t.ir.replication_factor)]


LINEAR: dict[str, Callable[[popsr.Tensor, popsr.ReplicaGrouping, np.random.Generator], popsr.Tensor]] = {
    "broadcast": lambda t, group, rng: collectives.replicated_broadcast(
        t, int(rng.integers(group.group_size)), group
    ),
    "all_to_all": lambda t, group, _: collectives.replicated_all_to_all(t, 1, group),
    "scan": lambda t, group, _: collectives.replicated_scan(t, "add", group),
    "permute": lambda t, group, rng: collectives.replicated_permute(t, _destinations(t, rng)),
}


def _applied(
    name: str, group: popsr.ReplicaGrouping, rng: np.random.Generator
) -> Callable[[popsr.Tensor], popsr.Tensor]:
    return lambda t: LINEAR[name](t, group, rng)


@pytest.mark.parametrize("name", LINEAR)
@pytest.mark.parametrize("n", [1, 2, 4, 6, 12])
def test_linear_collectives_have_their_derivative(name: str, n: int) -> None:
    """The difference of the loss between two points is exactly the gradient times the step."""
    rng = np.random.default_rng(n)
    for trial in range(3):
        x, step, seed = (integers(rng, n, 2, 12) for _ in range(3))
        losses, gradients = [], []
        state = np.random.default_rng(trial).bit_generator.state
        for at in (x, x + step):
            ir = popsr.Ir(replication=n)
            again = np.random.default_rng()
            again.bit_generator.state = state
            group = random_grouping(ir, again)
            loss, (gradient,) = differentiate(ir, _applied(name, group, again), [at], [seed])
            assert len(set(loss)) == 1
            losses.append(loss[0])
            gradients.append(gradient)
        assert losses[1] - losses[0] == np.sum(gradients[0] * step)
        assert_same_bits(gradients[0], gradients[1])


def _members(group: popsr.ReplicaGrouping) -> list[list[int]]:
    return [[r for r, g in enumerate(group.assignment) if g == k] for k in range(group.num_groups)]


@pytest.mark.parametrize("n", [1, 2, 4, 6])
@pytest.mark.parametrize("shape", [(12, 2), (5,), (), (0, 3)])
def test_gradient_of_a_sharded_slice_is_gathered(n: int, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(n)
    ir = popsr.Ir(replication=n)
    group = random_grouping(ir, rng)
    elements = int(np.prod(shape))
    chunk = -(-elements // group.group_size)
    x, seed = integers(rng, n, *shape), integers(rng, n, chunk)
    _, (gradient,) = differentiate(ir, lambda t: collectives.replica_sharded_slice(t, group), [x], [seed])
    for members in _members(group):
        whole = np.concatenate([seed[r] for r in members])[:elements].reshape(shape)
        for r in members:
            assert_same_bits(gradient[r], whole)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gradient_of_a_slice_is_gathered(axis: int) -> None:
    rng = np.random.default_rng(0)
    ir = popsr.Ir(replication=4)
    group = ir.replica_grouping(2, 2)
    x = integers(rng, 4, 2, 4)
    seed = integers(rng, 4, *((1, 4) if axis == 0 else (2, 2)))
    _, (gradient,) = differentiate(ir, lambda t: collectives.replicated_slice(t, axis, group), [x], [seed])
    for members in _members(group):
        whole = np.concatenate([seed[r] for r in members], axis)
        for r in members:
            assert_same_bits(gradient[r], whole)


def test_pairs_between_replicas() -> None:
    """Identity forward and all-reduce backward, and the reverse."""
    rng = np.random.default_rng(0)
    x, seed = integers(rng, 4, 3), integers(rng, 4, 3)
    for function, backward in (
        (collectives.replicated_all_reduce_identical_inputs, True),
        (collectives.replicated_all_reduce_identical_grad_inputs, False),
    ):
        ir = popsr.Ir(replication=4)
        group = ir.replica_grouping(1, 2)
        loss, (gradient,) = differentiate(ir, lambda t: function(t, group=group), [x], [seed])  # noqa: B023
        summed = {True: seed, False: x}[backward].reshape(2, 2, 3).sum(1).repeat(2, 0)
        assert_same_bits(gradient, summed if backward else seed)
        assert loss[0] == np.sum(seed * (x if backward else summed))


def test_a_tensor_parallel_layer_has_the_gradients_of_the_whole_layer() -> None:
    """Columns of one weight and rows of the next on each replica: the pair stands at the two ends."""
    rng = np.random.default_rng(0)
    x, seed = integers(rng, 3, 4), integers(rng, 3, 2)
    w, v = integers(rng, 4, 4), integers(rng, 4, 2)

    def layer(x: popsr.Tensor, w: popsr.Tensor, v: popsr.Tensor) -> popsr.Tensor:
        entered = collectives.replicated_all_reduce_identical_inputs(x)
        return collectives.replicated_all_reduce_identical_grad_inputs(
            ops.matmul(ops.relu(ops.matmul(entered, w)), v)
        )

    inputs = [np.stack([x, x]), np.stack([w[:, :2], w[:, 2:]]), np.stack([v[:2], v[2:]])]
    _, (dx, dw, dv) = differentiate(popsr.Ir(replication=2), layer, inputs, [np.stack([seed, seed])])
    hidden = np.maximum(x @ w, 0)
    d_hidden = (seed @ v.T) * (x @ w > 0)
    for r in range(2):
        assert np.array_equal(dx[r], d_hidden @ w.T)
        assert np.array_equal(dw[r], (x.T @ d_hidden)[:, 2 * r : 2 * r + 2])
        assert np.array_equal(dv[r], (hidden.T @ seed)[2 * r : 2 * r + 2])


@pytest.mark.parametrize("count", [1, 2, 3])
def test_reductions_of_tensors_of_one_replica(count: int) -> None:
    rng = np.random.default_rng(0)
    xs = [integers(rng, 1, 3) for _ in range(count)]
    seeds = [integers(rng, 1, 3) for _ in range(count)]
    for function, summed in (
        (collectives.all_reduce, True),
        (collectives.all_reduce_identical_inputs, True),
        (collectives.all_reduce_identical_grad_inputs, False),
    ):
        _, gradients = differentiate(popsr.Ir(), lambda *ts: tuple(function(ts, [0] * count)), xs, seeds)  # noqa: B023
        for gradient, own in zip(gradients, seeds, strict=True):
            assert_same_bits(gradient, sum(seeds[1:], seeds[0]) if summed else own)


def test_only_sums_of_tensors_have_gradients() -> None:
    ir = popsr.Ir()
    spec = popsr.TensorSpec((2,), popsr.float32)
    graph = ir.create_graph(lambda a, b: tuple(collectives.all_reduce([a, b], [0, 1], "max")), spec, spec)
    with pytest.raises(errors.GraphError, match=r"autodiff: all_reduce has no gradient, got .* made at"):
        transforms.autodiff(graph)


def test_results_are_lists_for_each_tensor() -> None:
    with popsr.Ir().main_graph:
        t = ops.init((2,), popsr.float32)
        results = collectives.all_reduce(iter([t, t]))
        assert isinstance(results, list)
        assert len(results) == 2
        assert results[0] is not results[1]
        assert as_list(results) == results
