"""float8 in programs: run-time scales, rounding, moving, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import popsr
from popsr import errors, ops, transforms
from popsr.ops import collectives, var_updates
from tests_py.ops.rows.float8 import scaled_product
from tests_py.support.helpers import FLOAT8, Array, Streams, assert_same_bits, dtype, np_dtype
from tests_py.support.oracles.float8 import from_float8, values
from tests_py.support.oracles.ops import round_once

F8, F8W = popsr.float8_143, popsr.float8_152
RNG = np.random.default_rng(3)
NUMBERS = (RNG.standard_normal((3, 50)) * 4).astype(np.float32)


# Scales that only the run knows


def _emit(op: str, scale: popsr.Tensor) -> popsr.Tensor:
    """One of the ops with that scale."""
    f8 = popsr.constant(NUMBERS[:, :3], F8)
    if op == "pow2scale_cast_to_fp8":
        return ops.pow2scale_cast_to_fp8(popsr.constant(NUMBERS), scale, F8)
    if op == "pow2scale_cast_from_fp8":
        return ops.pow2scale_cast_from_fp8(f8, scale, popsr.float32)
    return ops.matmul_pow2scaled(f8, f8, scale)


OPS = ("pow2scale_cast_to_fp8", "pow2scale_cast_from_fp8", "matmul_pow2scaled")


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.filterwarnings("ignore::popsr.ReplicaWarning")  # each replica has a scale of its own
def test_scales_out_of_range_are_errors_before_anything_is_written(op: str, threads: int) -> None:
    ir = popsr.Ir(replication=2)
    with ir.main_graph, popsr.in_sequence():
        stream = popsr.h2d_stream((), popsr.int32)
        result = _emit(op, ops.host_load(stream))
        v = popsr.variable(np.zeros(result.shape, result.dtype.as_ml_dtypes()))
        before = popsr.variable(np.float32(0))
        ops.add_(before, popsr.constant(np.float32(1)))
        var_updates.copy_var_update_(v, result)
    with popsr.Session(ir, num_threads=threads) as session:
        for bad in (32, -33, 2**31 - 1, -(2**31)):
            with pytest.raises(errors.AttributeValueError) as caught:
                session.run({stream: np.array([3, bad], np.int32)})  # on one replica alone
            assert str(caught.value) == f"{op}: log2_scale is out of range, got {bad}, expected -32 to 31"
            (note,) = caught.value.__notes__
            assert note.startswith(f"while running {op}(")
            assert not np.any(session.get_tensor_data(v).view(np.uint8)), "the next op did not run"
        for good in (31, -32):
            session.run({stream: np.array([0, good], np.int32)})
        assert np.any(session.get_tensor_data(v).view(np.uint8))


def test_only_replicas_that_take_part_need_a_good_scale() -> None:
    ir = popsr.Ir(replication=2)
    with ir.main_graph, popsr.in_sequence():
        stream, taken = popsr.h2d_stream((), popsr.int32), popsr.h2d_stream((), popsr.bool)
        scale = ops.host_load(stream)
        f8 = popsr.constant(NUMBERS, F8)

        def convert(t: popsr.Tensor, s: popsr.Tensor) -> popsr.Tensor:
            return ops.pow2scale_cast_from_fp8(t, s, popsr.float16)

        def zeros() -> popsr.Tensor:
            return ops.init(NUMBERS.shape, popsr.float16)

        branches = ir.create_graph(convert, f8, scale), ir.create_graph(zeros)
        ops.conditional(ops.host_load(taken), *branches, [f8, scale])
    with popsr.Session(ir) as session:
        bad = np.array([0, 99], np.int32)
        session.run({stream: bad, taken: np.array([True, False])})
        with pytest.raises(errors.AttributeValueError, match="got 99"):
            session.run({stream: bad, taken: np.array([False, True])})


@pytest.mark.parametrize(
    "alias", ["throw_if_log2_scale_tensor_not_in_range", "throwIfLog2ScaleTensorNotInRange"]
)
def test_the_option_clamps_scales(alias: str) -> None:
    def results(scale: int) -> list[Array]:
        ir = popsr.Ir()
        io = Streams()
        with ir.main_graph:
            for op in OPS:
                io.fetch(_emit(op, popsr.constant(scale, popsr.int32)))
        assert getattr(ir.options, alias) is True
        setattr(ir.options, alias, False)  # read when the session is made
        with popsr.Session(ir) as session:
            return io.run(session)

    for given, clamped in ((32, 31), (2**31 - 1, 31), (-33, -32), (-(2**31), -32), (5, 5)):
        for got, expect in zip(results(given), results(clamped), strict=True):
            assert_same_bits(got, expect)
    assert not np.array_equal(results(31)[1], results(30)[1])


def test_the_option_is_a_bool() -> None:
    options: Any = popsr.Ir().options
    with pytest.raises(
        errors.ArgumentTypeError, match="throw_if_log2_scale_tensor_not_in_range is not a bool, got 1"
    ):
        options.throwIfLog2ScaleTensorNotInRange = 1


def test_a_scale_per_replica_in_one_stacked_product() -> None:
    """Replicas share the right operand: one product of all rows, and each row has its replica's scale."""
    ir = popsr.Ir(replication=4)
    io = Streams()
    lhs = RNG.standard_normal((4, 9, 30)).astype(np_dtype("float8_152"))
    rhs = RNG.standard_normal((30, 7)).astype(np_dtype("float8_143"))
    scales = np.array([0, -3, 4, -32], np.int32)
    with ir.main_graph:
        a, s = io.feed(lhs, replicated=True), io.feed(scales, replicated=True)
        io.fetch(ops.matmul_pow2scaled(a, popsr.constant(rhs, F8), s))
    with popsr.Session(ir) as session:
        got = io.run(session)[0]
    for r in range(4):
        assert_same_bits(got[r], round_once(scaled_product(lhs[r], rhs, scales[r]), "float16"))


