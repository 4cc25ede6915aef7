"""Pooling, resizing and regions: order of sums, ties, gradients, other libraries, regions of the run."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import popsr
from popsr import errors, ops, transforms
from popsr.ops.indexing.indexing import ScatterReduction, reduction_dict
from popsr.ops.nn.interpolate import (
    InterpolateCoordinateTransformationType,
    InterpolateNearestType,
    InterpolateType,
)
from popsr.ops.nn.pool import PadType, receptive_attributes  # type: ignore[attr-defined]
from tests_py.ops.rows import pool as pool_cases
from tests_py.support.helpers import Streams, assert_same_bits, evaluate, np_dtype
from tests_py.support.unchecked import unchecked

Attr, Shape, Argument = errors.AttributeValueError, errors.ShapeError, errors.ArgumentTypeError
NARROW = ("float16", "bfloat16")


def _gradient(fn: Callable[..., Any], arrays: list[Any], seed: Any, **options: Any) -> Any:
    """Gradient of the first operand."""
    ir, io = popsr.Ir(), Streams()
    with ir.main_graph, popsr.in_sequence():
        tensors = [io.feed(array) for array in arrays]
        graph = ir.create_graph(fn, *tensors)
        info = transforms.autodiff(graph, grads_required=graph.inputs[:1])
        call = ops.call_with_info(graph, *tensors)
        io.fetch(ops.call(info.graph, io.feed(seed), inputs_dict=info.inputs_dict(call))[0])
    with popsr.Session(ir, **options) as session:
        return io.run(session)[0]


# Pooling


def test_padding_does_not_count() -> None:
    x = np.array([[[2.0, 4.0, 6.0]]], np.float32)
    got = evaluate(lambda t: ops.average_pool(t, (3,), padding=(1, 1)), [x])[0]
    assert got.tolist() == [[[3.0, 4.0, 5.0]]]


def test_windows_of_padding_alone() -> None:
    x = np.array([[[2.0]]], np.float32)
    pools = evaluate(lambda t: [op(t, (1,), padding=(1, 0)) for op in (ops.average_pool, ops.max_pool)], [x])
    assert [pool.tolist() for pool in pools] == [[[[0.0, 2.0]]], [[[-np.inf, 2.0]]]]


_SHAPES = st.fixed_dictionaries(
    {
        "extents": st.tuples(st.integers(1, 6), st.integers(1, 7)),
        "kernel_size": st.tuples(st.integers(1, 4), st.integers(1, 3)),
        "stride": st.tuples(st.integers(1, 4), st.integers(1, 3)),
        "padding": st.tuples(*[st.integers(0, 3)] * 4),
        "dilation": st.tuples(st.integers(1, 3), st.integers(1, 2)),
        "in_dilations": st.tuples(st.integers(1, 2), st.integers(1, 4)),
        "ceil_mode": st.booleans(),
        "auto_pad": st.sampled_from(["not_set"] * 3 + ["same_upper", "same_lower", "valid"]),
    }
)


@settings(max_examples=150, deadline=None)
@given(_SHAPES, st.integers(0, 2**16))
def test_pools_are_those_of_the_definition(attrs: dict[str, Any], seed: int) -> None:
    extents = attrs.pop("extents")
    if attrs["auto_pad"] != "not_set":
        attrs["padding"] = (0,) * 4
    x = np.random.default_rng(seed).standard_normal((1, 2, *extents)).astype(np.float32)
    pads = attrs["padding"]
    for d in range(2):
        span = (attrs["kernel_size"][d] - 1) * attrs["dilation"][d] + 1
        padded = (extents[d] - 1) * attrs["in_dilations"][d] + 1 + pads[d] + pads[2 + d]
        if span > padded and not attrs["auto_pad"].startswith("same"):
            with pytest.raises(Shape, match=r"window is larger"):
                evaluate(lambda t: ops.max_pool(t, **attrs), [x])
            return
    got = evaluate(lambda t: [ops.average_pool(t, **attrs), ops.max_pool(t, **attrs)], [x])
    assert_same_bits(got[0], pool_cases.average_pool(x, **attrs))
    assert_same_bits(got[1], pool_cases.max_pool(x, **attrs))


def _pool_gradient(x: Any, dy: Any, receive: Callable[[Any, Any], Any], **attrs: Any) -> Any:
    """Ascending over windows; ``receive``: what each of a window's elements gets of its gradient."""
    axes, _ = pool_cases.windows_of(x, **attrs)
    dx = np.zeros(x.shape, np.float32)
    for n, c, *window in np.ndindex(dy.shape):
        met = itertools.product(*(axis.taps[o] for axis, o in zip(axes, window, strict=True)))
        places = [(n, c, *place) for place in met]
        values = np.array([x[place] for place in places], np.float32)
        for place, part in zip(places, receive(values, np.float32(dy[n, c, *window])), strict=True):
            dx[place] += part
    return dx


