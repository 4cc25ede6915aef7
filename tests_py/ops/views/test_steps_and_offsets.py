"""Slices with any step, also as views that are written, and dynamic slices whose offsets have any shape."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import popsr
from popsr import errors, ops, transforms
from tests_py.support.helpers import assert_same_bits, evaluate, make_variable

X = np.arange(60, dtype=np.float32).reshape(6, 10) - 20
BOUNDS = (None, 0, 2, 5, -1, -3, 99, -99)
STEPS = (1, 2, 3, 7, -1, -2, -4, -7)


def ranges() -> list[slice]:
    """Slices of an axis of 6 that are not inverted."""
    found = []
    for start, stop, step in itertools.product(BOUNDS, BOUNDS, STEPS):
        first, last, _ = slice(start, stop, step).indices(6)
        if (last - first) * step >= 0:
            found.append(slice(start, stop, step))
    return found


def test_steps_are_numpys() -> None:
    keys = ranges()[::5]

    def build(x: popsr.Tensor) -> list[popsr.Tensor]:
        parts = []
        for key in keys:
            parts += [ops.slice(x, key.start, key.stop, key.step), x[key]]
        return parts

    found = evaluate(build, [X])
    for i, key in enumerate(keys):
        assert_same_bits(found[2 * i], X[key], str(key))
        assert_same_bits(found[2 * i + 1], X[key], str(key))


@pytest.mark.parametrize("axis", [0, 1])
def test_views_with_steps_are_written_in_place(axis: int) -> None:
    """Each key a program of its own: what is written through the view is the elements of the slice."""
    for key in (
        slice(None, None, 2),
        slice(5, 1, -2),
        slice(1, None, 3),
        slice(None, None, -5),
        slice(4, 4, 2),
    ):
        expect = X.copy()
        part = expect[key] if axis == 0 else expect[:, key]
        part *= np.float32(-3)
        every_other = part.T[::2]
        every_other += np.float32(1)
        ir = popsr.Ir()
        with ir.main_graph:
            v = make_variable(X)
            view = ops.slice_(v, key.start, key.stop, key.step, axis)
            ops.var_updates.accumulator_scale_(view, -3.0)
            ops.add_(
                ops.slice_(ops.transpose_(view), step=2, axis=0, start=0, stop=99),
                popsr.constant(np.float32(1)),
            )
        with popsr.Session(ir) as session:
            session.run()
            assert_same_bits(session.get_tensor_data(v), expect, str(key))


def test_gradients_of_steps_are_zero_between_them() -> None:
    keys = [
        (slice(None, None, 2), slice(8, 1, -3)),
        (slice(4, None, -4), slice(None)),
        (slice(1, 6, 5), slice(2, 9, 4)),
    ]
    for key in keys:
        ir = popsr.Ir()
        with ir.main_graph:
            x = make_variable(X)
            graph = ir.create_graph(lambda x, key=key: x[key] * x[key], x)
            info = transforms.autodiff(graph)
            call = ops.call_with_info(graph, x)
            seed = popsr.constant(np.ones(X[key].shape, np.float32))
            (dx,) = ops.call(info.graph, seed, inputs_dict=info.inputs_dict(call))
            out = popsr.d2h_stream(X.shape, popsr.float32)
            ops.host_store(out, dx)
        expect = np.zeros_like(X)
        expect[key] = 2 * X[key]
        with popsr.Session(ir) as session:
            assert_same_bits(session.run()[out], expect, str(key))


def test_inverted_ranges_stay_refused() -> None:
    with popsr.Ir().main_graph:
        x = popsr.constant(X)
        for start, stop, step in ((3, 1, 2), (1, 3, -2), (0, -1, -(2**63)), (-1, 0, 2**63 - 1)):
            with pytest.raises(errors.ShapeError, match=r"^slice: range is inverted, got "):
                ops.slice(x, start, stop, step)


@pytest.mark.parametrize("shape", [(2,), (2, 1), (1, 2), (1, 2, 1)])
def test_offsets_have_any_shape(shape: tuple[int, ...]) -> None:
    offsets = np.array([3, 4], np.int32)
    patch = np.full((2, 5), 7, np.float32)

    def build(x: popsr.Tensor, at: popsr.Tensor, patch: popsr.Tensor) -> list[popsr.Tensor]:
        box: dict[str, Any] = {"axes": [0, 1], "sizes": [2, 5], "no_overlap": True}
        part = ops.dynamic_slice(x, at, **box)
        updated = ops.dynamic_update(x, at, patch, **box)
        in_place = ops.dynamic_update_(ops.identity(x), at, patch, **box)
        return [part, updated, in_place]

    part, updated, in_place = evaluate(build, [X, offsets.reshape(shape), patch], check=True)
    expect = X.copy()
    expect[3:5, 4:9] = patch
    assert_same_bits(part, X[3:5, 4:9])
    assert_same_bits(updated, expect)
    assert_same_bits(in_place, expect)


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_one_offset_has_any_shape_and_gradients(shape: tuple[int, ...]) -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        x, at = make_variable(X), popsr.constant(np.full(shape, 2, np.uint32))
        graph = ir.create_graph(lambda x, at: ops.dynamic_slice(x, at, [0], [3], True) * 2.0, x, at)
        info = transforms.autodiff(graph, grads_required=[graph.inputs[0]])
        call = ops.call_with_info(graph, x, at)
        seed = popsr.constant(np.ones((3, 10), np.float32))
        (dx,) = ops.call(info.graph, seed, inputs_dict=info.inputs_dict(call))
        out = popsr.d2h_stream(X.shape, popsr.float32)
        ops.host_store(out, dx)
    expect = np.zeros_like(X)
    expect[2:5] = 2
    with popsr.Session(ir) as session:
        assert_same_bits(session.run()[out], expect)


def test_other_numbers_of_offsets_stay_refused() -> None:
    with popsr.Ir().main_graph:
        x = popsr.constant(X)
        for shape in ((), (1,), (3,), (2, 2), (0,)):
            at = popsr.constant(np.zeros(shape, np.int32))
            with pytest.raises(
                errors.ShapeError, match=r"index does not match axes, got .*, expected 2 offsets"
            ):
                ops.dynamic_slice(x, at, [0, 1], [1, 1], True)
