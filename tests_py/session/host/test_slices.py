"""Element-wise ops that follow each other run slice by slice: plans and memory change, but no bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import popsr
from popsr import ops
from tests_py.support.helpers import Array, assert_same_bits

pytestmark = pytest.mark.filterwarnings("ignore::popsr.ReplicaWarning")
updates = ops.var_updates
N = 300_001  # 1.2 MB of float32: several slices, the last of which is shorter
DTYPES = {"float32": popsr.float32, "bfloat16": popsr.bfloat16, "float64": popsr.float64}


class Program:
    """Large variables ``w``, ``m``, ``v``, ``g``, and a counter and a factor of one element."""

    def __init__(
        self, dtype: popsr.dtypes.dtype, replicas: int = 2, count: int = N, stochastic: bool = True
    ) -> None:
        rng = np.random.default_rng(0)
        self.ir = popsr.Ir(replication=replicas)
        self.ir.options.enable_stochastic_rounding = stochastic
        with self.ir.main_graph, popsr.in_sequence():
            values = {name: np.abs(rng.standard_normal(count)).astype(np.float32) for name in "wmvg"}
            self.large = {name: popsr.variable(value, dtype, name) for name, value in values.items()}
            self.counter = popsr.variable(0.0, popsr.float32, "counter")
            self.factor = popsr.variable(0.75, popsr.float32, "factor")
        self.dtype = dtype

    def results(self, runs: int = 2, **options: Any) -> dict[str, Array]:
        with popsr.Session(self.ir, **options) as session:
            for _ in range(runs):
                session.run()
            variables = [*self.large.values(), self.counter, self.factor]
            return {v.name: np.asarray(value) for v, value in session.get_tensors_data(variables).items()}

    def assert_unchanged(self) -> None:
        """The same bits as where each op runs by itself, on any number of threads."""
        expected = self.results(optimise=False)
        for options in ({}, {"num_threads": 1}, {"num_threads": 3}, {"check": 0.5}, {"dedup": False}):
            for name, value in self.results(**options).items():
                assert_same_bits(value, expected[name], f"{name} with {options}")

    @property
    def plan(self) -> str:
        return str(popsr.Session(self.ir).plan)


Step = Callable[[Program], object]


def update(w: popsr.Tensor, m: popsr.Tensor, v: popsr.Tensor, g: popsr.Tensor, counter: popsr.Tensor) -> None:
    """By Adam."""
    updates.accumulate_moving_average_(m, g, 0.9)
    updates.accumulate_moving_average_square_(v, g, 0.999)
    x = updates.adam_updater(m, v, time_step=counter, beta1=0.9, beta2=0.999, epsilon=1e-8)
    one = popsr.constant(1.0, popsr.float32)
    updates.adam_var_update(w, x, one, one, 0.01)


def adam(p: Program) -> None:
    w, m, v, g = p.large.values()
    update(w, m, v, g, p.counter)


def matrix_of_one(p: Program) -> popsr.Tensor:
    """A large value that an operand of one element, of a greater rank, goes into."""
    row = p.large["m"].reshape((1, -1))
    return (ops.tanh(row) + popsr.constant([[0.5]], p.dtype)).reshape((-1,))


STEPS: dict[str, Step] = {
    "adam": adam,
    "momentum": lambda p: (
        ops.scaled_add_(p.large["m"], p.large["g"], 0.9, 1.0),
        ops.scaled_add_(p.large["w"], p.large["m"], b=-0.1),
    ),
    "a copy back": lambda p: updates.copy_var_update_(p.large["w"], p.large["w"] - p.large["g"] * 0.1),
    "a temporary that is read twice": lambda p: ops.add_(
        p.large["w"], (t := p.large["m"] * p.large["v"]) + t * 0.5
    ),
    "casts": lambda p: ops.add_(p.large["m"], ops.cast(ops.cast(p.large["g"], popsr.float16) * 0.5, p.dtype)),
    "where": lambda p: ops.add_(
        p.large["v"], ops.where(ops.greater(p.large["m"], p.large["g"]), p.large["g"], p.large["w"])
    ),
    "a mean": lambda p: updates.accumulate_mean_(p.large["m"], p.large["g"], p.counter),
    "functions": lambda p: ops.add_(p.large["w"], ops.tanh(ops.exp(p.large["m"]) * 0.1)),
    "a matrix of one element": lambda p: ops.add_(
        p.large["w"], p.large["g"] * popsr.constant([[[0.5]]], p.dtype).reshape((1,)) + matrix_of_one(p)
    ),
    "count": lambda p: ops.add_(p.counter, p.factor),
    "a factor": lambda p: updates.accumulate_(p.large["w"], p.large["g"], p.factor),
    "another factor": lambda p: updates.accumulator_scale_(p.factor, 0.5),
    "random numbers": lambda p: ops.add_(
        p.large["w"], ops.dropout(p.large["g"], popsr.constant([1, 2], popsr.uint32), p=0.5)
    ),
    "a sum": lambda p: ops.add_(p.factor, ops.cast(ops.mean(p.large["w"]), popsr.float32)),
    "rows": lambda p: ops.add_(p.large["w"], p.large["w"][0:1]),
}


def program(steps: list[str], dtype: str, **how: Any) -> Program:
    p = Program(DTYPES[dtype], **how)
    with p.ir.main_graph, popsr.in_sequence():
        for step in steps:
            STEPS[step](p)
    return p


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_update_is_one_instruction(dtype: str) -> None:
    p = program(["adam"], dtype)
    chain = "accumulate_moving_average_+accumulate_moving_average_square_+adam_updater+adam_var_update"
    assert chain in p.plan
    p.assert_unchanged()


def test_temporaries_have_no_memory_of_their_own() -> None:
    p = program(["a copy back"], "float32")
    assert "mul+sub+copy_var_update_" in p.plan
    with popsr.Session(p.ir, num_threads=1) as session:
        planned = session.memory()["activations"]
    with popsr.Session(p.ir, num_threads=1, optimise=False) as session:
        apart = session.memory()["activations"]
    assert planned < 4 * N < apart


@pytest.mark.parametrize(
    ("steps", "how"),
    [
        (["adam"], {"count": 1000}),  # small operands stay in a cache
        (["a copy back"], {"count": 50_000}),
        (["rows"], {}),
        (["a sum"], {}),
    ],
    ids=["small", "less than a cache", "broadcast", "reduction"],
)
def test_others_run_by_themselves(steps: list[str], how: dict[str, int]) -> None:
    p = program(steps, "float32", **how)
    assert "+" not in p.plan
    p.assert_unchanged()


def test_a_counter_that_is_read_ends_the_slices() -> None:
    p = program(["adam", "a mean"], "float32")
    assert "adam_var_update+accumulate_mean_" not in p.plan
    p.assert_unchanged()


def test_replicas_that_differ_run_by_themselves() -> None:
    ir = popsr.Ir(replication=2)
    with ir.main_graph, popsr.in_sequence():
        values = np.random.default_rng(0).standard_normal((2, N)).astype(np.float32)
        w = popsr.variable(values, popsr.float32, "w", replica_grouping=ir.replica_grouping(group_size=1))
        updates.copy_var_update_(w, w * 0.5 - 1.0)
    found = []
    for optimise in (True, False):
        with popsr.Session(ir, optimise=optimise) as session:
            session.run()
            found.append(session.get_tensor_data(w))
    assert_same_bits(found[0], found[1], "w")


def test_updates_in_a_loop() -> None:
    p = Program(popsr.bfloat16)
    with p.ir.main_graph, popsr.in_sequence():

        def body(refs: list[popsr.TensorByRef]) -> None:
            w, m, v, g, counter = refs
            update(w, m, v, g, counter)

        held = [*p.large.values(), p.counter]
        ops.repeat(p.ir.create_graph(body, held), 3, held)
    assert "adam_updater+adam_var_update" in p.plan
    p.assert_unchanged()


def halve(w: popsr.TensorByRef) -> None:
    updates.copy_var_update_(w, w * 0.5)


def test_ops_before_a_loop_stay_before_it() -> None:
    """One of them was moved into the loop."""
    p = Program(popsr.float32)
    with p.ir.main_graph, popsr.in_sequence():
        adam(p)
        ops.repeat(p.ir.create_graph(halve, p.large["w"]), 2, p.large["w"])
    p.assert_unchanged()


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=6),
    st.sampled_from(sorted(DTYPES)),
    st.sampled_from([N, 262_144, 700_000]),
)
def test_random_updates_keep_every_bit(steps: list[str], dtype: str, count: int) -> None:
    program(steps, dtype, replicas=1 if count == N else 2, count=count).assert_unchanged()


@pytest.mark.parametrize("count", [4, 1024, 1025, 3000])
def test_a_long_chain_takes_no_more_memory_than_a_short_one(count: int) -> None:
    """Each value of it lives until the next one only, whether or not it lies in slices."""

    def chain(length: int) -> tuple[Array, int]:
        ir = popsr.Ir()
        with ir.main_graph, popsr.in_sequence():
            w = popsr.variable(np.linspace(-1, 1, count, dtype=np.float32))
            x: popsr.Tensor = w
            for _ in range(length):
                x = ops.tanh(x) + w
            out = popsr.d2h_stream((count,), popsr.float32)
            ops.host_store(out, x)
        with popsr.Session(ir, num_threads=2) as session, popsr.Session(ir, optimise=False) as plain:
            result = session.run()[out]
            assert_same_bits(result, plain.run()[out])
            return result, session.memory()["activations"]

    _, short = chain(300)
    _, long = chain(1500)
    assert long <= short
