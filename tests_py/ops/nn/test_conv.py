"""Convolutions: the order of their chains, gradients, sharing of weights, determinism."""

from __future__ import annotations

import hashlib
import itertools
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import popsr
from popsr import errors, ops, transforms
from tests_py.ops.rows import conv as conv_cases
from tests_py.support.helpers import (
    Array,
    Streams,
    assert_same_bits,
    evaluate,
    np_dtype,
    random_array,
    run_python,
)
from tests_py.support.oracles import ops as oracles
from tests_py.support.unchecked import unchecked

no_fma = pytest.mark.skipif(os.environ.get("POPSR_ISA") == "v2", reason="level v2 has no fused multiply-add")

Attrs = dict[str, Any]


def gradients(
    t: Array, weight: Array, dy: Array, attrs: Attrs, op: Any = ops.conv, **options: Any
) -> list[Array]:
    """Gradients of a convolution for t and weight, given the result's gradient."""

    def build(x: popsr.Tensor, w: popsr.Tensor, cotangent: popsr.Tensor) -> Any:
        graph = popsr.gir().create_graph(lambda a, b: op(a, b, **attrs), x, w)
        info = transforms.autodiff(graph)
        call = ops.call_with_info(graph, x, w)
        return ops.call(info.graph, cotangent, inputs_dict=info.inputs_dict(call))

    return evaluate(build, [t, weight, dy], **options)


# The order of chains


def chain(a: Array, b: Array) -> Array:
    """Chains over more than 4096 steps are cut into blocks of 1024."""
    steps = a.shape[1]
    block = steps if steps <= 4096 else 1024
    parts = [oracles.fma_chain(a[:, k : k + block], b[k : k + block]) for k in range(0, steps, block)]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def windows(t: Array, kernel: tuple[int, ...], attrs: Attrs) -> Array:
    """Elements under each element of the kernel: [channel, *kernel, *positions] of one sample [channel, ...]."""
    rank = len(kernel)
    begin, end = conv_cases.pads(t.shape[1:], kernel, attrs)
    stride, dilation = (attrs.get(name, (1,) * rank) for name in ("stride", "dilation"))
    padded = np.pad(t, [(0, 0), *zip(begin, end, strict=True)])
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    seen = np.lib.stride_tricks.sliding_window_view(padded, spans, tuple(range(1, rank + 1)))
    steps = [slice(None, None, s) for s in (*stride, *dilation)]
    return np.moveaxis(seen[(slice(None), *steps)], range(1, rank + 1), range(rank + 1, 2 * rank + 1))


ORDERS: list[tuple[tuple[int, ...], tuple[int, ...], Attrs]] = [
    ((2, 5, 7, 6), (13, 5, 3, 3), {"padding": (1, 1, 1, 1)}),
    (
        (1, 6, 9, 8),
        (4, 3, 3, 2),
        {"stride": (2, 3), "dilation": (1, 2), "groups": 2, "padding": (2, 0, 1, 1)},
    ),
    ((1, 3, 40), (33, 3, 5), {"stride": (2,), "padding": (2, 2)}),
    ((1, 2, 3, 4, 5), (3, 2, 2, 2, 2), {}),
    ((1, 520, 3, 3), (2, 520, 3, 3), {"padding": (1, 1, 1, 1)}),
    # Few positions and many rows: several samples at a time.
    ((5, 6, 4, 4), (40, 6, 3, 3), {"padding": (1, 1, 1, 1)}),
    ((3, 4, 7, 7), (66, 2, 3, 3), {"padding": (1, 1, 1, 1), "groups": 2, "stride": (2, 2)}),
    ((2, 3, 3, 4, 5), (33, 3, 2, 2, 2), {"padding": (1, 0, 1, 0, 1, 0)}),
    ((3, 520, 3, 3), (32, 520, 3, 3), {"padding": (1, 1, 1, 1)}),
]


@no_fma
@pytest.mark.parametrize(("shape", "kernel", "attrs"), ORDERS)
def test_conv_is_one_chain_over_channels_and_kernel(
    shape: tuple[int, ...], kernel: tuple[int, ...], attrs: Attrs
) -> None:
    rng = np.random.default_rng(1)
    t, weight = random_array(rng, shape, "float32"), random_array(rng, kernel, "float32")
    (got,) = evaluate(lambda x, w: ops.conv(x, w, **attrs), [t, weight])
    groups = attrs.get("groups", 1)
    for sample, result in zip(t, got, strict=True):
        for x, w, y in zip(
            np.split(sample, groups), np.split(weight, groups), np.split(result, groups), strict=True
        ):
            met = windows(x, kernel[2:], attrs)
            steps = w[0].size
            expect = chain(w.reshape(len(w), steps), met.reshape(steps, -1))
            assert_same_bits(y, expect.reshape(y.shape))


