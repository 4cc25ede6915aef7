"""Losses of classes that are shared out: values, gradients, what replicas agree on, refused arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import errors
from popsr.addons.ops.cross_entropy_sharded_loss import cross_entropy_sharded_loss
from popsr.addons.ops.cross_entropy_sharded_wr_loss import cross_entropy_sharded_wr_loss, handle_ipus
from tests_py.addons.gradients import GROUPS, assert_derivative, members_of, run
from tests_py.support.helpers import Array, assert_refused, evaluate, np_dtype
from tests_py.support.unchecked import unchecked

SAMPLES, CLASSES = 5, 3  # of a replica


def cross_entropy(logits: Array, labels: Array) -> Array:
    """Of each sample, in float64."""
    wide = logits.astype(np.float64)
    peak = wide.max(-1, keepdims=True)
    total = np.log(np.exp(wide - peak).sum(-1)) + peak[:, 0]
    return np.asarray(total - wide[np.arange(len(labels)), labels])


class Problem:
    """Logits and labels of each group, cut up for its members."""

    def __init__(
        self, group: popsr.ReplicaGrouping, name: str = "float64", *, ignored: int | None = None
    ) -> None:
        rng = np.random.default_rng(group.group_size)
        self.groups = members_of(group)
        n, size = group.num_replicas, group.group_size
        self.logits = [
            (4 * rng.standard_normal((SAMPLES, size * CLASSES))).astype(np_dtype(name)) for _ in self.groups
        ]
        self.labels = [rng.integers(0, size * CLASSES, SAMPLES).astype(np.int32) for _ in self.groups]
        if ignored is not None:
            for labels in self.labels:
                labels[1:3] = ignored
        self.x = np.zeros((n, SAMPLES, CLASSES), np_dtype(name))
        self.shifted = np.zeros((n, SAMPLES), np.int32)
        self.ignore = np.zeros((n,), np.int32)
        for k, members in enumerate(self.groups):
            for rank, r in enumerate(members):
                self.x[r] = self.logits[k][:, rank * CLASSES : (rank + 1) * CLASSES]
                self.shifted[r] = self.labels[k] - rank * CLASSES
                self.ignore[r] = (-1 if ignored is None else ignored) - rank * CLASSES


def expected(problem: Problem, reduction: str, ignored: int | None = None) -> list[Array]:
    results = []
    for logits, labels in zip(problem.logits, problem.labels, strict=True):
        kept = np.ones(len(labels), bool) if ignored is None else labels != ignored
        losses = np.where(kept, cross_entropy(logits, np.where(kept, labels, 0)), 0)
        reduced = {"none": losses, "sum": losses.sum(), "mean": losses.sum() / max(kept.sum(), 1)}
        results.append(np.asarray(reduced[reduction]))
    return results


def sharded(group: popsr.ReplicaGrouping, reduction: str, ignores: bool) -> Callable[..., Any]:
    return lambda x, indices, ignore: cross_entropy_sharded_loss(
        x, indices, ignore if ignores else None, group, unchecked(reduction)
    )


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("ignores", [False, True])
@pytest.mark.parametrize("name", GROUPS)
def test_sharded_loss(name: str, ignores: bool, reduction: str) -> None:
    """The loss of the whole logits, proved to be one value in each group; the gradient is its derivative."""
    ir = popsr.Ir(replication=8)
    group = GROUPS[name](ir)
    ignored = 2 if ignores else None
    problem = Problem(group, ignored=ignored)
    labels = [problem.shifted, problem.ignore]
    outcome = run(ir, sharded(group, reduction, ignores), [problem.x], labels)
    (loss,), (partition,) = outcome.values, outcome.partitions
    assert partition.blocks == group.partition.blocks
    for members, expect in zip(problem.groups, expected(problem, reduction, ignored), strict=True):
        for r in members:
            np.testing.assert_allclose(loss[r], expect, rtol=1e-12, atol=1e-14)

    def make() -> tuple[popsr.Ir, Callable[..., Any]]:
        ir = popsr.Ir(replication=8)
        return ir, sharded(GROUPS[name](ir), reduction, ignores)

    rng = np.random.default_rng(1)
    seed = np.zeros((8, *expect.shape))
    for members in problem.groups:
        seed[members] = rng.standard_normal(expect.shape)
    step = rng.standard_normal(problem.x.shape)
    assert_derivative(
        make, [problem.x], labels, outputs_shared_by=group.group_size, seeds=[seed], steps=[unchecked(step)]
    )


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32"])
def test_sharded_loss_is_rounded_once(name: str) -> None:
    """Narrow logits are computed with as float32, so that their result is the nearest but for float32's own errors."""
    ir = popsr.Ir(replication=4)
    group = ir.replica_grouping(1, 2)
    problem = Problem(group, name)
    outcome = run(ir, sharded(group, "none", False), [problem.x], [problem.shifted, problem.ignore])
    (loss,) = outcome.values
    assert loss.dtype == np_dtype(name)
    for members, expect in zip(problem.groups, expected(problem, "none"), strict=True):
        for r in members:
            bound = {"float16": 2**-11, "bfloat16": 2**-8, "float32": 1e-6}[name] * 1.01
            np.testing.assert_allclose(loss[r].astype(np.float64), expect, rtol=bound, atol=1e-6)