# Rounding


@pytest.mark.parametrize("name", FLOAT8)
def test_the_op_is_the_host_function(name: str) -> None:
    """Every float16 and random numbers of the other types, in one op and with the same bits."""
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16)
    wide = np.ldexp(RNG.standard_normal(2**16), RNG.integers(-25, 20, 2**16))
    for x in (halves, wide.astype(np.float32), wide, wide.astype(np_dtype("bfloat16"))):
        for scale in (-8, 0, 5):
            ir = popsr.Ir()
            io = Streams()
            with ir.main_graph:
                s = popsr.constant(scale, popsr.int32)
                there = ops.pow2scale_cast_to_fp8(io.feed(x), s, dtype(name))
                io.fetch(there)
                io.fetch(
                    ops.pow2scale_cast_from_fp8(
                        there, ops.sub(popsr.constant(0, popsr.int32), s), popsr.float64
                    )
                )
            with popsr.Session(ir) as session:
                there_data, back = io.run(session)
            expect = popsr.fp8_utils.host_pow2scale_cast_to_fp8(x, dtype(name), scale)
            assert_same_bits(there_data, expect)
            assert_same_bits(
                back, popsr.fp8_utils.host_pow2scale_cast_from_fp8(expect, popsr.float64, -scale)
            )


@pytest.mark.parametrize("name", FLOAT8)
def test_stochastic_rounding_gives_neighbours_and_is_unbiased(name: str) -> None:
    table = np.unique(values(name)[np.isfinite(values(name))])
    x = np.repeat(np.array([1.03125, -0.0703125, 100.0, 3 * table[table > 0][0] / 8], np.float32), 20000)
    ir = popsr.Ir()
    ir.options.enable_stochastic_rounding = True
    io = Streams()
    with ir.main_graph:
        io.fetch(ops.pow2scale_cast_to_fp8(io.feed(x), popsr.constant(0, popsr.int32), dtype(name)))
    with popsr.Session(ir, seed=4) as session:
        got = from_float8(io.run(session)[0])
        again = from_float8(io.run(session)[0])
    above = np.searchsorted(table, x.astype(np.float64))
    low, high = table[above - 1], table[above]
    exact = table[np.minimum(above, len(table) - 1)] == x
    assert np.all((got == low) | (got == high) | (exact & (got == x)))
    assert not np.array_equal(got, again), "each run draws anew"
    for part, mean in zip(x.reshape(4, -1), got.reshape(4, -1).mean(axis=1), strict=True):
        spread = (high - low).reshape(4, -1)[np.flatnonzero(x[::20000] == part[0])[0], 0]
        assert abs(mean - part[0]) < 5 * spread * 0.5 / np.sqrt(20000)


