"""Stochastic rounding: unbiased, exact where it can be, only between neighbours; seeds, modes and switches."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import StochasticRoundingMethod, errors, ops, transforms
from popsr._program.options.options import RoundingMode
from popsr.ops import collectives, var_updates
from tests_py.support.helpers import Array, Streams, assert_same_bits, make_variable, np_dtype
from tests_py.support.oracles.ops import round_once
from tests_py.support.unchecked import unchecked

NARROW = ("float16", "bfloat16")


def neighbours(exact: Array, name: str) -> tuple[Array, Array]:
    """The values of the dtype next to float64 numbers, below and above; equal where exact."""
    nearest = round_once(exact, name)
    wide = nearest.astype(np.float64)
    as_ints = nearest.view(np.int16).astype(np.int32)
    away = np.where((wide < exact) == (wide > 0), 1, -1)  # for numbers that are not zero
    other = (as_ints + away).astype(np.int16).view(np_dtype(name)).astype(np.float64)
    other = np.where(wide == exact, wide, other)
    return np.minimum(wide, other), np.maximum(wide, other)


def rounded(build: Any, *arrays: Array, seed: int = 0, runs: int = 1, **options: Any) -> list[Array]:
    """Results of ``build`` with stochastic rounding, one a run."""
    ir = popsr.Ir()
    ir.options.enable_stochastic_rounding = True
    io = Streams()
    with ir.main_graph, popsr.in_sequence():
        io.fetch(build(*[io.feed(array) for array in arrays]))
    with popsr.Session(ir, seed=seed, **options) as session:
        return [io.run(session)[0] for _ in range(runs)]


CASTS = {"bfloat16": lambda x: ops.cast(x, popsr.bfloat16), "float16": lambda x: ops.cast(x, popsr.float16)}


@pytest.mark.parametrize("name", NARROW)
def test_only_neighbours(name: str) -> None:
    x = np.random.default_rng(0).standard_normal(20_000).astype(np.float32)
    got = rounded(CASTS[name], x)[0].astype(np.float64)
    low, high = neighbours(x.astype(np.float64), name)
    assert np.all((got == low) | (got == high))
    inexact = low != high
    assert np.mean(got[inexact] == low[inexact]) == pytest.approx(0.5, abs=0.02)


def _binomial_interval(n: int, p: float, error: float = 1e-9) -> tuple[int, int]:
    """Counts outside of which a binomial variable lies with a probability of at most ``error`` on each side."""

    def log_pmf(k: int) -> float:
        choose = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
        return choose + k * math.log(p) + (n - k) * math.log1p(-p)

    tail, low = 0.0, 0
    while (tail := tail + math.exp(log_pmf(low))) < error:
        low += 1
    tail, high = 0.0, n
    while (tail := tail + math.exp(log_pmf(high))) < error:
        high -= 1
    return low, high


@pytest.mark.parametrize("name", NARROW)
@pytest.mark.parametrize("sixteenths", [1, 4, 8, 13])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_chances_are_distances(name: str, sixteenths: int, sign: float) -> None:
    spacing = 2.0 ** (-7 if name == "bfloat16" else -10)
    n, p = 40_000, sixteenths / 16
    x = np.full(n, sign * (1 + p * spacing), np.float32)
    away = int(np.sum(np.abs(rounded(CASTS[name], x, seed=5)[0].astype(np.float64)) > 1))
    low, high = _binomial_interval(n, p)
    assert low <= away <= high


def test_updates_are_unbiased() -> None:
    """bf16 weights and steps of 1/20 of their spacing: to nearest nothing moves, stochastically the mean is right."""
    n, steps, p = 4096, 40, 0.05
    step = p * 2.0**-7
    results = {}
    for stochastic in (False, True):
        ir = popsr.Ir()
        ir.options.enable_stochastic_rounding = stochastic
        with ir.main_graph, popsr.in_sequence():
            w = make_variable(np.ones(n, np_dtype("bfloat16")), "w")
            var_updates.accumulate_(w, popsr.constant(np.full(n, step, np.float32)))
        with popsr.Session(ir, seed=3) as session:
            for _ in range(steps):
                session.run()
            results[stochastic] = session.get_tensor_data(w).astype(np.float64)
    assert np.all(results[False] == 1)
    # Each step moves one spacing up with chance p, exactly: sums are rounded once. The count is binomial.
    moves = int(np.sum((results[True] - 1) * 128))
    low, high = _binomial_interval(n * steps, float(np.float32(step)) * 128)
    assert low <= moves <= high


def test_every_element_and_run_draws_for_itself() -> None:
    x = np.full(50_000, 1 + 2.0**-8, np.float32)
    first, second = (made.astype(np.float64) > 1 for made in rounded(CASTS["bfloat16"], x, runs=2))
    for a, b in (
        (first, second),
        (first[1:], first[:-1]),
        (first[8:], first[:-8]),
        (first[4096:], first[:-4096]),
    ):
        low, high = _binomial_interval(len(a), 0.5)
        assert low <= int(np.sum(a == b)) <= high


def test_ops_draw_for_themselves() -> None:
    def build(x: popsr.Tensor) -> popsr.Tensor:
        return ops.sub(ops.cast(x, popsr.bfloat16), ops.cast(x, popsr.bfloat16))

    x = np.full(10_000, 1 + 2.0**-8, np.float32)
    differing = int(np.sum(rounded(build, x)[0].astype(np.float64) != 0))
    low, high = _binomial_interval(len(x), 0.5)
    assert low <= differing <= high


def test_iterations_and_calls_draw_for_themselves() -> None:
    def body(total: popsr.Tensor, x: popsr.Tensor) -> popsr.Tensor:
        return ops.add(total, ops.cast(ops.cast(x, popsr.bfloat16), popsr.float32))

    def repeated(total: popsr.Tensor, x: popsr.Tensor) -> popsr.Tensor:
        return ops.repeat(popsr.gir().create_graph(body, total, x), 2, total, x)[0]

    def called(total: popsr.Tensor, x: popsr.Tensor) -> popsr.Tensor:
        graph = popsr.gir().create_graph(body, total, x)
        return ops.call(graph, ops.call(graph, total, x)[0], x)[0]

    x = np.full(10_000, 1 + 2.0**-8, np.float32)
    for build in (repeated, called):
        twice = rounded(build, np.zeros_like(x), x)[0]
        differing = int(np.sum(twice == 2 + 2.0**-7))
        low, high = _binomial_interval(len(x), 0.5)
        assert low <= differing <= high


@pytest.mark.parametrize("name", NARROW)
def test_exact_results_never_move(name: str) -> None:
    from tests_py.ops.rows import inputs as op_inputs

    values = op_inputs.specials(name)
    wide = values.astype(np.float32)
    for seed in range(20):
        assert_same_bits(rounded(CASTS[name], wide, seed=seed)[0], values)
    ints = np.arange(-128, 128).astype(np_dtype(name))
    with_ints = rounded(lambda x: ops.sub(ops.add(x, x), x), ints, seed=1)[0]
    assert_same_bits(with_ints, ints)


def test_data_movement_and_wide_types_are_not_rounded() -> None:
    ir = popsr.Ir()
    ir.options.enable_stochastic_rounding = True
    with ir.main_graph:
        x = popsr.constant(np.ones((2, 2)), popsr.bfloat16)
        for result in (ops.transpose(x), ops.relu(x), ops.maximum(x, x), ops.cast(x, popsr.float32)):
            assert result.shape
        ops.add(popsr.constant(1.0), popsr.constant(2.0))
        ops.add(x, x)
    popsr.Session(ir)
    methods = {op.kind: op.stochastic_rounding_method for op in ir.main_graph.ops}
    rounding = {str(op.kind) for op in ir.main_graph.ops if op.stochastic_rounding_method is not None}
    assert rounding == {"add"}
    assert methods["transpose"] is None
    assert [op.seed_partition is None for op in ir.main_graph.ops if op.kind == "add"] == [True, False]


# Seeds and modes


def _groups(mode: RoundingMode, **options: Any) -> tuple[popsr.Ir, Array]:
    """Masks of the elements that 4 replicas round up: from a variable, a grouped variable and a stream."""
    ir = popsr.Ir(replication=4)
    ir.options.enable_stochastic_rounding = True
    ir.options.stochastic_rounding_mode = mode
    data = np.full(2000, 1 + 2.0**-8, np.float32)
    other = np.append(data[:-1], np.float32(1))  # rows that are all equal would start as one
    with ir.main_graph, popsr.in_sequence():
        stream = popsr.h2d_stream((2000,), popsr.float32)
        grouping = ir.replica_grouping(1, 2)
        inputs = [
            make_variable(data),
            make_variable(np.stack([data, other]), replica_grouping=grouping),
            ops.host_load(stream),
        ]
        outputs = []
        for tensor in inputs:
            outputs.append(popsr.d2h_stream((2000,), popsr.bfloat16))
            ops.host_store(outputs[-1], ops.cast(tensor, popsr.bfloat16))
    with popsr.Session(ir, seed=1, **options) as session:
        made = session.run({stream: np.stack([data] * 4)})
    return ir, np.stack([made[output][:, :-1].astype(np.float32) for output in outputs])


def _casts(ir: popsr.Ir) -> list[Any]:
    return [op for op in ir.main_graph.ops if op.kind == "cast"]


def test_partition_mode() -> None:
    ir, got = _groups("partition")
    same = [[bool(np.array_equal(got[i, 0], got[i, r])) for r in range(4)] for i in range(3)]
    assert same == [[True] * 4, [True, True, False, False], [True, False, False, False]]
    assert [str(op.seed_partition) for op in _casts(ir)] == ["{0,1,2,3}", "{0,1}{2,3}", "{0}{1}{2}{3}"]
    identical, differing = StochasticRoundingMethod.IdenticalSeeds, StochasticRoundingMethod.DifferingSeeds
    assert [op.stochastic_rounding_method for op in _casts(ir)] == [identical, differing, differing]
    # Replicas of different blocks are independent: about half of the elements agree.
    assert np.mean(got[2, 0] == got[2, 3]) == pytest.approx(0.5, abs=0.08)


def test_identical_mode() -> None:
    ir, got = _groups("identical")
    assert all(np.array_equal(got[i, 0], got[i, r]) for i in range(3) for r in range(4))
    assert {op.stochastic_rounding_method for op in _casts(ir)} == {StochasticRoundingMethod.IdenticalSeeds}


@pytest.mark.parametrize("mode", ["partition", "popart", "identical"])
def test_modes_keep_facts_and_bits(mode: RoundingMode) -> None:
    ir, got = _groups(mode)
    for options in ({"dedup": False}, {"check": True}):
        assert_same_bits(_groups(mode, **options)[1], got)
    facts = popsr.analysis.analyze(ir)
    assert [str(facts.partition(op.outputs[0])) for op in _casts(ir)] == [
        "{0,1,2,3}",
        "{0,1}{2,3}",
        "{0}{1}{2}{3}",
    ]


def test_collective_results_round_alike() -> None:
    ir = popsr.Ir(replication=4)
    ir.options.enable_stochastic_rounding = True
    io = Streams()
    data = np.random.default_rng(0).standard_normal((4, 500)).astype(np_dtype("bfloat16"))
    with ir.main_graph, popsr.in_sequence():
        x = io.feed(data, replicated=True)
        io.fetch(collectives.replicated_all_reduce(x, "mean"))
        io.fetch(collectives.replicated_all_reduce(x, "add", ir.replica_grouping(2, 2)))
    with popsr.Session(ir) as session:
        mean, pairs = (array.astype(np.float32) for array in io.run(session))
    assert all(np.array_equal(mean[0], mean[r]) for r in range(4))
    assert np.array_equal(pairs[0], pairs[2])
    assert np.array_equal(pairs[1], pairs[3])


# Switches


def _moves(ir: popsr.Ir, **options: Any) -> list[bool]:
    """For each bf16 cast of a value between two neighbours: true if it rounds both ways."""
    casts = _casts(ir)
    with ir.main_graph, popsr.in_sequence():
        outputs = [popsr.d2h_stream(op.outputs[0].shape, popsr.bfloat16) for op in casts]
        for output, op in zip(outputs, casts, strict=True):
            ops.host_store(output, op.outputs[0])
    with popsr.Session(ir, **options) as session:
        made = session.run()
    return [len(np.unique(made[output].astype(np.float32))) == 2 for output in outputs]


def _between() -> popsr.Tensor:
    return popsr.constant(np.full(100, 1 + 2.0**-8, np.float32))


def test_region_without() -> None:
    ir = popsr.Ir()
    ir.options.enable_stochastic_rounding = True
    with ir.main_graph, popsr.in_sequence():
        x = _between()
        ops.cast(x, popsr.bfloat16)
        with popsr.stochastic_rounding(False):
            ops.cast(x, popsr.bfloat16)
            with popsr.stochastic_rounding(True):
                ops.cast(x, popsr.bfloat16)
        ops.cast(x, popsr.bfloat16)
    assert _moves(ir) == [True, False, True, True]


def test_off_by_default() -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        ops.cast(_between(), popsr.bfloat16)
    assert _moves(ir) == [False]
    assert unchecked(ir.main_graph.ops[0]).stochastic_rounding_method is None


def test_option_names() -> None:
    options: Any = popsr.Ir().options
    assert unchecked(options).enable_stochastic_rounding is False
    options.enableStochasticRounding = True
    assert options.enable_stochastic_rounding is True
    assert options.enableStochasticRounding is True
    with pytest.raises(AttributeError, match="unknown option"):
        options.enable_stochastic_roundin = True
    with pytest.raises(ValueError, match="unknown stochastic_rounding_mode"):
        options.stochastic_rounding_mode = "other"
    for seed in (-1, 2**64):
        with pytest.raises(ValueError, match="seed"):
            options.seed = seed
    with pytest.raises(TypeError, match=r"seed is not an int, got 1\.5"):
        options.seed = 1.5  # type: ignore[assignment]
    options.seed = 2**64 - 1


def test_transform_runs_last() -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        ops.cast(_between(), popsr.bfloat16)
    with pytest.raises(errors.GraphError, match="enable_stochastic_rounding is off, got False"):
        transforms.stochastic_rounding(ir)
    assert unchecked(ir.main_graph.ops[0]).stochastic_rounding_method is None
    ir.options.enable_stochastic_rounding = True
    transforms.stochastic_rounding(ir)
    before = str(ir)
    transforms.stochastic_rounding(ir)
    assert str(ir) == before
    assert ir.main_graph.ops[0].stochastic_rounding_method is StochasticRoundingMethod.IdenticalSeeds
    popsr.Session(ir)
    with ir.main_graph:
        ops.cast(_between(), popsr.bfloat16)
    with pytest.raises(
        errors.GraphError, match=r"cast: op has no seed rule.*expected the transform to run last"
    ):
        popsr.Session(ir)
    transforms.stochastic_rounding(ir)
    assert _moves_of_all(ir)
    ir.options.enable_stochastic_rounding = False
    with pytest.raises(errors.GraphError, match="op has a seed rule while stochastic rounding is off"):
        popsr.Session(ir)


def _moves_of_all(ir: popsr.Ir) -> bool:
    return all(op.seed_partition is not None for op in _casts(ir)) and bool(popsr.Session(ir))