def test_sharded_loss_of_extreme_logits() -> None:
    """Nothing overflows, logits of minus infinity have no chance, and all samples ignored give 0, as in nll_loss."""
    logits = np.array([[1000, 0, -np.inf, 999], [-1000, -np.inf, -1001, -1000]], np.float32)
    labels = np.array([3, 0], np.int32)
    x = np.stack([logits[:, :2], logits[:, 2:]])
    shifted = np.stack([labels, labels - 2])
    ignore = np.array([7, 5], np.int32)
    (loss,) = run(popsr.Ir(replication=2), sharded_of_all("none"), [x], [shifted, ignore]).values
    np.testing.assert_allclose(loss, np.stack([cross_entropy(logits, labels)] * 2), rtol=1e-6)
    nothing = np.stack([np.array([7, 7], np.int32), np.array([5, 5], np.int32)])
    outcome = run(
        popsr.Ir(replication=2), sharded_of_all("mean"), [x], [nothing, ignore], [np.ones(2, np.float32)]
    )
    assert not outcome.values[0].any()
    assert not outcome.gradients[0].any()


def sharded_of_all(reduction: str) -> Callable[..., Any]:
    return lambda x, indices, ignore: cross_entropy_sharded_loss(
        x, indices, ignore, None, unchecked(reduction)
    )


def test_a_member_that_ignores_a_sample_speaks_for_its_group() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 3, 2)).astype(np.float32)
    shifted = np.array([[0, 1, 0], [-2, -1, -2]], np.int32)
    ignore = np.array([1, 99], np.int32)  # only replica 0 was told
    (loss,) = run(popsr.Ir(replication=2), sharded_of_all("none"), [x], [shifted, ignore]).values
    assert (loss[0] == loss[1]).all()
    assert list(loss[0] == 0) == [False, True, False]


def test_one_sample_and_one_replica() -> None:
    x, label = np.array([[1, 2, 3]], np.float32), np.array([2], np.int32)
    (loss,) = evaluate(lambda x, i: cross_entropy_sharded_loss(x, i), [x, label])
    np.testing.assert_allclose(loss, cross_entropy(x, label)[0], rtol=1e-6)


