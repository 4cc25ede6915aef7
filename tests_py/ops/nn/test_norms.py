"""Normalisation: the documented order of every operation bit by bit, gradients, invariances, errors."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import popsr
from popsr import errors, ops, transforms
from tests_py.session.test_determinism import cpu_has
from tests_py.support.helpers import (
    FLOATS,
    Array,
    Streams,
    assert_same_bits,
    evaluate,
    np_dtype,
    run_python,
)
from tests_py.support.oracles import ops as oracles
from tests_py.support.unchecked import unchecked

Attr, Shape, DType = errors.AttributeValueError, errors.ShapeError, errors.DTypeError
F32, F64, I32 = popsr.float32, popsr.float64, popsr.int32

# Shape and groups: rows around the 16 lanes, one and several elements a channel, several tiles of channels.
SHAPES = [
    ((5, 7), 1),
    ((9, 16), 2),
    ((6, 33), 3),
    ((70, 1300), 1),
    ((5, 1300), 13),
    ((3, 6, 5), 2),
    ((2, 4, 3, 17), 4),
    ((4, 2, 40, 50), 1),
    ((3, 40, 1, 1), 8),
]


def lane_sum(row: Array) -> Any:
    """Element i goes to lane i mod 16; lanes fold as a tree."""
    padded = np.full(-(-row.size // 16) * 16, -0.0, row.dtype)
    padded[: row.size] = row
    lanes = np.full(16, -0.0, row.dtype)
    for part in padded.reshape(-1, 16):
        lanes = lanes + part
    while lanes.size > 1:
        lanes = lanes[: lanes.size // 2] + lanes[lanes.size // 2 :]
    return lanes[0]


class Reference:
    """Forward and backward of one operand, in its compute type, from the documented formulas."""

    def __init__(self, t: Array, weight: Array, bias: Array, groups: int, eps: float) -> None:
        self.one = t.dtype.type
        self.shape, self.groups = t.shape, groups
        self.rows = t.reshape(t.shape[0] * groups, -1)
        n = self.one(self.rows.shape[1])
        self.mean = np.array([lane_sum(row) / n for row in self.rows])
        centred = self.rows - self.mean[:, None]
        variance = np.array([lane_sum(row * row) / n for row in centred])
        self.inverse = self.one(1) / np.sqrt(variance + self.one(eps))
        self.unit = centred * self.inverse[:, None]
        self.weight = weight.reshape(1, -1, *[1] * (t.ndim - 2))
        self.y = self.unit.reshape(t.shape) * self.weight + bias.reshape(self.weight.shape)

    def gradients(self, dy: Array) -> list[Array]:
        """Of the operand, the weight and the bias."""
        n = self.one(self.rows.shape[1])
        g = (dy * self.weight).reshape(self.rows.shape)
        plain = np.array([lane_sum(row) / n for row in g])[:, None]
        weighted = np.array([lane_sum(row) / n for row in g * self.unit])[:, None]
        dx = ((g - plain) - self.unit * weighted) * self.inverse[:, None]
        return [dx.reshape(self.shape), self._fold(dy * self.unit.reshape(self.shape)), self._fold(dy)]

    def _fold(self, terms: Array) -> Array:
        samples, channels = terms.shape[:2]
        rows = terms.reshape(samples, channels, -1)
        total = np.zeros(channels, terms.dtype)
        for sample in rows:
            total = total + (
                sample[:, 0] if sample.shape[1] == 1 else np.array([lane_sum(row) for row in sample])
            )
        return total


def draw(shape: tuple[int, ...], name: str, seed: int = 5) -> list[Array]:
    """An operand away from zero, weights and biases."""
    rng = np.random.default_rng(seed)
    t = (rng.standard_normal(shape) * 2 + 0.7).astype(np_dtype(name))
    weight, bias = (rng.standard_normal(shape[1]).astype(np_dtype(name)) for _ in range(2))
    return [t, weight, bias]


def wide(arrays: list[Array]) -> list[Array]:
    """Narrow floats as float32."""
    return [a.astype(oracles.compute_type(a.dtype.name)) for a in arrays]


def gradients(fn: Callable[..., popsr.Tensor], arrays: list[Array], dy: Array, **options: Any) -> list[Array]:
    """Of all operands."""
    ir, io = popsr.Ir(), Streams()
    with ir.main_graph, popsr.in_sequence():
        tensors = [io.feed(array) for array in arrays]
        graph = ir.create_graph(fn, *tensors)
        info = transforms.autodiff(graph, grads_required=graph.inputs)
        call = ops.call_with_info(graph, *tensors)
        for gradient in ops.call(info.graph, io.feed(dy), inputs_dict=info.inputs_dict(call)):
            io.fetch(gradient)
    with popsr.Session(ir, **options) as session:
        return io.run(session)


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize(("shape", "groups"), SHAPES)
def test_every_operation_is_the_documented_one(shape: tuple[int, ...], groups: int, name: str) -> None:
    arrays = draw(shape, name)
    dy = draw(shape, name, 6)[0]
    reference = unchecked(Reference)(*unchecked(wide(arrays)), groups, 1e-3)
    expect = [oracles.round_once(a, name) for a in (reference.y, *reference.gradients(wide([dy])[0]))]

    def norm(t: popsr.Tensor, weight: popsr.Tensor, bias: popsr.Tensor) -> popsr.Tensor:
        return ops.group_norm(t, weight, bias, groups, 1e-3)

    for threads in (1, 2):
        got = evaluate(norm, arrays, num_threads=threads) + gradients(norm, arrays, dy, num_threads=threads)
        for what, value, exact in zip(("y", "dt", "dweight", "dbias"), got, expect, strict=True):
            assert_same_bits(value, exact, f"{what}, {threads} threads")


def digest() -> str:
    """Of results and gradients of one and several elements a channel."""
    results: list[Array] = []
    for shape in ((70, 130), (4, 6, 37)):
        arrays, dy = draw(shape, "float32"), draw(shape, "float32", 6)[0]
        results += evaluate(ops.layer_norm, arrays) + gradients(ops.layer_norm, arrays, dy)
    return hashlib.sha256(b"".join(array.tobytes() for array in results)).hexdigest()


@pytest.mark.parametrize("level", ["v2", "v3", "v4"])
def test_same_bits_at_every_instruction_set(level: str) -> None:
    if not cpu_has(level):
        pytest.skip(f"this CPU has no {level}")
    got = run_python("from tests_py.ops.nn import test_norms; print(test_norms.digest())", POPSR_ISA=level)
    assert got.strip() == digest()


def test_layer_norm_is_group_norm_of_one_group() -> None:
    arrays = draw((6, 8, 5), "float32")
    dy = draw((6, 8, 5), "float32", 6)[0]

    def group(t: popsr.Tensor, weight: popsr.Tensor, bias: popsr.Tensor) -> popsr.Tensor:
        return ops.group_norm(t, weight, bias, 1, 0.5)

    def layer(t: popsr.Tensor, weight: popsr.Tensor, bias: popsr.Tensor) -> popsr.Tensor:
        return ops.layer_norm(t, weight, bias, 0.5)

    for a, b in zip(
        evaluate(group, arrays) + gradients(group, arrays, dy),
        evaluate(layer, arrays) + gradients(layer, arrays, dy),
        strict=True,
    ):
        assert_same_bits(a, b)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 9), st.integers(1, 40), st.integers(0, 8), st.sampled_from(FLOATS))
def test_a_row_does_not_depend_on_the_rows_beside_it(rows: int, channels: int, which: int, name: str) -> None:
    arrays = draw((rows, channels), name)
    which %= rows
    whole = evaluate(ops.layer_norm, arrays)[0]
    alone = evaluate(ops.layer_norm, [arrays[0][which : which + 1], *arrays[1:]])[0]
    assert_same_bits(whole[which : which + 1], alone)


def test_rows_of_one_value_give_the_bias() -> None:
    """Powers of two, whose mean is exact."""
    t = np.repeat(np.array([[4.0], [-0.5], [0.0]], np.float32), 8, axis=1)
    _, weight, bias = draw((3, 8), "float32")
    assert_same_bits(evaluate(ops.layer_norm, [t, weight, bias])[0], np.stack([bias] * 3))


def test_scaling_the_operand_changes_nothing_but_for_eps() -> None:
    t, weight, bias = draw((4, 50), "float64")

    def norm(t: popsr.Tensor, weight: popsr.Tensor, bias: popsr.Tensor) -> popsr.Tensor:
        return ops.layer_norm(t, weight, bias, 0.0)

    one = evaluate(norm, [t, weight, bias])[0]
    for factor in (2.0, 2.0**-20, 2.0**40):
        assert_same_bits(evaluate(norm, [t * factor, weight, bias])[0], one)


def test_only_asked_gradients_are_computed() -> None:
    """Without a gradient of weight and bias their op is not emitted, and the other way round."""
    for wanted, expect in (
        ((0,), {"group_norm_grad"}),
        ((2,), {"group_norm_parameter_grads"}),
        ((0, 1), {"group_norm_grad", "group_norm_parameter_grads"}),
    ):
        ir = popsr.Ir()
        with ir.main_graph:
            tensors = [popsr.constant(a) for a in draw((4, 6), "float32")]
            graph = ir.create_graph(ops.layer_norm, *tensors)
            info = transforms.autodiff(graph, grads_required=[graph.inputs[i] for i in wanted])
        assert {op.kind for op in info.graph.ops if op.kind.startswith("group_norm")} == expect


def test_stochastic_rounding_keeps_the_mean() -> None:
    """A result between two bfloat16 numbers goes to both; their mean is the float32 result."""
    t = np.tile(np.array([[1.0, -1.0]], np.float32), (20_000, 1)).astype(np_dtype("bfloat16"))
    weight, bias = (np.array(v, np_dtype("bfloat16")) for v in ([1.0, 1.0], [2.0**-9, 0.0]))
    ir, io = popsr.Ir(), Streams()
    ir.options.enable_stochastic_rounding = True
    with ir.main_graph, popsr.in_sequence():
        io.fetch(unchecked(ops.layer_norm)(*unchecked(io.feed(a) for a in (t, weight, bias)), 0.0))
    with popsr.Session(ir, seed=3) as session:
        got = io.run(session)[0].astype(np.float64)
    assert set(got[:, 0]) == {1.0, 1.0 + 2.0**-7}
    assert set(got[:, 1]) == {-1.0}
    # Each goes up with chance 1/4: five standard deviations.
    assert abs(np.mean(got[:, 0] > 1) - 0.25) < 5 * np.sqrt(0.25 * 0.75 / len(got))


def test_squared_norms_do_not_overflow_on_the_way() -> None:
    big = np.array([3e19, 1.0], np.float32)
    assert evaluate(ops.lamb_square, [big])[0] == np.inf
    assert evaluate(ops.lamb_square, [unchecked(np.float64(unchecked([1e19, 1.0])))])[0] == np.float32(1e38)
    t = np.full(300_000, 1e-3, np_dtype("bfloat16"))
    exact = np.sum(t.astype(np.float64) ** 2)
    for threads in (1, 2):
        got = evaluate(ops.lamb_square, [t], num_threads=threads)[0]
        assert_same_bits(got, unchecked(np.float32(exact).reshape(())))


# Errors


def _t(*shape: int, kind: Any = F32) -> popsr.Tensor:
    return popsr.graph_input(shape, kind)