def _to_all(values: Any, gradient: Any) -> Any:
    return [gradient / np.float32(len(values))] * len(values)


def _to_first_largest(values: Any, gradient: Any) -> Any:
    nan = np.isnan(values)
    first = np.argmax(nan if nan.any() else values) if len(values) else 0
    return np.where(np.arange(len(values)) == first, gradient, np.float32(0))


@pytest.mark.parametrize("name", ["float32", *NARROW])
@pytest.mark.parametrize("op", ["average_pool", "max_pool"])
def test_gradients_add_in_the_order_of_windows(op: str, name: str) -> None:
    rng = np.random.default_rng(2)
    attrs = {"kernel_size": (3, 2), "stride": (1, 1), "padding": (1, 1, 0, 1), "dilation": (1, 2)}
    x = rng.integers(0, 3, (2, 3, 6, 5)).astype(np_dtype(name))  # many ties
    x[0, 0, 2, 2] = x[1, 1, 3, 3] = np.nan
    dy = (rng.standard_normal((2, 3, 5, 5)) * 10.0 ** rng.integers(-2, 3, (2, 3, 5, 5))).astype(
        np_dtype(name)
    )
    receive = _to_first_largest if op == "max_pool" else _to_all
    expect = _pool_gradient(x, dy, receive, **attrs).astype(np_dtype(name))
    for threads in (1, 2):
        got = _gradient(lambda t: getattr(ops, op)(t, **attrs), [x], dy, num_threads=threads)
        assert_same_bits(got, expect)


def test_equal_zeros_tie() -> None:
    """-0 and +0 are equal: the maximum is +0, the gradient goes to the first."""
    x = np.array([[[-0.0, 0.0, -0.0]]], np.float32)
    assert_same_bits(evaluate(lambda t: ops.max_pool(t, (3,)), [x])[0], np.array([[[0.0]]], np.float32))
    got = _gradient(lambda t: ops.max_pool(t, (3,)), [x], np.ones((1, 1, 1), np.float32))
    assert got.tolist() == [[[1.0, 0.0, 0.0]]]