@pytest.mark.parametrize("name", ["float64", "float32", "float16"])
@pytest.mark.parametrize("widths", [(4,), (2, 3), (1, 4, 2)])
def test_loss_between_ipus(widths: tuple[int, ...], name: str) -> None:
    """The loss of each sample of all classes, with the labels of the whole; its gradient reaches all IPUs."""
    rng = np.random.default_rng(len(widths))
    logits = (3 * rng.standard_normal((SAMPLES, sum(widths)))).astype(np_dtype(name))
    labels = rng.integers(0, sum(widths), SAMPLES).astype(np.int32)
    cuts = np.cumsum(widths)[:-1]
    shards = np.split(logits, cuts, 1)

    def function(*tensors: popsr.Tensor) -> popsr.Tensor:
        *xs, label = tensors
        return cross_entropy_sharded_wr_loss(xs, [label] * len(xs), list(range(len(xs))))

    seed = rng.standard_normal(SAMPLES).astype(np_dtype(name))
    outcome = run(popsr.Ir(), function, [x[None] for x in shards], [labels[None]], [seed[None]])
    tolerance = {"float64": 1e-12, "float32": 1e-5, "float16": 2e-3}[name]
    (loss,) = outcome.values[0]
    assert loss.dtype == np_dtype(name)
    np.testing.assert_allclose(
        loss.astype(np.float64), cross_entropy(logits, labels), rtol=tolerance, atol=1e-3
    )
    wide = logits.astype(np.float64)
    chances = np.exp(wide - wide.max(1, keepdims=True))
    chances /= chances.sum(1, keepdims=True)
    chances[np.arange(SAMPLES), labels] -= 1
    expect = np.split(chances * seed.astype(np.float64)[:, None], cuts, 1)
    for got, part in zip(outcome.gradients, expect, strict=True):
        np.testing.assert_allclose(got[0].astype(np.float64), part, atol=4 * tolerance)


def test_loss_between_ipus_is_on_the_first() -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        xs, labels = [], []
        for k in (2, 1):
            with popsr.ipu(k):
                xs.append(popsr.constant(np.ones((2, 3), np.float32)) + 1.0)
                labels.append(popsr.constant(np.array([0, 5], np.int32)) + 0)
        assert handle_ipus(xs, None) == [2, 1]
        assert cross_entropy_sharded_wr_loss(xs, labels).ipu == 2


X = ((4, 3), popsr.float32)
I = ((4,), popsr.int32)  # noqa: E741 - of indices

