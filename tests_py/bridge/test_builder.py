"""``StepBuilder``: roles, groups, new values of states, order of writes, refusals."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import errors, ops
from popsr.bridge import StepBuilder
from tests_py.bridge.steps import F32, ROWS, momentum, tensor_parallel


def test_a_step_lists_its_arguments_and_results() -> None:
    step = momentum()
    assert [(each.path, each.role, each.shape) for each in step.arguments] == [
        ("params['w']", "state", (3,)),
        ("opt['m']", "state", (3,)),
        ("batch", "data", (3,)),
    ]
    assert [each.path for each in step.states] == ["params['w']", "opt['m']"]
    assert step.argument("batch").grouping.group_size == 1
    assert step.argument("opt['m']").nbytes == 12
    assert [each.path for each in step.results] == ["loss"]
    assert step.gaps == ()
    assert repr(step).startswith("BridgedStep[momentum: 4 replicas ")
    assert "params['w']  state   float32  [3]    {0,1,2,3}" in str(step)


def test_runs_go_on_from_the_states_that_the_run_before_left() -> None:
    step = momentum()
    w, m = np.ones(3), np.zeros(3)
    for rows in (ROWS, ROWS * 0.5):
        found = step.run({"batch": rows})
        loss = ((w * rows) ** 2).sum(1).mean()
        m = m * 0.5 + (2 * w * rows * rows).mean(0)
        w = w - m * 0.125
        np.testing.assert_allclose(found["params['w']"], np.tile(w, (4, 1)), rtol=1e-6)
        np.testing.assert_allclose(found["opt['m']"], np.tile(m, (4, 1)), rtol=1e-6)
        np.testing.assert_allclose(found["loss"], np.full(4, loss), rtol=1e-6)


def test_a_step_restarts_with_the_initial_states() -> None:
    step = momentum()
    first = step.run()
    step.run()
    step.restart(check=True)
    again = step.run()
    assert all((first[path] == again[path]).all() for path in first)


def test_states_that_are_exchanged_are_read_before_one_is_written() -> None:
    b = StepBuilder(2)
    with b:
        one = b.state("one", np.float32(1), b.all())
        two = b.state("two", np.float32(2), b.all())
        b.update("one", two)
        b.update("two", one)
        step = b.finish()
    found = step.run()
    assert found["one"].tolist() == [2, 2]
    assert found["two"].tolist() == [1, 1]
    assert step.prove().ok


def test_a_view_of_a_state_is_copied_before_the_state_is_written() -> None:
    b = StepBuilder(1)
    with b:
        one = b.state("one", np.array([1, 2], np.float32), b.all())
        two = b.state("two", np.array([3, 4], np.float32), b.all())
        view = ops.reshape_(ops.reshape_(one, (2, 1)), (2,))
        b.update("one", two + 1.0)
        b.update("two", view)
        step = b.finish()
    found = step.run()
    assert found["one"].reshape(-1).tolist() == [4, 5]
    assert found["two"].reshape(-1).tolist() == [1, 2]


def test_states_and_data_by_group() -> None:
    step = tensor_parallel()
    found = step.run()
    w1 = found["w1"]
    assert w1.shape == (4, 3, 2)
    assert (w1[0] == w1[2]).all()
    assert (w1[1] == w1[3]).all()
    assert (w1[0] != w1[1]).any()


def test_feed_and_join_convert_the_users_values() -> None:
    b = StepBuilder(2)
    with b:
        x = b.data(
            "x", (2,), F32, b.each(), example=np.arange(4, dtype=np.float32), feed=lambda v: v.reshape(2, 2)
        )
        b.result("y", x + 1.0, join=lambda rows: rows.reshape(-1))
        step = b.finish()
    assert step.run()["y"].tolist() == [1, 2, 3, 4]
    assert step.run({"x": np.zeros(4, np.float32)})["y"].tolist() == [1, 1, 1, 1]


def test_types_of_64_bits_stay() -> None:
    b = StepBuilder(1)
    with b:
        n = b.state("n", np.int64(2**40), b.all())
        b.update("n", n + b.constant("one", np.int64(1)))
        step = b.finish()
    assert step.argument("n").dtype is popsr.int64
    assert step.argument("one").role == "constant"
    assert step.run()["n"] == 2**40 + 1


def build(make: Callable[[StepBuilder, popsr.Tensor], Any]) -> Any:
    b = StepBuilder(2, where="reader")
    with b:
        make(b, b.state("w", np.ones(3, np.float32), b.all()))
        return b.finish()


REFUSED: dict[str, tuple[Callable[[StepBuilder, popsr.Tensor], Any], type[Exception], str]] = {
    "argument twice": (
        lambda b, w: b.state("w", np.float32(1), b.all()),
        errors.GraphError,
        "reader: two arguments of one path, got 'w', expected different paths",
    ),
    "result twice": (
        lambda b, w: [b.result("y", t) for t in (w, w)],  # type: ignore[func-returns-value]
        errors.GraphError,
        "reader: two results of one path, got 'y', expected different paths",
    ),
    "no such state": (
        lambda b, w: b.update("v", w),
        errors.GraphError,
        "reader: no state to update, got 'v', expected the path of a state",
    ),
    "shape of a new value": (
        lambda b, w: b.update("w", ops.sum(w)),
        errors.ShapeError,
        "reader: new value of state 'w' does not fit, got float32[], expected float32[3]",
    ),
    "dtype of a new value": (
        lambda b, w: b.update("w", ops.cast(w, popsr.float16)),
        errors.DTypeError,
        "reader: new value of state 'w' does not fit, got float16[3], expected float32[3]",
    ),
    "replicas of a grouping": (
        lambda b, w: b.state("v", np.float32(1), popsr.Ir(4).replica_grouping()),
        errors.ReplicaError,
        "reader: grouping of 'v' is of other replicas, got 4, expected 2",
    ),
    "no grouping": (
        lambda b, w: b.data("v", (), F32, None),  # type: ignore[arg-type]
        errors.ArgumentTypeError,
        "reader: grouping of 'v'",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused(name: str) -> None:
    make, error, text = REFUSED[name]
    with pytest.raises(error) as caught:
        build(make)
    assert text in str(caught.value)


def test_a_step_is_finished_inside() -> None:
    with pytest.raises(errors.StateError, match="expected `with builder:` around it"):
        StepBuilder(2).finish()
    with pytest.raises(errors.AttributeValueError, match="unsupported"):
        StepBuilder(2, unsupported="never")  # type: ignore[arg-type]


def test_runs_refuse_other_inputs() -> None:
    step = momentum()
    with pytest.raises(
        errors.UnknownNameError, match="inputs of a path that is not data, got 'btch', expected 'batch'"
    ):
        step.run({"btch": ROWS})
    with pytest.raises(errors.UnknownNameError, match="no argument of that path"):
        step.argument("btch")
    b = StepBuilder(2)
    with b:
        b.result("y", b.data("x", (2,), F32, b.each()))
        bare = b.finish()
    with pytest.raises(errors.SessionError, match="no value for data 'x'"):
        bare.run()
    bare.restart()
    with pytest.raises(errors.ShapeError):
        bare.run({"x": np.zeros((3, 2), np.float32)})


def by_hand(reduction: str, *, marked: bool = True, loss_mean: bool = False) -> Any:
    """Two weights and their gradients, as an importer of a framework would make them."""
    b = StepBuilder(4)
    with b:
        states = [b.state(name, np.ones(3, np.float32), b.all()) for name in ("v", "w")]
        x = b.data("x", (3,), popsr.float32, b.each())
        with b.derivative() if marked else contextlib.nullcontext(), popsr.location("model.py", 5):
            seed = x * 2.0
            grads = [seed * w for w in states]
        for name, state, g, kind in zip(("v", "w"), states, grads, ("mean", reduction), strict=True):
            with popsr.location("model.py", 9):
                if kind:
                    g = ops.collectives.replicated_all_reduce(g, kind)  # type: ignore[arg-type]
            with popsr.location("model.py", 11):
                b.update(name, state - 0.1 * g)
        return b.finish()


@pytest.mark.parametrize(
    ("reduction", "text"), [("mean", ""), ("add", "4 times"), ("", "a part of its gradient")]
)
def test_sums_of_gradients_that_an_importer_marks(reduction: str, text: str) -> None:
    proof = by_hand(reduction).prove()
    assert proof.ok is (not text)
    assert [lint.code for lint in proof.pending] == (["L11"] if text else [])
    assert all(text in lint.text and "'w'" in lint.text for lint in proof.pending)
    assert by_hand(reduction, marked=False).prove().pending == ()


def test_the_line_of_a_missing_sum() -> None:
    value = by_hand("").prove().value("w")
    assert value.pending is not None
    assert (value.pending.made, value.pending.used) == ("model.py:5", "model.py:11")


PAIRS = popsr.ReplicaGrouping.from_assignment([0, 0, 1, 1])
FUNCTIONS: dict[str, tuple[Callable[[Any, Any], Any], bool]] = {
    "itself": (lambda g, v: g, True),
    "a cast": (lambda g, v: ops.cast(ops.cast(g, popsr.float64), F32), True),
    "a reshape": (lambda g, v: ops.reshape(ops.reshape(g, (3, 1)), (3,)), True),
    "a multiple": (lambda g, v: g * 0.5, True),
    "a product with a state": (lambda g, v: g * v, True),
    "a square": (lambda g, v: g * g, False),
    "a quotient": (lambda g, v: g / v, True),
    "a reciprocal": (lambda g, v: v / g, False),
    "a sum": (lambda g, v: -(g + v), True),
    "a root": (lambda g, v: ops.sqrt(g), False),
    "a choice": (lambda g, v: ops.where(ops.greater(v, popsr.constant(0.0)), g, v), True),
    "a condition": (lambda g, v: ops.where(ops.greater(g, popsr.constant(0.0)), v, v * 2.0), False),
    "a sum over fewer": (lambda g, v: ops.collectives.replicated_all_reduce(g, "add", PAIRS), True),
    "a maximum over fewer": (lambda g, v: ops.collectives.replicated_all_reduce(g, "max", PAIRS), False),
    "a gather": (lambda g, v: ops.sum(ops.collectives.replicated_all_gather(g, group=PAIRS), 0), True),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_after_which_a_sum_is_too_late(name: str) -> None:
    function, is_linear = FUNCTIONS[name]
    b = StepBuilder(4)
    with b:
        v, w = (b.state(name, np.ones(3, np.float32), b.all()) for name in ("v", "w"))
        x = b.data("x", (3,), popsr.float32, b.each())
        with b.derivative(), popsr.location("model.py", 5):
            g = x * w
        with popsr.location("model.py", 7):
            made = function(g, v)
        with popsr.location("model.py", 11):
            b.update("w", w - made)
        proof = b.finish().prove()
    found = proof.value("w").pending
    assert found is not None
    assert (found.made, found.used) == ("model.py:5", "model.py:11" if name == "itself" else "model.py:7")
    assert found.nonlinear == ("" if is_linear else "model.py:7")


def test_ops_of_a_backward_pass_are_marked() -> None:
    inside: list[bool] = []
    b = StepBuilder(2)
    with b:
        w = b.state("w", np.ones(3, np.float32), b.all())
        inside.append(b.in_derivative)
        with b.derivative():
            graph = w.ir.create_graph(lambda t: t * 2.0, w)
            with b.derivative():
                y = ops.repeat(graph, 2, w)[0]
            inside.append(b.in_derivative)
            z = -y
        inside.append(b.in_derivative)
        with pytest.raises(errors.ShapeError), b.derivative():
            ops.reshape(w, (7,))
        inside.append(b.in_derivative)
        b.update("w", ops.square(z))
        step = b.finish()
    assert inside == [False, True, False, False]
    core = step.ir._core
    assert [core.op_kind(op) for op in sorted(step.derivatives)] == ["mul", "repeat", "negate"]
    assert step.derivatives == {*core.derivatives()}


def test_parts_of_a_sum() -> None:
    """A product with a cut weight: its sum is whole, its mean is not."""
    for kind, count in (("add", 0), ("mean", 1)):
        b = StepBuilder(2)
        with b:
            w = b.state("w", np.ones((2, 3, 2), np.float32), b.each())
            part = b.data("x", (4, 3), popsr.float32, b.each()) @ w
            b.partial_sum(part, b.all())
            b.result("y", ops.collectives.replicated_all_reduce(part, kind), grouping=b.all())  # type: ignore[arg-type]
            proof = b.finish().prove()
        assert len(proof.pending) == count
    with pytest.raises(errors.ReplicaError, match="grouping of 'partial sum' is of other replicas"):
        b.partial_sum(part, StepBuilder(4).all())
