"""Optimisers in loops against NumPy: kinds of state, scalars from streams, replicas, stochastic rounding."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import TensorByRef, ops
from popsr.ops import collectives, var_updates
from tests_py.ops.rows import updates as update_cases
from tests_py.support.helpers import Array, Streams, assert_same_bits, dtype, make_variable, np_dtype
from tests_py.support.oracles import ops as oracles
from tests_py.support.unchecked import unchecked

STEPS, SHAPE = 20, (6, 11)
RATES = {
    "learning_rate": 0.05,
    "beta1": 0.9,
    "beta2": 0.99,
    "epsilon": 1e-5,
    "weight_decay": 0.02,
    "bound": 3.0,
}
F32 = popsr.float32
KINDS = ("adam", "adamw", "lamb", "adamax")

# References in NumPy


class Reference:
    """The same optimiser on arrays. Each operation is one of IEEE's in the compute type; state is rounded when stored.

    Powers are exact fractions that are rounded, so float64 may be off by some units in the last place.
    """

    def __init__(self, kind: str, start: Array, first: str, second: str) -> None:
        """``start``: the weight."""
        self.kind, self.first, self.second = kind, first, second
        self.weight = start.copy()
        self.m, self.v = np.zeros(start.shape, np_dtype(first)), np.zeros(start.shape, np_dtype(second))
        self.t = 0
        self.wide = "float64" in (first, second)

    @staticmethod
    def _compute(array: Array) -> Array:
        return array.astype(oracles.compute_type(array.dtype.name))

    @staticmethod
    def _rounded(exact: Any, name: str) -> Array:
        return np.asarray(oracles.round_once(np.asarray(exact), name))

    def _correction(self, beta: float, moment: str) -> Any:
        if self.wide:
            value = np.float64(1 - float(Fraction(beta) ** self.t))
        else:
            single = np.float32(float(Fraction(float(np.float32(beta))) ** self.t))
            value = np.float64(np.float32(1) - single)
        return self._rounded(value, moment)

    def step(self, gradient: Array) -> None:
        """One step with a gradient of the weight's dtype."""
        self.t += 1
        adamax = self.kind == "adamax"
        m, v, w = self._compute(self.m), self._compute(self.v), self._compute(self.weight)
        g = self._compute(gradient)
        self.m = self._rounded(update_cases.average(m, g, RATES["beta1"]), self.first)
        if adamax:
            decayed = self._rounded(v * v.dtype.type(RATES["beta2"]), self.second)
            self.v = np.maximum(decayed, np.abs(gradient).astype(np_dtype(self.second)))
        else:
            self.v = self._rounded(update_cases.average_square(v, g, RATES["beta2"]), self.second)
        kind = np.float64 if self.wide or w.dtype == np.float64 else np.float32
        corrections = (
            self._correction(RATES["beta1"], self.first),
            self._correction(RATES["beta2"], self.second),
        )
        decay = RATES["weight_decay"] if self.kind != "adam" else None
        exact = update_cases.step(
            self._compute(self.m),
            self._compute(self.v),
            None if decay is None else w,
            corrections,
            RATES["epsilon"],
            decay,
            kind=kind,
            adamax=adamax,
        )
        x = self._rounded(exact, self.first if decay is None else self.weight.dtype.name)
        self.weight = self._rounded(self._updated(w, self._compute(x)), self.weight.dtype.name)

    def _updated(self, w: Array, x: Array) -> Array:
        rate = w.dtype.type(RATES["learning_rate"])
        if self.kind != "lamb":
            return oracles.scaled_add(w, x.astype(w.dtype), 1.0, -rate)
        squares = [np.asarray(np.sum(each.astype(np.float64) ** 2), w.dtype) for each in (w, x)]
        bound = RATES["bound"]
        return update_cases.var_update(w, x, *squares, learning_rate=rate, max_weight_norm=bound)


# Equal programs


