"""Windows at indices, sorts, reversals and bits beyond their rows: errors of a run, refused gradients, a cipher."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import errors, ops, transforms
from popsr.testing import evaluate
from tests_py.ops.rows.arrangements import gather_general
from tests_py.support.helpers import Array, Streams, assert_same_bits

ROWS: dict[str, Any] = {"offset_dims": (1,), "index_map": (0,), "collapsed_dims": (0,)}
T = np.arange(15, dtype=np.float32).reshape(5, 3)


@pytest.mark.parametrize("at", [-1, 5])
def test_check_names_the_index_that_is_outside(at: int) -> None:
    indices = np.array([[1], [at]], np.int32)
    with pytest.raises(errors.OutOfRangeError, match=rf"gather_general: index .*got {at} for axis 0, .*<= 4"):
        evaluate(ops.gather_general, T, indices, slice_sizes=(1, 3), mode="check", **ROWS)
    with pytest.raises(errors.OutOfRangeError, match=rf"scatter_general: index .*got {at} for axis 0"):
        evaluate(ops.scatter_general, T, indices, T[:2], mode="check", **ROWS)


def _run(build: Any, *arrays: Array, **options: Any) -> list[Array]:
    ir, io = popsr.Ir(), Streams()
    with ir.main_graph, popsr.in_sequence():
        for result in build(*(io.feed(array) for array in arrays)):
            io.fetch(result)
    with popsr.Session(ir, **options) as session:
        return io.run(session)


def test_numbers_from_2_to_63_on_are_after_the_end() -> None:
    indices = np.array([[2**64 - 1], [2**63]], np.uint64)
    results = _run(
        lambda t, i: [
            ops.gather_general(t, i, slice_sizes=(1, 3), **ROWS),
            ops.gather_general(t, i, slice_sizes=(1, 3), mode="fill", **ROWS),
        ],
        T,
        indices,
    )
    assert_same_bits(results[0], T[[4, 4]])
    assert_same_bits(results[1], np.zeros((2, 3), np.float32))


def test_fill_values_are_converted_as_casts() -> None:
    indices = np.array([[9]], np.int32)
    attrs: dict[str, Any] = {"slice_sizes": (1, 3), "mode": "fill", **ROWS}
    for dtype, value, expected in (
        (np.int8, 1e9, 127),
        (np.uint8, -3.0, 0),
        (np.int32, float("nan"), 0),
        (np.bool_, 2.0, True),
    ):
        fill = functools.partial(ops.gather_general, fill_value=value, **attrs)
        got = _run(lambda *ts, fill=fill: [fill(*ts)], T.astype(dtype), indices)
        assert_same_bits(got[0], np.full((1, 3), expected, dtype))


def test_sums_of_duplicates_have_one_order() -> None:
    rng = np.random.default_rng(5)
    updates = (rng.standard_normal((4000, 3)) * 2.0 ** rng.integers(-20, 20, (4000, 3))).astype(np.float32)
    indices = rng.integers(0, 5, (4000, 1)).astype(np.int32)
    expected = T.copy()
    for row, at in zip(updates, indices[:, 0], strict=True):
        expected[at] += row
    for threads in (1, 2):
        got = _run(lambda *ts: [ops.scatter_general(*ts, **ROWS)], T, indices, updates, num_threads=threads)
        assert_same_bits(got[0], expected)


def test_products_have_no_gradient() -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        t, u = (popsr.variable(np.ones(n, np.float32)) for n in ((5, 3), (2, 3)))
        i = popsr.constant([[0], [1]], popsr.int32)
        graph = ir.create_graph(
            lambda a, b, c: ops.scatter_general(a, b, c, reduction="mul", **ROWS), t, i, u
        )
        with pytest.raises(errors.GraphError, match=r"scatter_general"):
            transforms.autodiff(graph)


def test_argsort_and_reverse() -> None:
    rng = np.random.default_rng(6)
    t = rng.integers(0, 4, (4, 6, 5)).astype(np.float32)
    for axis in (0, 1, -1):
        expected = np.argsort(t, axis, kind="stable").astype(np.int32)
        assert_same_bits(evaluate(ops.argsort, t, axis), expected)
        down = np.argsort(-t, axis, kind="stable").astype(np.int32)
        assert_same_bits(evaluate(ops.argsort, t, axis, descending=True), down)
    assert_same_bits(evaluate(ops.reverse, t, (0, -1)), t[::-1, :, ::-1])
    assert_same_bits(evaluate(ops.reverse, t, ()), t)


def test_gather_of_one_axis_is_gather() -> None:
    indices = np.array([3, 0, 3], np.int32)
    attrs: dict[str, Any] = {"slice_sizes": (1, 3), **ROWS}
    assert_same_bits(gather_general(T, indices[:, None], **attrs), evaluate(ops.gather, T, indices))


def _threefry(add: Any, xor: Any, rotate: Any, key: tuple[Any, Any], x: tuple[Any, Any]) -> tuple[Any, Any]:
    """Threefry-2x32 of 20 rounds; D. E. Shaw Research, "Parallel random numbers: as easy as 1, 2, 3", 2011."""
    keys = (*key, xor(xor(key[0], key[1]), 0x1BD11BDA))
    a, b = add(x[0], keys[0]), add(x[1], keys[1])
    for group in range(5):
        for distance in ((13, 15, 26, 6), (17, 29, 16, 24))[group % 2]:
            a = add(a, b)
            b = xor(rotate(b, distance), a)
        a = add(a, keys[(group + 1) % 3])
        b = add(add(b, keys[(group + 2) % 3]), group + 1)
    return a, b


def test_threefry_of_uint32() -> None:
    rng = np.random.default_rng(7)
    arrays = [rng.integers(0, 2**32, n, np.uint32) for n in ((), (), (50,), (50,))]

    def number(value: Any) -> popsr.Tensor:
        return value if isinstance(value, popsr.Tensor) else popsr.constant(value, popsr.uint32)

    def rotate(x: popsr.Tensor, distance: int) -> popsr.Tensor:
        up = ops.shift_left(x, number(distance))
        return ops.bitwise_or(up, ops.shift_right_logical(x, number(32 - distance)))

    got = _run(
        lambda k0, k1, x0, x1: _threefry(
            lambda a, b: ops.add(a, number(b)),
            lambda a, b: ops.bitwise_xor(a, number(b)),
            rotate,
            (k0, k1),
            (x0, x1),
        ),
        *arrays,
    )
    mask = 2**32 - 1
    for i in range(50):
        k0, k1, x0, x1 = int(arrays[0]), int(arrays[1]), int(arrays[2][i]), int(arrays[3][i])
        expected = _threefry(
            lambda a, b: (a + b) & mask,
            lambda a, b: a ^ b,
            lambda x, n: ((x << n) | (x >> (32 - n))) & mask,
            (k0, k1),
            (x0, x1),
        )
        assert (int(got[0][i]), int(got[1][i])) == expected
    # The known answer of the authors' test vectors.
    assert _threefry(
        lambda a, b: (a + b) & mask,
        lambda a, b: a ^ b,
        lambda x, n: ((x << n) | (x >> (32 - n))) & mask,
        (0, 0),
        (0, 0),
    ) == (0x6B200159, 0x99BA4EFE)
