"""Values after an op without exact meaning are unknown, and no others."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import popsr
from popsr import errors, ops
from popsr._support.fields import Numbers
from popsr.bridge._exact import Unknown, run_exact
from popsr.ops._exact import DRAWN, TAKEN_FALSE, TAKEN_TRUE

T = popsr.Tensor
Make = Callable[[T, T], dict[str, T]]


def digits(t: T) -> T:
    """A value without exact meaning: numbers drawn at random have no digits."""
    return ops.cast(t, popsr.int32)


def flows(t: T, u: T) -> dict[str, T]:
    found = ops.cast(digits(t), popsr.float32)
    return {"found": found, "sum": found + u, "other": u * u, "moved": ops.reshape(found, (2, 2))}


def in_place(t: T, u: T) -> dict[str, T]:
    part = ops.slice_(u, [0], [2], [1], [0])
    ops.var_updates.copy_var_update_(part, ops.slice(ops.cast(digits(t), popsr.float32), [0], [2], [1], [0]))
    return {"u": u, "found": u + 1, "other": t + 1}


def in_place_of_another(t: T, u: T) -> dict[str, T]:
    found = ops.cast(digits(t), popsr.float32)
    part = ops.slice_(found, [0], [2], [1], [0])
    return {"found": part + 1, "other": u + 1}


def exchanged(t: T, u: T) -> dict[str, T]:
    reduce = ops.collectives.replicated_all_reduce
    return {"found": reduce(ops.cast(digits(t), popsr.float32), "add"), "other": reduce(u, "add")}


def chosen(t: T, u: T) -> dict[str, T]:
    """The branch that runs is unknown, so all that a branch may write is."""

    def writes(x: popsr.TensorByRef) -> T:
        ops.var_updates.accumulator_scale_(x, 3.0)
        return x + 1

    ir = popsr.gir()
    first = ops.equal(ops.sum(digits(t)), popsr.constant(0, popsr.int32))
    then, other = ir.create_graph(writes, u), ir.create_graph(lambda x: x + 1, u)
    found = ops.conditional(first, then, other, then_inputs=[u], else_inputs=[u])[0]
    return {"found": found, "u": u, "other": t + 1}


def looped(t: T, u: T) -> dict[str, T]:
    ir = popsr.gir()
    count = ops.sum(digits(t))
    cond = ir.create_graph(lambda i, x: ops.less(i, popsr.constant(3, popsr.int32)), count, u)
    body = ir.create_graph(lambda i, x: (i + popsr.constant(1, popsr.int32), x * x), count, u)
    return {"found": ops.while_loop(cond, body, count, u)[1], "other": t + 1}


@pytest.mark.parametrize("make", [flows, in_place, in_place_of_another, exchanged, chosen, looped])
def test_what_is_unknown(make: Make) -> None:
    ir = popsr.Ir(replication=2)
    with ir.main_graph, popsr.in_sequence():
        t, u = popsr.variable(np.zeros(4, np.float32)), popsr.variable(np.zeros(4, np.float32))
        made = make(t, u)
    given = {each._id: [Numbers.draw((4,), str(each._id), 0)] * 2 for each in (t, u)}
    run = run_exact(ir, given, partly=True)
    for name, tensor in made.items():
        for value in run.value(tensor._id):
            assert isinstance(value, Unknown) is (name != "other"), name
    reason = next(v.reason for v in run.value(made["found"]._id) if isinstance(v, Unknown))
    assert "digits are not known" in reason
    assert "test_unknown.py" in reason
    with pytest.raises(errors.UnsupportedError, match="digits are not known"):
        run_exact(ir, given)


ORDERS: dict[str, tuple[tuple[int, ...], Callable[[T], object], int]] = {
    "a maximum of two": ((2,), lambda t: ops.max(t, [0]), 1),
    "of rows of three": ((5, 3), lambda t: ops.max(t, [1]), 3),
    "of many": ((9,), lambda t: ops.max(t, [0]), 0),
    "a sort of three": ((3,), lambda t: ops.sort(t), 3),
    "the position of the least of two": ((2,), lambda t: ops.argmin(t, 0), 1),
}


@pytest.mark.parametrize("name", ORDERS)
def test_orders_of_few_numbers_are_known(name: str) -> None:
    """Each pair of few numbers of a row is a comparison of its own."""
    shape, make, pairs = ORDERS[name]
    ir = popsr.Ir()
    with ir.main_graph:
        t = popsr.variable(np.zeros(shape, np.float32))
        make(t)
    run = run_exact(ir, {t._id: [Numbers.draw(shape, "t", 0)]})
    (sides,) = [*run.sides.values()] or [[]]
    assert len(sides) == pairs
    assert all((each & DRAWN).all() and (each & (TAKEN_FALSE | TAKEN_TRUE)).all() for each in sides)


INFINITE = np.array([1.0, -np.inf, 2.0], np.float32)


def test_infinite_numbers_are_above_or_below_on_all_draws() -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        t = popsr.variable(np.zeros(3, np.float32))
        ops.maximum(t, popsr.constant(-np.inf))
        ops.max(ops.where(popsr.constant(INFINITE > 0), t, popsr.constant(INFINITE)), [0])
    run = run_exact(ir, {t._id: [Numbers.draw((3,), "t", 0)]})
    maximum, of_row = list(run.sides.values())
    assert not any((each & DRAWN).any() for each in maximum)
    assert [bool((each & DRAWN).any()) for each in of_row] == [False, True, False]