def test_stochastic_rounding_keeps_what_is_exact() -> None:
    ir = popsr.Ir()
    ir.options.enable_stochastic_rounding = True
    io = Streams()
    exact = {name: values(name).astype(np.float32) for name in FLOAT8}
    with ir.main_graph:
        for name, x in exact.items():
            io.fetch(ops.pow2scale_cast_to_fp8(io.feed(x), popsr.constant(0, popsr.int32), dtype(name)))
    with popsr.Session(ir) as session:
        for name, got in zip(exact, io.run(session), strict=True):
            numbers = ~np.isnan(exact[name])
            assert np.array_equal(got.view(np.uint8)[numbers], np.arange(256)[numbers]), name
            assert np.all(np.isnan(from_float8(got)[~numbers])), name


def test_the_scaled_product_is_rounded_stochastically() -> None:
    ir = popsr.Ir()
    ir.options.enable_stochastic_rounding = True
    io = Streams()
    a = np.full((1, 2), 1.0, np.float32)
    b = np.stack([np.full(9999, 1.0), np.full(9999, 2.0**-10 * 0.25)]).astype(np.float32)
    with ir.main_graph:
        s = popsr.constant(0, popsr.int32)
        io.fetch(ops.matmul_pow2scaled(popsr.constant(a, F8W), popsr.constant(b, F8W), s))
    with popsr.Session(ir) as session:
        got = io.run(session)[0]
    assert set(np.unique(got).tolist()) == {1.0, 1.0 + 2.0**-10}
    assert np.mean(got > 1) == pytest.approx(0.25, abs=0.02)


# Data movement and what is refused


def test_float8_moves_between_replicas_and_in_loops() -> None:
    ir = popsr.Ir(replication=2)
    io = Streams()
    data = np.arange(8, dtype=np.uint8).reshape(2, 4).view(np_dtype("float8_143"))
    with ir.main_graph, popsr.in_sequence():
        x = io.feed(data, replicated=True)
        gathered = collectives.replicated_all_gather(x)
        buffer = popsr.remote_buffer((4,), F8, 2)
        ops.remote_store(buffer, 1, gathered[4:])

        def swap(t: popsr.Tensor) -> popsr.Tensor:
            return ops.concat([t[4:], t[:4]])

        io.fetch(ops.repeat(ir.create_graph(swap, gathered), 3, gathered)[0])
        io.fetch(ops.remote_load(buffer, 1))
    with popsr.Session(ir) as session:
        swapped, stored = io.run(session)
    assert swapped.view(np.uint8).tolist() == [[4, 5, 6, 7, 0, 1, 2, 3]] * 2
    assert stored.view(np.uint8).tolist() == [[4, 5, 6, 7]] * 2


def test_autodiff_refuses_float8_in_the_middle() -> None:
    ir = popsr.Ir()

    def loss(x: popsr.Tensor, w: popsr.Tensor, s: popsr.Tensor) -> popsr.Tensor:
        return ops.sum(ops.matmul_pow2scaled(ops.pow2scale_cast_to_fp8(x, s, F8), w, s))

    graph = ir.create_graph(
        loss,
        popsr.TensorSpec((2, 3), popsr.float16),
        popsr.TensorSpec((3, 2), F8W),
        popsr.TensorSpec((), popsr.int32),
    )
    for i, op in enumerate(("pow2scale_cast_to_fp8", "matmul_pow2scaled")):
        with pytest.raises(errors.GraphError, match=f"{op} has no gradient"):
            transforms.autodiff(graph, grads_required=[graph.inputs[i]])