@no_fma
@pytest.mark.parametrize(("samples", "rows"), [(1, 7), (3, 40)])
def test_conv_transpose_is_one_chain_over_channels_and_those_elements_that_meet(
    samples: int, rows: int
) -> None:
    rng = np.random.default_rng(2)
    t, weight = (
        random_array(rng, (samples, 3, 4, 5), "float32"),
        random_array(rng, (3, rows, 3, 4), "float32"),
    )
    stride, dilation, begin = (2, 3), (1, 2), (1, 2)
    (got,) = evaluate(lambda x, w: ops.conv_transpose(x, w, stride, (*begin, 0, 1), dilation), [t, weight])
    assert got.shape == (samples, rows, 8, 16)
    for sample, at in itertools.product(range(samples), np.ndindex(got.shape[2:])):
        met, factors = [], []
        for c, k in itertools.product(range(3), np.ndindex(3, 4)):
            reach = [p + b - i * d for p, b, i, d in zip(at, begin, k, dilation, strict=True)]
            if any(r % s for r, s in zip(reach, stride, strict=True)):
                continue
            place = tuple(r // s for r, s in zip(reach, stride, strict=True))
            inside = all(0 <= p < n for p, n in zip(place, t.shape[2:], strict=True))
            met.append(t[(sample, c, *place)] if inside else np.float32(0))
            factors.append(weight[(c, slice(None), *k)])
        expect = (
            chain(np.stack(factors, 1), np.array(met)[:, None]) if met else np.zeros((rows, 1), np.float32)
        )
        assert_same_bits(got[(sample, slice(None), *at)], expect[:, 0], f"at {at}")


@no_fma
@pytest.mark.parametrize(
    ("extents", "inputs", "outputs"), [((6, 7), 3, 13), ((23, 31), 3, 13), ((4, 4), 70, 130)]
)
def test_gradient_of_the_weight_adds_chains_over_512_positions(
    extents: tuple[int, ...], inputs: int, outputs: int
) -> None:
    rng = np.random.default_rng(3)
    attrs = {"padding": (1, 1, 1, 1), "groups": 2}
    t = random_array(rng, (3, 2 * inputs, *extents), "float32")
    weight = random_array(rng, (2 * outputs, inputs, 3, 3), "float32")
    dy = random_array(rng, (3, 2 * outputs, *extents), "float32")
    _, got = gradients(t, weight, dy, attrs)
    total: Array | None = None
    for sample, cotangent in zip(t, dy, strict=True):
        met = windows(sample, (3, 3), attrs).reshape(2, 9 * inputs, -1)
        flat = cotangent.reshape(2, outputs, -1)
        for first in range(0, flat.shape[2], 512):
            part = slice(first, first + 512)
            term = np.stack([chain(flat[g, :, part], met[g, :, part].T) for g in range(2)])
            total = term if total is None else total + term
    assert total is not None
    assert_same_bits(got, total.reshape(weight.shape))


def test_padding_counts_as_zeros_also_against_infinity() -> None:
    weight = np.array([[[np.inf, 1]]], np.float32)
    (got,) = evaluate(lambda x, w: ops.conv(x, w, padding=(1, 0)), [np.ones((1, 1, 2), np.float32), weight])
    assert_same_bits(got, np.array([[[np.nan, np.inf]]], np.float32))


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    "shapes",
    [((2, 5, 30, 31), (14, 5, 3, 3), (2, 14, 15, 31)), ((5, 33, 6, 5), (40, 33, 3, 3), (5, 40, 3, 5))],
    ids=["large", "small"],
)
def test_narrow_results_are_those_of_float32_rounded_once(shapes: Any, name: str) -> None:
    rng = np.random.default_rng(4)
    attrs = {"stride": (2, 1), "padding": (1, 1, 1, 1)}
    narrow = [random_array(rng, shape, name) for shape in shapes]
    wide = [array.astype(np.float32) for array in narrow]

    def both(arrays: list[Array]) -> list[Array]:
        t, weight, dy = arrays
        forward = evaluate(lambda x, w: ops.conv(x, w, **unchecked(attrs)), [t, weight])
        back = evaluate(lambda x, w: ops.conv_transpose(x, w, **unchecked(attrs)), [dy, weight])
        return [*forward, *back, *gradients(t, weight, dy, attrs)]

    for got, exact in zip(both(narrow), both(wide), strict=True):
        assert_same_bits(got, exact.astype(np_dtype(name)))


