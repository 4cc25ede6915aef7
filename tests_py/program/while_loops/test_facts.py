"""Facts about loops that ask a condition: values are as different as the replicas' trip counts may be."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import TensorByRef, errors, ops, transforms
from popsr.analysis import analyze
from popsr.ops import collectives
from popsr.ops.var_updates import accumulate_

F32, I32 = popsr.float32, popsr.int32
EQUAL, PAIRS, OWN = "{0,1,2,3}", "{0,1}{2,3}", "{0}{1}{2}{3}"


class Values:
    """Scalars that are equal on all of four replicas, inside pairs, and nowhere."""

    def __init__(self) -> None:
        self.ir = popsr.Ir(replication=4)
        with self.ir.main_graph:
            self.own = ops.host_load(popsr.h2d_stream((), I32, "own"))
            pairs = self.ir.replica_grouping(1, 2)
            self.pairs = collectives.replicated_all_reduce(self.own, "max", pairs)
            self.equal = collectives.replicated_all_reduce(self.own, "max")

    def of(self, fact: str) -> popsr.Tensor:
        return {EQUAL: self.equal, PAIRS: self.pairs, OWN: self.own}[fact]

    def loop(self, trips: popsr.Tensor, body: Any, *values: popsr.Tensor) -> tuple[popsr.Tensor, ...]:
        """The body's results after so many iterations."""
        with self.ir.main_graph, popsr.in_sequence():
            cond = self.ir.create_graph(lambda n: ops.greater(n, popsr.constant(0, I32)), trips)
            graph = self.ir.create_graph(lambda n, *rest: (n - 1, *body(*rest)), trips, *values)
            return ops.while_loop(cond, graph, trips, *values)[1:]

    def fact(self, t: popsr.Tensor) -> str:
        return str(analyze(self.ir).partition(t))


def meet(a: str, b: str) -> str:
    return max(a, b, key=[EQUAL, PAIRS, OWN].index)


@pytest.mark.parametrize("carried", [EQUAL, PAIRS, OWN])
@pytest.mark.parametrize("trips", [EQUAL, PAIRS, OWN])
def test_a_carried_value_is_as_equal_as_it_and_the_trip_count(trips: str, carried: str) -> None:
    v = Values()
    (t,) = v.loop(v.of(trips), lambda x: (x + 1,), v.of(carried))
    assert v.fact(t) == meet(trips, carried)


def test_a_condition_that_comes_to_differ() -> None:
    """Equal at first, then each replica's own."""
    v = Values()
    with v.ir.main_graph:
        cond = v.ir.create_graph(lambda n, _: ops.greater(n, popsr.constant(0, I32)), v.equal, v.own)
        body = v.ir.create_graph(lambda n, own: (own,), v.equal, v.own)
        (n,) = ops.while_loop(cond, body, v.equal, v.own)
    assert v.fact(n) == OWN


def test_a_swap_meets_both() -> None:
    """Nobody knows whether the number of swaps is even."""
    v = Values()
    a, b = v.loop(v.equal, lambda a, b: (b, a), v.equal, v.pairs)
    assert (v.fact(a), v.fact(b)) == (PAIRS, PAIRS)


def test_a_collective_makes_the_state_equal_where_all_go_on_together() -> None:
    v = Values()
    (t,) = v.loop(v.equal, lambda x: (collectives.replicated_all_reduce(x, "max"),), v.equal)
    assert v.fact(t) == EQUAL
    (t,) = v.loop(v.pairs, lambda x: (collectives.replicated_all_reduce(x, "max"),), v.equal)
    assert v.fact(t) == OWN or v.fact(t) == PAIRS


def test_variables_that_the_body_writes_drift_where_the_trip_count_differs() -> None:
    for fact in (EQUAL, PAIRS):
        v = Values()
        with v.ir.main_graph, popsr.in_sequence():
            w = popsr.variable(np.zeros(()), F32, "w")

            def body(n: popsr.Tensor, w: TensorByRef) -> popsr.Tensor:
                accumulate_(w, popsr.constant(1.0))
                return n - 1

            trips = v.of(fact)
            cond = v.ir.create_graph(lambda n: ops.greater(n, popsr.constant(0, I32)), trips)
            ops.while_loop(cond, v.ir.create_graph(body, trips, w), trips, w)
        facts = analyze(v.ir)
        assert str(facts.partition(w)) == fact
        assert [each.variable.name for each in facts.drifting()] == ([] if fact == EQUAL else ["w"])


def test_a_loop_whose_trip_count_differs_is_explained_by_its_condition() -> None:
    v = Values()
    (t,) = v.loop(v.pairs, lambda x: (x + 1,), v.equal)
    text = str(analyze(v.ir).explain(t, 0, 2))
    name = r"'Values\.loop\.<lambda>_subgraph\(\d\)/greater_out'"
    assert re.search(
        rf"\nroot: \S+:\d+: replicas 0 and 2 may leave while_loop at different times: its condition {name} differs\n",
        text,
    )
    place = r"in graph 'Values\.loop\.<lambda>_subgraph\(\d\)' of "
    assert re.search(rf"make its condition equal: replicated_broadcast\({name}, 0, .*\) {place}", text)


def test_the_condition_is_asked_at_two_places_of_one_call() -> None:
    """Before the first iteration it is equal, after each its replica's own: no call sites that disagree (L4)."""
    v = Values()
    with v.ir.main_graph:
        cond = v.ir.create_graph(lambda n, _: ops.greater(n, popsr.constant(0, I32)), v.equal, v.own)
        body = v.ir.create_graph(lambda n, own: (own,), v.equal, v.own)
        ops.while_loop(cond, body, v.equal, v.own)
    assert [each.code for each in analyze(v.ir).warnings] == []


def test_a_collective_that_replicas_leave_is_a_lint() -> None:
    v = Values()
    v.loop(v.own, lambda x: (collectives.replicated_all_reduce(x, "max"),), v.own)
    (lint,) = (each for each in analyze(v.ir).warnings if each.code == "L1")
    assert re.search(
        r"but while_loop at \S+ parts them by its condition '.*greater_out', so that only", lint.text
    )


def test_gradients_do_not_go_through_a_loop() -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        w = popsr.variable(np.ones(2), F32, "w")
        cond = ir.create_graph(lambda x: ops.less(ops.max(x), popsr.constant(9.0)), w)
        body = ir.create_graph(lambda x: x + x, w)

        def through(w: popsr.Tensor) -> popsr.Tensor:
            return ops.sum(ops.while_loop(cond, body, w)[0])

        def beside(w: popsr.Tensor) -> popsr.Tensor:
            return ops.sum(w * ops.while_loop(cond, body, ops.detach(w))[0])

        with pytest.raises(errors.GraphError, match=r"^autodiff: while_loop has no gradient, got "):
            transforms.autodiff(ir.create_graph(through, w))
        info = transforms.autodiff(ir.create_graph(beside, w))
        assert len(info.outputs) == 1


def test_mode_popart_claims_no_more() -> None:
    """PopART's own rules follow a loop's body once and never ask a condition."""
    for fact in (EQUAL, OWN):
        v = Values()
        (t,) = v.loop(v.of(fact), lambda x: (x + 1,), v.equal)
        assert analyze(v.ir, mode="popart").is_equal(t) == (fact == EQUAL)
    v = Values()
    fresh, _ = v.loop(v.equal, lambda x, y: (y, y), v.equal, v.own)
    assert not analyze(v.ir, mode="popart").is_equal(fresh)