class Training:
    """A program of one optimiser whose gradients come from a stream, a row a replica, and are reduced."""

    def __init__(
        self,
        kind: str,
        start: Array,
        first: str,
        second: str,
        *,
        replication: int = 1,
        streamed: bool = False,
        looped: bool = False,
        stochastic: bool = False,
    ) -> None:
        """``streamed``: scalars come from streams; ``looped``: the steps are a repeat, else one run each."""
        self.kind, self.looped, self.streamed = kind, looped, streamed
        self.ir = popsr.Ir(replication=replication)
        self.ir.num_host_transfers = STEPS if looped else 1
        self.ir.options.enable_stochastic_rounding = stochastic
        with self.ir.main_graph, popsr.in_sequence():
            self.gradients = popsr.h2d_stream(start.shape, dtype(start.dtype.name), "gradients")
            self.scalars = {
                name: popsr.h2d_stream((), F32, name, replicated_stream_mode="broadcast")
                for name in RATES
                if streamed
            }
            self.state = {
                "weight": make_variable(start, "weight", retrieval_mode="all_replicas"),
                "m": make_variable(np.zeros(start.shape, np_dtype(first)), "m"),
                "v": make_variable(np.zeros(start.shape, np_dtype(second)), "v"),
                "t": make_variable(np.zeros((), np.float32), "t"),
            }
            if looped:
                graph = self.ir.create_graph(self._body, *self.state.values())
                ops.repeat(graph, STEPS, *self.state.values())
            else:
                self._body(*self.state.values())

    def _body(self, weight: TensorByRef, m: TensorByRef, v: TensorByRef, t: TensorByRef) -> None:
        scalars: dict[str, Any] = dict(RATES)
        for name, stream in self.scalars.items():
            scalars[name] = ops.host_load(stream)
        g = ops.host_load(self.gradients)
        g = collectives.replicated_all_reduce(g, "mean")
        var_updates.accumulate_moving_average_(m, g, scalars["beta1"])
        if self.kind == "adamax":
            var_updates.accumulator_scale_(v, scalars["beta2"])
            var_updates.copy_var_update_(v, ops.maximum(v, ops.cast(ops.abs(g), v.dtype)))
        else:
            var_updates.accumulate_moving_average_square_(v, g, scalars["beta2"])
        x = self._updater(weight, m, v, t, scalars)
        rate = scalars["learning_rate"]
        if self.kind == "lamb":
            squares = [ops.sumsquare(ops.cast(each, self._wide(weight))) for each in (weight, x)]
            unchecked(var_updates.adam_var_update)(weight, x, *squares, rate, scalars["bound"])
        else:
            var_updates.accumulate_(weight, x, ops.negate(rate) if self.streamed else -rate)

    @staticmethod
    def _wide(weight: popsr.Tensor) -> Any:
        return popsr.float64 if weight.dtype == popsr.float64 else F32

    def _updater(self, weight: Any, m: Any, v: Any, t: Any, scalars: dict[str, Any]) -> popsr.Tensor:
        given = {name: scalars[name] for name in ("beta1", "epsilon")}
        decay = {} if self.kind == "adam" else {"weight": weight, "weight_decay": scalars["weight_decay"]}
        if self.kind == "adamax":
            return var_updates.adamax_updater(m, v, time_step=t, **given, **decay)
        fn = var_updates.lamb_updater if self.kind == "lamb" else var_updates.adam_updater
        return fn(m, v, time_step=t, beta2=scalars["beta2"], **given, **decay)

    def run(self, gradients: Array, **options: Any) -> dict[str, Array]:
        """State after all steps; ``gradients`` has a row a step and, of several replicas, one a replica in it."""
        with popsr.Session(self.ir, seed=3, **options) as session:
            for k in range(1 if self.looped else STEPS):
                values = {stream: np.float32(RATES[name]) for name, stream in self.scalars.items()}
                if self.looped:
                    inputs = {stream: np.full(STEPS, value) for stream, value in values.items()}
                    inputs[self.gradients] = gradients
                else:
                    inputs = {**unchecked(values), self.gradients: gradients[k]}
                session.run(inputs, downcast_inputs=False)
            return {name: session.get_tensor_data(variable) for name, variable in self.state.items()}


def _start(name: str) -> Array:
    return np.random.default_rng(0).standard_normal(SHAPE).astype(np_dtype(name))


def _gradients(name: str, replication: int = 1) -> Array:
    """Multiples of 1/16: their mean over few replicas is exact in every dtype."""
    rng = np.random.default_rng(1)
    shape = (STEPS, replication, *SHAPE) if replication > 1 else (STEPS, *SHAPE)
    return (rng.integers(-12, 13, shape) / 8).astype(np_dtype(name))


