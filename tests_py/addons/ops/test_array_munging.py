"""popsr.addons.array_munging: what is cut comes together again, and every replica gets its part."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import popsr
from popsr import errors, ops
from popsr.addons import array_munging as am
from tests_py.support.helpers import assert_refused, assert_same_bits
from tests_py.support.unchecked import unchecked

Array = np.ndarray[Any, Any]
Argument, Attr, Shape = errors.ArgumentTypeError, errors.AttributeValueError, errors.ShapeError


def numbers(*shape: int) -> Array:
    """0, 1, 2, ... of that shape: every element another."""
    return np.arange(math.prod(shape), dtype=np.float32).reshape(shape)


SHAPES = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple)
COUNTS = st.integers(1, 4)


@st.composite
def cut(draw: st.DrawFn, parts: int = 1) -> tuple[Any, ...]:
    """An array, and for each of some different axes: a number of parts and the axis, either way of counting."""
    shape = list(draw(st.lists(st.integers(1, 3), min_size=parts, max_size=4)))
    axes = draw(st.permutations(range(len(shape))))[:parts]
    counts = [draw(COUNTS) for _ in axes]
    for axis, count in zip(axes, counts, strict=True):
        shape[axis] *= count
    signed = [axis - len(shape) if draw(st.booleans()) else axis for axis in axes]
    return (numbers(*shape), *counts, *signed)


@given(cut())
def test_shards_are_slices_and_come_together_again(case: Any) -> None:
    x, n, axis = case
    shards = am.shard(x, n, axis)
    length = x.shape[axis] // n
    assert len(shards) == n
    for i, part in enumerate(shards):
        assert_same_bits(part, x.take(range(i * length, (i + 1) * length), axis))
    assert_same_bits(am.unshard(shards, axis), x)
    assert_same_bits(am.unshard_arrays(list(shards), axis), x)


@given(cut(2))
def test_shards_of_two_axes_are_slices_and_come_together_again(case: Any) -> None:
    x, n_1, n_2, axis_1, axis_2 = case
    split, shards = am.split2D(*case), am.shard2D(*case)
    assert len(shards) == n_1 * n_2
    for i, outer in enumerate(split):
        for j, part in enumerate(outer):
            wanted = x.take(range(*_bounds(i, n_1, x.shape[axis_1])), axis_1)
            wanted = wanted.take(range(*_bounds(j, n_2, x.shape[axis_2])), axis_2)
            assert_same_bits(part, wanted)
            assert_same_bits(shards[i * n_2 + j], part)
    assert_same_bits(am.unshard2D(shards, n_1, n_2, axis_1, axis_2), x)


def _bounds(i: int, n: int, extent: int) -> tuple[int, int]:
    return i * extent // n, (i + 1) * extent // n


@given(SHAPES, COUNTS, st.data())
def test_copies_are_equal(shape: tuple[int, ...], n: int, data: st.DataObject) -> None:
    x = numbers(*shape)
    axis = data.draw(st.integers(-len(shape) - 1, len(shape)))
    copies = am.repeat(x, n, axis)
    assert copies.shape[axis] == n
    for i in range(n):
        assert_same_bits(copies.take(i, axis), x)
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    tiles = [1] * len(shape)
    tiles[axis] = n
    assert_same_bits(am.repeat_axis(x, n, axis), np.tile(x, tiles))


@given(cut(), COUNTS)
def test_shards_of_replicas_are_repeated(case: Any, repeats: int) -> None:
    x, n, axis = case
    shards = am.shard(x, n, axis)
    contiguous = am.repeat_shard(x, repeats, n, axis)
    strided = am.repeat_shard(x, repeats, n, axis, "strided")
    for replica in range(repeats * n):
        assert_same_bits(contiguous[replica], shards[replica % n])
        assert_same_bits(strided[replica], shards[replica // repeats])


def test_strided_shards_are_not_those_of_as_many_repeats_as_shards() -> None:
    assert am.repeat_shard(np.array([0, 1]), 3, 2, 0, "strided")[:, 0].tolist() == [0, 0, 0, 1, 1, 1]
    assert am.repeat_shard(np.array([0, 1]), 3, 2, 0, "contiguous")[:, 0].tolist() == [0, 1, 0, 1, 0, 1]


@given(COUNTS, COUNTS, COUNTS, SHAPES)
def test_tensor_parallel_data_comes_back(tp: int, dp: int, transfers: int, shape: tuple[int, ...]) -> None:
    """Sample s is on the tp replicas of group s % dp, in transfer s // dp."""
    samples, rf = numbers(transfers * dp, *shape), tp * dp
    given_ = am.tensor_parallel_input(samples, tp, rf)
    assert given_.shape == tuple(n for n in (transfers, rf) if n > 1) + shape
    each = given_.reshape(transfers, rf, *shape)
    for transfer in range(transfers):
        for replica in range(rf):
            assert_same_bits(each[transfer, replica], samples[transfer * dp + replica // tp])
    back = am.tensor_parallel_output(given_, transfers, tp, rf, shape)
    assert_same_bits(back, samples)
    of_all = am.tensor_parallel_output(each, transfers, tp, rf, shape, False)
    assert_same_bits(of_all, am.repeat(samples, tp, 1))


@pytest.mark.parametrize(
    ("tp", "rf", "wanted"),
    [
        (2, 4, [[0, 0, 1, 1], [2, 2, 3, 3]]),
        (4, 4, [[i] * 4 for i in range(4)]),
        (1, 4, [0, 1, 2, 3]),
        (1, 1, [0, 1, 2, 3]),
    ],
)
def test_tensor_parallel_input(tp: int, rf: int, wanted: Any) -> None:
    assert am.tensor_parallel_input(np.arange(4), tp, rf).tolist() == wanted


def test_each_of_the_sharing_replicas_may_get_other_samples() -> None:
    samples = numbers(2, 3)

    def offset(copy: Array, i: int) -> Array:
        copy += 10 * i
        return copy[:, :2]

    got = am.tensor_parallel_input(samples, 2, 4, offset)
    assert_same_bits(got, np.stack([samples[0], samples[0] + 10, samples[1], samples[1] + 10])[:, :2])
    assert_same_bits(samples, numbers(2, 3))  # it edits copies


def test_transfers_that_were_filled_up_are_left_out() -> None:
    output = numbers(3, 4, 2)
    got = am.tensor_parallel_output(output, 3, 2, 4, (2,), true_num_host_transfers=2)
    assert_same_bits(got, output[:2, ::2].reshape(4, 2))


def test_a_program_of_four_replicas_takes_and_returns_the_samples() -> None:
    ir = popsr.Ir(replication=4)
    ir.num_host_transfers = 2
    samples = numbers(4, 3)
    with ir.main_graph, popsr.in_sequence():
        x, y = popsr.h2d_stream((3,), popsr.float32), popsr.d2h_stream((3,), popsr.float32)
        with popsr.in_sequence():
            for _ in range(2):
                ops.host_store(y, ops.host_load(x) + 1)
    with popsr.Session(ir) as session:
        result = session.run({x: am.tensor_parallel_input(samples, 2, 4)})[y]
    assert_same_bits(am.tensor_parallel_output(result, 2, 2, 4, (3,)), samples + 1)


@given(SHAPES, st.integers(0, 3), st.data())
def test_padding_is_at_the_end(shape: tuple[int, ...], more: int, data: st.DataObject) -> None:
    x, axis = numbers(*shape), data.draw(st.integers(-len(shape), len(shape) - 1))
    extent = shape[axis]
    padded = am.pad_axis(x, extent + more, axis, 7)
    assert_same_bits(padded.take(range(extent), axis), x)
    rest = padded.take(range(extent, extent + more), axis)
    assert rest.shape[axis] == more
    assert (rest == 7).all()
    assert (am.pad_axis(x, extent + 1, axis).take([extent], axis) == 0).all()


@pytest.mark.parametrize(
    ("shape", "axis", "result"),
    [
        ((1, 2, 1, 3), None, (2, 3)),
        ((1, 2, 1, 3), 0, (2, 1, 3)),
        ((1, 2, 1, 3), -2, (1, 2, 3)),
        ((1, 2, 1, 3), (0, 1), (2, 1, 3)),
        ((1, 2, 1, 3), (0, -4, 2), (2, 3)),
        ((2, 3), (0, 1), (2, 3)),
        ((), None, ()),
    ],
)
def test_only_axes_of_extent_1_are_removed(
    shape: tuple[int, ...], axis: Any, result: tuple[int, ...]
) -> None:
    x = numbers(*shape)
    assert_same_bits(am.squeeze_safe(x, axis), x.reshape(result))


def test_axes_are_counted_from_the_first() -> None:
    x = numbers(2, 3, 4)
    assert [am.handle_negative_axis(x, axis) for axis in range(-3, 3)] == [0, 1, 2, 0, 1, 2]


X, X0 = numbers(4, 6), np.array(1.0)
REFUSED: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (
        lambda: am.tensor_parallel_input(X, 2, 2, repeat_fn=unchecked(-1)),
        Argument,
        "tensor_parallel_input: repeat_fn cannot be called, got -1, expected a function",
    ),
    (lambda: am.shard(unchecked([1]), 1, 0), Argument, r"shard: not an array, got \[1\]"),
    (
        lambda: am.shard(X, 3, 0),
        Shape,
        "shard: parts are not equal, got 3 of extent 4, expected a divisor",
    ),
    (lambda: am.shard(X, 2, 2), Attr, "shard: axis out of range, got 2, expected -2 <= axis < 2"),
    (lambda: am.shard(X, 2, unchecked(0.0)), Argument, "shard: axis is not an int, got 0.0"),
    (lambda: am.shard(X, 0, 0), Attr, "shard: n: got 0, expected an int from 1"),
    (
        lambda: am.shard(X0, 1, 0),
        Attr,
        "shard: axis out of range, got 0, expected an array that is not a scalar",
    ),
    (lambda: am.unshard(unchecked(3), 0), Argument, "unshard: not an array"),
    (lambda: am.unshard(X0, 0), Shape, r"unshard: no rows, got shape \(\), expected"),
    (lambda: am.unshard(X[:0], 0), Shape, r"unshard: no rows, got shape \(0, 6\)"),
    (lambda: am.unshard(X, 1), Attr, "unshard: axis out of range, got 1, expected -1 <= axis < 1"),
    (lambda: am.unshard_arrays([], 0), Shape, "unshard_arrays: nothing to join"),
    (lambda: am.unshard_arrays([X, X[:, :2]], 0), Shape, "unshard_arrays: shapes differ beside axis 0"),
    (lambda: am.unshard_arrays([X, X[0]], 0), Shape, "unshard_arrays: shapes differ beside axis 0"),
    (lambda: am.unshard_arrays([X, unchecked(1)], 0), Argument, "unshard_arrays: not an array, got 1"),
    (lambda: am.unshard_arrays([X], 2), Attr, "unshard_arrays: axis out of range, got 2"),
    (lambda: am.repeat(X, 0), Attr, "repeat: n: got 0"),
    (lambda: am.repeat(X, 1, 3), Attr, "repeat: axis out of range, got 3, expected -3 <= axis < 3"),
    (lambda: am.repeat(unchecked(1), 1), Argument, "repeat: not an array"),
    (lambda: am.repeat_axis(X, unchecked(1.0)), Argument, "repeat_axis: n is not an int, got 1.0"),
    (lambda: am.repeat_axis(X, 1, 2), Attr, "repeat_axis: axis out of range, got 2"),
    (lambda: am.repeat_axis(X0, 1), Attr, "repeat_axis: axis out of range, got 0"),
    (lambda: am.repeat_axis(unchecked(1), 1), Argument, "repeat_axis: not an array"),
    (lambda: am.split2D(X, 2, 4, 0, 1), Shape, "split2D: parts are not equal, got 4 of extent 6"),
    (
        lambda: am.split2D(X, 2, 2, 0, -2),
        Attr,
        "split2D: one axis twice, got 0 and -2, expected two axes",
    ),
    (lambda: am.split2D(unchecked(1), 2, 2, 0, 1), Argument, "split2D: not an array"),
    (lambda: am.shard2D(X, 3, 2, 0, 1), Shape, "shard2D: parts are not equal, got 3 of extent 4"),
    (lambda: am.shard2D(X, 0, 2, 0, 1), Attr, "shard2D: n: got 0"),
    (lambda: am.shard2D(X, 1, 2, 0, 2), Attr, "shard2D: axis out of range, got 2"),
    (
        lambda: am.unshard2D(X[None], 1, 2, 0, 1),
        Shape,
        "unshard2D: not the number of shards, got 1, expected 2",
    ),
    (lambda: am.unshard2D(X, 2, 2, 0, 1), Attr, "unshard2D: axis out of range, got 1"),
    (lambda: am.unshard2D(X[None], 1, 1, 1, 1), Attr, "unshard2D: one axis twice, got 1 and 1"),
    (lambda: am.unshard2D(X, 0, 2, 0, 1), Attr, "unshard2D: n_1: got 0"),
    (
        lambda: am.repeat_shard(X, 1, 2, 0, unchecked("cyclic")),
        Attr,
        "repeat_shard: unknown sharded_tensor, got 'cyclic'",
    ),
    (lambda: am.repeat_shard(X, 0, 2, 0), Attr, "repeat_shard: n_repeats: got 0"),
    (lambda: am.repeat_shard(X, 1, 3, 0), Shape, "repeat_shard: parts are not equal, got 3 of extent 4"),
    (lambda: am.repeat_shard(unchecked(1), 1, 3, 0), Argument, "repeat_shard: not an array"),
    (
        lambda: am.tensor_parallel_input(X, 3, 4),
        Attr,
        "input: tp does not divide rf, got 3 and 4, expected a divisor",
    ),
    (lambda: am.tensor_parallel_input(X, 0, 4), Attr, "tensor_parallel_input: tp: got 0"),
    (lambda: am.tensor_parallel_input(X, 4, 2), Attr, "tp does not divide rf, got 4 and 2"),
    (
        lambda: am.tensor_parallel_input(X, 1, 8),
        Shape,
        "samples do not fill the replicas, got 4, expected a multiple",
    ),
    (lambda: am.tensor_parallel_input(X0, 1, 1), Shape, "tensor_parallel_input: no rows"),
    (lambda: am.tensor_parallel_input(unchecked([1]), 1, 1), Argument, "tensor_parallel_input: not an array"),
    (
        lambda: am.tensor_parallel_input(X, 1, 1, unchecked(lambda x, i: None)),
        Argument,
        "tensor_parallel_input: not an array",
    ),
    (
        lambda: am.tensor_parallel_input(X, 2, 2, lambda x, i: x[:, i:]),
        Shape,
        "repeat_fn returns other shapes",
    ),
    (
        lambda: am.tensor_parallel_input(X, 1, 1, lambda x, i: x[1:]),
        Shape,
        r"got \[\(3, 6\)\], expected \(4, ...\)",
    ),
    (
        lambda: am.tensor_parallel_output(X, 4, 1, 4, (6,)),
        Shape,
        r"data of another shape, got \(4, 6\), expected \(4, 4, 6\)",
    ),
    (lambda: am.tensor_parallel_output(X, 4, 3, 4, (6,)), Attr, "output: tp does not divide rf"),
    (lambda: am.tensor_parallel_output(X, 0, 1, 1, (6,)), Attr, "num_host_transfers: got 0"),
    (
        lambda: am.tensor_parallel_output(X, 4, 1, 1, (6,), True, 5),
        Attr,
        "true_num_host_transfers: got 5, expected an int from 1 to 4",
    ),
    (
        lambda: am.tensor_parallel_output(unchecked([1]), 1, 1, 1, ()),
        Argument,
        "tensor_parallel_output: not an array",
    ),
    (
        lambda: am.tensor_parallel_output(X, 4, 1, 1, unchecked(6)),
        Argument,
        "tensor_parallel_output: shape is not a sequence",
    ),
    (lambda: am.pad_axis(X, 3, 0), Shape, "pad_axis: axis 0 is too long, got 4, expected at most 3"),
    (lambda: am.pad_axis(X, 9, 2), Attr, "pad_axis: axis out of range, got 2"),
    (lambda: am.pad_axis(X, unchecked(9.5), 0), Argument, "pad_axis: n is not an int, got 9.5"),
    (lambda: am.pad_axis(unchecked(1), 9, 0), Argument, "pad_axis: not an array"),
    (lambda: am.squeeze_safe(X, (0, 2)), Attr, "squeeze_safe: axis out of range, got 2"),
    (lambda: am.squeeze_safe(unchecked(1)), Argument, "squeeze_safe: not an array"),
    (lambda: am.handle_negative_axis(X, -3), Attr, "handle_negative_axis: axis out of range, got -3"),
    (
        lambda: am.handle_negative_axis(X, True),
        Argument,
        "handle_negative_axis: axis is not an int, got True",
    ),
    (lambda: am.handle_negative_axis(unchecked(1), 0), Argument, "handle_negative_axis: not an array"),
]


@pytest.mark.parametrize(("call", "error", "match"), REFUSED, ids=[str(i) for i in range(len(REFUSED))])
def test_refused(call: Callable[[], Any], error: type[Exception], match: str) -> None:
    assert_refused(call, error, match)


class WithArray:
    """As a tensor of torch: an array only by ``__array__``."""

    def __init__(self, array: Array) -> None:
        self._array = array

    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        return self._array if dtype is None else self._array.astype(dtype)


def as_torch(array: Array) -> Any:
    return pytest.importorskip("torch").from_numpy(array).requires_grad_()


@pytest.mark.parametrize("wrap", [WithArray, as_torch])
def test_anything_with_an_array_is_one(wrap: Callable[[Array], Any]) -> None:
    x = numbers(4, 6)
    calls: list[Callable[[Any], Any]] = [
        lambda x: am.shard(x, 2, 0),
        lambda x: am.unshard(x, 0),
        lambda x: am.unshard_arrays([x, x], 1),
        lambda x: am.repeat(x, 2, 1),
        lambda x: am.repeat_axis(x, 2, -1),
        lambda x: am.split2D(x, 2, 3, 0, 1)[1][2],
        lambda x: am.shard2D(x, 2, 3, 0, 1),
        lambda x: am.unshard2D(am.shard2D(x, 2, 3, 0, 1), 2, 3, 0, 1),
        lambda x: am.repeat_shard(x, 2, 2, 0, "strided"),
        lambda x: am.tensor_parallel_input(x, 2, 4),
        lambda x: am.tensor_parallel_input(
            x, 2, 4, unchecked(lambda copy, i: wrap(copy + i) if wrap is WithArray else copy + i)
        ),
        lambda x: am.tensor_parallel_output(x, 1, 2, 4, (6,)),
        lambda x: am.pad_axis(x, 8, 1),
        lambda x: am.squeeze_safe(x),
        lambda x: am.handle_negative_axis(x, -1),
    ]
    for i, call in enumerate(calls):
        expect = np.asarray(call(x))
        assert_same_bits(np.asarray(call(wrap(x))), expect, str(i))


def test_tensors_of_programs_are_not_arrays() -> None:
    with popsr.Ir().main_graph:
        t = popsr.constant(numbers(4))
        for wrong in (t, WithArray, [1, 2], 3):
            with pytest.raises(Argument, match=r"^shard: "):
                am.shard(wrong, 2, 0)  # type: ignore[arg-type]
