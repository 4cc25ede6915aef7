"""Updates of variables beside their rows: powers, rounding, folded products, sparse updates, helpers."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

import popsr
from popsr import errors, ops
from popsr.ops import var_updates
from tests_py.support.helpers import Streams, assert_same_bits, evaluate, make_variable, np_dtype, rows
from tests_py.support.oracles import ops as oracles

F32 = popsr.float32

# Rounding and powers


@pytest.mark.parametrize("name", ["float32", "float64"])
def test_powers_are_right(name: str) -> None:
    """AdaMax with v + eps = 1 gives m / (1 - beta^t)."""
    kind = np_dtype(name).type
    with np.errstate(all="ignore"):
        for beta in (0.9, 0.99, 0.999, 0.9999, 0.5, 0.0, 1.0):
            for t in (1, 2, 3, 7, 100, 1000, 4097, 123_457):

                def build(m: popsr.Tensor, v: popsr.Tensor, beta: float = beta, t: int = t) -> popsr.Tensor:
                    counter = make_variable(np.array(t - 1, np.int32), "t")
                    return var_updates.adamax_updater(m, v, None, counter, None, beta, 1.0)

                (got,) = evaluate(build, [np.ones(1, name), np.zeros(1, name)])
                exact = 1 - Fraction(float(kind(beta))) ** t
                expect = np.inf if exact == 0 else float(1 / exact)
                if not np.isfinite(expect):
                    assert np.isinf(got[0])
                    continue
                # beta^t is off by half a unit of float32, or as if beta were off by one of float64.
                power = float(1 - exact)
                off = power * 2.0**-24 if name == "float32" else power * (t + 1) * 2.0**-52
                last = 2.0 ** -(oracles.PRECISION[name] - 2)
                assert abs(float(got[0]) / expect - 1) <= off * expect + last, (beta, t)


def test_broken_time_steps_have_their_power() -> None:
    def build(m: popsr.Tensor, v: popsr.Tensor, t: popsr.Tensor) -> popsr.Tensor:
        return var_updates.adamax_updater(m, v, None, t, None, 0.9, 1.0)

    one, none = np.ones(1), np.zeros(1)
    for t in (-0.5, 1.25, -3.0):
        (got,) = evaluate(build, [one, none, np.array(t)])
        np.testing.assert_allclose(got, 1 / (1 - 0.9 ** (t + 1)), rtol=1e-13)


def test_a_counter_that_is_full() -> None:
    """A float32 counts to 2^24; steps go on without correction."""
    ir, io = popsr.Ir(), Streams()
    with ir.main_graph, popsr.in_sequence():
        m, v = io.feed(np.full(2, 3.0, np.float32)), io.feed(np.full(2, 4.0, np.float32))
        t = make_variable(np.array(2.0**24, np.float32))
        io.fetch(var_updates.adam_updater(m, v, None, t, None, 0.9, 0.999, 0.5))
    with popsr.Session(ir) as session:
        assert io.run(session)[0].tolist() == [np.float32(3) / np.float32(2.5)] * 2
        assert session.get_tensor_data(t) == 2.0**24


@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_steps_are_rounded_to_both_neighbours_and_right_on_average(name: str) -> None:
    n = 4000
    eps = 2.0 ** -oracles.PRECISION[name]  # half a unit at 1
    cases: dict[str, tuple[Callable[..., popsr.Tensor], float]] = {
        "adam_updater": (
            lambda t, x: var_updates.adam_updater(x, t, t, None, 1.0 + eps * 2**-1, epsilon=0.0),
            0.25,
        ),
        "adam_var_update": (lambda t, x: var_updates.adam_var_update(t, x, _one(), _one(), -eps / 2), 0.25),
        "accumulate_moving_average_": (lambda t, x: var_updates.accumulate_moving_average_(t, x, 0.5), 0.5),
        "accumulate_square_": (lambda t, x: var_updates.accumulate_square_(t, x, eps / 2), 0.25),
    }
    for op, (build, share) in cases.items():
        ir, io = popsr.Ir(), Streams()
        ir.options.enable_stochastic_rounding = True
        with ir.main_graph, popsr.in_sequence():
            t = make_variable(np.ones(n, np_dtype(name)))
            second = (
                1 + 2 * eps if op == "accumulate_moving_average_" else 0.0 if op == "adam_updater" else 1.0
            )
            x = io.feed(np.full(n, second, np.float32))
            io.fetch(build(t, x))
        with popsr.Session(ir, seed=5) as session:
            got = io.run(session)[0].astype(np.float64)
        assert set(np.unique(got)) == {1.0, 1 + 2 * eps}, op
        assert abs(np.mean(got > 1) - share) < 0.05, op


def _one() -> popsr.Tensor:
    return popsr.constant(1.0)


# Folded products


@pytest.mark.parametrize("name", ["float32", "float64", "bfloat16"])
def test_a_moving_average_of_a_product_is_folded(name: str) -> None:
    rng = np.random.default_rng(0)
    a, b, start = (
        rng.standard_normal(shape).astype(np_dtype(name)) for shape in ((40, 30), (30, 50), (40, 50))
    )
    results, plans = [], []
    for folded in (True, False):
        ir, io = popsr.Ir(), Streams()
        with ir.main_graph, popsr.in_sequence():
            t = make_variable(start)
            product = ops.matmul(io.feed(a), io.feed(b))
            var_updates.accumulate_moving_average_(t, product, 0.9)
            if not folded:
                io.fetch(product)
        with popsr.Session(ir) as session:
            io.run(session)
            results.append(session.get_tensor_data(t))
            plans.append("matmul+accumulate_moving_average_" in str(session.plan))
    assert_same_bits(results[0], results[1])
    assert plans == [True, False]


# Sparse updates


@pytest.mark.parametrize("stochastic", [False, True])
@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32"])
def test_untouched_elements_keep_their_bits(name: str, stochastic: bool) -> None:
    """NaN with any payload, and zeros with their sign."""
    ir, io = popsr.Ir(), Streams()
    ir.options.enable_stochastic_rounding = stochastic
    size = np_dtype(name).itemsize
    raw = np.random.default_rng(0).integers(0, 2 ** (8 * size), (9, 33), dtype=np.uint64).astype(f"u{size}")
    raw[0, :3] = [0, 1 << (8 * size - 1), (1 << (8 * size)) - 5]  # +0, -0, some NaN
    with ir.main_graph, popsr.in_sequence():
        t = make_variable(raw.view(np_dtype(name)))
        x = io.feed(np.ones((3, 33), np_dtype(name)))
        var_updates.sparse_accumulate_(t, x, popsr.constant([4, 7, 4], popsr.int32), f=0.1)
    with popsr.Session(ir) as session:
        io.run(session)
        after = session.get_tensor_data(t).view(raw.dtype)
    rest = [i for i in range(9) if i not in (4, 7)]
    assert np.array_equal(after[rest], raw[rest])
    assert not np.array_equal(after[4], raw[4])


@pytest.mark.parametrize("bad", [-1, 5, 2**31 - 1])
def test_indices_out_of_range(bad: int) -> None:
    ir, io = popsr.Ir(), Streams()
    with ir.main_graph, popsr.in_sequence():
        t = make_variable(np.zeros((5, 2), np.float32))
        indices = io.feed(np.array([0, bad], np.int32))
        var_updates.sparse_accumulate_(t, io.feed(np.ones((2, 2), np.float32)), indices)
    with popsr.Session(ir) as session:
        with pytest.raises(
            errors.OutOfRangeError,
            match=rf"^sparse_accumulate_: index is out of range, got {bad}, expected 0 <= index < 5",
        ):
            io.run(session)
        assert not np.any(session.get_tensor_data(t)), "nothing was written"


def test_a_weight_for_layout_has_no_influence() -> None:
    ir, io = popsr.Ir(replication=2), Streams()
    with ir.main_graph, popsr.in_sequence():
        t = make_variable(np.zeros((5, 2), np.float32))
        weight = io.feed(np.arange(20, dtype=np.float32).reshape(2, 5, 2), replicated=True)
        x = io.feed(np.ones((2, 2), np.float32))
        indices = popsr.constant([1, 1], popsr.int32)
        io.fetch(var_updates.sparse_accumulate_(t, x, indices, W=weight))
    assert popsr.analysis.analyze(ir).is_equal(t)
    with popsr.Session(ir, check=True) as session:
        assert rows(io.run(session)[0], 2)[:, 1].tolist() == [[2.0, 2.0]] * 2


def test_a_large_sparse_update_is_the_same_on_two_threads() -> None:
    rng = np.random.default_rng(0)
    start, x = (
        rng.standard_normal((300, 700)).astype(np.float32),
        rng.standard_normal((900, 700)).astype(np.float32),
    )
    indices = rng.integers(0, 300, 900).astype(np.int32)
    made = []
    for threads in (1, 2):
        ir, io = popsr.Ir(), Streams()
        with ir.main_graph, popsr.in_sequence():
            t = make_variable(start)
            var_updates.sparse_accumulate_(t, io.feed(x), io.feed(indices), f=0.3)
        with popsr.Session(ir, num_threads=threads) as session:
            io.run(session)
            made.append(session.get_tensor_data(t))
    assert_same_bits(made[0], made[1])
    expect = start.copy()
    for i, row in zip(indices, x, strict=True):
        expect[i] = expect[i] + np.float32(0.3) * row
    assert_same_bits(made[0], expect)


# Helpers of PopXL's modules


def test_when_a_weight_is_needed() -> None:
    with popsr.Ir().main_graph:
        tensor = popsr.constant(0.0)
    required = var_updates.weight_decay_is_required
    assert [required(each) for each in (None, 0, 0.0, 0.1, tensor)] == [False, False, False, True, True]


def test_scalars_as_ops_take_them() -> None:
    ins: dict[int, str] = {}
    with popsr.Ir().main_graph:
        tensor = popsr.constant(0.5, F32, "rate")
    handle = var_updates.handle_optimizer_value
    assert handle(0.25, ins, 3) == var_updates.OptimizerValue(0.25, True)
    assert handle(tensor, ins, 4) == handle(None, ins, 5) == var_updates.OptimizerValue(0.0, False)
    assert ins == {4: "rate"}
    with pytest.raises(
        errors.ArgumentTypeError, match=r"handle_optimizer_value: f is not a number, got str 'x'"
    ):
        handle("x", ins, 0)


def test_inputs_of_a_created_updater() -> None:
    ir = popsr.Ir()
    with ir.main_graph, popsr.in_sequence():
        m, t = make_variable(np.zeros(2, np.float32), "m"), make_variable(np.zeros((), np.float32), "t")
        rate = popsr.constant(0.9, F32, "beta")
        ins: dict[int, str] = {}
        x = var_updates.create_adamupdater(m, m, ins, "adam", m, t, 0.0, rate, 0.99)
        assert ins == {0: "m", 1: "m", 3: "t", 5: "beta"}  # no weight: nothing decays
        assert (x.shape, x.dtype) == ((2,), F32)
    (op,) = ir.main_graph.ops
    assert op.kind == "adam_updater"
    assert len(op.outputs) == 2


@pytest.mark.parametrize("decay", [None, 0.0, 0.5])
def test_dtype_of_a_step_is_that_of_the_weight_that_decays(decay: float | None) -> None:
    with popsr.Ir().main_graph:
        m, w = popsr.constant(np.ones(2), popsr.float16), popsr.constant(np.ones(2), popsr.bfloat16)
        for updater in (var_updates.adam_updater, var_updates.lamb_updater):
            assert updater(m, m, w, weight_decay=decay).dtype == (popsr.bfloat16 if decay else popsr.float16)