@pytest.mark.parametrize("name", ["float32", "float64"])
def test_pools_are_those_of_torch(name: str) -> None:
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(8).standard_normal((2, 3, 17, 19)).astype(name)
    t = torch.from_numpy(x)
    attrs = {"stride": (2, 2), "padding": (1, 1, 1, 1), "ceil_mode": True}
    largest, mean = evaluate(
        lambda t: [
            ops.max_pool(t, (3, 3), **unchecked(attrs)),
            ops.average_pool(t, (3, 3), **unchecked(attrs)),
        ],
        [x],
    )
    functional = torch.nn.functional
    assert_same_bits(largest, functional.max_pool2d(t, 3, 2, 1, ceil_mode=True).numpy())
    expect = functional.avg_pool2d(t, 3, 2, 1, ceil_mode=True, count_include_pad=False)
    np.testing.assert_allclose(mean, expect.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("op", [ops.average_pool, ops.interpolate])
def test_narrow_results_are_rounded_stochastically(op: Any) -> None:
    """Halves of the spacing above 1 become either neighbour."""
    x = np.ones((1, 1, 2, 4096), np_dtype("bfloat16"))
    x[:, :, 1] += 2.0**-7
    ir, io = popsr.Ir(), Streams()
    ir.options.enable_stochastic_rounding = True
    with ir.main_graph, popsr.in_sequence():
        t = io.feed(x)
        io.fetch(op(t, (2, 1)) if op is ops.average_pool else op(t, (1.0, 1.0, 0.5, 1.0), "linear"))
    with popsr.Session(ir, seed=7) as session:
        got = io.run(session)[0].astype(np.float64)
    assert got.shape == (1, 1, 1, 4096)
    assert set(np.unique(got)) == {1.0, 1.0 + 2.0**-7}
    assert abs(np.mean(got > 1) - 0.5) < 0.05


# Interpolation


@pytest.mark.parametrize("scale", [2.0, 1.5, 0.5])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_interpolation_is_that_of_torch(mode: str, scale: float) -> None:
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(4).standard_normal((2, 3, 8, 6))
    kinds = {"nearest": "nearest", "linear": "bilinear", "cubic": "bicubic"}
    aligned = {} if mode == "nearest" else {"align_corners": False}
    expect = torch.nn.functional.interpolate(
        torch.from_numpy(x), scale_factor=scale, mode=kinds[mode], **aligned
    ).numpy()
    # torch's "nearest" takes the element at floor(i / scale).
    rules = ("floor", "asymmetric") if mode == "nearest" else ("round_prefer_floor", "pytorch_half_pixel")
    got = evaluate(
        lambda t: ops.interpolate(t, (1.0, 1.0, scale, scale), unchecked(mode), *unchecked(rules)), [x]
    )[0]
    np.testing.assert_allclose(got, expect, rtol=1e-12, atol=1e-12)


def test_neighbours_of_no_weight_are_not_looked_at() -> None:
    x = np.array([1.0, np.inf, 2.0, np.nan], np.float32)
    got = evaluate(lambda t: ops.interpolate(t, (0.5,), "linear", "floor", "asymmetric"), [x])[0]
    assert got.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_constants_stay_constant(mode: InterpolateType) -> None:
    x = np.full((3, 4), 0.7, np.float32)
    got = evaluate(lambda t: ops.interpolate(t, (1.7, 2.3), mode), [x])[0]
    np.testing.assert_allclose(got, np.full((5, 9), 0.7), rtol=1e-6)


def test_no_scale_factor_is_one_in_each_dimension() -> None:
    x = np.arange(6.0, dtype=np.float32).reshape(3, 2)
    assert_same_bits(evaluate(lambda t: ops.interpolate(t, None), [x])[0], x)


# Regions


def _align(rois: Any, samples: Any, ratio: int = 2) -> Callable[..., Any]:
    """Of a tensor, with constant regions."""

    def align(t: Any) -> Any:
        corners = popsr.constant(np.asarray(rois, np.float32))
        return ops.roi_align(t, corners, popsr.constant(np.int32(samples)), (2, 2), 1.0, ratio)

    return align


@pytest.mark.parametrize("index", [2, -1, 2**31 - 1])
@pytest.mark.filterwarnings("ignore::popsr.ReplicaWarning")  # each replica has indices of its own
def test_batch_index_out_of_range(index: int) -> None:
    ir = popsr.Ir(replication=2)
    with ir.main_graph, popsr.in_sequence():
        w = popsr.variable(np.zeros((2, 1, 2, 2), np.float32))
        at = popsr.h2d_stream((2,), popsr.int32)
        rois = popsr.constant(np.zeros((2, 4), np.float32))
        ops.add_(
            w,
            ops.roi_align(ops.add(w, popsr.constant(np.float32(1))), rois, ops.host_load(at), (2, 2), 1.0, 1),
        )
    with popsr.Session(ir) as session:
        with pytest.raises(errors.OutOfRangeError) as caught:
            session.run({at: np.array([[0, 1], [1, index]], np.int32)})
        text = f"roi_align: batch_index is out of range, got {index}, expected 0 <= batch_index < 2"
        assert str(caught.value) == text
        (note,) = caught.value.__notes__
        assert note.startswith("while running roi_align(")
        assert np.array_equal(session.get_tensor_data(w), np.zeros((2, 1, 2, 2)))
        session.run({at: np.array([[0, 1], [1, 0]], np.int32)})


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_region_that_is_not_finite_gives_nan_and_has_no_gradient(bad: float) -> None:
    x = np.ones((1, 1, 4, 4), np.float32)
    align = _align([[0, 0, 3, 3], [0, bad, 3, 3]], [0, 0])
    got = evaluate(align, [x])[0]
    assert np.all(got[0] == 1)
    assert np.all(np.isnan(got[1]))
    dx = _gradient(align, [x], np.ones((2, 1, 2, 2), np.float32))
    assert dx.sum() == pytest.approx(4)


@pytest.mark.parametrize("far", [1e9, 1e30])
def test_far_bigger_region_ends(far: float) -> None:
    """One sample per position would be many; those far outside are 0."""
    x = np.ones((1, 1, 4, 4), np.float32)
    got = evaluate(_align([[-far, -far, far, far], [far, far, 2 * far, 2 * far]], [0, 0], 0), [x])[0]
    assert np.all(np.abs(got) < 1e-6)


def test_adaptive_samples_of_a_big_region_are_those_of_a_ratio() -> None:
    x = np.random.default_rng(0).standard_normal((1, 2, 5, 6))
    rois = np.array([[-300.0, -200.0, 301.0, 205.0]])

    def align(t: Any, ratio: int) -> Any:
        samples = popsr.constant(np.array([0], np.int32))
        return ops.roi_align(t, popsr.constant(rois, popsr.float64), samples, (1, 1), 1.0, ratio)

    adaptive = evaluate(lambda t: align(t, 0), [x])[0]
    expect = pool_cases.roi_align(x, rois, np.array([0]), (1, 1), 1.0, 0)
    np.testing.assert_allclose(adaptive, expect, rtol=1e-12, atol=1e-15)
    assert np.all(adaptive != 0)


@pytest.mark.parametrize("name", ["float32", *NARROW])
def test_gradient_of_regions_does_not_depend_on_threads(name: str) -> None:
    rng = np.random.default_rng(9)
    x = rng.standard_normal((2, 8, 20, 30)).astype(np_dtype(name))
    rois = (rng.uniform(0, 12, (40, 4)) + np.array([0, 0, 8, 8])).astype(np_dtype(name))
    samples = rng.integers(0, 2, 40).astype(np.int32)
    dy = rng.standard_normal((40, 8, 3, 3)).astype(np_dtype(name))

    def align(t: Any, r: Any, i: Any) -> Any:
        return ops.roi_align(t, r, i, (3, 3), 1.0, 0)

    one, two = (_gradient(align, [x, rois, samples], dy, num_threads=n) for n in (1, 2))
    assert_same_bits(one, two)
    assert np.any(one != 0)


# Helpers


def test_receptive_attributes() -> None:
    got = receptive_attributes([2, 2], None, None, (1, 3), None, None, None)
    assert (got.strides, got.pads, got.dilations) == ((2, 2), None, (1, 3))
    assert (got.auto_pad, got.ceil_mode) == ("not_set", False)
    with pytest.raises(Attr, match=r"receptive_attributes: unknown auto_pad, got 'same'"):
        receptive_attributes(None, None, None, None, None, "same", False)  # type: ignore[arg-type]
    with pytest.raises(Argument, match=r"receptive_attributes: stride is not a sequence of ints, got 2"):
        receptive_attributes(2, None, None, None, None, "valid", False)  # type: ignore[arg-type]


def test_names_of_choices() -> None:
    assert get_args(PadType) == ("not_set", "same_upper", "same_lower", "valid")
    assert get_args(InterpolateType) == ("nearest", "linear", "cubic")
    assert get_args(InterpolateNearestType) == pool_cases._NEAREST
    assert get_args(InterpolateCoordinateTransformationType) == pool_cases._COORDINATES
    assert set(reduction_dict) == {"sum", "min", "max", "none"}
    assert reduction_dict["none"] is ScatterReduction.NoReduction