REFUSED: dict[str, tuple[type[Exception], str, Callable[..., Any]]] = {
    "reduction": (
        errors.AttributeValueError,
        "cross_entropy_sharded_loss: unknown reduction, got 'max'",
        lambda x, i: cross_entropy_sharded_loss(x, i, reduction="max"),  # type: ignore[arg-type]
    ),
    "indices of floats": (
        errors.DTypeError,
        "cross_entropy_sharded_loss: indices are not integers, got float32",
        lambda x, i: cross_entropy_sharded_loss(x, x),
    ),
    "logits of integers": (
        errors.DTypeError,
        "logits is not of floats, got int32",
        lambda x, i: cross_entropy_sharded_loss(i, i),
    ),
    "rank": (
        errors.ShapeError,
        r"logits has another rank, got shape \(4, 3, 1\), expected 2 axes",
        lambda x, i: cross_entropy_sharded_loss(popsr.graph_input((4, 3, 1), popsr.float32), i),
    ),
    "samples": (
        errors.ShapeError,
        r"indices has another shape, got \(3,\), expected \(4,\)",
        lambda x, i: cross_entropy_sharded_loss(x, popsr.graph_input((3,), popsr.int32)),
    ),
    "ignore_index of a number": (
        errors.ArgumentTypeError,
        "ignore_index is not a Tensor, got int 3",
        lambda x, i: cross_entropy_sharded_loss(x, i, 3),  # type: ignore[arg-type]
    ),
    "ignore_index of a vector": (
        errors.ShapeError,
        r"ignore_index is not a scalar, got shape \(4,\)",
        lambda x, i: cross_entropy_sharded_loss(x, i, i),
    ),
    "ignore_index of another dtype": (
        errors.DTypeError,
        "ignore_index and indices differ in dtype, got uint32, expected int32",
        lambda x, i: cross_entropy_sharded_loss(x, i, popsr.graph_input((), popsr.uint32)),
    ),
    "grouping": (
        errors.ReplicaError,
        "grouping of another replica count, got 2, expected 1",
        lambda x, i: cross_entropy_sharded_loss(x, i, None, popsr.Ir(2).replica_grouping()),
    ),
    "no grouping": (
        errors.ArgumentTypeError,
        "group is not a ReplicaGrouping, got 2",
        lambda x, i: cross_entropy_sharded_loss(x, i, None, 2),  # type: ignore[arg-type]
    ),
    "no tensor": (
        errors.ArgumentTypeError,
        "logits is not a Tensor, got None",
        lambda x, i: cross_entropy_sharded_loss(None, i),  # type: ignore[arg-type]
    ),
    "another graph": (
        errors.GraphError,
        "logits is of another graph",
        lambda x, i: cross_entropy_sharded_loss(elsewhere(), i),
    ),
    "no list": (
        errors.ArgumentTypeError,
        "cross_entropy_sharded_wr_loss: logits is not a Tensor list, got Tensor",
        lambda x, i: cross_entropy_sharded_wr_loss(x, [i]),  # type: ignore[arg-type]
    ),
    "number of tensors": (
        errors.AttributeValueError,
        "logits and indices differ in number, got 2 and 1",
        lambda x, i: cross_entropy_sharded_wr_loss([x, x], [i]),
    ),
    "no tensors": (
        errors.AttributeValueError,
        "logits and indices differ in number, got 0 and 0",
        lambda x, i: cross_entropy_sharded_wr_loss([], []),
    ),
    "dtypes of shards": (
        errors.DTypeError,
        r"logits\[1\] is of another dtype, got float16, expected float32",
        lambda x, i: cross_entropy_sharded_wr_loss(
            [x, popsr.graph_input((4, 2), popsr.float16)], [i, i], [0, 1]
        ),
    ),
    "samples of shards": (
        errors.ShapeError,
        r"logits\[1\] is of another number of samples, got 3, expected 4",
        lambda x, i: cross_entropy_sharded_wr_loss(
            [x, popsr.graph_input((3, 2), popsr.float32)], [i, i], [0, 1]
        ),
    ),
    "number of ipus": (
        errors.AttributeValueError,
        "handle_ipus: another number of ipus, got 1, expected 2",
        lambda x, i: cross_entropy_sharded_wr_loss([x, x], [i, i], [0]),
    ),
    "ipus": (
        errors.ArgumentTypeError,
        "handle_ipus: ipus is not a list, got 1",
        lambda x, i: cross_entropy_sharded_wr_loss([x, x], [i, i], 1),  # type: ignore[arg-type]
    ),
    "places": (
        errors.GraphError,
        "handle_ipus: the IPU of a tensor is unknown",
        lambda x, i: cross_entropy_sharded_wr_loss([x, x], [i, i]),
    ),
}


def elsewhere() -> popsr.Tensor:
    """A tensor of another graph of the current program."""
    with popsr.gir().create_empty_graph():
        return popsr.graph_input(*X)


@pytest.mark.parametrize("row", REFUSED)
def test_refused(row: str) -> None:
    error, match, build = REFUSED[row]
    assert_refused(lambda: build(popsr.graph_input(*X), popsr.graph_input(*I)), error, match)


def test_labels_of_no_class_are_as_likely_as_the_likeliest() -> None:
    x = np.array([[1, 2, 3], [5, 1, 0]], np.float32)
    (loss,) = evaluate(
        lambda x, i: cross_entropy_sharded_loss(x, i, reduction="none"), [x, np.array([9, -4], np.int32)]
    )
    np.testing.assert_allclose(loss, cross_entropy(x, x.argmax(1)), rtol=1e-5)
