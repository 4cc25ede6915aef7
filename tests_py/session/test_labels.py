"""Labels that are none of the classes: logged once an op and session, and errors of strict sessions."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import addons, errors, ops, transforms
from popsr.ops import collectives, var_updates
from tests_py.support.helpers import assert_same_bits
from tests_py.support.unchecked import unchecked

F32, I32 = popsr.float32, popsr.int32
REPLICAS, ROWS, CLASSES = 4, 3, 5

Loss = Callable[[popsr.Tensor, popsr.Tensor], Any]


def onehot(_: popsr.Tensor, labels: popsr.Tensor) -> popsr.Tensor:
    values = popsr.constant(np.array([0, 1], np.float32))
    return ops.onehot(labels, popsr.constant(CLASSES, I32), values, 1)


def sharded(logits: popsr.Tensor, labels: popsr.Tensor) -> popsr.Tensor:
    """Two members of a group have five classes each; the second one's labels are less by 5."""
    ir = popsr.gcg().ir
    group = ir.replica_grouping(group_size=2)
    same = collectives.replicated_broadcast(labels, 0, group)
    shifted = same - ops.cast(ops.replica_index(group), I32) * popsr.constant(CLASSES, I32)
    return addons.ops.cross_entropy_sharded_loss(logits, shifted, replica_grouping=group)


LOSSES: dict[str, tuple[Loss, str, int]] = {
    "nll_loss": (lambda x, y: ops.nll_loss(ops.softmax(x, 1), y), "nll_loss", CLASSES),
    "log": (lambda x, y: ops.nll_loss(ops.log_softmax(x, 1), y, log_prob=True), "nll_loss", CLASSES),
    "none": (lambda x, y: ops.nll_loss(ops.softmax(x, 1), y, reduction="none"), "nll_loss", CLASSES),
    "with gradient": (
        lambda x, y: ops.nll_loss_with_softmax_grad(ops.softmax(x, 1), y)[0],
        "nll_loss_with_softmax_grad",
        CLASSES,
    ),
    "cross_entropy": (lambda x, y: addons.ops.cross_entropy(x, y), "nll_loss", CLASSES),
    "cross_entropy_with_grad": (
        lambda x, y: addons.ops.cross_entropy_with_grad(x, y)[0],
        "nll_loss_with_softmax_grad",
        CLASSES,
    ),
    "onehot": (onehot, "onehot", CLASSES),
    "sharded over replicas": (sharded, "check_labels", 2 * CLASSES),
    "sharded over IPUs": (
        lambda x, y: addons.ops.cross_entropy_sharded_wr_loss([x, x], [y, y], [0, 0]),
        "check_labels",
        2 * CLASSES,
    ),
}


class Program:
    """One loss of what each replica is fed."""

    def __init__(self, loss: Loss, dtype: popsr.dtypes.dtype = F32) -> None:
        self.ir = popsr.Ir(replication=REPLICAS)
        with self.ir.main_graph, popsr.in_sequence():
            self.x = popsr.h2d_stream((ROWS, CLASSES), dtype, "x")
            self.labels = popsr.h2d_stream((ROWS,), I32, "labels")
            x, labels = ops.host_load(self.x), ops.host_load(self.labels)
            self.line = loss.__code__.co_firstlineno
            y = loss(x, labels)
            self.out = popsr.d2h_stream(y.shape, y.dtype, "out")
            ops.host_store(self.out, y)

    def data(self, *wrong: tuple[int, int, int]) -> dict[Any, Any]:
        """Labels with some (replica, row, label) changed."""
        labels = np.arange(REPLICAS * ROWS, dtype=np.int32).reshape(REPLICAS, ROWS) % CLASSES
        for replica, row, label in wrong:
            labels[replica, row] = label
        x = np.random.default_rng(0).normal(size=(REPLICAS, ROWS, CLASSES)).astype(np.float32)
        return {self.x: x.astype(self.x.dtype.as_numpy()), self.labels: labels}


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [r.getMessage() for r in caplog.records if (r.name, r.levelno) == ("popsr", logging.WARNING)]
    caplog.clear()
    return found