# Laws


@st.composite
def programs(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], Attrs]:
    """Shapes of operands and attributes that fit."""
    rank = draw(st.integers(1, 3))
    few = st.integers(1, 3)
    groups, inputs, outputs = draw(few), draw(few), draw(few)

    def each(numbers: st.SearchStrategy[int], count: int = rank) -> tuple[int, ...]:
        return tuple(draw(st.lists(numbers, min_size=count, max_size=count)))

    kernel, dilation, stride = each(few), each(few), each(st.integers(1, 4))
    padding = each(st.integers(0, 3), 2 * rank)
    extents = tuple(
        max(1, (k - 1) * d + 1 - padding[i] - padding[rank + i]) + draw(st.integers(0, 6))
        for i, (k, d) in enumerate(zip(kernel, dilation, strict=True))
    )
    attrs = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    return (draw(st.integers(0, 2)), groups * inputs, *extents), (groups * outputs, inputs, *kernel), attrs


@settings(max_examples=60, deadline=None)
@given(programs(), st.integers(0, 2**32 - 1))
def test_small_integers_are_exact_and_gradients_are_adjoint(program: Any, seed: int) -> None:
    shape, kernel, attrs = program
    rng = np.random.default_rng(seed)
    t, weight = (rng.integers(-3, 4, s).astype(np.float32) for s in (shape, kernel))
    (got,) = evaluate(lambda x, w: ops.conv(x, w, **attrs), [t, weight])
    assert np.array_equal(got, conv_cases.conv(t, weight, **attrs))
    dy = rng.integers(-3, 4, got.shape).astype(np.float32)
    dt, dw = gradients(t, weight, dy, attrs)
    assert np.sum(got * dy, dtype=np.float64) == np.sum(t * dt, dtype=np.float64)
    assert np.sum(got * dy, dtype=np.float64) == np.sum(weight * dw, dtype=np.float64)
    # The positions behind the last one that the kernel meets.
    rest = tuple(
        n + begin + end - (k - 1) * d - 1 - s * (m - 1)
        for n, m, k, s, d, begin, end in zip(
            shape[2:],
            got.shape[2:],
            kernel[2:],
            attrs["stride"],
            attrs["dilation"],
            attrs["padding"][: len(shape) - 2],
            attrs["padding"][len(shape) - 2 :],
            strict=True,
        )
    )
    (back,) = evaluate(lambda x, w: ops.conv_transpose(x, w, **attrs, output_padding=rest), [dy, weight])
    assert_same_bits(back, dt, "the gradient for t is the transposed convolution")