def _expect(kind: str, weight: str, first: str, second: str, gradients: Array) -> Reference:
    reference = Reference(kind, _start(weight), first, second)
    for gradient in gradients:
        reference.step(gradient)
    return reference


def _compare(kind: str, got: dict[str, Array], expect: Reference, weight: Array) -> None:
    """Bitwise where all operations are fixed; powers of float64 and LAMB's norms have some freedom."""
    assert float(got["t"]) == STEPS
    assert_same_bits(got["m"], expect.m, "m")
    assert_same_bits(got["v"], expect.v, "v")
    assert not np.array_equal(weight, _start(weight.dtype.name))
    if expect.wide or kind == "lamb":
        unit = oracles.unit_in_last_place(np.abs(weight.astype(np.longdouble)) + 1, weight.dtype.name)
        # One step that is off by a unit of a narrow float stays so; wide ones are off by parts of 1e-12 of a step.
        allowed = {"float64": 8.0, "float32": 8.0}.get(weight.dtype.name, 1.0)
        assert (
            np.max(np.abs(weight.astype(np.longdouble) - expect.weight.astype(np.longdouble)) / unit)
            <= allowed
        )
    else:
        assert_same_bits(weight, expect.weight, "weight")


STATES = [
    ("float32", "float32", "float32"),
    ("float64", "float64", "float64"),
    ("float32", "float16", "float32"),
    ("bfloat16", "bfloat16", "bfloat16"),
    ("float16", "float16", "float16"),
    ("float16", "float32", "float32"),
]


@pytest.mark.parametrize(("weight", "first", "second"), STATES, ids="-".join)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("looped", [False, True], ids=["runs", "repeat"])
def test_twenty_steps(kind: str, weight: str, first: str, second: str, looped: bool) -> None:
    training = Training(kind, _start(weight), first, second, looped=looped)
    gradients = _gradients(weight)
    state = training.run(gradients)
    _compare(kind, state, _expect(kind, weight, first, second, gradients), state["weight"])


@pytest.mark.parametrize("kind", KINDS)
def test_scalars_from_streams_are_numbers(kind: str) -> None:
    """A float32 stream brings the same as a float32 number."""
    for weight, first, second in (STATES[0], STATES[3]):
        numbers = Training(kind, _start(weight), first, second).run(_gradients(weight))
        streamed = Training(kind, _start(weight), first, second, streamed=True).run(_gradients(weight))
        for name in numbers:
            assert_same_bits(streamed[name], numbers[name], name)


# Replicas


