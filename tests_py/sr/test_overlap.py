"""``out`` may be an operand or lie beside it; it may not overlap one partly, nor itself."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from popsr import errors, sr
from tests_py.sr.cases import np_dtype

KEY = sr.Key(12)
BF16 = ml_dtypes.bfloat16


def overlapping_cases() -> Iterator[Any]:
    base = lambda: np.arange(1.0, 25.0, dtype=np.float32)  # noqa: E731
    ok, bad = True, False
    yield "itself", base, lambda b: (b, b), ok
    yield "equal views", base, lambda b: (b[3:9], b[3:9]), ok
    yield "interleaved", base, lambda b: (b[::2], b[1::2]), ok
    yield "one after the other", base, lambda b: (b[:12], b[12:]), ok
    yield "interleaved backwards", base, lambda b: (b[::2], b[1::2][::-1]), ok
    yield "columns", base, lambda b: (b.reshape(6, 4)[:, 1], b.reshape(6, 4)[:, 2]), ok
    yield "the same, reshaped and back", base, lambda b: (b, b.reshape(4, 6).reshape(-1)), ok
    yield "extent 1 with other strides", base, lambda b: (b[:1], b[:2:2]), ok
    yield "shifted by one", base, lambda b: (b[1:], b[:-1]), bad
    yield "reversed", base, lambda b: (b, b[::-1]), bad
    yield "transposed", base, lambda b: (b[:16].reshape(4, 4), b[:16].reshape(4, 4).T), bad
    yield "broadcast part", base, lambda b: (b[:6], b[2:3]), bad
    yield "other stride", base, lambda b: (b[:12:2], b[:18:3]), bad


@pytest.mark.parametrize(
    ("what", "make", "views", "fine"),
    list(overlapping_cases()),
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_overlap(what: Any, make: Any, views: Any, fine: Any) -> None:
    buffer = make()
    before = buffer.copy()
    out, x = views(buffer)
    y = np.full(out.shape, 0.3, np.float32)
    for operands in ((x, y), (y, x)):
        buffer[:] = before
        expect = sr.add(*[a.copy() for a in operands], key=KEY)
        if fine:
            sr.add(*operands, key=KEY, out=out)
            assert np.array_equal(out, expect), what
        else:
            with pytest.raises(errors.AttributeValueError, match=r"^add: out overlaps [xy], got strides"):
                sr.add(*operands, key=KEY, out=out)
            assert np.array_equal(buffer, before)


def test_other_formats_in_the_same_memory_are_refused() -> None:
    buffer = np.ones(8, np.float32)
    with pytest.raises(errors.AttributeValueError, match="out overlaps x"):
        sr.cast(buffer, "bfloat16", key=KEY, out=buffer.view(BF16)[::2])
    with pytest.raises(errors.AttributeValueError, match="w overlaps u"):
        sr.add_(buffer.view(BF16)[:8], buffer, key=KEY)
    assert np.array_equal(buffer, np.ones(8))


def test_outputs_whose_elements_share_memory_are_refused() -> None:
    buffer = np.ones(20, np.float32)
    strided = np.lib.stride_tricks.as_strided
    for shape, strides in (((4,), (0,)), ((4, 4), (4, 4)), ((3, 4), (8, 16))):
        out = strided(buffer, shape, strides)
        with pytest.raises(errors.AttributeValueError, match="elements of out overlap each other"):
            sr.add(np.ones(shape, np.float32), np.ones(shape, np.float32), key=KEY, out=out)
    assert np.array_equal(buffer, np.ones(20))
    crossed = strided(buffer, (2, 2), (8, 12))  # elements 0, 3, 2, 5: none twice
    sr.add(np.ones((2, 2), np.float32), np.ones((2, 2), np.float32), key=KEY, out=crossed)
    assert np.flatnonzero(buffer == 2).tolist() == [0, 2, 3, 5]


@pytest.mark.parametrize("names", list(itertools.product(["float32", "bfloat16"], repeat=2)))
def test_out_broadcasts_operands_but_is_not_broadcast(names: Any) -> None:
    x, y = np.ones((3, 1), np_dtype(names[0])), np.ones(4, np_dtype(names[1]))
    out = np.zeros((3, 4), x.dtype)
    assert np.all(sr.add(x, y, key=KEY, out=out).astype(float) == 2)
    with pytest.raises(errors.ShapeError):
        sr.add_(x, y, key=KEY)
    with pytest.raises(errors.ShapeError):
        sr.add(x, y, key=KEY, out=np.zeros((1, 3, 4), x.dtype))


# Any slices

EXTENT = 7


@st.composite
def slices(draw: Any, shape: Any) -> Any:
    """A view of a cube of ``EXTENT``: where it starts and how it steps in each axis, and the order of the axes."""
    index = []
    for extent in shape:
        step = draw(st.sampled_from([1, 2, 3, -1, -2]))
        reach = (extent - 1) * abs(step)
        if reach >= EXTENT:
            step, reach = step // abs(step), extent - 1
        first = draw(st.integers(0, EXTENT - 1 - reach))
        start = first if step > 0 else first + reach
        stop = start + extent * step
        index.append(slice(start, stop if stop >= 0 else None, step))
    return tuple(index)


def addresses(view: Any) -> Any:
    """The address of each element."""
    offsets = np.zeros((), np.int64)
    for stride, extent in zip(view.strides, view.shape, strict=True):
        offsets = np.add.outer(offsets, np.arange(extent) * stride)
    return view.ctypes.data + offsets


@settings(deadline=None, max_examples=300)
@given(st.data(), st.tuples(*[st.integers(1, 4)] * 3), st.sampled_from([None, (1, 0, 2), (2, 1, 0)]))
def test_any_views_of_one_buffer(data: Any, shape: Any, turn: Any) -> None:
    """Refused exactly if out and an operand share elements without being the same view; else right."""
    buffer = np.random.default_rng(0).standard_normal((EXTENT,) * 3).astype(np.float32)
    before = buffer.copy()
    out, x, y = (buffer[data.draw(slices(shape))] for _ in range(3))
    if turn is not None:
        square = shape[:1] * 3
        x = buffer[tuple(slice(0, extent) for extent in square)].transpose(turn)
        out, y = (buffer[data.draw(slices(square))] for _ in range(2))
    places = addresses(out)
    clash = any(
        not np.array_equal(places, addresses(a)) and np.intersect1d(places, addresses(a)).size for a in (x, y)
    )
    expect = sr.add(x.copy(), y.copy(), key=KEY)
    if clash:
        with pytest.raises(errors.AttributeValueError, match="out overlaps"):
            sr.add(x, y, key=KEY, out=out)
        assert np.array_equal(buffer, before)
    else:
        sr.add(x, y, key=KEY, out=out)
        assert np.array_equal(out, expect)
        untouched = np.setdiff1d(addresses(buffer), places)
        positions = (untouched - buffer.ctypes.data) // buffer.itemsize
        assert np.array_equal(buffer.reshape(-1)[positions], before.reshape(-1)[positions])
