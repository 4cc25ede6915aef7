"""Element-wise ops beyond their rows: operators, masks, names, payloads of NaN, gradients through logic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import popsr
from popsr import errors, ops, transforms
from tests_py.support.helpers import (
    SCHEMAS,
    Streams,
    assert_same_bits,
    dtype,
    elementwise,
    evaluate,
    make_variable,
)
from tests_py.support.oracles.ops import unit_in_last_place

NAN_BITS = {"float64": 0x7FF8_0000_0000_1234, "float32": 0x7FC0_1234, "float16": 0x7E12, "bfloat16": 0x7FD2}


@pytest.mark.parametrize("name", NAN_BITS)
def test_selection_and_copies_keep_payloads(name: str) -> None:
    words = np.array([NAN_BITS[name], 0, 1], f"u{np.dtype(dtype(name).as_numpy()).itemsize}")
    values = words.view(dtype(name).as_numpy())
    zeros, choice = np.zeros_like(values), np.array([True, True, False])
    for build in (
        lambda v, z, c: ops.identity(v),
        lambda v, z, c: ops.where(c, v, v),
        lambda v, z, c: ops.where(ops.logical_not(c), z, v)[0:2],
    ):
        got = evaluate(build, [values, zeros, choice])[0]
        assert np.array_equal(got.view(words.dtype), words[: len(got)])


def _operators() -> dict[str, tuple[Any, Any]]:
    return {
        "mod": (lambda a, b: a % b, np.fmod),
        "mod-number": (lambda a, b: a % 2, lambda a, b: np.fmod(a, 2)),
        "rmod": (lambda a, b: 7 % b, lambda a, b: np.fmod(np.float32(7), b)),
        "and": (lambda a, b: a & b, np.logical_and),
        "rand": (lambda a, b: 1 & b, lambda a, b: np.logical_and(1, b)),
        "or": (lambda a, b: a | b, np.logical_or),
        "or-number": (lambda a, b: a | 0, lambda a, b: np.logical_or(a, 0)),
        "ror": (lambda a, b: 0 | b, lambda a, b: np.logical_or(0, b)),
        "ror-array": (lambda a, b: np.zeros(4, np.float32) | b, lambda a, b: b != 0),
        "invert": (lambda a, b: ~a, lambda a, b: np.logical_not(a)),
    }


@pytest.mark.parametrize("name", _operators())
def test_operators(name: str) -> None:
    a, b = np.array([5.5, 0, -7, 0], np.float32), np.array([2, 0.5, 3, -1], np.float32)
    build, oracle = _operators()[name]
    assert_same_bits(evaluate(build, [a, b])[0], np.asarray(oracle(a, b)))


def test_masks_keep_the_shape() -> None:
    x = np.arange(6, dtype=np.int16).reshape(2, 3) - 2
    row = np.array([True, False, True])
    for build in (lambda t, m: t[m], lambda t, m: t[row], lambda t, m: t[row[None]], lambda t, m: t[~~m]):
        assert_same_bits(evaluate(build, [x, row])[0], np.where(row, x, np.int16(0)))
    with popsr.Ir().main_graph:
        t = popsr.constant([1.0, 2.0])
        with pytest.raises(errors.ShapeError, match=r"^where: shapes do not broadcast"):
            t[row]


def test_equality_of_tensors_stays_identity() -> None:
    with popsr.Ir().main_graph:
        a, b = popsr.constant(1.0), popsr.constant(1.0)
        assert a == a
        assert a != b


def test_aliases_are_the_same_functions() -> None:
    assert ops.clamp is ops.clip
    assert ops.rename is ops.identity


def test_identity_names_its_result() -> None:
    with popsr.Ir().main_graph:
        x = popsr.variable(1.0, name="x")
        assert ops.rename(x, "y").name == "y"
        assert ops.identity(x).name == "identity_out"
        with popsr.name_scope("layer"):
            assert ops.identity(x, output_name="z").name == "layer/z"
        with pytest.raises(errors.ArgumentTypeError, match=r"^identity: name is not a str, got 3"):
            ops.identity(x, 3)  # type: ignore[arg-type]


def test_gradients_pass_beside_comparisons() -> None:
    """A mask of bools is a constant for autodiff: relu spelled in two ways has one gradient."""
    x = np.array([-1.5, -0.0, 0.5, 2.0])
    results = []
    for body in (
        ops.relu,
        lambda t: ops.where(ops.greater(t, popsr.constant(0.0, popsr.float64)), t, ops.mul(t, t) * 0),
        lambda t: ops.mul(t, ops.cast(ops.greater(t, popsr.constant(0.0, popsr.float64)), popsr.float64)),
    ):
        ir, io = popsr.Ir(), Streams()
        with ir.main_graph, popsr.in_sequence():
            fed, seed = io.feed(x), io.feed(np.full(4, 3.0))
            graph = ir.create_graph(body, fed)
            info = transforms.autodiff(graph)
            call = ops.call_with_info(graph, fed)
            io.fetch(ops.call(info.graph, seed, inputs_dict=info.inputs_dict(call))[0])
        with popsr.Session(ir) as session:
            results.append(io.run(session)[0] + 0.0)
    for result in results:
        assert_same_bits(result, np.array([0, 0, 3, 3.0]))


@pytest.mark.parametrize("name", NAN_BITS)
def test_clip_has_no_gradient_at_its_bounds(name: str) -> None:
    """The bounds are rounded to the dtype: in bfloat16 0.1 is another number, which the result equals."""
    kind = dtype(name).as_numpy()
    x = np.array([-2, -0.1, -0.05, 0.1, 3.0]).astype(kind)
    ir, io = popsr.Ir(), Streams()
    with ir.main_graph, popsr.in_sequence():
        fed, seed = io.feed(x), io.feed(np.full(5, 2.0).astype(kind))
        graph = ir.create_graph(lambda t: ops.clip(t, -0.1, 0.1), fed)
        info = transforms.autodiff(graph)
        call = ops.call_with_info(graph, fed)
        io.fetch(ops.call(info.graph, seed, inputs_dict=info.inputs_dict(call))[0])
    with popsr.Session(ir) as session:
        assert_same_bits(io.run(session)[0], np.array([0, 0, 2, 0, 0.0]).astype(kind))


def test_fmod_has_no_gradient_of_its_divisor() -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        x = popsr.variable(1.0)
        graph = ir.create_graph(ops.fmod, x, x)
        with pytest.raises(errors.GraphError, match="unable to provide required gradient"):
            transforms.autodiff(graph, grads_required=[graph.inputs[1]])


def test_clip_bounds_are_values_of_the_dtype() -> None:
    """Stochastic rounding never moves a bound: the result is exact."""
    ir, io = popsr.Ir(), Streams()
    ir.options.enable_stochastic_rounding = True
    bf16 = popsr.bfloat16.as_numpy()
    with ir.main_graph, popsr.in_sequence():
        fed = io.feed(np.array([0.0, 9.0] * 500, bf16))
        io.fetch(ops.clip(fed, 0.1, 0.3))
    with popsr.Session(ir, seed=3) as session:
        got = io.run(session)[0]
    assert_same_bits(got, np.array([0.1, 0.3] * 500).astype(bf16))


def inside_domain(op: str, name: str) -> Any:
    """Numbers of the dtype for which the function is finite."""
    for low, high in ((0.3, 3), (0.1, 0.9), (1.1, 3)):
        x = np.linspace(low, high, 64).astype(dtype(name).as_numpy())
        if np.isfinite(evaluate(getattr(ops, op), [x.astype(np.float32)])[0]).all():
            return x
    raise AssertionError(f"no interval is in the domain of {op}")


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
@pytest.mark.parametrize("op", [op for op in elementwise(operands=1) if SCHEMAS[op]["rounding"]])
def test_narrow_results_are_rounded_stochastically(op: str, name: str) -> None:
    x = inside_domain(op, name)
    ir, io = popsr.Ir(), Streams()
    ir.options.enable_stochastic_rounding = True
    with ir.main_graph, popsr.in_sequence():
        fed = io.feed(x)
        wide = getattr(ops, op)(ops.cast(fed, popsr.float64))
        for _ in range(30):
            io.fetch(getattr(ops, op)(fed))
        io.fetch(wide)
    with popsr.Session(ir, seed=1) as session:
        *draws, exact = io.run(session)
    values = np.stack(draws).astype(np.float64)
    spread = values.max(0) - values.min(0)
    assert np.count_nonzero(spread) > 40, "most elements take both neighbours"
    assert np.all(np.abs(values - exact) < 1.001 * unit_in_last_place(exact, name)), "a neighbour"


def test_increment_mod_counts() -> None:
    ir = popsr.Ir()
    with ir.main_graph, popsr.in_sequence():
        counter = make_variable(np.array(0, np.int32))
        ops.increment_mod_(counter, 1, 3)
    with popsr.Session(ir) as session:
        seen = []
        for _ in range(7):
            session.run()
            seen.append(int(session.get_tensor_data(counter)))
    assert seen == [1, 2, 0, 1, 2, 0, 1]


floats = st.floats(width=32)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(floats, floats), min_size=1, max_size=40))
def test_laws(pairs: list[tuple[float, float]]) -> None:
    a, b = (np.array(column, np.float32) for column in zip(*pairs, strict=True))

    def build(x: popsr.Tensor, y: popsr.Tensor) -> list[popsr.Tensor]:
        less, more, same = ops.greater(y, x), ops.greater(x, y), ops.equal(x, y)
        unordered = ops.logical_or(ops.isnan(x), ops.isnan(y))
        below, above = ops.floor(x), ops.negate(ops.ceil(ops.negate(x)))
        return [
            less | more | same | unordered,
            (less & more) | (less & same) | (more & same) | (unordered & (less | more | same)),
            ops.equal(below, above) | ops.isnan(x),
            ops.isfinite(x) | ops.isinf(x) | ops.isnan(x),
            ops.equal(ops.mul(ops.sign(x), ops.abs(x)), x) | ops.isnan(x) | ops.isinf(x),
        ]

    whole, never, floors, classes, signs = evaluate(build, [a, b])
    assert whole.all()
    assert not never.any()
    assert floors.all()
    assert classes.all()
    assert signs.all()