@pytest.mark.parametrize("replication", [2, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_replicas_stay_equal(kind: str, replication: int) -> None:
    for weight, first, second in (STATES[0], STATES[2], STATES[3]):
        training = Training(kind, _start(weight), first, second, replication=replication, looped=True)
        gradients = _gradients(weight, replication)
        facts = popsr.analysis.analyze(training.ir)
        assert all(facts.partition(variable).num_blocks == 1 for variable in training.state.values())
        mean = gradients.astype(np.float64).mean(1).astype(np_dtype(weight))
        expect = _expect(kind, weight, first, second, mean)
        for options in ({}, {"dedup": False}, {"check": True}):
            state = training.run(gradients, **options)
            for row in state["weight"]:
                assert_same_bits(row, state["weight"][0])
            _compare(kind, state, expect, state["weight"][0])


@pytest.mark.parametrize("kind", KINDS)
def test_rounded_stochastically_replicas_stay_equal(kind: str) -> None:
    weight, first, second = "bfloat16", "float16", "bfloat16"
    training = Training(kind, _start(weight), first, second, replication=2, looped=True, stochastic=True)
    gradients = _gradients(weight, 2)
    facts = popsr.analysis.analyze(training.ir)
    assert all(facts.partition(variable).num_blocks == 1 for variable in training.state.values())
    states = [training.run(gradients, **options) for options in ({}, {"dedup": False}, {"check": True})]
    for state in states:
        for name, value in state.items():
            assert_same_bits(value, states[0][name], name)
        assert_same_bits(state["weight"][0], state["weight"][1])
        assert float(state["t"]) == STEPS
    exact = Training(kind, _start(weight), first, second, replication=2, looped=True).run(gradients)
    rounded = states[0]["weight"].astype(np.float64) - exact["weight"].astype(np.float64)
    assert np.any(rounded != 0), "rounding takes part"
    assert np.max(np.abs(rounded)) < 0.25, "and stays near"


@pytest.mark.parametrize("replication", [2, 4, 6])
@pytest.mark.parametrize("stochastic", [False, True])
def test_one_counter_for_moments_that_differ(replication: int, stochastic: bool) -> None:
    """The counter is one value that all blocks of moments read: it is counted once, after the last of them."""
    rng = np.random.default_rng(0)
    labels = np.minimum(np.arange(replication), np.arange(replication)[::-1])  # 0 1 1 0: no constant stride
    data = rng.standard_normal((replication // 2, 40)).astype(np_dtype("bfloat16"))
    own = np.abs(rng.standard_normal((replication, 40)).astype(np.float32))
    results = []
    for options in ({}, {"dedup": False}, {"check": True}, {"num_threads": 2}):
        ir, io = popsr.Ir(replication=replication), Streams()
        ir.options.enable_stochastic_rounding = stochastic
        with ir.main_graph, popsr.in_sequence():
            groups = ir.replica_grouping_from_assignments(labels.tolist()) if replication > 2 else None
            m = make_variable(data if groups else data[0], "m", replica_grouping=groups)
            v, t = io.feed(own, replicated=True), make_variable(np.array(3.0, np.float32), "t")
            x = var_updates.adam_updater(m, v, None, t, None, 0.9, 0.99)
            for tensor in (x, t):
                io.fetch(tensor)
        facts = popsr.analysis.analyze(ir)
        assert facts.partition(t).num_blocks == 1
        assert facts.partition(x).num_blocks == replication
        assert facts.is_equal(t)
        with popsr.Session(ir, seed=1, **options) as session:
            for count in (4, 5):
                x_rows, counted = io.run(session)
                assert counted.tolist() == [count] * replication
            results.append(x_rows)
            assert float(session.get_tensor_data(t)) == 5
    for result in results:
        assert_same_bits(result, results[0])
    if not stochastic:
        corrections = [update_cases.correction(beta, 5, name, wide=False) for beta, name in _BETAS]
        for r, row in enumerate(results[0]):
            m_row = data[labels[r] if replication > 2 else 0].astype(np.float32)
            exact = update_cases.step(
                m_row, own[r], None, (corrections[0], corrections[1]), 1e-7, 0, kind=np.float32
            )
            assert_same_bits(row, np.asarray(oracles.round_once(exact, "bfloat16")))


_BETAS = ((0.9, "bfloat16"), (0.99, "float32"))


@pytest.mark.filterwarnings("ignore::popsr.ReplicaWarning")  # the counts differ
def test_a_counter_in_a_branch_counts_where_the_branch_is_taken() -> None:
    ir, io = popsr.Ir(replication=4), Streams()
    taken = np.array([True, False, False, True])
    ones = np.ones((4, 3), np.float32)
    with ir.main_graph, popsr.in_sequence():
        m, v = (
            io.feed(np.arange(12, dtype=np.float32).reshape(4, 3), replicated=True),
            io.feed(ones, replicated=True),
        )
        t = popsr.variable(0.0, F32, "t", retrieval_mode="all_replicas")

        def count(m: popsr.Tensor, v: popsr.Tensor, t: TensorByRef) -> popsr.Tensor:
            return var_updates.adam_updater(m, v, None, t, None, 0.5, 0.5)

        def leave(m: popsr.Tensor) -> popsr.Tensor:
            return ops.negate(m)

        graphs = ir.create_graph(count, m, v, t), ir.create_graph(leave, m)
        io.fetch(ops.conditional(io.feed(taken, replicated=True), *graphs, [m, v, t], [m])[0])
    for options in ({}, {"dedup": False}, {"check": True}):
        with popsr.Session(ir, **unchecked(options)) as session:
            io.run(session)
            io.run(session)
            assert session.get_tensor_data(t).tolist() == (2.0 * taken).tolist()