@pytest.mark.parametrize("name", LOSSES)
def test_logged_once_and_the_first_of_them(name: str, caplog: pytest.LogCaptureFixture) -> None:
    loss, op, classes = LOSSES[name]
    program = Program(loss)
    wrong = program.data((3, 0, -7), (2, 2, 77), (2, 1, classes))
    with popsr.Session(program.ir) as session:
        session.run(program.data())
        assert logged(caplog) == []
        for _ in range(2):
            session.run(wrong)
    (text,) = logged(caplog)
    place, _, said = text.partition(": ")
    assert place.startswith(f"{op} at {__file__}:")
    assert said == (
        f"label {classes} in row 1 on replica 2 is outside the {classes} classes and counts as none of them; an error "
        "with Session(strict={'labels'})"
    )
    with popsr.Session(program.ir) as session:  # another session
        session.run(wrong)
    assert logged(caplog) == [text]


@pytest.mark.parametrize("strict", [True, {"labels"}, ["L3", "labels"]])
@pytest.mark.parametrize("name", LOSSES)
def test_strict_sessions_refuse_them(name: str, strict: Any, caplog: pytest.LogCaptureFixture) -> None:
    loss, op, classes = LOSSES[name]
    program = Program(loss)
    with popsr.Session(program.ir, strict=strict) as session:
        for _ in range(2):
            with pytest.raises(errors.OutOfRangeError) as caught:
                session.run(program.data((2, 2, -1)))
            text = str(caught.value)
            assert text.startswith(
                f"{op}: label is outside its classes, got -1 in row 2 on replica 2 at {__file__}:"
            )
            assert text.endswith(
                f", expected 0 to {classes - 1}{' or ignore_index' if op.startswith('nll') else ''}"
            )
            (note,) = caught.value.__notes__
            assert note.startswith(f"while running {op}(")
            assert f" at {__file__}:" in note
        assert session.step == 0
        session.run(program.data())
        assert session.step == 1
    assert logged(caplog) == []


@pytest.mark.parametrize("strict", [("L1", "L2", "L3"), ()])
def test_sessions_that_are_strict_about_others_log_them(
    strict: Any, caplog: pytest.LogCaptureFixture
) -> None:
    program = Program(LOSSES["nll_loss"][0])
    with popsr.Session(program.ir, strict=strict) as session:
        session.run(program.data((0, 0, 9)))
    assert len(logged(caplog)) == 1


def test_ignored_labels_are_fine(caplog: pytest.LogCaptureFixture) -> None:
    for loss in (
        lambda x, y: ops.nll_loss(ops.softmax(x, 1), y, ignore_index=-100),
        lambda x, y: ops.nll_loss_with_softmax_grad(ops.softmax(x, 1), y, ignore_index=-100)[0],
        lambda x, y: addons.ops.cross_entropy_sharded_loss(
            x, y, popsr.constant(-100, I32), popsr.gcg().ir.replica_grouping(group_size=1)
        ),
    ):
        program = Program(loss)
        with popsr.Session(program.ir, strict=True) as session:
            session.run(program.data((1, 1, -100)))
            with pytest.raises(errors.OutOfRangeError, match="got -99 in row 1 on replica 1"):
                session.run(program.data((1, 1, -99)))
    assert logged(caplog) == []


def test_values_are_what_they_were(caplog: pytest.LogCaptureFixture) -> None:
    """A class of probability 0: the greatest loss that there is."""
    program = Program(LOSSES["none"][0])
    with popsr.Session(program.ir) as session:
        losses = session.run(program.data((0, 1, CLASSES)))[program.out]
        right = session.run(program.data())[program.out]
    assert losses[0, 1] == pytest.approx(-np.log(1e-7))
    assert_same_bits(np.delete(losses.ravel(), 1), np.delete(right.ravel(), 1))