@st.composite
def transposed_programs(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], Attrs]:
    """Shapes of operands of a transposed convolution and attributes that fit."""
    shape, kernel, attrs = draw(programs())
    rank, groups = len(shape) - 2, int(attrs["groups"])
    weight = (shape[1], kernel[0] // groups, *kernel[2:])
    attrs["padding"] = (0,) * 2 * rank
    form = draw(st.sampled_from(["padding", "output_padding", "output_shape", "same_upper", "same_lower"]))
    strides, gaps = attrs["stride"], attrs["dilation"]
    reach = [
        s * (n - 1) + (k - 1) * d + 1 for s, n, k, d in zip(strides, shape[2:], kernel[2:], gaps, strict=True)
    ]
    if form == "padding":
        cut = [draw(st.integers(0, extent // 2)) for extent in (*reach, *reach)]
        attrs["padding"] = tuple(cut)
    elif form == "output_padding":
        attrs[form] = tuple(draw(st.integers(0, max(s, d) - 1)) for s, d in zip(strides, gaps, strict=True))
    elif form == "output_shape":
        spatial = tuple(draw(st.integers(1, extent)) for extent in reach)
        attrs[form] = draw(st.sampled_from([spatial, (shape[0], kernel[0], *spatial)]))
    else:
        attrs["pad_type"] = form
    return shape, weight, attrs


@settings(max_examples=100, deadline=None)
@given(transposed_programs(), st.integers(0, 2**32 - 1))
def test_gradients_of_transposed_convolutions_are_adjoint(program: Any, seed: int) -> None:
    """All sums of small integers are exact; the result is linear in each operand."""
    shape, kernel, attrs = program
    rng = np.random.default_rng(seed)
    t, weight = (rng.integers(-3, 4, s).astype(np.float32) for s in (shape, kernel))
    (got,) = evaluate(lambda x, w: ops.conv_transpose(x, w, **attrs), [t, weight])
    spatial = {**attrs, "output_shape": tuple(attrs.get("output_shape", ()))[-(len(shape) - 2) :]}
    assert np.array_equal(got, conv_cases.conv_transpose(t, weight, **spatial))
    dy = rng.integers(-3, 4, got.shape).astype(np.float32)
    dt, dw = gradients(t, weight, dy, attrs, ops.conv_transpose)
    total = np.sum(got * dy, dtype=np.float64)
    assert total == np.sum(t * dt, dtype=np.float64)
    assert total == np.sum(weight * dw, dtype=np.float64)
    if (
        attrs.get("pad_type", "not_set") == "not_set"
        and "output_shape" not in attrs
        and not any(attrs.get("output_padding", ()))
    ):
        plain = {name: value for name, value in attrs.items() if name != "output_padding"}
        (back,) = evaluate(lambda x, w: ops.conv(x, w, **plain), [dy, weight])
        assert_same_bits(back, dt, "the gradient for t is the convolution")


def test_output_shapes_of_other_samples_or_channels_are_refused() -> None:
    with popsr.Ir().main_graph:
        t, weight = popsr.variable(np.ones((2, 4, 3, 3))), popsr.variable(np.ones((4, 3, 2, 2)))
        assert ops.conv_transpose(t, weight, groups=2, output_shape=(2, 6, 4, 4)).shape == (2, 6, 4, 4)
        for wrong in ((1, 6, 4, 4), (2, 3, 4, 4)):
            with pytest.raises(
                errors.ShapeError, match="conv_transpose: output_shape has other samples or channels"
            ):
                ops.conv_transpose(t, weight, groups=2, output_shape=wrong)


@pytest.mark.parametrize(("extents", "rows"), [((19, 17), 20), ((4, 4), 64), ((9, 7), 33)])
def test_results_do_not_depend_on_what_else_is_in_the_batch(extents: tuple[int, ...], rows: int) -> None:
    rng = np.random.default_rng(5)
    t, weight = random_array(rng, (5, 8, *extents), "float32"), random_array(rng, (rows, 8, 3, 3), "float32")

    def run(x: Array) -> Array:
        return evaluate(lambda a, b: ops.conv(a, b, padding=(1, 1, 1, 1)), [x, weight])[0]

    for samples in (1, 2, 4):
        assert_same_bits(run(t[:samples]), run(t)[:samples])


# Determinism and sharing


def large_results(**options: Any) -> list[Array]:
    """Large enough that work really is split: convolutions and gradients, wide and rounded stochastically."""
    rng = np.random.default_rng(6)
    results = []
    large, small = ((3, 24, 34, 33), (26, 24, 3, 3)), ((7, 48, 5, 4), (50, 48, 3, 3))
    for (name, stride), shapes in itertools.product(
        [("float32", (1, 1)), ("bfloat16", (2, 2)), ("float64", (1, 1))], [large, small]
    ):
        ir = popsr.Ir()
        ir.options.enable_stochastic_rounding = True
        io = Streams()
        with ir.main_graph, popsr.in_sequence():
            t, weight = (io.feed(random_array(rng, s, name)) for s in shapes)
            graph = ir.create_graph(lambda a, b, s=stride: ops.conv(a, b, s, (1, 1, 1, 1)), t, weight)
            info = transforms.autodiff(graph)
            call = ops.call_with_info(graph, t, weight)
            (y,) = call.outputs
            back = ops.conv_transpose(y, weight, stride)
            for result in (y, back, *ops.call(info.graph, y, inputs_dict=info.inputs_dict(call))):
                io.fetch(result)
        with popsr.Session(ir, seed=3, **options) as session:
            results += io.run(session)
    return results


def large_digest() -> str:
    return hashlib.sha256(b"".join(array.tobytes() for array in large_results(num_threads=1))).hexdigest()


def test_threads_do_not_change_a_bit() -> None:
    for one, several in zip(large_results(num_threads=1), large_results(num_threads=3), strict=True):
        assert_same_bits(several, one)


@pytest.mark.skipif(os.environ.get("POPSR_ISA") == "v2", reason="level v2 has bits of its own")
@pytest.mark.parametrize(("level", "flag"), [("v3", "avx2"), ("v4", "avx512vl")])
def test_instruction_sets_agree(level: str, flag: str) -> None:
    cpu = Path("/proc/cpuinfo")
    if not cpu.exists() or flag not in cpu.read_text(encoding="utf-8").split():
        pytest.skip(f"this CPU has no {level}")
    code = "from tests_py.ops.nn import test_conv; print(test_conv.large_digest())"
    assert run_python(code, POPSR_ISA=level).strip() == large_digest()


@pytest.mark.parametrize("dedup", [True, False])
@pytest.mark.parametrize("rows", [5, 40])
def test_replicas_share_a_weight_or_have_their_own(rows: int, dedup: bool) -> None:
    """Each replica's results equal a program's of its own."""
    rng = np.random.default_rng(7)
    data = random_array(rng, (4, 2, 3, 9, 8), "float32")
    weights = random_array(rng, (2, rows, 3, 3, 3), "float32")
    ir = popsr.Ir(replication=4)
    io = Streams()
    with ir.main_graph, popsr.in_sequence():
        t = io.feed(data, replicated=True)
        shared = popsr.variable(weights[0])
        own = popsr.variable(weights, replica_grouping=ir.replica_grouping(1, 2))
        dy = ops.conv(t, shared)
        for made in (dy, ops.conv(t, own), ops.conv_transpose(dy, shared), ops.conv_transpose(dy, own)):
            io.fetch(made)
    with popsr.Session(ir, dedup=dedup) as session:
        results = io.run(session)
        if dedup:
            assert session.stats["kernel_calls"]["conv"] == 2, "one call for all replicas"
            assert session.storage(shared).num_blocks == 1
    for replica in range(4):
        for result, weight in zip(results[:2], (weights[0], weights[replica // 2]), strict=True):
            (expect,) = evaluate(ops.conv, [data[replica], weight])
            assert_same_bits(unchecked(result[replica]), expect)
        for result, weight in zip(results[2:], (weights[0], weights[replica // 2]), strict=True):
            (expect,) = evaluate(ops.conv_transpose, [results[0][replica], weight])
            assert_same_bits(unchecked(result[replica]), expect)


def test_equal_data_are_convolved_once() -> None:
    ir = popsr.Ir(replication=8)
    with ir.main_graph, popsr.in_sequence():
        t, weight = popsr.variable(np.ones((2, 3, 5, 5))), popsr.variable(np.ones((4, 3, 3, 3)))
        ops.host_store(popsr.d2h_stream((2, 4, 3, 3), popsr.float32), ops.conv(t, weight))
    with popsr.Session(ir) as session:
        session.run({})
        assert session.stats["blocks"]["conv"] == 1


@pytest.mark.parametrize("operand", [0, 1])
def test_a_gradient_that_nobody_asks_for_is_not_computed(operand: int) -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        t, weight = popsr.variable(np.ones((1, 2, 4))), popsr.variable(np.ones((3, 2, 3)))
        graph = ir.create_graph(ops.conv, t, weight)
        info = transforms.autodiff(graph, grads_required=[graph.inputs[operand]])
    assert [op.kind for op in info.graph.ops] == [["conv_data_grad", "conv_weight_grad"][operand]]


def test_multi_conv_options_are_checked_hints() -> None:
    hints: Any = ops.multi_conv_options(None, {"partials_types": ["HALF"]}, [0.5, 1], None, [0, 1])
    assert hints.available_memory_proportions == (0.5, 1)
    assert hints.partials_types == ("HALF",)
    assert hints.enable_conv_dithering == (0, 1)
    assert ops.multi_conv_options(
        None, {"partials_types": ["float"]}, None, ["half"], None
    ).partials_types == ("half",)
    with pytest.raises(
        errors.AttributeValueError, match=r"^multi_conv_options: unknown partials_types entry, got 'double'"
    ):
        ops.multi_conv_options(None, {}, None, ["double"], None)
    with pytest.raises(errors.ArgumentTypeError, match=r"^multi_conv_options: attr_param is not a mapping"):
        ops.multi_conv_options(None, [], None, None, None)  # type: ignore[arg-type]
