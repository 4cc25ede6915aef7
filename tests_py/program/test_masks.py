"""``t[mask]``: masks of bools that are tensors, arrays or lists, alone and in tuples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import popsr
from popsr import errors, ops, transforms
from tests_py.support.helpers import assert_same_bits, evaluate

X = np.arange(1, 13, dtype=np.float32).reshape(3, 4)
ROWS = [True, False, True]
COLUMNS = [False, True, True, False]
WHOLE = [COLUMNS, [True] * 4, [False] * 4]


@pytest.mark.parametrize(
    "mask",
    [
        COLUMNS,
        WHOLE,
        [[True], [False], [True]],
        np.array(WHOLE),
        [np.array(COLUMNS)] * 3,
        [tuple(COLUMNS), COLUMNS, COLUMNS],
        [np.True_, True, False, np.False_],
        np.array(True),
        np.broadcast_to(np.array(COLUMNS), (3, 4)),
    ],
    ids=repr,
)
def test_a_mask_alone_keeps_the_shape(mask: Any) -> None:
    expect = np.where(np.asarray(mask), X, np.float32(0))

    def build(x: popsr.Tensor) -> list[popsr.Tensor]:
        return [x[mask], x[popsr.constant(np.asarray(mask))]]

    for got in evaluate(build, [X], check=True):
        assert_same_bits(got, expect)


@pytest.mark.parametrize(
    "key",
    [
        (ROWS,),
        (WHOLE,),
        (slice(None), COLUMNS),
        (ROWS, 1),
        (-1, COLUMNS),
        (ROWS, slice(None, None, -2)),
        (slice(2, 0, -1), np.array(COLUMNS)),
        ([True, False, True], [True, False, False, True]),
        ([False] * 3, slice(1, 3)),
        (np.int64(1), [True] * 4),
    ],
    ids=repr,
)
def test_masks_in_tuples_are_numpys(key: Any) -> None:
    (got,) = evaluate(lambda x: x[key], [X], check=True)
    assert_same_bits(got, np.ascontiguousarray(X[key]))


def test_positions_that_a_slice_parts_come_first() -> None:
    """NumPy's order of axes."""
    x = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
    keys: list[Any] = [
        (0, slice(None), COLUMNS),
        ([True, False], slice(None), COLUMNS),
        (slice(None), ROWS, 2),
    ]
    for key, got in zip(keys, evaluate(lambda t: [t[each] for each in keys], [x]), strict=True):
        assert_same_bits(got, np.ascontiguousarray(x[key]))


def test_gradients_are_zero_outside_of_masks() -> None:
    for key in (WHOLE, (ROWS, slice(None, None, 2))):
        ir = popsr.Ir()
        with ir.main_graph:
            x = popsr.variable(X)
            graph = ir.create_graph(lambda x, key=key: x[key], x)
            info = transforms.autodiff(graph)
            call = ops.call_with_info(graph, x)
            seed = popsr.constant(np.ones(graph.outputs[0].shape, np.float32))
            (dx,) = ops.call(info.graph, seed, inputs_dict=info.inputs_dict(call))
            out = popsr.d2h_stream(X.shape, popsr.float32)
            ops.host_store(out, dx)
        expect = np.zeros_like(X)
        expect[np.array(key) if isinstance(key, list) else key] = 1
        with popsr.Session(ir) as session:
            assert_same_bits(session.run()[out], expect)


@pytest.mark.parametrize(
    ("key", "error", "match"),
    [
        ([True, False], errors.ShapeError, "where: "),
        (
            ([True, False],),
            errors.ShapeError,
            r"mask does not fit, got shape \(2,\) from axis 0 on of .* \(3,\)",
        ),
        ((0, WHOLE), errors.ShapeError, "too many indices, got "),
        ((ROWS, 4), errors.OutOfRangeError, "index on axis 1 of .* out of range, got 4"),
        ((ROWS, 1.5), errors.ArgumentTypeError, "is not an int, got 1.5"),
        ((ROWS, slice(3, 1)), errors.AttributeValueError, "range is inverted"),
        ((ROWS, slice("a")), errors.ArgumentTypeError, "bad slice"),
        ((ROWS, True), errors.ArgumentTypeError, "is not an int, got True"),
        ((ROWS, [0, 1]), errors.ArgumentTypeError, "is not an int"),
        ([[True, False], [True]], errors.ArgumentTypeError, "indices are not integers"),
        ([True, 1.5], errors.ArgumentTypeError, "indices are not integers"),
        ((True, False), errors.ArgumentTypeError, "is not an int, got True"),
    ],
    ids=repr,
)
def test_refused(key: Any, error: type[Exception], match: str) -> None:
    ir = popsr.Ir()
    with ir.main_graph:
        x = popsr.variable(X)
        before = str(ir)
        with pytest.raises(error, match=match):
            x[key]
        assert str(ir) == before