@pytest.mark.parametrize(
    "options",
    [{"num_threads": 1}, {"num_threads": 3}, {"dedup": False}, {"check": True}],
    ids=lambda options: next(iter(options)),
)
@pytest.mark.parametrize("name", ["nll_loss", "with gradient", "onehot", "sharded over replicas"])
def test_the_same_whatever_the_session(
    name: str, options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    program = Program(LOSSES[name][0])
    with popsr.Session(program.ir, **options) as session:
        session.run(program.data((3, 0, 50), (2, 2, 51), (2, 1, 52)))
    (text,) = logged(caplog)
    assert "label 52 in row 1 on replica 2 is" in text


def test_equal_replicas_count_as_the_first_of_them(caplog: pytest.LogCaptureFixture) -> None:
    texts = set()
    for options in ({}, {"dedup": False}):
        ir = popsr.Ir(replication=REPLICAS)
        with ir.main_graph, popsr.in_sequence():
            labels = popsr.h2d_stream((2, 3), I32, replicated_stream_mode="broadcast")
            probs = popsr.constant(np.full((2, 3, 4), 0.25, np.float32))
            ops.nll_loss(probs, ops.host_load(labels))
        with popsr.Session(ir, **unchecked(options)) as session:
            session.run({labels: np.array([[0, 1, 2], [3, 4, 5]], np.int32)})
        texts.update(logged(caplog))
    (text,) = texts
    assert "label 4 in row [1, 1] on replica 0 is outside the 4 classes" in text


@pytest.mark.parametrize("dtype", [popsr.float16, popsr.bfloat16, popsr.float64], ids=lambda d: d.name)
def test_every_dtype_of_probabilities(dtype: popsr.dtypes.dtype, caplog: pytest.LogCaptureFixture) -> None:
    program = Program(LOSSES["nll_loss"][0], dtype)
    with popsr.Session(program.ir) as session:
        session.run(program.data((1, 0, 6)), downcast_inputs=False)
    assert len(logged(caplog)) == 1


# In graphs


def micro_batches(run: Callable[[popsr.Graph, list[popsr.Tensor]], None]) -> tuple[popsr.Ir, Any, Any]:
    """Three micro batches whose gradients are accumulated; products are folded, and loops that allow it unrolled."""
    ir = popsr.Ir(replication=2)
    ir.num_host_transfers = 3
    with ir.main_graph, popsr.in_sequence():
        data = popsr.h2d_stream((2, 4), F32, "data")
        labels = popsr.h2d_stream((2,), I32, "labels")
        w = popsr.variable(np.ones((4, 4), np.float32), name="w")
        gradient = popsr.variable(np.zeros((4, 4), np.float32), name="gradient")

        def body(total: popsr.TensorByRef, w: popsr.Tensor) -> None:
            x = ops.host_load(data)
            _, dy = ops.nll_loss_with_softmax_grad(ops.softmax(x @ w, 1), ops.host_load(labels))
            var_updates.accumulate_(total, x.T @ dy)

        var_updates.accumulator_zero_(gradient)
        run(ir.create_graph(body, gradient, w), [gradient, w])
        collectives.replicated_all_reduce_(gradient, "mean")
        second = ops.collectives.replicated_all_reduce(ops.relu(gradient), "max")
        third = ops.collectives.replicated_all_reduce(ops.abs(gradient), "max")
        ops.scaled_add_(w, gradient + second * third, b=0.0)
    return ir, data, labels


def _call(graph: popsr.Graph, inputs: list[popsr.Tensor]) -> None:
    for _ in range(3):
        ops.call(graph, *inputs)


def _loop(graph: popsr.Graph, inputs: list[popsr.Tensor]) -> None:
    ops.repeat(graph, 3, *inputs)


RUNS: dict[str, Callable[[popsr.Graph, list[popsr.Tensor]], None]] = {
    "calls": _call,
    "loop": _loop,
}


@pytest.mark.parametrize("merge", [False, True])
@pytest.mark.parametrize("name", RUNS)
def test_in_graphs_that_are_run_several_times(
    name: str, merge: bool, caplog: pytest.LogCaptureFixture
) -> None:
    ir, data, labels = micro_batches(RUNS[name])
    if merge:
        transforms.merge_collectives(ir)
    wrong = np.array(
        [[[0, 1], [2, 3]], [[0, 1], [2, 9]], [[8, 1], [2, 7]]], np.int32
    )  # the first is in the second micro batch
    inputs = {data: np.ones((3, 2, 2, 4), np.float32), labels: wrong}
    for options in ({}, {"num_threads": 2}, {"dedup": False}):
        with popsr.Session(ir, **options) as session:
            session.run(inputs)
            session.run(inputs)
        (text,) = logged(caplog)
        assert "label 9 in row 1 on replica 1 is outside the 4 classes" in text
    # A run that stops half-way leaves the sums of the replicas as they are.
    with popsr.Session(ir, weights_to_host_on_exit=False, strict={"labels"}) as session:
        before = session.get_tensor_data(ir.main_graph.variables[0])
        with pytest.raises(errors.OutOfRangeError, match="got 9 in row 1 on replica 1"):
            session.run(inputs)
        assert_same_bits(session.get_tensor_data(ir.main_graph.variables[0]), before)


def test_branches_tell_of_the_replicas_that_take_them(caplog: pytest.LogCaptureFixture) -> None:
    ir = popsr.Ir(replication=2)
    with ir.main_graph, popsr.in_sequence():
        labels = popsr.h2d_stream((2,), I32, "labels")
        second = popsr.h2d_stream((), popsr.bool, "taken")
        probs, given = popsr.constant(np.full((2, 4), 0.25, np.float32)), ops.host_load(labels)
        loss = ir.create_graph(lambda p, y: ops.nll_loss(p, y), probs, given)
        other = ir.create_graph(lambda p, y: ops.sum(p), probs, given)
        ops.conditional(ops.host_load(second), loss, other, [probs, given], [probs, given])
    taken = np.array([False, True])
    with popsr.Session(ir) as session:
        session.run({labels: np.array([[9, 9], [0, 1]], np.int32), second: taken})
        assert logged(caplog) == []
        session.run({labels: np.array([[9, 9], [0, 8]], np.int32), second: taken})
    (text,) = logged(caplog)
    assert "label 8 in row 1 on replica 1" in text


def test_a_label_of_an_embedding_outside_its_rows_is_as_documented(caplog: pytest.LogCaptureFixture) -> None:
    """``zero_OOR`` asks for zeros: nothing is said."""
    ir = popsr.Ir()
    with ir.main_graph:
        table = popsr.variable(np.ones((3, 2), np.float32))
        ops.gather(table, popsr.constant([7], I32), zero_OOR=True)
    with popsr.Session(ir, strict=True) as session:
        session.run()
    assert logged(caplog) == []


def test_gradients_are_those_without_the_check(caplog: pytest.LogCaptureFixture) -> None:
    """Of a loss with the check of labels: it has no gradient and needs none."""
    ir = popsr.Ir(replication=2)
    with ir.main_graph, popsr.in_sequence():
        x = popsr.variable(np.arange(6, dtype=np.float32).reshape(2, 3), name="x")
        labels = popsr.constant([1, 2], I32)
        group = ir.replica_grouping(group_size=1)
        graph = ir.create_graph(
            lambda x, y: addons.ops.cross_entropy_sharded_loss(x, y, replica_grouping=group), x, labels
        )
        call = ops.call_with_info(graph, x, labels)
        gradient = transforms.autodiff(graph, grads_required=[graph.inputs[0]])
        (dx,) = ops.call(gradient.graph, 1.0, inputs_dict=gradient.inputs_dict(call))
        out = popsr.d2h_stream((2, 3), F32)
        ops.host_store(out, dx)
    with popsr.Session(ir, strict=True) as session:
        got = session.run()[out][0]
    e = np.exp(np.arange(6).reshape(2, 3))
    wanted = (e / e.sum(1, keepdims=True) - np.eye(3)[[1, 2]]) / 2
    np.testing.assert_allclose(got, wanted, rtol=1e-5)
